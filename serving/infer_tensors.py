"""The tensors of the Open Inference Protocol as arrays and back: typed contents, and raw bytes."""

from __future__ import annotations

import math
import struct
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .protos import InferTensorContents, Message
from .tensor_columns import beyond_tensors, invalid, numpy_dtype
from .tensor_proto import shaped

# The datatype, the dtype, and the field of the typed contents; the two short floats have none.
_TYPES: Final = (
    ("BOOL", "bool", "bool_contents"),
    ("UINT8", "uint8", "uint_contents"),
    ("UINT16", "uint16", "uint_contents"),
    ("UINT32", "uint32", "uint_contents"),
    ("UINT64", "uint64", "uint64_contents"),
    ("INT8", "int8", "int_contents"),
    ("INT16", "int16", "int_contents"),
    ("INT32", "int32", "int_contents"),
    ("INT64", "int64", "int64_contents"),
    ("FP16", "float16", ""),
    ("BF16", "bfloat16", ""),
    ("FP32", "float32", "fp32_contents"),
    ("FP64", "float64", "fp64_contents"),
    ("BYTES", "string", "bytes_contents"),
)
DTYPES: Final = {datatype: dtype for datatype, dtype, _ in _TYPES}
"""The protocol's datatypes, and what each is here."""
_DATATYPES: Final = {dtype: datatype for datatype, dtype, _ in _TYPES}
_FIELDS: Final = {datatype: field for datatype, _, field in _TYPES}


_UNSERVED: Final = {
    "sequence_id": "sequences",
    "shared_memory_region": "shared memory",
    "classification": "classification",
}


def check_parameters(parameters: Collection[str]) -> None:
    """Refuse parameters, of a request or of a tensor of it, that would change the answer and are not served.

    Raises:
        RequestError: INVALID_ARGUMENT: there is one.
    """
    if not parameters:
        return
    for name, what in _UNSERVED.items():
        if name in parameters:
            raise invalid(f"the request has the parameter {name}: {what} is not served", "leave it out")


def datatype(dtype: str, name: str) -> str:
    """The protocol's name for the dtype of a field's values.

    Raises:
        RequestError: FAILED_PRECONDITION: it has none.
    """
    if dtype not in _DATATYPES:
        raise beyond_tensors(f"{name!r:.80} is {dtype}, for which the Open Inference Protocol has no type")
    return _DATATYPES[dtype]


def request_tensors(request: Message) -> dict[str, NDArray[Any]]:
    """The inputs of a ModelInferRequest, by name; text as an object array of bytes.

    Raises:
        RequestError: INVALID_ARGUMENT: the values are not as many as the shape has, or not of the type; an input
            stands twice; or some values are raw and some are not.
    """
    raw = request.raw_input_contents
    if raw and len(raw) != len(request.inputs):
        raise invalid(f"the request has {len(request.inputs)} inputs and {len(raw)} raw contents")
    tensors: dict[str, NDArray[Any]] = {}
    for index, tensor in enumerate(request.inputs):
        name, kind, shape = tensor.name, tensor.datatype, tuple(tensor.shape)  # each look into a message costs
        if name in tensors:
            raise invalid(f"input {name!r:.80} stands twice")
        if kind not in DTYPES:
            raise invalid(f"input {name!r:.80} has the type {kind!r:.40}", fix=f"use {', '.join(DTYPES)}")
        if shape and min(shape) < 0:
            raise invalid(f"input {name!r:.80} has a negative size")
        count = math.prod(shape)
        if raw:
            if tensor.HasField("contents") and tensor.contents.ListFields():
                raise invalid(f"input {name!r:.80} has contents, and the request raw contents", fix="send either")
            values = from_raw(raw[index], kind, count, name)
        else:
            values = _from_contents(tensor.contents, kind, count, name)
        tensors[name] = shaped(values, shape, name)
    return tensors


def from_raw(content: bytes | memoryview, kind: str, count: int, name: str) -> NDArray[Any]:
    """Values from their bytes: little-endian, one after another; text each after its length in four bytes.

    Args:
        content: The bytes.
        kind: The protocol's name of the type.
        count: How many values.
        name: Of the input, for errors.

    Raises:
        RequestError: INVALID_ARGUMENT: they are not that many values.
    """
    if kind == "BYTES":
        return _from_raw_texts(content, count, name)
    dtype = np.dtype(np.uint8) if kind == "BOOL" else numpy_dtype(DTYPES[kind])
    if len(content) != count * dtype.itemsize:
        raise invalid(
            f"input {name!r:.80} has {len(content)} bytes, its shape has {count} values of {dtype.itemsize} bytes"
        )
    values = np.frombuffer(content, dtype)
    return values != 0 if kind == "BOOL" else values


def _from_raw_texts(content: bytes | memoryview, count: int, name: str) -> NDArray[Any]:
    texts: list[bytes] = []
    position = 0
    while position + 4 <= len(content) and len(texts) < count:
        (length,) = struct.unpack_from("<I", content, position)
        position += 4 + length
        texts.append(bytes(content[position - length : position]))
    if len(texts) != count or position != len(content):
        raise invalid(f"input {name!r:.80} has {len(content)} bytes, which are not the {count} texts of its shape")
    return _objects(texts)


def _from_contents(contents: Message, kind: str, count: int, name: str) -> NDArray[Any]:
    """Values from the field of their type."""
    field = _FIELDS[kind]
    if not field:
        raise invalid(f"input {name!r:.80} is {kind}, which has no contents", fix="send it in raw_input_contents")
    for other, _ in contents.ListFields():
        if other.name != field:
            raise invalid(f"input {name!r:.80} is {kind}, but has values in {other.name}", fix=f"send them in {field}")
    stored: Sequence[Any] = getattr(contents, field)
    if len(stored) != count:
        raise invalid(f"input {name!r:.80} has {len(stored)} values, its shape has {count}")
    if kind == "BYTES":
        return _objects(stored[:])
    dtype = numpy_dtype(DTYPES[kind])
    if dtype.kind not in "iu" or dtype.itemsize >= 4:
        return np.fromiter(stored, dtype, count)
    numbers, bounds = np.fromiter(stored, np.int64, count), np.iinfo(dtype)
    if ((numbers < bounds.min) | (numbers > bounds.max)).any():
        raise invalid(f"input {name!r:.80} has a value that is not of {kind}")
    return numbers.astype(dtype)


def _objects(texts: Sequence[bytes]) -> NDArray[Any]:
    values = np.empty(len(texts), object)
    values[:] = texts
    return values


def add_outputs(response: Message, outputs: Mapping[str, NDArray[Any]], *, raw: bool) -> None:
    """Add arrays to a ModelInferResponse, in their order.

    Args:
        response: The message.
        outputs: By name; numbers, or objects that are bytes.
        raw: As bytes; else as typed contents, unless a type has none.

    Raises:
        RequestError: FAILED_PRECONDITION: the protocol has no such type.
    """
    kinds = {name: datatype(_dtype_name(each.dtype), name) for name, each in outputs.items()}
    raw = raw or not all(_FIELDS[kind] for kind in kinds.values())
    for name, values in outputs.items():
        tensor = response.outputs.add(name=name, datatype=kinds[name], shape=values.shape)
        if raw:
            response.raw_output_contents.append(to_raw(values))
        else:
            tensor.contents.CopyFrom(InferTensorContents(**{_FIELDS[kinds[name]]: values.ravel().tolist()}))


@cache
def _dtype_name(dtype: np.dtype[Any]) -> str:
    return "string" if dtype.kind == "O" else dtype.name  # which numpy puts together each time


def to_raw(values: NDArray[Any]) -> bytes:
    """An array's values as bytes: the inverse of `from_raw`."""
    if values.dtype == object:
        return b"".join(part for text in values.ravel().tolist() for part in (struct.pack("<I", len(text)), text))
    return values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes()
