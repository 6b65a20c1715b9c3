"""Callbacks: what a user has done while a model is fitted, and early stopping, which is one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ...errors import InputError, suggest

if TYPE_CHECKING:
    from .rollback import RollbackRecord
    from .training import EpochRecord

Json = Any


@dataclass(frozen=True)
class TrainingProgress:
    """What a callback sees of a training, and may ask of it.

    Attributes:
        epochs: How many it has at most.
        steps_per_epoch: Batches of an epoch.
        monitored: Names of the values that an epoch's record will have: losses and metrics.
        stop: Ends the training after the epoch under way, with the reason, which is shown and recorded.
        variables: What the model is evaluated and exported with now, numpy arrays: a copy from the device at each call.
        log_dir: Where a callback may leave files, which go into the model's `extra/logs`.
        settings: Gives those of the training by name, hyperparameters among them.
        traced: Gives the operations that the model computes for a batch (`jax.make_jaxpr`), and the names of its
            inputs, flat, such as "params/hidden/kernel".
    """

    epochs: int
    steps_per_epoch: int
    monitored: tuple[str, ...]
    stop: Callable[[str], None]
    variables: Callable[[], Any]
    log_dir: Path
    settings: Callable[[], Mapping[str, Json]]
    traced: Callable[[], tuple[Any, list[str]]]


class Callback:
    """Methods that `TrainingRun.fit` calls; a subclass overrides those that it needs.

    A callback that remembers something gives it as `state_dict`, which is saved in each checkpoint, so that a resumed
    training ends as an uninterrupted one does. Each instance belongs to one training.
    """

    def on_train_begin(self, progress: TrainingProgress) -> None:
        """Before the first step, and before the first of a resumed training (after `load_state_dict`)."""

    def on_step_end(self, progress: TrainingProgress, step: int, loss: float) -> None:
        """After each step, counted from 1, with its loss: NaN where the step was left out.

        Steps are dispatched to the device many at once, so that some later ones may have run already.
        """

    def on_epoch_end(self, progress: TrainingProgress, record: EpochRecord) -> None:
        """After each epoch and its evaluation."""

    def on_rollback(self, progress: TrainingProgress, record: RollbackRecord) -> None:
        """After `fit(..., rollback=...)` has returned to a good state, and `load_state_dict` to what was known then."""

    def on_train_end(self, progress: TrainingProgress) -> None:
        """After the last epoch, where nothing failed."""

    def close(self) -> None:
        """At the very end, also where the training failed or was canceled: let go of files."""

    def state_dict(self) -> Mapping[str, Json]:
        """What the callback remembers, JSON values."""
        return {}

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Remember again what `state_dict` gave, and nothing since; also amid a training, where it is rolled back."""


class EarlyStopping(Callback):
    """Ends a training when what it monitors has not become better for some epochs.

    With `fit(..., keep_best=...)` the parameters of the best epoch are those that are kept.

    Attributes:
        monitor: What it goes by.
    """

    def __init__(
        self,
        monitor: str = "eval_loss",
        *,
        patience: int = 3,
        min_delta: float = 0.0,
        mode: Literal["min", "max"] | None = None,
    ) -> None:
        """Nothing is looked at yet.

        Args:
            monitor: "loss", "eval_loss", or the name of a metric of `fit`.
            patience: Epochs without improvement after which the training ends.
            min_delta: By how much a value must be better than the best one to count.
            mode: Whether smaller or larger is better; None: smaller, which metrics must be told.

        Raises:
            InputError: A patience below 1, a negative min_delta, or a metric without a mode.
        """
        if patience < 1:
            raise InputError(f"patience is {patience}", fix="use 1 or more")
        if not min_delta >= 0:
            raise InputError(f"min_delta is {min_delta}", fix="use 0 or more")
        self.monitor = Monitor(monitor, mode)
        self._patience, self._min_delta = patience, min_delta
        self._best: float | None = None
        self._waited = 0

    def on_train_begin(self, progress: TrainingProgress) -> None:
        """See that there will be something to look at."""
        self.monitor.check(progress.monitored)

    def on_epoch_end(self, progress: TrainingProgress, record: EpochRecord) -> None:
        """Compare with the best so far."""
        value = self.monitor.value(record)
        if self.monitor.improves(value, self._best, self._min_delta):
            self._best, self._waited = value, 0
            return
        self._waited += 1
        if self._waited >= self._patience:
            best = "finite" if self._best is None else f"better than {self._best:.6g}"
            progress.stop(f"{self.monitor.name} was not {best} for {self._waited} epochs")

    def state_dict(self) -> Mapping[str, Json]:
        """The best value and how long ago it was."""
        return {"best": self._best, "waited": self._waited}

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Go on from there."""
        self._best, self._waited = state["best"], state["waited"]


class Monitor:
    """A value of an epoch's record by name, and which of two is better."""

    def __init__(self, name: str, mode: Literal["min", "max"] | None = None) -> None:
        """The direction of losses is known.

        Raises:
            InputError: There is no such mode, or a metric has none.
        """
        if mode not in ("min", "max", None):
            raise InputError(f"there is no mode {mode!r}", fix='use "min" or "max"')
        if mode is None and name not in ("loss", "eval_loss"):
            raise InputError(
                f"whether a smaller or a larger {name!r} is better is not known",
                fix='add mode="min" or mode="max"; the losses are called "loss" and "eval_loss"',
            )
        self.name = name
        self._sign = -1.0 if mode == "max" else 1.0

    def check(self, monitored: Sequence[str]) -> None:
        """Refuse a name that no epoch's record will have.

        Raises:
            InputError: There is no such metric, or no eval split that it would be measured on.
        """
        if self.name in monitored:
            return
        if self.name == "eval_loss":
            raise InputError(
                "there is no eval_loss to monitor, for there is no eval split",
                fix='give Trainer an eval split, or monitor "loss"',
            )
        raise InputError(f"there is no {self.name!r} to monitor", fix=suggest(self.name, monitored, "there are"))

    def value(self, record: EpochRecord) -> float:
        """Of an epoch."""
        value = {"loss": record.loss, "eval_loss": record.eval_loss, **record.metrics}[self.name]
        return math.nan if value is None else value

    def improves(self, value: float, best: float | None, min_delta: float = 0.0) -> bool:
        """Whether a value is better than the best one by more than a margin; what is not finite never is."""
        if not math.isfinite(value):
            return False
        return best is None or self._sign * (best - value) > min_delta
