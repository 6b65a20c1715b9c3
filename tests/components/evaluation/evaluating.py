"""Metrics of given rows, as the accumulator measures them: at once, and summed up by states in parts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from drivetrain.components.evaluation import EvaluationConfig
from drivetrain.components.evaluation.accumulator import MetricsAccumulator
from numpy.typing import NDArray


def column(values: Any) -> pa.Array:
    """One number or text per row, or a list of numbers."""
    values = np.asarray(values)
    if values.ndim == 1:
        return pa.array(values)
    return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])


def batch(label: Any, prediction: Any, weight: Any = None, baseline: Any = None) -> pa.RecordBatch:
    columns = {"label": column(label), "candidate": column(prediction)}
    columns |= {} if baseline is None else {"baseline": column(baseline)}
    return pa.record_batch(columns | ({} if weight is None else {"weight": column(weight)}))


def measured(
    metrics: Sequence[Any],
    label: Any,
    prediction: Any,
    weight: Any = None,
    baseline: Any = None,
    *,
    parts: int = 1,
    **options: Any,
) -> dict[str, Any]:
    """The candidate's metrics over all rows.

    Args:
        metrics: As in `EvaluationConfig`.
        label: One for each row.
        prediction: One or several for each row.
        weight: One for each row, or None.
        baseline: As `prediction`, or None.
        parts: Into how many accumulators the rows are split, written as bytes, read again and merged.
        **options: Of the configuration.
    """
    config = EvaluationConfig("y", "p", metrics=metrics, weight=None if weight is None else "w", **options)
    rows = batch(label, prediction, weight, baseline)
    bounds = np.linspace(0, rows.num_rows, parts + 1).astype(int)
    whole = MetricsAccumulator(config, baseline is not None)
    for start, end in pairwise(bounds):
        part = MetricsAccumulator(config, baseline is not None)
        part.add_batch(rows.slice(start, end - start))
        whole.merge(MetricsAccumulator(config, baseline is not None).load(part.to_bytes()))
    metrics_of: dict[str, Any] = whole.result()["slices"][0]["metrics"]["candidate"]
    return metrics_of


def rounded_rows(seed: int, rows: int, decimals: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Labels of 0 and 1, scores with ties, and weights."""
    rng = np.random.default_rng(seed)
    score = np.round(rng.beta(0.7, 1.3, rows), decimals)
    label = (rng.random(rows) < 0.15 + 0.6 * score).astype(np.float64)
    return label, score, rng.choice([0.0, 0.5, 1.0, 2.25], rows, p=[0.1, 0.3, 0.3, 0.3])
