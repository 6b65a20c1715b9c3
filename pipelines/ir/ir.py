"""The IR, a compiled pipeline: immutable, byte-stable JSON, all that `launch` reads.

Maps whose order means something are lists of pairs; a value still to come is an expression (`expressions`), and beside
those a parameter may be `{"$fn": "module:attribute", "code": digest}`, `{"$files": pattern}` or
`{"$files": [pattern, span, version]}`, `{"$spans": [pattern, ...]}`, `{"$secret": name}` or
`{"$query": [sql, connection, parameters, watermark]}`, which a span may follow.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias

from ...digest import canonical_json, digest, is_deep
from ...errors import BuildError, suggest
from .expressions import Dependency, dependencies
from .options import OPTIONS, NodeOptions

FORMAT = "drivetrain-pipeline/2"
FIRST = "drivetrain-pipeline/1"
Json: TypeAlias = Any  # a JSON value; Any because the type is recursive and read by key
CANDIDATE = "model"
"""The input that an evaluation's candidate comes in by: what `latest_blessed` must not choose."""
Pairs: TypeAlias = tuple[tuple[str, Json], ...]
ComponentKind: TypeAlias = Literal["function", "command", "container", "notebook"]


@dataclass(frozen=True)
class Edge:
    """Artifacts that flow into an input: another node's output.

    Attributes:
        optional: Whether nothing may stand in where that node was skipped.
        choice: Of the edges of one input with the same number, the first that was not skipped is taken; 0 means none.

    Where the other node is in a loop that this one is not in, it is the output of every item, in order.
    """

    node: str
    output: str
    optional: bool = False
    choice: int = 0

    def to_json(self) -> Json:
        """As it stands in the IR, without what has its default."""
        more = {"optional": self.optional, "choice": self.choice}
        return {"node": self.node, "output": self.output} | {name: value for name, value in more.items() if value}


_TOP_LEVEL: Final = ("artifact", "latest", "latest_blessed", "registered")


@dataclass(frozen=True)
class Query:
    """Artifacts chosen from history when the node is launched.

    Attributes:
        strategy: How: a name that `resolvers.choosing` knows, e.g. "latest".
        type: Of this type.
        made_by: The node that made it, "" for any.
        arguments: What the strategy needs, in order: expressions.
        of: What of this run it is chosen for: an output that is waited for as any other.
    """

    strategy: str
    type: str
    made_by: str = ""
    arguments: Pairs = ()
    of: Edge | None = None

    def __str__(self) -> str:
        name = self.strategy.removesuffix("_passed")
        return f"dt.{name}(...)" if name in _TOP_LEVEL else f"dt.resolvers.{name}(...)"

    def with_argument(self, name: str, value: Json) -> Query:
        """This query with one more argument."""
        return replace(self, arguments=(*self.arguments, (name, value)))

    def to_json(self) -> Json:
        """As it stands in the IR, without what has its default."""
        more = {
            "made_by": self.made_by,
            "arguments": [list(pair) for pair in self.arguments],
            "of": None if self.of is None else self.of.to_json(),
        }
        return {"query": self.strategy, "type": self.type} | {name: value for name, value in more.items() if value}


@dataclass(frozen=True)
class UidSource:
    """Artifacts that an expression names by their uids: one, or a list."""

    uids: Json

    def to_json(self) -> Json:
        """`{"uids": expression}`, as the IR holds it."""
        return {"uids": self.uids}


Source: TypeAlias = Edge | Query | UidSource


@dataclass(frozen=True)
class Loop:
    """Nodes that are launched once for each item of a list.

    Attributes:
        id: Unique in the pipeline.
        over: An expression that gives the list.
        within: The loop that this one is in, "" for none.
        parallel: How many items are worked on at once at most; None for any number.
        conditions: All must hold, else there are no items and what is inside is skipped.
    """

    id: str
    over: Json
    within: str = ""
    parallel: int | None = None
    conditions: tuple[Json, ...] = ()

    @property
    def dependencies(self) -> tuple[Dependency, ...]:
        """What must have ended before its items are known."""
        return (*dependencies(self.conditions), *dependencies(self.over))

    def to_json(self) -> Json:
        """All fields, as they stand in the IR."""
        return asdict(self) | {"conditions": list(self.conditions)}


@dataclass(frozen=True)
class Node:
    """One call of a component: a step of the pipeline.

    Attributes:
        id: Unique in the pipeline.
        component: `module:name`; relative to the project where `code` is set.
        code: Digest of the component's source closure; None for an installed component, whose version counts
            when the node is launched.
        inputs: Input name -> sources, in order; without the optional ones that were not given.
        parameters: Parameter name -> encoded value, in order.
        outputs: Output key -> artifact type name.
        conditions: Expressions that must all hold, else the node is skipped.
        gates: The input this node may veto.
        after: Nodes that must have ended, and where they are gates, passed.
        cache: Whether an earlier execution may stand in.
        asks: Whether it waits for what a person decides.
        kind: What the component is: a Python function, or a command, a container or a notebook.
        loop: The innermost loop it is in, "" for none.
        on_exit: Whether it runs after all others, however they ended.
        options: How it is carried out.
    """

    id: str
    component: str
    code: str | None
    inputs: tuple[tuple[str, tuple[Source, ...]], ...]
    parameters: Pairs
    outputs: tuple[tuple[str, str], ...]
    conditions: tuple[Json, ...] = ()
    gates: str | None = None
    after: tuple[str, ...] = ()
    cache: bool = True
    asks: bool = False
    kind: ComponentKind = "function"
    loop: str = ""
    on_exit: bool = False
    options: NodeOptions = field(default_factory=NodeOptions)

    @property
    def edges(self) -> Iterator[Edge]:
        """The edges of all inputs, including those of the outputs that queries are about."""
        for source in (source for _, sources in self.inputs for source in sources):
            edge = source.of if isinstance(source, Query) else source
            if isinstance(edge, Edge):
                yield edge

    @property
    def dependencies(self) -> Iterator[Dependency]:
        """What it waits for, conditions first; a node may come more than once."""
        yield from dependencies(self.conditions)
        for name, sources in self.inputs:
            for source in sources:
                if isinstance(source, Edge):
                    kind = "choice" if source.choice else "optional" if source.optional else "need"
                    yield Dependency(source.node, kind, (name, source.choice))  # type: ignore[arg-type]
                elif isinstance(source, UidSource):
                    yield from dependencies(source.uids)
                else:
                    yield from dependencies([value for _, value in source.arguments])
                    if source.of is not None:
                        yield Dependency(source.of.node)
        yield from dependencies([value for _, value in self.parameters])
        yield from dependencies([value for _, value in self.options.env])
        yield from (Dependency(name, "after") for name in self.after)

    @cached_property
    def upstream(self) -> tuple[str, ...]:
        """Ids of the nodes that this one waits for, each once; those that its loops wait for are not among them."""
        return tuple(dict.fromkeys(need.node for need in self.dependencies))

    def to_json(self) -> Json:
        """All fields, as they stand in the IR; what later releases added, only where it differs from its default."""
        return {
            "id": self.id,
            "component": self.component,
            "code": self.code,
            "inputs": [[name, [source.to_json() for source in sources]] for name, sources in self.inputs],
            "parameters": [list(pair) for pair in self.parameters],
            "outputs": [list(pair) for pair in self.outputs],
            "conditions": list(self.conditions),
            "gates": self.gates,
            "after": list(self.after),
            "cache": self.cache,
            **({"asks": True} if self.asks else {}),
            # Left out for functions, so that most pipelines have the bytes that earlier releases gave them.
            **({"kind": self.kind} if self.kind != "function" else {}),
            "loop": self.loop,
            "on_exit": self.on_exit,
            "options": self.options.to_json(),
        }


@dataclass(frozen=True)
class Pipeline:
    """A built pipeline: nodes in topological order, parameters as (name, type, default) with their order kept.

    `schedule`: when it runs by itself, as `triggers.reading.read_schedule` reads it; None where it does not.
    """

    name: str
    parameters: tuple[tuple[str, str, Json], ...]
    nodes: tuple[Node, ...]
    loops: tuple[Loop, ...] = ()
    schedule: Json = None

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for node in self.nodes:
            missing = [name for name in self.upstream(node.id) if name not in seen]
            if missing:
                raise BuildError(
                    f"{node.id} comes before {missing[0]}, which it needs",
                    fix="the compiled pipeline is damaged or holds a cycle; build it again",
                )
            if node.id in seen:
                raise BuildError(f"two nodes are called {node.id!r}", fix="build the pipeline again")
            seen.add(node.id)

    def __getitem__(self, node: str) -> Node:
        """The node of that id."""
        by_id = self._by_id.get(node)
        if by_id is None:
            raise BuildError(f"the pipeline {self.name} has no node {node!r}", fix=suggest(node, self.ids))
        return by_id

    @cached_property
    def _by_id(self) -> dict[str, Node]:
        return {node.id: node for node in self.nodes}

    @cached_property
    def _loops(self) -> dict[str, Loop]:
        return {loop.id: loop for loop in self.loops}

    @cached_property
    def _consumers(self) -> dict[str, tuple[str, ...]]:
        consumers: dict[str, list[str]] = {node.id: [] for node in self.nodes}
        for node in self.nodes:
            for name in self.upstream(node.id):
                consumers[name].append(node.id)
        return {name: tuple(nodes) for name, nodes in consumers.items()}

    @property
    def ids(self) -> tuple[str, ...]:
        """Node ids in topological order."""
        return tuple(node.id for node in self.nodes)

    def loop(self, name: str) -> Loop:
        """The loop of that id."""
        try:
            return self._loops[name]
        except KeyError:
            raise BuildError(f"the pipeline {self.name} has no loop {name!r}", fix="build it again") from None

    def scope(self, node: str) -> tuple[str, ...]:
        """The loops that a node is in, the outermost first."""
        loops: list[str] = []
        name = self[node].loop
        while name:
            if name in loops:
                raise BuildError(f"the loop {name!r} is within itself", fix="build the pipeline again")
            loops.append(name)
            name = self.loop(name).within
        return tuple(reversed(loops))

    def upstream(self, node: str) -> tuple[str, ...]:
        """Ids of the nodes that must have ended before a node is launched: for itself, and for its loops."""
        loops = [need.node for name in self.scope(node) for need in self.loop(name).dependencies]
        return tuple(dict.fromkeys([*loops, *self[node].upstream]))

    def consumers(self, node: str) -> tuple[str, ...]:
        """Ids of the nodes that wait for this one."""
        return self._consumers[node]

    def to_json(self) -> str:
        """The IR: the same bytes for the same pipeline, wherever its folder lies."""
        body = {
            "format": FORMAT,
            "name": self.name,
            "parameters": [list(parameter) for parameter in self.parameters],
            "loops": [loop.to_json() for loop in self.loops],
            "nodes": [node.to_json() for node in self.nodes],
            **({} if self.schedule is None else {"schedule": self.schedule}),
        }
        return canonical_json(body).decode()

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of the IR: equal for equal pipelines, whatever folder they are built in."""
        return digest("drivetrain-pipeline-v1", json.loads(self.to_json()))

    @classmethod
    def from_json(cls, text: str) -> Pipeline:
        """A pipeline from its JSON, also from that of the first release.

        Raises:
            BuildError: It is not an IR, or a newer release wrote it, with something that this one does not know.
        """
        try:
            body = json.loads(text)
            if is_deep(body):
                raise ValueError("it is nested too deeply")
            version = body.get("format")
            if re.fullmatch(r"drivetrain-pipeline/[0-9]+", str(version)) and version not in (FORMAT, FIRST):
                raise _newer(f"the format {version!r}")
            if version not in (FORMAT, FIRST):
                raise BuildError(
                    f"the compiled pipeline has format {version!r}", fix=f"this release reads {FORMAT} and {FIRST}"
                )
            _refuse_unknown(body, ("format", "loops", "name", "nodes", "parameters", "schedule"), "entry")
            return cls(
                body["name"],
                tuple((name, kind, default) for name, kind, default in body["parameters"]),
                tuple(_node(item) for item in body["nodes"]),
                tuple(_loop(item) for item in body.get("loops", [])),
                body.get("schedule"),
            )
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise BuildError(f"the compiled pipeline cannot be read: {error}", fix="build it again") from None


def _newer(unknown: str) -> BuildError:
    return BuildError(
        f"the compiled pipeline cannot be read: a newer drivetrain recorded it, with {unknown}",
        fix="upgrade drivetrain",
    )


def _refuse_unknown(names: Collection[str], known: Collection[str], what: str) -> None:
    """Refuse what a newer release added: to leave it out would run another pipeline than the one recorded."""
    if unknown := sorted(set(names) - set(known)):
        raise _newer(f"the {what} {unknown[0]!r}")


def _loop(body: Json) -> Loop:
    _refuse_unknown(body, [each.name for each in fields(Loop)], "field of a loop")
    return Loop(**body | {"conditions": tuple(body["conditions"])})


def _node(body: Json) -> Node:
    _refuse_unknown(body, [each.name for each in fields(Node)], "field of a node")
    _refuse_unknown(body.get("options", {}), OPTIONS, "node option")
    return Node(
        id=body["id"],
        component=body["component"],
        code=body["code"],
        inputs=tuple((name, tuple(_source(source) for source in sources)) for name, sources in body["inputs"]),
        parameters=tuple((name, value) for name, value in body["parameters"]),
        outputs=tuple((key, kind) for key, kind in body["outputs"]),
        conditions=tuple(_condition(condition) for condition in body["conditions"]),
        gates=body["gates"],
        after=tuple(body["after"]),
        cache=body["cache"],
        asks=body.get("asks", False),
        kind=body.get("kind", "function"),
        loop=body.get("loop", ""),
        on_exit=body.get("on_exit", False),
        options=NodeOptions.from_json(body.get("options", {})),
    )


def _condition(body: Json) -> Json:
    """A condition in today's notation: the first release wrote a property as an object with three fields."""
    first = isinstance(body, dict) and "property" in body  # what a pipeline within another was given may be plain
    return {"$property": [body["node"], body["output"], body["property"]]} if first else body


def _source(body: Json) -> Source:
    if "query" in body:
        arguments = tuple((name, value) for name, value in body.get("arguments", []))
        of = _edge(body["of"]) if "of" in body else None
        return Query(body["query"], body["type"], body.get("made_by", ""), arguments, of)
    return UidSource(body["uids"]) if "uids" in body else _edge(body)


def _edge(body: Json) -> Edge:
    return Edge(body["node"], body["output"], body.get("optional", False), body.get("choice", 0))
