"""The executor of this process: each thread reads a shard at a time.

Arrow and numpy release the interpreter's lock while they decode, sort and count, so threads are enough.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TypeVar

from ..errors import InputError
from ..progress import Progress, no_progress
from .base import A, Accumulator, BatchFn, Route
from .examples import Manifest, Sink
from .exchange import Spill, buckets_of, plan_exchange, remove_spills, spill_shard
from .sources import Source
from .tree import MergeTree, merge_states
from .writing import ShardParts, collect, remove_leftovers, write_shard

T = TypeVar("T")

_POLL_SECONDS = 0.1  # between calls of `progress`, which is how a pass learns that it was canceled


class _StoppedError(Exception):
    """Ends a worker thread after another shard failed or the pass was canceled; that first error is what is raised."""


@dataclass(frozen=True)
class LocalExecutor:
    """Runs shards on threads of this process; see `Executor`.

    Attributes:
        threads: How many; 0: one per core that this process may use.
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

        def accumulate(index: int, on_rows: Callable[[int], None]) -> None:
            tree.put(0, index, shard_state(source, index, make, via, on_rows))

        self._run(source, accumulate, progress)
        return tree.root()

    def map(
        self,
        source: Source,
        fn: BatchFn | None,
        sinks: Mapping[str, Sink],
        *,
        route: Route | None = None,
        tally: Accumulator | None = None,
        progress: Progress = no_progress,
    ) -> Manifest:
        """See `Executor.map`."""
        if fn is not None:
            fn.setup()

        def write(index: int, on_rows: Callable[[int], None]) -> ShardParts:
            return write_shard(source, index, fn, sinks, route, tally, on_rows)

        try:
            return collect(self._run(source, write, progress), sinks, tally)
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
        plan = plan_exchange(source, key, buckets, folder)
        if via is not None:
            via.setup()

        def spill(index: int, on_rows: Callable[[int], None]) -> Spill:
            return spill_shard(plan, index, via, on_rows)

        try:
            return buckets_of(plan, self._run(source, spill, progress), via)
        except BaseException:
            remove_spills(plan)
            raise

    def _run(self, source: Source, work: Callable[[int, Callable[[int], None]], T], progress: Progress) -> list[T]:
        """Call `work(shard number, on_rows)` for every shard, in order as threads come free; the results by shard."""
        stop = threading.Event()
        lock = threading.Lock()
        done = 0

        def on_rows(rows: int) -> None:
            nonlocal done
            if stop.is_set():  # a thread cannot be interrupted: it ends at its next batch
                raise _StoppedError
            with lock:
                done += rows

        total = source.rows
        futures: list[Future[T]] = []
        ended: SimpleQueue[Future[T]] = SimpleQueue()  # `concurrent.futures.wait` asks all of them each time
        with ThreadPoolExecutor(self.threads or _cores(), thread_name_prefix="shard") as pool:
            try:
                futures = [pool.submit(work, index, on_rows) for index in range(len(source.shards))]
                for future in futures:
                    future.add_done_callback(ended.put)
                left = len(futures)
                while left:
                    try:
                        future = ended.get(timeout=_POLL_SECONDS)
                    except Empty:
                        pass
                    else:
                        future.result()
                        left -= 1
                    progress(done, total, "rows")
            except BaseException:
                # Inside the `with`, whose end waits for the threads: without the event they would read their shards on.
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
    """The accumulator over one shard, compacted: a leaf of the merge tree, on every executor.

    Args:
        source: What to read.
        index: The shard's number.
        make: Makes an empty accumulator.
        via: Applied to every batch first, or None.
        on_rows: Called with the rows of each batch that was taken in; may raise to stop.

    Raises:
        InputError: The shard cannot be read, or `where` the accumulator refused a batch of it.
    """
    state = make()
    for batch in source.read(index):
        try:
            state.add_batch(via(batch) if via is not None else batch)
        except InputError as error:
            if error.where is None:
                error.where = _location(source, index)
            raise
        on_rows(batch.num_rows)
    state.compact()
    return state


def _location(source: Source, index: int) -> str:
    """A shard in words: its file, and the row of the file that it starts with."""
    path = source.shards[index].path
    before = sum(shard.rows for shard in source.shards[:index] if shard.path == path)
    return f"{path}, the part from row {before:,}" if before else path
