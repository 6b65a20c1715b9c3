"""What differs between two versions of a text: the changed lines, of Python by definition.

Comments, docstrings and blank lines of Python are left out, as keys leave them out.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Final, NamedTuple, Self, TypeAlias

_DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_EMPTY: Final = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


class Line(NamedTuple):
    """A line of a file: its number, from 1, and its text as it stands there."""

    number: int
    text: str


_Code: TypeAlias = tuple[Line, str, str]
"""A line that holds code, that code alone, and the definition around it."""


@dataclass(frozen=True)
class Hunk:
    """Lines that differ.

    Attributes:
        definition: The function, method or class that they stand in, by its qualified name; the names that a statement
            of the module binds; "" where it binds none.
        old: Lines that are gone.
        new: Lines that are there now.
    """

    definition: str
    old: tuple[Line, ...]
    new: tuple[Line, ...]

    def to_json(self) -> dict[str, object]:
        """As JSON: `definition`, and `old` and `new` as lists of [number, text]."""
        return {"definition": self.definition, "old": list(map(list, self.old)), "new": list(map(list, self.new))}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """The hunk that `to_json` described."""
        old, new = (tuple(Line(number, text) for number, text in value[side]) for side in ("old", "new"))
        return cls(value["definition"], old, new)


def source_diff(old: str, new: str) -> list[Hunk]:
    """The lines of Python code that differ, in the order of the new text.

    Args:
        old: The text of a file as it was; "" where it was not there.
        new: The text of the same file now.

    Returns:
        None of texts that differ in comments, docstrings and blank lines alone.
    """
    return _hunks(_code(old), _code(new))


def text_diff(old: str, new: str) -> list[Hunk]:
    """The lines of any text that differ, blank ones aside."""
    return _hunks(_plain(old), _plain(new))


def _hunks(before: Sequence[_Code], after: Sequence[_Code]) -> list[Hunk]:
    matcher = SequenceMatcher(None, [code for _, code, _ in before], [code for _, code, _ in after], autojunk=False)
    hunks = []
    for kind, old_first, old_end, new_first, new_end in matcher.get_opcodes():
        if kind != "equal":
            gone, come = before[old_first:old_end], after[new_first:new_end]
            for name in dict.fromkeys(definition for _, _, definition in (*gone, *come)):
                hunks.append(Hunk(name, _lines(gone, name), _lines(come, name)))
    return hunks


def _lines(lines: Iterable[_Code], definition: str) -> tuple[Line, ...]:
    return tuple(line for line, _, name in lines if name == definition)


def _plain(text: str) -> list[_Code]:
    return [(Line(number, line), line.rstrip(), "") for number, line in enumerate(text.split("\n"), 1) if line.strip()]


def _code(text: str) -> list[_Code]:
    lines = text.split("\n")
    try:
        tree = ast.parse(text)
        ends = _ends_of_code(text)
    except (SyntaxError, ValueError, tokenize.TokenError):  # of another Python's grammar
        return _plain(text)
    names = dict(_names(tree.body))
    documented = {number for first, last in _docstrings(tree) for number in range(first, last + 1)}
    return [
        (Line(number, lines[number - 1]), lines[number - 1][:end].rstrip(), names.get(number, ""))
        for number, end in sorted(ends.items())
        if number not in documented and number <= len(lines)
    ]


def _ends_of_code(text: str) -> dict[int, int]:
    """By line that holds code: the column at which it ends, before a comment."""
    ends: dict[int, int] = {}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _EMPTY:
            for number in range(token.start[0], token.end[0]):
                ends[number] = len(text)  # a string over several lines: all of each line but the last belongs to it
            ends[token.end[0]] = token.end[1]
    return ends


def _docstrings(tree: ast.Module) -> Iterator[tuple[int, int]]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, *_DEFINITIONS)):
            match node.body:
                case [ast.Expr(ast.Constant(str())) as docstring, *_]:
                    yield docstring.lineno, docstring.end_lineno or docstring.lineno


def _names(body: Iterable[ast.stmt], around: str = "") -> Iterator[tuple[int, str]]:
    """(line, definition) of each line of statements; of an inner definition after the one around it."""
    for statement in body:
        name = around
        if isinstance(statement, _DEFINITIONS):
            name = f"{around}.{statement.name}" if around else statement.name
        elif not around:
            name = ", ".join(_bound(statement))
        first = min([statement.lineno, *(each.lineno for each in getattr(statement, "decorator_list", ()))])
        yield from ((number, name) for number in range(first, (statement.end_lineno or first) + 1))
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):
            for part in getattr(statement, block, ()):
                inner = [part] if isinstance(part, ast.stmt) else part.body
                yield from _names(inner, name if isinstance(statement, _DEFINITIONS) else around)


def _bound(statement: ast.stmt) -> list[str]:
    """The names that a statement of a module binds; of an import the word."""
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return ["import"]
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    nodes = (node for target in targets if target is not None for node in ast.walk(target))
    return [node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
