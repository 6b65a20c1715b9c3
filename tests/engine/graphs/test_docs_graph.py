"""docs/graph.md as it stands: every block runs, and every result beside or below a line is that line's result."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.engine

PAGE = Path(__file__).parents[3] / "docs" / "graph.md"


def test_the_page_runs_and_says_what_comes_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pandas")
    source = "\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.S))
    file = tmp_path / "page.py"
    file.write_text(source, "utf-8")  # converted functions are read from their file
    lines = source.splitlines()
    space: dict[str, Any] = {"__name__": "page"}
    checked = 0
    for statement in ast.parse(source).body:
        if not isinstance(statement, ast.Expr):
            exec(compile(ast.Module([statement], []), str(file), "exec"), space)
            continue
        found = eval(compile(ast.Expression(statement.value), str(file), "eval"), space)
        made = _without_times(repr(found) if found is not None else capsys.readouterr().out.rstrip("\n"))
        beside = lines[statement.lineno - 1].partition("  # ")[2]
        below = "\n".join(line.removeprefix("# ") for line in _comments(lines[statement.lineno :]))
        assert made == _without_times(beside or below)
        checked += 1
    assert checked >= 6


def _comments(lines: list[str]) -> list[str]:
    end = next((at for at, line in enumerate(lines) if not line.startswith("# ")), len(lines))
    return lines[:end]


def _without_times(text: str) -> str:
    return re.sub(r"[\d.]+ ms", "… ms", text)
