"""Evaluator: measures a model on raw examples by slice, compares it with a baseline, and blesses it or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, cast

from ..errors import InputError
from ..metadata import Evaluation, Examples, Model, Summary, summarize
from ..pipelines import Fn, FunctionRef, component, current, load
from ..pipelines.project.closure import closure

if TYPE_CHECKING:
    from ..engine import Bundle
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
    configs = configurations_of(cast(Fn, known["config"])).values()
    if not coming and "examples" not in known:
        return  # nor is anything known of the data while a pipeline is compiled
    from ..data import open_examples
    from ..data.examples import refuse_transformed
    from .evaluation.checks import check_columns, check_outputs, check_slice_values
    from .evaluation.slice_sql import check_expressions

    model = coming.get("model", {})
    outputs = cast(Sequence[str], model.get("outputs", ()))
    examples, split = known.get("examples"), known.get("split")
    if not isinstance(examples, Examples) or not isinstance(split, str):
        for config in configs if "model" in coming else ():
            check_outputs(config, outputs, columns=(config.label,))  # which the examples may have
        return
    refuse_transformed(examples.content, cast(str | None, model.get("graph")))
    schema = open_examples(examples.content, split).schema
    for config in configs:
        if "model" in coming:
            check_outputs(config, outputs, columns=schema.names)
        labels = cast(Sequence[str], model.get("label_columns", ())) if config.label in outputs else ()
        wanted = config.purposes | dict.fromkeys(labels, f"the label {config.label!r}")
        if "model" in coming and config.weight is not None and config.weight not in outputs:
            wanted[config.weight] = "the weight"
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
        config: Names an `EvaluationConfig`, e.g. "evaluation:config"; or, of a model with several outputs, a mapping
            from a name of each to its own. The model is blessed where each output is good enough.
        split: The split of the examples to use.

    Returns:
        `blessed`, a one-line `summary`, whether it `compared` with a baseline, the `metrics` over all examples by name
        (of several outputs as "OUTPUT.METRIC");
        metrics.parquet, validation.json, plots.json and extra/report.html.

    Raises:
        InputError: No such split, a column, label or prediction that cannot be used, no examples, or a bundle that is
            not a model's.
    """
    # Late, so that building a pipeline and a cached run import neither JAX nor Arrow.
    from ..data import executor, open_examples
    from ..data.examples import refuse_transformed
    from ..engine import BundleFn
    from ..engine.bundles.compile_cache import compiled_kept
    from .evaluation.checks import check_outputs
    from .evaluation.outputs import named
    from .evaluation.run import evaluate_outputs, overall, write

    configs = configurations_of(config)
    refuse_transformed(examples.content, model.graph)
    launch = current()
    if split == "train":
        launch.note("judged on the split 'train', which models are trained on: they look better there than they are")
    if baseline is not None and baseline.content == model.content:
        launch.note("the baseline is the model itself: no bound on a change can fail")
    source = open_examples(examples.content, split)
    columns = source.schema.names
    candidate = BundleFn(model.content, "evaluate")
    before = None if baseline is None else BundleFn(baseline.content, "predict")
    inputs = dict.fromkeys(_signature(candidate.bundle, "evaluate", "the model").read_from(columns), "the model")
    # What is judged must be a prediction: `evaluate` gives labels and columns too, of which any model is right.
    predicted = list(_signature(candidate.bundle, "predict", "the model").outputs)
    for each in configs.values():
        check_outputs(each, predicted, "predict")
    if before is not None:
        read = _signature(before.bundle, "predict", "the baseline").read_from(columns)
        inputs = dict.fromkeys(read, "the baseline") | inputs
    with compiled_kept():  # a model is judged again when thresholds or examples change
        measured = evaluate_outputs(
            source,
            configs,
            executor(launch.executor, launch.executor_options),
            candidate,
            before,
            inputs=inputs,
            progress=launch.progress,
        )
    evaluation = Evaluation.new(
        blessed=all(each["validation"]["blessed"] for each in measured.values()),
        summary=" | ".join(named(output, each["summary"]) for output, each in measured.items()),
        compared=baseline is not None,
        judged=model.fingerprint or "",
        metrics=overall(measured),
    )
    write(measured, evaluation.content, evaluation.extra, title=f"Evaluation on {split}")
    launch.note(evaluation.summary)
    return evaluation


def configurations_of(config: Fn) -> dict[str, EvaluationConfig]:
    """The configurations that the user's name stands for, by output; under `outputs.ONLY` where it is a single one.

    Raises:
        InputError: It is not an `EvaluationConfig`, nor a mapping to them, or a user's metric cannot be measured.
    """
    from .evaluation.config import EvaluationConfig
    from .evaluation.outputs import ONLY

    loaded: Any = load(config)
    several = isinstance(loaded, Mapping) and any(isinstance(each, EvaluationConfig) for each in loaded.values())
    configs: Mapping[Any, Any] = loaded if several else {ONLY: loaded}
    for output, each in configs.items():
        one_of = f"[{output!r}]" if several else ""
        if not isinstance(each, EvaluationConfig):
            name = config.name if isinstance(config, FunctionRef) else "config"
            raise InputError(
                f"{name}{one_of} is a {type(each).__name__}, not an EvaluationConfig",
                fix='config = EvaluationConfig(label="…", prediction="…") in evaluation.py and '
                'config="evaluation:config"',
            )
        if one_of and (not isinstance(output, str) or not output.isidentifier()):
            raise InputError(f"{output!r} is not a valid name for an output", fix='{"delay": EvaluationConfig(…), …}')
    if not isinstance(config, FunctionRef):
        return dict(configs)
    configs = {output: each.within(config.project) for output, each in configs.items()}
    for each in configs.values():
        _check_own_metrics(each, config)
    return configs


def configuration_of(config: Fn) -> EvaluationConfig:
    """The single configuration that the user's name stands for.

    Raises:
        InputError: As `configurations_of`, or there are several.
    """
    configs = configurations_of(config)
    if len(configs) > 1:
        raise InputError(
            f"there are configurations of several outputs: {', '.join(configs)}",
            fix="name the configuration of one: give it a name of its own in its module",
        )
    return next(iter(configs.values()))


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


def _signature(bundle: Bundle, name: str, role: str) -> Signature:
    signatures = bundle.signatures
    if name not in signatures:
        raise InputError(
            f"{role} has no signature {name!r}, but {', '.join(map(repr, signatures)) or 'none'}",
            fix="give a model that Trainer or `engine.export_model` saved",
        )
    return signatures[name]


@summarize.register
def _metrics_and_verdict(evaluation: Evaluation) -> Summary:
    """The metrics of each slice, and whether the thresholds are met; of a user's own evaluation its one line.

    Of metrics that are more than fit on a line the last lines say how many there are.
    """
    content = evaluation.content
    if not (content / "metrics.parquet").is_file() or not (content / "validation.json").is_file():
        return Summary(evaluation.properties.get("summary", ""))
    from .evaluation.metrics import COUNTS  # the examples have a column of their own
    from .evaluation.outputs import named
    from .evaluation.read import read_slices, read_validation

    slices, verdict = read_slices(content), read_validation(content)
    metrics = [name for name in dict.fromkeys(name for each in slices for name in each.values) if name not in COUNTS]
    titles = [named(each.output, each.title) for each in slices]
    # 12: the column of examples, and the gaps beside it.
    room = _WIDTH - 12 - max(map(len, titles))
    shown = {name: 6 + 9 * any(name in each.intervals for each in slices) for name in metrics}
    ends = accumulate(max(shown[name], len(name)) + 2 for name in metrics)
    shown_metrics = [name for name, end in zip(metrics, ends, strict=True) if end <= room]
    cut, metrics = len(metrics) - len(shown_metrics), shown_metrics
    rows = [
        (title, f"{each.n:,}", *(_number(each.values.get(name), each.intervals.get(name)) for name in metrics))
        for title, each in zip(titles[:_SLICES], slices, strict=False)
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
    if cut:
        lines.append(f"and {cut} more metric{'' if cut == 1 else 's'}: show --json or --html has all of them")
    columns = ("slice", "examples", *(name.replace("_", " ") for name in metrics))
    overall = {
        f"{each.output}.{name}" if each.output else name: value
        for each in slices
        if not each.pairs
        for name, value in each.values.items()
    }
    return Summary("\n".join(lines), columns, tuple(rows), overall)


def _number(value: float | None, interval: tuple[float, float] | None = None) -> str:
    if value is None or interval is None:
        return "–" if value is None else f"{value:.4f}"
    return f"{value:.4f} ± {(interval[1] - interval[0]) / 2:.4f}"
