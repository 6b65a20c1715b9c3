"""The schema of what a signature gives: a data schema, so that transformed rows are described and validated by it."""

from __future__ import annotations

from collections.abc import Mapping

from ...data.schemas.feature import Count, Domain, Feature, Presence, Range
from ...data.schemas.schema import Schema
from ..graphs.graph import FieldSpec, Graph
from ..graphs.nodes import HostNode

_TYPES = {"s": "string", "i": "int", "u": "int", "f": "float", "b": "bool"}


def output_schema(graph: Graph, signature: str, asked: Mapping[str, FieldSpec]) -> Schema:
    """What each output of a signature is, as a feature; see `Bundle.output_schema`."""
    makers = {tensor.id: node for node in graph.nodes for tensor in node.outputs}
    tensors = graph.tensors()
    features = []
    for name, spec in asked.items():
        tensor = tensors[graph.signatures[signature][name].tensor]
        node = makers.get(tensor.id)
        source = node if isinstance(node, HostNode) else None
        features.append(_feature(name, spec, source, maybe_missing=tensor.column))
    return Schema(tuple(features))


def _feature(name: str, spec: FieldSpec, source: HostNode | None, *, maybe_missing: bool) -> Feature:
    kind = "float" if spec.value_dtype == "bfloat16" else _TYPES[spec.value_dtype[0]]
    domain, evidence = _domain(spec, source)
    return Feature(
        name,
        type=kind,
        presence=Presence() if maybe_missing else Presence(min_fraction=1.0),
        domain=domain,
        evidence=evidence,
        shape=spec.shape or None,
        value_counts=(Count(min=0),) if spec.ragged else (),
    )


def _domain(spec: FieldSpec, source: HostNode | None) -> tuple[Domain | None, str]:
    """The range of a category's ids, and a line about where they come from; None for other outputs."""
    if spec.size is None:
        return None, ""
    least, most, of = 0, spec.size - 1, ""
    if source is not None and source.op == "lookup":
        unknown = source.params.get("default", 0)
        least, most = min(least, unknown), max(most, unknown)
        of = f" of the vocabulary {source.assets[0]}" if source.assets else ""
    return Range(least, most), f"domain: categorical, {spec.size} ids{of}"
