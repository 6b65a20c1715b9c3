"""A saved graph inside another: its host ops and programs are added to the preprocessing function that is traced."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp

from ...errors import InputError
from .._caller import caller
from ..bundles.bundle import Bundle
from ..graphs.graph import Graph
from ..graphs.nodes import BATCH, LIST_DTYPES, DeviceStage, HostNode, Tensor
from ..ragged.feeding import lengths_of
from ..tracing.columns import Column, Fact, Size, read
from ..tracing.objects import remember
from ..tracing.primitives import CURRENT, GIVEN, bind_analyzer, bind_host, current
from .calling import Call

_DEVICE = {"int64": "int32", "float64": "float32"}


def on_columns(
    bundle: Bundle,
    graph: Graph,
    signature: str,
    calls: Mapping[str, Call],
    inputs: Mapping[str, Any],
    name: str,
) -> dict[str, Any]:  # Any: columns and JAX arrays, as ops give them
    """Add a signature's graph to the running trace: outputs by name. Its checks hold in the new graph too.

    Args:
        bundle: Holds weights and assets.
        graph: The signature's part of its graph.
        signature: Which.
        calls: Its programs.
        inputs: The columns it reads.
        name: The module's, for errors.

    Raises:
        InputError: No preprocessing function is being traced, a column is of another type, or the graph works on
            lists of any length.
    """
    if CURRENT.get() is None:
        ops = ", ".join(sorted({node.op for node in graph.nodes if isinstance(node, HostNode)}))
        raise InputError(
            f"{name} runs on the host first ({ops or 'on columns'}) and was called on arrays",
            fix="call it in preprocess(columns); or run its bundle: module.bundle.run(…)",
            where=caller(),
        )
    if lengths_of(graph.nodes):
        raise InputError(
            f"{name} works on lists of any length, which cannot be part of another graph yet",
            fix="apply its bundle to the data first, or publish a model of fixed widths",
            where=caller(),
        )
    env: dict[str, Any] = {}
    for key, tensor in graph.inputs.items():
        env[tensor.id] = _handle(key, tensor, inputs[key], name)
    for node in graph.nodes:
        if isinstance(node, HostNode):
            read_by = [env[tensor] for tensor in node.inputs]
            assets = [_asset(bundle, asset) for asset in node.assets]
            outputs = [(tensor.dtype, tensor.shape, tensor.column) for tensor in node.outputs]
            results = bind_host(node.op, [*read_by, *assets], outputs, node.params)
        elif isinstance(node, DeviceStage):
            arguments = [
                zeros_for(*slot, current().batch) if tensor is None else env[tensor]
                for tensor, slot in zip(node.inputs, node.slots, strict=True)
            ]
            results = calls[node.program](
                *arguments, *(jnp.asarray(bundle.payload.weights[each]) for each in node.weights)
            )
        else:
            raise InputError(f"{name} holds a node that is not lowered", fix="publish a saved bundle")
        env.update(zip((tensor.id for tensor in node.outputs), results, strict=True))
    for check in graph.checks.get(signature, ()):
        current().check(env[check.tensor], check.message, check.where)
    tensors = graph.tensors()
    return {
        key: _public(key, tensors[out.tensor], env[out.tensor], out.size)
        for key, out in graph.signatures[signature].items()
    }


def zeros_for(dtype: str, shape: tuple[str | int, ...], batch: Any) -> Any:  # Any: a symbolic dimension; a JAX array
    """Zeros for an input that nothing depends on."""
    return jnp.zeros([batch if dim == BATCH else dim for dim in shape], dtype)


def _handle(key: str, tensor: Tensor, value: Any, name: str) -> Any:  # Any: a tracer
    """A column or array of the trace as the input that the saved graph takes."""
    if not tensor.column:
        return jnp.asarray(value)
    column = read(value, f"given to {name}")
    column._check_readable()
    host_kind = column.fact.host if column.fact.handle is not None else None
    if host_kind is None:
        kind = column.values.dtype.kind
        host_kind = {"b": "bool", "i": "int64", "u": "int64"}.get(kind, "float64")
    if host_kind != tensor.dtype or (tensor.dtype not in LIST_DTYPES and column.item is not None):
        raise InputError(
            f"input {key!r} of {name} takes {_DEVICE.get(tensor.dtype, tensor.dtype)}, "
            f"column {column.name!r} is {_DEVICE.get(host_kind, host_kind)}",
            fix=f"ops.cast it to {_DEVICE.get(tensor.dtype, tensor.dtype)!r}",
            where=caller(),
        )
    if not column.on_host and column.fact.handle is None and column.values.ndim != 1:
        raise InputError(f"input {key!r} of {name} takes one value per row", fix="give a column", where=caller())
    return column.handle


def _asset(bundle: Bundle, asset: str) -> Any:  # Any: a tracer
    """A vocabulary of the saved graph, as one of the new graph whose words are known already."""
    params = {"table": remember(bundle.payload.assets[asset]), "column": asset}
    return bind_analyzer(GIVEN, [], ("vocabulary", ()), params)


def _public(key: str, tensor: Tensor, value: Any, size: int | None) -> Any:  # Any: a Column or a JAX array
    if tensor.column:
        dtype = _DEVICE.get(tensor.dtype, tensor.dtype)
        return Column(key, dtype, Fact(key, value, tensor.dtype)).public()
    floating = jnp.issubdtype(value.dtype, jnp.floating)
    return current().note(value, Fact(key, complete=not floating, size=None if size is None else Size(size)))
