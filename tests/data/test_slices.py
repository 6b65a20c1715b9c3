"""Slices as codes: columns that come encoded as Parquet has them give what their values give."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from drivetrain.data.slices import encode_column, shown_value, title
from hypothesis import given
from hypothesis import strategies as st


@given(
    entries=st.one_of(
        st.lists(st.none() | st.text(max_size=3), min_size=1, max_size=5),
        st.lists(st.none() | st.floats(), min_size=1, max_size=5),
    ),
    rows=st.lists(st.none() | st.integers(0, 4), min_size=1, max_size=12),
)
def test_a_dictionary_is_encoded_as_its_values(entries: list[Any], rows: list[int | None]) -> None:
    """Entries may come twice, be missing, or be those of no row."""
    indices = pa.array([None if row is None else row % len(entries) for row in rows], pa.int8())
    column = pa.DictionaryArray.from_arrays(indices, pa.array(entries))
    codes, values = encode_column("x", column)
    plain_codes, plain_values = encode_column("x", column.cast(column.type.value_type))
    expected = [plain_values[code] for code in plain_codes]
    assert [values[code] for code in codes] == expected
    assert set(values) == set(expected), "no value that no row has"


def test_an_int8_dictionary_may_be_full() -> None:
    entries = [f"{number}" for number in range(128)]
    column = pa.DictionaryArray.from_arrays(pa.array([*range(128), None], pa.int8()), pa.array(entries))
    codes, values = encode_column("x", column)
    assert [values[code] for code in codes] == [*entries, None]


@pytest.mark.parametrize(
    ("value", "shown"), [(None, "(missing)"), ("(missing)", "'(missing)'"), ("a", "a"), (True, "True"), (1.5, "1.5")]
)
def test_what_a_value_is_called(value: Any, shown: str) -> None:
    assert (shown_value(value), title([("x", value)])) == (shown, f"x={shown}")
