"""Protobuf's text format, read and written strictly against tables of fields; no protobuf library.

A message becomes a dict: a repeated field a list, an enum its name, a nested message a dict. Fields stand in the order
of their numbers, as protobuf itself writes them. The language: https://protobuf.dev/reference/protobuf/textformat-spec
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ...errors import InputError, suggest
from .pbtxt_scalars import EscapeError, real, single, spell, unescape, whole

DEPTH: Final = 64  # messages within messages; protobuf's own limit is 100


@dataclass(frozen=True)
class MessageField:
    """A field of a message.

    Attributes:
        number: Its number in the .proto file.
        kind: "string", "bool", "int64", "float", "double", the name of an enum or a message of the tables, or "opaque"
            for a message whose inside is not read (the value is then `{}`).
        repeated: Whether it may stand more than once.
        oneof: Fields of one such name exclude each other.
    """

    number: int
    kind: str
    repeated: bool = False
    oneof: str = ""


@dataclass(frozen=True)
class ProtoDefinitions:
    """The messages and enums that a text may have.

    Attributes:
        messages: Fields by name, by message.
        enums: Numbers by name, by enum.
    """

    messages: Mapping[str, Mapping[str, MessageField]]
    enums: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class OpaqueMessage:
    """A message whose inside was not read.

    Attributes:
        path: Where it stands: `feature[3].image_domain`.
        line: Its line, from 1.
    """

    path: str
    line: int


@dataclass(frozen=True)
class ParsedMessage:
    """A message that was read.

    Attributes:
        value: Its fields.
        opaque: Messages in it whose inside was not read.
        lines: The line of each field by path, `feature[3].name`.
    """

    value: dict[str, Any]
    opaque: tuple[OpaqueMessage, ...]
    lines: Mapping[str, int]


def parse(text: str, tables: ProtoDefinitions, message: str, where: str = "text") -> ParsedMessage:
    """The message that a text says.

    Args:
        text: Text format.
        tables: The messages known.
        message: Which one it is.
        where: The file's name, for messages.

    Raises:
        InputError: No text format, an unknown field, a value of another type, a single field twice. Its `where` is
            "file:line:column".
    """
    return _TextFormatParser(text, tables, where).read(message)


def dump(value: Mapping[str, Any], tables: ProtoDefinitions, message: str) -> str:
    """A message as text, as protobuf prints it; `parse` gives the value back. Opaque fields are left out."""
    return "".join(f"{line}\n" for line in _dumped(value, tables, message, ""))


def _dumped(value: Mapping[str, Any], tables: ProtoDefinitions, message: str, indent: str) -> Iterator[str]:
    for name, spec in sorted(tables.messages[message].items(), key=lambda item: item[1].number):
        if name not in value or spec.kind == "opaque":
            continue
        for item in value[name] if spec.repeated else [value[name]]:
            if spec.kind in tables.messages:
                yield f"{indent}{name} {{"
                yield from _dumped(item, tables, spec.kind, indent + "  ")
                yield f"{indent}}}"
            else:
                yield f"{indent}{name}: {spell(item, spec.kind)}"


_TOKEN: Final = re.compile(
    r"""
    (?P<space>(?:[ \t\r\n\v\f]|\#[^\n]*)+)
  | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<number>(?:0[xX][0-9A-Fa-f]+ | (?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fF]?)
  | (?P<string>"(?:[^"\\\n]|\\[^\n])*" | '(?:[^'\\\n]|\\[^\n])*')
  | (?P<mark>[{}<>\[\]:;,/.-])
    """,
    re.VERBOSE,
)
_CLOSING: Final = {"{": "}", "<": ">"}


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str  # as in _TOKEN; "end" after the last
    text: str
    at: int


@dataclass
class _TextFormatParser:
    """A recursive descent parser over one text, one token ahead."""

    text: str
    tables: ProtoDefinitions
    where: str
    opaque: list[OpaqueMessage] = field(default_factory=list)
    lines: dict[str, int] = field(default_factory=dict)

    def read(self, message: str) -> ParsedMessage:
        self.breaks = [line_feed.start() for line_feed in re.finditer("\n", self.text)]
        self.tokens = self.split()
        self.token = next(self.tokens)
        value = self.fields(message, "", "")
        return ParsedMessage(value, tuple(self.opaque), self.lines)

    def split(self) -> Iterator[_Token]:
        at = 0
        while at < len(self.text):
            match = _TOKEN.match(self.text, at)
            if match is None:
                quote = self.text[at] in "\"'"
                raise self.error(at, "the text is not closed on its line" if quote else f"unexpected {self.text[at]!r}")
            kind = str(match.lastgroup)
            if kind != "space":
                yield _Token(kind, match.group(), at)
                after = self.text[match.end() : match.end() + 1]
                if kind == "number" and (after.isalnum() or after == "_"):
                    raise self.error(at, f"{match.group() + after!r} is not a number")
            at = match.end()
        while True:
            yield _Token("end", "the end", len(self.text))

    def next(self) -> _Token:
        token, self.token = self.token, next(self.tokens)
        return token

    def take(self, mark: str) -> bool:
        """Step over a mark if it is the next token."""
        is_next = self.token.kind == "mark" and self.token.text == mark
        if is_next:
            self.next()
        return is_next

    def line(self, at: int) -> int:
        return bisect.bisect_left(self.breaks, at) + 1

    def error(self, at: int, message: str, fix: str = "correct it") -> InputError:
        column = at - self.text.rfind("\n", 0, at)
        return InputError(message, fix=fix, where=f"{self.where}:{self.line(at)}:{column}")

    def fields(self, message: str, path: str, close: str, depth: int = 0) -> dict[str, Any]:
        """Read fields up to and with `close` ("" is the end of the text)."""
        table = self.tables.messages[message]
        values: dict[str, Any] = {}
        chosen: dict[str, str] = {}
        while not (self.token.kind == "end" if not close else self.take(close)):
            token = self.token
            if token.kind != "name":
                wanted = f"a field of {message}" + (f" or {close}" if close else "")
                raise self.error(token.at, f"{wanted} is wanted here, not {token.text!r}")
            spec = table.get(token.text)
            if spec is None:
                fix = suggest(token.text, list(table), "its fields are")
                raise self.error(token.at, f"{message} has no field {token.text!r}", fix)
            self.next()
            self.field(token, spec, message, values, chosen, path, depth)
        return values

    def field(
        self,
        name: _Token,
        spec: MessageField,
        message: str,
        values: dict[str, Any],
        chosen: dict[str, str],
        path: str,
        depth: int,
    ) -> None:
        what = f"{path}.{name.text}" if path else name.text
        if not spec.repeated and name.text in values:
            raise self.error(name.at, f"{name.text} appears twice in one {message}", "remove one of the two")
        if spec.oneof:
            other = chosen.setdefault(spec.oneof, name.text)
            if other != name.text:
                raise self.error(name.at, f"{other} and {name.text} exclude each other", "remove one of the two")
        nested = spec.kind in self.tables.messages or spec.kind == "opaque"
        colon = self.take(":")
        if not colon and not nested:
            raise self.error(self.token.at, f"a colon is wanted after {name.text}")

        def read_value() -> Any:
            item_path = f"{what}[{len(values[name.text])}]" if spec.repeated else what
            self.lines[item_path] = self.line(name.at)
            return self.message(spec.kind, item_path, depth) if nested else self.scalar(spec.kind)

        if not spec.repeated:
            values[name.text] = read_value()
        else:
            items: list[Any] = values.setdefault(name.text, [])
            if self.take("["):
                self.listed(lambda: items.append(read_value()))
            else:
                items.append(read_value())
        if not self.take(";"):  # either may follow a field, and neither must
            self.take(",")

    def listed(self, item: Callable[[], None]) -> None:
        """Read the items of a list and the ] that ends it."""
        if self.take("]"):
            return
        item()
        while not self.take("]"):
            if not self.take(","):
                raise self.error(self.token.at, f"a comma or ] is wanted here, not {self.token.text!r}")
            item()

    def message(self, kind: str, path: str, depth: int) -> dict[str, Any]:
        opening = self.next()
        if opening.kind != "mark" or opening.text not in _CLOSING:
            raise self.error(opening.at, f"{{ is wanted here, not {opening.text!r}")
        if depth >= DEPTH:
            raise self.error(opening.at, f"more than {DEPTH} messages within each other", "flatten it")
        if kind != "opaque":
            return self.fields(kind, path, _CLOSING[opening.text], depth + 1)
        self.opaque.append(OpaqueMessage(path, self.line(opening.at)))
        # Skipped by its brackets alone: its fields are not in the tables, and texts are whole tokens, so that a bracket
        # in quotes does not count.
        pending = [_CLOSING[opening.text]]
        while pending:
            token = self.next()
            if token.kind == "end":
                raise self.error(opening.at, f"this {opening.text} is never closed", f"add {pending[-1]}")
            if token.kind == "mark" and token.text in _CLOSING:
                pending.append(_CLOSING[token.text])
            elif token.kind == "mark" and token.text in _CLOSING.values() and token.text != pending.pop():
                raise self.error(token.at, f"unexpected {token.text!r}")
        return {}

    def scalar(self, kind: str) -> Any:
        token = self.token
        if kind == "string":
            return self.string()
        minus = self.take("-")
        word = self.next()
        text = word.text
        if kind == "bool" and not minus:
            if text in ("true", "True", "t", "1"):
                return True
            if text in ("false", "False", "f", "0"):
                return False
        elif kind == "int64" and word.kind == "number":
            value = whole(text, minus)
            if value is not None:
                return value
        elif kind in ("float", "double"):
            number = real(text, minus)
            if number is not None:
                return single(number) if kind == "float" else number
        elif kind in self.tables.enums and not minus:
            enum = self.tables.enums[kind]
            names = {str(code): name for name, code in enum.items()} | {name: name for name in enum}
            if text in names:
                return names[text]
            raise self.error(token.at, f"{kind} has no value {text!r}", f"use one of {', '.join(enum)}")
        raise self.error(token.at, f"{_WANTED.get(kind, kind)} is wanted here, not {'-' * minus}{text!r}")

    def string(self) -> str:
        """One text, which may be several strings in a row, as in C."""
        first = self.token
        if first.kind != "string":
            raise self.error(first.at, f"a text in quotes is wanted here, not {first.text!r}")
        pieces = b""
        while self.token.kind == "string":
            token = self.next()
            try:
                pieces += unescape(token.text[1:-1])
            except EscapeError as error:
                at = token.at + 1 + error.at
                raise self.error(at, f"there is no escape {error.escape}", "write \\\\ for one \\") from None
        try:
            return pieces.decode()
        except UnicodeDecodeError:
            raise self.error(first.at, "this text is not UTF-8", "write it in UTF-8") from None


_WANTED: Final = {
    "bool": "true or false",
    "int64": "a whole number of 64 bits",
    "float": "a number",
    "double": "a number",
}
