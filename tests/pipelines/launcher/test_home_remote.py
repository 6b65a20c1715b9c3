"""Runs whose artifacts lie behind a URL: the same results, nothing made or sent twice, and a store that remembers."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import drivetrain
import pytest
from click.testing import CliRunner
from drivetrain.console.cli import cli
from drivetrain.errors import InputError
from drivetrain.metadata import MetadataStore, keep_payloads_at, payloads_at
from drivetrain.metadata.fsck import fsck
from drivetrain.metadata.payload_remote import RemotePayloads
from drivetrain.pipelines import Home, PipelineFunction, RunOptions, RunResult, list_runs, resume, run_pipeline
from drivetrain.pipelines.launcher.pending_uploads import clear
from drivetrain.progress import Progress
from drivetrain.stores import StorageUnavailable

fsspec = pytest.importorskip("fsspec")

Pipe = Callable[..., PipelineFunction[..., object]]
BODY = """
    first = Make(count=count)
    Add(first, Use(first, amount=2))
"""


@pytest.fixture(autouse=True)
def _memory() -> Iterator[None]:
    yield
    store = fsspec.filesystem("memory")
    store.store.clear()
    store.pseudo_dirs[:] = [""]


@pytest.fixture
def share(tmp_path: Path) -> str:
    return f"file://{tmp_path}/share"


@pytest.fixture
def away(tmp_path: Path, share: str) -> Iterator[Home]:
    """A home whose artifacts lie elsewhere."""
    home = Home(tmp_path / "away" / ".drivetrain", artifacts=share)
    yield home
    home.close()


def states(result: RunResult) -> dict[str, str]:
    return {name: node.state for name, node in result.nodes.items()}


def fingerprints(result: RunResult) -> dict[str, list[str]]:
    return {
        f"{name}.{key}": [record.fingerprint for record in records]
        for name, node in result.nodes.items()
        for key, records in node.outputs.items()
    }


def failing(node: str) -> Callable[..., object]:
    """A `publish` that sends half of what a node made, and fails."""
    real = RemotePayloads.publish

    def publish(this: RemotePayloads, staged: Path, uri: str, progress: Progress) -> object:
        if node not in uri:
            return real(this, staged, uri, progress)
        this.objects.write(f"{uri}/content/total.txt", (staged / "content" / "total.txt").read_bytes())
        raise StorageUnavailable(f"{uri} cannot be written", fix="wait")

    return publish


@pytest.mark.parametrize(
    ("url", "runner"),
    [("memory://bucket/x", "inline"), ("", "inline"), pytest.param("", "process", marks=pytest.mark.slow)],
)
def test_a_run_makes_the_same_as_at_home(
    pipe: Pipe, home: Home, tmp_path: Path, share: str, url: str, runner: str
) -> None:
    pipeline = pipe(BODY)
    away = Home(tmp_path / "away" / ".drivetrain", artifacts=url or share)
    here = run_pipeline(home, pipeline)
    there = run_pipeline(away, pipeline, options=RunOptions(runner=runner))
    assert states(there) == states(here) == dict.fromkeys(["Make", "Use", "Add"], "COMPLETE")
    assert fingerprints(there) == fingerprints(here)
    assert not (away.root / "artifacts").exists()
    assert list(away.payloads.staging.glob("*")) == []
    assert list(away.root.glob("work/nodes/*")) == []
    assert len(away.payloads.published()) == 3
    assert all(each.whole for each in away.payloads.published())
    assert fsck(away.store, away.root).clean
    again = run_pipeline(away, pipeline, options=RunOptions(runner=runner))
    assert set(states(again).values()) == {"CACHED"}
    away.close()


def test_another_machine_reads_what_it_needs(pipe: Pipe, away: Home, tmp_path: Path) -> None:
    """Its root is empty; the store and the URL carry everything."""
    pipeline = pipe(BODY)
    run_pipeline(away, pipeline)
    shutil.rmtree(away.root / "work")
    run_pipeline(away, pipe(BODY.replace("amount=2", "amount=3")))
    fetched = list((away.root / "work" / "fetched-payloads").glob("[!.]*"))
    assert len(fetched) == 3  # Make's, which was needed; and what Use and Add made


def test_looking_at_a_run_fetches_nothing(pipe: Pipe, away: Home) -> None:
    run_pipeline(away, pipe(BODY))
    shutil.rmtree(away.root / "work")
    view = drivetrain.open(root=away.root)
    for verb in ("show", "runs", "doctor"):
        result = CliRunner().invoke(cli, [verb, "--root", str(away.root)], prog_name="drivetrain")
        assert result.exit_code == 0, result.output
    assert not (away.root / "work" / "fetched-payloads").exists()
    made = view["Add"].outputs["numbers"]
    assert (made.content / "total.txt").read_text() == "8"  # fetched when it is asked for
    assert (away.root / "work" / "fetched-payloads").exists()


def test_an_upload_that_failed_goes_on_without_the_component(
    pipe: Pipe, away: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks = tmp_path / "marks"
    code = f"with open({str(marks)!r}, 'a') as file: file.write('x')"
    pipeline = pipe(f"Misbehave(Make(count=count), code={code!r})")
    with monkeypatch.context() as patch:
        patch.setattr(RemotePayloads, "publish", failing("Misbehave"))
        result = run_pipeline(away, pipeline)
    assert states(result) == {"Make": "COMPLETE", "Misbehave": "FAILED"}
    assert "cannot be written" in result.nodes["Misbehave"].reason
    assert len(list(away.root.glob("work/nodes/*/outputs-*/numbers/content"))) == 1
    away.sweep()
    again = resume(away)
    assert states(again) == {"Make": "COMPLETE", "Misbehave": "COMPLETE"}
    assert marks.read_text() == "x"
    assert list(away.root.glob("work/nodes/*")) == []
    assert fsck(away.store, away.root).clean


def test_who_wants_it_anew_gets_it_anew(
    pipe: Pipe, away: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the cache, what another run made and could not send does not stand in; of the same run it does."""
    marks = tmp_path / "marks"
    code = f"with open({str(marks)!r}, 'a') as file: file.write('x')"
    pipeline = pipe(f"Misbehave(Make(count=count), code={code!r})")
    fresh = RunOptions(cache=False)

    with monkeypatch.context() as patch:
        patch.setattr(RemotePayloads, "publish", failing("Misbehave"))
        assert states(run_pipeline(away, pipeline, options=fresh))["Misbehave"] == "FAILED"
        assert states(run_pipeline(away, pipeline, options=fresh))["Misbehave"] == "FAILED"
    assert marks.read_text() == "xx"
    assert set(states(resume(away)).values()) == {"COMPLETE"}
    assert marks.read_text() == "xx"


def test_torn_outputs_are_made_anew(pipe: Pipe, away: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a power loss may leave them."""
    pipeline = pipe("Make(count=count)")
    with monkeypatch.context() as patch:
        patch.setattr(RemotePayloads, "publish", failing("Make"))
        run_pipeline(away, pipeline)
    (file,) = away.root.glob("work/nodes/*/outputs-*/*/content/total.txt")
    file.write_bytes(b"")
    result = resume(away)
    assert states(result) == {"Make": "COMPLETE"}
    (record,) = result.nodes["Make"].outputs["numbers"]
    assert (away.payloads.local(record.uri) / "content" / "total.txt").read_text() == "3"
    assert fsck(away.store, away.root).clean


def test_what_nobody_goes_on_with_is_removed_after_a_week(
    pipe: Pipe, away: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(RemotePayloads, "publish", failing("Make"))
        run_pipeline(away, pipe("Make(count=count)"))
    (upload,) = away.root.glob("work/nodes/*/outputs-*")
    assert [each.whole for each in away.payloads.published()] == [False]
    away.sweep()
    assert upload.is_dir()
    clear(away.payloads, away.store.artifact_by_uri, now=upload.stat().st_mtime + 8 * 86400)
    assert not upload.exists()
    assert away.payloads.published() == []


def test_a_store_remembers_where_its_artifacts_lie(pipe: Pipe, away: Home, tmp_path: Path, share: str) -> None:
    run_pipeline(away, pipe(BODY))
    with MetadataStore.open(away.root / "metadata.db") as store:
        assert payloads_at(store) == share
    for given in (None, share, f"{share}/"):
        again = Home(away.root, artifacts=given, readonly=True)
        assert again.payloads.url == share
        again.close()
    with pytest.raises(InputError, match=rf"are in {share}, not in {share}2\n  fix: leave --artifacts"):
        Home(away.root, artifacts=f"{share}2")


def test_a_home_that_has_begun_stays_where_it_is(pipe: Pipe, home: Home, share: str) -> None:
    run_pipeline(home, pipe(BODY))
    with pytest.raises(InputError, match=rf"are in its root folder, not in {share}\n  fix: leave --artifacts"):
        Home(home.root, artifacts=share)


def test_two_stores_do_not_share_a_prefix(pipe: Pipe, away: Home, tmp_path: Path, share: str) -> None:
    run_pipeline(away, pipe(BODY))
    with pytest.raises(InputError, match=rf"artifacts of another store are in {share}\n  fix: name that store"):
        Home(tmp_path / "other", artifacts=share)
    with MetadataStore.open(tmp_path / "private.db") as store:  # one that is told stands in for the other
        keep_payloads_at(store, share)
        with pytest.raises(InputError, match="are in"):
            keep_payloads_at(store, f"{share}2")
    Home(tmp_path / "other", store=str(tmp_path / "private.db"), artifacts=share).close()


def test_processes_that_begin_at_once_agree(tmp_path: Path, share: str) -> None:
    found: list[object] = []

    def begin(number: int) -> None:
        try:
            home = Home(
                tmp_path / f"pod-{number}", store=str(tmp_path / "shared.db"), artifacts=f"{share}-{number % 2}"
            )
        except InputError as error:
            found.append(error.message)
        else:
            found.append(home.payloads.url)
            home.close()

    threads = [threading.Thread(target=begin, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    urls = {text for text in found if str(text).startswith("file")}
    assert len(urls) == 1
    assert sum(text in urls for text in found) == 4
    assert sum("are in" in str(text) for text in found) == 4


@pytest.mark.parametrize("runner", ["process", "beam"])
def test_the_memory_of_a_process_is_its_own(pipe: Pipe, tmp_path: Path, runner: str) -> None:
    home = Home(tmp_path / "home", artifacts="memory://bucket")
    pipeline = pipe("Make(count=count)")
    refusal = f"memory://bucket, in the memory of this process, and the {runner} runner runs its tasks in others"
    with pytest.raises(InputError, match=f"{refusal}\n  fix: take the inline runner"):
        run_pipeline(home, pipeline, options=RunOptions(runner=runner))
    assert not list_runs(home)
    assert not home.store.executions()
    assert states(run_pipeline(home, pipeline)) == {"Make": "COMPLETE"}
    home.close()


def test_the_memory_of_another_process_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "home"
    Home(root, artifacts="memory://bucket").close()
    code = f"from pathlib import Path; from drivetrain.pipelines import Home; Home(Path({str(root)!r}))"
    opened = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "the artifacts are in memory://bucket, in the memory of another process" in opened.stderr


@pytest.mark.parametrize("root", ["s3://bucket/x", "gs://bucket", "file:///mnt/x", "memory://x"])
def test_a_root_that_is_a_url(root: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"is not a folder of this machine.*\n  fix: give --root DIR --artifacts"):
        Home(Path(root))
    assert list(tmp_path.iterdir()) == []


def test_fsck_finds_and_mends_what_lies_elsewhere(pipe: Pipe, away: Home) -> None:
    result = run_pipeline(away, pipe(BODY))
    uris = {name: node.outputs["numbers"][0].uri for name, node in result.nodes.items()}
    assert isinstance(away.payloads, RemotePayloads)
    store = away.payloads.objects
    store.write(f"{uris['Make']}/content/total.txt", b"4")
    store.remove(uris["Use"])
    store.delete(f"{uris['Add']}/manifest.json")
    dead = away.store.record("Make", "FAILED")
    store.write(f"artifacts/Make/{dead.uid}/numbers/content/total.txt", b"3")
    store.write("artifacts/Make/of-another-store/numbers/content/total.txt", b"3")
    report = fsck(away.store, away.root)
    assert report.missing == (uris["Use"],)
    assert dict(report.corrupt).keys() == {uris["Make"], uris["Add"]}
    assert dict(report.corrupt)[uris["Make"]] == "content/total.txt changed"
    assert report.orphans == (f"artifacts/Make/{dead.uid}/numbers",)
    assert fsck(away.store, away.root, repair=True).repaired
    assert fsck(away.store, away.root).clean
    assert store.names("artifacts/Make/of-another-store") == ["numbers"]
    again = run_pipeline(away, pipe(BODY))
    assert set(states(again).values()) == {"COMPLETE"}
    assert fingerprints(again) == fingerprints(result)


def test_fsck_leaves_an_upload_that_another_execution_goes_on_with(away: Home) -> None:
    ended = away.store.record("Make", "FAILED", cache_key="k")
    stray = f"artifacts/Make/{ended.uid}/numbers"
    assert isinstance(away.payloads, RemotePayloads)
    away.payloads.objects.write(f"{stray}/content/total.txt", b"3")
    running = away.store.start("Make", cache_key="k")
    assert fsck(away.store, away.root).orphans == ()
    away.store.finish(running, "FAILED", error="")
    assert fsck(away.store, away.root).orphans == (stray,)


def test_the_shell(pipe: Pipe, tmp_path: Path, share: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pipe(BODY)

    def drivetrain(*words: str) -> tuple[int, str]:
        result = CliRunner().invoke(cli, list(words), prog_name="drivetrain")
        return result.exit_code, result.output

    code, said = drivetrain("run", "shop", "--artifacts", share, "--json")
    assert code == 0, said
    made = json.loads(said.splitlines()[-1])
    assert {node["state"] for node in made["nodes"].values()} == {"COMPLETE"}
    assert not Path(".drivetrain/artifacts").exists()
    monkeypatch.setenv("DRIVETRAIN_ARTIFACTS", share)
    for words in (
        ["run", "shop"],
        ["runs"],
        ["show"],
        ["fsck"],
        ["lineage", made["nodes"]["Add"]["outputs"]["numbers"][0]["uri"]],
    ):
        code, said = drivetrain(*words)
        assert code == 0, said
    monkeypatch.setenv("DRIVETRAIN_ARTIFACTS", "s3://elsewhere")
    code, said = drivetrain("runs")
    assert code == 2
    assert f"are in {share}, not in s3://elsewhere" in said
    monkeypatch.delenv("DRIVETRAIN_ARTIFACTS")
    code, said = drivetrain("run", "shop", "--root", "s3://bucket/runs")
    assert code == 2
    assert "--artifacts s3://" in said
    code, said = drivetrain("run", "shop", "--root", "other", "--artifacts", "s3://me:hunter2@bucket/x")
    assert code == 2
    assert "hunter2" not in said
