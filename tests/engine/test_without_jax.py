"""Without the extra `engine` what needs it says so; what does not need it works."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

GONE = "import sys; sys.modules['jax'] = None\n"
TOLD = "jax is not installed\n  fix: pip install 'drivetrain[engine]'"


def test_a_name_that_needs_jax_names_the_extra() -> None:
    ended = _python(f"{GONE}from drivetrain.engine import ops")
    assert ended.returncode == 1
    assert ended.stderr.rstrip().endswith(f"drivetrain.errors.DrivetrainError: {TOLD}")


def test_a_verb_that_needs_jax_names_the_extra(tmp_path: Path) -> None:
    ended = _python(f"{GONE}from drivetrain.console.cli import cli; cli(['hub', 'verify', 'nowhere'])", tmp_path)
    assert (ended.returncode, ended.stderr.rstrip()) == (2, f"error: {TOLD}")


def test_a_verb_that_does_without_jax_works(tmp_path: Path) -> None:
    ended = _python(
        f"{GONE}from drivetrain.console.cli import cli; cli(['hub', 'list', 'nowhere', '--json'])", tmp_path
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_name_that_is_not_there_is_no_matter_of_installing() -> None:
    ended = _python(f"{GONE}import drivetrain.engine as e\nprint(hasattr(e, 'Bundel'))")
    assert ended.stdout == "False\n"


def test_another_module_that_is_missing_is_told_as_it_is() -> None:
    ended = _python("import sys; sys.modules['pyarrow.compute'] = None\nfrom drivetrain.engine import Bundle")
    assert "drivetrain[engine]" not in ended.stderr
    assert "pyarrow.compute" in ended.stderr


def _python(code: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=folder)
