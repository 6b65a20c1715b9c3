"""What is wrong with a schema itself, by TFDV's names and triggers: raised as it is built, before any data is seen."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ...errors import InputError
from .checks import GX_SEVERITIES
from .comparators import COMPARATORS
from .feature import (
    ANOMALIES,
    CHANGES,
    LOG_RULES,
    SEVERITIES,
    STAGES,
    TYPES,
    UNCHECKED,
    Bool,
    Count,
    Feature,
    Range,
    Semantic,
    Severity,
    Time,
    Values,
)
from .time_formats import UNIX, format_problem

if TYPE_CHECKING:
    from .schema import Schema
    from .weighted_feature import WeightedFeature

INVALID: Final = "INVALID_SCHEMA_SPECIFICATION"
INVALID_DOMAIN: Final = "INVALID_DOMAIN_SPECIFICATION"
BAD_BOOL: Final = "BOOL_TYPE_INVALID_CONFIG"
WRONG_DOMAIN: Final = "DOMAIN_INVALID_FOR_TYPE"
COLLISION: Final = "WEIGHTED_FEATURE_NAME_COLLISION"
_LARGEST: Final = sys.float_info.max  # a whole number may lie beyond it, which `math.isfinite` does not take


@dataclass(frozen=True)
class Problem:
    """One contradiction in a schema.

    Attributes:
        anomaly: What TFDV calls it.
        feature: Which feature; None: the schema itself.
        message: What is wrong.
        fix: What to do about it.
    """

    anomaly: str
    feature: str | None
    message: str
    fix: str


class SchemaError(InputError):
    """A schema that contradicts itself.

    Attributes:
        problems: All that is wrong; the message is the first.
    """

    problems: tuple[Problem, ...] = ()

    def at(self, where: str) -> SchemaError:
        """The same error with the "file:line" where it stands."""
        located = SchemaError(self.message, fix=self.fix, where=where)
        located.problems = self.problems
        return located


def raise_problems(problems: Iterable[Problem], where: str | None = None) -> None:
    """Raise one error for all problems, if there are any.

    Raises:
        SchemaError: There is one.
    """
    all_problems = tuple(problems)
    if not all_problems:
        return
    first, *others = all_problems
    more = f" (and {len(others)} more)" if others else ""
    error = SchemaError(f"{first.message} [{first.anomaly}]{more}", fix=first.fix, where=where)
    error.problems = all_problems
    raise error


def schema_problems(schema: Schema) -> Iterator[Problem]:
    """Everything that is wrong with a schema."""
    yield from _twice(schema.features, "feature")
    yield from _count(None, "rows of the schema", Count(schema.min_rows, schema.max_rows))
    for change, ratio in (("drift", schema.rows_drift), ("version", schema.rows_version)):
        if ratio is not None:
            ends = [end for end in (ratio.min, ratio.max) if end is not None]
            if ends != sorted(ends) or not all(0 <= end <= _LARGEST for end in ends):
                yield Problem(INVALID, None, f"{change} of the rows: {ratio.min} to {ratio.max} is not a range",
                              "make min at most max, from 0")  # fmt: skip
    yield from _severity(None, "the schema", schema.severity)
    for check in schema.checks:
        if check.severity not in SEVERITIES or not check.sql.strip() or not check.feature:
            yield Problem(INVALID, check.feature, f"a check of {check.feature or 'no feature'} with the severity "
                          f"{check.severity!r} and the SQL {check.sql!r}",
                          f"give a feature, an expression and one of {', '.join(SEVERITIES)}")  # fmt: skip
    for expectation in schema.expectations:
        if expectation.severity not in GX_SEVERITIES:
            yield Problem(INVALID, None, f"{expectation.type}: there is no severity {expectation.severity!r}",
                          f"use {', '.join(GX_SEVERITIES)}")  # fmt: skip
    for feature in schema.features:
        yield from feature_problems(feature)
    yield from _twice(schema.weighted, "weighted feature")
    for pair in schema.weighted:
        yield from weighted_problems(pair, schema.features)


def weighted_problems(pair: WeightedFeature, features: Iterable[Feature]) -> Iterator[Problem]:
    """Everything that is wrong with a weighted feature among features."""
    name, what, known = pair.name, f"weighted feature {pair.name!r}", {feature.name: feature for feature in features}
    if not name:
        yield Problem(INVALID, name, "a weighted feature has no name", "name it")
    if pair.stage and pair.stage not in STAGES:
        yield Problem(INVALID, name, f"{what}: there is no stage {pair.stage!r}", f"use one of {', '.join(STAGES)}")
    if pair.stage in UNCHECKED:
        return
    if name in known and known[name].stage not in UNCHECKED:
        yield Problem(COLLISION, name, f"{what} is named as a feature is", "rename one of the two")
    for column, role in ((pair.value, "values"), (pair.weight, "weights")):
        if column not in known:
            yield Problem(INVALID, name, f"{what}: its {role} are {f'of {column!r}, which is ' if column else ''}not a "
                          "feature of the schema", "add the feature, or name another")  # fmt: skip


def _twice(features: Iterable[Feature | WeightedFeature], what: str) -> Iterator[Problem]:
    seen: set[str] = set()
    for feature in features:
        if feature.name in seen:
            yield Problem(INVALID, feature.name, f"{what} {feature.name!r} appears twice", "remove one of the two")
        seen.add(feature.name)


def feature_problems(feature: Feature) -> Iterator[Problem]:
    """Everything that is wrong with a feature by itself."""
    name, what = feature.name, f"feature {feature.name!r}"
    if feature.stage and feature.stage not in STAGES:
        yield Problem(INVALID, name, f"{what}: there is no stage {feature.stage!r}", f"use one of {', '.join(STAGES)}")
    if feature.request_log and feature.request_log not in LOG_RULES:
        yield Problem(INVALID, name, f"{what}: there is no rule {feature.request_log!r} for the request log",
                      f"use one of {', '.join(LOG_RULES)}")  # fmt: skip
    if any(field.request_log for field in feature.fields):
        yield Problem(INVALID, name, f"{what}: the request log has rules for whole columns, not for fields of a struct",
                      "write it at the column")  # fmt: skip
    if feature.stage in UNCHECKED:
        return
    if feature.type not in TYPES:
        yield Problem("FEATURE_MISSING_TYPE", name, f"{what}: there is no type {feature.type!r}",
                      f"use one of {', '.join(TYPES)}")  # fmt: skip
        return
    presence, domain = feature.presence, feature.domain
    if presence.min_fraction is not None and not 0 <= presence.min_fraction <= 1:
        yield Problem(INVALID, name, f"{what}: min_fraction {presence.min_fraction} is not a share", "use 0 to 1")
    if presence.min_count is not None and presence.min_count < 0:
        yield Problem(INVALID, name, f"{what}: min_count {presence.min_count} is negative", "use 0 or more")
    for level, count in enumerate(feature.value_counts):
        yield from _count(name, f"{what}: value_count" + (f" of level {level}" if level else ""), count)
    for size in feature.shape or ():
        if size <= 0:
            yield Problem(INVALID, name, f"{what}: a dimension of {size} values", "use 1 or more")
            break
    if feature.shape is not None and feature.value_counts:
        yield Problem(INVALID, name, f"{what}: shape and value_count exclude each other", "remove one of the two")
    for both in sorted(set(feature.in_environments) & set(feature.not_in_environments)):
        yield Problem(INVALID, name, f"{what}: in and not in environment {both!r}", "remove one of the two")
    if isinstance(domain, Values):
        yield from _values(feature, what, domain)
    elif isinstance(domain, Range):
        yield from _range(feature, what, domain)
    elif isinstance(domain, Bool):
        yield from _bool(feature, what, domain)
    elif isinstance(domain, Time):
        yield from _time(feature, what, domain)
    elif isinstance(domain, Semantic) and feature.type not in ("string", "bytes", "any"):
        yield Problem(WRONG_DOMAIN, name, f"{what}: {domain.kind} is for text, not {feature.type}", "remove it")
    elif isinstance(domain, Semantic):
        yield from _image(name, what, domain)
    yield from _severity(name, what, feature.severity)
    for change in CHANGES:
        yield from _bounds(feature, f"{what}: {change}", getattr(feature, change))
    if feature.fields and feature.type != "struct":
        yield Problem(INVALID, name, f"{what}: fields are of a struct, not of {feature.type}", "fix the type")
    yield from _twice(feature.fields, f"{what}: field")
    # A struct's fields are features; their problems are reported under the column, by which anomalies are listed.
    for field in feature.fields:
        for problem in feature_problems(field):
            yield replace(problem, feature=name, message=f"{what}: {problem.message}")


def _image(feature: str, what: str, domain: Semantic) -> Iterator[Problem]:
    share, most = domain.min_supported_fraction, domain.max_bytes
    if domain.kind != "image" and (share, most) != (None, None):
        yield Problem(INVALID, feature, f"{what}: min_supported_fraction and max_bytes are of images", "remove them")
    if share is not None and not 0 <= share <= 1:
        yield Problem(INVALID, feature, f"{what}: min_supported_fraction {share} is not a share", "use 0 to 1")
    if most is not None and most < 0:
        yield Problem(INVALID, feature, f"{what}: max_bytes {most} is negative", "use 0 or more")


def _bounds(feature: Feature, what: str, bounds: Mapping[str, float]) -> Iterator[Problem]:
    for comparator, most in bounds.items():
        if comparator not in COMPARATORS:
            yield Problem(INVALID, feature.name, f"{what}: there is no comparator {comparator!r}",
                          f"use one of {', '.join(COMPARATORS)}")  # fmt: skip
        elif not 0 <= most <= _LARGEST:
            yield Problem(INVALID, feature.name, f"{what}: {comparator} {most} is not a bound", "use a number from 0")
        elif feature.type in COMPARATORS[comparator].useless:
            yield Problem(INVALID, feature.name, f"{what}: {comparator} means nothing for {feature.type}",
                          "use l_infinity, jensen_shannon or psi")  # fmt: skip


def _count(feature: str | None, what: str, count: Count) -> Iterator[Problem]:
    low, high = count.min or 0, count.max
    if low < 0:
        yield Problem(INVALID, feature, f"{what}: min {low} is negative", "use 0 or more")
    if high is not None and high < low:
        yield Problem(INVALID, feature, f"{what}: {low} to {high} is not a range", "make min at most max")


def _values(feature: Feature, what: str, domain: Values) -> Iterator[Problem]:
    if feature.type not in ("string", "bytes"):
        yield Problem(WRONG_DOMAIN, feature.name, f"{what}: a list of values is for text, not {feature.type}",
                      "use min and max")  # fmt: skip
    yield from _mass(feature, what, domain.min_mass)
    seen: set[str] = set()
    for value in domain.values:
        if value in seen:
            yield Problem(INVALID_DOMAIN, feature.name, f"{what}: the value {value!r} appears twice",
                          "remove one of the two")  # fmt: skip
        seen.add(value)


def _range(feature: Feature, what: str, domain: Range) -> Iterator[Problem]:
    name = feature.name
    if domain.parse:
        if feature.type not in ("string", "bytes"):
            yield Problem(WRONG_DOMAIN, name, f"{what}: only text can be parsed, not {feature.type}", "remove parse")
    elif feature.type not in ("int", "float"):
        yield Problem(WRONG_DOMAIN, name, f"{what}: a range is for int or float, not {feature.type}",
                      "remove it, fix the type, or say what the text reads as: `parse: int`")  # fmt: skip
    low, high = domain.min, domain.max
    # Written as "not within" so that NaN, which compares with nothing, is refused as well.
    if any(end is not None and not -_LARGEST <= end <= _LARGEST for end in (low, high)):
        yield Problem(INVALID_DOMAIN, name, f"{what}: the ends of a range are finite numbers", "leave out an open end")
    elif low is not None and high is not None and high < low:
        yield Problem(INVALID_DOMAIN, name, f"{what}: {low} to {high} is not a range", "make min at most max")


def _bool(feature: Feature, what: str, domain: Bool) -> Iterator[Problem]:
    name, texts = feature.name, domain.texts
    if feature.type not in ("string", "bytes", "int", "float", "bool"):
        yield Problem(WRONG_DOMAIN, name, f"{what}: a {feature.type} cannot be a bool", "use it on int, float or text")
    elif feature.type not in ("string", "bytes"):
        if texts:
            yield Problem(BAD_BOOL, name, f"{what}: a {feature.type} has no texts for true and false",
                          "use `domain: bool`")  # fmt: skip
    elif not texts:
        yield Problem(BAD_BOOL, name, f"{what}: a bool in text needs two texts", "give true_value and false_value")
    elif len(set(texts)) < len(texts):
        yield Problem(INVALID_DOMAIN, name, f"{what}: true and false are both {texts[0]!r}", "give two texts")


def _time(feature: Feature, what: str, domain: Time) -> Iterator[Problem]:
    name, kinds = feature.name, ("int",) if domain.format in UNIX else ("string", "bytes")
    problem = format_problem(domain.format)
    if problem is not None:
        yield Problem(INVALID_DOMAIN, name, f"{what}: {domain.format!r} is not a format of time: {problem}",
                      f"use directives of strptime, as %Y-%m-%d, or one of {', '.join(UNIX)}")  # fmt: skip
    elif feature.type not in (*kinds, "any"):
        yield Problem(WRONG_DOMAIN, name, f"{what}: the time {domain.format} is for {kinds[0]}, not {feature.type}",
                      "remove it; timestamps and dates need none")  # fmt: skip
    if domain.years is not None:
        first, last = domain.years.min, domain.years.max
        if "%Y" not in domain.format:
            yield Problem(INVALID_DOMAIN, name, f"{what}: {domain.format!r} has no %Y, so its years are not known",
                          "remove `years`")  # fmt: skip
        elif (0 if first is None else first) > (9999 if last is None else last):
            yield Problem(INVALID_DOMAIN, name, f"{what}: no year is from {first} to {last}", "swap the two")
    yield from _mass(feature, what, domain.min_mass)


def _mass(feature: Feature, what: str, mass: float) -> Iterator[Problem]:
    if not 0 <= mass <= 1:
        yield Problem(INVALID, feature.name, f"{what}: min_mass {mass} is not a share", "use 0 to 1")


def _severity(feature: str | None, what: str, severity: Mapping[str, Severity]) -> Iterator[Problem]:
    for name, value in severity.items():
        if name not in ANOMALIES:
            yield Problem(INVALID, feature, f"{what}: there is no anomaly {name!r}",
                          f"use one of {', '.join(ANOMALIES)}")  # fmt: skip
        if value not in SEVERITIES:
            yield Problem(INVALID, feature, f"{what}: there is no severity {value!r}", f"use {', '.join(SEVERITIES)}")
