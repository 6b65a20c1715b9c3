"""What people are told of the runs of a store: each thing once, by whomever, also after a crash; and nothing secret."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from drivetrain.errors import BuildError, InputError
from drivetrain.metadata import ConflictError, Owner, StagedArtifact
from drivetrain.metadata.registry import Registry
from drivetrain.pipelines import (
    Home,
    PipelineFunction,
    RunOptions,
    decide,
    load_pipeline,
    open_run,
    run_pipeline,
    tag_run,
)
from drivetrain.pipelines.launcher.runs import Run, close_run, new_run, reopen_run
from drivetrain.pipelines.launcher.states import RunState
from drivetrain.pipelines.notifications import Event, Notifier, log, outboxes, read_notifications
from drivetrain.pipelines.notifications.notifier import ATTEMPTS
from drivetrain.pipelines.notifications.outbox import MOST, take
from drivetrain.pipelines.scheduler import Scheduler, register_schedule
from drivetrain.tests.data.postgres import Server
from drivetrain.tests.pipelines.faulty import waits
from drivetrain.tests.pipelines.notifications.receivers import WebReceiver

Pipe = Callable[..., PipelineFunction[..., object]]
Settings = Callable[..., Path]
SECOND = 1_000_000


class StoreClock:
    """The clock of a store, set forward by hand."""

    def __init__(self, home: Home) -> None:
        self.database = home.store._db
        self.ahead = 0
        self.database.clock = lambda: self.now

    @property
    def now(self) -> int:
        return time.time_ns() // 1000 + self.ahead

    def forward(self, seconds: float) -> None:
        self.ahead += round(seconds * SECOND)


@pytest.fixture
def clock(home: Home) -> StoreClock:
    return StoreClock(home)


@pytest.fixture
def another(home: Home) -> Iterator[Home]:
    """The same root, opened by another."""
    opened = Home(home.root)
    yield opened
    opened.close()


def begun(home: Home, pipeline: PipelineFunction[..., object], **tags: str) -> Run:
    return new_run(home, pipeline.build(), pipeline.project, {}, RunOptions(), tags=tags)


def ended(home: Home, pipeline: PipelineFunction[..., object], state: RunState, **tags: str) -> Run:
    """A run that has ended so, as the store knows it."""
    run = begun(home, pipeline, **tags)
    close_run(home, run, state)
    return run


def events_of(web: WebReceiver) -> list[tuple[str, str]]:
    return [(event["event"], event["run"]) for body in web.bodies for event in body["events"]]


def test_failure_stop_and_recovery_of_real_runs(home: Home, pipe: Pipe, web: WebReceiver, settings: Settings) -> None:
    lines: list[str] = []
    good = pipe("Make()")
    run_pipeline(home, good, tags={"schedule": "nightly"})
    notifier = Notifier(home, read_notifications(settings()), report=lines.append)
    notifier.look()
    run_pipeline(home, good)
    notifier.look()
    assert web.requests == []  # what went well is no news, nor is what was there before
    failed = run_pipeline(home, pipe("Misbehave(Make(), code=\"raise ValueError('boom & bust')\")"))
    stopped = run_pipeline(home, pipe("n = Make(count=200)\nCheck(n)\nUse(n)"))
    notifier.look()
    (digest,) = web.bodies
    assert digest["subject"] == "2 events: 1 failed, 1 stopped"
    failure, stop = digest["events"]
    assert (failure["run"], failure["node"], failure["state"]) == (failed.run, "Misbehave", "FAILED")
    assert failure["reason"].endswith("boom & bust")
    assert (stop["run"], stop["node"], stop["state"]) == (stopped.run, "Check", "STOPPED")
    assert stop["reason"] == "Check vetoed: 200 > 100"
    again = run_pipeline(home, good, tags={"schedule": "nightly"})
    run_pipeline(home, good)
    notifier.look()
    notifier.look()
    assert len(web.bodies) == 2
    (recovery,) = web.bodies[1]["events"]
    assert (recovery["event"], recovery["run"], recovery["schedule"]) == ("recovered", again.run, "nightly")
    assert web.bodies[1]["subject"] == "shop works again"
    assert lines == ["told pager: 2 events: 1 failed, 1 stopped", "told pager: shop works again"]
    assert [(entry["is_sent"], entry["attempts"]) for entry in log(home, 9)] == [(True, 1), (True, 1)]


def test_a_run_of_a_schedule_that_a_budget_stops(
    home: Home, project: Callable[..., Path], web: WebReceiver, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """
    import drivetrain as dt
    from drivetrain import triggers as on

    @dt.component
    def Make() -> dt.Artifact:
        return dt.Artifact.new()

    @dt.pipeline(schedule=on.Every("1h"))
    def shop() -> None:
        Make()
    """
    register_schedule(home, load_pipeline(project("shop", pipeline=text)), "hourly")
    (home.base / "costs.yaml").write_text("budgets:\n- {period: day, kwh: 0, action: stop}\n")
    notifier = Notifier(home, read_notifications(settings()))
    notifier.look()
    now = datetime.now(UTC)
    scheduler = Scheduler(home, clock=lambda: now)
    for hours in (0, 1):
        now += timedelta(hours=hours)
        scheduler.look()
    scheduler.join()
    notifier.look()
    notifier.look()
    (body,) = web.bodies
    (event,) = body["events"]
    assert (event["event"], event["pipeline"], event["schedule"]) == ("failed", "shop", "hourly")
    assert "could not begin: " in event["reason"]
    assert "the budget of 0 kWh a day" in event["reason"]


def test_a_question_and_a_pushed_model(
    home: Home, pipe: Pipe, web: WebReceiver, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drivetrain.components.approval._POLL", 0.02)
    notifier = Notifier(home, read_notifications(settings()))
    notifier.look()
    body = """
    from drivetrain.components import Approval
    numbers = Make()
    with dt.when(Approval(message="Push it?").approved):
        Push(numbers)
    """
    parts = """
    import drivetrain as dt
    from .parts import *
    from drivetrain.metadata import PushedModel
    @dt.component
    def Push(numbers: Numbers) -> PushedModel:
        return PushedModel.new(destination="served/shop", version=2, digest="d")
    """
    pipeline = pipe(body, more=textwrap.dedent(parts))
    source = pipeline.project / "pipeline.py"
    source.write_text(source.read_text().replace("from .parts import *", "from .parts import *\nfrom .more import *"))

    pipeline = load_pipeline(pipeline.project)
    worker = Home(home.root)
    thread = threading.Thread(target=lambda: run_pipeline(worker, pipeline))
    thread.start()
    try:

        def was_asked() -> bool:
            notifier.look()
            return bool(web.requests)

        waits(was_asked)
        (question,) = web.bodies[0]["events"]
        assert (question["event"], question["node"]) == ("approval", "Approval")
        assert question["reason"] == (f"Push it?: `drivetrain approve {question['run']} Approval`, or with --deny")
        notifier.look()
        assert len(web.requests) == 1
    finally:
        decide(home, open_run(home, None), "Approval", approved=True, by="me")
        thread.join(60)
        worker.close()
    notifier.look()
    (pushed,) = web.bodies[1]["events"]
    assert (pushed["event"], pushed["pipeline"], pushed["node"]) == ("champion", "shop", "Push")
    assert (pushed["run"], pushed["reason"]) == (question["run"], "version 2 was pushed to served/shop")


def test_a_champion_that_moves_in_the_registry(home: Home, web: WebReceiver, settings: Settings) -> None:
    run = home.store.context("run", "20261128-000000-abcd", {"pipeline": "shop", "state": "COMPLETE"})
    execution = home.store.start("Train", contexts=[run, home.store.context("pipeline", "shop")])
    new = [StagedArtifact("Model", f"artifacts/Train/{index}/model", "f", 1) for index in range(2)]
    models = home.store.publish(execution, {"model": new})["model"]
    registry = Registry(home.store)
    registry.register("clicks", models[0], by="ann")
    registry.set_alias("clicks", "champion", 1, by="ann")
    notifier = Notifier(home, read_notifications(settings()))
    notifier.look()
    registry.register("clicks", models[1], by="ann")
    registry.set_alias("clicks", "challenger", 2, by="ann")
    notifier.look()
    assert web.bodies == []
    registry.set_alias("clicks", "champion", 2, by="ann", why="a better one")
    registry.remove_alias("clicks", "challenger", by="ann")
    notifier.look()
    notifier.look()
    ((event,),) = [body["events"] for body in web.bodies]
    assert (event["event"], event["pipeline"], event["run"]) == ("champion", "shop", run.name)
    assert event["reason"] == "clicks: champion moved to version 2 from version 1 by ann: a better one"


def test_a_run_whose_process_died(home: Home, pipe: Pipe, web: WebReceiver, settings: Settings) -> None:
    pipeline = pipe("Make()")
    dead = {**Owner.current().to_dict(), "pid": 2**22 - 1}
    before = begun(home, pipeline)
    home.store.update_context(before.context, {"owner": dead})
    notifier = Notifier(home, read_notifications(settings()))
    notifier.look()
    run = begun(home, pipeline)
    notifier.look()
    assert web.requests == []
    home.store.update_context(run.context, {"owner": dead})
    notifier.look()
    notifier.look()
    assert [(event["run"], event["state"], event["reason"]) for event in web.bodies[0]["events"]] == [
        (run.id, "INTERRUPTED", "its process died")
    ]
    resumed = reopen_run(home, open_run(home, run.id))
    notifier.look()
    close_run(home, resumed, RunState.COMPLETE)
    notifier.look()
    assert events_of(web) == [("failed", run.id), ("recovered", run.id)]


def test_a_run_that_fails_again_after_it_was_resumed_and_one_that_is_only_tagged(
    home: Home, pipe: Pipe, web: WebReceiver, settings: Settings, clock: StoreClock
) -> None:
    pipeline = pipe("Make()")
    notifier = Notifier(home, read_notifications(settings()))
    notifier.look()
    run = ended(home, pipeline, RunState.FAILED)
    notifier.look()
    close_run(home, reopen_run(home, open_run(home, run.id)), RunState.FAILED)  # between two looks
    notifier.look()
    for _ in range(3):
        clock.forward(3600)
        notifier.look()
        tag_run(home, run, {"seen": ""})
        notifier.look()
    assert events_of(web) == [("failed", run.id)] * 2


@pytest.mark.parametrize("damage", [{"pipeline": None}, {"tags": 7}, {"finished": "noon"}, {"resumed": "noon"}])
def test_a_damaged_record_keeps_no_other_news(
    home: Home, pipe: Pipe, web: WebReceiver, settings: Settings, damage: dict[str, Any]
) -> None:
    pipeline = pipe("Make()")
    notifier = Notifier(home, read_notifications(settings()))
    notifier.look()
    damaged, whole = (ended(home, pipeline, RunState.FAILED) for _ in range(2))
    home.store.update_context(damaged.context, damage)
    notifier.look()
    assert whole.id in web.runs


def test_a_run_that_ends_while_it_is_looked_at_is_told_once(
    home: Home, pipe: Pipe, web: WebReceiver, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = pipe("Make()")
    notifier = Notifier(home, read_notifications(settings()))
    notifier.look()
    run = begun(home, pipeline)
    contexts = home.store.contexts

    def then_it_ends(*arguments: Any, **named: Any) -> Any:
        records = contexts(*arguments, **named)
        close_run(home, run, RunState.FAILED)
        return records

    with monkeypatch.context() as patch:
        patch.setattr(home.store, "contexts", then_it_ends)
        notifier.look()
    notifier.look()
    notifier.look()
    assert web.runs == [run.id]


def test_a_restart_misses_nothing_and_repeats_nothing(
    home: Home, pipe: Pipe, web: WebReceiver, settings: Settings, clock: StoreClock
) -> None:
    pipeline = pipe("Make()")
    file = read_notifications(settings())
    Notifier(home, file).look()
    runs = []
    for _ in range(5):
        runs.append(ended(home, pipeline, RunState.FAILED).id)
        ended(home, pipeline, RunState.CANCELED)
        clock.forward(7200)
        Notifier(home, file).look()
        Notifier(home, file).look()
    assert web.runs == runs


def test_a_storm_is_one_message(
    home: Home, pipe: Pipe, web: WebReceiver, settings: Settings, clock: StoreClock
) -> None:
    pipeline = pipe("Make()")
    notifier = Notifier(home, read_notifications(settings(wait="10s", window="5m")))
    notifier.look()
    for number in range(60):
        ended(home, pipeline, RunState.FAILED)
        if number % 20 == 0:
            notifier.look()
    clock.forward(10)
    notifier.look()
    assert [body["subject"] for body in web.bodies] == ["60 events: 60 failed"]
    assert "shop failed, 60 times: " in web.bodies[0]["text"]
    for _ in range(20):
        ended(home, pipeline, RunState.FAILED)
        clock.forward(11)
        notifier.look()
    assert len(web.bodies) == 1  # until the window is over
    clock.forward(120)
    notifier.look()
    assert [body["subject"] for body in web.bodies[1:]] == ["20 events: 20 failed"]


def test_a_storm_without_end_is_bounded_and_counted(
    home: Home, pipe: Pipe, web: WebReceiver, settings: Settings
) -> None:
    class Storm:
        name = "storm"

        def begin(self, home: Home) -> Any:
            return 0

        def look(self, home: Home, mark: Any) -> tuple[list[Event], Any]:
            return [Event("failed", f"p{number % 7}", f"r{mark}-{number}") for number in range(900)], mark + 1

    notifier = Notifier(home, read_notifications(settings()), sources=[Storm()])
    web.answers = [503]
    notifier.look()
    notifier.look()
    (outbox,) = outboxes(home)
    assert len(outbox.waiting) == MOST
    assert outbox.more == {"failed": 1300}
    assert web.bodies[0]["count"] == {"failed": 900}


def test_tried_again_with_pauses_then_on_record(
    home: Home, pipe: Pipe, web: WebReceiver, settings: Settings, clock: StoreClock
) -> None:
    lines: list[str] = []
    pipeline = pipe("Make()")
    notifier = Notifier(home, read_notifications(settings()), report=lines.append)
    notifier.look()
    web.answers = [503, 500, *[503] * (ATTEMPTS - 1)]
    first = ended(home, pipeline, RunState.FAILED)
    notifier.look()
    second = ended(home, pipeline, RunState.FAILED)
    notifier.look()
    clock.forward(14)
    notifier.look()
    assert len(web.requests) == 1
    clock.forward(2)
    notifier.look()
    clock.forward(29)
    notifier.look()
    assert len(web.requests) == 2
    clock.forward(2)
    web.answers = []
    notifier.look()
    assert web.runs == [first.id] * 3 + [second.id] or web.runs == [first.id] * 3
    assert {body["id"] for body in web.bodies[:3]} == {web.bodies[0]["id"]}  # who gets it twice can tell
    notifier.look()
    assert web.runs == [first.id] * 3 + [second.id]
    web.answers = [503 for _ in range(ATTEMPTS)]
    third = ended(home, pipeline, RunState.FAILED)
    for _ in range(ATTEMPTS + 2):
        notifier.look()
        clock.forward(901)
    assert web.runs[4:] == [third.id] * ATTEMPTS
    newest = log(home, 1)[0]
    assert (newest["is_sent"], newest["attempts"], newest["runs"]) == (False, ATTEMPTS, [third.id])
    assert newest["reason"] == "the server answered 503 Service Unavailable"
    assert f"given up after {ATTEMPTS} attempts" in lines[-1]
    web.answers = [404]
    ended(home, pipeline, RunState.FAILED)
    notifier.look()
    assert "given up after 1 attempts" in lines[-1]


def test_one_channel_that_fails_keeps_no_other_waiting(
    home: Home, pipe: Pipe, web: WebReceiver, settings: Settings
) -> None:
    channels = {
        "gone": {"kind": "webhook", "url": "http://127.0.0.1:9/"},
        "pager": {"kind": "webhook", "url": web.url},
    }
    notifier = Notifier(home, read_notifications(settings(channels)))
    notifier.look()
    run = ended(home, pipe("Make()"), RunState.FAILED)
    notifier.look()
    assert web.runs == [run.id]
    assert [(each.channel, len(each.waiting)) for each in outboxes(home)] == [("gone", 1), ("pager", 0)]


def test_a_record_that_cannot_be_read_keeps_no_other_waiting(
    home: Home, pipe: Pipe, web: WebReceiver, settings: Settings
) -> None:
    hook = {"kind": "webhook", "url": web.url}
    notifier = Notifier(home, read_notifications(settings({"newer": hook, "pager": hook})))
    notifier.look()
    home.store.update_context(outboxes(home)[0].context, {"batch": {"of": "a newer release"}})
    run = ended(home, pipe("Make()"), RunState.FAILED)
    with pytest.raises(BuildError, match="the record of notifications 'all/newer' cannot be read"):
        notifier.look()
    assert web.runs == [run.id]


def test_only_what_a_rule_wants(home: Home, pipe: Pipe, web: WebReceiver, settings: Settings) -> None:
    notifier = Notifier(home, read_notifications(settings(events=["failed"], pipelines=["shop"])))
    notifier.look()
    run = ended(home, pipe("Make()"), RunState.FAILED)
    ended(home, pipe("Make()"), RunState.STOPPED)
    ended(home, pipe("Make()", "mart"), RunState.FAILED)
    notifier.look()
    assert web.runs == [run.id]


def test_who_takes_a_message_is_alone(
    home: Home, another: Home, pipe: Pipe, web: WebReceiver, settings: Settings
) -> None:
    file = read_notifications(settings(wait="1h"))
    notifier = Notifier(home, file)
    notifier.look()
    ended(home, pipe("Make()"), RunState.FAILED)
    notifier.look()
    (outbox,) = outboxes(home)
    take(home, outbox, 60)
    with pytest.raises(ConflictError):
        take(another, outbox, 60)


COMMAND = (sys.executable, "-m", "drivetrain", "notify", "run", "--poll", "0.1", "--file")


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    """A root whose store several processes use, of either kind."""
    server = Server() if request.param == "postgres" else None
    if server is not None:
        server.start()
    home = Home(tmp_path / "home" / ".drivetrain", store=None if server is None else server.url)
    yield home
    home.close()
    if server is not None:
        server.close()


@pytest.mark.slow
def test_two_processes_tell_each_thing_once(shared: Home, pipe: Pipe, web: WebReceiver, settings: Settings) -> None:
    home = shared
    pipeline, file = pipe("Make()"), settings()
    command = [*COMMAND, str(file), "--root", str(home.root), *(["--store", home.url] if home.url else [])]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        waits(lambda: bool(outboxes(home)))
        runs = [ended(home, pipeline, RunState.FAILED).id for _ in range(60)]
        waits(lambda: len(web.runs) >= 60)
    finally:
        for process in processes:
            process.terminate()
        outputs = [process.communicate(timeout=60)[0] for process in processes]
    assert Counter(web.runs) == Counter(runs)
    assert [process.returncode for process in processes] == [0, 0]
    assert all("told pager" in text for text in outputs) or len(web.bodies) == sum(
        text.count("told") for text in outputs
    )


def test_killed_while_it_sends_it_is_told_once_more_at_most(
    home: Home, pipe: Pipe, web: WebReceiver, settings: Settings, clock: StoreClock
) -> None:
    pipeline, file = pipe("Make()"), settings()
    notifier = Notifier(home, read_notifications(file))
    notifier.look()
    run = ended(home, pipeline, RunState.FAILED)
    web.answers = ["hang"]
    process = subprocess.Popen([*COMMAND, str(file), "--root", str(home.root)], stdout=subprocess.DEVNULL)
    waits(lambda: len(web.requests) == 1)
    process.send_signal(signal.SIGKILL)
    process.wait()
    notifier.look()
    assert len(web.requests) == 1  # it may have been told: it is left alone for a while
    clock.forward(121)
    notifier.look()
    clock.forward(1000)
    notifier.look()
    assert web.runs == [run.id, run.id]
    assert web.bodies[0]["id"] == web.bodies[1]["id"]


def test_killed_before_it_sends_nothing_is_lost(
    home: Home, pipe: Pipe, web: WebReceiver, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline, file = pipe("Make()"), read_notifications(settings())
    Notifier(home, file).look()
    run = ended(home, pipeline, RunState.FAILED)
    with monkeypatch.context() as patch:

        def die(*_: object) -> None:
            raise KeyboardInterrupt

        patch.setattr("drivetrain.pipelines.notifications.notifier.take", die)
        with pytest.raises(KeyboardInterrupt):
            Notifier(home, file).look()
    Notifier(home, file).look()
    assert web.runs == [run.id]


def test_no_secret_is_anywhere(home: Home, pipe: Pipe, settings: Settings, web: WebReceiver, tmp_path: Path) -> None:
    secrets = {"HOOK": web.url + "/services/open-sesame-99", "TOKEN": "Bearer rosebud-4711", "MAIL": "swordfish-12"}
    channels = {
        "team": {"kind": "slack", "url": "env:HOOK"},
        "pager": {"kind": "webhook", "url": web.url, "headers": {"Authorization": "env:TOKEN"}},
        "mail": {
            "kind": "email",
            "host": "127.0.0.1",
            "port": 9,
            "security": "none",
            "from": "d@x.org",
            "to": "a@x.org",
            "username": "me",
            "password": "env:MAIL",
        },
    }
    file = settings(channels)
    command = [
        sys.executable,
        "-m",
        "drivetrain",
        "notify",
        "run",
        "--once",
        "--file",
        str(file),
        "--root",
        str(home.root),
    ]
    environment = {**os.environ, **secrets}
    pipeline = pipe("Make()")
    ended(home, pipeline, RunState.COMPLETE)
    subprocess.run(command, check=True, env=environment)
    failed = run_pipeline(
        home, pipe("Misbehave(Make(), code=\"raise ValueError('posted to /services/open-sesame-99')\")")
    )
    assert failed.state == "FAILED"
    web.answers = [500, 404]
    shown = subprocess.run(command, check=True, env=environment, capture_output=True, text=True)
    assert shown.stdout.count("could not tell") == 3
    assert len(web.requests) == 2
    listed = subprocess.run(
        [sys.executable, "-m", "drivetrain", "notify", "list", "--root", str(home.root)],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    out = shown.stdout + shown.stderr + listed.stdout
    facts = repr(
        [
            context.properties
            for kind in ("notifications", "sent notifications")
            for context in home.store.contexts(kind)
        ]
    )
    database = b"".join(path.read_bytes() for path in home.root.glob("metadata.db*"))
    for secret in ("rosebud", "swordfish"):
        assert secret not in out
        assert secret.encode() not in database
    assert "sesame" not in out + facts  # it stands in the run's own failure, where nobody knew it for a secret
    os.environ.pop("HOOK", None)
    with pytest.raises(InputError, match="channel team: env:HOOK is not set"):
        read_notifications(file).check()
