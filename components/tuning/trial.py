"""One trial: the user's `train(run)` with the hyperparameters of the trial, and what it recorded of each epoch."""

from __future__ import annotations

import gc
import math
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

from ...engine.training.callbacks import Callback
from ...errors import Canceled, DrivetrainError
from ...pipelines import current
from ...pipelines.project.context import enter
from ...pipelines.project.metrics import Metrics
from ...progress import Progress, no_progress
from ...redaction import redact
from ...user_code import mistake
from ..training_job import TrainingJob
from .objective import Objective, values_of
from .study import Outcome

if TYPE_CHECKING:
    from ...engine import EpochRecord, Trained, TrainingProgress, TrainingRun


class Link(Protocol):
    """What a trial may say while it is under way."""

    def monitored(self, names: Sequence[str]) -> None:
        """Name the values that each epoch's record will have. Raises InputError where an objective is not there."""
        ...

    def epoch(self, curve: Sequence[Sequence[float]]) -> str | None:
        """Tell the objectives after each epoch so far; gives why the trial is to stop, None where it goes on."""
        ...

    def note(self, text: str) -> None:
        """Say something to a person."""
        ...


@dataclass(frozen=True, kw_only=True)
class Training(TrainingJob):
    """What all trials of a search have in common; the seed is that of a trial's first execution, the next has the next.

    Attributes:
        objectives: What is measured.
        executions: Trainings of each trial, whose mean counts.
        epoch: Whether a training counts by its last epoch or by its best.
    """

    objectives: tuple[Objective, ...]
    executions: int
    epoch: Literal["last", "best"]

    def to_json(self) -> dict[str, Any]:
        """As it is sent to a process; the function must be a named one by then."""
        return super().to_json() | {"objectives": [asdict(each) for each in self.objectives]}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """What `to_json` described."""
        return super().from_json({**body, "objectives": tuple(Objective(**each) for each in body["objectives"])})


class ReadHyperparameters(dict[str, Any]):
    """Hyperparameters that remember which of them were asked for."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a name, or the default."""
        self.read.add(name)
        return super().get(name, default)

    def __contains__(self, name: object) -> bool:
        self.read.add(str(name))
        return super().__contains__(name)

    def __iter__(self) -> Iterator[str]:  # `**hyperparameters` too, which would pass by otherwise
        self.read.update(super().keys())
        return super().__iter__()

    def keys(self) -> Any:
        """All names; they count as read."""
        self.read.update(super().keys())
        return super().keys()

    def items(self) -> Any:
        """All names and values; they count as read."""
        self.read.update(super().keys())
        return super().items()

    def values(self) -> Any:
        """All values; their names count as read."""
        self.read.update(super().keys())
        return super().values()

    def copy(self) -> dict[str, Any]:
        """All names and values; they count as read."""
        return dict(self.items())

    def __or__(self, other: Any) -> Any:
        return self.copy() | other


class TrialReport(Callback):
    """Tells the study of each epoch, and ends the training where it says so."""

    def __init__(self, objectives: Sequence[Objective], link: Link) -> None:
        self._objectives, self._link = objectives, link
        self.curve: list[list[float]] = []
        self.pruned = ""

    def on_train_begin(self, progress: TrainingProgress) -> None:
        """See that the objectives will be recorded."""
        self._link.monitored(progress.monitored)

    def on_epoch_end(self, progress: TrainingProgress, record: EpochRecord) -> None:
        """Tell, and ask. An epoch of which a rollback left nothing has a point too, so that each is at its number."""
        nothing_left = range(len(self.curve) + 1, record.epoch)
        self.curve += [[math.nan] * len(self._objectives) for _ in nothing_left]
        self.curve.append(values_of(self._objectives, recorded(record)))
        reason = self._link.epoch(self.curve)
        if reason is not None and record.epoch < progress.epochs:
            self.pruned = reason
            progress.stop(reason)

    def state_dict(self) -> Mapping[str, Any]:
        """The curve: a training that goes on from a checkpoint tells it from the begin."""
        return {"curve": self.curve, "pruned": self.pruned}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.curve, self.pruned = state["curve"], state["pruned"]


def recorded(record: EpochRecord) -> dict[str, float | None]:
    """All values of an epoch, by name."""
    return {"loss": record.loss, "eval_loss": record.eval_loss, **record.metrics}


def run_trial(
    training: Training,
    hyperparameters: Mapping[str, Any],
    work: Path,
    link: Link,
    *,
    logs: Path | None = None,
    rehearse: bool = False,
    progress: Progress = no_progress,
) -> Outcome:
    """Train with some hyperparameters, as often as a trial does.

    Args:
        training: What all trials have in common.
        hyperparameters: Of this one.
        work: A folder for checkpoints: a repeated trial goes on from them. It is removed once the trial has ended.
        link: Who is told of epochs.
        logs: Where callbacks leave files, such as TensorBoard's; None: in the folder that is removed.
        rehearse: Whether to see first that the model can be exported.
        progress: May raise Canceled.

    Returns:
        How it ended. What the user's function raises is a failed trial.

    Raises:
        Canceled: `progress` did.
    """
    begin, promotions = time.monotonic(), _promotions()
    read = ReadHyperparameters({**training.hyperparameters, **hyperparameters})
    try:
        outcome = _executions(training, read, work, logs or work / "logs", link, rehearse, progress)
    except Canceled:
        raise
    except DrivetrainError as error:
        outcome = Outcome("FAILED", reason=_reason(error))
    except (Exception, SystemExit) as error:  # the user's own code may raise anything
        cause = mistake(error) if isinstance(error, Exception) else DrivetrainError(f"it exited: {error}")
        outcome = Outcome("FAILED", reason=_reason(cause))
    shutil.rmtree(work, ignore_errors=True)
    # Compiled programs stand in circles, some 10 MB a trial, and the next trial uses none of them. Where none of its
    # objects grew old, the old ones of the whole process need not be looked through.
    gc.collect(1 if _promotions() == promotions else 2)
    seconds = round(time.monotonic() - begin, 3)
    # This process alone may know a secret that it read.
    return replace(outcome, reason=redact(outcome.reason), seconds=seconds, read=tuple(sorted(read.read)))


def _promotions() -> int:
    """How often the garbage collector has made objects old, which only a full collection frees."""
    return sum(generation["collections"] for generation in gc.get_stats()[1:])


def _reason(error: DrivetrainError) -> str:
    """Where, what, and what to do about it, in a line."""
    parts = (f"{error.where}: " if error.where else "", error.message, f"; fix: {error.fix}" if error.fix else "")
    return "".join(parts)


def _executions(
    training: Training,
    read: ReadHyperparameters,
    work: Path,
    logs: Path,
    link: Link,
    rehearse: bool,
    progress: Progress,
) -> Outcome:
    measured: list[Sequence[float]] = []
    curve: tuple[tuple[float, ...], ...] = ()
    for execution in range(training.executions):
        report = TrialReport(training.objectives, link if execution == 0 else _Silent(link))
        run = _run(training, read, training.seed + execution, work / str(execution), report, link.note, progress)
        run = replace(run, log_dir=logs if training.executions == 1 else logs / str(execution))
        leave = enter(replace(current(), metrics=Metrics()))  # what one training measures is no other's
        try:
            trained = _trained(training, run if rehearse and execution == 0 else _without_rehearsal(run))
            own_loop = current().metrics.last
        finally:
            leave()
        if execution == 0:
            curve = tuple(tuple(values) for values in report.curve)
        if report.pruned:
            return Outcome("PRUNED", curve[-1], curve, report.pruned)
        measured.append(_measured(training, trained, own_loop, link))
    every = list(zip(*measured, strict=True))
    for objective, each in zip(training.objectives, every, strict=True):
        for value in each:
            if not math.isfinite(value):
                return Outcome("FAILED", curve=curve, reason=f"{objective.name} is {value}")
    return Outcome("COMPLETE", tuple(math.fsum(each) / len(measured) for each in every), curve)


def _run(
    training: Training,
    read: ReadHyperparameters,
    seed: int,
    work: Path,
    report: TrialReport,
    note: Callable[[str], None],
    progress: Progress,
) -> TrainingRun:
    from ...engine.export import rehearse  # late, as in `TrainingJob.run`

    return replace(
        training.run(),
        seed=seed,
        hyperparameters=read,
        work_dir=work,
        progress=progress,
        note=note,
        rehearse=partial(rehearse, training.graph),
        callbacks=(report,),
    )


def _without_rehearsal(run: TrainingRun) -> TrainingRun:
    return replace(run, rehearse=lambda *model: None)


def _trained(training: Training, run: TrainingRun) -> Trained:
    from ..trainer import call_train

    return call_train(training.fn, run)


def _measured(training: Training, trained: Trained, own_loop: Mapping[str, float], link: Link) -> list[float]:
    """The objectives of one training; of a loop of the user's own, metrics that it recorded.

    Of a training that counts by its best epoch, and had none that is finite, it is the last one's value.
    """
    epochs: list[Mapping[str, float | None]] = [recorded(record) for record in trained.history]
    if not epochs:
        link.monitored(list(own_loop))
        epochs = [own_loop]
    every = [values_of(training.objectives, record) for record in epochs]
    if training.epoch == "last":
        return every[-1]
    finite = [[value for value in column if math.isfinite(value)] for column in zip(*every, strict=True)]
    columns = zip(training.objectives, finite, every[-1], strict=True)
    return [objective.best(values) if values else last for objective, values, last in columns]


class _Silent:
    """The link of an execution after the first: nobody is asked whether to stop."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def monitored(self, names: Sequence[str]) -> None:
        self._link.monitored(names)

    def epoch(self, curve: Sequence[Sequence[float]]) -> str | None:
        return None

    def note(self, text: str) -> None:
        self._link.note(text)


def in_process(body: Mapping[str, Any], link: Link) -> Outcome:
    """A trial as it is sent to a process of its own."""
    training = Training.from_json(body["training"])
    work, logs = Path(body["work"]), Path(body["logs"])
    return run_trial(training, body["hyperparameters"], work, link, logs=logs, rehearse=body["rehearse"])
