"""Functions with state as bundles: the state goes in and comes out by name, and its first value is saved beside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import jax
import numpy as np
from numpy.typing import NDArray

from ...errors import InputError
from .._caller import caller
from ..graphs.graph import Graph, Output
from ..graphs.nodes import ARRAY_DTYPES, BATCH, DeviceOp, DeviceStage, Tensor
from ..lowering.lower import PLATFORMS, export_program
from ..lowering.programs import Payload, node_failed
from ..tracing.equations import as_function, aval_of, function_of
from ..tracing.primitives import in_32_bits, shaped
from .bundle import Bundle
from .manifest import export_facts

_CAPTURED: Final = "function/"
_STATE: Final = "state/"


@in_32_bits
def export_stateful(
    graph: Graph, state: Mapping[str, Any], out: Path, *, platforms: Sequence[str] = PLATFORMS
) -> Bundle:
    """Save what `stateful` gave: a running mean, a counter, a step of training.

    The bundle's one signature takes the function's inputs and its state, and gives its results and the next state, each
    state under its own name; `initial_state` is what it starts with, and `step` carries it on.

    Args:
        graph: With updates; all on the device.
        state: Argument → its first value, an array or a tree of arrays, as the function takes it.
        out: The folder to write; new or empty.
        platforms: What the program is lowered for.

    Returns:
        The bundle as saved.

    Raises:
        InputError: The graph has no updates; a value of the state is missing, not asked for, or of another shape or
            dtype; a shape has a symbolic dimension other than the batch, "b".
    """
    (signature,) = graph.signatures
    updates = graph.updates.get(signature, {})
    ops = [node for node in graph.nodes if isinstance(node, DeviceOp)]
    if not updates or len(ops) < len(graph.nodes):
        raise InputError(
            "this is not a function with updates", fix="make state of arguments: stateful(…)", where=caller()
        )
    inputs = {**graph.inputs, **{name: graph.weights[name] for name in updates}}
    held = [name for name in graph.weights if name not in updates]
    results = {**{name: out.tensor for name, out in graph.signatures[signature].items()}, **updates}
    tensors = graph.tensors()
    outputs = tuple(
        Tensor(f"next/{name}", tensors[tensor_id].dtype, tensors[tensor_id].shape)
        for name, tensor_id in results.items()
    )
    for name, tensor in [*inputs.items(), *zip(results, outputs, strict=True)]:
        _check(name, tensor)
    values = {
        f"{name}{jax.tree_util.keystr(path)}": np.asarray(leaf)
        for name, tree in state.items()
        for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]
    }
    odd = values.keys() ^ updates.keys()
    if odd:
        mismatch = f"the state is {', '.join(updates)}; {', '.join(sorted(odd))} is missing, or none of it"
        raise InputError(mismatch, fix="give first values for the arguments that stateful(…) named", where=caller())
    first = {name: _fitting(graph.weights[name], values[name], name) for name in updates}
    arguments = [*inputs.values(), *(graph.weights[name] for name in held)]
    run = as_function(function_of(graph, ops, [tensor.id for tensor in arguments], list(results.values())))
    avals = [aval_of(tensor, graph.dims) for tensor in arguments]
    blob = export_program(run, [shaped(aval.shape, aval.dtype) for aval in avals], platforms)
    stage = DeviceStage(
        f"{signature}-0",
        tuple(tensor.id for tensor in inputs.values()),
        tuple((tensor.dtype, tensor.shape) for tensor in inputs.values()),
        tuple(_CAPTURED + name for name in held),
        outputs,
        needs=(tuple(range(len(inputs))),) * len(outputs),
    )
    weights = {_CAPTURED + name: np.asarray(graph.values[name]) for name in held}
    weights |= {_STATE + name: array for name, array in first.items()}
    named = {name: Output(tensor.id) for name, tensor in zip(results, outputs, strict=True)}
    payload = Payload({stage.program: blob}, weights, {})
    bundle = Bundle(Graph(inputs, (stage,), {signature: named}), payload, export_facts(tuple(platforms)))
    bundle.save(out)
    return bundle


def initial_state(bundle: Bundle) -> dict[str, NDArray[Any]]:
    """What the state of a saved function starts with, by name; empty for what has no state."""
    held = bundle.payload.weights.items()
    return {name.removeprefix(_STATE): array for name, array in held if name.startswith(_STATE)}


def step(
    bundle: Bundle, inputs: Mapping[str, Any], state: Mapping[str, Any] | None = None, *, signature: str = "call"
) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
    """Evaluate a signature that takes arrays, such as those that `export_stateful` and the hub save.

    Nothing in the bundle changes: the caller keeps the next state and gives it to the next call.

    Args:
        bundle: As saved or loaded.
        inputs: Arrays by name, of the signature's shapes, with a batch in front where they have one.
        state: By name; unless given, `initial_state`.
        signature: Which.

    Returns:
        The outputs, and the next state.

    Raises:
        InputError: No such signature, or it takes columns; an array is missing, or of another shape or dtype.
    """
    graph = bundle.graph.signature(signature)
    first = initial_state(bundle)
    stages = [node for node in graph.nodes if isinstance(node, DeviceStage)]
    if len(stages) < len(graph.nodes) or any(tensor.column for tensor in graph.inputs.values()):
        raise InputError(f"{signature!r} takes columns", fix="use bundle.run or bundle.run_row")
    arrays_by_name = {**inputs, **(first if state is None else state)}
    missing = [name for name in graph.inputs if name not in arrays_by_name]
    if missing:
        raise InputError(f"{signature!r} needs {missing[0]!r}", fix=f"give {', '.join(graph.inputs)}")
    env = {tensor.id: _fitting(tensor, arrays_by_name[name], name) for name, tensor in graph.inputs.items()}
    rows = next((len(env[tensor.id]) for tensor in graph.inputs.values() if tensor.batched), 1)
    for stage in stages:
        slots = zip(stage.inputs, stage.slots, strict=True)
        arrays = [_zeros(*slot, rows) if name is None else env[name] for name, slot in slots]
        try:
            results = bundle._programs(stage, arrays)
        except InputError:
            raise
        except Exception as error:  # what a bundle says need not fit together
            raise node_failed(stage, error) from error
        env.update(zip((tensor.id for tensor in stage.outputs), map(np.asarray, results), strict=True))
    outputs = {name: env[out.tensor] for name, out in bundle.graph.signatures[signature].items()}
    later = {name: outputs.pop(name) for name in first if name in outputs}
    return outputs, later


def _fitting(tensor: Tensor, value: Any, name: str) -> NDArray[Any]:
    """A value as an array of a tensor's dtype and shape.

    Raises:
        InputError: It is of another shape, or its dtype would lose something.
    """
    array = np.asarray(value)
    like = array.dtype == tensor.dtype or np.can_cast(array.dtype, np.dtype(tensor.dtype), "same_kind")
    shape = tuple(size if dim == BATCH else dim for dim, size in zip(tensor.shape, array.shape, strict=False))
    if not like or len(array.shape) != len(tensor.shape) or array.shape != shape:
        wanted = f"{tensor.dtype}[{','.join(map(str, tensor.shape))}]"
        raise InputError(f"{name!r} is {array.dtype}{list(array.shape)}, not {wanted}", fix="give it as that")
    return array.astype(tensor.dtype, copy=False)


def _zeros(dtype: str, shape: tuple[str | int, ...], rows: int) -> NDArray[Any]:
    return np.zeros([rows if isinstance(dim, str) else dim for dim in shape], np.dtype(dtype))


def _check(name: str, tensor: Tensor) -> None:
    symbols = [dim for axis, dim in enumerate(tensor.shape) if isinstance(dim, str) and (axis, dim) != (0, BATCH)]
    if tensor.dtype not in ARRAY_DTYPES or symbols:
        raise InputError(
            f"{name} is {tensor.dtype}[{','.join(map(str, tensor.shape))}], which no bundle holds",
            fix=f'arrays of {", ".join(ARRAY_DTYPES)} whose first dimension alone may be "b"; of a key its key_data',
            where=caller(),
        )
