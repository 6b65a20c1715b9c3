"""The builder: records the calls of components as nodes. All that is wrong with a pipeline is found here."""

from __future__ import annotations

import difflib
import re
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import BuildError
from . import code as source_code
from .component import Component, InputSpec, ParameterSpec, accepts, spell, takes_query
from .files import FileSet, SqlQuery
from .functions import reference, user_line
from .handles import Chosen, Handle, Parameter, Property
from .ir import CANDIDATE, Condition, Edge, Json, Node, Query

_ID = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,99}")


class Builder:
    """Records the components that a pipeline function calls."""

    def __init__(self, project: Path) -> None:
        self.project = project
        self.nodes: dict[str, Node] = {}
        self.conditions: list[Condition] = []
        self._lines: dict[str, str] = {}

    def add(self, component: Component[Any, Any], args: Sequence[object], kwargs: Mapping[str, object]) -> object:
        """Add a node; gives what stands for its outputs."""
        where = user_line()
        name = component.options_.id or component.name
        if not _ID.fullmatch(name):
            raise BuildError(f"{name!r} is no node id", where=where, fix="use letters, digits, _ . -, at most 100")
        if name in self.nodes:
            raise BuildError(
                f"there already is a node {name!r} (at {self._lines[name]})",
                where=where,
                fix=f'give this one a name: {component.name}.options(id="Second{component.name}")(...)',
            )
        bound = self._bind(component, args, kwargs, where)
        ref = reference(component.fn, self.project)
        inputs = [(key, self._sources(name, component, key, bound[key], where)) for key in component.inputs]
        node = Node(
            id=name,
            component=ref.name if ref.project else component.ref,
            code=source_code.closure(ref).digest if ref.project else None,
            # An optional input that is not given is left out: where a component gets another one, no key changes.
            inputs=tuple((key, sources) for key, sources in inputs if sources or not component.inputs[key].optional),
            parameters=tuple(
                (key, self._parameter(name, spec, bound[key], where)) for key, spec in component.parameters.items()
            ),
            outputs=tuple((key, kind.__name__) for key, kind in component.outputs.items()),
            conditions=tuple(self.conditions),
            gates=component.gates,
            cache=component.options_.cache,
        )
        self.nodes[name] = node
        self._lines[name] = where
        handles = {key: Handle(name, key, kind) for key, kind in component.outputs.items()}
        named = component.result_type
        return named(**handles) if hasattr(named, "_fields") else next(iter(handles.values()))

    def finish(self) -> tuple[Node, ...]:
        """The nodes, with a control edge from each gate to the consumers of what it gates that are no gates of it."""
        for node in self.nodes.values():
            for _, sources in node.inputs:
                for source in sources:
                    if isinstance(source, Query) and source.made_by:
                        self._check_maker(node.id, source)
        after: dict[str, list[str]] = {}
        for gate in self.nodes.values():
            for edge in dict(gate.inputs).get(gate.gates or "", ()):
                before = self._ancestors(gate.id)
                for node in self.nodes.values():
                    also_gates = edge in dict(node.inputs).get(node.gates or "", ())
                    if not also_gates and node.id not in before and edge in list(node.edges):
                        after.setdefault(node.id, []).append(gate.id)
        return tuple(_ordered({n.id: _with_after(n, after.get(n.id, [])) for n in self.nodes.values()}))

    def _check_maker(self, node: str, query: Query) -> None:
        """Only now: the node that makes it may be added after the one that looks back at it."""
        maker = self.nodes.get(query.made_by)
        if maker is None:
            raise BuildError(
                f"{node}: there is no node {query.made_by!r} whose {query.type} could be taken",
                where=self._lines[node],
                fix=suggest(query.made_by, list(self.nodes)),
            )
        if query.type not in dict(maker.outputs).values():
            raise BuildError(f"{node}: {query.made_by} makes no {query.type}", where=self._lines[node])

    def encode(self, value: object, where: str) -> Json:
        """A parameter's value as IR."""
        if isinstance(value, Parameter):
            return {"$param": value.name}
        if isinstance(value, Property):
            return {"$property": [value.node, value.output, value.name]}
        if isinstance(value, FileSet):
            return {"$files": value.pattern}
        if isinstance(value, SqlQuery):
            asked = [value.sql, value.connection, value.parameters, value.watermark]
            return {"$query": [self.encode(item, where) for item in asked]}
        if hasattr(value, "__arrow_c_stream__"):
            raise BuildError(
                f"a {type(value).__name__} in memory cannot be part of a pipeline, which other processes run later",
                where=where,
                fix="write it to a Parquet file and name that; or call the component outside a pipeline",
            )
        if isinstance(value, Mapping):
            return {"$map": [[self.encode(k, where), self.encode(v, where)] for k, v in value.items()]}
        if isinstance(value, (list, tuple)):
            return [self.encode(item, where) for item in value]
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        raise BuildError(
            f"{value!r:.60} is no JSON value", where=where, fix="pass numbers, text, lists and dicts; name a function"
        )

    def _bind(
        self, component: Component[Any, Any], args: Sequence[object], kwargs: Mapping[str, object], where: str
    ) -> dict[str, object]:
        names = list(component.signature.parameters)
        unknown = [key for key in kwargs if key not in names]
        if unknown:
            raise BuildError(
                f"{component.name} has no parameter {unknown[0]!r}", where=where, fix=suggest(unknown[0], names)
            )
        try:
            bound = component.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise BuildError(f"{component.name}: {error}", where=where, fix=f"it takes {', '.join(names)}") from None
        bound.apply_defaults()
        return dict(bound.arguments)

    def _sources(
        self, node: str, component: Component[Any, Any], key: str, value: object, where: str
    ) -> tuple[Edge | Query, ...]:
        spec = component.inputs[key]
        if value is None and spec.optional:
            return ()
        items = value if spec.many and isinstance(value, list) else [value]
        return tuple(self._source(node, spec, item, component.inputs, where) for item in items)

    def _source(
        self, node: str, spec: InputSpec, value: object, inputs: Mapping[str, InputSpec], where: str
    ) -> Edge | Query:
        wanted = spec.type
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            fitting = [item for item in value if isinstance(item, Handle) and issubclass(item._type, wanted)]
            if len(fitting) != 1:
                raise BuildError(
                    f"{node}: the input {spec.name!r} takes {wanted.__name__}, and the outputs "
                    f"{', '.join(value._fields)} hold {len(fitting)} of that type",
                    where=where,
                    fix="name the output, e.g. `transform.examples`",
                )
            value = fitting[0]
        if isinstance(value, Chosen):
            if value.query.strategy == "latest_blessed" and (spec.name == CANDIDATE or CANDIDATE not in inputs):
                raise BuildError(
                    f"{node}: {value!r} finds a baseline for the candidate, which is the input {CANDIDATE!r}",
                    where=where,
                    fix=f"give the component an input {CANDIDATE!r}, and this to another one",
                )
            if value.query.type != wanted.__name__:
                raise BuildError(
                    f"{node}: the input {spec.name!r} takes {wanted.__name__}, not {value.query.type}", where=where
                )
            if not spec.optional:
                raise BuildError(
                    f"{node}: the input {spec.name!r} must be given, and {value!r} may find nothing",
                    where=where,
                    fix=f"declare it `{spec.name}: {wanted.__name__} | None`",
                )
            return value.query
        if not isinstance(value, Handle):
            raise BuildError(
                f"{node}: the input {spec.name!r} takes {wanted.__name__}, not {value!r:.60}",
                where=where,
                fix="pass another component's output",
            )
        if not issubclass(value._type, wanted):
            raise BuildError(
                f"{node}: the input {spec.name!r} takes {wanted.__name__}, not {value._type.__name__} ({value!r})",
                where=where,
                fix=f"pass an output of type {wanted.__name__}",
            )
        if value._node not in self.nodes:
            raise BuildError(f"{value!r} belongs to another pipeline", where=where, fix="call its component here")
        return Edge(value._node, value._output)

    def _parameter(self, node: str, spec: ParameterSpec, value: object, where: str) -> Json:
        if isinstance(value, (Handle, Chosen)):
            raise BuildError(
                f"{node}: the parameter {spec.name!r} takes a value, not {value!r}",
                where=where,
                fix="pass a property of it, or declare the parameter with an artifact type",
            )
        if isinstance(value, (Parameter, Property)):
            if not _compatible(spec, value.hint):
                raise BuildError(
                    f"{node}: the parameter {spec.name!r} takes {spell(spec.hint)}, "
                    f"and {value!r} is {spell(value.hint)}",
                    where=where,
                )
            return self.encode(value, where)
        if value is None and accepts(spec.hint, None):
            return None
        if spec.kind == "function":
            return self._function(value, where)
        if isinstance(value, SqlQuery) and not takes_query(spec.hint):
            raise BuildError(f"{node}: the parameter {spec.name!r} takes files, not a query", where=where)
        if spec.kind == "files":
            return self.encode(FileSet(value) if isinstance(value, str) else value, where)
        if not accepts(spec.hint, value):
            raise BuildError(
                f"{node}: the parameter {spec.name!r} takes {spell(spec.hint)}, not {value!r:.60}", where=where
            )
        return self.encode(value, where)

    def _function(self, value: object, where: str) -> Json:
        try:
            ref = reference(typing.cast(Any, value), self.project)
            code = source_code.closure(ref)
            if code.files and not source_code.defines(ref):
                name, _, attribute = ref.name.partition(":")
                raise BuildError(f"{name} does not define {attribute!r}", fix="check the name after the colon")
        except BuildError as error:
            raise BuildError(error.message, where=error.where or where, fix=error.fix) from None
        return {"$fn": ref.name, "code": code.digest if ref.project else None}

    def _ancestors(self, node: str) -> set[str]:
        todo, seen = [node], set()
        while todo:
            for name in self.nodes[todo.pop()].upstream:
                if name not in seen:
                    seen.add(name)
                    todo.append(name)
        return seen


def _with_after(node: Node, gates: list[str]) -> Node:

    return replace(node, after=tuple(gates)) if gates else node


def _ordered(nodes: dict[str, Node]) -> Iterator[Node]:
    """Topological order that keeps the order of the calls where it can (a gate may be called after a consumer)."""
    done: set[str] = set()
    while len(done) < len(nodes):
        for node in nodes.values():
            if node.id not in done and all(name in done for name in node.upstream):
                done.add(node.id)
                yield node
                break
        else:
            left = ", ".join(name for name in nodes if name not in done)
            raise BuildError(f"{left} wait for each other", fix="a gate's own inputs must not depend on what it gates")


def _compatible(spec: ParameterSpec, hint: Any) -> bool:
    if spec.kind == "files":
        return hint in (str, FileSet)
    if spec.kind == "function":
        return hint is str
    return (
        hint is Any
        or spell(hint) == spell(spec.hint)
        or (hint is int and accepts(spec.hint, 0))
        or any(accepts(spec.hint, example) for kind, example in _EXAMPLES if hint is kind)
    )


_EXAMPLES: tuple[tuple[type, object], ...] = ((bool, True), (float, 0.5), (str, ""))


def suggest(name: str, names: Sequence[str]) -> str:
    """The fix for a name that does not exist: the close one, or all there are."""
    close = difflib.get_close_matches(name, names, 1)
    return f"did you mean {close[0]!r}?" if close else f"it has {', '.join(names) or 'none'}"
