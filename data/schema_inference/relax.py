"""How far a feature must be relaxed so that what was observed is not an anomaly: to exactly that, where it is known.

As TFDV's `update_schema`: values are added to a domain (which goes where they are too many), ends of ranges move out,
shares and counts go down, a shape is cleared, a column that is gone is DEPRECATED, a comparator's threshold rises.
Other than there, a feature whose type changed takes the new type: TFDV deprecates it, and checks nothing from then on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

import numpy as np

from ..aggregates.tables import broken_texts
from ..arrays import arrow_of
from ..drift_skew.compare import Comparison
from ..schemas.comparators import COMPARATORS, CONTROL_MISSING
from ..schemas.problems import feature_problems
from ..schemas.schema import (
    CHANGES,
    TYPES,
    Count,
    Feature,
    Presence,
    Range,
    Schema,
    Time,
    Values,
)
from ..schemas.struct_fields import Path, state_at
from ..stats.column import ColumnState
from ..stats.document import Statistics
from ..validation.drift import drift_anomalies
from ..validation.evidence import bounds, is_member, nesting, texts
from ..validation.parsed_numbers import reads_as
from ..validation.time_domain import is_time, time_table
from ..validation.value_counts import distinct_values

DOMAIN_LIMIT: Final = 400  # values; TFDV's for columns that are validated


@dataclass(frozen=True)
class ObservedFeature:
    """A feature's column in a data set.

    Attributes:
        column: Its state.
        rows: Rows of the data set.
        split: The data set's name.
        statistics: All of them.
        controls: Statistics by what they are compared for: "drift", "skew".
        environment: As for `validate`.
        max_values: A list of values that would become longer than this is dropped.
        path: Of a field of a struct: where it stands; () of a column.
    """

    column: ColumnState
    rows: int
    split: str
    statistics: Statistics
    controls: Mapping[str, Statistics]
    environment: str | None
    max_values: int = DOMAIN_LIMIT
    path: Path = ()

    def within(self, columns: Mapping[str, ColumnState]) -> ColumnState | None:
        """The same column, or field, of other data."""
        return state_at(columns, self.path or (self.column.name,))

    @property
    def values(self) -> ColumnState:
        """The values themselves, which are in lists where the column has such."""
        return self.column.levels[-1]


def relax(feature: Feature, anomaly: str, seen: ObservedFeature) -> Feature | None:
    """The feature relaxed so that a data set no longer has the anomaly; None where there is no way known."""
    if anomaly.startswith("COMPARATOR_"):
        return _comparators(feature, anomaly, seen)
    way = _WAYS.get(anomaly)
    return None if way is None else _consistent(way(feature, seen))


def _consistent(feature: Feature) -> Feature:
    """A feature without what no longer goes with its type."""
    if not any(feature_problems(feature)):
        return feature
    plain = Feature(feature.name, feature.type, value_counts=feature.value_counts)
    for change in CHANGES:
        kept = {
            name: most
            for name, most in getattr(feature, change).items()
            if not any(feature_problems(_with_bounds(plain, change, {name: most})))
        }
        feature = _with_bounds(feature, change, kept)
    return replace(feature, domain=None) if any(feature_problems(feature)) else feature


def _with_bounds(feature: Feature, change: str, bounds: Mapping[str, float]) -> Feature:
    return replace(feature, drift=bounds) if change == "drift" else replace(feature, skew=bounds)


def _included(feature: Feature, seen: ObservedFeature) -> Feature:
    """A column that the environment excludes, which the data has all the same."""
    environment = seen.environment
    if environment is None:
        return feature
    left = tuple(name for name in feature.not_in_environments if name != environment)
    return replace(
        feature,
        not_in_environments=left,
        in_environments=tuple(dict.fromkeys((*feature.in_environments, environment))),
    )


def _presence(feature: Feature, seen: ObservedFeature) -> Feature:
    share, count = feature.presence.min_fraction, feature.presence.min_count
    present = seen.column.count
    if share is not None and Fraction(present, seen.rows) < Fraction(str(share)):
        share = rounded_down(Fraction(present, seen.rows))
    return replace(feature, presence=Presence(share, count if count is None else min(count, present)))


def rounded_down(share: Fraction) -> float:
    """The share in six decimals, so that a person can read it; down, so that the data still meets it as a minimum."""
    return math.floor(share * 10**6) / 10**6


def rounded_up(share: Fraction) -> float:
    """As `rounded_down`, for a maximum."""
    return math.ceil(share * 10**6) / 10**6


def _type(feature: Feature, seen: ObservedFeature) -> Feature:
    """The type that all data sets have, of integers and floats the wider one; any where there is none."""
    columns = [seen.within(seen.statistics.state(split).columns) for split in seen.statistics.splits]
    kinds = {
        nesting(column)[1] if feature.many else column.kind for column in columns if column is not None and column.count
    }
    if kinds | {feature.type} == {"int", "float"}:
        kinds = {"float"}
    kind = kinds.pop() if len(kinds) == 1 else "any"
    fields = feature.fields if kind == "struct" else ()
    return replace(feature, type=kind if kind in TYPES else "any", fields=fields)


def _texts(feature: Feature, seen: ObservedFeature) -> Feature:
    domain, table = feature.domain, texts(seen.values)
    if not isinstance(domain, Values) or seen.values.sketches is not None:
        return replace(feature, domain=None)
    odd = ~(is_member(table, domain.values) | broken_texts(table))
    added = [value.decode() for value in table.values.take(arrow_of(np.flatnonzero(odd))).to_pylist()]
    if len(domain.values) + len(added) > max(seen.max_values, len(domain.values)):
        return replace(feature, domain=None)
    return replace(feature, domain=replace(domain, values=(*domain.values, *added)))


def _no_domain(feature: Feature, seen: ObservedFeature) -> Feature:
    return replace(feature, domain=None)


def _as_bytes(feature: Feature, seen: ObservedFeature) -> Feature:
    """Text that need not be UTF-8."""
    return replace(feature, domain=None, type="bytes" if feature.type == "string" else feature.type)


def _as_range(feature: Feature, seen: ObservedFeature) -> Feature:
    """From 0 and 1 to the range that holds them and what was seen."""
    low, high = (end if end is not None and math.isfinite(end) else None for end in bounds(seen.values))
    if low is None or high is None:
        return replace(feature, domain=None)
    return replace(feature, domain=Range(min(0, low), max(1, high)))


def _lower(feature: Feature, seen: ObservedFeature) -> Feature:
    domain, (low, _) = feature.domain, _ends(feature, seen)
    if not isinstance(domain, Range) or domain.min is None:
        return feature
    return replace(feature, domain=replace(domain, min=low if low is not None and math.isfinite(low) else None))


def _upper(feature: Feature, seen: ObservedFeature) -> Feature:
    domain, (_, high) = feature.domain, _ends(feature, seen)
    if not isinstance(domain, Range) or domain.max is None:
        return feature
    return replace(feature, domain=replace(domain, max=high if high is not None and math.isfinite(high) else None))


def _ends(feature: Feature, seen: ObservedFeature) -> tuple[float | None, float | None]:
    """Smallest and largest number, also of text that reads as numbers."""
    domain = feature.domain
    if not isinstance(domain, Range) or not domain.parse:
        return bounds(seen.values)
    read = (reads_as(text, domain.parse) for text in texts(seen.values).values.to_pylist())
    numbers = [value for value in read if value is not None and not math.isnan(value)]
    return (min(numbers), max(numbers)) if numbers else (None, None)


def _allow_nan(feature: Feature, seen: ObservedFeature) -> Feature:
    domain = feature.domain
    return replace(feature, domain=replace(domain, disallow_nan=False)) if isinstance(domain, Range) else feature


def _allow_inf(feature: Feature, seen: ObservedFeature) -> Feature:
    domain = feature.domain
    return replace(feature, domain=replace(domain, disallow_inf=False)) if isinstance(domain, Range) else feature


def _time(feature: Feature, seen: ObservedFeature) -> Feature:
    domain, table = feature.domain, time_table(seen.values)
    if not isinstance(domain, Time) or table is None:
        return replace(feature, domain=None)
    domain = replace(domain, years=None)  # as likely other years as wrong times
    mass = rounded_down(Fraction(int(table.counts[is_time(table, domain)].sum()), table.total))
    return replace(feature, domain=replace(domain, min_mass=mass) if mass else None)


def _unique(feature: Feature, seen: ObservedFeature) -> Feature:
    wanted, distinct = feature.unique or Count(), distinct_values(seen.values)
    low = None if wanted.min is None else min(wanted.min, distinct)
    return replace(feature, unique=Count(low, None if wanted.max is None else max(wanted.max, distinct)))


def _counts(feature: Feature, seen: ObservedFeature) -> Feature:
    """Value counts as wide as the numbers of values of each level."""
    lists = seen.column.levels[:-1]
    wide = []
    for level, wanted in enumerate(feature.value_counts or (Count(),)):
        if lists and (level >= len(lists) or not lists[level].count):
            wide.append(wanted)
            continue
        low, high = (int(end or 0) for end in bounds(lists[level])) if lists else (1, 1)
        least = None if wanted.min is None else min(wanted.min, low)
        wide.append(Count(least, None if wanted.max is None else max(wanted.max, high)))
    return replace(feature, value_counts=tuple(wide))


def _free_counts(feature: Feature, seen: ObservedFeature) -> Feature:
    """Any number of values, of as many levels as the data has."""
    levels, _ = nesting(seen.column)
    return replace(feature, shape=None, value_counts=(Count(),) * max(levels, 1))


def _unknown(feature: Feature, seen: ObservedFeature) -> Feature:
    """The feature without what statistics cannot decide."""
    return replace(feature, domain=None, unique=None, value_counts=tuple(Count() for _ in feature.value_counts))


def _comparators(feature: Feature, anomaly: str, seen: ObservedFeature) -> Feature:
    """The comparators that have the anomaly, of either change: raised to their number, or gone where there is none."""
    for change, control in seen.controls.items():
        kept = dict(getattr(feature, change))
        for name, most in getattr(feature, change).items():
            # Validated with this comparator alone, since two of them may share an anomaly (both divergences do).
            alone = _with_bounds(replace(feature, drift={}, skew={}), change, {name: most})
            for struct in reversed(seen.path[:-1]):
                alone = Feature(struct, "struct", fields=(alone,))
            if not any(
                (drifted.split, drifted.type) == (seen.split, anomaly)
                for drifted in drift_anomalies(seen.statistics, control, Schema((alone,)), [alone], change)
            ):
                continue
            number = None if anomaly == CONTROL_MISSING else _measured(seen, control, name)
            if number is None or not math.isfinite(number):
                del kept[name]
            else:
                kept[name] = _rounded_up(number)
        feature = _with_bounds(feature, change, kept)
    return feature


def _measured(seen: ObservedFeature, control: Statistics, comparator: str) -> float | None:
    name = seen.split if seen.split in control.splits else next(iter(control.splits))
    other = seen.within(control.state(name).columns)
    if other is None:
        return None
    wanted = COMPARATORS[comparator]
    distance: float | None = getattr(Comparison(seen.column, other).measure(wanted.measure), wanted.field)
    return distance


def _rounded_up(number: float) -> float:
    """The number rounded up to six digits, so that it passes its own bound when validated again."""
    digits = 5 - math.floor(math.log10(number)) if number > 0 else 0
    rounded = round(number, digits)
    return rounded if rounded >= number else round(rounded + 10.0**-digits, digits)


_WAYS: Final[Mapping[str, Callable[[Feature, ObservedFeature], Feature]]] = {
    "SCHEMA_NEW_COLUMN": _included,  # of an environment; one that is in no schema is inferred
    "UNEXPECTED_DATA_TYPE": _type,
    "FEATURE_TYPE_NOT_PRESENT": _presence,
    "FEATURE_TYPE_LOW_FRACTION_PRESENT": _presence,
    "FEATURE_TYPE_LOW_NUMBER_PRESENT": _presence,
    "FEATURE_TYPE_LOW_NUMBER_VALUES": _counts,
    "FEATURE_TYPE_HIGH_NUMBER_VALUES": _counts,
    "VALUE_NESTEDNESS_MISMATCH": _free_counts,
    "INVALID_FEATURE_SHAPE": _free_counts,
    "FEATURE_TYPE_LOW_UNIQUE": _unique,
    "FEATURE_TYPE_HIGH_UNIQUE": _unique,
    "ENUM_TYPE_UNEXPECTED_STRING_VALUES": _texts,
    "ENUM_TYPE_INVALID_UTF8": _as_bytes,
    "BOOL_TYPE_SMALL_INT": _as_range,
    "BOOL_TYPE_BIG_INT": _as_range,
    "BOOL_TYPE_UNEXPECTED_FLOAT": _as_range,
    "BOOL_TYPE_UNEXPECTED_STRING": _no_domain,
    "INT_TYPE_SMALL_INT": _lower,
    "INT_TYPE_BIG_INT": _upper,
    "INT_TYPE_NOT_INT_STRING": _no_domain,
    "FLOAT_TYPE_SMALL_FLOAT": _lower,
    "FLOAT_TYPE_BIG_FLOAT": _upper,
    "FLOAT_TYPE_STRING_NOT_FLOAT": _no_domain,
    "FLOAT_TYPE_HAS_NAN": _allow_nan,
    "FLOAT_TYPE_HAS_INF": _allow_inf,
    "TIME_TYPE_UNEXPECTED_VALUES": _time,
    "STATS_NOT_AVAILABLE": _unknown,
}
