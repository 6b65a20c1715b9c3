"""From a raw row to features and the label of each question: traced once, the same graph in training and in serving."""

import jax.numpy as jnp
from drivetrain.engine import ops

NUMBERS = ("dewp", "humid", "pressure")
ORIGINS = ("EWR", "JFK", "LGA")
SEASONS = ("winter", "spring", "summer", "autumn")
CONDITIONS = ("wet", "hazy", "windy")


def preprocess(columns: ops.Columns) -> ops.Columns:
    """Three z-scored numbers, hour, month and airport; and four labels."""
    features = {name: ops.z_score(ops.fill_missing(columns[name], ops.mean(columns[name]))) for name in NUMBERS}
    features["hour"] = ops.cast(columns["hour"], "int32")
    features["month"] = ops.cast(columns["month"], "int32")
    features["origin"] = ops.lookup(columns["origin"], {name: at for at, name in enumerate(ORIGINS)}, default=0)

    wind = ops.fill_missing(columns["wind_speed"], 0.0)  # miles an hour
    wind = ops.where(wind > 100.0, 0.0, wind)  # one instrument says 1,048
    features["warmth"] = ops.fill_missing(columns["temp"], ops.mean(columns["temp"]))  # °F
    features["season_id"] = ops.cast(features["month"] % 12 // 3, "int32")
    holds = (columns["precip"] > 0.0, columns["visib"] < 10.0, wind > 15.0)
    features["holds"] = jnp.stack([ops.cast(each, "float32") for each in holds], axis=-1)
    features["wind"] = wind / 10.0
    return features
