"""What triggers see of a real store at a moment, and a year of months on it under a clock that is set."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from drivetrain.metadata import StagedArtifact
from drivetrain.pipelines import Home
from drivetrain.pipelines.scheduler.firings import replay
from drivetrain.pipelines.scheduler.view import StoreView, moments_of
from drivetrain.pipelines.triggers import After, Cron, Drift, Failed, MetricDrop, NewArtifact, NewSpan, Trigger

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


class World:
    """A store whose clock is set by hand."""

    def __init__(self, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home, self.now = home, BEGIN
        epoch = datetime(1970, 1, 1, tzinfo=UTC)
        monkeypatch.setattr(home.store._db, "clock", lambda: (self.now - epoch) // timedelta(microseconds=1))

    def publish(self, pipeline: str, node: str, kind: str, **properties: object) -> None:
        contexts = [
            self.home.store.context("pipeline", pipeline),
            self.home.store.context("node", f"{pipeline}.{node}"),
        ]
        execution = self.home.store.start(node, contexts=contexts)
        uri = f"artifacts/{node}/{execution.uid}/out"
        self.home.store.publish(execution, {"out": [StagedArtifact(kind, uri, "f" * 64, 1, properties)]})

    def end_run(self, pipeline: str, state: str) -> None:
        facts = {"pipeline": pipeline, "state": state, "finished": self.now.isoformat()}
        self.home.store.context("run", f"{self.now:%Y%m%d-%H%M%S}-{state}", facts)

    def view(self, now: datetime) -> StoreView:
        return StoreView(self.home, self.home.base, now)


@pytest.fixture
def world(home: Home, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(home, monkeypatch)


def test_artifacts_as_they_were(world: World) -> None:
    for day, (pipeline, node) in enumerate([("shop", "Make"), ("shop", "Other"), ("mart", "Make")]):
        world.now = BEGIN + timedelta(days=day)
        world.publish(pipeline, node, "Model")
    later = world.view(BEGIN + timedelta(days=9))
    ids = [record.id for record in later.artifacts("Model", 0, "", "")]
    assert ids == sorted(ids)
    assert len(ids) == 3
    assert [record.id for record in later.artifacts("Model", 0, "shop", "")] == ids[:2]
    assert [record.id for record in later.artifacts("Model", 0, "shop", "Other")] == ids[1:2]
    assert [record.id for record in later.artifacts("Model", ids[0], "", "")] == ids[1:]
    assert later.artifacts("Model", 0, "nothing", "") == later.artifacts("Other", 0, "", "") == []
    middle = world.view(BEGIN + timedelta(days=1))
    assert [record.id for record in middle.artifacts("Model", 0, "", "")] == ids[:2]
    assert (later.newest_artifact(), middle.newest_artifact()) == (ids[2], ids[1])
    assert world.view(BEGIN - timedelta(days=1)).newest_artifact() == 0


def test_runs_that_ended_and_none_that_goes_on(world: World) -> None:
    for day, state in enumerate(["COMPLETE", "FAILED", "RUNNING"]):
        world.now = BEGIN + timedelta(days=day)
        world.end_run("shop", state)
    view = world.view(BEGIN + timedelta(days=9))
    assert [run.state for run in view.ended_runs("shop", BEGIN - timedelta(days=1))] == ["COMPLETE", "FAILED"]
    assert [run.state for run in view.ended_runs("shop", BEGIN)] == ["FAILED"]
    assert view.ended_runs("other", BEGIN - timedelta(days=1)) == []
    assert [run.state for run in world.view(BEGIN).ended_runs("shop", BEGIN - timedelta(days=1))] == ["COMPLETE"]


def test_spans_of_files_beside_the_root_and_in_the_project(world: World, write_files: Callable[..., Path]) -> None:
    folder = write_files(
        "2026-02-01/v1.csv", "2026-02-01/v3.csv", "2026-02-30/v1.csv", "2026-03-01/v2.csv", "readme.csv"
    )
    view = StoreView(world.home, folder, BEGIN)
    assert view.spans("{YYYY}-{MM}-{DD}/v{VERSION}.csv") == [(20485, 3), (20513, 2)]
    assert view.spans(f"{folder}/{{YYYY}}-{{MM}}-{{DD}}/*.csv") == [(20485, None), (20513, None)]
    assert view.spans("nothing/{SPAN}.csv") == []


def test_names_that_somebody_else_chose(world: World, write_files: Callable[..., Path]) -> None:
    """Digits beyond 64 bits, which the store cannot keep, and what is no number leave the others as they are."""
    folder = write_files("7.csv", "99999999999999999999999999.csv", "8\x1b[31m.csv", "-9.csv", " 9.csv", "1e3.csv")
    assert StoreView(world.home, folder, BEGIN).spans("{SPAN}.csv") == [(7, None)]


TRIGGER: Trigger = (
    NewArtifact("Examples", pipeline="ingest").debounce("1h")
    | Drift(pipeline="monitor").cooldown("7d")
    | MetricDrop("auc", below=0.7, pipeline="monitor")
    | Failed("train")
)


def test_a_year_of_months_is_retrained_for_its_reasons_alone(world: World) -> None:
    """Each month's data comes in two parts; in July it drifts, twice; in October a metric falls; a run fails in May."""
    for month in range(1, 13):
        begin = datetime(2026, month, 2, 6, tzinfo=UTC)
        for minutes in (0, 20):
            world.now = begin + timedelta(minutes=minutes)
            world.publish("ingest", "ExampleGen", "Examples", span=month)
        world.now = begin + timedelta(days=10)
        world.publish("monitor", "ExampleValidator", "Anomalies", drifted=["fare"] if month == 7 else [])
        world.now += timedelta(days=1)
        world.publish("monitor", "ExampleValidator", "Anomalies", drifted=["fare"] if month == 7 else [])
        world.publish("monitor", "Evaluator", "Evaluation", metrics={"auc": 0.65 if month == 10 else 0.8})
        world.now += timedelta(hours=1)
        world.end_run("train", "FAILED" if month == 5 else "COMPLETE")
    firings, said = replay(TRIGGER, world.view, BEGIN, datetime(2026, 12, 31, tzinfo=UTC), moments_of(world.home))
    months = [(month, f"{month:02}-02 07:20 NewArtifact") for month in range(1, 13)]
    others = [
        (5, "05-13 07:00 Failed"),
        (7, "07-12 06:00 Drift"),
        (7, "07-19 06:00 Drift"),
        (10, "10-13 06:00 MetricDrop"),
    ]
    expected = [text for _, text in sorted([*months, *others], key=lambda pair: pair[1])]
    assert [f"{firing.at:%m-%d %H:%M} {firing.reason.partition('(')[0]}" for firing in firings] == expected
    assert said.count("nothing new") == 3
    again, _ = replay(TRIGGER, world.view, BEGIN, datetime(2026, 12, 31, tzinfo=UTC), moments_of(world.home))
    assert again == firings


def test_a_replay_meets_the_clock_and_what_came_at_once(world: World) -> None:
    world.now = BEGIN + timedelta(days=2, hours=5)
    world.publish("shop", "Make", "Model")
    firings, said = replay(
        Cron("0 3 * * *") & NewArtifact("Model"), world.view, BEGIN, BEGIN + timedelta(days=5), moments_of(world.home)
    )
    assert [f"{firing.at:%d %H:%M}" for firing in firings] == ["03 05:00"]
    assert "NewArtifact('Model'): nothing new" in said
    every, _ = replay(Cron("0 3 * * *", catch_up="all"), world.view, BEGIN, BEGIN + timedelta(days=5))
    assert [f"{firing.at:%d %H:%M}" for firing in every] == [f"{day:02} 03:00" for day in range(1, 6)]
    assert replay(After("shop") | NewSpan("x/{SPAN}"), world.view, BEGIN, BEGIN + timedelta(days=5))[0] == []
