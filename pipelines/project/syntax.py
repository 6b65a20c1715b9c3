"""A module's syntax as a digest: what Python runs counts, comments, layout and docstrings do not.

The syntax tree is written out by us, as `ast.dump` writes it differently in each Python. Of equal source text the
digest is equal on 3.11 to 3.13, so a build machine and a pod may differ in theirs.

Of the layout one thing counts: which statements share a line. Saved graphs name the statement that a node comes from
(`features.py:preprocess+3`), and of two on a line Python does not say which.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Sequence
from typing import Any, Final

# `ctx` follows from where a name stands; `kind` is the u of u"…"; the others are comments for type checkers.
_IGNORED: Final = frozenset({"ctx", "kind", "type_comment", "type_ignores"})
_DOCUMENTED = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_READERS: Final = re.compile(
    rb"\b(?:__doc__|inspect|getsource|linecache|traceback|co_firstlineno|f_lineno|tb_lineno)\b"
)


def syntax_digest(tree: ast.Module) -> str:
    """SHA-256 over a module's syntax.

    Args:
        tree: As `ast.parse` gives it.
    """
    parts: list[str] = []
    waiting: list[Any] = [tree]  # Any: nodes, lists and constants; strings are what is written as it stands
    lines: set[int] = set()  # on which a statement seen so far begins, or ends where it has no body
    while waiting:  # not by recursion: a sum of a thousand terms is a thousand levels deep
        item = waiting.pop()
        if isinstance(item, ast.Constant):
            parts.append(f"{type(item.value).__name__}:{_constant(item.value)}")
        elif isinstance(item, ast.AST):
            parts.append(type(item).__name__)
            if isinstance(item, (ast.stmt, ast.ExceptHandler)):
                parts += ["on the same line"] * (item.lineno in lines)
                lines |= {item.lineno} if hasattr(item, "body") else {item.lineno, item.end_lineno or 0}
            waiting.append(")")
            for name in reversed(item._fields):
                value = getattr(item, name, None)
                if name in _IGNORED or value is None or value == []:  # fields that a newer Python added are empty
                    continue
                if isinstance(item, _DOCUMENTED) and name == "body":
                    value = _without_docstring(value)
                elif isinstance(item, ast.JoinedStr):
                    value = _joined(value)
                waiting += [value, f"{name}="]
            parts.append("(")
        elif isinstance(item, list):
            parts.append("[")
            waiting.append("]")
            waiting += reversed(item)
        else:
            parts.append(item if isinstance(item, str) else ascii(item))
        parts.append("\0")
    return hashlib.sha256("".join(parts).encode("ascii", "backslashreplace")).hexdigest()


def reads_text(source: bytes) -> bool:
    """Whether a module may look at docstrings, source or line numbers, so that the text itself can change results."""
    return _READERS.search(source) is not None


def _without_docstring(body: list[ast.stmt]) -> Sequence[ast.stmt]:
    match body:
        case [ast.Expr(ast.Constant(str())), *rest]:
            return rest
    return body


def _joined(values: list[ast.expr]) -> list[ast.expr]:
    """The parts of an f-string; Pythons differ in how they divide the text between two expressions."""
    joined: list[ast.expr] = []
    for value in values:
        match value, joined[-1:]:
            case ast.Constant(""), _:
                continue
            case ast.Constant(str(text)), [ast.Constant(str(before))]:
                joined[-1] = ast.Constant(before + text)
            case _:
                joined.append(value)
    return joined


def _constant(value: object) -> str:
    """A literal; of integers no decimal digits, whose number Python bounds."""
    return hex(value) if type(value) is int else ascii(value)
