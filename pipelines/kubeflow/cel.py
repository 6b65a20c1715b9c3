"""Conditions in CEL, the language in which KFP's driver decides whether a task starts; what it cannot say is refused.

Values reach CEL as protobuf values: every number is a double, every list and map dynamic. Equality differs from ours in
one thing: in Python `True == 1`. Where that could matter, both are asked for, or it is not said in CEL.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Json: TypeAlias = Any  # a JSON value; Any because the type is recursive and read by key
Kind: TypeAlias = Literal["number", "string", "bool", "list", "map", "null", "any"]
Read: TypeAlias = Callable[[str, str, str], str]
"""(node, output, property) -> the name of the task's input that holds `[value]`, or `[]` where there is none."""

KINDS: Mapping[str, Kind] = {
    "NUMBER_INTEGER": "number",
    "NUMBER_DOUBLE": "number",
    "STRING": "string",
    "BOOLEAN": "bool",
    "LIST": "list",
    "STRUCT": "map",
}
"""The kind of a parameter by its type in KFP."""
_SIGNS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_EXACT = 2**53
"""Whole numbers up to here are doubles without loss."""


class Unsayable(Exception):  # noqa: N818 - no mistake: the pod decides instead
    """CEL has no words for it, or others than Python's."""


@dataclass(frozen=True)
class _Said:
    text: str
    kind: Kind
    literal: Json = None
    known: bool = False  # whether it is the literal


def condition(expressions: tuple[Json, ...], read: Read, parameters: Mapping[str, Kind]) -> str:
    """A condition that holds where all of the expressions do, and where what they read is there.

    Args:
        expressions: In the compiled form's terms.
        read: Gives the input for an output that is read.
        parameters: The kinds of the pipeline's parameters that always have a value.

    Raises:
        Unsayable: Not in CEL.
    """
    writer = _Writer(read, parameters)
    said = []
    for expression in expressions:
        one = writer.say(expression)
        if one.kind not in ("bool", "any") or one.known:
            raise Unsayable("it is neither true nor false")
        said.append(one.text)
    there = [f"size({text}) == 1" for text in writer.reads.values()]
    return " && ".join([*there, *said])


def value(name: str) -> str:
    """A task's input, as CEL reads it."""
    return f"inputs.parameter_values[{quoted(name)}]"


def quoted(text: str) -> str:
    """A text as a CEL string literal.

    Raises:
        Unsayable: It holds half of a surrogate pair, which no JSON text does.
    """
    escapes = {"\\": r"\\", "'": r"\'", "\n": r"\n", "\r": r"\r", "\t": r"\t"}
    found = []
    for char in text:
        code = ord(char)
        if 0xD800 <= code < 0xE000:
            raise Unsayable("half a character")
        plain = char if char.isprintable() else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
        found.append(escapes.get(char, plain))
    return f"'{''.join(found)}'"


class _Writer:
    """One condition, and what it reads."""

    def __init__(self, read: Read, parameters: Mapping[str, Kind]) -> None:
        self._read = read
        self._parameters = parameters
        self.reads: dict[tuple[str, str, str], str] = {}

    def say(self, expression: Json) -> _Said:
        if not isinstance(expression, Mapping):
            return _literal(expression)
        ((kind, body),) = expression.items()
        if kind == "$param" and body in self._parameters:
            return _Said(value(body), self._parameters[body])
        if kind == "$property":
            node, output, name = body
            text = self.reads.setdefault((node, output, name), value(self._read(node, output, name)))
            return _Said(f"{text}[0]", "any")
        if kind == "$op":
            return self._operation(body[0], [self.say(each) for each in body[1:]])
        raise Unsayable(f"{kind} is known in the pod only")

    def _operation(self, name: str, given: list[_Said]) -> _Said:
        if name in ("and", "or", "not"):
            if any(one.kind not in ("bool", "any") or one.known for one in given):
                raise Unsayable("an operand is neither true nor false")
            texts = [_closed(one.text) for one in given]
            if name == "not":
                return _Said(f"!{texts[0]}", "bool")
            if not texts:
                raise Unsayable("nothing in it is still to come")
            return _Said(f"({(' && ' if name == 'and' else ' || ').join(texts)})", "bool")
        if name == "get":
            return _item(*given)
        if name == "in":
            return _Said(_among(*given), "bool")
        if name in ("eq", "ne"):
            equal = _equal(*given)
            return _Said(equal if name == "eq" else f"!({equal})", "bool")
        if name in _SIGNS:
            if any(one.kind not in ("number", "string", "any") for one in given) or all(one.known for one in given):
                raise Unsayable("no order of these is the same in CEL")
            return _Said(f"{given[0].text} {_SIGNS[name]} {given[1].text}", "bool")
        raise Unsayable(f"the operator {name}")


def _literal(found: Json) -> _Said:
    kind: Kind
    if found is None:
        text, kind = "null", "null"
    elif isinstance(found, bool):
        text, kind = str(found).lower(), "bool"
    elif isinstance(found, (int, float)):
        if (isinstance(found, int) and abs(found) > _EXACT) or not math.isfinite(found):
            raise Unsayable("no double is this number")
        text, kind = repr(float(found)), "number"
    elif isinstance(found, str):
        text, kind = quoted(found), "string"
    elif isinstance(found, (list, tuple)):
        if any(isinstance(item, Mapping) for item in found):
            raise Unsayable("a list of expressions")
        text, kind = f"[{', '.join(_literal(item).text for item in found)}]", "list"
    else:
        raise Unsayable("what it is, is known in the pod only")
    return _Said(text, kind, found, known=True)


def _equal(one: _Said, other: _Said) -> str:
    if one.known and other.known:
        raise Unsayable("nothing in it is still to come")
    if one.known:
        one, other = other, one
    if other.known:
        return _is(one, other)
    if "string" in (one.kind, other.kind) or (one.kind == other.kind and one.kind in ("number", "bool")):
        return f"{one.text} == {other.text}"
    raise Unsayable("whether both are numbers, or true and false, is known in the pod only")


def _is(one: _Said, other: _Said) -> str:
    """Whether a value is what the other one is literally."""
    twin = _twin(other)
    if isinstance(other.literal, (list, tuple)) and any(_twins(item) for item in other.literal):
        raise Unsayable("a list in which 1 could be true")
    if twin is None or one.kind == other.kind:
        return f"{one.text} == {other.text}"
    if one.kind == twin.kind:
        return f"{one.text} == {twin.text}"
    return f"({one.text} == {other.text} || {one.text} == {twin.text})"


def _twins(found: Json) -> bool:
    """Whether a literal is, or holds, a number that is equal to a truth value in Python, or the other way round."""
    return (
        any(map(_twins, found))
        if isinstance(found, (list, tuple))
        else isinstance(found, (bool, int, float)) and (found in (0, 1))
    )


def _twin(one: _Said) -> _Said | None:
    """What is equal to a literal in Python, and is not in CEL."""
    if one.kind == "bool":
        return _literal(int(one.literal))
    return _literal(bool(one.literal)) if one.kind == "number" and one.literal in (0, 1) else None


def _among(one: _Said, many: _Said) -> str:
    if one.known and many.known:
        raise Unsayable("nothing in it is still to come")
    if many.kind == "string":
        if one.kind not in ("string", "any"):
            raise Unsayable("only a text is in a text")
        return f"{many.text}.contains({one.text})"
    if many.known and many.kind == "list":
        items = [_literal(item) for item in many.literal]
        if any(item.kind == "list" and _twins(item.literal) for item in items):
            raise Unsayable("a list in which 1 could be true")
        twins = [twin for item in items if (twin := _twin(item)) is not None]
        return f"{one.text} in [{', '.join(dict.fromkeys(item.text for item in [*items, *twins]))}]"
    if many.kind == "map" and one.kind == "string":
        return f"{one.text} in {many.text}"
    if many.kind != "list":
        raise Unsayable("whether it is a list or a text is known in the pod only")
    if not one.known:
        if one.kind != "string":
            raise Unsayable("whether it is a number is known in the pod only")
        return f"{one.text} in {many.text}"
    twin = _twin(one)
    if isinstance(one.literal, (list, tuple)) and _twins(one.literal):
        raise Unsayable("a list in which 1 could be true")
    return f"({one.text} in {many.text} || {twin.text} in {many.text})" if twin else f"{one.text} in {many.text}"


def _item(one: _Said, key: _Said) -> _Said:
    at = key.literal
    if one.known or not key.known or isinstance(at, (bool, float)) or not isinstance(at, (int, str)):
        raise Unsayable("an item by what is known in the pod only")
    if isinstance(at, str):
        if one.kind not in ("map", "any"):
            raise Unsayable("only a map has names")
        return _Said(f"{one.text}[{key.text}]", "any")
    if one.kind not in ("list", "any") or at < 0:
        raise Unsayable("no list counts from its end in CEL")
    return _Said(f"{one.text}[{at}]", "any")


def _closed(text: str) -> str:
    """In parentheses, where it is not already or is one word."""
    return text if " " not in text or (text[0] == "(" and _closes(text)) else f"({text})"


def _closes(text: str) -> bool:
    """Whether the parenthesis that it begins with is closed at its end."""
    depth, quote, skip = 0, False, False
    for at, char in enumerate(text):
        if skip:
            skip = False
        elif quote:
            quote, skip = char != "'", char == "\\"
        elif char == "'":
            quote = True
        else:
            depth += (char == "(") - (char == ")")
            if not depth:
                return at == len(text) - 1
    return False
