"""Unbounded input as micro-spans: each is written, measured and validated as it closes, and published whole or not.

A span's folder holds `examples/` (as ExampleGen writes them, one split "data"), `statistics/`, `window/` (statistics of
the last spans together), `anomalies.json` if there is a schema, and `span.json`, which says where the stream stood. A
stream that was stopped, or killed, goes on from the newest span: no row is lost, none comes twice.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, Protocol

import pyarrow as pa

from ...digest import canonical_json, sync_folder, sync_tree, write_durably
from ...errors import DrivetrainError, InputError
from ..examples import open_examples, sinks
from ..local import LocalExecutor
from ..reading.source_of import of_table
from ..schemas.schema import Schema
from ..sources import Source
from ..stats.accumulator import StatisticsAccumulator
from ..stats.column import ColumnState
from ..stats.document import Statistics, from_states, merge_statistics, statistics
from ..validation.anomalies import Anomalies
from ..validation.anomalous_rows import anomalous_rows
from ..validation.validate import validate
from .rows import SpanRows

FORMAT: Final = 1
SPLIT: Final = "data"
_POLL: Final = 0.5  # seconds that a source may wait for rows before the span's age is looked at again


@dataclass(frozen=True)
class Chunk:
    """Rows from a stream that belong in one span, or why they could not be read.

    Attributes:
        origin: Where the rows come from, for errors: a file, or a topic's partition and offsets.
        table: The rows (a pyarrow Table), or None if they could not be read.
        error: Why not.
    """

    origin: str
    table: Any = None  # pyarrow ships no types
    error: InputError | None = None


class Stream(Protocol):
    """An unbounded source of rows that can go on from where it was.

    Attributes:
        name: The source for people; holds no secret.
    """

    name: str

    def start(self, position: Any | None) -> None:
        """Begin after `position` (JSON that `position()` returned); None: at the very beginning."""

    def poll(self, rows: int, seconds: float) -> list[Chunk]:
        """New rows, about `rows` at most; waits up to `seconds` for the first, and returns [] if none came."""
        ...

    def position(self) -> Any:
        """The position after all that was polled, as JSON."""
        ...

    def close(self) -> None:
        """Release its connections and files; nothing is polled afterwards."""


@dataclass(frozen=True)
class StreamSpan:
    """A closed span of a stream.

    Attributes:
        number: From 1.
        folder: Where it lies.
    """

    number: int
    folder: Path

    @cached_property
    def _facts(self) -> dict[str, Any]:
        path = self.folder / "span.json"
        try:
            facts = json.loads(path.read_bytes())
        except (OSError, ValueError) as error:
            raise InputError(f"{path} cannot be read: {error}", fix="remove the span, to read its rows again") from None
        if facts.get("format") != FORMAT:
            raise InputError(
                f"{path} has format {facts.get('format')!r}; this release reads {FORMAT}",
                fix="use the release that wrote it",
            )
        return dict(facts)

    @property
    def rows(self) -> int:
        """How many rows it holds."""
        return int(self._facts["rows"])

    @property
    def rejected(self) -> list[dict[str, str]]:
        """What could not be read, as `{"origin", "error"}`; only with `on_bad="keep"`."""
        return list(self._facts["rejected"])

    @property
    def position(self) -> Any:
        """The position of the stream after this span."""
        return self._facts["position"]

    @property
    def passed(self) -> bool:
        """Whether validation found nothing that blocks; True without a schema."""
        return bool(self._facts["passed"])

    @property
    def examples(self) -> Source:
        """The rows, as a source."""
        return open_examples(self.folder / "examples", SPLIT)

    @cached_property
    def statistics(self) -> Statistics:
        """The statistics of the rows."""
        return Statistics.load(self.folder / "statistics")

    @cached_property
    def window(self) -> Statistics | None:
        """The statistics of the last `window_spans` spans that passed, up to this one; None before one has."""
        path = self.folder / "window"
        return Statistics.load(path) if path.is_dir() else None

    @property
    def window_spans(self) -> int:
        """How many spans `window` covers: at first, and after a column changed its type, fewer than were asked for."""
        return int(self._facts["window"])

    @cached_property
    def anomalies(self) -> Anomalies | None:
        """The anomalies, with example rows; None without a schema."""
        path = self.folder / "anomalies.json"
        return Anomalies.load(path) if path.is_file() else None


def stream_spans(folder: Path | str) -> list[StreamSpan]:
    """The spans published in a folder, oldest first."""
    folders = [path for path in Path(folder).glob("span-*") if path.name[5:].isdigit()]
    return sorted((StreamSpan(int(path.name[5:]), path) for path in folders), key=lambda span: span.number)


def stream(
    source: Stream,
    folder: Path | str,
    *,
    rows: int = 100_000,
    seconds: float = 60.0,
    types: Mapping[str, Any] = MappingProxyType({}),
    schema: Schema | None = None,
    environment: str | None = None,
    window: int = 12,
    on_bad: Literal["raise", "keep"] = "raise",
    idle: float | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[StreamSpan]:
    """Cut a stream into spans; yields each once it is published, and goes on from the newest one in the folder.

    Validation compares a span with the window before it where the schema has `drift` bounds. A span that does not pass
    is published all the same, `passed` False, and stays out of the window.

    Args:
        source: `growing_directory`, `kafka_topic`, or any other `Stream`.
        folder: Where the spans go, as `span-000001`, `span-000002`, …; made if it is not there.
        rows: A span closes with this many rows; a file is never divided, so it may be more.
        seconds: A span closes this long after its first row came, however few there are; one without rows never does.
        types: Arrow types of columns that the source cannot know, e.g. {"at": pa.timestamp("us", "UTC")} of ISO text.
        schema: What each span is validated against.
        environment: See `validate`.
        window: Spans whose statistics are merged, the newest included.
        on_bad: What to do with a file or message that cannot be read, or whose types are not those of the span's other
            rows: "raise" stops before it; "keep" leaves it out and names it in the span's `rejected`.
        idle: Close the last span and end after so many seconds without rows, those of publishing a span not counted;
            None: never.
        clock: Seconds; a test may pass its own.

    Raises:
        InputError: See `on_bad`; or an option makes no sense.
        DrivetrainError: Another process streams into the folder, or it cannot be written to.
    """
    if rows < 1 or seconds <= 0 or window < 1:
        raise InputError(
            f"rows={rows}, seconds={seconds}, window={window}: a span needs a row, some time, and to be in the window",
            fix="give at least 1 (of seconds, more than 0)",
        )
    if schema is not None:
        validate(from_states({}), schema, environment=environment)  # raises now what it would at the first span
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with _only_one(folder), contextlib.closing(source):
        for leftover in folder.glob(".span-*.tmp"):
            shutil.rmtree(leftover)
        writer = _SpanWriter(source, folder, schema, environment, window)
        source.start(writer.position)
        collected = SpanRows(types)
        last = clock()
        while True:
            left = [_POLL]
            if idle is not None:
                left.append(last + idle - clock())
            if collected.begun is not None:
                left.append(collected.begun + seconds - clock())
            chunks = source.poll(max(1, rows - collected.rows), max(0.0, min(left)))
            now = clock()
            if chunks:
                last = now
            for chunk in chunks:
                try:
                    if chunk.error is not None:
                        raise chunk.error
                    collected.add(chunk.table, chunk.origin, now)
                except InputError as error:
                    if on_bad == "raise":
                        raise
                    collected.reject(chunk.origin, error, now)
            ended = idle is not None and now - last >= idle
            if collected.begun is not None and (ended or collected.rows >= rows or now - collected.begun >= seconds):
                yield writer.publish(collected)
                collected = SpanRows(types)
                last = clock()  # nobody looked for rows meanwhile
            if ended:
                return


class _SpanWriter:
    """Writes, measures, validates and publishes spans."""

    def __init__(
        self, source: Stream, folder: Path, schema: Schema | None, environment: str | None, window: int
    ) -> None:
        self.source = source
        self.folder = folder
        self.schema = schema
        self.environment = environment
        done = stream_spans(folder)
        self.number = done[-1].number if done else 0
        self.position = done[-1].position if done else None
        good = (span for span in reversed(done) if span.rows and span.passed)
        newest = list(islice(good, window))
        self.recent = deque((span.statistics for span in reversed(newest)), maxlen=window)

    def publish(self, collected: SpanRows) -> StreamSpan:
        number = self.number + 1
        final = self.folder / f"span-{number:06d}"
        staging = self.folder / f".{final.name}.tmp"
        try:
            staging.mkdir()
            self._fill(staging, number, collected)
            # The stream's position is in the span: a rename publishes rows and position at once, so that after a crash
            # no row is lost or comes twice. All is on disk before the rename, the rename before the next span.
            sync_tree(staging)
            staging.rename(final)
            sync_folder(self.folder)
        except OSError as error:
            shutil.rmtree(staging, ignore_errors=True)
            raise DrivetrainError(
                f"cannot write {final}: {os.strerror(error.errno) if error.errno else error}",
                fix="free space there; the stream then goes on where it was",
            ) from error
        self.number = number
        return StreamSpan(number, final)

    def _fill(self, staging: Path, number: int, collected: SpanRows) -> None:
        passed = not collected.rows or self._measure(staging, number, collected)
        if (window := window_of(self.recent)) is not None:
            self._save(window, staging / "window")
        body = {
            "format": FORMAT,
            "source": self.source.name,
            "rows": collected.rows,
            "rejected": collected.rejected,
            "passed": passed,
            "window": len(self.recent),
            "position": self.source.position(),
        }
        write_durably(staging / "span.json", canonical_json(body) + b"\n")

    def _measure(self, staging: Path, number: int, collected: SpanRows) -> bool:
        content = staging / "examples"
        content.mkdir()
        executor = LocalExecutor()
        manifest = executor.map(of_table(collected.table()), None, sinks(content, [SPLIT]))
        manifest.write(content, span=number)
        rows = open_examples(content, SPLIT)
        measured = statistics({SPLIT: rows}, executor, schema=self.schema)
        self._save(measured, staging / "statistics")
        passed = True
        if self.schema is not None:
            anomalies = validate(measured, self.schema, environment=self.environment, previous=window_of(self.recent))
            if anomalies.anomalies:
                anomalies = anomalous_rows({SPLIT: rows}, anomalies, self.schema)
            anomalies.save(staging / "anomalies.json")
            passed = anomalies.passed
        if passed:
            self.recent.append(measured)
        return passed

    @staticmethod
    def _save(measured: Statistics, content: Path) -> None:
        content.mkdir()
        measured.save(content)


def window_of(spans: deque[Statistics]) -> Statistics | None:
    """The statistics of all the spans' rows, oldest first; None where there are none.

    A column that some spans lack is missing in their rows, and has no type where all its values are. Spans before one
    in which a column changed its type do not go with it, and are taken out of `spans`.
    """
    while spans:
        holds: dict[str, bool] = {}
        for span in spans:
            for split in span.splits:
                for name, feature in span.features(split).items():
                    holds[name] = holds.get(name, False) or feature["count"] > 0
        try:
            return merge_statistics([_with_columns(span, holds) for span in spans])
        except InputError:
            if len(spans) == 1:
                raise
            spans.popleft()
    return None


def _with_columns(span: Statistics, holds: Mapping[str, bool]) -> Statistics:
    """The statistics with every column; of those that hold values somewhere, without a type where not here."""
    states = {}
    for split in span.splits:
        state = span.state(split)
        lacking = [
            name
            for name, values in holds.items()
            if name not in state.columns or (values and not state.columns[name].count)
        ]
        if lacking:
            state = StatisticsAccumulator.from_bytes(state.to_bytes())  # a copy: the span's own stay as they are
        for name in lacking:
            state.columns[name] = ColumnState(name, state.limit)
            state.columns[name].add(pa.nulls(state.rows))
        states[split] = state
    return Statistics(span.document, states)


@contextlib.contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    with (folder / ".lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DrivetrainError(
                f"another process streams into {folder}", fix="stop it, or choose another folder"
            ) from None
        yield
