"""The slices of rows: one value, several, or none, against a count by hand."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from drivetrain import InputError
from drivetrain.components.evaluation.slicing import NO_SLICE, encode
from drivetrain.data.slices import SliceTable
from hypothesis import given
from hypothesis import strategies as st

LISTS = st.lists(st.none() | st.lists(st.none() | st.sampled_from("xyz"), max_size=4), max_size=8)


def slices_of(specs: list[tuple[str, ...]], columns: dict[str, pa.Array], optional: Any = ()) -> Counter[Any]:
    """(row, spec, values) → how often the row has it."""
    table = SliceTable(specs)
    rows = len(next(iter(columns.values())))
    positions, codes = encode(table, columns, rows, optional)
    keys = list(table.codes)
    row_of = np.arange(rows) if positions is None else positions
    return Counter(
        (int(row_of[at]), *keys[code]) for at, entry in enumerate(codes.tolist()) for code in entry if code != NO_SLICE
    )


@given(tags=LISTS, more=LISTS, optional=st.booleans())
def test_a_row_is_once_in_the_slice_of_each_value_of_its_lists(tags: Any, more: Any, optional: bool) -> None:
    rows = min(len(tags), len(more))
    kind = pa.list_(pa.string())
    columns = {
        "tags": pa.array([None, *tags], kind)[1 : rows + 1],  # a slice, whose offsets do not begin at 0
        "more": pa.array(more[:rows], pa.large_list(pa.string())),
        "n": pa.array([row % 2 for row in range(rows)], pa.int64()),
    }

    def values(items: Any, *, leave: bool) -> list[Any]:
        return [value for value in dict.fromkeys(items or [None]) if not (leave and value is None)]

    expected: Counter[Any] = Counter()
    for row in range(rows):
        expected[row, 0, ()] += 1
        of_tags, of_more = values(tags[row], leave=optional), values(more[row], leave=False)
        for spec, digits in enumerate([[of_tags], [of_more, of_tags], [[row % 2]], [of_tags, [row % 2]]], start=1):
            expected.update((row, spec, key) for key in product(*digits))
    specs = [(), ("tags",), ("more", "tags"), ("n",), ("tags", "n")]
    assert slices_of(specs, columns, ["tags"] if optional else []) == expected


def test_lists_of_a_fixed_size_and_of_numbers() -> None:
    fixed = pa.array([[1.0, float("nan")], None, [0.0, -0.0]], pa.list_(pa.float64(), 2))
    assert slices_of([("f",)], {"f": fixed}) == Counter({
        (0, 0, (1.0,)): 1, (0, 0, (None,)): 1, (1, 0, (None,)): 1, (2, 0, (0.0,)): 1,
    })  # fmt: skip
    under_null = pa.ListArray.from_arrays(pa.array([0, 1, 3]), pa.array(["a", "b", "c"]), mask=pa.array([False, True]))
    assert slices_of([("f",)], {"f": under_null}) == Counter({(0, 0, ("a",)): 1, (1, 0, (None,)): 1})


def test_lists_of_lists_make_no_slices() -> None:
    with pytest.raises(InputError, match=r"column 'f' of type list<.*makes no slices"):
        slices_of([("f",)], {"f": pa.array([[["a"]]])})
