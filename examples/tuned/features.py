"""From a raw row to features: traced once, the same graph in training and in serving."""

from drivetrain.engine import ops

NUMBERS = ("bill_length_mm", "bill_depth_mm", "flipper_length_mm")
CATEGORIES = ("island", "sex")


def preprocess(columns: ops.Columns) -> ops.Columns:
    """Z-scored numbers, ids of categories; and the label, `kilograms`."""
    features = {name: ops.z_score(ops.fill_missing(columns[name], ops.mean(columns[name]))) for name in NUMBERS}
    features |= {name: ops.vocabulary(columns[name]) for name in CATEGORIES}
    mass = columns["body_mass_g"]
    features["kilograms"] = ops.cast(ops.fill_missing(mass, ops.mean(mass)) / 1000.0, "float32")
    return features
