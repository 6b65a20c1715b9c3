"""Schedules in the store: each occasion starts one run, whoever dies; and what the log says of it."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from drivetrain.errors import BuildError, InputError
from drivetrain.metadata import ConflictError
from drivetrain.metadata.errors import StoreUnavailable
from drivetrain.pipelines import Home, PipelineFunction, list_runs, load_pipeline, open_run
from drivetrain.pipelines.scheduler import (
    Scheduler,
    find_schedule,
    pause_schedule,
    recorded_schedules,
    register_schedule,
    remove_schedule,
    schedules,
    ticks,
)
from drivetrain.pipelines.scheduler.records import ScheduleRecord
from drivetrain.pipelines.scheduler.tick import decide_tick
from drivetrain.pipelines.scheduler.view import StoreView
from drivetrain.tests.pipelines.faulty import waits

PIPELINE = """
    import drivetrain as dt
    from drivetrain import triggers as on

    class Thing(dt.Artifact):
        count: int = 0

    @dt.component
    def Make(*, count: int) -> Thing:
        return Thing.new(count=count)

    @dt.pipeline(schedule={schedule})
    def shop(count: int = 3) -> None:
        Make.options(cache=False)(count=count)
"""
BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
Write = Callable[..., PipelineFunction[..., Any]]


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = BEGIN

    def __call__(self) -> datetime:
        return self.now

    def forward(self, **length: float) -> None:
        self.now += timedelta(**length)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def write(project: Callable[..., Path]) -> Write:
    """`write(schedule)` is a pipeline with that schedule, in the project `shop`."""

    def written(schedule: str = 'on.Every("1h")') -> PipelineFunction[..., Any]:
        return load_pipeline(project("shop", pipeline=textwrap.dedent(PIPELINE).format(schedule=schedule)))

    return written


@pytest.fixture
def look(home: Home, clock: Clock) -> Callable[[], list[str]]:
    """Have a scheduler look until no run is pending; gives what it reports."""
    lines: list[str] = []
    scheduler = Scheduler(home, clock=clock, report=lines.append)

    def has_begun_all() -> bool:
        scheduler.look()
        return all(each.pending is None for each in schedules(home))

    def go() -> list[str]:
        lines.clear()
        scheduler.look()
        waits(has_begun_all)
        scheduler.join()
        return list(lines)

    return go


def test_a_run_begins_when_it_is_due_and_the_log_says_why(
    home: Home, write: Write, clock: Clock, look: Callable[[], list[str]]
) -> None:
    register_schedule(home, write('on.Schedule(on.Every("1h"), parameters={"count": 5})'))
    assert look() == []
    clock.forward(minutes=59)
    assert look() == []
    clock.forward(minutes=1)
    (line,) = look()
    assert look() == []
    (run,) = list_runs(home)
    assert line == f"shop: Every('1h') was due at 2026-03-01 01:00 UTC; run {run.id}"
    assert (run.state, run.parameters, run.tags) == ("COMPLETE", {"count": 5}, {"schedule": "shop"})
    assert [(tick.run, tick.reason) for tick in ticks(home, "shop")] == [
        ("", "Every('1h') is due at 2026-03-01 02:00 UTC"),
        (run.id, "Every('1h') was due at 2026-03-01 01:00 UTC"),
        ("", "Every('1h') is due at 2026-03-01 01:00 UTC"),
    ]
    clock.forward(hours=5)
    look()
    assert len(list_runs(home)) == 2


def test_nothing_is_written_while_nothing_changes(home: Home, write: Write, clock: Clock) -> None:
    register_schedule(home, write())
    scheduler = Scheduler(home, clock=clock)
    scheduler.look()
    version = find_schedule(home, "shop").context.version
    for _ in range(50):
        clock.forward(minutes=1)
        scheduler.look()
    assert find_schedule(home, "shop").context.version == version
    assert len(ticks(home, "shop")) == 1


def test_what_came_before_it_was_registered_starts_nothing(
    home: Home, write: Write, clock: Clock, look: Callable[[], list[str]], project: Callable[..., Path]
) -> None:
    data = home.base / "data"
    data.mkdir(parents=True)
    (data / "1.csv").write_text("a")
    register_schedule(home, write('on.NewSpan("data/{SPAN}.csv")'))
    look()
    (data / "2.csv").write_text("a")
    assert look() == []  # a minute has not gone by
    clock.forward(minutes=1)
    assert "span 2" in look()[0]
    clock.forward(minutes=1)
    assert look() == []


def test_what_comes_before_the_first_look_starts_a_run(
    home: Home, write: Write, clock: Clock, look: Callable[[], list[str]]
) -> None:
    """A schedule that is registered watches, whenever a scheduler begins."""
    data = home.base / "data"
    data.mkdir(parents=True)
    (data / "1.csv").write_text("a")
    clock.now = datetime.now(UTC)
    register_schedule(home, write('on.NewSpan("data/{SPAN}.csv") & on.Every("1h")'))
    (data / "2.csv").write_text("a")
    clock.forward(hours=1)
    (line,) = look()
    assert "span 2; and Every('1h') was due at" in line
    register_schedule(home, write('on.NewSpan("data/{SPAN}.csv", poll="1s") | on.NewSpan("data/b-{SPAN}.csv")'))
    (data / "b-1.csv").write_text("a")  # an edit watches from when it is registered, too
    clock.forward(hours=1)
    (line,) = look()
    assert "b-{SPAN}.csv" in line
    assert "span 1" in line


def test_runs_and_artifacts_start_others(home: Home, write: Write, look: Callable[[], list[str]], clock: Clock) -> None:
    pipeline = write('on.Every("1h")')
    register_schedule(home, pipeline)
    trigger = 'on.After("shop") & on.NewArtifact("Thing", pipeline="shop", made_by="Make")'
    register_schedule(home, write(trigger), "other")
    clock.now = datetime.now(UTC)
    edited = write('on.Every("1h")')
    source = find_schedule(home, "other").source
    assert source is not None
    os.utime(edited.project / "pipeline.py", ns=(source, source))  # the other does not follow the edit
    register_schedule(home, edited)
    look()
    clock.forward(hours=1)
    first = look()
    clock.forward(seconds=1)
    second = look()
    # The other runs the same pipeline: where the machine is slow, its own run has ended meanwhile and starts it, too.
    assert [line.partition(":")[0] for line in (first + second)[:2]] == ["shop", "other"]
    assert f"run {list_runs(home)[-1].id} ended COMPLETE; and NewArtifact" in (first + second)[1]


@pytest.mark.parametrize(
    "trigger", ['After("shop")', 'Every("1h") | on.Failed("shop")', 'After("shop").debounce("1m")']
)
def test_a_pipeline_that_starts_itself_for_ever_is_refused(home: Home, write: Write, trigger: str) -> None:
    with pytest.raises(BuildError, match="starts shop after each run of shop: it would never rest"):
        register_schedule(home, write(f"on.{trigger}"))
    register_schedule(home, write('on.After("shop").cooldown("1h")'))


def test_a_database_that_is_asked_and_one_that_is_not_there(
    home: Home, write: Write, clock: Clock, look: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = home.base / "shop.db"
    home.base.mkdir(parents=True, exist_ok=True)
    monkeypatch.setenv("SHOP", f"sqlite:///{path}")
    register_schedule(home, write('on.NewRows("SELECT max(id) FROM t", "env:SHOP", poll="5m")'))
    (line,) = look()
    assert "trying again every 60 s" in line
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE t (id INTEGER)")
    assert look() == []
    clock.forward(minutes=1)
    assert look() == []
    with sqlite3.connect(path) as database:
        database.execute("INSERT INTO t VALUES (7)")
    database.close()
    clock.forward(minutes=5)
    assert "the answer is 7" in look()[0]


def test_no_more_runs_at_once_than_it_says(home: Home, write: Write, clock: Clock) -> None:
    register_schedule(home, write('on.Schedule(on.Every("1h", catch_up="all"), max_active=2)'))
    decided = []
    for _ in range(8):
        record = _settled(home)
        decided.append(decide_tick(home, record, StoreView(home, record.project, clock.now)))
        clock.forward(hours=1)
    runs = [each.run for each in decided if each.run]
    assert len(runs) == 2
    assert decided[-1].record.said.endswith(f"; waits for run {runs[0]}")
    assert "was due at 2026-03-01 03:00" in decided[-1].record.said


def _settled(home: Home) -> ScheduleRecord:
    """The schedule as if its pending run had just begun, and goes on."""
    record = find_schedule(home, "shop")
    if record.pending is None:
        return record
    return ScheduleRecord.of(home.store.update_context(record.context, {"pending": None}))


def test_whoever_comes_after_a_crash_begins_the_run_that_was_decided(
    home: Home, write: Write, clock: Clock, look: Callable[[], list[str]]
) -> None:
    register_schedule(home, write())
    decide_tick(home, find_schedule(home, "shop"), StoreView(home, home.base, clock.now))
    clock.forward(hours=1)
    decided = decide_tick(home, find_schedule(home, "shop"), StoreView(home, home.base, clock.now))
    assert decided.run
    home.store.update_context(decided.record.context, {})  # anything: a crash came before the log
    look()
    assert [run.id for run in list_runs(home)] == [decided.run]
    assert [tick.run for tick in ticks(home, "shop") if tick.run] == [decided.run]


def test_of_two_that_look_at_once_one_starts_the_run(home: Home, write: Write, clock: Clock) -> None:
    register_schedule(home, write())
    decide_tick(home, find_schedule(home, "shop"), StoreView(home, home.base, clock.now))
    clock.forward(hours=1)
    record = find_schedule(home, "shop")
    assert decide_tick(home, record, StoreView(home, home.base, clock.now)).run
    with pytest.raises(ConflictError):
        decide_tick(home, record, StoreView(home, home.base, clock.now))


def test_a_paused_one_waits_and_a_removed_one_is_forgotten(
    home: Home, write: Write, clock: Clock, look: Callable[[], list[str]]
) -> None:
    pipeline = write()
    register_schedule(home, pipeline)
    look()
    pause_schedule(home, "shop", paused=True)
    clock.forward(hours=3)
    assert look() == []
    pause_schedule(home, "shop", paused=False)
    assert "for 3 times together" in look()[0]
    remove_schedule(home, "shop")
    clock.forward(hours=3)
    assert look() == []
    assert schedules(home) == []
    with pytest.raises(InputError, match="no schedule 'shop'"):
        pause_schedule(home, "shop", paused=True)
    assert register_schedule(home, pipeline)[1] == "registered"
    assert look() == []
    clock.forward(hours=1)
    assert len(look()) == 1


def test_a_pipeline_that_cannot_be_loaded_is_told_of_and_the_next_time_is_another(
    home: Home, write: Write, clock: Clock, look: Callable[[], list[str]]
) -> None:
    pipeline = write()
    register_schedule(home, pipeline)
    look()
    source = pipeline.project / "pipeline.py"
    text = source.read_text()
    source.write_text("import nothing_of_the_kind\n")
    os.utime(source, ns=(1, 1))
    look()
    clock.forward(hours=1)
    look()
    said = [tick.reason for tick in ticks(home, "shop")]
    assert any("could not begin: " in reason and "nothing_of_the_kind" in reason for reason in said)
    assert list_runs(home) == []
    source.write_text(text)
    clock.forward(hours=1)
    look()
    assert [run.state for run in list_runs(home)] == ["COMPLETE"]


def test_an_edit_is_followed_or_refused(home: Home, write: Write, clock: Clock, look: Callable[[], list[str]]) -> None:
    register_schedule(home, write())
    look()
    write('on.Every("2h")')
    look()
    waits(lambda: "2h" in str(find_schedule(home, "shop").schedule.trigger))


def test_a_pinned_schedule_goes_on_with_the_code_that_was_registered(
    home: Home, project: Callable[..., Path], clock: Clock, look: Callable[[], list[str]]
) -> None:
    def written(more: int) -> PipelineFunction[..., Any]:
        parts = """
        import drivetrain as dt
        from drivetrain.pipelines import Files, resolve_files
        from .deep.numbers import MORE

        class Thing(dt.Artifact):
            count: int = 0

        @dt.component
        def Make(data: Files) -> Thing:
            return Thing.new(count=MORE + sum(int(each.path.read_text()) for each in resolve_files(data).files))
        """
        text = """
        import drivetrain as dt
        from drivetrain import triggers as on
        from .parts import Make

        @dt.pipeline(schedule=on.Schedule(on.Every("1h"), version="pin"))
        def shop() -> None:
            Make.options(cache=False)(dt.files("data/*.txt"))
        """
        folder = project("shop", parts=parts, pipeline=text)
        for path in (folder / "deep" / "numbers.py", folder / "data" / "1.txt"):
            path.parent.mkdir(exist_ok=True)
        (folder / "deep" / "numbers.py").write_text(f"MORE = {more}\n")
        (folder / "deep" / "note.txt").write_text("no code")
        return load_pipeline(folder)

    pipeline = written(100)
    (pipeline.project / "data" / "1.txt").write_text("1")
    register_schedule(home, pipeline)
    look()
    edited = written(200)
    (pipeline.project / "parts.py").write_text("this is no Python")
    (pipeline.project / "data" / "2.txt").write_text("20")
    for _ in range(2):  # laid out, and there already
        clock.forward(hours=1)
        look()
    assert [run.state for run in list_runs(home)] == ["COMPLETE", "COMPLETE"]
    assert [record.properties["count"] for record in home.store.artifacts(type="Thing")] == [121, 121]
    edited = written(200)
    assert register_schedule(home, edited)[1] == "changed"
    clock.forward(hours=1)
    look()
    assert home.store.artifacts(type="Thing")[0].properties["count"] == 221
    assert home.store.artifacts(type="Thing")[0].producer is not None
    assert register_schedule(home, written(200))[1] == "unchanged"


def test_a_schedule_that_an_earlier_release_pinned_or_whose_code_lies_elsewhere_starts_nothing_after_an_edit(
    home: Home, write: Write, clock: Clock, look: Callable[[], list[str]]
) -> None:
    register_schedule(home, write('on.Schedule(on.Every("1h"), version="pin")'))
    home.store.update_context(find_schedule(home, "shop").context, {"code": None})
    look()
    write('on.Schedule(on.Every("3h"), version="pin")')
    clock.forward(hours=1)
    look()
    assert list_runs(home) == []
    assert any("was edited since the schedule shop was registered" in tick.reason for tick in ticks(home, "shop"))
    home.store.update_context(find_schedule(home, "shop").context, {"code": "0" * 64})
    clock.forward(hours=1)
    look()
    assert list_runs(home) == []
    assert any("is not in this store" in tick.reason for tick in ticks(home, "shop"))


def test_what_unchanged_triggers_remember_stays(
    home: Home, write: Write, clock: Clock, look: Callable[[], list[str]]
) -> None:
    data = home.base / "data"
    data.mkdir(parents=True)
    register_schedule(home, write('on.NewSpan("data/{SPAN}.csv") & on.Every("1d")'))
    look()
    (data / "1.csv").write_text("a")
    _, change = register_schedule(home, write('on.NewSpan("data/{SPAN}.csv") | on.Every("7d")'))
    assert change == "changed"
    clock.forward(minutes=1)
    assert any("span 1" in line for line in look())


def test_what_cannot_be_registered(home: Home, write: Write, project: Callable[..., Path]) -> None:
    register_schedule(home, write())
    assert register_schedule(home, write())[1] == "unchanged"
    (home.base.parent / "other").mkdir()
    other = load_pipeline(project("other/shop", pipeline=textwrap.dedent(PIPELINE).format(schedule='on.Every("1h")')))
    with pytest.raises(InputError, match="belongs to the pipeline shop in"):
        register_schedule(home, other)
    assert register_schedule(home, other, "another")[0].name == "another"
    with pytest.raises(InputError, match="there is no runner 'nope'"):
        register_schedule(home, write('on.Schedule(on.Every("1h"), runner="nope")'))
    with pytest.raises(InputError, match="has no schedule"):
        register_schedule(home, write("None"))
    with pytest.raises(InputError, match="no parameter 'rows'"):
        register_schedule(home, write('on.Schedule(on.Every("1h"), parameters={"rows": 5})'))
    with pytest.raises(BuildError, match="is not a trigger"):
        write('"0 3 * * *"')


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"schedule": {"trigger": {"$trigger": "Magic"}}}, "there is no trigger 'Magic'"),
        ({"schedule": {"trigger": {"$trigger": "Every", "period": "1h"}, "new": 1}}, "new"),
        ({"schedule": None}, "cannot be read"),
        ({"marks": 7}, "cannot be read"),
        ({"pending": {"run": "x"}}, "cannot be read"),
        ({"project": None}, "cannot be read"),
        ({"marks": {'{"$trigger":"Every","period":3600}': "yesterday"}}, "yesterday"),
    ],
)
def test_a_damaged_record_or_one_of_a_newer_release_stops_no_other(
    home: Home, write: Write, clock: Clock, damage: dict[str, object], message: str
) -> None:
    damaged = register_schedule(home, write(), "damaged")[0]
    register_schedule(home, write('on.Schedule(on.Every("1h"), parameters={"count": 5})'), "whole")
    lines: list[str] = []
    scheduler = Scheduler(home, clock=clock, report=lines.append)
    scheduler.look()
    home.store.update_context(damaged.context, damage)
    clock.forward(hours=1)
    scheduler.look()
    assert any(line.startswith("damaged: ") and message in line for line in lines)
    assert any(line.startswith("whole: Every('1h') was due") for line in lines)
    said = len(lines)
    scheduler.look()
    assert len(lines) == said
    if "cannot be read" in lines[0]:
        assert [each.name for each in schedules(home)] == ["whole"]
        assert [each.name for each in recorded_schedules(home)] == ["damaged", "whole"]
        with pytest.raises(BuildError, match="the schedule 'damaged' cannot be read"):
            pause_schedule(home, "damaged", paused=True)
    ticks(home, "damaged")
    remove_schedule(home, "damaged")
    assert register_schedule(home, write(), "damaged")[1] == "registered"
    scheduler.join()


def test_a_database_that_hangs_keeps_no_other_waiting(
    home: Home, write: Write, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()

    def hang(*_: object) -> list[list[str]]:
        assert answers.wait(60)
        return [["1"]]

    register_schedule(home, write('on.Schedule(on.NewRows("SELECT 1", "env:SHOP"), version="pin")'), "hangs")
    monkeypatch.setattr("drivetrain.pipelines.scheduler.view.fetch_watermark", hang)
    register_schedule(home, write(), "whole")
    lines: list[str] = []
    scheduler = Scheduler(home, clock=clock, report=lines.append, patience=0.2)
    scheduler.look()
    clock.forward(hours=1)
    scheduler.look()
    assert "hangs: env:SHOP (SELECT 1) has not answered within 0.2 s; trying again every 60 s" in lines
    assert any(line.startswith("whole: Every('1h') was due") for line in lines)
    clock.forward(minutes=1)
    scheduler.look()
    asking = [each for each in threading.enumerate() if "_carry_out" in each.name]
    assert len(asking) == 1  # it is not asked a second time
    answers.set()
    asking[0].join(60)
    clock.forward(minutes=1)
    scheduler.look()
    assert "watches from now on" in find_schedule(home, "hangs").said
    scheduler.join()


def test_what_another_machine_dates_a_little_later_is_not_missed(
    home: Home, write: Write, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    register_schedule(home, write('on.After("ingest") | on.NewArtifact("Thing")'))
    lines: list[str] = []
    scheduler = Scheduler(home, clock=clock, report=lines.append)
    scheduler.look()
    soon = clock.now + timedelta(seconds=3)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    monkeypatch.setattr(home.store._db, "clock", lambda: (soon - epoch) // timedelta(microseconds=1))
    facts = {"pipeline": "ingest", "state": "COMPLETE", "finished": soon.isoformat()}
    home.store.context("run", "20260301-000003-abcd", facts)
    scheduler.look()
    assert lines == []
    clock.forward(seconds=3)
    scheduler.look()
    assert "run 20260301-000003-abcd ended COMPLETE" in lines[0]
    scheduler.join()


def test_a_clock_that_was_a_year_ahead(home: Home, write: Write, clock: Clock, look: Callable[[], list[str]]) -> None:
    register_schedule(home, write())
    clock.forward(days=365)
    look()
    clock.forward(hours=1)
    assert len(look()) == 1
    clock.forward(days=-365, hours=-1)
    assert look() == []
    clock.forward(hours=1)
    assert len(look()) == 1
    clock.forward(minutes=-30)  # it was a little fast: what was due does not come twice
    assert look() == []
    clock.forward(minutes=45)
    assert look() == []


@pytest.mark.parametrize("name", ["../x", "-x", "a b", "a\n", "\x1b[31m", "n" * 201, "猫/"])
def test_what_is_no_name(home: Home, write: Write, name: str) -> None:
    with pytest.raises(InputError, match="cannot be the name of a schedule"):
        register_schedule(home, write(), name)


def test_a_name_as_long_as_it_may_be(home: Home, write: Write, clock: Clock, look: Callable[[], list[str]]) -> None:
    register_schedule(home, write(), "猫" * 200)
    look()
    clock.forward(hours=1)
    look()
    assert [run.tags for run in list_runs(home)] == [{"schedule": "猫" * 200}]
    write('on.Every("2h")')
    look()
    assert "2h" in str(find_schedule(home, "猫" * 200).schedule.trigger)


def test_an_edit_while_no_scheduler_was_at_work_is_followed(home: Home, write: Write, clock: Clock) -> None:
    register_schedule(home, write())
    write('on.Every("2h")')
    scheduler = Scheduler(home, clock=clock)
    scheduler.look()
    scheduler.join()
    assert "2h" in str(find_schedule(home, "shop").schedule.trigger)
    (find_schedule(home, "shop").project / "pipeline.py").write_text("import nothing_of_the_kind\n")
    for _ in range(3):
        scheduler.look()
        scheduler.join()
    said = [tick.reason for tick in ticks(home, "shop") if "could not be registered" in tick.reason]
    assert len(said) == 1
    assert "nothing_of_the_kind" in said[0]


def test_a_lease_that_is_held_makes_another_wait(home: Home, write: Write) -> None:
    lines: list[str] = []
    second_home, stop = Home(home.root), threading.Event()
    claim = second_home.store.claim("scheduler", lease=60)
    assert claim is not None
    scheduler = Scheduler(home, report=lines.append)
    thread = threading.Thread(target=scheduler.run, args=(stop,), kwargs={"poll": 0.05})
    register_schedule(second_home, write('on.Every("1s")'))
    thread.start()
    waits(lambda: lines)
    assert lines == ["another scheduler is at work on this store; waiting for it to end"]
    second_home.store.release(claim)
    waits(lambda: len(list_runs(second_home)) > 0)
    stop.set()
    thread.join(30)
    assert not thread.is_alive()
    scheduler.join()
    second_home.close()


def test_a_store_that_cannot_be_written_is_reported_once(
    home: Home, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    register_schedule(home, write())
    lines: list[str] = []
    stop, looks = threading.Event(), iter(range(5))

    def full(scheduler: Scheduler) -> None:
        if next(looks, None) is None:
            stop.set()
        raise StoreUnavailable("the disk is full")

    monkeypatch.setattr(Scheduler, "look", full)
    Scheduler(home, report=lines.append).run(stop, poll=0.01)
    assert lines == ["the disk is full; trying again"]


def test_a_secret_in_a_projects_exception_is_nowhere(
    home: Home, write: Write, clock: Clock, look: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_TOKEN", "s3cret-s3cret")
    pipeline = write()
    register_schedule(home, pipeline)
    look()
    source = pipeline.project / "pipeline.py"
    source.write_text("import drivetrain as dt\nraise ValueError(dt.secret('THE_TOKEN').reveal())\n")
    clock.forward(hours=1)
    look()
    said = [tick.reason for tick in ticks(home, "shop")]
    assert any("could not" in reason for reason in said)
    logs = [path.read_text() for path in (home.root / "logs" / "scheduler").iterdir()]
    assert "***" in "".join(said)
    assert "s3cret" not in "".join([*said, *logs])


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_two_schedulers_one_of_which_is_killed_now_and_then(home: Home, write: Write) -> None:
    """Each second starts one run, and each run was decided once."""
    register_schedule(home, write('on.Schedule(on.Every("2s", catch_up="all"), max_active=4)'))
    command = [sys.executable, "-m", "drivetrain", "schedule", "run", "--poll", "0.1", "--root", str(home.root)]

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    processes = [start(), start()]
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        time.sleep(2.3)
        os.kill(processes[0].pid, signal.SIGKILL)
        processes[0].wait()
        processes = [processes[1], start()]
    for process in processes:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    waits(lambda: all(run.state != "RUNNING" for run in list_runs(home, 1000)))
    decided = [tick for tick in ticks(home, "shop", None) if tick.run]
    times = [tick.reason.partition(" was due at ")[2] for tick in decided]
    assert len(decided) >= 4
    runs = {run.id for run in list_runs(home, 1000)}
    pending = find_schedule(home, "shop").pending
    assert {tick.run for tick in decided} - runs <= ({pending.run} if pending else set())
    assert runs <= {tick.run for tick in decided}
    assert len({open_run(home, run).tags["schedule"] for run in runs}) == 1
    assert times == sorted(times, reverse=True)


def test_two_schedules_of_a_pipeline_never_share_a_trigger(
    home: Home, write: Write, clock: Clock, look: Callable[[], list[str]]
) -> None:
    register_schedule(home, write('on.Every("1h")'), "first")
    with pytest.raises(InputError, match="the schedule 'first' is this one already, and each occasion would start two"):
        register_schedule(home, write('on.Every("1h")'), "second")
    register_schedule(home, write('on.Every("2h")'), "second")
    edited = write('on.Every("3h")').project / "pipeline.py"
    os.utime(edited, ns=(10**18, 10**18))
    look()
    waits(lambda: "3h" in str(find_schedule(home, "second").schedule.trigger))
    look()
    assert "1h" in str(find_schedule(home, "first").schedule.trigger)
    clock.forward(hours=3)
    assert sorted(line.partition(":")[0] for line in look()) == ["first", "second"]


def test_a_pipeline_that_hangs_when_it_is_imported_is_given_up(home: Home, write: Write, clock: Clock) -> None:
    register_schedule(home, write('on.Every("1h")'))
    scheduler = Scheduler(home, clock=clock)
    scheduler.look()
    project = find_schedule(home, "shop").project
    source = (project / "pipeline.py").stat()
    (project / "pipeline.py").write_text("import time\ntime.sleep(600)")
    os.utime(project / "pipeline.py", ns=(source.st_atime_ns, source.st_mtime_ns))
    clock.forward(hours=1)
    decision = decide_tick(home, find_schedule(home, "shop"), StoreView(home, project, clock.now))
    script = f"""
import sys
from drivetrain.pipelines.scheduler import start
start.LONGEST_LOAD = 0.5
sys.argv = ["start", {str(home.root)!r}, "shop", {decision.run!r}]
sys.exit(start.main())
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert 'pipeline.py", line 2 in <module>' in ended.stderr  # where it stood
    assert find_schedule(home, "shop").pending is None
    reason = f"run {decision.run} could not begin: its pipeline.py has not loaded within 0.5 s"
    assert any(reason in tick.reason for tick in ticks(home, "shop"))


def test_a_run_whose_process_died_is_resumed_where_the_schedule_says_so(
    home: Home, project: Callable[..., Path], clock: Clock
) -> None:
    text = """
    import os, signal
    import drivetrain as dt
    from drivetrain import triggers as on
    from drivetrain.pipelines import current

    @dt.component
    def Make() -> dt.Artifact:
        with (current().base / "lines.txt").open("a") as file:
            file.write("x")
        if len((current().base / "lines.txt").read_text()) < {deaths}:
            os.kill(os.getpid(), signal.SIGKILL)
        return dt.Artifact.new()

    @dt.pipeline(schedule=on.Schedule(on.Every("1h"), interrupted={policy!r}))
    def shop() -> None:
        Make.options(cache=False)()
    """

    def outcome(deaths: int, policy: str) -> tuple[str, int, list[str]]:
        folder = project("shop", pipeline=textwrap.dedent(text).format(deaths=deaths, policy=policy))
        (home.base / "lines.txt").unlink(missing_ok=True)
        for record in schedules(home):
            remove_schedule(home, record.name)
        register_schedule(home, load_pipeline(folder))
        scheduler = Scheduler(home, clock=clock)
        scheduler.look()
        clock.forward(hours=1)
        for _ in range(12):
            scheduler.look()
            scheduler.join()
            clock.forward(seconds=1)
        resumed = [tick.reason for tick in ticks(home, "shop", None) if "resumes run" in tick.reason]
        (run,) = [each for each in list_runs(home) if each.id not in seen]
        seen.add(run.id)
        return str(run.state), len((home.base / "lines.txt").read_text()), resumed

    seen: set[str] = set()
    assert outcome(2, "leave")[:2] == ("INTERRUPTED", 1)
    state, lines, resumed = outcome(3, "resume")
    assert (state, lines, len(resumed)) == ("COMPLETE", 3, 2)
    state, lines, resumed = outcome(99, "resume")
    assert (state, lines, len(resumed)) == ("INTERRUPTED", 4, 5)  # three more
