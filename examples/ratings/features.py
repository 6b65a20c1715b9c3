"""From a pair of aircraft and airport to ids, a number, and the label."""

import jax.numpy as jnp
from drivetrain.engine import ops

CATEGORIES = ("tailnum", "dest", "carrier")
NEW = 8  # ids for aircraft and airports that come later


def preprocess(columns: ops.Columns) -> ops.Columns:
    """Ids of categories, the distance, and `rating`: the logarithm of 1 + flights."""
    features = {name: ops.vocabulary(columns[name], oov_buckets=NEW) for name in CATEGORIES}
    features["distance"] = ops.z_score(columns["distance"])
    features["rating"] = jnp.log1p(ops.cast(columns["flights"], "float32"))
    return features
