"""A first look at a graph: where there is nothing to find, passes are spared for a fraction of what they cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ..graphs.graph import Graph
from ..graphs.nodes import DeviceOp
from ..tracing.equations import is_captured
from .arithmetic import may_be_simpler, simpler, simplify
from .bodies import BODIES, tidy, tidy_bodies
from .constants import drop_training
from .structural import CALLED, forget_gradients, inline, prune, share

SPARED: Final[frozenset[Callable[[Graph], Graph]]] = frozenset(
    {drop_training, forget_gradients, inline, prune, share, simplify, tidy_bodies}
)
"""The passes that give back a graph as it is where `at_rest` says so."""


def at_rest(graph: Graph) -> bool:
    """Whether it is plain to see that no pass of `SPARED` finds anything: False where only the passes can tell.

    The graph is of device ops alone. No op is a call, or gives back an operand; none stands there twice, whatever its
    params and numbers; every result, input and weight is read; loops and branches have tidy bodies.
    """
    ops: list[DeviceOp] = []
    read = {output.tensor for outputs in graph.signatures.values() for output in outputs.values()}
    for node in graph.nodes:
        if not isinstance(node, DeviceOp) or node.op in CALLED:
            return False
        ops.append(node)
        for operand in node.operands:
            if isinstance(operand, str):
                read.add(operand)
    kinds = {node.op for node in ops}
    if len(kinds) < len(ops) and len(set(map(_work, ops))) < len(ops):
        return False
    if graph.updates or graph.checks:
        read.update(root for name in graph.signatures for root in graph.roots(name))
    if not read.issuperset([tensor.id for tensor in graph.inputs.values()]) or not read.issuperset(graph.weights):
        return False
    for node in ops:
        made = [tensor.id in read for tensor in node.outputs]
        if not any(made) and not node.equation.effects:
            return False
        if node.op in BODIES and not tidy(node, made):
            return False
    asked = [node for node in ops if may_be_simpler(node)]
    if asked and _simpler(graph, asked):
        return False
    captured = [(value.dtype, value.shape) for name, value in graph.values.items() if is_captured(name)]
    return len(set(captured)) == len(captured)


def _work(node: DeviceOp) -> tuple[str | None, ...]:
    """What an op does, whatever its params and numbers."""
    return (node.op, *[operand if isinstance(operand, str) else None for operand in node.operands])


def _simpler(graph: Graph, asked: Sequence[DeviceOp]) -> bool:
    """Whether a rule of arithmetic makes one of these ops simpler."""
    tensors = graph.tensors()
    makers = {tensor.id: node for node in graph.nodes if isinstance(node, DeviceOp) for tensor in node.outputs}
    return any(simpler(node, tensors, makers) is not None for node in asked)
