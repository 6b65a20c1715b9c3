"""A skip of what DRIVETRAIN_REQUIRE names is a failure; any other skip is a skip."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(("required", "code"), [("", 0), ("gx", 0), ("beam", 1), ("gx,beam", 1)])
def test_a_required_skip_fails(tmp_path: Path, required: str, code: int) -> None:
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path / "conftest.py")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    beam: needs beam\n    gx: needs gx\n")
    (tmp_path / "test_it.py").write_text(
        "import pytest\n\n@pytest.mark.beam\ndef test_it():\n    pytest.skip('no worker came up')\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        env={**os.environ, "DRIVETRAIN_REQUIRE": required},
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout
    if code:
        assert "DRIVETRAIN_REQUIRE names beam" in done.stdout
        assert "no worker came up" in done.stdout
