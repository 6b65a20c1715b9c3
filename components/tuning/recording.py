"""What the store records of a search's trials, told while they are at work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal

from ...pipelines.project.context import TrialRecorder
from .objective import Objective
from .study import ATTEMPTS, Outcome, State, Trial

_ENDS: Final[Mapping[State, Literal["COMPLETE", "CANCELED", "FAILED"]]] = {
    "COMPLETE": "COMPLETE",
    "PRUNED": "CANCELED",
    "FAILED": "FAILED",
}


class TrialRecording:
    """Tells a recorder of trials, in the study's words.

    Args:
        recorder: Of the search.
        objectives: What is measured; their values are the execution's metrics.
        hyperparameters: Those that are not searched: with them an execution says all that Trainer needs.
        seed: Of each trial's training.
    """

    def __init__(
        self, recorder: TrialRecorder, objectives: Sequence[Objective], hyperparameters: Mapping[str, Any], seed: int
    ) -> None:
        self._recorder, self._objectives = recorder, objectives
        self._hyperparameters, self._seed = hyperparameters, seed

    def begin(self, number: int, hyperparameters: Mapping[str, Any]) -> None:
        """An attempt at a trial begins."""
        chosen = {**self._hyperparameters, **hyperparameters}
        self._recorder.begin(number, {"hyperparameters": chosen, "seed": self._seed})

    def end(self, number: int, outcome: Outcome) -> None:
        """It ended by itself, or was stopped."""
        names = [each.name for each in self._objectives]
        properties = {
            "metrics": dict(zip(names, outcome.to_json()["values"], strict=False)),
            "epochs": len(outcome.curve),
            "seconds": outcome.seconds,
        }
        self._recorder.end(number, _ENDS[outcome.state], outcome.reason or None, properties)

    def killed(self, number: int, how: str) -> None:
        """Its process died."""
        self._recorder.end(number, "ABANDONED", f"its process died: {how}")

    def catch_up(self, trials: Iterable[Trial]) -> None:
        """Record trials that a study holds to have ended, and the store does not.

        The study comes first, so they are those that ended as the process that searched died, or the store was away.
        """
        ended = self._recorder.ended()
        for trial in trials:
            # One that was given up has its attempts alone, each of which was abandoned.
            if trial.outcome is not None and len(trial.kills) < ATTEMPTS and trial.number not in ended:
                self.begin(trial.number, trial.hyperparameters)
                self.end(trial.number, trial.outcome)
