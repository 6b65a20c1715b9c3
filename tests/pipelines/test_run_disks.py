"""Disks that are full, stores that are gone or damaged, a power loss: named, and nothing lost."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from drivetrain.metadata import ExecutionRecord, MetadataStore, NoStore, StagedArtifact, StoreUnavailable
from drivetrain.metadata.errors import StoreDamaged
from drivetrain.metadata.fsck import fsck
from drivetrain.pipelines import (
    Home,
    PipelineFunction,
    RunOptions,
    list_runs,
    load_pipeline,
    open_run,
    resume,
    run_pipeline,
)
from drivetrain.pipelines.launcher.observers import NullObserver
from drivetrain.tests.metadata.power import Disk, files
from drivetrain.tests.pipelines import faulty

Shop: TypeAlias = PipelineFunction[..., object]
Outputs: TypeAlias = Mapping[str, Sequence[StagedArtifact]]
pytestmark = pytest.mark.usefixtures("nothing_runs_on")


def clean(home: Home) -> None:
    report = fsck(home.store, home.root)
    assert report.clean, report.to_dict()
    assert not list(home.payloads.staging.glob("*"))


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return faulty.write(tmp_path)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Callable[[Path, str], None]]:
    """Makes a folder a disk of its own, of such a size."""
    mounted: list[Path] = []

    def mount(folder: Path, size: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
        if subprocess.run(command, capture_output=True, check=False).returncode != 0:
            pytest.skip("cannot mount a tmpfs here (needs root)")
        mounted.append(folder)

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path, leave: int) -> Path:
    """Take what there is but so many bytes."""
    free = shutil.disk_usage(folder).free
    path = folder / "filler"
    path.write_bytes(b"x" * max(0, free - leave))
    return path


@pytest.mark.parametrize("leave", [0, 48, 160])
def test_a_full_root_is_named_and_resumed_when_there_is_room(
    tmp_path: Path, small: Callable[[Path, str], None], undisturbed: dict[str, list[str]], leave: int
) -> None:
    """It ends with one error, or a run that says what failed; what it says is complete is there."""
    small(tmp_path / "home", "8m")  # the log of the store alone takes four before it is taken in
    home = Home(tmp_path / "home" / ".drivetrain")
    try:
        project = faulty.write(tmp_path).project
        run_pipeline(home, faulty.write(tmp_path), {"many": 1})  # so that there is a store, with a run in it
        (home.base / "tried").unlink()
        filler = fill(home.base, leave * 1024)
        process = faulty.start(home, project)
        out, err = process.communicate(timeout=120)
        said = err if process.returncode else out
        assert "disk is full" in said or "disk full while" in said or "No space left" in said, said
        assert "resume" in said
        filler.unlink()
        newest = list_runs(home)[0]
        if newest.parameters["many"] == 1:  # not even its beginning could be recorded
            assert newest.state == "COMPLETE"
            result = run_pipeline(home, load_pipeline(project))
        else:
            assert newest.state in ("FAILED", "INTERRUPTED")
            result = resume(home)
        assert result.state == "COMPLETE", {name: node.reason for name, node in result.nodes.items()}
        assert faulty.fingerprints(result) == undisturbed
        clean(home)
    finally:
        home.close()


@pytest.mark.parametrize("place", ["content", "extra"])
def test_what_does_not_fit_fails_its_task_and_is_made_when_there_is_room(
    tmp_path: Path, small: Callable[[Path, str], None], place: str
) -> None:
    small(tmp_path / "home", "4m")
    function = faulty.write(tmp_path, faulty.body(f'Bulky(Add(Make(count=count)), place="{place}")'))
    with closing(Home(tmp_path / "home" / ".drivetrain")) as home:
        result = run_pipeline(home, function)
        assert {name: node.state for name, node in result.nodes.items()} == {
            "Make": "COMPLETE", "Add": "COMPLETE", "Bulky": "FAILED"
        }  # fmt: skip
        assert result.nodes["Bulky"].reason.startswith("disk full while running Bulky")
        assert "drivetrain resume" in result.nodes["Bulky"].reason
        assert faulty.shown(home)["Bulky"] == "FAILED"
        clean(home)
        subprocess.run(["mount", "-o", "remount,size=32m", str(tmp_path / "home")], check=True)
        assert resume(home).state == "COMPLETE"
        clean(home)


def test_a_working_folder_that_fills_the_disk_is_kept(tmp_path: Path, small: Callable[[Path, str], None]) -> None:
    """What lies there is worth something, so that there may be not a room to record the failure."""
    small(tmp_path / "home", "4m")
    function = faulty.write(tmp_path, faulty.body('Bulky(Add(Make(count=count)), place="work")'))
    with closing(Home(tmp_path / "home" / ".drivetrain")) as home:
        process = faulty.start(home, function.project)
        out, err = process.communicate(timeout=120)
        said = err if process.returncode else out
        assert "disk full while running Bulky" in said or "metadata.db: database or disk is full" in said
        assert "drivetrain resume" in said
        shown = faulty.shown(home)
        assert {shown[""], shown["Bulky"]} <= {"INTERRUPTED", "FAILED"}, (shown, out, err)
        assert list(home.root.glob("work/nodes/*/bulk.bin"))
        subprocess.run(["mount", "-o", "remount,size=32m", str(tmp_path / "home")], check=True)
        assert resume(home).state == "COMPLETE"
        clean(home)


def test_a_full_disk_for_logs_ends_no_run(home: Home, shop: Shop, small: Callable[[Path, str], None]) -> None:
    small(home.root / "logs", "64k")
    fill(home.root / "logs", 0)
    for runner in ("inline", "process"):
        result = run_pipeline(home, shop, options=RunOptions(runner=runner, cache=False))
        assert result.state == "COMPLETE", {name: node.reason for name, node in result.nodes.items()}
    clean(home)


@pytest.mark.parametrize("runner", ["inline", "process"])
def test_where_no_log_can_be_written_the_run_goes_on(home: Home, shop: Shop, runner: str) -> None:
    (home.root / "logs").write_text("no folder")
    notes: list[str] = []

    class Notes(NullObserver):
        def note(self, node: str, text: str) -> None:
            notes.append(text)

    result = run_pipeline(home, shop, options=RunOptions(runner=runner), observer=lambda run: Notes())
    assert result.state == "COMPLETE", {name: node.reason for name, node in result.nodes.items()}
    said = [note for note in notes if note.startswith("logs are incomplete: ")]
    assert said
    assert all("cannot be written" in note for note in said)
    assert len(said) == 1 or runner == "process"  # each process says it once


# -- what is damaged


def test_a_store_that_is_gone_is_not_begun_anew(home: Home, shop: Shop) -> None:
    first = run_pipeline(home, shop)
    home.close()
    database = home.root / "metadata.db"
    whole = {path: path.read_bytes() for path in home.root.glob("metadata.db*")}
    for damage in ("truncated", "deleted"):
        for path in whole:
            path.unlink(missing_ok=True)
        if damage == "truncated":
            database.write_bytes(b"")
        left = sorted(home.root.iterdir())
        how = "is empty" if damage == "truncated" else f"there is no metadata store at {database}"
        for readonly in (False, True):
            with pytest.raises(NoStore, match=f"{how}, though .*(.|\n)*backup --restore FILE.*fsck --rebuild"):
                Home(home.root, readonly=readonly)
        assert sorted(home.root.iterdir()) == left
    database.unlink(missing_ok=True)
    for path, data in whole.items():
        path.write_bytes(data)
    again = Home(home.root)
    assert list_runs(again)[0].id == first.run
    clean(again)
    again.close()


def test_a_store_that_is_cut_short_is_named(home: Home, shop: Shop) -> None:
    run_pipeline(home, shop)
    home.close()
    database = home.root / "metadata.db"
    database.write_bytes(database.read_bytes()[: 40 * 1024])
    with pytest.raises(StoreUnavailable, match=r"metadata\.db is damaged"), closing(Home(home.root)) as again:
        run_pipeline(again, shop)


def test_a_payload_without_its_manifest_is_made_again(
    home: Home, shop: Shop, undisturbed: dict[str, list[str]]
) -> None:
    first = run_pipeline(home, shop)
    for node, key in (("Make", "numbers"), ("Pair[1]", "second")):
        (home.payloads.local(first.nodes[node].outputs[key][0].uri) / "manifest.json").unlink()
    (home.base / "tried").unlink()
    result = run_pipeline(home, shop)
    assert faulty.fingerprints(result) == undisturbed
    made = {name for name, node in result.nodes.items() if node.state == "COMPLETE"}
    assert made == {"Make", "Pair[1]", "Fresh", "Last"}
    assert len(fsck(home.store, home.root, repair=True).corrupt) == 2
    clean(home)


def test_a_run_whose_pipeline_is_lost_hides_no_other(home: Home, shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    first, second = run_pipeline(home, shop), run_pipeline(home, shop, {"many": 1})
    lost = open_run(home, second.run).context
    home.store.update_context(lost, {"ir": "0" * 64})
    assert [run.id for run in list_runs(home)] == [first.run]
    assert f"does not hold the pipeline of run {second.run}" in caplog.text
    with pytest.raises(StoreDamaged, match=f"does not hold the pipeline of run {second.run}"):
        open_run(home, second.run)


# -- a power loss


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc which file a descriptor is")
def test_a_root_that_was_made_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(tmp_path, monkeypatch)
    Home(tmp_path / "new" / "folder" / ".drivetrain").close()
    assert disk.left(tmp_path / "new" / "folder" / ".drivetrain") is not None


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc which file a descriptor is")
def test_what_the_store_is_told_of_is_durable(home: Home, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, told = Disk(home.root, monkeypatch), []
    publish = MetadataStore.publish

    def checked(self: MetadataStore, execution: ExecutionRecord, outputs: Outputs, **more: Any) -> object:
        for (new,) in outputs.values():
            path = home.payloads.local(new.uri)
            assert disk.left(path) == files(path)
            told.append(new.uri)
        return publish(self, execution, outputs, **more)

    monkeypatch.setattr(MetadataStore, "publish", checked)
    assert run_pipeline(home, shop).state == "COMPLETE"
    assert sorted(told) == sorted(artifact.uri for artifact in home.store.artifacts())
