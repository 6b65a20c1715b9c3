"""The framing of mergeable states: fixed layouts, and one error for damaged or foreign bytes."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pytest
from drivetrain.data import ExactMoments, StatisticsAccumulator
from drivetrain.data.states import (
    StateFormat,
    frame,
    nested,
    nested_arrays,
    read_arrays,
    reading_state,
    unframe,
    write_arrays,
)
from drivetrain.data.stats.options import StatisticsOptions
from drivetrain.errors import InputError
from hypothesis import given
from hypothesis import strategies as st

FORMAT = StateFormat("test state", b"DTXX", 3, "IQ", "make it again")


def test_the_layout_is_fixed() -> None:
    assert FORMAT.pack(b"ab", b"", b"cde") == b"DTXX\x03" + struct.pack("<IQ", 2, 0) + b"abcde"
    assert frame([b"ab", b""]) == struct.pack("<Q", 2) + b"ab" + bytes(8)


@given(st.lists(st.binary(max_size=20), min_size=3, max_size=3), st.lists(st.binary(max_size=20)))
def test_parts_come_back(parts: list[bytes], framed: list[bytes]) -> None:
    with FORMAT.unpack(FORMAT.pack(*parts)) as views:
        assert list(map(bytes, views)) == parts
    assert unframe(frame(framed)) == framed


def test_arrays_of_any_lengths_come_back() -> None:
    arrays = {
        "values": pa.array([1.5, 2.5]),
        **nested("inner0", {"values": pa.array([b"a"]), "x.y": pa.array([], "i8")}),
    }
    read = read_arrays(write_arrays(arrays))
    assert read == arrays
    assert nested_arrays(read) == {"inner0": {"values": pa.array([b"a"]), "x.y": pa.array([], "i8")}}


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (b"", "do not begin with DTXX"),
        (b"DTYY" + bytes(20), "do not begin with DTXX"),
        (b"DTXX", "end too early"),
        (b"DTXX\x04" + bytes(12), "version 4, not 3"),
        (b"DTXX\x03\x01", "end too early"),
        (b"DTXX\x03" + struct.pack("<IQ", 2, 0) + b"a", "end too early"),
    ],
)
def test_bytes_that_are_no_such_state(data: bytes, cause: str) -> None:
    with pytest.raises(InputError, match=f"not the test state that this release reads: .*{cause}"), FORMAT.unpack(data):
        pass


def test_errors_of_nested_states_pass_as_they_are() -> None:
    with pytest.raises(InputError, match="not the exact sum"), reading_state("outer state", "-"):
        ExactMoments.from_bytes(frame([b"junk"]) + b"junk")


@pytest.mark.slow
def test_a_state_cut_anywhere_is_refused() -> None:
    state = StatisticsAccumulator(20, StatisticsOptions(weight="w", slices=((("s", None),),), label="s"))
    random = np.random.default_rng(0)
    columns = {"x": random.normal(size=50), "s": ["a", "b"] * 25, "l": [[1], [2, 3]] * 25, "w": random.random(50)}
    state.add_batch(pa.RecordBatch.from_pydict(columns))
    data = state.to_bytes()
    assert StatisticsAccumulator.from_bytes(data).to_bytes() == data
    for end in range(0, len(data) - 8, 7):  # Arrow does without the last 8 bytes, which mark a stream's end
        with pytest.raises(InputError, match="not the statistics state that this release reads"):
            StatisticsAccumulator.from_bytes(data[:end])
