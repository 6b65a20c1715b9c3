"""Triggers by the clock: croniter says when, and zones whose clocks change lose and double no run."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice, pairwise, takewhile
from zoneinfo import ZoneInfo

import pytest
from croniter import croniter
from drivetrain.errors import InputError
from drivetrain.pipelines.triggers import Cron, Every
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ..kubeflow.test_cron import EXPRESSIONS, STARTS
from .views import BEGIN, HandMadeView, Watcher

ZONES = ["Europe/Oslo", "America/New_York", "Australia/Lord_Howe", "America/Santiago", "Africa/Casablanca"]
"""Among them one that moves its clocks by half an hour, one at midnight, one twice for Ramadan."""


@given(EXPRESSIONS, STARTS, st.sampled_from(["UTC", "+05:30", "-03:00", "Asia/Tokyo"]))
@settings(max_examples=150)
def test_cron_is_due_when_croniter_says(text: str, start: datetime, tz: str) -> None:
    assume(not any(low == high for low, high in re.findall(r"(\w+)-(\w+)", text)))  # croniter takes 5-5 for *
    try:
        trigger = Cron(text, tz=tz)
    except InputError:
        assert re.search(r" (30|31)", text)  # which its months have not
        return
    offset = next(trigger.after(datetime(2026, 1, 1, tzinfo=UTC))).utcoffset() or timedelta(0)
    begin = start.replace(tzinfo=UTC)
    # Debian's cron takes either kind of day only where neither begins with a star; croniter wherever neither is one.
    day, weekday = text.split()[2], text.split()[4]
    both = day.startswith("*") or weekday.startswith("*")
    other = croniter(text, start + offset, day_or=not both)
    expected = [(other.get_next(datetime) - offset).replace(tzinfo=UTC) for _ in range(5)]
    assert [time.astimezone(UTC) for time in islice(trigger.after(begin), 5)] == expected
    assert trigger.latest(expected[2]).astimezone(UTC) == expected[2]
    assert trigger.latest(expected[3] - timedelta(seconds=1)).astimezone(UTC) == expected[2]


@pytest.mark.parametrize("tz", ZONES)
@given(st.integers(0, 23), st.integers(0, 59), st.integers(2024, 2029))
@settings(max_examples=15)
def test_a_daily_time_is_due_once_on_every_day_of_a_year(tz: str, hour: int, minute: int, year: int) -> None:
    zone = ZoneInfo(tz)
    times = _year(Cron(f"{minute} {hour} * * *", tz=tz), zone, year)
    assert [time.date() for time in times] == [
        (datetime(year, 1, 1) + timedelta(days=day)).date() for day in range(len(times))
    ]
    assert len(times) == (datetime(year + 1, 1, 1) - datetime(year, 1, 1)).days
    for time in times:
        if (time.hour, time.minute) != (hour, minute):  # it was left out: due as the clocks have just moved
            before = (time.astimezone(UTC) - timedelta(minutes=1)).astimezone(zone)
            assert before.utcoffset() != time.utcoffset()
        earlier = (time.astimezone(UTC) - timedelta(hours=1)).astimezone(zone)
        assert (earlier.hour, earlier.minute) != (hour, minute), "the second of two"


@pytest.mark.parametrize("tz", ZONES)
def test_a_time_of_every_quarter_follows_the_clock(tz: str) -> None:
    zone = ZoneInfo(tz)
    days = [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=day) for day in range(365)]
    moves = [a for a, b in pairwise(days) if a.astimezone(zone).utcoffset() != b.astimezone(zone).utcoffset()]
    assert len(moves) == 2
    for day in moves:
        times = list(islice(Cron("*/15 * * * *", tz=tz).after(day - timedelta(hours=12)), 4 * 48))
        assert {later.astimezone(UTC) - earlier.astimezone(UTC) for earlier, later in pairwise(times)} == {
            timedelta(minutes=15)
        }


def _year(trigger: Cron, zone: tzinfo, year: int) -> list[datetime]:
    begin = datetime(year, 1, 1, tzinfo=zone) - timedelta(microseconds=1)
    return list(takewhile(lambda time: time.astimezone(zone).year == year, trigger.after(begin)))


def test_two_times_of_a_missing_hour_are_due_once() -> None:
    times = islice(Cron("15,45 2 * * *", tz="Europe/Oslo").after(datetime(2026, 3, 28, 12, tzinfo=UTC)), 3)
    assert [f"{time:%d %H:%M}" for time in times] == ["29 03:00", "30 02:15", "30 02:45"]


@pytest.mark.parametrize(
    ("catch_up", "due_at"),
    [("latest", ["01-04 03:00"]), ("all", ["01-01 03:00", "01-02 03:00", "01-03 03:00", "01-04 03:00"]), ("none", [])],
)
def test_what_was_missed(catch_up: str, due_at: list[str]) -> None:
    watcher = Watcher(Cron("0 3 * * *", catch_up=catch_up), HandMadeView())  # type: ignore[arg-type]
    four_days = 4 * 24 * 60
    signals = [watcher.look(four_days) for _ in range(5)]
    reasons = [signal.reason for signal in signals if signal.due]
    assert len(reasons) == len(due_at)
    assert all(f"was due at 2026-{at} UTC" in reason for at, reason in zip(due_at, reasons, strict=True))
    assert ("for 4 times together" in "".join(reasons)) == (catch_up == "latest")
    assert not watcher.look(four_days + 3 * 60 - 1).due
    assert watcher.look(four_days + 3 * 60).due  # at its time, whatever was missed before
    assert not watcher.look(four_days + 3 * 60 + 1).due


def test_what_was_missed_where_an_hour_comes_twice() -> None:
    """02:15, 02:30, 02:45 and 02:00 again: the last of them is the earliest by the clock on the wall."""
    watcher = Watcher(Cron("*/15 * * * *", tz="Europe/Oslo"), HandMadeView())
    midnight = (datetime(2026, 10, 25, tzinfo=UTC) - BEGIN) / timedelta(minutes=1)  # 02:00 in Oslo, for the first time
    assert watcher.look(midnight).due
    signal = watcher.look(midnight + 60)
    assert signal.due
    assert "was due at 2026-10-25 02:00" in signal.reason
    assert "for 4 times together" in signal.reason


@given(st.lists(st.integers(1, 300), max_size=30), st.sampled_from(["latest", "all"]))
def test_an_interval_is_due_for_each_of_its_times_once(steps: list[int], catch_up: str) -> None:
    watcher, at, runs = Watcher(Every("1h", catch_up=catch_up), HandMadeView()), 0, 0  # type: ignore[arg-type]
    for step in steps:
        at += step
        before = runs
        while watcher.look(at).due:
            runs += 1
        assert runs - before <= (1 if catch_up == "latest" else step // 60 + 1)
        assert catch_up == "latest" or runs == at // 60


def test_an_interval_begins_where_it_is_told_to() -> None:
    trigger = Every("1d12h", start="2026-01-01T06:00+01:00")
    assert [time.isoformat() for time in islice(trigger.after(BEGIN), 2)] == [
        "2026-01-01T06:00:00+01:00", "2026-01-02T18:00:00+01:00"
    ]  # fmt: skip
    assert next(trigger.after(BEGIN - timedelta(days=9))) >= datetime(2026, 1, 1, 5, tzinfo=UTC)
    assert str(trigger) == "Every('1d12h', start='2026-01-01T06:00+01:00')"


@pytest.mark.parametrize(
    ("fields", "tz", "message"),
    [
        ("0 3 * *", "UTC", "it has 4 fields"),
        ("0 25 * * *", "UTC", "its hour 25 is out of range"),
        ("0 0 31 2 *", "UTC", "names no date of any year"),
        ("0 3 * * *", "Europe/Nowhere", "there is no time zone"),
    ],
)
def test_what_is_no_time(fields: str, tz: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Cron(fields, tz=tz)


def test_an_interval_at_the_ends_of_the_calendar() -> None:
    assert next(Every("300d", start="0001-01-01").after(BEGIN)) > BEGIN
    assert len(list(Every("200d", start="9999-01-01").after(BEGIN))) == 2
    for start in ("9999-12-31T23:00-05:00", "0001-01-01T00:00+05:00", "soon"):
        with pytest.raises(InputError, match="is not a moment"):
            Every("1h", start=start)


@pytest.mark.parametrize("period", ["", "1y", "-5m", 0, 0.5, "5", True, float("nan"), "99999999999w", "9" * 5000 + "s"])
def test_what_is_no_interval(period: str) -> None:
    with pytest.raises(InputError, match=r"interval|length of time"):
        Every(period)
