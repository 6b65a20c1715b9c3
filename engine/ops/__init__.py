"""What a preprocessing function may call beside JAX itself: missing values, categories, scaling, analyzers.

An analyzer (`mean`, `quantiles`, `vocabulary` …) is a value of the whole training data: it is computed in a full pass
before anything is transformed, may be used in arithmetic like any array, and may look at columns that other analyzers
helped to make (that takes another pass). Analyzers see present, finite values only. Missing means null, and for floats
also NaN.
"""

from .categories import apply_buckets, bucketize, hash_buckets, one_hot, vocabulary
from .common import Columns
from .scaling import min_max, z_score
from .statistics import count, max, mean, min, quantiles, std, sum, var  # noqa: A004  # ops.sum is the field's name
from .values import cast, fill_missing, is_in, is_missing, where

__all__ = [
    "Columns", "apply_buckets", "bucketize", "cast", "count", "fill_missing", "hash_buckets", "is_in", "is_missing",
    "max", "mean", "min", "min_max", "one_hot", "quantiles", "std", "sum", "var", "vocabulary", "where", "z_score",
]  # fmt: skip
