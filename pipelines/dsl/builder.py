"""The builder: records the calls of components as nodes. All that is wrong with a pipeline is found here."""

from __future__ import annotations

import difflib
import heapq
import re
import typing
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...errors import BuildError
from ...metadata import artifact_type
from ..form.bounds import endless
from ..form.expressions import dependencies
from ..form.ir import CANDIDATE, Edge, Json, Loop, Node, Pipeline, Query, Source
from ..form.ir import Chosen as ChosenByUid
from ..sources import closure as source_code
from ..sources.files import FileSet, SqlQuery
from ..sources.functions import reference, user_line
from ..sources.secret import Secret
from .component import Component, InputSpec, ParameterSpec, accepts, fits, spell, takes_query
from .handles import Chosen, Expression, Handle, Known, Property, Scalar, Selected

_ID = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,99}")


class Builder:
    """Records the components that a pipeline function calls."""

    def __init__(self, project: Path) -> None:
        self.project = project
        self.nodes: dict[str, Node] = {}
        self.loops: dict[str, Loop] = {}
        self.conditions: list[Json] = []
        self.refused: list[Json] = []  # of the `when` right above, and of each `otherwise` since
        self.loops_open: list[str] = []
        self.exiting = False
        self._prefix: list[str] = []
        self._lines: dict[str, str] = {}

    @contextmanager
    def branch(self, *conditions: Json) -> Iterator[None]:
        """Nodes added inside have these conditions too."""
        outer = len(self.conditions)
        self.conditions += conditions
        self.refused = []
        try:
            yield
        finally:
            del self.conditions[outer:]
            self.refused = [conditions[-1]]

    @contextmanager
    def alternative(self, condition: Json | None) -> Iterator[None]:
        """A branch where no condition of the ones right above held."""
        before = self.refused
        own = [] if condition is None else [condition]
        with self.branch(*({"$op": ["not", each]} for each in before), *own):
            yield
        self.refused = [*before, *own] if own else []

    @contextmanager
    def loop(self, name: str, over: Json, parallel: int | None) -> Iterator[str]:
        """Nodes added inside are launched for each item; gives the loop's id."""
        where = user_line()
        name = self._prefixed(name or f"map{sum(1 for _ in self.loops) + 1 if self.loops else ''}")
        if name in self.loops or not _ID.fullmatch(name):
            raise BuildError(f"{name!r} is no id for a loop, or is taken", where=where, fix="give it another id=")
        within = self.loops_open[-1] if self.loops_open else ""
        for need in (*dependencies(over), *dependencies(self.conditions)):
            self._reach(name, need.node, need.collected, where)
        self.loops[name] = Loop(name, over, within, parallel, tuple(self.conditions))
        self.loops_open.append(name)
        try:
            yield name
        finally:
            self.loops_open.pop()
            self.refused = []

    @contextmanager
    def nested(self, name: str) -> Iterator[None]:
        """Nodes and loops added inside have ids that begin with the name."""
        self._prefix.append(name)
        try:
            yield
        finally:
            self._prefix.pop()
            self.refused = []

    def _prefixed(self, name: str) -> str:
        return ".".join([*self._prefix, name])

    def _scope(self, node: str) -> list[str]:
        found: list[str] = []
        name = self.nodes[node].loop
        while name:
            found.insert(0, name)
            name = self.loops[name].within
        return found

    def _reached(self, consumer: str, expression: Json, where: str) -> Json:
        """The expression, seen to use what is there."""
        for need in dependencies(expression):
            self._reach(consumer, need.node, need.collected, where)
        return expression

    def _reach(self, consumer: str, producer: str, collected: bool, where: str) -> None:
        """See that what is used here is what there is one of, or that it was collected."""
        if producer not in self.nodes:
            raise BuildError(f"{producer} belongs to another pipeline", where=where, fix="call its component here")
        scope, here = self._scope(producer), self.loops_open
        inside = scope == here[: len(scope)]
        if not collected and not inside:
            raise BuildError(
                f"{consumer} uses the output of {producer}, which is made for each item of {scope[-1]}",
                where=where,
                fix="return it from the function that dt.map_ calls, and use what dt.map_ returns",
            )
        if collected and (inside or scope[:-1] != here[: len(scope) - 1]):
            raise BuildError(
                f"{consumer} uses every output of {producer} where there are not all of them yet",
                where=where,
                fix=f"use what dt.map_ returns right around {scope[-1]}" if scope else "use the output itself",
            )
        if self.nodes[producer].on_exit and not self.exiting:
            raise BuildError(f"{consumer} uses what {producer} makes on exit", where=where, fix="move it inside")

    def add(self, component: Component[Any, Any], args: Sequence[object], kwargs: Mapping[str, object]) -> object:
        """Add a node; gives what stands for its outputs."""
        where = user_line()
        options = component.options_
        name = self._prefixed(options.id or component.name)
        self.refused = []
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
        self._reached(name, self.conditions, where)
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
            after=tuple(self._before(name, output, where) for output in options.after),
            cache=options.cache and not self.exiting,
            loop=self.loops_open[-1] if self.loops_open else "",
            on_exit=self.exiting,
            options=replace(options.node, env=tuple((k, self.encode(v, where)) for k, v in options.node.env)),
        )
        self._check_exit(node, where)
        self.nodes[name] = node
        self._lines[name] = where
        handles: dict[str, Handle | Property] = {
            key: Property(name, key, "value", component.scalars[key])
            if key in component.scalars
            else Handle(name, key, kind)
            for key, kind in component.outputs.items()
        }
        named = component.result_type
        return named(**handles) if hasattr(named, "_fields") else next(iter(handles.values()))

    def _before(self, node: str, output: object, where: str) -> str:
        """The node that must have ended before another one, named by one of its outputs."""
        if isinstance(output, tuple) and output:
            output = output[0]
        if not isinstance(output, (Handle, Property)):
            raise BuildError(f"{node}: after= takes outputs, not {output!r:.60}", where=where, fix="pass an output")
        before, collected = (
            (output._node, output._collected) if isinstance(output, Handle) else (output.node, output.collected)
        )
        self._reach(node, before, collected, where)
        return before

    def _check_exit(self, node: Node, where: str) -> None:
        for need in node.dependencies if node.on_exit else ():
            if need.kind in ("need", "choice") and not self.nodes[need.node].on_exit:
                raise BuildError(
                    f"{node.id} runs however the run ends, and {need.node} may not have run",
                    where=where,
                    fix="pass dt.optional(...) of its output",
                )

    def finish(self) -> tuple[Node, ...]:
        """The nodes, with a control edge from each gate to the consumers of what it gates that are no gates of it."""
        for node in self.nodes.values():
            for _, sources in node.inputs:
                for source in sources:
                    if isinstance(source, Query) and source.made_by:
                        self._check_maker(node.id, source)
        after: dict[str, list[str]] = {}
        for gate in self.nodes.values():
            for node in self._held_by(gate):
                after.setdefault(node.id, []).append(gate.id)
        nodes = {n.id: replace(n, after=(*n.after, *after.get(n.id, []))) for n in self.nodes.values()}
        ordered = tuple(_ordered({name: (node, self._upstream(node)) for name, node in nodes.items()}))
        self._check_bounds(ordered)
        return ordered

    def _check_bounds(self, nodes: tuple[Node, ...]) -> None:
        """Where a loop's items are bounded, one must be able to end before the next begins."""
        found = endless(Pipeline("", (), nodes, tuple(self.loops.values())))
        if found is not None:
            loop, waits = found
            most = self.loops[loop].parallel
            raise BuildError(
                f"no item of {loop} could end, and max_parallel={most} lets no other begin: one waits for "
                f"{', '.join(waits)}, which waits for every item",
                where=self._lines[waits[0]],
                fix=f"leave max_parallel out, or let no gate see what is made in {loop}",
            )

    def _held_by(self, gate: Node) -> Iterator[Node]:
        """The consumers of what a gate gates, that are neither gates of it nor before it."""
        gated = {(edge.node, edge.output) for edge in _edges(gate, gate.gates)}
        if gated:
            before = self._ancestors(gate.id)
            for node in self.nodes.values():
                also_gates = gated & {(edge.node, edge.output) for edge in _edges(node, node.gates)}
                waits = node.id not in before and not node.on_exit and not also_gates
                if waits and gated & {(edge.node, edge.output) for edge in node.edges}:
                    yield node

    def _upstream(self, node: Node) -> set[str]:
        """What it and its loops wait for."""
        loops = [self.loops[name] for name in self._scope(node.id)]
        return set(node.upstream).union(need.node for loop in loops for need in loop.dependencies)

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
        if isinstance(value, Scalar):
            return value.expression
        if isinstance(value, Selected):
            return self._selected(value, where)
        if isinstance(value, Secret):
            return {"$secret": value.name}
        if isinstance(value, FileSet):
            named = [value.pattern, *([] if value.span is value.version is None else [value.span, value.version])]
            encoded = [self.encode(item, where) for item in named]
            return {"$files": encoded if len(encoded) > 1 else encoded[0]}
        if isinstance(value, SqlQuery):
            asked = [value.sql, value.connection, value.parameters, value.watermark]
            dated = [] if value.span is None else [value.span]
            return {"$query": [self.encode(item, where) for item in (*asked, *dated)]}
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

    def _selected(self, value: Selected, where: str) -> Json:
        choices = [each for each in value.choices if isinstance(each, Scalar)]
        if len(choices) < len(value.choices):
            raise BuildError(f"{value!r} is an artifact, not a value", where=where, fix="pass a property of it")
        if value.optional:
            return {"$optional": choices[0].expression}
        return {"$one_of": [choice.expression for choice in choices]}

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
    ) -> tuple[Source, ...]:
        spec = component.inputs[key]
        if value is None and spec.optional:
            return ()
        found: list[Source] = []
        for position, item in enumerate(value if spec.many and isinstance(value, list) else [value], 1):
            if not isinstance(item, Selected):
                found.append(self._source(node, spec, item, component.inputs, where))
                continue
            if item.optional and not (spec.optional or spec.many):
                raise BuildError(
                    f"{node}: the input {spec.name!r} must be given, and {item!r} may be skipped",
                    where=where,
                    fix=f"declare it `{spec.name}: {spec.type.__name__} | None`",
                )
            for choice in item.choices:
                edge = self._source(node, spec, choice, component.inputs, where)
                if isinstance(edge, Edge):
                    found.append(replace(edge, optional=item.optional, choice=0 if item.optional else position))
        return tuple(found)

    def _source(self, node: str, spec: InputSpec, value: object, inputs: Mapping[str, InputSpec], where: str) -> Source:
        wanted = spec.type
        if isinstance(value, Expression):  # an item of a loop, which names artifacts by their uids
            return ChosenByUid(value.expression)
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
            if value.query.type != wanted.__name__ and not issubclass(artifact_type(value.query.type), wanted):
                raise BuildError(
                    f"{node}: the input {spec.name!r} takes {wanted.__name__}, not {value.query.type}", where=where
                )
            if value.many and not spec.many:
                raise BuildError(
                    f"{node}: the input {spec.name!r} takes one {wanted.__name__}, and {value!r} finds a list",
                    where=where,
                    fix=f"declare it `{spec.name}: list[{wanted.__name__}]`",
                )
            if value.query.of is not None:
                self._reach(node, value.query.of.node, value.collected, where)
            self._reached(node, [argument for _, argument in value.query.arguments], where)
            if not spec.optional and not spec.many:
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
        if value._collected and not spec.many:
            raise BuildError(
                f"{node}: the input {spec.name!r} takes one {wanted.__name__}, and {value!r} is a list",
                where=where,
                fix=f"declare it `{spec.name}: list[{wanted.__name__}]`",
            )
        self._reach(node, value._node, value._collected, where)
        return Edge(value._node, value._output)

    def _parameter(self, node: str, spec: ParameterSpec, value: object, where: str) -> Json:
        if isinstance(value, (Handle, Chosen)):
            raise BuildError(
                f"{node}: the parameter {spec.name!r} takes a value, not {value!r}",
                where=where,
                fix="pass a property of it, or declare the parameter with an artifact type",
            )
        if isinstance(value, Known):
            value = value.value
        if isinstance(value, Selected):
            if not value.optional or accepts(spec.hint, None):
                for choice in value.choices:
                    self._parameter(node, spec, choice, where)
                return self.encode(value, where)
            raise BuildError(
                f"{node}: the parameter {spec.name!r} takes {spell(spec.hint)}, and {value!r} may be None", where=where
            )
        if isinstance(value, Scalar):
            if not _compatible(spec, value.hint):
                raise BuildError(
                    f"{node}: the parameter {spec.name!r} takes {spell(spec.hint)}, "
                    f"and {value!r} is {spell(value.hint)}",
                    where=where,
                )
            return self._reached(node, self.encode(value, where), where)
        if value is None and accepts(spec.hint, None):
            return None
        if spec.kind == "function":
            return self._function(value, where)
        if isinstance(value, SqlQuery) and not takes_query(spec.hint):
            raise BuildError(f"{node}: the parameter {spec.name!r} takes files, not a query", where=where)
        if spec.kind == "files":
            return self._reached(node, self.encode(FileSet(value) if isinstance(value, str) else value, where), where)
        if not accepts(spec.hint, value):
            raise BuildError(
                f"{node}: the parameter {spec.name!r} takes {spell(spec.hint)}, not {value!r:.60}", where=where
            )
        return self._reached(node, self.encode(value, where), where)

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
            for name in self._upstream(self.nodes[todo.pop()]):
                if name not in seen:
                    seen.add(name)
                    todo.append(name)
        return seen


def _edges(node: Node, name: str | None) -> list[Edge]:
    return [source for source in dict(node.inputs).get(name or "", ()) if isinstance(source, Edge)]


def _ordered(nodes: dict[str, tuple[Node, set[str]]]) -> Iterator[Node]:
    """Topological order that keeps the order of the calls where it can (a gate may be called after a consumer)."""
    position = {name: (node.on_exit, index) for index, (name, (node, _)) in enumerate(nodes.items())}
    waiting = {name: len(upstream) for name, (_, upstream) in nodes.items()}
    consumers: dict[str, list[str]] = {name: [] for name in nodes}
    for name, (_, upstream) in nodes.items():
        for before in upstream:
            consumers[before].append(name)
    ready = [(position[name], name) for name, count in waiting.items() if not count]
    heapq.heapify(ready)
    while ready:
        _, name = heapq.heappop(ready)
        del waiting[name]
        yield nodes[name][0]
        for consumer in consumers[name]:
            waiting[consumer] -= 1
            if not waiting[consumer]:
                heapq.heappush(ready, (position[consumer], consumer))
    if waiting:
        raise BuildError(
            f"{', '.join(waiting)} wait for each other", fix="a gate's own inputs must not depend on what it gates"
        )


def _compatible(spec: ParameterSpec, hint: Any) -> bool:
    if spec.kind == "files":
        return hint in (str, FileSet)
    if spec.kind == "function":
        return hint is str
    return fits(hint, spec.hint)


def suggest(name: str, names: Sequence[str]) -> str:
    """The fix for a name that does not exist: the close one, or all there are."""
    close = difflib.get_close_matches(name, names, 1)
    return f"did you mean {close[0]!r}?" if close else f"it has {', '.join(names) or 'none'}"
