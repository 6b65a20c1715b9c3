"""Structural passes: which nodes there are, never what they compute. Results stay bitwise equal."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from typing import Any, Final

import jax
from jax.extend import core as jex

from ..graphs.graph import Graph
from ..graphs.nodes import AnalyzerNode, DeviceOp, DeviceStage, GraphNode, HostNode, Tensor
from ..tracing.equations import CALLS, Builder, is_captured
from .meaning import Operand, renamed, unused_prefix, with_meaning

UNSHARED: Final = ("rng_uniform",)  # gives other numbers each time
_JITTED: Final = dict.fromkeys(CALLS, "jaxpr")
CALLED: Final = _JITTED | {"custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr", "remat2": "jaxpr"}
"""Ops that call a function, and the param that holds it."""

_PLAIN: Final = frozenset({bool, int, str, type(None)})


def prune(graph: Graph) -> Graph:
    """The graph without the nodes that no signature needs; nodes with effects stay."""
    wanted = {root for name in graph.signatures for root in graph.roots(name)}
    read = set(wanted)
    kept: list[GraphNode] = []
    for node in reversed(graph.nodes):
        if isinstance(node, DeviceStage):
            return graph.needed(wanted)  # it may need only some of its inputs
        for tensor in node.outputs:
            if tensor.id in read:
                break
        else:
            if not (isinstance(node, DeviceOp) and node.equation.effects):
                continue
        kept.append(node)
        for operand in node.operands if isinstance(node, DeviceOp) else node.inputs:
            if isinstance(operand, str):
                read.add(operand)
    inputs = {name: tensor for name, tensor in graph.inputs.items() if tensor.id in read}
    weights = {name: tensor for name, tensor in graph.weights.items() if name in read}
    if len(kept) == len(graph.nodes) and len(inputs) == len(graph.inputs) and len(weights) == len(graph.weights):
        return graph
    values = {name: value for name, value in graph.values.items() if name in read}
    return replace(graph, nodes=tuple(reversed(kept)), inputs=inputs, weights=weights, values=values)


def inline(graph: Graph) -> Graph:
    """With the bodies of jitted functions in place of the calls. Loops, branches and custom gradients stay calls."""
    return expanded(graph, lambda node: body_of(node, _JITTED))


def forget_gradients(graph: Graph) -> Graph:
    """With the bodies of functions that have a gradient of their own: for a graph that nobody will differentiate."""
    return expanded(graph, callee)


def callee(node: DeviceOp) -> Any | None:  # jax.extend.core.ClosedJaxpr
    """What a call of any kind calls, if putting that in its place changes nothing but its gradient."""
    return body_of(node, CALLED)


def body_of(node: DeviceOp, bodies: Mapping[str, str]) -> Any | None:  # jax.extend.core.ClosedJaxpr
    """The closed jaxpr under the param that an op's name leads to, unless it is called with shardings of its own."""
    if node.op not in bodies:
        return None
    param = bodies[node.op]
    params = node.equation.params
    kinds = {*map(type, params.get("in_shardings", ())), *map(type, params.get("out_shardings", ()))}
    if any(issubclass(kind, jax.sharding.Sharding) for kind in kinds):
        return None
    inner = params[param]
    return inner if hasattr(inner, "consts") else jex.ClosedJaxpr(inner, [])


def expanded(graph: Graph, body: Callable[[DeviceOp], Any | None]) -> Graph:
    """With calls replaced by what they call, where `body` gives that."""
    builder: Builder | None = None
    meaning: dict[str, Operand] = {}
    nodes: list[GraphNode] = []
    todo = list(reversed(graph.nodes))
    while todo:
        node = renamed(todo.pop(), meaning)
        inner = body(node) if isinstance(node, DeviceOp) else None
        if inner is None or not isinstance(node, DeviceOp):
            nodes.append(node)
            continue
        if builder is None:
            builder = Builder(unused_prefix(graph, "inlined"), searched=True)
        results = builder.inline(inner, node.operands, node.device)
        meaning.update((tensor.id, result) for tensor, result in zip(node.outputs, results, strict=True))
        todo += reversed(builder.nodes)
        builder.nodes = []
    if builder is None:
        return graph
    held = builder.constants
    weights = {name: Tensor(name, str(array.dtype), array.shape) for name, array in held.items()}
    whole = replace(
        graph,
        nodes=tuple(nodes),
        weights={**graph.weights, **weights},
        values={**graph.values, **held},
        dims={**graph.dims, **builder.dims},
    )
    return with_meaning(whole, meaning)


def share(graph: Graph) -> Graph:
    """With equal work done once: the same op on the same operands, and equal captured arrays."""
    done = Done(graph)
    nodes = tuple([renamed(node, done.meaning) for node in graph.nodes if not done.again(node)])
    return with_meaning(replace(graph, nodes=nodes), done.meaning) if done.meaning else graph


class Done:
    """The work that a pass has come by, so that it is not done again.

    Attributes:
        meaning: What tensors mean by now: equal captured arrays, and the results of what would be done again.
    """

    def __init__(self, graph: Graph) -> None:
        self.meaning = _equal_values(graph)
        self._alike: dict[Hashable, list[GraphNode]] = {}
        self._equality = NodeEquality()

    # Nodes are hashed by op and operands alone: mostly no other node has the same operands, and to hash params costs
    # more than to compare them.
    def again(self, node: GraphNode) -> bool:
        """Whether a node does what an earlier one did, whose results its own then mean."""
        meaning = self.meaning
        if isinstance(node, DeviceStage):
            return False
        key: list[Hashable] = [node.op]
        if isinstance(node, DeviceOp):
            if node.equation.effects or node.op in UNSHARED:
                return False
            for operand in node.operands:
                if isinstance(operand, str):
                    key.append(meaning.get(operand, operand))
                else:
                    key.append((operand.dtype, bits(operand.value)))
        else:
            key += [meaning.get(name, name) for name in node.inputs]
        others = self._alike.setdefault(tuple(key), [])
        for first in others:  # params are compared where the rest is equal
            if self._equality.equal(node, first):
                for mine, theirs in zip(node.outputs, first.outputs, strict=True):
                    self.meaning[mine.id] = theirs.id
                return True
        others.append(node)
        return False


def _equal_values(graph: Graph) -> dict[str, Operand]:
    """Captured arrays that equal an earlier one. Params keep apart: they may come to differ."""
    first: dict[Hashable, str] = {}
    meaning: dict[str, Operand] = {}
    kept = changing(graph)
    for name, value in graph.values.items():
        if is_captured(name) and name not in kept:
            same_value = first.setdefault((str(value.dtype), value.shape, value.tobytes()), name)
            if same_value != name:
                meaning[name] = same_value
    return meaning


def changing(graph: Graph) -> set[str]:
    """The weights that a signature gives a next value: what is known of them is only where they start."""
    return {weight for updates in graph.updates.values() for weight in updates}


class NodeEquality:
    """Whether nodes of one op on the same operands do the same."""

    def __init__(self) -> None:
        self._jaxprs: dict[int, Hashable] = {}  # the graph keeps them, so their ids stay their own

    def equal(self, a: GraphNode, b: GraphNode) -> bool:
        """Whether their params, settings, devices and assets are equal, and the same of their outputs are read.

        What an equation gives follows from its params and operands; what a host op or an analyzer gives does not.
        """
        if isinstance(a, DeviceOp) and isinstance(b, DeviceOp):
            if a.device != b.device or a.equation.ctx != b.equation.ctx or len(a.outputs) != len(b.outputs):
                return False
            for mine_made, other in zip(a.outputs, b.outputs, strict=True):
                if (mine_made.id[0] == "_") != (other.id[0] == "_"):
                    return False
            mine, theirs = a.equation.params, b.equation.params
            if mine is theirs:
                return True
            if mine.keys() != theirs.keys():
                return False
            for name, value in mine.items():
                if value is not theirs[name] and not self._same(value, theirs[name]):
                    return False
            return True
        if isinstance(a, (HostNode, AnalyzerNode)) and type(a) is type(b):
            assets = [getattr(node, "assets", ()) for node in (a, b)]
            written = [json.dumps(dict(getattr(node, "params", {})), sort_keys=True) for node in (a, b)]
            results = [[(tensor.dtype, tensor.shape, tensor.column) for tensor in node.outputs] for node in (a, b)]
            return assets[0] == assets[1] and written[0] == written[1] and results[0] == results[1]
        return False

    def _same(self, a: Any, b: Any) -> bool:  # Any: an equation's param, both
        kind = type(a)
        if kind is not type(b):
            return False
        return bool(a == b) if kind in _PLAIN else self._frozen(a) == self._frozen(b)

    def _params(self, params: Mapping[str, Any]) -> Hashable:
        return tuple(
            [
                (name, value if type(value) in _PLAIN else self._frozen(value))
                for name, value in params.items()  # a primitive's params always come in one order
            ]
        )

    def _frozen(self, value: Any) -> Hashable:  # Any: an equation's param
        """A param as something that is equal where it means the same."""
        kind = type(value)
        if kind in _PLAIN:
            return value  # type: ignore[no-any-return]  # one of four hashable types
        if kind is tuple or kind is list:
            return tuple([item if type(item) in _PLAIN else self._frozen(item) for item in value])
        if kind is float:
            return ("float", value.hex())  # 0.0 == -0.0
        if kind is dict:
            return tuple([(key, self._frozen(item)) for key, item in sorted(value.items())])
        if kind is jex.ClosedJaxpr:
            return ("closed", self._jaxpr(value.jaxpr), tuple(map(id, value.consts)))
        if kind is jex.Jaxpr:
            return self._jaxpr(value)
        try:
            hash(value)
        except TypeError:
            return ("object", id(value))
        return (kind, value)

    def _jaxpr(self, jaxpr: Any) -> Hashable:
        """A jaxpr with its variables numbered: equal for functions that do the same, whatever the variables are."""
        numbered = self._jaxprs.get(id(jaxpr))
        if numbered is None:
            numbered = self._jaxprs[id(jaxpr)] = self._numbered(jaxpr)
        return numbered

    def _numbered(self, jaxpr: Any) -> Hashable:
        places: dict[Any, int] = {}

        def numbered_avals(variables: Any) -> Hashable:
            for var in variables:
                places[var] = len(places)
            return tuple([var.aval for var in variables])

        def read(atoms: Any) -> Hashable:
            return tuple(
                [(atom.aval, bits(atom.val)) if isinstance(atom, jex.Literal) else places[atom] for atom in atoms]
            )

        inputs = numbered_avals((*jaxpr.constvars, *jaxpr.invars))
        steps = []
        for equation in jaxpr.eqns:
            if equation.effects:
                return ("effects", id(jaxpr))
            operands = read(equation.invars)
            params = self._params(equation.params)
            steps.append((equation.primitive.name, equation.ctx, operands, params, numbered_avals(equation.outvars)))
        return (len(jaxpr.constvars), inputs, tuple(steps), read(jaxpr.outvars))


def bits(number: Any) -> Hashable:  # Any: what JAX holds in a literal
    """A scalar as something that is equal for the same bits alone: −0.0 is not 0.0."""
    if isinstance(number, float):
        return float.hex(number)
    return int(number) if isinstance(number, int) else number.tobytes() if hasattr(number, "tobytes") else repr(number)
