"""What TFDV 1.16's answers become where they are wrong or can be bettered; each rule is a row of the documentation."""

from __future__ import annotations

import dataclasses
import json
import operator
import re
from collections import Counter
from datetime import datetime
from fractions import Fraction
from typing import Any

import golden_tfdv_comparators as comparators  # type: ignore[import-not-found]  # conftest puts this folder on the path
import golden_tfdv_faults as faults  # type: ignore[import-not-found]  # as above
import golden_tfdv_weighted as weighted  # type: ignore[import-not-found]  # as above
import numpy as np
from drivetrain.data import Schema, checks_from_pbtxt
from drivetrain.data.schemas.pbtxt import parse
from drivetrain.data.schemas.schema_proto import SCHEMA_PROTO

FLOATS = ("float32", "float64", "float", "double")
SCHEMA_TYPES = (
    "INVALID_SCHEMA_SPECIFICATION", "INVALID_DOMAIN_SPECIFICATION", "DOMAIN_INVALID_FOR_TYPE", "FEATURE_MISSING_NAME",
    "FEATURE_MISSING_TYPE", "BOOL_TYPE_INVALID_CONFIG", weighted.COLLISION,
)  # fmt: skip
DOMAINS = {"bool_domain", "int_domain", "time_domain", "natural_language_domain", "image_domain"}
COMPARE = {
    "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge, "=": operator.eq, "!=": operator.ne,
}  # fmt: skip
Found = dict[str, list[tuple[str, str]]]  # (anomaly, severity), sorted, by feature; "" is the data set


def wanted(case: dict[str, Any]) -> dict[str, Any]:
    """The case's schema as plain values."""
    return parse(case["config"]["schema"], SCHEMA_PROTO, "Schema").value


def rows_of(case: dict[str, Any]) -> int:
    return len(next(iter(case["input"].values()))["values"])


def with_severities(schema: Schema, overrides: list[str]) -> Schema:
    """TFDV takes severities from its validation config; here they stand in the schema."""
    found = (re.fullmatch(r"\s*type:\s*(\w+)\s+severity:\s*(\w+)\s*", text) for text in overrides)
    pairs: dict[str, Any] = {match[1]: match[2] for match in found if match}
    assert len(pairs) == len(overrides)
    return dataclasses.replace(schema, severity=pairs)


def depth(value: Any) -> tuple[int, bool]:
    """How many lists are around the values of a list of rows, and whether there is a value within all of them."""
    found = [depth(item) for item in value if isinstance(item, list)]
    leaf = any(item is not None and not isinstance(item, list) for item in value)
    return max((level + 1 for level, _ in found), default=0), leaf or any(leaf for _, leaf in found)


def leaves(values: list[Any]) -> list[Any]:
    """The items of lists of lists, None among them; a missing list has none."""
    levels, _ = depth(values)
    for _ in range(levels):
        values = [item for value in values if value is not None for item in value]
    return values


# --- inference


def by_feature(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema's features by name, each with its domain's values in place of the domain's name."""
    domains = {domain["name"]: domain.get("value", []) for domain in schema.get("string_domain", ())}
    found = {}
    for feature in schema["feature"]:
        feature = dict(feature)
        if "domain" in feature:
            feature["domain"] = sorted(domains[feature["domain"]])
        found[feature.pop("name")] = feature
    return found


def inferred(case: dict[str, Any]) -> dict[str, Any]:
    """TFDV's schema with: constants no bool; one text no bool; nothing said of a column without values;
    no shape where a value within lists is null."""
    expected = by_feature(json.loads(json.dumps(case["expected"]), object_hook=whole_numbers))
    for name, feature in expected.items():
        rows = case["input"][name]["values"]
        items = leaves(rows)
        values = {json.dumps(value) for value in items if value is not None}
        if case["input"][name]["type"] == "bool":
            feature["bool_domain"] = {}
        elif "bool_domain" in feature and len(values) < 2:
            del feature["bool_domain"]
            if feature["type"] == "BYTES":
                only = _text(json.loads(next(iter(values)))) or ""
                name_of, domain = ("int_domain", {}) if re.fullmatch(r"-?\d+", only) else ("domain", [only])
                feature[name_of] = domain
        if "string_domain" in feature or "domain" in feature or not feature.keys() & DOMAINS:
            feature |= _time(case, name, items)
        if all(row is None for row in rows):
            feature["type"] = "TYPE_UNKNOWN"
        if "shape" in feature and items != rows and None in items:
            sizes = [int(dim["size"]) for dim in feature.pop("shape")["dim"]]
            counts = [{"min": size, "max": size} for size in sizes]
            feature |= {"value_count": counts[0]} if len(counts) == 1 else {"value_counts": {"value_count": counts}}
    return expected


def _time(case: dict[str, Any], name: str, items: list[Any]) -> dict[str, Any]:
    """The time that TFDV lists among its formats and never finds."""
    texts = [_text(value) for value in items if value is not None]
    read = sum(_reads(text, CTIME) for text in texts)
    wanted_too = str(case["config"].get("enable_semantic_domain_stats")) == "True" and len(texts) >= 100
    return {"time_domain": {"string_format": CTIME}} if wanted_too and 5 * read >= 4 * len(texts) else {}


CTIME = "%a %b %d %H:%M:%S %Y"


def whole_numbers(item: dict[str, Any]) -> dict[str, Any]:
    """protobuf's JSON writes int64 and infinities as texts."""
    keys = ("min_count", "size", "min", "max", "min_examples_count", "max_examples_count")
    found = {key: value for key, value in item.items() if key in keys and isinstance(value, str)}
    return item | {key: float(value) if value.endswith("Infinity") else int(value) for key, value in found.items()}


# --- validation


def anomalies(case: dict[str, Any]) -> Found:
    """TFDV's anomalies with the rules applied."""
    expected = case["expected"]
    rows = rows_of(case)
    if expected.get("data_missing"):
        assert rows == 0
        return {"": [("DATA_MISSING", "ERROR")]}
    kinds = {_unquoted(name): _kinds(info) for name, info in expected.get("anomaly_info", {}).items()}
    kinds[""] = _kinds(expected.get("dataset_anomaly_info", {"reason": []}))
    schema = wanted(case)
    limits = schema.get("dataset_constraints", {})
    if "max_examples_count" in limits and "min_examples_count" not in limits and rows > limits["max_examples_count"]:
        kinds[""] = [*kinds[""], "DATASET_HIGH_NUM_EXAMPLES"]
    for feature in schema.get("feature", ()):
        name = feature.get("name", "")
        column = case["input"].get(name)
        if column is None or feature.get("lifecycle_stage", "BETA") not in ("BETA", "PRODUCTION"):
            continue
        if _expected_here(feature, schema, case["config"].get("environment")):
            kinds[name] = _corrected(kinds.get(name, []), feature, column, schema)
            kinds[name] = comparators.corrected(case, feature, kinds[name])
        else:  # What should not be there is not compared.
            kinds[name] = [kind for kind in kinds.get(name, []) if not kind.startswith("COMPARATOR_")]
    environment = case["config"].get("environment")
    here = {one.get("name", ""): _expected_here(one, schema, environment) for one in schema.get("feature", ())}
    for pair in schema.get("weighted_feature", ()):
        kinds[pair["name"]] = weighted.corrected(case, pair, here, kinds.get(pair["name"], []))
    found = {name: sorted(_severities(case, name, some)) for name, some in kinds.items()}
    return {name: pairs for name, pairs in found.items() if pairs}


def _kinds(info: dict[str, Any]) -> list[str]:
    """The reasons, but for TFDV's own failings, as where it does not know one of its domains."""
    return [reason["type"] for reason in info["reason"] if "internal issue" not in reason.get("short_description", "")]


def _unquoted(name: str) -> str:
    """A feature's name as a step of a path, which TFDV quotes where it is not a word."""
    return name[1:-1].replace("''", "'") if name[:1] == name[-1:] == "'" else name


def _expected_here(feature: dict[str, Any], schema: dict[str, Any], environment: str | None) -> bool:
    if environment is None or environment in feature.get("in_environment", ()):
        return True
    return environment in schema.get("default_environment", ()) and environment not in feature.get(
        "not_in_environment", ()
    )


def _severities(case: dict[str, Any], name: str, kinds: list[str]) -> list[tuple[str, str]]:
    """A feature's anomalies share the highest severity in TFDV, and those of the data set are errors; here each has
    its own."""
    overrides = with_severities(Schema(), case["config"].get("severity_overrides") or [])
    found: list[tuple[str, str]] = [
        (kind, overrides.severity_of(kind)) for kind in kinds if kind != "CUSTOM_VALIDATION"
    ]
    custom = checks_from_pbtxt(case["config"].get("custom_validation") or "")
    checks = {check.sql: check.severity for check in custom if check.feature == name}
    description = case["expected"].get("anomaly_info", {}).get(name, {}).get("description", "")
    queries = re.findall("Query: (.*?) Test dataset: ", description)
    assert len(queries) == kinds.count("CUSTOM_VALIDATION")
    for query in checks:
        median = re.fullmatch(r"feature\.num_stats\.median\s*(<|>|<=|>=|=|!=)\s*([-+.\d]+)", query)
        if median:  # TFDV's is the upper of the two in the middle
            values = [value for value in leaves(case["input"][name]["values"]) if value is not None]
            holds = COMPARE[median[1]](np.median(values), float(median[2]))
            queries = [one for one in queries if one != query] + [query] * (not holds)
    return found + [("CUSTOM_VALIDATION", checks[query]) for query in queries]


def _corrected(kinds: list[str], feature: dict[str, Any], column: dict[str, Any], schema: dict[str, Any]) -> list[str]:
    items = leaves(column["values"])
    values = [value for value in items if value is not None]
    numbers = column["type"] not in ("string", "bytes")

    def without(*names: str) -> list[str]:
        return [kind for kind in kinds if kind not in names]

    time = feature.get("time_domain", {}).get("string_format")
    if time is not None and not numbers:
        # TFDV infers a time where 0.8 of the values read so, and then never looks again.
        read = sum(_reads(_text(value), time) for value in values)
        kinds = [*kinds, *["TIME_TYPE_UNEXPECTED_VALUES"] * (5 * read < 4 * len(values))]
    allowed = _allowed(feature, schema)
    if allowed is not None and not numbers and values:
        # Shares are fractions; every value counts, however rare; what is not UTF-8 has an anomaly of its own.
        off = sum(value not in allowed for value in map(_text, values) if value is not None)
        mass = Fraction(str(feature.get("distribution_constraints", {}).get("min_domain_mass", 1.0)))
        kinds = without("ENUM_TYPE_UNEXPECTED_STRING_VALUES")
        if Fraction(off, len(values)) > 1 - mass:
            kinds.append("ENUM_TYPE_UNEXPECTED_STRING_VALUES")
    if feature.get("type") == "TYPE_UNKNOWN":  # how a feature of any type is written
        kinds = without("DOMAIN_INVALID_FOR_TYPE", "UNEXPECTED_DATA_TYPE")
    if feature.get("type") == "FLOAT" and column["type"].lstrip("u").startswith("int"):
        kinds = without(
            "UNEXPECTED_DATA_TYPE", "FLOAT_TYPE_SMALL_FLOAT", "FLOAT_TYPE_BIG_FLOAT", "BOOL_TYPE_SMALL_INT",
            "BOOL_TYPE_BIG_INT",
        )  # fmt: skip
        kinds += _beyond(values, feature.get("float_domain", {}), "FLOAT_TYPE_SMALL_FLOAT", "FLOAT_TYPE_BIG_FLOAT")
        if "bool_domain" in feature and set(values) - {0, 1}:
            kinds.append("BOOL_TYPE_UNEXPECTED_FLOAT")
    if feature.get("type") == "INT" and "bool_domain" in feature and "UNEXPECTED_DATA_TYPE" not in kinds:
        # TFDV stops at the smaller end.
        kinds = without("BOOL_TYPE_SMALL_INT", "BOOL_TYPE_BIG_INT")
        kinds += _beyond(values, {"min": 0, "max": 1}, "BOOL_TYPE_SMALL_INT", "BOOL_TYPE_BIG_INT")
    if not values:  # TFDV's least and greatest of no values are 0.
        kinds = [kind for kind in kinds if not re.match("(INT|FLOAT)_TYPE_(SMALL|BIG)_", kind)]
    if "value_counts" in feature and not _short(column["values"], feature["value_counts"]["value_count"]):
        kinds = without("FEATURE_TYPE_LOW_NUMBER_VALUES")  # TFDV's shortest of no lists has none
    if "shape" in feature and items != column["values"] and None in items:
        kinds = [*without("INVALID_FEATURE_SHAPE"), "INVALID_FEATURE_SHAPE"]
    if "unique_constraints" in feature and values and "UNEXPECTED_DATA_TYPE" not in kinds:
        # Numbers have distinct values too, and a bound that is not written is none (0 in TFDV).
        limits = feature["unique_constraints"]
        kinds = without("FEATURE_TYPE_NO_UNIQUE", "FEATURE_TYPE_LOW_UNIQUE", "FEATURE_TYPE_HIGH_UNIQUE")
        distinct = [len({json.dumps(value) for value in values})]
        kinds += _beyond(distinct, limits, "FEATURE_TYPE_LOW_UNIQUE", "FEATURE_TYPE_HIGH_UNIQUE")
    return kinds


def _short(rows: list[Any], counts: list[dict[str, Any]]) -> bool:
    """Whether a list at some level has fewer values than that level asks for."""
    for count in counts:
        lists = [row for row in rows if isinstance(row, list)]
        if any(len(one) < count.get("min", 0) for one in lists):
            return True
        rows = [item for one in lists for item in one]
    return False


def _beyond(values: list[Any], limits: dict[str, Any], low: str, high: str) -> list[str]:
    """The names of the ends of a range that some values are beyond."""
    if not values:
        return []
    below, above = min(values) < limits.get("min", -np.inf), max(values) > limits.get("max", np.inf)
    return [low] * bool(below) + [high] * bool(above)


def _allowed(feature: dict[str, Any], schema: dict[str, Any]) -> list[str] | None:
    domains = {domain.get("name", ""): domain.get("value", []) for domain in schema.get("string_domain", ())}
    if "string_domain" in feature:
        return list(feature["string_domain"].get("value", []))
    return domains.get(feature.get("domain", ""))


def _reads(text: str | None, time: str) -> bool:
    try:
        datetime.strptime(text or "", time)
    except ValueError:
        return False
    return True


def _text(value: Any) -> str | None:
    """A text as the case spells it; None where it is not UTF-8."""
    try:
        return bytes.fromhex(value["bytes_hex"]).decode() if isinstance(value, dict) else str(value)
    except UnicodeDecodeError:
        return None


def problems(case: dict[str, Any]) -> Found:
    """A schema that contradicts itself is refused: all that TFDV says of it and more, but nothing of the data."""
    schema = wanted(case)
    found = dict(faults.of_schema(schema))
    for name, info in case["expected"]["anomaly_info"].items():
        said = [kind for kind in _kinds(info) if kind in SCHEMA_TYPES]
        assert not Counter(said) - Counter(found.get(_unquoted(name), ())), said
    return {name: sorted((kind, "ERROR") for kind in kinds) for name, kinds in found.items() if kinds}


# --- examples one by one


def type_name(rows: list[Any]) -> str:
    """The type of an example's values, which no case names."""
    kinds = {type(value) for value in leaves(rows)} - {type(None)}
    if kinds <= {str}:
        return "string" if kinds else "int64"
    return "int64" if kinds <= {int} else "float64"


def of_instances(case: dict[str, Any]) -> Found:
    """As of many rows, but for what only holds of many; TFDV forgets presence as well."""
    found = anomalies(case)
    for feature in wanted(case).get("feature", ()):
        name = feature.get("name", "")
        rows = case["input"].get(name, {"values": []})["values"]
        kinds = [pair for pair in found.get(name, []) if "UNIQUE" not in pair[0]]
        if feature.get("distribution_constraints", {}).get("min_domain_mass", 1) < 1:
            kinds = [pair for pair in kinds if pair[0] != "ENUM_TYPE_UNEXPECTED_STRING_VALUES"]
        if feature.get("presence", {}).get("min_fraction") == 1 and None in rows:
            kinds.append(
                ("FEATURE_TYPE_NOT_PRESENT" if set(rows) == {None} else "FEATURE_TYPE_LOW_FRACTION_PRESENT", "ERROR")
            )
        found[name] = sorted(kinds)
    return {name: kinds for name, kinds in found.items() if kinds and name}
