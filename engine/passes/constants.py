"""What can be known before a graph runs: work on known weights is done once, work for training alone is dropped."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any, Final

import jax
import numpy as np
from jax.extend import core as jex

from ..graphs.graph import Graph
from ..graphs.nodes import DeviceOp, GraphNode, Tensor
from ..tracing.equations import as_function, function_of, is_captured
from ..tracing.marks import TRAINING_ONLY
from .bodies import in_bodies
from .meaning import Operand, renamed, with_meaning
from .structural import callee, changing, expanded, prune

_SMALL: Final = 4096  # bytes: a folded result may be this large, or as large as what it is made of
_RANDOM: Final = ("random_", "threefry", "rng_")


def drop_training(graph: Graph) -> Graph:
    """Without dropout and `debug_assert`, in functions, loops and branches too: each gives back its first operand."""
    return prune(_dropped(graph))


def _dropped(graph: Graph) -> Graph:
    held: dict[int, bool] = {}
    graph = expanded(graph, lambda node: callee(node) if not _marked(node.equation) and _holds(node, held) else None)
    meaning: dict[str, Operand] = {}
    nodes: list[GraphNode] = []
    for node in graph.nodes:
        node = renamed(node, meaning)
        if isinstance(node, DeviceOp) and _marked(node.equation):
            meaning[node.outputs[0].id] = node.operands[0]
        else:
            nodes.append(node)
    outer = with_meaning(replace(graph, nodes=tuple(nodes)), meaning) if meaning else graph
    return in_bodies(outer, drop_training, lambda jaxpr: _trains(jaxpr, held))


def _marked(equation: Any) -> bool:  # a jax.extend.core.JaxprEqn
    return str(equation.params.get("name", "")).startswith(TRAINING_ONLY)


def _holds(node: DeviceOp, held: dict[int, bool]) -> bool:
    return any(_trains(getattr(jaxpr, "jaxpr", jaxpr), held) for jaxpr in jex.jaxprs_in_params(node.equation.params))


def _trains(jaxpr: Any, held: dict[int, bool]) -> bool:  # a jax.extend.core.Jaxpr
    """Whether something marked for training alone stands in a jaxpr, however deep."""
    found = held.get(id(jaxpr))
    if found is None:
        found = held[id(jaxpr)] = any(
            _marked(equation)
            or any(_trains(getattr(j, "jaxpr", j), held) for j in jex.jaxprs_in_params(equation.params))
            for equation in jaxpr.eqns
        )
    return found


def fold(graph: Graph) -> Graph:
    """With the results of ops on known weights alone as weights: computed here, in one compiled program.

    For export: compiling costs more than it saves in a process that runs the graph once. What would become larger
    than it was (a broadcast, say) stays as it is.
    """
    kept = changing(graph)
    sizes = {name: value.nbytes for name, value in graph.values.items() if name not in kept}
    sources = {name: frozenset([name]) for name in sizes}
    folded: list[DeviceOp] = []
    for node in graph.nodes:
        if isinstance(node, DeviceOp) and _foldable(node, sizes):
            size = sum(map(_bytes, node.outputs))
            if size <= max(_SMALL, sum(sizes[name] for name in set(node.inputs))):
                folded.append(node)
                sizes.update((tensor.id, _bytes(tensor)) for tensor in node.outputs)
                origin = frozenset[str]().union(*(sources[name] for name in node.inputs))
                sources.update((tensor.id, origin) for tensor in node.outputs)
    if not folded:
        return graph
    done = set(map(id, folded))
    rest = tuple(node for node in graph.nodes if id(node) not in done)
    read = {name for node in rest for name in node.inputs} | {r for s in graph.signatures for r in graph.roots(s)}
    made = [tensor for node in folded for tensor in node.outputs if tensor.id in read]
    own = {tensor.id for node in folded for tensor in node.outputs}
    given = list(dict.fromkeys(name for node in folded for name in node.inputs if name not in own))
    run = as_function(function_of(graph, folded, given, [tensor.id for tensor in made]))
    arrays = jax.jit(lambda *weights: run(*weights))(*(graph.values[name] for name in given))
    names: list[str] = []
    for tensor in made:
        names.append(folded_name(sources[tensor.id], {*graph.weights, *names}))
    meaning: dict[str, Operand] = {tensor.id: name for tensor, name in zip(made, names, strict=True)}
    values = {name: np.asarray(array) for name, array in zip(names, arrays, strict=True)}
    weights = {name: Tensor(name, tensor.dtype, tensor.shape) for tensor, name in zip(made, names, strict=True)}
    whole = replace(
        graph,
        nodes=tuple(renamed(node, meaning) for node in rest),
        weights={**graph.weights, **weights},
        values={**graph.values, **values},
    )
    return prune(with_meaning(whole, meaning))


def folded_name(sources: Iterable[str], taken: Collection[str]) -> str:
    """A new weight's name: that of the one weight it is made of, marked, so that a reader of a bundle finds it."""
    named = [name for name in sources if not is_captured(name) and not name.startswith("folded")]
    stem = named[0].split(":folded")[0] if len(named) == 1 else "folded"
    return next(name for n in range(len(taken) + 1) if (name := f"{stem}:folded{n or ''}") not in taken)


def _foldable(node: DeviceOp, known: dict[str, int]) -> bool:
    fixed = all(isinstance(dim, int) for tensor in node.outputs for dim in tensor.shape)
    plain = not node.equation.effects and not node.op.startswith(_RANDOM)
    return bool(node.inputs) and fixed and plain and all(name in known for name in node.inputs)


def _bytes(tensor: Tensor) -> int:
    return int(np.prod([dim for dim in tensor.shape if isinstance(dim, int)])) * np.dtype(tensor.dtype).itemsize
