"""`--pipeline`: several pipelines in one folder."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

Json = dict[str, Any]
Command = Callable[..., Result]
Read = Callable[[Result], Json]
PIPELINES = """
    import drivetrain as dt

    class Numbers(dt.Artifact):
        total: int = 0

    @dt.component
    def Count(*, to: int) -> Numbers:
        numbers = Numbers.new(total=to)
        (numbers.content / "n").write_text(str(to))
        return numbers

    @dt.component
    def Double(numbers: Numbers) -> Numbers:
        return Count.fn(to=2 * numbers.total)

    @dt.pipeline
    def train(to: int = 3) -> None:
        Count(to=to)

    @dt.pipeline
    def score(to: int = 4, span: int = 0) -> None:
        Double(Count(to=to))
"""


@pytest.fixture
def shop(project: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = project("shop", pipeline=PIPELINES, __init__="")
    monkeypatch.chdir(folder.parent)
    return folder


def test_each_of_several_is_run_by_its_name(shop: Path, drivetrain: Command, last_json: Read) -> None:
    first = last_json(drivetrain("run", "shop", "--pipeline", "train", "--json"))
    assert list(first["nodes"]) == ["Count"]
    second = last_json(drivetrain("run", "shop", "--pipeline", "score", "-p", "to=3", "--json"))
    assert list(second["nodes"]) == ["Count", "Double"]
    assert {name: node["state"] for name, node in second["nodes"].items()} == {"Count": "CACHED", "Double": "COMPLETE"}
    assert [run["pipeline"] for run in last_json(drivetrain("runs", "--json"))["runs"]] == ["score", "train"]
    lines = drivetrain("runs").stdout.splitlines()
    assert lines[0].split() == ["run", "pipeline", "state", "started", "(UTC)"]
    assert lines[-2:] == ["score with to=3, span=0", "train with to=3"]
    # What is done to a run knows which it was.
    assert list(last_json(drivetrain("rerun", first["run"], "--json"))["nodes"]) == ["Count"]
    assert "Double on the inputs of run" in drivetrain("spin", "Double", "--run", second["run"]).stdout
    backfilled = last_json(drivetrain("backfill", "shop", "--pipeline", "score", "--spans", "1:2", "--json"))
    assert [row["state"] for row in backfilled["spans"]] == ["COMPLETE", "COMPLETE"]


@pytest.mark.parametrize("verb", [["run"], ["backfill", "--spans", "1"], ["package"], ["kubeflow", "compile"]])
def test_without_a_name_they_are_listed(verb: list[str], shop: Path, drivetrain: Command) -> None:
    refused = drivetrain(*verb, "shop")
    assert refused.exit_code == 2
    assert f"{shop / 'pipeline.py'} defines train, score\n  fix: say which: --pipeline train\n" in refused.stderr
    unknown = drivetrain(*verb, "shop", "--pipeline", "scores")
    assert unknown.exit_code == 2
    assert "defines no pipeline 'scores'\n  fix: did you mean 'score'?\n" in unknown.stderr


def test_the_one_with_the_folders_name_needs_no_name(shop: Path, drivetrain: Command, last_json: Read) -> None:
    text = (shop / "pipeline.py").read_text()
    (shop / "pipeline.py").write_text(text.replace("def train", "def shop"))
    assert list(last_json(drivetrain("run", "shop", "--json"))["nodes"]) == ["Count"]
    assert list(last_json(drivetrain("run", "shop", "--pipeline", "score", "--json"))["nodes"]) == ["Count", "Double"]
    (shop / "pipeline.py").write_text("import drivetrain as dt\n")
    refused = drivetrain("run", "shop")
    assert "defines no pipeline\n  fix: write @dt.pipeline above the function that calls" in refused.stderr


def test_a_pipeline_that_was_renamed_is_found_while_it_is_the_only_one(
    project: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, drivetrain: Command, last_json: Read
) -> None:
    folder = project("shop", pipeline=PIPELINES.partition("    @dt.pipeline\n    def score")[0])
    monkeypatch.chdir(folder.parent)
    assert drivetrain("run", "shop").exit_code == 0
    (folder / "pipeline.py").write_text((folder / "pipeline.py").read_text().replace("def train", "def learn"))
    assert last_json(drivetrain("rerun", "--json"))["state"] == "COMPLETE"


def test_a_wheel_is_checked_against_the_pipeline_that_is_named(
    shop: Path, drivetrain: Command, last_json: Read, tmp_path: Path
) -> None:
    digests = set()
    for name in ("train", "score"):
        answer = last_json(drivetrain("package", "shop", "-o", f"out-{name}", "--pipeline", name, "--json"))
        digests.add(answer["pipeline"])
        assert "shop/pipeline.py" in zipfile.ZipFile(answer["path"]).namelist()
    assert len(digests) == 2


@pytest.mark.kubeflow
@pytest.mark.slow
def test_the_pods_of_one_of_several_run_that_one(shop: Path, drivetrain: Command, last_json: Read) -> None:
    (shop / "kubeflow.yaml").write_text(
        "image: registry/shop:1\nartifacts: s3://bucket/shop\nstore: {secret: store, key: url}\n"
    )
    for name, nodes in (("train", ["Count"]), ("score", ["Count", "Double"])):
        compiled = last_json(drivetrain("kubeflow", "compile", "shop", "--pipeline", name, "--json"))
        assert compiled["name"] == name
        assert drivetrain("kubeflow", "lint", "shop", "--pipeline", name).exit_code == 0
        ended = last_json(drivetrain("kubeflow", "simulate", "shop", "--pipeline", name, "--no-cache", "--json"))
        assert {node: ended["nodes"][node]["state"] for node in ended["nodes"]} == dict.fromkeys(nodes, "COMPLETE")
        assert ended["state"] == "COMPLETE"
