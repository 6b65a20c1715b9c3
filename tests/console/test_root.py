"""One history, wherever a verb is called: the root is the project's, and `run` says which it is."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import drivetrain as dt
import pytest
from click.testing import Result
from drivetrain.pipelines import Home, find_root

Command = Callable[..., Result]
Read = Callable[[Result], dict[str, Any]]

HOUSE = Path(__file__).parents[2]
WHERE = """
    import os
    from pathlib import Path
    import drivetrain as dt
    from drivetrain.metadata import Artifact
    from drivetrain.pipelines import Files, component, current, resolve_files

    class Value(Artifact):
        value: str = ""

    @component
    def Read(data: Files) -> Value:
        made = Value.new(value=",".join(file.path.read_text() for file in resolve_files(data).files))
        (made.content / "value").write_text(made.value)
        return made

    @component
    def Say(value: Value) -> Value:
        return Value.new(value=os.environ.get("DRIVETRAIN_ROOT", "") + " " + str(current().base))

    @dt.pipeline
    def where(data: str = "data.txt") -> None:
        Say(Read(dt.files(data)))
"""


@pytest.fixture
def where(project: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a pyproject.toml and a file; nothing names a root."""
    monkeypatch.delenv("DRIVETRAIN_ROOT")
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = project("where", pipeline=WHERE)
    (folder / "pyproject.toml").touch()
    (folder / "data.txt").write_text("the project's")
    monkeypatch.chdir(tmp_path)
    return folder


def test_a_project_has_one_history_wherever_it_is_run(
    where: Path, drivetrain: Command, last_json: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    root = where / ".drivetrain"
    counts = ("new, with no runs yet", "1 run so far", "2 runs so far", "3 runs so far")
    names = ((tmp_path, "where"), (where, "."), (tmp_path / "elsewhere", "../where"), (tmp_path, str(where)))
    for (folder, name), count in zip(names, counts, strict=True):
        monkeypatch.chdir(folder)
        ran = drivetrain("run", name, "--json")
        assert ran.stderr.splitlines() == [f"root {root}: {count}"]
        assert last_json(ran)["nodes"]["Read"]["state"] == ("COMPLETE" if count.startswith("new") else "CACHED")
    assert sorted(tmp_path.rglob("metadata.db")) == [root / "metadata.db"]
    monkeypatch.chdir(where)
    assert len(last_json(drivetrain("runs", "--json"))["runs"]) == 4
    assert dt.open().root == root
    assert dt.open(root="../where/.drivetrain").root == root
    monkeypatch.chdir(tmp_path / "elsewhere")
    nowhere = drivetrain("show")
    assert nowhere.exit_code == 2
    assert f"there are no runs in {tmp_path}/elsewhere/.drivetrain" in nowhere.stderr
    assert "--root" in nowhere.stderr


def test_the_root_that_something_names_is_said_with_what_names_it(
    where: Path, drivetrain: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (where / "pyproject.toml").write_text('[tool.drivetrain]\nroot = "runs"\n')
    said = drivetrain("run", "where").stderr
    assert said.startswith(f"root {where}/runs (by {where}/pyproject.toml): new")
    monkeypatch.setenv("DRIVETRAIN_ROOT", "mine")
    assert drivetrain("run", "where").stderr.startswith(f"root {tmp_path}/mine (by DRIVETRAIN_ROOT): new")
    assert drivetrain("run", "where", "--root", "x").stderr.startswith(f"root {tmp_path}/x (by --root): new")
    bad = drivetrain("run", "where", "--root", "")
    assert bad.exit_code == 2
    assert "--root names no folder" in bad.stderr


def test_other_roots_are_named_once(where: Path, drivetrain: Command, last_json: Read, tmp_path: Path) -> None:
    Home(where / ".drivetrain").close()
    Home(tmp_path / ".drivetrain").close()
    assert drivetrain("run", "where").stderr.splitlines() == [
        f"note: runs are in {tmp_path}/.drivetrain too; --root takes them instead of {where}/.drivetrain",
        f"root {where}/.drivetrain: new, with no runs yet",
    ]


def test_advice_names_the_root_where_a_verb_would_not_find_it(
    where: Path, drivetrain: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def advised(result: Result) -> list[str]:
        (command,) = (part for part in result.stdout.split("`") if part.startswith("drivetrain resume"))
        return shlex.split(command)[3:]

    (where / "data.txt").unlink()
    assert advised(drivetrain("run", "where")) == ["--root", f"{where}/.drivetrain"]
    assert advised(drivetrain("run", "where", "--root", "mine")) == ["--root", "mine"]
    monkeypatch.chdir(where)
    assert advised(drivetrain("run", ".")) == []


def test_doctor_looks_at_the_same_root(
    where: Path, drivetrain: Command, last_json: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    def root() -> dict[str, str]:
        findings = last_json(drivetrain("doctor", "--json"))["findings"]
        return next(finding for finding in findings if finding["what"] == "root")

    monkeypatch.chdir(where)
    assert root()["text"] == f"{where}/.drivetrain is made by the first run"
    drivetrain("run", ".")
    assert f"{where}/.drivetrain: 1 runs" in root()["text"]
    (where / "pyproject.toml").write_text("[tool.drivetrain\n")
    assert root()["state"] == "bad"
    assert "pyproject.toml cannot be read" in root()["text"]


def test_a_path_in_a_parameter_is_looked_for_from_the_working_directory_first(
    where: Path, drivetrain: Command, last_json: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*arguments: str) -> tuple[str, str]:
        ran = drivetrain(*arguments, "--json")
        assert ran.exit_code == 0, ran.output
        run = last_json(ran)["run"]
        made = dt.open(run, root=where / ".drivetrain").artifact("Read")
        return run, str(made.properties["value"])

    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
        (folder / "data.txt").write_text(folder.name)
    monkeypatch.chdir(here)
    assert read("run", "../where")[1] == "the project's"  # not named by a person
    run, text = read("run", "../where", "--param", "data=data.txt")
    assert text == "here"
    assert read("run", "../where", "--param", "data=*.txt")[1] == "here"
    (where / "only.txt").write_text("the project's only")
    assert read("run", "../where", "--param", "data=only.txt")[1] == "the project's only"
    Path("p.json").write_text(json.dumps({"data": "data.txt"}))
    assert read("run", "../where", "--params", "p.json")[1] == "here"
    monkeypatch.setenv("DRIVETRAIN_PARAM_DATA", "data.txt")
    assert read("run", "../where")[1] == "here"
    monkeypatch.delenv("DRIVETRAIN_PARAM_DATA")
    monkeypatch.chdir(there)
    options = ("--root", str(where / ".drivetrain"))
    assert read("rerun", run, *options)[1] == "here"  # it meant that file
    assert read("rerun", run, "--param", "data=data.txt", *options)[1] == "there"
    lost = drivetrain("run", "../where", "--param", "data=gone.txt")
    assert lost.exit_code == 2
    assert f"no file matches 'gone.txt' in {there} or {where}" in " ".join(lost.stdout.split())


@pytest.mark.slow
def test_processes_get_the_root_absolute(
    where: Path, drivetrain: Command, last_json: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = drivetrain(
        "run", "where", "--root", "mine", "--runner", "process", "--json", "--param", "data=where/data.txt"
    )
    assert ran.exit_code == 0, ran.output
    view = dt.open(root="mine")
    assert view.artifact("Say").properties["value"] == f"{tmp_path}/mine {tmp_path}"
    assert view.artifact("Read").properties["value"] == "the project's"


def test_the_examples_push_beside_the_repositorys_pyproject(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DRIVETRAIN_ROOT")
    for folder in (HOUSE, HOUSE / "examples", HOUSE / "notebooks"):
        monkeypatch.chdir(folder)
        assert find_root(HOUSE / "examples" / "flights").root == HOUSE / ".drivetrain"
        assert find_root().root == HOUSE / ".drivetrain"


def test_a_root_that_may_not_be_written_is_looked_at(
    where: Path, tmp_path: Path, drivetrain: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = str(tmp_path / "runs")
    assert drivetrain("run", str(where), "--root", root).exit_code == 0
    monkeypatch.setattr(os, "access", lambda path, mode, **_: mode != os.W_OK)  # as of another user, whom root is not
    before = {path: path.stat().st_mtime_ns for path in Path(root).rglob("*")}
    copy = tmp_path / "copy.db"
    for verb in (("runs",), ("show",), ("logs",), ("why", "Say"), ("fsck",), ("backup", str(copy))):
        result = drivetrain(*verb, "--root", root)
        assert result.exit_code == 0, result.output
    assert copy.is_file()
    refused = drivetrain("tag", "x=1", "--root", root)
    assert refused.exit_code == 2
    assert "may not be written\n  fix: do this as a user who may write there" in refused.stderr
    assert {path: path.stat().st_mtime_ns for path in Path(root).rglob("*")} == before
