"""ExampleGen: files in, examples out, divided into splits."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import InputError
from ..metadata import Examples
from ..pipelines import Files, component, current, resolve_files

_SPLITS: Mapping[str, int] = {"train": 2, "eval": 1}


@component
def ExampleGen(
    data: Files, *, splits: Mapping[str, int] = _SPLITS, split_by: str | None = None, span: int = 0
) -> Examples:
    """Read CSV or Parquet files and divide their rows into splits by hash, the same way every time.

    Args:
        data: A path, a glob pattern or a packaged data set; `.csv`, `.csv.gz`, `.zip` with one CSV, or `.parquet`.
            Several files are read in the order of their paths.
        splits: Name and share of each split, in order. A row's place depends only on what it holds, so equal rows
            stay together.
        split_by: The column that decides instead of the whole row: rows equal in it stay together.
        span: Which span of the data this is.

    Returns:
        Examples: Parquet parts by split, and a manifest. Types are settled over all files (integer → float → text).

    Raises:
        InputError: A file is missing, empty, ragged, damaged or not UTF-8, the files' columns differ, `split_by` is
            no column, or the splits make no sense.
    """
    from ..data import HashSplit, executor, open_files
    from ..data import sinks as sinks_of

    context = current()
    route = HashSplit.of(splits, split_by)
    source = open_files([file.path for file in resolve_files(data).files], progress=context.progress)
    if split_by is not None and split_by not in source.columns:
        raise InputError(
            f"split_by: there is no column {split_by!r}", fix=f"the columns are: {', '.join(source.columns)}"
        )
    examples = Examples.new(span=span)
    sinks = sinks_of(examples.content, route.names)
    walk = executor(context.executor, context.executor_options)
    manifest = walk.map(source, None, sinks, route=route, progress=context.progress)
    manifest.write(examples.content, span=span)
    examples.rows = manifest.rows
    empty = [name for name, rows in manifest.rows.items() if not rows]
    if empty:
        context.note(f"split {empty[0]!r} got no rows of {source.rows}")
    return examples
