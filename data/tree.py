"""The fixed binary tree over numbered shards: which states are merged never depends on which shard is done first."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from .base import A

T = TypeVar("T")


class MergeTree(Generic[T]):
    """Collects values by (level, index) and merges two siblings as soon as both are there. Safe for threads.

    Leaf i is (0, i); (l, i) is the merge of (l-1, 2i) and (l-1, 2i+1), or (l-1, 2i) alone where that has no sibling.
    Floats and sketches depend on the order of merging, so only siblings are merged, whoever comes first. Leaves that
    arrive about in order leave at most O(log leaves) values waiting.

    Args:
        leaves: How many there will be, at least one.
        merge: Gives the parent of a left and a right sibling; may reuse the left one.
    """

    def __init__(self, leaves: int, merge: Callable[[T, T], T]) -> None:
        self._widths = [leaves]
        while self._widths[-1] > 1:
            self._widths.append((self._widths[-1] + 1) // 2)
        self._merge = merge
        self._waiting: dict[tuple[int, int], T] = {}
        self._lock = threading.Lock()

    def put(self, level: int, index: int, value: T) -> None:
        """Add a value and merge upwards as far as siblings have arrived, in the calling thread."""
        top = len(self._widths) - 1
        while level < top:
            sibling = index ^ 1
            if sibling < self._widths[level]:
                with self._lock:
                    if (level, sibling) not in self._waiting:
                        self._waiting[level, index] = value
                        return
                    other = self._waiting.pop((level, sibling))
                # Outside the lock: who took the sibling out is alone with it, and merging may take seconds.
                value = self._merge(value, other) if index < sibling else self._merge(other, value)
            level, index = level + 1, index // 2
        with self._lock:
            self._waiting[top, 0] = value

    def root(self) -> T:
        """The merge of all leaves; a KeyError before every leaf was put."""
        return self._waiting[len(self._widths) - 1, 0]

    def pieces(self) -> Iterator[tuple[int, int, T]]:
        """The values that wait for a sibling, as (level, index, value), by level and index."""
        for (level, index), value in sorted(self._waiting.items(), key=lambda item: item[0]):
            yield level, index, value


def merge_states(left: A, right: A) -> A:
    """The left state with the right one merged in, compacted."""
    left.merge(right)
    left.compact()
    return left
