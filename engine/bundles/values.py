"""Rows and results as bytes between a process and its child: Arrow IPC, plain arrays and JSON; each is checked."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_DTYPES: Final = frozenset({
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
    "bfloat16", "complex64", "complex128",
})  # fmt: skip


def bytes_of_batch(batch: pa.RecordBatch) -> bytes:
    """A record batch as an Arrow IPC stream."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def batch_of_bytes(data: bytes) -> pa.RecordBatch:
    """The inverse of `bytes_of_batch`.

    Raises:
        ValueError, pa.ArrowException, OSError: The bytes are no such stream.
    """
    batch = pa.ipc.open_stream(data).read_next_batch()
    batch.validate(full=True)  # false offsets would be followed out of the buffer
    return batch


def encoded(outputs: Mapping[str, object], parts: list[bytes]) -> list[list[object]]:
    """Outputs by name as JSON; what numbers an array holds is appended to the parts."""
    return [[name, _encoded(value, parts)] for name, value in outputs.items()]


def decoded(outputs: Any, parts: Sequence[bytes]) -> dict[str, Any]:  # Any: JSON; Python values and arrays
    """The inverse of `encoded`, of what another process gives.

    Raises:
        ValueError, LookupError, TypeError: It gives no such thing.
    """
    return {str(name): _decoded(value, parts) for name, value in outputs}


def _encoded(value: object, parts: list[bytes]) -> dict[str, object]:
    if isinstance(value, np.ndarray) and value.dtype != object:
        parts.append(value.tobytes())
        return {"dtype": value.dtype.name, "shape": list(value.shape), "part": len(parts) - 1}
    if isinstance(value, np.ndarray):
        return {"objects": value.tolist()}
    return {"value": value.item() if isinstance(value, np.generic) else value}


def _decoded(value: Any, parts: Sequence[bytes]) -> Any:
    if "value" in value:
        return value["value"]
    if "objects" in value:
        return np.fromiter(value["objects"], object, len(value["objects"]))
    if value["dtype"] not in _DTYPES:
        raise ValueError(f"the dtype {value['dtype']!r:.40}")
    shape = tuple(int(size) for size in value["shape"])
    dtype = dtype_named(value["dtype"])
    data = parts[int(value["part"])]
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(data):
        raise ValueError(f"{len(data)} bytes for {dtype.name}{list(shape)}")
    return array_of(data, dtype, shape)


def array_of(data: bytes, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """An array of its own, which can be written to like any other result."""
    return np.frombuffer(data, dtype).reshape(shape).copy()


def dtype_named(name: str) -> np.dtype[Any]:
    """NumPy's dtype of that name, or `ml_dtypes.bfloat16`, which is imported for it alone."""
    if name == "bfloat16":
        import ml_dtypes

        bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    return np.dtype(name)
