"""What the store says of a run's tasks so far: how they ended, the items of loops, what flows along an edge.

It gathers the facts that `readiness` judges, and the values that the expressions of a task stand for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ...errors import DrivetrainError, InputError
from ...metadata import ArtifactRecord, ExecutionRecord, MetadataStore
from ..ir.expressions import (
    Bindings,
    Dependency,
    evaluate,
    holds,
    spelled,
)
from ..ir.ir import Edge, Json
from ..ir.tasks import Index, Task, parse_task, task_name
from ..project.secret import Secret
from .readiness import Needs, Readiness, UpstreamTask, Verdict, readiness
from .runs import Run
from .states import EndState

Outputs: TypeAlias = Mapping[str, Sequence[ArtifactRecord]]
LEFT_OUT = "left out of this partial run"


def shared_depth(scope: Sequence[str], other: Sequence[str]) -> int:
    """How many loops two scopes have in common, counted from the outermost."""
    depth = 0
    for ours, theirs in zip(scope, other, strict=False):
        if ours != theirs:
            break
        depth += 1
    return depth


class Flow:
    """What the store says of a run's tasks so far, and what that means for those that follow."""

    def __init__(self, store: MetadataStore, run: Run) -> None:
        self.store = store
        self.run = run
        # Both only ever hold what no longer changes: the items of a loop once it is opened, tasks that have succeeded.
        self._items: dict[tuple[str, Index], list[Json]] = {}
        self._ended: dict[tuple[str, Index], tuple[ExecutionRecord, Outputs]] = {}

    def ended(self, node: str, index: Index, execution: ExecutionRecord, outputs: Outputs) -> None:
        """Keep the execution of a task that succeeded: it is not launched again, so the store need not be asked."""
        self._ended[node, index] = execution, outputs

    def execution(self, node: str, index: Index = ()) -> ExecutionRecord | None:
        """The newest execution of a node, for an item of its loops, in this run."""
        if (node, index) in self._ended:
            return self._ended[node, index][0]
        context = self.store.find_context("node", f"{self.run.pipeline.name}.{node}")
        if context is None:
            return None
        # Within the run a node outside of loops has one task, so run and node together name it. One in loops has many,
        # each with a context of its own, which exists once the task was first launched.
        contexts = [self.run.context, context]
        if self.run.pipeline[node].loop:
            item = self.store.find_context("task", f"{self.run.id}/{task_name(node, index)}")
            if item is None:
                return None
            contexts = [item]
        newest = self.store.executions(contexts=contexts, limit=1)
        return newest[0] if newest else None

    def outputs(self, node: str, index: Index = ()) -> Outputs:
        """The artifacts of a node in this run, by output key; none where it has not succeeded."""
        if (node, index) in self._ended:
            return self._ended[node, index][1]
        execution = self.execution(node, index)
        return self.store.outputs(execution) if execution else {}

    def property(self, node: str, output: str, name: str, index: Index = ()) -> Json:
        """A published property of a node's only artifact under a key."""
        return self.outputs(node, index)[output][0].properties[name]

    def items(self, loop: str, outer: Index) -> list[Json]:
        """The items of a loop, within an item of those around it, once what it goes over has ended well.

        Raises:
            InputError: It goes over something that is not a list.
        """
        key = (loop, outer)
        if key not in self._items:
            items = evaluate(self.run.pipeline.loop(loop).over, self.values(self._around(loop), outer))
            if not isinstance(items, list):
                raise InputError(f"{loop} goes over {items!r:.60}, which is not a list", fix="give dt.map_ a list")
            self._items[key] = items
        return self._items[key]

    def count(self, loop: str, outer: Index) -> int | None:
        """How many items a loop has, within an item of those around it; None where it has none of its own.

        Where it is skipped or blocked, or what it goes over has no value: each node in it is then launched once.
        """
        try:
            return len(self.items(loop, outer)) if self.loop_readiness(loop, outer).runs else None
        except DrivetrainError:  # raised again, to be recorded, by the launch of the node that this makes one task of
            return None

    def tasks(self, node: str, outer: Index = ()) -> list[Index]:
        """The items that a node is launched for, within an item of the loops around, as indexes.

        An index is shorter than the loops are deep where a loop has no items: a node that it waits for did not succeed,
        or a condition around it is false.
        """
        return self.expand(self.run.pipeline.scope(node), outer)

    def expand(self, loops: Sequence[str], outer: Index = ()) -> list[Index]:
        """The items of loops in each other, as `tasks` has them."""
        indexes = [outer]
        for depth in range(len(outer), len(loops)):
            longer: list[Index] = []
            for index in indexes:
                # An index that stopped short at a loop without items stays as it is: loops inside have none either.
                count = self.count(loops[depth], index) if len(index) == depth else None
                longer += [index] if count is None else [(*index, number) for number in range(count)]
            indexes = longer
        return indexes

    def task_names(self, node: str) -> list[str]:
        """The names of a node's tasks, as far as they are known: the node alone where its loop's items are not."""
        return [task_name(node, index) for index in self.tasks(node)]

    def tasks_seen_from(self, node: str, consumer: Index, scope: tuple[str, ...]) -> list[Index]:
        """The tasks of a node that one in this scope, for these items, waits for: one, or every item's."""
        # The consumer's index fixes the item of each loop that both are in; of loops that only the node is in, every
        # item is meant. The index may be shorter than the scope, see `tasks`.
        shared = shared_depth(self.run.pipeline.scope(node), scope[: len(consumer)])
        return self.tasks(node, consumer[:shared])

    def task(self, name: str) -> Task:
        """A task of the run by its name."""
        node, index = parse_task(name)
        return Task(self.run.pipeline[node], index)

    def readiness(self, task: Task) -> Readiness:
        """Whether a task may run as things are now; one whose loop has no items ends as its loop does.

        Raises:
            DrivetrainError: That cannot be said: a condition has no value, or a loop goes over no list.
        """
        only = self.run.options.only
        if only and task.node.id not in only:
            return Readiness(Verdict.SKIP, LEFT_OUT, left_out=True)
        node, scope = task.node, self.run.pipeline.scope(task.node.id)
        if len(task.index) < len(scope):
            loop = scope[len(task.index)]
            ready = self.loop_readiness(loop, task.index)
            if ready.runs:
                self.items(
                    loop, task.index
                )  # raises: a loop that may run has items, so what it goes over is not a list
            return ready
        return readiness(
            self.needs(node.dependencies, task.index, scope),
            self._false_conditions(node.conditions, task.index, scope),
            on_exit=node.on_exit,
        )

    def may_run(self, name: str) -> bool:
        """Whether a task would run if it were launched now; not where that cannot be said, and launching it fails."""
        try:
            return self.readiness(self.task(name)).runs
        except DrivetrainError:
            return False

    def loop_readiness(self, loop: str, outer: Index) -> Readiness:
        """Whether a loop is opened into its items, within an item of the loops around it.

        Raises:
            DrivetrainError: A condition has no value.
        """
        body, around = self.run.pipeline.loop(loop), self._around(loop)
        return readiness(
            self.needs(body.dependencies, outer, around), self._false_conditions(body.conditions, outer, around)
        )

    def needs(self, dependencies: Iterable[Dependency], index: Index, scope: tuple[str, ...]) -> Needs:
        """What has these dependencies, in this scope and for these items, with how the tasks that they mean ended."""
        return ((need, self._upstream_tasks(need, index, scope)) for need in dependencies)

    def _upstream_tasks(self, need: Dependency, index: Index, scope: tuple[str, ...]) -> Iterator[UpstreamTask]:
        shared = shared_depth(self.run.pipeline.scope(need.node), scope[: len(index)])
        for item in self.tasks_seen_from(need.node, index, scope):
            name, execution = task_name(need.node, item), self.execution(need.node, item)
            end = EndState.of(execution)
            # Whoever is launched has waited for all this, so that what has no end by now lost its process.
            lost = "" if end else "was interrupted" if execution else "did not run"
            # Below the loops that both are in: one item of several. Where the loop has no items, all of it was skipped.
            gathered = len(item) > shared
            veto = self._vetoes(need.node, item) if need.kind == "after" and end and end.succeeded else ""
            yield UpstreamTask(name, end, lost, gathered, veto)

    def _false_conditions(self, conditions: Iterable[Json], index: Index, scope: tuple[str, ...]) -> Iterator[str]:
        values = self.values(scope, index)
        return (spelled(condition) for condition in conditions if not holds(condition, values))

    def artifacts_along(self, edge: Edge, index: Index, scope: tuple[str, ...]) -> list[ArtifactRecord]:
        """The artifacts that an edge brings to a task; of items that were skipped there are none."""
        tasks = self.tasks_seen_from(edge.node, index, scope)
        succeeded = [at for at in tasks if (end := EndState.of(self.execution(edge.node, at))) and end.succeeded]
        return [record for at in succeeded for record in self.outputs(edge.node, at)[edge.output]]

    def values(self, scope: tuple[str, ...], index: Index) -> Bindings:
        """Where expressions in this scope, for these items, have their values from."""
        return _TaskBindings(self, scope, index)

    def environment(self, node: str, index: Index = ()) -> dict[str, str]:
        """The environment variables that a node's options ask for, once what they need has ended well.

        Raises:
            InputError: A secret is not set, or a value is not text.
        """
        variables: dict[str, str] = {}
        values = self.values(self.run.pipeline.scope(node), index)
        for variable, body in self.run.pipeline[node].options.env:
            secret = isinstance(body, dict) and "$secret" in body
            value = Secret(body["$secret"]).reveal() if secret else evaluate(body, values)
            if value is None or isinstance(value, (dict, list)):
                task = task_name(node, index)
                raise InputError(f"the environment variable {variable} of {task} is {value!r:.60}", fix="give text")
            variables[variable] = value if isinstance(value, str) else json.dumps(value)
        return variables

    def _around(self, loop: str) -> tuple[str, ...]:
        loops: list[str] = []
        name = self.run.pipeline.loop(loop).within
        while name:
            loops.insert(0, name)
            name = self.run.pipeline.loop(name).within
        return tuple(loops)

    def _vetoes(self, gate: str, index: Index) -> str:
        """What a gate objects to, empty where it passed."""
        records = [record for records in self.outputs(gate, index).values() for record in records]
        return "; ".join(
            str(record.properties.get("summary") or "did not pass")
            for record in records
            if record.properties.get("passed") is False
        )


@dataclass(frozen=True)
class _TaskBindings:
    """The values of a run as one task sees them."""

    flow: Flow
    scope: tuple[str, ...]
    index: Index

    def parameter(self, name: str) -> Json:
        return self.flow.run.parameters[name]

    def property(self, node: str, output: str, name: str) -> Json:
        # One task: the builder refuses an output of a loop's node outside of that loop, unless as a list.
        (at,) = self.flow.tasks_seen_from(node, self.index, self.scope)
        return self.flow.property(node, output, name, at)

    def collected(self, node: str, output: str, name: str) -> list[Json]:
        edge = Edge(node, output)
        return [record.properties[name] for record in self.flow.artifacts_along(edge, self.index, self.scope)]

    def item(self, loop: str) -> Json:
        depth = self.scope.index(loop)
        return self.flow.items(loop, self.index[:depth])[self.index[depth]]

    def status(self, field: str) -> Json:
        status = self.flow.run.context.properties.get("status")
        if status is None:
            raise InputError(f"how run {self.flow.run.id} ends is not known yet", fix="ask once it has ended")
        return status[field]

    def skipped(self, node: str) -> bool:
        tasks = self.flow.tasks_seen_from(node, self.index, self.scope)
        # Of a loop's node one item with outputs is enough: the list of them is then shorter, and not missing.
        ends = (EndState.of(self.flow.execution(node, index)) for index in tasks)
        return not any(end is not None and end.succeeded for end in ends)
