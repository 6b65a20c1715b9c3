"""Forty kinds of corruption to plant in a table, each with who should notice, said before any was tried."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

OWNERS: Final = {
    "schema": "the schema inferred by default",
    "slack": "the schema's ranges, which are inferred with slack",
    "drift": "drift against the span before",
    "nobody": "nothing that looks at one column at a time",
}
NEW: Final = "Unnamed: 0"  # the column that pandas writes for an index
CATEGORIES: Final = 100  # texts with more distinct values are free text here

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Target:
    """Where a corruption is planted.

    Attributes:
        rows: The clean table.
        column: The column that is damaged.
        other: Another column of the same sort, where the kind takes two; else "".
        label: The column that a model would predict.
        chosen: The rows that are damaged, all with a value in `column`; in order.
        random: Whatever else is left to chance.
    """

    rows: pa.Table
    column: str
    other: str
    label: str
    chosen: Rows
    random: np.random.Generator

    def values(self, column: str = "") -> list[Any]:
        """The values of a column, `column` where none is named."""
        values: list[Any] = self.rows[column or self.column].to_pylist()
        return values

    def with_column(self, values: object, column: str = "", kind: pa.DataType | None = None) -> pa.Table:
        """The table with other values in a column."""
        name = column or self.column
        where = self.rows.column_names.index(name)
        column = values.cast(kind) if isinstance(values, pa.Array) and kind else pa.array(values, kind)
        return self.rows.set_column(where, name, column)

    def each(self, change: Callable[[Any], Any], kind: pa.DataType | None = None) -> pa.Table:
        """The table with a changed value in each chosen row; of the column's type, where no other is named."""
        values = self.values()
        for row in self.chosen:
            values[row] = change(values[row])
        return self.with_column(values, kind=kind or self.rows[self.column].type)


@dataclass(frozen=True)
class Kind:
    """A kind of corruption.

    Attributes:
        name: What happened.
        owner: One of `OWNERS`: who should notice.
        fits: Whether a column can be damaged so.
        plant: The damaged table.
        whole: Whether all rows are damaged, so that there is no share.
        touched: Names of the columns whose anomalies tell of it; "" is the data set and its number of rows.
        pairs: Whether another column can be `Target.other` of a column; None: the kind takes one column.
    """

    name: str
    owner: str
    fits: Callable[[pa.ChunkedArray], bool]
    plant: Callable[[Target], pa.Table]
    whole: bool = False
    touched: Callable[[Target], Iterable[str]] = lambda target: {target.column, target.other} - {""}
    pairs: Callable[[pa.ChunkedArray, pa.ChunkedArray], bool] | None = None


# --- sorts of columns


def _any(column: pa.ChunkedArray) -> bool:
    return bool(column.null_count <= 0.8 * len(column))


def _is_text(column: pa.ChunkedArray) -> bool:
    return _any(column) and bool(pa.types.is_string(column.type)) and not _is_time(column)


def _is_time(column: pa.ChunkedArray) -> bool:
    if not pa.types.is_string(column.type):
        return False
    return re.match(r"\d{4}-\d\d-\d\d", next(value for value in column.to_pylist() if value is not None)) is not None


def _has_hours(column: pa.ChunkedArray) -> bool:
    return _is_time(column) and pc.max(pc.utf8_length(column)).as_py() > len("2013-01-01")


def _is_category(column: pa.ChunkedArray) -> bool:
    return _is_text(column) and 2 <= len(column.unique()) <= CATEGORIES


def _has_cases(column: pa.ChunkedArray) -> bool:
    return _is_category(column) and all(value.swapcase() != value for value in column.unique().to_pylist() if value)


def _is_free_text(column: pa.ChunkedArray) -> bool:
    return _is_text(column) and len(column.unique()) > CATEGORIES


def _is_number(column: pa.ChunkedArray) -> bool:
    numeric = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    return _any(column) and numeric and len(column.unique()) > 10


def _is_integer(column: pa.ChunkedArray) -> bool:
    return _is_number(column) and bool(pa.types.is_integer(column.type))


def _is_float(column: pa.ChunkedArray) -> bool:
    return _is_number(column) and not _is_integer(column)


def _is_positive(column: pa.ChunkedArray) -> bool:
    return _is_number(column) and bool(pc.min(column).as_py() >= 0)


def _is_full(column: pa.ChunkedArray) -> bool:
    return bool(column.null_count == 0)


def _has_gaps(column: pa.ChunkedArray) -> bool:
    return _any(column) and column.null_count > 0.005 * len(column)


def _other_categories(column: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    """Whether the other column holds categories that the first does not have."""
    return _is_category(other) and not pc.any(pc.is_in(other.drop_null(), value_set=column.combine_chunks())).as_py()


def _varies(column: pa.ChunkedArray) -> bool:
    return _is_category(column) or _is_number(column)


# --- damages that take more than a line


def _broken_bytes(target: Target) -> pa.Table:
    values = [value and value.encode() for value in target.values()]
    for row in target.chosen:
        values[row] = values[row][:1] + b"\xff\xe9" + values[row][1:]
    # Without a check of UTF-8, as readers that trust a file make them.
    broken = pa.array(values, pa.binary()).view(pa.string())
    return target.with_column(broken)


def _with_unit(target: Target) -> pa.Table:
    values = [None if value is None else str(value) for value in target.values()]
    for row in target.chosen:
        values[row] += " kg"
    return target.with_column(values)


def _decimal_comma(target: Target) -> pa.Table:
    values = [None if value is None else str(value).replace(".", ",") for value in target.values()]
    return target.with_column(values)


def _renamed(target: Target) -> pa.Table:
    names = [f"{name}_1" if name == target.column else name for name in target.rows.column_names]
    return target.rows.rename_columns(names)


def _new_column(target: Target) -> pa.Table:
    return target.rows.append_column(NEW, pa.array(range(target.rows.num_rows)))


def _day_first(target: Target) -> pa.Table:
    return target.each(lambda value: f"{value[8:10]}/{value[5:7]}/{value[:4]}{value[10:]}")


def _cut_in_a_row(target: Target) -> pa.Table:
    kept = target.rows.slice(0, target.rows.num_rows - len(target.chosen))
    columns = []
    for name in kept.column_names:
        values = kept[name].to_pylist()
        if kept.column_names.index(name) >= kept.column_names.index(target.column):
            values[-1] = None
        columns.append(pa.array(values, kept[name].type))
    return pa.table(columns, names=kept.column_names)


def _exchanged(target: Target) -> pa.Table:
    """Two columns exchanged in the chosen rows; what then holds text and numbers is text."""
    first, second = target.values(), target.values(target.other)
    for row in target.chosen:
        first[row], second[row] = second[row], first[row]
    tables = target.rows
    for name, values in ((target.column, first), (target.other, second)):
        mixed = any(isinstance(value, str) for value in values)
        texts = [None if value is None else str(value) for value in values] if mixed else values
        tables = tables.set_column(tables.column_names.index(name), name, pa.array(texts))
    return tables


def _most_frequent(target: Target) -> Any:
    counts = pc.drop_null(target.rows[target.column].combine_chunks()).value_counts().to_pylist()
    return max(counts, key=lambda item: item["counts"])["values"]


def _constant(target: Target) -> pa.Table:
    value = _most_frequent(target)
    values = [None if item is None else value for item in target.values()]
    return target.with_column(values, kind=target.rows[target.column].type)


def _category_lost(target: Target) -> pa.Table:
    return target.rows.filter(pc.fill_null(pc.not_equal(target.rows[target.column], _most_frequent(target)), True))


def _with_numbers(target: Target, values: NDArray[np.float64]) -> pa.Table:
    """The table with other numbers in the column, NaN for missing; integers stay integers."""
    if pa.types.is_integer(target.rows[target.column].type):
        values = np.round(values)
    numbers = pa.array(values, from_pandas=True)
    return target.with_column(numbers, kind=target.rows[target.column].type)


def _scaled(target: Target, by: float, plus: float) -> pa.Table:
    """Every value times a factor, plus so many standard deviations."""
    values = target.rows[target.column].cast(pa.float64()).to_numpy()
    return _with_numbers(target, values * by + plus * np.nanstd(values))


def _numbers_exchanged(target: Target) -> pa.Table:
    names = {target.column: target.other, target.other: target.column}
    exchanged = target.rows.rename_columns([names.get(name, name) for name in target.rows.column_names])
    return exchanged.select(target.rows.column_names)


def _repeated(target: Target, rows: Rows) -> pa.Table:
    return pa.concat_tables([target.rows, target.rows.take(pa.array(rows))])


def _label_leak(target: Target) -> pa.Table:
    """The column becomes the label (of text: the order of first appearance), on its own scale."""
    label = target.rows[target.label]
    if pa.types.is_string(label.type):
        label = pa.chunked_array([label.combine_chunks().dictionary_encode().indices])
    values, column = (side.cast(pa.float64()).to_numpy() for side in (label, target.rows[target.column]))
    unit = (values - np.nanmean(values)) / np.nanstd(values)
    return _with_numbers(target, unit * np.nanstd(column) + np.nanmean(column))


def _sorted_and_cut(target: Target) -> pa.Table:
    ordered = target.rows.sort_by(target.column)
    return ordered.slice(0, ordered.num_rows - len(target.chosen))


def _hours_later(target: Target) -> pa.Table:
    def later(value: str) -> str:
        moved = datetime.fromisoformat(value.removesuffix("Z")) + timedelta(hours=5)
        return moved.isoformat(sep=value[10]) + value[19:]

    return target.with_column([value and later(value) for value in target.values()])


def _noise(target: Target) -> pa.Table:
    column = target.rows[target.column]
    low, high, spread = pc.min(column).as_py(), pc.max(column).as_py(), pc.stddev(column).as_py()
    integer = pa.types.is_integer(column.type)

    def noisy(value: float) -> float:
        moved: float = min(max(value + target.random.normal(0, 0.1 * spread), low), high)
        return round(moved) if integer else moved

    return target.each(noisy)


KINDS: Final = (
    # of texts
    Kind("new category", "schema", _is_category, lambda t: t.each("new {}".format)),
    Kind("category in another case", "schema", _has_cases, lambda t: t.each(str.swapcase)),
    Kind("blank behind a category", "schema", _is_category, lambda t: t.each("{} ".format)),
    Kind("placeholder for a category", "schema", _is_category, lambda t: t.each(lambda value: "unknown")),
    Kind("empty category", "schema", _is_category, lambda t: t.each(lambda value: "")),
    Kind("UTF-8 read as Latin-1", "schema", _is_category, lambda t: t.each("{}Ã©".format)),
    Kind("invalid UTF-8 in a category", "schema", _is_category, _broken_bytes),
    Kind("invalid UTF-8 in free text", "schema", _is_free_text, _broken_bytes),
    Kind("category columns exchanged in rows", "schema", _is_category, _exchanged, pairs=_other_categories),
    # of types
    Kind("unit behind a number", "schema", _is_number, _with_unit),
    Kind("decimal comma", "schema", _is_float, _decimal_comma, whole=True),
    Kind("fractions among integers", "schema", _is_integer, lambda t: t.each(lambda value: value + 0.5, pa.float64())),
    Kind("text and number exchanged in rows", "schema", _is_number, _exchanged,
         pairs=lambda column, other: _is_category(other)),
    Kind("days before months", "schema", _is_time, _day_first),
    # of presence and columns
    Kind("nulls in a full column", "schema", _is_full, lambda t: t.each(lambda value: None)),
    Kind("column without values", "schema", _any,
         lambda t: t.with_column([None] * t.rows.num_rows, kind=t.rows[t.column].type), whole=True),
    Kind("column gone", "schema", _any, lambda t: t.rows.drop_columns([t.column]), whole=True),
    Kind("column renamed", "schema", _any, _renamed, whole=True),
    Kind("column too many", "schema", _any, _new_column, whole=True, touched=lambda t: [NEW]),
    Kind("file cut within a row", "schema", _is_full, _cut_in_a_row,
         touched=lambda t: ["", *t.rows.column_names[t.rows.column_names.index(t.column) :]]),
    # of single numbers
    Kind("-999 for a number", "slack", _is_number, lambda t: t.each(lambda value: -999)),
    Kind("sign lost", "slack", _is_positive, lambda t: t.each(lambda value: -abs(value) - 1)),
    Kind("a thousand times too large", "slack", _is_positive, lambda t: t.each(lambda value: 1000 * (value + 1))),
    Kind("infinity", "slack", _is_float, lambda t: t.each(lambda value: float("inf"))),
    Kind("NaN", "slack", _is_float, lambda t: t.each(lambda value: float("nan"))),
    # of distributions
    Kind("more missing values", "drift", _has_gaps, lambda t: t.each(lambda value: None)),
    Kind("zeros for numbers", "drift", _is_positive, lambda t: t.each(lambda value: 0)),
    Kind("another unit", "drift", _is_number, lambda t: _scaled(t, 2.54, 0), whole=True),
    Kind("shifted by half a deviation", "drift", _is_number, lambda t: _scaled(t, 1, 0.5), whole=True),
    Kind("constant column", "drift", _varies, _constant, whole=True),
    Kind("category vanished", "drift", _is_category, _category_lost, whole=True,
         touched=lambda t: ["", t.column]),
    Kind("number columns exchanged", "drift", _is_number, _numbers_exchanged, whole=True,
         pairs=lambda column, other: _is_number(other)),
    Kind("clock at 1970", "drift", _is_time,
         lambda t: t.each(lambda value: "1970-01-01" + re.sub("[0-9]", "0", value[10:]))),
    Kind("rows repeated", "drift", _any, lambda t: _repeated(t, t.chosen), touched=lambda t: [""]),
    Kind("a row repeated many times", "drift", _any, lambda t: _repeated(t, np.repeat(t.chosen[:1], len(t.chosen))),
         touched=lambda t: ["", *t.rows.column_names]),
    Kind("label leak", "drift", _is_number, _label_leak, whole=True),
    Kind("sorted file cut short", "drift", _is_number, _sorted_and_cut, touched=lambda t: ["", t.column]),
    # of what belongs together
    Kind("column shuffled", "nobody", _varies, lambda t: t.with_column(t.random.permutation(t.values()).tolist(),
         kind=t.rows[t.column].type), whole=True),
    Kind("times five hours off", "nobody", _has_hours, _hours_later, whole=True),
    Kind("noise of a tenth of the deviation", "nobody", _is_number, _noise),
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A corruption in a table.

    Attributes:
        name: "kind, column, 1 %"; no two of a table are alike.
        kind: What was planted.
        share: Of the rows; None: all.
        touched: Columns whose anomalies tell of it; "" is the data set.
        rows: The damaged table.
    """

    name: str
    kind: Kind
    share: float | None
    touched: frozenset[str]
    rows: pa.Table


def cases(table: pa.Table, label: str, shares: tuple[float, ...], columns: int, seed: int) -> Iterator[Case]:
    """Every kind in resamples of a table, in so many columns that it fits, chosen at random.

    Args:
        table: The clean rows; each case is planted in as many rows drawn from them with replacement.
        label: The column that a model would predict; it is left as it is.
        shares: Of the rows; kinds that damage all rows have none.
        columns: Most columns of a kind.
        seed: Of what is left to chance; a case depends on nothing else.
    """
    for number, kind in enumerate(KINDS):
        random = np.random.default_rng([seed, number])
        fitting = [name for name in table.column_names if name != label and kind.fits(table[name])]
        for name in random.permutation(fitting)[:columns].tolist():
            other = ""
            if kind.pairs is not None:
                others = [
                    other
                    for other in table.column_names
                    if other not in (name, label) and kind.pairs(table[name], table[other])
                ]
                if not others:
                    continue
                other = str(random.choice(others))
            for share in (None,) if kind.whole else shares:
                rows = resample(table, random)
                present = np.flatnonzero(rows[name].is_valid().to_numpy())
                size = len(present) if share is None else max(1, round(share * rows.num_rows))
                chosen = np.sort(random.choice(present, min(size, len(present)), replace=False))
                target = Target(rows, name, other, label, chosen, random)
                shown = "" if share is None else f", {share:.1%}"
                touched = frozenset(kind.touched(target))
                yield Case(f"{kind.name}, {name}{shown}", kind, share, touched, kind.plant(target))


def resample(table: pa.Table, random: np.random.Generator) -> pa.Table:
    """As many rows as the table has, drawn from it with replacement, in its order."""
    return table.take(pa.array(np.sort(random.integers(0, table.num_rows, table.num_rows)))).combine_chunks()
