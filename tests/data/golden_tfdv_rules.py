"""What TFDV 1.16's answers become where they are wrong or can be bettered; each rule is a row of the documentation."""

from __future__ import annotations

import dataclasses
import json
import re
from datetime import datetime
from fractions import Fraction
from typing import Any

import golden_tfdv_comparators as comparators  # type: ignore[import-not-found]  # conftest puts this folder on the path
import numpy as np
import pytest
from drivetrain.data import Schema, checks_from_pbtxt
from drivetrain.data.pbtxt import parse
from drivetrain.data.schema_proto import SCHEMA_PROTO
from drivetrain.data.tables import NumberTable, histogram, quantiles

FLOATS = ("float32", "float64", "float", "double")
SCHEMA_TYPES = (
    "INVALID_SCHEMA_SPECIFICATION", "INVALID_DOMAIN_SPECIFICATION", "DOMAIN_INVALID_FOR_TYPE", "FEATURE_MISSING_NAME",
    "FEATURE_MISSING_TYPE", "BOOL_TYPE_INVALID_CONFIG",
)  # fmt: skip
Found = dict[str, list[tuple[str, str]]]  # (anomaly, severity), sorted, by feature; "" is the data set


def wanted(case: dict[str, Any]) -> dict[str, Any]:
    """The case's schema as plain values."""
    return parse(case["config"]["schema"], SCHEMA_PROTO, "Schema").value


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
    expected = by_feature(json.loads(json.dumps(case["expected"]), object_hook=_whole_numbers))
    for name, feature in expected.items():
        rows = case["input"][name]["values"]
        items = leaves(rows)
        values = {json.dumps(value) for value in items if value is not None}
        if case["input"][name]["type"] == "bool":
            feature["bool_domain"] = {}
        elif "bool_domain" in feature and len(values) < 2:
            del feature["bool_domain"]
            if feature["type"] == "BYTES":
                feature["domain"] = sorted(json.loads(value) for value in values)
        if all(row is None for row in rows):
            feature["type"] = "TYPE_UNKNOWN"
        if "shape" in feature and items != rows and None in items:
            sizes = [int(dim["size"]) for dim in feature.pop("shape")["dim"]]
            counts = [{"min": size, "max": size} for size in sizes]
            feature |= {"value_count": counts[0]} if len(counts) == 1 else {"value_counts": {"value_count": counts}}
    return expected


def _whole_numbers(item: dict[str, Any]) -> dict[str, Any]:
    """protobuf's JSON writes int64 as texts."""
    keys = ("min_count", "size", "min", "max", "min_examples_count", "max_examples_count")
    return {key: int(value) if key in keys and isinstance(value, str) else value for key, value in item.items()}


# --- validation


def anomalies(case: dict[str, Any]) -> Found:
    """TFDV's anomalies with the rules applied."""
    expected = case["expected"]
    found: Found = {
        name: [(reason["type"], info["severity"]) for reason in info["reason"]]
        for name, info in expected.get("anomaly_info", {}).items()
    }
    schema = wanted(case)
    rows = len(next(iter(case["input"].values()))["values"])
    if "dataset_anomaly_info" in expected:
        info = expected["dataset_anomaly_info"]
        found[""] = [(reason["type"], info["severity"]) for reason in info["reason"]]
    if expected.get("data_missing"):
        assert rows == 0
        return {"": [("DATA_MISSING", "ERROR")]}
    limits = schema.get("dataset_constraints", {})
    if "max_examples_count" in limits and "min_examples_count" not in limits and rows > limits["max_examples_count"]:
        found.setdefault("", []).append(("DATASET_HIGH_NUM_EXAMPLES", "ERROR"))
    for feature in schema["feature"]:
        name = feature.get("name", "")
        column = case["input"].get(name)
        if column is not None and feature.get("lifecycle_stage", "BETA") in ("BETA", "PRODUCTION"):
            found[name] = _corrected(found.get(name, []), feature, column, schema)
        found[name] = comparators.corrected(case, feature, found.get(name, []), "ERROR")
    _own_severities(case, found)
    return {name: sorted(kinds) for name, kinds in found.items() if kinds}


def _own_severities(case: dict[str, Any], found: Found) -> None:
    """A feature's conditions share the highest severity in TFDV; here a check keeps its own."""
    checks = checks_from_pbtxt(case["config"].get("custom_validation") or "")
    severities = {check.sql: check.severity for check in checks}
    overrides = with_severities(Schema(), case["config"].get("severity_overrides") or [])
    for name, info in case["expected"].get("anomaly_info", {}).items():
        queries = re.findall("Query: (.*?) Test dataset: ", info.get("description", ""))
        if queries:
            kinds = [kind for kind, _ in found[name] if kind != "CUSTOM_VALIDATION"]
            found[name] = [(kind, overrides.severity_of(kind)) for kind in kinds]
            found[name] += [("CUSTOM_VALIDATION", severities[query]) for query in queries]


def _corrected(
    kinds: list[tuple[str, str]], feature: dict[str, Any], column: dict[str, Any], schema: dict[str, Any]
) -> list[tuple[str, str]]:
    items = leaves(column["values"])
    values = [value for value in items if value is not None]
    names = [kind for kind, _ in kinds]
    time = feature.get("time_domain", {}).get("string_format")
    if time is not None and column["type"] in ("string", "bytes"):
        # TFDV infers a time where 0.8 of the values read so, and then never looks again.
        read = sum(_reads(_text(value), time) for value in values)
        kinds = [*kinds, *[("TIME_TYPE_UNEXPECTED_VALUES", "ERROR")] * (5 * read < 4 * len(values))]
    allowed = _allowed(feature, schema)
    if allowed is not None and column["type"] in ("string", "bytes") and values:
        # Shares are fractions; every value counts, however rare; what is no UTF-8 has an anomaly of its own.
        off = sum(value not in allowed for value in map(_text, values) if value is not None)
        mass = Fraction(str(feature.get("distribution_constraints", {}).get("min_domain_mass", 1.0)))
        kinds = [pair for pair in kinds if pair[0] != "ENUM_TYPE_UNEXPECTED_STRING_VALUES"]
        if Fraction(off, len(values)) > 1 - mass:
            kinds.append(("ENUM_TYPE_UNEXPECTED_STRING_VALUES", "ERROR"))
    if (
        "UNEXPECTED_DATA_TYPE" in names
        and feature.get("type") == "FLOAT"
        and column["type"].lstrip("u").startswith("int")
    ):
        limits = feature.get("float_domain", {})
        wrong = ("UNEXPECTED_DATA_TYPE", "FLOAT_TYPE_SMALL_FLOAT", "FLOAT_TYPE_BIG_FLOAT")
        kinds = [pair for pair in kinds if pair[0] not in wrong]
        if min(values) < limits.get("min", -np.inf):
            kinds.append(("FLOAT_TYPE_SMALL_FLOAT", "ERROR"))
        if max(values) > limits.get("max", np.inf):
            kinds.append(("FLOAT_TYPE_BIG_FLOAT", "ERROR"))
    if "shape" in feature and items != column["values"] and None in items and "INVALID_FEATURE_SHAPE" not in names:
        kinds = [*kinds, ("INVALID_FEATURE_SHAPE", "ERROR")]
    if "FEATURE_TYPE_NO_UNIQUE" in names:
        limits, distinct = feature["unique_constraints"], len(np.unique(values))
        kinds = [pair for pair in kinds if pair[0] != "FEATURE_TYPE_NO_UNIQUE"]
        if distinct < limits.get("min", 0):
            kinds.append(("FEATURE_TYPE_LOW_UNIQUE", "ERROR"))
        if distinct > limits.get("max", distinct):
            kinds.append(("FEATURE_TYPE_HIGH_UNIQUE", "ERROR"))
    return kinds


def _allowed(feature: dict[str, Any], schema: dict[str, Any]) -> list[str] | None:
    domains = {domain["name"]: domain.get("value", []) for domain in schema.get("string_domain", ())}
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
    """A text as the case spells it; None where it is no UTF-8."""
    try:
        return bytes.fromhex(value["bytes_hex"]).decode() if isinstance(value, dict) else str(value)
    except UnicodeDecodeError:
        return None


def problems(case: dict[str, Any]) -> Found:
    """A schema that contradicts itself is refused: all that TFDV says of it, but nothing of the data."""
    found = {
        name: sorted((reason["type"], "ERROR") for reason in info["reason"] if reason["type"] in SCHEMA_TYPES)
        for name, info in case["expected"]["anomaly_info"].items()
    }
    for feature in wanted(case)["feature"]:
        if feature.get("type") == "BYTES" and feature.get("bool_domain") == {}:
            found[feature["name"]] = [("BOOL_TYPE_INVALID_CONFIG", "ERROR")]
    return {name: kinds for name, kinds in found.items() if kinds}


# --- statistics


def check_column(ours: dict[str, Any], theirs: dict[str, Any], values: list[Any], table: Any) -> None:
    """Numbers that TFDV has right are equal; the others equal numpy's or a count."""
    common = _part(theirs)["common_stats"]
    assert ours["count"] == int(common.get("num_non_missing", 0)) == len(values)
    assert ours["missing"] == int(common.get("num_missing", 0))
    _check_values(ours, theirs, values, table)


def check_lists(ours: dict[str, Any], theirs: dict[str, Any], rows: list[Any], table: Any) -> None:
    """Presence and numbers of values by level, then the values themselves."""
    common = _part(theirs)["common_stats"]
    nested = common.get("presence_and_valency_stats") or [common]
    level, values, per_row = 0, ours, [[row] for row in rows if row is not None]
    while "lengths" in values:
        present = [row for row in rows if row is not None]
        lengths = [len(row) for row in present]
        assert values["count"] == len(present)
        assert values["missing"] == len(rows) - len(present)
        _check_lengths(values["lengths"], lengths)
        if level < len(nested):
            said = nested[level]
            assert len(present) == int(said.get("num_non_missing", 0))
            assert len(rows) - len(present) == int(said.get("num_missing", 0))
            if lengths:
                ends = int(said.get("min_num_values", 0)), int(said.get("max_num_values", 0))
                assert ends == (min(lengths), max(lengths))
            assert sum(lengths) == int(said.get("tot_num_values", 0))
        rows = [item for row in present for item in row]
        per_row = [[item for part in parts if part is not None for item in part] for parts in per_row]
        level, values = level + 1, values["values"]
    assert level == len(nested)
    # Of nested lists TFDV's own numbers are of the innermost values of a row.
    sizes = [len(items) for items in per_row]
    assert sum(sizes) == int(common.get("tot_num_values", 0)) == values["count"] + values["missing"]
    if sizes:
        assert sum(sizes) / len(sizes) == pytest.approx(common.get("avg_num_values", 0), rel=1e-6)
        assert (values["count"] + values["missing"]) / ours["count"] == pytest.approx(np.mean(sizes))
        assert (min(sizes), max(sizes)) == tuple(int(common.get(f"{end}_num_values", 0)) for end in ("min", "max"))
        buckets = common["num_values_histogram"]["buckets"]
        assert sum(bucket.get("sample_count", 0) for bucket in buckets) == pytest.approx(len(sizes), rel=1e-3)
        assert (_ends(buckets[0])[0], _ends(buckets[-1])[1]) == (min(sizes), max(sizes))
    found = [value for value in rows if value is not None]
    assert (values["count"], values["missing"]) == (len(found), len(rows) - len(found))
    _check_values(values, theirs, found, table)


def _check_lengths(ours: dict[str, Any], lengths: list[int]) -> None:
    """Numbers of values per list: numpy's, exact, where TFDV's histogram is of a sketch."""
    assert ours["unique"]["value"] == len(set(lengths))
    if not lengths:
        assert ours["mean"]["value"] is None
        return
    names: dict[str, Any] = {"mean": np.mean, "std": np.std, "min": np.min, "max": np.max, "median": np.median}
    assert {name: ours[name]["value"] for name in names} == pytest.approx(
        {name: find(lengths) for name, find in names.items()}
    )
    buckets = ours["histogram"]["value"]
    assert [bucket["count"] for bucket in buckets] == np.histogram(lengths, len(buckets))[0].tolist()
    assert ours["quantiles"]["value"] == pytest.approx(np.quantile(lengths, np.linspace(0, 1, 11)))


def _part(theirs: dict[str, Any]) -> dict[str, Any]:
    return next(theirs[name] for name in ("num_stats", "string_stats", "bytes_stats") if name in theirs)


def _check_values(ours: dict[str, Any], theirs: dict[str, Any], values: list[Any], table: Any) -> None:
    part = _part(theirs)
    if "num_stats" in theirs:
        _check_numbers(ours, part, np.asarray(values, np.float64), table)
    elif "string_stats" in theirs:
        _check_texts(ours, part)
    else:
        assert ours["unique"]["value"] == int(part.get("unique", 0)) == len(set(values))
        if values:
            assert ours["avg_length"]["value"] == pytest.approx(part["avg_num_bytes"])


def _check_numbers(ours: dict[str, Any], part: dict[str, Any], values: Any, table: NumberTable) -> None:
    finite = values[np.isfinite(values)]
    if not len(finite):
        assert ours["mean"]["value"] is None
        return
    if len(finite) < len(values):  # one infinity makes TFDV's mean NaN and its deviation 0; NaN is in none of both's
        nan = sum(int(found.get("num_nan", 0)) for found in part["histograms"][:1])
        assert nan in (ours["nan"], ours["nan"] + ours["missing"])  # a null within a list it takes for NaN
        assert ours["nan"] == np.isnan(values).sum()
        assert ours["positive_infinity"] == np.isposinf(values).sum()
        assert ours["negative_infinity"] == np.isneginf(values).sum()
        if len(finite) == len(values) - ours["nan"]:
            assert ours["mean"]["value"] == pytest.approx(part["mean"])
    else:
        for key, name in (("mean", "mean"), ("std_dev", "std"), ("min", "min"), ("max", "max")):
            assert ours[name]["value"] == pytest.approx(part.get(key, 0), rel=1e-6)
    assert ours["zeros"]["value"] == int(part.get("num_zeros", 0)) == (values == 0).sum()
    expected = {"mean": finite.mean(), "std": finite.std(), "min": finite.min(), "max": finite.max()}
    for name, number in expected.items():
        assert ours[name]["value"] == pytest.approx(number)
    # TFDV's median is the upper middle of a sketch; its histogram counts fractions.
    assert ours["median"]["value"] == np.median(finite)
    ordered = np.sort(finite)
    if len(finite) == len(values):
        assert part.get("median", 0) == ordered[len(ordered) // 2]
    buckets = ours["histogram"]["value"]
    counts, edges = np.histogram(finite, len(buckets))
    assert [bucket["count"] for bucket in buckets] == counts.tolist()
    assert [bucket["low"] for bucket in buckets] == pytest.approx(edges[:-1])
    # TFDV's buckets are closed above and come from a sketch; numpy's and ours are closed below, the last on both sides.
    theirs = [bucket for bucket in part["histograms"][0]["buckets"] if np.isfinite(_ends(bucket)).all()]
    total = sum(bucket.get("sample_count", 0) for bucket in theirs)
    assert total == pytest.approx(len(finite), rel=1e-3, abs=0.05)
    counts, edges = np.histogram(finite, len(theirs))
    assert histogram(table.values, table.counts, edges).tolist() == counts.tolist()
    if len(finite) == len(values):
        assert [_ends(bucket)[1] for bucket in theirs] == pytest.approx(edges[1:])
        # Its quantiles are values of the data, the upper of two; numpy's and ours lie between the two.
        uppers = [_ends(bucket)[1] for bucket in part["histograms"][1]["buckets"]]
        levels = [(i + 1) / len(uppers) for i in range(len(uppers) - 1)]
        assert quantiles(table, levels) == pytest.approx(np.quantile(finite, levels))
        if len(finite) % len(uppers) == 0:
            assert uppers[:-1] == [ordered[round(level * len(finite))] for level in levels]


def _ends(bucket: dict[str, Any]) -> tuple[float, float]:
    return float(bucket.get("low_value", 0)), float(bucket.get("high_value", 0))


def _check_texts(ours: dict[str, Any], part: dict[str, Any]) -> None:
    assert ours["unique"]["value"] == int(part.get("unique", 0))
    if not ours["count"]:
        return
    assert ours["avg_length"]["value"] == pytest.approx(part.get("avg_length", 0))
    theirs = [(found["value"], int(found["frequency"])) for found in part["top_values"]]
    found = [(value["value"], value["count"]) for value in ours["top_values"]["value"]]
    ranks = [(bucket["label"], int(bucket["sample_count"])) for bucket in part["rank_histogram"]["buckets"]]
    if max(len(theirs), len(ranks)) < int(part["unique"]):
        assert found[: len(theirs)] == theirs
        assert found[: len(ranks)] == ranks
        return
    # What is no UTF-8 has one label in TFDV, and here is spelled by its bytes.
    broken = int(part.get("invalid_utf8_count", 0))
    assert sum(count for value, count in theirs if value == "__BYTES_VALUE__") == broken
    kept = [pair for pair in theirs if pair[0] != "__BYTES_VALUE__"]
    assert [pair for pair in found if "\\x" not in pair[0]] == kept
    assert sum(count for value, count in found if "\\x" in value) == broken
