"""What a preprocessing function may call beside JAX itself: missing values, categories, scaling, analyzers.

An analyzer (`mean`, `quantiles`, `vocabulary` …) is a value of the whole training data: it is computed in a full pass
before anything is transformed, may be used in arithmetic like any array, and may look at columns that other analyzers
helped to make (that takes another pass). Analyzers see present, finite values only. Missing means null, and for floats
also NaN.
"""

from .categories import apply_buckets, bucketize, hash_buckets, one_hot, vocabulary
from .common import Columns
from .lists import bag_of_words, deduplicate, multi_hot, ngrams, tfidf, to_dense, word_count
from .scaling import min_max, z_score
from .statistics import count, max, mean, min, quantiles, std, sum, var  # noqa: A004  # ops.sum is the field's name
from .text import (
    concat,
    ends_with,
    join,
    length,
    lookup,
    lower,
    parse,
    regex_contains,
    regex_full_match,
    regex_replace,
    split,
    starts_with,
    strip,
    substr,
    upper,
)
from .values import cast, fill_missing, is_in, is_missing, where

__all__ = [
    "Columns", "apply_buckets", "bag_of_words", "bucketize", "cast", "concat", "count", "deduplicate", "ends_with",
    "fill_missing", "hash_buckets", "is_in", "is_missing", "join", "length", "lookup", "lower", "max", "mean",
    "min", "min_max", "multi_hot", "ngrams", "one_hot", "parse", "quantiles", "regex_contains", "regex_full_match",
    "regex_replace", "split", "starts_with", "std", "strip", "substr", "sum", "tfidf", "to_dense", "upper", "var",
    "vocabulary", "where", "word_count", "z_score",
]  # fmt: skip
