"""Explainer: which columns matter to a model, on which slices, and how its predictions move with each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from ..errors import InputError, suggest
from ..metadata import Examples, Explanation, Model, Summary, summarize
from ..pipelines import Fn, component, current

if TYPE_CHECKING:
    from .evaluation.config import EvaluationConfig

_SHOWN = 15
"""Columns in a summary at most."""
_SLICES = 4
"""Slices in a summary at most."""


def _refuse(known: Mapping[str, object], coming: Mapping[str, Mapping[str, object]]) -> None:
    """Refuse a configuration, columns or a split that do not fit, before a model is trained."""
    if "config" not in known or not coming:
        return  # the pipeline is being built, which imports no code of the user's
    from ..data.examples import refuse_transformed
    from .evaluator import configuration_of

    config = configuration_of(cast(Fn, known["config"]))
    examples, split = known.get("examples"), known.get("split")
    if isinstance(examples, Examples) and isinstance(split, str):
        refuse_transformed(examples.content, cast(str | None, coming.get("model", {}).get("graph")))
        _check_columns(examples, config, split, cast(Sequence[str] | None, known.get("columns")))


def _check_columns(examples: Examples, config: EvaluationConfig, split: str, columns: Sequence[str] | None) -> None:
    from ..data import open_examples
    from .evaluation.checks import check_columns
    from .evaluation.slice_sql import check_expressions

    schema = open_examples(examples.content, split).schema
    check_columns(config.purposes | dict.fromkeys(columns or (), "what is looked at"), schema.names, config.where)
    check_expressions(config.expressions.values(), schema)


@component(preflight=_refuse)
def Explainer(
    examples: Examples,
    model: Model,
    *,
    config: Fn,
    split: str = "eval",
    columns: Sequence[str] | None = None,
    metric: str | None = None,
    repeats: int = 5,
    max_rows: int = 10_000,
    seed: int = 0,
) -> Explanation:
    """What columns are worth to a model, partial dependence, and integrated gradients.

    Args:
        examples: Raw examples with a split to look at.
        model: Its bundle's signatures `evaluate` and `predict` are run.
        config: Names an `EvaluationConfig`, as the Evaluator's does: its label, prediction, slices and weight.
        split: The split of the examples to use.
        columns: What to look at; None: all columns that `predict` reads.
        metric: The metric of the configuration that importance is measured by; None: the usual loss of its task.
        repeats: Shuffles of each column.
        max_rows: Rows beyond which a random sample of so many is looked at.
        seed: For the sample and the shuffles.

    Returns:
        The `metric`, `importance` over all examples by column, a one-line `summary`; importances.parquet,
        dependence.parquet, attributions.parquet, explanation.json and extra/report.html.

    Raises:
        InputError: No such split, column or metric, labels or predictions that cannot be judged, or fewer than two
            rows.
    """
    # Late, so that building a pipeline and a cached run import neither JAX nor Arrow.
    import pyarrow as pa

    from ..data import LocalExecutor, open_examples, source_of
    from ..data.examples import refuse_transformed
    from ..engine import Bundle, BundleFn
    from .evaluation.accumulator import CANDIDATE
    from .evaluation.metrics import name_of
    from .evaluation.quantile_bins import with_bins
    from .evaluation.scoring import Scores
    from .evaluator import configuration_of
    from .explanation.explain import METRIC, Effort, explained, sample
    from .explanation.files import write
    from .explanation.model_scores import scorer_of

    judged = configuration_of(config)
    _check_columns(examples, judged, split, columns)
    refuse_transformed(examples.content, model.graph)
    launch = current()
    effort = Effort(repeats=repeats, max_rows=max_rows, seed=seed)
    items = {name_of(item): item for item in judged.items}
    if metric is not None and metric not in items:
        raise InputError(
            f"there is no metric {metric!r} in the configuration", fix=suggest(metric, list(items), "it has")
        )
    chosen = METRIC[str(judged.task)] if metric is None else items[metric]
    source = open_examples(examples.content, split)
    rows = sample(source, effort)
    bundle = Bundle.load(model.content)
    read = list(bundle.signatures["predict"].read_from(source.schema.names))
    one_metric = with_bins(judged.only(chosen), source_of(rows), LocalExecutor())
    scores = Scores(one_metric, BundleFn(model.content, "evaluate"))
    scores.setup()
    scored = pa.Table.from_batches([scores(batch) for batch in rows.to_batches()]).drop_columns(CANDIDATE)
    result = explained(
        rows, scored, scorer_of(bundle, judged.prediction), columns or read, one_metric, effort, launch.progress
    )
    if rows.num_rows < source.rows:
        launch.note(f"{rows.num_rows:,} of {source.rows:,} rows were looked at")
    worth = {each.column: each.importance for each in result.importances if each.slice == "overall"}
    explanation = Explanation.new(metric=result.metric, importance=worth, summary=_summary(result.metric, worth))
    write(result, explanation.content, explanation.extra, title=f"Explanation on {split}")
    launch.note(explanation.summary)
    return explanation


def _summary(metric: str, worth: Mapping[str, float]) -> str:
    if not worth:
        return f"{metric} has no value on these rows"
    first = ", ".join(f"{name} {value:.4f}" for name, value in list(worth.items())[:3])
    return f"worth most to {metric.replace('_', ' ')}: {first}"


@summarize.register
def _importance_by_slice(explanation: Explanation) -> Summary:
    """The columns that matter most, over all examples and on each slice; of a user's own explanation its one line."""
    path = explanation.content / "importances.parquet"
    if not path.is_file():
        return Summary(explanation.properties.get("summary", ""))
    import pyarrow.parquet as pq

    lines = pq.read_table(path, columns=["slice", "column", "importance"]).to_pylist()
    worth = {(each["slice"], each["column"]): each["importance"] for each in lines}
    columns = list(dict.fromkeys(column for slice_, column in worth if slice_ == "overall"))
    slices = list(dict.fromkeys(slice_ for slice_, _ in worth))[:_SLICES]
    rows = [
        (column, *("–" if (slice_, column) not in worth else f"{worth[slice_, column]:.4f}" for slice_ in slices))
        for column in columns[:_SHOWN]
    ]
    more = f"; and {len(columns) - _SHOWN} more columns, in the report" if len(columns) > _SHOWN else ""
    overall = {column: worth["overall", column] for column in columns}
    return Summary(f"{explanation.properties.get('summary', '')}{more}", ("column", *slices), tuple(rows), overall)
