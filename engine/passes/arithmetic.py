"""Arithmetic simplification, only where the result is the same to the bit: for infinities and −0 too, NaN stays NaN."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Final

import numpy as np

from ..graphs.graph import Graph
from ..graphs.nodes import DeviceOp, GraphNode, Literal, Tensor
from .bounds import clamped, compared, decided, unwrapped
from .meaning import Operand, renamed, with_meaning
from .structural import Done


def simplify(graph: Graph) -> Graph:
    """Without ops that give back an operand: x·1, x/1, x−0, exact casts there and back, transposes that cancel.

    Of two casts, reshapes, broadcasts or transposes one after the other the second does the work of both, and so does
    one clamp that of two limits. Ids that are known not to be negative are not wrapped. What is equal then is shared.
    """
    tensors = {tensor.id: tensor for tensor in (*graph.inputs.values(), *graph.weights.values())}
    makers: dict[str, DeviceOp] = {}
    done = Done(graph)
    meaning = done.meaning
    nodes: list[GraphNode] = []
    changed = False
    for node in graph.nodes:
        node = renamed(node, meaning)
        if isinstance(node, DeviceOp):
            found = simpler(node, tensors, makers)
            while isinstance(found, DeviceOp):
                changed, node = True, found
                found = simpler(node, tensors, makers)
            if found is not None:
                meaning[node.outputs[0].id] = found
                continue
        if done.again(node):  # what is simpler may be equal by now
            continue
        nodes.append(node)
        for tensor in node.outputs:
            tensors[tensor.id] = tensor
            if isinstance(node, DeviceOp):
                makers[tensor.id] = node
    return with_meaning(replace(graph, nodes=tuple(nodes)), meaning) if meaning or changed else graph


_Rule = Callable[[DeviceOp, dict[str, Tensor], dict[str, DeviceOp]], Operand | DeviceOp | None]
"""What a node gives, if it is an operand; or the node that does its work and that of the one before."""


def simpler(node: DeviceOp, tensors: dict[str, Tensor], makers: dict[str, DeviceOp]) -> Operand | DeviceOp | None:
    """The operand that a node gives back, or a node that does as much with less; None where no rule applies.

    Args:
        node: Reads the tensors.
        tensors: By id, all that came before.
        makers: The ops that made them.
    """
    rule = _RULES.get(node.op)
    found = rule(node, tensors, makers) if rule is not None else None
    if found is None or isinstance(found, DeviceOp) or _alike(found, node.outputs[0], tensors):
        return found
    return None


def _alike(operand: Operand, output: Tensor, tensors: dict[str, Tensor]) -> bool:
    """Whether an operand has the dtype and shape of what it would stand for."""
    if isinstance(operand, Literal):
        return operand.dtype == output.dtype and output.shape == ()
    found = tensors[operand]
    return (found.dtype, found.shape) == (output.dtype, output.shape)


def _is(operand: Operand, value: float) -> bool:
    """Whether an operand is this very number; 0.0 is not −0.0, and (∞ + i)·1 is no identity."""
    if not isinstance(operand, Literal) or operand.dtype.startswith("complex"):
        return False
    number = float(operand.value)  # JAX's own numbers take microseconds to compare
    return number == value and math.copysign(1.0, number) == math.copysign(1.0, value)


@cache
def _kind(dtype: str) -> str:
    """A dtype's kind as numpy has it, f for JAX's own floats too."""
    kind = np.dtype(dtype).kind
    return "f" if kind == "V" else kind


def _neutral(value: float, *, left: bool) -> _Rule:
    """A rule: an op with this number on the right (or, if `left`, on either side) gives the other operand."""

    def rule(node: DeviceOp, tensors: dict[str, Tensor], makers: dict[str, DeviceOp]) -> Operand | DeviceOp | None:
        x, y = node.operands
        return x if _is(y, value) else y if left and _is(x, value) else None

    return rule


_ADDED: Final = _neutral(0, left=True)
_ADDED_FLOAT: Final = _neutral(-0.0, left=True)


def _add(node: DeviceOp, tensors: dict[str, Tensor], makers: dict[str, DeviceOp]) -> Operand | DeviceOp | None:
    # x + 0.0 is no identity for floats: −0.0 + 0.0 is 0.0.
    return (_ADDED_FLOAT if _kind(node.outputs[0].dtype) == "f" else _ADDED)(node, tensors, makers)


def _first(node: DeviceOp, tensors: dict[str, Tensor], makers: dict[str, DeviceOp]) -> Operand | DeviceOp | None:
    """Its first operand, if nothing about it changes."""
    return node.operands[0]


def _twice(node: DeviceOp, tensors: dict[str, Tensor], makers: dict[str, DeviceOp]) -> Operand | DeviceOp | None:
    """Undone by the same op again."""
    (x,) = node.operands
    inner = makers.get(x) if isinstance(x, str) else None
    return inner.operands[0] if inner is not None and inner.op == node.op else None


def _before(node: DeviceOp, makers: dict[str, DeviceOp]) -> DeviceOp | None:
    """What made the operand, if that is an op of the same kind on a tensor."""
    x = node.operands[0]
    inner = makers.get(x) if isinstance(x, str) and len(node.operands) == 1 else None
    alike = inner is not None and inner.op == node.op and len(inner.operands) == 1
    return inner if alike and inner is not None and isinstance(inner.operands[0], str) else None


def _after(node: DeviceOp, inner: DeviceOp, **params: object) -> DeviceOp:
    """The node on what another was made of, with other params."""
    equation = node.equation.replace(params={**node.equation.params, **params}) if params else node.equation
    return DeviceOp(node.op, inner.operands, node.outputs, equation, node.device)


def _transposed(node: DeviceOp, tensors: dict[str, Tensor], makers: dict[str, DeviceOp]) -> Operand | DeviceOp | None:
    order = list(node.equation.params["permutation"])
    if order == sorted(order):
        return node.operands[0]
    inner = _before(node, makers)
    if inner is None:
        return None
    first = inner.equation.params["permutation"]
    whole = [first[place] for place in order]
    return inner.operands[0] if whole == sorted(order) else _after(node, inner, permutation=tuple(whole))


def _cast(node: DeviceOp, tensors: dict[str, Tensor], makers: dict[str, DeviceOp]) -> Operand | DeviceOp | None:
    inner = _before(node, makers)
    if inner is None:
        return node.operands[0]
    source, between, target = tensors[str(inner.operands[0])].dtype, inner.outputs[0].dtype, node.outputs[0].dtype
    if _kind(between) not in "iub" and _kind(source) in "iu" and _kind(target) in "iu":
        # Of what is too large a cast from a float gives the largest number, one from a whole number wraps around.
        return _after(node, inner) if _exact(source, between) and _exact(source, target) else node.operands[0]
    return _after(node, inner) if _exact(source, between) else node.operands[0]


@cache
def _exact(source: str, target: str) -> bool:
    """Whether every value of a dtype is one of another."""
    return bool(np.can_cast(np.dtype(source), np.dtype(target), "safe"))


def _reshaped(node: DeviceOp, tensors: dict[str, Tensor], makers: dict[str, DeviceOp]) -> Operand | DeviceOp | None:
    if node.equation.params["dimensions"] is not None:
        return None
    inner = _before(node, makers)
    plain = inner is not None and inner.equation.params["dimensions"] is None
    return _after(node, inner) if plain and inner is not None else node.operands[0]


def _broadcast(node: DeviceOp, tensors: dict[str, Tensor], makers: dict[str, DeviceOp]) -> Operand | DeviceOp | None:
    inner = _before(node, makers)
    if inner is None:
        return node.operands[0]
    outer = node.equation.params["broadcast_dimensions"]
    places = tuple(outer[dim] for dim in inner.equation.params["broadcast_dimensions"])
    return _after(node, inner, broadcast_dimensions=places)


def _same_both(node: DeviceOp, tensors: dict[str, Tensor], makers: dict[str, DeviceOp]) -> Operand | DeviceOp | None:
    x, y = node.operands
    return x if isinstance(x, str) and x == y else None


def _selected(node: DeviceOp, tensors: dict[str, Tensor], makers: dict[str, DeviceOp]) -> Operand | DeviceOp | None:
    which, *cases = node.operands
    if isinstance(which, Literal):
        return cases[int(which.value)]
    if isinstance(cases[0], str) and all(case == cases[0] for case in cases):
        return cases[0]
    return unwrapped(node, tensors, makers)


def _decided(node: DeviceOp, tensors: dict[str, Tensor], makers: dict[str, DeviceOp]) -> Operand | DeviceOp | None:
    return _same_both(node, tensors, makers) or decided(node)


def _bounded(node: DeviceOp, tensors: dict[str, Tensor], makers: dict[str, DeviceOp]) -> Operand | DeviceOp | None:
    return _same_both(node, tensors, makers) or clamped(node, tensors, makers)


_RULES: Final[dict[str, _Rule]] = {
    "mul": _neutral(1, left=True),
    "div": _neutral(1, left=False),
    "sub": _neutral(0, left=False),
    "add": _add,
    "neg": _twice,
    "not": _twice,
    "rev": lambda node, tensors, makers: None if node.equation.params["dimensions"] else node.operands[0],
    "transpose": _transposed,
    "max": _bounded,
    "min": _bounded,
    "and": _decided,
    "or": _decided,
    "eq": compared,
    "ne": compared,
    "lt": compared,
    "le": compared,
    "gt": compared,
    "ge": compared,
    "select_n": _selected,
    "copy": _first,
    "convert_element_type": _cast,
    "stop_gradient": _first,
    "reshape": _reshaped,
    "broadcast_in_dim": _broadcast,
    "squeeze": _first,
}
