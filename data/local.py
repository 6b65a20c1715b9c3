"""The executor that runs here: a few threads walk the shards."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ..errors import InputError
from ..progress import Progress, no_progress
from .base import A, BatchFn, Route
from .examples import Manifest, Sink
from .exchange import Spill, buckets_of, plan, remove_spills, spill_shard
from .sources import Source
from .tree import MergeTree
from .writing import Written, collect, remove_leftovers, write_shard

T = TypeVar("T")

_POLL_SECONDS = 0.1  # how often progress hears of rows, and so how soon a cancellation is seen


class _StoppedError(Exception):
    """Raised inside a worker thread when the pass has been given up."""


@dataclass(frozen=True)
class LocalExecutor:
    """Runs shards on threads of this process; see `Executor`.

    Attributes:
        threads: How many; default one per core this process may use.
    """

    threads: int = 0

    def combine(
        self, source: Source, make: Callable[[], A], via: BatchFn | None = None, progress: Progress = no_progress
    ) -> A:
        """See `Executor.combine`."""
        if not source.shards:
            return make()
        if via is not None:
            via.setup()
        tree: MergeTree[A] = MergeTree(len(source.shards), merge_states)

        def one(index: int, on_rows: Callable[[int], None]) -> None:
            tree.put(0, index, shard_state(source, index, make, via, on_rows))

        self._each(source, one, progress)
        return tree.root()

    def map(
        self,
        source: Source,
        fn: BatchFn | None,
        sinks: Mapping[str, Sink],
        *,
        route: Route | None = None,
        progress: Progress = no_progress,
    ) -> Manifest:
        """See `Executor.map`."""
        if fn is not None:
            fn.setup()

        def one(index: int, on_rows: Callable[[int], None]) -> Written:
            return write_shard(source, index, fn, sinks, route, on_rows)

        try:
            return collect(self._each(source, one, progress), sinks)
        finally:
            remove_leftovers(sinks)

    def exchange(
        self,
        source: Source,
        key: str | Sequence[str],
        buckets: int,
        folder: Path,
        *,
        via: BatchFn | None = None,
        progress: Progress = no_progress,
    ) -> Source:
        """See `Executor.exchange`."""
        wanted = plan(source, key, buckets, folder)
        if via is not None:
            via.setup()

        def one(index: int, on_rows: Callable[[int], None]) -> Spill:
            return spill_shard(wanted, index, via, on_rows)

        try:
            return buckets_of(wanted, self._each(source, one, progress), via)
        except BaseException:
            remove_spills(wanted)
            raise

    def _each(self, source: Source, one: Callable[[int, Callable[[int], None]], T], progress: Progress) -> list[T]:
        """Call `one` for every shard, in order as threads come free; the results by shard."""
        stop = threading.Event()
        lock = threading.Lock()
        done = 0

        def on_rows(rows: int) -> None:
            nonlocal done
            if stop.is_set():
                raise _StoppedError
            with lock:
                done += rows

        total = source.rows
        futures: list[Future[T]] = []
        with ThreadPoolExecutor(self.threads or _cores(), thread_name_prefix="shard") as pool:
            try:
                futures = [pool.submit(one, index, on_rows) for index in range(len(source.shards))]
                waiting: set[Future[T]] = set(futures)
                while waiting:
                    finished, waiting = wait(waiting, timeout=_POLL_SECONDS, return_when=FIRST_COMPLETED)
                    for future in finished:
                        future.result()
                    progress(done, total, "rows")
            except BaseException:
                stop.set()
                for future in futures:
                    future.cancel()
                raise
        return [future.result() for future in futures]


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):  # macOS has none
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def shard_state(
    source: Source, index: int, make: Callable[[], A], via: BatchFn | None, on_rows: Callable[[int], None]
) -> A:
    """The accumulator over one shard, compacted; the leaf of the tree on every executor."""
    state = make()
    for batch in source.read(index):
        try:
            state.add_batch(via(batch) if via is not None else batch)
        except InputError as error:
            if error.where is None:
                error.where = _place(source, index)
            raise
        on_rows(batch.num_rows)
    state.compact()
    return state


def _place(source: Source, index: int) -> str:
    """A shard for people: its file, and the row of the file that it starts with."""
    path = source.shards[index].path
    before = sum(shard.rows for shard in source.shards[:index] if shard.path == path)
    return f"{path}, the part from row {before:,}" if before else path


def merge_states(left: A, right: A) -> A:
    """The left state with the right one merged in, compacted."""
    left.merge(right)
    left.compact()
    return left
