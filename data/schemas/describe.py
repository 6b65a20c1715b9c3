"""A schema described in short texts: one plain dict per feature, for its table and its page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from .feature import CHANGES, Bool, Count, Feature, Range, Semantic, Time, Values
from .struct_fields import path_name, with_fields


def described(features: Iterable[Feature]) -> list[dict[str, Any]]:
    """The features, and the fields of structs by their paths, as plain values."""
    return [_described(replace(feature, name=path_name(path))) for path, feature in with_fields(features)]


def _described(feature: Feature) -> dict[str, Any]:
    domain = feature.domain
    text = ""
    values: tuple[str, ...] = ()
    if isinstance(domain, Values):
        text, values = f"{len(domain.values)} values{_at_least(domain.min_mass)}", domain.values
    elif isinstance(domain, Range):
        ends = ["−∞" if domain.min is None else f"{domain.min}", "∞" if domain.max is None else f"{domain.max}"]
        parsed = f"text that reads as {domain.parse}, " if domain.parse else ""
        flags = [flag.replace("disallow_", "no ") for flag in ("disallow_nan", "disallow_inf") if getattr(domain, flag)]
        text = parsed + ", ".join([" to ".join(ends), *flags])
    elif isinstance(domain, Bool):
        text = " or ".join(map(repr, domain.texts)) or "0 or 1"
    elif isinstance(domain, Time):
        text = f"time, {domain.reading}" + _at_least(domain.min_mass)
    elif isinstance(domain, Semantic):
        share, most = domain.min_supported_fraction, domain.max_bytes
        limits = [f"at least {share:.6g} of the values in a known format"] if share is not None else []
        limits += [f"at most {most} bytes"] if most is not None else []
        text = ", ".join([domain.kind.replace("_", " "), *limits])
    return {
        "name": feature.name,
        "type": feature.type,
        "min_fraction": feature.presence.min_fraction,
        "min_count": feature.presence.min_count,
        "domain": text,
        "values": list(values),
        "severity": dict(feature.severity),
        "valency": _valency(feature),
        "stage": feature.stage,
        "environments": [
            *(f"in {name}" for name in feature.in_environments),
            *(f"not in {name}" for name in feature.not_in_environments),
        ],
        "bounds": _bounds(feature),
        "evidence": feature.evidence.replace("\n", "; "),
    }


def _at_least(mass: float) -> str:
    return f" in at least {mass:.6g} of the rows" if mass < 1 else ""


def _valency(feature: Feature) -> list[str]:
    """How many values a row has, outermost first."""
    if feature.shape is not None:
        return [f"shape {list(feature.shape)}"]
    counts = [f"values per row: {_spelled(count)}" for count in feature.value_counts]
    return counts or ["any" if feature.type == "list" else "single"]


def _bounds(feature: Feature) -> list[str]:
    """What else is demanded of a feature, one short text each."""
    bounds = [] if feature.unique is None else [f"distinct: {_spelled(feature.unique)}"]
    bounds += [f"request log: {feature.request_log}"] if feature.request_log else []
    return bounds + [f"{kind}: {name} ≤ {most:g}" for kind in CHANGES for name, most in getattr(feature, kind).items()]


def _spelled(count: Count) -> str:
    low, high = count.min or 0, count.max
    return f"{low}" if low == high else f"{low} or more" if high is None else f"{low} to {high}"
