"""What is wrong with a schema in itself, by the names of TFDV, which raises some of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import golden_tfdv_weighted as weighted  # type: ignore[import-not-found]  # conftest puts this folder on the path

SPECIFICATION, DOMAIN = "INVALID_SCHEMA_SPECIFICATION", "INVALID_DOMAIN_SPECIFICATION"
# The types that may have a domain.
TYPES = {
    "int_domain": ("INT", "BYTES"), "float_domain": ("FLOAT", "BYTES"), "string_domain": ("BYTES",),
    "domain": ("BYTES",), "image_domain": ("BYTES",), "bool_domain": ("INT", "BYTES", "FLOAT"),
    "time_domain": ("INT", "BYTES"),
}  # fmt: skip


def of_schema(schema: dict[str, Any]) -> dict[str, list[str]]:
    """The faults of each feature by name; those of the schema as a whole under the empty one."""
    found: dict[str, list[str]] = {"": list(_of_all(schema))}
    shared = {domain.get("name"): domain.get("value", []) for domain in schema.get("string_domain", ())}
    for feature in schema.get("feature", ()):
        found.setdefault(feature.get("name", ""), []).extend(_of_feature(feature, shared))
    for name, times in Counter(feature.get("name") for feature in schema.get("feature", ())).items():
        if name and times > 1:
            found[name].append(SPECIFICATION)
    for name, fault in weighted.faults(schema):
        found.setdefault(name, []).append(fault)
    return found


def _of_all(schema: dict[str, Any]) -> Iterator[str]:
    names = [domain.get("name") for domain in schema.get("string_domain", ())]
    if None in names or len(set(names)) < len(names):
        yield DOMAIN
    rows = schema.get("dataset_constraints", {})
    yield from _range(rows.get("min_examples_count", 0), rows.get("max_examples_count", math.inf))


def _range(low: float, high: float) -> Iterator[str]:
    """Counts from 0, in order."""
    if low < 0 or high < 0:
        yield SPECIFICATION
    if low > high:
        yield SPECIFICATION


def _of_feature(feature: dict[str, Any], shared: dict[str | None, list[str]]) -> Iterator[str]:
    if "name" not in feature:
        yield "FEATURE_MISSING_NAME"
        return
    if "type" not in feature:
        yield "FEATURE_MISSING_TYPE"
        return
    presence = feature.get("presence", {})
    if not 0 <= presence.get("min_fraction", 0) <= 1:
        yield SPECIFICATION
    if presence.get("min_count", 0) < 0:
        yield SPECIFICATION
    for count in (feature.get("value_count"), *feature.get("value_counts", {}).get("value_count", ())):
        if count is not None:
            yield from _range(count.get("min", 0), count.get("max", math.inf))
    for dim in feature.get("shape", {}).get("dim", ()):
        if dim.get("size", 1) <= 0:
            yield SPECIFICATION
    limits = feature.get("unique_constraints", {})
    yield from _range(limits.get("min", 0), limits.get("max", math.inf))
    for change in ("drift_comparator", "skew_comparator"):
        for bound in feature.get(change, {}).values():
            if bound.get("threshold", 0) < 0:
                yield SPECIFICATION
    yield from _of_domain(feature, shared)


def _of_domain(feature: dict[str, Any], shared: dict[str | None, list[str]]) -> Iterator[str]:
    kind = feature["type"]
    wrong = [domain for domain, types in TYPES.items() if domain in feature and kind not in (*types, "TYPE_UNKNOWN")]
    if wrong:
        yield "DOMAIN_INVALID_FOR_TYPE"
    texts = feature.get("string_domain", {}).get("value", shared.get(feature.get("domain", ""), []))
    if feature.get("domain", "") not in {"", *shared} or len(set(texts)) < len(texts):
        yield DOMAIN
    for domain in ("int_domain", "float_domain"):
        limits = feature.get(domain, {})
        if limits.get("min", -math.inf) > limits.get("max", math.inf):
            yield DOMAIN
    truths = feature.get("bool_domain")
    if truths is not None and kind == "BYTES" and truths.get("true_value", "") == truths.get("false_value", ""):
        yield "BOOL_TYPE_INVALID_CONFIG" if truths == {} else DOMAIN
    mass = feature.get("distribution_constraints", {}).get("min_domain_mass")
    if mass is not None and (not 0 <= mass <= 1 or not {"string_domain", "domain"} & feature.keys()):
        yield SPECIFICATION
