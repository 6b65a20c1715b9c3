"""What waits for what on KFP: nodes become tasks, loops become sub-DAGs, and conditions decide which tasks never start.

KFP starts a task only if everything that it depends on *succeeded*. A task whose condition is false did not succeed, so
KFP leaves out what depends on it as well, and so on downstream. Our own rules differ: a consumer with an optional
input, say, runs all the same. Therefore a condition is written into the spec only where our rules skip everything
downstream too. Everywhere else the pod starts, and the launcher in it records SKIPPED.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from ..ir.expressions import Dependency, dependencies
from ..ir.ir import Loop, Node, Pipeline
from ..launcher.flow import shared_depth
from ..launcher.readiness import UpstreamTask, Verdict, readiness
from ..launcher.states import EndState
from . import cel

Json: TypeAlias = Any  # a JSON value; Any because the type is recursive and read by key
LONGEST = 50
"""Characters of a task's name: Kubernetes takes 63, and KFP and Argo add prefixes and suffixes."""
RESERVED = ("work", "leave", "exits", "drivetrain-close", "root", "entrypoint")
"""Names that our own tasks, KFP or Argo use in every compiled pipeline."""


@dataclass(frozen=True)
class PlannedTask:
    """One task of a DAG.

    Attributes:
        name: Unique in the pipeline, and a Kubernetes name.
        kind: A node's pod, the pod that evaluates a loop's list, or the DAG of what is in a loop.
        id: The node's or the loop's.
        after: The tasks beside it that must have succeeded.
        conditions: Expressions that CEL can say and that keep it from being started where one does not hold.
        gates: Nodes whose veto keeps it from being started.
        inside: The tasks of a loop's DAG.
        opened: The name of the task whose pod gives a loop's items; "" where the list is a literal.
        count: The number of items of a literal list.
    """

    name: str
    kind: Literal["node", "open", "loop"]
    id: str
    after: tuple[str, ...] = ()
    conditions: tuple[Json, ...] = ()
    gates: tuple[str, ...] = ()
    inside: tuple[PlannedTask, ...] = ()
    opened: str = ""
    count: int = 0

    def walk(self) -> Iterator[PlannedTask]:
        """This task, and with a loop every task in it, at any depth."""
        yield self
        for each in self.inside:
            yield from each.walk()


@dataclass(frozen=True)
class Plan:
    """A pipeline as tasks of KFP.

    Attributes:
        work: The tasks that are not on exit, in topological order.
        exits: The tasks that run after the work, however it ended.
        names: Node -> the name of its task.
    """

    work: tuple[PlannedTask, ...]
    exits: tuple[PlannedTask, ...]
    names: Mapping[str, str]

    def walk(self) -> Iterator[PlannedTask]:
        """Every task of the work and the exits, those in loops too."""
        for each in (*self.work, *self.exits):
            yield from each.walk()


def plan(pipeline: Pipeline, kinds: Mapping[str, cel.Kind]) -> Plan:
    """The tasks of a pipeline.

    Args:
        pipeline: Compiled.
        kinds: The kinds of its parameters that always have a value.
    """
    planner = _Planner(pipeline, kinds)
    work = planner.level([node.id for node in pipeline.nodes if not node.on_exit], ())
    exits = planner.level([node.id for node in pipeline.nodes if node.on_exit], ())
    if not work:  # what is left of a run whose other nodes have ended: KFP takes no DAG without tasks
        work, exits = exits, ()
    else:
        work = planner.pruned(work, frozenset())
    return Plan(work, exits, {name: planner.names[name] for name in pipeline.ids})


def kubernetes_name(text: str, longest: int = LONGEST) -> str:
    """A text as a name for Kubernetes: small letters, digits and hyphens, at most `longest` characters."""
    return re.sub("[^a-z0-9]+", "-", text.lower()).strip("-")[:longest].strip("-") or "x"


class _Planner:
    def __init__(self, pipeline: Pipeline, kinds: Mapping[str, cel.Kind]) -> None:
        self.pipeline = pipeline
        self.kinds = kinds
        self.names: dict[str, str] = {}
        self._taken: set[str] = set(RESERVED)
        self._scopes = {name: pipeline.scope(name) for name in pipeline.ids}
        self._upstream = {name: pipeline.upstream(name) for name in pipeline.ids}
        for name in pipeline.ids:
            self.names[name] = self._name(name)

    def _name(self, text: str, before: str = "") -> str:
        base = before + kubernetes_name(text, LONGEST - len(before) - 4)
        name, number = base, 1
        # KFP adds a task `X-driver` beside every X, so neither name may be taken.
        while {name, f"{name}-driver", name.removesuffix("-driver")} & self._taken:
            number += 1
            name = f"{base}-{number}"
        self._taken.add(name)
        return name

    def level(
        self, nodes: Sequence[str], around: tuple[str, ...], above: frozenset[str] = frozenset()
    ) -> tuple[PlannedTask, ...]:
        """The tasks of one DAG: these nodes, with each loop among them as a task that is a DAG of its own.

        Args:
            nodes: The nodes of the DAG and of the loops in it, in topological order.
            around: The loops around the DAG, the outermost first.
            above: The nodes of the DAGs around it.
        """
        seen = above | {name for name in nodes if len(self._scopes[name]) == len(around)}
        child: dict[str, str] = {}  # node -> the task here that it is, or is in
        opened: dict[str, str] = {}
        tasks: list[PlannedTask] = []

        def before(names: Iterable[str]) -> tuple[str, ...]:
            return tuple(sorted({child[name] for name in names if name in child}))

        for loop, group in self._groups(nodes, len(around)):
            if not loop:
                (node,) = group
                child[node] = self.names[node]
                tasks.append(self._of_node(self.pipeline[node], before(self._upstream[node])))
                continue
            body = self.pipeline.loop(loop)
            needed = before(need.node for need in body.dependencies)
            if loop not in opened:
                opened[loop] = "" if self._startable_by_kfp(body, seen) else self._name(loop, "open-")
                if opened[loop]:
                    tasks.append(PlannedTask(opened[loop], "open", loop, needed))
            # Argo orders whole tasks: the sub-DAG waits for whatever any of its nodes waits for outside of it.
            waits = {name for node in group for name in self._upstream[node] if name not in group}
            after = (*before(waits), opened[loop]) if opened[loop] else before(waits)
            name = self._name(loop, "for-")
            inside = self.level(group, (*around, loop), seen)
            count = len(body.over) if not opened[loop] else 0
            tasks.append(
                PlannedTask(name, "loop", loop, tuple(sorted(set(after))), (), (), inside, opened[loop], count)
            )
            child.update(dict.fromkeys(group, name))
        return tuple(tasks)

    def _of_node(self, node: Node, after: tuple[str, ...]) -> PlannedTask:
        gates = [
            need.node
            for need in node.dependencies
            if need.kind == "after" and self.pipeline[need.node].gates is not None and not node.on_exit
        ]
        return PlannedTask(self.names[node.id], "node", node.id, after, gates=tuple(dict.fromkeys(gates)))

    def _startable_by_kfp(self, loop: Loop, seen: frozenset[str]) -> bool:
        """Whether KFP can start a loop without an opening pod: a literal list, on conditions that CEL can express."""
        literal = isinstance(loop.over, list) and not any(True for _ in dependencies(loop.over))
        expressible = [each for each in self._expressible(loop.conditions) if _needed(each) <= seen]
        return literal and len(expressible) == len(loop.conditions)

    def _expressible(self, conditions: Iterable[Json]) -> tuple[Json, ...]:
        """The conditions that CEL can express."""
        expressible = []
        for each in conditions:
            try:
                cel.condition((each,), lambda node, output, name: f"{node}/{output}/{name}", self.kinds)
            except cel.Untranslatable:
                continue
            expressible.append(each)
        return tuple(expressible)

    def _groups(self, nodes: Sequence[str], depth: int) -> Iterator[tuple[str, tuple[str, ...]]]:
        """(loop, nodes) for each task of a DAG in an order that can be run; ("", (node,)) for a node outside of loops.

        A loop is one group where possible. Where a node outside waits for one inside and another inside waits for it,
        the loop is several groups: a DAG of KFP cannot wait for itself.
        """
        here = set(nodes)
        loop_of = {name: scope[depth] if len(scope := self._scopes[name]) > depth else "" for name in nodes}
        left = {name: {up for up in self._upstream[name] if up in here} for name in nodes}
        done: set[str] = set()
        while left:
            ready = [name for name in left if not loop_of[name] and left[name] <= done]
            for name in ready:
                yield "", (name,)
            group = [] if ready else self._loop(left, loop_of, done)
            if group:
                yield loop_of[group[0]], tuple(group)
            for name in (*ready, *group):
                done.add(name)
                del left[name]

    def _loop(self, left: Mapping[str, set[str]], loop_of: Mapping[str, str], done: set[str]) -> list[str]:
        """The nodes of the next loop that can run now: a complete loop first, one with `max_parallel` last.

        Where none is complete, one has to be cut in two, and rather one without a bound: `max_parallel` counts items
        over all nodes of a loop, and two groups of it can keep it only one by one.
        """
        ready_in: dict[str, list[str]] = defaultdict(list)
        size: dict[str, int] = defaultdict(int)
        for name, needs in left.items():
            if loop_of[name]:
                size[loop_of[name]] += 1
                if needs <= done.union(ready_in[loop_of[name]]):
                    ready_in[loop_of[name]].append(name)
        ranked = sorted(
            (loop for loop in ready_in if ready_in[loop]),
            key=lambda loop: (len(ready_in[loop]) < size[loop], self.pipeline.loop(loop).parallel is not None),
        )
        return ready_in[ranked[0]]

    def pruned(
        self, tasks: tuple[PlannedTask, ...], above: frozenset[str], around: tuple[Json, ...] = ()
    ) -> tuple[PlannedTask, ...]:
        """The tasks of one DAG, with those conditions and gates that may be written into the spec.

        Args:
            tasks: The tasks of the DAG, without conditions.
            above: Nodes of the DAGs around it, whose outputs KFP can hand into it.
            around: The conditions of the loops that it is in.
        """
        seen = above | {task.id for task in tasks if task.kind == "node"}
        nodes = {task.name: {each.id for each in task.walk() if each.kind == "node"} for task in tasks}
        consumers: dict[str, set[str]] = defaultdict(set)  # all tasks downstream of a task, direct and indirect
        for task in reversed(tasks):
            for name in task.after:
                consumers[name] |= {task.name} | consumers[task.name]
        pruned = []
        for task in tasks:
            written: tuple[Json, ...] = ()
            if task.kind == "loop" and not task.opened:
                written = tuple(each for each in self.pipeline.loop(task.id).conditions if each not in around)
            elif task.kind != "loop":
                whose = self.pipeline.loop(task.id) if task.kind == "open" else self.pipeline[task.id]
                # A condition of a loop around has been decided by then: if false, there would be no items.
                undecided = [each for each in whose.conditions if each not in around]
                written = tuple(each for each in self._expressible(undecided) if _needed(each) <= seen)
                if written:
                    # KFP leaves out all of `left_out` where the condition is false: allowed only if our rules do too.
                    left_out = set().union(*(nodes[name] for name in consumers[task.name]), ())
                    if not left_out <= self._skipped_with(task):
                        written = ()
            gates = tuple(gate for gate in task.gates if gate in seen)
            inner = (*around, *self.pipeline.loop(task.id).conditions) if task.kind == "loop" else ()
            pruned.append(replace(task, conditions=written, gates=gates, inside=self.pruned(task.inside, seen, inner)))
        return tuple(pruned)

    def _skipped_with(self, task: PlannedTask) -> set[str]:
        """The nodes that the launcher's rules skip whenever this node is skipped, or this loop does not run."""
        skipped = {task.id} if task.kind == "node" else set()
        held = {task.id} if task.kind == "open" else set()
        for node in self.pipeline.nodes:
            if node.id in skipped:
                continue
            scope = self._scopes[node.id]
            for depth, loop in enumerate(scope):
                needs = self.pipeline.loop(loop).dependencies
                if loop not in held and self._surely_skipped(needs, scope[:depth], skipped, held):
                    held.add(loop)
            if held & set(scope) or self._surely_skipped(node.dependencies, scope, skipped, held):
                skipped.add(node.id)
        return skipped

    def _surely_skipped(
        self, needs: Iterable[Dependency], scope: tuple[str, ...], skipped: set[str], held: set[str]
    ) -> bool:
        """Whether something with these needs is skipped if these nodes and loops are, however all others end."""
        upstream = ((need, (self._upstream_task(need.node, scope, skipped, held),)) for need in needs)
        return readiness(upstream).verdict is Verdict.SKIP

    def _upstream_task(self, node: str, scope: tuple[str, ...], skipped: set[str], held: set[str]) -> UpstreamTask:
        """A node as `readiness` takes it, before there is a run: skipped, or nothing known."""
        loops = self._scopes[node]
        shared = shared_depth(loops, scope)
        # Seen from outside its loop, a skipped item is just missing from what is collected; the consumer itself is
        # skipped only where the whole loop does not run.
        gone = node in skipped if shared == len(loops) else loops[shared] in held
        return UpstreamTask(node, EndState.SKIPPED if gone else None)


def _needed(expression: Json) -> set[str]:
    """The nodes whose outputs an expression reads."""
    return {need.node for need in dependencies(expression)}
