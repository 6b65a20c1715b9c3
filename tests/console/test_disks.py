"""The verbs where the root's disk is full or may only be read, and where a store was lost or never was."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

Json = dict[str, Any]
Command = Callable[..., Result]
Read = Callable[[Result], Json]
READERS = ("runs", "show", "why Train", "lineage Push", "logs", "logs {run} Train", "diff {run} {run}", "tag", "fsck")


def mount(*arguments: str) -> None:
    if subprocess.run(["mount", *arguments], capture_output=True, check=False).returncode != 0:
        pytest.skip("cannot mount here (needs root)")


@pytest.fixture
def root(shop: Path) -> Iterator[Path]:
    """The root of the shop's runs, on a disk of its own."""
    folder = shop.parent / ".drivetrain"
    folder.mkdir()
    mount("-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder))
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> None:
    with (folder / "filler").open("wb", buffering=0) as file:
        try:
            for size in (65536, 4096, 1):
                while file.write(b"x" * size) == size:
                    pass
        except OSError:
            assert shutil.disk_usage(folder).free == 0


def state(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if "metadata.db-" not in path.name}


@pytest.mark.parametrize("left", ["closed", "killed"])
def test_on_a_full_disk_everything_can_be_read_and_backed_up(
    root: Path, two_runs: tuple[Json, Json], tmp_path: Path, drivetrain: Command, left: str
) -> None:
    """Also where a killed process left its last words in the log alone."""
    if left == "killed":
        code = (
            "import os, sys; from pathlib import Path; from drivetrain.metadata import MetadataStore\n"
            "store = MetadataStore.open(Path(sys.argv[1])); store.context('tag', 'last words'); os._exit(0)"
        )
        subprocess.run([sys.executable, "-c", code, str(root / "metadata.db")], check=True)
        assert (root / "metadata.db-wal").stat().st_size > 0
    verbs = [verb.format(run=two_runs[0]["run"]).split() for verb in READERS]
    with closing(sqlite3.connect(f"file:{root / 'metadata.db'}?mode=ro", uri=True)) as reader:
        wanted = [drivetrain(*verb, "--json").stdout for verb in verbs]
        rows = list(reader.iterdump())
    if left == "killed":
        (root / "metadata.db-shm").unlink()
    else:
        for end in ("-wal", "-shm"):
            (root / f"metadata.db{end}").unlink(missing_ok=True)
    fill(root)
    before = state(root)
    for verb, answer in zip(verbs, wanted, strict=True):
        result = drivetrain(*verb, "--json")
        assert (result.exit_code, result.stdout) == (0, answer), (verb, result.output)
    copy = tmp_path / "elsewhere" / "copy.db"
    assert drivetrain("backup", str(copy)).exit_code == 0
    with closing(sqlite3.connect(copy)) as reader:
        assert list(reader.iterdump()) == rows
    assert state(root) == before


def test_a_full_disk_is_named_with_the_way_out(root: Path, two_runs: tuple[Json, Json], drivetrain: Command) -> None:
    drivetrain("backup", "copy.db")
    fill(root)
    before = state(root)
    for verb, said, fix in (
        ("backup", "error: disk full while writing", "drivetrain backup FILE"),
        ("backup --restore copy.db", f"error: disk full while writing {root}/metadata.db", "make room"),
        ("spin Train", "error: disk full while running Train", "free space"),
        ("tag x", "error: cannot write", "free space"),
    ):
        result = drivetrain(*verb.split())
        assert (result.exit_code, said in result.stderr, fix in result.stderr) == (2, True, True), (verb, result.output)
    after = state(root)
    assert {path: after[path] for path in before if "work" not in path.parts and path != root} == {
        path: time for path, time in before.items() if "work" not in path.parts and path != root
    }


WIDE = """
import drivetrain as dt
from drivetrain.metadata import Examples


@dt.component
def Make(size: int, *, number: int) -> Examples:
    made = Examples.new(rows={"train": size})
    (made.content / "rows").write_bytes(b"x" * size)
    return made


@dt.pipeline
def wide(size: int = 30_000_000) -> None:
    for number in range(4):
        Make.options(id=f"Make{number}")(size, number=number)
"""


@pytest.mark.parametrize("runner", ["inline", "process"])
def test_what_befalls_several_nodes_is_told_once(root: Path, tmp_path: Path, drivetrain: Command, runner: str) -> None:
    (tmp_path / "wide").mkdir()
    (tmp_path / "wide" / "pipeline.py").write_text(WIDE)
    # One at a time: beside another, a node may find no room to record its start, which is another message.
    result = drivetrain("run", "wide", "--runner", runner, "--parallel", "1")
    assert result.exit_code == 2
    error, fix, likewise = [line for line in result.stderr.splitlines() if not line.startswith("root ")]
    assert error == "error: Make0: disk full while running Make0 (No space left on device)"
    assert fix.startswith("  fix: free space")
    assert likewise == "  likewise: Make1, Make2, Make3"
    lines = [line for line in result.stdout.partition("node ")[0].splitlines() if "failed" in line]
    assert sum("No space left" in line for line in lines) == 1
    assert len(lines) == 4


def test_a_read_only_root_is_named_with_the_way_out(
    root: Path, two_runs: tuple[Json, Json], drivetrain: Command
) -> None:
    copy = root.parent / "first.db"
    drivetrain("backup", str(copy))
    (root / "backups").mkdir()
    for end in ("-wal", "-shm"):
        (root / f"metadata.db{end}").unlink(missing_ok=True)
    mount("-o", "remount,ro", str(root))
    for verb in READERS:
        assert drivetrain(*verb.format(run=two_runs[0]["run"]).split()).exit_code == 0, verb
    assert drivetrain("backup", "copy.db").exit_code == 0
    for verb, said, fix in (
        ("backup", f"error: {root}/backups/metadata-", "drivetrain backup FILE"),
        (f"backup --restore {copy}", f"error: {root}/metadata.db cannot be written", "another --root"),
        ("spin Train", f"error: {root}/work/spin/Train, where Train is to work, cannot be made", "--root"),
        ("tag x", f"error: {root} may not be written", "--root"),
        ("run shop", f"error: {root} may not be written", "--root"),
        ("resume", f"error: {root} may not be written", "--root"),
        ("fsck --repair", f"error: {root} may not be written", "--root"),
        ("fsck --rebuild", "is not damaged", "move it away"),
    ):
        result = drivetrain(*verb.split())
        assert (result.exit_code, said in result.stderr, fix in result.stderr) == (2, True, True), (verb, result.output)


def test_a_copy_is_written_where_there_are_no_hard_links(
    two_runs: tuple[Json, Json], drivetrain: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(source: object, target: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.link", link)
    assert drivetrain("backup", "copy.db").exit_code == 0
    again = drivetrain("backup", "copy.db")
    assert (again.exit_code, "exists" in again.stderr) == (2, True)
    assert drivetrain("backup", "--restore", "copy.db").exit_code == 0


# -- a store that was lost, or never was


def test_no_verb_but_run_makes_a_store(two_runs: tuple[Json, Json], tmp_path: Path, drivetrain: Command) -> None:
    folder = tmp_path / ".drivetrain"
    for path in folder.glob("metadata.db*"):
        path.unlink()
    for verb in (*READERS[:5], "fsck --repair", "fsck --undo", "resume", "tag x", "approve", "backup"):
        lost = drivetrain(*verb.split())
        assert lost.exit_code == 2, verb
        assert f"there is no metadata store at {folder}/metadata.db" in lost.stderr, verb
        assert "drivetrain backup --restore FILE" in lost.stderr, verb
        assert "drivetrain fsck --rebuild" in lost.stderr, verb
        another = drivetrain(*verb.split(), "--store", "other/nonexist.db")
        assert f"there is no metadata store at {tmp_path}/other/nonexist.db" in another.stderr, verb
        nowhere = drivetrain(*verb.split(), "--root", "nowhere", "--store", "other/nonexist.db")
        assert (nowhere.exit_code, "check --root and --store" in nowhere.stderr) == (2, True), verb
        assert not list(folder.glob("metadata.db*")), verb
        assert not (tmp_path / "other").exists(), verb
        assert not (tmp_path / "nowhere").exists(), verb


def test_a_store_that_is_misspelt_is_not_taken_for_lost(
    two_runs: tuple[Json, Json], tmp_path: Path, drivetrain: Command
) -> None:
    for verb in ("runs", "fsck", "run shop"):
        result = drivetrain(*verb.split(), "--store", "nonexist.db")
        assert result.exit_code == 2, verb
        assert f"there is no metadata store at {tmp_path}/nonexist.db; that of the artifacts in" in result.stderr, verb
        assert f"may be {tmp_path}/.drivetrain/metadata.db\n  fix: leave --store" in result.stderr, verb
        assert not (tmp_path / "nonexist.db").exists(), verb


def test_a_database_that_is_empty_or_damaged_is_named_by_backup(
    two_runs: tuple[Json, Json], tmp_path: Path, drivetrain: Command
) -> None:
    database = tmp_path / ".drivetrain" / "metadata.db"
    data = database.read_bytes()
    database.write_bytes(data[:8192] + b"\xff" * 64 + data[8256:])
    result = drivetrain("backup", "copy.db")
    assert (result.exit_code, f"error: {database} is damaged" in result.stderr) == (2, True), result.output
    database.write_bytes(b"")
    for path in database.parent.glob("metadata.db-*"):
        path.unlink()
    result = drivetrain("backup", "copy.db")
    assert (result.exit_code, f"{database} is empty, though" in result.stderr) == (2, True)
    assert "backup --restore" in result.stderr
    assert not (tmp_path / "copy.db").exists()


def test_a_run_does_not_begin_anew_over_artifacts(
    shop: Path, two_runs: tuple[Json, Json], tmp_path: Path, drivetrain: Command
) -> None:
    for path in (tmp_path / ".drivetrain").glob("metadata.db*"):
        path.unlink()
    refused = drivetrain("run", "shop")
    assert (refused.exit_code, "drivetrain fsck --rebuild" in refused.stderr) == (2, True)
    assert not list((tmp_path / ".drivetrain").glob("metadata.db*"))
    assert drivetrain("fsck", "--rebuild").exit_code == 0
    assert drivetrain("run", "shop").exit_code == 0
