"""From a jaxpr to a graph's device ops, and back: a function made of some of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import jax
import numpy as np
from jax.extend import core as jex
from jax.extend import source_info_util
from numpy.typing import NDArray

from ...errors import InputError
from ..graphs.graph import Graph, Output
from ..graphs.nodes import AnalyzerNode, DeviceOp, GraphNode, HostNode, Literal, Tensor
from .primitives import KIND, settings_of

_NO_SOURCE: Final = jex.DebugInfo("graph", "drivetrain", None, None)
_ON: Final = "on:"


def graph_of_jaxpr(
    closed: Any,  # jax.extend.core.ClosedJaxpr
    inputs: Sequence[tuple[str, Tensor]],
    outputs: Mapping[str, int],
    *,
    weights: Mapping[str, NDArray[Any] | None] | None = None,
    signature: str = "call",
    prefix: str = "",
) -> Graph:
    """The graph of a traced function: one node per equation; arrays that it captured become weights.

    Args:
        closed: Takes the inputs, then the weights.
        inputs: Name and tensor of each input.
        outputs: Output name → place among the jaxpr's results.
        weights: Names of the arrays taken after the inputs, with their values where known.
        signature: The name of the graph's one signature.
        prefix: Starts the ids of what it adds: "transform/".
    """
    builder = Builder(prefix)
    given = dict(weights or {})
    invars: Sequence[Any] = closed.jaxpr.invars
    for (_, tensor), var in zip(inputs, invars, strict=False):
        builder.bind(var, tensor.id)
        builder.note_dims(var.aval.shape)
    held: dict[str, NDArray[Any]] = {}
    tensors: dict[str, Tensor] = {}
    for (name, value), var in zip(given.items(), invars[len(inputs) :], strict=True):
        builder.bind(var, name)
        tensors[name] = Tensor(name, str(var.aval.dtype), _dims(var.aval.shape))
        if value is not None:
            held[name] = value
    builder.add_jaxpr(closed.jaxpr, closed.consts)
    results = [builder.read(var, keep=True) for var in closed.jaxpr.outvars]
    for name, array in builder.constants.items():
        tensors[name] = Tensor(name, str(array.dtype), array.shape)
        held[name] = array
    named = {name: Output(str(results[place])) for name, place in outputs.items()}
    return Graph(dict(inputs), tuple(builder.nodes), {signature: named}, tensors, held, dims=builder.dims)


class Builder:
    """Collects nodes from equations; variables become tensor ids, captured arrays constants, all under a prefix."""

    def __init__(self, prefix: str = "") -> None:
        self.nodes: list[GraphNode] = []
        self.constants: dict[str, NDArray[Any]] = {}
        self.dims: dict[str, Any] = {}
        self._env: dict[Any, str | Literal] = {}
        self._prefix, self._count = prefix, 0

    def bind(self, var: Any, operand: str | Literal) -> None:
        """Let a variable mean a tensor or a literal."""
        self._env[var] = operand

    def note_dims(self, shape: Iterable[Any]) -> None:
        """Remember the symbolic dimensions of a shape."""
        self.dims.update((str(dim), dim) for dim in shape if not isinstance(dim, int))

    def read(self, var: Any, *, keep: bool = False) -> str | Literal:
        """What a variable or literal of a jaxpr means; with `keep`, a literal becomes a constant with an id."""
        aval: Any = var.aval
        found = Literal(var.val, str(aval.dtype)) if isinstance(var, jex.Literal) else self._env[var]
        return self.constant(found.value) if keep and isinstance(found, Literal) else found

    def constant(self, array: Any) -> str:
        """A captured array's id."""
        held = np.asarray(array)
        name = f"{self._prefix}constant/{len(self.constants)}"
        self.constants[name] = held
        return name

    def add_jaxpr(self, jaxpr: Any, consts: Sequence[Any], device: str | None = None) -> None:
        """Add the equations of a jaxpr whose inputs are bound already."""
        for var, array in zip(jaxpr.constvars, consts, strict=True):
            self.bind(var, self.constant(array))
        for equation in jaxpr.eqns:
            self._add(equation, device)

    def inline(self, inner: Any, operands: Sequence[str | Literal], device: str | None) -> list[str | Literal]:
        """Add the equations of a closed jaxpr applied to operands; gives its results."""
        for var, operand in zip(inner.jaxpr.invars, operands, strict=True):
            self.bind(var, operand)
        self.add_jaxpr(inner.jaxpr, inner.consts, device)
        return [self.read(var) for var in inner.jaxpr.outvars]

    def _add(self, equation: Any, device: str | None) -> None:
        kind = equation.params.get(KIND)
        operands = [self.read(var, keep=kind is not None) for var in equation.invars]
        device = hinted(equation) or device
        if kind is None and holds_ours(equation):
            for var, result in zip(equation.outvars, self.inline(inlinable(equation), operands, device), strict=True):
                self.bind(var, result)
            return
        made = tuple(self._output(equation, place) for place in range(len(equation.outvars)))
        for var, tensor in zip(equation.outvars, made, strict=True):
            self.bind(var, tensor.id)
        if kind is None:
            node: GraphNode = DeviceOp(equation.primitive.name, tuple(operands), made, equation, device)
        else:
            read = tuple(map(str, operands))
            params, where = settings_of(equation), equation.params["where"]
            form = AnalyzerNode if kind == "analyzer" else HostNode
            node = form(equation.primitive.name, read, made, params, where=where)
        self.nodes.append(node)

    def _output(self, equation: Any, place: int) -> Tensor:
        var = equation.outvars[place]
        self.note_dims(getattr(var.aval, "shape", ()))
        name = f"{'_' if isinstance(var, jex.DropVar) else ''}{self._prefix}t{self._count}"
        self._count += 1
        described = equation.params.get("outputs") if KIND in equation.params else None
        if described is None:
            return Tensor(name, str(getattr(var.aval, "dtype", "token")), _dims(getattr(var.aval, "shape", ())))
        dtype, _, column = described[place]
        return Tensor(name, dtype.removeprefix("column:"), _dims(var.aval.shape), column=column)


def function_of(graph: Graph, nodes: Sequence[DeviceOp], inputs: Sequence[str], outputs: Sequence[str]) -> Any:
    """A closed jaxpr (`jax.extend.core.ClosedJaxpr`) made of some of a graph's equations.

    Args:
        graph: Says what the inputs are.
        nodes: In an order in which they can run.
        inputs: The tensors given, in order.
        outputs: The tensors wanted: inputs or results of the nodes.
    """
    env: dict[str, Any] = {}
    tensors = graph.tensors()
    for name in inputs:
        env[name] = jex.Var(aval_of(tensors[name], graph.dims))
    equations = []
    effects: set[Any] = set()
    for node in nodes:
        equation = node.equation
        read = [
            jex.Literal(operand.value, var.aval)  # type: ignore[no-untyped-call]  # JAX types it not
            if isinstance(operand, Literal)
            else env[operand]
            for operand, var in zip(node.operands, equation.invars, strict=True)
        ]
        made = []
        for tensor, var in zip(node.outputs, equation.outvars, strict=True):
            made.append(jex.DropVar(var.aval) if tensor.id.startswith("_") else jex.Var(var.aval))
            env[tensor.id] = made[-1]
        equations.append(equation.replace(invars=read, outvars=made))
        effects |= equation.effects
    jaxpr = jex.Jaxpr(
        (), [env[n] for n in inputs], [env[n] for n in outputs], equations, frozenset(effects), debug_info=_NO_SOURCE
    )
    return jex.ClosedJaxpr(jaxpr, [])


def aval_of(tensor: Tensor, dims: Mapping[str, Any]) -> Any:  # a jax.core.ShapedArray
    """What JAX calls an array of this dtype and shape."""
    shape = tuple(dim if isinstance(dim, int) else dims[dim] for dim in tensor.shape)
    return jax.core.ShapedArray(shape, np.dtype(tensor.dtype))


def hinted(equation: Any) -> str | None:
    """The device that `on(...)` named around an equation."""
    for part in reversed(str(equation.source_info.name_stack).split("/")):
        if part.startswith(_ON):
            return part.removeprefix(_ON)
    return None


def where_of(node: GraphNode) -> str | None:
    """Give "file:line" of the user's call that made a node; None where it is not known."""
    if isinstance(node, DeviceOp):
        return str(source_info_util.summarize(node.equation.source_info)).split(" ")[0]
    return getattr(node, "where", None)


def inlinable(equation: Any) -> Any:  # jax.extend.core.ClosedJaxpr
    """The closed jaxpr of an equation that merely calls it.

    Raises:
        InputError: A host op stands inside a loop or a branch, which run on the device.
    """
    inner = equation.params.get("jaxpr")
    if equation.primitive.name not in CALLS or inner is None:
        op, where = next(ours(equation))
        raise InputError(
            f"{op} stands inside {equation.primitive.name}, which runs on the device",
            fix="call it outside, on whole columns",
            where=where,
        )
    return inner


CALLS: Final = ("jit", "pjit", "closed_call")


def holds_ours(equation: Any) -> bool:
    """Whether host ops or analyzers stand inside an equation."""
    return next(ours(equation), None) is not None


def ours(equation: Any) -> Iterator[tuple[str, str | None]]:
    """Name and user's line of the host ops and analyzers inside an equation."""
    for inner in jex.jaxprs_in_params(equation.params):
        jaxpr = inner.jaxpr if hasattr(inner, "jaxpr") else inner
        for inside in jaxpr.eqns:
            if KIND in inside.params:
                yield inside.primitive.name, inside.params["where"]
            yield from ours(inside)


def as_function(closed: Any) -> Callable[..., list[Any]]:  # arrays in, arrays out
    """A closed jaxpr as a Python function."""
    run: Callable[..., list[Any]] = jex.jaxpr_as_fun(closed)
    return run


def _dims(shape: Iterable[Any]) -> tuple[str | int, ...]:
    return tuple(dim if isinstance(dim, int) else str(dim) for dim in shape)
