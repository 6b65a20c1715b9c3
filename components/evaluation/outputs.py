"""Several outputs of a model, each with a configuration of its own, measured in one pass and judged together."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import pyarrow as pa

from ...data.base import BatchFn
from ...data.states import StateFormat
from .accumulator import MetricsAccumulator
from .config import EvaluationConfig
from .scoring import scored, set_up

ONLY: Final = ""
"""The name of an output whose configuration stands alone."""
_STATE: Final = StateFormat("metrics state of several outputs", b"DTEO", 1, "Q", "evaluate again")


@dataclass
class OutputScores:
    """A batch function over raw examples: what `Scores` gives for each configuration, from one call of each model.

    Columns out are "INDEX:NAME", of the configuration at that index.
    """

    configs: Sequence[EvaluationConfig]
    model: BatchFn
    baseline: BatchFn | None = None

    def setup(self) -> None:
        """Prepare both models, once in each process."""
        set_up(self.model, self.baseline)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Score a batch. Raises InputError as `Scores`."""
        outputs = self.model(batch)
        before = None if self.baseline is None else self.baseline(batch)
        columns: dict[str, pa.Array] = {}
        for index, config in enumerate(self.configs):
            part = scored(config, batch, outputs, before)
            columns |= {f"{index}:{name}": part.column(name) for name in part.schema.names}
        return pa.record_batch(list(columns.values()), names=list(columns))


class OutputsAccumulator:
    """A `MetricsAccumulator` for each configuration. Takes the batches that `OutputScores` makes.

    Attributes:
        parts: In the order of the configurations.
    """

    def __init__(self, configs: Sequence[EvaluationConfig], baseline: bool = False) -> None:
        self.parts = [MetricsAccumulator(config, baseline) for config in configs]

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Take in scored rows."""
        for index, part in enumerate(self.parts):
            start = f"{index}:"
            names = [name for name in batch.schema.names if name.startswith(start)]
            part.add_batch(batch.select(names).rename_columns([name.removeprefix(start) for name in names]))

    def merge(self, other: Self) -> None:
        """Add the rows that follow."""
        for mine, theirs in zip(self.parts, other.parts, strict=True):
            mine.merge(theirs)

    def compact(self) -> None:
        """Bound the size of each."""
        for part in self.parts:
            part.compact()

    def result(self) -> Mapping[str, Any]:
        """An empty mapping: the metrics are those of each of `parts`."""
        return {}

    def to_bytes(self) -> bytes:
        """The lengths of the states as JSON, and the states."""
        states = [part.to_bytes() for part in self.parts]
        return _STATE.pack(json.dumps([len(state) for state in states]).encode(), b"".join(states))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The states again, but of a user's metrics: see `load`. Raises InputError as `MetricsAccumulator`."""
        accumulator = cls([])
        accumulator.parts = [MetricsAccumulator.from_bytes(state) for state in _states(data)]
        return accumulator

    def load(self, data: bytes) -> Self:
        """The states that `to_bytes` wrote, for the configurations of this empty one. Raises InputError likewise."""
        accumulator = type(self)([])
        accumulator.parts = [part.load(state) for part, state in zip(self.parts, _states(data), strict=True)]
        return accumulator


def _states(data: bytes) -> list[bytes]:
    with _STATE.unpack(data) as (head, body):
        states, start = [], 0
        for length in json.loads(bytes(head)):
            states.append(bytes(body[start : start + length]))
            start += length
        return states


def named(output: str, text: str) -> str:
    """A text about an output, by the name of which it begins where there are several."""
    return f"{output}: {text}" if output != ONLY else text


def joint_verdict(verdicts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The verdict on a model from those on its outputs: it is blessed where each of them is.

    Args:
        verdicts: Output → what `validate` gave. Of `ONLY`, the result is that.

    Returns:
        As `validate`. Where there are several outputs, what is a text begins with the output's name, what is a mapping
        has its name as `output`, and `outputs` holds of each what else its verdict says.
    """
    if ONLY in verdicts:
        return dict(verdicts[ONLY])
    joint: dict[str, Any] = {"blessed": all(verdict["blessed"] for verdict in verdicts.values())}
    first = next(iter(verdicts.values()))
    joint |= {name: first[name] for name in ("baseline", "examples")}
    joint["outputs"] = {output: {} for output in verdicts}
    for output, verdict in verdicts.items():
        for name, value in verdict.items():
            if name in _LISTS:
                joint.setdefault(name, []).extend(_of_output(output, item) for item in value)
            elif name not in ("baseline", "examples"):
                joint["outputs"][output][name] = value
    joint["missing_thresholds"] = any(verdict["missing_thresholds"] for verdict in verdicts.values())
    return joint


_LISTS: Final = ("thresholds", "missing_slices", "withheld", "withheld_thresholds", "failures")


def _of_output(output: str, item: Any) -> Any:  # Any: JSON
    if isinstance(item, str):
        return named(output, item)
    return {**item, "output": output, "text": named(output, item["text"])}
