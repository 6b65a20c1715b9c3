"""One evaluation from examples to files: `metrics.parquet`, `validation.json`, `plots.json`, `report.html`."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from ...data.base import BatchFn, Executor
from ...data.sources import Source
from ...progress import Progress, no_progress
from ...report.evaluation import render_outputs
from .accumulator import MetricsAccumulator
from .checks import check_columns
from .config import EvaluationConfig
from .metrics import COUNTS
from .outputs import ONLY, OutputsAccumulator, OutputScores, joint_verdict
from .quantile_bins import with_bins
from .scoring import Scores
from .slice_sql import check_expressions
from .validation import summary, validate

_BUCKET_ROWS: Final = 250_000
_MOST_BUCKETS: Final = 4_096

METRICS_SCHEMA: Final = pa.schema(
    [
        pa.field("output", pa.string(), nullable=False),
        pa.field("slice", pa.string(), nullable=False),
        pa.field("slice_key", pa.string(), nullable=False),
        pa.field("metric", pa.string(), nullable=False),
        pa.field("n", pa.int64(), nullable=False),
        pa.field("value", pa.float64()),
        pa.field("undefined", pa.string()),
        pa.field("baseline", pa.float64()),
        pa.field("baseline_undefined", pa.string()),
        pa.field("change", pa.float64()),
        pa.field("exact", pa.bool_(), nullable=False),
        pa.field("error_bound", pa.float64()),
        pa.field("lower", pa.float64()),
        pa.field("upper", pa.float64()),
        pa.field("change_lower", pa.float64()),
        pa.field("change_upper", pa.float64()),
    ]
)
"""One row for each output, slice and metric. `output` is empty where a single one is judged; `slice` is for people,
`slice_key` a JSON list of [column, value]; `undefined` is why `value` is null; `exact` whether the rows themselves were
used; `error_bound` the most AUC can be off, else null; `lower` and `upper` are the ends of the value's interval,
`change_lower` and `change_upper` of the change's, null where there is none.
"""


def evaluate(
    source: Source,
    config: EvaluationConfig,
    executor: Executor,
    model: BatchFn,
    baseline: BatchFn | None = None,
    *,
    inputs: Mapping[str, str] | None = None,
    progress: Progress = no_progress,
) -> dict[str, Any]:
    """`evaluate_outputs` of a single configuration."""
    evaluations = evaluate_outputs(source, {ONLY: config}, executor, model, baseline, inputs=inputs, progress=progress)
    return evaluations[ONLY]


def evaluate_outputs(
    source: Source,
    configs: Mapping[str, EvaluationConfig],
    executor: Executor,
    model: BatchFn,
    baseline: BatchFn | None = None,
    *,
    inputs: Mapping[str, str] | None = None,
    progress: Progress = no_progress,
) -> dict[str, dict[str, Any]]:
    """Measure a model's outputs on raw examples and judge each.

    Args:
        source: The examples of a split.
        configs: Output → what to measure and what to ask for.
        executor: Who walks the shards.
        model: Raw rows to the model's outputs and the label.
        baseline: Raw rows to the outputs of the model to compare with.
        inputs: Raw columns that the models need → what for; with them only the columns in use are read.
        progress: Told how many rows are done.

    Returns:
        Of each output, `metrics` (see `MetricsAccumulator.result`), `validation` (see `validate`), `summary`, one line,
        and how to show metrics: `titles` and `directions` by name, `bars`, the names of those drawn as bars, and the
        names of `classes`.

    Raises:
        InputError: A column that does not exist, labels or predictions that cannot be judged, or no examples.
    """
    known = tuple(source.schema.names)
    wanted: dict[str, str] = {}
    for config in configs.values():
        wanted |= config.purposes | dict(inputs or {})
        check_columns(wanted, known, config.where)
        check_expressions(config.expressions.values(), source.schema)
    configs = {output: with_bins(config, source, executor) for output, config in configs.items()}
    if inputs is not None:
        others = {name for config in configs.values() for name in (config.label, config.weight, config.query)}
        source = source.select([name for name in known if name in wanted or name in others]).with_dictionaries()
    # Documents of a query may lie in any shards. Few rows are kept whole, and grouped at the end; of more the queries
    # must be brought together first, for such outputs alone.
    rankings = [
        output for output, config in configs.items() if config.query is not None and source.rows > config.exact_rows
    ]
    accumulators: dict[str, MetricsAccumulator] = {}
    for output in rankings:
        make = partial(MetricsAccumulator, configs[output], baseline is not None)
        scores = Scores(configs[output], model, baseline)
        accumulators[output] = _by_query(source, executor, scores, make, progress)
    together = {output: config for output, config in configs.items() if output not in rankings}
    if together:
        make_all = partial(OutputsAccumulator, tuple(together.values()), baseline is not None)
        all_scores = OutputScores(tuple(together.values()), model, baseline)
        parts = executor.combine(source, make_all, all_scores, progress).parts
        accumulators |= dict(zip(together, parts, strict=True))
    return {output: _judged(accumulators[output], config) for output, config in configs.items()}


def _judged(accumulator: MetricsAccumulator, config: EvaluationConfig) -> dict[str, Any]:
    metrics = accumulator.result()
    verdict = validate(metrics, config, baseline=len(accumulator.models) > 1, withheld=accumulator.withheld())
    return {
        "metrics": metrics,
        "validation": verdict,
        "summary": summary(metrics, verdict),
        "titles": {name: metric.title for name, metric in config.measures.items()},
        "directions": {name: metric.direction for name, metric in config.measures.items()},
        "bars": [name for name, metric in config.measures.items() if metric.bar],
        "classes": config.classes,
    }


def _by_query(
    source: Source,
    executor: Executor,
    scores: Scores,
    make: Callable[[], MetricsAccumulator],
    progress: Progress,
) -> MetricsAccumulator:
    """As `Executor.combine`, with the documents of a query in one shard."""
    buckets = min(source.rows // _BUCKET_ROWS + 1, _MOST_BUCKETS)
    with tempfile.TemporaryDirectory(prefix="drivetrain-queries-") as folder:
        exchanged = executor.exchange(source, "query", buckets, Path(folder), via=scores, progress=progress)
        return executor.combine(exchanged, make)


def overall(evaluations: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """The metrics over all examples that have a value, except the counts; of several outputs as "OUTPUT.METRIC"."""
    return {
        f"{output}.{name}" if output != ONLY else name: value
        for output, evaluation in evaluations.items()
        for name, value in evaluation["metrics"]["slices"][0]["metrics"]["candidate"].items()
        if isinstance(value, float) and name not in COUNTS
    }


def write(
    evaluations: Mapping[str, Mapping[str, Any]], content: Path, extra: Path, *, title: str = "Evaluation"
) -> None:
    """Write what `evaluate_outputs` returned: three files into `content`, the report into `extra`."""
    tables = [metrics_table(each["metrics"]["slices"], output) for output, each in evaluations.items()]
    pq.write_table(pa.concat_tables(tables), content / "metrics.parquet")
    verdicts = {output: each["validation"] for output, each in evaluations.items()}
    _json(content / "validation.json", joint_verdict(verdicts))
    plots = {output: each["metrics"]["plots"] for output, each in evaluations.items()}
    drawn = {"slice": "overall"} | ({"models": plots[ONLY]} if ONLY in plots else {"outputs": plots})
    _json(content / "plots.json", drawn, indent=None)  # Python is slow at lines for each of many numbers
    (extra / "report.html").write_text(render_outputs(evaluations, title=title), encoding="utf-8")


def metrics_table(slices: Sequence[Mapping[str, Any]], output: str = ONLY) -> pa.Table:
    """The metrics of all slices of an output as a table of `METRICS_SCHEMA`."""
    rows = []
    for item in slices:
        before = item["metrics"].get("baseline", {})
        for name, value in item["metrics"]["candidate"].items():
            known, old = _number(value), _number(before.get(name))
            rows.append(
                {
                    "output": output,
                    "slice": item["slice"],
                    "slice_key": item["key"],
                    "metric": name,
                    "n": item["n"],
                    "value": known,
                    "undefined": value if isinstance(value, str) else None,
                    "baseline": old,
                    "baseline_undefined": before[name] if isinstance(before.get(name), str) else None,
                    "change": None if known is None or old is None else known - old,
                    "exact": item["exact"],
                    "error_bound": item["errors"].get(name),
                    **_ends(item, "candidate", name, "lower", "upper"),
                    **_ends(item, "change", name, "change_lower", "change_upper"),
                }
            )
    return pa.Table.from_pylist(rows, schema=METRICS_SCHEMA)


def _ends(item: Mapping[str, Any], kind: str, metric: str, lower: str, upper: str) -> dict[str, float]:
    interval = item["intervals"].get(kind, {}).get(metric)
    return {lower: interval[0], upper: interval[1]} if isinstance(interval, tuple) else {}


def _number(value: object) -> float | None:
    return value if isinstance(value, float) else None


def _json(path: Path, value: object, *, indent: int | None = 1) -> None:
    path.write_text(json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
