"""The search: trials here or in processes, until the budget is spent."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from ...errors import InputError
from .objective import Objective, best_trial, check_recorded
from .recording import TrialRecording
from .space import described, short
from .study import ATTEMPTS, Outcome, SearchBudget, Study, Trial, TrialAttempt
from .trial import Link
from .workers import Worker, Workers

_TICK: Final = 0.5
"""Seconds after which a search looks whether it is to stop, while no trial says anything."""
_HOPELESS: Final = 5
"""Trials after which a search ends where all have failed: the reason is hardly one of the hyperparameters."""


class Launch(Protocol):
    """What a search uses of the launch that it runs in."""

    @property
    def note(self) -> Callable[[str], None]: ...  # noqa: D102
    @property
    def printed(self) -> Callable[[str, str], None]: ...  # noqa: D102
    @property
    def progress(self) -> Callable[[int, int | None, str], None]: ...  # noqa: D102


class Search:
    """A study at work."""

    def __init__(
        self,
        study: Study,
        objectives: Sequence[Objective],
        budget: SearchBudget,
        work: Path,
        launch: Launch,
        recording: TrialRecording,
    ) -> None:
        """Nothing begins yet.

        Args:
            study: Who chooses.
            objectives: What is measured.
            budget: When to end.
            work: Where each trial has a folder.
            launch: Who is told.
            recording: Who records each trial.
        """
        self._study, self._objectives, self._budget = study, objectives, budget
        self._work, self._launch, self._recording = work, launch, recording
        self._since = time.monotonic()
        self._refused: InputError | None = None
        self._settled = 0  # trials, when the last attempt began

    def run_here(self, train: Callable[[TrialAttempt, Path, Link], Outcome]) -> None:
        """Do all trials in this process, one after the other.

        Raises:
            InputError: No trial records an objective, or all fail.
        """
        self._recording.catch_up(self._study.trials())
        for trial in self._study.trials():
            if trial.outcome is None and trial.kills:
                self._launch.note(f"trial {trial.number} is trained again, as its process died: {trial.kills[-1]}")
            elif trial.outcome is not None and len(trial.kills) >= ATTEMPTS:
                self._launch.note(f"trial {trial.number} failed: {trial.outcome.reason}")
        while (attempt := self._next()) is not None:
            self.progress()
            with self._study.here(attempt):
                outcome = train(attempt, self._folder(attempt), _LocalLink(self, attempt))
                if self._refused is not None:
                    raise self._refused
            self._end(attempt, outcome)
        self._finish()

    def run_parallel(self, most: int, body: str, task: Callable[[TrialAttempt, Path], Mapping[str, Any]]) -> None:
        """Do trials in processes, several at a time.

        Args:
            most: How many at a time.
            body: The function that a process calls, "module:name", with a task and a `Link`; gives an `Outcome`.
            task: Its task, as JSON.

        Raises:
            InputError: No trial records an objective, or all fail.
        """
        self._recording.catch_up(self._study.trials())
        workers, at_work = Workers(most, self._launch.printed), dict[Worker, TrialAttempt]()
        try:
            while True:
                while len(at_work) < most and (attempt := self._next()) is not None:
                    worker = workers.free()
                    assert worker is not None
                    worker.busy, at_work[worker] = True, attempt
                    worker.send(body=body, **task(attempt, self._folder(attempt)))
                if not at_work:
                    break
                self.progress()
                for worker, message in workers.wait(_TICK):
                    if message is None:
                        how = workers.remove(worker)
                        if worker in at_work:
                            self._killed(at_work.pop(worker), how)
                    elif message["event"] == "ended":
                        worker.busy = False
                        self._end(at_work.pop(worker), Outcome.from_json(message["outcome"]))
                    else:
                        self._hear(worker, at_work.get(worker), message)
        finally:
            workers.close()
        self._finish()

    def monitored(self, names: Sequence[str]) -> None:
        """See that the objectives are recorded."""
        try:
            check_recorded(self._objectives, names)
        except InputError as error:
            self._refused = error
            raise

    def epoch(self, attempt: TrialAttempt, curve: Sequence[Sequence[float]]) -> str | None:
        """Take in an epoch; gives why the trial is to stop."""
        return self._study.report(attempt, curve)

    def note(self, attempt: TrialAttempt, text: str) -> None:
        """Say something of a trial."""
        self._launch.note(f"trial {attempt.trial}: {text}")

    def progress(self) -> None:
        """Say how far the search is. Raises `Canceled` where it is to stop."""
        self._launch.progress(self._settled, self._budget.trials, "trials")

    def _hear(self, worker: Worker, attempt: TrialAttempt | None, message: Mapping[str, Any]) -> None:
        if attempt is None:  # a thread that its function left behind
            self._launch.note(message.get("text", ""))
        elif message["event"] == "monitored":
            self.monitored(message["names"])
        elif message["event"] == "epoch":
            worker.send(stop=self.epoch(attempt, message["curve"]))
        else:
            self.note(attempt, message["text"])

    def _next(self) -> TrialAttempt | None:
        """The next attempt, where the budget and what happened so far allow it."""
        self._clock()
        outcomes = self._outcomes()
        self._check_hope(outcomes)
        self._settled = len(outcomes)
        if self._budget.seconds is not None and self._study.seconds >= self._budget.seconds:
            return None
        attempt = self._study.next(self._budget.trials)
        if attempt is not None:
            self._recording.begin(attempt.trial, attempt.hyperparameters)
        return attempt

    def _clock(self) -> None:
        now = time.monotonic()
        self._study.add_seconds(now - self._since)
        self._since = now

    def _end(self, attempt: TrialAttempt, outcome: Outcome) -> None:
        self._study.end(attempt, outcome)
        self._recording.end(attempt.trial, outcome)
        self._clock()
        values = ", ".join(
            f"{objective.name} {short(value)}"
            for objective, value in zip(self._objectives, outcome.values, strict=False)
        )
        said = {"COMPLETE": values, "PRUNED": f"stopped, {outcome.reason}: {values}"}.get(
            outcome.state, f"failed: {outcome.reason}"
        )
        best = best_of(self._objectives, self._study.trials())
        of = f"; the best is trial {best.number}" if best is not None and best.number != attempt.trial else ""
        self.note(attempt, f"{said} ({described(attempt.hyperparameters)}){of}")

        self._check_read(attempt, outcome)

    def _check_read(self, attempt: TrialAttempt, outcome: Outcome) -> None:
        """Refuse to go on where nothing that is searched makes a difference."""
        if (
            outcome.state == "COMPLETE"
            and outcome.read is not None
            and not {*attempt.hyperparameters} & {*outcome.read}
        ):
            asked = ", ".join(map(repr, outcome.read)) or "none"
            raise InputError(
                f"the function does not read {', '.join(map(repr, attempt.hyperparameters))}, which is searched",
                fix=f'read run.hyperparameters["…"]; it asks for {asked}',
            )

    def _killed(self, attempt: TrialAttempt, how: str) -> None:
        self._study.killed(attempt, how)
        self._recording.killed(attempt.trial, how)
        self.note(attempt, f"its process died: {how}")

    def _folder(self, attempt: TrialAttempt) -> Path:
        return self._work / str(attempt.trial)

    def _check_hope(self, outcomes: Sequence[Outcome]) -> None:
        """Refuse to go on where nothing has ever worked."""
        if len(outcomes) >= _HOPELESS and all(outcome.state == "FAILED" for outcome in outcomes):
            raise self._hopeless(outcomes)

    def _finish(self) -> None:
        """See that all is recorded, and that a trial completed."""
        self._recording.catch_up(self._study.trials())
        if best_of(self._objectives, self._study.trials()) is None:
            raise self._hopeless(self._outcomes())

    def _outcomes(self) -> list[Outcome]:
        return [trial.outcome for trial in self._study.trials() if trial.outcome is not None]

    def _hopeless(self, outcomes: Sequence[Outcome]) -> InputError:
        if not outcomes:
            return InputError("no trial ended before the time was up", fix="give the Tuner more seconds")
        first = next((outcome.reason for outcome in outcomes if outcome.state == "FAILED"), outcomes[0].reason)
        return InputError(
            f"none of {len(outcomes)} trials completed; the first: {first}",
            fix="see the log; try its hyperparameters by Trainer, or narrow the search space",
        )


class _LocalLink:
    """The link of a trial in the process that searches."""

    def __init__(self, search: Search, attempt: TrialAttempt) -> None:
        self._search, self._attempt = search, attempt

    def monitored(self, names: Sequence[str]) -> None:
        self._search.monitored(names)

    def epoch(self, curve: Sequence[Sequence[float]]) -> str | None:
        return self._search.epoch(self._attempt, curve)

    def note(self, text: str) -> None:
        self._search.note(self._attempt, text)


def best_of(objectives: Sequence[Objective], trials: Sequence[Trial]) -> Trial | None:
    """The best of those that completed; see `best_trial`."""
    complete = {trial.number: trial for trial in trials if trial.outcome and trial.outcome.state == "COMPLETE"}
    values = {number: trial.outcome.values for number, trial in complete.items() if trial.outcome is not None}
    number = best_trial(objectives, values)
    return None if number is None else complete[number]
