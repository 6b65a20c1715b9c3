"""Evaluator: measures a model on raw examples by slice, compares it with a baseline, and blesses it or not."""

from __future__ import annotations

from ..errors import InputError
from ..metadata import Evaluation, Examples, Model
from ..pipelines import Fn, component, current, load


@component
def Evaluator(
    examples: Examples, model: Model, *, baseline: Model | None = None, config: Fn, split: str = "eval"
) -> Evaluation:
    """Metrics of every slice in one pass over the raw examples, thresholds, and the blessing.

    Args:
        examples: Raw examples with a split to judge the model on.
        model: The candidate; its bundle's `evaluate` signature is run.
        baseline: The model to compare with; without one, change thresholds do not apply.
        config: Names an `EvaluationConfig`, e.g. "model:evaluation".
        split: The split of the examples to use.

    Returns:
        `blessed`, a one-line `summary`; metrics.parquet, validation.json, plots.json and extra/report.html.

    Raises:
        InputError: No such split, a column, label or prediction that cannot be used, or no examples.
    """
    # Late, so that building a pipeline and a cached run import neither JAX nor Arrow.
    from ..data import executor, open_examples, splits
    from ..engine import Bundle, BundleFn
    from .evaluation.config import EvaluationConfig
    from .evaluation.run import evaluate, write

    judged = load(config)
    if not isinstance(judged, EvaluationConfig):
        raise InputError(
            f"Evaluator: config names a {type(judged).__name__}, not an EvaluationConfig",
            fix='evaluation = EvaluationConfig(label="…", prediction="…") in model.py and config="model:evaluation"',
        )
    known = splits(examples.content)
    if split not in known:
        raise InputError(f"the examples have no split {split!r}", fix=f"they have {', '.join(known) or 'none'}")
    launch = current()
    source = open_examples(examples.content, split)
    columns = source.schema.names
    inputs = dict.fromkeys(Bundle.load(model.content).signatures["evaluate"].read_from(columns), "the model")
    if baseline is not None:
        before = Bundle.load(baseline.content).signatures["predict"].read_from(columns)
        inputs = dict.fromkeys(before, "the baseline") | inputs
    found = evaluate(
        source,
        judged,
        executor(launch.executor, launch.executor_options),
        BundleFn(model.content, "evaluate"),
        None if baseline is None else BundleFn(baseline.content, "predict"),
        inputs=inputs,
        progress=launch.progress,
    )
    evaluation = Evaluation.new(blessed=found["validation"]["blessed"], summary=found["summary"])
    write(found, evaluation.content, evaluation.extra, title=f"Evaluation on {split}")
    launch.note(found["summary"])
    return evaluation
