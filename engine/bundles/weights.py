"""Weights of a bundle: safetensors files, of which arrays are views, so that no second copy is in memory."""

from __future__ import annotations

import json
import math
import mmap
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .values import dtype_named

_DTYPES: Final = {
    "F32": "float32", "F16": "float16", "BF16": "bfloat16", "BOOL": "bool", "I32": "int32", "I16": "int16",
    "I8": "int8", "U32": "uint32", "U16": "uint16", "U8": "uint8",
}  # fmt: skip
_LENGTH_BYTES: Final = 8  # at the file's begin: how long the header is, little-endian


def weight_name(path: Any) -> str:
    """The name of the array at a path (one of JAX's) of a model's params."""
    import jax

    return "model/" + (jax.tree_util.keystr(path, simple=True, separator="/") or "params")


def mapped(path: Path) -> memoryview:
    """A file's bytes as they lie in it: read when they are used, and given back when memory is short."""
    with path.open("rb") as file:
        if not path.stat().st_size:  # which cannot be mapped
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def read_weights(data: memoryview | bytes) -> dict[str, NDArray[Any]]:
    """A safetensors file's arrays by name, as read-only views of its bytes.

    Its own reader copies each array, and knows no bfloat16. What it refuses is refused here: arrays that overlap, or
    that leave a part of the file to nobody.

    Raises:
        ValueError, LookupError, TypeError, AttributeError: The bytes are not such a file, or a dtype that no device
            stage takes.
    """
    begin = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "little")
    if not _LENGTH_BYTES < begin <= len(data):
        raise ValueError("the weights: the header is longer than the file")
    header = json.loads(bytes(data[_LENGTH_BYTES:begin]))
    header.pop("__metadata__", None)
    arrays, end = {}, 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        dtype, shape = dtype_named(_DTYPES[entry["dtype"]]), entry["shape"]
        if not all(type(size) is int and size >= 0 for size in shape):
            raise ValueError(f"the weights: {name!r:.80} has the shape {shape!r:.80}")
        count = math.prod(shape)
        if entry["data_offsets"] != [end, end + count * dtype.itemsize]:
            raise ValueError(f"the weights: {name!r:.80} does not begin where the array before it ends")
        arrays[name] = np.frombuffer(data, dtype, count, begin + end).reshape(shape)
        end += count * dtype.itemsize
    if begin + end != len(data):
        raise ValueError("the weights: the file does not end with the last array")
    return dict(sorted(arrays.items()))


def give_back(weights: Iterable[NDArray[Any]]) -> None:
    """Give back the memory of arrays that lie in mapped files: where they are used again, they are read again."""
    for array in weights:
        owner: Any = array
        while isinstance(owner, np.ndarray):
            owner = owner.base
        if isinstance(owner, memoryview) and isinstance(owner.obj, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            owner.obj.madvise(mmap.MADV_DONTNEED)
