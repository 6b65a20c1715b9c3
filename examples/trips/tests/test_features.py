"""The features of a few trips, by hand."""

import numpy as np
import pyarrow as pa
from drivetrain import data, engine

from ..features import BUCKETED, DENSE, preprocess

ROWS = pa.table(
    {
        **{name: [1.0, 2.0, None] for name in (*DENSE, *BUCKETED)},
        "precip": [0.0, 0.5, None],
        "tailnum": ["N1", "N2", "N1"],
        "dest": ["IAH", "BQN", "IAH"],
        "carrier": ["UA", "B6", "UA"],
        "origin": ["EWR", "JFK", "LGA"],
        "month": [1, 6, 12],
        "hour": [5, 12, 23],
        "arr_delay": [20, 21, None],
        "air_time": [100, 100, 100],
    }
)


def test_numbers_words_and_label_of_three_trips() -> None:
    bundle = engine.analyze(preprocess, data.source_of(ROWS), data.executor("local"))
    features = bundle.run("transform", ROWS.to_batches()[0])
    np.testing.assert_allclose(features["temp"], [-1.2247, 1.2247, 0.0], atol=1e-4)  # a missing one is the mean
    np.testing.assert_array_equal(features["no_pressure"], [0.0, 0.0, 1.0])
    np.testing.assert_allclose(features["rain"], np.log1p([0.0, 50.0, 0.0]), rtol=1e-5)  # of an inch
    np.testing.assert_array_equal(features["tailnum"], [0, 1, 0])  # the most frequent word first
    np.testing.assert_array_equal(features["hour"].argmax(axis=1), [5, 12, 23])
    np.testing.assert_array_equal(features["lost"], [0.0, 1.0, 0.0])  # more than a fifth; never there is not late
