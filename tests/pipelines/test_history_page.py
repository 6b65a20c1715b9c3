"""docs/history.md: its pipelines run on months of flights, and find what the page says."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import drivetrain as dt
import pyarrow.csv
import pytest
from drivetrain.pipelines import Home, RunResult, load_pipeline, run_pipeline
from drivetrain.tests.data.flights import month

PAGE = (Path(__file__).parents[2] / "docs" / "history.md").read_text("utf-8")
CODE = "".join(re.findall(r"```python\n(.*?)```", PAGE, flags=re.S))
SIZES = {1: 300, 2: 200, 3: 250, 4: 100}

Go = Callable[..., RunResult]


@pytest.fixture
def go(home: Home, project: Callable[..., Path]) -> Go:
    """`go("monthly", 3)` runs that pipeline of the page on March."""
    for number in SIZES:
        write(home, number, SIZES[number])

    def run(name: str, span: int | None = None) -> RunResult:
        pipeline = load_pipeline(project(name, pipeline=CODE))
        return run_pipeline(home, pipeline, {} if span is None else {"month": span})

    return run


def write(home: Home, number: int, rows: int) -> None:
    path = home.base / "flights" / f"2013-{number:02}.csv"
    path.parent.mkdir(exist_ok=True)
    pyarrow.csv.write_csv(month(number).slice(0, rows), path)


def value(result: RunResult, node: str) -> object:
    return result.nodes[node].outputs["value"][0].properties["value"]


def test_the_newest_month_is_read(go: Go) -> None:
    result = go("newest")
    (examples,) = result.nodes["ExampleGen"].outputs["examples"]
    assert examples.properties["span"] == 4
    assert sum(examples.properties["rows"].values()) == SIZES[4]
    assert result.nodes["StatisticsGen"].outputs["statistics"][0].properties["span"] == 4


@pytest.mark.slow
def test_three_months_are_taken_together(go: Go, home: Home) -> None:
    runs = [go("monthly", number) for number in (1, 2, 3, 4)]
    assert [run.nodes["Rows"].state for run in runs] == ["SKIPPED", "SKIPPED", "COMPLETE", "COMPLETE"]
    assert runs[0].nodes["Rows"].reason == "dt.resolvers.rolling(...): 2 of 3 spans missing; found 1"
    assert [value(run, "Rows") for run in runs[2:]] == [300 + 200 + 250, 200 + 250 + 100]
    again = go("monthly", 3)
    assert {node.state for node in again.nodes.values()} == {"CACHED"}
    write(home, 1, 310)  # January comes again: what holds it is done again, and nothing else
    assert go("monthly", 1).nodes["ExampleGen"].state == "COMPLETE"
    assert value(go("monthly", 3), "Rows") == 310 + 200 + 250
    assert {node.state for node in go("monthly", 4).nodes.values()} == {"CACHED"}


def test_a_month_is_judged_by_a_model_that_has_not_seen_it(go: Go) -> None:
    runs = {number: go("honest", number) for number in (1, 2, 3)}
    assert [value(run, "Change") for run in runs.values()] == ["the first", "1 to 2", "2 to 3"]
    assert [value(run, "Score") for run in runs.values()] == ["no model", "1", "1 2"]
    assert value(go("honest", 2), "Score") == "1"  # 1 2 and 2 3 have seen February


def test_a_year_in_one_run(go: Go) -> None:
    result = go("year")
    assert value(result, "Spans") == [1, 2, 3, 4]
    assert [value(result, f"Rows[{place}]") for place in (0, 1)] == [750, 550]
    assert result.state == "COMPLETE"


def test_the_page_names_every_way_to_choose() -> None:
    words = {
        *("rolling", "static_range", "all_spans", "previous", "latest", "artifact", "latest_blessed", "latest_model"),
        *("newest_model_not_trained_on", "registered", "spans", "sliding", "sequential", "paired"),
    }
    tables = re.findall(r"^\| `dt\.(?:resolvers\.|loops\.)?(\w+)\(", PAGE, flags=re.M)
    assert set(tables) == words
    assert words <= {*dt.__all__, *dt.resolvers.__all__, *dt.loops.__all__}
