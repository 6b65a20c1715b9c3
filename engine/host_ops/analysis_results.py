"""Host ops that read what an analysis learnt: the statistics of a row's key, a learnt text, the words of ids."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from .columns import (
    Assets,
    Kernel,
    Params,
    codes_of,
    is_missing,
)
from .text import spelled


def _table_of(params: Params, assets: Assets) -> tuple[dict[str, int], NDArray[Any]]:
    """The place of each key, and the statistics by place; those of an unknown key stand last."""
    names = [name for name in assets[0].column_names if name != "key"]
    known = {key: index for index, key in enumerate(assets[0].column("key").to_pylist())}
    default = np.nan if params["default"] is None else float(params["default"])
    statistics = np.full((len(known) + 1, len(names)), default)
    for index, name in enumerate(names):
        statistics[:-1, index] = assets[0].column(name).to_numpy()
    dtype = np.dtype(params["dtype"])
    # Beyond float32 is an infinity, as XLA would have it. A count beyond int32 is its largest: a cast would wrap.
    with np.errstate(over="ignore"):
        statistics = (np.minimum(statistics, 2**31 - 1) if dtype.kind == "i" else statistics).astype(dtype)
    return known, statistics[:, 0] if params["width"] is None else statistics


def per_key_batch(params: Params, assets: Assets) -> Kernel:
    """The statistics of each row's key."""
    known, statistics = _table_of(params, assets)

    def kernel(column: pa.Array) -> NDArray[Any]:
        codes, words = codes_of(column)
        places = [len(known) if word is None else known.get(spelled(word), len(known)) for word in words.to_pylist()]
        return statistics[np.array([*places, len(known)], np.int64)[codes]]

    return kernel


def per_key_row(params: Params, assets: Assets) -> Kernel:
    """As `per_key_batch`, for one key."""
    known, statistics = _table_of(params, assets)
    return lambda value: statistics[-1 if value is None else known.get(spelled(value), len(known))]


def fill_learnt_batch(params: Params, assets: Assets) -> Kernel:
    """Missing texts get the asset's one text; none is learnt from nothing, and then they stay missing."""
    learnt = assets[0].column("value").to_pylist()

    def kernel(column: pa.Array) -> pa.Array:
        if not learnt:
            return column
        codes, words = codes_of(column)
        filled = pa.array([learnt[0] if word is None else word for word in [*words.to_pylist(), None]], pa.string())
        return filled.take(pa.array(codes))

    return kernel


def fill_learnt_row(params: Params, assets: Assets) -> Kernel:
    """As `fill_learnt_batch`, for one value."""
    learnt = [*assets[0].column("value").to_pylist(), None][0]
    return lambda value: learnt if is_missing(value) else value


def words_batch(params: Params, assets: Assets) -> Kernel:
    """The word of each id; missing for one that is not a word's."""
    words = assets[0].column("value").combine_chunks()

    def kernel(ids: NDArray[Any]) -> pa.Array:
        known = (ids >= 0) & (ids < len(words))
        return words.take(pa.array(ids.astype(np.int64), mask=~known))

    return kernel


def words_row(params: Params, assets: Assets) -> Kernel:
    """As `words_batch`, for one id."""
    words = assets[0].column("value").to_pylist()
    return lambda value: words[int(value)] if 0 <= int(value) < len(words) else None
