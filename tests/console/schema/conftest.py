"""Two projects named look: one without a schema that has run, and one with a schema that its data does not pass."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from drivetrain.tests.console.schema.projects import GENERATING, MINE, PROPOSING


@pytest.fixture
def look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drivetrain: Callable[..., Result]) -> Path:
    folder = tmp_path / "look"
    folder.mkdir()
    (folder / "pipeline.py").write_text(PROPOSING)
    (folder / "table.csv").write_text("carrier,delay\nAA,1.5\nUA,\nAA,3.0\n")
    monkeypatch.chdir(tmp_path)
    assert drivetrain("run", "look").exit_code == 0
    return folder


@pytest.fixture
def with_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "look"
    folder.mkdir()
    (folder / "pipeline.py").write_text(GENERATING)
    (folder / "table.csv").write_text("carrier,delay\nAA,1.5\nZZ,\nAA,-3.0\nUA,9.5\n")
    (folder / "schema.yaml").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    return folder
