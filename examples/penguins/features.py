"""From a raw row to features: traced once, the same graph in training and in serving."""

from drivetrain.engine import ops

NUMBERS = ("bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g")


def preprocess(columns: ops.Columns) -> ops.Columns:
    """Four z-scored numbers, a missing one as the mean; the label `adelie`, missing where the species is."""
    features = {name: ops.z_score(ops.fill_missing(columns[name], ops.mean(columns[name]))) for name in NUMBERS}
    features["adelie"] = ops.lookup(columns["species"], {"Adelie": 1.0}, default=0.0)
    return features
