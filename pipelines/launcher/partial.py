"""Partial runs: which nodes run, and what stands in for those they need, from an earlier run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from ...errors import InputError, suggest
from ...metadata import ExecutionRecord
from ..ir.ir import Pipeline
from ..ir.tasks import Task
from .flow import Flow
from .home import Home
from .runs import Run, list_runs, open_run, refuse_imported
from .states import EndState


class Selection(NamedTuple):
    """What of a pipeline is to run.

    Attributes:
        first: Run these nodes and what follows; all that nothing comes before where empty.
        last: Run these nodes and what comes before; all that nothing follows where empty.
        only: Run these nodes and no others.
        skip: Of those, take these from the earlier run, if nothing that they wait for runs.
        base: The earlier run; the newest one that holds what is needed where empty.
    """

    first: tuple[str, ...] = ()
    last: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    base: str = ""

    def __bool__(self) -> bool:
        return bool(self.first or self.last or self.only or self.skip)

    def nodes(self, pipeline: Pipeline) -> tuple[str, ...]:
        """The nodes that run, in topological order; those that run on exit always do.

        Raises:
            InputError: A name is not a node of the pipeline; `only` is combined with another one; nothing is left.
        """
        for name in (*self.first, *self.last, *self.only, *self.skip):
            if name not in pipeline.ids:
                raise InputError(f"the pipeline {pipeline.name} has no node {name!r}", fix=suggest(name, pipeline.ids))
        if self.only and (self.first or self.last):
            raise InputError("--only cannot be combined with --from or --to", fix="give one or the other")
        after = _closure(self.first, pipeline.consumers) if self.first else set(pipeline.ids)
        before = _closure(self.last, pipeline.upstream) if self.last else set(pipeline.ids)
        chosen = set(self.only) if self.only else after & before
        running: list[str] = []
        for node in pipeline.nodes:
            # Of a skipped node below one that runs, the earlier outputs would be of other inputs: so it runs too.
            waits = any(up in running for up in pipeline.upstream(node.id))
            if node.on_exit or (node.id in chosen and (node.id not in self.skip or waits)):
                running.append(node.id)
        if all(pipeline[name].on_exit for name in running):
            raise InputError(
                "nothing is left to run",
                fix="see that what --from names comes before what --to names, and is not skipped",
            )
        return tuple(running)


def needed(pipeline: Pipeline, running: Iterable[str]) -> list[str]:
    """The nodes that do not run, but whose outputs those that do wait for, in topological order."""
    running = set(running)
    before = _closure([name for name in running if not pipeline[name].on_exit], pipeline.upstream) - running
    return [name for name in pipeline.ids if name in before]


def base_run(home: Home, pipeline: Pipeline, running: Iterable[str], base: str) -> str:
    """The earlier run that what is needed is taken from; "" where nothing is.

    Raises:
        InputError: It has not all of it, or no run has; names a node that is missing.
    """
    wanted = needed(pipeline, running)
    if not wanted:
        return ""
    if base:
        run = open_run(home, base)
        refuse_imported(run)
        if run.pipeline.name != pipeline.name:
            raise InputError(f"run {run.id} belongs to the pipeline {run.pipeline.name}", fix="give another --base")
        missing = _missing(home, run, wanted)
        if missing:
            raise InputError(
                f"run {run.id} has no outputs of {missing}, which is needed",
                fix=f"give another --base, or let {missing} run too",
            )
        return run.id
    for run in list_runs(home, 1000):
        ours = run.pipeline.name == pipeline.name and "imported" not in run.context.properties
        if ours and not _missing(home, run, wanted):
            return run.id
    raise InputError(
        f"no earlier run of {pipeline.name} has the outputs of {', '.join(wanted)}, which are needed",
        fix="run the whole pipeline first",
    )


def stand_in(home: Home, base: Run, task: Task, flow: Flow | None = None) -> ExecutionRecord | None:
    """The execution of an earlier run that stands in for a task; None where that run has none that ended well.

    Args:
        home: Where both runs lie.
        base: The earlier run.
        task: The task.
        flow: Of the run that it stands in for, where that has begun.

    Raises:
        InputError: It is of a loop, and the earlier run went over another item at that place.
    """
    if task.node.id not in base.pipeline.ids:
        return None
    theirs = Flow(home.store, base)
    source = theirs.execution(task.node.id, task.index)
    if source is None or source.properties.get("left_out"):
        return None
    end = EndState.of(source)
    if end is None or not end.final:
        return None
    if flow is not None:
        _same_items(flow, theirs, task)
    records = [record for several in home.store.outputs(source).values() for record in several]
    return source if all(home.is_usable(record) for record in records) else None


def _same_items(flow: Flow, theirs: Flow, task: Task) -> None:
    scopes = flow.run.pipeline.scope(task.node.id), theirs.run.pipeline.scope(task.node.id)
    for depth, loops in enumerate(zip(*scopes, strict=False)):
        if depth < len(task.index):
            mine, other = (
                each.items(loop, task.index[:depth]) for each, loop in zip((flow, theirs), loops, strict=True)
            )
            if mine[task.index[depth]] != other[task.index[depth]]:
                raise InputError(
                    f"{task.name} of run {theirs.run.id} is of the item {other[task.index[depth]]!r:.60}, "
                    f"and here that is {mine[task.index[depth]]!r:.60}",
                    fix=f"give a --base that went over the same items, or let {task.node.id} run",
                )


def _missing(home: Home, run: Run, wanted: Iterable[str]) -> str:
    """The first node of which a run holds no outputs."""
    flow = Flow(home.store, run)
    for name in wanted:
        if name not in run.pipeline.ids:
            return name
        for index in flow.tasks(name):
            if stand_in(home, run, Task(run.pipeline[name], index)) is None:
                return name
    return ""


def _closure(names: Iterable[str], step: Callable[[str], Iterable[str]]) -> set[str]:
    todo, seen = list(names), set(names)
    while todo:
        for name in step(todo.pop()):
            if name not in seen:
                seen.add(name)
                todo.append(name)
    return seen
