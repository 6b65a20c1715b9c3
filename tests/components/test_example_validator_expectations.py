"""ExampleValidator checks a Great Expectations suite as well, and vetoes on what is critical in it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from drivetrain.components.example_gen import ExampleGen
from drivetrain.components.example_validator import ExampleValidator
from drivetrain.components.import_schema import ImportSchema
from drivetrain.components.schema_gen import SchemaGen
from drivetrain.components.statistics_gen import StatisticsGen
from drivetrain.data import Check, load_schema, schema_from_suite, schema_to_yaml
from drivetrain.digest import digest_tree
from drivetrain.errors import InputError
from drivetrain.pipelines.project.context import LaunchContext, enter


@pytest.mark.gx
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::Warning")  # great_expectations and pandas warn of their own future
@pytest.mark.parametrize("severity", ["critical", "warning"])
def test_a_suite_is_checked(severity: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("word,size\n" + "".join(f"a,{row % 5}\n" for row in range(90)))
    one = {"type": "expect_column_values_to_be_increasing", "kwargs": {"column": "size"}, "severity": severity}
    two = {"type": "expect_column_max_to_be_between", "kwargs": {"column": "size", "max_value": 4}}
    (tmp_path / "suite.json").write_text(json.dumps({"name": "mine", "expectations": [one, two]}))
    examples = ExampleGen(str(tmp_path / "x.csv"))
    statistics = StatisticsGen(examples)
    schema = SchemaGen(statistics)
    made = [ExampleValidator(examples, statistics, schema, expectations=str(tmp_path / "suite.json")) for _ in range(2)]
    bad = severity == "critical"
    assert (made[0].passed, made[0].errors) == (not bad, 2 * bad)  # both splits
    assert "2 of 4 expectations not met (column_values_to_be_increasing of size)" in made[0].summary
    result = json.loads((made[0].content / "expectations_result.json").read_text())
    assert [one["meta"]["evaluated_on"] for one in result["results"]] == ["rows", "statistics"] * 2
    assert {path.name for path in (made[0].extra / "data_docs").iterdir()} == {"train.html", "eval.html"}
    assert len({digest_tree(one.content).fingerprint for one in made}) == 1


@pytest.mark.parametrize("odd", [0, 3])
def test_the_schemas_own_expectations_without_gx(odd: int, tmp_path: Path) -> None:
    rows = "".join(f"a,{row % 5}\n" for row in range(90)) + "b,9\n" * odd
    (tmp_path / "x.csv").write_text("word,size\n" + rows)
    examples = ExampleGen(str(tmp_path / "x.csv"))
    statistics = StatisticsGen(examples)
    query = "SELECT word, count(*) AS n FROM {batch} WHERE size > 4 GROUP BY word"
    schema = schema_from_suite({
        "name": "mine",
        "expectations": [
            {"type": "expect_column_values_to_be_between", "kwargs": {"column": "size", "min_value": 0}},
            {"type": "expect_column_max_to_be_between", "kwargs": {"column": "size", "max_value": 9}},
            {"type": "unexpected_rows_expectation", "kwargs": {"unexpected_rows_query": query}},
        ],
    })[0]  # fmt: skip
    schema = dataclasses.replace(schema, checks=(Check("size", "feature.num_stats.max < 5", severity="WARNING"),))
    (tmp_path / "schema.yaml").write_text(schema_to_yaml(schema))
    made = ExampleValidator(examples, statistics, ImportSchema(str(tmp_path / "schema.yaml")))
    result = json.loads((made.content / "expectations_result.json").read_text())
    assert [one["meta"]["evaluated_on"] for one in result["results"]] == ["statistics", "sql"] * 2
    found = [row["n"] for one in result["results"][1::2] for row in one["result"]["details"]["unexpected_rows"]]
    assert sum(found) == odd
    assert made.passed is (odd == 0)
    assert "SELECT word" in (made.extra / "expectations.html").read_text()
    assert not (made.extra / "data_docs").exists()
    anomalies = json.loads((made.content / "anomalies.json").read_text())["anomalies"]
    assert ("CUSTOM_VALIDATION" in {one["type"] for one in anomalies}) is (odd > 0)


def test_a_suite_becomes_part_of_the_imported_schema(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("word,size\n" + "".join(f"a,{row % 5}\n" for row in range(90)))
    examples = ExampleGen(str(tmp_path / "x.csv"))
    statistics = StatisticsGen(examples)
    (tmp_path / "schema.yaml").write_bytes((SchemaGen(statistics).content / "schema.yaml").read_bytes())
    for most, good in ((4, True), (3, False)):
        wanted = [
            {"expectation_type": "expect_column_values_to_be_between", "kwargs": {"column": "size", "max_value": most}},
            {"expectation_type": "expect_column_values_to_match_regex", "kwargs": {"column": "word", "regex": "^a"}},
        ]
        (tmp_path / "suite.json").write_text(json.dumps({"expectation_suite_name": "old", "expectations": wanted}))
        schema = ImportSchema(str(tmp_path / "schema.yaml"), expectations=str(tmp_path / "suite.json"))
        read = load_schema(schema.content / "schema.yaml")
        assert [one.type for one in read.expectations] == ["expect_column_values_to_match_regex"]
        anomalies = ExampleValidator(examples, statistics, schema)
        assert anomalies.passed is good
        assert "expectations met" in anomalies.summary


@pytest.mark.parametrize(
    ("regexes", "notes"),
    [
        (0, []),
        (1, ["1 expectation cannot be expressed in the schema; ExampleValidator checks it beside it"]),
        (3, ["3 expectations cannot be expressed in the schema; ExampleValidator checks them beside it"]),
    ],
)
def test_a_note_says_how_much_of_a_suite_the_schema_cannot_express(
    tmp_path: Path, regexes: int, notes: list[str]
) -> None:
    wanted = [
        {"expectation_type": "expect_column_values_to_match_regex", "kwargs": {"column": "word", "regex": f"^{n}"}}
        for n in range(regexes)
    ] + [{"expectation_type": "expect_column_values_to_be_between", "kwargs": {"column": "size", "max_value": 4}}]
    (tmp_path / "suite.json").write_text(json.dumps({"expectation_suite_name": "old", "expectations": wanted}))
    (tmp_path / "schema.yaml").write_text("format: drivetrain.schema/1\nfeatures:\n  size: {type: int}\n")
    noted: list[str] = []
    leave = enter(LaunchContext(note=noted.append))
    try:
        ImportSchema(str(tmp_path / "schema.yaml"), expectations=str(tmp_path / "suite.json"))
    finally:
        leave()
    assert noted == notes


def test_a_suite_is_one_file(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("word,size\n" + "a,1\n" * 90)
    for name in ("one", "two"):
        (tmp_path / f"{name}.json").write_text("{}")
    examples = ExampleGen(str(tmp_path / "x.csv"))
    statistics = StatisticsGen(examples)
    with pytest.raises(InputError, match="2 files, not one suite"):
        ExampleValidator(examples, statistics, SchemaGen(statistics), expectations=str(tmp_path / "*.json"))
