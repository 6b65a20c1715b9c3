"""What each column of a row adds to its prediction: integrated gradients, and replacement where there are none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ..data.arrays import python_of
from ..errors import InputError

Floats: TypeAlias = NDArray[np.float64]
Scorer: TypeAlias = Callable[[pa.Table], Floats]
"""Rows to predictions, (n,) or (n, classes)."""

_STEP: Final = 1e-2
"""Half of a central difference, in standard deviations of the column: a bundle computes in float32, whose rounding a
smaller one would drown in."""


def checked_scores(values: Any, rows: int) -> Floats:  # Any: what a model gave
    """What a model gave, as a scorer gives it: (n, 1) becomes (n,), and what a mask hides is no number.

    Raises:
        InputError: It is not a finite number, or one for each class, for each row.
    """
    if isinstance(values, np.ma.MaskedArray) and values.dtype.kind in "biuf":
        values = np.where(np.ma.getmaskarray(values), np.nan, values.data)
    scores = np.asarray(values)
    if scores.ndim == 2 and scores.shape[1] == 1:
        scores = scores[:, 0]
    if scores.ndim not in (1, 2) or len(scores) != rows or scores.dtype.kind not in "biuf":
        raise InputError(
            f"the model gave an array of shape {scores.shape} and type {scores.dtype} for {rows} rows",
            fix="return a number, or one for each class, for each row: predict_proba(rows)[:, 1]",
        )
    scores = scores.astype(np.float64)
    unusable = ~np.isfinite(scores).reshape(rows, -1).all(axis=1)
    if unusable.any():
        row = int(np.argmax(unusable))
        raise InputError(
            f"the model gave {scores[row]!s:.80} for row {row}, and no finite numbers for {int(unusable.sum()):,} rows",
            fix="return a number for each row",
        )
    return scores


def integrated_gradients(
    rows: pa.Table,
    scorer: Scorer,
    columns: Sequence[str],
    baseline: Mapping[str, float],
    spread: Mapping[str, float],
    *,
    steps: int,
    batch: int = 8192,
) -> tuple[Floats, Floats]:
    """The attributions of each row and output, (n, columns, outputs): (x − b)·∫ ∂f/∂x on the straight line from b to x.

    Sundararajan, Taly and Yan 2017. The line is cut into `steps` parts, each with the gradient in its middle, which is
    a central difference: a bundle's program comes without its derivative, and so does a function of the user's. Columns
    that are no numbers stay as they are, and so does a number that is missing, whose attribution is 0.

    Args:
        rows: The rows.
        scorer: The model.
        columns: The columns of floats.
        baseline: What each of them is on the other end of the line.
        spread: The standard deviation of each.
        steps: Parts of the line.
        batch: Rows that the model is asked at once, at most; where `rows` alone are half of it, twice these.

    Returns:
        The attributions, and how far their sums are from f(x) − f(b), (n, outputs): 0 were they exact.
    """
    x = np.column_stack([rows[name].to_numpy().astype(np.float64) for name in columns])
    start = np.broadcast_to([baseline[name] for name in columns], x.shape)
    missing = np.isnan(x)
    start = np.where(missing, x, start)

    def scores(points: Floats) -> Floats:
        """Of (m, n, columns) numbers in the rows: (m, n, outputs)."""
        filled = pa.concat_tables([rows] * len(points))
        hidden = np.tile(missing, (len(points), 1))
        for index, name in enumerate(columns):
            numbers = pa.array(points[:, :, index].reshape(-1), mask=hidden[:, index])
            at, field = rows.schema.get_field_index(name), rows.schema.field(name)
            filled = filled.set_column(at, field, numbers.cast(field.type))
        return scorer(filled).reshape(len(points), len(x), -1)

    here, there = scores(np.stack([x, start]))
    halves = np.array([_STEP * (spread[name] or 1.0) for name in columns])
    gradients = np.zeros((*x.shape, here.shape[1]))
    slopes = [(step, index) for step in range(steps) for index in range(len(columns))]
    together = max(batch // (2 * len(x)), 1)
    for first in range(0, len(slopes), together):
        step, index = np.array(slopes[first : first + together]).T
        middle = start + (x - start) * ((step + 0.5) / steps)[:, None, None]
        aside = np.zeros_like(middle)
        aside[np.arange(len(step)), :, index] = halves[index, None]
        ahead, behind = np.split(scores(np.concatenate([middle + aside, middle - aside])), 2)
        np.add.at(gradients.swapaxes(0, 1), index, (ahead - behind) / (2 * steps * halves[index])[:, None, None])
    distance = np.where(missing, 0.0, x - start)[:, :, None]
    attributions = distance * np.where(missing[:, :, None], 0.0, gradients)
    return attributions, here - there - attributions.sum(axis=1)


def replaced(rows: pa.Table, column: str, value: object) -> pa.Table:
    """The rows, all with this value in a column.

    Raises:
        InputError: The value is not of the column's type.
    """
    position, kind = rows.schema.get_field_index(column), rows.schema.field(column).type
    try:
        scalar = pa.scalar(value, kind.value_type if pa.types.is_dictionary(kind) else kind)
        if pa.types.is_integer(scalar.type) and scalar.as_py() != value:
            raise pa.ArrowInvalid("a fraction")
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise InputError(f"{value!r} is no {kind}, which the column holds", fix="give values of its type") from error
    repeated = pa.repeat(scalar, rows.num_rows)
    values = repeated.dictionary_encode() if pa.types.is_dictionary(kind) else repeated
    return rows.set_column(position, rows.schema.field(position), values)


def frequent(values: pa.ChunkedArray, most: int) -> list[tuple[Any, int]]:  # Any: what the column holds
    """The most frequent values that are not missing, each with how often it occurs; equally frequent ones by text.

    Without times that Python has none of, as of the year 10000: no other row can be given them.
    """
    known = values.drop_null()
    if pa.types.is_dictionary(known.type):
        known = known.cast(known.type.value_type)
    if pa.types.is_float16(known.type):  # which Arrow does not count
        known = known.cast(pa.float32())
    counts = [(python_of(each["values"]), each["counts"].as_py()) for each in pc.value_counts(known)]
    if pa.types.is_temporal(known.type):
        counts = [each for each in counts if not isinstance(each[0], str)]
    return sorted(counts, key=lambda each: (-each[1], str(each[0])))[:most]
