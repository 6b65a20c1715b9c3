"""Categories: ids by a learnt vocabulary, by hash, by buckets; one-hot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, Unpack, overload

import jax
import jax.numpy as jnp

from ...errors import InputError
from .._caller import caller
from ..tracing.columns import Column, Fact, Size, read
from ..tracing.primitives import bind_host, current
from . import tft_names
from .arguments import Array, Value, at_least, most_ids
from .lists import list_buckets, on_device
from .scaling import as_float
from .statistics import numbers, quantiles
from .vocabularies import Vocabulary, VocabularyOptions, category, learn_vocabulary, vocabulary_of

__all__ = [
    "apply_buckets", "apply_buckets_with_interpolation", "apply_vocabulary", "bucketize", "hash_buckets", "one_hot",
    "vocabulary",
]  # fmt: skip


def vocabulary(x: Value, *, oov_buckets: int = 1, default: int = -1, **learning: Unpack[VocabularyOptions]) -> Value:
    """Ids of text (or integers, booleans, or lists of them) by a vocabulary learnt from the training data.

    With V words: 0 … V−1 are the words, most frequent first (ties: reverse code point order, integers as decimals),
    V … V+oov_buckets−1 an unknown word (V + FarmHash Fingerprint64 mod oov_buckets), V+oov_buckets a missing value.

    Args:
        x: The column. Of lists, every value counts.
        oov_buckets: Ids for unknown words. 0 and `default`: as TFT has it.
        default: The id of every unknown word, where there are no oov_buckets.
        learning: As `learn_vocabulary` takes it: top_k, min_count, keep_empty, weights, labels, reserved, name ….

    Returns:
        int32 array; of lists, a list<int64> column, in which a missing list stays missing.
    """
    known = [*VocabularyOptions.__annotations__, "oov_buckets", "default"]
    for name in learning:
        if name not in known:
            near = tft_names.meant(name, known, tft_names.ARGUMENTS)
            raise InputError(f"vocabulary takes no {name!r}{near}", fix=f"it takes {', '.join(known)}", where=caller())
    return apply_vocabulary(x, learn_vocabulary(x, **learning), oov_buckets=oov_buckets, default=default)


def apply_vocabulary(
    x: Value, vocabulary: Vocabulary | str | Sequence[str], *, oov_buckets: int = 1, default: int = -1
) -> Value:
    """Ids as `vocabulary` gives them, by a vocabulary learnt elsewhere in the function, its name, or given words."""
    column = category(x, "given to vocabulary")
    at_least("oov_buckets", oov_buckets, 0)
    if type(default) is not int or not -(2**31) <= default < 2**31:
        raise InputError(f"default is {default!r}", fix="use an id, such as -1", where=caller())
    params: dict[str, Any] = {"oov_buckets": oov_buckets} | ({} if oov_buckets else {"default": default})
    missing = int(column.item is None)
    least = 0 if oov_buckets else default + 1
    if isinstance(vocabulary, (Vocabulary, str)):
        learnt = vocabulary_of(vocabulary)
        size = Size(oov_buckets + missing, learnt.handle, learnt.most, least)
        return _ids("lookup", column, [learnt.handle], params, size)
    params["words"] = list(vocabulary)
    if not all(isinstance(word, str) for word in params["words"]) or len({*vocabulary}) != len(params["words"]):
        raise InputError(
            "a vocabulary holds something else than texts, or one twice", fix="give texts, each once", where=caller()
        )
    return _ids("lookup", column, [], params, Size(max(len(params["words"]) + oov_buckets + missing, least)))


def hash_buckets(x: Value, buckets: int, *, key: tuple[int, int] | None = None) -> Value:
    """int32 ids without a vocabulary: FarmHash Fingerprint64 mod `buckets`; `buckets` itself for a missing value.

    With a key of two 64-bit numbers, by SipHash-2-4 (`tf.strings.to_hash_bucket_strong`): who does not know the key
    cannot choose words that meet. It stands in the bundle. Of lists, a list<int64> column, missing where the list is.
    """
    column = category(x, "given to hash_buckets")
    at_least("buckets", buckets, 1)
    params: dict[str, Any] = {"buckets": buckets}
    if key is not None:
        if [0 <= half < 2**64 for half in key] != [True, True]:
            raise InputError(f"the key is {key!r:.60}", fix="use two numbers below 2**64", where=caller())
        params["key"] = [str(half) for half in key]  # JSON readers elsewhere keep no 64 bits
    return _ids("hash", column, [], params, Size(buckets + int(column.item is None)))


def _ids(op: str, column: Column, assets: list[Any], params: dict[str, Any], size: Size) -> Value:
    inputs = [column.handle, *assets]
    if column.item is None:
        (ids,) = bind_host(op, inputs, [("int32", ("b",), False)], params)
        return current().note(ids, Fact(column.name, complete=True, size=size))
    (ids,) = bind_host(op, inputs, [("list<int64>", ("b",), True)], {**params, "list": True})
    return Column(column.name, "list<int64>", Fact(column.name, ids, "list<int64>", column.fact.complete, size))


def bucketize(x: Value, buckets: int, *, weights: Value = None, elementwise: bool = False) -> Value:
    """int32 ids 0 … buckets−1 by quantiles of the training data, `buckets` for a missing value; see `apply_buckets`.

    With weights, or elementwise for an array [batch, d]: by what `quantiles` then gives.
    """
    at_least("buckets", buckets, 2)
    numbers(read(x, "given to bucketize"), "given to bucketize")
    return apply_buckets(x, quantiles(x, buckets, weights=weights, elementwise=elementwise))


def apply_buckets(x: Value, boundaries: Sequence[float] | Array) -> Value:
    """Bucket i holds `boundaries[i-1] <= x < boundaries[i]`, as in TFT; the id after the last is a missing value's.

    For an array [batch, d] the boundaries may be [d, n], by element. Lists give list<int64>, for NaN that id.
    """
    column = read(x, "given to apply_buckets")
    if column.item is not None:
        return list_buckets(column, boundaries)
    values = column.values
    edges = jnp.asarray(boundaries)
    n = edges.shape[-1]
    # Few boundaries are compared all at once, in one vectorised step without the search's loop; and `searchsorted`
    # cannot take boundaries of each element.
    if n <= 64 or edges.ndim > 1:
        ids = jnp.sum(values[..., None] >= edges, axis=-1, dtype=jnp.int32)
    else:
        ids = jnp.searchsorted(edges, values, side="right").astype(jnp.int32)
    if column.valid is not None:
        ids = jnp.where(column.valid, ids, n + 1)
    return current().note(ids, Fact(column.name, complete=True, size=Size(n + 2)))


def apply_buckets_with_interpolation(x: Value, boundaries: Sequence[float] | Array) -> Array:
    """float32 in 0 … 1: where x stands among the boundaries, linear between two of them; missing stays NaN (TFT: 0.5).

    0 below the first and 1 from the last on, boundary i of n at i/(n−1); with one boundary a step. Infinite boundaries
    given as numbers are left out. Where the boundaries are of no value, 0.5.
    """
    values = as_float(x, "given to apply_buckets_with_interpolation")
    if isinstance(boundaries, Sequence):
        boundaries = [edge for edge in boundaries if not math.isinf(edge)]
    edges = jnp.asarray(boundaries, jnp.float32)
    if edges.ndim != 1 or not edges.shape[0]:
        raise InputError(f"boundaries of shape {edges.shape}", fix="give one or more, ascending", where=caller())
    n = edges.shape[0]
    # Both neighbours are clipped, so that every index is valid and no width 0; rows below the first boundary and from
    # the last one on are overwritten after.
    right = jnp.searchsorted(edges, values, side="right")
    low, high = edges[jnp.clip(right - 1, 0, n - 1)], edges[jnp.clip(right, 0, n - 1)]
    width = jnp.where(high > low, high - low, 1.0)
    between = (right - 1 + (values - low) / width) / max(n - 1, 1)
    share = jnp.where(right == 0, 0.0, jnp.where(right == n, 1.0, between))
    share = jnp.where(jnp.isnan(edges).all(), 0.5, share)
    return jnp.where(jnp.isnan(values), jnp.nan, share)


@overload
def one_hot(ids: Value, depth: int | None = ..., *, sparse: Literal[False] = ...) -> Array: ...
@overload
def one_hot(ids: Value, depth: int | Array | None = ..., *, sparse: Literal[True]) -> Column: ...
def one_hot(ids: Value, depth: Any = None, *, sparse: bool = False) -> Any:
    """float32[batch, depth]: 1 at each row's id, zeros for an id outside.

    Args:
        ids: As `vocabulary`, `hash_buckets`, `bucketize` … give them.
        depth: By default as many as there may be ids; of a vocabulary top_k, reserved and oov_buckets together, and
            one for missing: places that its words do not fill stay 0.
        sparse: Whether to give where the ones are instead: a list<int64> of the id, empty for an id outside. It takes a
            learnt depth too, such as `vocabulary_size(…) + 1`; `ragged.embedding_bag` takes it, and `multi_hot`.

    Raises:
        InputError: How many ids there may be, or the depth given, is known only when the data has been read.
    """
    column = read(ids, "given to one_hot")
    column.check_numeric("given to one_hot")
    if sparse:
        return _sparse(column, depth)
    known: Array = depth if depth is not None else most_ids(column.fact.size)
    if known is None or isinstance(known, jax.core.Tracer):
        what = "how many ids there are" if depth is None else "one_hot's depth is learnt: it"
        raise InputError(
            f"{what} is not known while tracing",
            fix="vocabulary(…, top_k=…) bounds it, or one_hot(ids, depth=…) with a number; one_hot(ids, sparse=True) "
            "needs none; or return the ids, and make an embedding or a one-hot of them in the model, where "
            "run.features[name].size is the number",
            where=caller(),
        )
    return jax.nn.one_hot(column.__jax_array__().astype(jnp.int32), known)


def _sparse(column: Column, depth: Any) -> Column:
    values = column.values.astype(jnp.int32)
    if values.ndim != 1:
        raise InputError(
            f"one_hot of shape {values.shape} is not sparse", fix="take one element at a time", where=caller()
        )
    inputs = [values if column.valid is None else jnp.where(column.valid, values, -1)]
    params: dict[str, Any] = {}
    size = column.fact.size
    if isinstance(depth, jax.core.Tracer):
        inputs.append(on_device(depth))
    elif depth is not None:
        at_least("depth", depth, 1)
        params, size = {"depth": depth}, Size(depth)
    (ids_column,) = bind_host("listed", inputs, [("list<int64>", ("b",), True)], params)
    return Column(column.name, "list<int64>", Fact(column.name, ids_column, "list<int64>", True, size))
