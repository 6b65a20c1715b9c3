"""What a preprocessing function may call beside JAX itself: missing values, categories, scaling, analyzers.

An analyzer (`mean`, `quantiles`, `vocabulary` …) is a value of the whole training data: it is computed in a full pass
before anything is transformed, may be used in arithmetic like any array, and may look at columns that other analyzers
helped to make (that takes another pass).

One rule holds for what is not a value. Missing means null, and for floats also NaN. Analyzers leave out null, NaN and
±Inf (a row of a vector counts in `covariance`, `correlation` and `pca` only if it is finite throughout; `size` counts
rows); of no value at all a count or sum is 0, anything else NaN. Mappers keep a missing float as NaN, give ±Inf what
their formula gives, and give a missing category an id of its own. Weights must be there, finite and not negative. A row
whose key or label is missing is left out, and a key not seen in training has no statistics.
"""

from typing import TYPE_CHECKING

from . import tft_names
from .arguments import Columns
from .categories import (
    apply_buckets,
    apply_buckets_with_interpolation,
    apply_vocabulary,
    bucketize,
    hash_buckets,
    one_hot,
    vocabulary,
)
from .checks import check, check_finite, check_range
from .dates import timestamp_cycle, timestamp_part
from .lists import bag_of_words, deduplicate, multi_hot, ngrams, tfidf, to_dense, to_ragged, word_count
from .per_key import (
    bucketize_per_key,
    count_per_key,
    max_per_key,
    mean_per_key,
    min_max_per_key,
    min_per_key,
    quantiles_per_key,
    sum_per_key,
    var_per_key,
    z_score_per_key,
)
from .reduce import reduce
from .scaling import inverse_min_max, inverse_z_score, min_max, scale_to_gaussian, z_score
from .statistics import (
    correlation,
    count,
    covariance,
    histogram,
    max,  # noqa: A004  # ops.sum is the field's name
    mean,
    median,
    min,  # noqa: A004  # as max
    mode,
    pca,
    quantiles,
    size,
    std,
    sum,  # noqa: A004  # as max
    var,
)
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
from .values import cast, fill_missing, imputed, is_in, is_missing, where
from .vocabularies import Vocabulary, inverse_vocabulary, learn_vocabulary, vocabulary_size

__all__ = [
    "Columns", "Vocabulary", "apply_buckets", "apply_buckets_with_interpolation", "apply_vocabulary", "bag_of_words",
    "bucketize", "bucketize_per_key", "cast", "check", "check_finite", "check_range", "concat", "correlation", "count",
    "count_per_key", "covariance", "deduplicate", "ends_with", "fill_missing", "hash_buckets", "histogram", "imputed",
    "inverse_min_max", "inverse_vocabulary", "inverse_z_score", "is_in", "is_missing", "join", "learn_vocabulary",
    "length", "lookup", "lower", "max", "max_per_key", "mean", "mean_per_key", "median", "min", "min_max",
    "min_max_per_key", "min_per_key", "mode", "multi_hot", "ngrams", "one_hot", "parse", "pca", "quantiles",
    "quantiles_per_key", "reduce", "regex_contains", "regex_full_match", "regex_replace", "scale_to_gaussian", "size",
    "split", "starts_with", "std", "strip", "substr", "sum", "sum_per_key", "tfidf",
    "timestamp_cycle", "timestamp_part", "to_dense", "to_ragged", "upper", "var", "var_per_key", "vocabulary",
    "vocabulary_size", "where", "word_count", "z_score", "z_score_per_key",
]  # fmt: skip

if not TYPE_CHECKING:  # mypy would take any name for one of ours

    def __getattr__(name: str) -> object:
        raise AttributeError(f"there is no ops.{name}{tft_names.meant(name, __all__, tft_names.OPS)}")
