"""Every example compiles for Kubeflow, and the linter finds nothing in it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from drivetrain.console.cli import cli

pytestmark = pytest.mark.kubeflow
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("name", sorted(file.parent.name for file in EXAMPLES.glob("*/pipeline.py")))
def test_an_example_compiles_for_kubeflow(name: str, tmp_path: Path) -> None:
    project, file = tmp_path / name, tmp_path / "compiled.yaml"
    shutil.copytree(EXAMPLES / name, project, ignore=shutil.ignore_patterns(".drivetrain", "__pycache__"))
    settings = (project / "kubeflow.yaml").read_text()
    (project / "kubeflow.yaml").write_text(settings.replace("REGISTRY", "registry.example").replace("BUCKET", "bucket"))
    compiled = CliRunner().invoke(cli, ["kubeflow", "compile", str(project), "--output", str(file)])
    assert compiled.exit_code == 0, compiled.output
    linted = CliRunner().invoke(cli, ["kubeflow", "lint", str(file)])
    assert linted.exit_code == 0, linted.output
