"""What flows between the tasks of a run: items of loops, conditions, what holds a task back, what it is given."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ...errors import DrivetrainError, InputError
from ...metadata import ArtifactRecord, ExecutionRecord, MetadataStore
from ..ir.expressions import (
    Dependency,
    Values,
    evaluate,
    holds,
    spelled,
)
from ..ir.ir import Edge, Json
from ..ir.tasks import Index, task_name
from ..project.secret import Secret
from .home import Run

Outputs: TypeAlias = Mapping[str, Sequence[ArtifactRecord]]


class Flow:
    """What the store says of a run's tasks so far, and what that means for those that follow."""

    def __init__(self, store: MetadataStore, run: Run) -> None:
        self.store = store
        self.run = run
        self._items: dict[tuple[str, Index], list[Json]] = {}
        self._ended: dict[tuple[str, Index], tuple[ExecutionRecord, Outputs]] = {}

    def ended(self, node: str, index: Index, execution: ExecutionRecord, outputs: Outputs) -> None:
        """Keep how a task ended, well: within a run it is not launched again, so that nobody need ask the store."""
        self._ended[node, index] = execution, outputs

    def execution(self, node: str, index: Index = ()) -> ExecutionRecord | None:
        """The newest execution of a node, for an item of its loops, in this run."""
        if (node, index) in self._ended:
            return self._ended[node, index][0]
        context = self.store.find_context("node", f"{self.run.pipeline.name}.{node}")
        if context is None:
            return None
        contexts = [self.run.context, context]
        if self.run.pipeline[node].loop:
            item = self.store.find_context("task", f"{self.run.id}/{task_name(node, index)}")
            if item is None:
                return None
            contexts = [item]
        found = self.store.executions(contexts=contexts, limit=1)
        return found[0] if found else None

    def outputs(self, node: str, index: Index = ()) -> Outputs:
        """What a node made in this run."""
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
            InputError: It goes over something that is no list.
        """
        key = (loop, outer)
        if key not in self._items:
            found = evaluate(self.run.pipeline.loop(loop).over, self.values(self._around(loop), outer))
            if not isinstance(found, list):
                raise InputError(f"{loop} goes over {found!r:.60}, which is no list", fix="give dt.map_ a list")
            self._items[key] = found
        return self._items[key]

    def count(self, loop: str, outer: Index) -> int | None:
        """How many items a loop has, within an item of those around it; None where it has none of its own.

        That is where it is held back, or what it goes over cannot be told: each node in it is then launched once.
        """
        try:
            return None if self.hindered_loop(loop, outer) else len(self.items(loop, outer))
        except DrivetrainError:
            return None

    def tasks(self, node: str, outer: Index = ()) -> list[Index]:
        """The items that a node is launched for, within those that are given; an index is shorter where there are none.

        That is where the loop's own node did not end well, or a condition around it is false.
        """
        return self.opened(self.run.pipeline.scope(node), outer)

    def opened(self, loops: Sequence[str], outer: Index = ()) -> list[Index]:
        """The items of loops in each other, as `tasks` has them."""
        found = [outer]
        for depth in range(len(outer), len(loops)):
            longer: list[Index] = []
            for index in found:
                count = self.count(loops[depth], index) if len(index) == depth else None
                longer += [index] if count is None else [(*index, number) for number in range(count)]
            found = longer
        return found

    def task_names(self, node: str) -> list[str]:
        """The names of a node's tasks, as far as they are known: the node alone where its loop's items are not."""
        return [task_name(node, index) for index in self.tasks(node)]

    def tasks_seen_from(self, node: str, consumer: Index, scope: tuple[str, ...]) -> list[Index]:
        """The tasks of a node that one in this scope, for these items, waits for: one, or every item's."""
        own = self.run.pipeline.scope(node)
        shared = 0
        while shared < min(len(own), len(scope), len(consumer)) and own[shared] == scope[shared]:
            shared += 1
        return self.tasks(node, consumer[:shared])

    def hindered_loop(self, loop: str, outer: Index) -> tuple[Literal["SKIPPED", "BLOCKED"], str] | None:
        """Why a loop has no items, within an item of those around it."""
        body = self.run.pipeline.loop(loop)
        around = self._around(loop)
        hindered = self.hindered(body.dependencies, outer, around)
        if hindered is None:
            hindered = self.refused(body.conditions, outer, around)
        return hindered

    def hindered(
        self, needs: Iterable[Dependency], index: Index, scope: tuple[str, ...], *, on_exit: bool = False
    ) -> tuple[Literal["SKIPPED", "BLOCKED"], str] | None:
        """Why what has these needs must not run: something upstream that did not end well, or a veto."""
        skipped: dict[Hashable, str] = {}
        chosen: set[Hashable] = set()
        for need in needs:
            many = len(self.run.pipeline.scope(need.node)) > len(scope)
            for at in self.tasks_seen_from(need.node, index, scope):
                execution = self.execution(need.node, at)
                state = execution.state if execution else ""
                name = task_name(need.node, at)
                if state in ("COMPLETE", "CACHED"):
                    chosen.add(need.group)
                    if need.kind == "after" and (vetoes := self._vetoes(need.node, at)):
                        return "BLOCKED", f"{name} vetoed: {vetoes}"
                elif state == "SKIPPED":
                    if need.kind == "need" and not (many and at):
                        return "SKIPPED", f"{name} was skipped"
                    if need.kind == "choice":
                        skipped[need.group] = f"{name} was skipped"
                elif not (on_exit and need.kind == "optional"):
                    ends = {"FAILED": "failed", "BLOCKED": "is blocked", "CANCELED": "was stopped", "": "did not run"}
                    return "BLOCKED", f"{name} {ends.get(state, 'was interrupted')}"
        return next((("SKIPPED", reason) for group, reason in skipped.items() if group not in chosen), None)

    def refused(
        self, conditions: Iterable[Json], index: Index, scope: tuple[str, ...]
    ) -> tuple[Literal["SKIPPED"], str] | None:
        """The first condition that is false."""
        values = self.values(scope, index)
        for condition in conditions:
            if not holds(condition, values):
                return "SKIPPED", f"{spelled(condition)} is false"
        return None

    def given_by(self, edge: Edge, index: Index, scope: tuple[str, ...]) -> list[ArtifactRecord]:
        """What flows along an edge; nothing of what was skipped."""
        tasks = self.tasks_seen_from(edge.node, index, scope)
        well = [at for at in tasks if (one := self.execution(edge.node, at)) and one.state in ("COMPLETE", "CACHED")]
        return [record for at in well for record in self.outputs(edge.node, at)[edge.output]]

    def values(self, scope: tuple[str, ...], index: Index) -> Values:
        """Where expressions in this scope, for these items, have their values from."""
        return _Scoped(self, scope, index)

    def environment(self, node: str, index: Index = ()) -> dict[str, str]:
        """The environment variables that a node's options ask for, once what they need has ended well.

        Raises:
            InputError: A secret is not set, or a value is no text.
        """
        found: dict[str, str] = {}
        values = self.values(self.run.pipeline.scope(node), index)
        for variable, body in self.run.pipeline[node].options.env:
            secret = isinstance(body, dict) and "$secret" in body
            value = Secret(body["$secret"]).reveal() if secret else evaluate(body, values)
            if value is None or isinstance(value, (dict, list)):
                task = task_name(node, index)
                raise InputError(f"the environment variable {variable} of {task} is {value!r:.60}", fix="give text")
            found[variable] = value if isinstance(value, str) else json.dumps(value)
        return found

    def _around(self, loop: str) -> tuple[str, ...]:
        found: list[str] = []
        name = self.run.pipeline.loop(loop).within
        while name:
            found.insert(0, name)
            name = self.run.pipeline.loop(name).within
        return tuple(found)

    def _vetoes(self, gate: str, index: Index) -> str:
        """What a gate objects to, empty where it passed."""
        records = [record for records in self.outputs(gate, index).values() for record in records]
        return "; ".join(
            str(record.properties.get("summary") or "did not pass")
            for record in records
            if record.properties.get("passed") is False
        )


@dataclass(frozen=True)
class _Scoped:
    """The values of a run as one task sees them."""

    flow: Flow
    scope: tuple[str, ...]
    index: Index

    def parameter(self, name: str) -> Json:
        return self.flow.run.parameters[name]

    def property(self, node: str, output: str, name: str) -> Json:
        (at,) = self.flow.tasks_seen_from(node, self.index, self.scope)
        return self.flow.property(node, output, name, at)

    def collected(self, node: str, output: str, name: str) -> list[Json]:
        edge = Edge(node, output)
        return [record.properties[name] for record in self.flow.given_by(edge, self.index, self.scope)]

    def item(self, loop: str) -> Json:
        depth = self.scope.index(loop)
        return self.flow.items(loop, self.index[:depth])[self.index[depth]]

    def status(self, field: str) -> Json:
        told = self.flow.run.context.properties.get("status")
        if told is None:
            raise InputError(f"how run {self.flow.run.id} ends is not known yet", fix="ask once it has ended")
        return told[field]

    def skipped(self, node: str) -> bool:
        ended = (self.flow.execution(node, at) for at in self.flow.tasks_seen_from(node, self.index, self.scope))
        return not any(one is not None and one.state in ("COMPLETE", "CACHED") for one in ended)
