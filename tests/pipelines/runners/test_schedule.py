"""The schedule, which counts, against a search over all tasks at every step: the same task, or none, every time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import cast

import pytest
from drivetrain.errors import BuildError
from drivetrain.pipelines.ir.bounds import deadlocked_loop
from drivetrain.pipelines.ir.ir import Loop, Node, Pipeline
from drivetrain.pipelines.ir.options import NodeOptions
from drivetrain.pipelines.ir.tasks import Index, parse_task, task_name
from drivetrain.pipelines.launcher.flow import Flow
from drivetrain.pipelines.launcher.runs import Run
from drivetrain.pipelines.runners.schedule import TaskSchedule
from drivetrain.pipelines.runners.steps import steps
from hypothesis import given
from hypothesis import strategies as st


class Drawn(dict[tuple[str, Index], "int | None"]):
    """How many items a loop has within an item of those around it, decided when it is first asked for."""

    def __init__(self, data: st.DataObject) -> None:
        super().__init__()
        self._data = data

    def __missing__(self, key: tuple[str, Index]) -> int | None:
        self[key] = self._data.draw(st.sampled_from([0, 1, 2, 3, None]), label=f"items of {key}")
        return self[key]


class Counted(Flow):
    """A flow whose loops have so many items, whatever a store says."""

    def __init__(self, pipeline: Pipeline, counts: Drawn) -> None:
        self.run = cast(Run, SimpleNamespace(pipeline=pipeline))
        self._counts = counts

    def count(self, loop: str, outer: Index) -> int | None:
        return self._counts[loop, outer]


def _node(name: str, after: Sequence[str], loop: str, priority: int) -> Node:
    return Node(name, "m:C", None, (), (), (), after=tuple(after), loop=loop, options=NodeOptions(priority=priority))


def _needs(names: Sequence[str]) -> dict[str, object]:
    return {"$op": ["and", *({"$property": [name, "o", "p"]} for name in names)]}


@dataclass
class Program:
    """A pipeline as its author would write it: a loop's nodes stand together, and take what stands above them."""

    nodes: list[Node] = field(default_factory=list)
    loops: list[Loop] = field(default_factory=list)

    def block(self, draw: st.DrawFn, within: str, depth: int) -> None:
        for _ in range(draw(st.integers(1, 3))):
            above = [node.id for node in self.nodes]
            needs = draw(st.lists(st.sampled_from(above), max_size=2, unique=True)) if above else []
            if depth < 3 and len(self.nodes) < 9 and draw(st.integers(0, 2)) == 0:
                loop = Loop(
                    f"L{len(self.loops)}",
                    _needs(needs[:1]),
                    within,
                    draw(st.sampled_from([None, None, 1, 2])),
                    (_needs(needs[1:]),) if needs[1:] else (),
                )
                self.loops.append(loop)
                self.block(draw, loop.id, depth + 1)
            else:
                self.nodes.append(_node(f"N{len(self.nodes)}", needs, within, draw(st.integers(-1, 1))))


def _sorted(nodes: Sequence[Node], loops: Sequence[Loop]) -> Pipeline | None:
    """The nodes in an order in which each comes after what it needs; None where there is none."""
    left, found = list(nodes), list[Node]()
    while left:
        for node in left:
            try:
                Pipeline("p", (), (*found, node), tuple(loops))
            except BuildError:
                continue
            found.append(node)
            left.remove(node)
            break
        else:
            return None
    return Pipeline("p", (), tuple(found), tuple(loops))


@st.composite
def pipelines(draw: st.DrawFn) -> Pipeline:
    program = Program()
    program.block(draw, "", 0)
    pipeline = Pipeline("p", (), tuple(program.nodes), tuple(program.loops))
    # What gates do: a node waits for one that was written after it.
    for _ in range(draw(st.integers(0, 2))):
        waiting, gate = (draw(st.sampled_from(pipeline.ids)) for _ in "ab")
        if gate != waiting and gate not in pipeline[waiting].after:
            changed = replace(pipeline[waiting], after=(*pipeline[waiting].after, gate))
            nodes = [changed if node.id == waiting else node for node in pipeline.nodes]
            tried = _sorted(nodes, program.loops)
            if tried is not None and deadlocked_loop(tried) is None:
                pipeline = tried
    return pipeline


@dataclass
class Oracle:
    """Searches."""

    pipeline: Pipeline
    nodes: list[str]
    counts: Drawn
    taken: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)

    def known(self, loop: str, outer: Index) -> bool:
        """Whether all has ended that a loop waits for."""
        around = self.pipeline.scope(next(n for n in self.pipeline.ids if loop in self.pipeline.scope(n)))
        around = around[: around.index(loop)]
        return all(self.over(need.node, outer, around) for need in self.pipeline.loop(loop).dependencies)

    def below(self, node: str, index: Index) -> list[Index] | None:
        """The tasks of a node below an index; None where they are not known yet."""
        scope = self.pipeline.scope(node)
        if len(index) == len(scope):
            return [index]
        loop = scope[len(index)]
        if not self.known(loop, index):
            return None
        count = self.counts[loop, index]
        if count is None:
            return [index]
        parts = [self.below(node, (*index, number)) for number in range(count)]
        return None if None in parts else [at for part in parts for at in part or []]

    def over(self, node: str, index: Index, scope: Sequence[str]) -> bool:
        """Whether all tasks of a node that are seen from there have ended."""
        if node not in self.nodes:
            return True
        own = self.pipeline.scope(node)
        shared = 0
        while shared < min(len(own), len(scope), len(index)) and own[shared] == scope[shared]:
            shared += 1
        # Where a loop around has no items, all that is in it is seen as one.
        return self.done(node, index[:shared])

    def done(self, node: str, index: Index) -> bool:
        tasks = self.below(node, index)
        return tasks is not None and all(task_name(node, at) in self.ended for at in tasks)

    def tasks(self) -> list[tuple[str, Index]]:
        """All that are known, though others are not."""
        found: list[tuple[str, Index]] = []

        def search(node: str, index: Index) -> None:
            scope = self.pipeline.scope(node)
            if len(index) == len(scope):
                found.append((node, index))
            elif self.known(scope[len(index)], index):
                count = self.counts[scope[len(index)], index]
                if count is None:
                    found.append((node, index))
                else:
                    for number in range(count):
                        search(node, (*index, number))

        for node in self.nodes:
            search(node, ())
        return found

    def fits(self, node: str, index: Index) -> bool:
        """Whether the loops around have room for its items."""
        for depth, loop in enumerate(self.pipeline.scope(node)[: len(index)]):
            most = self.pipeline.loop(loop).parallel
            active = {number for number in range(20) if self.active(loop, (*index[:depth], number))}
            if most is not None and index[depth] not in active and len(active) >= most:
                return False
        return True

    def active(self, loop: str, item: Index) -> bool:
        """Whether an item has begun and has not ended."""
        inside = [name for name in self.nodes if loop in self.pipeline.scope(name)]
        begun = any(
            node in inside and index[: len(item)] == item for node, index in (parse_task(name) for name in self.taken)
        )
        return begun and not all(self.done(name, item) for name in inside)

    def next(self, refused: set[str]) -> str | None:
        """What is to be taken."""
        order = {name: number for number, name in enumerate(self.nodes)}
        best = min(
            (
                (-self.pipeline[node].options.priority, order[node], index)
                for node, index in self.tasks()
                if task_name(node, index) not in self.taken
                and self.ready(node, index)
                and self.fits(node, index)
                and node not in refused
            ),
            default=None,
        )
        return None if best is None else task_name(self.nodes[best[1]], best[2])

    def ready(self, node: str, index: Index) -> bool:
        scope = self.pipeline.scope(node)
        if len(index) < len(scope):
            return True  # what is held back waits for its loop alone
        return all(self.over(up, index, scope) for up in self.pipeline[node].upstream)


@pytest.mark.slow
@given(pipelines(), st.data())
def test_it_takes_what_a_search_would_take(pipeline: Pipeline, data: st.DataObject) -> None:
    left_out = data.draw(st.sets(st.sampled_from(pipeline.ids), max_size=2)) if len(pipeline.ids) > 2 else set()
    nodes = [name for name in pipeline.ids if name not in left_out]
    oracle = Oracle(pipeline, nodes, Drawn(data))

    def items(loop: str, outer: Index) -> int | None:
        assert (loop, outer) not in asked
        assert oracle.known(loop, outer)
        asked.add((loop, outer))
        return oracle.counts[loop, outer]

    asked: set[tuple[str, Index]] = set()
    schedule = TaskSchedule(pipeline, nodes, items)
    while True:
        refused = data.draw(st.sets(st.sampled_from(nodes), max_size=1)) if oracle.taken - oracle.ended else set()
        wanted = oracle.next(refused)
        found = schedule.take(lambda node: node.id not in refused)  # noqa: B023 - called at once
        assert found == wanted
        if found is not None:
            oracle.taken.add(found)
        running = sorted(oracle.taken - oracle.ended)
        assert schedule.running == set(running)
        if not running:
            break
        if found is None or data.draw(st.booleans(), label="one ends"):
            name = data.draw(st.sampled_from(running), label="ends")
            oracle.ended.add(name)
            schedule.end(name)
    assert schedule.over
    assert {task_name(*task) for task in oracle.tasks()} == oracle.ended == oracle.taken
    assert all(oracle.below(name, ()) is not None for name in nodes)


@pytest.mark.slow
@given(pipelines(), st.data())
def test_steps_launch_each_task_when_a_search_would_allow_it(pipeline: Pipeline, data: st.DataObject) -> None:
    nodes = list(pipeline.ids)
    oracle = Oracle(pipeline, nodes, Drawn(data))
    flow = Counted(pipeline, oracle.counts)
    for step in steps(pipeline, nodes):
        parts = [step.tasks(part, flow) for part in step.shares(flow)]
        at_work: dict[int, str] = {}
        while parts:  # as many workers as there are parts, each as fast as it likes
            number = data.draw(st.integers(0, len(parts) - 1), label="who goes on")
            worker = id(parts[number])
            if worker in at_work:
                oracle.ended.add(at_work.pop(worker))
            name = next(parts[number], None)
            if name is None:
                del parts[number]
                continue
            task = parse_task(name)
            assert name not in oracle.taken
            assert task in oracle.tasks()
            assert oracle.ready(*task)
            assert oracle.fits(*task)
            oracle.taken.add(name)
            at_work[worker] = name
    assert {task_name(*task) for task in oracle.tasks()} == oracle.ended == oracle.taken


def test_a_thousand_items_that_do_not_fit_are_passed_over_in_one_step() -> None:
    pipeline = Pipeline("p", (), (_node("A", (), "items", 0), _node("B", (), "", 0)), (Loop("items", [0]),))
    schedule = TaskSchedule(pipeline, ["A", "B"], lambda loop, outer: 1000)
    asked: list[str] = []

    def fits(node: Node) -> bool:
        asked.append(node.id)
        return node.id == "B"

    assert schedule.take(fits) == "B"
    assert schedule.take(fits) is None
    assert asked == ["A", "B", "A"]
    assert [schedule.take() for _ in range(1001)] == [*(f"A[{item}]" for item in range(1000)), None]
