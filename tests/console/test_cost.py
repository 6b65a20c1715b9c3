"""`cost`: sums of what executions used, as text, JSON and a DataFrame; `show` says it of a run."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from drivetrain.errors import InputError
from drivetrain.pipelines import Home

Json = dict[str, Any]
Command = Callable[..., Result]
Read = Callable[[Result], Json]

PRICES = "currency: EUR\nprices:\n  cpu_hour: 3600\nco2_grams_per_kwh: 400\n"
"""A second of CPU costs 1."""


@pytest.fixture
def runs(shop: Path, drivetrain: Command, last_json: Read) -> list[str]:
    ends = (("-p", "rows=3"), ("-p", "rows=3"), ("-p", "fail=user"))
    return [last_json(drivetrain("run", "shop", "--json", *words))["run"] for words in ends]


def resources(state: str = "") -> list[Json]:
    home = Home(Path(".drivetrain"), readonly=True)
    try:
        all_of = [each.properties.get("resources") for each in home.store.executions() if state in ("", each.state)]
        return [each for each in all_of if each]
    finally:
        home.close()


def test_sums_are_of_what_executions_recorded(runs: list[str], drivetrain: Command, last_json: Read) -> None:
    Path("costs.yaml").write_text(PRICES)
    answer = last_json(drivetrain("cost", "--json"))
    assert [row["run"] for row in answer["rows"]] == runs
    first, second, third = answer["rows"]
    assert (first["executions"], first["cached"], second["cached"], second["cpu_hours"]) == (5, 0, 5, 0)
    assert second["saved"]["cpu_hours"] == pytest.approx(first["cpu_hours"])
    assert second["saved"]["money"] == pytest.approx(first["money"]) == pytest.approx(first["cpu_hours"] * 3600)
    assert third["unmeasured"] == 0
    seconds = sum(each["cpu_seconds"] for each in resources())
    assert sum(row["cpu_hours"] for row in answer["rows"]) * 3600 == pytest.approx(seconds) != 0
    assert answer["currency"] == "EUR"
    for by, labels in (
        ("pipeline", ["shop"]),
        ("month", [f"{datetime.now(UTC):%Y-%m}"]),
        ("node", ["shop.Make", "shop.Guard", "shop.Train", "shop.Judge", "shop.Push"]),
        ("component", [f"pipeline:{name}" for name in ("Make", "Guard", "Train", "Judge", "Push")]),
    ):
        rows = last_json(drivetrain("cost", "--by", by, "--json"))["rows"]
        assert {row[by] for row in rows} == set(labels)
        assert sum(row["money"] for row in rows) == pytest.approx(seconds)
    [row] = last_json(drivetrain("cost", "--where", f"run = '{runs[2]}' and state = 'FAILED'", "--json"))["rows"]
    assert row["cpu_hours"] * 3600 == pytest.approx(resources("FAILED")[0]["cpu_seconds"])


def test_the_table_says_what_is_estimated_what_was_saved_and_how_far_budgets_are(
    runs: list[str], drivetrain: Command
) -> None:
    text = drivetrain("cost").stdout
    assert all(run in text for run in runs)
    assert re.search(r"run +executions +CPU hours +peak GB +GB read +GB written +kWh +saved\n", text)
    assert re.search(rf"{runs[0]} +5 .* ~0\.0", text)
    assert re.search(rf"{runs[1]} +5 .*0\.0\d+ CPU h", text)
    assert "~ is an estimate, at least in part" in text
    Path("prices.yaml").write_text(
        PRICES + "budgets:\n- {pipeline: sh*, period: month, money: 1e9, action: stop}\n"
        "- {pipeline: sh*, period: month, cpu_hours: 0, action: stop}\n"
    )
    text = drivetrain("cost", "--by", "pipeline", "--prices", "prices.yaml").stdout
    assert re.search(r"g CO2 +EUR +saved\n", text)
    assert "the budget of 1,000,000,000.00 EUR a month for pipelines sh* is not used up: 0." in text
    assert "the budget of 0 CPU hours a month for pipelines sh* is used up" in text
    assert "no executions fit" in drivetrain("cost", "--where", "state = 'RUNNING'").stdout


def test_mistakes_are_the_users(runs: list[str], drivetrain: Command) -> None:
    Path("prices.yaml").write_text("prices:\n  cpu: 1\n")
    for words, message in (
        (("--where", "stat = 'x'"), "there is no field 'stat'"),
        (("--prices", "nothing.yaml"), "nothing.yaml cannot be read"),
        (("--prices", "prices.yaml"), "prices.yaml:2: prices: there is no price of 'cpu'"),
        (("--by", "namespace"), "'namespace' is not one of"),
    ):
        result = drivetrain("cost", *words)
        assert result.exit_code == 2
        assert message in result.stderr


def test_a_used_up_budget_stops_the_run_of_the_shell(shop: Path, drivetrain: Command, last_json: Read) -> None:
    Path("costs.yaml").write_text("budgets:\n- {period: day, kwh: 0, action: stop}\n")
    result = drivetrain("run", "shop")
    assert result.exit_code == 2
    assert "costs.yaml:2: the budget of 0 kWh a day for pipelines * is used up" in result.stderr
    assert last_json(drivetrain("run", "shop", "--over-budget", "--json"))["state"] == "COMPLETE"
    again = drivetrain("rerun")  # a run of its own, which nobody said may go over
    assert (again.exit_code, "is used up" in again.stderr) == (2, True)
    Path("costs.yaml").write_text("budgets:\n- {period: day, kwh: 0, action: warn}\n")
    result = drivetrain("run", "shop", "--json")
    assert last_json(result)["state"] == "COMPLETE"


def test_show_says_what_a_run_used_and_what_the_cache_saved(runs: list[str], drivetrain: Command) -> None:
    used = re.search(r"^used (.+) s of CPU, (.+) GB of memory at most$", drivetrain("show", runs[0]).stdout, re.M)
    assert used is not None
    seconds = sum(each["cpu_seconds"] for each in resources("COMPLETE"))
    assert float(used[1]) <= round(seconds, 2)
    assert f"the cache saved {used[1]} s of CPU" in drivetrain("show", runs[1]).stdout


def test_dataframes_have_the_resources(runs: list[str]) -> None:
    import drivetrain as dt

    frame = dt.find("executions", "state = 'COMPLETE' and property.resources.cpu_seconds > 0", root=".drivetrain")
    assert sorted(frame["properties.resources.cpu_seconds"]) == sorted(
        each["cpu_seconds"] for each in resources("COMPLETE")
    )
    costs = dt.costs("component", root=".drivetrain")
    assert costs["executions"].sum() == 15
    assert costs["saved.cpu_hours"].sum() > 0
    with pytest.raises(InputError, match="nothing to sum by"):
        dt.costs("day", root=".drivetrain")
