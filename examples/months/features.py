"""From a raw row to features."""

from drivetrain.engine import ops

NUMERIC = ("dep_delay", "distance")
LATE = 15.0  # minutes


def preprocess(columns: ops.Columns) -> ops.Columns:
    """Two z-scored numbers, two vocabularies; and the label."""
    features = {name: ops.z_score(ops.fill_missing(columns[name], 0.0)) for name in NUMERIC}
    for name in ("carrier", "origin"):
        features[name] = ops.vocabulary(columns[name], oov_buckets=1)
    features["late"] = ops.cast(ops.fill_missing(columns["arr_delay"], 0.0) > LATE, "float32")
    return features
