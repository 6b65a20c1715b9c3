"""The executor that runs on any Beam runner: shard numbers travel to the workers, rows never do.

`Runs of shard numbers → Reshuffle → ParDo`, in which a worker reads its shards from the file system that it shares with
the driver. States are merged along the same tree as `LocalExecutor` merges them: within a run and a bundle
first, then in a CombineFn, siblings only. Portable runners return nothing from a pipeline, so the one result comes back
as a file in `scratch`.

A pass has two kinds of pieces: states (`combine`) and JSON about files that a worker wrote (`map`, `exchange`). Both
are (level, index, bytes) of the merge tree, JSON always at level 0. A user's error is a piece as well, with a level of
its own: raised in a worker, a runner would retry it and wrap it in a traceback of its own.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
import struct
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from ..beam_job import job_options, run_job
from ..digest import canonical_json
from ..errors import BuildError, Canceled, DrivetrainError, InputError
from ..progress import Progress, no_progress
from .base import A, Accumulator, BatchFn, Route
from .examples import Manifest, Part, Sink
from .exchange import ExchangePlan, Spill, buckets_of, plan_exchange, remove_spills, spill_shard
from .local import shard_state
from .sources import Source
from .tree import MergeTree, merge_states
from .writing import ShardParts, collect, remove_leftovers, write_shard

import apache_beam as beam  # isort: skip - beam_job has imported it, quietly, or said that it is not installed
from apache_beam.transforms.window import GlobalWindow  # isort: skip
from apache_beam.utils.windowed_value import WindowedValue  # isort: skip

_BEGUN: Final = "begun"
_MOST_BLOCKS: Final = 1024  # elements of a pass; what is merged at its end is so many states at most
_FAILED: Final = -1
_Piece = tuple[int, int, bytes]  # level (or _FAILED) and index in the tree, and the state's bytes
_Work = Callable[[int, BatchFn | None, Callable[[int], None]], list[Any]]  # (shard, fn, on_rows) → JSON


@dataclass(frozen=True)
class BeamExecutor:
    """Runs shards on the workers of a Beam runner; see `Executor`. Gives the same bytes as `LocalExecutor`.

    Attributes:
        options: Beam's pipeline options, e.g. ("--runner=PortableRunner", "--job_endpoint=localhost:8099"); without
            a runner, Beam runs in this process. `--worker_start_timeout=SECONDS` (300) is ours.
        scratch: A folder that driver and workers share, for the result; default the temporary folder, which only
            works where the workers run on this machine.
    """

    options: tuple[str, ...] = ()
    scratch: Path | None = None

    def combine(
        self, source: Source, make: Callable[[], A], via: BatchFn | None = None, progress: Progress = no_progress
    ) -> A:
        """See `Executor.combine`. While workers run in other processes, `progress` is called, but with no new rows."""
        if not source.shards:
            return make()
        merge = _MergeStates(len(source.shards), make)
        [data] = self._run(source, lambda folder: _Accumulate(source, make, via, folder), merge, progress)
        return _loader(make)(data)

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
        """See `Executor.map`. The workers write the parts, so the sinks must lie on a file system that they share."""
        if not source.shards:
            return collect([], sinks)
        work = partial(_write, source, dict(sinks), route, tally)
        try:
            pieces = self._run(source, lambda folder: _MapShards(work, fn, folder), _CollectPieces(), progress)
        finally:
            remove_leftovers(sinks)
        return collect((_written(piece, tally) for piece in pieces), sinks, tally)

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
        """See `Executor.exchange`. The workers write the buckets, so they must share the folder."""
        plan = plan_exchange(source, key, buckets, folder)
        work = partial(_spill, plan)
        try:
            pieces = []
            if source.shards:
                pieces = self._run(source, lambda folder: _MapShards(work, via, folder), _CollectPieces(), progress)
            return buckets_of(plan, map(_spilled, pieces), via)
        except BaseException:
            remove_spills(plan)
            raise

    def _run(
        self, source: Source, work: Callable[[str], beam.DoFn], combine: beam.CombineFn, progress: Progress
    ) -> list[bytes]:
        watch = _PassWatch(source.rows, progress)
        watch.report()
        options = job_options(self.options)
        folder = Path(tempfile.mkdtemp(prefix="drivetrain-beam-", dir=self.scratch))
        result = folder / "result"
        _PASS_WATCHES[str(folder)] = watch
        try:
            build = partial(add_pass, shards=len(source.shards), work=work(str(folder)), combine=combine, result=result)
            run_job(build, options, folder / _BEGUN, watch.report)
            if not result.is_file():
                raise DrivetrainError(
                    f"the Beam runner finished, but no worker left a result in {folder}",
                    fix="give BeamExecutor a scratch folder that the workers share",
                )
            data = result.read_bytes()
        finally:
            del _PASS_WATCHES[str(folder)]
            shutil.rmtree(folder, ignore_errors=True)
        pieces = _pieces_or_failure(data)
        progress(source.rows, source.rows, "rows")
        return pieces


def blocks(shards: int) -> list[range]:
    """The elements of a pass: aligned runs of shards, each a whole branch of the tree, so that it gives one state.

    With single shards as elements, siblings would rarely meet in a bundle, and the one worker that merges at the end
    would get a state for every shard.
    """
    size = 1
    while shards > size * _MOST_BLOCKS:
        size *= 2
    return [range(first, min(first + size, shards)) for first in range(0, shards, size)]


def _blocks(impulse: bytes, shards: int) -> list[range]:
    return blocks(shards)


def add_pass(pipeline: beam.Pipeline, *, shards: int, work: beam.DoFn, combine: beam.CombineFn, result: Path) -> None:
    """Add a pass over that many shards to a Beam pipeline; its result is written to the file `result`."""
    _ = (
        pipeline
        | "Begin" >> beam.Impulse()
        | "Shards" >> beam.FlatMap(_blocks, shards)  # not Create, which reshuffles too, and has each block in the graph
        | "Spread" >> beam.Reshuffle()
        | "Read" >> beam.ParDo(work)
        # There is at least one shard. A default would be computed from no pieces at all, which have no result.
        | "Merge" >> beam.CombineGlobally(combine).without_defaults()
        | "Result" >> beam.ParDo(_LeaveResult(str(result)))
    )


def _loader(make: Callable[[], A]) -> Callable[[bytes], A]:
    """How states are read again: by the empty accumulator's `load` where it has one, else `from_bytes`."""
    empty = make()
    load: Callable[[bytes], A] = getattr(empty, "load", type(empty).from_bytes)
    return load


class _PassWatch:
    """What the driver knows of a pass: the rows read in this process, and whether `progress` raised `Canceled`.

    Beam's in-process runner reads on many threads, whose rows are added under a lock. Once canceled, it raises in every
    thread that reports: a runner retries what failed, and each retry must end at once.
    """

    def __init__(self, total: int, progress: Progress) -> None:
        self.stopped: Canceled | None = None
        self._done = 0
        self._total = total
        self._progress = progress
        self._lock = threading.Lock()

    def report(self, rows: int = 0) -> None:
        with self._lock:
            if self.stopped is not None:
                raise self.stopped
            self._done += rows
            try:
                self._progress(self._done, self._total, "rows")
            except Canceled as error:
                self.stopped = error
                raise


# By the folder of the pass. A DoFn is pickled on its way to a worker, so it carries the folder and looks here; in other
# processes there is nothing to find.
_PASS_WATCHES: dict[str, _PassWatch] = {}


def _begin(folder: str, fn: BatchFn | None) -> None:
    """What a worker does first: leave a sign that it has begun, and prepare the function."""
    with contextlib.suppress(OSError):  # a folder that is not shared: the driver finds no result and raises
        Path(folder, _BEGUN).touch()
    if fn is not None:
        fn.setup()


def _on_rows(folder: str) -> Callable[[int], None]:
    """Where a worker reports rows: to the driver if that is this process, else nowhere."""
    watch = _PASS_WATCHES.get(folder)
    return watch.report if watch is not None else lambda rows: None


class _Accumulate(beam.DoFn):
    """Shard numbers → state, merged within the bundle as far as siblings meet."""

    def __init__(self, source: Source, make: Callable[[], A], via: BatchFn | None, folder: str) -> None:
        self._folder = folder
        self._source = source
        self._make: Callable[[], Any] = make  # Any: a DoFn cannot be generic in Beam's eyes
        self._via = via

    def setup(self) -> None:
        _begin(self._folder, self._via)

    def start_bundle(self) -> None:
        self._tree: MergeTree[Any] = MergeTree(len(self._source.shards), merge_states)
        self._failures: list[_Piece] = []

    def process(self, block: range) -> None:
        on_rows = _on_rows(self._folder)
        for index in block:
            try:
                on_rows(0)  # raises once the pass is canceled: no further shard is read
                state = shard_state(self._source, index, self._make, self._via, on_rows)
            except DrivetrainError as error:
                self._failures.append(_failure(index, error))
                return
            self._tree.put(0, index, state)

    def finish_bundle(self) -> Iterator[Any]:
        pieces = [(level, index, state.to_bytes()) for level, index, state in self._tree.pieces()]
        for piece in pieces + self._failures:
            yield WindowedValue(piece, 0, (GlobalWindow(),))


class _CollectPieces(beam.CombineFn):
    """Pieces, in whatever order and grouping, to one byte string: "R" and the pieces, or "E" and the first failure.

    First by shard number: which of several errors a user sees does not depend on timing.
    """

    def create_accumulator(self) -> list[_Piece]:
        return []

    def add_input(self, pieces: list[_Piece], piece: _Piece) -> list[_Piece]:
        return [*pieces, piece]

    def merge_accumulators(self, accumulators: Iterable[list[_Piece]]) -> list[_Piece]:
        return self.compact([piece for pieces in accumulators for piece in pieces])

    def compact(self, pieces: list[_Piece]) -> list[_Piece]:
        failures = sorted(piece for piece in pieces if piece[0] == _FAILED)
        return failures[:1] or self.join(pieces)

    def join(self, pieces: list[_Piece]) -> list[_Piece]:
        """Fewer pieces, where some belong together."""
        return pieces

    def extract_output(self, pieces: list[_Piece]) -> bytes:
        left = sorted(self.compact(pieces))
        if left[0][0] == _FAILED:
            return b"E" + left[0][2]
        return b"R" + b"".join(struct.pack("<q", len(data)) + data for _, _, data in left)


class _MergeStates(_CollectPieces):
    """The pieces are states: siblings among them become one, until one state is left."""

    def __init__(self, shards: int, make: Callable[[], A]) -> None:
        self._shards = shards
        self._make = make

    def join(self, pieces: list[_Piece]) -> list[_Piece]:
        if len(pieces) < 2:
            return pieces
        load = _loader(self._make)

        def merge(left: bytes, right: bytes) -> bytes:
            return merge_states(load(left), load(right)).to_bytes()

        tree = MergeTree(self._shards, merge)
        for level, index, data in pieces:
            tree.put(level, index, data)
        return list(tree.pieces())


class _MapShards(beam.DoFn):
    """Shard numbers → the JSON that `work` returns for each; a retried shard renames over its own files."""

    def __init__(self, work: _Work, fn: BatchFn | None, folder: str) -> None:
        self._folder = folder
        self._work = work
        self._fn = fn

    def setup(self) -> None:
        _begin(self._folder, self._fn)

    def process(self, block: range) -> Iterator[_Piece]:
        on_rows = _on_rows(self._folder)
        for index in block:
            try:
                on_rows(0)
                outcome = self._work(index, self._fn, on_rows)
            except DrivetrainError as error:
                yield _failure(index, error)
                return
            yield 0, index, canonical_json(outcome)


def _write(
    source: Source,
    sinks: Mapping[str, Sink],
    route: Route | None,
    tally: Accumulator | None,
    index: int,
    fn: BatchFn | None,
    on_rows: Callable[[int], None],
) -> list[Any]:
    written = write_shard(source, index, fn, sinks, route, tally, on_rows)
    state = written.tally and written.tally.to_bytes().hex()
    return [[[part.path, part.rows, part.bytes, part.sha256] for part in written.parts], written.schema, state]


def _spill(plan: ExchangePlan, index: int, fn: BatchFn | None, on_rows: Callable[[int], None]) -> list[Any]:
    spilled = spill_shard(plan, index, fn, on_rows)
    return [spilled.path, spilled.batches]


class _LeaveResult(beam.DoFn):
    """Writes the result where the driver looks; a retry renames the same bytes over it."""

    def __init__(self, path: str) -> None:
        self._path = path

    def process(self, data: bytes) -> None:
        final = Path(self._path)
        temporary = final.with_name(f".{secrets.token_hex(8)}.tmp")
        temporary.write_bytes(data)
        temporary.replace(final)


def _failure(index: int, error: DrivetrainError) -> _Piece:
    """A user's error as a piece; see the module's text."""
    return _FAILED, index, json.dumps([type(error).__name__, error.message, error.fix, error.where]).encode()


def _pieces_or_failure(data: bytes) -> list[bytes]:
    """The pieces of a result; raises the failure where it holds one."""
    if data[:1] == b"E":
        name, message, fix, where = json.loads(data[1:])
        kinds: dict[str, type[DrivetrainError]] = {"InputError": InputError, "BuildError": BuildError}
        raise kinds.get(name, DrivetrainError)(message, fix=fix, where=where)
    pieces, start = [], 1
    while start < len(data):
        (size,) = struct.unpack_from("<q", data, start)
        pieces.append(data[start + 8 : start + 8 + size])
        start += 8 + size
    return pieces


def _written(data: bytes, tally: Accumulator | None) -> ShardParts:
    parts, schema, state = json.loads(data)
    tallied = tally and _loader(lambda: tally)(bytes.fromhex(state))
    return ShardParts(tuple(Part(*part) for part in parts), tuple((name, kind) for name, kind in schema), tallied)


def _spilled(data: bytes) -> Spill:
    path, batches = json.loads(data)
    return Spill(path, tuple((bucket, rows) for bucket, rows in batches))
