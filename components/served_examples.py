"""ServedExamples: what a model server was asked and answered, from its request log, as examples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from ..errors import InputError, suggest
from ..metadata import Examples
from ..pipelines import Files, component, current, resolve_files

if TYPE_CHECKING:
    import pyarrow as pa

    from ..data import Shard, Source
    from ..serving.log_files import LogFooter

_LONGEST: Final = 200  # characters of a split's name
_SHARD_ROWS: Final = 65_536


@component
def ServedExamples(
    log: Files,
    *,
    versions: Sequence[int] | None = None,
    signature: str | None = None,
    since: str | None = None,
    until: str | None = None,
    inputs_only: bool = False,
    split: str = "served",
    span: int | None = None,
) -> Examples:
    """Read the request log of a model server.

    Args:
        log: Its files of one model, e.g. `"request-log/flights/*/*/*.parquet"`; or of one day or the newest by
            `dt.files("request-log/flights/*/{YYYY}-{MM}-{DD}/*.parquet")`, which is the span then.
        versions: Of the model, those whose answers are read; by default all.
        signature: What was asked: by default `predict`, or the only one.
        since: Only requests that came then or later: a day or a time as ISO 8601 has it, UTC where it names no zone.
        until: Only requests that came before.
        inputs_only: Whether to leave out the predictions and the columns about the request, so that the examples have
            the columns that a model reads and no others.
        split: The name of the one split.
        span: Which span of the data this is, where the files' names do not say it; 0 where nothing does.

    Returns:
        Examples: Rows in the order of the files' paths, and in each as they were answered.

    Raises:
        InputError: A file is missing, damaged or no request log's, they are of several models or their columns differ,
            no request is of these versions, this signature and this time, or an option makes no sense.
    """
    from ..data import HashSplit, executor, sinks

    HashSplit.of({split: 1})  # for what it says of the name
    if len(split) > _LONGEST:
        raise InputError(f"the name of the split has {len(split)} characters", fix=f"use at most {_LONGEST}")
    window = moment("since", since), moment("until", until)
    files = resolve_files(log)
    if files.span is not None and span not in (None, files.span):
        raise InputError(f"span={span}, and the files are of span {files.span}", fix="leave span= out")
    number = (span or 0) if files.span is None else files.span
    chosen = logged_files([str(file.path) for file in files.files], versions, signature)
    source, time_column, columns = _opened(chosen, inputs_only=inputs_only)
    context = current()
    walk = executor(context.executor, context.executor_options)
    examples = Examples.new(span=number, version=files.version)
    rows = _InWindow(time_column, *window, columns)
    manifest = walk.map(source, rows, sinks(examples.content, [split]), progress=context.progress)
    if not manifest.rows[split]:
        raise InputError(
            f"not one of the {source.rows:,} rows is of a request between {since or 'the first'} and {until or 'now'}",
            fix="the days are folders of the log: choose another window",
        )
    manifest.write(examples.content, span=number)
    examples.rows = manifest.rows
    footers = [footer for _, footer in chosen]
    context.note(
        f"{manifest.rows[split]:,} rows of {footers[0].model}, "
        f"version {', '.join(map(str, sorted({footer.version for footer in footers})))}"
    )
    return examples


@dataclass(frozen=True)
class _InWindow:
    """The rows of a batch whose time is in a window, with some of their columns. It pickles."""

    time: str
    since: datetime | None
    until: datetime | None
    columns: tuple[str, ...]

    def setup(self) -> None:
        """See `BatchFn.setup`."""

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa
        import pyarrow.compute as pc

        times = batch.column(self.time)
        for bound, holds in ((self.since, pc.greater_equal), (self.until, pc.less)):
            if bound is not None:
                inside = holds(times, pa.scalar(bound, times.type))
                batch, times = batch.filter(inside), times.filter(inside)
        return batch.select(self.columns)


@dataclass(frozen=True)
class _AsTimes:
    """A piece of a file in which these columns are the milliseconds that the model read, as times of the schema."""

    piece: Shard
    columns: tuple[str, ...]

    @property
    def path(self) -> str:
        """The file."""
        return self.piece.path

    @property
    def rows(self) -> int:
        """Its rows."""
        return self.piece.rows

    def read(self, schema: pa.Schema, batch_rows: int, dictionaries: bool) -> Iterator[pa.RecordBatch]:
        """See `Shard.read`."""
        import pyarrow as pa

        from ..engine.host_ops.dates import from_milliseconds

        times = [(schema.get_field_index(name), schema.field(name)) for name in self.columns if name in schema.names]
        written = schema
        for index, field in times:
            kind = pa.list_(pa.int64()) if pa.types.is_list(field.type) else pa.int64()
            written = written.set(index, pa.field(field.name, kind))
        for batch in self.piece.read(written, batch_rows, dictionaries):
            for index, field in times:
                batch = batch.set_column(index, field, from_milliseconds(batch.column(index), field.type))
            yield batch


def _rows_of(chosen: Sequence[tuple[str, LogFooter]]) -> Source:
    """The rows of some files, in order; where some of them have a column as times and others as numbers, as times.

    Raises:
        InputError: A file is damaged, or the files' columns do not fit together.
    """
    from dataclasses import replace

    import pyarrow as pa

    from ..data import open_parquet
    from ..data.sources import unify

    every = {name for _, footer in chosen for name in footer.times}
    alike = groupby(chosen, lambda each: each[1].times)  # files that follow one another, to keep the order
    parts = [(times, open_parquet([path for path, _ in group])) for times, group in alike]
    if len(parts) == 1:
        return parts[0][1]
    kinds = {name: source.schema.field(name) for times, source in parts for name in times}
    schema: pa.Schema | None = None
    shards: list[Shard] = []
    for times, source in parts:
        numbers = tuple(sorted(every - set(times)))
        fields = [kinds[each.name] if each.name in numbers else each for each in source.schema]
        shards += (_AsTimes(shard, numbers) if numbers else shard for shard in source.shards)
        path = source.shards[0].path if source.shards else chosen[0][0]
        schema = pa.schema(fields) if schema is None else unify(schema, chosen[0][0], pa.schema(fields), path)
    return replace(parts[0][1], shards=tuple(shards), schema=schema)


@dataclass(frozen=True)
class _Together:
    """Small pieces of files that are read as one: a server writes a file a minute."""

    pieces: tuple[Shard, ...]

    @property
    def path(self) -> str:
        """The first of the files."""
        return self.pieces[0].path

    @property
    def rows(self) -> int:
        """Rows of all together."""
        return sum(piece.rows for piece in self.pieces)

    def read(self, schema: pa.Schema, batch_rows: int, dictionaries: bool) -> Iterator[pa.RecordBatch]:
        """See `Shard.read`."""
        for piece in self.pieces:
            yield from piece.read(schema, batch_rows, dictionaries)


def moment(parameter: str, text: str | None) -> datetime | None:
    """The time that a parameter names, a day or a time as ISO 8601 has it; UTC where it names no zone.

    Raises:
        InputError: It names none.
    """
    if text is None:
        return None
    try:
        named = datetime.fromisoformat(text)
        return named.astimezone(UTC) if named.tzinfo else named.replace(tzinfo=UTC)
    except (TypeError, ValueError, OverflowError):  # no text; before the year 1, or after 9999
        raise InputError(
            f"{parameter}={text!r:.80} is not a time", fix='say e.g. "2026-11-27" or "2026-11-27T12:00"'
        ) from None


def logged_files(
    paths: Sequence[str], versions: Sequence[int] | None, signature: str | None
) -> list[tuple[str, LogFooter]]:
    """The files of a request log that are of these versions and this signature, with their footers.

    Raises:
        InputError: A file is not of a request log, or none is of these; files are of several models, or of several
            signatures and none is named.
    """
    logged = [(path, footer_of(path)) for path in paths]
    models = sorted({footer.model for _, footer in logged})
    if len(models) > 1:
        raise InputError(f"the log has several models, {models[0]!r} and {models[1]!r}", fix="name one's files")
    if versions is not None:
        known = sorted({footer.version for _, footer in logged})
        logged = [(path, footer) for path, footer in logged if footer.version in set(versions)]
        if not logged:
            raise InputError(
                f"the log has no rows of version {', '.join(map(str, versions))}",
                fix=f"it has {', '.join(map(str, known))}",
            )
    names = sorted({footer.signature for _, footer in logged})
    if signature is None:
        signature = "predict" if "predict" in names else names[0]
        if signature != "predict" and len(names) > 1:
            raise InputError(f"the log has the signatures {', '.join(names)}", fix="name one by signature=")
    if signature not in names:
        raise InputError(f"the log has no rows of the signature {signature!r}", fix=suggest(signature, names))
    return [(path, footer) for path, footer in logged if footer.signature == signature]


def footer_of(path: str) -> LogFooter:
    """What a file of a request log says of its rows.

    Raises:
        InputError: It is damaged, or not of a request log.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from ..data.sources import damaged_file
    from ..serving.log_files import FOOTER, LogFooter

    try:
        metadata = pq.read_metadata(path).metadata or {}
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # the last: of a column's name
        raise damaged_file(path, error) from error
    try:
        return LogFooter.from_bytes(metadata[FOOTER])
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise InputError(
            f"{path} is not a file of a request log",
            fix="ServedExamples reads what `drivetrain serve --request-log` writes",
        ) from error


def _opened(chosen: Sequence[tuple[str, LogFooter]], *, inputs_only: bool) -> tuple[Any, str, tuple[str, ...]]:
    """The rows, the column of their time, and the columns that are wanted."""
    from dataclasses import replace

    (first_path, first), *others = chosen
    for path, footer in others:
        if footer.hashed != first.hashed:
            raise InputError(
                f"a column is hashed in {path if footer.hashed else first_path} and not in the other files of the log",
                fix="read the days before and after apart, by since= and until=",
            )
        if (footer.inputs, footer.outputs, footer.facts) != (first.inputs, first.outputs, first.facts):
            raise InputError(
                f"versions {footer.version} and {first.version} have different columns: {path}, {first_path}",
                fix="name versions with the same columns by versions=",
            )
    source = _rows_of(chosen)
    time_column = first.facts["request_time"]
    columns = first.inputs if inputs_only else source.columns
    if not columns:
        raise InputError("the log has no column of an input", fix="leave inputs_only out: they are all denied")
    wanted = columns if time_column in columns else (*columns, time_column)
    groups: list[list[Shard]] = [[]]
    for shard in source.shards:
        if groups[-1] and sum(each.rows for each in groups[-1]) + shard.rows > _SHARD_ROWS:
            groups.append([])
        groups[-1].append(shard)
    shards = tuple(_Together(tuple(group)) for group in groups)
    return replace(source.select(wanted), shards=shards), time_column, tuple(columns)
