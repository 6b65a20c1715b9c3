"""A column's values as pandas would see them, and GX's rules: the ground on which statistics decide expectations.

Every function raises `Undecidable` where statistics do not decide, or where pandas would compare otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..aggregates.sums import ExactMoments
from ..aggregates.tables import NumberTable, TextTable
from ..stats.column import ColumnState
from .suite import SHOWN, ExpectationOutcome

Kwargs = Mapping[str, Any]
_EXACT_FLOAT: Final = 2**53  # integers up to this are floats without loss


class Undecidable(Exception):  # noqa: N818 - an answer, not a mistake
    """The statistics do not decide an expectation."""


class KnownValues(NamedTuple):
    """A column's distinct values that pandas does not take for missing, ascending, and the rows of each."""

    values: list[Any]
    array: Any  # the same as a numpy array (numbers) or as pyarrow text
    counts: NDArray[np.int64]


def nulls(column: ColumnState) -> int:
    """Rows that pandas calls missing: null or NaN."""
    return column.missing + column.nan


def distinct_counts(column: ColumnState) -> NDArray[np.int64]:
    """The rows of each distinct value, of any type whose values are in a table as pandas would tell them apart."""
    if column.sketches is not None or column.kind in ("list", "struct", "other") or column.arrow.startswith("decimal"):
        raise Undecidable
    table = column.table
    counts = np.zeros(0, np.int64) if table is None else table.counts
    infinite = [count for count in (column.negative_infinity, column.positive_infinity) if count]
    return np.concatenate((counts, np.array(infinite, np.int64)))


def shows_values(column: ColumnState) -> bool:
    """Whether the values can be listed as pandas would list them."""
    return column.kind == "string" or column.kind == "int" or (column.kind == "float" and column.arrow == "double")


def known_values(column: ColumnState) -> KnownValues:
    """All values of a text or number column."""
    return known_texts(column) if column.kind == "string" else known_numbers(column)


def require_number(column: ColumnState) -> None:
    """Raise unless pandas compares and adds the column's numbers as 64-bit floats or integers."""
    if column.kind not in ("int", "float") or (column.kind == "float" and column.arrow != "double"):
        raise Undecidable
    require_exact(column)


def require_exact(column: ColumnState) -> None:
    """Raise where pandas would turn integers into floats that cannot hold them."""
    if column.kind != "int" or not column.missing:
        return
    table = column.table
    if column.sketches is not None:
        ends = [column.sketches.low or 0, column.sketches.high or 0]
    else:
        ends = [] if not isinstance(table, NumberTable) else [table.values[0].item(), table.values[-1].item()]
    if any(abs(end) > _EXACT_FLOAT for end in ends):
        raise Undecidable


def known_numbers(column: ColumnState) -> KnownValues:
    """All values of a number column, infinities at the ends."""
    require_number(column)
    if column.sketches is not None:
        raise Undecidable
    table = column.table
    empty = NumberTable(np.zeros(0, np.int64 if column.kind == "int" else np.float64), np.zeros(0, np.int64))
    values, counts = table if isinstance(table, NumberTable) else empty
    if column.negative_infinity:
        values, counts = np.append(-np.inf, values), np.append(column.negative_infinity, counts)
    if column.positive_infinity:
        values, counts = np.append(values, np.inf), np.append(counts, column.positive_infinity)
    return KnownValues(values.tolist(), values, counts)


def known_texts(column: ColumnState) -> KnownValues:
    """All values of a text column that is valid UTF-8."""
    if column.kind != "string" or column.sketches is not None:
        raise Undecidable
    table = column.table
    if not isinstance(table, TextTable):
        return KnownValues([], pa.array([], pa.large_binary()), np.zeros(0, np.int64))
    try:
        return KnownValues([value.decode() for value in table.values.to_pylist()], table.values, table.counts)
    except UnicodeDecodeError as error:  # pandas cannot hold such text
        raise Undecidable from error


def moments_of(column: ColumnState) -> ExactMoments:
    """The exact sum and sum of squares of a column of finite numbers."""
    require_finite(column)
    if column.sketches is not None:
        require_number(column)
        return column.sketches.moments
    known, moments = known_numbers(column), ExactMoments()
    moments.add(known.array, known.counts)
    return moments


def require_finite(column: ColumnState) -> None:
    """Raise where the column has infinities: what pandas adds up then depends on its order."""
    if column.positive_infinity or column.negative_infinity:
        raise Undecidable


def value_set(column: ColumnState, kwargs: Kwargs) -> set[Any]:
    """The expectation's value set, of the column's own kind."""
    wanted = kwargs.get("value_set")
    kinds: tuple[type, ...] = (str,) if column.kind == "string" else (int, float)
    if not isinstance(wanted, (list, tuple, set)) or not wanted or not all(type(value) in kinds for value in wanted):
        raise Undecidable
    if column.kind != "string" and any(abs(value) > _EXACT_FLOAT for value in wanted):
        raise Undecidable
    return set(wanted)


def mask(flags: Any) -> NDArray[np.bool_]:
    """The flags as an array of bools."""
    return np.fromiter(flags, np.bool_)


def number(value: Any) -> Any:
    """The argument if it is a number or None."""
    if value is not None and type(value) not in (int, float):
        raise Undecidable
    return value


def whole(value: Any) -> int:
    """The argument if it is a whole number."""
    if type(value) is not int:
        raise Undecidable
    return value


def bounds(kwargs: Kwargs) -> tuple[Any, Any]:
    """`min_value` and `max_value`, of which GX refuses a wrong order."""
    low, high = number(kwargs.get("min_value")), number(kwargs.get("max_value"))
    if low is not None and high is not None and low > high:
        raise Undecidable  # GX refuses it
    return low, high


def inside(values: Any, kwargs: Kwargs, low: Any, high: Any) -> NDArray[np.bool_]:
    """The comparisons pandas makes, by numpy on the same types."""
    inside = np.ones(len(values), np.bool_)
    if low is not None:
        inside &= (values > low) if kwargs.get("strict_min") else (values >= low)
    if high is not None:
        inside &= (values < high) if kwargs.get("strict_max") else (values <= high)
    return inside


def between(observed: Any, kwargs: Kwargs) -> ExpectationOutcome:
    """Whether an observed number lies within the arguments' bounds; None never does."""
    low, high = number(kwargs.get("min_value")), number(kwargs.get("max_value"))
    if observed is None:
        return ExpectationOutcome(False, {"observed_value": None})
    above = low is None or (observed > low if kwargs.get("strict_min") else observed >= low)
    below = high is None or (observed < high if kwargs.get("strict_max") else observed <= high)
    return ExpectationOutcome(bool(above and below), {"observed_value": observed})


def mostly_of(kwargs: Kwargs) -> float:
    """The smallest share of rows that must meet the expectation."""
    mostly = kwargs.get("mostly", 1)
    if type(mostly) not in (int, float) or not 0 <= mostly <= 1:
        raise Undecidable
    return float(mostly)


def judged(column: ColumnState, kwargs: Kwargs, known: KnownValues, odd: NDArray[np.bool_]) -> ExpectationOutcome:
    """The outcome where the values marked odd do not meet the expectation."""
    return counted(column, kwargs, int(known.counts[odd].sum()), most_frequent(known, odd), known)


def most_frequent(known: KnownValues, odd: NDArray[np.bool_] | None) -> list[Any]:
    """The most frequent of the values, ties ascending."""
    indices = np.arange(len(known.counts)) if odd is None else np.flatnonzero(odd)
    return [known.values[index] for index in indices[np.argsort(-known.counts[indices], kind="stable")][:SHOWN]]


def counted(
    column: ColumnState, kwargs: Kwargs, odd: int, values: list[Any], known: KnownValues | None = None
) -> ExpectationOutcome:
    """The outcome of an expectation about every value: so many odd rows, and some of their values."""
    missing = nulls(column)
    there = column.rows - missing
    mostly = mostly_of(kwargs)
    share = odd / there * 100 if there else None
    result: dict[str, Any] = {
        "element_count": column.rows, "unexpected_count": odd, "unexpected_percent": share,
        "partial_unexpected_list": values,
        "missing_count": missing, "missing_percent": missing / column.rows * 100 if column.rows else None,
        "unexpected_percent_total": odd / column.rows * 100 if column.rows else None,
        "unexpected_percent_nonmissing": share,
    }  # fmt: skip
    if known is not None:
        counts = dict(zip(known.values, known.counts.tolist(), strict=True))
        result["partial_unexpected_counts"] = [{"value": value, "count": counts[value]} for value in values]
    return ExpectationOutcome(not there or (float(there) - float(odd)) / float(there) >= mostly, result)


_TYPES: Final = {
    "bool": "bool", "int": "int64", "float": "float64", "float16": "float16", "float32": "float32",
    "float64": "float64", **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}  # fmt: skip
_FLOATS: Final = {"halffloat": "float16", "float": "float32", "double": "float64"}


def typed(column: ColumnState, wanted: Any) -> ExpectationOutcome:
    """Whether pandas gives the column one of the types, named as numpy or Python names numbers."""
    if not isinstance(wanted, list) or not wanted or not all(name in _TYPES for name in wanted):
        raise Undecidable
    if column.kind == "string":
        dtype = "str"
    elif column.kind == "int":
        if column.missing:
            require_exact(column)
        dtype = "float64" if column.missing else column.arrow
    elif column.kind == "float" and column.arrow in _FLOATS:
        dtype = _FLOATS[column.arrow]
    elif column.kind == "bool" and not column.missing:
        dtype = "bool"
    else:
        raise Undecidable
    return ExpectationOutcome(dtype in {_TYPES[name] for name in wanted}, {"observed_value": dtype})
