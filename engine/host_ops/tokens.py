"""Ops on list columns that give lists: n-grams, distinct values, scaling, buckets, tf-idf."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from .columns import ARROW, Assets, Kernel, Params
from .lists import Lists, lists_of


def ngrams_batch(params: Params, assets: Assets) -> Kernel:
    """Every run of lo … hi neighbours joined; by where it starts, then by length."""
    lo, hi, separator = params["lo"], params["hi"], params["separator"]

    def kernel(column: pa.Array) -> pa.Array:
        lists = lists_of(column)
        longest = int(lists.lengths.max(initial=0))
        if longest < lo:
            return lists.where(np.zeros(len(lists.flat), bool)).column()
        left = np.repeat(lists.ends, lists.lengths) - np.arange(len(lists.flat))  # values from here to the list's end
        texts: list[pa.Array] = []
        starts: list[NDArray[np.int64]] = []
        for n in range(lo, min(hi, longest) + 1):
            start = np.flatnonzero(left >= n)
            words = [lists.flat.take(pa.array(start + offset)) for offset in range(n)]
            texts.append(pc.binary_join_element_wise(*words, separator))
            starts.append(start)
        begin = np.concatenate(starts)
        # Stable: runs that start at the same value stay in the order of their lengths.
        order = np.argsort(begin, kind="stable")
        counts = np.bincount(lists.rows[begin], minlength=len(column)).astype(np.int64)
        return Lists(pa.concat_arrays(texts).take(pa.array(order)), counts, lists.valid).column()

    return kernel


def ngrams_row(params: Params, assets: Assets) -> Kernel:
    """As `ngrams_batch`, for one list."""
    lo, hi, separator = params["lo"], params["hi"], params["separator"]

    def kernel(words: list[str] | None) -> list[str] | None:
        if words is None:
            return None
        count = len(words)
        return [
            separator.join(words[start : start + n])
            for start in range(count)
            for n in range(lo, min(hi, count - start) + 1)
        ]

    return kernel


def distinct_batch(params: Params, assets: Assets) -> Kernel:
    """Each list's values once, where they stand first."""

    def kernel(column: pa.Array) -> pa.Array:
        lists = lists_of(column)
        encoded = lists.flat.dictionary_encode()
        codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        # (row, value) as one integer; of equal ones np.unique gives the first place.
        _, first = np.unique(lists.rows * len(encoded.dictionary) + codes, return_index=True)
        kept = np.zeros(len(codes), bool)
        kept[first] = True
        return lists.where(kept).column()

    return kernel


def distinct_row(params: Params, assets: Assets) -> Kernel:
    """As `distinct_batch`, for one list."""
    kind = ARROW[params["dtype"]].value_type
    return lambda values: None if values is None else pa.array(values, kind).unique().to_pylist()


def count_batch(params: Params, assets: Assets) -> Kernel:
    """How many values each list has."""

    def kernel(column: pa.Array) -> pa.Array:
        lists = lists_of(column)
        return pa.array(lists.lengths, mask=~lists.valid)

    return kernel


def count_row(params: Params, assets: Assets) -> Kernel:
    """As `count_batch`, for one list."""
    return lambda values: None if values is None else len(values)


# --- scaling: the numbers come from the device, as they are analyzers' results or made of them ----------------------


def affine_batch(params: Params, assets: Assets) -> Kernel:
    """(x − centre) / scale + shift of every value, in float64; by = [centre, scale, shift]."""

    def kernel(column: pa.Array, by: Any) -> pa.Array:
        lists = lists_of(column)
        return lists.with_flat(pa.array(_affine(lists.flat.to_numpy(zero_copy_only=False), by)))

    return kernel


def affine_row(params: Params, assets: Assets) -> Kernel:
    """As `affine_batch`, for one list."""

    def kernel(values: list[float] | None, by: Any) -> list[Any] | None:
        return None if values is None else _affine(np.array(values, np.float64), by).tolist()

    return kernel


def _affine(values: NDArray[Any], by: Any) -> NDArray[np.float64]:
    centre, scale, shift = np.asarray(by, np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray((values.astype(np.float64) - centre) / scale + shift)


def buckets_batch(params: Params, assets: Assets) -> Kernel:
    """The bucket of every value among edges, given or a parameter; NaN gets the id after the last."""

    def kernel(column: pa.Array, *edges: Any) -> pa.Array:
        lists = lists_of(column)
        return lists.with_flat(pa.array(_buckets(params, lists.flat.to_numpy(zero_copy_only=False), edges)))

    return kernel


def buckets_row(params: Params, assets: Assets) -> Kernel:
    """As `buckets_batch`, for one list."""

    def kernel(values: list[float] | None, *edges: Any) -> list[Any] | None:
        return None if values is None else _buckets(params, np.array(values, np.float64), edges).tolist()

    return kernel


def _buckets(params: Params, values: NDArray[Any], edge_inputs: tuple[Any, ...]) -> NDArray[np.int64]:
    edges = np.asarray(edge_inputs[0] if edge_inputs else params["edges"], np.float64)
    values = values.astype(np.float64)
    if params.get("narrow"):  # as a column of floats is on the device, so that a value on a boundary is in its bucket
        with np.errstate(over="ignore"):
            edges, values = edges.astype(np.float32), values.astype(np.float32)
    buckets = np.searchsorted(edges, values, side="right")
    return np.where(np.isnan(values), len(edges) + 1, buckets).astype(np.int64)


# --- tf-idf ---------------------------------------------------------------------------------------------------------


def modulo_batch(params: Params, assets: Assets) -> Kernel:
    """Ids brought into 0 … size−1, as TFT does before it counts."""

    def kernel(column: pa.Array, *size: Any) -> pa.Array:
        lists = lists_of(column)
        ids = lists.flat.to_numpy(zero_copy_only=False)
        return lists.with_flat(pa.array(ids % _size(params, size)))

    return kernel


def modulo_row(params: Params, assets: Assets) -> Kernel:
    """As `modulo_batch`, for one list."""

    def kernel(ids: list[int] | None, *size: Any) -> list[int] | None:
        return None if ids is None else [each % _size(params, size) for each in ids]

    return kernel


def _size(params: Params, size_inputs: tuple[Any, ...]) -> int:
    return int(size_inputs[0]) if size_inputs else int(params["size"])


def terms_batch(params: Params, assets: Assets) -> Kernel:
    """Each list's ids once, ascending."""
    return lambda column: _counted(lists_of(column))[0].column()


def terms_row(params: Params, assets: Assets) -> Kernel:
    """As `terms_batch`, for one list."""
    return lambda ids: None if ids is None else sorted(set(ids))


def tfidf_batch(params: Params, assets: Assets) -> Kernel:
    """The weight of each of `terms_batch`'s ids."""
    weigh = _weigh(params, assets)

    def kernel(column: pa.Array) -> pa.Array:
        lists = lists_of(column)
        terms, counts = _counted(lists)
        lengths = np.repeat(lists.lengths, terms.lengths)
        return terms.with_flat(pa.array(weigh(terms.flat.to_numpy(zero_copy_only=False), counts, lengths)))

    return kernel


def tfidf_row(params: Params, assets: Assets) -> Kernel:
    """As `tfidf_batch`, for one list."""
    weigh = _weigh(params, assets)

    def kernel(ids: list[int] | None) -> list[float] | None:
        if ids is None:
            return None
        terms, counts = np.unique(np.array(ids, np.int64), return_counts=True)
        weights: list[float] = weigh(terms, counts, np.full(len(terms), len(ids))).tolist()
        return weights

    return kernel


def _counted(lists: Lists) -> tuple[Lists, NDArray[np.int64]]:
    """Each list's ids (0 … 2^31 − 1) once, ascending, and how often each occurs in it."""
    ids = lists.flat.to_numpy(zero_copy_only=False)
    # (row, id) as one integer below 2^63: a batch has fewer than 2^32 rows.
    span = int(ids.max()) + 1 if len(ids) else 1
    pairs, counts = np.unique(lists.rows * span + ids, return_counts=True)
    lengths = np.bincount(pairs // span, minlength=len(lists.lengths)).astype(np.int64)
    return Lists(pa.array(pairs % span), lengths, lists.valid), counts


def _weigh(params: Params, assets: Assets) -> Callable[..., NDArray[np.float64]]:
    (table,) = assets
    known, lists_with = (table.column(name).to_numpy() for name in ("id", "documents"))
    documents = int(lists_with[0])  # the first row's id is −1: all documents
    smooth = bool(params["smooth"])

    def weigh(terms: NDArray[np.int64], counts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.float64]:
        index = np.minimum(np.searchsorted(known, terms), len(known) - 1)
        with_term = np.where(known[index] == terms, lists_with[index], 0)
        if smooth:
            idf = 1 + np.log((documents + 1) / (with_term + 1))
        else:
            idf = 1 + np.log(max(documents, 1) / np.maximum(with_term, 1))
        return ((counts / lengths).astype(np.float32) * idf.astype(np.float32)).astype(np.float64)  # as TFT rounds

    return weigh
