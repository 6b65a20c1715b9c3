"""ExampleGen: files, images, a query or a table in, examples out, divided into splits."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, cast

from ..errors import InputError, suggest
from ..metadata import Examples, compare
from ..pipelines import Files, FileSet, SqlQuery, component, current, resolve_files
from ..pipelines.project.spans import common_span
from ..progress import part_of

if TYPE_CHECKING:
    from ..data import Source

_SPLITS: Mapping[str, int] = {"train": 2, "eval": 1}
_LONGEST = 200  # characters of a split's name: a disk takes 255 with what is around it in a file's


class Table(Protocol):
    """Rows in memory: a pandas or Polars DataFrame, an Arrow table, a DuckDB relation."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The Arrow PyCapsule interface."""
        ...


Rows: TypeAlias = Files | SqlQuery | Table


@component
def ExampleGen(
    data: Rows | Mapping[str, Rows],
    *,
    splits: Mapping[str, int] = _SPLITS,
    split_by: str | None = None,
    split_column: str | None = None,
    encoding: str | None = None,
    delimiter: str | None = None,
    null_values: Sequence[str] | None = None,
    column_types: Mapping[str, str] | None = None,
    labels: Files | None = None,
    on_error: Literal["raise", "skip"] = "raise",
    span: int | None = None,
) -> Examples:
    """Read rows and divide them into splits, the same way every time.

    Args:
        data: A path, a glob pattern, a URI (`s3://…`, `https://…`) or a packaged data set: CSV, Parquet, images or any
            other format of `data.open_files`, by the files' names; several files are read in the order of their paths.
            Or the rows of a query, `dt.query(…)`. Or, outside a pipeline, a table in memory. Or splits that are divided
            already: name to any of these, all files or all tables, e.g. `{"train": "a/*.csv", "eval": "b/*.csv"}`.
            Patterns may name spans, see `dt.files`; those of several splits must then find the same span and version.
        splits: Name and share of each split, in order. A row's place is decided by a hash of what it holds, so equal
            rows stay together.
        split_by: The column that decides instead of the whole row: rows equal in it stay together.
        split_column: A column that names each row's split.
        encoding: Of CSV files, as Python names it, e.g. "latin-1"; by default UTF-8, or UTF-16 by its byte order mark.
        delimiter: Between the cells of CSV files; by default what their header uses.
        null_values: What a missing cell of a CSV holds; by default nothing, NA, nan or NaN.
        column_types: Types of CSV columns that the values do not show, e.g. `{"zip": "string"}`, see `data.open_csv`.
        labels: A CSV of the images' labels, see `data.reading.images`; by default the folders they lie in.
        on_error: Whether a broken image is an error, or left out and counted in a note.
        span: Which span of the data this is, where the files' names do not say it; 0 where nothing does.

    Returns:
        Examples: Parquet parts by split, and a manifest. Types are settled over all files (integer → float → text).

    Raises:
        InputError: A file is missing, empty, ragged, damaged or not of its encoding, the files' columns differ, a query
            fails, `split_by` or `split_column` is not a column, the splits or options make no sense, or the files are
            of different spans.
        DrivetrainError: What reads this kind of file is not installed.
    """
    from ..data import ColumnSplit, HashSplit, Manifest, executor
    from ..data import sinks as sinks_of

    context = current()
    walk = executor(context.executor, context.executor_options)
    divided = isinstance(data, Mapping)
    ways = [divided, splits != _SPLITS or split_by is not None, split_column is not None]
    if sum(ways) > 1:
        raise InputError(
            "the splits are given in more than one way",
            fix="give files by split, or splits= (with split_by=), or split_column=",
        )
    options = {
        "encoding": encoding,
        "delimiter": delimiter,
        "null_values": None if null_values is None else tuple(null_values),
        "column_types": column_types,
        "labels": None if labels is None else _one_file(labels),
        "on_error": None if on_error == "raise" else on_error,
    }
    resolved = _resolved(data)
    number, version = _span(resolved, span)
    source, parts = _opened(resolved, {name: value for name, value in options.items() if value is not None})
    examples = Examples.new(span=number, version=version)
    if not divided:
        if split_by is not None and split_by not in source.columns:
            raise InputError(
                f"split_by: there is no column {split_by!r}", fix=suggest(split_by, source.columns, "the columns are:")
            )
        by_column = None if split_column is None else ColumnSplit.of(source, split_column)
        route = by_column or HashSplit.of(splits, split_by)
        _refuse_long(route.names)
        sinks = sinks_of(examples.content, route.names)
        manifest = walk.map(source, None, sinks, route=route, progress=context.progress)
    else:
        _refuse_long(parts)
        manifests: list[Manifest] = []
        for name, part in parts.items():
            before = sum(sum(earlier.rows.values()) for earlier in manifests)
            progress = part_of(context.progress, before, source.rows)
            manifests.append(walk.map(part, None, sinks_of(examples.content, [name]), progress=progress))
        manifest = Manifest.joined(manifests)
    manifest.write(examples.content, span=number)
    examples.rows = manifest.rows
    empty = [name for name, rows in manifest.rows.items() if not rows]
    if empty:
        context.note(f"split {empty[0]!r} got no rows of {source.rows}")
    return examples


def _refuse_long(names: Iterable[str]) -> None:
    """Refuse names of splits too long for a file's name, here or for what reads the examples."""
    for name in names:
        if len(name) > _LONGEST:
            raise InputError(
                f"the name of the split {name[:40]!r}… has {len(name)} characters, too many for a file",
                fix=f"use at most {_LONGEST}",
            )


def _resolved(data: Rows | Mapping[str, Rows]) -> Rows | Mapping[str, Rows]:
    """The data, with the files found where it is all of files."""
    named = {name: _as_text(rows) for name, rows in (data if isinstance(data, Mapping) else {"": data}).items()}
    files = {name: value for name, value in named.items() if isinstance(value, str | FileSet | SqlQuery)}
    if not files or len(files) < len(named):
        return named if isinstance(data, Mapping) else data
    file_sets = {name: resolve_files(value) for name, value in files.items()}
    return file_sets if isinstance(data, Mapping) else file_sets[""]


def _as_text(rows: Rows) -> Rows:
    return os.fspath(rows) if isinstance(rows, os.PathLike) else rows


def _span(data: Rows | Mapping[str, Rows], wanted: int | None) -> tuple[int, int | None]:
    """The span and version of the files, else the span that is wanted, or 0."""
    named = data if isinstance(data, Mapping) else {"": data}
    span, version = common_span(
        {name: (value.span, value.version) for name, value in named.items() if isinstance(value, FileSet)}
    )
    if span is not None and wanted not in (None, span):
        raise InputError(f"span={wanted}, and the files are of span {span}", fix="leave span= out")
    return (wanted or 0) if span is None else span, version


def _opened(data: Rows | Mapping[str, Rows], options: Mapping[str, Any]) -> tuple[Source, dict[str, Source]]:
    """All the rows under one schema, and those of each split that is given apart."""
    from ..data import HashSplit, open_files

    if isinstance(data, Mapping):
        HashSplit.of(dict.fromkeys(data, 1))  # for what it finds wrong with the names
    named: dict[str, Rows] = dict(data) if isinstance(data, Mapping) else {"": data}
    files = {name: value for name, value in named.items() if isinstance(value, str | FileSet | SqlQuery)}
    if not files:
        return _tables({name: cast(Table, value) for name, value in named.items()}, options)
    for name, value in named.items():
        if name not in files:
            raise InputError(f"the files of the split {name!r} are {value!r:.60}", fix="give a path or a glob pattern")
    paths: dict[str, list[Path]] = {}
    owner: dict[Path, str] = {}
    for name, wanted in files.items():
        paths[name] = [file.path for file in resolve_files(wanted).files]
        for path in paths[name]:
            if path.resolve() in owner:
                raise InputError(
                    f"{path} is in the splits {owner[path.resolve()]!r} and {name!r}", fix="give each file to one split"
                )
            owner[path.resolve()] = name
    context = current()

    def opened(some: list[Path]) -> Source:
        return open_files(some, note=context.note, progress=context.progress, **options)

    source = opened([path for split_paths in paths.values() for path in split_paths])
    split_of = {str(path): name for name, split_paths in paths.items() for path in split_paths}
    if any(shard.path not in split_of for shard in source.shards):  # images, whose shards are not files
        parts = {name: opened(split_paths) for name, split_paths in paths.items()}
        return replace(source, shards=tuple(shard for part in parts.values() for shard in part.shards)), parts
    return source, {
        name: replace(source, shards=tuple(shard for shard in source.shards if split_of[shard.path] == name))
        for name in named
    }


def _tables(named: Mapping[str, Table], options: Mapping[str, Any]) -> tuple[Source, dict[str, Source]]:
    from ..data import Source, source_of
    from ..data.sources import unify

    for name, value in named.items():
        if not hasattr(value, "__arrow_c_stream__"):
            what = f"the files of the split {name!r} are" if name else "the data is"
            raise InputError(f"{what} {value!r:.60}", fix="give a path, a glob pattern, a query or a table")
    if options:
        raise InputError(f"{next(iter(options))}: a table in memory is read as it is", fix="leave it out")
    parts = {name: source_of(value) for name, value in named.items()}
    (first, first_source), *others = parts.items()
    schema = first_source.schema
    for name, other in others:
        schema = unify(schema, f"the split {first!r}", other.schema, f"the split {name!r}")
    parts = {name: replace(part, schema=schema) for name, part in parts.items()}
    return Source(tuple(shard for part in parts.values() for shard in part.shards), schema), parts


def _one_file(files: Files) -> Path:
    matching = resolve_files(files).files
    if len(matching) != 1:
        raise InputError(f"labels: {len(matching)} files match", fix="name one CSV")
    return matching[0].path


@compare.register
def row_changes(old: Examples, new: Examples) -> dict[str, object]:
    """What became of the rows, as `why` tells it."""
    from ..data.row_changes import row_changes as compared  # late: with it come NumPy and Arrow

    rows = compared(old.content, new.content)
    return {"change": rows.kind, "added": rows.added, "removed": rows.removed, "columns": list(rows.columns)}
