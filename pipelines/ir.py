"""The compiled form of a pipeline: immutable, byte-stable JSON, all that `launch` reads.

Maps whose order means something are lists of pairs; a symbolic value is an object with one `$` key:
`{"$param": name}`, `{"$fn": "module:attribute", "code": digest}`, `{"$files": pattern}`, `{"$map": pairs}`,
`{"$property": [node, output, property]}`, `{"$query": [sql, connection, parameters, watermark]}`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from ..digest import canonical_json, digest
from ..errors import BuildError

FORMAT = "drivetrain-pipeline/1"
Json: TypeAlias = Any  # a JSON value; Any because the type is recursive and read by key
CANDIDATE = "model"
"""The input that an evaluation's candidate comes in by: what `latest_blessed` must not choose."""
Pairs: TypeAlias = tuple[tuple[str, Json], ...]


@dataclass(frozen=True)
class Edge:
    """One artifact that flows into an input: another node's output."""

    node: str
    output: str

    def to_json(self) -> Json:
        """As IR."""
        return {"node": self.node, "output": self.output}


@dataclass(frozen=True)
class Query:
    """An artifact chosen from history when the node is launched: by `latest`, `latest_passed` or `latest_blessed`.

    `made_by` is the node that made it, "" for any.
    """

    strategy: str
    type: str
    made_by: str = ""

    def to_json(self) -> Json:
        """As IR."""
        return {"query": self.strategy, "type": self.type} | ({"made_by": self.made_by} if self.made_by else {})


@dataclass(frozen=True)
class Condition:
    """A published property that must be true for the node to run."""

    node: str
    output: str
    property: str

    def to_json(self) -> Json:
        """As IR."""
        return {"node": self.node, "output": self.output, "property": self.property}

    def __str__(self) -> str:
        return f"{self.node}.{self.property}"


@dataclass(frozen=True)
class Node:
    """One step.

    Attributes:
        id: Unique in the pipeline.
        component: `module:name`; relative to the project where `code` is set.
        code: Digest of the component's source closure; None for an installed component, whose version counts
            when the node is launched.
        inputs: Input name -> edges and queries, in order; without the optional ones that were not given.
        parameters: Parameter name -> encoded value, in order.
        outputs: Output key -> artifact type name.
        conditions: All must hold, else the node is skipped.
        gates: The input this node may veto.
        after: Gates that must have passed.
        cache: Whether an earlier execution may stand in.
    """

    id: str
    component: str
    code: str | None
    inputs: tuple[tuple[str, tuple[Edge | Query, ...]], ...]
    parameters: Pairs
    outputs: tuple[tuple[str, str], ...]
    conditions: tuple[Condition, ...] = ()
    gates: str | None = None
    after: tuple[str, ...] = ()
    cache: bool = True

    @property
    def edges(self) -> Iterator[Edge]:
        """The edges of all inputs."""
        for _, sources in self.inputs:
            yield from (source for source in sources if isinstance(source, Edge))

    @property
    def needs(self) -> tuple[str, ...]:
        """Ids of the nodes whose outputs or properties it uses, each once, in order."""
        properties = [ref[0] for ref in _properties(self.parameters)]
        return tuple(dict.fromkeys([*(e.node for e in self.edges), *(c.node for c in self.conditions), *properties]))

    @property
    def upstream(self) -> tuple[str, ...]:
        """Ids of the nodes that must have ended first: what it needs, and its gates."""
        return tuple(dict.fromkeys([*self.needs, *self.after]))

    def to_json(self) -> Json:
        """As IR."""
        return {
            "id": self.id,
            "component": self.component,
            "code": self.code,
            "inputs": [[name, [source.to_json() for source in sources]] for name, sources in self.inputs],
            "parameters": [list(pair) for pair in self.parameters],
            "outputs": [list(pair) for pair in self.outputs],
            "conditions": [condition.to_json() for condition in self.conditions],
            "gates": self.gates,
            "after": list(self.after),
            "cache": self.cache,
        }


def _properties(value: Json) -> Iterator[tuple[str, str, str]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            if key == "$property":
                yield tuple(item)
            else:
                yield from _properties(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _properties(item)


@dataclass(frozen=True)
class Pipeline:
    """A built pipeline: nodes in topological order, parameters as (name, type, default) with their order kept."""

    name: str
    parameters: tuple[tuple[str, str, Json], ...]
    nodes: tuple[Node, ...]

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for node in self.nodes:
            missing = [name for name in node.upstream if name not in seen]
            if missing:
                raise BuildError(
                    f"{node.id} comes before {missing[0]}, which it needs",
                    fix="the compiled form is damaged or holds a cycle; build it again",
                )
            if node.id in seen:
                raise BuildError(f"two nodes are called {node.id!r}", fix="build the pipeline again")
            seen.add(node.id)

    def __getitem__(self, node: str) -> Node:
        """The node of that id."""
        for candidate in self.nodes:
            if candidate.id == node:
                return candidate
        raise BuildError(f"the pipeline {self.name} has no node {node!r}", fix=f"it has {', '.join(self.ids)}")

    @property
    def ids(self) -> tuple[str, ...]:
        """Node ids in topological order."""
        return tuple(node.id for node in self.nodes)

    def consumers(self, node: str) -> tuple[str, ...]:
        """Ids of the nodes that wait for this one."""
        return tuple(other.id for other in self.nodes if node in other.upstream)

    def to_json(self) -> str:
        """The IR: the same bytes for the same pipeline, wherever its folder lies."""
        body = {
            "format": FORMAT,
            "name": self.name,
            "parameters": [list(parameter) for parameter in self.parameters],
            "nodes": [node.to_json() for node in self.nodes],
        }
        return canonical_json(body).decode()

    @cached_property
    def digest(self) -> str:
        """The pipeline's version."""
        return digest("drivetrain-pipeline-v1", json.loads(self.to_json()))

    @classmethod
    def from_json(cls, text: str) -> Pipeline:
        """Read the IR.

        Raises:
            BuildError: It is no IR, or of a format this release does not read.
        """
        try:
            body = json.loads(text)
            found = body.get("format")
            if found != FORMAT:
                raise BuildError(f"the compiled pipeline has format {found!r}", fix=f"this release reads {FORMAT}")
            return cls(
                body["name"],
                tuple((name, kind, default) for name, kind, default in body["parameters"]),
                tuple(_node(item) for item in body["nodes"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BuildError(f"the compiled pipeline cannot be read: {error}", fix="build it again") from None


def _node(body: Json) -> Node:
    return Node(
        id=body["id"],
        component=body["component"],
        code=body["code"],
        inputs=tuple((name, tuple(_source(source) for source in sources)) for name, sources in body["inputs"]),
        parameters=tuple((name, value) for name, value in body["parameters"]),
        outputs=tuple((key, kind) for key, kind in body["outputs"]),
        conditions=tuple(Condition(c["node"], c["output"], c["property"]) for c in body["conditions"]),
        gates=body["gates"],
        after=tuple(body["after"]),
        cache=body["cache"],
    )


def _source(body: Json) -> Edge | Query:
    if "query" in body:
        return Query(body["query"], body["type"], body.get("made_by", ""))
    return Edge(body["node"], body["output"])
