"""The features of a few flights, by hand."""

import numpy as np
import pyarrow as pa
from drivetrain import data, engine

from ..features import preprocess

ROWS = pa.table(
    {
        "month": [1, 6, 12],
        "hour": [5, 12, 23],
        "dep_time": [517, 1210, None],
        "sched_dep_time": [515, 1200, 2355],
        "dep_delay": [2.0, 10.0, None],
        "arr_delay": [15.0, 16.0, None],
        "carrier": ["UA", "B6", "UA"],
        "origin": ["EWR", "JFK", "EWR"],
        "dest": ["IAH", "BQN", None],
        "distance": [1400, 1576, 200],
    }
)


def test_numbers_words_and_label_of_three_flights() -> None:
    bundle = engine.analyze(preprocess, data.source_of(ROWS), data.executor("local"))
    features = bundle.run("transform", ROWS.to_batches()[0])
    delays = np.array([2.0, 10.0, 0.0])  # a missing one counts as none
    np.testing.assert_allclose(features["dep_delay"], (delays - delays.mean()) / delays.std(), rtol=1e-5)
    np.testing.assert_array_equal(features["carrier"], [0, 1, 0])  # the most frequent word first
    np.testing.assert_array_equal(features["month"], [1, 6, 12])
    assert features["dest"][2] == 3  # missing: after two words and the bucket of unknown ones
    np.testing.assert_array_equal(features["late"], [0.0, 1.0, 0.0])  # more than 15 minutes; cancelled is not late
