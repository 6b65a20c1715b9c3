"""What pods write beside the payloads, read back into a store: nothing lost, nothing twice, half a file reported."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from drivetrain.errors import InputError
from drivetrain.metadata.fsck import fsck
from drivetrain.pipelines import Home, RunResult, load_pipeline, open_run, run_pipeline
from drivetrain.pipelines.kubeflow.joining import PodEnvironment, join_in_own_store
from drivetrain.pipelines.launcher import run_records as records
from drivetrain.pipelines.launcher.launcher import Launcher
from drivetrain.pipelines.resolvers.answers import Answers
from drivetrain.tests.pipelines.kubeflow.pods import PARTS

PIPELINE = """
import drivetrain as dt
from shop.parts import Double, Fails, Make

@dt.pipeline
def shop(count: int = 3) -> None:
    doubled = Double(Make(count=count))
    Double.options(id="Again")(doubled)
    Fails(doubled, how="crash")
    with dt.when(doubled.total > 100):
        Double.options(id="Large")(doubled)
"""
Ran = tuple[Home, RunResult]


@pytest.fixture
def ran(project: Callable[..., Path], tmp_path: Path) -> Iterator[Ran]:
    """A run whose every task is recorded, as by its pod."""
    folder = project(pipeline=PIPELINE, parts=PARTS)
    home = Home(tmp_path / ".drivetrain")
    run_pipeline(home, load_pipeline(folder))
    result = run_pipeline(home, load_pipeline(folder))  # so that some of it is from the cache
    for task in result.nodes:
        assert records.write_record(home, open_run(home, result.run), task)
    records.write_end(home, open_run(home, result.run))
    yield home, result
    home.close()


def _elsewhere(home: Home, name: str = "other.db") -> Home:
    """The same payloads with a store that has nothing of them: what a pod saw that could not reach the right one."""
    (home.root / "artifacts").rename(home.root / "away")
    try:
        return Home(home.root, store=str(home.root / name))
    finally:
        (home.root / "away").rename(home.root / "artifacts")


def _seen(home: Home, run: str) -> dict[str, object]:
    launcher = Launcher(home, open_run(home, run))
    found: dict[str, object] = {}
    for node in launcher.run.pipeline.ids:
        result = launcher.records.read(node)
        assert result is not None
        outputs = {key: [(each.uid, each.uri) for each in several] for key, several in result.outputs.items()}
        found[node] = (result.state, result.reason, result.seconds, outputs)
    return found


def test_a_store_that_knows_nothing_learns_all_of_it_once(ran: Ran) -> None:
    home, result = ran
    other = _elsewhere(home)
    first, second = records.sync(other, result.run), records.sync(other, result.run)
    assert sorted(first.brought) == ["Again", "Double", "Fails", "Large", "Make"]
    assert (second.brought, second.known, second.ignored) == ((), 5, ())
    assert _seen(other, result.run) == _seen(home, result.run)
    assert {node: state[0] for node, state in _seen(other, result.run).items()} == {  # type: ignore[index]
        "Make": "CACHED", "Double": "CACHED", "Again": "CACHED", "Fails": "FAILED", "Large": "SKIPPED",
    }  # fmt: skip
    assert open_run(other, result.run).state == "FAILED"
    again = result.nodes["Again"].outputs["numbers"][0]
    made_by = {each.component for each in other.store.lineage(other.store.artifact(again.uid)).executions.values()}
    assert made_by == {"parts:Double"}
    other.close()


def test_lineage_is_kept_of_what_ran(ran: Ran) -> None:
    home, _ = ran
    first = open_run(home, home.store.contexts("run")[1].name)
    for task in ("Make", "Double", "Again"):
        assert records.write_record(home, first, task)
    other = _elsewhere(home)
    assert len(records.sync(other, first.id).brought) == 3
    (made,) = Launcher(home, first).records.read("Again").outputs["numbers"]  # type: ignore[union-attr]
    there, here = (each.store.lineage(each.store.artifact(made.uid)) for each in (other, home))
    assert {each.uid for each in there.executions.values()} == {each.uid for each in here.executions.values()}
    assert {each.uid for each in there.artifacts.values()} == {each.uid for each in here.artifacts.values()}
    assert len(there.edges) == len(here.edges) == 5
    other.close()


def test_two_that_sync_at_once_bring_each_in_once(ran: Ran) -> None:
    home, result = ran
    other = _elsewhere(home)
    found: list[records.SyncReport] = []
    threads = [threading.Thread(target=lambda: found.append(records.sync(other, result.run))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(name for one in found for name in one.brought) == ["Again", "Double", "Fails", "Large", "Make"]
    assert len(other.store.executions(context=open_run(other, result.run).context)) == 5
    other.close()


def test_to_sync_where_all_is_known_changes_nothing(ran: Ran) -> None:
    home, result = ran
    before = (_seen(home, result.run), len(home.store.executions()), len(home.store.artifacts(state=None)))
    assert records.sync(home, result.run).known == 5
    assert (_seen(home, result.run), len(home.store.executions()), len(home.store.artifacts(state=None))) == before
    assert fsck(home.store, home.root).clean


@pytest.mark.parametrize("kept", [0, 1, 40, -1])
def test_half_a_record_is_told_of_and_the_others_are_taken(ran: Ran, kept: int) -> None:
    home, result = ran
    (file,) = (home.root / "records" / result.run).glob("Fails.*.json")
    whole = file.read_bytes()
    file.write_bytes(whole[:kept])
    other = _elsewhere(home)
    report = records.sync(other, result.run)
    assert sorted(report.brought) == ["Again", "Double", "Large", "Make"]
    assert [name for name, _ in report.ignored] == [file.name]
    assert "half-written" in report.ignored[0][1]
    file.write_bytes(whole)
    mended = records.sync(other, result.run)
    assert (mended.brought, mended.ignored) == (("Fails",), ())
    assert _seen(other, result.run) == _seen(home, result.run)
    other.close()


@pytest.mark.parametrize(
    "body",
    [
        {"format": "drivetrain-record/9"},
        {"format": records.FORMAT, "task": "Make"},
        {"format": records.FORMAT, "task": "Make", "execution": {"uid": "no uuid", "state": "COMPLETE"}},
        {"format": records.FORMAT, "task": "Make", "execution": {"created": 1}},
        {"format": records.FORMAT, "task": "Make", "execution": {"created": "yesterday"}},
        {"format": records.FORMAT, "task": "Make", "execution": {"created": 1, "inputs": 3}},
        {"format": records.FORMAT, "task": "Make", "execution": {"created": 1}, "answers": [1]},
        {"format": records.FORMAT, "task": "Make", "execution": {"created": 1}, "answers": [["other/x", {}]]},
    ],
)
def test_what_is_no_record_is_told_of(ran: Ran, body: dict[str, object]) -> None:
    home, result = ran
    (home.root / "records" / result.run / "Strange.json").write_text(json.dumps(body))
    report = records.sync(home, result.run)
    assert [name for name, _ in report.ignored] == ["Strange.json"]
    assert report.known == 5


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("run.json", {"facts": {}}),
        ("run.json", {"facts": None}),
        ("run.json", {"id": "another"}),
        ("run.json", {"ir": "{}"}),
        ("end.json", {"end": []}),
    ],
)
def test_a_run_that_is_told_of_wrongly_is_not_made_up(ran: Ran, file: str, change: dict[str, object]) -> None:
    home, result = ran
    records.write_end(home, open_run(home, result.run))
    path = home.root / "records" / result.run / file
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    other = _elsewhere(home)
    if file == "run.json":
        with pytest.raises(InputError, match="nor a record of it"):
            records.sync(other, result.run)
        assert other.store.contexts("run") == []
    else:
        assert [name for name, _ in records.sync(other, result.run).ignored] == [file]
    other.close()


def test_the_pipeline_of_a_record_is_the_one_that_it_names(ran: Ran) -> None:
    """Who may write beside the payloads cannot have a store take another pipeline for that of a digest."""
    home, result = ran
    path = home.root / "records" / result.run / "run.json"
    body = json.loads(path.read_text())
    path.write_text(json.dumps(body | {"ir": body["ir"].replace("parts:Double", "parts:Other")}))
    other = _elsewhere(home)
    with pytest.raises(InputError, match="nor a record of it"):
        records.sync(other, result.run)
    other.close()


@pytest.mark.parametrize("name", ["../../else", "a/b", ".hidden", "a b", "", "x\n"])
def test_what_is_no_id_of_a_run_is_no_path_either(ran: Ran, name: str) -> None:
    home, _ = ran
    with pytest.raises(InputError, match="is not an id of a run"):
        records.sync(home, name)


def test_records_lie_behind_the_url_of_the_payloads(project: Callable[..., Path], tmp_path: Path) -> None:
    """A pod on another machine, which cannot reach the store, knows what those before it did by the bucket alone."""
    folder, bucket = project(pipeline=PIPELINE, parts=PARTS), (tmp_path / "bucket").as_uri()
    home = Home(tmp_path / "here" / ".drivetrain", artifacts=bucket)
    result = run_pipeline(home, load_pipeline(folder))
    run = open_run(home, result.run)
    for task in result.nodes:
        assert records.write_record(home, run, task)
    written = (tmp_path / "bucket" / "records" / run.id).glob("*.json")
    assert sorted(path.name.partition(".")[0] for path in written) == [*sorted(result.nodes), "end", "run"]
    place = PodEnvironment(tmp_path / "there" / ".drivetrain", "/dev/null/metadata.db", bucket, "kfp")
    joined = join_in_own_store(place, {"id": run.id, "facts": run.context.properties, "ir": run.pipeline.to_json()})
    assert joined.alone
    assert _seen(joined.home, run.id) == _seen(home, run.id)
    (made,) = result.nodes["Again"].outputs["numbers"]
    assert (joined.home.payloads.local(made.uri) / "content" / "total.txt").read_text() == "12"
    joined.home.close()
    home.close()


def test_pods_with_and_without_the_store_keep_what_the_others_stage(ran: Ran) -> None:
    """In one root, as the simulator's pods are: what one store does not know may be at work by another."""
    home, result = ran
    run = open_run(home, result.run)
    body = {"id": run.id, "facts": run.context.properties, "ir": run.pipeline.to_json()}
    joined = join_in_own_store(PodEnvironment(home.root, None, None, "kfp"), body)
    staged = []
    for one in (home, joined.home):
        execution = one.store.start("parts:Make", properties={"run": run.id, "node": "Make"})
        staged.append(one.payloads.staging / execution.uid)
        staged[-1].mkdir(parents=True)
    for one in (home, joined.home):
        one.sweep()
        assert [path.is_dir() for path in staged] == [True, True]
    joined.home.close()
    shutil.rmtree(Path(str(joined.home.url)).parent)  # as a pod does when it ends
    home.sweep()
    assert [path.is_dir() for path in staged] == [True, False]


def test_what_a_run_was_told_of_things_that_change_is_the_same_for_all(ran: Ran) -> None:
    home, result = ran
    run = open_run(home, result.run)
    assert Answers(home.store, run.context).once(["spans", "*"], lambda: [1, 2]) == [1, 2]
    assert records.write_record(home, run, "Make")
    other = _elsewhere(home)
    records.sync(other, result.run)
    there = open_run(other, result.run).context
    assert Answers(other.store, there).once(["spans", "*"], lambda: [1, 2, 3]) == [1, 2]
    other.close()


def test_a_run_that_nobody_knows(ran: Ran) -> None:
    home, _ = ran
    with pytest.raises(InputError, match="there is no run nonesuch, nor a record of it"):
        records.sync(home, "nonesuch")


def test_a_run_whose_record_is_lost_is_not_made_up(ran: Ran) -> None:
    home, result = ran
    (home.root / "records" / result.run / "run.json").unlink()
    other = _elsewhere(home)
    with pytest.raises(InputError, match="nor a record of it"):
        records.sync(other, result.run)
    assert other.store.executions() == []
    other.close()


def test_the_end_of_an_earlier_attempt_does_not_end_a_run_that_is_at_work_again(ran: Ran) -> None:
    home, result = ran
    run = open_run(home, result.run)
    home.store.update_context(run.context, {"state": "RUNNING", "kubeflow": {"run": "another-run-of-kfps"}})
    records.sync(home, result.run)
    assert open_run(home, result.run).context.properties["state"] == "RUNNING"
