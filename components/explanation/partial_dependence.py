"""Partial dependence: the mean prediction of all rows, were one of their columns this or that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...engine.attribution import Scorer, frequent, replaced


@dataclass(frozen=True)
class DependencePoint:
    """What a model predicts where a column has a value.

    Attributes:
        slice: "overall", or the slice's name.
        column: The column.
        value: What all rows have in it.
        output: Of several classes, which; else None.
        mean: The mean prediction.
        low: The 10 % quantile over rows, of individual conditional expectation.
        high: The 90 % quantile.
        share: The share of all rows that have this value; of numbers, that are nearer to it than to the points beside.
    """

    slice: str
    column: str
    value: float | int | str | bool
    output: int | None
    mean: float
    low: float
    high: float
    share: float


def partial_dependence(
    rows: pa.Table, scorer: Scorer, columns: Sequence[str], slices: Mapping[str, NDArray[np.int64]], *, points: int
) -> Iterator[DependencePoint]:
    """The dependence on each column (Friedman 2001), with the spread over rows (Goldstein et al. 2015).

    Numbers get points at even quantiles, texts and booleans their most frequent values. Rows that do not occur, a
    January with the heat of July, enter the mean as well: of columns that go together it says little.

    Args:
        rows: What the model looks at.
        scorer: The model.
        columns: The columns.
        slices: Beside all rows, the positions of those of each slice, by its name.
        points: At most so many of each.
    """
    for column in columns:
        for value, share in _points(rows[column], points):
            scores = scorer(replaced(rows, column, value))
            for output in range(scores.shape[1]) if scores.ndim == 2 else (None,):
                each = scores if output is None else scores[:, output]
                for name, some in {"overall": each, **{name: each[at] for name, at in slices.items()}}.items():
                    low, high = np.quantile(some, [0.1, 0.9])
                    mean = float((some / len(some)).sum())  # which is finite, as they are
                    yield DependencePoint(name, column, value, output, mean, float(low), float(high), share)


def _points(values: pa.ChunkedArray, most: int) -> list[tuple[float | int | str | bool, float]]:
    """Values to try, with the share of rows that each stands for."""
    kind = values.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        numbers = np.sort(values.drop_null().to_numpy())
        numbers = numbers[np.isfinite(numbers)]
        if not len(numbers):
            return []
        ranks = np.linspace(0, len(numbers) - 1, most).round().astype(np.int64)
        chosen = np.unique(numbers[ranks])
        apart = chosen.astype(np.float64)  # small integers would overflow
        nearest = np.searchsorted((apart[1:] + apart[:-1]) / 2, numbers)
        shares = np.bincount(nearest, minlength=len(chosen)) / len(values)
        return list(zip(chosen.tolist(), shares.tolist(), strict=True))
    return [(value, count / len(values)) for value, count in frequent(values, most)]
