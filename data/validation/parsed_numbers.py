"""Text that must read as numbers: which values do not, and which are out of their range."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, Final

from ...report.html import number
from ..aggregates.tables import show_text
from ..schemas.schema import Feature, Range
from ..stats.column import ColumnState
from .anomalies import Anomaly, NewAnomaly
from .evidence import SHOWN, out_of_range, texts, unit_of

_WHOLE: Final = re.compile(rb"\s*[+-]?[0-9]+\s*")
_INT64: Final = range(-(1 << 63), 1 << 63)


def reads_as(text: bytes, kind: str) -> float | None:
    """The number that a text says, or None; "int" takes whole numbers of 64 bits."""
    if kind == "int":
        if not _WHOLE.fullmatch(text) or len(text) > 100:
            return None
        value = int(text)
        return value if value in _INT64 else None
    try:
        return None if b"_" in text else float(text)
    except ValueError:
        return None


def check_parsed(spec: Feature, domain: Range, column: ColumnState, new_anomaly: NewAnomaly) -> Iterator[Anomaly]:
    """Where texts are not numbers, or numbers out of the range."""
    family, size = ("INT_TYPE", "INT") if domain.parse == "int" else ("FLOAT_TYPE", "FLOAT")
    kind = f"a{'n' * (domain.parse == 'int')} {domain.parse}"
    table, rows = texts(column), unit_of(spec, column)
    read = [
        (text, reads_as(text, domain.parse), int(count))
        for text, count in zip(table.values.to_pylist(), table.counts, strict=True)
    ]
    if column.sketches is not None:
        yield new_anomaly(
            "STATS_NOT_AVAILABLE", spec.name, f"{spec.name} has too many distinct texts to read all of them as numbers",
            expected="all its values in the statistics", observed="the frequent ones",
            fix=f"write {spec.name} as numbers, or raise the statistics' limit of distinct values",
        )  # fmt: skip
    wrong = [(text, count) for text, value, count in read if value is None]
    if wrong:
        lost = number(sum(count for _, count in wrong))
        name = "INT_TYPE_NOT_INT_STRING" if size == "INT" else "FLOAT_TYPE_STRING_NOT_FLOAT"
        yield new_anomaly(
            name, spec.name, f"{lost} {rows} of {spec.name} do not read as {kind}",
            expected=f"text that reads as {kind}", observed=f"{lost} {rows} that do not", values=_shown(wrong),
            fix=f"correct these values, or remove parse from the domain of {spec.name} in the schema",
        )  # fmt: skip
    numbers = [(text, value, count) for text, value, count in read if value is not None]
    where = f"in the range of {spec.name} in the schema"
    for end, bound, sign, anomaly, word in (
        ("min", domain.min, -1, f"{family}_SMALL_{size}", "least"),
        ("max", domain.max, 1, f"{family}_BIG_{size}", "most"),
    ):
        beyond = [] if bound is None else [each for each in numbers if each[1] * sign > bound * sign]
        if bound is None or not beyond:
            continue
        endless = sum(count for _, value, count in beyond if math.isinf(value))
        finite = any(math.isfinite(value) for _, value, _ in beyond)
        message, fix = out_of_range(spec, end, bound, f"{number(endless)} {rows}" if endless else "", finite=finite)
        lost = number(sum(count for *_, count in beyond))
        yield new_anomaly(
            anomaly, spec.name, message,
            expected=f"at {word} {number(bound)}", observed=f"{lost} {rows} {'below' if sign < 0 else 'above'}",
            values=_shown([(text, count) for text, _, count in beyond]), fix=fix,
        )  # fmt: skip
    for flag, test, text in (("nan", math.isnan, "NaN"), ("inf", math.isinf, "infinite")):
        odd_rows = sum(count for _, value, count in numbers if test(value))
        if getattr(domain, f"disallow_{flag}") and odd_rows:
            yield new_anomaly(
                f"FLOAT_TYPE_HAS_{flag.upper()}", spec.name, f"{spec.name} is {text} in {number(odd_rows)} {rows}",
                expected=f"not {text}", observed=f"{number(odd_rows)} {rows}",
                fix=f"write a missing value for what is not known, or remove disallow_{flag} {where}",
            )  # fmt: skip


def _shown(pairs: list[tuple[bytes, int]]) -> tuple[dict[str, Any], ...]:
    worst = sorted(pairs, key=lambda pair: -pair[1])[:SHOWN]
    return tuple({"value": show_text(text), "count": count} for text, count in worst)
