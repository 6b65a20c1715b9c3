"""Evaluator: measures a model on raw examples by slice, compares it with a baseline, and blesses it or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Final, cast

from ..errors import InputError
from ..metadata import Evaluation, Examples, Model, Summary, summarize
from ..pipelines import Fn, FunctionRef, component, current, load
from ..pipelines.project.closure import closure

if TYPE_CHECKING:
    from ..engine.bundles.manifest import Signature
    from .evaluation.config import EvaluationConfig

_WIDTH: Final = 112
"""Characters of a line of the summary's table, which a terminal of usual width takes whole; the report has the rest."""
_SLICES: Final = 40
"""Slices in a summary at most."""


def _refuse(known: Mapping[str, object], coming: Mapping[str, Mapping[str, object]]) -> None:
    """Refuse a configuration that does not fit the examples, or a model that is about to be trained."""
    if "config" not in known:
        return  # the pipeline is being built, which imports no code of the user's
    config = configuration_of(cast(Fn, known["config"]))
    if not coming:
        return  # nor is anything known of the data while a pipeline is compiled
    from ..data import open_examples
    from ..data.examples import refuse_transformed
    from .evaluation.checks import check_columns, check_outputs, check_slice_values
    from .evaluation.slice_sql import check_expressions

    if "model" in coming:
        check_outputs(config, cast(Sequence[str], coming["model"]["outputs"]))
    examples, split = known.get("examples"), known.get("split")
    if isinstance(examples, Examples) and isinstance(split, str):
        _check_split(examples, split)
        refuse_transformed(examples.content, cast(str | None, coming.get("model", {}).get("graph")))
        columns = cast(Sequence[str], coming.get("model", {}).get("label_columns", ()))
        wanted = config.purposes | dict.fromkeys(columns, f"the label {config.label!r}")
        outputs = cast(Sequence[str], coming.get("model", {}).get("outputs", ()))
        if "model" in coming and config.weight is not None and config.weight not in outputs:
            wanted[config.weight] = "the weight"
        schema = open_examples(examples.content, split).schema
        check_columns(wanted, schema.names, config.where)
        check_slice_values(config, schema)
        check_expressions(config.expressions.values(), schema)


@component(preflight=_refuse)
def Evaluator(
    examples: Examples, model: Model, *, baseline: Model | None = None, config: Fn, split: str = "eval"
) -> Evaluation:
    """Metrics of every slice in one pass over the raw examples, thresholds, and the blessing.

    Args:
        examples: Raw examples with a split to judge the model on.
        model: The candidate; its bundle's `evaluate` signature is run.
        baseline: The model to compare with; without one, change thresholds do not apply, and the configuration's
            `first_run` decides whether the model can be blessed.
        config: Names an `EvaluationConfig`, e.g. "evaluation:config".
        split: The split of the examples to use.

    Returns:
        `blessed`, a one-line `summary`, whether it `compared` with a baseline, the `metrics` over all examples by name;
        metrics.parquet, validation.json, plots.json and extra/report.html.

    Raises:
        InputError: No such split, a column, label or prediction that cannot be used, no examples, or a bundle that is
            not a model's.
    """
    # Late, so that building a pipeline and a cached run import neither JAX nor Arrow.
    from ..data import executor, open_examples
    from ..data.examples import refuse_transformed
    from ..engine import BundleFn
    from .evaluation.checks import check_outputs
    from .evaluation.run import evaluate, overall, write

    evaluation_config = configuration_of(config)
    _check_split(examples, split)
    refuse_transformed(examples.content, model.graph)
    launch = current()
    if split == "train":
        launch.note("judged on the split 'train', which models are trained on: they look better there than they are")
    if baseline is not None and baseline.content == model.content:
        launch.note("the baseline is the model itself: no bound on a change can fail")
    source = open_examples(examples.content, split)
    columns = source.schema.names
    inputs = dict.fromkeys(_signature(model, "evaluate", "the model").read_from(columns), "the model")
    # What is judged must be a prediction: `evaluate` gives labels and columns too, of which any model is right.
    check_outputs(evaluation_config, list(_signature(model, "predict", "the model").outputs), "predict")
    if baseline is not None:
        before = _signature(baseline, "predict", "the baseline").read_from(columns)
        inputs = dict.fromkeys(before, "the baseline") | inputs
    measured = evaluate(
        source,
        evaluation_config,
        executor(launch.executor, launch.executor_options),
        BundleFn(model.content, "evaluate"),
        None if baseline is None else BundleFn(baseline.content, "predict"),
        inputs=inputs,
        progress=launch.progress,
    )
    evaluation = Evaluation.new(
        blessed=measured["validation"]["blessed"],
        summary=measured["summary"],
        compared=baseline is not None,
        metrics=overall(measured["metrics"]),
    )
    write(measured, evaluation.content, evaluation.extra, title=f"Evaluation on {split}")
    launch.note(measured["summary"])
    return evaluation


def configuration_of(config: Fn) -> EvaluationConfig:
    """The configuration that the user's name stands for.

    Raises:
        InputError: It is none, or a metric of the user's cannot be measured.
    """
    from .evaluation.config import EvaluationConfig

    configuration = load(config)
    if not isinstance(configuration, EvaluationConfig):
        name = config.name if isinstance(config, FunctionRef) else "config"
        raise InputError(
            f"{name} is a {type(configuration).__name__}, not an EvaluationConfig",
            fix='config = EvaluationConfig(label="…", prediction="…") in evaluation.py and config="evaluation:config"',
        )
    if not isinstance(config, FunctionRef):
        return configuration
    configuration = configuration.within(config.project)
    _check_own_metrics(configuration, config)
    return configuration


def _check_own_metrics(configuration: EvaluationConfig, config: FunctionRef) -> None:
    """Make sure that a user's metrics can be measured, and that a change of their code measures anew."""
    users = configuration.users
    if not users:
        return
    measures = configuration.measures
    for threshold in configuration.thresholds:
        threshold.directed(measures[threshold.metric].direction)
    code = closure(config)
    reached = {*(module for module, _ in code.modules), *code.imports}
    for name, function in users.items():
        if not {function.module, function.module.partition(".")[0]} & reached:
            module, _, attribute = function.name.partition(":")
            raise InputError(
                f"the metric {name!r} stands in {module!r}, which {config.name.partition(':')[0]!r} does not import: "
                "a change of it would go unnoticed",
                fix=f"from .{module} import {attribute}, and name the function itself in metrics",
                where=configuration.where,
            )


def _signature(model: Model, name: str, role: str) -> Signature:
    from ..engine import Bundle

    signatures = Bundle.load(model.content).signatures
    if name not in signatures:
        raise InputError(
            f"{role} has no signature {name!r}, but {', '.join(map(repr, signatures)) or 'none'}",
            fix="give a model that Trainer or `engine.export_model` saved",
        )
    return signatures[name]


def _check_split(examples: Examples, split: str) -> None:
    from ..data import splits

    known = splits(examples.content)
    if split not in known:
        raise InputError(f"the examples have no split {split!r}", fix=f"they have {', '.join(known) or 'none'}")


@summarize.register
def _metrics_and_verdict(evaluation: Evaluation) -> Summary:
    """The metrics of each slice, and whether the thresholds are met; of a user's own evaluation its one line."""
    content = evaluation.content
    if not (content / "metrics.parquet").is_file() or not (content / "validation.json").is_file():
        return Summary(evaluation.properties.get("summary", ""))
    from .evaluation.metrics import COUNTS  # the examples have a column of their own
    from .evaluation.read import read_slices, read_validation

    slices, verdict = read_slices(content), read_validation(content)
    metrics = [name for name in dict.fromkeys(name for each in slices for name in each.values) if name not in COUNTS]
    # 12: the column of examples, and the gaps beside it.
    room = _WIDTH - 12 - max(len(each.title) for each in slices)
    shown = {name: 6 + 9 * any(name in each.intervals for each in slices) for name in metrics}
    ends = accumulate(max(shown[name], len(name)) + 2 for name in metrics)
    metrics = [name for name, end in zip(metrics, ends, strict=True) if end <= room]
    rows = [
        (each.title, f"{each.n:,}", *(_number(each.values.get(name), each.intervals.get(name)) for name in metrics))
        for each in slices[:_SLICES]
    ]
    met = sum(check["passed"] is True for check in verdict["thresholds"])
    if verdict["blessed"]:
        lines = [f"model blessed: {met} of {len(verdict['thresholds'])} thresholds judged and met"]
        lines += [f"  {check['text']}" for check in verdict["thresholds"]]
        lines += [f"  {item['text']}" for item in verdict.get("withheld_thresholds", ())]
    else:
        lines = ["model not blessed:", *(f"  {line}" for line in verdict["failures"])]
    lines += [group["text"] for group in verdict.get("withheld", ())]
    if len(slices) > _SLICES:
        lines.append(f"and {len(slices) - _SLICES} more slices, in the report")
    columns = ("slice", "examples", *(name.replace("_", " ") for name in metrics))
    overall = next((each.values for each in slices if not each.pairs), {})
    return Summary("\n".join(lines), columns, tuple(rows), overall)


def _number(value: float | None, interval: tuple[float, float] | None = None) -> str:
    if value is None or interval is None:
        return "–" if value is None else f"{value:.4f}"
    return f"{value:.4f} ± {(interval[1] - interval[0]) / 2:.4f}"
