"""Sources: batches of a fixed size, whatever they are read from."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from drivetrain.data.sources import rebatch


@pytest.mark.slow  # Arrow copies what it can join
def test_rows_of_more_than_2_gib_of_text_are_all_there() -> None:
    size = 1_080_000_000  # never written: pages of zeros that the system does not give before someone writes

    def value() -> pa.Array:
        offsets, zeros = np.array([0, size], np.int32), np.zeros(size, np.uint8)
        return pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(offsets), pa.py_buffer(zeros)])

    batches = [pa.record_batch({"image": value(), "n": pa.array([number])}) for number in range(2)]
    read = list(rebatch(iter(batches), 1000))
    assert [batch["n"].to_pylist() for batch in read] == [[0], [1]]
