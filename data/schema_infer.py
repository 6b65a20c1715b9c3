"""A schema proposed from statistics: types, presence and small domains, each with its evidence. A person accepts it.

Rules as TFDV 1.16 has them, but for these: a column of one value is no bool (`month` of one month's data would be);
text becomes a bool only where both its values were seen; a column without any value has the type "any"; that a plain
column has one value per row is not said. With slack it also proposes ranges and shares of missing rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from ..errors import InputError
from .schema import Bool, Count, Domain, Feature, Presence, Range, Schema, Values
from .schema_infer_semantics import meaning
from .schema_infer_slack import CONFIDENCE, least_present, range_with_slack
from .statistics_column import ColumnState
from .statistics_of import statistics_of
from .tables import NumberTable, TextTable, invalid_utf8
from .validation_evidence import bounds, nesting
from .validation_parse import reads_as

MAX_VALUES: Final = 100
_TRUE: Final = frozenset({"TRUE", "true", "SET", "set", "1", ""})
_FALSE: Final = frozenset({"FALSE", "false", "CLEAR", "clear", "0"})


def infer_schema(
    data: object,
    *,
    split: str | None = None,
    max_values: int = MAX_VALUES,
    shapes: bool = True,
    slack: float | None = None,
    semantics: bool | None = None,
) -> Schema:
    """The schema that a data set satisfies; each feature with its evidence.

    Args:
        data: `Statistics`, or what `statistics` takes: a DataFrame, an Arrow table, a path, …
        split: Which data set it is taken from; None: the first that has rows, usually the training data.
        max_values: Text with more distinct values than this gets no list of values.
        shapes: Whether lists of one length, never missing, get a shape; else value counts say it of every column.
        slack: Propose ranges of numbers, widened at both ends by this share of their span, and a smallest share of
            rows for what is sometimes missing (see `schema_infer_slack`); 0.1 is a tenth. None: neither, as in TFDV: a
            bound fires on the next month unless somebody knows that it should hold.
        semantics: Whether times in text and in integers, natural language and images are recognised, as TFDV does with
            `enable_semantic_domain_stats`; None: all but days since 1970, which are as often prices or post codes.

    Raises:
        InputError: There is no such data set, none has rows, the slack is negative, or the data cannot be read.
    """
    if slack is not None and not 0 <= slack < math.inf:
        raise InputError(f"a slack of {slack} is none", fix="use a share of the numbers' span, e.g. 0.1, or None")
    statistics = statistics_of(data)
    chosen = split if split is not None else next((name for name, rows in statistics.splits.items() if rows), None)
    if chosen is None:
        raise InputError("no data set has rows, so there is nothing to infer a schema from", fix="check the input")
    features = statistics.features(chosen)
    state = statistics.state(chosen)
    rules = Rules(max_values, shapes, slack, semantics)
    return Schema(
        features=tuple(infer_feature(described, state.columns[name], rules) for name, described in features.items())
    )


@dataclass(frozen=True)
class Rules:
    """The arguments of `infer_schema` about one feature."""

    max_values: int = MAX_VALUES
    shapes: bool = True
    slack: float | None = None
    semantics: bool | None = None


def infer_feature(described: dict[str, Any], column: ColumnState, rules: Rules) -> Feature:
    """What a column satisfies, with evidence; `described` is its part of a statistics document."""
    count, missing, slack = column.count, column.missing, rules.slack
    if not count:
        return Feature(column.name, "any", Presence(min_count=0), evidence=f"no value in {column.rows:,} rows")
    evidence = [f"{count:,} of {column.rows:,} rows" if missing else f"all {count:,} rows"]
    unique = described.get("unique")
    if unique:
        evidence.append(f"{unique['value']:,} distinct" if unique["exact"] else f"about {unique['value']:,} distinct")
    if "min" in described and column.kind != "bool":
        evidence.append(f"{described['min']['value']} to {described['max']['value']}")
    levels, kind = nesting(column)
    kind = kind if kind not in ("null", "other") else "any"
    # All present now means always present; a share is guessed from some missing only with slack.
    least = 1.0 if not missing else None
    if missing and slack is not None:
        least = least_present(count, column.rows, slack)
        evidence.append(f"present in at least {least:g} with {CONFIDENCE:.0%} confidence and slack {slack:g}")
    shape, value_counts = _lengths(column, levels, evidence) if levels else (None, ())
    if not rules.shapes:
        value_counts = value_counts or (Count(*(shape or (1,)) * 2),)
        shape = None
    domain = _domain(column, rules, evidence)
    return Feature(
        column.name, kind, Presence(least, 1), domain, evidence=", ".join(evidence), shape=shape,
        value_counts=value_counts,
    )  # fmt: skip


def _lengths(column: ColumnState, levels: int, evidence: list[str]) -> tuple[tuple[int, ...] | None, tuple[Count, ...]]:
    """The shape or the value counts of lists; the statistics know the lengths of the outermost only."""
    low, high = (int(end or 0) for end in bounds(column))
    evidence.append(f"{low} values each" if low == high else f"{low} to {high} values each")
    if low == high > 0 and not column.missing and levels == 1:
        return (low,), ()
    outer = Count(low, high) if low == high > 0 else Count(1 if low else None)
    return None, (outer, *[Count()] * (levels - 1))


def _domain(column: ColumnState, rules: Rules, evidence: list[str]) -> Domain | None:
    """The narrowest domain that holds, in TFDV's order: what the values mean, bool, integers in text, texts."""
    table = column.table
    if isinstance(table, TextTable) and invalid_utf8(table) and column.kind == "string":
        return None
    if rules.semantics is not False and column.kind in ("int", "string", "bytes"):
        found = meaning(column, days=bool(rules.semantics))
        if found is not None:
            evidence.append(found.evidence)
            return found.domain
    if column.kind == "int" and isinstance(table, NumberTable) and table.values.tolist() == [0, 1]:
        return Bool()
    if column.kind in ("int", "float") and rules.slack is not None:
        return _range(column, rules.slack, evidence)
    if column.kind != "string" or not isinstance(table, TextTable):
        return None
    if len(table.counts) == 2:
        pair = [value.decode() for value in table.values.to_pylist()]
        for true, false in (pair, pair[::-1]):
            if true in _TRUE and false in _FALSE:
                return Bool(true, false)
    if all(reads_as(value.as_py(), "int") is not None for value in table.values):
        evidence.append("all read as integers")
        return Range(parse="int")
    if len(table.counts) > rules.max_values:
        return None
    return Values(tuple(value.decode() for value in table.values.to_pylist()))


def _range(column: ColumnState, slack: float, evidence: list[str]) -> Range | None:
    found = range_with_slack(column, slack)
    if found is not None:
        evidence.append(f"range with slack {slack:g}")
    return found
