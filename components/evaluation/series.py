"""A series of metrics over windows of time: predictions as they are made, joined with labels that come later."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence, Set, Sized
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ...data import source_of
from ...data.frames import frame
from ...errors import InputError
from ...progress import Progress, no_progress
from .accumulator import MetricsAccumulator
from .checks import check_columns
from .config import EvaluationConfig
from .run import metrics_table
from .scoring import Scores
from .series_schema import admitted, converted
from .series_store import Key, SeriesStore
from .slice_sql import check_expressions
from .table_models import TableModel
from .validation import validate

_MONDAY: Final = 4 * 86_400 * 10**6  # 1970-01-05
_MICROSECOND: Final = timedelta(microseconds=1)
_AHEAD: Final = timedelta(days=1)
_SETTINGS: Final = ("config", "key", "time", "window", "wait")
_WINDOW: Final = pa.schema(
    [("start", pa.timestamp("us", "UTC")), ("end", pa.timestamp("us", "UTC")), ("closed", pa.bool_())]
)
_METRIC: Final = ["slice", "n", "metric", "value", "lower", "upper", "undefined"]
_COUNTS: Final = ("predicted", "judged", "repeated", "late", "unusable")


@dataclass(frozen=True)
class BatchOutcome:
    """What became of rows that a series took in.

    Attributes:
        judged: Rows whose prediction and label are both there now, and in the metrics.
        waiting: Rows that wait for their label or prediction.
        repeated: Rows whose key came before, which change nothing.
        late: Predictions of windows that are closed, or would be had they begun in time.
        unusable: Rows whose label or prediction cannot be judged; `MetricSeries.windows` quotes the first of a window.
    """

    judged: int = 0
    waiting: int = 0
    repeated: int = 0
    late: int = 0
    unusable: int = 0

    def __add__(self, other: BatchOutcome) -> BatchOutcome:
        return BatchOutcome(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))


class MetricSeries:
    """Metrics of predictions by window of time and by slice, whose labels come later; kept in a folder.

    A prediction and its label have the same key. The window [start, start + `window`) has the predictions of its time;
    windows begin at multiples of their length from Monday, 5 January 1970, 0:00 UTC. A window closes once a prediction
    comes that is `wait` or more after its end: its labels are not waited for any longer, and its metrics are final. The
    predictions of one call close no window that has rows of the same call; those of a later call do.

    A batch is taken in by one transaction, or not at all. While a window is open, a key counts once, and so does its
    label: after a crash the last batches can be sent again. The metrics are those that `drivetrain.evaluate` gives for
    the same rows, in whatever parts and order they came. Processes may write and read at the same time.

    Args:
        folder: Where the series is kept. One that is there already needs no other argument, unless `config` has metrics
            of your own.
        config: What to measure. `label` is a column of the labels; `prediction`, the weight and what slices are made of
            are columns of the predictions. Its thresholds judge each window.
        key: The column, of predictions and of labels, that says which belong together: whole numbers or texts.
        time: The column of the predictions with their time: timestamps (without a zone: UTC) or dates.
        window: The length of a window, in whole seconds.
        wait: How long after the end of a window its labels are waited for, in whole seconds.

    Raises:
        InputError: A setting that cannot be, or is not that of the folder; a configuration of rankings.
    """

    def __init__(
        self,
        folder: str | Path,
        config: EvaluationConfig | None = None,
        *,
        key: str | None = None,
        time: str | None = None,
        window: timedelta | None = None,
        wait: timedelta | None = None,
    ) -> None:
        self._store = SeriesStore(Path(folder))
        settings = _settings(config, key, time, window, wait)
        missing = [name for name in _SETTINGS if name not in settings]
        known: dict[str, Any] = {}
        if self._store.exists or not missing:
            with self._store.transaction():
                known = self._store.settings()
                if not known and not missing:
                    self._store.keep_settings(known := settings)
        if not known:
            raise InputError(
                f"there is no series of metrics in {folder}; a new one needs {', '.join(missing)} too",
                fix='MetricSeries(folder, config, key="id", time="at", window=timedelta(hours=1), wait=timedelta(7))',
            )
        for name, value in settings.items():
            if known[name] != value:
                raise InputError(
                    f"the series in {folder} was begun with another {name}",
                    fix=f"leave out {name} to go on with it, or begin a new series in another folder",
                )
        self.config = EvaluationConfig.from_json(known["config"]) if config is None else config
        self.key: str = known["key"]
        self.time: str = known["time"]
        self.window, self.wait = timedelta(seconds=known["window"]), timedelta(seconds=known["wait"])
        self._scores = Scores(
            self.config, TableModel(self.config.label, self.config.prediction, self.config.prediction)
        )

    def add_predictions(self, data: object, progress: Progress = no_progress) -> BatchOutcome:
        """Take in predictions: key, time, prediction, and the columns that slices and weight need.

        Args:
            data: What `data.source_of` takes: a DataFrame, an Arrow table, Parquet files, ….
            progress: Called with the rows done.

        Raises:
            InputError: A column that is not there or has another type, a key or time that is missing, or a time more
                than a day ahead of the clock. Batches before it have been taken in; send all again once it is mended.
        """
        config = self.config
        columns = {self.key: "the key", self.time: "the time", config.prediction: "the prediction"}
        columns |= config.purposes | ({config.weight: "the weight"} if config.weight is not None else {})
        outcome = BatchOutcome()
        times: list[int] = []
        used: set[int] = set()
        for first, batch in _batches(data, columns, config, progress):
            keys, kind = _keys(batch.column(self.key), self.key, first)
            starts, latest = self._starts(batch.column(self.time), first)
            if config.label not in batch.schema.names:
                batch = batch.append_column(config.label, pa.nulls(batch.num_rows))
            rows = self._scores(batch).drop_columns("label")
            with self._store.transaction():
                self._check_keys(kind)
                outcome += self._take_predictions(keys, starts, self._admit(pa.table(rows)))
            times.append(latest)
            used |= set(starts.tolist())
        if times:
            with self._store.transaction():
                self._advance(max(times), used)
        return outcome

    def add_labels(self, data: object, progress: Progress = no_progress) -> BatchOutcome:
        """Take in labels: key and label; other columns are left out. Of several labels of a key the first counts.

        A row whose label is missing says nothing: its label may come another time. A label whose prediction is not
        there waits for it, until predictions of `wait` after the latest ones have come.

        Args:
            data: As in `add_predictions`.
            progress: Called with the rows done.

        Raises:
            InputError: A column that is not there, or a key that is missing or has another type.
        """
        label = self.config.label
        outcome = BatchOutcome()
        for first, batch in _batches(data, {self.key: "the key", label: "the label"}, self.config, progress):
            known = batch.filter(pc.invert(batch.column(label).is_null(nan_is_null=True)))
            outcome += BatchOutcome(waiting=batch.num_rows - known.num_rows)
            keys, kind = _keys(known.column(self.key), self.key, first)
            with self._store.transaction():
                self._check_keys(kind)
                outcome += self._take_labels(keys, self._admit(pa.table({"label": known.column(label)})))
        return outcome

    def close_until(self, time: datetime) -> None:
        """Close the windows that end `wait` or more before a time, where no prediction comes that would.

        Raises:
            InputError: It is no datetime with a zone.
        """
        moment: Any = time
        if not isinstance(moment, datetime):
            raise InputError(f"{moment!r} is no datetime", fix="datetime(2026, 1, 31, tzinfo=UTC)")
        if time.tzinfo is None:
            raise InputError(f"{time} has no zone", fix="datetime(2026, 1, 31, tzinfo=UTC)")
        with self._store.transaction():
            self._advance(_microseconds(time))

    def table(self, every: timedelta | None = None) -> pa.Table:
        """The metrics: one row for each window with judged predictions, slice and metric.

        Columns: `start` and `end` of the window, whether it is `closed`, and of the files of an evaluation `slice`,
        `n`, `metric`, `value`, the ends of its interval `lower` and `upper`, and `undefined`, why there is no value.

        Args:
            every: Join the windows to longer ones, say the hours to days; a multiple of `window`.

        Raises:
            InputError: `every` is no such multiple.
        """
        tables = [_beside((None, None, None), metrics_table([]).select(_METRIC))]
        for window, accumulator in self._measured(every):
            tables.append(_beside(window, metrics_table(accumulator.result()["slices"]).select(_METRIC)))
        return pa.concat_tables(tables)

    def frame(self, every: timedelta | None = None) -> Any:  # a pandas.DataFrame: pandas ships no types
        """`table` as a DataFrame.

        Raises:
            InputError: As `table`.
            DrivetrainError: pandas is not installed.
        """
        table = self.table(every)
        return frame(table.column_names, zip(*(column.to_pylist() for column in table.columns), strict=True))

    def windows(self) -> Any:  # a pandas.DataFrame
        """One row for each window: what came, and whether its thresholds hold.

        Columns: `start`, `end`, `closed`; how many rows were `predicted`, `judged`, `repeated`, `late` and `unusable`
        (see `BatchOutcome`), and `problem`, the first that is unusable; `passed`, None without thresholds or judged
        rows, and `failures`, what does not hold.

        Raises:
            DrivetrainError: pandas is not installed.
        """
        verdicts: dict[datetime, tuple[bool, str]] = {}
        if self.config.thresholds:
            for (start, *_), accumulator in self._measured(None):
                verdict = validate(accumulator.result(), self.config, baseline=False, withheld=accumulator.withheld())
                verdicts[start] = verdict["blessed"], "; ".join(verdict["failures"])
        with self._store.transaction():
            counted = self._store.windows()
        rows = [
            (
                start := _time(each["start"]),
                start + self.window,
                bool(each["closed"]),
                *(each[name] for name in _COUNTS),
                each["problem"],
                *verdicts.get(start, (None, "")),
            )
            for each in counted
        ]
        return frame(("start", "end", "closed", *_COUNTS, "problem", "passed", "failures"), rows)

    def __repr__(self) -> str:
        with self._store.transaction():
            windows = self._store.windows()
        closed = sum(each["closed"] for each in windows)
        predicted, judged = (sum(each[name] for each in windows) for name in ("predicted", "judged"))
        return (
            f"{len(windows):,} windows of {self.window}, {closed:,} closed; {predicted:,} predictions, {judged:,} of "
            f"them with labels, in {self._store.folder}"
        )

    def _take_predictions(self, keys: list[Key], starts: NDArray[np.int64], rows: pa.Table) -> BatchOutcome:
        store = self._store
        fresh = np.ones(len(keys), dtype=np.bool_)
        fresh[store.batch(keys)] = False
        fresh[[row for row, *_ in store.predicted()]] = False
        self._open_windows(np.unique(starts).tolist())
        late = np.isin(starts, list(store.closed(np.unique(starts).tolist())))
        labels = {row: (chunk, position) for row, chunk, position in store.labelled()}
        outcome = BatchOutcome()
        for start in np.unique(starts).tolist():
            here = np.flatnonzero((starts == start) & fresh & ~late)
            some = BatchOutcome(repeated=int(((starts == start) & ~fresh & ~late).sum()),
                                late=int(((starts == start) & late).sum()))  # fmt: skip
            store.count(start, predicted=len(here), repeated=some.repeated, late=some.late)
            waiting = [row for row in here.tolist() if row not in labels]
            if waiting:
                store.keep_predictions(start, [keys[row] for row in waiting], rows.take(waiting))
            complete = [row for row in here.tolist() if row in labels]
            if complete:
                joined = rows.take(complete).append_column(
                    "label", self._gather([labels[row] for row in complete])["label"]
                )
                some += self._judge(start, [keys[row] for row in complete], joined)
                store.keep_predictions(start, [keys[row] for row in complete], None)
                store.forget_labels([keys[row] for row in complete])
            outcome += some + BatchOutcome(waiting=len(waiting))
        return outcome

    def _take_labels(self, keys: list[Key], labels: pa.Table) -> BatchOutcome:
        store = self._store
        repeated = set(store.batch(keys))
        predicted = store.predicted()
        windows: dict[int, list[tuple[int, tuple[int, int]]]] = {}
        outcome = BatchOutcome(repeated=len(repeated))
        for row, start, chunk, position in predicted:
            if chunk is None:
                store.count(start, repeated=1)
                outcome += BatchOutcome(repeated=1)
            else:
                windows.setdefault(start, []).append((row, (chunk, position)))
        for start, complete in windows.items():
            here = [row for row, _ in complete]
            joined = self._gather([at for _, at in complete]).append_column("label", labels["label"].take(here))
            outcome += self._judge(start, [keys[row] for row in here], joined)
            store.judged([keys[row] for row in here])
        early = {row for row, *_ in store.labelled()}
        outcome += BatchOutcome(repeated=len(early))
        unknown = set(range(len(keys))) - repeated - early - {row for row, *_ in predicted}
        if unknown:
            latest = store.settings().get("latest")
            until = None if latest is None else latest + self.wait // _MICROSECOND
            rows = sorted(unknown)
            store.keep_labels([keys[row] for row in rows], labels.take(rows), until)
        return outcome + BatchOutcome(waiting=len(unknown))

    def _gather(self, places: Sequence[tuple[int, int]]) -> Any:  # a pyarrow.Table
        """The waiting rows at these positions of chunks, in this order; they do not wait any more."""
        order = sorted(range(len(places)), key=lambda index: places[index])
        tables = []
        for chunk in dict.fromkeys(places[index][0] for index in order):
            positions = [places[index][1] for index in order if places[index][0] == chunk]
            tables.append(self._store.chunk(chunk).take(positions))
            self._store.take(chunk, len(positions))
        return pa.concat_tables(tables).take(np.argsort(order))

    def _admit(self, rows: pa.Table) -> pa.Table:
        """The rows in the types of those that wait, which may change for them."""
        before = self._store.types
        rows, types = admitted(rows, before, self.config)
        if not types.equals(before):
            self._store.change_chunks(lambda waiting: converted(waiting, types, self.config))
            self._store.keep_types(types)
        return rows

    def _judge(self, start: int, keys: list[Key], rows: pa.Table) -> BatchOutcome:
        """Add rows with their labels to the metrics of a window."""
        accumulator = MetricsAccumulator(self.config)
        identity = pa.chunked_array([pa.array(keys)])
        for batch in rows.append_column("key", identity).combine_chunks().to_batches():
            accumulator.add_batch(batch)
        unusable, problems = accumulator.set_aside()
        problem = "; ".join(f"{kind}: {self.key} {keys[row]!r} ({value})" for kind, row, value in problems) or None
        judged = len(keys) - unusable
        self._store.count(start, problem, judged=judged, unusable=unusable)
        if judged:
            self._keep_state(start, judged, accumulator)
        return BatchOutcome(judged=judged, unusable=unusable)

    def _keep_state(self, start: int, rows: int, accumulator: MetricsAccumulator) -> None:
        """Write the state of further rows, joined with those before that are not much larger.

        So a window of n rows has O(log n) states, and each row is written anew O(log n) times.
        """
        sizes = self._store.state_sizes(start)
        part = len(sizes)
        while part and sizes[part - 1] <= 2 * rows:
            part -= 1
            before = MetricsAccumulator(self.config).load(self._store.state(start, part))
            before.merge(accumulator)
            accumulator, rows = before, rows + sizes[part]
        self._store.put_state(start, part, rows, accumulator.to_bytes())

    def _measured(
        self, every: timedelta | None
    ) -> Iterator[tuple[tuple[datetime, datetime, bool], MetricsAccumulator]]:
        length: Any = self.window if every is None else every
        if not isinstance(length, timedelta):
            raise InputError(f"every must be a timedelta, not {length!r}", fix=f"every={2 * self.window!r}")
        if length < self.window or length % self.window:
            raise InputError(
                f"every {length} is no multiple of the windows of {self.window}", fix=f"every={2 * self.window!r}"
            )
        with self._store.transaction():
            groups: dict[int, list[dict[str, Any]]] = {}
            for each in self._store.windows():
                if each["judged"]:
                    groups.setdefault(_floor(each["start"], length), []).append(each)
            for start, windows in groups.items():
                whole: MetricsAccumulator | None = None
                for each in windows:
                    for part in range(len(self._store.state_sizes(each["start"]))):
                        state = MetricsAccumulator(self.config).load(self._store.state(each["start"], part))
                        if whole is None:
                            whole = state
                        else:
                            whole.merge(state)
                if whole is not None:
                    closed = all(each["closed"] for each in windows)
                    yield (_time(start), _time(start) + length, closed), whole

    def _starts(self, column: pa.Array, first: int) -> tuple[NDArray[np.int64], int]:
        """The start of each row's window, and the latest time, in microseconds."""
        if not (pa.types.is_timestamp(column.type) or pa.types.is_date(column.type)):
            raise InputError(
                f"the time {self.time!r} is {column.type}, neither a timestamp nor a date",
                fix=f'convert it: frame["{self.time}"] = pandas.to_datetime(frame["{self.time}"], utc=True)',
            )
        _refuse_missing(column, f"the time {self.time!r}", first)
        try:
            micros = column.cast(pa.timestamp("us", getattr(column.type, "tz", None)), safe=False).cast(pa.int64())
        except pa.ArrowInvalid as error:
            raise InputError(f"the time {self.time!r} has a value that is beyond all calendars: {error}") from error
        values = micros.to_numpy(zero_copy_only=False)
        latest = int(values.max())
        if latest > _microseconds(datetime.now(UTC) + _AHEAD):
            row = int(values.argmax())
            raise InputError(
                f"the time {self.time!r} of row {first + row} is {column[row].as_py()}, more than a day from now",
                fix="correct it: windows close by the time of the latest prediction",
            )
        return _floor(values, self.window), latest

    def _check_keys(self, kind: str) -> None:
        known = self._store.settings().get("keys")
        if known is None:
            self._store.keep_settings({"keys": kind})
        elif known != kind:
            raise InputError(
                f"the keys {self.key!r} are {kind}, and those before were {known}: none of them would meet",
                fix=f"convert them to {known}",
            )

    def _open_windows(self, starts: Sequence[int]) -> None:
        """Begin the windows that are not there: closed where they are due by the predictions of calls before."""
        known = {each["start"] for each in self._store.windows()}
        latest = self._store.settings().get("latest")
        for start in starts:
            if start not in known:
                self._store.count(start)
                if latest is not None and self._is_due(start, latest):
                    self._store.close_window(start)

    def _is_due(self, start: int, latest: int) -> bool:
        return start + (self.window + self.wait) // _MICROSECOND <= latest

    def _advance(self, latest: int, used: Set[int] = frozenset()) -> None:
        """Close what is due by the latest time of a prediction, but for windows that the same call has rows of."""
        latest = max(latest, self._store.settings().get("latest", latest))
        self._store.keep_settings({"latest": latest})
        for each in self._store.windows():
            if not each["closed"] and each["start"] not in used and self._is_due(each["start"], latest):
                self._store.close_window(each["start"])
        self._store.expire_labels(latest)
        self._store.await_labels(latest + self.wait // _MICROSECOND)


def _settings(
    config: EvaluationConfig | None,
    key: str | None,
    time: str | None,
    window: Any,  # a user's, here and below
    wait: Any,
) -> dict[str, Any]:
    """What was given of the settings, as JSON.

    Raises:
        InputError: One of them cannot be.
    """
    settings: dict[str, Any] = {}
    if config is not None:
        if config.query is not None:
            raise InputError(
                "a series does not measure rankings: the documents of a query may come in parts",
                fix="collect whole queries and call drivetrain.evaluate(..., query=...)",
            )
        for column in config.expressions.values():
            if isinstance(column.bins, int):
                raise InputError(
                    f"the bins of {column.name!r} have no edges: those of equal counts need all rows first",
                    fix=f"give the edges: Slice({column.name!r}, sql={column.sql!r}, bins=[100, 500])",
                    where=column.where,
                )
        settings["config"] = json.loads(json.dumps(config.to_json()))
    settings |= {name: column for name, column in (("key", key), ("time", time)) if column is not None}
    for name, length, least in (("window", window, 1), ("wait", wait, 0)):
        if length is not None:
            whole = isinstance(length, timedelta) and not length % timedelta(seconds=1)
            if not whole or length < timedelta(seconds=least):
                raise InputError(
                    f"{name} must be a timedelta of {least} or more whole seconds, not {length!r}",
                    fix=f"{name}=timedelta(hours=1)",
                )
            settings[name] = length // timedelta(seconds=1)
    return settings


def _batches(
    data: object, columns: Mapping[str, str], config: EvaluationConfig, progress: Progress
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The batches of a table with the columns that are needed, and the rows before each; none of no rows."""
    if isinstance(data, Sized) and not isinstance(data, str) and not len(data):
        return
    source = source_of(data)
    check_columns(columns, source.columns, config.where)
    if config.prediction in columns:
        check_expressions(config.expressions.values(), source.schema)
    source = source.select(list(columns))
    done = 0
    for shard in source.shards:
        for batch in source.read(shard):
            yield done, batch
            done += batch.num_rows
            progress(done, source.rows, "rows")


def _keys(column: pa.Array, name: str, first: int) -> tuple[list[Key], str]:
    """The keys of a batch, and what they are."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.dictionary_decode(), kind.value_type
    _refuse_missing(column, f"the key {name!r}", first)
    if pa.types.is_integer(kind):
        if pa.types.is_uint64(kind) and (pc.max(column).as_py() or 0) >= 2**63:
            raise InputError(f"the key {name!r} has numbers of 2^63 or more", fix="give them as texts")
        return column.to_pylist(), "whole numbers"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return column.to_pylist(), "texts"
    raise InputError(
        f"the key {name!r} is {kind}, neither whole numbers nor texts", fix="convert it, the same in both tables"
    )


def _refuse_missing(column: pa.Array, what: str, first: int) -> None:
    if column.null_count:
        row = first + pc.index(column.is_null(), pa.scalar(True)).as_py()
        raise InputError(f"{what} is missing in row {row}", fix="leave such rows out, or fill it in")


def _beside(window: Sequence[Any], rows: pa.Table) -> pa.Table:
    """Rows with the window that they belong to before them."""
    columns = [pa.array([value] * rows.num_rows, kind) for value, kind in zip(window, _WINDOW.types, strict=True)]
    return pa.table([*columns, *rows.columns], schema=pa.schema([*_WINDOW, *rows.schema]))


def _floor(micros: Any, length: timedelta) -> Any:  # an integer, or an array of them
    width = length // _MICROSECOND
    return (micros - _MONDAY) // width * width + _MONDAY


def _microseconds(time: datetime) -> int:
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // _MICROSECOND


def _time(micros: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + micros * _MICROSECOND
