"""What the executor tests run: importable by name, because workers unpickle by reference."""

from __future__ import annotations

import hashlib
import os
import signal
import struct
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from drivetrain.errors import InputError
from numpy.typing import NDArray


class Trace:
    """An accumulator whose bytes spell the whole history: which batches, merged in which tree."""

    def __init__(self) -> None:
        self.data = b""

    def add_batch(self, batch: pa.RecordBatch) -> None:
        cells = repr(batch.to_pydict()).encode()
        self.data += struct.pack("<q", batch.num_rows) + hashlib.sha256(cells).digest()[:4]

    def merge(self, other: Trace) -> None:
        self.data = b"(" + self.data + other.data + b")"

    def compact(self) -> None:
        self.data += b"."

    def result(self) -> dict[str, int]:
        return {"bytes": len(self.data)}

    def to_bytes(self) -> bytes:
        return self.data

    @classmethod
    def from_bytes(cls, data: bytes) -> Trace:
        state = cls()
        state.data = data
        return state


class Double:
    """A BatchFn that needs its setup; leaves the pids that ran it in a folder."""

    def __init__(self, pids: str | None = None) -> None:
        self.pids = pids
        self.factor: int | None = None

    def setup(self) -> None:
        self.factor = 2

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self.pids:
            Path(self.pids, str(os.getpid())).touch()
        return pa.RecordBatch.from_arrays(
            [pc.multiply(batch.column("a"), self.factor), batch.column("s")], names=["a", "s"]
        )


class Odd:
    """A route by parity of the column a."""

    def __call__(self, batch: pa.RecordBatch) -> NDArray[np.int64]:
        return np.asarray(batch.column("a").to_numpy() % 2)


class Fails:
    """A BatchFn that finds the user's data wrong."""

    def setup(self) -> None:
        pass

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        raise InputError("row 7 is wrong", fix="repair it", where="data.csv:7")


class Slow:
    """A BatchFn that takes its time."""

    def setup(self) -> None:
        pass

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        time.sleep(0.2)
        return batch


class Kills:
    """A BatchFn whose process is killed by its first batch, once."""

    def __init__(self, flag: str) -> None:
        self.flag = flag

    def setup(self) -> None:
        pass

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        try:
            Path(self.flag).touch(exist_ok=False)
        except FileExistsError:
            return batch
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("killed, and still here")
