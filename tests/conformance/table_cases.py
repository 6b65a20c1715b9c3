"""The cases that move real data through the standard components: what the pipelines of `tables/` must do."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from drivetrain.pipelines import Home, RunResult
from drivetrain.tests.examples.flights_job import flights

from .case import Case, Step

ROWS = 2000
LONG = 120_000  # more distinct values than statistics keep a table of


def _months(*numbers: int, edited: bool = False) -> Callable[[Path], None]:
    def write(base: Path) -> None:
        (base / "data").mkdir(exist_ok=True)
        for number in numbers:
            (base / "data" / f"{number:02}.csv").write_bytes(_month(number, edited))

    return write


@cache
def _month(number: int, edited: bool) -> bytes:
    table = flights()
    table = table.filter(pc.equal(table["month"], number)).slice(0, ROWS)
    if edited:
        late = pa.array(["XX"] * ROWS)
        table = table.set_column(table.schema.get_field_index("carrier"), "carrier", late)
    stream = pa.BufferOutputStream()
    pyarrow.csv.write_csv(table, stream)
    return bytes(stream.getvalue().to_pybytes())


def _long(base: Path) -> None:
    (base / "data").mkdir(exist_ok=True)
    numbers = np.random.default_rng(0).permutation(LONG)
    table = pa.table({"number": numbers * 0.5, "name": [f"id-{number}" for number in numbers], "small": numbers % 7})
    pyarrow.csv.write_csv(table, base / "data" / "long.csv")


def content(result: RunResult, home: Home, task: str, output: str) -> Path:
    """The folder of an output's content."""
    (record,) = result.nodes[task].outputs[output]
    return home.payloads.local(record.uri) / "content"


def _sketched(result: RunResult, home: Home) -> None:
    answer = json.loads((content(result, home, "StatisticsGen", "statistics") / "statistics.json").read_text())
    features = {feature["name"]: feature for feature in answer["datasets"][0]["features"]}
    unique, median = features["number"]["unique"], features["number"]["median"]
    assert unique["method"] == "hyperloglog"
    assert abs(unique["value"] - LONG) < 4 * unique["error"] * LONG
    assert median["method"] == "compaction"
    assert abs(median["value"] - (LONG - 1) / 4) <= 2 * median["error"] * LONG / 2
    assert not features["name"]["unique"]["exact"]
    assert features["small"]["unique"] == {"value": 7, "exact": True}


def _species(result: RunResult, home: Home) -> None:
    answer = json.loads((content(result, home, "ExampleValidator", "anomalies") / "anomalies.json").read_text())
    assert "Chinstrap" in json.dumps(answer)


def _pushed(*versions: str) -> Callable[[RunResult, Home], None]:
    def look(result: RunResult, home: Home) -> None:
        folder = home.base / "serving" / "penguins"
        assert sorted(path.name for path in folder.glob("[0-9]*/")) == list(versions)

    return look


ALWAYS = ("inline", "process", "beam")
CHILDREN = ("process", "beam")
TRAINED = "ExampleGen StatisticsGen SchemaGen Transform"
EACH = "ExampleGen[*{0}] StatisticsGen[*{0}]"

FLIGHTS = (
    Case(
        "tables/flights:by_month",
        (
            Step(
                f"Months {EACH.format(2)} Rows", before=_months(1, 2),
                values={"Months": ["data/01.csv", "data/02.csv"], "Rows": 2 * ROWS},
            ),
            Step(
                "Months ExampleGen[2] StatisticsGen[2] Rows", cached=EACH.format(2), before=_months(7),
                values={"Rows": 3 * ROWS},
            ),
        ),
        slow=CHILDREN,
    ),
    Case(
        "tables/flights:drifting",
        (
            Step(
                "ExampleGen StatisticsGen DistributionValidator SchemaGen Rows", before=_months(1),
                parameters={"data": "data/01.csv"},
            ),
            Step(
                "ExampleGen StatisticsGen DistributionValidator SchemaGen Rows", before=_months(2),
                parameters={"data": "data/02.csv"},
            ),
            Step(
                "ExampleGen StatisticsGen DistributionValidator SchemaGen", blocked="Rows", state="STOPPED",
                before=_months(3, edited=True), parameters={"data": "data/03.csv"},
            ),
        ),
        slow=CHILDREN,
    ),
    Case(
        "tables/flights:windows",
        (
            Step(
                "ExampleGen Few", skipped="Rows", before=_months(1, 2, 3), values={"Few": 10 * ROWS},
            ),
            Step(
                "ExampleGen Rows Few", parameters={"month": 2}, values={"Rows": 2 * ROWS, "Few": 20 * ROWS},
            ),
            Step(cached="ExampleGen Few", skipped="Rows", values={"Few": 10 * ROWS}),
        ),
        slow=CHILDREN,
    ),
    Case(
        "tables/flights:every_span",
        (
            Step(
                "Spans ExampleGen[*3] Sliding Rows[*2]",
                before=_months(1, 2, 3),
                values={"Rows[0]": 2 * ROWS, "Rows[1]": 2 * ROWS},
            ),
            Step("Spans ExampleGen[3] Sliding Rows[2]", cached="ExampleGen[*3] Rows[*2]", before=_months(4)),
        ),
        slow=CHILDREN,
    ),
    Case(
        "tables/flights:sketched",
        (Step("ExampleGen StatisticsGen SchemaGen", before=_long, after=_sketched),), slow=CHILDREN,
    ),
)  # fmt: skip

PENGUINS = (
    Case("tables/penguins:described", (Step("ExampleGen StatisticsGen SchemaGen"),)),
    Case(
        "tables/penguins:by_split",
        (
            Step(
                "ExampleGen StatisticsGen Splits SchemaGen[*2] Splits2 Each[0] Names", values={"Names": "train"},
            ),
            Step(
                "ExampleGen StatisticsGen Splits SchemaGen[*3] Splits2 Each[0] Names", cached="Each[1]",
                parameters={"split": {"train": 2, "eval": 1, "test": 1}}, values={"Names": "test train"},
            ),
        ),
        slow=CHILDREN,
    ),
    Case(
        "tables/penguins:checked",
        (
            Step("ExampleGen StatisticsGen SchemaGen ExampleValidator Behind"),
            Step(cached="ExampleGen StatisticsGen SchemaGen ExampleValidator Behind"),
        ),
        slow=CHILDREN,
    ),
    Case(
        "tables/penguins:refused",
        (
            Step(
                "ExampleGen StatisticsGen ImportSchema ExampleValidator Told", blocked="Behind", state="STOPPED",
                values={"Told": "STOPPED"}, after=_species,
            ),
        ),
        slow=CHILDREN,
    ),
    Case("tables/penguins:compared", (Step("ExampleGen Other ExampleDiff"),), slow=CHILDREN),
    Case(
        "tables/penguins:transformed",
        (Step(f"{TRAINED} After"),), slow=ALWAYS, engine=True,
    ),
    Case(
        "tables/penguins:trained",
        (
            Step(f"{TRAINED} Trainer Evaluator Pusher", skipped="Told", after=_pushed("1")),
            Step(cached=f"{TRAINED} Trainer Evaluator Pusher", skipped="Told", after=_pushed("1")),
            Step(
                "Trainer Evaluator Pusher", cached=TRAINED, skipped="Told", parameters={"epochs": 6},
                after=_pushed("1", "2"),
            ),
        ),
        slow=ALWAYS, engine=True,
    ),
    Case(
        "tables/penguins:searched",
        (
            Step(
                f"{TRAINED} Trainer[*2] Evaluator[*2] Best", parameters={"rates": [0.0001, 0.1]},
                values={"Best": 1},
            ),
        ),
        slow=ALWAYS, engine=True,
    ),
)  # fmt: skip

CASES = (*FLIGHTS, *PENGUINS)
