"""Work on known weights is done once, before the graph runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Final

import jax
import numpy as np

from ..graphs.graph import Graph
from ..graphs.nodes import DeviceOp, Tensor
from ..tracing.equations import as_function, function_of, is_captured
from .meaning import Operand, renamed, with_meaning
from .structural import changing, prune

_SMALL: Final = 4096  # bytes: a folded result may be this large, or as large as what it is made of
_RANDOM: Final = ("random_", "threefry", "rng_")


def fold(graph: Graph) -> Graph:
    """With the results of ops on known weights alone as weights: computed here, in one compiled program.

    For export: compiling costs more than it saves in a process that runs the graph once. What would become larger
    than it was (a broadcast, say) stays as it is.
    """
    changing_weights = changing(graph)
    sizes = {name: value.nbytes for name, value in graph.values.items() if name not in changing_weights}
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
    results = [tensor for node in folded for tensor in node.outputs if tensor.id in read]
    inner = {tensor.id for node in folded for tensor in node.outputs}
    known = list(dict.fromkeys(name for node in folded for name in node.inputs if name not in inner))
    run = as_function(function_of(graph, folded, known, [tensor.id for tensor in results]))
    arrays = jax.jit(lambda *weights: run(*weights))(*(graph.values[name] for name in known))
    names: list[str] = []
    for tensor in results:
        names.append(folded_name(sources[tensor.id], {*graph.weights, *names}))
    meaning: dict[str, Operand] = {tensor.id: name for tensor, name in zip(results, names, strict=True)}
    values = {name: np.asarray(array) for name, array in zip(names, arrays, strict=True)}
    weights = {name: Tensor(name, tensor.dtype, tensor.shape) for tensor, name in zip(results, names, strict=True)}
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
