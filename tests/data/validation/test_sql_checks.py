"""Custom validation: SQL over statistics, against counts by numpy, and TFDV's own examples of it."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from drivetrain.data import (
    Check,
    Schema,
    checks_from_pbtxt,
    load_checks,
    schema_from_yaml,
    schema_to_pbtxt,
    schema_to_yaml,
    statistics,
    validate,
)
from drivetrain.data.validation.sql_checks import check_statistics
from drivetrain.errors import InputError
from drivetrain.tests.data.flights import month


def anything(*checks: Check) -> Schema:
    """A schema that blocks nothing but what the checks do."""
    return Schema(severity={"SCHEMA_NEW_COLUMN": "INFO"}, checks=checks)


def found(columns: dict[str, Any], *checks: Check, previous: dict[str, Any] | None = None) -> list[tuple[str, str]]:
    before = None if previous is None else statistics(pa.table(previous))
    anomalies = validate(statistics(pa.table(columns)), anything(*checks), previous=before).anomalies
    return [(one.feature or "", one.severity) for one in anomalies if one.type == "CUSTOM_VALIDATION"]


def test_tfdv_configuration(tmp_path: Path) -> None:
    (tmp_path / "config.pbtxt").write_text("""
      feature_validations {
        feature_path { step: "x" }
        validations { sql_expression: "feature.num_stats.max < 5" severity: ERROR description: "max too big" }
        validations { sql_expression: "feature.num_stats.min > 0" severity: WARNING description: "min" }
        validations { sql_expression: "feature.num_stats.mean > 4" severity: WARNING in_environment: "SERVING" }
      }
      feature_pair_validations {
        feature_test_path { step: "x" } feature_base_path { step: "y" }
        validations { sql_expression: 'feature_test.num_stats.mean < feature_base.num_stats.mean' severity: WARNING }
      }""")
    checks = load_checks(tmp_path / "config.pbtxt")
    data, before = statistics(pa.table({"x": [1, 2, 9]})), statistics(pa.table({"y": [1.0, 3.0]}))
    anomalies = validate(data, anything(*checks), previous=before).anomalies
    first, pair = (one for one in anomalies if one.type == "CUSTOM_VALIDATION")
    assert (first.severity, first.feature, first.message) == ("ERROR", "x", "max too big")
    # The statistic, then as TFDV prints it.
    said = "FALSE: feature.num_stats.max is 9. Query: feature.num_stats.max < 5 Test dataset: default slice"
    assert first.observed == said
    assert "feature_test.num_stats.mean is 4, feature_base.num_stats.mean is 2. Query" in pair.observed
    assert pair.severity == "WARNING"
    assert pair.observed.endswith("Base path: y")
    assert [one.expected for one in validate(data, anything(*checks)).anomalies][:1] == ["feature.num_stats.max < 5"]
    assert "feature_test" not in validate(data, anything(*checks)).to_json()  # nothing earlier to compare with
    schema = dataclasses.replace(anything(*checks), environments=("SERVING", "TRAINING"))
    serving = validate(data, schema, environment="SERVING")
    assert "feature.num_stats.mean > 4" in [one.expected for one in serving.anomalies]  # 4 is the mean
    assert "feature.num_stats.mean > 4" not in [one.expected for one in anomalies]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('feature_validations { validations { sql_expression: "true" } }', "no feature_path"),
        ('feature_validations { feature_path { step: "x" } validations { severity: ERROR } }', "no sql_expression"),
        ('feature_validations { feature_path { stop: "x" } }', "stop"),
    ],
)
def test_bad_configurations(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        checks_from_pbtxt(text)


def test_numbers_equal_numpy() -> None:
    table = month(1)
    delay = table["dep_delay"].drop_null().to_numpy().astype(float)
    carriers, counts = np.unique(table["carrier"].to_pylist(), return_counts=True)
    num, text = "feature.num_stats", "feature.string_stats"
    low, middle, high = (int(end) for end in (delay.min(), np.median(delay), delay.max()))
    exact = {
        "dep_delay": [
            f"abs({num}.mean - {delay.mean()}) < 1e-9",
            f"abs({num}.std_dev - {delay.std()}) < 1e-9",
            f"{num}.min = {low} AND {num}.max = {high} AND {num}.median = {middle}",
            f"{num}.num_zeros = {(delay == 0).sum()}",
            f"{num}.common_stats.num_missing = {table['dep_delay'].null_count}",
            f"{num}.common_stats.num_non_missing = {len(delay)} AND {num}.common_stats.tot_num_values = {len(delay)}",
            f"{num}.histograms[OFFSET(0)].buckets[OFFSET(0)].sample_count = {np.histogram(delay, 10)[0][0]}",
            f"list_sum([b.sample_count FOR b IN {num}.histograms[1].buckets]) = {len(delay)}",
            f"(SELECT COUNT(*) FROM UNNEST({num}.histograms) WHERE type = 'QUANTILES') = 1",
            f"(SELECT ROUND(SUM(sample_count)) FROM UNNEST({num}.histograms[OFFSET(1)].buckets)) = {len(delay)}",
            f"{num}.histograms[OFFSET(1)].buckets[OFFSET(4)].high_value = {np.quantile(delay, 0.5)}",
            "feature.type IN ('INT', 'FLOAT') AND feature.string_stats IS NULL",
        ],
        "carrier": [
            f"{text}.unique = {len(carriers)} AND feature.type = \"STRING\" AND {text}.avg_length = 2",
            f"{text}.top_values[OFFSET(0)].value = '{carriers[counts.argmax()]}'",
            f"{text}.rank_histogram.buckets[ORDINAL(1)].sample_count = {counts.max()}",
            f"EXISTS(SELECT 1 FROM UNNEST({text}.top_values) AS v WHERE v.value = \"UA\")",
            f"NOT EXISTS(SELECT 1 FROM UNNEST({text}.top_values) v WHERE v.value = 'ZZ')",
            f"'UA' IN (SELECT value FROM UNNEST({text}.top_values))",
            f"(SELECT MAX(v.frequency) FROM UNNEST({text}.top_values) v WHERE value <> 'UA') < {counts.max() + 1}",
            "EXISTS(SELECT 1 FROM UNNEST(feature.path.step) AS s WHERE s = 'carrier')",
            "'carrier' IN UNNEST(feature.path.step) AND 'x' NOT IN UNNEST(feature.path.step)",
            f"SAFE_DIVIDE({text}.common_stats.num_missing, 0) IS NULL",
        ],
    }  # fmt: skip
    checks = [Check(name, sql) for name, some in exact.items() for sql in some]
    state = statistics(table)
    assert [one.expected for one in validate(state, anything(*checks)).anomalies if one.severity == "ERROR"] == []
    wrong = [Check(one.feature, f"NOT ({one.sql})") for one in checks]
    assert validate(state, anything(*wrong)).errors == len(checks)


def test_what_is_not_known_is_no_pass() -> None:
    columns = {"s": ["a", "b"], "f": [1.0, math.inf]}
    assert found(columns, Check("s", "feature.num_stats.max < 5")) == [("s", "ERROR")]
    assert found(columns, Check("gone", "feature.num_stats.max < 5", severity="WARNING")) == [("gone", "WARNING")]
    assert found(columns, Check("f", "feature.num_stats.max < 5")) == [("f", "ERROR")]  # infinity is a maximum
    pair = Check("s", "feature_test.string_stats.unique >= feature_base.string_stats.unique", base="s")
    assert found(columns, pair, previous={"s": ["a", "b", "c"]}) == [("s", "ERROR")]
    assert found(columns, pair, previous={"s": ["a"]}) == []
    assert found(columns, pair, previous={"t": ["a"]}) == [("s", "ERROR")]


def test_lists_structs_weights_and_slices_by_tfdv_names() -> None:
    table = pa.table({
        "l": [[1, 2], None, [], [3, None]], "t": [["a"], ["a", "b"], None, []], "w": [1.0, 2.0, 0.5, 1.0],
        "s": [{"x": 1, "y.z": "a"}, None, {"x": None, "y.z": "b"}, {"x": 2, "y.z": "b"}], "g": ["a", "b", "a", None],
    })  # fmt: skip
    found = statistics(table, weight="w", slices=[{"g": None}])
    num = "feature.num_stats"
    weight = "weighted_common_stats"
    good = [
        Check(
            "l", f"{num}.max = 3 AND {num}.common_stats.max_num_values = 2 AND {num}.common_stats.min_num_values = 0"
        ),
        Check("l", f"{num}.common_stats.tot_num_values = 4 AND feature.common_stats.num_missing = 1"),
        Check("l", f"feature.type = 'INT' AND {num}.common_stats.{weight}.num_missing = 2"),
        Check(
            "l", f"{num}.common_stats.{weight}.tot_num_values = 4 AND {num}.common_stats.{weight}.avg_num_values = 1.6"
        ),
        Check("t", "feature.string_stats.unique = 2 AND feature.string_stats.top_values[OFFSET(0)].frequency = 2"),
        Check("g", "feature.string_stats.weighted_string_stats.top_values[OFFSET(0)].value = 'b'"),
        Check("s.x", f"{num}.max = 2 AND feature.path.step[OFFSET(1)] = 'x'"),
        Check("s.y.z", "feature.string_stats.unique = 2"),
        Check("s", "feature.type = 'STRUCT' AND feature.struct_stats.common_stats.num_missing = 1"),
        Check("w", f"abs({num}.weighted_numeric_stats.mean - {(1 + 4 + 0.25 + 1) / 4.5}) < 1e-12"),
        Check("w", f"{num}.max = 2 AND {num}.common_stats.num_non_missing = 1", slice="g_b"),
        Check("w", f"{num}.min = 0.5 AND {num}.max = 1", slice="g=a"),
        Check("w", f"{num}.min = 0.5", slice="All Examples"),
    ]
    assert list(check_statistics(found, good)) == []
    wrong = [dataclasses.replace(one, sql=f"NOT ({one.sql})") for one in good]
    assert len(list(check_statistics(found, wrong))) == len(good)
    with pytest.raises(InputError, match="slice 'b', which has no"):
        list(check_statistics(found, [Check("l", "true", slice="b")]))


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("feature.nothing < 3", 'check of x: Binder Error: Could not find key "nothing"'),
        ("feature.num_stats.max <", "check of x: Parser Error"),
        ("1); DROP TABLE a; SELECT (1", "not one SELECT"),
        ("feature.num_stats.max", "neither true nor false"),
        ("(SELECT count(*) > 0 FROM read_text('/etc/hostname'))", "Permission Error"),
        ("(SELECT count(*) > 0 FROM columns)", "columns"),  # a variable here, no table
        ("unnest([true, false])", "not one expression"),
    ],
)
def test_wrong_expressions(sql: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        found({"x": [1]}, Check("x", sql))


def test_schema_keeps_checks() -> None:
    checks = (
        Check("a", 'feature.string_stats.unique > 2 AND feature.name != "it\'s"', severity="WARNING"),
        Check("é: {x}", "feature_test.num_stats.max < 3", "b", "INFO", "two\nlines", ("A", "B"), "a=x", "b=y"),
    )
    schema = Schema(checks=checks)
    assert schema_from_yaml(schema_to_yaml(schema)) == schema
    assert any("checks are not part" in note for note in schema_to_pbtxt(schema).notes)
    assert validate(statistics(pa.table({"a": ["x"]})), Schema(checks=checks[:1])).anomalies[-1].severity == "WARNING"
    with pytest.raises(InputError, match=r"schema\.yaml:3: a check without sql"):
        schema_from_yaml("format: drivetrain.schema/1\nchecks:\n  - feature: a\nfeatures: {}\n")
    with pytest.raises(InputError, match="severity 'BAD'"):
        Schema(checks=(Check("a", "true", severity="BAD"),))  # type: ignore[arg-type]
