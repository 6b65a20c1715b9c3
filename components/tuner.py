"""Tuner: searches hyperparameters for the user's `train(run)`, in trials that are trained as Trainer would."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import InputError
from ..metadata import Examples, Model, Summary, TransformGraph, TuningResults, summarize
from ..pipelines import Fn, component, current
from .trainer import refuse_settings

if TYPE_CHECKING:
    from .tuning.study import SearchBudget, StudySettings, Trial

_ROWS = 10
"""Trials that a terminal shows, the best ones."""
_SEARCHED = {
    *("space", "objective", "sampler", "pruner", "sampler_seed", "first"),
    *("epoch", "eval_split", "hyperparameters"),
}
"""The parameters by which a search is known to be possible."""
_RECORDED = ("trials", "seconds", "executions_per_trial", "epoch", "epochs", "batch_size", "seed", "strategy")
"""Those that its results hold beside."""


class Tuned(NamedTuple):
    """The hyperparameters of the best trial, as `Trainer` takes them, and every trial."""

    best_hyperparameters: dict[str, Any]
    results: TuningResults


def _refuse(known: Mapping[str, object], coming: Mapping[str, Mapping[str, object]]) -> None:
    """Refuse a search that cannot be, when the pipeline is built."""
    refuse_settings(known, ("epochs", "batch_size", "executions_per_trial", "parallel", "trials"))
    seconds = known.get("seconds")
    if isinstance(seconds, (int, float)) and not 0 < seconds < math.inf:
        raise InputError(f"seconds is {seconds}", fix="use more than 0; None is any time")
    sampler_seed = known.get("sampler_seed")
    if isinstance(sampler_seed, int) and sampler_seed < 0:
        raise InputError(f"sampler_seed is {sampler_seed}", fix="use 0 or more")
    if known.keys() >= {"trials", "seconds", "sampler"}:
        _budget(known)
    if known.keys() >= _SEARCHED:
        _settings(known)


def _budget(parameters: Mapping[str, Any]) -> SearchBudget:
    from .tuning.study import SearchBudget

    if parameters["trials"] is None and parameters["seconds"] is None and parameters["sampler"] != "grid":
        raise InputError("the search would never end", fix="give the Tuner trials=, or seconds=, or both")
    return SearchBudget(parameters["trials"], parameters["seconds"])


def _settings(parameters: Mapping[str, Any], first: Sequence[Mapping[str, Any]] = ()) -> StudySettings:
    """What the parameters say, checked; `first` are tried before those that they name."""
    from .tuning.objective import objectives_of
    from .tuning.space import SearchSpace
    from .tuning.study import StudySettings

    space = SearchSpace.read(parameters["space"])
    objectives = objectives_of(parameters["objective"])
    if parameters["eval_split"] is None and any(each.name != "loss" for each in objectives):
        raise InputError(
            "without an eval split nothing but the loss is recorded", fix='give eval_split="eval", or objective="loss"'
        )
    if parameters["epoch"] not in ("last", "best"):
        raise InputError(f"there is no epoch {parameters['epoch']!r} to count by", fix='use "last" or "best"')
    if parameters["epoch"] == "best" and len(objectives) > 1:
        raise InputError("several objectives are rarely best in one epoch", fix='use epoch="last", or one objective')
    both = [name for name in parameters["hyperparameters"] or {} if name in space.domains]
    if both:
        raise InputError(
            f"the hyperparameter {both[0]!r} is searched, and has a fixed value too",
            fix="leave it out of space= or of hyperparameters=",
        )
    settings = StudySettings(
        space=space,
        objectives=objectives,
        sampler=parameters["sampler"],
        pruner=parameters["pruner"],
        seed=parameters["sampler_seed"],
        epochs=parameters.get("epochs", 1),  # not known yet where it is a parameter of the pipeline
        first=(*first, *(each for each in parameters["first"] if each not in first)),
    )
    settings.check()
    return settings


@component(preflight=_refuse)
def Tuner(
    examples: Examples,
    graph: TransformGraph,
    *,
    base_model: Model | None = None,
    earlier: TuningResults | None = None,
    fn: Fn,
    space: Mapping[str, object],
    objective: str | Mapping[str, str] = "eval_loss",
    trials: int | None = None,
    seconds: float | None = None,
    sampler: str = "tpe",
    pruner: str = "none",
    parallel: int = 1,
    sampler_seed: int = 0,
    first: Sequence[Mapping[str, object]] = (),
    executions_per_trial: int = 1,
    epoch: str = "last",
    epochs: int = 1,
    batch_size: int = 512,
    seed: int = 0,
    strategy: str = "single",
    train_split: str = "train",
    eval_split: str | None = "eval",
    hyperparameters: Mapping[str, object] | None = None,
) -> Tuned:
    """The best hyperparameters of a search: trials that train as Trainer would, and export nothing.

    A killed search goes on where it was. A trial whose process dies is trained again; after three deaths it has failed.

    Args:
        examples: Transformed examples.
        graph: The preprocessing they came from.
        base_model: A model whose parameters each training begins with.
        earlier: The results of an earlier search, such as `dt.latest(TuningResults)`: its best hyperparameters are
            tried first, and the sampler knows its trials.
        fn: The user's `train(run: TrainingRun) -> Trained`, as Trainer's.
        space: What is searched: hyperparameters by name, each `dt.uniform`, `dt.log_uniform`, `dt.integers` or
            `dt.choice`.
        objective: What is to become small: "eval_loss", "loss"; or names of metrics with "min" or "max". Of several,
            the first decides which trial is the best, the next where it is equal.
        trials: How many; None: until the time is up, or the grid is.
        seconds: No trial begins after so many seconds of search; None: any time.
        sampler: Who chooses: "tpe" (learns from trials that ended), "random", "grid" or "cmaes".
        pruner: Who ends a trial after an epoch in which others did better: "none", "asha" (successive halving),
            "hyperband" or "median".
        parallel: Trials at a time, each in a process of its own where there are several.
        sampler_seed: Of what the sampler draws.
        first: Hyperparameters that are tried before the sampler's.
        executions_per_trial: Trainings of a trial, whose mean counts; their seeds are seed, seed + 1, ….
        epoch: Whether a training counts by its "last" epoch, or by its "best" (where the function uses `keep_best`).
        epochs: Passes over the train split, at most.
        batch_size: Rows per step.
        seed: Of each trial's training, as Trainer's.
        strategy: "single" or "data_parallel".
        train_split: The split to train on.
        eval_split: The split that is measured after each epoch; None for none.
        hyperparameters: Those that are not searched: every trial has them, and so have the best.

    Returns:
        `best_hyperparameters`, which `Trainer(hyperparameters=…)` takes, with those that are not searched; and
        `results`: every trial in study.json, the property `best`, seconds and a page in extra/, and in extra/logs
        what callbacks left there, by trial.

    Raises:
        InputError: A space, a budget, a sampler or a pruner that cannot be; an objective that no trial records; no
            trial completed; the function reads none of the hyperparameters; or what Trainer refuses of its inputs.
        DrivetrainError: Optuna, or CMA-ES, is not installed.
    """
    parameters: dict[str, Any] = dict(locals())
    # Late, so that building a pipeline and a cached run import neither JAX nor Optuna.
    from pathlib import Path

    from ..pipelines.project.functions import reference
    from .trainer import features_of
    from .tuning.recording import TrialRecording
    from .tuning.results import document, earlier_trials, keep_logs, read, write
    from .tuning.search import Search, best_of
    from .tuning.space import SearchSpace
    from .tuning.study import Outcome, Study, TrialAttempt, check_installed
    from .tuning.trial import Link, Training, run_trial

    launch = current()
    _refuse(parameters, {})
    check_installed(parameters["sampler"])
    budget, settings = _budget(parameters), _settings(parameters)
    known: list[tuple[Mapping[str, Any], Outcome]] = []
    if earlier is not None:
        known, best = earlier_trials(read(earlier.content), SearchSpace.read(space), settings.objectives, launch.note)
        settings = _settings(parameters, best)
    features_of(examples, graph, launch.note)
    training = Training(
        fn=fn if parallel == 1 else reference(fn, None),
        examples=examples.content,
        graph=graph.content,
        base_model=None if base_model is None else (base_model.content, base_model.extra),
        objectives=settings.objectives,
        hyperparameters=dict(hyperparameters or {}),
        epochs=epochs,
        batch_size=batch_size,
        seed=seed,
        strategy=strategy,
        train_split=train_split,
        eval_split=eval_split,
        executions=executions_per_trial,
        epoch="best" if epoch == "best" else "last",
    )
    study = Study(launch.work_dir / "study" / "journal.log", settings)
    study.add_earlier(known)
    recorder = launch.trials(study.name(launch.execution))
    recording = TrialRecording(recorder, settings.objectives, training.hyperparameters, seed)
    search = Search(study, settings.objectives, budget, launch.work_dir / "trials", launch, recording)

    logs = launch.work_dir / "logs"

    def here(attempt: TrialAttempt, work: Path, link: Link) -> Outcome:
        return run_trial(
            training,
            attempt.hyperparameters,
            work,
            link,
            logs=logs / str(attempt.trial),
            rehearse=attempt.trial == 0,
            progress=lambda *_: search.progress(),
        )

    def task(attempt: TrialAttempt, work: Path) -> Mapping[str, Any]:
        return {
            "training": training.to_json(),
            "hyperparameters": dict(attempt.hyperparameters),
            "work": str(work),
            "logs": str(logs / str(attempt.trial)),
            "rehearse": attempt.trial < parallel,
        }

    if parallel == 1:
        search.run_here(here)
    else:
        search.run_parallel(parallel, "drivetrain.components.tuning.trial:in_process", task)
    every = study.trials()
    _note_unread(settings.space.domains, every, launch.note)
    about = {name: parameters[name] for name in _RECORDED}
    body = document(settings, every, training.hyperparameters, about)
    method, importances = study.importances()
    winner = next(trial for trial in body["trials"] if trial["number"] == body["best"])
    chosen = {**training.hyperparameters, **winner["hyperparameters"]}
    for number, trial in enumerate(every, 1):  # what was the best when so many trials had ended
        leader = best_of(settings.objectives, every[:number])
        values = leader.outcome.values if leader is not None and leader.outcome is not None else ()
        for each, value in zip(settings.objectives, values, strict=False):
            launch.metric(f"best_{each.name}", value, step=trial.number)
    results = TuningResults.new(
        best=chosen, values=winner["values"], trials=len(every), summary=_summary(body, len(every))
    )
    write(body, every, {"method": method, "importances": importances}, results.content, results.extra)
    keep_logs(body, logs, results.extra / "logs", launch.note)
    launch.note(results.summary)
    return Tuned(chosen, results)


def _note_unread(searched: Iterable[str], trials: Sequence[Trial], note: Callable[[str], None]) -> None:
    asked = {name for trial in trials if trial.outcome for name in trial.outcome.read or ()}
    if unread := [name for name in searched if name not in asked]:
        note(f"no trial asked for {', '.join(map(repr, unread))}: the function does not read it")


def _summary(body: Mapping[str, Any], trials: int) -> str:
    from .tuning.space import described, short

    winner = next(trial for trial in body["trials"] if trial["number"] == body["best"])
    values = ", ".join(f"{name} {short(value)}" for name, value in winner["values"].items())
    return f"best of {trials} trials: {values} ({described(winner['hyperparameters'])})"


@summarize.register
def _best_trials(results: TuningResults) -> Summary:
    """The best trials, completed ones first, and how many of the others there were.

    Of a user's own results their one line.
    """
    from .tuning.results import FILE, ranked, read
    from .tuning.space import short

    if not (results.content / FILE).is_file():
        return Summary(results.properties.get("summary", ""))
    body = read(results.content)
    names, objectives = list(body["space"]), [each["name"] for each in body["objectives"]]
    rows = [
        (
            f"trial {trial['number']}{' (stopped early)' if trial['state'] == 'PRUNED' else ''}",
            *("–" if (value := trial["values"][name]) is None else short(value) for name in objectives),
            *(short(trial["hyperparameters"][name]) if name in trial["hyperparameters"] else "–" for name in names),
        )
        for trial in ranked(body)[:_ROWS]
    ]
    lines = [results.properties["summary"]]
    if pruned := [trial for trial in body["trials"] if trial["state"] == "PRUNED"]:
        lines.append(f"{len(pruned)} stopped early")
    if failed := [trial for trial in body["trials"] if trial["state"] == "FAILED"]:
        lines.append(
            f"{len(failed)} failed; trial {failed[0]['number']}: {failed[0]['reason'] or 'no reason is known'}"
        )
    if len(objectives) > 1:
        lines.append(f"none is better than these in all objectives: {', '.join(map(str, body['pareto']))}")
    numbers = {f"best {name}": value for name, value in results.properties["values"].items()}
    return Summary("\n".join(lines), ("", *objectives, *names), tuple(rows), numbers)
