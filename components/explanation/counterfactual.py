"""Counterfactual flips: whose decision would be another, were one of their columns another and all else as it is."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ...data import source_of
from ...data.arrays import python_of
from ...data.frames import frame
from ...engine.attribution import Scorer, frequent, replaced
from ...errors import InputError
from ...redaction import printable
from ..evaluation.checks import check_columns
from .explain import Effort, sample
from .model_scores import ModelLike, scorer_of

_MOST: Final = 20
"""Values of the column that are tried, the most frequent ones."""


@dataclass(frozen=True)
class ValueChange:
    """What becomes of the rows with one value of a column when they have another.

    Attributes:
        was: The value that they have.
        becomes: The value that they are given.
        n: How many rows they are.
        flipped: The share whose decision is another: above the threshold or not; of several classes, which is highest.
        lower: Of the interval of that share at 95 %, after Wilson 1927.
        upper: Likewise.
        gained: The share that comes above the threshold; None of several classes.
        lost: The share that falls to it or below; None of several classes.
        mean_change: Of the predictions; of several classes the mean of the largest change of a class.
    """

    was: str | int | float | bool
    becomes: str | int | float | bool
    n: int
    flipped: float
    lower: float
    upper: float
    gained: float | None
    lost: float | None
    mean_change: float


@dataclass(frozen=True)
class CounterfactualFlips:
    """What `counterfactual_flips` found.

    Attributes:
        column: Which column.
        pairs: For each ordered pair of its values.
        rows: How many rows were looked at.
    """

    column: str
    pairs: tuple[ValueChange, ...]
    rows: int

    def frame(self) -> Any:  # a pandas.DataFrame: pandas ships no types
        """`pairs` as a DataFrame.

        Raises:
            DrivetrainError: pandas is not installed.
        """
        names = [field.name for field in fields(ValueChange)]
        return frame(names, [tuple(getattr(pair, name) for name in names) for pair in self.pairs])

    def __repr__(self) -> str:
        lines = [f"{self.rows:,} rows looked at"]
        lines += [
            f"  {self.column} {each.was} → {each.becomes}: {each.flipped:.1%} of {each.n:,} decisions flip "
            f"({each.lower:.1%} to {each.upper:.1%})"
            for each in sorted(self.pairs, key=lambda each: -each.flipped)[:_MOST]
        ]
        return "\n".join(printable(line).replace("\n", "\\n") for line in lines)

    def _repr_html_(self) -> str:
        return str(self.frame().to_html(index=False, float_format="{:.4f}".format, na_rep="–"))


def counterfactual_flips(
    data: object,
    model: ModelLike,
    column: str,
    *,
    values: Sequence[str | int | float | bool] | None = None,
    threshold: float = 0.5,
    prediction: str | None = None,
    effort: Effort | None = None,
) -> CounterfactualFlips:
    """Change a column of each row and see whose decision changes: a model that must not go by it flips none.

    Only what the column itself does is seen. Other columns that go with it, a first name with a sex, stay as they are,
    so no flips do not mean that a model treats groups alike (see the metrics between slices).

    Args:
        data: Rows as `data.source_of` takes them.
        model: A function from a DataFrame of rows to an array, (n,) or (n, classes); a bundle, or its folder.
        column: The column.
        values: The values to try; None: its 20 most frequent ones.
        threshold: Of (n,) predictions: a prediction above it is a yes.
        prediction: Of a bundle, the output of `predict`; None: its only one.
        effort: `max_rows`, beyond which a random sample by `seed` is looked at.

    Raises:
        InputError: A column that is not there, holds lists, or has fewer than two values, or fewer than two rows.
    """
    scorer = scorer_of(model, prediction)
    source = source_of(data)
    check_columns({column: "what is changed"}, source.columns)
    kind = source.schema.field(column).type
    if pa.types.is_nested(kind):
        raise InputError(f"the column {column!r} holds {kind}, no single values", fix="choose another column")
    rows = sample(source, effort or Effort())
    chosen = [value for value, _ in frequent(rows[column], _MOST)] if values is None else list(values)
    if len(chosen) < 2:
        raise InputError(f"{column!r} has {len(chosen)} values: there is nothing to change it to", fix="give values=")
    return CounterfactualFlips(column, tuple(_flips(rows, scorer, column, chosen, threshold)), rows.num_rows)


def _flips(
    rows: pa.Table, scorer: Scorer, column: str, values: Sequence[Any], threshold: float
) -> Iterator[ValueChange]:
    held = [python_of(value) for value in rows[column]]
    before = scorer(rows)
    changed = {value: scorer(replaced(rows, column, value)) for value in values}
    for was, becomes in itertools.permutations(values, 2):
        mine = np.array([value == was for value in held], dtype=np.bool_)
        n = int(mine.sum())
        if not n:
            continue
        old, new = before[mine], changed[becomes][mine]
        if old.ndim == 2:
            flipped = old.argmax(axis=1) != new.argmax(axis=1)
            gained = lost = None
            moved = float(np.abs(new - old).max(axis=1).mean())
        else:
            up, down = (old <= threshold) & (new > threshold), (old > threshold) & (new <= threshold)
            flipped, gained, lost = up | down, float(up.mean()), float(down.mean())
            moved = float((new - old).mean())
        share = float(flipped.mean())
        yield ValueChange(was, becomes, n, share, *_wilson(share, n), gained, lost, moved)


def _wilson(share: float, n: int) -> tuple[float, float]:
    from scipy.special import ndtri  # late: half a second to import

    z = float(ndtri(0.975))
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return max(middle - half, 0.0), min(middle + half, 1.0)
