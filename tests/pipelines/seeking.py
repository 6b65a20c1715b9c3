"""A search whose trials train nothing, and die, stop, fail or are forgotten where a test says so."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import drivetrain as dt
from drivetrain.components.tuning.objective import objectives_of
from drivetrain.components.tuning.recording import TrialRecording
from drivetrain.components.tuning.search import Search
from drivetrain.components.tuning.space import SearchSpace
from drivetrain.components.tuning.study import Outcome, SearchBudget, Study, StudySettings, TrialAttempt
from drivetrain.components.tuning.trial import Link
from drivetrain.errors import Canceled
from drivetrain.metadata import MetadataStore
from drivetrain.pipelines import current
from drivetrain.pipelines.project.context import TrialRecorder


def once(folder: str, name: str) -> bool:
    """Whether this is the first time."""
    try:
        (Path(folder) / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def train(task: Mapping[str, Any], link: Link) -> Outcome:
    """The square of x, after what the task says of its number."""
    number = task["number"]
    if number in task["die"] and once(task["folder"], f"died-{number}"):
        os.kill(os.getpid(), signal.SIGKILL)
    if number in task["exit"]:
        os._exit(3)
    if number in task["stop"] and once(task["folder"], f"stopped-{number}"):
        raise Canceled("stopped by hand")
    if number in task["look"]:
        with MetadataStore.open(task["store"], readonly=True) as store:
            link.note(f"the store says {[each.state for each in store.executions(component='Trial')]}")
    if number in task["fail"]:
        return Outcome("FAILED", reason="it diverged", seconds=0.5)
    value = task["hyperparameters"]["x"] ** 2
    curve = ((value + 1.0,), (value,))
    if number in task["prune"]:
        return Outcome("PRUNED", curve[0], curve[:1], "others do better after epoch 1", 0.5)
    return Outcome("COMPLETE", curve[-1], curve, seconds=0.5)


class Forgetful:
    """Is killed as it records that a trial ended, which the study knows by then."""

    def __init__(self, recorder: TrialRecorder, folder: str, numbers: list[int]) -> None:
        self._recorder, self._folder, self._numbers = recorder, folder, numbers
        self.begin, self.ended = recorder.begin, recorder.ended

    def end(self, number: int, *facts: Any) -> None:
        """Kill this process, or record."""
        if number in self._numbers and once(self._folder, f"forgot-{number}"):
            os.kill(os.getpid(), signal.SIGKILL)
        self._recorder.end(number, *facts)


def seek(folder: str, store: str, trials: int, parallel: int, events: Mapping[str, list[int]]) -> int:
    """Search as the component at work, whose run is recorded in a store; gives how many trials completed."""
    launch, objectives = current(), objectives_of("eval_loss")
    settings = StudySettings(SearchSpace.read({"x": dt.uniform(-2.0, 2.0)}), objectives, "random", seed=5)
    study = Study(launch.work_dir / "journal.log", settings)
    recorder = Forgetful(launch.trials(study.name(launch.execution)), folder, events.get("forget", []))
    recording = TrialRecording(recorder, objectives, {"fixed": 7}, 3)
    search = Search(study, objectives, SearchBudget(trials, None), launch.work_dir / "trials", launch, recording)

    def task(attempt: TrialAttempt, work: Path) -> dict[str, Any]:
        return {
            "folder": folder, "number": attempt.trial, "hyperparameters": dict(attempt.hyperparameters),
            "store": store,
            **{name: events.get(name, []) for name in ("die", "exit", "stop", "look", "fail", "prune")},
        }  # fmt: skip

    if parallel == 1:
        search.run_here(lambda attempt, work, link: train(task(attempt, work), link))
    else:
        search.run_parallel(parallel, f"{__name__}:train", task)
    return sum(trial.outcome is not None and trial.outcome.state == "COMPLETE" for trial in study.trials())
