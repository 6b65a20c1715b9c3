"""Arrays of a request as the columns that a signature reads, and a model's outputs as arrays that a message can hold.

Text is an object array of bytes here, as it lies in messages.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..engine.bundles.manifest import Signature
from ..engine.graphs.graph import FieldSpec
from ..engine.graphs.nodes import COLUMN_DTYPES
from ..errors import suggest
from .api import ColumnValues, InferenceAnswer, RequestError, StatusCode

_COMPARED: Final = 100  # names of a request that are looked at for a misspelt one


class Allowance:
    """How many bytes a request may make of what it only claims: a value repeated, rows of nothing.

    What was sent is bounded by the largest message that the server takes; this is the same bound for the rest, all
    tensors of a request together.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._left = size

    def take(self, size: int, name: str) -> None:
        """Use up some.

        Raises:
            RequestError: RESOURCE_EXHAUSTED: there is not that much left.
        """
        self._left -= size
        if self._left < 0:
            raise RequestError(
                StatusCode.RESOURCE_EXHAUSTED,
                f"input {name!r:.80} claims more values than were sent, and more than {self.size:,} bytes of them",
                fix="send the values, in several requests if need be",
            )


def invalid(message: str, fix: str | None = None) -> RequestError:
    """The error for a request that means nothing, or not to this model."""
    return RequestError(StatusCode.INVALID_ARGUMENT, message, fix=fix)


@cache
def numpy_dtype(name: str) -> np.dtype[Any]:
    """A numeric dtype by JAX's name, those that numpy itself does not have included.

    Raises:
        TypeError: There is no such dtype.
    """
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        if not hasattr(ml_dtypes, name):
            raise
        scalar: type[np.generic] = getattr(ml_dtypes, name)  # untyped, it costs mypy more than many a module
        return np.dtype(scalar)


# --- what comes in ---


def columns_of(tensors: Mapping[str, NDArray[Any]], signature: Signature) -> tuple[dict[str, ColumnValues], int]:
    """The columns of a request, and how many rows they have.

    Args:
        tensors: By input's name; each of (rows, …).
        signature: What is read; tensors of other names are ignored.

    Raises:
        RequestError: INVALID_ARGUMENT: a tensor is missing, or of another shape or type than the signature's.
    """
    read = {name: values for name, values in tensors.items() if name in signature.inputs}
    columns = {name: column_of(values, signature.inputs[name], name) for name, values in read.items()}
    return columns, rows_of(columns, signature, tensors)


def refuse_misspelt(names: Collection[str], signature: Signature) -> None:
    """What is not read is no error, unless it looks like an input that is missing.

    Args:
        names: What was sent.
        signature: What is read.

    Raises:
        RequestError: INVALID_ARGUMENT: something was misspelt; both names are said.
    """
    absent = [name for name in signature.inputs if name not in names and name not in signature.defaults]
    if not absent:
        return
    unread = [name for name in names if name not in signature.inputs][:_COMPARED]
    for name in absent[:_COMPARED]:
        for close in difflib.get_close_matches(name, unread, 1):
            raise invalid(
                f"column {name!r:.80} is missing, and {close!r:.80} is not read", f"did you mean {name!r:.80}?"
            )


def rows_of(columns: Mapping[str, ColumnValues], signature: Signature, sent: Collection[str]) -> int:
    """How many rows the columns of a request have.

    Args:
        columns: Those that are read.
        signature: By which.
        sent: The names of all that were sent.

    Raises:
        RequestError: INVALID_ARGUMENT: an input is missing, or they differ in length.
    """
    refuse_misspelt(sent, signature)
    missing = [f"{name!r:.80}" for name in signature.inputs if name not in columns and name not in signature.defaults]
    if missing:
        which = f"input {missing[0]} is" if len(missing) == 1 else f"inputs {', '.join(missing)} are"
        raise invalid(f"{which} missing", fix=suggest("", [*columns], "the request has"))
    if not columns:
        raise invalid("the request has no input that the signature reads", fix=suggest("", [*signature.inputs]))
    (first, values), *others = columns.items()
    for name, other in others:
        if len(other) != len(values):
            raise invalid(f"input {name!r:.80} has {len(other)} rows, {first!r:.80} has {len(values)}")
    return len(values)


def column_of(values: NDArray[Any], spec: FieldSpec, name: str) -> ColumnValues:
    """One tensor as a column: an array of the signature's dtype; text, and what has missing values, as a list.

    A scalar may lie in an axis of its own, as Keras has it.

    Raises:
        RequestError: INVALID_ARGUMENT: it is of another shape or kind, or a value would change.
    """
    if values.ndim == 2 and values.shape[1] == 1 and not spec.shape and not spec.ragged:
        values = values[:, 0]
    shape = (*(("n",) if spec.ragged else ()), *spec.shape)
    actual = values.shape[1:]
    if values.ndim != 1 + len(shape) or (
        actual != shape  # only a size that is any differs
        and any(isinstance(size, int) and size != other for size, other in zip(shape, actual, strict=True))
    ):
        expected = ", ".join(map(str, ("rows", *shape)))
        raise invalid(f"input {name!r:.80} has shape {list(values.shape)}, the model reads [{expected}]")
    if spec.value_dtype == "string":
        return _text(values, name)
    return _cast(values, spec, name)


def _text(values: NDArray[Any], name: str) -> list[Any]:
    """Text as (nested) lists."""
    if values.dtype != object:
        raise invalid(f"input {name!r:.80} is {values.dtype}, the model reads string")
    flat: list[str] = []
    try:
        flat.extend(value.decode() for value in values.ravel().tolist())
    except UnicodeDecodeError:
        row = len(flat) // max(values.size // len(values), 1)
        raise invalid(f"input {name!r:.80} is not valid UTF-8 in row {row}") from None
    if values.ndim == 1:
        return flat
    texts = np.empty(len(flat), object)
    texts[:] = flat
    nested: list[Any] = texts.reshape(values.shape).tolist()
    return nested


def _cast(values: NDArray[Any], spec: FieldSpec, name: str) -> ColumnValues:
    """Numbers as the dtype of the signature, no value changed; whole numbers of which some are missing as a list."""
    dtype = numpy_dtype(spec.value_dtype)
    if values.dtype == dtype:
        return values
    if object in (values.dtype, dtype) or bool in (values.dtype, dtype):
        kind = "string" if values.dtype == object else values.dtype
        raise invalid(f"input {name!r:.80} is {kind}, the model reads {spec.value_dtype}")
    if _holds_all(dtype, values.dtype):
        return values.astype(dtype)
    missing = None
    if spec.dtype == "int64" and dtype.kind == "i" and _is_float(values.dtype):
        nan = np.isnan(values)
        if nan.any():  # as a column of floats enters one of integers elsewhere
            missing, values = nan, np.where(nan, 0, values)
    changed = changed_by(values, dtype)
    if changed.any():
        position = np.unravel_index(int(np.argmax(changed)), changed.shape)
        raise invalid(
            f"input {name!r:.80} has {values[position]!s} in row {position[0]}, which does not fit {spec.value_dtype}: "
            "the model reads that"
        )
    array = values.astype(dtype)
    return array if missing is None else [None if no else x for no, x in zip(missing, array.tolist(), strict=True)]


def _is_float(dtype: np.dtype[Any]) -> bool:
    """Whether it is a float, of ml_dtypes too, whose kind says nothing."""
    return dtype.kind == "f" or dtype.name in ("bfloat16", "float8_e5m2", "float8_e4m3fn")


_INTEGERS: Final = "iu"


def changed_by(values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[np.bool_]:
    """Which values a cast to a dtype would change; NaN stays NaN. No number is complex that was not, or the reverse."""
    source = values.dtype
    if (source.kind == "c") != (dtype.kind == "c"):
        return np.ones(values.shape, bool)
    if _holds_all(dtype, source):
        return np.zeros(values.shape, bool)
    with np.errstate(all="ignore"):
        if dtype.kind in _INTEGERS:
            return _beyond_integers(values, np.iinfo(dtype))
        cast = values.astype(dtype)
        if source.kind in _INTEGERS:
            return _rounded(values, cast.astype(np.float64))
        back = cast.astype(source)
        return np.asarray((back != values) & ~((back != back) & (values != values)))


@cache
def _holds_all(dtype: np.dtype[Any], source: np.dtype[Any]) -> bool:
    """Whether a cast to a dtype changes no value of another, whichever it is, nor makes a complex number of one."""
    wide_to_float = source.kind in _INTEGERS and source.itemsize == 8 and dtype.kind not in _INTEGERS
    is_alike = (source.kind == "c") == (dtype.kind == "c")
    return is_alike and np.can_cast(source, dtype, "safe") and not wide_to_float  # numpy calls int64 to float64 safe


def _beyond_integers(values: NDArray[Any], bounds: np.iinfo[Any]) -> NDArray[np.bool_]:
    """Which numbers an integer dtype does not have."""
    if values.dtype.kind in _INTEGERS:
        return np.asarray((values < bounds.min) | (values > bounds.max))
    numbers = values.astype(np.float64)
    above = float(bounds.max) + (bounds.max < 2**53)  # 2^n, which is outside; it is what 2^63 - 1 rounds to
    return np.asarray(~((numbers >= float(bounds.min)) & (numbers < above) & (np.floor(numbers) == numbers)))


def _rounded(integers: NDArray[Any], floats: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which integers are not the floats beside them, exactly."""
    changed: NDArray[np.bool_] = floats != integers.astype(np.float64)
    large = np.abs(floats) >= 2.0**53
    pairs = zip(floats[large].tolist(), integers[large].tolist(), strict=True)
    changed[large] = [not np.isfinite(each) or int(each) != integer for each, integer in pairs]
    return changed


# --- what goes out ---


def dense(values: NDArray[Any], spec: FieldSpec | None, name: str) -> NDArray[Any]:
    """An output as one array: numbers as they are, text as bytes of UTF-8, lists of one length as a further axis.

    Text that is missing is empty.

    Raises:
        RequestError: FAILED_PRECONDITION: a tensor cannot hold it: lists of several lengths, a missing number.
    """
    values = np.asarray(values)
    if values.dtype.kind in "US":
        values = values.astype(object)
    if values.dtype != object:
        return values
    dtype = spec.value_dtype if spec is not None else None
    if (spec is not None and spec.ragged) or any(isinstance(each, list | tuple | np.ndarray) for each in values.flat):
        values = _stacked(values, name)
    flat = values.ravel().tolist()
    if dtype == "string" or (dtype is None and any(isinstance(each, str | bytes) for each in flat)):
        encoded = np.empty(len(flat), object)
        encoded[:] = [
            each if isinstance(each, bytes) else b"" if each is None else str(each).encode(errors="replace")
            for each in flat
        ]
        return encoded.reshape(values.shape)
    if None in flat:
        if dtype is not None and _is_float(numpy_dtype(dtype)):
            flat = [np.nan if each is None else each for each in flat]
        else:
            row = flat.index(None) // max(values.size // len(values), 1)
            raise beyond_tensors(f"output {name!r:.80} is missing in row {row}, which a tensor cannot say")
    return np.array(flat, numpy_dtype(dtype) if dtype else None).reshape(values.shape)


def _stacked(values: NDArray[Any], name: str) -> NDArray[Any]:
    """Lists, one a row, as an array of (rows, length, …)."""
    rows = [() if each is None else each for each in values.tolist()]
    if len({len(row) for row in rows}) > 1:
        raise beyond_tensors(f"output {name!r:.80} has lists of several lengths, which a tensor cannot hold")
    stacked = np.empty((len(rows), len(rows[0]) if rows else 0), object)
    for index, row in enumerate(rows):
        for position, value in enumerate(row):
            stacked[index, position] = value
    return stacked


def beyond_tensors(message: str) -> RequestError:
    """The error for an output that a protocol's tensors cannot hold."""
    return RequestError(
        StatusCode.FAILED_PRECONDITION, message, fix="ask over REST, whose JSON can, or for other outputs"
    )


def dense_outputs(answer: InferenceAnswer, signature: Signature) -> dict[str, NDArray[Any]]:
    """Every output of an answer as `dense` makes it."""
    return {name: dense(values, signature.outputs.get(name), name) for name, values in answer.outputs.items()}


def shown_shape(spec: FieldSpec) -> list[int]:
    """A field's shape with its rows first, as metadata shows it: -1 is any."""
    return [-1, *((-1,) if spec.ragged else ()), *spec.shape]


def may_be_missing(spec: FieldSpec) -> bool:
    """Whether rows of a field may be None: it is a column, not an array."""
    return spec.dtype in COLUMN_DTYPES
