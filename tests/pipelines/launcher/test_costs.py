"""Prices, sums and budgets, under a clock that the test sets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from drivetrain.errors import DrivetrainError, InputError
from drivetrain.metadata import ExecutionRecord
from drivetrain.metadata.rows import microseconds
from drivetrain.pipelines import Home, PipelineFunction, RunOptions, open_run, resume, run_pipeline
from drivetrain.pipelines.launcher.budgets import OVER_BUDGET, budget_states, check_budgets
from drivetrain.pipelines.launcher.costs import Budget, CostSettings, CostSum, Prices, read_costs

Pipe = Callable[..., PipelineFunction[..., object]]

FILE = """
currency: EUR
prices:
  cpu_hour: 0.04
  gpu_hour:
    "*H100*": 2.5
    "*": 1
  gb_read: 0.01
  gb_written: 0.1
  kwh: 0.5
co2_grams_per_kwh: 400
budgets:
  - pipeline: flights*
    period: month
    money: 100
    action: stop
  - period: day
    cpu_hours: 24
    action: warn
"""


def settings(tmp_path: Path, text: str) -> CostSettings:
    (tmp_path / "costs.yaml").write_text(text)
    return read_costs(tmp_path / "costs.yaml")


def test_a_file_of_costs_is_read(tmp_path: Path) -> None:
    assert settings(tmp_path, FILE) == CostSettings(
        Prices(
            "EUR",
            {"cpu_hour": 0.04, "gb_read": 0.01, "gb_written": 0.1, "kwh": 0.5},
            (("*H100*", 2.5), ("*", 1)),
            400,
        ),
        (
            Budget("flights*", "month", 100, "money", True, "costs.yaml:13", "EUR"),
            Budget("*", "day", 24, "cpu_hours", False, "costs.yaml:17", "EUR"),
        ),
    )
    assert settings(tmp_path, "currency: EUR\nprices: {gpu_hour: 3}").prices.gpu_hour == (("*", 3),)


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("currency: EUR\nprices:\n  cpu_hours: 1", "there is no price of 'cpu_hours'", 3),
        ("currency: EUR\nprices:\n  cpu_hour: -1", "prices.cpu_hour is -1", 3),
        ("currency: EUR\nprices:\n  cpu_hour: cheap", "a number is wanted", 3),
        ("currency: EUR\nprices:\n  gpu_hour:\n    A100: .inf", "prices.gpu_hour.A100 is .inf", 4),
        ("prices:\n  cpu_hour: 1", "the prices have no currency", 2),
        ("budget: []", "unknown key 'budget'", 1),
        ("budgets:\n- period: month\n  money: 1\n  action: stop", "of money, and there are no prices", 3),
        ("budgets:\n- period: month\n  action: stop", "has no limit", 2),
        ("budgets:\n- period: month\n  action: stop\n  kwh: 1\n  cpu_hours: 1", "more than one limit", 2),
        ("budgets:\n- period: year\n  kwh: 1\n  action: stop", "period is 'year'", 2),
        ("budgets:\n- period: day\n  kwh: 1\n  action: halt", "action is 'halt'", 4),
        ("budgets:\n- period: day\n  kwh: 1", "has no action:", 2),
        ("budgets:\n- period: day\n  kw: 1\n  action: stop", "a budget has no key 'kw'", 3),
        ("a: b: c", "not YAML", 1),
    ],
)
def test_what_is_wrong_in_the_file_is_said_with_its_line(tmp_path: Path, text: str, message: str, line: int) -> None:
    with pytest.raises(InputError) as error:
        settings(tmp_path, text)
    assert message in error.value.message
    assert error.value.where == f"costs.yaml:{line}"
    assert error.value.fix


def test_a_file_that_is_empty_or_not_there_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is empty"):
        settings(tmp_path, "")
    (tmp_path / "costs.yaml").write_bytes(b"\xff")
    for name in ("prices.yaml", "costs.yaml"):
        with pytest.raises(InputError, match="cannot be read") as error:
            read_costs(tmp_path / name)
        assert "--" not in (error.value.fix or "--")  # `run` reads it too, and has no option for it


RESOURCES = {
    "cpu_seconds": 7200.0,
    "gpu_seconds": 5400.0,
    "peak_memory": 3_000,
    "bytes_read": 5 * 10**9,
    "bytes_written": 2 * 10**9,
    "joules": 3.6e6,
    "energy": "measured",
}


@pytest.mark.parametrize(("model", "of_gpu"), [("NVIDIA H100 80GB", 3.75), ("NVIDIA L4", 1.5), (None, 1.5)])
def test_money_is_the_sum_of_amounts_times_prices(tmp_path: Path, model: str | None, of_gpu: float) -> None:
    prices = settings(tmp_path, FILE).prices
    used = RESOURCES | ({} if model is None else {"accelerator": model})
    assert prices.money(used) == pytest.approx(2 * 0.04 + of_gpu + 5 * 0.01 + 2 * 0.1 + 0.5)
    assert prices.money({}) == prices.money({"cpu_seconds": "many", "joules": None}) == 0
    assert not Prices()


def record(home: Home, pipeline: str, resources: Mapping[str, Any] | None) -> ExecutionRecord:
    """An execution of a pipeline that ends now."""
    store = home.store
    contexts = [store.context("pipeline", pipeline)]
    execution = store.start("Make", contexts=contexts, cache_key=f"key-{store.now()}", properties={"node": "Make"})
    store.publish(execution, {}, properties={} if resources is None else {"resources": dict(resources)})
    return store.execution(execution.id)


def test_sums_say_what_was_used_what_was_saved_and_what_nobody_measured(home: Home, tmp_path: Path) -> None:
    whole = CostSum(settings(tmp_path, FILE).prices)
    first = record(home, "flights", RESOURCES)
    cached = home.store.record("Make", "CACHED", contexts=[], cached_from=first)
    whole.add(first)
    whole.add(cached, first)
    whole.add(record(home, "flights", {**RESOURCES, "energy": "estimate", "peak_memory": 9_000}))
    whole.add(record(home, "flights", None))
    whole.add(home.store.record("Make", "SKIPPED", contexts=[]))
    answer = whole.to_json()
    assert {name: answer[name] for name in ("executions", "cached", "unmeasured")} == {
        "executions": 5,
        "cached": 1,
        "unmeasured": 1,
    }
    assert answer["cpu_hours"] == 4
    assert answer["gpu_hours"] == 3
    assert answer["peak_memory"] == 9_000
    assert answer["gb_read"] == 10
    assert answer["kwh"] == 2
    assert answer["co2_grams"] == 800
    assert answer["estimated"] is True
    assert answer["money"] == pytest.approx(2 * whole.prices.money(RESOURCES))
    assert answer["saved"] == {
        "cpu_hours": 2,
        "gpu_hours": 1.5,
        "kwh": 1,
        "co2_grams": 400,
        "money": pytest.approx(whole.prices.money(RESOURCES)),
    }
    assert CostSum(Prices()).to_json()["money"] is None


def at(home: Home, text: str) -> None:
    """Set the store's clock."""
    moment = microseconds(datetime.fromisoformat(text))
    home.store._db.clock = lambda: moment


@pytest.mark.parametrize(
    ("period", "moment", "begin", "end"),
    [
        ("month", "2026-02-28T23:59:59.999999+00:00", "2026-02-01", "2026-03-01"),
        ("month", "2028-02-29T12:00:00+00:00", "2028-02-01", "2028-03-01"),
        ("month", "2026-12-31T23:59:59+00:00", "2026-12-01", "2027-01-01"),
        ("month", "2026-03-01T00:30:00+01:00", "2026-02-01", "2026-03-01"),  # still February in UTC
        ("month", "2026-03-31T22:00:00-05:00", "2026-04-01", "2026-05-01"),
        ("week", "2026-11-29T23:59:59+00:00", "2026-11-23", "2026-11-30"),
        ("week", "2026-11-30T00:00:00+00:00", "2026-11-30", "2026-12-07"),
        ("day", "2026-10-25T01:30:00+02:00", "2026-10-24", "2026-10-25"),  # Europe's clocks are set back that night
    ],
)
def test_periods_are_of_utc(period: str, moment: str, begin: str, end: str) -> None:
    budget = Budget("*", period, 1, "kwh", True, "")
    bounds = tuple(datetime.fromisoformat(day).replace(tzinfo=UTC) for day in (begin, end))
    assert budget.bounds(datetime.fromisoformat(moment)) == bounds


def test_a_budget_counts_what_ended_in_its_period_of_its_pipelines(home: Home, tmp_path: Path) -> None:
    of = settings(tmp_path, FILE)
    for moment in ("2026-10-31T23:59:59.999999+00:00", "2026-11-01T00:00:00+00:00", "2026-11-30T23:59:59+00:00"):
        at(home, moment)
        record(home, "flights'q", RESOURCES)
        record(home, "weather", RESOURCES)
        record(home, "flights'q", None)
    each = of.prices.money(RESOURCES)
    for moment, money, hours in (
        ("2026-10-31T23:59:59.999999+00:00", each, 4),
        ("2026-11-01T12:00:00+00:00", 2 * each, 4),
        ("2026-11-30T23:59:59.5+00:00", 2 * each, 4),
        ("2026-12-01T00:00:00+00:00", 0, 0),
    ):
        at(home, moment)
        of_money, of_hours = budget_states(home, of)
        assert of_money.spent == pytest.approx(money)
        assert of_hours.spent == hours
    assert of_money.end == datetime(2027, 1, 1, tzinfo=UTC)
    assert [state.budget.unit for state in budget_states(home, of, "weather")] == ["cpu_hours"]


def test_a_used_up_budget_stops_runs_until_its_period_is_over(
    home: Home, pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = pipe("Make(count=count)")
    at(home, "2026-11-30T23:59:00+00:00")
    limit = "budgets:\n- pipeline: sh*\n  period: month\n  cpu_hours: {}\n  action: stop\n"
    (home.base / "costs.yaml").write_text(limit.format(2))
    assert run_pipeline(home, pipeline).state == "COMPLETE"  # nothing is used up
    record(home, "shop", RESOURCES)
    with pytest.raises(InputError) as error:
        run_pipeline(home, pipeline)
    assert str(error.value).splitlines() == [
        "costs.yaml:2: the budget of 2 CPU hours a month for pipelines sh* is used up: 2 CPU hours by now; it starts "
        "again on 2026-12-01 at 00:00 UTC",
        "  fix: wait until then, raise the limit, or begin it all the same with --over-budget or "
        "DRIVETRAIN_OVER_BUDGET=1, which the run records",
    ]
    assert home.store.count_contexts("run") == 1
    over = run_pipeline(home, pipeline, options=RunOptions(over_budget=True))
    [noted] = open_run(home, over.run).context.properties["over_budget"]
    assert "is used up" in noted
    monkeypatch.setenv(OVER_BUDGET, "1")
    assert run_pipeline(home, pipeline).state == "COMPLETE"
    monkeypatch.setenv(OVER_BUDGET, "0")
    with pytest.raises(InputError):
        run_pipeline(home, pipeline)
    monkeypatch.delenv(OVER_BUDGET)
    at(home, "2026-12-01T00:00:00+00:00")
    later = run_pipeline(home, pipeline)
    assert "over_budget" not in open_run(home, later.run).context.properties


def test_a_run_is_not_resumed_over_a_budget_either(home: Home, pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = run_pipeline(home, pipe("Misbehave(Make(), code='raise ValueError')")).run
    record(home, "shop", RESOURCES)
    (home.base / "costs.yaml").write_text("budgets:\n- {period: day, kwh: 0.5, action: stop}")
    with pytest.raises(InputError, match="used up: 1 kWh by now"):
        resume(home, failed)
    assert open_run(home, failed).state == "FAILED"
    monkeypatch.setenv(OVER_BUDGET, "yes")
    resume(home, failed)
    assert open_run(home, failed).context.properties["over_budget"]


def test_a_budget_that_warns_says_so_in_the_log(home: Home, pipe: Pipe, caplog: pytest.LogCaptureFixture) -> None:
    record(home, "shop", RESOURCES)
    (home.base / "costs.yaml").write_text("budgets:\n- {pipeline: shop, period: week, kwh: 0.5, action: warn}")
    with caplog.at_level(logging.WARNING):
        result = run_pipeline(home, pipe("Make()"))
    assert "costs.yaml:2: the budget of 0.5 kWh a week for pipelines shop is used up: 1 kWh by now" in caplog.text
    assert "over_budget" not in open_run(home, result.run).context.properties
    caplog.clear()
    (home.base / "costs.yaml").write_text("budgets:\n- {pipeline: other, period: week, kwh: 0, action: stop}")
    assert check_budgets(home, "shop", over=False) == []
    assert caplog.text == ""
    (home.base / "costs.yaml").write_text("budgets: often")
    with pytest.raises(DrivetrainError, match=r"costs.yaml:1: budgets must be a list"):
        run_pipeline(home, pipe("Make()"))


def test_work_of_a_run_counts_for_its_budget(home: Home, pipe: Pipe) -> None:
    (home.base / "costs.yaml").write_text("budgets:\n- {pipeline: shop, period: day, cpu_hours: 1e-7, action: stop}")
    assert run_pipeline(home, pipe("Make()")).state == "COMPLETE"
    used = [each.resources["cpu_seconds"] for each in home.store.executions(state="COMPLETE")]
    with pytest.raises(InputError, match="is used up"):
        run_pipeline(home, pipe("Make()"))
    [state] = budget_states(home, read_costs(home.base / "costs.yaml"))
    assert state.spent == pytest.approx(sum(used) / 3600)
    assert state.end - datetime.now(UTC) < timedelta(days=1)
