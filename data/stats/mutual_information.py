"""Mutual information of every column with a label, by scikit-learn, on a sample of rows that the state keeps.

Between categories it is that of their counts; with a number on either side it is estimated from the three nearest
neighbours (Kraskov and others 2004, Ross 2014). In nats.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...errors import InputError
from ..arrays import numpy_of
from .column import kind_of
from .sample import RowSample

_CATEGORIES: Final = 100  # distinct integers up to which each is a category
_ADJUSTED: Final = 1_000  # categories up to which the information expected by chance is worked out
_TEXTS: Final = frozenset({"string", "bytes"})
_NUMBERS: Final = frozenset({"bool", "int", "float", "timestamp", "date", "time", "duration"})


def check_label(name: str, arrow: Any) -> None:
    """A label must be of an Arrow type with one plain value per row.

    Raises:
        InputError: It is not.
    """
    if kind_of(arrow) not in _TEXTS | _NUMBERS | {"null"}:
        raise InputError(f"the label {name!r} is {arrow}", fix="choose a column of one plain value per row")


class MutualInformation:
    """A sample of rows, from which the mutual information of every column with the label is computed."""

    def __init__(self, label: str, seed: int) -> None:
        self.label = label
        self.sample = RowSample(seed)

    def add(self, rows: pa.RecordBatch, features: Mapping[str, pa.Array]) -> None:
        """See `CrossColumnState.add`."""
        self.sample.add(rows)

    def merge(self, other: MutualInformation) -> None:
        """Take in the sample of other rows."""
        self.sample.merge(other.sample)

    def result(self, names: Sequence[str]) -> dict[str, Any]:
        """See `mutual_information`."""
        return mutual_information(self.sample, self.label, names)

    def to_parts(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """See `CrossColumnState.to_parts`."""
        return self.sample.to_parts()

    def load_parts(self, head: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        """See `CrossColumnState.load_parts`."""
        self.sample = RowSample.from_parts(dict(head), dict(arrays))


def mutual_information(sample: RowSample, label: str, names: Sequence[str]) -> dict[str, Any]:
    """`{"label", "rows", "population", "exact", "features": [{"name", "rows", "value", "adjusted"?}]}`.

    Rows without a label are left out. A missing text, boolean or category is a category of its own; rows that miss a
    number (or have NaN, an infinity) are left out for that column. Lists and structs are not looked at. `adjusted` is
    the adjusted mutual information (1 for equal partitions, about 0 by chance), between categories only. A value is
    null where fewer than five rows are left, or no category has two. `exact` says whether every row was looked at.
    """
    table = sample.table()
    description: dict[str, Any] = {"label": label, "rows": 0, "population": sample.rows, "exact": True, "features": []}
    if table is None or kind_of(table.schema.field(label).type) not in _TEXTS | _NUMBERS:
        return description
    table = table.filter(table.column(label).is_valid())
    target, classes = _column(table.column(label))
    kept = np.isfinite(target)
    description["rows"] = int(kept.sum())
    description["exact"] = sample.exact and sample.rows <= sample.size
    if not description["exact"]:
        description["method"] = "bottom-k row hash"
    for name in names:
        if name != label and kind_of(table.schema.field(name).type) in _TEXTS | _NUMBERS:
            values, categories = _column(table.column(name))
            both = kept & np.isfinite(values)
            description["features"].append(
                {"name": name, **_information(values[both], categories, target[both], classes)}
            )
    return description


def _column(column: pa.ChunkedArray) -> tuple[NDArray[np.float64], bool]:
    """The values as numbers and whether these number categories; missing numbers as NaN."""
    array = column.combine_chunks()
    kind = kind_of(array.type)
    if kind in _TEXTS or kind in ("bool", "int"):
        encoded = array.dictionary_encode(null_encoding="encode")
        if kind != "int" or len(encoded.dictionary) <= _CATEGORIES:
            return numpy_of(encoded.indices).astype(np.float64), True
    missing = numpy_of(array.is_null())
    if pa.types.is_decimal(array.type):
        array = array.cast(pa.float64())
    values = numpy_of(array).astype(np.float64)
    values[missing] = np.nan
    return values, False


def _information(
    values: NDArray[np.float64], categories: bool, target: NDArray[np.float64], classes: bool
) -> dict[str, Any]:
    from sklearn.feature_selection import mutual_info_classif, mutual_info_regression
    from sklearn.metrics import adjusted_mutual_info_score, mutual_info_score

    rows = len(values)
    if rows < 5:  # three neighbours, and the row itself
        return {"rows": rows, "value": None}
    if categories and classes:
        whole, labels = values.astype(np.int64), target.astype(np.int64)
        description: dict[str, Any] = {"rows": rows, "value": max(float(mutual_info_score(labels, whole)), 0.0)}
        if all(1 < len(np.unique(side)) <= _ADJUSTED for side in (whole, labels)):
            description["adjusted"] = float(adjusted_mutual_info_score(labels, whole))
        return description
    estimate = mutual_info_classif if classes else mutual_info_regression
    wanted = target.astype(np.int64) if classes else target
    sides = ((values, categories), (target, classes))
    if any(is_category and np.unique(side, return_counts=True)[1].max() == 1 for side, is_category in sides):
        return {"rows": rows, "value": None}  # no category has a neighbour
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that categories are many
        [value] = estimate(values[:, None], wanted, discrete_features=[categories], n_neighbors=3, random_state=0)
    return {"rows": rows, "value": float(value) if math.isfinite(value) else None}
