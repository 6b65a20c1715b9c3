"""Simplification by what is known of bounds: limits as one clamp, no wrapping of ids that are never negative.

Bitwise the same, infinities too, NaN stays NaN. Float limits of zero, and of what a device may take for zero, stay as
they are: which zero a maximum of −0.0 and 0.0 gives is its own affair. What chooses numbers in the place of infinities,
as `nan_to_num`, is no clamp: a clamp may take the smallest numbers for zero, a choice does not.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

import jax.numpy as jnp
import numpy as np
from jax.extend.core.primitives import clamp_p

from ..graphs.nodes import DeviceOp, Literal, Tensor
from .meaning import Operand

_Tensors = Mapping[str, Tensor]
_Makers = Mapping[str, DeviceOp]

_MOVED: Final = frozenset((
    "broadcast_in_dim", "concatenate", "copy", "reshape", "rev", "slice", "squeeze", "stack", "stop_gradient",
    "transpose",
))  # fmt: skip
"""Ops that give their operands' values and no others."""
_COUNTING: Final = frozenset({"argmax", "argmin", "iota"})
_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip
_DEEPEST: Final = 8  # ops looked through: what is made of two is looked at twice, and so on


def clamped(node: DeviceOp, tensors: _Tensors, makers: _Makers) -> DeviceOp | None:
    """The clamp that a minimum of a maximum is, or a maximum of a minimum, whose limits are numbers in order."""
    outer = _limit(node)
    if outer is None:
        return None
    inner = makers.get(outer[1])
    if inner is None or {node.op, inner.op} != {"min", "max"}:
        return None
    limit = _limit(inner)
    if limit is None:
        return None
    low, high = (limit, outer) if node.op == "min" else (outer, limit)
    a, b = low[0], high[0]
    if (
        np.dtype(a.dtype).kind in "bc"
        or not a.value <= b.value
        or (_is_float(a.dtype) and min(abs(float(a.value)), abs(float(b.value))) < _least(a.dtype))
    ):
        return None
    place = inner.operands.index(limit[1])
    invars = [low[2], inner.equation.invars[place], high[2]]
    equation = node.equation.replace(primitive=clamp_p, params={}, invars=invars)
    return DeviceOp(clamp_p.name, (a, limit[1], b), node.outputs, equation, node.device)


def _limit(node: DeviceOp) -> tuple[Literal, str, Any] | None:
    """Of a minimum or maximum of a tensor and a number: the number, the tensor, and what JAX calls the number."""
    x, y = node.operands
    if isinstance(x, Literal) and isinstance(y, str):
        return x, y, node.equation.invars[0]
    return (y, x, node.equation.invars[1]) if isinstance(x, str) and isinstance(y, Literal) else None


def unwrapped(node: DeviceOp, tensors: _Tensors, makers: _Makers) -> Operand | None:
    """The ids that indexing counts from the end where they are negative, if they never are."""
    which, *cases = node.operands
    test = makers.get(which) if isinstance(which, str) else None
    if test is None or test.op != "lt" or len(cases) != 2 or test.operands[0] != cases[0]:
        return None
    zero = test.operands[1]
    if not isinstance(zero, Literal) or float(zero.value) != 0 or _is_float(zero.dtype):
        return None
    return cases[0] if _from_zero(cases[0], tensors, makers, _DEEPEST) else None


def compared(node: DeviceOp, tensors: _Tensors, makers: _Makers) -> Operand | None:
    """What a comparison gives, where that is known: of two numbers, of zero with what is never below it, of truth."""
    x, y = node.operands
    if isinstance(x, Literal) and isinstance(y, Literal):
        return _truth(_COMPARISONS[node.op](x.value, y.value))
    if isinstance(x, str) and isinstance(y, Literal):
        if y.dtype == "bool" and (node.op, bool(y.value)) in (("ne", False), ("eq", True)):
            return x
        if node.op == "lt" and not node.outputs[0].shape and not _is_float(y.dtype) and float(y.value) == 0:
            return _truth(False) if _from_zero(x, tensors, makers, _DEEPEST) else None
    return None


def decided(node: DeviceOp) -> Operand | None:
    """What `and` or `or` of truths gives where one of them is known."""
    x, y = node.operands
    known, other = (x, y) if isinstance(x, Literal) else (y, x)
    if not isinstance(known, Literal) or known.dtype != "bool":
        return None
    return known if bool(known.value) == (node.op == "or") else other


def _truth(value: object) -> Literal:
    return Literal(np.bool_(value), "bool")


def _from_zero(operand: Operand, tensors: _Tensors, makers: _Makers, depth: int) -> bool:
    """Whether whole numbers are known to be zero or more."""
    if isinstance(operand, Literal):
        return float(operand.value) >= 0
    if np.dtype(tensors[operand].dtype).kind in "ub":
        return True
    maker = makers.get(operand)
    if maker is None or not depth:
        return False
    known = [_from_zero(each, tensors, makers, depth - 1) for each in _of_interest(maker, tensors)]
    if maker.op == "max":
        return any(known)
    if maker.op == "select_n":
        which, _, chosen = maker.operands
        return known[0] and (known[1] or _implies(which, chosen, makers, depth))
    return maker.op in _COUNTING or (bool(known) and all(known))


def _of_interest(maker: DeviceOp, tensors: _Tensors) -> tuple[Operand, ...]:
    """The operands that tell whether a result is zero or more."""
    op, operands = maker.op, maker.operands
    if op in ("max", "min") or op in _MOVED:
        return operands
    if op == "rem":
        return operands[:1]  # it has the sign of what is divided
    if op == "clamp":
        return (operands[0], operands[2])
    if op == "select_n":
        return operands[1:] if len(operands) == 3 else ()
    if op == "convert_element_type" and isinstance(operands[0], str):
        widens = np.can_cast(np.dtype(tensors[operands[0]].dtype), np.dtype(maker.outputs[0].dtype), "safe")
        return operands if widens else ()
    return ()


def _implies(which: Operand, chosen: Operand, makers: _Makers, depth: int) -> bool:
    """Whether a test that holds says that a tensor is zero or more: `(x >= 0) & (x < n)`."""
    test = makers.get(which) if isinstance(which, str) else None
    if test is None or not depth:
        return False
    if test.op == "and":
        return any(_implies(each, chosen, makers, depth - 1) for each in test.operands)
    if test.op not in ("ge", "gt") or test.operands[0] != chosen:
        return False
    least = test.operands[1]
    return isinstance(least, Literal) and float(least.value) >= 0


def _is_float(dtype: str) -> bool:
    return np.dtype(dtype).kind in "fV"  # V: JAX's own floats


def _least(dtype: str) -> float:
    """The smallest number that no device takes for zero."""
    return float(jnp.finfo(np.dtype(dtype)).tiny)  # type: ignore[no-untyped-call]  # JAX types it not
