"""A long sequence told whole: no item lost, repeats found."""

from __future__ import annotations

from drivetrain.report.segments import segments
from hypothesis import given, settings
from hypothesis import strategies as st


@settings(deadline=None)
@given(st.lists(st.sampled_from("abcd"), max_size=120), st.integers(1, 40))
def test_segments_tell_a_sequence_whole(keys: list[str], limit: int) -> None:
    found = segments(keys, limit)
    assert [place for part in found for place in range(part.start, part.stop)] == list(range(len(keys)))
    assert all(part.start < part.stop for part in found)
    assert len(found) <= limit
    if len(keys) <= limit:
        assert len(found) == len(keys)


def test_a_pattern_that_repeats_is_one_segment() -> None:
    (layers, end) = segments([*("aab" * 50), "c"], 10)
    assert (layers.start, layers.stop, layers.times) == (0, 150, 50)
    assert (end.start, end.stop, end.times) == (150, 151, 1)
