"""The statistics accumulator: every column by itself, and what the options ask for beyond single columns, in one pass.

A new statistic of one column is a field of `ColumnState`, read in `describe`. One of several columns, or of whole rows,
is a `CrossColumnState` in a module of its own, an option that asks for it, and an entry in `_CROSS_COLUMN`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Self, TypeVar

import numpy as np
import pyarrow as pa

from ...errors import InputError
from ..base import Accumulator
from ..slices import rank_of, title
from ..states import (
    StateFormat,
    array_bytes,
    bytes_array,
    nested,
    nested_arrays,
    read_arrays,
    write_arrays,
)
from .column import ColumnState
from .correlations import PairSums
from .cross_column import CrossColumnState
from .describe import describe_column
from .lift import LiftCounts
from .mutual_information import MutualInformation, check_label
from .options import Factory, StatisticsOptions, difference, options_from_json
from .sample import in_sample, take_rows
from .sliced import MOST, Key, slice_rows, too_many
from .weighted_column import WeightedColumn, row_weights
from .weighted_table import Weights, total

_STATE: Final = StateFormat("statistics state", b"DTST", 5, "I", "compute the statistics again")  # JSON, arrays
_PLAIN: Final = StatisticsOptions()
Column = TypeVar("Column")

# By name in stored states: the name in the document, and what makes an empty state, or None where it is not asked for.
_CROSS_COLUMN: Final[Mapping[str, tuple[str, Callable[[StatisticsOptions], CrossColumnState | None]]]] = {
    "pairs": ("correlations", lambda options: PairSums() if options.correlations else None),
    "sample": (
        "mutual_information",
        lambda options: None if options.label is None else MutualInformation(options.label, options.seed),
    ),
    "lift": (
        "lift",
        lambda options: (
            None if options.label is None or options.lift is None else LiftCounts(options.label, options.lift)
        ),
    ),
}


class StatisticsAccumulator:
    """Statistics of every column, mergeable; an `Accumulator`.

    Where every column stays within the exact limit, equal rows give equal bytes however they are split into shards.

    Args:
        limit: Distinct values of a column up to which everything about it is exact; by default the options'.
        options: What else to compute.

    Attributes:
        rows: Rows counted; with a sample rate, those in the sample.
        columns: The features' states by name, computed columns included.
        cross_column: The states of `_CROSS_COLUMN` that the options ask for, by name.
        slices: The statistics of each slice that has rows.
        custom: A user's accumulators by name; bytes where a stored state was read without their factories.
    """

    def __init__(self, limit: int | None = None, options: StatisticsOptions = _PLAIN) -> None:
        self.options = options if limit is None else replace(options, limit=limit)
        self.limit = self.options.limit
        self.rows = 0
        self._read = 0  # rows in the sample or not; an error names a row by this
        self.columns: dict[str, ColumnState] = {}
        self.weight = 0  # of all rows, in units of 2^-96
        self.weighted: dict[str, WeightedColumn] = {}
        self.slices: dict[Key, StatisticsAccumulator] = {}
        states = {name: make(self.options) for name, (_, make) in _CROSS_COLUMN.items()}
        self.cross_column = {name: state for name, state in states.items() if state is not None}
        self.custom: dict[str, Accumulator | bytes] = {name: make() for name, make in self.options.custom.items()}

    @property
    def data_columns(self) -> dict[str, ColumnState]:
        """The states of the data's columns, without those that were computed to check a schema by."""
        return self._without_computed(self.columns)

    def _without_computed(self, columns: dict[str, Column]) -> dict[str, Column]:
        computed = dict(self.options.computed)
        return {name: column for name, column in columns.items() if name not in computed}

    def _without_computed_columns(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch without computed columns, so that no sample depends on them."""
        if not self.options.computed:
            return batch
        computed = dict(self.options.computed)
        return batch.select([name for name in batch.schema.names if name not in computed])

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Take in the rows of one batch.

        Raises:
            InputError: Two columns have one name, the columns or their types differ from earlier batches', a column
                that the options name is not there, or a weight is not a number of at least 0.
        """
        names = batch.schema.names
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InputError(f"two columns are named {twice!r}", fix="rename one of them")
        weight = None
        if not self.options.columns_only:
            batch, weight = self._chosen(batch)
        arrays = dict(zip(names, batch.columns, strict=True))
        if (wanted := self.options.columns) is not None:
            arrays = {name: array for name, array in arrays.items() if name in wanted}
        self._agree(list(arrays))
        self.rows += batch.num_rows
        for name, array in arrays.items():
            self.columns[name].add(array)
        if batch.num_rows and not self.options.columns_only:
            self._add_beyond_columns(batch, arrays, weight)

    def _chosen(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Weights | None]:
        """The rows of the sample, and their weights."""
        options = self.options
        options.check(batch.schema.names)
        if options.label is not None:
            check_label(options.label, batch.schema.field(options.label).type)
        first, self._read = self._read, self._read + batch.num_rows
        weight = None
        if options.weight is not None:
            index = batch.schema.names.index(options.weight)
            weight = row_weights(batch.column(index), options.weight, first)
        if options.sampled:
            kept = np.flatnonzero(in_sample(self._without_computed_columns(batch), options.sample_rate, options.seed))
            batch = take_rows(batch, kept)
            weight = weight[kept] if weight is not None else None
        return batch, weight

    def _add_beyond_columns(self, batch: pa.RecordBatch, features: dict[str, pa.Array], weight: Weights | None) -> None:
        if weight is not None:
            self.weight += total(weight)
            for name, array in features.items():
                self.weighted.setdefault(name, WeightedColumn(self.limit)).add(array, weight)
        features, data_columns = self._without_computed(features), self._without_computed_columns(batch)
        for state in self.cross_column.values():
            state.add(data_columns, features)
        for custom in self.custom.values():
            assert not isinstance(custom, bytes)
            custom.add_batch(data_columns)
        for key, rows in slice_rows(batch, self.options.slices):
            self._slice(key).add_batch(take_rows(batch, rows))

    def _slice(self, key: Key) -> StatisticsAccumulator:
        if key not in self.slices:
            if len(self.slices) == MOST:
                raise too_many(self.options.slices)
            # Its rows are those of the sample already.
            self.slices[key] = StatisticsAccumulator(options=replace(self.options, slices=(), sample_rate=1.0))
        return self.slices[key]

    def _agree(self, names: list[str]) -> None:
        if not self.columns:
            self.columns = {name: ColumnState(name, self.limit) for name in names}
        elif set(names) != set(self.columns):
            unmatched = sorted(set(names) ^ set(self.columns))
            raise InputError(
                f"column {unmatched[0]!r} is in one part of the data and not in another",
                fix="give all files the same columns",
            )

    def merge(self, other: StatisticsAccumulator) -> None:
        """Take in the state of the shards that follow.

        Raises:
            InputError: The columns, their types or the options differ, or a user's accumulator was read as bytes.
        """
        if (option := difference(self.options, other.options)) is not None:
            mine, its = (getattr(side.options, option) for side in (self, other))
            if option == "computed":
                mine, its = (
                    ", ".join(f"{name} of {origin}" for name, origin in side) or "none" for side in (mine, its)
                )
                raise InputError(
                    f"statistics with different columns computed for a schema cannot be merged: {mine}; {its}",
                    fix="compute both with the same `schema`",
                )
            raise InputError(
                f"statistics with {option}={mine!r} and {option}={its!r} cannot be merged",
                fix="compute both with the same options",
            )
        self._merge_custom(other)
        if not other.columns:
            return
        self._agree(list(other.columns))
        self.rows += other.rows
        for name, column in self.columns.items():
            column.merge(other.columns[name])
        self.weight += other.weight
        for name, weighted in other.weighted.items():
            self.weighted.setdefault(name, WeightedColumn(self.limit)).merge(weighted)
        for name, state in self.cross_column.items():
            state.merge(other.cross_column[name])
        for key, part in other.slices.items():
            self._slice(key).merge(part)

    def _merge_custom(self, other: StatisticsAccumulator) -> None:
        if set(self.custom) != set(other.custom):
            raise InputError(
                f"statistics with the custom accumulators {sorted(self.custom)} and {sorted(other.custom)} cannot be "
                "merged",
                fix="compute both with the same ones",
            )
        for name, state in self.custom.items():
            more: Any = other.custom[name]  # Any: both are of the type that the user's factory makes
            if isinstance(state, bytes) or isinstance(more, bytes):
                raise InputError(
                    f"the custom accumulator {name!r} is stored as bytes",
                    fix=f"give its factory: custom={{{name!r}: …}}",
                )
            state.merge(more)

    def compact(self) -> None:
        """Bound the size of every column's state."""
        parts: list[Any] = [*self.columns.values(), *self.weighted.values(), *self.slices.values()]
        for part in parts:
            part.compact()
        for state in self.custom.values():
            if not isinstance(state, bytes):
                state.compact()

    def result(self, beside: Sequence[StatisticsAccumulator] = ()) -> dict[str, Any]:
        """`{"rows", "features"}` as the `describe` module says, and under further names what the options ask for.

        `beside` are the states that are described together with this one, itself among them: see `describe_column`.
        """
        options, states = self.options, beside or [self]
        features = [
            describe_column(column, options.detail, [state.columns[name] for state in states if name in state.columns])
            for name, column in self.columns.items()
        ]
        document: dict[str, Any] = {"rows": self.rows, "features": features}
        if options.weight is not None:
            self._add_weighted(document, states)
        if options.sampled:
            document["sample"] = {"rate": options.sample_rate, "seed": options.seed}
        if options.detail.quantiles != _PLAIN.quantiles:
            document["quantile_levels"] = list(options.quantiles)
        if options.slices:
            document["slices"] = [
                {"name": title(key), "key": [list(pair) for pair in key], **self.slices[key].result(states)}
                for key in self._slice_order()
            ]
        for name, state in self.cross_column.items():
            document[_CROSS_COLUMN[name][0]] = state.result(list(self.data_columns))
        if self.custom:
            document["custom"] = {name: self._user_result(name) for name in sorted(self.custom)}
        return document

    def _user_result(self, name: str) -> dict[str, Any]:
        state = self.custom[name]
        if isinstance(state, bytes):
            raise InputError(
                f"the custom accumulator {name!r} is stored as bytes", fix=f"give its factory: custom={{{name!r}: …}}"
            )
        user_result = dict(state.result())
        try:
            json.dumps(user_result, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"the result of the custom accumulator {name!r} is not JSON: {error}",
                fix="give numbers, texts, lists and mappings of them, None for NaN",
            ) from error
        return user_result

    def _add_weighted(self, document: dict[str, Any], beside: Sequence[StatisticsAccumulator]) -> None:
        from .weighted_describe import describe_weighted, weight_of

        document |= {"weight": self.options.weight, "weighted_rows": weight_of(self.weight)}
        for feature in document["features"]:
            name = feature["name"]
            state = self.weighted.get(name) or WeightedColumn(self.limit)
            columns = [other.weighted[name] for other in beside if name in other.weighted]
            feature["weighted"] = describe_weighted(state, self.options.detail, columns)

    def _slice_order(self) -> list[Key]:
        """The slices by their spec, then by value: the same for every order of the rows."""
        # Backwards, so that of two specs with the same columns (other values) the first gives the position.
        order = {
            tuple(name for name, _ in spec): index for index, spec in reversed(list(enumerate(self.options.slices)))
        }
        return sorted(
            self.slices,
            key=lambda key: (order[tuple(name for name, _ in key)], [rank_of(value) for _, value in key]),
        )

    def to_bytes(self) -> bytes:
        """The state; see `states.StateFormat`: JSON with the scalars, then all arrays."""
        heads = []
        arrays: dict[str, Any] = {}
        for index, column in enumerate(self.columns.values()):
            head, parts = column.to_parts()
            heads.append(head)
            arrays |= nested(str(index), parts)
        options = {**self.options.to_json(), "custom": sorted(self.custom)}
        body: dict[str, Any] = {"options": options, "rows": self.rows, "columns": heads}
        if self.custom or not self.options.columns_only:
            body |= self._more_parts(arrays)
        return _STATE.pack(json.dumps(body, sort_keys=True).encode(), write_arrays(arrays))

    def _more_parts(self, arrays: dict[str, Any]) -> dict[str, Any]:
        body: dict[str, Any] = {"weight": self.weight, "weighted": {}, "slices": []}
        for index, name in enumerate(self.columns):
            if name in self.weighted:
                body["weighted"][name], parts = self.weighted[name].to_parts()
                arrays |= nested(f"weighted{index}", parts)
        for name, state in self.cross_column.items():
            body[name], parts = state.to_parts()
            arrays |= nested(name, parts)
        for name, custom in sorted(self.custom.items()):
            arrays[f"custom.{name}"] = bytes_array(custom if isinstance(custom, bytes) else custom.to_bytes())
        for index, key in enumerate(self._slice_order()):
            body["slices"].append(key)
            arrays[f"slice.{index}"] = bytes_array(self.slices[key].to_bytes())
        return body

    @classmethod
    def from_bytes(cls, data: bytes, custom: Mapping[str, Factory] | None = None) -> Self:
        """The state that `to_bytes` wrote.

        Args:
            data: The bytes.
            custom: The factories of the user's accumulators; without its factory, one stays bytes and cannot be merged.

        Raises:
            InputError: The bytes are not a statistics state, or of a version this release does not read.
        """
        with _STATE.unpack(data) as (text, buffers):
            body = json.loads(bytes(text))
            arrays = nested_arrays(read_arrays(buffers))
            state = cls(options=options_from_json(body["options"], custom or {}))
            state.rows = body["rows"]
            for index, head in enumerate(body["columns"]):
                state.columns[head["name"]] = ColumnState.from_parts(head, arrays.get(str(index), {}))
            if not state.options.columns_only or body["options"]["custom"]:
                state._take_more(body, arrays, custom or {})
        return state

    def _take_more(
        self, body: Mapping[str, Any], arrays: Mapping[str, dict[str, Any]], custom: Mapping[str, Factory]
    ) -> None:
        self.weight = body["weight"]
        for index, name in enumerate(self.columns):
            if name in body["weighted"]:
                parts = arrays.get(f"weighted{index}", {})
                self.weighted[name] = WeightedColumn.from_parts(body["weighted"][name], parts)
        for name, state in self.cross_column.items():
            state.load_parts(body[name], arrays.get(name, {}))
        for name, array in arrays.get("custom", {}).items():
            data = array_bytes(array)
            self.custom[name] = type(custom[name]()).from_bytes(data) if name in custom else data
        for index, key in enumerate(body["slices"]):
            data = array_bytes(arrays["slice"][str(index)])
            self.slices[tuple((name, value) for name, value in key)] = self.from_bytes(data, custom)

    def load(self, data: bytes) -> StatisticsAccumulator:
        """The state that an accumulator with these options wrote, a user's accumulators included; see `Accumulator`."""
        return self.from_bytes(data, self.options.custom)
