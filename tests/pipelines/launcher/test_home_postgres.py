"""Runs whose metadata lies in PostgreSQL: the same results as with SQLite, on either runner; no password in sight."""

from __future__ import annotations

import shlex
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from drivetrain.console.options import ConsoleSettings
from drivetrain.metadata.audit import verify
from drivetrain.metadata.fsck import fsck
from drivetrain.pipelines import Home, RunOptions, RunResult, list_runs, open_run, run_pipeline
from drivetrain.tests.data.postgres import Server, server
from drivetrain.tests.pipelines.processes import ONE, Pipe, states

__all__ = ["server"]
pytestmark = [pytest.mark.postgres, pytest.mark.slow]

CHAIN = "n = Make(count=count)\nUse(Add(n, Make.options(id='M2')(count=2)), amount=4)"
GATE = "n = Make(count=5)\nCheck(n, limit=3)\nUse(n)\nMisbehave(Make.options(id='M2')(count=2), code='1/0')"
LOOP = """
def one(i):
    return Use(Make(count=i), amount=2)
dt.map_(one, over=[1, 2, 3])
"""


@pytest.fixture
def homes(server: str, tmp_path: Path) -> Iterator[tuple[Home, Home]]:
    """One whose metadata lies in PostgreSQL, and one on SQLite."""
    import psycopg

    schema = f"s{uuid.uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}".encode())
    ours = Home(tmp_path / "home" / ".drivetrain", store=f"{server}?options=-csearch_path%3D{schema}")
    other = Home(tmp_path / "plain" / ".drivetrain")
    yield ours, other
    ours.close()
    other.close()


def made(result: RunResult) -> dict[str, list[str]]:
    return {
        name: [record.fingerprint for records in node.outputs.values() for record in records]
        for name, node in result.nodes.items()
    }


@pytest.mark.parametrize(
    ("body", "options"),
    [
        pytest.param(CHAIN, RunOptions(), id="chain-inline"),
        pytest.param(GATE, RunOptions(), id="gate-inline"),
        pytest.param(LOOP, RunOptions(), id="loop-inline"),
        pytest.param(CHAIN, ONE, id="chain-process"),
        pytest.param(GATE, ONE, id="gate-process", marks=pytest.mark.slow),
        pytest.param(LOOP, ONE, id="loop-process", marks=pytest.mark.slow),
    ],
)
def test_runs_are_those_of_sqlite(homes: tuple[Home, Home], pipe: Pipe, body: str, options: RunOptions) -> None:
    ours, other = homes
    function = pipe(body)
    for attempt in range(2):
        here, there = (run_pipeline(home, function, options=options if home is ours else None) for home in homes)
        assert (here.state, states(here)) == (there.state, states(there))
        assert made(here) == made(there)
        assert attempt == 0 or "CACHED" in states(here).values()
    assert [run.state for run in list_runs(ours)] == [run.state for run in list_runs(other)]
    assert fsck(ours.store, ours.root).clean
    last = ours.store.artifacts(type=other.store.artifacts(limit=1)[0].type)[0]
    graphs = [home.store.lineage(home.store.artifacts(type=last.type)[0]) for home in homes]
    assert len(graphs[0].edges) == len(graphs[1].edges)


def test_no_command_line_holds_the_password(homes: tuple[Home, Home], pipe: Pipe, server: str) -> None:
    look = "import psutil; (current().base / 'line').write_text(repr((psutil.Process().cmdline(), dict(os.environ))))"
    result = run_pipeline(homes[0], pipe(f"Misbehave(Make(), code={look!r})"), options=ONE)
    assert result.state == "COMPLETE", [node.reason for node in result.nodes.values()]
    said = (homes[0].base / "line").read_text()
    assert "drivetrain.pipelines.node" in said
    assert "secret" not in said


@pytest.mark.parametrize(
    ("store", "advised"),
    [
        ("postgresql://me:secret@host:5432/db", "postgresql://me@host:5432/db"),
        ("postgresql://host/db?password=secret&user=me", "postgresql://host/db?user=me"),
        ("elsewhere/metadata.db", "elsewhere/metadata.db"),
    ],
)
def test_no_advised_command_holds_the_password(store: str, advised: str) -> None:
    settings = ConsoleSettings(root=Path("r"), store=store, artifacts=None, json=False)
    assert shlex.split(settings.as_options) == ["--root", "r", "--store", advised]


@pytest.mark.slow
def test_a_run_outlives_a_server_that_is_killed_while_it_works(pipe: Pipe, tmp_path: Path) -> None:
    server = Server()
    server.start()
    home = Home(tmp_path / "home" / ".drivetrain", store=server.url)
    wait = (
        "(current().base / 'begun').touch()\nwhile not (current().base / 'restarted').exists():\n    time.sleep(0.02)"
    )

    def restart() -> None:
        while not (home.base / "begun").exists():
            time.sleep(0.02)
        server.kill()
        server.start()
        (home.base / "restarted").touch()

    operator = threading.Thread(target=restart)
    operator.start()
    try:
        result = run_pipeline(home, pipe(f"Use(Misbehave(Make(), code={wait!r}))"))
        assert set(states(result).values()) == {"COMPLETE"}, [node.reason for node in result.nodes.values()]
        assert fsck(home.store, home.root).clean
    finally:
        operator.join()
        home.close()
        server.close()


def test_a_run_waits_for_a_server_that_is_away(pipe: Pipe, tmp_path: Path) -> None:
    """For ten seconds, amid many short nodes: whatever was being stored is stored once, and the run goes on."""
    server = Server()
    server.start()
    home = Home(tmp_path / "home" / ".drivetrain", store=server.url)
    away = 10.0

    def operate() -> None:
        deadline = time.monotonic() + 60
        while len(home.store.executions(state="COMPLETE")) < 4 and time.monotonic() < deadline:
            time.sleep(0.01)
        server.stop()
        time.sleep(away)
        server.start()

    body = "def one(i):\n    return Use(Make(count=i), amount=2)\ndt.map_(one, over=list(range(1, 13)))"
    operator = threading.Thread(target=operate)
    operator.start()
    began = time.monotonic()
    try:
        result = run_pipeline(home, pipe(body))
        assert time.monotonic() - began > away
        assert result.state == "COMPLETE", [node.reason for node in result.nodes.values()]
        assert fsck(home.store, home.root).clean
        executions = home.store.executions(context=open_run(home, result.run).context)
        assert [each.state for each in executions] == ["COMPLETE"] * len(result.nodes)
        assert verify(home.store).findings == []
    finally:
        operator.join()
        home.close()
        server.close()
