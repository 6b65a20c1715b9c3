"""Permutation importance: how much worse a metric gets once a column's values are shuffled among the rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from ...data.slices import distinct_titles
from ...engine.attribution import Scorer
from ...errors import InputError
from ...progress import Progress
from ..evaluation.accumulator import CANDIDATE, MetricsAccumulator
from ..evaluation.config import EvaluationConfig
from ..evaluation.rows import Floats


@dataclass(frozen=True)
class ColumnImportance:
    """What a column is worth to a model on a slice.

    Attributes:
        slice: "overall", or the slice's name.
        n: Its rows.
        column: The column.
        importance: How much worse the metric is without it: the mean over shuffles. Below 0 it was better without.
        lower: Of the interval of that mean: what other shuffles might have given. None of a single one.
        upper: Likewise.
        value: The metric with all columns as they are.
    """

    slice: str
    n: int
    column: str
    importance: float
    lower: float | None
    upper: float | None
    value: float


def importances(
    rows: pa.Table,
    scored: pa.Table,
    scorer: Scorer,
    columns: Sequence[str],
    config: EvaluationConfig,
    *,
    repeats: int,
    level: float,
    seed: int,
    progress: Progress,
) -> Iterator[ColumnImportance]:
    """The importance of each column, on all rows and on each slice (Breiman 2001; Fisher, Rudin and Dominici 2019).

    A column is shuffled among all rows; a slice has the rows that it has as the columns are. Columns that say the same
    stand in for each other, so each seems unimportant.

    Args:
        rows: What the model looks at.
        scored: `label`, `weight` where there are weights, and `slice:NAME`, row by row as `rows`.
        scorer: The model.
        columns: The columns to shuffle.
        config: The slices and the metric, the only one; a metric for which lower is better counts the other way round.
        repeats: Shuffles of each column.
        level: Of the intervals.
        seed: For the shuffles.
        progress: Called with the shuffles done.
    """
    (name,) = config.measures
    sign = -1.0 if config.measures[name].direction == "lower" else 1.0
    config = replace(config, confidence=None)
    before = _measured(scored, scorer(rows), config, name)
    if not before:
        raise InputError(
            f"{name} has no value on these rows, so no column can make it worse",
            fix="choose another metric, or rows with labels of each class",
        )
    dice = np.random.default_rng(seed)
    for done, column in enumerate(columns):
        position = rows.schema.get_field_index(column)
        losses: dict[str, list[float]] = {}
        for repeat in range(repeats):
            shuffled = rows.set_column(position, column, rows.column(position).take(dice.permutation(rows.num_rows)))
            for key, (_, _, value) in _measured(scored, scorer(shuffled), config, name).items():
                losses.setdefault(key, []).append(sign * (before[key][2] - value))
            progress(done * repeats + repeat + 1, len(columns) * repeats, "shuffles")
        for key, values in losses.items():
            title, n, value = before[key]
            yield ColumnImportance(title, n, column, *_interval(values, level), value)


def _interval(values: Sequence[float], level: float) -> tuple[float, float | None, float | None]:
    mean = float(np.mean(values))
    if len(values) < 2:
        return mean, None, None
    from scipy.special import stdtrit  # late: half a second to import

    half = float(stdtrit(len(values) - 1, (1 + level) / 2)) * float(np.std(values, ddof=1)) / len(values) ** 0.5
    return mean, mean - half, mean + half


def _measured(
    scored: pa.Table, scores: Floats, config: EvaluationConfig, name: str
) -> Mapping[str, tuple[str, int, float]]:
    """Slice by key → its name, rows and metric; without the slices where it is undefined."""
    column: Any = pa.array(scores) if scores.ndim == 1 else pa.FixedSizeListArray.from_arrays(
        pa.array(np.ascontiguousarray(scores).reshape(-1)), scores.shape[1]
    )  # fmt: skip
    accumulator = MetricsAccumulator(config, plots=False)
    for batch in scored.append_column(CANDIDATE, column).combine_chunks().to_batches():
        accumulator.add_batch(batch)
    slices = accumulator.result()["slices"]
    titles = distinct_titles([each["pairs"] for each in slices])
    values = {
        each["key"]: (title, each["n"], each["metrics"][CANDIDATE][name])
        for title, each in zip(titles, slices, strict=True)
    }
    return {key: item for key, item in values.items() if isinstance(item[2], float)}
