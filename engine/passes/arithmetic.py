"""Arithmetic simplification, only where the result is the same to the bit: for NaN, infinities and −0 too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import numpy as np

from ..graphs.graph import Graph
from ..graphs.nodes import DeviceOp, GraphNode, Literal, Tensor
from .structural import Operand, renamed, with_meaning


def simplify(graph: Graph) -> Graph:
    """Without ops that give back an operand: x·1, x/1, x−0, casts to the same dtype, transposes that cancel."""
    tensors = graph.tensors()
    makers: dict[str, DeviceOp] = {}
    meaning: dict[str, Operand] = {}
    nodes: list[GraphNode] = []
    for node in graph.nodes:
        node = renamed(node, meaning)
        if isinstance(node, DeviceOp):
            rule = _RULES.get(node.op)
            same = rule(node, tensors, makers) if rule is not None else None
            if same is not None and _alike(same, node.outputs[0], tensors):
                meaning[node.outputs[0].id] = same
                continue
            makers.update((tensor.id, node) for tensor in node.outputs)
        nodes.append(node)
    return with_meaning(replace(graph, nodes=tuple(nodes)), meaning)


_Rule = Callable[[DeviceOp, dict[str, Tensor], dict[str, DeviceOp]], Operand | None]


def _alike(operand: Operand, output: Tensor, tensors: dict[str, Tensor]) -> bool:
    """Whether an operand has the dtype and shape of what it would stand for."""
    if isinstance(operand, Literal):
        return operand.dtype == output.dtype and output.shape == ()
    found = tensors[operand]
    return (found.dtype, found.shape) == (output.dtype, output.shape)


def _is(operand: Operand, value: float) -> bool:
    """Whether an operand is this very number; 0.0 is not −0.0."""
    if not isinstance(operand, Literal):
        return False
    number = np.asarray(operand.value)
    return bool(number == value) and (number.dtype.kind != "f" or np.signbit(number) == np.signbit(value))


def _neutral(value: float, *, left: bool) -> _Rule:
    """A rule: an op with this number on the right (or, if `left`, on either side) gives the other operand."""

    def rule(node: DeviceOp, tensors: dict[str, Tensor], makers: dict[str, DeviceOp]) -> Operand | None:
        x, y = node.operands
        if _is(y, value):
            return x
        return y if left and _is(x, value) else None

    return rule


def _add(node: DeviceOp, tensors: dict[str, Tensor], makers: dict[str, DeviceOp]) -> Operand | None:
    # x + 0.0 is no identity for floats: −0.0 + 0.0 is 0.0.
    kind = np.dtype(node.outputs[0].dtype).kind if node.outputs[0].dtype != "bfloat16" else "f"
    return _neutral(-0.0 if kind == "f" else 0, left=True)(node, tensors, makers)


def _first(node: DeviceOp, tensors: dict[str, Tensor], makers: dict[str, DeviceOp]) -> Operand | None:
    """Its first operand, if nothing about it changes."""
    return node.operands[0]


def _twice(node: DeviceOp, tensors: dict[str, Tensor], makers: dict[str, DeviceOp]) -> Operand | None:
    """Undone by the same op again."""
    (x,) = node.operands
    inner = makers.get(x) if isinstance(x, str) else None
    return inner.operands[0] if inner is not None and inner.op == node.op else None


def _transposed(node: DeviceOp, tensors: dict[str, Tensor], makers: dict[str, DeviceOp]) -> Operand | None:
    (x,) = node.operands
    order = list(node.equation.params["permutation"])
    if order == sorted(order):
        return x
    inner = makers.get(x) if isinstance(x, str) else None
    if inner is None or inner.op != "transpose":
        return None
    first = inner.equation.params["permutation"]
    return inner.operands[0] if [first[place] for place in order] == sorted(order) else None


def _same_both(node: DeviceOp, tensors: dict[str, Tensor], makers: dict[str, DeviceOp]) -> Operand | None:
    x, y = node.operands
    return x if isinstance(x, str) and x == y else None


def _selected(node: DeviceOp, tensors: dict[str, Tensor], makers: dict[str, DeviceOp]) -> Operand | None:
    which, *cases = node.operands
    if isinstance(which, Literal):
        return cases[int(which.value)]
    return cases[0] if isinstance(cases[0], str) and all(case == cases[0] for case in cases) else None


_RULES: Final[dict[str, _Rule]] = {
    "mul": _neutral(1, left=True),
    "div": _neutral(1, left=False),
    "sub": _neutral(0, left=False),
    "add": _add,
    "neg": _twice,
    "not": _twice,
    "rev": lambda node, tensors, makers: None if node.equation.params["dimensions"] else node.operands[0],
    "transpose": _transposed,
    "max": _same_both,
    "min": _same_both,
    "and": _same_both,
    "or": _same_both,
    "select_n": _selected,
    "copy": _first,
    "convert_element_type": _first,
    "stop_gradient": _first,
    "reshape": lambda node, tensors, makers: None if node.equation.params["dimensions"] else node.operands[0],
    "broadcast_in_dim": _first,
    "squeeze": _first,
}
