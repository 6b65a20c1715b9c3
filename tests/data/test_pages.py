"""What the pages about data show is run as it is: Python in order, schemas, commands."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from drivetrain.console.cli import cli
from drivetrain.data import infer_schema, schema_from_yaml, schema_to_yaml
from drivetrain.tests.data.flights import month

PAGES = Path(__file__).parents[2] / "docs"
PIPELINE = """
import drivetrain as dt
from drivetrain.components import ExampleGen, ExampleValidator, ImportSchema, StatisticsGen
from drivetrain.metadata import Statistics


@dt.pipeline
def flights(data: str = "data/2013-01.parquet") -> None:
    examples = ExampleGen(data, splits={"train": 1})
    statistics = StatisticsGen(examples)
    ExampleValidator(examples, statistics, ImportSchema("schema.yaml"), previous=dt.latest(Statistics))
"""


def blocks(page: str, language: str) -> list[str]:
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", (PAGES / page).read_text("utf-8"), re.DOTALL | re.MULTILINE)
    return [text for kind, text in fences if kind == language]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def flights(folder: Path) -> dict[str, Any]:
    january, june = month(1), month(6)
    schema = infer_schema(january)
    january = january.append_column("late", pc.cast(pc.greater(january["dep_delay"], 15), pa.int64()))
    pq.write_table(january, folder / "january.parquet")
    for name in ("trained", "served"):
        pq.write_table(june.slice(0, 1000), folder / f"{name}.parquet")
    return {"january": month(1), "june": june, "schema": schema, "folder": folder}


def orders(folder: Path) -> dict[str, Any]:
    for name in ("orders", "trips"):
        (folder / name).mkdir()
    table = pa.table({"id": [1, 2, 3], "fare": [2.5, 9.0, None]})
    pq.write_table(table, folder / "orders" / "1.parquet")
    trips = pa.table({"trip": [1, 1, 2], "pickup": [1, 5, 3], "dropoff": [2, 4, 9]})
    pq.write_table(trips, folder / "trips" / "1.parquet")
    suites = folder / "my_project" / "gx" / "expectations"
    suites.mkdir(parents=True)
    (suites.parent / "great_expectations.yml").write_text("config_version: 4\n")
    suite = {
        "name": "orders",
        "expectations": [
            {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "fare"}},
            {"type": "expect_column_values_to_be_increasing", "kwargs": {"column": "id"}},
            {"type": "unexpected_rows_expectation", "kwargs": {"unexpected_rows_query": "SELECT * FROM {batch}"}},
        ],
    }
    (suites / "orders.json").write_text(json.dumps(suite))
    return {}


@pytest.mark.parametrize(
    ("page", "setting"),
    [("schema.md", flights), ("statistics.md", flights), ("drift.md", flights), ("reports.md", flights),
     ("expectations.md", orders)],
)  # fmt: skip
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::Warning")  # great_expectations and pandas warn of their own future
def test_a_pages_python_runs(page: str, setting: Callable[[Path], dict[str, Any]], here: Path) -> None:
    names = setting(here)
    python_blocks = blocks(page, "python")
    assert python_blocks
    for block in python_blocks:
        if "@dt.pipeline" not in block:  # a part of a pipeline's file
            exec(compile(block, page, "exec"), names)


@pytest.mark.slow
def test_the_stream_of_the_streams_page(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "incoming").mkdir()
    january = month(1)
    pa_csv.write_csv(january, here / "incoming" / "2013-01.csv")
    (here / "schema.yaml").write_text(schema_to_yaml(infer_schema(january)))
    (block,) = (block for block in blocks("streams.md", "python") if "data.stream(" in block)
    assert "idle=600" in block
    exec(compile(block.replace("idle=600", "idle=3"), "streams.md", "exec"), {})
    assert capsys.readouterr().out == f"1 {january.num_rows} passed\n"


@pytest.mark.parametrize("page", ["schema.md", "expectations.md"])
def test_a_pages_schemas_are_read_and_written(page: str) -> None:
    yaml_blocks = blocks(page, "yaml")
    assert yaml_blocks
    for block in yaml_blocks:
        text = block if block.startswith("format:") else f"format: drivetrain.schema/1\nfeatures:\n{block}"
        if not block.startswith(("format:", " ")):
            text = f"format: drivetrain.schema/1\nfeatures: {{fare: {{type: float}}}}\n{block}"
        schema = schema_from_yaml(text, page)
        assert schema_from_yaml(schema_to_yaml(schema)) == schema


@pytest.mark.slow
def test_the_commands_of_the_schemas_page(here: Path) -> None:
    (here / "data").mkdir()
    for number in (1, 6):
        pq.write_table(month(number), here / "data" / f"2013-0{number}.parquet")
    (here / "pipeline.py").write_text(PIPELINE)
    (here / "schema.yaml").write_text(schema_to_yaml(infer_schema("data/2013-01.parquet")))
    for name in ("old", "new"):
        (here / f"{name}.yaml").write_text((here / "schema.yaml").read_text())
    (commands,) = (block for block in blocks("schema.md", "") if "schema diff" in block)
    done = CliRunner().invoke(cli, ["run", "."])
    assert done.exit_code == 0, done.output
    for line in commands.splitlines():
        words = line.partition("#")[0].split()[1:]
        if "accept" in words:  # the page's patch is longer
            words[-1] = "1"
        elif "--data" in words:
            words.append("--replace")
        done = CliRunner().invoke(cli, words)
        assert done.exit_code == 0, (line, done.output)
    assert "MVY" in (here / "schema.yaml").read_text()
    assert CliRunner().invoke(cli, ["run", ".", "--param", "data=data/2013-06.parquet"]).exit_code == 0
