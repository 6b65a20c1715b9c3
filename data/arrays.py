"""Arrow and numpy arrays over the same memory, made without pandas, which pyarrow would import to ask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def arrow_of(values: NDArray[Any]) -> Any:
    """The pyarrow array over the same memory.

    `pyarrow.array` would import pandas, if installed, to ask whether it was given a series: a third of a second.
    """
    values = np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])


def texts(values: Sequence[str]) -> Any:
    """The pyarrow `string` array of a few values; see `arrow_of` for why not `pyarrow.array`."""
    encoded = [value.encode() for value in values]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return pa.StringArray.from_buffers(len(encoded), pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded)))


def numpy_of(array: Any) -> NDArray[Any]:
    """The values of a fixed-width or boolean pyarrow array over the same memory; where one is null, any value.

    Without `to_numpy`, which imports pandas as well. Dates, times and durations come as integers.
    """
    kind, count, start = array.type, len(array), array.offset
    data = array.buffers()[1]
    if pa.types.is_boolean(kind):
        if not count:
            return np.zeros(0, np.bool_)
        bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little", count=start + count)
        return bits[start:].view(np.bool_)
    letter = "f" if pa.types.is_floating(kind) else "u" if pa.types.is_unsigned_integer(kind) else "i"
    width = kind.bit_width // 8
    dtype = np.dtype(f"{letter}{width}")
    return np.frombuffer(data, dtype, count, start * width) if count else np.zeros(0, dtype)
