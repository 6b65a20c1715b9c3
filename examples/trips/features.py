"""From a raw trip to features, in the style of the Chicago taxi example; the label is a ratio."""

import jax.numpy as jnp
from drivetrain.engine import ops

DENSE = ("distance", "temp", "wind_speed", "visib", "pressure")
BUCKETED = ("dest_lat", "dest_lon", "wind_dir")
WORDS = ("tailnum", "dest")
ONE_HOT = {"carrier": 18, "origin": 5}  # 16 and 3 words, unknown, missing
CLOCK = {"month": 13, "hour": 24}
LOST = 0.2  # of the time in the air

TOP_K, OOV = 1000, 10


def preprocess(columns: ops.Columns) -> ops.Columns:
    """Features by name, and `lost`: 1.0 where the delay at arrival is more than a fifth of the time in the air."""
    features = {name: ops.z_score(ops.fill_missing(columns[name], ops.mean(columns[name]))) for name in DENSE}
    features["no_pressure"] = ops.cast(ops.is_missing(columns["pressure"]), "float32")
    features["rain"] = jnp.log1p(100.0 * jnp.clip(ops.fill_missing(columns["precip"], 0.0), 0.0, 1.0))  # of an inch
    for name in BUCKETED:
        features[f"{name}_bucket"] = ops.bucketize(columns[name], 10)
    for name in WORDS:
        features[name] = ops.vocabulary(columns[name], top_k=TOP_K, oov_buckets=OOV)
    features["frequent"] = ops.cast(features["tailnum"] < ops.vocabulary_size(features["tailnum"]), "float32")
    for name, depth in ONE_HOT.items():
        features[name] = ops.one_hot(ops.vocabulary(columns[name]), depth)
    for name, depth in CLOCK.items():
        features[name] = ops.one_hot(columns[name], depth)
    delay, air_time = (ops.cast(columns[name], "float32") for name in ("arr_delay", "air_time"))
    never_there = ops.is_missing(delay) | ops.is_missing(air_time)  # cancelled or diverted
    late = ops.cast(delay > LOST * air_time, "float32")
    features["lost"] = ops.where(never_there, jnp.zeros_like(late), late)
    return features
