"""Runs that are cut down at a given step, stopped, doubled, or find their disk full: nothing lost, nothing twice."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from drivetrain.errors import InputError
from drivetrain.metadata import (
    ExecutionRecord,
    MetadataStore,
    NewArtifact,
    Owner,
    StoreUnavailable,
    fsck,
)
from drivetrain.metadata.database import microseconds
from drivetrain.pipelines import (
    Home,
    PipelineFunction,
    RunOptions,
    decide,
    list_runs,
    load_pipeline,
    open_run,
    resume,
    run_pipeline,
    waiting_tasks,
)
from drivetrain.pipelines.launching.home import close_run, reopen_run
from drivetrain.pipelines.launching.logs import Logs
from drivetrain.tests.metadata.power import Disk, files
from drivetrain.tests.pipelines import faulty

Shop: TypeAlias = PipelineFunction[..., object]
Outputs: TypeAlias = Mapping[str, Sequence[NewArtifact]]


def clean(home: Home) -> None:
    report = fsck(home.store, home.root)
    assert report.clean, report.to_dict()
    assert not list(home.payloads.staging.glob("*"))


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return faulty.write(tmp_path)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What each task of the pipeline makes, where nothing happens."""
    folder = tmp_path_factory.mktemp("undisturbed")
    home = Home(folder / "home" / ".drivetrain")
    try:
        result = run_pipeline(home, faulty.write(folder))
        assert result.state == "COMPLETE"
        assert (home.base / "lines.txt").read_text().splitlines()[-1] == "Last COMPLETE"
        return faulty.fingerprints(result)
    finally:
        home.close()


@pytest.fixture(autouse=True)
def nothing_runs_on(home: Home) -> Iterator[None]:
    yield
    faulty.waits(lambda: not faulty.left(home), 30)


@pytest.mark.parametrize("cut", ["renamed/Pair", "recorded/Small", "committed/Last"])
def test_a_run_that_is_killed_at_a_step_is_finished(
    home: Home, shop: Shop, undisturbed: dict[str, list[str]], cut: str
) -> None:
    process = faulty.start(home, shop.project, cut=cut)
    process.communicate(timeout=60)
    assert process.returncode == -9
    before = faulty.shown(home)
    assert before[""] == "INTERRUPTED"
    assert "RUNNING" not in before.values()
    faulty.settled(home, resume(home), undisturbed)
    assert (home.base / "lines.txt").read_text().splitlines().count("Last COMPLETE") == 1


# -- stopped by a person

LOOP = """
n = Make(count=count)
dt.map_(lambda item: Add(Waits.options(cache=False)(n, name="begun")), over=[1, 2, 3])
with dt.on_exit() as run:
    Last.options(cache=False)(state=run.state)
"""
PAUSE = """
Flaky.options(retries=1, backoff=600)(Make(count=count))
with dt.on_exit() as run:
    Last.options(cache=False)(state=run.state)
"""
EXIT = """
n = Make(count=count)
Waits(n, name="before")
with dt.on_exit() as run:
    Waits.options(id="Exits", cache=False)(Make.options(id="Own")(count=1), name="begun")
    Last.options(cache=False)(state=run.state)
"""
ASKS = """
from drivetrain.components import Approval
Add(Make(count=count))
with dt.when(Approval().approved):
    Make.options(id="Pushed")(count=1)
with dt.on_exit() as run:
    Last.options(cache=False)(state=run.state)
"""


def lines(home: Home) -> list[str]:
    path = home.base / "lines.txt"
    return [line for line in path.read_text().splitlines() if line.startswith("Last")] if path.exists() else []


@pytest.mark.parametrize("runner", ["inline", "process"])
def test_ctrl_c_in_a_loop_runs_what_is_on_exit(home: Home, tmp_path: Path, runner: str) -> None:
    process = faulty.start(home, faulty.write(tmp_path, faulty.body(LOOP)).project, runner)
    faulty.appears(home.base / "begun", process)
    process.send_signal(signal.SIGINT)
    answer = faulty.finish(process)
    assert answer["state"] == "CANCELED"
    states = {name: node["state"] for name, node in answer["nodes"].items()}
    alone = {name: state for name, state in states.items() if "[" not in name}
    assert alone == {"Make": "COMPLETE", "Last": "COMPLETE"}
    assert {state for name, state in states.items() if "[" in name} == {"CANCELED"}
    assert lines(home) == ["Last CANCELED"]
    assert faulty.shown(home) == {"": "CANCELED", **states}
    (home.base / "go").touch()
    result = resume(home)
    assert result.state == "COMPLETE"
    assert lines(home) == ["Last CANCELED", "Last COMPLETE"]
    assert result.nodes.keys() == states.keys()
    clean(home)


@pytest.mark.parametrize("runner", ["inline", "process"])
def test_ctrl_c_in_a_pause_between_attempts_ends_it(home: Home, tmp_path: Path, runner: str) -> None:
    process = faulty.start(home, faulty.write(tmp_path, faulty.body(PAUSE)).project, runner)
    faulty.waits(lambda: home.store.executions(state="FAILED") or process.poll() is not None)
    assert faulty.shown(home)[""] == "RUNNING"
    process.send_signal(signal.SIGINT)
    answer = faulty.finish(process)
    assert answer["state"] == "CANCELED"
    assert answer["nodes"]["Flaky"]["state"] == "CANCELED"
    assert lines(home) == ["Last CANCELED"]
    assert faulty.shown(home)[""] == "CANCELED"
    result = resume(home)
    assert result.state == "COMPLETE"
    clean(home)


@pytest.mark.parametrize("runner", ["inline", "process"])
def test_a_second_ctrl_c_skips_what_is_on_exit(home: Home, tmp_path: Path, runner: str) -> None:
    process = faulty.start(home, faulty.write(tmp_path, faulty.body(EXIT)).project, runner)
    faulty.appears(home.base / "before", process)
    process.send_signal(signal.SIGINT)
    faulty.appears(home.base / "begun", process)
    process.send_signal(signal.SIGTERM)
    answer = faulty.finish(process)
    assert answer["state"] == "CANCELED"
    assert {name: answer["nodes"][name]["state"] for name in ("Make", "Waits", "Exits")} == {
        "Make": "COMPLETE", "Waits": "CANCELED", "Exits": "CANCELED"
    }  # fmt: skip
    assert faulty.shown(home)[""] == "CANCELED"
    (home.base / "go").touch()
    assert resume(home).state == "COMPLETE"
    assert lines(home)[-1] == "Last COMPLETE"
    clean(home)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_waits_for_a_person_goes_on_after_it_was_ended(
    home: Home, tmp_path: Path, number: signal.Signals
) -> None:
    process = faulty.start(home, faulty.write(tmp_path, faulty.body(ASKS)).project)
    faulty.waits(lambda: list_runs(home) and waiting_tasks(home, list_runs(home)[0]) == ["Approval"])
    process.send_signal(number)
    process.communicate(timeout=30)
    (run,) = list_runs(home)
    assert run.state == ("INTERRUPTED" if number == signal.SIGKILL else "CANCELED")
    decide(home, run, "Approval", approved=True, by="ada")
    with pytest.raises(InputError, match="was approved by ada before"):
        decide(home, run, "Approval", approved=False, by="bob")
    result = resume(home)
    assert result.state == "COMPLETE"
    assert result.nodes["Pushed"].state == "COMPLETE"
    assert lines(home)[-1] == "Last COMPLETE"
    clean(home)


# -- two at once

TWICE = """
n = Waits(Make(count=count), name="begun")
dt.map_(lambda item: Add(n, Make.options(id="Each")(count=item)), over=[11, 12, 13])
"""


def test_two_runs_at_once_make_everything_once(home: Home, tmp_path: Path) -> None:
    project = faulty.write(tmp_path, faulty.body(TWICE)).project
    both = [faulty.start(home, project, "inline"), faulty.start(home, project, "process")]
    faulty.waits(lambda: len(list_runs(home)) == 2 and (home.base / "begun").exists())
    (home.base / "go").touch()
    answers = [faulty.finish(process) for process in both]
    assert [answer["state"] for answer in answers] == ["COMPLETE"] * 2
    states = [{name: node["state"] for name, node in answer["nodes"].items()} for answer in answers]
    assert all({one, other} == {"COMPLETE", "CACHED"} for one, other in zip(*map(dict.values, states), strict=True))
    made = Counter((home.base / "lines.txt").read_text().splitlines())
    assert set(made.values()) == {1}, made
    assert len(home.store.artifacts()) == len(states[0])
    clean(home)


def test_runs_of_other_parameters_do_not_wait(home: Home, tmp_path: Path) -> None:
    project = faulty.write(tmp_path, faulty.body(TWICE)).project
    slow = faulty.start(home, project, values={"count": 1})
    faulty.appears(home.base / "begun", slow)
    (home.base / "begun").unlink()
    quick = faulty.start(home, project, values={"count": 2})
    faulty.appears(home.base / "begun", quick)  # while the first still waits
    (home.base / "go").touch()
    for process in (slow, quick):
        assert faulty.finish(process)["state"] == "COMPLETE"
    totals = {artifact.properties["total"] for artifact in home.store.artifacts(type="Numbers")}
    assert totals == {1, 2, 11, 12, 13, 14, 15}
    clean(home)


def test_a_run_at_work_is_not_resumed_and_a_killed_one_once(home: Home, tmp_path: Path) -> None:
    project = faulty.write(tmp_path, faulty.body(TWICE)).project
    process = faulty.start(home, project)
    faulty.appears(home.base / "begun", process)
    with pytest.raises(InputError, match=f"being worked on by process {process.pid}"):
        resume(home)
    faulty.kill(process)
    both = [faulty.start(home, project, "resume") for _ in range(2)]
    faulty.waits(lambda: any(one.poll() is not None for one in both))
    refused = next(one for one in both if one.poll() is not None)
    _, err = refused.communicate()
    assert "being worked on by process" in err
    (home.base / "go").touch()
    (other,) = [one for one in both if one is not refused]
    assert faulty.finish(other)["state"] == "COMPLETE"
    assert [run.state for run in list_runs(home)] == ["COMPLETE"]
    clean(home)


def test_a_worker_that_outlives_its_run_has_done_its_task(home: Home, tmp_path: Path) -> None:
    """It notices that it was orphaned, and its component does not; whoever resumes takes what it makes."""
    text = faulty.body("Add(Stubborn.options(cache=False)(Make(count=count)))")
    project = faulty.write(tmp_path, text).project
    process = faulty.start(home, project, "process")
    faulty.appears(home.base / "begun", process)
    faulty.kill(process)
    assert faulty.shown(home) == {"": "INTERRUPTED", "Make": "COMPLETE", "Stubborn": "RUNNING", "Add": "CANCELED"}
    process = faulty.start(home, project, "resume")
    log = Logs(home.root, list_runs(home)[0].id).path("Stubborn")
    faulty.waits(lambda: "which does the same work" in log.read_text() or process.poll() is not None)
    (home.base / "go").touch()
    answer = faulty.finish(process)
    assert answer["state"] == "COMPLETE"
    assert (home.base / "lines.txt").read_text().split() == ["Make", "Stubborn", "Add"]
    clean(home)


def test_of_two_that_take_a_run_over_one_is_refused(home: Home, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other wins between the look and the change."""
    run_pipeline(home, shop)
    before = list_runs(home)[0]
    other = {**Owner.current().to_dict(), "pid": 1, "start_time": ""}  # a process that lives
    home.store.update_context(before.context, {"state": "RUNNING", "owner": other})
    with pytest.raises(InputError, match="being worked on by process 1"):
        reopen_run(home, before)
    close_run(home, before, "FAILED")  # nor may it say how the other's work ended
    assert list_runs(home)[0].state == "RUNNING"


# -- a clock that is set


def test_history_follows_what_happened_not_the_clock(home: Home, tmp_path: Path) -> None:
    """Each run an hour before the one before it; and an hour forward within a run."""
    text = faulty.body("""
        n = Make(count=count)
        dt.map_(lambda item: Make.options(id="Each", cache=False)(count=item), over=[1])
        Latest(dt.latest(Numbers, node="Make"), made=n)
    """)
    function = faulty.write(tmp_path, text)
    parts = function.project / "parts.py"
    more = "@dt.component\ndef Latest(seen: Numbers | None = None, made: Numbers | None = None) -> int:\n"
    parts.write_text(parts.read_text() + more + "    return seen.total if seen else -1\n")
    function = load_pipeline(function.project)
    offset = 0.0
    home.store._db.clock = lambda: microseconds() + round(offset * 1e6)
    seen = []
    for count in (10, 20, 30):
        result = run_pipeline(home, function, {"count": count})
        seen.append(result.nodes["Latest"].outputs["value"][0].properties["value"])
        offset -= 3600
    assert seen == [-1, 10, 20]
    assert [run.parameters["count"] for run in list_runs(home)] == [30, 20, 10]
    assert all((execution.seconds or 0) >= 0 for execution in home.store.executions())


@pytest.mark.skipif(shutil.which("faketime") is None, reason="needs faketime")
def test_a_process_whose_clock_is_an_hour_slow_sees_what_came_before(home: Home, tmp_path: Path) -> None:
    text = faulty.body('Add(Make(count=count), dt.latest(Numbers, node="Make"))')
    function = faulty.write(tmp_path, text)
    assert run_pipeline(home, function, {"count": 1}).state == "COMPLETE"
    slow = ("faketime", "-f", "-1h")
    answer = faulty.finish(faulty.start(home, function.project, values={"count": 2}, under=slow))
    assert answer["state"] == "COMPLETE"
    newest, older = list_runs(home)
    assert (newest.id, older.parameters["count"]) == (answer["run"], 1)
    assert newest.context.created_at < older.context.created_at
    (added,) = home.store.executions(context=newest.context, component="parts:Add")
    assert home.store.outputs(added)["numbers"][0].properties["total"] == 3
    assert (added.seconds or 0) >= 0
    clean(home)


# -- a disk that is full


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
    small(tmp_path / "home", "4m")
    home = Home(tmp_path / "home" / ".drivetrain")
    try:
        project = faulty.write(tmp_path).project
        run_pipeline(home, faulty.write(tmp_path), {"many": 1})  # so that there is a store, with a run in it
        (home.base / "tried").unlink()
        filler = fill(home.base, leave * 1024)
        process = faulty.start(home, project)
        out, err = process.communicate(timeout=60)
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
    """What lies there is worth something, so that there may be no room to record the failure."""
    small(tmp_path / "home", "4m")
    function = faulty.write(tmp_path, faulty.body('Bulky(Add(Make(count=count)), place="work")'))
    with closing(Home(tmp_path / "home" / ".drivetrain")) as home:
        process = faulty.start(home, function.project)
        out, err = process.communicate(timeout=60)
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
    result = run_pipeline(home, shop, options=RunOptions(runner=runner))
    assert result.state == "COMPLETE", {name: node.reason for name, node in result.nodes.items()}


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
        for _ in range(2):  # what the first look makes of it changes nothing
            with pytest.raises(InputError, match="is empty, though"):
                Home(home.root)
    for path in home.root.glob("metadata.db*"):
        path.unlink()
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
    with pytest.raises(InputError, match=f"does not hold the pipeline of run {second.run}"):
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
