"""What has no value while a pipeline is built, and how it refuses to be used as if it had one."""

from __future__ import annotations

from typing import Any, NoReturn

from ...errors import BuildError
from ..project.functions import user_line

_COMPUTE = "do it in a component that takes it"
_BRANCH = "branch with `dt.when(...)`; combine conditions by `&`, `|` and `dt.not_(...)`, each in parentheses"
_LOOP = "write `dt.map_(function, over=...)`, or do it in a component that takes it"
_TEXT = "give it to a component that makes the text; to look at it here, `print(repr(...))`"


class Symbolic:
    """A value that exists only when the pipeline runs; using it as one now is an error at the user's line."""

    def _refuse(self, use: str, fix: str) -> NoReturn:
        raise BuildError(
            f"{self!r} has no value while the pipeline is built, so it cannot be used in {use}",
            where=user_line(),
            fix=fix,
        )

    def __bool__(self) -> bool:
        self._refuse("`if`, `and`, `or`, `not`, `in` or a chain of comparisons", _BRANCH)

    def __format__(self, spec: str) -> str:
        self._refuse("an f-string", _TEXT)

    def __str__(self) -> str:
        self._refuse("a text", _TEXT)

    def __iter__(self) -> NoReturn:
        self._refuse("a loop", _LOOP)

    def __hash__(self) -> int:
        return id(self)

    def _arithmetic(self, *_: object) -> NoReturn:
        self._refuse("arithmetic", _COMPUTE)

    def _conversion(self, *_: object) -> NoReturn:
        self._refuse("a conversion", _COMPUTE)

    def _number(self, *_: object) -> NoReturn:
        self._refuse("`range`, an index or a count", _LOOP)

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _arithmetic
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __neg__ = __abs__ = _arithmetic
    __contains__ = __len__ = __int__ = __float__ = __fspath__ = _conversion
    __index__ = _number


class SymbolicArtifact(Symbolic):
    """An artifact that does not exist yet; even `==` is an error, which would else be silently False."""

    def __eq__(self, other: object) -> NoReturn:
        self._comparison()

    def _comparison(self, *_: object) -> NoReturn:
        self._refuse("a comparison", "compare a property of it, or do it in a component that takes it")

    __hash__ = Symbolic.__hash__
    __lt__ = __le__ = __gt__ = __ge__ = __and__ = __or__ = __invert__ = __getitem__ = _comparison


class SymbolicValue(Symbolic):
    """A JSON value that does not exist yet, but whose type is known."""

    hint: Any  # Any: a type expression
