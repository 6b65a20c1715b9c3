"""docs/registry.md: its pipelines build, and its commands print what the page says they do."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from drivetrain.pipelines import load_pipeline
from drivetrain.pipelines.ir.ir import Query

PAGE = (Path(__file__).parents[2] / "docs" / "registry.md").read_text("utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.S)


def commands() -> Iterator[tuple[list[str], list[str]]]:
    """Each command of the page, and the lines that it prints there."""
    lines = "".join(text for language, text in BLOCKS if language == "console").splitlines()
    starts = [index for index, line in enumerate(lines) if line.startswith("$ ")]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        yield shlex.split(lines[start][2:], comments=True)[1:], lines[start + 1 : end]


@pytest.fixture
def ada(monkeypatch: pytest.MonkeyPatch) -> None:
    """Is logged in."""
    monkeypatch.setenv("LOGNAME", "ada")


def test_what_the_commands_print(
    ada: None,
    two_runs: tuple[dict[str, Any], dict[str, Any]],
    drivetrain: Callable[..., Result],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (words,) = (text for language, text in BLOCKS if language == "yaml")
    (tmp_path / "card.yaml").write_text(words)
    for arguments, printed in commands():
        result = drivetrain(*(two_runs[0]["run"] if each == "earlier" else each for each in arguments))
        output = [line for line in result.output.splitlines() if not line.startswith(("  fix: ", "wrote "))]
        for line, said in zip(printed, output, strict=False):
            assert re.fullmatch(re.escape(line).replace(r"\.\.\.", ".*"), said), arguments
        assert not printed or len(output) >= len(printed), arguments
        assert (result.exit_code == 0) is not any(line.startswith("error: ") for line in printed), arguments
    exec(next(text for language, text in BLOCKS if language == "python" and "Registry(store)" in text))
    assert capsys.readouterr().out.startswith("flights@2 ada artifacts/Train/")
    assert (tmp_path / "champion.html").is_file()
    assert (tmp_path / "card.html").read_text().count("Not for cargo.") == 1


def test_the_pipelines_build(project: Callable[..., Path]) -> None:
    code = next(text for language, text in BLOCKS if language == "python")
    modules = {
        "features": "def preprocess(columns): ...", "model": "def train(run): ...", "evaluation": "config = None",
    }  # fmt: skip
    folder = project("flights", pipeline=code, **modules)
    (folder / "schema.yaml").write_text("columns: {}\n")
    for name in ("train", "score", "deploy"):
        nodes = load_pipeline(folder, name).build().nodes
        sources = [source for node in nodes for _, several in node.inputs for source in several]
        (arguments,) = (dict(source.arguments) for source in sources if isinstance(source, Query))
        assert arguments == {"name": "flights@champion"} | ({"required": True} if name != "train" else {})
