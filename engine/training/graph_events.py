"""What a model computes, as the graph that TensorBoard draws."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tensorboardX.proto.attr_value_pb2 import AttrValue
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.proto.graph_pb2 import GraphDef
from tensorboardX.proto.node_def_pb2 import NodeDef
from tensorboardX.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboardX.proto.versions_pb2 import VersionDef

if TYPE_CHECKING:
    Variable = Any  # JAX leaves what a jaxpr is made of untyped
    Jaxpr = Any

_CALLS = frozenset({"checkpoint", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "jit", "pjit"})
"""Operations that only call a function: drawn as what the function does."""


def graph_event(closed: Jaxpr, inputs: Sequence[str]) -> Event:
    """An event that holds the operations of a function as nodes.

    Args:
        closed: From `jax.make_jaxpr`. Names of `jax.named_scope` become boxes; a loop or a branch is one node.
        inputs: Of each of its arguments, flat, a path such as "params/hidden/kernel".
    """
    operations = _Operations()
    for variable, name in zip(closed.jaxpr.invars, inputs, strict=True):
        operations.add(name, "Input", (), (variable,))
    operations.follow(closed.jaxpr, "")
    graph = GraphDef(node=operations.nodes, versions=VersionDef(producer=22))
    return Event(graph_def=graph.SerializeToString())


class _Operations:
    """Nodes of a graph, and which of them computes each variable."""

    def __init__(self) -> None:
        self.nodes: list[NodeDef] = []
        self._counts: Counter[str] = Counter()
        self._sources: dict[Variable, str] = {}

    def follow(self, jaxpr: Jaxpr, scope: str) -> None:
        """Add a function's operations, those of the functions that it calls among them."""
        for variable in jaxpr.constvars:
            if variable not in self._sources:
                self.add(_path(scope, "constant"), "Const", (), (variable,))
        for equation in jaxpr.eqns:
            inner_scope = _path(scope, str(equation.source_info.name_stack))
            called = _called(equation)
            if called is None:
                name = _path(inner_scope, equation.primitive.name)
                self.add(name, equation.primitive.name, equation.invars, equation.outvars)
                continue
            self._equal(called.invars, equation.invars)
            self.follow(called, inner_scope)
            self._equal(equation.outvars, called.outvars)

    def add(self, name: str, operation: str, inputs: Sequence[Variable], outputs: Sequence[Variable]) -> None:
        """Add a node; a name that is taken gets a number."""
        self._counts[name] += 1
        if self._counts[name] > 1:
            name = f"{name}_{self._counts[name] - 1}"
        for number, variable in enumerate(outputs):
            self._sources[variable] = f"{name}:{number}" if number else name
        sources = [source for variable in inputs if (source := self._source(variable)) is not None]
        shapes = AttrValue(list=AttrValue.ListValue(shape=[_shape(variable) for variable in outputs]))
        self.nodes.append(NodeDef(name=name, op=operation, input=sources, attr={"_output_shapes": shapes}))

    def _equal(self, variables: Sequence[Variable], others: Sequence[Variable]) -> None:
        for variable, other in zip(variables, others, strict=True):
            source = self._source(other)
            if source is not None:
                self._sources[variable] = source

    def _source(self, variable: Variable) -> str | None:
        return None if hasattr(variable, "val") else self._sources.get(variable)  # a literal has no node


def _called(equation: Variable) -> Jaxpr | None:
    """The function that an equation calls, where it does nothing else."""
    if equation.primitive.name not in _CALLS:
        return None
    for value in equation.params.values():
        inner = getattr(value, "jaxpr", value)
        if hasattr(inner, "eqns"):
            return inner
    return None


def _path(scope: str, name: str) -> str:
    return f"{scope}/{name}" if scope and name else scope or name


def _shape(variable: Variable) -> TensorShapeProto:
    return TensorShapeProto(dim=[TensorShapeProto.Dim(size=size) for size in variable.aval.shape])
