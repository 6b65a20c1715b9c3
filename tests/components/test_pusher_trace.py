"""What was pushed can be traced: its record names run, execution and digests, and does not change the bundle."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from drivetrain.components.pusher import push
from drivetrain.console.cli import cli
from drivetrain.digest import digest_tree
from drivetrain.pipelines import Home

pytestmark = pytest.mark.engine

PIPELINE = """
    import drivetrain as dt
    from drivetrain.components import Pusher
    from drivetrain.metadata import Model
    from drivetrain.pipelines import component

    @component
    def Train(scale: float) -> Model:
        import pyarrow as pa
        import pyarrow.parquet as pq
        from drivetrain import data, engine

        made = Model.new()
        pq.write_table(pa.table({"x": [1.0, 2.0, 3.0]}), made.extra / "raw.parquet")
        source = data.open_parquet([made.extra / "raw.parquet"])
        engine.analyze(lambda row: {"y": row["x"] * scale}, source, data.executor("local")).save(made.content)
        return made

    @dt.pipeline
    def scaled(scale: float = 2.0) -> None:
        Pusher(Train(scale), destination="serving/scaled", keep=2)
"""


@pytest.fixture
def pushed(project: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The result of a run that pushed; the working directory is the one above the project."""
    monkeypatch.delenv("DRIVETRAIN_ROOT")
    monkeypatch.setenv("HOME", str(tmp_path))
    project("scaled", pipeline=PIPELINE)
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.chdir(tmp_path)
    answer: dict[str, Any] = json.loads(drivetrain("run", "scaled", "--json").stdout)
    assert answer["state"] == "COMPLETE"
    return answer


def drivetrain(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments), prog_name="drivetrain")


def lineage(start: str) -> tuple[list[str], set[str]]:
    """The nodes above, and the types of the artifacts."""
    result = drivetrain("lineage", start, "--json")
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    return [execution["node"] for execution in answer["executions"]], {each["type"] for each in answer["artifacts"]}


def test_the_record_names_the_run_the_execution_and_the_digests(pushed: dict[str, Any], tmp_path: Path) -> None:
    destination = tmp_path / "serving" / "scaled"
    record = json.loads((destination / "1.json").read_text())
    (model,) = pushed["nodes"]["Train"]["outputs"]["model"]
    assert (record["version"], record["run"], record["node"]) == (1, pushed["run"], "Pusher")
    assert record["digest"] == model["fingerprint"] == digest_tree(destination / "1").fingerprint
    assert record["bundle"] == json.loads((destination / "1" / "manifest.json").read_text())["digest"]
    assert record["model"] == model["uri"]
    home = Home(tmp_path / ".drivetrain", readonly=True)
    execution = home.store.execution(record["execution"])
    home.close()
    assert (execution.properties["node"], execution.state) == ("Pusher", "COMPLETE")


def test_lineage_takes_the_folder_and_the_digests(
    pushed: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = (["Train", "Pusher"], {"Model", "PushedModel"})
    folder = tmp_path / "serving" / "scaled" / "1"
    assert lineage("serving/scaled/1") == lineage("serving/scaled/1/") == lineage(str(folder)) == whole
    monkeypatch.chdir(folder.parent)
    assert lineage("1") == whole
    monkeypatch.chdir(folder)
    assert lineage(".") == whole
    monkeypatch.chdir("/")
    assert lineage(str(folder)) == whole  # the root lies above it
    monkeypatch.chdir(tmp_path)
    shown = drivetrain("bundle", "show", str(folder)).stdout.splitlines()[0].split()[-1]
    assert lineage(shown) == (["Train"], {"Model"})
    sealed = json.loads(drivetrain("bundle", "show", str(folder), "--json").stdout)["digest"]
    assert lineage(sealed) == (["Train"], {"Model"})
    receipt = pushed["nodes"]["Pusher"]["outputs"]["pushed_model"][0]["uri"]
    digest = json.loads((tmp_path / ".drivetrain" / receipt / "content" / "receipt.json").read_text())["digest"]
    assert lineage(digest)[0] == ["Train"]
    shutil.copytree(folder, tmp_path / "server" / "model")  # as a server would take it
    assert lineage("server/model") == (["Train"], {"Model"})


def test_a_root_that_was_moved_says_where_it_pushes_to_now(
    pushed: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was pushed stays where it was; the same relative path means another folder."""
    old, new = tmp_path / "serving" / "scaled", tmp_path / "moved" / "serving" / "scaled"
    assert f"folder: {old}" not in drivetrain("show").stdout  # relative to here it is right
    (tmp_path / "moved").mkdir()
    (tmp_path / ".drivetrain").rename(tmp_path / "moved" / ".drivetrain")
    again = drivetrain("run", "scaled", "--root", "moved/.drivetrain")
    assert again.exit_code == 0, again.output
    assert f"version 1 was pushed to {old}, and is not at {new}" in again.stdout
    assert f"version 1 at {new}\n" in again.stdout
    assert f"folder: {new}\n" in again.stdout
    assert f"note: Pusher pushed to {new}; the push before, to {old}: the root has moved" in again.stdout
    cached = drivetrain("run", "scaled", "--root", "moved/.drivetrain").stdout
    assert f"folder: {new}\n" in cached
    assert "the root has moved" not in cached
    later = drivetrain("run", "scaled", "--root", "moved/.drivetrain", "--param", "scale=3").stdout
    assert f"version 2 at {new}\n" in later
    assert "the root has moved" not in later


def test_what_another_root_pushed_names_its_run(pushed: dict[str, Any], tmp_path: Path) -> None:
    Home(tmp_path / "other").close()
    result = drivetrain("lineage", "serving/scaled/1", "--root", "other")
    assert result.exit_code == 2
    assert f"was pushed by run {pushed['run']}, which is not in {tmp_path}/other" in result.stderr


def test_a_record_goes_with_its_version(pushed: dict[str, Any], tmp_path: Path) -> None:
    for scale in ("3", "4"):
        assert drivetrain("run", "scaled", "--param", f"scale={scale}").exit_code == 0
    names = sorted(path.name for path in (tmp_path / "serving" / "scaled").iterdir())
    assert names == ["2", "2.json", "3", "3.json"]


def test_behind_a_url_the_record_says_the_same(pushed: dict[str, Any], tmp_path: Path) -> None:
    trace = {"run": "r", "node": "n", "execution": "e"}
    (tmp_path / "objects").mkdir()
    version, digest = push(tmp_path / "serving" / "scaled" / "1", f"file://{tmp_path}/objects", trace=trace)
    record = json.loads((tmp_path / "objects" / f"{version}.json").read_text())
    assert {name: record[name] for name in trace} == trace
    assert record["digest"] == digest
    assert record["bundle"] == json.loads((tmp_path / "serving/scaled/1/manifest.json").read_text())["digest"]
