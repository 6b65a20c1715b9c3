"""What a pipeline function handles while it is built: outputs, their properties, parameters. None has a value yet."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar, cast

from ..errors import BuildError
from ..metadata import Artifact
from .functions import user_line
from .ir import Condition, Query

T = TypeVar("T", bound=Artifact)


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

    def __eq__(self, other: object) -> bool:
        self._refuse("a comparison")

    def __hash__(self) -> int:
        return id(self)

    def _arithmetic(self, *_: object) -> NoReturn:
        self._refuse("arithmetic")

    def _comparison(self, *_: object) -> NoReturn:
        self._refuse("a comparison")

    def _conversion(self, *_: object) -> NoReturn:
        self._refuse("a conversion")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _arithmetic
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __neg__ = __abs__ = _arithmetic
    __lt__ = __le__ = __gt__ = __ge__ = __contains__ = __getitem__ = __len__ = _comparison
    __int__ = __float__ = __index__ = __fspath__ = _conversion


@dataclass(frozen=True, eq=False)
class Parameter(Symbolic):
    """A pipeline parameter."""

    name: str
    hint: Any  # Any: a type expression

    def __repr__(self) -> str:
        return f"the parameter {self.name!r}"

    def __str__(self) -> str:
        return repr(self)


@dataclass(frozen=True, eq=False)
class Property(Symbolic):
    """A property of an output, known once it is published."""

    node: str
    output: str
    name: str
    hint: Any  # Any: a type expression

    @property
    def condition(self) -> Condition:
        """The property as a condition."""
        return Condition(self.node, self.output, self.name)

    def __repr__(self) -> str:
        return f"{self.node}.{self.name}"

    def __str__(self) -> str:
        return repr(self)


class Handle(Symbolic):
    """An output of a node, in place of the artifact."""

    def __init__(self, node: str, output: str, type: type[Artifact]) -> None:  # noqa: A002 - the artifact's type
        self._node = node
        self._output = output
        self._type = type

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
        return Property(self._node, self._output, name, Any if default is None else type(default))

    def __repr__(self) -> str:
        return f"the output {self._output!r} of {self._node}"

    def __str__(self) -> str:
        return repr(self)


@dataclass(frozen=True, eq=False)
class Chosen(Symbolic):
    """An artifact that will be chosen from history."""

    query: Query

    def __repr__(self) -> str:
        return f"dt.{self.query.strategy.removesuffix('_passed')}(...)"

    def __str__(self) -> str:
        return repr(self)


def latest(kind: type[T], *, node: str | None = None, passed: bool = False) -> T | None:
    """The newest live artifact of a type that an earlier run of this pipeline made; None where there is none yet.

    Args:
        kind: Its type.
        node: The id of the node that made it; any where None. Name it where several nodes make artifacts of the type.
        passed: Only of runs that ended COMPLETE, in which no gate objected to anything and nothing failed.

    Never what the component already gets by another input: of its statistics, `DistributionValidator` is given those of
    other data, so a second run on the same data finds the same ones as the first, and is a cache hit.
    """
    return cast("T | None", Chosen(Query("latest_passed" if passed else "latest", kind.__name__, node or "")))


def latest_blessed() -> Any:  # Any: the type is the input's it is given to
    """The newest blessed model of earlier runs whose fingerprint is not the candidate's; None where there is none.

    So a second identical run finds the same baseline as the first, and is a cache hit. The candidate, and the model
    that an `Evaluation` blessed, is the input called "model" of the component that made it.
    """
    return Chosen(Query("latest_blessed", "Model"))
