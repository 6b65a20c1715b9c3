"""ExampleGen: files in, examples out, divided into splits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError
from ..metadata import Examples
from ..pipelines import Files, FileSet, component, current, resolve_files

if TYPE_CHECKING:
    from ..data import Manifest, Source

_SPLITS: Mapping[str, int] = {"train": 2, "eval": 1}


@component
def ExampleGen(
    data: Files | Mapping[str, Files],
    *,
    splits: Mapping[str, int] = _SPLITS,
    split_by: str | None = None,
    split_column: str | None = None,
    encoding: str | None = None,
    delimiter: str | None = None,
    span: int = 0,
) -> Examples:
    """Read files and divide their rows into splits, the same way every time.

    Args:
        data: A path, a glob pattern or a packaged data set: CSV, Parquet, JSON lines, Avro or TFRecords of tf.Example
            by the files' names, see `data.open_files`. Several files are read in the order of their paths. Or splits
            that are divided already: name to files, e.g. `{"train": "a/*.csv", "eval": "b/*.csv"}`.
        splits: Name and share of each split, in order. A row's place is decided by a hash of what it holds, so equal
            rows stay together.
        split_by: The column that decides instead of the whole row: rows equal in it stay together.
        split_column: A column that names each row's split.
        encoding: Of CSV files, as Python names it, e.g. "latin-1"; by default UTF-8, or UTF-16 by its byte order mark.
        delimiter: Between the cells of CSV files; by default what their header uses.
        span: Which span of the data this is.

    Returns:
        Examples: Parquet parts by split, and a manifest. Types are settled over all files (integer → float → text).

    Raises:
        InputError: A file is missing, empty, ragged, damaged or not of its encoding, the files' columns differ,
            `split_by` or `split_column` is no column, or the splits make no sense.
        DrivetrainError: What reads this kind of file is not installed.
    """
    from ..data import ColumnSplit, HashSplit, Manifest, executor, open_files
    from ..data import sinks as sinks_of

    context = current()
    walk = executor(context.executor, context.executor_options)
    inputs = _inputs(data)
    told = [None not in inputs, splits != _SPLITS or split_by is not None, split_column is not None]
    if sum(told) > 1:
        raise InputError(
            "the splits are told in more than one way",
            fix="give files by split, or splits= (with split_by=), or split_column=",
        )
    source = open_files(
        [path for paths in inputs.values() for path in paths],
        encoding=encoding,
        delimiter=delimiter,
        progress=context.progress,
    )
    examples = Examples.new(span=span)
    if None in inputs:
        if split_by is not None and split_by not in source.columns:
            raise InputError(
                f"split_by: there is no column {split_by!r}", fix=f"the columns are: {', '.join(source.columns)}"
            )
        by_column = None if split_column is None else ColumnSplit.of(source, split_column)
        route = by_column or HashSplit.of(splits, split_by)
        sinks = sinks_of(examples.content, route.names)
        manifest = walk.map(source, None, sinks, route=route, progress=context.progress)
    else:
        manifests: list[Manifest] = []
        for name, part in _divided(source, inputs).items():
            before = sum(sum(one.rows.values()) for one in manifests)

            def progress(done: int, _: int | None, unit: str, before: int = before) -> None:
                context.progress(before + done, source.rows, unit)

            manifests.append(walk.map(part, None, sinks_of(examples.content, [name]), progress=progress))
        manifest = Manifest.joined(manifests)
    manifest.write(examples.content, span=span)
    examples.rows = manifest.rows
    empty = [name for name, rows in manifest.rows.items() if not rows]
    if empty:
        context.note(f"split {empty[0]!r} got no rows of {source.rows}")
    return examples


def _inputs(data: Files | Mapping[str, Files]) -> dict[str | None, list[Path]]:
    """Paths by the split they are given for; None where the rows are still to be divided."""
    from ..data import HashSplit

    if not isinstance(data, Mapping):
        return {None: [file.path for file in resolve_files(data).files]}
    HashSplit.of(dict.fromkeys(data, 1))  # for what it finds wrong with the names
    found: dict[str | None, list[Path]] = {}
    owner: dict[Path, str] = {}
    for name, files in data.items():
        if not isinstance(files, str | FileSet):
            raise InputError(f"the files of the split {name!r} are {files!r:.60}", fix="give a path or a glob pattern")
        found[name] = [file.path for file in resolve_files(files).files]
        for path in found[name]:
            if path.resolve() in owner:
                raise InputError(
                    f"{path} is in the splits {owner[path.resolve()]!r} and {name!r}", fix="give each file to one split"
                )
            owner[path.resolve()] = name
    return found


def _divided(source: Source, inputs: Mapping[str | None, list[Path]]) -> dict[str, Source]:
    """The source's shards by split: one schema over all of them."""
    found = {}
    for name, paths in inputs.items():
        wanted = set(map(str, paths))
        shards = tuple(shard for shard in source.shards if shard.path in wanted)
        found[str(name)] = replace(source, shards=shards)
    return found
