"""One clear line for every error, and the exit code that says whose it is."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

Json = dict[str, Any]
Command = Callable[..., Result]
Read = Callable[[Result], Json]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run"], "Missing argument 'FOLDER'"),
        (["run", "nowhere"], "there is no folder"),
        (["run", "shop/pipeline.py"], "name its folder, "),
        (["run", "shop", "--param", "rows"], "NAME=VALUE"),
        (["run", "shop", "--param", "rows=many"], "takes int, not 'many'"),
        (["run", "shop", "--param", "rowz=1"], "did you mean 'rows'?"),
        (["run", "shop", "--runner", "cloud"], "'cloud' is not one of"),
        (["run", "shop", "--beam-option=--streaming"], "is for --runner beam or --executor beam"),
        (["resume"], "there are no runs in"),
        (["show", "--root", "elsewhere"], "there are no runs in"),
        (["fly"], "No such command 'fly'"),
    ],
)
def test_usage_and_input_errors_are_two_on_standard_error(
    shop: Path, drivetrain: Command, arguments: list[str], said: str
) -> None:
    result = drivetrain(*arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert "Traceback" not in result.output
    assert result.stdout == ""


def test_an_unexpected_error_is_one_short_line_and_a_hint(
    shop: Path, drivetrain: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(folder: Path, which: str | None) -> None:
        raise RuntimeError("a bug of ours")

    monkeypatch.setattr("drivetrain.console.run.load_pipeline", explode)
    result = drivetrain("run", "shop")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[0] == "unexpected error: RuntimeError: a bug of ours"
    assert "DRIVETRAIN_DEBUG=1" in result.stderr
    assert "Traceback" not in result.stderr
    monkeypatch.setenv("DRIVETRAIN_DEBUG", "1")
    assert "Traceback" in drivetrain("run", "shop").stderr


def test_a_working_directory_that_is_gone_is_said(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    code = "import os; os.rmdir(os.getcwd()); from drivetrain.console.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "runs"], cwd=tmp_path / "gone", capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == "error: the working directory does not exist any more"
