"""The features of a few penguins, by hand."""

import numpy as np
import pyarrow as pa
from drivetrain import data, engine

from ..features import preprocess

ROWS = pa.table(
    {
        "species": ["Adelie", "Gentoo", "Chinstrap"],
        "bill_length_mm": [39.0, 47.0, None],
        "bill_depth_mm": [18.7, 15.0, 14.3],
        "flipper_length_mm": [181, None, 217],
        "body_mass_g": [3750, 5700, None],
    }
)


def test_numbers_are_scaled_and_a_missing_one_is_the_mean() -> None:
    bundle = engine.analyze(preprocess, data.source_of(ROWS), data.executor("local"))
    features = bundle.run("transform", ROWS.to_batches()[0])
    np.testing.assert_allclose(features["bill_length_mm"], [-1.2247, 1.2247, 0.0], atol=1e-4)
    np.testing.assert_allclose(features["body_mass_g"], [-1.2247, 1.2247, 0.0], atol=1e-4)
    np.testing.assert_array_equal(features["adelie"], [1.0, 0.0, 0.0])
