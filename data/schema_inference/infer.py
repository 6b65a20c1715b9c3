"""A schema proposed from statistics: types, presence and small domains, each with its evidence. A person accepts it.

Rules as TFDV 1.16 has them, but for these: a column of one value is not a bool (`month` of one month's data would be);
text becomes a bool only where both its values were seen; a column without any value has the type "any"; that a plain
column has one value per row is not said. With slack it also proposes ranges and shares of missing rows: a bound on
exactly what was seen fires on the next span.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from ...errors import InputError
from ..aggregates.tables import NumberTable, TextTable, invalid_utf8
from ..schemas.schema import (
    Bool,
    Count,
    Domain,
    Feature,
    Presence,
    Range,
    Schema,
    Values,
)
from ..stats.column import ColumnState
from ..stats.document import statistics_of
from ..validation.evidence import bounds
from ..validation.parsed_numbers import reads_as
from ..validation.value_counts import fixed_shape
from .semantics import CONFIDENCE, listed_share, meaning

_TRUE: Final = frozenset({"TRUE", "true", "SET", "set", "1", ""})
_FALSE: Final = frozenset({"FALSE", "false", "CLEAR", "clear", "0"})


def infer_schema(
    data: object,
    *,
    split: str | None = None,
    max_values: int | None = None,
    shapes: bool = True,
    slack: float | None = None,
    semantics: bool | None = None,
) -> Schema:
    """The schema that a data set satisfies; each feature with its evidence.

    Args:
        data: `Statistics`, or what `statistics` takes: a DataFrame, an Arrow table, a path, …
        split: Which data set it is taken from; None: the first that has rows, usually the training data.
        max_values: Text with more distinct values than this gets no list of values. None: 100, and up to 400 that come
            again get a list that most rows must satisfy (see `listed_share`).
        shapes: Whether lists of one length, never missing, get a shape; else value counts say it of every column.
        slack: Propose ranges of numbers, widened at both ends by this share of their span, and a smallest share of
            rows for what is sometimes missing (see `range_with_slack`, `least_present`); 0.1 is a tenth. None:
            neither, as in TFDV: a bound fires on the next month unless somebody knows that it should hold.
        semantics: Whether times in text and in integers, natural language and images are recognised, as TFDV does with
            `enable_semantic_domain_stats`; None: all but days since 1970, which are as often prices or post codes.

    Raises:
        InputError: There is no such data set, none has rows, a number is negative, or the data cannot be read.
    """
    _check_numbers(max_values, slack)
    statistics = statistics_of(data)
    chosen = split if split is not None else next((name for name, rows in statistics.splits.items() if rows), None)
    if chosen is None:
        raise InputError("no data set has rows, so there is nothing to infer a schema from", fix="check the input")
    features = statistics.features(chosen)
    columns = statistics.state(chosen).data_columns
    rules = InferenceRules(max_values, shapes, slack, semantics)
    return Schema(features=tuple(infer_feature(features[name], column, rules) for name, column in columns.items()))


def _check_numbers(max_values: object, slack: object) -> None:
    fix = "use 0 (no lists of values) or more, e.g. 100"
    if max_values is not None and (not isinstance(max_values, int) or isinstance(max_values, bool)):
        raise InputError(f"max_values is {max_values!r}, not a whole number", fix=fix)
    if max_values is not None and max_values < 0:
        raise InputError(f"max_values is {max_values}", fix=fix)
    fix = "use a share of the numbers' span, e.g. 0.1, or None"
    if slack is None:
        return
    if not isinstance(slack, int | float) or isinstance(slack, bool):
        raise InputError(f"slack is {slack!r}, not a number", fix=fix)
    if not 0 <= slack < math.inf:
        raise InputError(f"slack is {slack}, which is negative or not finite", fix=fix)


@dataclass(frozen=True)
class InferenceRules:
    """The arguments of `infer_schema` about one feature."""

    max_values: int | None = None
    shapes: bool = True
    slack: float | None = None
    semantics: bool | None = None


def infer_feature(described: dict[str, Any], column: ColumnState, rules: InferenceRules) -> Feature:
    """What a column satisfies, with evidence; `described` is its part of a statistics document."""
    count, missing, slack = column.count, column.missing, rules.slack
    if not count:
        evidence = f"presence: no value in {column.rows:,} rows"
        return Feature(column.name, "any", Presence(min_count=0), evidence=evidence)
    evidence_by_key = {"presence": f"{count:,} of {column.rows:,} rows" if missing else f"all {count:,} rows"}
    levels = column.levels
    values = levels[-1]  # what the lists hold; a plain column itself
    for _ in levels[1:]:
        described = described.get("values", {})
    seen = [column.arrow]
    unique = described.get("unique")
    if unique:
        seen.append(f"{unique['value']:,} distinct" if unique["exact"] else f"about {unique['value']:,} distinct")
    if "min" in described and values.kind != "bool":
        seen.append(f"{described['min']['value']} to {described['max']['value']}")
    evidence_by_key["type"] = ", ".join(seen)
    kind = values.kind if values.kind not in ("null", "other") else "any"
    # All present now means always present; a share is guessed from some missing only with slack.
    least = 1.0 if not missing else None
    if missing and slack is not None:
        least = least_present(count, column.rows, slack)
        evidence_by_key["presence"] += f": at least {least:g} with {CONFIDENCE:.0%} confidence and slack {slack:g}"
    shape, value_counts, lengths = _lengths(levels) if len(levels) > 1 else (None, (), "")
    if not rules.shapes:
        value_counts = value_counts or tuple(Count(size, size) for size in shape or (1,))
        shape = None
    evidence_by_key["shape" if shape is not None else "value_count"] = lengths
    domain, evidence_by_key["domain"] = _domain(values, rules)
    if domain is None:
        del evidence_by_key["domain"]
    evidence = "\n".join(f"{line}: {text}" for line, text in evidence_by_key.items() if text)
    feature = Feature(
        column.name, kind, Presence(least, 1), domain, evidence=evidence, shape=shape, value_counts=value_counts
    )
    if kind != "struct":
        return feature
    fields = [infer_feature(field, values.inner[field["name"]], rules) for field in described["fields"]]
    named = (replace(field, name=name) for name, field in zip(values.inner, fields, strict=True))
    return replace(feature, fields=tuple(named))


def _lengths(levels: list[ColumnState]) -> tuple[tuple[int, ...] | None, tuple[Count, ...], str]:
    """The shape of lists that are alike at every level and never missing, or each level's value counts; and why."""
    ends = [tuple(int(end or 0) for end in bounds(state)) for state in levels[:-1]]
    why = ", ".join(f"{low} values each" if low == high else f"{low} to {high} values each" for low, high in ends)
    shape = fixed_shape(levels[0])
    if shape is not None and all(shape):
        return shape, (), why
    return None, tuple(Count(low, high) if low == high > 0 else Count(1 if low else None) for low, high in ends), why


def _domain(column: ColumnState, rules: InferenceRules) -> tuple[Domain | None, str]:
    """The narrowest domain that holds, in TFDV's order: their meaning, bool, integers in text, texts; and why."""
    table = column.table
    if isinstance(table, TextTable):
        broken = invalid_utf8(table)
    else:
        broken = column.sketches.broken if column.sketches is not None else 0
    if broken and column.kind == "string":
        return None, ""
    if rules.semantics is not False and column.kind in ("int", "string", "bytes"):
        semantic = meaning(column, days=bool(rules.semantics), max_values=rules.max_values)
        if semantic is not None:
            return semantic.domain, semantic.evidence
    if column.kind == "int" and isinstance(table, NumberTable) and table.values.tolist() == [0, 1]:
        return Bool(), "both were seen"
    if column.kind in ("int", "float") and rules.slack is not None:
        return range_with_slack(column, rules.slack), f"with slack {rules.slack:g}"
    if column.kind not in ("string", "bytes") or broken or not isinstance(table, TextTable):
        return None, ""
    if len(table.counts) == 2:
        pair = [value.decode() for value in table.values.to_pylist()]
        for true, false in (pair, pair[::-1]):
            if true in _TRUE and false in _FALSE:
                return Bool(true, false), "both were seen"
    if all(reads_as(value.as_py(), "int") is not None for value in table.values):
        return Range(parse="int"), "all read as integers"
    share = listed_share(table, rules.max_values)
    if not share:
        return None, ""
    listed = Values(tuple(value.decode() for value in table.values.to_pylist()), share)
    if share == 1:
        return listed, "all that were seen"
    once = (table.counts == 1).sum() / table.total
    return (
        listed,
        f"all that were seen; {once:.2%} of the rows have one that occurs once, {1 - share:.0%} may have others",
    )


def range_with_slack(column: ColumnState, slack: float) -> Range | None:
    """The column's range, widened at both ends by a share of its span; None for one value, or no finite one.

    NaN is not allowed where none was seen. There is no end where an infinity was seen, and none that a value cannot
    have. An end does not cross zero: what was never negative (counts, distances, money) is not proposed to become so.
    Ends are rounded outwards, integers to integers and floats to a thousandth of the span's power of ten.
    """
    table = column.table
    if column.sketches is not None:
        low, high = column.sketches.low, column.sketches.high
    elif isinstance(table, NumberTable):
        low, high = table.values[0].item(), table.values[-1].item()
    else:
        return None
    if low is None or high is None or low == high or not math.isfinite(float(high) - float(low)):
        return None
    more = slack * (float(high) - float(low))
    if column.kind == "int":
        bottom, top = low - math.ceil(more), high + math.ceil(more)
    else:
        bottom, top = low - more, high + more
        digits = 3 - math.floor(math.log10(high - low))
        bottom, top = min(_rounded(bottom, digits, math.floor), low), max(_rounded(top, digits, math.ceil), high)
    # An end stops at zero where the values do.
    ends = (0 if bottom < 0 <= low else bottom, 0 if top > 0 >= high else top)
    seen = (column.negative_infinity, column.positive_infinity)
    least, most = (None if beyond or not _is_end(end, column) else end for end, beyond in zip(ends, seen, strict=True))
    if least is None and most is None:
        return None
    return Range(least, most, disallow_nan=column.kind == "float" and not column.nan)


def _is_end(end: float, column: ColumnState) -> bool:
    return -(2**63) <= end < 2**64 if column.kind == "int" else math.isfinite(end)


def _rounded(value: float, digits: int, outwards: Callable[[float], int]) -> float:
    if abs(digits) > 300:  # no float has so many
        return value
    scale = 10.0**digits
    return round(outwards(value * scale) / scale, max(digits, 0)) if math.isfinite(value * scale) else value


def least_present(present: int, rows: int, slack: float) -> float:
    """A smallest share of rows with a value: the lower confidence bound of the share seen, less the slack's part of it.

    The bound is Clopper and Pearson's (1934): few rows prove little. Rounded down to three digits.
    """
    from scipy.special import betaincinv

    bound = float(betaincinv(present, rows - present + 1, 1 - CONFIDENCE)) * max(0.0, 1 - slack)
    return math.floor(bound * 1000) / 1000
