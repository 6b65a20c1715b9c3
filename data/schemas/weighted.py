"""TFDV's weighted feature: a column of values and one of their weights that must go together in every row."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from .feature import Feature, Presence, Range


@dataclass(frozen=True)
class WeightedFeature:
    """Values and weights side by side: to `derived`, the columns that tell where they do not match.

    `derived(source, weighted)` has three more columns, what TFDV (1.16) sums up as its statistics of the same names:

    - `NAME_missing_value`: 1 where there is a weight but no value, else 0;
    - `NAME_missing_weight`: 1 where there is a value but no weight, else 0;
    - `NAME_weight_length_diff`: how many more weights than values there are. A plain value counts as one, a list as
      its items (nulls and inner lists too, each as one), a missing value as none. Null where both are missing.

    A column that the data does not have is missing in every row.

    Attributes:
        name: What the new columns' names begin with.
        value: The column of values.
        weight: The column of weights.
    """

    name: str
    value: str
    weight: str

    @property
    def features(self) -> tuple[Feature, ...]:
        """What a schema says about the new columns when values and weights must match: all zero."""
        presences = {"missing_value": Presence(1), "missing_weight": Presence(1), "weight_length_diff": Presence()}
        return tuple(
            Feature(f"{self.name}_{kind}", "int", presence, domain=Range(0, 0)) for kind, presence in presences.items()
        )

    def __call__(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        """The new columns of a batch: int64."""
        values, weights = _column(batch, self.value), _column(batch, self.weight)
        there, weighed = values.is_valid(), weights.is_valid()
        made = (
            pc.and_not(weighed, there).cast(pa.int64()),
            pc.and_not(there, weighed).cast(pa.int64()),
            pc.if_else(pc.or_(there, weighed), pc.subtract(_lengths(weights), _lengths(values)), None),
        )
        return {feature.name: column for feature, column in zip(self.features, made, strict=True)}


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    return batch.column(name) if name in batch.schema.names else pa.nulls(batch.num_rows)


def _lengths(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pc.list_value_length(column).fill_null(0).cast(pa.int64())
    return column.is_valid().cast(pa.int64())
