"""Work folders that may go: old ones that nobody holds, and none that somebody takes up meanwhile."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from drivetrain.pipelines import Home
from drivetrain.pipelines.launcher.idle_work import UNUSED, idle_work, remove_work

LATER = (UNUSED + 1) * 86400.0


def folder(home: Home, key: str) -> Path:
    checkpoint = home.work_folder(key) / "checkpoints" / "7"
    checkpoint.mkdir(parents=True)
    (checkpoint / "arrays").write_bytes(bytes(1000))
    (checkpoint.parent / "state.json").write_text("{}")
    return home.work_folder(key)


def age(path: Path, days: float) -> None:
    """Set back the times of all in a folder."""
    at = time.time() - days * 86400
    for each in (*path.rglob("*"), path):
        os.utime(each, (at, at))


def test_old_ones_that_nobody_holds_go(home: Home) -> None:
    idle, held = folder(home, "idle"), folder(home, "held")
    assert home.store.claim("held") is not None
    now = time.time() + LATER
    listed = idle_work(home, now)
    assert [(each.folder, each.size) for each in listed] == [(idle, 1002)]
    assert idle_work(home) == [], "all is new"
    assert remove_work(home, listed) == listed
    assert sorted(path.name for path in (home.root / "work" / "nodes").iterdir()) == ["held"]
    assert (held / "checkpoints" / "7" / "arrays").stat().st_size == 1000


def test_one_file_that_changed_lately_keeps_the_folder(home: Home) -> None:
    path = folder(home, "busy")
    age(path, UNUSED + 1)
    assert [each.folder for each in idle_work(home)] == [path]
    (path / "checkpoints" / "state.json").write_text('{"step": 8}')
    age(path / "checkpoints" / "7", UNUSED + 1)
    assert idle_work(home) == []


def test_a_claim_that_a_killed_process_left_keeps_nothing(home: Home) -> None:
    path = folder(home, "killed")
    claim = home.store.claim("killed", lease=0.001)
    assert claim is not None
    while not home.store.is_lease_over("killed", claim.owner):
        time.sleep(0.001)
    assert [each.folder for each in idle_work(home, time.time() + LATER)] == [path]


def test_what_somebody_takes_up_meanwhile_stays(home: Home) -> None:
    path = folder(home, "taken up")
    listed = idle_work(home, time.time() + LATER)
    assert home.store.claim("taken up") is not None
    assert remove_work(home, listed) == []
    assert (path / "checkpoints" / "7" / "arrays").is_file()


def test_what_somebody_takes_up_while_it_is_moved_aside_comes_back(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder(home, "just now")
    listed = idle_work(home, time.time() + LATER)
    rename = Path.rename

    def move(source: Path, target: Path) -> Path:
        home.store.claim("just now")
        return rename(source, target)

    monkeypatch.setattr(Path, "rename", move)
    assert remove_work(home, listed) == []
    assert (path / "checkpoints" / "7" / "arrays").is_file()


def test_the_rest_of_a_removal_that_was_killed_goes_with_the_next(home: Home) -> None:
    path = folder(home, "begun")
    rest = path.with_name("begun.removed")
    path.rename(rest)
    listed = idle_work(home, time.time() + LATER)
    assert [each.folder for each in listed] == [rest]
    assert remove_work(home, listed) == listed
    assert not rest.exists()
