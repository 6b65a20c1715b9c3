"""Categories: ids by a learnt vocabulary, by hash, by buckets; one-hot."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from ...errors import InputError
from .._caller import caller
from ..tracing.columns import Fact, Size, read
from ..tracing.primitives import bind_analyzer, bind_host, current
from .common import Array, Value, at_least
from .statistics import quantiles


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
    at_least("oov_buckets", oov_buckets, 1)
    at_least("min_count", min_count, 1)
    if top_k is not None:
        at_least("top_k", top_k, 1)
    handle = column.handle
    wanted = {"top_k": top_k, "min_count": min_count, "keep_empty": keep_empty, "column": column.name}
    words = bind_analyzer("vocabulary", [handle], ("vocabulary", ()), wanted)
    (ids,) = bind_host("lookup", [handle, words], [("int32", ("b",), False)], {"oov_buckets": oov_buckets})
    return current().note(ids, Fact(column.name, complete=True, size=Size(oov_buckets + 1, words)))


def hash_buckets(x: Value, buckets: int) -> Array:
    """int32 ids without a vocabulary: FarmHash Fingerprint64 mod `buckets`; `buckets` itself for a missing value."""
    column = read(x, "given to hash_buckets")
    at_least("buckets", buckets, 1)
    if column.dtype.startswith("float"):
        raise InputError(
            f"column {column.name!r} is float, no category", fix="bucketize it, or cast it to int32", where=caller()
        )
    (ids,) = bind_host("hash", [column.handle], [("int32", ("b",), False)], {"buckets": buckets})
    return current().note(ids, Fact(column.name, complete=True, size=Size(buckets + 1)))


def bucketize(x: Value, buckets: int) -> Array:
    """int32 ids 0 … buckets−1 by quantiles of the training data, `buckets` for a missing value; see `apply_buckets`."""
    at_least("buckets", buckets, 2)
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
