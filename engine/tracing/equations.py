"""From a jaxpr to a graph's device ops, and back: a function made of some of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any, Final

import jax
import numpy as np
from jax.extend import core as jex
from numpy.typing import NDArray

from ...errors import InputError
from ..graphs.graph import Graph, Output
from ..graphs.nodes import AnalyzerNode, DeviceOp, GraphNode, HostNode, Literal, Tensor
from .primitives import KIND, settings_of

_NO_SOURCE: Final = jex.DebugInfo("graph", "drivetrain", None, None)
_ON: Final = "on="
_CAPTURED: Final = "constant:"
_MADE: Final = "made/"
_NUMBERED: Final = re.compile(r"_?t[0-9]+")
_RANDOM: Final = ("threefry2x32", "rbg", "unsafe_rbg")


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
        prefix: Starts the ids of what it adds: "transform/"; with more after it where an input or weight is called so.

    Raises:
        InputError: A weight has the name of a captured array or of an input, or a host op stands inside a loop or
            branch.
    """
    named_weights = dict(weights or {})
    reserved = next((name for name in named_weights if is_captured(name)), None)
    if reserved is not None:
        raise InputError(f"a weight is called {reserved!r}, as captured arrays are", fix="rename it")
    taken = {tensor.id for _, tensor in inputs}
    twice = next((name for name in named_weights if name in taken), None)
    if twice is not None:
        raise InputError(f"a weight is called {twice!r}, as an input is", fix="rename one of them")
    while any(name.startswith(prefix) and _NUMBERED.fullmatch(name, len(prefix)) for name in (*taken, *named_weights)):
        prefix += _MADE
    builder = Builder(prefix)
    invars: Sequence[Any] = closed.jaxpr.invars
    for (_, tensor), var in zip(inputs, invars, strict=False):
        builder.bind(var, tensor.id)
        builder.shape(var.aval.shape)
    values: dict[str, NDArray[Any]] = {}
    tensors: dict[str, Tensor] = {}
    for (name, value), var in zip(named_weights.items(), invars[len(inputs) :], strict=True):
        builder.bind(var, name)
        tensors[name] = Tensor(name, str(var.aval.dtype), builder.shape(var.aval.shape))
        if value is not None:
            values[name] = value
    builder.add_jaxpr(closed.jaxpr, closed.consts)
    results = [builder.read(var, keep=True) for var in closed.jaxpr.outvars]
    for name, array in builder.constants.items():
        tensors[name] = Tensor(name, str(array.dtype), array.shape)
        values[name] = array
    named = {name: Output(str(results[position])) for name, position in outputs.items()}
    return Graph(dict(inputs), tuple(builder.nodes), {signature: named}, tensors, values, dims=builder.dims)


_Made = tuple[str, str, tuple[str | int, ...]]  # "_" where nobody reads it, dtype, shape
_Step = tuple[str, Any, tuple[int | Literal, ...], list[_Made], str | None]  # op, equation, reads, makes, device
_Plan = tuple[list[_Step], tuple[int | Literal, ...]]  # a jaxpr's steps and results, variables by their place


class Builder:
    """Collects nodes from equations; variables become tensor ids, captured arrays constants, all under a prefix."""

    def __init__(self, prefix: str = "", *, searched: bool = False) -> None:
        """`searched` says that the equations are known to hold no host op within."""
        self.nodes: list[GraphNode] = []
        self.constants: dict[str, NDArray[Any]] = {}
        self.dims: dict[str, Any] = {}
        self._env: dict[Any, str | Literal] = {}
        self._prefix, self._count, self._searched = prefix, 0, searched
        self._names: dict[int, tuple[Any, str]] = {}  # symbolic dimensions are slow to print
        self._dtypes: dict[Any, str] = {}  # as are dtypes
        self._plans: dict[int, tuple[Any, _Plan]] = {}  # by the id of a jaxpr, which is kept

    def bind(self, var: Any, operand: str | Literal) -> None:
        """Let a variable mean a tensor or a literal."""
        self._env[var] = operand

    def shape(self, shape: Iterable[Any]) -> tuple[str | int, ...]:
        """A shape with its symbolic dimensions by name; they are remembered."""
        return tuple(dim if isinstance(dim, int) else self._dim(dim) for dim in shape)

    def read(self, var: Any, *, keep: bool = False) -> str | Literal:
        """What a variable or literal of a jaxpr means; with `keep`, a literal becomes a constant with an id."""
        operand = Literal(var.val, self._dtype(var.aval)) if isinstance(var, jex.Literal) else self._env[var]
        return self.constant(array_of(operand)) if keep and isinstance(operand, Literal) else operand

    def constant(self, array: Any) -> str:
        """Keep an array as a constant of the graph; returns the id of the tensor that holds it."""
        held = np.asarray(array)
        name = f"{self._prefix}{_CAPTURED}{len(self.constants)}"
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
        if self._searched:
            return self._instance(inner, operands, device)
        for var, operand in zip(inner.jaxpr.invars, operands, strict=True):
            self.bind(var, operand)
        self.add_jaxpr(inner.jaxpr, inner.consts, device)
        return [self.read(var) for var in inner.jaxpr.outvars]

    def _instance(self, inner: Any, operands: Sequence[str | Literal], device: str | None) -> list[str | Literal]:
        """As `inline`, of equations that are all device ops: what each call of one jaxpr has in common is kept."""
        known = self._plans.get(id(inner.jaxpr))
        if known is None:
            known = self._plans[id(inner.jaxpr)] = (inner.jaxpr, self._plan(inner.jaxpr))
        steps, results = known[1]
        env = [*map(self.constant, inner.consts), *operands]
        for op, equation, read, results_of_step, hint in steps:
            operands_of_step = tuple([env[operand] if isinstance(operand, int) else operand for operand in read])
            outputs = []
            for mark, dtype, shape in results_of_step:
                name = f"{mark}{self._prefix}t{self._count}"
                self._count += 1
                env.append(name)
                outputs.append(Tensor(name, dtype, shape))
            self.nodes.append(DeviceOp(op, operands_of_step, tuple(outputs), equation, hint or device))
        return [env[operand] if isinstance(operand, int) else operand for operand in results]

    def _plan(self, jaxpr: Any) -> _Plan:  # a jax.extend.core.Jaxpr
        places = {var: position for position, var in enumerate((*jaxpr.constvars, *jaxpr.invars))}

        def read(atoms: Sequence[Any]) -> tuple[int | Literal, ...]:
            return tuple(
                [
                    Literal(atom.val, self._dtype(atom.aval)) if isinstance(atom, jex.Literal) else places[atom]
                    for atom in atoms
                ]
            )

        steps = []
        count = len(places)
        for equation in jaxpr.eqns:
            operands = read(equation.invars)
            results = []
            for var in equation.outvars:
                places[var] = count
                count += 1
                mark = "_" if isinstance(var, jex.DropVar) else ""
                results.append((mark, self._dtype(var.aval), self.shape(getattr(var.aval, "shape", ()))))
            steps.append((equation.primitive.name, equation, operands, results, hinted(equation)))
        return steps, read(jaxpr.outvars)

    def _add(self, equation: Any, device: str | None) -> None:
        kind = equation.params.get(KIND)
        operands = [self.read(var, keep=kind is not None) for var in equation.invars]
        device = hinted(equation) or device
        if kind is None and not self._searched and holds_ours(equation):
            for var, result in zip(equation.outvars, self.inline(inlinable(equation), operands, device), strict=True):
                self.bind(var, result)
            return
        outputs = tuple(self._output(equation, position) for position in range(len(equation.outvars)))
        for var, tensor in zip(equation.outvars, outputs, strict=True):
            self.bind(var, tensor.id)
        if kind is None:
            node: GraphNode = DeviceOp(equation.primitive.name, tuple(operands), outputs, equation, device)
        else:
            read = tuple(map(str, operands))
            params, where = settings_of(equation), equation.params["where"]
            form = AnalyzerNode if kind == "analyzer" else HostNode
            node = form(equation.primitive.name, read, outputs, params, where=where)
        self.nodes.append(node)

    def _output(self, equation: Any, position: int) -> Tensor:
        var = equation.outvars[position]
        aval = var.aval
        name = f"{'_' if isinstance(var, jex.DropVar) else ''}{self._prefix}t{self._count}"
        self._count += 1
        described = equation.params.get("outputs") if KIND in equation.params else None
        if described is None:
            return Tensor(name, self._dtype(aval), self.shape(getattr(aval, "shape", ())))
        dtype, _, column = described[position]
        return Tensor(name, dtype.removeprefix("column:"), self.shape(aval.shape), column=column)

    def _dtype(self, aval: Any) -> str:
        dtype = getattr(aval, "dtype", "token")
        known = self._dtypes.get(dtype)
        if known is None:
            known = self._dtypes[dtype] = str(dtype)
        return known

    def _dim(self, dim: Any) -> str:
        known = self._names.get(id(dim))
        if known is None:
            known = self._names[id(dim)] = (dim, str(dim))
            self.dims[known[1]] = dim
        return known[1]


def array_of(literal: Literal) -> NDArray[Any]:
    """A literal's value as an array of its dtype; JAX may hold a Python number."""
    return np.asarray(literal.value, np.dtype(literal.dtype))


def literal_name(literal: Literal) -> str:
    """The weight that a literal becomes where only a tensor will do."""
    return f"{_CAPTURED}{literal.dtype}:{literal.value}"


def is_captured(name: str) -> bool:
    """Whether a weight is an array that a traced function captured: known, and the same for ever."""
    return _CAPTURED in name


def function_of(
    graph: Graph,
    nodes: Sequence[DeviceOp],
    inputs: Sequence[str],
    outputs: Sequence[str],
    *,
    avals: Mapping[str, Any] | None = None,
    literals: Mapping[str, Any] | None = None,
    debug_info: Any = _NO_SOURCE,  # jax.extend.core.DebugInfo
) -> Any:
    """A closed jaxpr (`jax.extend.core.ClosedJaxpr`) made of some of a graph's equations.

    Args:
        graph: Says what the inputs are.
        nodes: In an order in which they can run.
        inputs: The tensors given, in order.
        outputs: The tensors wanted: inputs or results of the nodes.
        avals: What JAX calls the inputs, where that is known.
        literals: Tensors that are scalars which stand in the program itself, with their values.
        debug_info: Of the function that it was.
    """
    env: dict[str, Any] = {}
    tensors = {} if avals is not None else graph.tensors()
    for name in inputs:
        env[name] = jex.Var(avals[name] if avals is not None else aval_of(tensors[name], graph.dims))
    for name, value in (literals or {}).items():
        env[name] = jex.Literal(value, jax.core.ShapedArray((), value.dtype))  # type: ignore[no-untyped-call]  # untyped
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
        outvars = []
        for tensor, var in zip(node.outputs, equation.outvars, strict=True):
            outvars.append(jex.DropVar(var.aval) if tensor.id.startswith("_") else jex.Var(var.aval))
            env[tensor.id] = outvars[-1]
        equations.append(equation.replace(invars=read, outvars=outvars))
        effects |= equation.effects
    jaxpr = jex.Jaxpr(
        (), [env[n] for n in inputs], [env[n] for n in outputs], equations, frozenset(effects), debug_info=debug_info
    )
    return jex.ClosedJaxpr(jaxpr, [])


def aval_of(tensor: Tensor, dims: Mapping[str, Any]) -> Any:  # a jax.core.ShapedArray
    """What JAX calls an array of this dtype and shape."""
    shape = tuple(dim if isinstance(dim, int) else dims[dim] for dim in tensor.shape)
    return jax.core.ShapedArray(shape, _dtype_of(tensor.dtype))


def _dtype_of(name: str) -> Any:  # Any: a numpy dtype, or JAX's of a key of random numbers
    if not name.startswith("key<"):
        return np.dtype(name)
    keys = (jax.eval_shape(partial(jax.random.key, 0, impl=impl)).dtype for impl in _RANDOM)
    return next(dtype for dtype in keys if str(dtype) == name)


def hinted(equation: Any) -> str | None:
    """The device that `on(...)` named around an equation."""
    stack = equation.source_info.name_stack
    if not stack.stack or _ON not in (text := str(stack)):
        return None
    for part in reversed(text.split("/")):
        if part.startswith(_ON):
            return part.removeprefix(_ON)
    return None


def inlinable(equation: Any) -> Any:  # jax.extend.core.ClosedJaxpr
    """The closed jaxpr of an equation that merely calls it.

    Raises:
        InputError: A host op stands inside a loop or a branch, which run on the device.
    """
    inner = equation.params.get("jaxpr")
    if equation.primitive.name not in CALLS or inner is None:
        op, where = next(ours(equation))
        raise InputError(
            f"{op} is inside {equation.primitive.name}, which runs on the device",
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
    """A closed jaxpr as a Python function.

    Traced for the very types that it takes, its equations are written down as they stand, for a part of what tracing
    each of them anew costs; for other types that is done.
    """
    traced: Callable[..., list[Any]] = jex.jaxpr_as_fun(closed)
    takes = [var.aval for var in closed.jaxpr.invars]
    call = calling(closed, "graph", inline=True)

    def run(*arrays: Any) -> list[Any]:
        if [jax.typeof(array) for array in arrays] != takes:
            return traced(*arrays)
        results: list[Any] = call.primitive.bind(*arrays, **call.params)
        return results

    return run


def calling(closed: Any, name: str, *, inline: bool = False) -> Any:  # a ClosedJaxpr; a JaxprEqn
    """The equation that calls a closed jaxpr as JAX makes them of jitted functions; inlined, it stands in its place."""
    template = _template()
    invars, outvars = closed.jaxpr.invars, closed.jaxpr.outvars
    params = dict(template.params, jaxpr=closed, name=name)
    if inline:
        kinds: Any = getattr(jax, "Inline", None)  # JAX 0.10 has none: it says True
        params["inline"] = True if kinds is None else kinds.JAX_EARLY
    for key, count in (
        ("in_shardings", len(invars)), ("in_layouts", len(invars)), ("donated_invars", len(invars)),
        ("out_shardings", len(outvars)), ("out_layouts", len(outvars)),
    ):  # fmt: skip
        params[key] = template.params[key] * count
    return template.replace(invars=list(invars), outvars=list(outvars), params=params)


@cache
def _template() -> Any:  # a jax.extend.core.JaxprEqn
    """A call of a function with one operand and one result, which JAX places and lays out as it likes."""
    (equation,) = jax.make_jaxpr(jax.jit(lambda x: x + x))(0.0).jaxpr.eqns
    return equation


def scan_operands(params: Mapping[str, Any]) -> tuple[int, int]:  # of a jax.extend.core.JaxprEqn
    """How many operands of a scan stay the same, and how many after these it carries on from step to step."""
    if "ft_in" in params:  # since JAX 0.11
        constants, carried, _ = params["ft_in"].unpack()
        return len(constants), len(carried)
    return params["num_consts"], params["num_carry"]
