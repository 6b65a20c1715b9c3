"""Great Expectations decided from statistics: no row is read, and the answer is the one GX's pandas engine gives.

`decide` gives None wherever the two could differ: a column that only has sketches, a type whose pandas form compares
otherwise (32-bit floats, decimals, times), a row condition, arguments that GX alone can judge. As in pandas, NaN is a
missing value, and integers with missing values are floats. Sums, means and deviations are the true ones rounded once,
where pandas adds up rounding errors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..aggregates.tables import NumberTable, median, text_lengths
from ..schemas.checks import Expectation
from ..stats.accumulator import StatisticsAccumulator
from ..stats.column import ColumnState
from .pandas_values import (
    KnownValues,
    Kwargs,
    Undecidable,
    between,
    bounds,
    counted,
    distinct_counts,
    inside,
    judged,
    known_numbers,
    known_texts,
    known_values,
    mask,
    moments_of,
    most_frequent,
    mostly_of,
    nulls,
    require_finite,
    require_number,
    shows_values,
    typed,
    value_set,
    whole,
)
from .regex import search_mask
from .suite import SHOWN, ExpectationOutcome


def decide(state: StatisticsAccumulator, expectation: Expectation) -> ExpectationOutcome | None:
    """The outcome that GX would have on data with these statistics; None where they do not decide it.

    Args:
        state: The statistics of one data set.
        expectation: Any; the outcome of an unknown one is None.
    """
    kwargs = expectation.kwargs
    if not _ARGUMENTS.issuperset(kwargs) or not state.data_columns:
        return None
    try:
        if expectation.type in _TABLE:
            return _TABLE[expectation.type](state, kwargs)
        decider = _COLUMN.get(expectation.type)
        if decider is None or not isinstance(kwargs.get("column"), str):
            return None
        column = state.data_columns.get(kwargs["column"])
        if column is None:
            return ExpectationOutcome(
                False, error=f'Error: The column "{kwargs["column"]}" in BatchData does not exist.'
            )
        return decider(column, kwargs)
    except Undecidable:
        return None


# --- tables


def _row_count(state: StatisticsAccumulator, kwargs: Kwargs) -> ExpectationOutcome:
    return between(state.rows, kwargs)


def _row_count_equal(state: StatisticsAccumulator, kwargs: Kwargs) -> ExpectationOutcome:
    return ExpectationOutcome(state.rows == whole(kwargs.get("value")), {"observed_value": state.rows})


def _column_count(state: StatisticsAccumulator, kwargs: Kwargs) -> ExpectationOutcome:
    return between(len(state.data_columns), kwargs)


def _column_count_equal(state: StatisticsAccumulator, kwargs: Kwargs) -> ExpectationOutcome:
    return ExpectationOutcome(
        len(state.data_columns) == whole(kwargs.get("value")), {"observed_value": len(state.data_columns)}
    )


def _column_exists(state: StatisticsAccumulator, kwargs: Kwargs) -> ExpectationOutcome:
    names, index = list(state.data_columns), kwargs.get("column_index")
    if index:  # GX takes 0 for none given
        return ExpectationOutcome(-len(names) <= whole(index) < len(names) and names[index] == kwargs.get("column"))
    return ExpectationOutcome(kwargs.get("column") in names)


def _column_set(state: StatisticsAccumulator, kwargs: Kwargs) -> ExpectationOutcome:
    wanted = kwargs.get("column_set")
    if not isinstance(wanted, (list, tuple, set)):
        raise Undecidable
    more = sorted(set(state.data_columns) - set(wanted))
    missing = sorted(set(wanted) - set(state.data_columns))
    result: dict[str, Any] = {"observed_value": sorted(state.data_columns)}
    if more or missing:
        named = {"unexpected": more, "missing": missing}
        result["details"] = {"mismatched": {key: names for key, names in named.items() if names}}
    return ExpectationOutcome(not missing and not (more and kwargs.get("exact_match", True)), result)


def _column_list(state: StatisticsAccumulator, kwargs: Kwargs) -> ExpectationOutcome:
    wanted, names = kwargs.get("column_list"), list(state.data_columns)
    if not isinstance(wanted, (list, tuple)):
        raise Undecidable
    result: dict[str, Any] = {"observed_value": names}
    if list(wanted) != names:
        places = range(max(len(wanted), len(names)))
        pairs = [(_at(wanted, index), _at(names, index)) for index in places]
        result["details"] = {
            "mismatched": [
                {"Expected Column Position": index, "Expected": expected, "Found": actual}
                for index, (expected, actual) in enumerate(pairs)
                if expected != actual
            ]
        }
    return ExpectationOutcome(list(wanted) == names, result)


def _at(names: Any, index: int) -> Any:
    return names[index] if index < len(names) else None


# --- values one by one


def _not_null(column: ColumnState, kwargs: Kwargs) -> ExpectationOutcome:
    return _null_result(column, kwargs, nulls(column), [None])


def _null(column: ColumnState, kwargs: Kwargs) -> ExpectationOutcome:
    there = column.rows - nulls(column)
    shown = (
        most_frequent(known_values(column), None) if there and column.sketches is None and shows_values(column) else []
    )
    return _null_result(column, kwargs, there, shown)


def _null_result(column: ColumnState, kwargs: Kwargs, odd: int, shown: list[Any]) -> ExpectationOutcome:
    success = not column.rows or (column.rows - odd) / column.rows >= mostly_of(kwargs)
    percent = odd / column.rows * 100 if column.rows else None
    listed = shown * min(odd, SHOWN) if shown == [None] else shown  # GX lists a None for each missing row
    result = {
        "element_count": column.rows, "unexpected_count": odd, "unexpected_percent": percent,
        "partial_unexpected_list": listed,
    }  # fmt: skip
    return ExpectationOutcome(success, result)


def _in_set(column: ColumnState, kwargs: Kwargs) -> ExpectationOutcome:
    wanted = value_set(column, kwargs)
    known = known_values(column)
    return judged(column, kwargs, known, mask(value not in wanted for value in known.values))


def _not_in_set(column: ColumnState, kwargs: Kwargs) -> ExpectationOutcome:
    wanted = value_set(column, kwargs)
    known = known_values(column)
    return judged(column, kwargs, known, mask(value in wanted for value in known.values))


def _values_between(column: ColumnState, kwargs: Kwargs) -> ExpectationOutcome:
    low, high = bounds(kwargs)
    if low is None and high is None:
        raise Undecidable
    if column.sketches is not None:  # all or none lie within: the smallest and the largest tell
        require_number(column)
        ends = np.array([column.sketches.low, column.sketches.high])
        infinite = column.positive_infinity + column.negative_infinity
        if infinite or not inside(ends, kwargs, low, high).all():
            raise Undecidable
        return counted(column, kwargs, 0, [])
    known = known_numbers(column)
    return judged(column, kwargs, known, ~inside(known.array, kwargs, low, high))


def _unique(column: ColumnState, kwargs: Kwargs) -> ExpectationOutcome:
    counts = distinct_counts(column)
    if not shows_values(column):
        return counted(column, kwargs, int(counts[counts > 1].sum()), [])
    known = known_values(column)
    return judged(column, kwargs, known, known.counts > 1)


def _length_between(column: ColumnState, kwargs: Kwargs) -> ExpectationOutcome:
    low, high = bounds(kwargs)
    if low is None and high is None:
        raise Undecidable
    known = known_texts(column)
    return judged(column, kwargs, known, ~inside(text_lengths(known.array), kwargs, low, high))


def _length_equal(column: ColumnState, kwargs: Kwargs) -> ExpectationOutcome:
    wanted = whole(kwargs.get("value"))
    known = known_texts(column)
    return judged(column, kwargs, known, text_lengths(known.array) != wanted)


def _matches(column: ColumnState, kwargs: Kwargs) -> ExpectationOutcome:
    known = known_texts(column)
    return judged(column, kwargs, known, ~_matching(known, kwargs.get("regex")))


def _matches_not(column: ColumnState, kwargs: Kwargs) -> ExpectationOutcome:
    known = known_texts(column)
    return judged(column, kwargs, known, _matching(known, kwargs.get("regex")))


def _matching(known: KnownValues, pattern: Any) -> NDArray[np.bool_]:
    if not isinstance(pattern, str):
        raise Undecidable
    try:
        return search_mask(known.array, pattern)
    except re.error as error:
        raise Undecidable from error  # GX says what is wrong with it


# --- whole columns


def _min(column: ColumnState, kwargs: Kwargs) -> ExpectationOutcome:
    return between(_end(column, 0), kwargs)


def _max(column: ColumnState, kwargs: Kwargs) -> ExpectationOutcome:
    return between(_end(column, -1), kwargs)


def _end(column: ColumnState, index: int) -> Any:
    if column.sketches is not None:
        require_number(column)
        if column.positive_infinity or column.negative_infinity:
            raise Undecidable
        return column.sketches.high if index else column.sketches.low
    known = known_numbers(column)
    return known.values[index] if known.values else None


def _mean(column: ColumnState, kwargs: Kwargs) -> ExpectationOutcome:
    moments = moments_of(column)
    return between(moments.mean() if moments.count else None, kwargs)


def _stdev(column: ColumnState, kwargs: Kwargs) -> ExpectationOutcome:
    moments = moments_of(column)
    return between(moments.std(ddof=1) if moments.count > 1 else None, kwargs)


def _sum(column: ColumnState, kwargs: Kwargs) -> ExpectationOutcome:
    total = moments_of(column).sum
    return between(int(total.fraction()) if column.kind == "int" else total.value(), kwargs)


def _median(column: ColumnState, kwargs: Kwargs) -> ExpectationOutcome:
    require_finite(column)
    known = known_numbers(column)
    return between(median(NumberTable(known.array, known.counts)) if known.values else None, kwargs)


def _quantiles(column: ColumnState, kwargs: Kwargs) -> ExpectationOutcome:
    wanted = kwargs.get("quantile_ranges")
    known = known_numbers(column)
    if not isinstance(wanted, Mapping) or kwargs.get("allow_relative_error") or not known.values:
        raise Undecidable
    levels, ranges = wanted.get("quantiles"), wanted.get("value_ranges")
    if not isinstance(levels, list) or not isinstance(ranges, list) or len(levels) != len(ranges):
        raise Undecidable
    ends = np.cumsum(known.counts)
    values, inside = [], []
    for level, (low, high) in zip(levels, ranges, strict=True):
        # pandas' "nearest" passes through per cents, and ties go to the even place.
        rank = int(np.rint((int(ends[-1]) - 1) * (level * 100.0 / 100)))
        value = known.values[int(np.searchsorted(ends, rank, side="right"))]
        low, high = -np.inf if low is None else low, np.inf if high is None else high
        near = np.isclose(float(value), [float(low), float(high)], rtol=1e-4).any()  # as GX tolerates
        values.append(value)
        inside.append(bool(near or low <= value <= high))
    result = {
        "observed_value": {"quantiles": levels, "values": values},
        "details": {"success_details": inside},
    }
    return ExpectationOutcome(all(inside), result)


def _distinct(column: ColumnState, kwargs: Kwargs) -> ExpectationOutcome:
    return between(len(distinct_counts(column)), kwargs)


def _distinct_share(column: ColumnState, kwargs: Kwargs) -> ExpectationOutcome:
    there = column.rows - nulls(column)
    return between(len(distinct_counts(column)) / there if there else 0, kwargs)


def _present_share(column: ColumnState, kwargs: Kwargs) -> ExpectationOutcome:
    return between((column.rows - nulls(column)) / column.rows if column.rows else 0, kwargs)


def _distinct_in(column: ColumnState, kwargs: Kwargs) -> ExpectationOutcome:
    more, _ = _sets(column, kwargs)
    return ExpectationOutcome(not more, {"observed_value": None, **_more(more)})


def _distinct_contain(column: ColumnState, kwargs: Kwargs) -> ExpectationOutcome:
    _, missing = _sets(column, kwargs)
    return ExpectationOutcome(not missing, {"observed_value": None, **_missing(missing)})


def _distinct_equal(column: ColumnState, kwargs: Kwargs) -> ExpectationOutcome:
    more, missing = _sets(column, kwargs)
    return ExpectationOutcome(not more and not missing, {"observed_value": None, **_more(more), **_missing(missing)})


def _sets(column: ColumnState, kwargs: Kwargs) -> tuple[list[Any], list[Any]]:
    wanted, known = value_set(column, kwargs), set(known_values(column).values)
    return sorted(known - wanted), sorted(wanted - known)


def _more(values: list[Any]) -> dict[str, Any]:
    return {"unexpected_count": len(values), "partial_unexpected_list": values[:SHOWN]}


def _missing(values: list[Any]) -> dict[str, Any]:
    return {"missing_count": len(values), "partial_missing_list": values[:SHOWN]}


def _most_common(column: ColumnState, kwargs: Kwargs) -> ExpectationOutcome:
    wanted, known = value_set(column, kwargs), known_values(column)
    if not known.values:
        raise Undecidable
    most = known.counts.max()
    modes = [value for value, count in zip(known.values, known.counts, strict=True) if count == most]
    inside = len(wanted.intersection(modes))
    success = inside > 0 if kwargs.get("ties_okay") else len(modes) == 1 and inside == 1
    return ExpectationOutcome(success, {"observed_value": modes})


def _of_type(column: ColumnState, kwargs: Kwargs) -> ExpectationOutcome:
    return typed(column, [kwargs.get("type_")])


def _of_types(column: ColumnState, kwargs: Kwargs) -> ExpectationOutcome:
    return typed(column, kwargs.get("type_list"))


# Of all the expectations below; what is not among them GX judges, as it refuses what is misspelled.
_ARGUMENTS: Final = frozenset({
    "column", "mostly", "min_value", "max_value", "strict_min", "strict_max", "value_set", "value", "regex",
    "column_set", "column_list", "column_index", "exact_match", "type_", "type_list", "quantile_ranges",
    "allow_relative_error", "ties_okay", "result_format", "catch_exceptions",
})  # fmt: skip
_TABLE: Final[Mapping[str, Callable[[StatisticsAccumulator, Kwargs], ExpectationOutcome]]] = {
    "expect_table_row_count_to_be_between": _row_count,
    "expect_table_row_count_to_equal": _row_count_equal,
    "expect_table_column_count_to_be_between": _column_count,
    "expect_table_column_count_to_equal": _column_count_equal,
    "expect_table_columns_to_match_set": _column_set,
    "expect_table_columns_to_match_ordered_list": _column_list,
    "expect_column_to_exist": _column_exists,
}
_COLUMN: Final[Mapping[str, Callable[[ColumnState, Kwargs], ExpectationOutcome]]] = {
    "expect_column_values_to_not_be_null": _not_null,
    "expect_column_values_to_be_null": _null,
    "expect_column_values_to_be_in_set": _in_set,
    "expect_column_values_to_not_be_in_set": _not_in_set,
    "expect_column_values_to_be_between": _values_between,
    "expect_column_values_to_be_unique": _unique,
    "expect_column_value_lengths_to_be_between": _length_between,
    "expect_column_value_lengths_to_equal": _length_equal,
    "expect_column_values_to_match_regex": _matches,
    "expect_column_values_to_not_match_regex": _matches_not,
    "expect_column_values_to_be_of_type": _of_type,
    "expect_column_values_to_be_in_type_list": _of_types,
    "expect_column_min_to_be_between": _min,
    "expect_column_max_to_be_between": _max,
    "expect_column_mean_to_be_between": _mean,
    "expect_column_median_to_be_between": _median,
    "expect_column_stdev_to_be_between": _stdev,
    "expect_column_sum_to_be_between": _sum,
    "expect_column_quantile_values_to_be_between": _quantiles,
    "expect_column_unique_value_count_to_be_between": _distinct,
    "expect_column_proportion_of_unique_values_to_be_between": _distinct_share,
    "expect_column_proportion_of_non_null_values_to_be_between": _present_share,
    "expect_column_distinct_values_to_be_in_set": _distinct_in,
    "expect_column_distinct_values_to_contain_set": _distinct_contain,
    "expect_column_distinct_values_to_equal_set": _distinct_equal,
    "expect_column_most_common_value_to_be_in_set": _most_common,
}
