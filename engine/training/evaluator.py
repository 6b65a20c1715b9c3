"""The evaluator beside a training: it measures each checkpoint that the training saves, in a process of its own.

TensorFlow's Estimator called this task the evaluator, Keras's callback for it is `SidecarEvaluator`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import DrivetrainError
from .checkpoint import Checkpoints
from .evaluations import FOLDER, CheckpointEvaluation, EvaluationLog
from .tensorboard import TensorBoard, add_scalar
from .work_lock import is_at_work

if TYPE_CHECKING:
    from .callbacks import Callback
    from .training import TrainingRun

_POLL = 0.5
"""Seconds between two looks at the folder."""
_TRIES = 3
"""Reads of a checkpoint that fail before it is left out: it may be whole a moment later, on a network's file system."""
SavedState = tuple[int, Any, dict[str, Any]]
"""A checkpoint: its step, the state as numpy arrays, and the record."""


@dataclass(frozen=True)
class SavedCheckpoints:
    """The checkpoints of a training, read as they come by another process, which changes nothing of them.

    Attributes:
        work_dir: The training's.
        like: The structure, shapes and dtypes of the state in each.
        total: The number of the training's last step.
        epoch_steps: How many an epoch has.
        patience: Seconds without a training in that folder, and without a new checkpoint, that it waits.
        note: Called with a line about a checkpoint that could not be read.
        heed: Called at each look; what it raises ends the wait.
    """

    work_dir: Path
    like: Any
    total: int
    epoch_steps: int
    patience: float
    note: Callable[[str], None]
    heed: Callable[[], None]

    def ended(self, step: int, record: dict[str, Any]) -> bool:
        """Whether the training ended with this checkpoint: one that is stopped goes on to the end of its epoch."""
        return step == self.total or bool(record["stopped"] and step % self.epoch_steps == 0)

    def stream(self, seen: set[int]) -> Iterator[SavedState]:
        """Those that are there, by step, and those that come, until the training's last.

        Args:
            seen: The steps that are not wanted again; those that come are added.

        Raises:
            DrivetrainError: No training has had the folder for `patience` seconds, and its last checkpoint is missing;
                or that cannot be read.
        """
        failures: dict[int, int] = {}
        alone_since = time.monotonic()
        with closing(Checkpoints(self.work_dir / "checkpoints")) as checkpoints:
            while True:
                self.heed()
                # Before the look at the folder: a training that ends now has saved before it lets go of the lock.
                at_work = is_at_work(self.work_dir, "training")
                steps = checkpoints.steps()
                for step in [step for step in failures if step not in steps and step not in seen]:
                    seen.add(step)
                    self.note(f"the checkpoint of step {step} was gone before it was read: it is not measured")
                saved = self._next(checkpoints, steps, failures, seen)
                if saved is not None:
                    yield saved
                    if self.ended(saved[0], saved[2]):
                        return
                    alone_since = time.monotonic()
                    continue
                if self.total in seen:
                    raise DrivetrainError(
                        f"the last checkpoint in {self.work_dir}, of step {self.total}, cannot be read or measured",
                        fix="see to the disk; the training has ended, and nothing of it is lost",
                    )
                if at_work or not seen.issuperset(steps):
                    alone_since = time.monotonic()
                elif time.monotonic() - alone_since >= self.patience:
                    raise self._left_alone(seen)
                time.sleep(_POLL)

    def _next(
        self, checkpoints: Checkpoints, steps: list[int], failures: dict[int, int], seen: set[int]
    ) -> SavedState | None:
        """The first of these steps that was not seen and can be read; it is seen then, and what never can be too."""
        for step in [step for step in steps if step not in seen]:
            try:
                state, record = checkpoints.read(step, self.like)
            except DrivetrainError:
                raise
            except Exception as error:  # orbax and tensorstore raise many kinds; the note carries it
                failures[step] = failures.get(step, 0) + 1
                if failures[step] == _TRIES:
                    seen.add(step)
                    cause = " ".join(str(error).split())[:200]
                    self.note(f"the checkpoint of step {step} cannot be read, and is not measured: {cause}")
            else:
                seen.add(step)
                return step, state, record
        return None

    def _left_alone(self, seen: set[int]) -> DrivetrainError:
        if not seen:
            return DrivetrainError(
                f"no training has saved a checkpoint in {self.work_dir} for {self.patience:.0f} s, and none is at work",
                fix="start the training, and see that this machine sees the folder; or wait longer for it",
            )
        return DrivetrainError(
            f"the training in {self.work_dir} is no longer at work, and ended at step {max(seen)} of {self.total}, or "
            "soon after",
            fix="go on with the training, and start the evaluator again: it leaves out what it has measured",
        )


class EvaluationWriter:
    """Writes what is measured: event files where the training writes some, then a JSON line, then a note."""

    def __init__(self, run: TrainingRun, log: EvaluationLog, callbacks: tuple[Callback, ...]) -> None:
        """Opens no file yet."""
        self._run, self._log = run, log
        self._boards = any(isinstance(callback, TensorBoard) for callback in callbacks)

    def write(self, evaluation: CheckpointEvaluation) -> None:
        """Write all of it. The JSON line comes last of the files: who waits for it finds the others.

        Raises:
            DrivetrainError: It cannot be written, as on a full disk.
        """
        values = {"eval_loss": evaluation.eval_loss, **evaluation.metrics}
        try:
            if self._boards:
                self._write_events(evaluation.step, values)
            self._log.append(evaluation)
        except OSError as error:
            raise DrivetrainError(
                f"what was measured of the checkpoint of step {evaluation.step} could not be written to "
                f"{self._log.path.parent}: {error}",
                fix="make room there, and start the evaluator again: it goes on with this checkpoint",
            ) from error
        shown = ", ".join(f"{name.replace('_', ' ')} {value:.5f}" for name, value in values.items())
        self._run.note(f"checkpoint of step {evaluation.step}: {shown}")

    def _write_events(self, step: int, values: dict[str, float]) -> None:
        """A file for each step: checkpoints are rare, and an evaluator that is killed leaves whole files."""
        from .event_files import EventFile

        with EventFile(str(self._run.log_dir / FOLDER), filename_suffix=f".{step:012}") as writer:
            for name, value in values.items():
                add_scalar(writer, f"epoch/{name}", value, step)
