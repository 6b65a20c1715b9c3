"""From a raw row to features: traced once, the same graph in training and in serving."""

from drivetrain.engine import ops

NUMERIC = ("dep_delay", "dep_time", "sched_dep_time", "distance")
CATEGORIES = ("carrier", "origin", "dest")
LATE = 15.0  # minutes


def preprocess(columns: ops.Columns) -> ops.Columns:
    """Four z-scored numbers, the hour in ten quantile buckets, three vocabularies, the month; and the label."""
    features = {name: ops.z_score(ops.fill_missing(columns[name], 0.0)) for name in NUMERIC}
    features["hour"] = ops.bucketize(columns["hour"], 10)
    for name in CATEGORIES:
        features[name] = ops.vocabulary(columns[name], oov_buckets=1)
    features["month"] = ops.cast(columns["month"], "int32")
    features["late"] = ops.cast(ops.fill_missing(columns["arr_delay"], 0.0) > LATE, "float32")
    return features
