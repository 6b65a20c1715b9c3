"""What a pipeline function handles while it is built: outputs, their properties, parameters. None has a value yet."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, NoReturn

from ...digest import is_deep
from ...errors import BuildError, suggest
from ...metadata import Artifact
from ...redaction import CREDENTIALS, holds_credentials, without_credentials
from ..ir.expressions import Json, spelled
from ..ir.ir import Query
from ..project.files import FileSet, SqlQuery
from ..project.functions import user_line
from ..project.secret import Secret
from .hints import comparable, fits, spell
from .symbolic import Symbolic, SymbolicArtifact, SymbolicValue

_DEEPEST = 100  # levels of an expression's JSON, two for each operation; its readers take 200 of a whole pipeline


class Scalar(SymbolicValue):
    """A JSON value to come: compare it, take an item of it, combine conditions by `&`, `|` and `~`."""

    @property
    def expression(self) -> Json:
        """The value as an expression of the IR, see `ir.expressions`."""
        raise NotImplementedError

    def _compared(self, name: str, other: object) -> Expression:
        body = operand(other)
        hint = other.hint if isinstance(other, Scalar) else type(other)
        if not comparable(self.hint, hint, ordered=name not in ("eq", "ne")):
            raise BuildError(
                f"{self!r} is {spell(self.hint)}, which cannot be compared with {other!r:.60}, which is {spell(hint)}",
                where=user_line(),
                fix=f"compare it with another {spell(self.hint)}",
            )
        return operation(name, self.expression, body)

    def _combined(self, name: str, *others: object) -> Expression:
        for each in (self, *others):
            hint = each.hint if isinstance(each, Scalar) else type(each)
            if not fits(hint, bool):
                raise BuildError(
                    f"{each!r:.60} is {spell(hint)}, not bool, and cannot be combined by `&` or `|`",
                    where=user_line(),
                    fix="put each comparison in parentheses: `(a > 1) & (b < 2)`",
                )
        return operation(name, *map(operand, (self, *others)))

    def __eq__(self, other: object) -> Expression:  # type: ignore[override]  # what is compared is compared later
        return self._compared("eq", other)

    def __ne__(self, other: object) -> Expression:  # type: ignore[override]
        return self._compared("ne", other)

    def __lt__(self, other: object) -> Expression:
        return self._compared("lt", other)

    def __le__(self, other: object) -> Expression:
        return self._compared("le", other)

    def __gt__(self, other: object) -> Expression:
        return self._compared("gt", other)

    def __ge__(self, other: object) -> Expression:
        return self._compared("ge", other)

    def __and__(self, other: object) -> Expression:
        return self._combined("and", other)

    def __or__(self, other: object) -> Expression:
        return self._combined("or", other)

    __rand__, __ror__ = __and__, __or__

    def __invert__(self) -> Expression:
        return self._combined("not")

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):  # hasattr(value, "__array__") and copy expect an AttributeError, no BuildError
            raise AttributeError(name)
        raise BuildError(
            f"{self!r} is {spell(self.hint)}, a value, which has no {name!r} while the pipeline is built",
            where=user_line(),
            fix='pass it on as it is; an item of it is `value["key"]`, and options are given to the component',
        )

    def __getitem__(self, key: object) -> Expression:
        inside = typing.get_args(self.hint)
        return operation("get", self.expression, operand(key), hint=inside[-1] if inside else Any)

    __hash__ = Symbolic.__hash__

    def __repr__(self) -> str:
        return spelled(self.expression)


def operand(value: object) -> Json:
    """A value as part of an expression.

    Raises:
        BuildError: It is neither symbolic nor a JSON value.
    """
    if isinstance(value, Scalar):
        return value.expression
    if isinstance(value, (list, tuple)):
        return [operand(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise BuildError(
        f"{value!r:.60} is not a JSON value, as the values of a run are",
        where=user_line(),
        fix="give text, a number, a list",
    )


@dataclass(frozen=True, eq=False, repr=False)
class Expression(Scalar):
    """A value computed from other scalars, or one item or field of the run."""

    body: Json
    hint: Any  # Any: a type expression

    @property
    def expression(self) -> Json:
        """The expression that it was made with; see `Scalar`."""
        return self.body


def operation(name: str, *operands: Json, hint: Any = bool) -> Expression:  # Any: a type expression
    """What an operator makes of its operands; a chain of `&` or of `|`, however long, is one operation.

    Raises:
        BuildError: It nests more operations in each other than what reads it can follow.
    """
    if name in ("and", "or"):
        operands = tuple(chain.from_iterable(_terms(name, each) for each in operands))  # each step of a chain copies it
    body = {"$op": [name, *operands]}
    # The ends are enough: an operand between was an end of the shorter chain that it came in with.
    if is_deep(operands[0], _DEEPEST) or is_deep(operands[-1], _DEEPEST):
        raise BuildError(
            "a condition nests too many operations in each other",
            where=user_line(),
            fix="combine conditions by one chain of `&` or `|`, or compute it in a component that returns a bool",
        )
    return Expression(body, hint)


def _terms(name: str, expression: Json) -> list[Json]:
    """The operands of a chain of an operator; an expression that is no such chain is its only one."""
    if isinstance(expression, Mapping) and expression.get("$op", [None])[0] == name:
        return list(expression["$op"][1:])
    return [expression]


@dataclass(frozen=True, eq=False, repr=False)
class KnownValue(Expression):
    """A value that was passed to a pipeline inside another one.

    It is known, and yet symbolic: run by itself, that pipeline gets a `Parameter` in its place, so an `if` on it must
    fail in both ways of running it, or in neither.
    """

    value: object


@dataclass(frozen=True, eq=False)
class Parameter(Scalar):
    """A parameter of the pipeline, of which a run says the value."""

    name: str
    hint: Any  # Any: a type expression

    @property
    def expression(self) -> Json:
        """`{"$param": name}`; see `Scalar`."""
        return {"$param": self.name}

    def __repr__(self) -> str:
        return f"the parameter {self.name!r}"


@dataclass(frozen=True, eq=False, repr=False)
class Property(Scalar):
    """A property of an output, known once it is published; of the output of every item where `collected`."""

    node: str
    output: str
    name: str
    hint: Any  # Any: a type expression
    collected: bool = False

    @property
    def expression(self) -> Json:
        """`{"$property": [node, output, name]}`, or `$collect` for a list with that of every item; see `Scalar`."""
        return {"$collect" if self.collected else "$property": [self.node, self.output, self.name]}


class Handle(SymbolicArtifact):
    """An output of a node, in place of the artifact."""

    def __init__(
        self,
        node: str,
        output: str,
        type: type[Artifact],  # noqa: A002 - the artifact's type
        *,
        collected: bool = False,
    ) -> None:
        self._node = node
        self._output = output
        self._type = type
        self._collected = collected

    def __getattr__(self, name: str) -> Property:
        if name.startswith("__"):
            raise AttributeError(name)
        declared = self._type.declared()
        if name not in declared:
            raise BuildError(
                f"{self._type.__name__} has no property {name!r}",
                where=user_line(),
                fix=suggest(name, list(declared)),
            )
        default = declared[name]
        hint = Any if default is None else type(default)
        if self._collected:
            return Property(self._node, self._output, name, list[hint], collected=True)  # type: ignore[valid-type]
        return Property(self._node, self._output, name, hint)

    def __repr__(self) -> str:
        return f"the output {self._output!r} of {self._node}"


@dataclass(frozen=True, eq=False)
class QueryHandle(SymbolicArtifact):
    """Artifacts that will be chosen from history; a list of them where `many`, for a loop's outputs if `collected`."""

    query: Query
    many: bool = False
    collected: bool = False

    def __repr__(self) -> str:
        return str(self.query)


@dataclass(frozen=True, eq=False)
class ChoiceHandle(SymbolicArtifact):
    """Handles of which some producers may be skipped: `dt.optional(x)` and `dt.one_of(x, y)`.

    Attributes:
        choices: The outputs or scalars; the first whose node was not skipped is used.
        optional: Whether None stands in where all of them were skipped; otherwise the consumer is skipped, too.
    """

    choices: tuple[Handle | Scalar, ...]
    optional: bool

    def __repr__(self) -> str:
        return repr(self.choices[0]) if self.optional else f"dt.one_of({', '.join(map(repr, self.choices))})"


_NAMED = {"$secret": "secrets", "$files": "files", "$query": "rows of a query"}


def encode(value: object, where: str) -> Json:
    """A parameter's value, or what stands for one to come, as JSON of the IR.

    Args:
        value: As the user wrote it.
        where: The user's "file:line", for the error.

    Raises:
        BuildError: It is neither JSON nor anything that a pipeline knows by name, or a URL in it holds credentials.
    """
    if isinstance(value, Scalar):
        return value.expression
    if isinstance(value, ChoiceHandle):
        return _selected(value, where)
    if isinstance(value, Secret):
        return {"$secret": value.name}
    if isinstance(value, FileSet):
        # The shortest spelling that says it all, so that pipelines without spans have the bytes that they always had.
        named = [value.pattern, *([] if value.span is value.version is None else [value.span, value.version])]
        encoded = [encode(item, where) for item in named]
        return {"$files": encoded if len(encoded) > 1 else encoded[0]}
    if isinstance(value, SqlQuery):
        asked = [value.sql, value.connection, value.parameters, value.watermark]
        dated = [] if value.span is None else [value.span]
        return {"$query": [encode(item, where) for item in (*asked, *dated)]}
    if hasattr(value, "__arrow_c_stream__"):
        raise BuildError(
            f"a {type(value).__name__} in memory cannot be part of a pipeline, which other processes run later",
            where=where,
            fix="write it to a Parquet file and name that; or call the component outside a pipeline",
        )
    if isinstance(value, Mapping):
        return {"$map": [[encode(k, where), encode(v, where)] for k, v in value.items()]}
    if isinstance(value, (list, tuple)):
        return [encode(item, where) for item in value]
    if isinstance(value, str) and holds_credentials(value):
        raise BuildError(
            f"{without_credentials(value)!r:.80} holds a password or a token, which would be stored with the run",
            where=where,
            fix=CREDENTIALS,
        )
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise BuildError(
        f"{value!r:.60} is not a JSON value", where=where, fix="pass numbers, text, lists and dicts; name a function"
    )


def named_kind(encoded: Json) -> str | None:
    """What kind of thing by name an encoded value holds, e.g. "secrets"; None where it holds none.

    Secrets, files and queries are resolved only where they are a whole parameter, so no list of a loop may hold them.
    """
    if isinstance(encoded, Mapping):
        ((kind, body),) = encoded.items()
        return _NAMED.get(kind) or named_kind(body)
    kinds = (named_kind(item) for item in encoded) if isinstance(encoded, list) else ()
    return next((kind for kind in kinds if kind), None)


def _selected(value: ChoiceHandle, where: str) -> Json:
    choices = [each for each in value.choices if isinstance(each, Scalar)]
    if len(choices) < len(value.choices):
        raise BuildError(f"{value!r} is an artifact, not a value", where=where, fix="pass a property of it")
    if value.optional:
        return {"$optional": choices[0].expression}
    return {"$one_of": [choice.expression for choice in choices]}
