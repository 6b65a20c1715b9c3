"""`fsck`: damage is found and repaired."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

Json = dict[str, Any]
Command = Callable[..., Result]
Read = Callable[[Result], Json]


@pytest.fixture
def ran(shop: Path, drivetrain: Command, last_json: Read) -> Json:
    return last_json(drivetrain("run", "shop", "--json"))


def payload(shop: Path, ran: Json, node: str) -> Path:
    (items,) = ran["nodes"][node]["outputs"].values()
    return shop.parent / ".drivetrain" / str(items[0]["uri"])


def damage(folder: Path) -> None:
    rows = folder / "content" / "rows"
    rows.chmod(0o644)
    rows.write_text("4")


def test_fsck_is_clean_after_a_run(ran: Json, drivetrain: Command, last_json: Read) -> None:
    assert drivetrain("fsck").exit_code == 0
    answer = last_json(drivetrain("fsck", "--json"))
    assert answer["clean"] is True
    assert answer["checked"] == 5


def test_fsck_names_a_damaged_marker_and_the_fix(shop: Path, ran: Json, drivetrain: Command, last_json: Read) -> None:
    marker = shop.parent / ".drivetrain" / "artifacts" / ".store.json"
    marker.write_bytes(b"{")
    for words in ((), ("--repair", "--dry-run")):
        report = drivetrain("fsck", *words)
        assert report.exit_code == 1
        assert "delete it; the next run writes it" in report.stdout
    assert "nothing can be repaired until the marker is in order" in report.stdout
    marker.unlink()
    assert drivetrain("run", "shop").exit_code == 0
    assert marker.is_file()
    assert last_json(drivetrain("fsck", "--json"))["marker"] == []


def test_fsck_finds_damage_and_repair_lets_the_next_run_mend_it(
    shop: Path, ran: Json, drivetrain: Command, last_json: Read
) -> None:
    damage(payload(shop, ran, "Make"))
    shutil.rmtree(payload(shop, ran, "Judge"))
    result = drivetrain("fsck")
    assert result.exit_code == 1
    assert "payload changed" in result.stdout
    assert "payload missing" in result.stdout
    assert "--repair" in result.stdout
    planned = drivetrain("fsck", "--repair", "--dry-run")
    assert planned.exit_code == 1
    assert planned.stdout.count("would: retire the artifact") == 2
    assert last_json(drivetrain("fsck", "--json")) == last_json(drivetrain("fsck", "--repair", "--dry-run", "--json"))
    assert drivetrain("fsck", "--repair").exit_code == 0
    assert drivetrain("fsck").exit_code == 0
    again = last_json(drivetrain("run", "shop", "--json"))
    assert again["nodes"]["Make"]["state"] == again["nodes"]["Judge"]["state"] == "COMPLETE"
    retired = "what its last execution made was retired by `drivetrain fsck --repair`"
    assert again["nodes"]["Make"]["reason"] == again["nodes"]["Judge"]["reason"] == retired
    # Made anew with the same content; what stands between compared what it read, so it is still the same work.
    assert again["nodes"]["Train"]["state"] == "CACHED"
    assert last_json(drivetrain("fsck", "--json"))["missing"] == []


def test_a_cached_run_over_a_changed_payload_makes_nothing_suspect(
    shop: Path, ran: Json, drivetrain: Command, last_json: Read
) -> None:
    damage(payload(shop, ran, "Make"))
    again = last_json(drivetrain("run", "shop", "--json"))
    assert {node["state"] for node in again["nodes"].values()} == {"CACHED"}
    report = last_json(drivetrain("fsck", "--json"))
    assert len(report["corrupt"]) == 1
    assert report["derived"] == []


def test_a_repair_says_what_it_did_and_how_to_undo_it(shop: Path, ran: Json, drivetrain: Command) -> None:
    root = shop.parent / ".drivetrain"
    changed, missing = payload(shop, ran, "Make"), payload(shop, ran, "Judge")
    damage(changed)
    shutil.rmtree(missing)
    (root / "work" / "staging" / "left").mkdir(parents=True)
    before = drivetrain("fsck").stdout
    assert "→" not in before
    said = drivetrain("fsck", "--repair").stdout.splitlines()
    uris = {path: path.relative_to(root).as_posix() for path in (changed, missing)}
    assert f"payload changed: {uris[changed]}: content/rows changed → artifact retired, payload left" in said
    assert f"payload missing: {uris[missing]} → artifact retired" in said
    assert "left in staging: work/staging/left → deleted" in said
    retired = sum("artifact retired" in line for line in said)
    deleted = sum(line.endswith("→ deleted") for line in said)
    (total,) = [line for line in said if "put in order" in line]
    assert total.endswith(f"put in order: {retired} artifacts retired, {deleted} folders deleted")
    assert any("`drivetrain fsck --undo` takes the retiring back" in line for line in said)
    assert drivetrain("fsck").stdout.startswith("clean")


def test_a_rebuild_says_what_is_lost(shop: Path, ran: Json, drivetrain: Command, last_json: Read) -> None:
    root = shop.parent / ".drivetrain"
    reused = last_json(drivetrain("run", "shop", "--json"))["run"]  # all of it: such a run writes no record
    unnamed = payload(shop, ran, "Push").relative_to(root).as_posix()
    for record in root.glob("records/*/Push.*.json"):
        record.unlink()
    for path in root.glob("metadata.db*"):
        path.unlink()
    answer = drivetrain("fsck", "--rebuild")
    assert answer.exit_code == 0, answer.output
    assert "1 runs and 4 executions are known again" in answer.stdout
    assert f"lost: run {reused}, of which there are only logs" in answer.stdout
    assert f"no record names the payload {unnamed}" in answer.stdout
    assert "not in any record, and lost: runs that found everything in the cache, tasks that failed" in answer.stdout
    assert "registered, pinned" in answer.stdout  # which the next collection would not know of


def test_a_repair_says_what_it_took_in(shop: Path, ran: Json, drivetrain: Command, last_json: Read) -> None:
    drivetrain("backup", "copy.db")
    drivetrain("run", "shop", "-p", "rows=5")
    drivetrain("backup", "copy.db", "--restore")
    said = drivetrain("fsck", "--repair")
    assert "5 executions that the store did not know were taken in from their records" in said.stdout
    assert len(last_json(drivetrain("runs", "--json"))["runs"]) == 2
