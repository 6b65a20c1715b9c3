"""A schema written as `schema.yaml`, as people read and edit it; evidence becomes comments."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import yaml

from .checks import Check, Expectation
from .schema import CHANGES, Bool, Count, Feature, Range, Ratio, Schema, Semantic, Time, Values

FORMAT: Final = "drivetrain.schema/1"

_VERBATIM: Final = re.compile(r"[ !#-\[\]-~\u00a0-\u2027\u202a-\ud7ff]*")  # needs no escape between double quotes

FEATURE_KEYS: Final = (
    "type", "presence", "stage", "request_log", "shape", "value_count", "unique", "in_environments",
    "not_in_environments", "domain", "severity",
    *CHANGES,
    "fields",
)  # fmt: skip

CHECK_KEYS: Final = ("feature", "sql", "base", "severity", "description", "environments", "slice", "base_slice")

_HEAD: Final = """\
# What every span of this data must look like. Edit freely: validation is against what stands here.
"""


def schema_to_yaml(schema: Schema) -> str:
    """The schema as text; reading it back gives an equal schema. Evidence becomes comments."""
    lines = [_HEAD + f"format: {FORMAT}", *rows_lines(schema)]
    if schema.environments:
        lines += _wrapped("environments: [", [_scalar(name) for name in schema.environments])
    if schema.severity:
        lines.append(f"severity: {_flow(schema.severity)}")
    lines.append("features:" if schema.features else "features: {}")
    for feature in schema.features:
        lines += feature_lines(feature)
    if schema.weighted:
        lines.append("weighted_features:")
    for pair in schema.weighted:
        parts = {"value": pair.value, "weight": pair.weight} | ({"stage": pair.stage} if pair.stage else {})
        lines.append(f"  {_scalar(pair.name, key=True)}: {_flow(parts)}")
    lines += _check_lines(schema.checks)
    lines += _expectation_lines(schema.expectations)
    return "\n".join(lines) + "\n"


def rows_lines(schema: Schema) -> list[str]:
    """The line about the number of rows, if there is one."""
    rows: dict[str, Any] = _ends(Count(schema.min_rows, schema.max_rows))
    ratios = {"drift": schema.rows_drift, "version": schema.rows_version}
    rows |= {name: _ends(ratio) for name, ratio in ratios.items() if ratio is not None}
    return [f"rows: {_flow(rows)}"] if rows else []


def feature_lines(feature: Feature) -> list[str]:
    """A feature's lines, its name first, as they stand under `features:`."""
    lines = [f"  {_scalar(feature.name, key=True)}:", f"    type: {feature.type}"]
    presence = {"min_fraction": feature.presence.min_fraction, "min_count": feature.presence.min_count}
    if any(value is not None for value in presence.values()):
        lines.append(f"    presence: {_flow({name: value for name, value in presence.items() if value is not None})}")
    if feature.stage:
        lines.append(f"    stage: {feature.stage}")
    if feature.request_log:
        lines.append(f"    request_log: {feature.request_log}")
    if feature.shape is not None:
        lines += _wrapped("    shape: [", [_scalar(size) for size in feature.shape])
    if feature.value_counts:
        counts = [_flow(_ends(count)) for count in feature.value_counts]
        lines += _wrapped("    value_count: [", counts) if len(counts) > 1 else [f"    value_count: {counts[0]}"]
    if feature.unique is not None:
        lines.append(f"    unique: {_flow(_ends(feature.unique))}")
    for key in ("in_environments", "not_in_environments"):
        if getattr(feature, key):
            lines += _wrapped(f"    {key}: [", [_scalar(name) for name in getattr(feature, key)])
    domain = feature.domain
    if isinstance(domain, Values):
        lines.append("    domain:")
        if domain.min_mass != 1:
            lines.append(f"      min_mass: {_scalar(domain.min_mass)}")
        lines += _wrapped("      values: [", [_scalar(value) for value in domain.values])
    elif isinstance(domain, Range):
        shown: dict[str, Any] = {"parse": domain.parse} if domain.parse else {}
        shown |= {name: getattr(domain, name) for name in ("min", "max") if getattr(domain, name) is not None}
        shown |= {name: True for name in ("disallow_nan", "disallow_inf") if getattr(domain, name)}
        lines.append(f"    domain: {_flow({'range': shown})}")
    elif isinstance(domain, Bool):
        texts = {key: getattr(domain, key) for key in ("true_value", "false_value") if getattr(domain, key) is not None}
        lines.append(f"    domain: {_flow({'bool': texts}) if texts else 'bool'}")
    elif isinstance(domain, Time):
        time: dict[str, Any] = {"format": domain.format}
        time |= {"min_mass": domain.min_mass} if domain.min_mass != 1 else {}
        time |= {"years": _ends(domain.years)} if domain.years is not None else {}
        lines.append(f"    domain: {_flow({'time': time})}")
    elif isinstance(domain, Semantic):
        limits = {
            key: getattr(domain, key) for key in ("min_supported_fraction", "max_bytes")
            if getattr(domain, key) is not None
        }  # fmt: skip
        lines.append(f"    domain: {_flow({domain.kind: limits}) if limits else domain.kind}")
    for change in CHANGES:
        if getattr(feature, change):
            lines.append(f"    {change}: {_flow(getattr(feature, change))}")
    if feature.severity:
        lines.append(f"    severity: {_flow(feature.severity)}")
    lines = _with_evidence(lines, feature.evidence)
    if feature.fields:
        lines.append("    fields:")
        lines += [f"    {line}" for field in feature.fields for line in feature_lines(field)]
    return lines


def _with_evidence(lines: list[str], evidence: str) -> list[str]:
    """The lines with comments: evidence that begins with a line's key behind that line, other behind the name."""
    line_of_key = {line[4:].partition(":")[0]: index for index, line in enumerate(lines) if index and line[4] != " "}
    comments: dict[int, list[str]] = {}
    for sentence in evidence.split("\n"):
        key, colon, text = sentence.partition(": ")
        index = line_of_key.get(key, 0) if colon else 0
        # A line break within a comment would end it, and what follows would be read as YAML.
        words = "".join(c if c.isprintable() else " " for c in (text if index else sentence)).split()
        if words:
            comments.setdefault(index, []).append(" ".join(words))
    return [
        f"{line}  # {', '.join(comments[index])}" if index in comments else line for index, line in enumerate(lines)
    ]


def _ends(count: Count | Ratio) -> dict[str, float]:
    return {name: value for name, value in (("min", count.min), ("max", count.max)) if value is not None}


def _wrapped(head: str, items: list[str], width: int = 110) -> list[str]:
    """`[a, b, …]` over as many lines as it takes."""
    lines, line = [], head
    for index, item in enumerate(items):
        piece = item + ("]" if index == len(items) - 1 else ",")
        if len(line) + len(piece) > width and line.strip():
            lines.append(line.rstrip())
            line = " " * 8
        line += piece + " "
    return [*lines, line.rstrip() if items else head + "]"]


def _flow(value: Mapping[str, Any]) -> str:
    pairs = (
        f"{_scalar(name, key=True)}: {_flow(item) if isinstance(item, Mapping) else _scalar(item)}"
        for name, item in value.items()
    )
    return "{" + ", ".join(pairs) + "}"


def _scalar(value: object, *, key: bool = False) -> str:
    """One scalar in flow context: plain where YAML reads it back as the same value, else in double quotes."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        text = repr(value)
        return text.replace("e", ".0e") if "e" in text and "." not in text else text  # YAML 1.1 wants the point
    if value and value.replace("_", "").isalnum() and value.isascii():
        # Values and names are read by their spelling, so 9E, NO and 007 may stay plain; ~ and "" may not.
        return value
    if _VERBATIM.fullmatch(value):
        return f'"{value}"'
    text = yaml.safe_dump(value, default_style='"', allow_unicode=True, width=10**9).strip()
    return text if not key or "\n" not in text else text.replace("\n", "\\n")


def _check_lines(checks: Sequence[Check]) -> Iterator[str]:
    if checks:
        yield "checks:"
    for check in checks:
        entries = {key: getattr(check, key) for key in CHECK_KEYS}
        yield from _item(
            {key: value for key, value in entries.items() if value and (key, value) != ("severity", "ERROR")}
        )


def _expectation_lines(expectations: Sequence[Expectation]) -> Iterator[str]:
    if expectations:
        yield "expectations:"
    for expectation in expectations:
        entries: dict[str, Any] = {"type": expectation.type, "kwargs": expectation.kwargs}
        entries |= {"severity": expectation.severity} if expectation.severity != "critical" else {}
        yield from _item(entries | ({"meta": expectation.meta} if expectation.meta else {}))


def _item(entries: Mapping[str, Any]) -> Iterator[str]:
    for number, (key, value) in enumerate(entries.items()):
        yield f"  {' ' if number else '-'} {key}: {_json_flow(value)}"


def _json_flow(value: Any) -> str:
    """JSON's values in flow style, every text in quotes: an expectation's arguments may hold any text."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_json_flow(str(key))}: {_json_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple, set, frozenset)):
        return "[" + ", ".join(map(_json_flow, value)) + "]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (int, float)):
        return repr(value)
    return yaml.safe_dump(str(value), default_style='"', allow_unicode=True, width=10**9).strip()
