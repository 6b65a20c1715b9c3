"""The words of a command: text, and placeholders for what is known only when it runs.

Each word is one argument, whatever it holds: nothing is ever split or read by a shell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias

from ...errors import BuildError, InputError
from ..project.functions import user_line


class Placeholder:
    """A part of a command that is known once it runs; `"--out=" + dt.external.output_path("model")` joins it on."""

    def __add__(self, other: Word) -> Concatenation:
        return Concatenation((*_parts(self), *_parts(other)))

    def __radd__(self, other: Word) -> Concatenation:
        return Concatenation((*_parts(other), *_parts(self)))

    def __str__(self) -> NoReturn:
        raise BuildError(
            f"{self!r} has no text before the command runs",
            where=user_line(),
            fix='join it: "--out=" + dt.external.output_path(…)',
        )

    def __format__(self, spec: str) -> NoReturn:
        str(self)
        raise AssertionError  # `__str__` has raised: this is for the type checker


Word: TypeAlias = str | Placeholder


@dataclass(frozen=True)
class Reference(Placeholder):
    """The paths or the text that stand for an input, an output, a parameter or a file.

    Attributes:
        kind: input, output, parameter, file or properties; text: a file with a parameter's text; data: of an input's
            content the file `data`, or else the folder.
        name: Which of them.
    """

    kind: str
    name: str


@dataclass(frozen=True)
class Concatenation(Placeholder):
    """Parts that make one argument together."""

    parts: tuple[Word, ...]


@dataclass(frozen=True)
class IfPresent(Placeholder):
    """Other words, by whether an optional input or parameter is given."""

    name: str
    then: tuple[Word, ...]
    otherwise: tuple[Word, ...] = ()


def input_path(name: str) -> Placeholder:
    """The folder of an input's content, to be read only; of a list of artifacts, an argument for each."""
    return Reference("input", name)


def output_path(name: str) -> Placeholder:
    """The folder that an artifact's content is to be written to; of a JSON value, the file for it."""
    return Reference("output", name)


def properties_path(name: str) -> Placeholder:
    """The file for an output artifact's properties, as a JSON object; it may be left unwritten."""
    return Reference("properties", name)


def parameter(name: str) -> Placeholder:
    """A parameter's value: text as it is, anything else as JSON."""
    return Reference("parameter", name)


def file_path(name: str) -> Placeholder:
    """A file that the component names in `files`; an argument for each where they are several."""
    return Reference("file", name)


def if_present(name: str, then: Word | Sequence[Word], otherwise: Word | Sequence[Word] = ()) -> Placeholder:
    """Words where an optional input or parameter is given, and others where it is not."""
    return IfPresent(name, _words(then), _words(otherwise))


_FIELDS = {
    "input": "inputs",
    "output": "outputs",
    "parameter": "parameters",
    "file": "files",
    "properties": "properties",
    "text": "texts",
    "data": "data",
}


@dataclass(frozen=True)
class PlaceholderValues:
    """The arguments that placeholders stand for in one attempt, by name; None for an optional one that is not given."""

    inputs: Mapping[str, Sequence[str] | None] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, str | None] = field(default_factory=dict)
    files: Mapping[str, Sequence[str]] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    texts: Mapping[str, str | None] = field(default_factory=dict)
    data: Mapping[str, Sequence[str] | None] = field(default_factory=dict)

    def of(self, reference: Reference) -> Sequence[str]:
        """The arguments that a reference stands for."""
        by_name: Mapping[str, str | Sequence[str] | None] = getattr(self, _FIELDS[reference.kind])
        argument = by_name[reference.name]
        return () if argument is None else (argument,) if isinstance(argument, str) else argument

    def is_given(self, name: str) -> bool:
        """Whether an input or parameter is given."""
        return self.inputs.get(name) is not None or self.parameters.get(name) is not None


def fill(words: Sequence[Word], values: PlaceholderValues) -> list[str]:
    """The arguments; what is not given adds none, and takes no part in what is joined.

    Raises:
        InputError: What is joined is a list.
    """
    arguments: list[str] = []
    for word in words:
        if isinstance(word, str):
            arguments.append(word)
        elif isinstance(word, Reference):
            arguments += values.of(word)
        elif isinstance(word, IfPresent):
            arguments += fill(word.then if values.is_given(word.name) else word.otherwise, values)
        elif isinstance(word, Concatenation):
            arguments.append("".join(_single(part, values) for part in word.parts))
    return arguments


def _single(part: Word, values: PlaceholderValues) -> str:
    filled = fill([part], values)
    if len(filled) > 1:
        raise InputError(f"{part!r} is {len(filled)} arguments, which cannot be joined", fix="write it alone")
    return filled[0] if filled else ""


def script(words: Sequence[Word], values: PlaceholderValues) -> tuple[str, list[str]]:
    """The text of a shell's script, and the arguments that it names as "${1}" and so on: no value is ever its text."""
    arguments: list[str] = []

    def spelled(word: Word) -> str:
        if isinstance(word, str):
            return word
        if isinstance(word, Concatenation):
            return "".join(map(spelled, word.parts))
        if isinstance(word, IfPresent):
            return " ".join(map(spelled, word.then if values.is_given(word.name) else word.otherwise))
        filled = fill([word], values)
        arguments.extend(filled)
        first = len(arguments) - len(filled) + 1
        return " ".join(f'"${{{number}}}"' for number in range(first, len(arguments) + 1))

    return " ".join(map(spelled, words)), arguments


def references(words: Sequence[Word]) -> Iterator[Reference]:
    """The names that words use, by kind; those that `if_present` asks for are of the kind "given"."""
    for word in words:
        if isinstance(word, Reference):
            yield word
        elif isinstance(word, Concatenation):
            yield from references(word.parts)
        elif isinstance(word, IfPresent):
            yield Reference("given", word.name)
            yield from references((*word.then, *word.otherwise))


def unguarded(words: Sequence[Word]) -> Iterator[Reference]:
    """The names that words use whether or not they are given."""
    for word in words:
        if isinstance(word, Reference):
            yield word
        elif isinstance(word, Concatenation):
            yield from unguarded(word.parts)
        elif isinstance(word, IfPresent):
            yield from (reference for reference in unguarded(word.then) if reference.name != word.name)
            yield from unguarded(word.otherwise)


def encode(words: Sequence[Word]) -> list[Any]:
    """Words as the JSON of the IR: text as it is, a placeholder as an object."""
    return [_encoded(word) for word in words]


def decode(body: Sequence[Any]) -> tuple[Word, ...]:
    """The words that `encode` wrote."""
    return tuple(_decoded(each) for each in body)


def _encoded(word: Word) -> Any:
    if isinstance(word, Reference):
        return {word.kind: word.name}
    if isinstance(word, Concatenation):
        return {"join": encode(word.parts)}
    if isinstance(word, IfPresent):
        return {"if": word.name, "then": encode(word.then), "else": encode(word.otherwise)}
    return word


def _decoded(body: Any) -> Word:
    if isinstance(body, str):
        return body
    if "if" in body:
        return IfPresent(body["if"], decode(body["then"]), decode(body["else"]))
    if "join" in body:
        return Concatenation(decode(body["join"]))
    ((kind, name),) = body.items()
    return Reference(kind, name)


def _parts(word: Word) -> tuple[Word, ...]:
    return word.parts if isinstance(word, Concatenation) else (word,)


def _words(words: Word | Sequence[Word]) -> tuple[Word, ...]:
    return (words,) if isinstance(words, (str, Placeholder)) else tuple(words)
