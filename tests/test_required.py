"""A skip of what DRIVETRAIN_REQUIRE names is a failure; any other skip is a skip."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BARE = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
"""The plugins of what is installed have no part in this, and take longer to import than pytest."""


@pytest.mark.parametrize(("required", "code"), [("gx", 0), ("gx,beam", 1)])
def test_a_required_skip_fails(tmp_path: Path, required: str, code: int) -> None:
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path / "conftest.py")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    beam: needs beam\n    gx: needs gx\n")
    (tmp_path / "test_it.py").write_text(
        "import pytest\n\n@pytest.mark.beam\ndef test_it():\n    pytest.skip('no worker came up')\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        env={**BARE, "DRIVETRAIN_REQUIRE": required},
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout
    if code:
        assert "DRIVETRAIN_REQUIRE names beam" in done.stdout
        assert "no worker came up" in done.stdout


def test_an_error_in_a_thread_fails_a_test_whatever_the_thread_is_called(tmp_path: Path) -> None:
    """A worker of Beam's in this process is heard as any other, but in the tests that end its server first."""
    (tmp_path / "test_it.py").write_text(
        "import threading\n\ndef test_it():\n"
        "    thread = threading.Thread(target=lambda: 1 / 0, name='run_worker_1')\n"
        "    thread.start()\n    thread.join()\n"
    )
    config = Path(__file__).parents[1] / "pyproject.toml"
    plugins = ["-p", "no:cacheprovider", "-p", "pytest_timeout"]
    command = [sys.executable, "-m", "pytest", "-q", *plugins, "-c", str(config), str(tmp_path)]
    done = subprocess.run(command, cwd=config.parent, env=BARE, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, done.stdout
    assert "ZeroDivisionError" in done.stdout
