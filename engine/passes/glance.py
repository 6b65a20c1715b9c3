"""A first look at a graph: where there is nothing to find, passes are spared for a fraction of what they cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..graphs.graph import Graph
from ..graphs.nodes import DeviceOp, Tensor
from ..tracing.equations import is_captured
from .arithmetic import simpler, simplify
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
    read: set[str | None] = {output.tensor for outputs in graph.signatures.values() for output in outputs.values()}
    if graph.updates or graph.checks:
        read.update(root for name in graph.signatures for root in graph.roots(name))
    tensors: dict[str, Tensor] = {tensor.id: tensor for tensor in graph.inputs.values()}
    tensors.update(graph.weights)
    makers: dict[str, DeviceOp] = {}
    ops: list[DeviceOp] = []
    done = set()
    for node in graph.nodes:
        if not isinstance(node, DeviceOp) or node.op in CALLED:
            return False
        names = []
        for operand in node.operands:
            names.append(operand if isinstance(operand, str) else None)
        key = (node.op, *names)
        if key in done or simpler(node, tensors, makers) is not None:
            return False
        ops.append(node)
        done.add(key)
        read.update(names)
        for tensor in node.outputs:
            tensors[tensor.id] = tensor
            makers[tensor.id] = node
    given = [tensor.id for tensor in graph.inputs.values()]
    if not read.issuperset(given) or not read.issuperset(graph.weights):
        return False
    for node in ops:
        if read.isdisjoint([tensor.id for tensor in node.outputs]) and not node.equation.effects:
            return False
        if node.op in BODIES and not tidy(node, read):
            return False
    captured = [(value.dtype, value.shape) for name, value in graph.values.items() if is_captured(name)]
    return len(set(captured)) == len(captured)
