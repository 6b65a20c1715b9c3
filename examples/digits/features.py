"""From pixels to an image that a network takes: the same graph in training and in serving."""

from drivetrain.engine import ops

from .pixels import SIZE


def preprocess(columns: ops.Columns) -> ops.Columns:
    """`image`, float32 [8, 8, 1] from 0 (the paper) to 1; and the label, `digit`."""
    pixels = ops.cast(columns["pixels"], "float32")
    return {"image": (pixels / 255.0).reshape(-1, SIZE, SIZE, 1), "digit": ops.cast(columns["label"], "int32")}
