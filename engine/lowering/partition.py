"""A traced preprocessing function as a graph: its analyzers by phase, its outputs, and any part of it lowered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from numpy.typing import NDArray

from ..graphs.graph import Graph, Output, RowCheck
from ..graphs.nodes import BATCH, AnalyzerNode, Tensor
from ..passes import STRUCTURAL, optimize
from ..tracing.equations import graph_of_jaxpr
from ..tracing.primitives import GIVEN
from ..tracing.trace import Traced, TracedInverse
from .lower import lower

_TRACE: Final = "trace"


@dataclass(frozen=True)
class Analyzer:
    """One analyzer of the trace: what to compute, of which tensors, and the tensor it becomes.

    Attributes:
        phase: How deep its nesting in other analyzers is, counted from 1.
    """

    kind: str
    params: Mapping[str, Any]  # Any: JSON
    inputs: tuple[str, ...]
    value: str
    phase: int
    dtype: str
    shape: tuple[int, ...]
    where: str | None


class Partition:
    """A traced function's graph after the structural passes: equal work is done once, what nobody needs not at all."""

    def __init__(self, traced: Traced) -> None:
        inputs = [(name, Tensor(f"column/{name}", dtype, (BATCH,), column=True)) for name, dtype in traced.columns]
        places = {str(position): position for position in range(len(traced.jaxpr.jaxpr.outvars))}
        graph = graph_of_jaxpr(traced.jaxpr, inputs, places, signature=_TRACE, prefix="transform/")
        self.traced = traced
        self.graph, self.reports = optimize(graph, STRUCTURAL)
        self._columns = tuple(tensor for _, tensor in inputs)
        self._tensors = graph.tensors() | self.graph.tensors()

    @property
    def constants(self) -> Mapping[str, NDArray[Any]]:
        """The arrays that the function captured, by weight name."""
        return self.graph.values

    def tensor(self, value: str) -> Tensor:
        """The tensor of that id. Raises KeyError where there is none."""
        return self._tensors[value]

    def analyzers(self) -> list[Analyzer]:
        """The analyzers that the outputs need and that look at data, in order."""
        return [analyzer for analyzer in self._analyzers() if analyzer.kind != GIVEN]

    def tables(self) -> list[Analyzer]:
        """What the outputs need that needs no data: tables that came with a saved graph, by their param "table"."""
        return [analyzer for analyzer in self._analyzers() if analyzer.kind == GIVEN]

    def _analyzers(self) -> list[Analyzer]:
        depths: dict[str, int] = {}
        analyzers = []
        for node in self.graph.nodes:
            analyzer = isinstance(node, AnalyzerNode) and node.op != GIVEN
            depth = max((depths.get(name, 0) for name in node.inputs if name is not None), default=0) + analyzer
            depths.update((tensor.id, depth) for tensor in node.outputs)
            if isinstance(node, AnalyzerNode):
                (result,) = node.outputs
                shape = tuple(int(dim) for dim in result.shape)
                analyzers.append(
                    Analyzer(node.op, node.params, node.inputs, result.id, depth, result.dtype, shape, node.where)
                )
        return analyzers

    def outputs(self, vocabularies: Mapping[str, int]) -> dict[str, tuple[str, int | None]]:
        """Each output's tensor and its number of ids, given the length of each vocabulary by its tensor."""
        results = self.graph.signatures[_TRACE]
        sized_outputs = {}
        for output in self.traced.outputs:
            size = output.extra_ids
            if size is not None and output.vocabulary_position is not None:
                size = max(size + vocabularies[results[str(output.vocabulary_position)].tensor], output.least_ids)
            sized_outputs[output.name] = (results[str(output.position)].tensor, size)
        return sized_outputs

    def checks(self) -> tuple[RowCheck, ...]:
        """What must hold of every row of a batch: a boolean tensor, the message if it does not, the user's line."""
        results = self.graph.signatures[_TRACE]
        return tuple(RowCheck(results[str(c.position)].tensor, c.message, c.where) for c in self.traced.checks)

    def inverses(self) -> dict[str, tuple[TracedInverse, list[str]]]:
        """How outputs are turned back, and the tensors of the results that this needs."""
        results = self.graph.signatures[_TRACE]
        rules = {output.name: output.inverse for output in self.traced.outputs if output.inverse is not None}
        return {
            name: (rule, [results[str(position)].tensor for position in rule.places]) for name, rule in rules.items()
        }

    def lower(
        self,
        wanted: Mapping[str, tuple[str, int | None]],
        known: Mapping[str, str],
        signature: str,
        prefix: str,
        checks: tuple[RowCheck, ...] = (),
    ) -> tuple[Graph, dict[str, bytes]]:
        """The part of the graph that makes some tensors, as host nodes and exported device stages.

        Args:
            wanted: Output name → (tensor, number of ids).
            known: An analyzer's tensor → the name of the weight or asset that holds its result.
            signature: The name of the one signature.
            prefix: Starts the names of the device programs.
            checks: What must hold of the rows.

        Returns:
            The lowered graph, and its programs by name.
        """
        named = {signature: {name: Output(tensor, size) for name, (tensor, size) in wanted.items()}}
        kept = tuple(
            node for node in self.graph.nodes if not (isinstance(node, AnalyzerNode) and node.outputs[0].id in known)
        )
        results = {value: self._tensors[value] for value in known if self._tensors[value].dtype != "vocabulary"}
        whole = replace(
            self.graph,
            nodes=kept,
            signatures=named,
            checks={signature: checks} if checks else {},
            weights={**self.graph.weights, **results},
        )
        return lower(whole.signature(signature), prefix, known=known, columns=self._columns)
