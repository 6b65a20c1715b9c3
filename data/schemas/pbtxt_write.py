"""A schema written as TFX's `schema.pbtxt`, and notes of what TFDV cannot express.

TFDV infers a shape where no row is missing and a value count elsewhere; so is a plain column written.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np

from .feature import LOG_TAG
from .pbtxt import dump
from .pbtxt_read import COMPARATORS, QUANTILES
from .pbtxt_scalars import single
from .schema import CHANGES, Bool, Count, Feature, Range, Schema, Semantic, Time, Values
from .schema_proto import SCHEMA_PROTO
from .struct_fields import Path, path_name, with_fields
from .time_formats import UNIX

_PROTO_TYPES: Final = {
    "int": "INT", "bool": "INT", "float": "FLOAT", "string": "BYTES", "bytes": "BYTES", "struct": "STRUCT",
    "any": "TYPE_UNKNOWN",
}  # fmt: skip
_ONE: Final = Count(1, 1)


class ExportedSchema(NamedTuple):
    """A schema as TFX's `schema.pbtxt`.

    Attributes:
        text: The file's text.
        notes: What TFDV cannot express, one line each.
    """

    text: str
    notes: tuple[str, ...]


def schema_to_pbtxt(schema: Schema) -> ExportedSchema:
    """The schema as TFDV's own writer would print it, and what TFDV cannot express."""
    notes: list[str] = []
    domains: list[dict[str, Any]] = []
    features = [_message(feature, (), domains, notes) for feature in schema.features]
    rows: dict[str, Any] = {"min_examples_count": schema.min_rows, "max_examples_count": schema.max_rows}
    for change, ratio in (("drift", schema.rows_drift), ("version", schema.rows_version)):
        if ratio is not None:
            ends = {"min_fraction_threshold": ratio.min, "max_fraction_threshold": ratio.max}
            rows[f"num_examples_{change}_comparator"] = {key: end for key, end in ends.items() if end is not None}
    rows = {key: value for key, value in rows.items() if value is not None}
    if schema.severity or any(feature.severity for _, feature in with_fields(schema.features)):
        notes.append("severities are not part of TFDV's schema; give them to its validation config")
    if schema.checks:
        notes.append("checks are not part of TFDV's schema; give them to its custom validation config")
    if schema.expectations:
        notes.append("expectations are not TFDV's: the schema goes without them")
    message: dict[str, Any] = {"feature": features, "string_domain": domains}
    message["default_environment"] = list(schema.environments)
    message["weighted_feature"] = [
        {"name": pair.name, "feature": {"step": [pair.value]}, "weight_feature": {"step": [pair.weight]}}
        | ({"lifecycle_stage": pair.stage} if pair.stage else {})
        for pair in schema.weighted
    ]
    if rows:
        message["dataset_constraints"] = rows
        if schema.max_rows is not None and schema.min_rows is None:
            notes.append("TFDV looks at the largest number of rows only where a smallest is given too")
    return ExportedSchema(dump(message, SCHEMA_PROTO, "Schema"), tuple(notes))


def _message(feature: Feature, above: Path, domains: list[dict[str, Any]], notes: list[str]) -> dict[str, Any]:
    """A feature and, of a struct, its fields; lists of texts are added to the schema's domains."""
    path = (*above, feature.name)
    name = path_name(path)
    item = {"name": feature.name, **dict(_written(replace(feature, name=name), notes))}
    if isinstance(feature.domain, Values):
        taken = {domain["name"] for domain in domains}
        while name in taken:  # a column may be named as a path is spelled
            name += "_"
        item["domain"] = name
        domains.append({"name": name, "value": list(feature.domain.values)})
        if feature.domain.min_mass < 1:
            item["distribution_constraints"] = {"min_domain_mass": feature.domain.min_mass}
    if feature.fields:
        fields = [_message(field, path, domains, notes) for field in feature.fields]
        item["struct_domain"] = {"feature": fields}
    return item


def _written(feature: Feature, notes: list[str]) -> Iterator[tuple[str, Any]]:
    """The fields of a feature beside its name and its domain of texts."""
    name = feature.name
    if feature.type in _PROTO_TYPES:
        yield "type", _PROTO_TYPES[feature.type]
    else:
        yield "type", "TYPE_UNKNOWN" if feature.type == "list" else "BYTES"
    if feature.type not in ("int", "float", "string", "bytes", "struct", "bool"):
        written = "BYTES, as TFDV reads it from CSV" if feature.type not in ("any", "list") else "of an unknown type"
        notes.append(f"{name} is {feature.type}, which TFDV does not have; it is written as {written}")
    presence = {"min_fraction": feature.presence.min_fraction, "min_count": feature.presence.min_count}
    presence = {key: value for key, value in presence.items() if value is not None}
    if presence:
        yield "presence", presence
    yield from _valency(feature)
    yield from _domain(feature, notes)
    for change in CHANGES:
        yield from _comparator(feature, change, notes)
    if feature.unique is not None:
        yield "unique_constraints", _ends(feature.unique)
        if feature.type not in ("string", "bytes"):
            notes.append(f"TFDV counts distinct values of text only, not those of {name}")
    yield "in_environment", list(feature.in_environments)
    yield "not_in_environment", list(feature.not_in_environments)
    if feature.stage:
        yield "lifecycle_stage", feature.stage
    if feature.request_log:
        yield "annotation", {"tag": [f"{LOG_TAG}{feature.request_log}"]}


def _valency(feature: Feature) -> Iterator[tuple[str, Any]]:
    if feature.shape is not None:
        yield "shape", {"dim": [{"size": size} for size in feature.shape]}
    elif len(feature.value_counts) > 1:
        yield "value_counts", {"value_count": [_ends(count) for count in feature.value_counts]}
    elif feature.value_counts:
        if feature.value_counts[0] != Count():
            yield "value_count", _ends(feature.value_counts[0])
    elif feature.type not in ("any", "list", "struct"):
        # One plain value, written as TFDV infers it: a shape where none may be missing.
        if feature.presence.min_fraction == 1:
            yield "shape", {"dim": [{"size": 1}]}
        else:
            yield "value_count", _ends(_ONE)


def _comparator(feature: Feature, change: str, notes: list[str]) -> Iterator[tuple[str, Any]]:
    bounds = dict(getattr(feature, change))
    parts: dict[str, Any] = {}
    for key, name in COMPARATORS.items():
        if name in bounds:
            parts[key] = {"threshold": bounds.pop(name)}
    divergence = "jensen_shannon_divergence"
    if divergence not in parts and QUANTILES in bounds:
        parts[divergence] = {"threshold": bounds.pop(QUANTILES), "source": {"type": "QUANTILES"}}
    if parts:
        yield f"{change}_comparator", parts
    for name in bounds:
        notes.append(f"TFDV has no {name}: the {change} of {feature.name} goes without it")


def _domain(feature: Feature, notes: list[str]) -> Iterator[tuple[str, Any]]:
    domain = feature.domain
    if isinstance(domain, Bool) or feature.type == "bool":
        texts = domain if isinstance(domain, Bool) else Bool()
        fields = {"true_value": texts.true_value, "false_value": texts.false_value}
        yield "bool_domain", {key: value for key, value in fields.items() if value is not None}
    if isinstance(domain, Time):
        notes.append(
            f"TFDV does not look at times: the format of {feature.name} is written, its share and years are not"
        )
        yield "time_domain", {"integer_format" if domain.format in UNIX else "string_format": domain.format}
    if isinstance(domain, Semantic):
        limits = {
            "minimum_supported_image_fraction": domain.min_supported_fraction,
            "max_image_byte_size": domain.max_bytes,
        }
        yield f"{domain.kind}_domain", {key: value for key, value in limits.items() if value is not None}
    if not isinstance(domain, Range):
        return
    ends = {key: getattr(domain, key) for key in ("min", "max") if getattr(domain, key) is not None}
    kind = "int" if (domain.parse or feature.type) == "int" else "float"
    if kind == "int":
        whole = {key: math.ceil(end) if key == "min" else math.floor(end) for key, end in ends.items()}
        for key, end in whole.items():
            if not -(2**63) <= end < 2**63:
                notes.append(f"{key} {end} of {feature.name} is beyond TFDV's 64 bits; it is left out")
        kept: dict[str, Any] = {key: end for key, end in whole.items() if -(2**63) <= end < 2**63}
    else:
        # Away from the range, so that no value that this schema allows is an anomaly to TFDV.
        near = {key: _outwards(float(end), -1 if key == "min" else 1) for key, end in ends.items()}
        for key, end in ends.items():
            if near[key] != end:
                notes.append(f"{key} {end} of {feature.name} has more digits than TFDV's 32 bits keep")
        kept = {key: end for key, end in near.items() if math.isfinite(end)}
        kept |= {key: True for key in ("disallow_nan", "disallow_inf") if getattr(domain, key)}
    if kept or domain.parse:
        yield f"{kind}_domain", kept


def _outwards(end: float, side: int) -> float:
    """The nearest 32-bit number that is no stricter than the end."""
    near = single(end)
    if side * near >= side * end:
        return near
    with np.errstate(over="ignore"):
        return single(float(np.nextafter(np.float32(end), np.float32(side * np.inf))))


def _ends(count: Count) -> dict[str, int]:
    return {key: value for key, value in (("min", count.min), ("max", count.max)) if value is not None}
