"""TFDV's schema after an update, as it should be."""

from __future__ import annotations

import json
import math
from typing import Any

import golden_tfdv_rules as rules  # type: ignore[import-not-found]  # conftest puts this folder on the path

KINDS = {"string": "BYTES", "bytes": "BYTES", "float32": "FLOAT", "float64": "FLOAT"}


def updated(case: dict[str, Any]) -> dict[str, Any]:
    """The features after the update, by name: nothing that is there and looked at is given up, and nothing that was
    allowed is forbidden."""
    plain = json.loads(json.dumps(case["expected"]["updated_schema"]), object_hook=rules.whole_numbers)
    before = rules.by_feature(rules.wanted(case))
    found = {}
    for name, feature in rules.by_feature(plain).items():
        column = case["input"].get(name)
        values = [] if column is None else [value for value in rules.leaves(column["values"]) if value is not None]
        if column is None:
            found[name] = feature
        elif name not in before:
            found[name] = _shaped(feature)
        elif not values and feature.get("lifecycle_stage") == "DEPRECATED":
            found[name] = before[name] | {"presence": {"min_count": 0}}
        elif feature.get("lifecycle_stage") == "DEPRECATED":
            found[name] = _typed(before[name], column["type"], values)
        else:
            found[name] = _ranged(before[name], feature, values)
    return {name: tidied(feature) for name, feature in found.items()}


def tidied(feature: dict[str, Any]) -> dict[str, Any]:
    """Without bounds that say nothing; shares rounded down to millionths, as ours are."""
    feature = json.loads(json.dumps(feature))
    count, limits, presence = (feature.get(key, {}) for key in ("value_count", "float_domain", "presence"))
    if count.get("min") == 0:
        del count["min"]
    for end in [end for end, limit in limits.items() if limit is False or math.isinf(limit)]:
        del limits[end]
    if "min_fraction" in presence:
        presence["min_fraction"] = math.floor(presence["min_fraction"] * 10**6 + 1e-3) / 10**6
    return {key: value for key, value in feature.items() if value or key == "bool_domain"}


def _shaped(feature: dict[str, Any]) -> dict[str, Any]:
    """A new column is inferred, its shape too."""
    count = feature.get("value_count", {})
    if feature["presence"].get("min_fraction") == 1 and count.get("min") == count.get("max", 0):
        feature["shape"] = {"dim": [{"size": feature.pop("value_count")["min"]}]}
    return feature


def _typed(before: dict[str, Any], name: str, values: list[Any]) -> dict[str, Any]:
    """The type that was observed; integers are floats."""
    kind = KINDS.get(name, "INT")
    if (before["type"], kind) != ("FLOAT", "INT"):
        return {key: value for key, value in before.items() if not key.endswith("domain")} | {"type": kind}
    ends = {"min": min(values), "max": max(values)}
    choose = {"min": min, "max": max}
    limits = {end: choose[end](limit, ends[end]) for end, limit in before.get("float_domain", {}).items()}
    return before | {"float_domain": limits}


def _ranged(before: dict[str, Any], after: dict[str, Any], values: list[Any]) -> dict[str, Any]:
    """Numbers that were to be 0 or 1 become a range that holds both."""
    domain = {"INT": "int_domain", "FLOAT": "float_domain"}.get(after["type"], "")
    if "bool_domain" in before and domain in after:
        after[domain] = {"min": min(0, *values), "max": max(1, *values)}
    return after
