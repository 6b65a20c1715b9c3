"""Host ops and analyzers as JAX primitives: so that one jaxpr, traced with a symbolic batch, is the whole graph."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import cache, wraps
from typing import Any, Final, ParamSpec, TypeVar

import jax
from jax.extend.core import Primitive, get_opaque_trace_state

from ...errors import DrivetrainError, InputError
from .._caller import caller
from ..graphs.nodes import LIST_DTYPES

HANDLE: Final = "uint32"
"""The aval of what JAX must not touch: a host column, or a vocabulary."""

KIND: Final = "drivetrain_kind"

GIVEN: Final = "given"
"""The analyzer that needs no data: a table that came with a saved graph; its param "table" names it (`objects`)."""

P = ParamSpec("P")
R = TypeVar("R")


def in_32_bits(fn: Callable[P, R]) -> Callable[P, R]:
    """The function with JAX in 32 bits while it runs, whatever JAX_ENABLE_X64 says: a graph must not depend on it."""

    @wraps(fn)
    def narrow(*args: P.args, **kwargs: P.kwargs) -> R:
        with jax.enable_x64(False):
            return fn(*args, **kwargs)

    return narrow


@cache
def _primitive(kind: str, name: str) -> Primitive:
    primitive = Primitive(name)
    primitive.multiple_results = True

    @primitive.def_abstract_eval  # type: ignore[untyped-decorator]  # JAX types no Primitive
    def shapes(*avals: Any, outputs: Any, **_: Any) -> list[Any]:  # Any: JAX avals and params
        batch = next((aval.shape[0] for aval in avals if aval.shape), None)
        shaped_arrays = []
        for dtype, shape, _column in outputs:
            dims = tuple(_dim(dim, batch) for dim in shape)
            shaped_arrays.append(jax.core.ShapedArray(dims, HANDLE if dtype in _OPAQUE else dtype))
        return shaped_arrays

    @primitive.def_impl  # type: ignore[untyped-decorator]  # as above
    def run(*_: Any, where: str | None = None, **__: Any) -> None:
        raise InputError(
            f"{name} runs on the host and cannot run inside a JAX transformation",
            fix="use it in preprocess",
            where=where,
        )

    return primitive


def _dim(dim: str | int, batch: Any) -> Any:  # Any: symbolic dimensions
    """The batch, a size, or by its name a symbolic dimension in the scope of the batch."""
    if dim == "b" or isinstance(dim, int):
        return batch if dim == "b" else dim
    return jax.export.symbolic_shape(dim, scope=batch.scope)[0]


_OPAQUE: Final = ("string", "int64", "float64", "column:bool", "vocabulary", *LIST_DTYPES)


def bind_host(
    op: str,
    inputs: Sequence[Any],
    outputs: Sequence[tuple[str, tuple[str | int, ...], bool]],
    params: Mapping[str, Any],
) -> list[Any]:  # Any: tracers
    """Add a host op to the trace; `outputs` are (dtype, shape, whether a column)."""
    described = tuple(
        ("column:bool" if column and dtype == "bool" else dtype, shape, column) for dtype, shape, column in outputs
    )
    results = _primitive("host", op).bind(  # type: ignore[no-untyped-call]  # JAX types no Primitive
        *inputs, outputs=described, settings=json.dumps(params, sort_keys=True), where=caller(), **{KIND: "host"}
    )
    return list(results)


def bind_analyzer(
    kind: str, inputs: Sequence[Any], output: tuple[str, tuple[int, ...]], params: Mapping[str, Any]
) -> Any:  # Any: a tracer
    """Add an analyzer to the trace: of a host column (one input) or of an array and its validity (two)."""
    (result,) = _primitive("analyzer", kind).bind(  # type: ignore[no-untyped-call]  # as above
        *inputs,
        outputs=((*output, False),),
        settings=json.dumps(params, sort_keys=True),
        where=caller(),
        **{KIND: "analyzer"},
    )
    return result


def settings_of(equation: Any) -> dict[str, Any]:  # a jax.extend.core.JaxprEqn; JSON
    """The params that `bind_host` or `bind_analyzer` were given."""
    loaded: dict[str, Any] = json.loads(equation.params["settings"])
    return loaded


def shaped(dims: Sequence[Any], dtype: Any) -> Any:  # Any: dimensions may be symbolic; JAX types no struct
    """A `jax.ShapeDtypeStruct` of these dimensions, which may be symbolic."""
    return jax.ShapeDtypeStruct(tuple(dims), dtype)  # type: ignore[no-untyped-call]


class Trace:
    """What is known, beyond the jaxpr, about arrays while a preprocessing function is traced."""

    def __init__(self, batch: Any) -> None:
        self.batch = batch
        self._facts: dict[int, tuple[Any, Any]] = {}
        self._dims: dict[int, tuple[Any, str]] = {}
        self._alike: dict[int, tuple[Any, Any]] = {}
        self.checks: list[tuple[Any, str, str | None]] = []
        self.state = get_opaque_trace_state()  # type: ignore[no-untyped-call]  # JAX types it not

    def note(self, array: Any, fact: Any) -> Any:
        """Remember a fact about an array; gives the array."""
        self._facts[id(array)] = (array, fact)  # the array is kept, so its id stays its own
        return array

    def check(self, holds: Any, message: str, where: str | None) -> None:
        """Remember what must hold of every row: a bool array, the message, the user's line."""
        self.checks.append((holds, message, where))

    def alike(self, handle: Any, other: Any) -> None:
        """Remember that two list columns have lists of the same lengths."""
        self._alike[id(other)] = (other, handle)

    def dim(self, handle: Any) -> str:
        """The name of the dimension that counts the values of a list column: n1 for the first that asks, n2 …."""
        handle = self._alike.get(id(handle), (handle, handle))[1]
        return self._dims.setdefault(id(handle), (handle, f"n{len(self._dims) + 1}"))[1]

    def fact(self, array: Any) -> Any:
        """What was noted about this very array, or None."""
        noted = self._facts.get(id(array))
        return None if noted is None else noted[1]


CURRENT: ContextVar[Trace | None] = ContextVar("drivetrain_trace", default=None)


def current() -> Trace:
    """The running trace. Raises DrivetrainError outside of one."""
    trace = CURRENT.get()
    if trace is None:
        raise DrivetrainError(
            "engine.ops work on the columns of a preprocessing function",
            fix="call them in preprocess(columns)",
            where=caller(),
        )
    return trace
