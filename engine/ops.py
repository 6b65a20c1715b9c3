"""What a preprocessing function may call beside JAX itself: missing values, categories, scaling, analyzers.

An analyzer (`mean`, `quantiles`, `vocabulary` …) is a value of the whole training data: it is computed in a full pass
before anything is transformed, may be used in arithmetic like any array, and may look at columns that other analyzers
helped to make (that takes another pass). Analyzers see present, finite values only. Missing means null, and for floats
also NaN.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ..errors import InputError
from ._caller import caller
from ._tracing import bind_analyzer, bind_host, current
from .columns import Column, Fact, Size, both, isin, read, result

Array = Any  # a JAX array (a tracer while tracing): float columns and everything that has no missing value
Value = Any  # a Column or an Array
Columns = Mapping[str, Any]  # what a preprocessing function takes and gives: Column or Array by name

__all__ = [
    "Columns", "apply_buckets", "bucketize", "cast", "count", "fill_missing", "hash_buckets", "is_in", "is_missing",
    "max", "mean", "min", "min_max", "one_hot", "quantiles", "std", "sum", "var", "vocabulary", "where", "z_score",
]  # fmt: skip


# --- missing values and types ---------------------------------------------------------------------------------------


def fill_missing(x: Value, value: Any) -> Value:
    """`x` with `value` where it is missing: a constant, or an array such as `ops.mean(x)`.

    Returns:
        Text for text; else an array. Integers filled with a float become float32.

    Raises:
        InputError: Text is to be filled with a number, or numbers with text.
    """
    column = read(x, "given to fill_missing")
    column._check_readable()
    if (column.dtype == "string") != isinstance(value, str):
        wanted = "text" if column.dtype == "string" else "a number"
        raise InputError(
            f"column {column.name!r} takes {wanted}, not {value!r:.40}", fix=f"fill with {wanted}", where=caller()
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{value} is no value to fill with", fix="use a finite number", where=caller())
    if column.fact.handle is not None and isinstance(value, (str, bool, int, float)):
        return _fill_on_host(column, value)
    valid = column.valid
    if valid is None:
        return column.public()
    filled = jnp.where(valid, column.values, jnp.asarray(value) if not hasattr(value, "dtype") else value)
    return current().note(filled, Fact(column.name, complete=True, size=column.fact.size))


def _fill_on_host(column: Column, value: Any) -> Value:
    host, dtype = column.fact.host, column.dtype
    assert host is not None
    if host == "int64" and isinstance(value, float):
        host, dtype = "float64", "float32"
    if (host == "bool") != isinstance(value, bool):
        raise InputError(
            f"column {column.name!r} is {dtype}, {value!r} is not", fix="fill with the same type", where=caller()
        )
    if host == "float64":
        value = float(value)
    (found,) = bind_host("fill", [column.fact.handle], [(host, ("b",), True)], {"value": value, "dtype": host})
    return Column(column.name, dtype, Fact(column.name, found, host, complete=True)).public()


def is_missing(x: Value) -> Array:
    """Bool array: True where `x` is null, or NaN."""
    column = read(x, "given to is_missing")
    valid = column.valid
    return ~valid if valid is not None else jnp.zeros(_rows(column), bool)


def _rows(column: Column) -> Any:
    return (current().batch,) if column.dtype == "string" else column.values.shape


def cast(x: Value, dtype: str) -> Value:
    """`x` as float32, int32, bool (or another 8 to 32-bit JAX dtype), or "string". Missing stays missing.

    Text is parsed (a word that is no number raises when it is met), floats are cut towards zero, booleans are 0 and 1.
    """
    column = read(x, "given to cast")
    column._check_readable()
    if dtype == "string":
        return _as_text(column)
    target = _device_dtype(dtype)
    if column.dtype == "string":
        host = {"f": "float64", "i": "int64", "u": "int64", "b": "bool"}[target.kind]
        parsed = {"dtype": host, "column": column.name}
        (found,) = bind_host("parse", [column.fact.handle], [(host, ("b",), True)], parsed)
        return Column(column.name, str(target), Fact(column.name, found, host, column.fact.complete)).public()
    if str(target) == column.dtype:
        return column.public()
    if jnp.issubdtype(target, jnp.floating):
        values = column.values.astype(target)
        filled = values if column.valid is None else jnp.where(column.valid, values, jnp.nan)
        # The host column holds the same numbers, only wider: analyzers go on reading that.
        keeps = column.fact.handle is not None and target == jnp.float32 and column.dtype == "int32"
        fact = Fact(column.name, column.fact.handle if keeps else None, column.fact.host, column.fact.complete)
        return current().note(filled, fact)
    valid = column.valid
    values = column.values if valid is None else jnp.where(valid, column.values, 0)
    made = values.astype(target)
    if valid is None:
        return current().note(made, Fact(column.name, complete=True, size=column.fact.size))
    return result(column.name, made, valid)


def _device_dtype(dtype: str) -> Any:
    try:
        target = jnp.dtype(dtype)
    except TypeError:
        target = None
    if target is None or target.itemsize > 4 or target.kind not in "fiubV":
        raise InputError(f"no dtype {dtype!r} on the device", fix="use float32, int32, bool or string", where=caller())
    return target


def _as_text(column: Column) -> Value:
    if column.dtype == "string":
        return column
    if jnp.issubdtype(column.values.dtype, jnp.floating):
        raise InputError(
            f"column {column.name!r} is float: its spelling is not defined",
            fix="cast it to int32 first",
            where=caller(),
        )
    (found,) = bind_host("text", [column.handle], [("string", ("b",), True)], {})
    return Column(column.name, "string", Fact(column.name, found, "string", column.fact.complete))


def where(condition: Value, x: Value, y: Value) -> Value:
    """`x` where the condition holds, else `y`. A missing condition is False; what is taken may be missing."""
    test, a, b = read(condition, "given to where"), read(x, "given to where"), read(y, "given to where")
    for column in (test, a, b):
        column.check_numeric("given to where")
    chosen = test.__jax_array__()
    values = jnp.where(chosen, a.values, b.values)
    valids = [None if column.values.dtype.kind == "f" else column.valid for column in (a, b)]
    if both(*valids) is None:
        return values
    ones = jnp.ones((), bool)
    left, right = (ones if valid is None else valid for valid in valids)
    return result(a.name, values, jnp.where(chosen, left, right))


def is_in(x: Value, values: Sequence[str]) -> Value:
    """Whether a text column's value is one of `values`; missing stays missing."""
    column = read(x, "given to is_in")
    if column.dtype != "string" or not all(isinstance(value, str) for value in values):
        raise InputError("is_in takes a text column and texts", fix="compare numbers with ==", where=caller())
    return isin(column, builtins.sorted(set(values)))


# --- categories -----------------------------------------------------------------------------------------------------


def vocabulary(
    x: Value, *, top_k: int | None = None, min_count: int = 1, oov_buckets: int = 1, keep_empty: bool = False
) -> Array:
    """Ids of text (or integers, booleans) by a vocabulary learnt from the training data.

    With V words: 0 … V−1 are the words, most frequent first (ties: reverse code point order, integers as decimals),
    V … V+oov_buckets−1 an unknown word (V + FarmHash Fingerprint64 mod oov_buckets), V+oov_buckets a missing value.

    Args:
        x: The column.
        top_k: Keep only so many words.
        min_count: Keep only words seen so often.
        oov_buckets: Ids for unknown words, at least 1.
        keep_empty: Whether the empty string may be a word; else it is unknown, as in TFT.

    Returns:
        int32 array.
    """
    column = read(x, "given to vocabulary")
    column._check_readable()
    if column.dtype.startswith("float"):
        raise InputError(
            f"column {column.name!r} is float, no category", fix="bucketize it, or cast it to int32", where=caller()
        )
    _at_least("oov_buckets", oov_buckets, 1)
    _at_least("min_count", min_count, 1)
    if top_k is not None:
        _at_least("top_k", top_k, 1)
    handle = column.handle
    wanted = {"top_k": top_k, "min_count": min_count, "keep_empty": keep_empty, "column": column.name}
    words = bind_analyzer("vocabulary", [handle], ("vocabulary", ()), wanted)
    (ids,) = bind_host("lookup", [handle, words], [("int32", ("b",), False)], {"oov_buckets": oov_buckets})
    return current().note(ids, Fact(column.name, complete=True, size=Size(oov_buckets + 1, words)))


def hash_buckets(x: Value, buckets: int) -> Array:
    """int32 ids without a vocabulary: FarmHash Fingerprint64 mod `buckets`; `buckets` itself for a missing value."""
    column = read(x, "given to hash_buckets")
    _at_least("buckets", buckets, 1)
    if column.dtype.startswith("float"):
        raise InputError(
            f"column {column.name!r} is float, no category", fix="bucketize it, or cast it to int32", where=caller()
        )
    (ids,) = bind_host("hash", [column.handle], [("int32", ("b",), False)], {"buckets": buckets})
    return current().note(ids, Fact(column.name, complete=True, size=Size(buckets + 1)))


def bucketize(x: Value, buckets: int) -> Array:
    """int32 ids 0 … buckets−1 by quantiles of the training data, `buckets` for a missing value; see `apply_buckets`."""
    _at_least("buckets", buckets, 2)
    return apply_buckets(x, quantiles(x, buckets))


def apply_buckets(x: Value, boundaries: Sequence[float] | Array) -> Array:
    """Bucket i holds `boundaries[i-1] <= x < boundaries[i]`, as in TFT; the id after the last is a missing value's."""
    column = read(x, "given to apply_buckets")
    values = column.values
    edges = jnp.asarray(boundaries)
    n = edges.shape[0]
    if n <= 64:
        ids = jnp.sum(values[..., None] >= edges, axis=-1, dtype=jnp.int32)
    else:
        ids = jnp.searchsorted(edges, values, side="right").astype(jnp.int32)
    if column.valid is not None:
        ids = jnp.where(column.valid, ids, n + 1)
    return current().note(ids, Fact(column.name, complete=True, size=Size(n + 2)))


def one_hot(ids: Value, depth: int | None = None) -> Array:
    """float32[batch, depth]: 1 at each row's id, zeros for an id outside. Vocabularies need `depth`."""
    column = read(ids, "given to one_hot")
    size = column.fact.size
    if depth is None and (size is None or size.vocabulary is not None):
        raise InputError(
            "how many ids there are is not known while tracing", fix="one_hot(ids, depth=…)", where=caller()
        )
    return jax.nn.one_hot(column.__jax_array__().astype(jnp.int32), depth if depth is not None else size.extra)  # type: ignore[union-attr]


def _at_least(name: str, value: object, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InputError(f"{name} is {value!r}", fix=f"use a whole number, {least} or more", where=caller())


# --- scaling --------------------------------------------------------------------------------------------------------


def z_score(x: Value) -> Array:
    """float32: (x − mean) / sqrt(var) of the training data; x − mean where var is 0. Missing stays NaN."""
    column = read(x, "given to z_score")
    values = _as_float(column)
    centre, spread = mean(x), var(x)
    scale = jnp.where(spread > 0, jax.lax.sqrt(jnp.where(spread > 0, spread, 1.0)), 1.0)
    return (values - jnp.nan_to_num(centre)) / scale


def min_max(x: Value, low: float = 0.0, high: float = 1.0) -> Array:
    """float32: the training data's smallest value at `low`, its largest at `high`, new values beyond are not cut.

    Where they are the same (or there is none) every value is midway; TFT gives a sigmoid there.
    """
    if not low < high:
        raise InputError(f"low {low} is not below high {high}", fix="swap them", where=caller())
    column = read(x, "given to min_max")
    values = _as_float(column)
    least, most = (jnp.asarray(end, jnp.float32) for end in (min(x), max(x)))
    span = most - least
    share = jnp.where(span > 0, (values - least) / jnp.where(span > 0, span, 1.0), 0.5)
    return jnp.where(jnp.isnan(values), jnp.nan, low + share * (high - low))


def _as_float(column: Column) -> Array:
    column.check_numeric("scaled")
    values = column.values.astype(jnp.float32)
    return (
        values if column.valid is None or column.values.dtype.kind == "f" else jnp.where(column.valid, values, jnp.nan)
    )


# --- analyzers ------------------------------------------------------------------------------------------------------


def mean(x: Value) -> Array:
    """float32 scalar: the mean; NaN for no value."""
    return _analyze("mean", x, "float32")


def var(x: Value) -> Array:
    """float32 scalar: the population variance (÷ n); NaN for no value."""
    return _analyze("var", x, "float32")


def std(x: Value) -> Array:
    """float32 scalar: the square root of `var`."""
    return jnp.sqrt(var(x))


def sum(x: Value) -> Array:  # noqa: A001  # ops.sum is the field's name
    """float32 scalar: the sum, rounded once; 0 for no value."""
    return _analyze("sum", x, "float32")


def count(x: Value) -> Array:
    """int32 scalar: how many values are present and finite."""
    return _analyze("count", x, "int32")


def min(x: Value) -> Array:  # noqa: A001  # as sum
    """Scalar of x's dtype: the smallest value. No value: NaN, or for integers an error of the analysis."""
    return _analyze("min", x, None)


def max(x: Value) -> Array:  # noqa: A001  # as sum
    """Scalar of x's dtype: the largest value; as `min`."""
    return _analyze("max", x, None)


def quantiles(x: Value, buckets: int) -> Array:
    """The `buckets` − 1 boundaries, of x's dtype: boundary i is the value at place floor(i·N/buckets) of N sorted."""
    _at_least("buckets", buckets, 2)
    return _analyze("quantiles", x, None, {"buckets": buckets}, (buckets - 1,))


def _analyze(
    kind: str, x: Value, dtype: str | None, params: dict[str, Any] | None = None, shape: tuple[int, ...] = ()
) -> Array:
    column = read(x, f"given to {kind}")
    column.check_numeric(f"given to {kind}")
    if dtype is None:
        dtype = "int32" if column.dtype == "bool" else column.dtype
    if column.fact.handle is not None:
        inputs = [column.fact.handle]
    elif column.values.shape and column.values.shape[0] == current().batch:
        valid = None if column.values.dtype.kind == "f" else column.valid
        inputs = [column.values] if valid is None else [column.values, valid]
    else:
        raise InputError(f"{kind} of something that is not one value per row", fix="pass a column", where=caller())
    return bind_analyzer(kind, inputs, (dtype, shape), {**(params or {}), "column": column.name})
