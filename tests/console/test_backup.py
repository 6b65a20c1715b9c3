"""`backup`, and `fsck --rebuild`: what was lost with the database is there again."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, tzinfo
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import Result

Json = dict[str, Any]
Command = Callable[..., Result]
Read = Callable[[Result], Json]


@pytest.fixture
def root(shop: Path) -> Path:
    return shop.parent / ".drivetrain"


def test_a_copy_is_written_into_the_root_or_a_folder_and_put_back(
    two_runs: tuple[Json, Json], root: Path, tmp_path: Path, drivetrain: Command, last_json: Read
) -> None:
    answer = last_json(drivetrain("backup", "--json"))
    copy = Path(answer["file"])
    assert copy.parent == root / "backups"
    assert copy.stat().st_size == answer["bytes"]
    (tmp_path / "elsewhere").mkdir()
    assert "checked" in drivetrain("backup", "elsewhere").stdout
    assert len(list((tmp_path / "elsewhere").iterdir())) == 1
    assert "checked" in drivetrain("backup", "made/for it/").stdout
    assert len(list((tmp_path / "made" / "for it").glob("metadata-*.db"))) == 1
    before = drivetrain("show", "--json").stdout
    (root / "metadata.db").write_bytes(b"")
    assert "drivetrain backup --restore" in drivetrain("runs").stderr
    assert drivetrain("backup", "--restore", str(copy)).exit_code == 0
    assert drivetrain("show", "--json").stdout == before
    assert drivetrain("fsck").exit_code == 0


def test_runs_after_the_backup_are_brought_in_by_their_records(
    shop: Path, root: Path, tmp_path: Path, drivetrain: Command, last_json: Read
) -> None:
    drivetrain("run", "shop")
    drivetrain("backup", "copy.db")
    later = last_json(drivetrain("run", "shop", "-p", "rows=5", "--json"))
    drivetrain("backup", "copy.db", "--restore")
    assert len(last_json(drivetrain("runs", "--json"))["runs"]) == 1
    assert drivetrain("fsck", "--repair").exit_code == 0
    assert last_json(drivetrain("show", "--json"))["run"] == later["run"]
    again = last_json(drivetrain("run", "shop", "-p", "rows=5", "--json"))
    assert {node["state"] for node in again["nodes"].values()} == {"CACHED"}


@pytest.mark.parametrize(("lost", "runner"), [("file", "inline"), ("file", "process"), ("bytes", "inline")])
def test_a_lost_database_is_made_anew(
    shop: Path, root: Path, drivetrain: Command, last_json: Read, lost: str, runner: str
) -> None:
    drivetrain("run", "shop", "--runner", runner, "--tag", "first")
    (shop / "helper.py").write_text("def total(rows):\n    return 7\n")
    drivetrain("run", "shop", "--runner", runner)  # two nodes are reused, the others run
    verbs = (("show", "--json"), ("lineage", "Push", "--json"), ("diff", "--json"))
    shown = [drivetrain(*verb).stdout for verb in verbs]
    runs = last_json(drivetrain("runs", "--json"))
    if lost == "file":
        for path in root.glob("metadata.db*"):
            path.unlink()
    else:
        (root / "metadata.db").write_bytes(bytes(4096) + (root / "metadata.db").read_bytes()[4096:])
    assert drivetrain("show").exit_code == 2
    result = drivetrain("fsck", "--rebuild")
    assert result.exit_code == 0, result.output
    assert "2 runs and 10 executions" in result.stdout
    assert drivetrain("fsck").exit_code == 0
    assert [drivetrain(*verb).stdout for verb in verbs] == shown
    assert last_json(drivetrain("runs", "--json")) == runs
    again = last_json(drivetrain("run", "shop", "--json"))
    assert {node["state"] for node in again["nodes"].values()} == {"CACHED"}
    (root / "artifacts" / ".store.json").read_text()
    assert drivetrain("fsck", "--repair").exit_code == 0  # the folder is this store's, as its marker says


@pytest.mark.parametrize("endings", [("bbbb", "aaaa"), ("aaaa", "bbbb")])
def test_runs_of_one_second_are_known_again_in_the_order_they_began(
    shop: Path,
    root: Path,
    drivetrain: Command,
    last_json: Read,
    monkeypatch: pytest.MonkeyPatch,
    endings: tuple[str, str],
) -> None:
    """Ids end in random characters: those of one second are in no order."""
    microseconds, random = count(), iter(endings)

    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Clock:
            return cls(2026, 1, 1, microsecond=next(microseconds), tzinfo=tz)

    with monkeypatch.context() as patch:
        patch.setattr("drivetrain.pipelines.launcher.runs.datetime", Clock)
        randomness = SimpleNamespace(token_hex=lambda _: next(random))
        patch.setattr("drivetrain.pipelines.launcher.runs.secrets", randomness)
        drivetrain("run", "shop")
        (shop / "helper.py").write_text("def total(rows):\n    return 7\n")
        drivetrain("run", "shop")
    runs = last_json(drivetrain("runs", "--json"))
    assert sorted(path.name[-4:] for path in root.glob("records/*")) == ["aaaa", "bbbb"]
    for path in root.glob("metadata.db*"):
        path.unlink()
    result = drivetrain("fsck", "--rebuild")
    assert result.exit_code == 0, result.output
    assert last_json(drivetrain("runs", "--json")) == runs


def test_a_resumed_run_takes_as_long_as_it_was_worked_on(
    shop: Path, root: Path, drivetrain: Command, last_json: Read
) -> None:
    code = f"import os\ndef total(rows):\n    return 1 if os.path.exists({str(shop / 'go')!r}) else 1 / 0\n"
    (shop / "helper.py").write_text(code)
    assert drivetrain("run", "shop").exit_code == 2
    (shop / "go").touch()
    assert drivetrain("resume").exit_code == 0
    runs = last_json(drivetrain("runs", "--json"))["runs"]
    for path in root.glob("metadata.db*"):
        path.unlink()
    assert drivetrain("fsck", "--rebuild").exit_code == 0
    assert last_json(drivetrain("runs", "--json"))["runs"] == runs


def test_a_sound_database_is_not_replaced(two_runs: tuple[Json, Json], root: Path, drivetrain: Command) -> None:
    before = (root / "metadata.db").read_bytes()
    result = drivetrain("fsck", "--rebuild")
    assert result.exit_code == 2
    assert "is not damaged" in result.stderr
    assert (root / "metadata.db").read_bytes() == before


def test_a_record_that_is_torn_is_named_and_the_rest_taken(
    two_runs: tuple[Json, Json], root: Path, drivetrain: Command
) -> None:
    (torn,) = root.glob(f"records/{two_runs[0]['run']}/Push.*.json")
    torn.write_bytes(torn.read_bytes()[:100])
    (root / "metadata.db").unlink()
    result = drivetrain("fsck", "--rebuild")
    assert result.exit_code == 1
    assert f"left out records/{two_runs[0]['run']}/{torn.name}" in result.stdout
    assert len(json.loads(drivetrain("runs", "--json").stdout)["runs"]) == 2


def test_a_run_that_reuses_all_writes_no_record(two_runs: tuple[Json, Json], root: Path, drivetrain: Command) -> None:
    before = sorted(root.glob("records/*/*"))
    drivetrain("run", "shop")
    assert sorted(root.glob("records/*/*")) == before
