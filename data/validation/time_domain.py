"""Times in text or integers: which values do not read as the schema's format says."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from ...report.html import number, percent
from ..aggregates.tables import NumberTable, TextTable, show_text, top
from ..arrays import arrow_of
from ..schemas.schema import Feature, Time
from ..schemas.time_formats import UNIX, reads_as_time, within
from ..stats.column import ColumnState
from .anomalies import Anomaly, NewAnomaly
from .evidence import SHOWN, unit_of


def time_table(column: ColumnState) -> TextTable | NumberTable | None:
    """The values that a time is looked for in: all, or those that the sketches kept, each for the rows it stands for.

    None where there are none.
    """
    if column.sketches is None:
        return column.table
    return column.sketches.kept_texts(column.count)[1] if column.sketches.text else column.sketches.quantile.table()


def is_time(table: TextTable | NumberTable, domain: Time) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which values of a table are such times."""
    if isinstance(table, NumberTable):
        return within(table.values, domain.format)
    return reads_as_time(table.values, domain.format, domain.year_ends)


def check_time(spec: Feature, domain: Time, column: ColumnState, new_anomaly: NewAnomaly) -> Iterator[Anomaly]:
    """Where too few values are times of the format; of a column that only has sketches, of the values kept."""
    table = time_table(column)
    if table is None or not table.total or isinstance(table, NumberTable) != (domain.format in UNIX):
        yield new_anomaly(
            "STATS_NOT_AVAILABLE", spec.name, f"the statistics kept no values of {spec.name} to read as times",
            expected=f"text or integers that read as {domain.format}", observed=column.kind,
            fix=f"raise the statistics' limit of distinct values, or remove the time of {spec.name} from the schema",
        )  # fmt: skip
        return
    odd = ~is_time(table, domain)
    off = int(table.counts[odd].sum())
    if not off or Fraction(off, table.total) <= 1 - Fraction(str(domain.min_mass)):
        return
    rows = unit_of(spec, column)
    about = "" if column.sketches is None else "about "
    off_rows = off if column.sketches is None else off * column.count // table.total
    values: TextTable | NumberTable
    if isinstance(table, NumberTable):
        values = NumberTable(table.values[odd], table.counts[odd])
    else:
        # The same values in the same order, with the rows that each was seen in, not those that it stands for.
        seen = table if column.sketches is None else column.sketches.kept_texts(column.count)[0]
        values = TextTable(seen.values.take(arrow_of(np.flatnonzero(odd))), seen.counts[odd])
    worst = [(show_text(value) if isinstance(value, bytes) else value, count) for value, count in top(values, SHOWN)]
    reading = f"lie in 1990 to 2029 as {domain.format}" if domain.format in UNIX else f"read as {domain.reading}"
    wanted = f" in at least {percent(domain.min_mass)} of the {rows}" if domain.min_mass < 1 else ""
    yield new_anomaly(
        "TIME_TYPE_UNEXPECTED_VALUES", spec.name,
        f"{about}{number(off_rows)} {rows} ({percent(off / table.total)}) of {spec.name} do not {reading}, "
        f"e.g. {worst[0][0]!r}",
        expected=f"values that {reading}{wanted}", observed=f"{about}{number(off_rows)} {rows} that do not",
        values=tuple({"value": value, "count": count} for value, count in worst),
        fix=f"correct these values, or change the time of {spec.name} in the schema",
    )  # fmt: skip
