"""Host ops: what XLA cannot do, each with a kernel for an Arrow batch and one for a single row, tested equal."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...data.types import is_list
from ...errors import InputError
from . import (
    analysis_results,
    arrays,
    dates,
    fused,
    text,
    tokens,
    words,
)
from .columns import (
    ARROW,
    INT32,
    Assets,
    Kernel,
    Params,
    codes_of,
    is_missing,
    present,
    too_wide,
)


@dataclass(frozen=True)
class HostOp:
    """An op: given the node's params and assets, each maker prepares once and returns the kernel that runs."""

    batch: Callable[[Params, Assets], Kernel]
    row: Callable[[Params, Assets], Kernel]


def host_op(name: str) -> HostOp:
    """The op of that name.

    Raises:
        InputError: This release has none: the bundle is from a newer one.
    """
    if name not in _OPS:
        raise InputError(
            f"no host op {name!r:.80} in this release", fix="upgrade drivetrain, or write the bundle again"
        )
    return _OPS[name]


# --- values and valid: the way from a column to the device ----------------------------------------------------------


_ALL_FIT: Final = 65504.0  # within float16, hence in every float


def _values_batch(params: Params, assets: Assets) -> Kernel:
    dtype, name = np.dtype(params["dtype"]), str(params["column"])
    time = bool(params.get("time"))

    def kernel(column: pa.Array) -> NDArray[Any]:
        if pa.types.is_floating(column.type):
            with np.errstate(over="ignore"):  # beyond float32 is an infinity, as XLA would have it
                return np.asarray(column.to_numpy(zero_copy_only=False).astype(dtype))
        filled = column.fill_null(False if dtype.kind == "b" else 0) if column.null_count else column
        values = filled.to_numpy(zero_copy_only=False)
        if dtype == np.int32 and len(values) and not (int(values.min()) in INT32 and int(values.max()) in INT32):
            row = int(np.flatnonzero((values < INT32.start) | (values >= INT32.stop))[0])
            raise too_wide(name, row, values[row], time=time)
        values = values.astype(dtype)
        if dtype.kind == "f" and column.null_count:
            values[~present(column)] = np.nan
        return np.asarray(values)

    return kernel


def _values_row(params: Params, assets: Assets) -> Kernel:
    dtype, name = np.dtype(params["dtype"]), str(params["column"])
    missing: object = math.nan if dtype.kind == "f" else False if dtype.kind == "b" else 0
    number, narrow, time = dtype.type, dtype == np.int32, bool(params.get("time"))

    def floating(value: Any) -> object:
        if value is None:
            return missing
        if -_ALL_FIT < value < _ALL_FIT:
            return number(value)
        # A whole number goes by way of int64, as in a batch; by way of Python's float it would be rounded twice.
        with np.errstate(over="ignore"):
            return np.asarray(value).astype(dtype)[()]

    def whole(value: Any) -> object:
        if value is None:
            return missing
        if narrow and value not in INT32:
            raise too_wide(name, None, value, time=time)
        return value

    return floating if dtype.kind == "f" else whole


def _valid_batch(params: Params, assets: Assets) -> Kernel:
    return present


def _valid_row(params: Params, assets: Assets) -> Kernel:
    return lambda value: not is_missing(value)


def _column_batch(params: Params, assets: Assets) -> Kernel:
    kind = ARROW[params["dtype"]]

    def kernel(values: NDArray[Any], valid: NDArray[np.bool_] | None = None) -> pa.Array:
        return pa.array(values, mask=None if valid is None else ~valid).cast(kind)

    return kernel


def _column_row(params: Params, assets: Assets) -> Kernel:
    kind = {"int64": int, "float64": float, "bool": bool}[params["dtype"]]
    return lambda value, valid=True: kind(value) if valid else None


def _require_batch(params: Params, assets: Assets) -> Kernel:
    def kernel(values: NDArray[Any], valid: NDArray[np.bool_]) -> NDArray[Any]:
        if not valid.all():
            raise _required(params, int(np.argwhere(~valid)[0][0]))
        return values

    return kernel


def _require_row(params: Params, assets: Assets) -> Kernel:
    def kernel(value: object, valid: bool | NDArray[np.bool_]) -> object:
        if valid is not True and not np.all(valid):  # numpy takes 6 microseconds to say so of one value
            raise _required(params, None)
        return value

    return kernel


def _required(params: Params, row: int | None) -> InputError:
    at = "" if row is None else f" in row {row}"
    name = params["output"]
    return InputError(
        f"output {name!r} has a missing value{at}, and its {params['dtype']} has no room for one",
        fix=f"in the preprocessing function, ops.fill_missing what {name!r} is made of, or cast it to float32",
    )


# --- fill: a missing value gets one ---------------------------------------------------------------------------------


def _fill_batch(params: Params, assets: Assets) -> Kernel:
    value, kind = params["value"], ARROW[params["dtype"]]

    def kernel(column: pa.Array) -> pa.Array:
        if is_list(column.type):
            return column.fill_null(pa.scalar(value, kind)) if column.null_count else column
        if pa.types.is_dictionary(column.type):
            codes, words = codes_of(column)
            if (codes == len(words)).any() or words.null_count:
                filled = pa.chunked_array([words, pa.array([value], words.type)]).combine_chunks().fill_null(value)
                return filled.take(pa.array(codes))
            return column
        if kind != pa.float64():
            column = column if column.type == kind else column.cast(kind)
            return column.fill_null(value) if column.null_count else column
        values = column.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)  # a null is NaN
        nan = np.isnan(values)
        if nan.any():
            return pa.array(np.where(nan, value, values))
        return column if column.type == kind else pa.array(values)

    return kernel


def _fill_row(params: Params, assets: Assets) -> Kernel:
    value, is_float = params["value"], params["dtype"] == "float64"
    if is_float:
        value = float(value)
        return lambda entry: value if entry is None or entry != entry else float(entry)  # NaN
    return lambda entry: value if entry is None else entry


_OPS: Final = {
    "values": HostOp(_values_batch, _values_row),
    "valid": HostOp(_valid_batch, _valid_row),
    "column": HostOp(_column_batch, _column_row),
    "require": HostOp(_require_batch, _require_row),
    "fill": HostOp(_fill_batch, _fill_row),
    "lookup": HostOp(text.lookup_batch, text.lookup_row),
    "hash": HostOp(text.hash_batch, text.hash_row),
    "compare": HostOp(text.compare_batch, text.compare_row),
    "choose": HostOp(text.choose_batch, text.choose_row),
    "parse": HostOp(text.parse_batch, text.parse_row),
    "text": HostOp(text.text_batch, text.text_row),
    "flatten": HostOp(arrays.flatten_batch, arrays.flatten_row),
    "unflatten": HostOp(arrays.unflatten_batch, arrays.unflatten_row),
    "dense": HostOp(arrays.dense_batch, arrays.dense_row),
    "asset_size": HostOp(text.size_of, text.size_of),
    "multi_hot": HostOp(arrays.multi_hot_batch, arrays.multi_hot_row),
    "listed": HostOp(arrays.listed_batch, arrays.listed_row),
    **{name: HostOp(words.batch_of(make), words.row_of(make, plain)) for name, (make, plain) in words.OPS.items()},
    "split": HostOp(words.batch_of(words.split), words.split_row),
    "translate": HostOp(words.batch_of(words.translate), words.translate_row),
    "fused": HostOp(partial(fused.fused_batch, host_op), partial(fused.fused_row, host_op)),
    "concat": HostOp(words.concat_batch, words.concat_row),
    "join": HostOp(words.join_batch, words.join_row),
    "list_count": HostOp(tokens.count_batch, tokens.count_row),
    "ngrams": HostOp(tokens.ngrams_batch, tokens.ngrams_row),
    "distinct": HostOp(tokens.distinct_batch, tokens.distinct_row),
    "list_affine": HostOp(tokens.affine_batch, tokens.affine_row),
    "list_buckets": HostOp(tokens.buckets_batch, tokens.buckets_row),
    "modulo": HostOp(tokens.modulo_batch, tokens.modulo_row),
    "terms": HostOp(tokens.terms_batch, tokens.terms_row),
    "tfidf": HostOp(tokens.tfidf_batch, tokens.tfidf_row),
    "per_key": HostOp(analysis_results.per_key_batch, analysis_results.per_key_row),
    "fill_learnt": HostOp(analysis_results.fill_learnt_batch, analysis_results.fill_learnt_row),
    "timestamp_part": HostOp(dates.part_batch, dates.part_row),
    "words": HostOp(analysis_results.words_batch, analysis_results.words_row),
}
