"""Call a traced graph that is all on the device: as one jitted program, without a bundle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax

from ...errors import InputError
from ..graphs.graph import Graph
from ..graphs.nodes import DeviceOp
from ..tracing.equations import as_function, aval_of, function_of
from ..tracing.primitives import shaped
from .lapack import load_lapack

Arrays = Mapping[str, Any]  # name → a JAX or numpy array


def callable_of(graph: Graph, signature: str | None = None) -> Callable[[Arrays], dict[str, Any]]:
    """A function from inputs (and weights whose values the graph does not know) to the signature's outputs, by name.

    Args:
        graph: As traced, of device ops alone.
        signature: Which; the only one if there is one.

    Raises:
        InputError: There are host nodes, which only a bundle can run; or a name is missing when it is called.
    """
    part, run, names = _program(graph, signature)
    avals = {**{name: aval_of(t, part.dims) for name, t in part.inputs.items()}}
    avals.update((name, aval_of(tensor, part.dims)) for name, tensor in part.weights.items())
    if part.dims:  # a symbolic dimension stands in the equations too: only an exported program takes any size
        load_lapack()
        shapes = [shaped(aval.shape, aval.dtype) for aval in avals.values()]
        run = jax.export.export(jax.jit(run))(*shapes).call
    jitted = jax.jit(run)

    def call(arrays: Arrays) -> dict[str, Any]:
        known = {**part.values, **arrays}
        missing = [name for name in avals if name not in known]
        if missing:
            raise InputError(f"no value for {missing[0]!r}", fix=f"give {', '.join(missing)}")
        return dict(zip(names, jitted(*(known[name] for name in avals)), strict=True))

    return call


def _program(graph: Graph, signature: str | None) -> tuple[Graph, Callable[..., Any], list[str]]:
    """The part of a graph that a signature needs, as a function of its inputs and weights; names of the results."""
    if signature is None:
        (signature,) = graph.signatures
    part = graph.signature(signature)
    ops = [node for node in part.nodes if isinstance(node, DeviceOp)]
    other = next((node for node in part.nodes if not isinstance(node, DeviceOp)), None)
    if other is not None:
        raise InputError(f"{other!s:.80} is not a device op", fix="save the graph in a bundle, and run that")
    outputs = part.signatures[signature]
    updates = part.updates.get(signature, {})
    names = [*outputs, *updates]
    wanted = [*(output.tensor for output in outputs.values()), *updates.values()]
    arguments = [*(tensor.id for tensor in part.inputs.values()), *part.weights]
    return part, as_function(function_of(part, ops, arguments, wanted)), names
