"""docs/functions.md as it stands: every block runs, and every result beside a line is that line's result."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.engine

PAGE = Path(__file__).parents[3] / "docs" / "functions.md"


def test_the_page_runs_and_says_what_comes_out(tmp_path: Path) -> None:
    source = "\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.S))
    file = tmp_path / "page.py"
    file.write_text(source, "utf-8")  # converted functions are read from their file
    lines = source.splitlines()
    space: dict[str, Any] = {"__name__": "page"}
    checked = 0
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.Expr):
            found = eval(compile(ast.Expression(statement.value), str(file), "eval"), space)
            assert repr(found) == lines[statement.lineno - 1].partition("  # ")[2]
            checked += 1
        else:
            exec(compile(ast.Module([statement], []), str(file), "exec"), space)
    assert checked >= 10
