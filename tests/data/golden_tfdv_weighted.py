"""Weighted features in TFDV's answers: where ours differ, what is wrong with one, and the numbers of both."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from drivetrain.data import Anomalies

KINDS = ("WEIGHTED_FEATURE_MISSING_VALUE", "WEIGHTED_FEATURE_MISSING_WEIGHT", "WEIGHTED_FEATURE_LENGTH_MISMATCH")
COLLISION, SPECIFICATION = "WEIGHTED_FEATURE_NAME_COLLISION", "INVALID_SCHEMA_SPECIFICATION"


def measured(case: dict[str, Any]) -> bool:
    """Whether TFDV got the schema when it made the statistics."""
    return bool((case["config"].get("stats_options") or {}).get("schema"))


def corrected(case: dict[str, Any], pair: dict[str, Any], here: dict[str, bool], kinds: list[str]) -> list[str]:
    """The kinds of a weighted feature.

    Args:
        case: The case.
        pair: The weighted feature.
        here: Whether a feature belongs to the case's environment, by name.
        kinds: What TFDV found of it.
    """
    found = list(kinds) if measured(case) else ["STATS_NOT_AVAILABLE"]
    if unchecked(pair) or not all(here[one] for one in columns_of(pair)):
        found = []
    if pair["name"] in case["input"] and pair["name"] not in here:
        found.append("SCHEMA_NEW_COLUMN")  # TFDV takes the column for the weighted feature
    return found


def unchecked(item: dict[str, Any]) -> bool:
    stage = item.get("lifecycle_stage", "UNKNOWN_STAGE")
    return bool(item.get("deprecated")) or stage not in ("UNKNOWN_STAGE", "BETA", "PRODUCTION", "VALIDATION_DERIVED")


def columns_of(pair: dict[str, Any]) -> list[str]:
    """The names of the values and of the weights; "" where none stands there."""
    steps = [pair.get(key, {}).get("step", []) for key in ("feature", "weight_feature")]
    return [one[0] if one else "" for one in steps]


def faults(schema: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What is wrong with weighted features, by name: TFDV's collision, and what it says nothing of."""
    features = {one.get("name"): one for one in schema.get("feature", ())}
    sparse = {one.get("name"): one for one in schema.get("sparse_feature", ())}
    pairs = schema.get("weighted_feature", ())
    for pair in pairs:
        name = pair.get("name", "")
        if not name:
            yield name, SPECIFICATION
        if unchecked(pair):
            continue
        yield from ((name, COLLISION) for known in (features, sparse) if name in known and not unchecked(known[name]))
        yield from ((name, SPECIFICATION) for column in columns_of(pair) if column not in features)
    for name, times in Counter(pair.get("name", "") for pair in pairs).items():
        yield from [(name, SPECIFICATION)] * (times - 1)


def check_numbers(case: dict[str, Any], found: Anomalies) -> None:
    """The rows that each misses and the ends of the difference: TFDV's own."""
    for one in found.anomalies:
        if one.type not in KINDS:
            continue
        reasons = case["expected"]["anomaly_info"][one.feature]["reason"]
        (theirs,) = (reason["description"] for reason in reasons if reason["type"] == one.type)
        assert re.findall(r"-?\d+", one.observed) == re.findall(r"-?\d+", theirs)
