"""`schedule`: the verbs, on a store and on what has yet to come."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from drivetrain.pipelines import Home, find_root
from drivetrain.pipelines.scheduler import Scheduler

Json = dict[str, Any]
Command = Callable[..., Result]
Read = Callable[[Result], Json]


@pytest.fixture
def scheduled(shop: Path) -> Path:
    """The project, run every second."""
    return schedule(shop, 'on.Every("1s")')


def schedule(shop: Path, trigger: str) -> Path:
    source = (shop / "pipeline.py").read_text()
    head, _, body = source.partition("@dt.pipeline")
    text = f"from drivetrain import triggers as on\n{head}@dt.pipeline(schedule={trigger}){body[body.index(chr(10)) :]}"
    (shop / "pipeline.py").write_text(text)
    return shop


def test_registered_run_logged_paused_and_removed(scheduled: Path, drivetrain: Command, last_json: Read) -> None:
    assert last_json(drivetrain("schedule", "register", "shop", "--json"))["change"] == "registered"
    assert drivetrain("schedule", "register", "shop").stdout == "unchanged shop: Every('1s')\n"
    assert "not looked at yet" in drivetrain("schedule", "list").stdout
    assert "decided nothing yet" in drivetrain("schedule", "log", "shop").stdout
    command = [sys.executable, "-m", "drivetrain", "schedule", "run", "--once"]
    time.sleep(1 - time.time() % 1)  # it is due at each whole second
    ended = subprocess.run(command, check=True, capture_output=True, text=True)
    (run,) = last_json(drivetrain("runs", "--json"))["runs"]
    assert "shop: Every('1s') was due at " in ended.stdout
    assert run["run"] in ended.stdout
    assert (run["state"], run["tags"]) == ("COMPLETE", {"schedule": "shop"})
    ticks = last_json(drivetrain("schedule", "log", "shop", "--json"))["ticks"]
    assert [tick["run"] for tick in ticks] == [run["run"]]
    assert f"run {run['run']}: Every('1s') was due at" in drivetrain("schedule", "log", "shop").stdout
    assert drivetrain("schedule", "pause", "shop").stdout == "paused shop\n"
    assert "shop (paused)  Every('1s')" in drivetrain("schedule", "list").stdout
    assert drivetrain("schedule", "run", "--once").exit_code == 0
    assert last_json(drivetrain("schedule", "list", "--json"))["schedules"][0]["paused"]
    assert drivetrain("schedule", "resume", "shop").stdout == "resumed shop\n"
    assert drivetrain("schedule", "remove", "shop").stdout == "removed shop\n"
    assert "no schedules in" in drivetrain("schedule", "list").stdout
    assert run["run"] in drivetrain("schedule", "log", "shop").stdout  # its log stays
    gone = drivetrain("schedule", "pause", "shop")
    assert (gone.exit_code, "there is no schedule 'shop'" in gone.stderr) == (2, True)
    never = drivetrain("schedule", "log", "mart")
    assert (never.exit_code, "there is no schedule 'mart'" in never.stderr) == (2, True)
    assert len(last_json(drivetrain("runs", "--json"))["runs"]) == 1


def test_a_trigger_that_cannot_be_is_refused_at_its_line(shop: Path, drivetrain: Command) -> None:
    lines = (schedule(shop, 'on.Cron("61 * * * *")') / "pipeline.py").read_text().splitlines()
    (number,) = [number for number, line in enumerate(lines, 1) if "61 *" in line]
    refused = drivetrain("schedule", "register", "shop")
    assert refused.exit_code == 2
    assert f"shop/pipeline.py:{number}: the cron expression '61 * * * *' cannot be a schedule" in refused.stderr


def test_each_single_look_starts_what_is_due(
    scheduled: Path, drivetrain: Command, last_json: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that the look before started has begun, which a look sees, and then looks on."""
    drivetrain("schedule", "register", "shop")
    runs = 0
    ahead = partial(Scheduler, clock=lambda: datetime.now(UTC) + timedelta(seconds=runs))
    monkeypatch.setattr("drivetrain.pipelines.scheduler.Scheduler", ahead)
    for runs in range(1, 4):
        assert drivetrain("schedule", "run", "--once").exit_code == 0
        assert len(last_json(drivetrain("runs", "--json"))["runs"]) == runs


def test_what_would_run_is_told_without_running(shop: Path, drivetrain: Command, last_json: Read) -> None:
    schedule(shop, 'on.Cron("30 2 * * *", tz="Europe/Oslo")')
    drivetrain("schedule", "register", "shop")
    at = datetime.now(UTC) + timedelta(days=400)
    answer = last_json(drivetrain("schedule", "test", "shop", "--at", at.isoformat(), "--json"))
    assert len(answer["runs"]) in (399, 400, 401)
    days = {tick["reason"].rpartition(" due at ")[2][:10] for tick in answer["runs"]}
    assert len(days) == len(answer["runs"])
    assert last_json(drivetrain("schedule", "list", "--json"))["schedules"][0]["said"] == ""
    text = drivetrain("schedule", "test", "shop").stdout
    assert "7 runs from " in text
    assert last_json(drivetrain("runs", "--json"))["runs"] == []


def test_what_would_have_run_by_what_was_recorded(shop: Path, drivetrain: Command, last_json: Read) -> None:
    before = datetime.now(UTC)
    drivetrain("run", "shop")
    drivetrain("run", "shop", "--param", "fail=no")
    drivetrain("run", "shop", "--param", "rows=4")
    schedule(shop, 'on.After("shop") | on.Failed("shop")')
    answer = last_json(
        drivetrain("schedule", "test", "shop", "--with-history", "--since", before.isoformat(), "--json")
    )
    runs = {run["run"]: run["state"] for run in last_json(drivetrain("runs", "--json"))["runs"]}
    assert len(answer["runs"]) == len([state for state in runs.values() if state in ("COMPLETE", "FAILED")]) == 3
    assert all(
        any(f"run {run} ended {state}" in fired["reason"] for fired in answer["runs"]) for run, state in runs.items()
    )
    assert (
        "no run from"
        in drivetrain(
            "schedule", "test", "shop", "--with-history", "--since", "2020-01-01", "--at", "2020-02-01"
        ).stdout
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("test", "shop"), "the pipeline shop has no schedule"),
        (("register", "shop"), "the pipeline shop has no schedule"),
        (("test", "shop", "--since", "2026-01-01"), "--since is for --with-history"),
        (("pause", "nothing"), "there is no schedule 'nothing'"),
    ],
)
def test_what_cannot_be(shop: Path, drivetrain: Command, arguments: tuple[str, ...], message: str) -> None:
    drivetrain("run", "shop")
    ended = drivetrain("schedule", *arguments)
    assert (ended.exit_code, message in ended.stderr) == (2, True)


def test_a_scheduler_makes_no_root_to_look_at_nothing(shop: Path, drivetrain: Command, last_json: Read) -> None:
    schedule(shop, 'on.Every("1d")')
    assert len(last_json(drivetrain("schedule", "test", "shop", "--json"))["runs"]) == 7
    drivetrain("schedule", "register", "shop")
    elsewhere = drivetrain("schedule", "run", "--once", "--root", "elsewhere")
    assert (elsewhere.exit_code, "there are no runs in" in elsewhere.stderr) == (2, True)
    assert not Path("elsewhere").exists()


def test_a_schedule_that_cannot_be_read_is_listed_and_removed(
    scheduled: Path, drivetrain: Command, last_json: Read
) -> None:
    drivetrain("schedule", "register", "shop")
    schedule(scheduled, 'on.Every("2s")')
    drivetrain("schedule", "register", "shop", "--name", "whole")
    with Home(find_root().root).store as store:
        context = store.find_context("schedule", "shop")
        assert context is not None
        store.update_context(context, {"schedule": {"trigger": {"$trigger": "Magic"}}})
    listed = drivetrain("schedule", "list").stdout
    assert "the schedule 'shop' cannot be read: there is no trigger 'Magic'" in listed
    assert "whole  Every('2s')" in listed
    answer = last_json(drivetrain("schedule", "list", "--json"))
    assert (len(answer["schedules"]), list(answer["unreadable"])) == (1, ["shop"])
    assert "cannot be read" in drivetrain("schedule", "pause", "shop").stderr
    assert drivetrain("schedule", "log", "shop").exit_code == 0
    assert drivetrain("schedule", "remove", "shop").stdout == "removed shop\n"


def test_a_moment_that_is_none(scheduled: Path, drivetrain: Command) -> None:
    drivetrain("run", "shop")
    assert "'soon' is not a moment" in drivetrain("schedule", "test", "shop", "--at", "soon").stderr
    assert "is not after" in drivetrain("schedule", "test", "shop", "--at", "2020-01-01").stderr


def test_what_would_run_is_bounded(shop: Path, drivetrain: Command, last_json: Read) -> None:
    schedule(shop, 'on.Every("1s")')
    answer = last_json(drivetrain("schedule", "test", "shop", "--json"))
    assert (len(answer["runs"]), answer["is_cut"]) == (1000, True)
    text = drivetrain("schedule", "test", "shop", "--limit", "3").stdout.splitlines()
    assert len(text) == 4
    assert text[-1].startswith("the first 3 runs after ")
