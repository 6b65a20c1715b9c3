"""A source from whatever a person has at hand: files, a DataFrame, an Arrow table or data set."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from ...addresses import is_url
from ...errors import InputError
from ..sources import BATCH_ROWS, Shard, Source, changed_in_use
from ..types import normal_schema, restore, settle
from .files import open_files

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow.dataset

_ACCEPTED: Final = "a path, a list of paths, a DataFrame, an Arrow table or data set, columns by name, or a Source"


def source_of(data: object) -> Source:
    """The source over the rows of `data`.

    Args:
        data: One of
            - a path, a glob pattern, or a list of paths: files as `open_files` takes them, a pattern's by name; a
              folder means the files below it (none whose name begins with `.` or `_`), and `key=value` folders of
              Parquet files are columns;
            - a pandas DataFrame: NaN and None are missing; the index is left out unless it has a name, then its levels
              are columns; a Series that has a name is one column;
            - an Arrow table, record batch or record batch reader, or any object with `__arrow_c_stream__` (Polars,
              DuckDB, …), kept in memory;
            - a list of dicts, one per row: a key that a row lacks is missing there;
            - a mapping from column to its values: a list, or an array of numpy's (of more dimensions: lists), Arrow's
              or pandas';
            - a `pyarrow.dataset.Dataset`, read from its files;
            - a Source, returned as it is.

    Raises:
        InputError: It is none of these, a file cannot be read, two columns share a name, or a column of a DataFrame
            mixes types (names the column).
    """
    if isinstance(data, Source):
        return data
    if isinstance(data, str | os.PathLike) and Path(data).is_dir():
        return _of_folder(Path(data))
    if isinstance(data, str | os.PathLike):
        return open_files(_matches(os.fspath(data)))
    if isinstance(data, list | tuple) and data and all(isinstance(path, str | os.PathLike) for path in data):
        return open_files([match for path in data for match in _matches(os.fspath(path))])
    if _library(data) == "pyarrow" and hasattr(data, "get_fragments"):
        return of_dataset(data)
    table = _table(data)
    if table is not None:
        return of_table(table)
    columns = isinstance(data, list | tuple | pa.Array) or _library(data) == "numpy"
    raise InputError(
        f"{type(data).__name__!r} cannot be read as rows",
        fix="give a table of named columns, e.g. pyarrow.table({name: values})" if columns else f"give {_ACCEPTED}",
    )


def table_of(data: object) -> pa.Table:
    """The Arrow table of rows in memory, which may be none: types and dictionaries as they come.

    Args:
        data: A DataFrame, an Arrow table or batch or what gives one, a mapping from column to values, or a list of
            dicts, as `source_of` takes them.

    Raises:
        InputError: It is none of these, two columns share a name or differ in length, or a column is of no one type.
    """
    table = _table(data)
    if table is not None:
        return table
    raise InputError(
        f"{type(data).__name__!r} is not a table in memory",
        fix="give a pandas DataFrame, an Arrow table or record batch, or a mapping from column to values",
    )


def _table(data: object) -> pa.Table | None:
    """The table of rows in memory; None of anything else."""
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if _library(data) == "pandas" and type(data).__name__ in ("DataFrame", "Series"):
        frame: Any = data  # a pandas object: pandas ships no types
        return _from_pandas(_named(frame) if frame.ndim == 1 else frame)
    if isinstance(data, Mapping):
        return _from_columns(data)
    if isinstance(data, list | tuple) and data and all(isinstance(row, Mapping) for row in data):
        return _from_rows(data)
    if hasattr(data, "__arrow_c_stream__"):
        try:
            return pa.table(data)
        except pa.ArrowInvalid as error:
            raise InputError(
                f"a {type(data).__name__} has no columns with names ({str(error).partition(chr(10))[0]})",
                fix='give a table, e.g. pa.table({"name": values})',
            ) from None
    return None


def _library(data: object) -> str:
    return type(data).__module__.partition(".")[0]


def _named(series: Any) -> Any:  # a pandas Series, a DataFrame of one column
    if series.name is None:
        raise InputError("this Series has no name for its column", fix='name it, e.g. series.rename("mass")')
    return series.to_frame()


def of_table(table: pa.Table) -> Source:
    """A source over an Arrow table in memory: each 65,536 rows are a shard, which travels with its rows if pickled.

    Raises:
        InputError: The table has no rows, or two columns share a name.
    """
    schema = settle(normal_schema(table.schema, "the table"))
    if not table.num_rows:
        raise InputError("the table has no rows", fix="give at least one row of data")
    pieces = [table.slice(start, BATCH_ROWS) for start in range(0, table.num_rows, BATCH_ROWS)]
    return Source(tuple(TableShard(piece) for piece in pieces), schema)


def of_dataset(dataset: pyarrow.dataset.Dataset) -> Source:
    """A source over an Arrow data set, with the columns of its partitioning: each fragment (a file) is a shard.

    Raises:
        InputError: It has no rows, a file is missing or damaged, or two columns share a name.
    """
    schema = normal_schema(dataset.schema, "the data set")
    shards: list[Shard] = []
    for fragment in dataset.get_fragments():
        try:
            shards.append(FragmentShard(fragment, dataset.schema, fragment.count_rows()))
        except (pa.ArrowException, OSError) as error:
            raise _damaged(_path_of(fragment), error) from error
    if not any(shard.rows for shard in shards):
        raise InputError("the data set has no rows", fix="check its path and filters")
    return Source(tuple(shards), settle(schema))


@dataclass(frozen=True, eq=False)
class TableShard:
    """Some rows of a table in memory."""

    table: Any  # pa.Table; pyarrow ships no types

    @property
    def path(self) -> str:
        """Stands for a path in errors: memory has none."""
        return "the table"

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return int(self.table.num_rows)

    def read(self, schema: pa.Schema, batch_rows: int, dictionaries: bool) -> Iterator[pa.RecordBatch]:
        """See `Shard.read`."""
        for batch in self.table.select(schema.names).to_batches(max_chunksize=batch_rows):
            yield _restored(batch, schema, dictionaries, self.path)

    def __reduce__(self) -> tuple[Any, ...]:
        # A slice would take the whole table's buffers along.
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.table.schema) as writer:
            writer.write_table(self.table)
        return _table_shard, (sink.getvalue().to_pybytes(),)


def _table_shard(data: bytes) -> TableShard:
    return TableShard(pa.ipc.open_stream(data).read_all())


@dataclass(frozen=True, eq=False)
class FragmentShard:
    """One fragment of an Arrow data set; usually a file."""

    fragment: Any  # pyarrow.dataset.Fragment; pyarrow ships no types
    schema: Any  # the data set's own
    rows: int

    @cached_property
    def path(self) -> str:
        """The file it lies in."""
        return _path_of(self.fragment)

    def read(self, schema: pa.Schema, batch_rows: int, dictionaries: bool) -> Iterator[pa.RecordBatch]:
        """See `Shard.read`."""
        count = 0
        try:
            scanner = self.fragment.scanner(
                schema=self.schema, columns=schema.names, batch_size=batch_rows, use_threads=False
            )
            for batch in scanner.to_batches():
                count += batch.num_rows
                yield _restored(batch, schema, dictionaries, self.path)
        except (pa.ArrowException, OSError) as error:
            raise _damaged(self.path, error) from error
        if count != self.rows:
            raise changed_in_use(self.path)


def _restored(batch: pa.RecordBatch, schema: pa.Schema, dictionaries: bool, path: str) -> pa.RecordBatch:
    try:
        return restore(batch, schema, dictionaries=dictionaries)
    except pa.ArrowException as error:
        for field in schema:  # which column was it?
            try:
                restore(batch, pa.schema([field]), dictionaries=dictionaries)
            except pa.ArrowException as cause:
                raise InputError(
                    f"{path}: column {field.name!r} cannot be read as {field.type} ({str(cause)[:200]})",
                    fix="give it another type",
                ) from error
        raise


def _matches(path: str) -> list[Path | str]:
    if is_url(path):
        return [path]  # its own pattern, if it is one
    if not glob.has_magic(path) or Path(path).exists():
        return [Path(path)]
    names = sorted(glob.glob(path, recursive=True))  # noqa: PTH207 - pathlib's does not take absolute patterns
    if not names:
        raise InputError(f"no file matches {path}", fix="check the pattern; a relative one starts here")
    return [Path(name) for name in names]


def _of_folder(folder: Path) -> Source:
    """The files below a folder by name; `key=value` folders of Parquet files give a column each."""
    inner = sorted(path for path in folder.rglob("*") if path.is_file())
    files = [path for path in inner if not any(part[0] in "._" for part in path.relative_to(folder).parts)]
    if not files:
        raise InputError(f"the folder {folder} holds no files", fix="name a folder of data files, all of one kind")
    if any("=" in part for path in files for part in path.relative_to(folder).parts[:-1]):
        import pyarrow.dataset

        return of_dataset(pyarrow.dataset.dataset([str(path) for path in files], partitioning="hive",
                                                  partition_base_dir=str(folder)))  # fmt: skip
    return open_files(files)


def _from_rows(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    names = dict.fromkeys(name for row in rows for name in row)
    arrays = {}
    for name in names:
        _refuse_unwritable(str(name))
        values = [row.get(name) for row in rows]
        try:
            arrays[str(name)] = _from_list(values)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            kinds = sorted({type(value).__name__ for value in values if value is not None})
            raise InputError(
                f"the rows: {name!r} is not a column of one type ({' and '.join(kinds)})", fix="give all rows one type"
            ) from error
    return pa.table(arrays)


def _from_list(values: Sequence[Any]) -> pa.Array:
    """An array of Python values; among texts and integers NaN and NA are missing, as pandas has it."""
    try:
        return pa.array(values)
    except (pa.ArrowException, TypeError):
        return pa.array(values, from_pandas=True)


def _refuse_unwritable(name: str) -> None:
    """Raise InputError where Arrow cannot hold a column's name: half of a character."""
    if any("\ud800" <= character <= "\udfff" for character in name):
        raise InputError(f"the column {name!r:.80} has a name that is not text", fix="decode it as it was encoded")


def _from_columns(columns: Mapping[Any, Any]) -> pa.Table:
    arrays: dict[str, Any] = {}
    for name, values in columns.items():
        _refuse_unwritable(str(name))
        try:
            arrays[str(name)] = _from_values(values)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise InputError(
                f"column {name!r} is not a column of one type ({str(error).splitlines()[0][:200]})",
                fix="give it a list or an array of values of one type",
            ) from error
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        (first, rows), (other, more) = next(
            pair for pair in zip(lengths.items(), list(lengths.items())[1:], strict=False) if pair[0][1] != pair[1][1]
        )
        raise InputError(
            f"column {other!r} has {more} values, {first!r} has {rows}", fix="give all columns a value for each row"
        )
    return pa.table(arrays)


def _from_values(values: Any) -> pa.Array | pa.ChunkedArray:  # Any: whatever holds values
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if _library(values) == "pandas" and hasattr(values, "to_series"):  # an index
        values = values.to_series()
    if _library(values) == "pandas" and type(values).__name__ == "Series":
        return _from_series(values)
    if isinstance(values, list | tuple):
        return _from_list(values)
    if isinstance(values, np.ma.MaskedArray):
        flat = pa.array(values.data.reshape(-1), mask=np.ma.getmaskarray(values).reshape(-1))
        return flat if values.ndim == 1 else pa.FixedSizeListArray.from_arrays(flat, int(np.prod(values.shape[1:])))
    if not hasattr(values, "__array__") or np.ndim(values) == 0:
        raise TypeError(f"{values!r:.80} is not a list or array; one row of values goes to run_row, or is [{{…}}]")
    array = np.asarray(values)
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.ndim > 1:
        return pa.FixedSizeListArray.from_arrays(pa.array(array.reshape(-1)), int(np.prod(array.shape[1:])))
    return pa.array(array, from_pandas=array.dtype == object)


def _from_pandas(frame: pd.DataFrame) -> pa.Table:
    named = [name for name in frame.index.names if name is not None]
    if named:
        frame = frame.reset_index(level=named)
    columns = [str(name) for name in frame.columns]
    twice = next((name for name in columns if columns.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"the DataFrame: two columns are named {twice!r}", fix="rename one of them")
    arrays = []
    for number, name in enumerate(columns):
        try:
            arrays.append(_from_series(frame.iloc[:, number]))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise InputError(
                f"the DataFrame: column {name!r} is not a column of one type ({str(error).splitlines()[0][:200]})",
                fix=f"give it one type, e.g. frame[{name!r}].astype('string')",
            ) from error
    return pa.table(dict(zip(columns, arrays, strict=True)))


def _from_series(series: pd.Series[Any]) -> pa.Array:
    zone = getattr(series.dtype, "tz", None)
    if zone is None:
        return pa.array(series, from_pandas=True)
    # In UTC first: what pyarrow asks a series with a zone for warns from pandas 3.1 on
    times = pa.array(series.dt.tz_convert(None), from_pandas=True)
    return times.cast(pa.timestamp(times.type.unit, pa.lib.tzinfo_to_string(zone)))


def _path_of(fragment: Any) -> str:
    return str(getattr(fragment, "path", "a fragment of the data set"))


def _damaged(path: str, error: Exception) -> InputError:
    cause = (str(error) or type(error).__name__).splitlines()[0][:200]
    return InputError(f"{path} cannot be read ({cause})", fix="write or copy the file again")
