"""Lower a graph: device ops become exported programs, alternating with the host nodes that stay as they are.

A device stage is exported as StableHLO with a symbolic batch. Analyzer results, captured arrays and params are its
weights (arguments, never literals), so equal code gives equal programs whatever the data.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import jax
from jax.extend import core as jex

from ...errors import InputError
from ...positions import saved_position
from ..custom_ops.device import exporting
from ..custom_ops.registry import call_targets
from ..graphs.cost import costs
from ..graphs.graph import Graph, Output
from ..graphs.nodes import BATCH, DeviceOp, DeviceStage, GraphNode, HostNode, Tensor
from ..passes import outline, write_scans
from ..passes.text import fuse_text
from ..ragged.feeding import values_of
from ..tracing.equations import as_function, aval_of, function_of
from ..tracing.primitives import shaped
from .lapack import load_lapack

PLATFORMS: Final = ("cpu", "cuda", "tpu")
"""What device stages are lowered for."""

_LOCATIONS: Final = "jax_traceback_in_locations_limit"
_EXPORTING: Final = threading.Lock()  # the setting is the process's

_Device = DeviceOp | DeviceStage
HOST: Final = "host"
_PART: Final = "part"
_COUNTS: Final = re.compile(r"\bn[0-9]+\b")  # names of dimensions that count values of lists; also inside of "n1 + 1"
_ROWS: Final = 512  # what a cost per row is counted at


def lower(
    graph: Graph,
    prefix: str,
    *,
    known: Mapping[str, str] | None = None,
    programs: Mapping[str, bytes] | None = None,
    columns: Sequence[Tensor] = (),
    platforms: Sequence[str] = PLATFORMS,
) -> tuple[Graph, dict[str, bytes]]:
    """Group device ops into stages, as few as the host nodes between them allow, and export each.

    Args:
        graph: As traced, or partly lowered: device stages in it are called inside the new ones.
        prefix: Starts the names of the programs.
        known: Tensor → the name of the weight or asset that it has become.
        programs: Those of the device stages that are in the graph already.
        columns: Raw columns. A stage without batched inputs counts the rows of one of them.
        platforms: What to lower it for.

    Returns:
        The graph of host nodes and stages, which names weights but does not hold them, and the programs by name.
    """
    known = known or {}
    counting = values_of(graph.nodes)
    stage_places = _places(graph.nodes, counting)
    tensors = graph.tensors()
    roots = {root for name in graph.signatures for root in graph.roots(name)}
    nodes: list[GraphNode] = []
    programs_by_name: dict[str, bytes] = {}
    for stage_place in sorted(set(stage_places)):
        group = [node for node, at in zip(graph.nodes, stage_places, strict=True) if at == stage_place]
        if stage_place.device == HOST:
            nodes += [_named(node, known) for node in group if isinstance(node, HostNode)]
            continue
        read_later = {
            name
            for node, at in zip(graph.nodes, stage_places, strict=True)
            if at != stage_place
            for name in node.inputs
            if name
        }
        device = [node for node in group if isinstance(node, _Device)]
        plan = _Stage.of(graph, device, roots | read_later, tensors, known, counting)
        name = f"{prefix}-{len(programs_by_name)}"
        counted = plan.counted(f"rows/{name}", (*graph.inputs.values(), *columns))
        nodes += counted.extra
        stage, programs_by_name[name] = counted.export(name, graph, programs or {}, platforms)
        nodes.append(replace(stage, device=stage_place.device or None, flops=_flops(graph, device)))
    read = {name for node in nodes for name in node.inputs} | roots
    every = {tensor.id: tensor for tensor in (*graph.inputs.values(), *columns)}
    inputs = {name.removeprefix("column/"): every[name] for name in every if name in read}
    whole = Graph(inputs, tuple(nodes), graph.signatures, updates=graph.updates, checks=graph.checks)
    return fuse_text(whole), programs_by_name


class _Place(NamedTuple):
    """Where a node runs, and after how many changes of place."""

    level: int
    device: str  # "" is the device that placement chooses


def _places(nodes: Sequence[GraphNode], counting: Mapping[str, Tensor]) -> list[_Place]:
    """A place for each node, so that stages run in order of level and there are as few as that allows.

    A node's level is the longest path to it, counted in changes of device: nodes of one level and device need nothing
    of each other by way of another device, and so are one stage.
    """
    made_at: dict[str, _Place] = {}
    stage_places = []
    for node in nodes:
        device = (node.device or "") if isinstance(node, _Device) else HOST
        sizes = [counting[dim].id for dim in _sizes_of(node) if dim in counting] if counting else []
        read = [made_at[name] for name in (*node.inputs, *sizes) if name is not None and name in made_at]
        # Device nodes that read no host node share level 1 with those that do; on level 0 they would be a stage more.
        first = 0 if device == HOST else 1
        level = max((at.level + (at.device != device) for at in read), default=first)
        stage_places.append(_Place(level, device))
        made_at.update((tensor.id, stage_places[-1]) for tensor in node.outputs)
    return stage_places


def _sizes_of(node: GraphNode) -> set[str]:
    """Which dimensions that count the values of lists a node's outputs have, or what happens inside its equation.

    A node without operands may have such a size: zeros, a range, the size itself as a number. It can only run in a
    stage that is given the values it counts.
    """
    names = _counts(dim for tensor in node.outputs for dim in tensor.shape)
    return names | set(_inside(node.equation)) if isinstance(node, DeviceOp) else names


def _inside(equation: Any) -> Iterator[str]:  # a jax.extend.core.JaxprEqn
    yield from _counts(dim for var in equation.outvars for dim in getattr(var.aval, "shape", ()))
    yield from _counts([equation.params.get("dim")])  # of the primitive that makes a number of a size
    for inner in jex.jaxprs_in_params(equation.params):
        for each in inner.eqns:
            yield from _inside(each)


def _counts(dims: Iterable[Any]) -> set[str]:  # sizes, symbols, or anything that is not a dimension
    return {name for dim in dims if dim is not None and not isinstance(dim, int) for name in _COUNTS.findall(str(dim))}


def _flops(graph: Graph, nodes: Sequence[_Device]) -> int:
    """Floating-point operations per row of a stage."""
    mine = set(map(id, nodes))
    work = [each for node, each in costs(graph, rows=_ROWS) if id(node) in mine]
    return sum(each.flops + each.transcendentals for each in work) // _ROWS


def _named(node: HostNode, known: Mapping[str, str]) -> HostNode:
    """A host node with what is known among its inputs as assets."""
    inputs = tuple(name for name in node.inputs if name not in known)
    assets = tuple(known[name] for name in node.inputs if name in known)
    return replace(node, inputs=inputs, assets=(*node.assets, *assets), where=saved_position(node.where))


@dataclass(frozen=True)
class _Stage:
    """Device nodes of one level, as one function of its inputs, then its weights."""

    nodes: tuple[_Device, ...]
    inputs: tuple[Tensor, ...]
    weights: tuple[Tensor, ...]
    names: tuple[str, ...]
    outputs: tuple[Tensor, ...]
    extra: tuple[HostNode, ...] = ()

    @classmethod
    def of(
        cls,
        graph: Graph,
        nodes: Sequence[_Device],
        outside: set[str],
        tensors: Mapping[str, Tensor],
        known: Mapping[str, str],
        counting: Mapping[str, Tensor],
    ) -> _Stage:
        inner = {tensor.id for node in nodes for tensor in node.outputs}
        read = dict.fromkeys(name for node in nodes for name in node.inputs if name is not None and name not in inner)
        weights = [tensors[name] for name in read if name in graph.weights]
        held = dict.fromkeys(name for node in nodes if isinstance(node, DeviceStage) for name in node.weights)
        inputs = tuple(tensors[name] for name in read if name not in graph.weights)
        if counting:
            # A size that the shape of an input shows is known inside the program; of any other, the values that it
            # counts must come in too, although nothing is computed from them.
            dims_of_inputs = {dim for tensor in inputs for dim in tensor.shape}
            sizes = set().union(*map(_sizes_of, nodes)) & counting.keys()
            inputs += tuple(counting[dim] for dim in sorted(sizes - dims_of_inputs))
        outputs = tuple(tensor for node in nodes for tensor in node.outputs if tensor.id in outside)
        weight_names = [known.get(tensor.id, tensor.id) for tensor in weights]
        more = [graph.weights[name] for name in held if name not in weight_names]
        return cls(tuple(nodes), inputs, (*weights, *more), (*weight_names, *(t.id for t in more)), outputs)

    def counted(self, name: str, columns: Iterable[Tensor]) -> _Stage:
        """The stage with a node that counts rows, where no input carries the batch."""
        if any(tensor.batched for tensor in self.inputs):
            return self
        column = next((tensor for tensor in columns if not tensor.dtype.startswith("other:")), None)
        if column is None:
            raise InputError("no column that the engine can read", fix="give text, number or boolean columns")
        rows = Tensor(name, "bool", (BATCH,))
        node = HostNode("valid" if column.column else "rows", (column.id,), (rows,))
        return replace(self, inputs=(*self.inputs, rows), extra=(node,))

    def export(
        self, name: str, graph: Graph, programs: Mapping[str, bytes], platforms: Sequence[str]
    ) -> tuple[DeviceStage, bytes]:
        """The stage as a node, and its program."""
        arguments = [*self.inputs, *self.weights]
        avals = [aval_of(tensor, graph.dims) for tensor in arguments]
        load_lapack()
        calls = {
            node.program: jax.export.deserialize(bytearray(programs[node.program])).call
            for node in self.nodes
            if isinstance(node, DeviceStage)
        }

        parts = self._parts(graph)

        def run(*arrays: Any) -> list[Any]:
            env = dict(zip((tensor.id for tensor in self.inputs), arrays, strict=False))
            weights = arrays[len(self.inputs) :]
            env.update(zip(self.names, weights, strict=True))
            env.update(zip((tensor.id for tensor in self.weights), weights, strict=True))
            for part in parts:
                _evaluate(part, env, calls)
            return [env[tensor.id] for tensor in self.outputs]

        program = export_program(run, [shaped(aval.shape, aval.dtype) for aval in avals], platforms)
        stage = DeviceStage(
            name,
            tuple(tensor.id for tensor in self.inputs),
            tuple((tensor.dtype, tensor.shape) for tensor in self.inputs),
            self.names,
            self.outputs,
            self._needs(),
        )
        return stage, program

    def _parts(self, graph: Graph) -> list[Graph | DeviceStage]:
        """The nodes as runs of equations, scans written out and what repeats outlined, and stages each on its own."""
        runs: list[list[_Device]] = []
        for node in self.nodes:
            if isinstance(node, DeviceOp) and runs and isinstance(runs[-1][0], DeviceOp):
                runs[-1].append(node)
            else:
                runs.append([node])
        tensors = graph.tensors()
        parts: list[Graph | DeviceStage] = []
        wanted = {tensor.id for tensor in self.outputs}
        # From the last run back: what later runs read is known by then, and is what a run has to give.
        for run in reversed(runs):
            if isinstance(run[0], DeviceStage):
                parts.append(run[0])
            else:
                results = dict.fromkeys(tensor.id for node in run for tensor in node.outputs)
                operands = {name: tensors[name] for node in run for name in node.inputs if name and name not in results}
                outputs = {name: Output(name) for name in results if name in wanted}
                parts.append(outline(write_scans(Graph(operands, tuple(run), {_PART: outputs}, dims=graph.dims))))
            wanted.update(name for node in run for name in node.inputs if name)
        return parts[::-1]

    def _needs(self) -> tuple[tuple[int, ...], ...]:
        """For each output the places of the inputs it depends on: one that carries the batch at the least."""
        reach: dict[str, set[int]] = {tensor.id: {position} for position, tensor in enumerate(self.inputs)}
        telling = {tensor.shape[0]: position for position, tensor in enumerate(self.inputs) if tensor.shape}
        counted = telling.keys() - {BATCH}
        for node in self.nodes:
            for position, tensor in enumerate(node.outputs):
                read = (
                    (node.inputs[index] for index in node.needs[position])
                    if isinstance(node, DeviceStage)
                    else node.inputs
                )
                sizes = {telling[dim] for dim in _sizes_of(node) if dim in telling} if counted else set()
                reach[tensor.id] = sizes.union(*(reach.get(name, set()) for name in read if name is not None))
        batched = [position for position, tensor in enumerate(self.inputs) if tensor.batched]
        # An output that depends on no batched input still has as many rows as the batch: whoever evaluates it needs one
        # input that shows how many, the cheapest being the first, or the node that counts rows.
        counting = set(batched[:1]) if not self.extra else {len(self.inputs) - 1}
        return tuple(
            tuple(sorted(reach[t.id] if set(batched) & reach[t.id] else reach[t.id] | counting)) for t in self.outputs
        )


def _evaluate(part: Graph | DeviceStage, env: dict[str, Any], calls: Mapping[str, Any]) -> None:
    """Run equations, or one stage, on traced arrays."""
    if isinstance(part, Graph):
        ops = [node for node in part.nodes if isinstance(node, DeviceOp)]
        outputs = part.signatures[_PART]
        run = as_function(function_of(part, ops, list(part.inputs), [output.tensor for output in outputs.values()]))
        env.update(zip(outputs, run(*(env[name] for name in part.inputs)), strict=True))
        return
    sized = [(name, shape[0]) for name, (_, shape) in zip(part.inputs, part.slots, strict=True) if name and shape]
    sizes = {dim: env[name].shape[0] for name, dim in sized}
    inputs = [
        # Nothing depends on what is not given: where its size shows nowhere, any will do.
        jax.numpy.zeros([sizes.get(dim, 1) if isinstance(dim, str) else dim for dim in shape], dtype)
        if name is None
        else env[name]
        for name, (dtype, shape) in zip(part.inputs, part.slots, strict=True)
    ]
    results = calls[part.program](*inputs, *(env[name] for name in part.weights))
    env.update(zip((tensor.id for tensor in part.outputs), results, strict=True))


def export_program(
    fn: Any,
    shapes: Sequence[Any],
    platforms: Sequence[str] = PLATFORMS,
    *,
    allowed: Sequence[Any] = (),
    vjp_order: int = 0,
) -> bytes:
    """Export a function as a serialized StableHLO program that holds no source paths.

    Args:
        fn: Takes and returns arrays.
        shapes: `jax.ShapeDtypeStruct` of each argument.
        platforms: What to lower it for.
        allowed: `jax.export.DisabledSafetyCheck`s: custom calls that JAX does not keep stable.
        vjp_order: How often the saved program can be differentiated.
    """
    config: Any = jax.config  # it has the attribute, its type does not say so
    known = [jax.export.DisabledSafetyCheck.custom_call(target) for target in sorted(call_targets())]
    with _EXPORTING, exporting():
        limit = config.jax_traceback_in_locations_limit
        config.update(_LOCATIONS, 0)  # paths and line numbers would enter the digest
        try:
            export = jax.export.export(
                jax.jit(lambda *args: fn(*args)), platforms=tuple(platforms), disabled_checks=[*known, *allowed]
            )
            return bytes(export(*shapes).serialize(vjp_order=vjp_order))
        finally:
            config.update(_LOCATIONS, limit)
