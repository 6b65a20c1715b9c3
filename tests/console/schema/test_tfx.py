"""`schema import` and `export`: TFX's schema.pbtxt."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

Json = dict[str, Any]
Command = Callable[..., Result]
Read = Callable[[Result], Json]


def test_a_schema_comes_from_tfx_and_goes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drivetrain: Command, last_json: Read
) -> None:
    monkeypatch.chdir(tmp_path)
    text = 'feature {\n  name: "x"\n  type: INT\n  presence {\n    min_count: 1\n  }\n}\n'
    (tmp_path / "schema.pbtxt").write_text(text.replace("type", "annotation { tag: 'a' } type"))
    read = drivetrain("schema", "import", "schema.pbtxt")
    assert read.exit_code == 0
    assert read.stderr == "note: schema.pbtxt:3: annotation of feature 'x' is not taken over\n"
    (tmp_path / "schema.yaml").write_text(read.stdout)
    written = drivetrain("schema", "export")
    assert (written.stdout, written.stderr) == (text, "")
    answer = last_json(drivetrain("schema", "import", "schema.pbtxt", "--json"))
    assert answer["schema"].strip() == read.stdout.strip()
    assert len(answer["notes"]) == 1
    (tmp_path / "schema.pbtxt").write_text("feature {\n  nam: 'x' }")
    wrong = drivetrain("schema", "import", "schema.pbtxt")
    assert wrong.exit_code == 2
    assert "error: schema.pbtxt:2:3: Feature has no field 'nam'" in wrong.stderr
