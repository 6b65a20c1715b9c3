"""Rows by cell against NumPy's: joined, split, sorted, and encoded as each row by itself is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from drivetrain.components.evaluation.row_table import SUMMED, RowTable, joined
from drivetrain.components.evaluation.slicing import encode, encode_cells
from drivetrain.data.slices import SliceTable
from hypothesis import given
from hypothesis import strategies as st

ROWS = st.lists(st.tuples(*[st.integers(-1, 3)] * 2, st.integers(0, 2)), max_size=20)


def table_of(rows: list[tuple[int, int, int]]) -> tuple[RowTable, np.ndarray]:
    """Rows of two codes and a score, and the same as a matrix."""
    matrix = np.array(rows, dtype=np.int32).reshape(-1, 3)
    return RowTable.of({"score": matrix[:, 2] / 2}, matrix[:, :2]), matrix


def matrix_of(table: RowTable) -> list[list[int]]:
    """Its codes and scores, row by row."""
    codes = table.codes[table.cell]
    return [[*row, int(2 * score)] for row, score in zip(codes.tolist(), table.columns["score"], strict=True)]


@given(st.lists(ROWS, min_size=1, max_size=3))
def test_joined_rows_stand_one_after_the_other(parts: list[Any]) -> None:
    (table,) = joined([table_of(part)[0] for part in parts])
    assert matrix_of(table) == [list(row) for part in parts for row in part]
    assert len(np.unique(table.codes, axis=0)) == len(table.codes) or len(parts) == 1


@given(ROWS, st.sets(st.integers(0, 3)))
def test_a_split_leaves_each_row_the_codes_of_its_side(rows: Any, codes: set[int]) -> None:
    table, matrix = table_of(rows)
    mine = np.isin(matrix[:, :2], list(codes))
    for part, mask in zip(table.split(codes, 4), (mine, ~mine), strict=True):
        expected = np.where(mask, matrix[:, :2], SUMMED)
        some = (expected != SUMMED).any(axis=1)
        assert matrix_of(part) == np.column_stack([expected, matrix[:, 2]])[some].tolist()


@given(ROWS)
def test_rows_by_score_and_then_by_slice(rows: Any) -> None:
    table, matrix = table_of(rows)
    in_order = matrix[np.lexsort([matrix[:, 1], matrix[:, 0], matrix[:, 2]])].tolist()
    assert matrix_of(table.by_score(["score"], ties=True)) == in_order
    loose = matrix_of(table.by_score(["score"], ties=False))
    assert sorted(loose) == sorted(in_order)
    assert [row[2] for row in loose] == [row[2] for row in in_order]


@given(ROWS, st.randoms(use_true_random=False))
def test_counts_are_those_of_the_codes(rows: Any, random: Any) -> None:
    table, matrix = table_of(rows)
    codes = matrix[:, :2]
    assert table.cells(4).counts() == [int((codes == code).sum()) for code in range(4)]
    label = np.array([random.random() < 0.5 for _ in rows], dtype=np.bool_)
    halves = table.cells(4).by_label(label)
    for wanted in (True, False):
        which = label == wanted
        assert halves.counts(label=wanted) == [int((codes[which] == code).sum()) for code in range(4)]


@pytest.mark.parametrize("lists", [False, True])
@given(st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from([1, 2, None])), max_size=20))
def test_cells_have_the_codes_of_their_rows(lists: bool, rows: list[tuple[str | None, int | None]]) -> None:
    texts: Any = pa.array([text for text, _ in rows], pa.string()).dictionary_encode()
    if lists:
        texts = pa.array([[text, "c"] if text else None for text, _ in rows], pa.list_(pa.string()))
    columns = {"t": texts, "n": pa.array([number for _, number in rows], pa.int64())}
    specs = [(), ("t",), ("t", "n"), ("n",)]
    whole, by_cell = SliceTable(specs), SliceTable(specs)
    position, codes = encode(whole, columns, len(rows), ["n"])
    positions, cell, codes_of_cell = encode_cells(by_cell, columns, len(rows), ["n"])
    assert by_cell.codes == whole.codes
    assert codes_of_cell[cell].tolist() == codes.tolist()
    assert (position is None) == (positions is None)
    assert position is None or (positions is not None and positions.tolist() == position.tolist())
