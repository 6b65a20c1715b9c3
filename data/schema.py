"""The schema: what every span of the data must look like. Values that a person reads, edits and accepts.

On disk it is `schema.yaml` (see `schema_yaml`), and the same as a Great Expectations suite (see `schema_expectations`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

from ..errors import InputError

Severity = Literal["ERROR", "WARNING", "INFO"]
SEVERITIES: Final[tuple[Severity, ...]] = ("ERROR", "WARNING", "INFO")

TYPES: Final = (
    "any", "bool", "int", "float", "string", "bytes", "timestamp", "date", "time", "duration", "list", "struct",
)  # fmt: skip

# Names are TFDV's (anomalies.md), so that its users know what they read; the values are the default severities.
ANOMALIES: Final[Mapping[str, Severity]] = {
    "DATA_MISSING": "ERROR",
    "DATASET_LOW_NUM_EXAMPLES": "ERROR",
    "DATASET_HIGH_NUM_EXAMPLES": "ERROR",
    "SCHEMA_MISSING_COLUMN": "ERROR",
    "SCHEMA_NEW_COLUMN": "ERROR",
    "UNEXPECTED_DATA_TYPE": "ERROR",
    "FEATURE_TYPE_NOT_PRESENT": "ERROR",
    "FEATURE_TYPE_LOW_FRACTION_PRESENT": "ERROR",
    "FEATURE_TYPE_LOW_NUMBER_PRESENT": "ERROR",
    "ENUM_TYPE_UNEXPECTED_STRING_VALUES": "ERROR",
    "ENUM_TYPE_INVALID_UTF8": "ERROR",
    "BOOL_TYPE_SMALL_INT": "ERROR",
    "BOOL_TYPE_BIG_INT": "ERROR",
    "BOOL_TYPE_UNEXPECTED_FLOAT": "ERROR",
    "BOOL_TYPE_UNEXPECTED_STRING": "ERROR",
    "INT_TYPE_SMALL_INT": "ERROR",
    "INT_TYPE_BIG_INT": "ERROR",
    "FLOAT_TYPE_SMALL_FLOAT": "ERROR",
    "FLOAT_TYPE_BIG_FLOAT": "ERROR",
    "FLOAT_TYPE_HAS_NAN": "ERROR",
    "FLOAT_TYPE_HAS_INF": "ERROR",
}


@dataclass(frozen=True)
class Presence:
    """How often a feature must be there (not null).

    Attributes:
        min_fraction: Smallest share of rows, 0 to 1; None: none demanded.
        min_count: Smallest number of rows; None: none demanded.
    """

    min_fraction: float | None = None
    min_count: int | None = None

    @property
    def required(self) -> bool:
        """Whether the column must exist."""
        return bool(self.min_fraction) or bool(self.min_count)


@dataclass(frozen=True)
class Values:
    """The texts a feature may take.

    Attributes:
        values: All of them, no two equal.
        min_mass: Share of the rows present that must be among them; 1: all.
    """

    values: tuple[str, ...]
    min_mass: float = 1.0


@dataclass(frozen=True)
class Range:
    """The numbers a feature may take; ends belong to it, None is open.

    Attributes:
        min: Smallest value.
        max: Largest value.
        disallow_nan: Whether NaN is an anomaly (floats).
        disallow_inf: Whether ±Inf is an anomaly of its own (floats); it breaks `min` and `max` in any case.
    """

    min: float | None = None
    max: float | None = None
    disallow_nan: bool = False
    disallow_inf: bool = False


@dataclass(frozen=True)
class Bool:
    """A feature of two values: 0 and 1 for numbers, or two texts.

    Attributes:
        true_value: The text that means true; None for numbers.
        false_value: The text that means false; None for numbers.
    """

    true_value: str | None = None
    false_value: str | None = None


Domain = Values | Range | Bool


@dataclass(frozen=True)
class Feature:
    """What is expected of one column.

    Attributes:
        name: The column's name.
        type: One of `TYPES`; "any" checks none. A "float" also takes integers.
        presence: How often it must be there.
        domain: What values it may take; None: any.
        severity: Severities by anomaly name, before the schema's own.
        evidence: Why the lines were proposed; a comment in the file, no part of the schema's meaning.
    """

    name: str
    type: str = "any"
    presence: Presence = Presence()
    domain: Domain | None = None
    severity: Mapping[str, Severity] = field(default_factory=dict)
    evidence: str = field(default="", compare=False)


@dataclass(frozen=True)
class Schema:
    """What every data set (split) must look like.

    Attributes:
        features: In the data's order.
        min_rows: Fewest rows of a data set; None: one.
        max_rows: Most rows of a data set; None: no limit.
        severity: Severities by anomaly name, for all features; else `ANOMALIES` says.

    Raises:
        InputError: It contradicts itself; the message names the feature.
    """

    features: tuple[Feature, ...] = ()
    min_rows: int | None = None
    max_rows: int | None = None
    severity: Mapping[str, Severity] = field(default_factory=dict)

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for feature in self.features:
            if feature.name in seen:
                raise InputError(f"schema: feature {feature.name!r} stands twice", fix="remove one of the two")
            seen.add(feature.name)
        low, high = self.min_rows or 0, self.max_rows
        if low < 0 or (high is not None and high < low):
            raise InputError(f"schema: rows from {low} to {high} is no range", fix="make min at most max")
        _check_severity("schema", self.severity)
        for feature in self.features:
            check_feature(feature)

    def feature(self, name: str) -> Feature | None:
        """The feature of that name, or None."""
        return next((feature for feature in self.features if feature.name == name), None)

    def to_html(self) -> str:
        """A self-contained page."""
        from ..report.schema import schema_page

        return schema_page({**asdict(self), "features": [_described(feature) for feature in self.features]})

    def _repr_html_(self) -> str:
        from ..report.html import framed

        return framed(self.to_html())

    def severity_of(self, anomaly: str, feature: str | None = None) -> Severity:
        """How serious an anomaly is, by the feature's word, else the schema's, else the default."""
        spec = self.feature(feature) if feature is not None else None
        if spec is not None and anomaly in spec.severity:
            return spec.severity[anomaly]
        return self.severity.get(anomaly, ANOMALIES[anomaly])


def _described(feature: Feature) -> dict[str, Any]:
    """A feature as plain values for a report."""
    domain = feature.domain
    text = ""
    values: tuple[str, ...] = ()
    if isinstance(domain, Values):
        share = f" in at least {domain.min_mass:.6g} of the rows" if domain.min_mass < 1 else ""
        text, values = f"{len(domain.values)} values{share}", domain.values
    elif isinstance(domain, Range):
        ends = ["−∞" if domain.min is None else f"{domain.min}", "∞" if domain.max is None else f"{domain.max}"]
        flags = [flag.replace("disallow_", "no ") for flag in ("disallow_nan", "disallow_inf") if getattr(domain, flag)]
        text = ", ".join([" to ".join(ends), *flags])
    elif isinstance(domain, Bool):
        text = "0 or 1" if domain.true_value is None else f"{domain.true_value!r} or {domain.false_value!r}"
    return {
        "name": feature.name,
        "type": feature.type,
        "min_fraction": feature.presence.min_fraction,
        "min_count": feature.presence.min_count,
        "domain": text,
        "values": list(values),
        "severity": dict(feature.severity),
        "evidence": feature.evidence,
    }


def check_feature(feature: Feature) -> None:
    """Refuse a feature that contradicts itself.

    Raises:
        InputError: Says what, and what to do about it.
    """
    what = f"feature {feature.name!r}"
    if feature.type not in TYPES:
        raise InputError(f"{what}: there is no type {feature.type!r}", fix=f"use one of {', '.join(TYPES)}")
    presence, domain = feature.presence, feature.domain
    if presence.min_fraction is not None and not 0 <= presence.min_fraction <= 1:
        raise InputError(f"{what}: min_fraction {presence.min_fraction} is no share", fix="use 0 to 1")
    if presence.min_count is not None and presence.min_count < 0:
        raise InputError(f"{what}: min_count {presence.min_count} is negative", fix="use 0 or more")
    if isinstance(domain, Values):
        _check_values(what, feature.type, domain)
    elif isinstance(domain, Range):
        if feature.type not in ("int", "float"):
            raise InputError(
                f"{what}: a range is for int or float, not {feature.type}", fix="remove it or fix the type"
            )
        if any(end is not None and not math.isfinite(end) for end in (domain.min, domain.max)):
            raise InputError(f"{what}: the ends of a range are finite numbers", fix="leave out an open end")
        if domain.min is not None and domain.max is not None and domain.max < domain.min:
            raise InputError(f"{what}: {domain.min} to {domain.max} is no range", fix="make min at most max")
    elif isinstance(domain, Bool):
        texts = (domain.true_value, domain.false_value)
        if feature.type == "string" and (None in texts or texts[0] == texts[1]):
            raise InputError(f"{what}: a bool in text needs two texts", fix="give true_value and false_value")
        if feature.type != "string" and (feature.type not in ("int", "float") or texts != (None, None)):
            raise InputError(f"{what}: a {feature.type} cannot be this bool", fix="use `domain: bool` on int or float")
    _check_severity(what, feature.severity)


def _check_values(what: str, kind: str, domain: Values) -> None:
    if kind not in ("string", "bytes"):
        raise InputError(f"{what}: a list of values is for string or bytes, not {kind}", fix="use min and max")
    if not 0 < domain.min_mass <= 1:
        raise InputError(f"{what}: min_mass {domain.min_mass} is no share", fix="use a number above 0, up to 1")
    seen: set[str] = set()
    for value in domain.values:
        if value in seen:
            raise InputError(f"{what}: the value {value!r} stands twice", fix="remove one of the two")
        seen.add(value)


def _check_severity(what: str, severity: Mapping[str, Severity]) -> None:
    for name, value in severity.items():
        if name not in ANOMALIES:
            raise InputError(f"{what}: there is no anomaly {name!r}", fix=f"use one of {', '.join(ANOMALIES)}")
        if value not in SEVERITIES:
            raise InputError(f"{what}: there is no severity {value!r}", fix=f"use {', '.join(SEVERITIES)}")
