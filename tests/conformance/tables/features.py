"""From a raw penguin to features: four z-scored numbers, two vocabularies, and whether it is heavy."""

from __future__ import annotations

from drivetrain.engine import ops

NUMERIC = ("bill_length_mm", "bill_depth_mm", "flipper_length_mm")
CATEGORIES = ("species", "island")
HEAVY = 4200.0  # grams


def preprocess(columns: ops.Columns) -> ops.Columns:
    features = {name: ops.z_score(ops.fill_missing(columns[name], 0.0)) for name in NUMERIC}
    for name in CATEGORIES:
        features[name] = ops.vocabulary(columns[name], oov_buckets=1)
    features["heavy"] = ops.cast(ops.fill_missing(columns["body_mass_g"], 0.0) > HEAVY, "float32")
    return features
