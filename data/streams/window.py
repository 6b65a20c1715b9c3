"""The last spans of a stream as one: statistics merged although JSON does not bring every column in every span."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import pyarrow as pa

from ...errors import InputError
from ..stats.accumulator import StatisticsAccumulator
from ..stats.column import ColumnState
from ..stats.document import Statistics, merge_statistics


def window_of(spans: deque[Statistics]) -> Statistics | None:
    """The statistics of all the spans' rows, oldest first; None where there are none.

    A column that some spans lack is missing in their rows, and has no type where all its values are. Spans before one
    in which a column changed its type do not go with it, and are taken out of `spans`.
    """
    while spans:
        holds: dict[str, bool] = {}
        for one in spans:
            for split in one.splits:
                for name, feature in one.features(split).items():
                    holds[name] = holds.get(name, False) or feature["count"] > 0
        try:
            return merge_statistics([_with_columns(one, holds) for one in spans])
        except InputError:
            if len(spans) == 1:
                raise
            spans.popleft()
    return None


def _with_columns(found: Statistics, holds: Mapping[str, bool]) -> Statistics:
    """The statistics with every column; of those that hold values somewhere, without a type where not here."""
    states = {}
    for split in found.splits:
        state = found.state(split)
        lacking = [
            name
            for name, values in holds.items()
            if name not in state.columns or (values and not state.columns[name].count)
        ]
        if lacking:
            state = StatisticsAccumulator.from_bytes(state.to_bytes())  # a copy: the span's own stay as they are
        for name in lacking:
            state.columns[name] = ColumnState(name, state.limit)
            state.columns[name].add(pa.nulls(state.rows))
        states[split] = state
    return Statistics(found.document, states)
