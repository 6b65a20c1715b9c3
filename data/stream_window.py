"""The last spans of a stream as one: statistics merged although JSON does not bring every column in every span."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import pyarrow as pa

from ..errors import InputError
from .statistics_column import ColumnState
from .statistics_document import Statistics, merge_statistics
from .statistics_pass import StatisticsAccumulator


def window_of(spans: deque[Statistics]) -> Statistics | None:
    """The statistics of all the spans' rows, oldest first; None where there are none.

    A column that some spans lack is missing in their rows. Spans before one in which a column changed its type do not
    go with it, and are taken out of `spans`.
    """
    while spans:
        names = dict.fromkeys(name for one in spans for split in one.splits for name in one.features(split))
        try:
            return merge_statistics([_with_columns(one, names) for one in spans])
        except InputError:
            if len(spans) == 1:
                raise
            spans.popleft()
    return None


def _with_columns(found: Statistics, names: Iterable[str]) -> Statistics:
    states = {}
    for split in found.splits:
        state = found.state(split)
        lacking = [name for name in names if name not in state.columns]
        if lacking:
            state = StatisticsAccumulator.from_bytes(state.to_bytes())  # a copy: the span's own stay as they are
        for name in lacking:
            state.columns[name] = ColumnState(name, state.limit)
            state.columns[name].add(pa.nulls(state.rows))
        states[split] = state
    return Statistics(found.document, states)
