"""The flights' year under a clock that is set by hand: retrained for its reasons alone, by two daemons that die."""

from __future__ import annotations

import random
import re
import textwrap
from collections.abc import Callable
from contextlib import closing, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pytest
from croniter import croniter
from drivetrain.pipelines import Home, list_runs, load_pipeline
from drivetrain.pipelines.scheduler import Scheduler, register_schedule, schedules, start, ticks
from drivetrain.tests.data.postgres import server
from drivetrain.tests.examples.flights_job import flights

__all__ = ["server"]

TRAIN = """
    import drivetrain as dt
    import pyarrow.csv
    from drivetrain import triggers as on
    from drivetrain.pipelines import Files, resolve_files

    class Delays(dt.Artifact):
        rows: int = 0
        mean: float = 0.0

    @dt.component
    def Fit(data: Files) -> Delays:
        table = pyarrow.csv.read_csv(resolve_files(data).files[-1].path)
        return Delays.new(rows=table.num_rows, mean=table["arr_delay"].to_numpy().mean())

    TRIGGER = (
        on.NewSpan("data/month-{SPAN:2}.csv")
        | on.Drift(pipeline="watch")
        | on.MetricDrop("auc", below=0.8, pipeline="watch")
    )

    @dt.pipeline(schedule=on.Schedule(TRIGGER, max_active=2))
    def train() -> None:
        Fit.options(cache=False)(dt.files("data/month-*.csv"))
"""
WATCH = """
    import drivetrain as dt
    import numpy as np
    import pyarrow.csv
    from drivetrain import triggers as on
    from drivetrain.metadata.types import Anomalies, Evaluation
    from drivetrain.pipelines import Files, resolve_files

    def tables(data):
        return [pyarrow.csv.read_csv(file.path) for file in resolve_files(data).files[-2:]]

    @dt.component
    def Compare(data: Files) -> Anomalies:
        distances = [table["distance"].to_numpy().mean() for table in tables(data)]
        far = abs(distances[-1] / distances[0] - 1) > 0.3
        return Anomalies.new(drifted=["distance"] if far else [])

    @dt.component
    def Judge(data: Files) -> Evaluation:
        table = tables(data)[-1]
        ranks = np.argsort(np.argsort(table["dep_delay"].to_numpy(), kind="stable")) + 1
        late = table["arr_delay"].to_numpy() > 15
        positive, negative = late.sum(), (~late).sum()
        auc = (ranks[late].sum() - positive * (positive + 1) / 2) / (positive * negative)
        return Evaluation.new(metrics={"auc": float(auc)})

    @dt.pipeline(schedule=on.Cron("0 6 15 * *", tz="America/New_York"))
    def watch() -> None:
        data = dt.files("data/month-*.csv")
        Compare.options(cache=False)(data)
        Judge.options(cache=False)(data)
"""
SHOP = """
    import drivetrain as dt
    from drivetrain import triggers as on

    class Thing(dt.Artifact):
        pass

    @dt.component
    def Make() -> Thing:
        return Thing.new()

    @dt.pipeline(schedule=on.Schedule(on.Cron("{fields}", tz="{tz}"), max_active=9))
    def shop() -> None:
        Make.options(cache=False)()
"""
BEGIN = datetime(2013, 2, 1, 12, tzinfo=UTC)


def month_of(number: int) -> pa.Table:
    """A tenth of a month's flights; July's distances are in kilometres, and October's arrivals somebody else's."""
    table = flights().select(["month", "distance", "dep_delay", "arr_delay"])
    table = table.filter(pc.equal(table["month"], number)).drop_null()
    table = table.take(np.arange(0, table.num_rows, 10))
    if number == 7:
        table = table.set_column(1, "distance", pc.multiply(pc.cast(table["distance"], pa.float64()), 1.609344))
    if number == 10:
        arrivals = np.random.default_rng(0).permutation(table["arr_delay"].to_numpy())
        table = table.set_column(3, "arr_delay", pa.array(arrivals))
    return table


class Killed(BaseException):
    """What ends a daemon at a step of its own, as SIGKILL does: nothing after it runs."""


class World:
    """A store, the two daemons at work on it, and the one clock of them all."""

    def __init__(self, home: Home, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
        self.home, self.now, self.random, self.deaths = home, BEGIN, random.Random(seed), 0
        epoch = datetime(1970, 1, 1, tzinfo=UTC)
        monkeypatch.setattr(home.store._db, "clock", lambda: (self.now - epoch) // timedelta(microseconds=1))
        monkeypatch.setattr(Scheduler, "_spawn", self._spawn)
        # A run's process ends itself where its project does not load: here that would be the test's.
        monkeypatch.setattr(start, "_bounded", lambda home, record, run: nullcontext())
        self.daemons = [self._daemon(), self._daemon()]

    def _daemon(self) -> Scheduler:
        return Scheduler(self.home, clock=lambda: self.now)

    def _spawn(self, name: str, run: str) -> None:
        """The run's own process, here; its daemon may die before it starts it, or after."""
        self._die_now_and_then()
        assert start._start(self.home, name, run) == 0
        self._die_now_and_then()

    def _die_now_and_then(self) -> None:
        if self.random.random() < 0.25:
            self.deaths += 1
            raise Killed

    def look(self) -> None:
        """Each daemon looks, in any order, until nothing is left to begin; a dead one is replaced by a new one."""
        for number in self.random.sample(range(2), 2):
            try:
                self.daemons[number].look()
            except Killed:
                self.daemons[number] = self._daemon()
        while any(each.pending for each in schedules(self.home)):
            self.look()


@pytest.mark.parametrize(
    "database", ["sqlite", pytest.param("postgres", marks=(pytest.mark.postgres, pytest.mark.slow))]
)
def test_the_flights_year_is_retrained_for_its_reasons_alone(
    database: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    project: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = request.getfixturevalue("server") if database == "postgres" else None
    with closing(Home(tmp_path / "home" / ".drivetrain", store=store)) as home:
        replay_the_year(World(home, monkeypatch, seed=1), project)


def replay_the_year(world: World, project: Callable[..., Path]) -> None:
    home = world.home
    data = home.base / "data"
    data.mkdir(parents=True)
    pyarrow.csv.write_csv(month_of(1), data / "month-01.csv")
    for name, text in (("train", TRAIN), ("watch", WATCH)):
        register_schedule(home, load_pipeline(project(name, pipeline=textwrap.dedent(text))))
    while world.now < datetime(2014, 2, 1, tzinfo=UTC):
        world.look()
        world.now += timedelta(days=1)
        month = (world.now.year - 2013) * 12 + world.now.month - 1
        path = data / f"month-{month:02}.csv"
        if world.now.day >= 3 and not path.exists():
            pyarrow.csv.write_csv(month_of(month), path)
    firings = [tick for tick in reversed(ticks(home, "train", None)) if tick.run]
    seen = [f"{tick.at:%m-%d} {tick.reason.partition('(')[0]}" for tick in firings]
    # July's file comes in August, and is compared on the 15th; August's distances, in miles again, in September.
    expected = [f"{month:02}-03 NewSpan" for month in range(3, 13)] + ["01-03 NewSpan"]
    expected += ["08-15 Drift", "09-15 Drift", "11-15 MetricDrop"]
    assert sorted(seen) == sorted(expected)
    assert all(re.search(r"span \d+|distance drifted|auc is 0\.[0-7]", tick.reason) for tick in firings)
    # Each firing is one run, whoever died, and nothing else ran.
    runs = {run.id: run for run in list_runs(home, 1000)}
    watched = [tick for tick in ticks(home, "watch", None) if tick.run]
    assert len(watched) == 12
    assert sorted(runs) == sorted(tick.run for tick in [*firings, *watched])
    assert {str(run.state) for run in runs.values()} == {"COMPLETE"}
    assert world.deaths >= 3


SAVING = [
    ("Europe/Berlin", datetime(2013, 3, 31), datetime(2013, 10, 27)),
    ("America/New_York", datetime(2013, 3, 10), datetime(2013, 11, 3)),
    ("Australia/Lord_Howe", datetime(2013, 10, 6), datetime(2013, 4, 7)),
]
"""Zones with the day on which their clocks go forward, and that on which they go back; one by half an hour."""


def due_by_croniter(fields: str, zone: ZoneInfo, day: datetime) -> list[datetime]:
    """When a job of fixed times is due on a day, in UTC: croniter reads the fields, and knows no zone.

    A time that is left out is due as the clocks move, once for all of them; one that comes twice, the first time.
    """
    moments: set[datetime] = set()
    times = croniter(fields, day - timedelta(seconds=1))
    while (wall := times.get_next(datetime)) < day + timedelta(days=1):
        moment = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
        if moment.astimezone(zone).replace(tzinfo=None) != wall:  # there is no such time
            offset = moment.astimezone(zone).utcoffset()
            while (moment - timedelta(minutes=1)).astimezone(zone).utcoffset() == offset:
                moment -= timedelta(minutes=1)
        moments.add(moment)
    return sorted(moments)


@pytest.mark.parametrize(("tz", "day"), [(tz, day) for tz, *days in SAVING for day in days])
def test_no_run_is_lost_or_doubled_where_clocks_move(
    home: Home, project: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tz: str, day: datetime
) -> None:
    fields, zone = "15,45 1,2,3 * * *", ZoneInfo(tz)
    pipeline = load_pipeline(project("shop", pipeline=textwrap.dedent(SHOP).format(fields=fields, tz=tz)))
    world = World(home, monkeypatch, seed=3)
    world.now = begin = day.replace(tzinfo=zone).astimezone(UTC)
    register_schedule(home, pipeline)
    while world.now <= begin + timedelta(hours=6):
        world.look()
        world.now += timedelta(minutes=15)
    fired = [tick for tick in reversed(ticks(home, "shop", None)) if tick.run]
    assert [tick.at for tick in fired] == due_by_croniter(fields, zone, day)
    assert sorted(run.id for run in list_runs(home, 100)) == sorted(tick.run for tick in fired)
