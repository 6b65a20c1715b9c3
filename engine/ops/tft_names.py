"""TensorFlow Transform's names of ops and arguments, which errors about unknown names translate to ours."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Final

OPS: Final[Mapping[str, str]] = {
    "scale_to_z_score": "z_score", "scale_to_z_score_per_key": "z_score_per_key", "scale_to_0_1": "min_max",
    "scale_to_0_1_per_key": "min_max_per_key", "scale_by_min_max": "min_max",
    "scale_by_min_max_per_key": "min_max_per_key", "compute_and_apply_vocabulary": "vocabulary",
    "hash_strings": "hash_buckets", "deduplicate_tensor_per_row": "deduplicate",
    "sparse_tensor_to_dense_with_shape": "to_dense", "get_vocabulary_size_by_name": "vocabulary_size",
    "ptransform_analyzer": "reduce", "estimated_probability_density": "histogram",
}  # fmt: skip
"""Ops of other names there."""

ARGUMENTS: Final[Mapping[str, str]] = {
    "num_oov_buckets": "oov_buckets", "default_value": "default", "frequency_threshold": "min_count",
    "vocab_filename": "name", "use_adjusted_mutual_info": "adjusted", "min_diff_from_avg": "min_diff",
    "reserved_tokens": "reserved", "fingerprint_shuffle": "by_digest", "key_fn": "coverage_key",
    "coverage_frequency_threshold": "coverage_min_count",
}  # fmt: skip
"""Arguments of vocabularies."""


def meant(name: str, known: Iterable[str], theirs: Mapping[str, str]) -> str:
    """What to say after a name that is not known: `, did you mean 'z_score'?`, or nothing where none is near."""
    likely = theirs.get(name) or next(iter(difflib.get_close_matches(name, list(known), 1)), None)
    return "" if likely is None else f", did you mean {likely!r}?"
