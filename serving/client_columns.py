"""A client's columns: what a signature reads, checked before it is sent, as JSON and as tensors."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, TypeAlias

from ..errors import InputError
from .times import IN_WORDS, listed

Plain: TypeAlias = Any
"""A value as JSON has it, None where missing; text may be bytes."""

_SHORT: Final = {"half": "float16", "float": "float32", "double": "float64"}
_IF_A_TIME: Final = "; for a date or timestamp a datetime, or milliseconds since 1970 (UTC)"
_LARGEST_WHOLE: Final = 2**64
_LARGEST_EXACT: Final = 2**53  # whole numbers up to it are floats


@dataclass(frozen=True)
class InputType:
    """What a model reads, or gives, under a name.

    Attributes:
        name: Of the column.
        dtype: Of its values: "int64", "string".
        shape: Of one row's value; -1: any length.
        time: Which time its whole numbers stand for: "date", "timestamp"; "": none, or the server does not say.
    """

    name: str
    dtype: str
    shape: tuple[int, ...] = ()
    time: str = ""

    def __str__(self) -> str:
        sizes = ", ".join("any" if size < 0 else str(size) for size in self.shape)
        words = f"{self.dtype}[{sizes}]" if self.shape else self.dtype
        return f"{words} (a {self.time})" if self.time else words


@dataclass(frozen=True)
class ServedSignature:
    """A signature, as a server describes it.

    Attributes:
        inputs: By name.
        outputs: By name, in order.
    """

    inputs: Mapping[str, InputType] = field(default_factory=dict)
    outputs: Mapping[str, InputType] = field(default_factory=dict)


def tensor_type(name: str, data_type: str, sizes: Sequence[int]) -> InputType:
    """From TensorFlow's words: a type like "DT_INT64", and sizes with the rows first."""
    dtype = data_type.removeprefix("DT_").lower()
    return InputType(name, _SHORT.get(dtype, dtype), tuple(sizes[1:]))


def plain(value: Any) -> Plain:  # Any: what a row holds
    """A value without the types of numpy, Arrow and pandas, and decimals as numbers; NaN, NaT and NA are missing."""
    if hasattr(value, "to_pylist"):  # Arrow's
        value = listed(value)
    elif hasattr(value, "tolist"):
        if _has_times_of_numpy(value):
            value = value.astype("M8[ms]")  # of nanoseconds numpy's list has bare numbers
        value = value.tolist()
    elif isinstance(value, Decimal):
        value = _number(value)
    if (isinstance(value, float) and math.isnan(value)) or type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def _number(value: Decimal) -> int | float | None:
    """A decimal as a number; a whole one exactly."""
    if value.is_nan():
        return None
    return int(value) if value.is_finite() and abs(value) <= _LARGEST_WHOLE and value % 1 == 0 else float(value)


def _has_times_of_numpy(value: Any) -> bool:  # Any: what has a `tolist`
    return getattr(getattr(value, "dtype", None), "kind", "") == "M" and type(value).__module__ == "numpy"


def json_ready(value: Plain) -> Any:  # Any: JSON
    """A plain value with bytes as TensorFlow Serving's base64."""
    if isinstance(value, bytes):
        return {"b64": b64encode(value).decode()}
    return [json_ready(item) for item in value] if isinstance(value, list) else value


def check(values: Sequence[Plain], of: InputType, rows: Sequence[int] | None = None) -> None:
    """Pass, where each value is one that the model reads.

    Args:
        values: One a row.
        of: What it reads.
        rows: Which row each is of; None: they are counted.

    Raises:
        InputError: One is not; the column, its dtype and the row are named.
    """
    family = _FAMILIES.get(of.dtype)
    if family is None or (not of.shape and _KINDS[family].issuperset(map(type, values)) and not _needs_look(of.dtype)):
        return
    for at, value in enumerate(values):
        problem = _problem(value, of, of.shape)
        if problem:
            row = at if rows is None else rows[at]
            raise InputError(f"column {of.name!r:.80} is {of}, row {row} has {problem}", fix=f"send {_wanted(of)}")


_FAMILIES: Final[Mapping[str, str]] = {
    "string": "string",
    "bool": "bool",
    **{f"{family}{bits}": family for family in ("int", "uint") for bits in (8, 16, 32, 64)},
    **dict.fromkeys(("float16", "bfloat16", "float32", "float64"), "float"),
}
"""What the dtypes that are checked have in common; a server may say any other."""
_KINDS: Final[Mapping[str, frozenset[type]]] = {
    "string": frozenset({str, bytes, type(None)}),
    "bool": frozenset({bool, type(None)}),
    "int": frozenset({int, type(None)}),
    "uint": frozenset({int, type(None)}),
    "float": frozenset({int, float, type(None)}),
}
_WANTED: Final = {
    "string": "text",
    "bool": "true or false",
    "int": "whole numbers in its range",
    "uint": "whole numbers in its range",
    "float": "numbers",
}


def _wanted(of: InputType) -> str:
    if of.time:
        return f"a datetime or date, or {IN_WORDS}"
    return f"{_WANTED[_FAMILIES[of.dtype]]}{_IF_A_TIME if of.dtype == 'int64' else ''}"


def _needs_look(dtype: str) -> bool:
    return "int" in dtype  # for its range


def _problem(value: Plain, of: InputType, shape: tuple[int, ...]) -> str:
    """What is wrong with a value of a shape; "": nothing."""
    if value is None or (isinstance(value, dict) and value.keys() == {"b64"} and of.dtype == "string"):
        return ""
    if not shape:
        if isinstance(value, list) and len(value) == 1:  # a scalar may lie in an axis of its own
            value = value[0]
        return _scalar_problem(value, of.dtype)
    if not isinstance(value, list):
        return f"{said(value)}, which is not a list"
    if shape[0] >= 0 and len(value) != shape[0]:
        return f"{len(value)} values"
    return next(filter(None, (_problem(item, of, shape[1:]) for item in value)), "")


def _scalar_problem(value: Plain, dtype: str) -> str:
    family = _FAMILIES[dtype]
    if type(value) is float and family in ("int", "uint") and value.is_integer():
        value = int(value)
    if type(value) not in _KINDS[family]:
        return said(value)
    if family in ("int", "uint") and value is not None:
        bits = int(dtype[len(family) :]) - (family == "int")
        if not (-(2**bits) if family == "int" else 0) <= value < 2**bits:
            return f"{said(value)}, which does not fit"
    return ""


def said(value: Plain) -> str:
    """A value in an error's words."""
    if isinstance(value, str | bytes):
        return f"the text {value!r:.60}"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if value is None or isinstance(value, bool | int | float):
        return f"{value!r:.60}"
    return f"a {type(value).__name__}"


# --- columns as tensors ---


@dataclass(frozen=True)
class ColumnTensor:
    """A column as the Open Inference Protocol has it.

    Attributes:
        name: Of the column.
        datatype: "INT64", "BYTES".
        shape: The rows first.
        content: Little-endian bytes; None: `data` has the values.
        data: Text in JSON, None where missing.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    content: bytes | None
    data: list[Any] | None = None  # Any: JSON


def column_tensor(values: Any, of: InputType) -> ColumnTensor:  # Any: an array, or plain values
    """A checked column as a tensor.

    Raises:
        InputError: A tensor cannot hold it: lists of several lengths, a missing boolean.
    """
    import numpy as np

    from .infer_tensors import datatype, to_raw
    from .tensor_columns import numpy_dtype

    if of.dtype not in _FAMILIES:
        raise InputError(f"column {of.name!r:.80} is {of}, which is no tensor here", fix='use transport="json"')
    if of.dtype == "string":
        return _text_tensor(values, of)
    dtype = numpy_dtype(of.dtype)
    array: Any = values
    if not hasattr(values, "dtype"):
        try:  # by its dtype, without which numpy would make floats of large whole numbers
            array = np.array(values, dtype if dtype.kind != "b" else object)
        except TypeError:  # a missing one
            array = np.array(values, object)
        except ValueError:
            raise _beyond(of, "lists of several lengths, or a missing one") from None
    if array.dtype == object:
        flat = array.ravel().tolist()
        if any(isinstance(item, list) for item in flat):
            raise _beyond(of, "lists of several lengths, or a missing one")
        if None in flat:
            if dtype.kind == "b":
                raise _beyond(of, "a missing value")
            if any(isinstance(item, int) and abs(item) > _LARGEST_EXACT for item in flat):
                raise _beyond(of, "a missing value, and numbers beyond 2^53")
            array = np.array([np.nan if item is None else item for item in flat], float).reshape(array.shape)
    if array.dtype.kind == "f" and dtype.kind in "iu":
        dtype = array.dtype  # the server reads whole numbers, and NaN as missing
    array = array.astype(dtype)
    if array.size == 0 and len(array):
        raise _beyond(of, "empty lists")
    return ColumnTensor(of.name, datatype(array.dtype.name, of.name), array.shape, to_raw(array))


def _text_tensor(values: Any, of: InputType) -> ColumnTensor:
    import numpy as np

    from .infer_tensors import to_raw

    lists = plain(values)
    shape = [len(lists)]
    flat: list[Any] = lists
    for size in of.shape:
        lengths = {len(item) if isinstance(item, list) else -1 for item in flat}
        if len(lengths) > 1 or lengths <= {-1, 0} or (size >= 0 and lengths != {size}):
            raise _beyond(of, "lists of several lengths, empty or missing lists")
        shape.append(lengths.pop())
        flat = [each for item in flat for each in item]
    flat = [item[0] if isinstance(item, list) else item for item in flat]
    if None in flat:
        texts = [item.decode() if isinstance(item, bytes) else item for item in flat]
        return ColumnTensor(of.name, "BYTES", tuple(shape), None, texts)
    encoded = np.empty(len(flat), object)
    encoded[:] = [item if isinstance(item, bytes) else item.encode() for item in flat]
    return ColumnTensor(of.name, "BYTES", tuple(shape), to_raw(encoded))


def _beyond(of: InputType, what: str) -> InputError:
    return InputError(f"column {of.name!r:.80} has {what}, which a tensor cannot hold", fix='use transport="json"')
