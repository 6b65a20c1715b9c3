"""Where the user is: the file and line outside this package that called us."""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Final

from ..user_code import is_drivetrains, is_users

_HERE: Final = f"{Path(__file__).parent}/"
_DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
ENTRY: Final[ContextVar[tuple[CodeType, str | None]]] = ContextVar("entry")
"""The code of ours that calls a function of the user's to trace it, and the line where that function is defined."""


def caller() -> str | None:
    """Give "file:line" of the nearest caller outside drivetrain and the libraries; None where there is none.

    Who called the engine for the user, a component or a traced function's `ENTRY`, ends the search: what called that
    is another line in another process, and a traced line is saved.
    """
    frame: FrameType | None = sys._getframe(1)
    entry, defined = ENTRY.get((None, None))
    while frame is not None:
        file = frame.f_code.co_filename
        if is_users(file):
            return f"{file}:{frame.f_lineno}"
        if frame.f_code is entry:
            return defined
        if is_drivetrains(file) and not file.startswith(_HERE):
            return None
        frame = frame.f_back
    return None


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
    definition, number = _statement("".join(linecache.getlines(file)), int(line))
    return f"{name}:{definition}{number}" if definition or number else f"{name}:{line}"


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
