"""Ragged rows: a variable number of values per row, as flat values and sorted row numbers, in power-of-two buckets.

`Ragged` is a pytree that any JAX function takes; everything else is a function over it: made `from_` something,
combined, pooled per row. Names load on first use, as the host's side of it needs no JAX.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy import lazy_names

if TYPE_CHECKING:
    from .bags import bag_matrix as bag_matrix
    from .bags import embedding_bag as embedding_bag
    from .bags import matrix_bags as matrix_bags
    from .convert import from_arrow as from_arrow
    from .convert import from_bcoo as from_bcoo
    from .convert import from_dense as from_dense
    from .convert import from_lengths as from_lengths
    from .convert import from_lists as from_lists
    from .convert import from_row_splits as from_row_splits
    from .convert import from_sparse as from_sparse
    from .convert import sequence_mask as sequence_mask
    from .convert import to_arrow as to_arrow
    from .convert import to_bcoo as to_bcoo
    from .convert import to_dense as to_dense
    from .convert import to_lists as to_lists
    from .convert import to_sparse as to_sparse
    from .pooling import all as all  # noqa: A004  # as in jax.numpy
    from .pooling import any as any  # noqa: A004
    from .pooling import logsumexp as logsumexp
    from .pooling import max as max  # noqa: A004
    from .pooling import mean as mean
    from .pooling import min as min  # noqa: A004
    from .pooling import softmax as softmax
    from .pooling import sqrtn as sqrtn
    from .pooling import sum as sum  # noqa: A004
    from .ragged import Ragged as Ragged
    from .ragged import concat as concat
    from .rows import bucket as bucket

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "bags": "bag_matrix embedding_bag matrix_bags",
        "convert": (
            "from_arrow from_bcoo from_dense from_lengths from_lists from_row_splits from_sparse "
            "sequence_mask to_arrow to_bcoo to_dense to_lists to_sparse"
        ),
        "pooling": "all any logsumexp max mean min softmax sqrtn sum",
        "ragged": "Ragged concat",
        "rows": "bucket",
    },
)
