"""Weighted features: values and weights that do not go together, decided from the columns computed for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...report.html import number
from ..arrays import numpy_of
from ..schemas.weighted_feature import MISMATCHES, WeightedFeature
from ..stats.column import ColumnState
from .anomalies import Anomaly, NewAnomaly
from .evidence import bounds, numbers_where

_MISSING: Final = {
    "WEIGHTED_FEATURE_MISSING_VALUE": ("a weight in {weight} but no value in {value}", "a value for every weight"),
    "WEIGHTED_FEATURE_MISSING_WEIGHT": ("a value in {value} but no weight in {weight}", "a weight for every value"),
}
_MISMATCH: Final = "WEIGHTED_FEATURE_LENGTH_MISMATCH"


def check_weighted(
    pair: WeightedFeature,
    columns: Mapping[str, ColumnState],
    computed: Mapping[str, str],
    new_anomaly: NewAnomaly,
) -> Iterator[Anomaly]:
    """Rows with one of the two only, and rows with more or fewer weights than values; as TFDV 1.16 reports them.

    Where the statistics do not have the computed columns, on which TFDV is silent, or computed them from other columns,
    an anomaly says so.
    """
    name, value, weight = pair.name, pair.value, pair.weight
    states = {kind: columns.get(pair.column(kind)) for kind in MISMATCHES}
    computed_states = {
        kind: state for kind, state in states.items()
        if state is not None and state.kind in ("int", "null")
        and computed.get(state.name, pair.origin) == pair.origin  # else another schema's pair had the name
    }  # fmt: skip
    if len(computed_states) < len(states):
        yield new_anomaly(
            "STATS_NOT_AVAILABLE", name, f"the statistics do not show whether {value} and {weight} go together",
            expected=f"columns {', '.join(pair.columns)}", observed=f"none computed from {pair.origin}",
            fix="compute the statistics with the schema: StatisticsGen(examples, schema=schema), or statistics(data, "
            "schema=schema)",
        )  # fmt: skip
        return
    for kind, (what, wanted) in _MISSING.items():
        rows = sum(item["count"] for item in numbers_where(computed_states[kind], above=0))
        if rows:
            yield new_anomaly(
                kind, name, f"{number(rows)} rows have {what.format(value=value, weight=weight)}",
                expected=wanted, observed=f"{number(rows)} rows without",
                fix=f"fill or drop these rows, or remove the weighted feature {name} from the schema",
            )  # fmt: skip
    low, high = bounds(computed_states[_MISMATCH])
    if low or high:
        yield new_anomaly(
            _MISMATCH, name, f"rows have more or fewer weights in {weight} than values in {value}",
            expected="as many weights as values", observed=f"{number(low)} to {number(high)} more weights than values",
            values=numbers_where(computed_states[_MISMATCH], below=0, above=0),
            fix=f"correct these rows, or remove the weighted feature {name} from the schema",
        )  # fmt: skip


def mismatch_test(pair: WeightedFeature, kind: str) -> Callable[[Any], NDArray[np.bool_]]:
    """What marks the rows of such an anomaly in a batch."""

    def rows(batch: Any) -> NDArray[np.bool_]:
        column = pair(batch)[pair.column(kind)]
        marked: NDArray[np.bool_] = (numpy_of(column) != 0) & numpy_of(column.is_valid())
        return marked

    return rows
