"""What the executor tests run: importable by name, because workers unpickle by reference."""

import hashlib
import os
import struct
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from drivetrain.errors import InputError


class Trace:
    """An accumulator whose bytes spell the whole history: which batches, merged in which tree."""

    def __init__(self):
        self.data = b""

    def add_batch(self, batch):
        cells = repr(batch.to_pydict()).encode()
        self.data += struct.pack("<q", batch.num_rows) + hashlib.sha256(cells).digest()[:4]

    def merge(self, other):
        self.data = b"(" + self.data + other.data + b")"

    def compact(self):
        self.data += b"."

    def result(self):
        return {"bytes": len(self.data)}

    def to_bytes(self):
        return self.data

    @classmethod
    def from_bytes(cls, data):
        made = cls()
        made.data = data
        return made


class Double:
    """A BatchFn that needs its setup; leaves the pids that ran it in a folder."""

    def __init__(self, pids=None):
        self.pids = pids
        self.factor = None

    def setup(self):
        self.factor = 2

    def __call__(self, batch):
        if self.pids:
            Path(self.pids, str(os.getpid())).touch()
        return pa.RecordBatch.from_arrays(
            [pc.multiply(batch.column("a"), self.factor), batch.column("s")], names=["a", "s"]
        )


class Odd:
    """A route by parity of the column a."""

    def __call__(self, batch):
        return batch.column("a").to_numpy() % 2


class Fails:
    """A BatchFn that finds the user's data wrong."""

    def setup(self):
        pass

    def __call__(self, batch):
        raise InputError("row 7 is wrong", fix="repair it", where="data.csv:7")
