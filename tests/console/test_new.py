"""`new`: projects that run, whose second run is all cached, and whose own tests and types pass."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from drivetrain.console.new import TEMPLATES
from drivetrain.pipelines import load_pipeline

Command = Callable[..., Result]
Read = Callable[[Result], dict[str, Any]]
EXTRAS = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["optional-dependencies"]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_project_has_its_own_name_and_says_what_to_do_next(
    template: str, drivetrain: Command, last_json: Read, tmp_path: Path
) -> None:
    name = f"shop_{TEMPLATES[template]}"
    result = drivetrain("new", f"work/{name}", "--from", template)
    assert result.exit_code == 0
    assert f"drivetrain run work/{name}" in result.stdout
    project = tmp_path / "work" / name
    assert load_pipeline(project).name == name
    assert load_pipeline(project).parameters["destination"].default == f"served/{name}"
    assert f"REGISTRY/{name}:1" in (project / "kubeflow.yaml").read_text()
    readme = (project / "README.md").read_text()
    assert f"# {name}\n" in readme
    # drivetrain is in no package index: what is said installs it from a clone, with extras that it has.
    for text in (readme, result.stdout):
        assert re.findall(r"pip install '([^']*)'", text) == [".[engine,datasets]"]
    assert {"engine", "datasets"} <= EXTRAS.keys()
    assert (project / "__init__.py").read_text() == f'"""The {name} pipeline, made by `drivetrain new`."""\n'
    # What runs and servers write, by the names that the docs use.
    ignored = (project / ".gitignore").read_text().splitlines()
    assert {".drivetrain/", "served/", "request-log/", "rollouts/"} <= {*ignored}
    assert "config = EvaluationConfig(" in (project / "evaluation.py").read_text()
    assert "EvaluationConfig" not in (project / "model.py").read_text()
    assert not list(tmp_path.glob("work/.*"))
    answer = last_json(drivetrain("new", "other", "--from", template, "--json"))
    files = sorted(path.relative_to(project).as_posix() for path in project.rglob("*") if path.is_file())
    assert answer["folder"] == str(tmp_path / "other")
    assert answer["files"] == [file for file in files if "__pycache__" not in file]


def test_nothing_is_overwritten(drivetrain: Command, tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    assert drivetrain("new", "shop").exit_code == 0  # an empty folder is none
    (tmp_path / "shop" / "model.py").write_text("mine")
    (tmp_path / "taken").write_text("mine")
    (tmp_path / "link").symlink_to("nowhere")
    for name in ("shop", "taken", "link"):
        refused = drivetrain("new", name)
        assert refused.exit_code == 2
        assert f"{name} exists, and nothing is overwritten" in refused.stderr
    assert (tmp_path / "shop" / "model.py").read_text() == "mine"
    assert (tmp_path / "taken").read_text() == "mine"
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("2013-Taxi", "name it e.g. taxi"),
        ("my trips", "name it e.g. my_trips"),
        ("lambda", "name it e.g. taxi"),
        ("json", "there is a Python module json"),
        ("jax", "there is a Python module jax"),
        ("drivetrain", "there is a Python module drivetrain"),
        ("dt", "dt is what pipeline.py imports"),
        ("Trainer", "Trainer is what pipeline.py imports"),
    ],
)
def test_a_name_that_the_pipeline_cannot_have_is_refused(
    name: str, said: str, drivetrain: Command, tmp_path: Path
) -> None:
    refused = drivetrain("new", name)
    assert refused.exit_code == 2
    assert said in refused.stderr
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_is_said(drivetrain: Command, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused = drivetrain("new", "file/shop")
    assert refused.exit_code == 2
    assert "file/shop cannot be made: " in refused.stderr


@pytest.mark.slow
@pytest.mark.engine
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("programs_compiled_once")
@pytest.mark.parametrize("template", TEMPLATES)
def test_a_project_runs_twice_and_its_tests_and_types_pass(template: str, drivetrain: Command, tmp_path: Path) -> None:
    assert drivetrain("new", "shop", "--from", template).exit_code == 0
    project = tmp_path / "shop"
    environment = {name: value for name, value in os.environ.items() if name != "DRIVETRAIN_ROOT"}

    def call(*command: str) -> str:
        ended = subprocess.run(
            [sys.executable, "-m", *command], cwd=project, env=environment, capture_output=True, text=True, timeout=500
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    first, second = (json.loads(call("drivetrain", "run", ".", "--json").splitlines()[-1]) for _ in range(2))
    assert {node["state"] for node in first["nodes"].values()} == {"COMPLETE"}
    assert {node["state"] for node in second["nodes"].values()} == {"CACHED"}
    assert (project / "served" / "shop" / "1").is_dir()
    runs = json.loads(call("drivetrain", "runs", "--json"))["runs"]
    assert [run["blessed"] for run in runs] == [True, True]
    assert runs[0]["metrics"] == runs[1]["metrics"]
    assert "4 passed" in call("pytest", "-q", "-p", "no:cacheprovider")
    # What mypy found in the libraries, which are the same for all, is kept for the next template.
    assert "Success: no issues found" in call("mypy", "--cache-dir", f"{os.environ['XDG_CACHE_HOME']}/mypy", ".")
