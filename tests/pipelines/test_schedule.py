"""The schedule, which counts, against a search over all tasks at every step: the same task, or none, every time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from drivetrain.errors import BuildError
from drivetrain.pipelines.form.ir import Loop, Node, NodeOptions, Pipeline
from drivetrain.pipelines.form.tasks import Index, parse_task, task_name
from drivetrain.pipelines.runners.schedule import Schedule
from hypothesis import given
from hypothesis import strategies as st

Counts = dict[tuple[str, Index], int | None]


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


def _ancestors(pipeline: Pipeline, name: str) -> set[str]:
    direct = set(pipeline.upstream(name))
    return direct.union(*(_ancestors(pipeline, up) for up in direct))


def _torn(pipeline: Pipeline) -> bool:
    """Whether a loop that bounds its items waits, within them, for something that waits for all of them."""
    for loop in pipeline.loops:
        inside = {name for name in pipeline.ids if loop.id in pipeline.scope(name)}
        above = set[str]().union(*(_ancestors(pipeline, name) for name in inside)) - inside
        if loop.parallel and any(_ancestors(pipeline, name) & inside for name in above):
            return True
    return False


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
            if tried is not None and not _torn(tried):
                pipeline = tried
    return pipeline


@dataclass
class Oracle:
    """Searches."""

    pipeline: Pipeline
    nodes: list[str]
    counts: Counts
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
        count = self.counts.setdefault((loop, index), 0)
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
                count = self.counts.setdefault((scope[len(index)], index), 0)
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


@given(pipelines(), st.data())
def test_it_takes_what_a_search_would_take(pipeline: Pipeline, data: st.DataObject) -> None:
    left_out = data.draw(st.sets(st.sampled_from(pipeline.ids), max_size=2)) if len(pipeline.ids) > 2 else set()
    nodes = [name for name in pipeline.ids if name not in left_out]
    counts: Counts = {}
    oracle = Oracle(pipeline, nodes, counts)

    def items(loop: str, outer: Index) -> int | None:
        assert (loop, outer) not in asked
        assert oracle.known(loop, outer)
        asked.add((loop, outer))
        return counts[loop, outer]

    class Drawn(dict[tuple[str, Index], "int | None"]):
        def __missing__(self, key: tuple[str, Index]) -> int | None:
            self[key] = data.draw(st.sampled_from([0, 1, 2, 3, None]), label=f"items of {key}")
            return self[key]

        def setdefault(self, key: tuple[str, Index], default: int | None = None) -> int | None:
            return self[key]

    asked: set[tuple[str, Index]] = set()
    counts = oracle.counts = Drawn()
    schedule = Schedule(pipeline, nodes, items)
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
