"""Losses and metrics of a training's epochs, recorded as they come."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from ..engine import Callback, EpochRecord, RollbackRecord, TrainingProgress
from ..engine.training.training import last_steps


class EpochMetrics(Callback):
    """Records what each epoch of a training measured, so that its curves can be watched while it runs.

    An attempt that goes on from a checkpoint records the earlier epochs again: the attempt before has recorded them
    with an execution of its own.
    """

    def __init__(self, record: Callable[..., None]) -> None:
        """`record(name, value, step=…)` as `LaunchContext.metric`."""
        self._record = record
        self.epochs: list[EpochRecord] = []
        self._rollbacks: list[list[int]] = []

    def on_epoch_end(self, progress: TrainingProgress, record: EpochRecord) -> None:
        """Record an epoch at its last step."""
        self.add(record)

    def add(self, epoch: EpochRecord) -> None:
        """Record an epoch behind those before."""
        self.epochs.append(epoch)
        self._record_epoch(epoch, last_steps(self.epochs)[-1])

    def on_rollback(self, progress: TrainingProgress, record: RollbackRecord) -> None:
        """Record, at the step that a rollback returned from, the step that it returned to."""
        self._add_rollback(record.step, record.restored_step)

    def _add_rollback(self, step: int, restored_step: int) -> None:
        self._rollbacks.append([step, restored_step])
        self._record("rolled_back_to", restored_step, step=step)

    def keep(self, number: int) -> None:
        """Let the values be those of the epoch whose parameters are exported; the curves stay as they are."""
        for epoch in self.epochs:
            if epoch.epoch == number:
                self._record_epoch(epoch, None)

    def _record_epoch(self, epoch: EpochRecord, step: int | None) -> None:
        values = {"loss": epoch.loss, "eval_loss": epoch.eval_loss, **epoch.metrics}
        for name, value in values.items():
            if value is not None:
                self._record(name, value, step=step)

    def state_dict(self) -> Mapping[str, Any]:
        """The epochs and rollbacks until now."""
        return {"epochs": [asdict(epoch) for epoch in self.epochs], "rollbacks": self._rollbacks}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Record them again; those that this attempt has recorded stay, for no rollback undoes an epoch."""
        for epoch in state["epochs"][len(self.epochs) :]:
            self.add(EpochRecord(**epoch))
        for rollback in state["rollbacks"][len(self._rollbacks) :]:
            self._add_rollback(*rollback)
