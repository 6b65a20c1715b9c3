"""Runs that are killed at every step and at any moment, and a store cut off at every commit: all are finished."""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from drivetrain.metadata.fsck import fsck
from drivetrain.pipelines import Home, list_runs, resume, run_pipeline
from drivetrain.pipelines.launcher.processes import MARK
from drivetrain.tests.pipelines import faulty

pytestmark = pytest.mark.slow

CUTS = [
    "claimed/Make", "started/Both", "staged/Make", "first-renamed/Pair", "renamed/Sum", "moving/Join",
    "output-stored/Pair", "committed/Fresh", "before-finish/Flaky", "finished/Flaky", "inserting/Twin",
    "attached/Small", "recorded/Small", "claimed/Last", "renamed/Last", "committed/Last", "committed/Items",
    "recorded/Twin", "first-renamed/Fresh", "started/Flaky",
]  # fmt: skip


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, list[str]]]:
    """What each task makes, where nothing happens, by how many items there are."""
    found = {}
    for many in (3, 20):
        folder = tmp_path_factory.mktemp("undisturbed")
        with closing(Home(folder / "home" / ".drivetrain")) as home:
            found[many] = faulty.fingerprints(run_pipeline(home, faulty.write(folder), {"many": many}))
    return found


@pytest.fixture(autouse=True)
def nothing_runs_on(home: Home) -> Iterator[None]:
    yield
    faulty.waits(lambda: not faulty.left(home))


@pytest.mark.parametrize("runner", ["inline", "process"])
@pytest.mark.parametrize("cut", CUTS)
def test_a_process_that_is_killed_at_a_step(
    home: Home, tmp_path: Path, undisturbed: dict[int, dict[str, list[str]]], runner: str, cut: str
) -> None:
    """Inline it is the orchestrator, and the run is interrupted; else a worker, and its task fails alone."""
    process = faulty.start(home, faulty.write(tmp_path).project, runner, cut=cut)
    out, _ = process.communicate(timeout=240)
    ends = 1
    if runner == "inline":
        assert process.returncode == -9
        assert faulty.shown(home)[""] == "INTERRUPTED"
    else:
        answer = json.loads(out.splitlines()[-1])
        shown = faulty.shown(home)
        assert shown == {"": answer["state"], **{name: node["state"] for name, node in answer["nodes"].items()}}
        assert answer["state"] == ("FAILED" if "FAILED" in shown.values() else "COMPLETE")
        ends += answer["state"] == "FAILED" and shown["Last"] == "COMPLETE"
        assert not home.store.executions(state="RUNNING")
    faulty.settled(home, resume(home), undisturbed[3], ends=ends)


def begins(home: Home, process: subprocess.Popen[str]) -> None:
    """Wait until there is a run."""
    faulty.waits(lambda: list_runs(home) or process.poll() is not None)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("runner", "rounds"), [("inline", 20), ("process", 12)])
def test_an_orchestrator_that_is_killed_at_any_moment(
    tmp_path: Path, undisturbed: dict[int, dict[str, list[str]]], runner: str, rounds: int
) -> None:
    """Up to three times, the run and those that resume it."""
    seed = int(os.environ.get("DRIVETRAIN_TEST_SEED", time.time_ns() % 10**6))
    print(f"DRIVETRAIN_TEST_SEED={seed}")
    chance = random.Random(seed)
    project = faulty.write(tmp_path).project
    with closing(Home(tmp_path / "whole" / ".drivetrain")) as home:
        begin = time.monotonic()
        faulty.finish(faulty.start(home, project, runner, {"many": 20}))
        whole = time.monotonic() - begin
    begun = 0
    for number in range(rounds):
        with closing(Home(tmp_path / f"round-{number}" / ".drivetrain")) as home:
            for go in (runner, "resume", "resume")[: chance.randint(1, 3)]:
                if go == "resume" and not list_runs(home):
                    break
                process = faulty.start(home, project, go, {"many": 20})
                if number % 4:  # most are killed once they have begun, however slow this machine is by now
                    begins(home, process)
                try:
                    process.wait(chance.uniform(0.0, 0.9) * whole)
                except subprocess.TimeoutExpired:
                    faulty.kill(process)
                else:
                    process.communicate()
            if not list_runs(home):
                continue
            begun += 1
            shown = faulty.shown(home)
            done = all(state in ("COMPLETE", "CACHED", "SKIPPED") for state in shown.values())
            assert shown[""] in ("INTERRUPTED", "COMPLETE")
            assert done or shown[""] == "INTERRUPTED"
            faulty.settled(home, resume(home), undisturbed[20])
    assert begun >= rounds / 2, "most kills must hit a run that had begun"


# -- parts of runs, and many runs


def drivetrain(home: Home, *words: str, cut: str = "") -> subprocess.CompletedProcess[str]:
    home.base.mkdir(parents=True, exist_ok=True)
    environment = {"DRIVETRAIN_TEST_CUT": cut, "DRIVETRAIN_TEST_BASE": str(home.base), MARK: faulty.mark(home)}
    return subprocess.run(
        [sys.executable, "-m", "drivetrain", *words, "--root", str(home.root), "--json"],
        capture_output=True, text=True, check=False, env={**os.environ, **environment},
    )  # fmt: skip


@pytest.mark.parametrize("cut", ["started/Sum", "renamed/Fresh", "recorded/Pair"])
def test_a_part_of_a_run_that_is_killed(
    home: Home, tmp_path: Path, undisturbed: dict[int, dict[str, list[str]]], cut: str
) -> None:
    project = str(faulty.write(tmp_path).project)
    first = json.loads(drivetrain(home, "run", project).stdout.splitlines()[-1])
    (home.base / "tried").unlink()
    killed = drivetrain(home, "run", project, "--from", "Sum", "--no-cache", cut=cut)
    assert killed.returncode == -9, killed.stdout + killed.stderr
    assert faulty.shown(home)[""] == "INTERRUPTED"
    result = resume(home)
    assert result.run != first["run"]
    taken = {name for name, node in result.nodes.items() if node.reason == f"taken from run {first['run']}"}
    assert taken >= {"Pair[0]", "Both[2]"}
    # Twin and Items come before nothing that ran; the rest is as it would have been.
    made = {name: found for name, found in faulty.fingerprints(result).items() if found}
    assert made == {name: found for name, found in undisturbed[3].items() if name in made}
    assert {"Sum", "Flaky", "Fresh", "Last"} <= made.keys()
    assert result.state == "COMPLETE"
    report = fsck(home.store, home.root)
    assert report.clean, report.to_dict()


def test_a_backfill_that_is_killed_is_begun_again_and_makes_nothing_twice(home: Home, tmp_path: Path) -> None:
    project = str(faulty.write(tmp_path).project)
    words = ("backfill", project, "--spans", "4:7", "--span-param", "count")
    (home.base).mkdir(parents=True, exist_ok=True)
    (home.base / "tried").touch()
    for cut in ("renamed/Join", "started/Fresh", "committed/Make", "claimed/Last"):
        assert drivetrain(home, *words, cut=cut).returncode == -9
        assert faulty.shown(home)[""] == "INTERRUPTED"
    done = drivetrain(home, *words)
    answer = json.loads(done.stdout.splitlines()[-1])
    assert [(one["span"], one["state"]) for one in answer["spans"]] == [(span, "COMPLETE") for span in (4, 5, 6, 7)]
    complete = [e for e in home.store.executions(state="COMPLETE") if e.component not in ("parts:Last",)]
    keys = [e.cache_key for e in complete if e.properties["node"] != "Fresh"]
    assert len(keys) == len(set(keys))
    report = fsck(home.store, home.root)
    assert report.clean, report.to_dict()


# -- a power loss

OFF = """
import shutil, sys
from pathlib import Path
from drivetrain.metadata.dialect import Sqlite
from drivetrain.pipelines import Home, load_pipeline, run_pipeline

connect = Sqlite.connect
def kept(self):
    connection = connect(self)
    connection.execute("PRAGMA wal_autocheckpoint = 0")  # every commit stays in the log
    return connection
Sqlite.connect = kept
home = Home(Path(sys.argv[1]))
assert run_pipeline(home, load_pipeline(Path(sys.argv[2]))).state == "COMPLETE"
for name in ("metadata.db", "metadata.db-wal"):
    shutil.copy(home.root / name, home.root.parent / name)
"""


def commits(log: bytes) -> list[int]:
    """Where each transaction of a write-ahead log ends, in bytes (https://sqlite.org/fileformat2.html#walformat)."""
    size = struct.unpack(">I", log[8:12])[0]
    starts = range(32, len(log) - size - 23, size + 24)
    return [start + 24 + size for start in starts if struct.unpack(">I", log[start + 4 : start + 8])[0]]


@pytest.mark.timeout(1200)
def test_whatever_part_of_the_log_reached_the_disk_the_run_is_finished(
    tmp_path: Path, undisturbed: dict[int, dict[str, list[str]]]
) -> None:
    """Commits that were not synced are lost from the end: no artifact is then without its payload, and all goes on."""
    origin = tmp_path / "origin"
    project = faulty.write(tmp_path).project
    subprocess.run([sys.executable, "-c", OFF, str(origin / ".drivetrain"), str(project)], check=True)
    log = (origin / "metadata.db-wal").read_bytes()
    ends = commits(log)
    assert len(ends) > 60
    chance = random.Random(5)
    cuts = [*ends[:6], *sorted(chance.sample(ends[6:], 20)), ends[-1]]
    cuts += [end - chance.randint(1, 4000) for end in chance.sample(ends[6:], 6)]  # within a page
    finished = 0
    for number, cut in enumerate(cuts):
        root = tmp_path / f"cut-{number}" / ".drivetrain"
        # As the payloads were synced before the store was told, those that it tells of are all there.
        shutil.copytree(origin / ".drivetrain", root, ignore=shutil.ignore_patterns("metadata.db*"))
        shutil.copy(origin / "metadata.db", root)
        (root / "metadata.db-wal").write_bytes(log[:cut])
        (root.parent / "tried").touch()
        if not any(end <= cut for end in ends[:1]):
            continue
        if cut < ends[6]:
            shutil.rmtree(root / "artifacts")  # nothing was published then
        with closing(Home(root)) as home:
            for artifact in home.store.artifacts():
                assert home.store.execution(artifact.producer or 0).state == "COMPLETE"
            found = fsck(home.store, home.root, repair=True)
            assert (found.database, found.missing, found.corrupt) == ((), (), ())
            if not list_runs(home):
                continue
            assert list_runs(home)[0].state == ("COMPLETE" if cut == ends[-1] else "INTERRUPTED")
            faulty.settled(home, resume(home), undisturbed[3])
            finished += 1
    assert finished > 20
