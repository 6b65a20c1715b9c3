"""Conditions in CEL, the language in which KFP's driver decides whether a task starts; raises on what it lacks.

Values reach CEL as protobuf values: every number is a double, every list and map dynamic. Equality differs from
Python's in one thing: in Python `True == 1`. Where that could matter, the condition compares with both, or is refused.
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


class Untranslatable(Exception):  # noqa: N818 - no mistake: the pod decides instead
    """CEL cannot say it, or would decide otherwise than Python."""


@dataclass(frozen=True)
class _Term:
    """A part of a condition, in CEL.

    Attributes:
        text: The CEL.
        kind: The type of its value; "any" where it is known during the run only.
        literal: Its value, where it is a literal.
        known: Whether it is one.
    """

    text: str
    kind: Kind
    literal: Json = None
    known: bool = False


def condition(expressions: tuple[Json, ...], read: Read, parameters: Mapping[str, Kind]) -> str:
    """A condition that holds where all of the expressions do, and where what they read is there.

    Args:
        expressions: In the compiled form's terms.
        read: Gives the input for an output that is read.
        parameters: The kinds of the pipeline's parameters that always have a value.

    Raises:
        Untranslatable: Not in CEL.
    """
    translator = _Translator(read, parameters)
    conditions = []
    for expression in expressions:
        term = translator.term(expression)
        if term.kind not in ("bool", "any") or term.known:
            raise Untranslatable("it is neither true nor false")
        conditions.append(term.text)
    presence = [f"size({text}) == 1" for text in translator.reads.values()]
    # Presence first: CEL stops at the first that is false, so nothing that is missing is ever indexed.
    return " && ".join([*presence, *conditions])


def value(name: str) -> str:
    """A task's input, as CEL reads it."""
    return f"inputs.parameter_values[{quoted(name)}]"


def quoted(text: str) -> str:
    """A text as a CEL string literal.

    Raises:
        Untranslatable: It holds half of a surrogate pair, which no JSON text does.
    """
    escapes = {"\\": r"\\", "'": r"\'", "\n": r"\n", "\r": r"\r", "\t": r"\t"}
    characters = []
    for char in text:
        code = ord(char)
        if 0xD800 <= code < 0xE000:
            raise Untranslatable("half a character")
        plain = char if char.isprintable() else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
        characters.append(escapes.get(char, plain))
    return f"'{''.join(characters)}'"


class _Translator:
    """Translates one condition, and remembers what it reads."""

    def __init__(self, read: Read, parameters: Mapping[str, Kind]) -> None:
        self._read = read
        self._parameters = parameters
        self.reads: dict[tuple[str, str, str], str] = {}

    def term(self, expression: Json) -> _Term:
        if not isinstance(expression, Mapping):
            return _literal(expression)
        ((kind, body),) = expression.items()
        if kind == "$param" and body in self._parameters:
            return _Term(value(body), self._parameters[body])
        if kind == "$property":
            node, output, name = body
            text = self.reads.setdefault((node, output, name), value(self._read(node, output, name)))
            return _Term(f"{text}[0]", "any")
        if kind == "$op":
            return self._operation(body[0], [self.term(each) for each in body[1:]])
        raise Untranslatable(f"{kind} is known in the pod only")

    def _operation(self, name: str, operands: list[_Term]) -> _Term:
        if name in ("and", "or", "not"):
            if any(operand.kind not in ("bool", "any") or operand.known for operand in operands):
                raise Untranslatable("an operand is neither true nor false")
            texts = [_closed(operand.text) for operand in operands]
            if name == "not":
                return _Term(f"!{texts[0]}", "bool")
            if not texts:
                raise Untranslatable("nothing in it is still to come")
            return _Term(f"({(' && ' if name == 'and' else ' || ').join(texts)})", "bool")
        if name == "get":
            return _item(*operands)
        if name == "in":
            return _Term(_among(*operands), "bool")
        if name in ("eq", "ne"):
            equal = _equal(*operands)
            return _Term(equal if name == "eq" else f"!({equal})", "bool")
        if name in _SIGNS:
            if any(operand.kind not in ("number", "string", "any") for operand in operands) or all(
                operand.known for operand in operands
            ):
                raise Untranslatable("no order of these is the same in CEL")
            return _Term(f"{operands[0].text} {_SIGNS[name]} {operands[1].text}", "bool")
        raise Untranslatable(f"the operator {name}")


def _literal(constant: Json) -> _Term:
    kind: Kind
    if constant is None:
        text, kind = "null", "null"
    elif isinstance(constant, bool):
        text, kind = str(constant).lower(), "bool"
    elif isinstance(constant, (int, float)):
        if (isinstance(constant, int) and abs(constant) > _EXACT) or not math.isfinite(constant):
            raise Untranslatable("no double is this number")
        text, kind = repr(float(constant)), "number"
    elif isinstance(constant, str):
        text, kind = quoted(constant), "string"
    elif isinstance(constant, (list, tuple)):
        if any(isinstance(item, Mapping) for item in constant):
            raise Untranslatable("a list of expressions")
        text, kind = f"[{', '.join(_literal(item).text for item in constant)}]", "list"
    else:
        raise Untranslatable("what it is, is known in the pod only")
    return _Term(text, kind, constant, known=True)


def _equal(left: _Term, right: _Term) -> str:
    if left.known and right.known:
        raise Untranslatable("nothing in it is still to come")
    if left.known:
        left, right = right, left
    if right.known:
        return _is(left, right)
    if "string" in (left.kind, right.kind) or (left.kind == right.kind and left.kind in ("number", "bool")):
        return f"{left.text} == {right.text}"
    raise Untranslatable("whether both are numbers, or true and false, is known in the pod only")


def _is(left: _Term, right: _Term) -> str:
    """Whether a value equals a literal."""
    twin = _twin(right)
    if isinstance(right.literal, (list, tuple)) and any(_twins(item) for item in right.literal):
        raise Untranslatable("a list in which 1 could be true")
    if twin is None or left.kind == right.kind:
        return f"{left.text} == {right.text}"
    if left.kind == twin.kind:
        return f"{left.text} == {twin.text}"
    return f"({left.text} == {right.text} || {left.text} == {twin.text})"


def _twins(literal: Json) -> bool:
    """Whether a literal is, or holds, a number that is equal to a boolean in Python, or the other way round."""
    return (
        any(map(_twins, literal))
        if isinstance(literal, (list, tuple))
        else isinstance(literal, (bool, int, float)) and (literal in (0, 1))
    )


def _twin(term: _Term) -> _Term | None:
    """The literal of another kind that Python calls equal (`True == 1`), and CEL does not; None where there is none."""
    if term.kind == "bool":
        return _literal(int(term.literal))
    return _literal(bool(term.literal)) if term.kind == "number" and term.literal in (0, 1) else None


def _among(member: _Term, container: _Term) -> str:
    if member.known and container.known:
        raise Untranslatable("nothing in it is still to come")
    if container.kind == "string":
        if member.kind not in ("string", "any"):
            raise Untranslatable("only a text is in a text")
        return f"{container.text}.contains({member.text})"
    if container.known and container.kind == "list":
        items = [_literal(item) for item in container.literal]
        if any(item.kind == "list" and _twins(item.literal) for item in items):
            raise Untranslatable("a list in which 1 could be true")
        # Python finds True in [1], CEL does not: with both spellings in the list the two agree.
        twins = [twin for item in items if (twin := _twin(item)) is not None]
        return f"{member.text} in [{', '.join(dict.fromkeys(item.text for item in [*items, *twins]))}]"
    if container.kind == "map" and member.kind == "string":
        return f"{member.text} in {container.text}"
    if container.kind != "list":
        raise Untranslatable("whether it is a list or a text is known in the pod only")
    if not member.known:
        if member.kind != "string":
            raise Untranslatable("whether it is a number is known in the pod only")
        return f"{member.text} in {container.text}"
    twin = _twin(member)
    if isinstance(member.literal, (list, tuple)) and _twins(member.literal):
        raise Untranslatable("a list in which 1 could be true")
    return (
        f"({member.text} in {container.text} || {twin.text} in {container.text})"
        if twin
        else f"{member.text} in {container.text}"
    )


def _item(container: _Term, key: _Term) -> _Term:
    at = key.literal
    if container.known or not key.known or isinstance(at, (bool, float)) or not isinstance(at, (int, str)):
        raise Untranslatable("an item by what is known in the pod only")
    if isinstance(at, str):
        if container.kind not in ("map", "any"):
            raise Untranslatable("only a map has names")
        return _Term(f"{container.text}[{key.text}]", "any")
    if container.kind not in ("list", "any") or at < 0:
        raise Untranslatable("no list counts from its end in CEL")
    return _Term(f"{container.text}[{at}]", "any")


def _closed(text: str) -> str:
    """The text in parentheses, unless it has them or is a single word."""
    return text if " " not in text or (text[0] == "(" and _closes(text)) else f"({text})"


def _closes(text: str) -> bool:
    """Whether the parenthesis that the text begins with is closed by its last character."""
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
