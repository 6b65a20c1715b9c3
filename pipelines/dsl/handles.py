"""What a pipeline function handles while it is built: outputs, their properties, parameters. None has a value yet."""

from __future__ import annotations

import difflib
import typing
from dataclasses import dataclass
from typing import Any, NoReturn

from ...errors import BuildError
from ...metadata import Artifact
from ..form.expressions import Json, spelled
from ..form.ir import Query
from ..sources.functions import user_line


class Symbolic:
    """A value that exists only when the pipeline runs; using it as one now is an error at the user's line."""

    def _refuse(self, use: str) -> NoReturn:
        raise BuildError(
            f"{self!r} has no value while the pipeline is built, so it cannot be used in {use}",
            where=user_line(),
            fix="pass it to a component, or branch with `dt.when(...)`",
        )

    def __bool__(self) -> bool:
        self._refuse("`if`, `and`, `or` or `not`")

    def __format__(self, spec: str) -> str:
        self._refuse("an f-string")

    def __iter__(self) -> NoReturn:
        self._refuse("a loop")

    def __hash__(self) -> int:
        return id(self)

    def _arithmetic(self, *_: object) -> NoReturn:
        self._refuse("arithmetic")

    def _conversion(self, *_: object) -> NoReturn:
        self._refuse("a conversion")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _arithmetic
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __neg__ = __abs__ = _arithmetic
    __contains__ = __len__ = _conversion
    __int__ = __float__ = __index__ = __fspath__ = _conversion


class Opaque(Symbolic):
    """An artifact to come, which cannot be compared."""

    def __eq__(self, other: object) -> NoReturn:
        self._refuse("a comparison")

    def _comparison(self, *_: object) -> NoReturn:
        self._refuse("a comparison")

    __hash__ = Symbolic.__hash__
    __lt__ = __le__ = __gt__ = __ge__ = __and__ = __or__ = __invert__ = __getitem__ = _comparison


class Scalar(Symbolic):
    """A JSON value to come: compare it, take an item of it, combine conditions by `&`, `|` and `~`."""

    hint: Any  # Any: a type expression

    @property
    def expression(self) -> Json:
        """As IR."""
        raise NotImplementedError

    def _op(self, name: str, other: object) -> Expression:
        return Expression({"$op": [name, self.expression, operand(other)]}, bool)

    def __eq__(self, other: object) -> Expression:  # type: ignore[override]  # what is compared is compared later
        return self._op("eq", other)

    def __ne__(self, other: object) -> Expression:  # type: ignore[override]
        return self._op("ne", other)

    def __lt__(self, other: object) -> Expression:
        return self._op("lt", other)

    def __le__(self, other: object) -> Expression:
        return self._op("le", other)

    def __gt__(self, other: object) -> Expression:
        return self._op("gt", other)

    def __ge__(self, other: object) -> Expression:
        return self._op("ge", other)

    def __and__(self, other: object) -> Expression:
        return self._op("and", other)

    def __or__(self, other: object) -> Expression:
        return self._op("or", other)

    def __invert__(self) -> Expression:
        return Expression({"$op": ["not", self.expression]}, bool)

    def __getitem__(self, key: object) -> Expression:
        inside = typing.get_args(self.hint)
        return Expression({"$op": ["get", self.expression, operand(key)]}, inside[-1] if inside else Any)

    __hash__ = Symbolic.__hash__

    def __repr__(self) -> str:
        return spelled(self.expression)

    def __str__(self) -> str:
        return repr(self)


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
        f"{value!r:.60} cannot be compared with what a run gives", where=user_line(), fix="give a JSON value"
    )


@dataclass(frozen=True, eq=False, repr=False)
class Expression(Scalar):
    """What is made of other scalars."""

    body: Json
    hint: Any  # Any: a type expression

    @property
    def expression(self) -> Json:
        """As IR."""
        return self.body


@dataclass(frozen=True, eq=False, repr=False)
class Known(Expression):
    """A value given to a pipeline within another one: symbolic there, so that the two ways of running it agree."""

    value: object


@dataclass(frozen=True, eq=False)
class Parameter(Scalar):
    """A pipeline parameter."""

    name: str
    hint: Any  # Any: a type expression

    @property
    def expression(self) -> Json:
        """As IR."""
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
        """As IR."""
        return {"$collect" if self.collected else "$property": [self.node, self.output, self.name]}


class Handle(Opaque):
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
            close = difflib.get_close_matches(name, declared, 1)
            raise BuildError(
                f"{self._type.__name__} has no property {name!r}",
                where=user_line(),
                fix=f"did you mean {close[0]!r}?" if close else f"it has {', '.join(declared) or 'none'}",
            )
        default = declared[name]
        hint = Any if default is None else type(default)
        if self._collected:
            return Property(self._node, self._output, name, list[hint], collected=True)  # type: ignore[valid-type]
        return Property(self._node, self._output, name, hint)

    def __repr__(self) -> str:
        return f"the output {self._output!r} of {self._node}"

    def __str__(self) -> str:
        return repr(self)


@dataclass(frozen=True, eq=False)
class Chosen(Opaque):
    """Artifacts that will be chosen from history; a list of them where `many`, for a loop's outputs if `collected`."""

    query: Query
    many: bool = False
    collected: bool = False

    def __repr__(self) -> str:
        return f"dt.{self.query.strategy.removesuffix('_passed')}(...)"

    def __str__(self) -> str:
        return repr(self)


@dataclass(frozen=True, eq=False)
class Selected(Opaque):
    """Another handle, whose producer may be skipped: None stands in where it is `optional`, else the next `choice`."""

    choices: tuple[Handle | Scalar, ...]
    optional: bool

    def __repr__(self) -> str:
        return repr(self.choices[0]) if self.optional else f"dt.one_of({', '.join(map(repr, self.choices))})"

    def __str__(self) -> str:
        return repr(self)
