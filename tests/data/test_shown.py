"""What a shell shows of each result: one line that says what is in it."""

from __future__ import annotations

import pyarrow as pa
from drivetrain import data

BEFORE = pa.table({"n": [1, 2, 3, 4], "t": ["a", "b", "a", "b"]})
AFTER = pa.table({"n": [1, 2, 3, 5], "t": ["a", "c", "a", "c"]})


def test_results_say_what_they_are() -> None:
    schema = data.infer_schema(BEFORE)
    statistics = data.statistics({"before": BEFORE, "after": AFTER})
    assert repr(statistics) == "Statistics(before: 4 rows, 2 features; after: 4 rows, 2 features)"
    anomalies = data.validate(AFTER, schema)
    assert repr(anomalies) == "Anomalies(1 error (t: ENUM_TYPE_UNEXPECTED_STRING_VALUES))"
    assert repr(data.validate(BEFORE, schema)) == "Anomalies(no anomalies in 4 rows)"
    assert repr(data.update_schema(schema, AFTER)) == "SchemaPatch(1. t; 0 unresolved)"
    assert repr(data.update_schema(schema, BEFORE)) == "SchemaPatch(no changes; 0 unresolved)"
    drift = data.drift(AFTER, BEFORE)
    assert repr(drift) == f"DriftReport(data against data: {len(drift.drifted)} of 2 features drifted)"
    suite = data.read_suite(
        {"name": "s", "expectations": [{"type": "expect_column_to_exist", "kwargs": {"column": "n"}}]}
    )
    assert repr(data.check_expectations(data.statistics(AFTER), suite)) == "ExpectationResults(1 expectations met)"
    assert repr(data.diff_examples(BEFORE, AFTER, key="n")) == "ExamplesDiff(1 of 3 pairs of rows differ, in t)"
