"""Which tasks may start: a pipeline's nodes, opened into items as loops become known, in the order they may run.

Counts, not searches, so that a thousand items cost a thousand steps. A group is a node with an index that may be
shorter than its loops are deep: all the tasks below that index. It has ended when each of them has.

How the counts work: `_left[group]` is how many tasks below an index have not ended. A task that waits is a `_Waiter`
with the number of groups it still misses; a group whose count comes to 0 takes one off each of its waiters, and a
waiter that misses none makes its task ready. Before a loop is opened nobody knows how many tasks are below it, so its
nodes count as one task there; opening it into n items adds n - 1 to that count, and so to all counts above.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TypeAlias

from ..ir.ir import Node, Pipeline
from ..ir.tasks import Index, parse_task, task_name
from ..launcher.flow import shared_depth

Items: TypeAlias = Callable[[str, Index], int | None]
"""How many items a loop has, within an item of those around it; None where it is held back."""
_Group: TypeAlias = tuple[str, Index]
_Rank: TypeAlias = tuple[int, int]
"""A node's place among the ready ones: minus its priority, then its number in the order of the pipeline."""


class TaskSchedule:
    """The order of one run.

    Args:
        pipeline: What is run.
        nodes: Which of its nodes; what they wait for and is not among them has ended.
        items: Asked once for each loop, when what it waits for has ended.
    """

    def __init__(self, pipeline: Pipeline, nodes: Iterable[str], items: Items) -> None:
        self._pipeline = pipeline
        self._nodes = [pipeline[name] for name in nodes]
        self._order = {node.id: number for number, node in enumerate(self._nodes)}
        self._scopes = {node.id: pipeline.scope(node.id) for node in self._nodes}
        self._items = items
        self._left: dict[_Group, int] = {(node.id, ()): 1 for node in self._nodes}
        self._waiting: dict[_Group, list[_Waiter]] = defaultdict(list)
        # Two levels of heaps: nodes that have ready tasks, and the indexes of those. A node that does not fit is
        # passed over in one step however many items it is ready for.
        self._ready: list[_Rank] = []
        self._ready_indexes: dict[int, list[Index]] = defaultdict(list)
        self._held: dict[tuple[str, Index], list[tuple[_Rank, Index]]] = defaultdict(list)
        self._active: dict[tuple[str, Index], set[int]] = defaultdict(set)
        self._unended: dict[tuple[str, Index], int] = {}  # (loop, index with the item) -> nodes that have not ended
        self._running: set[str] = set()
        self._inside: dict[str, list[Node]] = defaultdict(list)
        for node in self._nodes:
            for loop in self._scopes[node.id]:
                self._inside[loop].append(node)
        opened: set[str] = set()
        for node in self._nodes:
            if not self._scopes[node.id]:
                self._wait_for(node, ())
            elif self._scopes[node.id][0] not in opened:
                opened.add(self._scopes[node.id][0])
                self._wait_for_loop(self._scopes[node.id][0], ())

    @property
    def over(self) -> bool:
        """Whether no task is left, neither running nor waiting."""
        return not self._running and not self._ready and not any(self._held.values())

    @property
    def running(self) -> frozenset[str]:
        """The tasks that were taken and have not ended."""
        return frozenset(self._running)

    def take(self, fits: Callable[[Node], bool] = lambda node: True) -> str | None:
        """The next task to start, of a node that fits; None where there is none now."""
        unfit: list[_Rank] = []
        task: str | None = None
        while self._ready and task is None:
            rank = self._ready[0]
            node, indexes = self._nodes[rank[1]], self._ready_indexes[rank[1]]
            full = self._full(node, indexes[0])
            if full is not None:
                # Out of the heaps until an item of that loop ends, so that no later call looks at it again.
                self._held[full].append((rank, heapq.heappop(indexes)))
            elif fits(node):
                task = self._start(node, heapq.heappop(indexes))
            else:
                # All tasks of a node need the same, so that the others do not fit either.
                unfit.append(heapq.heappop(self._ready))
                continue
            if not indexes:
                heapq.heappop(self._ready)
        for rank in unfit:
            heapq.heappush(self._ready, rank)
        return task

    def _start(self, node: Node, index: Index) -> str:
        for depth, loop in enumerate(self._scopes[node.id][: len(index)]):
            self._active[loop, index[:depth]].add(index[depth])
        name = task_name(node.id, index)
        self._running.add(name)
        return name

    def end(self, name: str) -> None:
        """A task has ended, however it did."""
        self._running.discard(name)
        node, index = parse_task(name)
        self._less(node, index, 1)

    def _full(self, node: Node, index: Index) -> tuple[str, Index] | None:
        """A loop around that is at work on as many items as it may be."""
        for depth, loop in enumerate(self._scopes[node.id][: len(index)]):
            most, active = self._pipeline.loop(loop).parallel, self._active[loop, index[:depth]]
            if most is not None and index[depth] not in active and len(active) >= most:
                return loop, index[:depth]
        return None

    def _wait_for(self, node: Node, index: Index) -> None:
        """A task with its full index: ready when what it waits for has ended."""
        groups = {self._group(up, index, self._scopes[node.id]) for up in node.upstream if up in self._order}
        self._begin(_Waiter(lambda: self._make_ready(node, index)), groups)

    def _wait_for_loop(self, loop: str, outer: Index) -> None:
        body = self._pipeline.loop(loop)
        around = self._pipeline.scope(self._inside[loop][0].id)
        around = around[: around.index(loop)]
        groups = {self._group(need.node, outer, around) for need in body.dependencies if need.node in self._order}
        self._begin(_Waiter(lambda: self._open(loop, outer)), groups)

    def _begin(self, waiter: _Waiter, groups: set[_Group]) -> None:
        waiting = [group for group in groups if self._left[group]]
        waiter.missing = len(waiting)
        for group in waiting:
            self._waiting[group].append(waiter)
        if not waiting:
            waiter.go()

    def _group(self, node: str, index: Index, scope: tuple[str, ...]) -> _Group:
        """The tasks of a node that are seen from a task with this index in this scope."""
        return node, index[: shared_depth(self._scopes[node], scope[: len(index)])]

    def _make_ready(self, node: Node, index: Index) -> None:
        self._push((-node.options.priority, self._order[node.id]), index)

    def _push(self, rank: _Rank, index: Index) -> None:
        indexes = self._ready_indexes[rank[1]]
        if not indexes:
            heapq.heappush(self._ready, rank)
        heapq.heappush(indexes, index)

    def _open(self, loop: str, outer: Index) -> None:
        """Open a loop into its items; what is in one that is held back is launched once, to say so."""
        count = self._items(loop, outer)
        depth = len(outer) + 1
        for node in self._inside[loop]:
            for number in range(count or 0):
                self._left[node.id, (*outer, number)] = 1
        if count is None:
            for node in self._inside[loop]:
                self._make_ready(node, outer)
            return
        for number in range(count):
            self._unended[loop, (*outer, number)] = len(self._inside[loop])
        for node in self._inside[loop]:
            self._less(node.id, outer, 1 - count)
        for number in range(count):
            index = (*outer, number)
            opened: set[str] = set()
            for node in self._inside[loop]:
                scope = self._scopes[node.id]
                if len(scope) == depth:
                    self._wait_for(node, index)
                elif scope[depth] not in opened:
                    opened.add(scope[depth])
                    self._wait_for_loop(scope[depth], index)

    def _less(self, node: str, index: Index, count: int) -> None:
        """So many tasks fewer are left below an index, and so above it; tell who waits for it."""
        for length in range(len(index), -1, -1):
            group = (node, index[:length])
            self._left[group] -= count
            if not self._left[group]:
                if length:
                    self._item_ended(self._scopes[node][length - 1], index[:length])
                for waiter in self._waiting.pop(group, ()):
                    waiter.missing -= 1
                    if not waiter.missing:
                        waiter.go()

    def _item_ended(self, loop: str, index: Index) -> None:
        self._unended[loop, index] -= 1
        if not self._unended[loop, index]:
            frame = (loop, index[:-1])
            self._active[frame].discard(index[-1])
            for rank, held in self._held.pop(frame, ()):
                self._push(rank, held)


class _Waiter:
    """Something that goes when so many groups have ended."""

    def __init__(self, go: Callable[[], None]) -> None:
        self.go = go
        self.missing = 0
