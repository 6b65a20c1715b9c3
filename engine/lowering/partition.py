"""Partition a traced jaxpr into alternating host nodes and device stages, and list its analyzers by phase.

A device stage is exported as StableHLO with a symbolic batch. Analyzer results and captured arrays are its weights
(arguments, never literals), so equal code gives equal programs whatever the data.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import jax
import numpy as np
from jax.extend import core as jex
from numpy.typing import NDArray

from ...errors import InputError
from ..graphs.graph import Output
from ..graphs.nodes import BATCH, DeviceStage, GraphNode, HostNode, Tensor
from ..tracing.primitives import KIND, shaped
from ..tracing.trace import Traced

PLATFORMS: Final = ("cpu", "cuda", "tpu")
"""What device stages are lowered for."""

_NO_SOURCE: Final = jex.DebugInfo("equation", "drivetrain", None, None)
_LOCATIONS: Final = "jax_traceback_in_locations_limit"
_EXPORTING: Final = threading.Lock()  # the setting is the process's


@dataclass(frozen=True)
class Analyzer:
    """One analyzer of the trace: what to compute, of which values, and the value it becomes."""

    kind: str
    params: Mapping[str, Any]  # Any: JSON
    inputs: tuple[int, ...]
    value: int
    phase: int
    dtype: str
    shape: tuple[int, ...]
    where: str | None


@dataclass(frozen=True, eq=False)
class _Op:
    """An equation whose operands and results are numbered values."""

    equation: Any  # jax.extend.core.JaxprEqn
    kind: str  # host, analyzer or device
    inputs: tuple[int, ...]  # what is no literal, in order, without repetition for device ops
    outputs: tuple[int, ...]

    @property
    def params(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads(self.equation.params["settings"])
        return loaded


class Partition:
    """A traced function as numbered values: raw columns first, then captured arrays, then each equation's results."""

    def __init__(self, traced: Traced) -> None:
        self.traced = traced
        self._avals: list[Any] = []
        self._column: dict[int, str] = {}  # host dtype of the values that are columns
        self.constants: dict[int, NDArray[Any]] = {}
        self.ops: list[_Op] = []
        self._seen: dict[tuple[object, ...], tuple[int, ...]] = {}
        closed = traced.jaxpr
        env: dict[Any, int] = {}
        for var, (_, dtype) in zip(closed.jaxpr.invars, traced.columns, strict=True):
            env[var] = self._value(var.aval)
            self._column[env[var]] = dtype
        self._flatten(closed.jaxpr, closed.consts, env)
        self._results = [
            self._constant(var.val) if isinstance(var, jex.Literal) else env[var] for var in closed.jaxpr.outvars
        ]
        self._maker = {value: op for op in self.ops for value in op.outputs}

    # --- from equations to numbered ops ---

    def _value(self, aval: Any) -> int:
        self._avals.append(aval)
        return len(self._avals) - 1

    def _constant(self, array: Any) -> int:
        held = np.asarray(array)
        value = self._value(jax.core.ShapedArray(held.shape, held.dtype))
        self.constants[value] = held
        return value

    def _flatten(self, jaxpr: Any, consts: Sequence[Any], env: dict[Any, int]) -> None:
        for var, array in zip(jaxpr.constvars, consts, strict=True):
            env[var] = self._constant(array)
        for equation in jaxpr.eqns:
            kind = str(equation.params.get(KIND, "device"))
            if kind == "device" and _holds_ours(equation):
                self._inline(equation, env)
                continue
            operands = [var for var in equation.invars if not isinstance(var, jex.Literal)]
            if kind != "device" and len(operands) != len(equation.invars):
                operands = self._without_literals(equation, env)
            read = tuple(env[var] for var in (operands if kind != "device" else dict.fromkeys(operands)))
            made = self._add(equation, kind, read)
            env.update(zip(equation.outvars, made, strict=True))

    def _without_literals(self, equation: Any, env: dict[Any, int]) -> list[Any]:
        for var in equation.invars:
            if isinstance(var, jex.Literal):
                env[id(var)] = self._constant(var.val)
        return [id(var) if isinstance(var, jex.Literal) else var for var in equation.invars]

    def _inline(self, equation: Any, env: dict[Any, int]) -> None:
        inner = equation.params.get("jaxpr")
        if equation.primitive.name not in ("jit", "pjit", "closed_call") or inner is None:
            op, where = next(_ours(equation))
            raise InputError(
                f"{op} stands inside {equation.primitive.name}, which runs on the device",
                fix="call it outside, on whole columns",
                where=where,
            )
        inside = {
            var: self._constant(given.val) if isinstance(given, jex.Literal) else env[given]
            for var, given in zip(inner.jaxpr.invars, equation.invars, strict=True)
        }
        self._flatten(inner.jaxpr, inner.consts, inside)
        for outer, result in zip(equation.outvars, inner.jaxpr.outvars, strict=True):
            env[outer] = self._constant(result.val) if isinstance(result, jex.Literal) else inside[result]

    def _add(self, equation: Any, kind: str, read: tuple[int, ...]) -> tuple[int, ...]:
        # Equal host work is done once: two z-scores of one column fill it once and analyse it once.
        key = (kind, equation.primitive.name, equation.params.get("settings"), read)
        if kind != "device" and key in self._seen:
            return self._seen[key]
        made = tuple(self._value(var.aval) for var in equation.outvars)
        if kind != "device":
            self._seen[key] = made
            for value, (dtype, _, column) in zip(made, equation.params["outputs"], strict=True):
                if column:
                    self._column[value] = dtype.removeprefix("column:")
        self.ops.append(_Op(equation, kind, read, made))
        return made

    # --- what it holds ---

    @cached_property
    def _depths(self) -> dict[int, int]:
        depths: dict[int, int] = {}
        for op in self.ops:
            depth = max((depths.get(value, 0) for value in op.inputs), default=0) + (op.kind == "analyzer")
            depths.update(dict.fromkeys(op.outputs, depth))
        return depths

    def analyzers(self) -> list[Analyzer]:
        """The analyzers that the outputs need, in order; `phase` counts from 1 and is the depth of their nesting."""
        live = self._live(self._results, known={})
        found = []
        for op in self.ops:
            if op.kind == "analyzer" and op in live:
                (value,) = op.outputs
                dtype, shape, _ = op.equation.params["outputs"][0]
                name, where = op.equation.primitive.name, op.equation.params["where"]
                found.append(Analyzer(name, op.params, op.inputs, value, self._depths[value], dtype, shape, where))
        return found

    def outputs(self, vocabularies: Mapping[int, int]) -> dict[str, tuple[int, int | None]]:
        """Each output's value and its number of ids, given the length of each vocabulary by its value."""
        found = {}
        for output in self.traced.outputs:
            size = output.extra_ids
            if size is not None and output.vocabulary_place is not None:
                size += vocabularies[self._results[output.vocabulary_place]]
            found[output.name] = (self._results[output.place], size)
        return found

    def _live(self, wanted: Sequence[int], known: Mapping[int, Any]) -> dict[_Op, None]:
        live: dict[_Op, None] = {}
        todo = list(wanted)
        while todo:
            op = self._maker.get(todo.pop())
            if op is not None and op not in live and not any(value in known for value in op.outputs):
                live[op] = None
                todo += op.inputs
        return live

    def tensor(self, value: int) -> Tensor:
        """A value as the graph's tensor."""
        if value < len(self.traced.columns):
            name, dtype = self.traced.columns[value]
            return Tensor(f"column/{name}", dtype, (BATCH,), column=True)
        aval = self._avals[value]
        shape = tuple(BATCH if dim is self.traced.batch or dim == self.traced.batch else int(dim) for dim in aval.shape)
        if value in self._column:
            return Tensor(f"t{value}", self._column[value], shape, column=True)
        return Tensor(f"t{value}", str(aval.dtype), shape)

    # --- lowering ---

    def lower(
        self, wanted: Mapping[str, tuple[int, int | None]], known: Mapping[int, str], signature: str, prefix: str
    ) -> tuple[dict[str, Tensor], tuple[GraphNode, ...], dict[str, dict[str, Output]], dict[str, bytes]]:
        """Host nodes and exported device stages for some values.

        Args:
            wanted: Output name → (value, number of ids).
            known: Analyzer value → the name of the weight or asset that holds its result.
            signature: The name of the one signature.
            prefix: Starts the names of the device programs.

        Returns:
            The raw columns read, the nodes in order, the signature, and the programs by name.
        """
        values = [value for value, _ in wanted.values()]
        live = self._live(values, known)
        ops = [op for op in self.ops if op in live]
        levels = self._levels(ops)
        nodes: list[GraphNode] = []
        programs: dict[str, bytes] = {}
        stages = sorted({level for level in levels.values() if level % 2})
        for level in sorted(set(levels.values())):
            group = [op for op in ops if levels[op] == level]
            if level % 2 == 0:
                nodes += [self._host_node(op, known) for op in group]
                continue
            name = f"{prefix}-{stages.index(level)}"
            outside = {value for op in ops if levels[op] != level for value in op.inputs} | set(values)
            stage, extra = _Stage(self, group, outside, known).export(name)
            nodes += extra
            nodes.append(stage[0])
            programs[name] = stage[1]
        outputs = {name: Output(self.tensor(value).id, size) for name, (value, size) in wanted.items()}
        reads = {name for node in nodes for name in node.inputs} | {output.tensor for output in outputs.values()}
        columns = [self.tensor(value) for value in range(len(self.traced.columns))]
        inputs = {c.id.removeprefix("column/"): c for c in columns if c.id in reads}
        return inputs, tuple(nodes), {signature: outputs}, programs

    def _levels(self, ops: Sequence[_Op]) -> dict[_Op, int]:
        level: dict[int, int] = {}
        found: dict[_Op, int] = {}
        for op in ops:
            at = max((level.get(value, 0) for value in op.inputs), default=0)
            at += at % 2 != (op.kind == "device")
            found[op] = at
            level.update(dict.fromkeys(op.outputs, at))
        return found

    def _host_node(self, op: _Op, known: Mapping[int, str]) -> HostNode:
        inputs = tuple(self.tensor(value).id for value in op.inputs if value not in known)
        assets = tuple(known[value] for value in op.inputs if value in known)
        return HostNode(op.equation.primitive.name, inputs, tuple(map(self.tensor, op.outputs)), op.params, assets)

    def constant_name(self, value: int) -> str:
        """The weight that a captured array becomes."""
        return f"transform/constant/{list(self.constants).index(value)}"


class _Stage:
    """Device ops of one level, as one exported function of its inputs, then its weights."""

    def __init__(self, partition: Partition, ops: Sequence[_Op], outside: set[int], known: Mapping[int, str]) -> None:
        self.partition = partition
        self.ops = ops
        made = {value for op in ops for value in op.outputs}
        read = list(dict.fromkeys(value for op in ops for value in op.inputs if value not in made))
        self.weights = [value for value in read if value in known or value in partition.constants]
        self.inputs = [value for value in read if value not in self.weights]
        self.outputs = [value for op in ops for value in op.outputs if value in outside]
        self.names = [known[value] if value in known else partition.constant_name(value) for value in self.weights]

    def export(self, name: str) -> tuple[tuple[DeviceStage, bytes], list[HostNode]]:
        """The stage and its program; and a node that counts rows, where no input carries the batch."""
        partition = self.partition
        tensors = [partition.tensor(value) for value in self.inputs]
        extra: list[HostNode] = []
        if not any(tensor.batched for tensor in tensors):
            rows = Tensor(f"rows/{name}", "bool", (BATCH,))
            extra.append(HostNode("valid", (self._some_column(),), (rows,)))
            tensors.append(rows)
        batch = partition.traced.batch
        shapes = [shaped([batch if d == BATCH else d for d in t.shape], t.dtype) for t in tensors]
        shapes += [shaped(partition._avals[v].shape, partition._avals[v].dtype) for v in self.weights]
        program = export_program(self._run, shapes)
        outputs = tuple(partition.tensor(value) for value in self.outputs)
        stage = DeviceStage(
            name,
            tuple(tensor.id for tensor in tensors),
            tuple((tensor.dtype, tensor.shape) for tensor in tensors),
            tuple(self.names),
            outputs,
            self._needs(len(extra)),
        )
        return (stage, program), extra

    def _some_column(self) -> str:
        readable = [name for name, dtype in self.partition.traced.columns if not dtype.startswith("other:")]
        if not readable:
            raise InputError("no column that the engine can read", fix="give text, number or boolean columns")
        return f"column/{readable[0]}"

    def _needs(self, extra: int) -> tuple[tuple[int, ...], ...]:
        reach: dict[int, set[int]] = {value: {place} for place, value in enumerate(self.inputs)}
        for op in self.ops:
            union = set().union(*(reach.get(value, set()) for value in op.inputs)) if op.inputs else set()
            reach.update((value, union) for value in op.outputs)
        always = set(range(len(self.inputs), len(self.inputs) + extra))
        return tuple(tuple(sorted(self._sized(reach[value]) | always)) for value in self.outputs)

    def _sized(self, places: set[int]) -> set[int]:
        """An output needs at least one input that carries the batch, to know how many rows there are."""
        tensors = [self.partition.tensor(value) for value in self.inputs]
        if any(tensors[place].batched for place in places):
            return places
        return places | set([place for place, tensor in enumerate(tensors) if tensor.batched][:1])

    def _run(self, *arrays: Any) -> list[Any]:
        env = dict(
            zip(
                [*self.inputs, *([-1] * (len(arrays) - len(self.inputs) - len(self.weights))), *self.weights],
                arrays,
                strict=True,
            )
        )
        for op in self.ops:
            operands = list(dict.fromkeys(v for v in op.equation.invars if not isinstance(v, jex.Literal)))
            results = [var for var in op.equation.outvars if not isinstance(var, jex.DropVar)]
            one = jex.ClosedJaxpr(jex.Jaxpr((), operands, results, [op.equation], debug_info=_NO_SOURCE), [])
            found = jex.jaxpr_as_fun(one)(*(env[value] for value in op.inputs))
            kept = [
                v for v, var in zip(op.outputs, op.equation.outvars, strict=True) if not isinstance(var, jex.DropVar)
            ]
            env.update(zip(kept, found, strict=True))
        return [env[value] for value in self.outputs]


def export_program(fn: Any, shapes: Sequence[Any], platforms: Sequence[str] = PLATFORMS) -> bytes:
    """Export a function as a serialized StableHLO program that holds no source paths.

    Args:
        fn: Takes and returns arrays.
        shapes: `jax.ShapeDtypeStruct` of each argument.
        platforms: What to lower it for.
    """
    config: Any = jax.config  # it has the attribute, its type does not say so
    with _EXPORTING:
        limit = config.jax_traceback_in_locations_limit
        config.update(_LOCATIONS, 0)  # paths and line numbers would enter the digest
        try:
            exported = jax.export.export(jax.jit(lambda *args: fn(*args)), platforms=tuple(platforms))(*shapes)
            return bytes(exported.serialize())
        finally:
            config.update(_LOCATIONS, limit)


def _holds_ours(equation: Any) -> bool:
    return next(_ours(equation), None) is not None


def _ours(equation: Any) -> Iterator[tuple[str, str | None]]:
    for inner in jex.jaxprs_in_params(equation.params):
        jaxpr = inner.jaxpr if hasattr(inner, "jaxpr") else inner
        for inside in jaxpr.eqns:
            if KIND in inside.params:
                yield inside.primitive.name, inside.params["where"]
            yield from _ours(inside)
