"""A search over a small space and what its trials do, for tests and the processes that they start: without pytest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import drivetrain as dt
from drivetrain.components.tuning.objective import objectives_of
from drivetrain.components.tuning.recording import TrialRecording
from drivetrain.components.tuning.results import document
from drivetrain.components.tuning.search import Search
from drivetrain.components.tuning.space import SearchSpace
from drivetrain.components.tuning.study import Outcome, SearchBudget, Study, StudySettings, TrialAttempt
from drivetrain.components.tuning.trial import Link
from drivetrain.errors import Canceled
from drivetrain.pipelines.project.context import UnrecordedTrials

SPACE = {"x": dt.uniform(-2.0, 2.0, step=0.5), "kind": dt.choice("a", "b")}


@dataclass
class Launch:
    """A launch that keeps what it is told."""

    notes: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    done: list[tuple[int, int | None]] = field(default_factory=list)
    cancel: Callable[[], bool] = lambda: False

    def note(self, text: str) -> None:
        self.notes.append(text)

    def printed(self, text: str, last: str) -> None:
        self.lines.append(text)

    def progress(self, done: int, total: int | None, unit: str) -> None:
        if self.cancel():
            raise Canceled("stopped")
        self.done.append((done, total))


def settings(sampler: Any, **options: Any) -> StudySettings:
    chosen = StudySettings(SearchSpace.read(SPACE), objectives_of("eval_loss"), sampler, seed=5, epochs=3, **options)
    chosen.check()
    return chosen


def search_of(folder: Path, chosen: StudySettings, launch: Any, **budget: Any) -> tuple[Study, Search]:
    study = Study(folder / "journal.log", chosen)
    limits = SearchBudget(**{"trials": None, "seconds": None, **budget})
    recording = TrialRecording(UnrecordedTrials(""), chosen.objectives, {}, 0)
    return study, Search(study, chosen.objectives, limits, folder / "trials", launch, recording)


def results(chosen: StudySettings, study: Study) -> dict[str, Any]:
    return document(chosen, study.trials(), {}, {})


def value(hyperparameters: Mapping[str, Any]) -> float:
    return float((hyperparameters["x"] - 0.6) ** 2 + (hyperparameters["kind"] == "a"))


def train(attempt: TrialAttempt, work: Path, link: Link) -> Outcome:
    """The same as the processes' `train`."""
    reached = value(attempt.hyperparameters)
    curve = [[reached + 1 / epoch] for epoch in range(1, 4)]
    for epoch in range(1, 4):
        link.epoch(curve[:epoch])
    return Outcome("COMPLETE", (reached,), tuple(map(tuple, curve)))
