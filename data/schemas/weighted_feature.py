"""TFDV's weighted feature: a column of values and one of their weights that must go together in every row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..arrays import arrow_of
from ..derivation import derived
from ..sources import Source
from ..types import is_list
from .feature import UNCHECKED

_NULL: Final = pa.nulls(1, pa.int64())[0]  # for None, as for any value of Python's, pyarrow would import pandas
# What is wrong with a pair, and which computed column is not zero then.
MISMATCHES: Final = {
    "WEIGHTED_FEATURE_MISSING_VALUE": "missing_value",
    "WEIGHTED_FEATURE_MISSING_WEIGHT": "missing_weight",
    "WEIGHTED_FEATURE_LENGTH_MISMATCH": "weight_length_diff",
}


@dataclass(frozen=True)
class WeightedFeature:
    """Values and weights side by side: an entry of a schema, and to `derived` the columns that it is decided from.

    `derived(source, weighted)` has three more columns, what TFDV (1.16) sums up as its statistics of the same names:

    - `NAME_missing_value`: 1 where there is a weight but no value, else 0;
    - `NAME_missing_weight`: 1 where there is a value but no weight, else 0;
    - `NAME_weight_length_diff`: how many more weights than values there are. A plain value counts as one, a list as
      its items (nulls and inner lists too, each as one), a missing value as none. Null where both are missing.

    A column that the data does not have is missing in every row.

    Attributes:
        name: What anomalies call it, and the new columns' names begin with.
        value: The column of values.
        weight: The column of weights.
        stage: One of `STAGES`, or ""; in a stage of `UNCHECKED` it is not looked at.
    """

    name: str
    value: str
    weight: str
    stage: str = ""

    def column(self, mismatch: str) -> str:
        """The computed column that is not zero where there is such a mismatch."""
        return f"{self.name}_{MISMATCHES[mismatch]}"

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the computed columns."""
        return tuple(map(self.column, MISMATCHES))

    @property
    def origin(self) -> str:
        """What the computed columns are computed from; statistics keep it."""
        return f"{self.value!r} and {self.weight!r}"

    def __call__(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        """The new columns of a batch: int64."""
        values, weights = _column(batch, self.value), _column(batch, self.weight)
        there, weighed = values.is_valid(), weights.is_valid()
        computed = (
            pc.and_not(weighed, there).cast(pa.int64()),
            pc.and_not(there, weighed).cast(pa.int64()),
            pc.if_else(pc.or_(there, weighed), pc.subtract(_lengths(weights), _lengths(values)), _NULL),
        )
        return dict(zip(self.columns, computed, strict=True))


def with_weighted(source: Source, weighted: Iterable[WeightedFeature]) -> tuple[Source, dict[str, str]]:
    """The source with the computed columns of the weighted features that are checked, where it lacks them.

    Returns:
        It, and by the name of each new column what it is computed from.

    Raises:
        InputError: It has some of a weighted feature's columns as its own.
    """
    origins: dict[str, str] = {}
    for pair in weighted:
        if pair.stage not in UNCHECKED and not set(pair.columns) <= set(source.columns):
            present = [name for name in {pair.value: None, pair.weight: None} if name in source.columns]
            source = derived(source, pair, columns=present or None)
            origins |= dict.fromkeys(pair.columns, pair.origin)
    return source, origins


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    return batch.column(name) if name in batch.schema.names else pa.nulls(batch.num_rows)


def _lengths(column: pa.Array) -> pa.Array:
    kind = column.type
    if is_list(kind):
        lengths = pc.list_value_length(column).cast(pa.int64())
        return pc.if_else(column.is_valid(), lengths, arrow_of(np.zeros(len(column), np.int64)))
    return column.is_valid().cast(pa.int64())
