"""ExampleValidator checks a Great Expectations suite as well, and vetoes on what is critical in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from drivetrain.components.example_gen import ExampleGen
from drivetrain.components.example_validator import ExampleValidator
from drivetrain.components.schema_gen import SchemaGen
from drivetrain.components.statistics_gen import StatisticsGen
from drivetrain.digest import digest_tree
from drivetrain.errors import InputError


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


def test_a_suite_is_one_file(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("word,size\n" + "a,1\n" * 90)
    for name in ("one", "two"):
        (tmp_path / f"{name}.json").write_text("{}")
    examples = ExampleGen(str(tmp_path / "x.csv"))
    statistics = StatisticsGen(examples)
    with pytest.raises(InputError, match="2 files, not one suite"):
        ExampleValidator(examples, statistics, SchemaGen(statistics), expectations=str(tmp_path / "*.json"))
