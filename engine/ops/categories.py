"""Categories: ids by a learnt vocabulary, by hash, by buckets; one-hot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

import jax
import jax.numpy as jnp

from ...errors import InputError
from .._caller import caller
from ..tracing.columns import Fact, Size, read
from ..tracing.primitives import bind_host, current
from .common import Array, Value, at_least
from .scaling import as_float
from .statistics import quantiles
from .vocabularies import Learning, Vocabulary, category, learn_vocabulary, vocabulary_of


def vocabulary(x: Value, *, oov_buckets: int = 1, **learning: Unpack[Learning]) -> Array:
    """Ids of text (or integers, booleans) by a vocabulary learnt from the training data.

    With V words: 0 … V−1 are the words, most frequent first (ties: reverse code point order, integers as decimals),
    V … V+oov_buckets−1 an unknown word (V + FarmHash Fingerprint64 mod oov_buckets), V+oov_buckets a missing value.

    Args:
        x: The column.
        oov_buckets: Ids for unknown words, at least 1.
        learning: As `learn_vocabulary` takes it: top_k, min_count, keep_empty, weights, labels, reserved, name ….

    Returns:
        int32 array.
    """
    return apply_vocabulary(x, learn_vocabulary(x, **learning), oov_buckets=oov_buckets)


def apply_vocabulary(x: Value, vocabulary: Vocabulary | str, *, oov_buckets: int = 1) -> Array:
    """Ids as `vocabulary` gives them, by a vocabulary that is learnt elsewhere in the function, or its name."""
    column = category(x, "given to vocabulary")
    at_least("oov_buckets", oov_buckets, 1)
    words = vocabulary_of(vocabulary).handle
    (ids,) = bind_host("lookup", [column.handle, words], [("int32", ("b",), False)], {"oov_buckets": oov_buckets})
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


def bucketize(x: Value, buckets: int, *, weights: Value = None, elementwise: bool = False) -> Array:
    """int32 ids 0 … buckets−1 by quantiles of the training data, `buckets` for a missing value; see `apply_buckets`.

    With weights, or elementwise for an array [batch, d]: by what `quantiles` then gives.
    """
    at_least("buckets", buckets, 2)
    return apply_buckets(x, quantiles(x, buckets, weights=weights, elementwise=elementwise))


def apply_buckets(x: Value, boundaries: Sequence[float] | Array) -> Array:
    """Bucket i holds `boundaries[i-1] <= x < boundaries[i]`, as in TFT; the id after the last is a missing value's.

    For an array [batch, d] the boundaries may be [d, n]: those of each place.
    """
    column = read(x, "given to apply_buckets")
    values = column.values
    edges = jnp.asarray(boundaries)
    n = edges.shape[-1]
    if n <= 64 or edges.ndim > 1:
        ids = jnp.sum(values[..., None] >= edges, axis=-1, dtype=jnp.int32)
    else:
        ids = jnp.searchsorted(edges, values, side="right").astype(jnp.int32)
    if column.valid is not None:
        ids = jnp.where(column.valid, ids, n + 1)
    return current().note(ids, Fact(column.name, complete=True, size=Size(n + 2)))


def apply_buckets_with_interpolation(x: Value, boundaries: Sequence[float] | Array) -> Array:
    """float32 in 0 … 1: where x stands among the boundaries, linear between two of them; missing stays NaN (TFT: 0.5).

    0 below the first and 1 from the last on, boundary i of n at i/(n−1); with one boundary a step. Where the boundaries
    are of no value, 0.5.
    """
    values = as_float(read(x, "given to apply_buckets_with_interpolation"))
    edges = jnp.asarray(boundaries, jnp.float32)
    if edges.ndim != 1 or not edges.shape[0]:
        raise InputError(f"boundaries of shape {edges.shape}", fix="give one or more, ascending", where=caller())
    n = edges.shape[0]
    place = jnp.searchsorted(edges, values, side="right")
    low, high = edges[jnp.clip(place - 1, 0, n - 1)], edges[jnp.clip(place, 0, n - 1)]
    width = jnp.where(high > low, high - low, 1.0)
    between = (place - 1 + (values - low) / width) / max(n - 1, 1)
    found = jnp.where(place == 0, 0.0, jnp.where(place == n, 1.0, between))
    found = jnp.where(jnp.isnan(edges).all(), 0.5, found)
    return jnp.where(jnp.isnan(values), jnp.nan, found)


def one_hot(ids: Value, depth: int | None = None) -> Array:
    """float32[batch, depth]: 1 at each row's id, zeros for an id outside. Vocabularies need `depth`."""
    column = read(ids, "given to one_hot")
    size = column.fact.size
    if depth is None and (size is None or size.vocabulary is not None):
        raise InputError(
            "how many ids there are is not known while tracing", fix="one_hot(ids, depth=…)", where=caller()
        )
    return jax.nn.one_hot(column.__jax_array__().astype(jnp.int32), depth if depth is not None else size.extra)  # type: ignore[union-attr]
