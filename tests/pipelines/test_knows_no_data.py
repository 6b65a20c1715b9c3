"""The orchestrator names neither data nor engine nor components, in no import and in no string."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from drivetrain import pipelines
from drivetrain.inputs import PACKAGED, READERS
from drivetrain.pipelines.project.functions import FunctionRef

HOME = Path(pipelines.__file__).parent
ROOMS = r"(data|engine|components)"
NAMED = re.compile(
    rf"drivetrain[./]{ROOMS}\b"  # a module or a file
    rf"|(^|[\s`\"'(]){ROOMS}([./][a-z_]+)+(\.py|:|`|\b\.[a-z_]+)"  # the same, without the package
    rf"|\.\.+{ROOMS}\b"
    rf"|\b({'|'.join({name.partition('/')[0] for name in PACKAGED} - {'digits'})})\b"
)


def said(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Lines, and what is imported or written as text there."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            package = "." * min(node.level, 2) + (node.module or "")
            yield from ((node.lineno, f"{package}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def named(source: str) -> list[str]:
    return [f"{line}: {text:.80}" for line, text in said(ast.parse(source)) if NAMED.search(text)]


@pytest.mark.parametrize("file", sorted(HOME.rglob("*.py")), ids=lambda file: file.relative_to(HOME).as_posix())
def test_it_names_none(file: Path) -> None:
    assert named(file.read_text("utf-8")) == []


@pytest.mark.parametrize(
    "line",
    [
        "from ...data import open_files",
        "from ... import data",
        "import drivetrain.engine.ops",
        "x = 'drivetrain.data.reading.remote:fetch_files'",
        "x = 'data.reading.remote:fetch_files'",
        "'''What `engine.training.processes` reads.'''",
        "x = {'nycflights13': 1}",
    ],
)
def test_what_names_one_is_seen(line: str) -> None:
    assert named(line)


def test_the_table_names_what_there_is() -> None:
    for name in READERS.values():
        assert callable(FunctionRef(None, name).load())
