"""Trainer: runs the user's `train(run)` on transformed examples and saves preprocessing and model as one bundle."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import DrivetrainError, InputError, suggest
from ..machine import spell_bytes
from ..metadata import Examples, Model, TransformGraph, TuningResults
from ..pipelines import Fn, component, current, load
from ..user_code import defined_at, mistake

if TYPE_CHECKING:
    from ..engine import FieldSpec, Trained, TrainingRun


_EVALUATORS = ("process", "elsewhere")


def _refuse(known: Mapping[str, object], coming: Mapping[str, Mapping[str, object]]) -> None:
    refuse_settings(known, ("epochs", "batch_size"))
    if isinstance(evaluator := known.get("evaluator"), str):
        _refuse_evaluator(evaluator, known.get("eval_split", "eval"))


def _refuse_evaluator(evaluator: str, eval_split: object) -> None:
    if evaluator not in _EVALUATORS:
        raise InputError(f"there is no evaluator {evaluator!r}", fix=suggest(evaluator, _EVALUATORS, "there are"))
    if eval_split is None:
        raise InputError("an evaluator has nothing to evaluate on: eval_split is None", fix="name a split")


def refuse_settings(known: Mapping[str, object], counts: Sequence[str]) -> None:
    """Refuse what no training can have: a count below 1, a strategy that there is not.

    Args:
        known: Parameters by name, as far as they are known.
        counts: Which of them are counts.

    Raises:
        InputError: Naming the parameter.
    """
    for name in counts:
        number = known.get(name)
        if isinstance(number, int) and number < 1:
            raise InputError(f"{name} is {number}", fix="use 1 or more")
    if isinstance(strategy := known.get("strategy"), str):
        from ..engine.training.strategy import strategy as find_strategy

        find_strategy(strategy)


@component(preflight=_refuse)
def Trainer(
    examples: Examples,
    graph: TransformGraph,
    *,
    base_model: Model | None = None,
    tuned: TuningResults | None = None,
    fn: Fn,
    epochs: int = 1,
    batch_size: int = 512,
    seed: int = 0,
    strategy: str = "single",
    train_split: str = "train",
    eval_split: str | None = "eval",
    hyperparameters: Mapping[str, object] | None = None,
    evaluator: str | None = None,
) -> Model:
    """A model from transformed examples, in one program with the preprocessing that made them.

    A killed training goes on from its newest checkpoint and ends with the same bits.

    Args:
        examples: Transformed examples.
        graph: The preprocessing they came from.
        base_model: A model whose parameters `run.fit` begins with, such as `dt.latest_blessed()`: a warm start. Arrays
            of another shape keep their initial values, as where a vocabulary grew; the log says which.
        tuned: The results of a search for hyperparameters, such as `dt.latest(TuningResults)`: its best ones, of which
            `hyperparameters` replaces those that it names.
        fn: The user's `train(run: TrainingRun) -> Trained`, e.g. "model:train".
        epochs: Passes over the train split.
        batch_size: Rows per step; the rows of an epoch that fill no batch are left out of it.
        seed: Of the initial parameters and of the order of rows.
        strategy: "single" or "data_parallel" (over all devices: of this process, or of all that train together where
            the node has `options(replicas=N)`; those save no checkpoints).
        train_split: The split to train on.
        eval_split: The split whose loss is shown after each epoch; None for none.
        hyperparameters: JSON values for the user's function, as `run.hyperparameters`, such as the
            `best_hyperparameters` of a Tuner.
        evaluator: Who measures the eval split. None: the training, between two epochs. "process": a process beside it,
            on the processor, which measures each checkpoint while the training goes on; `run.fit` saves one after each
            epoch. "elsewhere": the same, started by you, on another machine perhaps, by the line that is noted. What it
            measures is recorded as it comes, by step, and is in `extra/logs/eval/evaluations.jsonl` too.

    Returns:
        The bundle with signatures `predict` and `evaluate`; extra/history.json and extra/report.html; extra/logs where
        callbacks left files, such as TensorBoard's; extra/checkpoints where `fit` was to keep some; in
        extra/variables.safetensors what a warm start needs and the bundle does not hold as it was trained. `loss`,
        `eval_loss` and the metrics that `fit` was given are recorded for each epoch; what is left of them as the run's
        values are those of the epoch whose parameters are exported.

    Raises:
        InputError: A graph that did not make the examples; a split, column, strategy or batch size that cannot be used;
            a loss or a parameter that became NaN; a function that returns something else than `Trained`; a model that
            cannot be exported, or whose predictions look at other rows of a batch, which `run.fit` finds before it
            trains; `keep_best` or `EarlyStopping` by a value of the eval split beside an evaluator.
    """
    # Late, so that building a pipeline and a cached run import neither JAX nor Arrow.
    from .. import engine
    from ..engine.bundles.compile_cache import compiled_kept
    from ..engine.training.processes import ClusterSpec
    from ..engine.training.strategy import strategy as find_strategy
    from ..engine.training.warm_start import read_variables, save_variables
    from .epoch_metrics import EpochMetrics

    if evaluator is not None:
        _refuse_evaluator(evaluator, eval_split)
    launch = current()
    together = ClusterSpec.from_environment()
    if together is not None:
        launch.note(f"process {together.process} of {together.processes} waits for the others, to train together")
        together.join()
    if together is not None and evaluator is not None:
        raise InputError(
            "an evaluator measures checkpoints, and processes that train together save none",
            fix="leave out evaluator, or options(replicas=…)",
        )
    # A checkpoint of arrays that lie on several processes would need them all to save together, and only the first
    # process has a folder that outlives it: such a training keeps none.
    kept = (launch.work is not None or evaluator is not None) and together is None
    features = features_of(examples, graph, launch.note)
    epoch_metrics = EpochMetrics(launch.metric)
    run = engine.TrainingRun(
        features=features,
        examples=examples.content,
        epochs=epochs,
        batch_size=batch_size,
        seed=seed,
        hyperparameters={**({} if tuned is None else tuned.best), **(hyperparameters or {})},
        strategy=find_strategy(strategy),
        train_split=train_split,
        eval_split=eval_split,
        base_model=None if base_model is None else read_variables(base_model.content, base_model.extra),
        work_dir=launch.work_dir if kept else None,
        log_dir=launch.work_dir / "logs",
        progress=launch.progress,
        note=launch.note,
        rehearse=partial(_rehearse, graph.content),
        callbacks=[epoch_metrics],
    )
    with compiled_kept():  # a model is trained again when examples or hyperparameters change
        if evaluator is None:
            trained = call_train(fn, run)
        else:
            trained = _train_beside(evaluator, fn, run, graph, base_model)
            epoch_metrics.epochs[:] = trained.history[: len(epoch_metrics.epochs)]
    _refuse_broken(trained.params)
    model = Model.new(graph=_digest(graph.content))
    engine.export_model(
        transform=graph.content,
        apply=trained.apply,
        params=trained.params,
        predict=trained.predict,
        label=trained.label,
        out=model.content,
    )
    save_variables(trained.params, model.content, model.extra)
    if run.log_dir.exists():
        shutil.copytree(run.log_dir, model.extra / "logs")
    for step, folder in trained.checkpoints.items():
        shutil.copytree(folder, model.extra / "checkpoints" / str(step))
    for epoch in trained.history[len(epoch_metrics.epochs) :]:  # of a loop of the user's own
        epoch_metrics.add(epoch)
    if trained.kept_epoch is not None:
        epoch_metrics.keep(trained.kept_epoch)
    write_report(trained, model.extra, settings=_settings(epochs, batch_size, seed, strategy))
    return model


def _train_beside(kind: str, fn: Fn, run: TrainingRun, graph: TransformGraph, base_model: Model | None) -> Trained:
    """Train with an evaluator beside; the history holds what that measured."""
    from ..pipelines.project.functions import reference
    from .side_evaluation import SideEvaluation
    from .training_job import TrainingJob

    job = TrainingJob(
        fn=reference(fn, None),
        examples=run.examples,
        graph=graph.content,
        base_model=None if base_model is None else (base_model.content, base_model.extra),
        hyperparameters=run.hyperparameters,
        epochs=run.epochs,
        batch_size=run.batch_size,
        seed=run.seed,
        strategy=run.strategy.name,
        train_split=run.train_split,
        eval_split=run.eval_split,
    )
    with SideEvaluation(current(), job, "process" if kind == "process" else "elsewhere") as evaluation:
        trained = call_train(fn, replace(run, role="trainer", callbacks=[*run.callbacks, evaluation]))
        return replace(trained, history=evaluation.finish(trained.history))


def _rehearse(transform: Path, *model: Any) -> None:  # Any: the arguments of `engine.export.rehearse`
    """See before the training that the model can be exported, and that who takes it can use what it will give."""
    from ..engine.export import rehearse

    rehearsal = rehearse(transform, *model)
    coming = {"outputs": rehearsal.outputs, "label_columns": rehearsal.label_columns}
    current().preflight("model", coming | {"graph": _digest(transform)})


def call_train(fn: Fn, run: TrainingRun) -> Trained:
    """What the user's function returns; what it raises becomes an InputError that names the line in the user's file."""
    from .. import engine

    train, process = load(fn), os.getpid()
    try:
        trained = train(run)
    except DrivetrainError:
        raise
    except Exception as error:  # the user's own code may raise anything
        raise mistake(error) from error
    finally:
        if os.getpid() != process:  # it forked: what follows is to be done once
            os._exit(0)
    if not isinstance(trained, engine.Trained):
        raise InputError(
            f"{getattr(train, '__qualname__', fn)} returned {_kind(trained)}, not Trained",
            fix="return run.fit(…), or Trained(…)",
            where=defined_at(train),
        )
    return trained


def _kind(value: object) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"


def features_of(examples: Examples, graph: TransformGraph, note: Callable[[str], None]) -> dict[str, FieldSpec]:
    """The features that a training has.

    Raises:
        InputError: The graph did not make the examples.
    """
    _refuse_other_graph(examples, graph)
    features = device_features(graph.content, note)
    _refuse_raw(examples, features)
    return features


def device_features(transform: Path, note: Callable[[str], None]) -> dict[str, FieldSpec]:
    """The transformed columns that are arrays or lists of numbers; another column has no place on a device."""
    from .. import engine
    from ..engine.ragged.feeding import DEVICE

    bundle = engine.Bundle.load(transform)
    tensors = bundle.graph.tensors()
    columns = {name: tensors[output.tensor] for name, output in bundle.graph.signatures["transform"].items()}
    raw = [name for name, t in columns.items() if t.column and t.dtype not in DEVICE]
    if raw:
        note(f"not among the features, being raw columns: {', '.join(raw)}")
    return {name: spec for name, spec in bundle.signatures["transform"].outputs.items() if name not in raw}


def _digest(transform: Path) -> str:
    """What examples record of the graph that made them."""
    from ..digest import digest_file
    from ..engine.bundles.manifest import MANIFEST

    return digest_file(transform / MANIFEST)


def _refuse_other_graph(examples: Examples, graph: TransformGraph) -> None:
    """Refuse a graph that did not make these examples, where they record which did: columns of the same name differ."""
    from ..data import Manifest

    maker = Manifest.read(examples.content).graph
    if maker is not None and maker != _digest(graph.content):
        raise InputError(
            "these examples were made by another graph than the one given",
            fix="give the examples and the graph of one Transform: Trainer(transform.examples, transform.graph, …)",
            where="",
        )


def _refuse_raw(examples: Examples, features: Mapping[str, FieldSpec]) -> None:
    """Refuse examples that the transform did not make: they lack its columns, or hold raw ones of the same name.

    Those are known by their type: raw numbers are of 64 bits, and what a transform makes for a device is of 32.
    """
    from ..data import open_examples, splits

    split = next(iter(splits(examples.content)))
    schema = open_examples(examples.content, split).schema
    for name, spec in features.items():
        kind = str(schema.field(name).type) if name in schema.names else "not there"
        if kind == "not there" or {"double": "float32", "int64": "int32"}.get(kind) == spec.dtype:
            raise InputError(
                f"these examples are not what the transform made: {name!r} is {kind}",
                fix="write Trainer(transform.examples, transform.graph, …); raw ones are for Transform and Evaluator",
                where="",
            )


def _refuse_broken(params: object) -> None:
    from ..engine.training.model import first_broken

    if (name := first_broken(params)) is not None:
        raise InputError(
            f"Trainer: parameter {name} holds NaN or infinity", fix="lower the learning rate or clip the gradients"
        )


def _settings(epochs: int, batch_size: int, seed: int, strategy: str) -> dict[str, object]:
    return {"epochs": epochs, "batch_size": batch_size, "seed": seed, "strategy": strategy}


def write_report(trained: Trained, extra: Path, *, settings: Mapping[str, object]) -> None:
    """Write history.json and report.html about a training into a folder."""
    history = {
        "settings": dict(settings),
        "epochs": [asdict(epoch) for epoch in trained.history],
        "curve": [list(point) for point in trained.curve],
        "resumed_at_step": trained.first_step,
        "steps": trained.steps,
        "examples": trained.examples,
        "stopped": trained.stopped,
        "kept_epoch": trained.kept_epoch,
        "rollbacks": [asdict(rollback) for rollback in trained.rollbacks],
        "seconds": dict(trained.seconds),
        "input_seconds": dict(trained.input_seconds),
        "memory": dict(trained.memory),
    }
    (extra / "history.json").write_text(json.dumps(history, indent=1) + "\n", encoding="utf-8")
    (extra / "report.html").write_text(_page(trained, settings), encoding="utf-8")


def _page(trained: Trained, settings: Mapping[str, object]) -> str:
    from ..engine.training.training import last_steps
    from ..report import TableColumn, curves, figures, join, number, page, section, table

    series = {"training": list(trained.curve)}
    steps_and_epochs = zip(last_steps(trained.history), trained.history, strict=True)
    ends = [(step, epoch.eval_loss) for step, epoch in steps_and_epochs if epoch.eval_loss is not None]
    if ends:
        series["eval split"] = ends
    notes = [f"Resumed at step {trained.first_step}."] if trained.first_step else []
    notes += [
        f"Rolled back from step {rollback.step} to step {rollback.restored_step}, and on with step "
        f"{rollback.resumed_step}: {rollback.reason}."
        for rollback in trained.rollbacks
    ]
    notes += [f"Ended early: {trained.stopped}."] if trained.stopped else []
    notes += [f"Exported are the parameters of epoch {trained.kept_epoch}."] if trained.kept_epoch else []
    metrics = list(dict.fromkeys(name for epoch in trained.history for name in epoch.metrics))
    skipped = ["steps left out"] if any(epoch.skipped for epoch in trained.history) else []
    columns = [TableColumn(name, numeric=True) for name in ("epoch", "steps", "loss", "eval loss", *metrics, *skipped)]
    rows = [
        [
            epoch.epoch,
            epoch.steps,
            number(epoch.loss),
            "" if epoch.eval_loss is None else number(epoch.eval_loss),
            *(number(epoch.metrics[name]) if name in epoch.metrics else "" for name in metrics),
            *(number(epoch.skipped) for _ in skipped),
        ]
        for epoch in trained.history
    ]
    times = [TableColumn("part"), TableColumn("seconds", numeric=True), TableColumn("share", numeric=True)]
    whole = sum(trained.seconds.values()) or 1.0
    shares = [[part, number(taken), f"{taken / whole:.0%}"] for part, taken in trained.seconds.items()]
    steps = [[step, number(taken), f"{taken / whole:.0%}"] for step, taken in trained.input_seconds.items()]
    memory = [[part, spell_bytes(size)] for part, size in trained.memory.items()]
    sizes = [TableColumn("part"), TableColumn("on each device", numeric=True)]
    body = [
        figures({"examples trained": number(trained.examples), **settings}),
        section("Loss", curves(series, x="step", y="loss", width=640), note=" ".join(notes)),
        section("Time", table(times, shares, empty="the training recorded none")),
        *([section("Input, prepared meanwhile", table(times, steps))] if steps else []),
        *([section("Memory of a step, as planned", table(sizes, memory))] if memory else []),
        section("Epochs", table(columns, rows, empty="the training recorded no history")),
    ]
    return page("Training", join(body))
