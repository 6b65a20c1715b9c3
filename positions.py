"""Positions in the user's code that are saved: a definition and one of its statements, in place of a line."""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Final

_DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_SAVED: Final = r"(?P<file>[^/:*?[\]]+\.py):(?P<definition>[^\W\d][\w.]*)?(?:\+(?P<number>[1-9][0-9]*))?"


def saved_position(where: str | None) -> str | None:
    """What is saved of "file:line": the file's name, the definition and which of its statements: `model.py:Net.loss+3`.

    It follows from the file's syntax alone, so equal code gives equal bytes, in any folder and under any comments.
    Statements count from 1, in the order of the text, a nested definition as one; the line of a `def` or `class` has
    no number. Where the source cannot be read the line stays.
    """
    if where is None:
        return None
    file, _, line = where.rpartition(":")
    name = file.replace("\\", "/").rsplit("/", 1)[-1]
    if file.startswith("<") or not line.isdecimal():
        return f"{name}:{line}"
    linecache.checkcache(file)  # in a notebook it may have been edited and imported anew
    definition, number = _statement("".join(linecache.getlines(file)), int(line))
    return f"{name}:{definition}{number}" if definition or number else f"{name}:{line}"


def line_of(position: str, folder: Path) -> str | None:
    """Give "file:line" of a saved position, in the only file of its name below a folder.

    Returns:
        None where it is not a position, or no such file or statement is there: the code may be another by now.
    """
    match = re.fullmatch(_SAVED, position)
    files = [] if match is None else [file for file in folder.rglob(match["file"]) if not _is_hidden(file, folder)]
    if match is None or len(files) != 1:
        return None
    try:
        body: list[ast.stmt] = _parsed(files[0].read_text(encoding="utf-8")).body
    except (OSError, SyntaxError, ValueError):
        return None
    statement: ast.stmt | None = None
    for name in filter(None, (match["definition"] or "").split(".")):
        named = [each for each in _statements(body) if getattr(each, "name", None) == name]
        if len(named) != 1:
            return None
        statement, body = named[0], getattr(named[0], "body", [])
    if match["number"]:
        statement = next(islice(_statements(body), int(match["number"]) - 1, None), None)
    return None if statement is None else f"{files[0]}:{statement.lineno}"


def _is_hidden(file: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in file.relative_to(folder).parts)


@lru_cache(1024)  # a graph has many nodes of one line
def _statement(source: str, line: int) -> tuple[str, str]:
    """The definition around a line, by its qualified name, and "+" with the number of the statement in it."""
    try:
        body: list[ast.stmt] = _parsed(source).body
    except (SyntaxError, ValueError):
        return "", ""
    definition = ""
    while True:
        inside = [(number, each) for number, each in enumerate(_statements(body), 1) if _covers(each, line)]
        if not inside:
            return definition, ""
        number, statement = inside[-1]  # the innermost: it comes after those that it is a part of
        if not isinstance(statement, _DEFINITIONS):
            return definition, f"+{number}"
        definition = f"{definition}.{statement.name}" if definition else statement.name
        body = statement.body


@lru_cache(8)
def _parsed(source: str) -> ast.Module:
    return ast.parse(source)


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of one definition, those in its branches and loops too, without its docstring."""
    for statement in body:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue
        yield statement
        if isinstance(statement, _DEFINITIONS):
            continue
        for block in ("body", "handlers", "orelse", "finalbody", "cases"):
            for part in getattr(statement, block, ()):
                yield from _statements([part] if isinstance(part, ast.stmt) else part.body)


def _covers(statement: ast.stmt, line: int) -> bool:
    first = min([statement.lineno, *(each.lineno for each in getattr(statement, "decorator_list", ()))])
    return bool(first <= line <= (statement.end_lineno or 0))
