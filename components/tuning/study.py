"""The study: what is tried next, and which trials are stopped, in a journal that outlives its process.

Optuna decides, and its journal remembers. One process alone writes that: processes of trials speak to it. So none that
is killed can leave a lock or half a line there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from ...errors import InputError, missing_extra
from ...redaction import redact
from .objective import Objective
from .space import Domain, SearchSpace, Value, index_of, last_of

if TYPE_CHECKING:
    from optuna import Trial as OptunaTrial
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial

Sampler = Literal["tpe", "random", "grid", "cmaes"]
Pruner = Literal["none", "asha", "hyperband", "median"]
State = Literal["COMPLETE", "PRUNED", "FAILED"]

ATTEMPTS: Final = 3
"""How often the process of a trial may die until the trial is taken to be the reason."""
_NAME: Final = "tuning"
_NUMBER, _RESULT, _KILLED, _EARLIER, _HERE = "trial", "result", "killed", "earlier", "here"
_WITH_THE_SEARCH: Final = "the search, in the same process, ended with it (a kill, a crash, or too little memory)"


@dataclass(frozen=True)
class Outcome:
    """How a trial ended.

    Attributes:
        state: "COMPLETE"; "PRUNED": it was stopped as others do better; "FAILED".
        values: Of the objectives, in order: of a complete trial all are finite, of a failed one there are none.
        curve: The objectives after each epoch, of the first execution.
        reason: Why it did not complete.
        seconds: What it took.
        read: The names of hyperparameters that the user's function asked for; None where that is not known.
    """

    state: State
    values: tuple[float, ...] = ()
    curve: tuple[tuple[float, ...], ...] = ()
    reason: str = ""
    seconds: float = 0.0
    read: tuple[str, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON values; what is not finite is null."""
        return {
            "state": self.state,
            "values": [_known(value) for value in self.values],
            "curve": [[_known(value) for value in values] for values in self.curve],
            "reason": self.reason,
            "seconds": self.seconds,
            "read": None if self.read is None else list(self.read),
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Outcome:
        """What `to_json` described."""
        return cls(
            body["state"],
            tuple(_number(value) for value in body["values"]),
            tuple(tuple(_number(value) for value in values) for values in body["curve"]),
            body["reason"],
            body["seconds"],
            None if body["read"] is None else tuple(body["read"]),
        )


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _number(value: float | None) -> float:
    return math.nan if value is None else value


@dataclass(frozen=True)
class TrialAttempt:
    """A trial under way.

    Attributes:
        trial: The trial's number, from 0.
        key: Of this attempt at it in the journal.
        hyperparameters: What it tries.
    """

    trial: int
    key: int
    hyperparameters: Mapping[str, Value]


@dataclass(frozen=True)
class Trial:
    """What has become of one choice of hyperparameters.

    Attributes:
        number: From 0.
        hyperparameters: What it tried.
        outcome: How its last attempt ended; None where it has to be tried again.
        kills: How often its process died.
    """

    number: int
    hyperparameters: Mapping[str, Value]
    outcome: Outcome | None
    kills: tuple[str, ...] = ()


@dataclass(frozen=True)
class StudySettings:
    """What is searched, and how.

    Attributes:
        space: The hyperparameters.
        objectives: What is to become small or large.
        sampler: Who chooses.
        pruner: Who stops trials that do worse than others.
        seed: Of the choices. That of trial n depends on this and on n alone.
        epochs: The most that a trial has.
        first: What the first trials try.
    """

    space: SearchSpace
    objectives: tuple[Objective, ...]
    sampler: Sampler = "tpe"
    pruner: Pruner = "none"
    seed: int = 0
    epochs: int = 1
    first: tuple[Mapping[str, Value], ...] = field(default=())

    def check(self) -> None:
        """Refuse what cannot be searched.

        Raises:
            InputError: A sampler or pruner that there is not, or that cannot do this; a grid over a continuous range;
                first trials that are not of the space.
        """
        for name, chosen, known in (("sampler", self.sampler, Sampler), ("pruner", self.pruner, Pruner)):
            names = known.__args__  # type: ignore[attr-defined]  # of a Literal
            if chosen not in names:
                raise InputError(f"there is no {name} {chosen!r}", fix=f"use one of {', '.join(names)}")
        several = len(self.objectives) > 1
        if several and self.pruner != "none":
            raise InputError(
                f"pruner={self.pruner!r} compares trials by one value, and there are {len(self.objectives)} objectives",
                fix='use pruner="none", or one objective',
            )
        if several and self.sampler == "cmaes":
            raise InputError("CMA-ES has one objective", fix='use sampler="tpe", or one objective')
        if self.sampler == "cmaes" and not any(domain["kind"] != "choice" for domain in self.space.domains.values()):
            raise InputError("CMA-ES searches numbers, and the space has choices alone", fix='use sampler="tpe"')
        if self.sampler == "grid":
            _ = self.space.grid
        for hyperparameters in self.first:
            if (problem := self.space.problem_of(hyperparameters)) is not None:
                raise InputError(f"the first trials: {problem}", fix="give values of the search space")


@dataclass(frozen=True)
class SearchBudget:
    """When no new trial begins.

    Attributes:
        trials: How many there are; None where only time ends the search.
        seconds: How long it may be at work, all its attempts together; None where only trials end it.
    """

    trials: int | None
    seconds: float | None


class Study:
    """A study in a journal, opened by the one process that goes on with it."""

    def __init__(self, journal: Path, settings: StudySettings) -> None:
        """Begin, or go on with what the journal holds. Attempts under way when it was left are to be repeated.

        Args:
            journal: The file.
            settings: The same as at the begin.

        Raises:
            DrivetrainError: Optuna is not installed.
            InputError: The journal is damaged, or holds trials of another space.
        """
        self._settings = settings
        self._under_way: dict[int, OptunaTrial] = {}
        self._outcomes: dict[int, Outcome] = {}  # by Optuna's number of the attempt: each is read once
        _mend(journal)
        try:
            self._open(journal)
            problems = [settings.space.problem_of(trial.hyperparameters) for trial in self.trials() if trial.outcome]
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            problems = [f"{type(error).__name__}: {error}"]
        if problem := next(filter(None, problems), None):
            raise InputError(
                f"the journal of the search is damaged, or another search's: {journal} ({problem})",
                fix=f"remove {journal.parent}: the search begins anew",
            )

    def _open(self, journal: Path) -> None:
        optuna, settings = _optuna(), self._settings
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        self._study = optuna.create_study(
            storage=JournalStorage(JournalFileBackend(str(journal))),
            study_name=_NAME,
            directions=["maximize" if each.mode == "max" else "minimize" for each in settings.objectives],
            sampler=_sampler(settings, 0),
            pruner=_pruner(settings),
            load_if_exists=True,
        )
        running = optuna.trial.TrialState.RUNNING
        for frozen in self._study.get_trials(deepcopy=False, states=(running,)):
            self._study.tell(frozen.number, state=optuna.trial.TrialState.FAIL)

    def name(self, begun_by: str) -> str:
        """The uid of the execution that began the study, which is that of its caller where none did before."""
        if not self._study.user_attrs.get("begun_by"):
            self._study.set_user_attr("begun_by", begun_by)
        return str(self._study.user_attrs["begun_by"])

    @property
    def seconds(self) -> float:
        """How long the study was at work before it was left, and since, as it was told."""
        return float(self._study.user_attrs.get("seconds", 0.0))

    def add_seconds(self, seconds: float) -> None:
        """Tell that it was at work for so long."""
        self._study.set_user_attr("seconds", self.seconds + seconds)

    def add_earlier(self, trials: Sequence[tuple[Mapping[str, Value], Outcome]]) -> None:
        """Let the sampler and the pruner know trials of an earlier study; they are no trials of this one."""
        from optuna.trial import TrialState, create_trial

        known = sum(_EARLIER in frozen.user_attrs for frozen in self._study.get_trials(deepcopy=False))
        states = {"COMPLETE": TrialState.COMPLETE, "PRUNED": TrialState.PRUNED}
        for hyperparameters, outcome in trials[known:]:
            domains = {name: self._settings.space.domains[name] for name in hyperparameters}
            pruned = outcome.state == "PRUNED"
            self._study.add_trial(
                create_trial(
                    state=states[outcome.state],
                    values=None if pruned else list(outcome.values),
                    params=self._inside(hyperparameters),
                    distributions={name: _distribution(domain) for name, domain in domains.items()},
                    user_attrs={_EARLIER: True},
                    intermediate_values={} if len(self._settings.objectives) > 1 else _steps(outcome.curve),
                )
            )

    def trials(self) -> list[Trial]:
        """Every trial that is settled or has to be repeated, by number; not those under way."""
        latest: dict[int, Trial] = {}
        for frozen in self._study.get_trials(deepcopy=False):
            number = frozen.user_attrs.get(_NUMBER)
            if number is None or frozen.number in self._under_way or frozen.state.name == "WAITING":
                continue
            before = latest[number].kills if number in latest else ()
            result, killed = frozen.user_attrs.get(_RESULT), frozen.user_attrs.get(_KILLED)
            if result is None and frozen.user_attrs.get(_HERE):
                killed = _WITH_THE_SEARCH
            kills = before if killed is None else (*before, killed)
            if result is not None and frozen.number not in self._outcomes:
                self._outcomes[frozen.number] = Outcome.from_json(result)
            outcome = self._outcomes.get(frozen.number)
            if outcome is None and len(kills) >= ATTEMPTS:
                outcome = Outcome("FAILED", reason=f"its process was ended {len(kills)} times: {kills[-1]}")
            latest[number] = Trial(number, self._outside(frozen), outcome, kills)
        busy = {int(trial.user_attrs[_NUMBER]) for trial in self._under_way.values()}
        return [latest[number] for number in sorted(latest) if number not in busy]

    def next(self, most: int | None) -> TrialAttempt | None:
        """The next attempt, begun: at a trial that has to be repeated, else at a new one.

        Args:
            most: New trials have numbers below this; None: any.

        Returns:
            None where there is nothing to begin now.
        """
        waiting = [each for each in self._study.get_trials(deepcopy=False) if each.state.name == "WAITING"]
        if waiting:  # it was about to begin when the study was left
            return self._ask(waiting[0].user_attrs[_NUMBER])
        again = next((trial for trial in self.trials() if trial.outcome is None), None)
        if again is not None:
            return self._begin(again.number, again.hyperparameters)
        number = self._new_number()
        if most is not None and number >= most:
            return None
        first = self._settings.first
        if number < len(first):
            return self._begin(number, first[number])
        if self._settings.sampler == "grid":
            grid = self._grid()
            at = number - len(first)
            return self._begin(number, grid[at]) if at < len(grid) else None
        return self._ask(number)

    @contextmanager
    def here(self, attempt: TrialAttempt) -> Iterator[None]:
        """Within the block this process itself trains: where it dies there, that is a death of the attempt.

        An exception that leaves the block is none: the search was stopped.
        """
        trial = self._under_way[attempt.key]
        trial.set_user_attr(_HERE, True)  # before, as nobody can tell it afterwards
        try:
            yield
        except BaseException:
            trial.set_user_attr(_HERE, False)
            raise

    def report(self, attempt: TrialAttempt, curve: Sequence[Sequence[float]]) -> str | None:
        """Take in the objectives after each epoch so far; gives why the trial is to stop, None where it goes on."""
        if len(self._settings.objectives) > 1:
            return None
        trial, ended = self._under_way[attempt.key], len(curve)
        known = self._study.get_trials(deepcopy=False)[attempt.key].intermediate_values
        for epoch, value in _steps(curve).items():
            if epoch not in known:
                trial.report(value, epoch)
        if self._settings.pruner == "none" or ended >= self._settings.epochs or not trial.should_prune():
            return None
        return f"others do better after epoch {ended}"

    def end(self, attempt: TrialAttempt, outcome: Outcome) -> None:
        """Record how an attempt ended."""
        outcome = replace(outcome, reason=redact(outcome.reason))  # it goes into an artifact
        self._finish(attempt, _RESULT, outcome.to_json(), outcome)

    def killed(self, attempt: TrialAttempt, reason: str) -> None:
        """Record that an attempt's process died. The trial is to be repeated, unless that has been so too often."""
        self._finish(attempt, _KILLED, redact(reason), None)

    def importances(self) -> tuple[str, dict[str, dict[str, float]]]:
        """How much each hyperparameter matters to each objective, and by which method that is measured.

        Hyperparameters that do not always exist are left out. Nothing where too few trials completed.
        """
        from optuna.importance import FanovaImportanceEvaluator, PedAnovaImportanceEvaluator, get_param_importances

        evaluator: FanovaImportanceEvaluator | PedAnovaImportanceEvaluator
        try:
            import sklearn  # noqa: F401 - fANOVA's forest

            method, evaluator = "fANOVA", FanovaImportanceEvaluator(seed=self._settings.seed % 2**32)
        except ImportError:
            method, evaluator = "PED-ANOVA", PedAnovaImportanceEvaluator()
        measured: dict[str, dict[str, float]] = {}
        for at, objective in enumerate(self._settings.objectives):
            values = {
                outcome.values[at]
                for trial in self.trials()
                if (outcome := trial.outcome) is not None and outcome.state == "COMPLETE"
            }
            if len(values) < 4:  # PED-ANOVA looks at the best tenth, and a forest of fewer says nothing
                continue

            def target(frozen: FrozenTrial, at: int = at) -> float:
                return float(frozen.values[at])

            importances = get_param_importances(self._study, evaluator=evaluator, target=target)
            measured[objective.name] = {name: float(value) for name, value in importances.items()}
        return method, measured

    def _begin(self, number: int, hyperparameters: Mapping[str, Value]) -> TrialAttempt:
        """Begin an attempt at a trial with these hyperparameters."""
        self._study.enqueue_trial(self._inside(hyperparameters), user_attrs={_NUMBER: number})
        return self._ask(number)

    def _ask(self, number: int) -> TrialAttempt:
        """Begin the attempt that waits, else one whose hyperparameters the sampler draws."""
        self._study.sampler = _sampler(self._settings, number)
        trial = self._study.ask()
        drawn = self._settings.space.draw(lambda name, domain: _suggest(trial, name, domain))
        if _NUMBER not in trial.user_attrs:
            trial.set_user_attr(_NUMBER, number)  # last: an attempt with a number has all its hyperparameters
        self._under_way[trial.number] = trial
        return TrialAttempt(number, trial.number, drawn)

    def _finish(self, attempt: TrialAttempt, key: str, body: object, outcome: Outcome | None) -> None:
        from optuna.trial import TrialState

        trial = self._under_way.pop(attempt.key)
        trial.set_user_attr(key, body)
        state = "FAILED" if outcome is None else outcome.state
        if state == "COMPLETE":
            assert outcome is not None
            self._study.tell(trial, list(outcome.values))
        else:
            self._study.tell(trial, state=TrialState.PRUNED if state == "PRUNED" else TrialState.FAIL)

    def _new_number(self) -> int:
        trials = self._study.get_trials(deepcopy=False)
        return 1 + max((frozen.user_attrs.get(_NUMBER, -1) for frozen in trials), default=-1)

    def _grid(self) -> list[dict[str, Value]]:
        """The points that the first trials leave."""
        first = [self._inside(point) for point in self._settings.first]
        return [point for point in self._settings.space.grid if self._inside(point) not in first]

    def _inside(self, hyperparameters: Mapping[str, Value]) -> dict[str, Any]:
        """Hyperparameters as Optuna has them: a choice by its place."""
        domains = self._settings.space.domains
        return {
            name: index_of(domains[name], value) if domains[name]["kind"] == "choice" else value
            for name, value in hyperparameters.items()
        }

    def _outside(self, frozen: FrozenTrial) -> dict[str, Value]:
        domains = self._settings.space.domains
        # One that waited has them as what it is to try. It may have been left before it had drawn them all.
        inside = {**frozen.system_attrs.get("fixed_params", {}), **frozen.params}
        return {
            name: domains[name]["values"][inside[name]] if domains[name]["kind"] == "choice" else inside[name]
            for name in domains
            if name in inside
        }


def _optuna() -> Any:  # Any: the module, which is imported late
    try:
        import optuna
    except ImportError as error:
        raise missing_extra("optuna", "tuning") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)  # what it says of each trial, we say
    return optuna


def check_installed(sampler: Sampler) -> None:
    """Refuse to search by what is not installed.

    Raises:
        DrivetrainError: Optuna is not, or what its sampler needs; with the extra that brings it.
    """
    _optuna()
    if sampler == "cmaes":
        try:
            import cmaes  # noqa: F401
        except ImportError as error:
            raise missing_extra("cmaes", "tuning") from error


def _mend(journal: Path) -> None:
    """Remove what a killed process left half done: its lock, for which others would wait, and half a line at the end.

    Only who goes on with the study calls this, and nobody else writes: whoever held the lock is dead.
    """
    for lock in journal.parent.glob(f"{journal.name}.lock*"):
        lock.unlink(missing_ok=True)
    if not journal.exists():
        journal.parent.mkdir(parents=True, exist_ok=True)
        return
    with journal.open("rb+") as file:
        body = file.read()
        whole = body.rfind(b"\n") + 1
        if whole < len(body):
            file.truncate(whole)


def _sampler(settings: StudySettings, number: int) -> BaseSampler:
    """The sampler for one trial: what it draws depends on the seed, the trial's number and the trials that ended."""
    import numpy as np  # late, as Optuna: a pipeline that is built checks its settings here
    from optuna import samplers

    seed = int(np.random.SeedSequence([settings.seed, number]).generate_state(1)[0])
    if settings.sampler == "tpe":
        return samplers.TPESampler(seed=seed)
    if settings.sampler == "cmaes":
        return samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False)
    return samplers.RandomSampler(seed=seed)


def _pruner(settings: StudySettings) -> BasePruner:
    from optuna import pruners

    if settings.pruner == "asha":
        return pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=3)
    if settings.pruner == "hyperband":
        return pruners.HyperbandPruner(min_resource=1, max_resource=settings.epochs, reduction_factor=3)
    return pruners.MedianPruner() if settings.pruner == "median" else pruners.NopPruner()


def _suggest(trial: OptunaTrial, name: str, domain: Domain) -> Value:
    if domain["kind"] == "choice":
        return domain["values"][trial.suggest_categorical(name, list(range(len(domain["values"]))))]
    low, high, step, log = domain["low"], last_of(domain), domain.get("step"), domain["log"]
    if domain["kind"] == "integer":
        return trial.suggest_int(name, int(low), int(high), step=int(step or 1), log=log)
    return trial.suggest_float(name, low, high, step=step, log=log)


def _distribution(domain: Domain) -> Any:  # Any: a class of Optuna's
    from optuna import distributions

    if domain["kind"] == "choice":
        return distributions.CategoricalDistribution(list(range(len(domain["values"]))))
    low, high, step, log = domain["low"], last_of(domain), domain.get("step"), domain["log"]
    if domain["kind"] == "integer":
        return distributions.IntDistribution(int(low), int(high), log=log, step=int(step or 1))
    return distributions.FloatDistribution(low, high, log=log, step=step)


def _steps(curve: Sequence[Sequence[float]]) -> dict[int, float]:
    """The first objective by epoch, from 1."""
    return {epoch: values[0] for epoch, values in enumerate(curve, 1)}
