"""`drivetrain kubeflow simulate` and `sync` as a person uses them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import drivetrain as dt
import pytest
import yaml
from click.testing import CliRunner
from drivetrain.console.cli import cli
from drivetrain.tests.pipelines.kubeflow.pods import PARTS

pytestmark = [pytest.mark.kubeflow, pytest.mark.slow]
PIPELINE = """
import drivetrain as dt
from shop.parts import Double, Make

@dt.pipeline
def shop(count: int = 3, more: int | None = 4) -> None:
    Double(Make(count=count))
"""
SETTINGS = "image: registry.example/shop:1\nartifacts: s3://bucket/shop\nstore: {secret: shop, key: store}\n"


def _drivetrain(*words: str, where: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "drivetrain", "kubeflow", *words]
    return subprocess.run(command, check=False, capture_output=True, text=True, cwd=where, timeout=120)


def test_a_project_and_what_was_compiled_of_it(project: Callable[..., Path], tmp_path: Path) -> None:
    folder = project(pipeline=PIPELINE, parts=PARTS)
    (folder / "kubeflow.yaml").write_text(SETTINGS)
    words = ["-p", "count=4", "-p", "more=none", "--tag", "try=2", "--note", "four"]
    first = _drivetrain("simulate", str(folder), *words, "--json", where=tmp_path)
    assert first.returncode == 0, first.stderr
    answer = json.loads(first.stdout.splitlines()[-1])
    run = dt.open(root=tmp_path / ".drivetrain")
    assert (run.id, run.tags, run.note) == (answer["run"], {"try": "2"}, "four")
    assert (answer["state"], answer["kubeflow"]["state"]) == ("COMPLETE", "SUCCEEDED")
    assert [pod["task"] for pod in answer["kubeflow"]["pods"]] == ["work/make", "work/double", "drivetrain-close"]
    assert all(Path(pod["log"]).is_file() for pod in answer["kubeflow"]["pods"])
    assert _drivetrain("compile", str(folder), "-o", "shop.yaml", where=tmp_path).returncode == 0
    again = _drivetrain("simulate", "shop.yaml", "--project", str(folder), "-p", "count=4", "--json", where=tmp_path)
    nodes = json.loads(again.stdout.splitlines()[-1])["nodes"]
    assert {name: node["state"] for name, node in nodes.items()} == {"Make": "CACHED", "Double": "CACHED"}
    (folder / "parts.py").write_text(PARTS.replace("2 * numbers.total", "3 * numbers.total"))
    other = _drivetrain("simulate", "shop.yaml", "--project", str(folder), "--json", where=tmp_path)
    assert other.returncode != 0
    logs = [Path(pod["log"]).read_text() for pod in json.loads(other.stdout.splitlines()[-1])["kubeflow"]["pods"]]
    assert any("the image holds another version of shop" in log for log in logs)
    synced = _drivetrain("sync", answer["run"], "--json", where=tmp_path)
    assert (synced.returncode, json.loads(synced.stdout)) == (
        0, {"run": answer["run"], "brought": [], "known": 2, "ignored": [], "state": "COMPLETE", "notes": []},
    )  # fmt: skip
    (tmp_path / ".drivetrain" / "records" / answer["run"] / "Make.00000000.json").write_text('{"format": "drive')
    half = _drivetrain("sync", answer["run"], where=tmp_path)
    assert half.returncode == 2
    assert "ignored Make.00000000.json: Make.00000000.json is half-written" in half.stdout


MAKES = """
import drivetrain as dt
from drivetrain.components import Pusher
from drivetrain.metadata import Model

@dt.component
def Make() -> Model:
    model = Model.new()
    (model.content / "manifest.json").write_text("{}")
    return model
"""
PUSHES = (
    MAKES
    + """
@dt.pipeline
def shop(destination: str = "serving/shop") -> None:
    Pusher(Make(), destination=destination)
"""
)
SEVERAL = (
    MAKES
    + """
@dt.pipeline
def several(first: str, second: str, third: str, fourth: str) -> None:
    model = Make()
    for number, destination in enumerate((first, second, third, fourth)):
        Pusher.options(id=f"Pusher-{number}")(model, destination=destination)
"""
)


def test_a_push_leaves_the_root_only_if_it_is_told_to(project: Callable[..., Path], tmp_path: Path) -> None:
    folder, several = project(pipeline=PUSHES), project("several", pipeline=SEVERAL)
    elsewhere = tmp_path / "elsewhere"
    for each in (folder, several):
        (each / "kubeflow.yaml").write_text(SETTINGS)
    simulated = tmp_path / ".drivetrain" / "work" / "simulated"
    stand_ins = {
        "serving/shop": ("serving", "shop"),
        "../elsewhere": ("elsewhere",),
        str(elsewhere): elsewhere.parts[1:],
        "s3://bucket/shop": ("s3", "bucket", "shop"),
    }
    named = zip(("first", "second", "third", "fourth"), stand_ins, strict=True)
    values = [word for name, destination in named for word in ("-p", f"{name}={destination}")]
    done = _drivetrain("simulate", str(several), *values, "--json", where=tmp_path)
    assert done.returncode == 0, done.stderr
    for parts in stand_ins.values():
        assert (simulated.joinpath(*parts) / "1" / "manifest.json").is_file()
    assert not elsewhere.exists()
    assert not (tmp_path / "serving").exists()
    again = _drivetrain("simulate", str(folder), "--json", where=tmp_path)
    assert json.loads(again.stdout.splitlines()[-1])["nodes"]["Pusher"]["state"] == "CACHED"
    real = _drivetrain("simulate", str(folder), "--effects", "--json", where=tmp_path)
    assert json.loads(real.stdout.splitlines()[-1])["nodes"]["Pusher"]["state"] == "COMPLETE", "not what was simulated"
    assert (tmp_path / "serving" / "shop" / "1" / "manifest.json").is_file()


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project, documents of which the nodes wait for each other, and a file that is no document."""
    folder = tmp_path_factory.mktemp("compiled")
    (folder / "shop").mkdir()
    (folder / "shop" / "pipeline.py").write_text(PIPELINE)
    (folder / "shop" / "parts.py").write_text(PARTS)
    (folder / "shop" / "kubeflow.yaml").write_text(SETTINGS)
    (folder / "nothing.yaml").write_text("- 1\n")
    assert _drivetrain("compile", "shop", "-o", "shop.yaml", where=folder).returncode == 0
    spec, platform = yaml.safe_load_all((folder / "shop.yaml").read_text())
    spec["components"]["comp-work"]["dag"]["tasks"]["make"]["dependentTasks"] = ["double"]
    (folder / "circle.yaml").write_text(yaml.safe_dump_all([spec, platform]))
    return folder


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("simulate", "FILE"), "a compiled FILE needs --project"),
        (("simulate", "PROJECT", "--project", "PROJECT"), "--project is for a compiled FILE"),
        (("simulate", "FILE", "--project", "PROJECT"), "does not hold the documents of a pipeline"),
        (("simulate", "circle.yaml", "--project", "PROJECT"), "tasks wait for each other: double → make → double"),
        (("simulate", "PROJECT", "--evict", "Nobody"), "no node 'Nobody'"),
        (("simulate", "PROJECT", "--evict", "Make[1]"), "Make[1] is not a pod of shop"),
        (("sync", "nonesuch"), "there is no run nonesuch, nor a record of it"),
    ],
)
def test_what_cannot_be_done_is_told(
    words: tuple[str, ...], says: str, compiled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(compiled)
    words = tuple({"FILE": "nothing.yaml", "PROJECT": "shop"}.get(word, word) for word in words)
    done = CliRunner().invoke(cli, ["kubeflow", *words])
    assert done.exit_code == 2
    assert says in done.stderr
