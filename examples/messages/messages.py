"""Error messages that people wrote, with the exception they chose: read off the source code that is installed here.

Python's own library and three that the engine needs; all of it is free software (PSF, BSD, Apache). Nothing is imported
to be read, and no message is made up.
"""

import ast
import importlib.util
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import drivetrain as dt
import jax  # imported for the cache key, which holds the versions of what a component imports
import numpy as np
import pyarrow as pa
import scipy
from drivetrain.components import ExampleGen
from drivetrain.metadata import Examples

LIBRARIES = tuple(module.__name__ for module in (jax, np, scipy))
EXCEPTIONS = ("TypeError", "ValueError")


@dt.component
def Messages(*, least_words: int = 3) -> Examples:
    """Each distinct message once, with its library; one that stands with both exceptions is left out."""
    rows: dict[str, dict[str, str]] = {}
    torn: set[str] = set()
    for library, root in _roots():
        for path in sorted(root.rglob("*.py")):
            if not {"site-packages", "test", "tests"} & set(path.relative_to(root).parts):
                for message, exception in raised(path.read_bytes()):
                    if len(message.split()) >= least_words:
                        row = rows.setdefault(message, {"library": library, "message": message, "raised": exception})
                        torn |= {message} if row["raised"] != exception else set()
    table = pa.Table.from_pylist([row for message, row in rows.items() if message not in torn])
    return ExampleGen(table, splits={"train": 2, "eval": 1}, split_by="message")


def raised(source: bytes) -> Iterator[tuple[str, str]]:
    """The text and the name of every `raise TypeError("…")` and `raise ValueError("…")` of a module.

    What an f-string, `%` or `format` would fill in is left as `{}`, `%s` or whatever stands there.
    """
    if not any(f"raise {name}(".encode() in source for name in EXCEPTIONS):
        return  # reading a module's syntax is the slow part
    try:
        tree = ast.parse(source)
    except SyntaxError:  # lib2to3 and the like keep broken code on purpose
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name):
            text = _text(node.exc.args[0]) if node.exc.args else None
            if text and node.exc.func.id in EXCEPTIONS:
                yield text, node.exc.func.id


def _roots() -> Iterator[tuple[str, Path]]:
    yield "python", Path(sysconfig.get_path("stdlib"))
    for library in LIBRARIES:
        spec = importlib.util.find_spec(library)
        assert spec is not None
        assert spec.origin is not None
        yield library, Path(spec.origin).parent


def _text(node: ast.expr) -> str | None:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_text(part) or "{}" for part in parts)
        case ast.BinOp(left=left, op=ast.Mod()) | ast.Call(func=ast.Attribute(value=left, attr="format")):
            return _text(left)
    return None
