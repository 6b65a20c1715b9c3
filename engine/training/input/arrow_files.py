"""Arrow files as they lie on disk: mapped into memory, so that rows are read when they are looked at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from ....data.sources import Source, changed_in_use, unify
from ....data.types import normal_schema, restore, settle
from ....errors import InputError


@dataclass(frozen=True)
class ArrowShard:
    """A record batch of an Arrow IPC file."""

    path: str
    number: int
    rows: int

    def read(self, schema: pa.Schema, batch_rows: int, dictionaries: bool) -> Iterator[pa.RecordBatch]:
        """See `data.sources.Shard.read`."""
        try:
            with pa.memory_map(self.path) as mapped:
                file = pa.ipc.open_file(mapped)
                if self.number >= file.num_record_batches or not {*schema.names} <= {*file.schema.names}:
                    raise changed_in_use(self.path)
                batch = file.get_batch(self.number)
                if batch.num_rows != self.rows:
                    raise changed_in_use(self.path)
                batch = restore(batch, schema, dictionaries=dictionaries)
                for begin in range(0, self.rows, batch_rows):
                    yield batch.slice(begin, batch_rows)
        except (pa.ArrowException, OSError) as error:
            raise _damaged(self.path, error) from error


def open_arrow(paths: Sequence[Path | str]) -> Source:
    """A source over files of Arrow's IPC format (".arrow", ".feather"); each record batch is a shard.

    Raises:
        InputError: A file is missing or damaged, or the files' columns do not fit together.
    """
    shards: list[ArrowShard] = []
    schema: pa.Schema | None = None
    for path in map(str, paths):
        try:
            with pa.memory_map(path) as mapped, pa.ipc.open_file(mapped) as file:
                file_schema = normal_schema(file.schema, path)
                counts = [file.get_batch(number).num_rows for number in range(file.num_record_batches)]
        except (pa.ArrowException, OSError) as error:
            raise _damaged(path, error) from error
        schema = file_schema if schema is None else unify(schema, str(paths[0]), file_schema, path)
        shards += [ArrowShard(path, number, rows) for number, rows in enumerate(counts) if rows]
    if schema is None:
        raise InputError("there are no Arrow files to open", fix="name at least one")
    return Source(tuple(shards), settle(schema))


def _damaged(path: str, error: Exception) -> InputError:
    if isinstance(error, FileNotFoundError):
        return InputError(f"{path} does not exist", fix="check the path")
    cause = str(error).splitlines()[0][:200]
    return InputError(f"{path}: not a whole Arrow file ({cause})", fix="write it again, in the IPC file format")
