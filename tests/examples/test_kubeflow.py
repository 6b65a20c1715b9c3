"""Every example compiles for Kubeflow; the linter finds what is to be filled in, and then nothing."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from drivetrain.console.cli import cli
from drivetrain.pipelines import load_pipeline

pytestmark = pytest.mark.kubeflow
EXAMPLES = Path(__file__).parents[2] / "examples"


def pipelines() -> list[tuple[str, str]]:
    """The folder of each example, and a pipeline in it."""
    files = sorted(EXAMPLES.glob("*/pipeline.py"))
    return [
        (file.parent.name, name) for file in files for name in re.findall(r"@dt.pipeline\ndef (\w+)", file.read_text())
    ]


@pytest.mark.parametrize(("name", "pipeline"), pipelines())
def test_an_example_compiles_for_kubeflow(name: str, pipeline: str, tmp_path: Path) -> None:
    project, file, chosen = tmp_path / name, tmp_path / "compiled.yaml", ["--pipeline", pipeline]
    shutil.copytree(EXAMPLES / name, project, ignore=shutil.ignore_patterns(".drivetrain", "__pycache__"))
    first = json.loads(CliRunner().invoke(cli, ["kubeflow", "lint", str(project), *chosen, "--json"]).stdout)
    messages = " ".join(finding["message"] for finding in first["findings"])
    assert "placeholder REGISTRY" in messages
    assert "placeholder BUCKET" in messages
    nodes = load_pipeline(EXAMPLES / name, pipeline).build().nodes
    assert ("lost with it" in messages) == any(node.id.rpartition(".")[2].startswith("Push") for node in nodes)
    settings = (project / "kubeflow.yaml").read_text()
    (project / "kubeflow.yaml").write_text(settings.replace("REGISTRY", "registry.example").replace("BUCKET", "bucket"))
    source = (project / "pipeline.py").read_text()
    (project / "pipeline.py").write_text(re.sub(r'"(?=served/)', '"s3://bucket/', source))
    compiled = CliRunner().invoke(cli, ["kubeflow", "compile", str(project), *chosen, "--output", str(file)])
    assert compiled.exit_code == 0, compiled.output
    linted = CliRunner().invoke(cli, ["kubeflow", "lint", str(file)])
    assert linted.exit_code == 0, linted.output


@pytest.mark.parametrize(
    ("destination", "lost"),
    [
        ("served/flights", True),
        ("/models/flights", False),
        ("/modelsmore/flights", True),
        ("file:///models/flights", True),
        ("gs://b/flights", False),
    ],
)
def test_a_push_outlives_its_pod_by_a_url_or_a_claim(destination: str, lost: bool, tmp_path: Path) -> None:
    project = tmp_path / "flights"
    shutil.copytree(EXAMPLES / "flights", project, ignore=shutil.ignore_patterns(".drivetrain", "__pycache__"))
    (project / "kubeflow.yaml").write_text(
        "image: registry.example/flights:1\nartifacts: s3://bucket/flights\nstore: {secret: store, key: url}\n"
        "nodes: {Pusher: {pvcs: {/models: claim}}}\n"
    )
    source = (project / "pipeline.py").read_text()
    (project / "pipeline.py").write_text(source.replace("served/flights", destination))
    linted = CliRunner().invoke(cli, ["kubeflow", "lint", str(project)])
    assert (linted.exit_code == 2, f"'{destination}' is in the pod" in linted.stdout) == (lost, lost), linted.output
