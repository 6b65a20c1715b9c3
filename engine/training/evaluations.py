"""What an evaluator measured of a training's checkpoints: a file of JSON lines, written and read as they come."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

FOLDER = "eval"
"""Below the training's `log_dir`: a run of its own for TensorBoard, beside the training's."""
_FILE = "evaluations.jsonl"
_AWAITED = 10
"""Checkpoints that stay for an evaluator that has not come to them yet: one is starting, or is slow."""


@dataclass(frozen=True)
class CheckpointEvaluation:
    """One checkpoint, measured on the eval split.

    Attributes:
        step: Of the checkpoint.
        eval_loss: Mean loss over the full batches of the split; NaN too where it was infinite.
        metrics: Further metrics of the same batches, by name; likewise.
        last: Whether the training ended with this checkpoint.
    """

    step: int
    eval_loss: float
    metrics: Mapping[str, float] = field(default_factory=dict)
    last: bool = False

    def to_json(self) -> dict[str, Any]:
        """What is not finite, of which JSON has no number, is null."""
        metrics = {name: _finite(value) for name, value in self.metrics.items()}
        return asdict(self) | {"eval_loss": _finite(self.eval_loss), "metrics": metrics}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> CheckpointEvaluation:
        """What `to_json` gave."""
        metrics = {name: _number(value) for name, value in body["metrics"].items()}
        return cls(body["step"], _number(body["eval_loss"]), metrics, body["last"])


class EvaluationLog:
    """The file of one training, with a line for each checkpoint: one process appends to it, others read."""

    def __init__(self, log_dir: Path) -> None:
        """Nothing is read yet.

        Args:
            log_dir: The training's.
        """
        self.path = log_dir / FOLDER / _FILE
        self._read = 0  # bytes

    def append(self, evaluation: CheckpointEvaluation) -> None:
        """Write a line. What a killed process left of one goes first."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b") as file:
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)
            file.write(json.dumps(evaluation.to_json(), allow_nan=False).encode() + b"\n")

    def new(self) -> list[CheckpointEvaluation]:
        """Those that were written since the last call, whole lines only; one that is damaged is as none."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._read)
                body = file.read()
        except FileNotFoundError:
            return []
        whole = body[: body.rfind(b"\n") + 1]
        self._read += len(whole)
        return [evaluation for line in whole.split(b"\n") if (evaluation := _read(line)) is not None]


def _read(line: bytes) -> CheckpointEvaluation | None:
    try:
        return CheckpointEvaluation.from_json(json.loads(line))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def unmeasured(log_dir: Path) -> Callable[[Sequence[int]], list[int]]:
    """What tells which steps, of the newest ten, have not been measured yet."""
    log, measured = EvaluationLog(log_dir), set[int]()

    def of(steps: Sequence[int]) -> list[int]:
        measured.update(evaluation.step for evaluation in log.new())
        return [step for step in steps[-_AWAITED:] if step not in measured]

    return of


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _number(value: float | None) -> float:
    return math.nan if value is None else value
