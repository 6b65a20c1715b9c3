"""Scans as the open loops that JAX makes of them: written down at once, so that JAX need not trace each of them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Final

import jax
import numpy as np
from jax.extend import core as jex
from jax.extend.core import primitives

from ..graphs.graph import Graph
from ..graphs.nodes import DeviceOp
from ..tracing.equations import scan_operands
from .structural import expanded

# Of JAX 0.10, and of 0.11.
_KNOWN: Final = [
    {"reverse", "length", "jaxpr", "unroll", *of} for of in (("num_consts", "num_carry"), ("ft_in", "ft_out"))
]
_SOURCE: Final = jex.DebugInfo("loop", "drivetrain", None, None)
_COUNTER: Final = np.dtype(np.int32)


def write_scans(graph: Graph) -> Graph:
    """With each scan as a loop that counts its turns, slices what is scanned and fills in what is stacked.

    For programs as they are written: no gradient runs back through such a loop, and how often it turns is harder to
    see. Results stay bitwise equal. A scan that is unrolled, has effects, or scans keys of random numbers stays one.
    """
    if not any(isinstance(node, DeviceOp) and node.op == "scan" for node in graph.nodes):
        return graph
    loops: dict[Hashable, Any] = {}
    return expanded(graph, lambda node: _loop(node.equation, loops) if node.op == "scan" else None)


def _loop(scan: Any, loops: dict[Hashable, Any]) -> Any | None:  # a jax.extend.core.JaxprEqn; a ClosedJaxpr
    """A function that does what a scan does, one for all that are alike; None where it stays a scan."""
    settings = [id(value) if name == "jaxpr" else value for name, value in scan.params.items()]
    key = (*settings, scan.ctx, *[atom.aval for atom in scan.invars])
    if key not in loops:
        invars = [jex.Var(atom.aval) for atom in scan.invars]
        outvars = [jex.Var(var.aval) for var in scan.outvars]
        steps = _written(scan.replace(invars=invars, outvars=outvars))
        loops[key] = None if steps is None else jex.ClosedJaxpr(_jaxpr(invars, outvars, steps), [])
    return loops[key]


def _written(scan: Any) -> list[Any] | None:  # a jax.extend.core.JaxprEqn; such
    """The equations that do what a scan's does; None where it stays a scan."""
    params = scan.params
    if params.keys() not in _KNOWN or params["unroll"] != 1 or scan.effects:
        return None
    length, body = params["length"], params["jaxpr"]
    constants, carried = scan_operands(params)
    first = constants + carried
    rows, stacks = scan.invars[first:], scan.outvars[carried:]
    if not isinstance(length, int) or length < 1 or not all(_plain(each.aval) for each in (*rows, *stacks)):
        return None
    inner = body.jaxpr
    xs: list[Any] = [jex.Var(each.aval) for each in rows]
    ys: list[Any] = [jex.Var(each.aval) for each in stacks]
    count = _variable()

    turn = _Steps(scan)
    at = turn.add(primitives.sub_p, [_number(length - 1), count], _variable()) if params["reverse"] else count
    for x, var in zip(xs, inner.invars[first:], strict=True):
        size = (1, *var.aval.shape)
        cut = _variable(size, x.aval.dtype)
        row = turn.add(primitives.dynamic_slice_p, [x, *_corner(at, x)], cut, slice_sizes=size)
        turn.add(primitives.squeeze_p, [row], var, dimensions=(0,))
    for equation in inner.eqns:
        turn.equations += (_written(equation) if equation.primitive.name == "scan" else None) or [equation]
    filled = []
    for total, y in zip(ys, inner.outvars[carried:], strict=True):
        row = turn.spread(y, (1, *y.aval.shape), range(1, 1 + len(y.aval.shape)))
        read = [total, row, *_corner(at, total)]
        filled.append(turn.add(primitives.dynamic_update_slice_p, read, jex.Var(total.aval)))
    after = turn.add(primitives.add_p, [count, _number(1)], _variable())
    state = [count, *inner.invars[constants:first], *ys]
    step = inner.replace(
        invars=[*inner.invars[:constants], *xs, *state],
        outvars=[after, *inner.outvars[:carried], *filled],
        eqns=turn.equations,
        debug_info=_SOURCE,
    )

    tested = [jex.Var(var.aval) for var in state]
    test = _Steps(scan)
    more = test.add(primitives.lt_p, [tested[0], _number(length)], _variable((), np.dtype(bool)))

    outer = _Steps(scan)
    empty = [outer.spread(_number(0, var.aval.dtype), var.aval.shape, ()) for var in stacks]
    loop = scan.replace(
        primitive=primitives.while_p,
        invars=[*scan.invars[:constants], *rows, _number(0), *scan.invars[constants:first], *empty],
        outvars=[jex.DropVar(count.aval), *scan.outvars],
        params={
            "cond_jaxpr": jex.ClosedJaxpr(_jaxpr(tested, [more], test.equations), []),
            "cond_nconsts": 0,
            "body_jaxpr": jex.ClosedJaxpr(step, body.consts),
            "body_nconsts": constants + len(rows),
        },
    )
    return [*outer.equations, loop]


class _Steps:
    """Equations, one after the other, that come of the same line of the user's as another."""

    def __init__(self, model: Any) -> None:  # a jax.extend.core.JaxprEqn
        self.equations: list[Any] = []
        self._model = model

    def add(self, primitive: Any, read: Sequence[Any], result: Any, **params: Any) -> Any:  # params as JAX calls them
        """The variable that a primitive makes of others."""
        self.equations.append(
            self._model.replace(primitive=primitive, invars=list(read), outvars=[result], params=params)
        )
        return result

    def spread(self, atom: Any, shape: Sequence[Any], places: Iterable[int]) -> Any:
        """A variable of this shape that holds an atom, whose dimensions take these places."""
        result, shape = _variable(shape, atom.aval.dtype), tuple(shape)
        places = tuple(places)
        return self.add(
            primitives.broadcast_in_dim_p, [atom], result, shape=shape, broadcast_dimensions=places, sharding=None
        )


def _jaxpr(invars: Sequence[Any], outvars: Sequence[Any], equations: Sequence[Any]) -> Any:
    return jex.Jaxpr((), invars, outvars, equations, frozenset(), debug_info=_SOURCE)


def _corner(at: Any, whole: Any) -> list[Any]:
    """Where a row of an array begins."""
    return [at, *[_number(0)] * (len(whole.aval.shape) - 1)]


def _number(value: int, dtype: Any = _COUNTER) -> Any:
    return jex.Literal(dtype.type(value), _aval((), dtype))  # type: ignore[no-untyped-call]  # JAX types it not


def _variable(shape: Sequence[Any] = (), dtype: Any = _COUNTER) -> Any:
    return jex.Var(_aval(shape, dtype))


def _aval(shape: Sequence[Any], dtype: Any) -> Any:
    return jax.core.ShapedArray(tuple(shape), dtype)


def _plain(aval: Any) -> bool:
    """Whether an array is laid out as JAX likes, of numbers: no keys, no shardings of its own."""
    return bool(aval.strip_weak_type() == _aval(aval.shape, aval.dtype)) and isinstance(aval.dtype, np.dtype)
