"""Integrated gradients: how much each number of a row adds to its prediction, beside a baseline row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from ..evaluation.rows import Floats
from .model_scores import Scorer

_STEP: Final = 1e-2
"""Half of a central difference, in standard deviations of the column: a bundle computes in float32, whose rounding a
smaller one would drown in."""


def integrated_gradients(
    rows: pa.Table,
    scorer: Scorer,
    columns: Sequence[str],
    baseline: Mapping[str, float],
    spread: Mapping[str, float],
    *,
    steps: int,
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

    Returns:
        The attributions, and how far their sums are from f(x) − f(b), (n, outputs): 0 were they exact.
    """
    x = np.column_stack([rows[name].to_numpy().astype(np.float64) for name in columns])
    start = np.broadcast_to([baseline[name] for name in columns], x.shape)
    missing = np.isnan(x)
    start = np.where(missing, x, start)

    def scores(at: Floats) -> Floats:
        filled = rows
        for index, name in enumerate(columns):
            numbers = pa.array(at[:, index], mask=missing[:, index]).cast(rows.schema.field(name).type)
            filled = filled.set_column(filled.schema.get_field_index(name), rows.schema.field(name), numbers)
        values = scorer(filled)
        return values[:, None] if values.ndim == 1 else values

    whole = scores(x) - scores(start)
    gradients = np.zeros((*x.shape, whole.shape[1]))
    for step in range(steps):
        middle = start + (x - start) * ((step + 0.5) / steps)
        for index, name in enumerate(columns):
            half = _STEP * (spread[name] or 1.0)
            ahead, behind = middle.copy(), middle.copy()
            ahead[:, index] += half
            behind[:, index] -= half
            gradients[:, index] += (scores(ahead) - scores(behind)) / (2 * half * steps)
    distance = np.where(missing, 0.0, x - start)[:, :, None]
    attributions = distance * np.where(missing[:, :, None], 0.0, gradients)
    return attributions, whole - attributions.sum(axis=1)
