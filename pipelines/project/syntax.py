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
from functools import cache
from typing import Any, Final

# `ctx` follows from where a name stands; `kind` is the u of u"…"; the others are comments for type checkers.
_IGNORED: Final = frozenset({"ctx", "kind", "type_comment", "type_ignores"})
_DOCUMENTED = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_READERS: Final = (
    rb"\b(?:__doc__|__code__|[fg][ir]?_code|co_\w+|\w*lineno|inspect|getsource|getdoc|linecache|traceback|tracemalloc)\b"
    rb"|\b(?:pydoc|doctest|dis|cloudpickle|dill)\b|\bhelp\("
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
        kind = type(item)
        if kind is str:  # most items: a cold run reads some 200 modules, so the order of the cases counts
            parts.append(item)
        elif kind is list:
            parts.append("[")
            waiting.append("]")
            waiting += item[::-1]
        elif kind is ast.Constant:
            parts.append(f"{type(item.value).__name__}:{_constant(item.value)}")
        elif kind is ast.Name:  # most nodes are names or attributes; written as the case below would write them
            parts.append(f"Name(\0id=\0{item.id}\0)")
        elif kind is ast.Attribute:
            parts.append("Attribute(\0value=")
            waiting += (f"attr=\0{item.attr}\0)", item.value)
        elif isinstance(item, ast.AST):
            same_line = False
            if isinstance(item, (ast.stmt, ast.ExceptHandler)):
                same_line = item.lineno in lines
                lines.add(item.lineno)
                if not hasattr(item, "body"):
                    lines.add(item.end_lineno or 0)
            parts.append(f"{kind.__name__}{'on the same line' if same_line else ''}(")
            waiting.append(")")
            for name, label in _fields(kind.__name__):
                value = getattr(item, name, None)
                if value is None or (type(value) is list and not value):  # fields that a newer Python added are empty
                    continue
                if name == "body" and isinstance(item, _DOCUMENTED):
                    value = _without_docstring(value)
                elif kind is ast.JoinedStr:
                    value = _joined(value)
                waiting += (value, label)
        else:
            parts.append(ascii(item))
    parts.append("")
    return hashlib.sha256("\0".join(parts).encode("ascii", "backslashreplace")).hexdigest()


@cache
def _fields(kind: str) -> tuple[tuple[str, str], ...]:
    """The fields of a kind of node that count, the last first, each with what is written before its value."""
    return tuple((name, f"{name}=") for name in reversed(getattr(ast, kind)._fields) if name not in _IGNORED)


def reads_text(source: bytes) -> bool:
    """Whether a module may look at docstrings, source or line numbers, so that the text itself can change results."""
    return re.search(_READERS, source) is not None


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
