"""Our cache at submit: tasks that are cached, skipped or blocked already get no pod.

What they gave stands as values in the expressions of the rest, so that the compiled pipeline does not name them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from ..ir.expressions import Bindings, dependencies, evaluate, names_any
from ..ir.ir import (
    Edge,
    Loop,
    Node,
    Pipeline,
    Query,
    Source,
    UidSource,
)
from ..ir.tasks import parse_task
from ..launcher.launcher import Launcher
from ..launcher.results import NodeResult

Json: TypeAlias = Any  # a JSON value; Any because the type is recursive and read by key
_SCALARS = frozenset({"$property", "$collect", "$optional", "$one_of", "$op"})
_LATER = frozenset({"$param", "$item", "$status"})


@dataclass(frozen=True)
class TasksWithoutPod:
    """The tasks that end at submit, and so get no pod.

    Attributes:
        results: By task.
        nodes: The nodes all of whose tasks are among them; a node in a loop without items has no task.
    """

    results: Mapping[str, NodeResult] = field(default_factory=dict)
    nodes: frozenset[str] = frozenset()


def end_tasks_without_pod(launcher: Launcher) -> TasksWithoutPod:
    """Record the tasks that need no pod (cached, skipped or blocked, by the launcher's own lookup); returns them.

    A task is looked up once all that it waits for has ended so. Nodes of a loop get no pod only where none of the loop
    needs one, because KFP starts a loop's pods together; exit nodes always get one.
    """
    pipeline, results = launcher.run.pipeline, dict[str, NodeResult]()
    ended: set[str] = set()
    for node in pipeline.nodes:
        if node.on_exit or not ended.issuperset(pipeline.upstream(node.id)):
            continue
        for name in launcher.flow.task_names(node.id):
            result = launcher.end_without_running(name)
            if result is None:
                break
            results[name] = result
        else:
            ended.add(node.id)
    for loop in pipeline.loops:
        inside = {node.id for node in pipeline.nodes if loop.id in pipeline.scope(node.id)}
        if not inside <= ended:
            ended -= inside
    kept = {name: result for name, result in results.items() if parse_task(name)[0] in ended}
    return TasksWithoutPod(kept, frozenset(ended))


def remaining(launcher: Launcher, ended: TasksWithoutPod) -> Pipeline:
    """The pipeline without the nodes that have ended; their outputs stand as values in the expressions of the rest."""
    pipeline = launcher.run.pipeline
    substitution = _KnownResults(launcher.flow.values((), ()), ended.nodes)
    left = tuple(substitution.node(node) for node in pipeline.nodes if node.id not in ended.nodes)
    loops = {name for node in left for name in pipeline.scope(node.id)}
    return replace(
        pipeline, nodes=left, loops=tuple(substitution.loop(loop) for loop in pipeline.loops if loop.id in loops)
    )


class _KnownResults:
    """Replaces what is known of ended nodes in the nodes and loops that are left."""

    def __init__(self, values: Bindings, nodes: frozenset[str]) -> None:
        self._values = values
        self._nodes = nodes

    def node(self, node: Node) -> Node:
        """A node in which nothing refers to an ended node."""
        inputs_left = ((name, tuple(self._sources(sources))) for name, sources in node.inputs)
        return replace(
            node,
            inputs=tuple((name, sources) for name, sources in inputs_left if sources),
            parameters=tuple((name, self.value(value)) for name, value in node.parameters),
            conditions=self._conditions(node.conditions),
            after=tuple(name for name in node.after if name not in self._nodes),
            options=replace(node.options, env=tuple((name, self.value(value)) for name, value in node.options.env)),
        )

    def loop(self, loop: Loop) -> Loop:
        """A loop in which nothing refers to an ended node."""
        return replace(loop, over=self.value(loop.over), conditions=self._conditions(loop.conditions))

    def value(self, expression: Json) -> Json:
        """An expression with its known parts replaced by their values."""
        if isinstance(expression, list):
            return [self.value(item) for item in expression]
        if not isinstance(expression, dict):
            return expression
        if len(expression) == 1 and set(expression) <= _SCALARS:
            needs = {need.node for need in dependencies(expression)}
            if needs and needs <= self._nodes and not names_any(expression, _LATER):
                return _literal(evaluate(expression, self._values))
            if "$one_of" in expression:
                return self._one_of(expression["$one_of"])
        return {key: self.value(item) for key, item in expression.items()}

    def _one_of(self, choices: list[Json]) -> Json:
        """The choices that are still open: not those of skipped nodes, and none after a node that ran."""
        left: list[Json] = []
        for choice in choices:
            needs = {need.node for need in dependencies(choice)}
            if not any(need in self._nodes and self._values.skipped(need) for need in needs):
                left.append(self.value(choice))
                if needs <= self._nodes:
                    break
        return {"$one_of": left} if len(left) > 1 else left[0] if left else None

    def _conditions(self, conditions: tuple[Json, ...]) -> tuple[Json, ...]:
        return tuple(value for value in map(self.value, conditions) if value is not True)

    def _sources(self, sources: tuple[Source, ...]) -> Iterator[Source]:
        for source in sources:
            if isinstance(source, Edge):
                if source.node not in self._nodes:
                    yield source
            elif isinstance(source, Query):
                of = source.of if source.of is not None and source.of.node not in self._nodes else None
                arguments = tuple((name, self.value(value)) for name, value in source.arguments)
                yield replace(source, of=of, arguments=arguments)
            else:
                yield UidSource(self.value(source.uids))


def _literal(value: Json) -> Json:
    if isinstance(value, dict):
        return {"$map": [[key, _literal(item)] for key, item in value.items()]}
    return [_literal(item) for item in value] if isinstance(value, list) else value
