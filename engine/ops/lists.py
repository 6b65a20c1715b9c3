"""Lists: n-grams, bags of words, tf-idf, arrays, `Ragged`. A missing list stays missing, an empty one stays empty."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ...errors import InputError
from .._caller import caller
from ..ragged.convert import from_lengths
from ..ragged.feeding import DEVICE, FLATTEN
from ..ragged.ragged import Ragged
from ..tracing.columns import Column, Fact, Size, dense, read
from ..tracing.primitives import bind_analyzer, bind_host, current
from .arguments import Array, Value, at_least, most_ids
from .text import split, texts

__all__ = ["bag_of_words", "deduplicate", "multi_hot", "ngrams", "tfidf", "to_dense", "to_ragged", "word_count"]


def to_dense(x: Value, width: int, fill: Any = None) -> Array:
    """A list column of numbers as an array [batch, width]: float32 for lists of floats, int32 for whole numbers.

    Args:
        x: The column; or such an array already, as a raw column is whose lists are known to be of that width.
        width: How many values each row gets. A longer list is an error that names the row: nothing is cut silently.
        fill: A number, for what a shorter or missing list lacks; None, for floats only, is NaN.

    Raises:
        InputError: It is a list of text, or of whole numbers and there is no fill.
    """
    at_least("width", width, 1)
    if not isinstance(x, Column) and getattr(x, "shape", ())[1:] == (width,):
        return x
    column = _lists(x, "made dense", "int64", "float64")
    whole = column.item == "int64"
    if whole and not (isinstance(fill, int) and not isinstance(fill, bool) and -(2**31) <= fill < 2**31):
        raise InputError(
            f"the lists of column {column.name!r} hold whole numbers, the fill {fill!r} is not one",
            fix="to_dense(x, width, fill=0)",
            where=caller(),
        )
    if fill is not None and fill != fill:
        fill = None
    return dense(column, width, fill, shorter=True)


def to_ragged(x: Value) -> Ragged:
    """A list column of numbers as a `Ragged`: float32 for lists of floats, int32 for whole numbers.

    A missing list becomes an empty row. Of a Ragged, what stands per row (`ragged.mean(r)`) goes on as any array, and
    the Ragged itself may be an output of the preprocessing function: a list column again.

    Raises:
        InputError: It is not a list, or one of text (look it up first: `ops.vocabulary`).
    """
    column = read(x, "made ragged")
    dtype = DEVICE.get(f"list<{column.item}>")
    if dtype is None:
        raise InputError(
            f"column {column.name!r} is {column.dtype}, no list of numbers",
            fix="make ids of words with ops.vocabulary; an array needs no to_ragged",
            where=caller(),
        )
    outputs = [(dtype, (current().dim(column.handle),), False), ("int32", ("b",), False)]
    values, lengths = bind_host(FLATTEN, [column.handle], outputs, {"dtype": dtype, "column": column.name})
    return from_lengths(values, lengths)


def multi_hot(ids: Value, depth: int | None = None) -> Array:
    """float32[batch, depth]: 1 at every id of the row's list, zeros for a missing or empty list.

    An id outside is left out.

    Args:
        ids: Lists of ids.
        depth: By default as for `one_hot`.
    """
    column = _lists(ids, "given to multi_hot", "int64")
    depth = most_ids(column.fact.size) if depth is None else depth
    if depth is None:
        raise InputError(
            "how many ids there are is not known while tracing",
            fix="multi_hot(ids, depth=…), or vocabulary(…, top_k=…)",
            where=caller(),
        )
    at_least("depth", depth, 1)
    (hot,) = bind_host("multi_hot", [column.handle], [("float32", ("b", depth), False)], {"depth": depth})
    return hot


def word_count(x: Value) -> Value:
    """How many values each list has, or how many words (between whitespace) each text: int32; missing for missing."""
    column = read(x, "counted")
    if column.dtype == "string":
        column = split(column)
    column = _lists(column, "counted", "string", "int64", "float64")
    (counts,) = bind_host("list_count", [column.handle], [("int64", ("b",), True)], {})
    return Column(column.name, "int32", Fact(column.name, counts, "int64", column.fact.complete)).public()


def ngrams(x: Value, sizes: tuple[int, int], separator: str = " ") -> Column:
    """Every run of sizes[0] … sizes[1] neighbouring texts, joined; ordered by where it starts, then by length (TFT)."""
    column = texts(x, "given to ngrams")
    lo, hi = sizes
    at_least("the smallest n-gram", lo, 1)
    at_least("the largest n-gram", hi, lo)
    return _list("ngrams", column, {"lo": lo, "hi": hi, "separator": separator}, "list<string>")


def bag_of_words(x: Value, sizes: tuple[int, int] = (1, 1), separator: str = " ") -> Column:
    """The distinct `ngrams` of each list, where they stand first (TFT's order)."""
    return deduplicate(ngrams(x, sizes, separator))


def deduplicate(x: Value) -> Column:
    """Each list's values once, where they stand first."""
    column = _lists(x, "deduplicated", "string", "int64", "float64")
    return _list("distinct", column, {"dtype": column.dtype}, column.dtype, column.fact.size)


def tfidf(ids: Value, size: int | Array, smooth: bool = True) -> tuple[Column, Column]:
    """Term frequency × inverse document frequency of each list's ids, as TFT defines it.

    The weight of id t in a list of L ids among N lists (empty ones count, missing ones do not), df(t) of which hold t,
    is count(t)/L · idf(t), in float32 arithmetic; idf(t) = 1 + ln((N + 1)/(df(t) + 1)), or without smoothing
    1 + ln(N/df(t)), where a t that no list of the training data holds counts as one that one holds (TFT: infinity).

    Args:
        ids: A list<int64> column.
        size: How many ids there are: a number, or `ops.vocabulary_size(…)` and what is made of it. Ids are taken modulo
            it: with the unknown as −1 (TFT's default), size + 1 gives them an id of their own, the last.
        smooth: See above.

    Returns:
        The distinct ids of each list, ascending, list<int64>; and their weights, list<float64>. As `Ragged` both have
        the same rows: `ragged.embedding_bag(table, ids, weights)` takes them, in `preprocess` and in a model.
    """
    column = _lists(ids, "given to tfidf", "int64")
    params: dict[str, Any] = {}
    inputs = [column.handle]
    if isinstance(size, jax.core.Tracer):
        inputs.append(on_device(jnp.asarray(size, jnp.int32)))
    else:
        at_least("size", size, 1)
        params["size"] = size
    (within,) = bind_host("modulo", inputs, [("list<int64>", ("b",), True)], params)
    documents = bind_analyzer("documents", [within], ("vocabulary", ()), {"column": column.name})
    (terms,) = bind_host("terms", [within], [("list<int64>", ("b",), True)], {})
    settings = {"smooth": bool(smooth)}
    (weights,) = bind_host("tfidf", [within, documents], [("list<float64>", ("b",), True)], settings)
    # Both ops give one value per distinct id, so the two columns share a dimension where they become `Ragged`.
    current().alike(terms, weights)
    known = Size(size) if isinstance(size, int) else None
    return (
        Column(column.name, "list<int64>", Fact(column.name, terms, "list<int64>", column.fact.complete, known)),
        Column(column.name, "list<float64>", Fact(column.name, weights, "list<float64>", column.fact.complete)),
    )


def affine(column: Column, centre: Array, scale: Array, shift: Array | float) -> Column:
    """(x − centre) / scale + shift of every value of a list column, list<float64>; NaN stays NaN."""
    _lists(column, "scaled", "int64", "float64")
    by = jnp.stack([jnp.asarray(each, jnp.float32) for each in (centre, scale, shift)])
    (scaled,) = bind_host("list_affine", [column.handle, by], [("list<float64>", ("b",), True)], {})
    return Column(column.name, "list<float64>", Fact(column.name, scaled, "list<float64>", column.fact.complete))


def list_buckets(column: Column, boundaries: Any) -> Column:
    """The bucket of every value of a list column, list<int64>; NaN gets the id after the last bucket's."""
    _lists(column, "put into buckets", "int64", "float64")
    params: dict[str, Any] = {"narrow": True} if column.item == "float64" else {}
    inputs = [column.handle]
    edges = jnp.asarray(boundaries)
    if isinstance(edges, jax.core.Tracer):
        inputs.append(on_device(edges))
    else:
        params["edges"] = [float(edge) for edge in edges]
    (buckets,) = bind_host("list_buckets", inputs, [("list<int64>", ("b",), True)], params)
    size = Size(edges.shape[0] + 2)
    return Column(column.name, "list<int64>", Fact(column.name, buckets, "list<int64>", column.fact.complete, size))


def on_device(array: Array) -> Array:
    """An analyzer's result, or what is made of it, as something that the device made: what a host op can read."""
    # An analyzer's result becomes a weight of the device program, which no host op can read. The barrier makes an
    # equation of it, whose output leaves the device as any other tensor does.
    return jax.lax.optimization_barrier(jnp.asarray(array))  # type: ignore[no-untyped-call]  # JAX types it not


def _list(op: str, column: Column, params: dict[str, Any], dtype: str, size: Size | None = None) -> Column:
    (lists,) = bind_host(op, [column.handle], [(dtype, ("b",), True)], params)
    return Column(column.name, dtype, Fact(column.name, lists, dtype, column.fact.complete, size))


def _lists(x: Value, doing: str, *items: str) -> Column:
    column = read(x, doing)
    column._check_readable()
    if column.item not in items:
        wanted = " or ".join(f"list<{item}>" for item in items)
        raise InputError(
            f"column {column.name!r} is {column.dtype} and was {doing}, which takes {wanted}",
            fix="ops.split makes lists of text, ops.vocabulary and ops.hash_buckets ids of lists",
            where=caller(),
        )
    return column
