"""What components of other forms are given and give back that nobody meant: each is one clear error, or harmless."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import drivetrain as dt
import pytest
from drivetrain.errors import BuildError, Canceled, InputError
from drivetrain.pipelines import Home, load_pipeline, run_pipeline
from drivetrain.pipelines.external import container
from drivetrain.pipelines.launcher.logs import Logs
from drivetrain.pipelines.project.context import LaunchContext, enter

PINNED = f"busybox@sha256:{'0' * 64}"
TOKEN = "tok-" + "0123456789" * 4


class Table(dt.Artifact):
    rows: int = 0


def python(name: str, code: str, *more: Any, **declared: Any) -> Callable[..., Any]:
    """A component that runs a line of Python."""
    return dt.shell_component(name, [sys.executable, "-c", code, *more], **declared)


def test_a_value_that_is_no_text() -> None:
    code = "import sys; open(sys.argv[1], 'wb').write(bytes([255, 254, 0]))"
    tell = python("Tell", code, dt.external.output_path("said"), outputs={"said": str})
    with pytest.raises(InputError, match="Tell wrote bytes that are not UTF-8 text as 'said'"):
        tell()


@pytest.mark.parametrize("name", ["path", "uid", "uri", "fingerprint"])
def test_properties_that_every_artifact_has_are_not_the_commands_to_set(name: str) -> None:
    code = "import sys, json; open(sys.argv[1] + '/a', 'w').close(); json.dump({'%s': 'x'}, open(sys.argv[2], 'w'))"
    make = python(
        "Make", code % name, dt.external.output_path("out"), dt.external.properties_path("out"), outputs={"out": Table}
    )
    with pytest.raises(InputError, match=f"Table has no property '{name}'"):
        make()


@pytest.mark.parametrize("name", ["my step", "2nd", "", "a-b", "class", "_x"])
def test_a_name_that_no_component_can_have(name: str) -> None:
    with pytest.raises(BuildError, match="is not a valid name of a component"):
        dt.shell_component(name, ["true"])


def test_a_notebook_of_any_file_name(tmp_path: Path) -> None:
    body = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": []}
    for file, name in (("01 first-look (draft).ipynb", "Notebook01FirstLookDraft"), ("train_it.ipynb", "TrainIt")):
        (tmp_path / file).write_text(json.dumps(body))
        assert dt.notebook_component(tmp_path / file).name == name


def test_a_kfp_component_of_any_name() -> None:
    text = f'implementation: {{container: {{image: "{PINNED}", command: [ls]}}}}\n'
    for told, name in (("2nd step", "Component2NdStep"), ('"!"', "Component"), ("Train model", "TrainModel")):
        assert dt.kfp_component(f"name: {told}\n{text}").name == name


def test_a_kfp_component_of_code_that_is_in_no_file(tmp_path: Path) -> None:
    (tmp_path / "component.yaml").write_text(
        f'name: Say\nimplementation: {{container: {{image: "{PINNED}", command: [ls]}}}}\n'
    )
    code = "import drivetrain as dt; print(dt.kfp_component('component.yaml').name); dt.kfp_component('gone.yaml')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.stdout == "Say\n"
    assert "BuildError: <unknown>: gone.yaml cannot be read" in done.stderr


def test_a_secret_that_may_be_left_out_is_not_written_into_a_notebook(tmp_path: Path) -> None:
    (tmp_path / "a.ipynb").write_text(json.dumps({"nbformat": 4, "metadata": {}, "cells": []}))
    with pytest.raises(BuildError, match="'token' is a secret"):
        dt.notebook_component(tmp_path / "a.ipynb", parameters={"token": dt.Secret | None})


@pytest.mark.parametrize(
    "code",
    [
        # A line without an end, longer than any, in pieces that cut the secret.
        "import os, sys, time; t = os.environ['T']\nfor p in ('x' * 2990 + t[:17], t[17:] + 'y' * 10):\n"
        "    sys.stdout.write(p); sys.stdout.flush(); time.sleep(0.3)\nsys.exit(3)",
        # A line that is cut where it is repeated as the reason.
        "import os, sys; print('x' * 1985 + os.environ['T']); sys.exit(3)",
    ],
)
def test_no_part_of_a_secret_is_printed(
    code: str, home: Home, project: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_TOKEN", TOKEN)
    body = f"""
    import sys
    import drivetrain as dt

    tell = dt.shell_component("Tell", [sys.executable, "-c", {code!r}], env={{"T": dt.secret("SHOP_TOKEN")}})

    @dt.pipeline
    def shop() -> None:
        tell()
    """
    result = run_pipeline(home, load_pipeline(project("shop", pipeline=body)))
    assert result.nodes["Tell"].state == "FAILED"
    printed = Logs(home.root, result.run).path("Tell").read_text()
    assert "xxx***" in printed
    for text in (printed, str(result.nodes["Tell"].reason)):
        assert not any(TOKEN[:size] in text for size in range(6, len(TOKEN)))
        assert not any(TOKEN[-size:] in text for size in range(6, len(TOKEN)))


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """A program in place of docker, which writes down what it is given; `stop` does what it is told."""

    def make(stop: str = "true") -> Path:
        program, seen = tmp_path / "engine", tmp_path / "seen.json"
        program.write_text(
            f"#!{sys.executable}\nimport json, os, subprocess, sys, time\n"
            "if sys.argv[1] == 'stop':\n"
            f"    sys.exit(subprocess.run({stop!r}, shell=True).returncode)\n"
            "if sys.argv[1] == 'run':\n"
            f"    json.dump([sys.argv, dict(os.environ)], open({str(seen)!r}, 'w'))\n"
            "    time.sleep(float(os.environ.get('NAP', 0)))\n"
        )
        program.chmod(0o755)
        monkeypatch.setenv(container.ENGINE, str(program))
        container._engine.cache_clear()
        return seen

    return make


def test_what_is_for_the_container_is_not_for_what_runs_it(
    engine: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """HOME tells docker where a registry's password is, and podman where its images are; PATH where its parts are."""
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("DOCKER_HOST", "unix:///mine")
    monkeypatch.setenv("SHOP_TOKEN", TOKEN)
    seen = engine("true")
    env: Any = {"PATH": "/opt/bin", "DOCKER_HOST": "unix:///inside", "NEW": "1", "TOKEN": dt.secret("SHOP_TOKEN")}
    dt.container_component("Run", PINNED, ["ls"], env=env)()
    argv, given = json.loads(seen.read_text())
    assert (given["HOME"], given["DOCKER_HOST"]) == ("/home/me", "unix:///mine")
    assert given["PATH"] != "/opt/bin"
    told = {argv[at + 1] for at, word in enumerate(argv) if word == "--env"}
    assert told == {"HOME=/drivetrain/work", "PATH=/opt/bin", "DOCKER_HOST=unix:///inside", "NEW", "TOKEN"}
    assert (given["TOKEN"], given["NEW"]) == (TOKEN, "1")
    assert not any(TOKEN in word for word in argv)  # every process can read that


@pytest.mark.parametrize("name", ["HOME", "PATH", "DOCKER_HOST"])
def test_a_secret_in_a_variable_that_the_engine_reads(name: str) -> None:
    with pytest.raises(BuildError, match=f"{name} is read by what runs the container"):
        dt.container_component("Run", PINNED, ["ls"], env={name: dt.secret("SHOP_TOKEN")})


def test_an_engine_that_does_not_answer_hides_no_stop(
    engine: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen = engine("sleep 30")
    monkeypatch.setattr(container, "_PATIENCE", 0.2)
    monkeypatch.setenv("NAP", "30")

    def check() -> None:
        if seen.exists():  # it runs
            raise Canceled("the run was stopped")

    leave = enter(LaunchContext(run="r", node="n", base=tmp_path, work=tmp_path / "work", check=check))
    try:
        with pytest.raises(Canceled):
            dt.container_component("Run", PINNED, ["ls"])()
    finally:
        leave()
