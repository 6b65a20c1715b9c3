"""List columns: read, passed through, made dense; batches of every Arrow encoding equal rows."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain import data
from drivetrain.engine import Bundle, FieldSpec, analyze
from drivetrain.engine.host_ops.columns import as_column, as_value, present
from drivetrain.engine.host_ops.kernels import host_op
from drivetrain.errors import InputError
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.engine


NAN = float("nan")
FLOATS = st.lists(st.none() | st.lists(st.none() | st.floats(width=32), max_size=5), max_size=8)


@pytest.fixture
def learn(tmp_path: Path):  # type: ignore[no-untyped-def]
    def run(fn: Any, **columns: Any) -> tuple[Bundle, dict[str, np.ndarray[Any, Any]]]:
        table = pa.table(columns)
        pq.write_table(table, tmp_path / "data.parquet", row_group_size=2)
        bundle = analyze(
            fn, data.open_parquet([tmp_path / "data.parquet"]), data.executor("local"), schema=table.schema
        )
        (batch,) = table.combine_chunks().to_batches()
        out = bundle.run("transform", batch)
        for place, row in enumerate(table.to_pylist()):
            for name, value in bundle.run_row("transform", row).items():
                np.testing.assert_equal(value, out[name][place], name)
        return bundle, out

    return run


def encodings(values: list[Any], item: pa.DataType) -> list[pa.Array]:
    """The same list column as Arrow may bring it."""
    plain = pa.array(values, pa.list_(item))
    padded = pa.concat_arrays([plain, plain, plain]).slice(len(values), len(values))
    found = [plain, padded, plain.cast(pa.large_list(item))]
    if len({None if v is None else len(v) for v in values} - {None}) == 1:
        width = len(next(v for v in values if v is not None))
        found.append(pa.array(values, pa.list_(item, width)))
    return found


def entered(values: list[Any], dtype: str) -> list[Any]:
    """What the host sees of raw lists, after checking that batches and rows agree."""
    item = {"list<string>": pa.string(), "list<int64>": pa.int64(), "list<float64>": pa.float64()}[dtype]
    rows = [as_value(value, dtype, "x") for value in values]
    for column in encodings(values, item):
        made = as_column(column, dtype, "x")
        assert made.type == pa.list_(item)
        np.testing.assert_equal(made.to_pylist(), rows)
        assert made.values.null_count == 0
        assert present(made).tolist() == [value is not None for value in values]
    return rows


@given(FLOATS)
def test_a_null_in_a_list_of_floats_is_nan(values: list[Any]) -> None:
    wanted = [None if row is None else [NAN if v is None else v for v in row] for row in values]
    np.testing.assert_equal(entered(values, "list<float64>"), wanted)


@given(st.lists(st.none() | st.lists(st.none() | st.text(max_size=3), max_size=4), max_size=8))
def test_a_null_in_a_list_of_text_is_dropped(values: list[Any]) -> None:
    wanted = [None if row is None else [v for v in row if v is not None] for row in values]
    assert entered(values, "list<string>") == wanted


@given(st.lists(st.none() | st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=4), max_size=8))
def test_a_null_in_a_list_of_whole_numbers_is_dropped(values: list[Any]) -> None:
    wanted = [None if row is None else [v for v in row if v is not None] for row in values]
    assert entered(values, "list<int64>") == wanted


def test_lists_pass_through_as_they_are(learn: Any) -> None:
    words, ids, x = [["a", "b"], None, []], [[1, 2], [3], [4]], [[0.5], [], None]
    bundle, out = learn(lambda c: dict(c), words=words, ids=ids, x=x)
    assert out["words"].tolist() == words
    assert out["ids"].tolist() == ids
    assert out["x"].tolist() == x
    signature = bundle.signatures["transform"]
    assert signature.inputs["words"] == signature.outputs["words"] == FieldSpec("list<string>")
    assert signature.outputs["ids"] == FieldSpec("list<int64>")
    (batch,) = pa.table({"words": words, "ids": ids, "x": x}).to_batches()
    assert bundle.run_arrow("transform", batch).schema.types == [
        pa.list_(pa.string()), pa.list_(pa.int64()), pa.list_(pa.float64()),
    ]  # fmt: skip


def test_lists_of_one_length_stay_lists(learn: Any) -> None:
    _, out = learn(lambda c: {"ids": c["ids"]}, ids=[[1, 2], [3, 4]])
    assert out["ids"].shape == (2,)
    assert out["ids"].tolist() == [[1, 2], [3, 4]]


def test_fixed_size_lists_of_numbers_are_arrays(learn: Any) -> None:
    x = pa.array([[1.0, 2.0, None], None, [4.0, NAN, 6.0]], pa.list_(pa.float32(), 3))
    n = pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int16(), 2))
    bundle, out = learn(lambda c: {"double": c["x"] * 2, "sum": c["n"].sum(axis=1)}, x=x, n=n)
    np.testing.assert_array_equal(out["double"], [[2, 4, NAN], [NAN] * 3, [8, NAN, 12]])
    assert out["double"].dtype == np.float32
    assert out["sum"].tolist() == [3, 7, 11]
    with pytest.raises(InputError, match="column 'x' has a list of 2 values in row 0, not 3"):
        bundle.run("transform", pa.record_batch({"x": [[1.0, 2.0]], "n": [[1, 2]]}))
    with pytest.raises(InputError, match="column 'n' has no list in row 0, and int32 has no room"):
        bundle.run("transform", pa.record_batch({"x": [[1.0, 2.0, 3.0]], "n": pa.array([None], pa.list_(pa.int64()))}))
    with pytest.raises(InputError, match="column 'n' has 2147483648 in row 0"):
        bundle.run("transform", pa.record_batch({"x": [[1.0, 2.0, 3.0]], "n": [[1, 2**31]]}))
    with pytest.raises(InputError, match="column 'n' has no list"):
        bundle.run_row("transform", {"x": [1.0, 2.0, 3.0], "n": None})


@given(FLOATS, st.integers(5, 7), st.none() | st.floats(width=32))
def test_dense_equals_a_loop(values: list[Any], width: int, fill: float | None) -> None:
    params = {"width": width, "fill": fill, "shorter": True, "dtype": "float32", "column": "x"}
    empty = NAN if fill is None else fill
    rows: list[Any] = [as_value(value, "list<float64>", "x") or [] for value in values]
    wanted = np.array([row + [empty] * (width - len(row)) for row in rows], np.float32).reshape(len(rows), width)
    row = host_op("dense").row(params, ())
    np.testing.assert_equal([row(as_value(value, "list<float64>", "x")) for value in values], list(wanted))
    batch = host_op("dense").batch(params, ())
    for column in encodings(values, pa.float64()):
        np.testing.assert_array_equal(batch(as_column(column, "list<float64>", "x")), wanted)


@pytest.mark.parametrize(
    ("fn", "says"),
    [
        (lambda c: {"y": c["l"] + 1}, "column 'l' is a list and was given to add"),
        (lambda c: {"y": c["l"] == 1}, "column 'l' is a list and was compared"),
        (lambda c: {"y": c["nested"]}, "column 'nested' is list<"),
    ],
)
def test_what_lists_cannot_do_is_said(learn: Any, fn: Any, says: str) -> None:
    with pytest.raises(InputError) as caught:
        learn(fn, l=[[1]], nested=[[[1]]])
    assert says in caught.value.message
    assert "test_lists.py:" in str(caught.value.where)


@pytest.mark.parametrize(
    ("value", "says"), [(["a"], "'x' is 'a'"), (1, "'x' is 1, the graph reads list"), ([[1]], r"'x' is \[1\]")]
)
def test_a_row_of_another_type_is_refused(value: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        as_value(value, "list<int64>", "x")


def test_a_batch_of_another_type_is_refused() -> None:
    with pytest.raises(InputError, match="column 'x' is string, the graph reads int64"):
        as_column(pa.array([["a"]]), "list<int64>", "x")
    with pytest.raises(InputError, match="column 'x' is int64, the graph reads list<int64>"):
        as_column(pa.array([1]), "list<int64>", "x")
    assert as_column(pa.nulls(2), "list<string>", "x").to_pylist() == [None, None]
    assert as_column(pa.array([[], []]), "list<string>", "x").to_pylist() == [[], []]
    assert as_value(np.array([1, 2]), "list<float64>", "x") == [1.0, 2.0]
