"""The rows of a stream's open span, brought to common types as they come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ...errors import InputError
from ..stats.column import kind_of
from ..types import UnfitError, common_type, normal_schema, restore


@dataclass
class SpanRows:
    """The rows that a span has collected.

    Attributes:
        wanted: Types of columns that the source cannot know.
        tables: The rows, in the types of all so far.
        types: By column, in the order in which columns came.
        unsure: Columns without a value so far: their type may still become any other.
        rejected: What could not be read.
        rows: How many there are.
        begun: When the first came or was rejected, in seconds of the stream's clock.
    """

    wanted: Mapping[str, Any]
    tables: list[Any] = field(default_factory=list)
    types: dict[str, Any] = field(default_factory=dict)
    unsure: set[str] = field(default_factory=set)
    rejected: list[dict[str, str]] = field(default_factory=list)
    rows: int = 0
    begun: float | None = None

    def add(self, table: Any, origin: str, now: float) -> None:
        """Take in a pyarrow Table.

        Raises:
            InputError: Its types do not go with those of the rows before; these are then as they were.
        """
        table = self._typed(table, origin)
        types, unsure = dict(self.types), set(self.unsure)
        for item in normal_schema(table.schema, origin):
            known, new = types.get(item.name, pa.null()), item.type
            empty = _holds_nothing(table.column(item.name))
            joined = common_type(known, new)
            if joined is None and (empty or item.name in unsure):
                joined = known if empty else new
            if joined is None:
                raise InputError(
                    f"{origin}: column {item.name!r} is {new} here and {known} in the rows before",
                    fix="write it as one type",
                )
            if not empty:
                unsure.discard(item.name)
            elif item.name not in types:
                unsure.add(item.name)
            types[item.name] = joined
        try:
            widened = any(types[name] != kind for name, kind in self.types.items())
            before = [_fitted(earlier, types) for earlier in self.tables] if widened else self.tables
            self.tables = [*before, _fitted(table, types)]
        except UnfitError as error:
            raise InputError(f"{origin}: {error}", fix="write it as one type") from error
        self.types, self.unsure = types, unsure
        self.rows += table.num_rows
        if self.begun is None and table.num_rows:
            self.begun = now

    def _typed(self, table: Any, origin: str) -> Any:
        for name in self.wanted.keys() & set(table.column_names):
            try:
                column = table.column(name).cast(self.wanted[name])
            except pa.ArrowException as error:
                raise InputError(
                    f"{origin}: column {name!r} is not all {self.wanted[name]} ({str(error)[:200]})",
                    fix="correct it, or leave it out of types=",
                ) from None
            table = table.set_column(table.column_names.index(name), name, column)
        return table

    def reject(self, origin: str, error: InputError, now: float) -> None:
        """Keep why something could not be read."""
        self.rejected.append({"origin": origin, "error": error.message})
        if self.begun is None:
            self.begun = now

    def table(self) -> Any:
        """All rows as one table; a column that some came without is missing there."""
        schema = pa.schema(list(self.types.items()))
        return pa.concat_tables([schema.empty_table(), *self.tables], promote_options="default")


def _fitted(table: Any, types: Mapping[str, Any]) -> Any:
    for index, name in enumerate(table.column_names):
        column = table.column(name)
        if column.type != types[name] and _holds_nothing(column):  # which not every type can be cast to
            try:
                table = table.set_column(index, name, pa.array(column.to_pylist(), types[name]))
            except (pa.ArrowException, TypeError) as error:  # a list, if an empty one, is not a number
                raise UnfitError(f"column {name!r} is {column.type} here and {types[name]} elsewhere") from error
    schema = pa.schema([(name, types[name]) for name in table.column_names])
    return pa.Table.from_batches([restore(batch, schema) for batch in table.to_batches()], schema)


def _holds_nothing(column: Any) -> bool:
    """Whether every value is missing, or every list empty of values."""
    if column.null_count < len(column) and kind_of(column.type) == "list" and not pa.types.is_map(column.type):
        return _holds_nothing(pc.list_flatten(column))
    return bool(column.null_count == len(column))
