"""TensorFlow's messages of values: a TensorProto as an array and back, tf.Examples as the columns of a signature."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..engine.bundles.manifest import Signature
from ..engine.graphs.graph import FieldSpec
from .api import ColumnValues
from .protos import POOL, Message, TensorProto
from .tensor_columns import Allowance, beyond_tensors, column_of, invalid, may_be_missing, numpy_dtype

# DataType's name, the dtype, and the field of TensorProto that holds its values where the content does not.
_TYPES: Final = (
    ("DT_FLOAT", "float32", "float_val"),
    ("DT_DOUBLE", "float64", "double_val"),
    ("DT_HALF", "float16", "half_val"),
    ("DT_BFLOAT16", "bfloat16", "half_val"),
    ("DT_INT8", "int8", "int_val"),
    ("DT_INT16", "int16", "int_val"),
    ("DT_INT32", "int32", "int_val"),
    ("DT_INT64", "int64", "int64_val"),
    ("DT_UINT8", "uint8", "int_val"),
    ("DT_UINT16", "uint16", "int_val"),
    ("DT_UINT32", "uint32", "uint32_val"),
    ("DT_UINT64", "uint64", "uint64_val"),
    ("DT_BOOL", "bool", "bool_val"),
    ("DT_COMPLEX64", "complex64", "scomplex_val"),
    ("DT_COMPLEX128", "complex128", "dcomplex_val"),
    ("DT_STRING", "string", "string_val"),
)
_NUMBERS: Final = dict(POOL.FindEnumTypeByName("tensorflow.DataType").values_by_name)
_NAMES: Final = {value.number: name for name, value in _NUMBERS.items()}
_BY_NUMBER: Final = {_NUMBERS[name].number: (dtype, field) for name, dtype, field in _TYPES}
_BY_DTYPE: Final = {dtype: (_NUMBERS[name].number, field) for name, dtype, field in _TYPES}
_VALUES: Final = frozenset(field for _, _, field in _TYPES)
_PARTS: Final = {"complex64": "<f4", "complex128": "<f8", "float16": "<u2", "bfloat16": "<u2"}
_POINTER: Final = 8
_MOST_AXES: Final = 32
"""Axes that a tensor may have: numpy's limit, and more than TensorFlow's 254 would be of use."""


def data_type(dtype: str) -> int:
    """The number of DataType for the dtype of a field's values; DT_INVALID where TensorFlow has none."""
    return int(_BY_DTYPE.get(dtype, (0, ""))[0])


# --- TensorProto ---


def to_array(tensor: Message, name: str, allowance: Allowance) -> NDArray[Any]:
    """The values of a TensorProto; text as an object array of bytes. It may share the message's memory, read-only.

    As in TensorFlow the content goes before the typed field, the last value of a field is repeated where the shape has
    more, and zeros stand for no values at all.

    Args:
        tensor: The message.
        name: Of the input, for errors.
        allowance: What repeated values are taken from.

    Raises:
        RequestError: INVALID_ARGUMENT: the values do not fit the type or the shape. RESOURCE_EXHAUSTED: it claims more
            than is allowed.
    """
    if tensor.dtype not in _BY_NUMBER:
        kind = _NAMES.get(tensor.dtype, tensor.dtype)
        raise invalid(f"input {name!r:.80} has the type {kind}, which is not served")
    dtype, field = _BY_NUMBER[tensor.dtype]
    shape = _shape(tensor.tensor_shape, name)
    count = math.prod(shape)
    if tensor.tensor_content:
        return shaped(_content(tensor.tensor_content, dtype, count, name), shape, name)
    values = _field(getattr(tensor, field), dtype, name)
    if not len(values) and count:
        other = next((each.name for each, _ in tensor.ListFields() if each.name in _VALUES), None)
        if other is not None:
            raise invalid(f"input {name!r:.80} has the type {_NAMES[tensor.dtype]}, but its values are in {other}")
    if len(values) > count:
        raise invalid(f"input {name!r:.80} has {len(values)} values for the shape {list(shape)}, which has {count}")
    if len(values) < count:
        allowance.take(count * values.itemsize, name)
        last = values[-1] if len(values) else (b"" if values.dtype == object else values.dtype.type(0))
        repeated = np.empty(count, values.dtype)
        repeated[: len(values)] = values
        repeated[len(values) :] = last
        values = repeated
    return shaped(values, shape, name)


def _shape(message: Message, name: str) -> tuple[int, ...]:
    shape = tuple(axis.size for axis in message.dim)
    if message.unknown_rank or any(size < 0 for size in shape):
        raise invalid(f"input {name!r:.80} has no shape: each of its axes has a size of at least 0")
    return shape


def shaped(values: NDArray[Any], shape: tuple[int, ...], name: str) -> NDArray[Any]:
    """Values as an array of a shape, which has as many, and the rows first.

    Raises:
        RequestError: INVALID_ARGUMENT: numpy has no array of that shape, or it has no axis of rows.
    """
    if not shape:
        raise invalid(f"input {name!r:.80} is a single value", fix="its first axis is the rows: [1] for one row")
    if len(shape) > _MOST_AXES:
        raise invalid(f"input {name!r:.80} has {len(shape)} axes, more than {_MOST_AXES}")
    try:
        return values.reshape(shape)
    except (ValueError, OverflowError):  # sizes beyond what memory has addresses for, one of them 0
        raise invalid(f"input {name!r:.80} has a shape that no array can have") from None


def _content(content: bytes, dtype: str, count: int, name: str) -> NDArray[Any]:
    """Values from their bytes."""
    if dtype == "string":
        return _texts(content, count, name)
    kind = np.dtype(np.uint8) if dtype == "bool" else numpy_dtype(dtype)
    if len(content) != count * kind.itemsize:
        raise invalid(f"input {name!r:.80} has {len(content)} bytes of content for {count} values of {dtype}")
    values = np.frombuffer(content, kind)
    return values != 0 if dtype == "bool" else values


def _texts(content: bytes, count: int, name: str) -> NDArray[Any]:
    """Texts as TensorFlow packs them: all lengths as varints, then all bytes."""
    lengths: list[int] = []
    length = shift = position = 0
    while len(lengths) < count and position < len(content) and shift < 35:
        byte = content[position]
        position += 1
        length |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            lengths.append(length)
            length = shift = 0
    if len(lengths) != count or position + sum(lengths) != len(content):
        raise invalid(f"input {name!r:.80} has a content that is not {count} texts")
    values = np.empty(count, object)
    for index, length in enumerate(lengths):
        values[index] = content[position : position + length]
        position += length
    return values


def _field(field: Sequence[Any], dtype: str, name: str) -> NDArray[Any]:
    """Values from a repeated field."""
    if dtype == "string":
        values = np.empty(len(field), object)
        values[:] = field[:]
        return values
    if dtype in ("complex64", "complex128"):
        if len(field) % 2:
            raise invalid(f"input {name!r:.80} has half a complex number")
        return np.fromiter(field, _PARTS[dtype], len(field)).view(dtype)
    kind = numpy_dtype(dtype)
    if kind.itemsize >= 4 or dtype == "bool":
        return np.fromiter(field, kind, len(field))
    numbers = np.fromiter(field, np.int32, len(field))  # narrow ones, which a message cannot hold
    stored = np.dtype(_PARTS.get(dtype, kind))
    bounds = np.iinfo(stored)
    if ((numbers < bounds.min) | (numbers > bounds.max)).any():
        raise invalid(f"input {name!r:.80} has a value that is not of {dtype}")
    return numbers.astype(stored).view(kind)


def to_tensor_proto(values: NDArray[Any], name: str) -> Message:
    """An array as a TensorProto, its values in the typed field, as clients in every language read them.

    Args:
        values: Numbers, or objects that are bytes.
        name: Of the output, for errors.

    Raises:
        RequestError: FAILED_PRECONDITION: TensorFlow has no such type.
    """
    dtype = "string" if values.dtype == object else values.dtype.name
    if dtype not in _BY_DTYPE:
        raise beyond_tensors(f"output {name!r:.80} is {dtype}, for which TensorFlow has no type")
    number, field = _BY_DTYPE[dtype]
    tensor = TensorProto(dtype=number)
    for size in values.shape:
        tensor.tensor_shape.dim.add(size=size)
    flat = np.ascontiguousarray(values).ravel()
    if dtype in ("float32", "float64", "complex64", "complex128"):
        # A packed field of floats is their bytes: a hundred times faster than one Python float each.
        content = flat.astype(flat.dtype.newbyteorder("<"), copy=False).tobytes()
        key = TensorProto.DESCRIPTOR.fields_by_name[field].number << 3 | 2
        tensor.MergeFromString(_varint(key) + _varint(len(content)) + content)
    else:
        getattr(tensor, field).extend((flat.view(_PARTS[dtype]) if dtype in _PARTS else flat).tolist())
    return tensor


def _varint(number: int) -> bytes:
    digits = bytearray()
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    return bytes((*digits, number))


# --- tf.Example ---

_KINDS: Final = {"bytes_list": "string", "float_list": "float32", "int64_list": "int64"}


def example_columns(
    message: Message, signature: Signature, allowance: Allowance
) -> tuple[dict[str, ColumnValues], int]:
    """The columns of an Input message, and how many rows they have: one for each example.

    A feature that an example does not have, or has without values, is missing: None, or the signature's default; but
    an empty list for an input of lists. What no example has is left out where the signature has a default for it. An
    example's feature goes before the context's.

    Raises:
        RequestError: INVALID_ARGUMENT: there is no example, or a feature is of another type or length than the
            signature's. RESOURCE_EXHAUSTED: the rows have far more cells than were sent.
    """
    kind = message.WhichOneof("kind")
    if kind is None:
        raise invalid("the request has no input")
    listed = getattr(message, kind)
    rows = [example.features.feature for example in listed.examples]
    if not rows:
        raise invalid("the request has no examples")
    contexts = []
    if kind == "example_list_with_context":
        contexts = [listed.context.features.feature]
        allowance.take(len(rows) * listed.context.ByteSize(), "context")
    allowance.take(len(rows) * len(signature.inputs) * _POINTER, "examples")
    columns: dict[str, ColumnValues] = {}
    for name, spec in signature.inputs.items():
        default = signature.defaults.get(name)
        values: list[Any] = []
        present = False
        for index, row in enumerate(rows):
            # `in` first: to ask a map of messages for a key makes the entry.
            features = next((each for each in (row, *contexts) if name in each), None)
            value = None if features is None else _feature(features[name], spec, name, index)
            present = present or value is not None
            values.append(default if value is None else value)
        if not present and name in signature.defaults:
            continue
        columns[name] = values if may_be_missing(spec) else _array(values, spec, name)
    return columns, len(rows)


def _feature(feature: Message, spec: FieldSpec, name: str, row: int) -> Any:
    """The value of one row; None for none."""
    kind = feature.WhichOneof("kind")
    values = getattr(feature, kind).value if kind else ()
    if not len(values):
        return [] if kind and spec.ragged else None
    count = math.prod(spec.shape)
    if not spec.ragged and len(values) != count:
        raise invalid(f"feature {name!r:.80} has {len(values)} values in row {row}, the model reads {count}")
    dtype = _KINDS[kind]
    if spec.value_dtype == "string":
        if dtype != "string":
            raise invalid(f"feature {name!r:.80} is a list of {dtype} in row {row}, the model reads string")
        array = np.empty(len(values), object)
        array[:] = values[:]
    elif dtype == "string":
        raise invalid(f"feature {name!r:.80} is a list of bytes in row {row}, the model reads {spec.value_dtype}")
    else:
        array = np.fromiter(values, dtype, len(values))
        if spec.value_dtype == "bool" and dtype == "int64":  # an Example has no bool
            if ((array != 0) & (array != 1)).any():
                raise invalid(f"feature {name!r:.80} is neither 0 nor 1 in row {row}, the model reads bool")
            array = array == 1
    flat = FieldSpec(spec.value_dtype)
    if spec.ragged:
        column = column_of(array, flat, name)
        return column if isinstance(column, list) else column.tolist()
    if may_be_missing(spec):
        value = column_of(array, flat, name)[0]
        return value.item() if isinstance(value, np.generic) else value
    return column_of(array.reshape(1, *spec.shape), spec, name)[0]


def _array(values: list[Any], spec: FieldSpec, name: str) -> NDArray[Any]:
    """Rows of an input that is an array, none of which may be missing."""
    for row, value in enumerate(values):
        if value is None:
            raise invalid(f"feature {name!r:.80} is missing in row {row}, which an array cannot say")
    return np.array(values, numpy_dtype(spec.dtype)).reshape(len(values), *spec.shape)
