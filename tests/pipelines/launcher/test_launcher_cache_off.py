"""Nodes that are never taken from the cache: each does its own work, at its own time, in a folder of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from drivetrain.metadata import MetadataStore, Owner
from drivetrain.pipelines import Home, PipelineFunction, RunOptions, resume, run_pipeline

Pipe = Callable[..., PipelineFunction[..., Any]]

# Two attempts at the same code must be at work at once, or neither ends well.
MEET = """
here = Path({base!r})
import uuid
(here / f"at-{{uuid.uuid4()}}").touch()
until = time.monotonic() + 120
while len(list(here.glob("at-*"))) < 2:
    assert time.monotonic() < until, "the other one waits for this one"
    time.sleep(0.01)
"""
# Leaves a mark in the work folder, and fails until it is told not to.
MARK = """
work = current().work_dir
seen = sorted(path.name for path in work.glob("mark-*"))
(Path({base!r}) / "seen").write_text(" ".join(seen))
(work / f"mark-{{len(seen)}}").touch()
assert (Path({base!r}) / "go").exists(), "not yet"
"""


@pytest.mark.parametrize("runner", ["inline", "process"])
@pytest.mark.parametrize("second", ["cache=False", "cache=True"])
def test_two_that_do_the_same_do_not_wait_for_each_other(runner: str, second: str, home: Home, pipe: Pipe) -> None:
    code = MEET.format(base=str(home.base))
    body = f"n = Make()\nMisbehave.options(id='A', cache=False)(n, code={code!r})\n"
    body += f"Misbehave.options(id='B', {second})(n, code={code!r})"
    result = run_pipeline(home, pipe(body), options=RunOptions(runner=runner, parallel=2))
    assert result.state == "COMPLETE"
    assert {name: node.state for name, node in result.nodes.items()} == dict.fromkeys(("Make", "A", "B"), "COMPLETE")


def test_what_one_made_serves_those_that_look_into_the_cache(home: Home, pipe: Pipe) -> None:
    first = run_pipeline(home, pipe("Make.options(cache=False)()"))
    assert first.nodes["Make"].state == "COMPLETE"
    assert run_pipeline(home, pipe("Make()")).nodes["Make"].state == "CACHED"
    assert run_pipeline(home, pipe("Make()"), options=RunOptions(cache=False)).nodes["Make"].state == "COMPLETE"


def test_a_resumed_one_goes_on_in_its_folder_and_a_new_one_begins_anew(home: Home, pipe: Pipe) -> None:
    code = MARK.format(base=str(home.base))
    pipeline = pipe(f"Misbehave.options(id='A', cache=False)(Make(), code={code!r})")
    seen = home.base / "seen"
    assert run_pipeline(home, pipeline).state == "FAILED"
    assert seen.read_text() == ""
    assert run_pipeline(home, pipeline).state == "FAILED"
    assert seen.read_text() == ""  # another run: nothing of the first
    assert resume(home).state == "FAILED"
    assert seen.read_text() == "mark-0"
    (home.base / "go").touch()
    assert resume(home).state == "COMPLETE"
    assert seen.read_text() == "mark-0 mark-1"
    # What the first run left is of no use to anybody.
    assert not list((home.root / "work" / "nodes").iterdir())


def test_its_own_lease_tells_that_its_process_is_gone(tmp_path: Path) -> None:
    elsewhere = replace(Owner.current(), host="elsewhere")
    now = 1_000_000_000_000_000
    with MetadataStore.open(tmp_path / "metadata.db", clock=lambda: now) as store:
        claim = store.claim("key.own", owner=elsewhere, lease=60.0)
        assert claim is not None
        running = store.start("Make", cache_key="key", owner=elsewhere, properties={"claim": "key.own"})
        assert not store.is_dead(running)
        now += 61_000_000
        assert store.is_dead(running)
        # Who takes its claim over ends it, though the key of its work is free.
        assert store.claim("key.own", lease=60.0) is not None
        assert store.execution(running.uid).state == "ABANDONED"
