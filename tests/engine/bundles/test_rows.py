"""Rows as their users have them: frames, tables and columns by name give what batches give, or an error by column."""

from decimal import Decimal
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from drivetrain.engine import Bundle, analyze, ops
from drivetrain.engine.host_ops.columns import as_column, as_value
from drivetrain.errors import InputError
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.engine

FRAME = pd.DataFrame(
    {"real": [1.5, np.nan, -2.0], "whole": [3, 4, 5], "word": ["a", None, "b"], "truth": [True, False, True]}
)


def preprocess(columns: ops.Columns) -> ops.Columns:
    return {
        "real": ops.z_score(ops.fill_missing(columns["real"], 0.0)),
        "whole": ops.cast(ops.fill_missing(columns["whole"], -1), "int32"),
        "word": ops.vocabulary(columns["word"]),
        "truth": ops.fill_missing(columns["truth"], False),
    }


@cache
def bundle() -> Bundle:
    return analyze(preprocess, FRAME)


def same(first: dict[str, Any], second: dict[str, Any]) -> None:
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])


FORMS = {
    "table": pa.Table.from_pandas,
    "pieces": lambda frame: pa.concat_tables([pa.Table.from_pandas(frame[:1]), pa.Table.from_pandas(frame[1:])]),
    "dictionaries": lambda frame: pa.concat_tables(
        [pa.table(frame[part].astype({"word": "category"})) for part in (slice(1), slice(1, None))]
    ),
    "lists": lambda frame: {name: frame[name].tolist() for name in frame},
    "arrays": lambda frame: {name: frame[name].to_numpy() for name in frame},
    "series": lambda frame: dict(frame.items()),
    "dicts": lambda frame: frame.to_dict("records"),
    "an index": lambda frame: frame.set_index("whole"),
    "nullable": pd.DataFrame.convert_dtypes,
    "arrow types": lambda frame: frame.convert_dtypes(dtype_backend="pyarrow"),
    "objects": lambda frame: frame.astype(object),
    "categories": lambda frame: frame.astype("category"),
    "whole floats": lambda frame: frame.astype({"whole": "float64"}),
    "narrow": lambda frame: frame.astype({"whole": "int8", "real": "float32"}),
    "unsigned": lambda frame: frame.astype({"whole": "uint64"}),
    "decimals": lambda frame: {**dict(frame.items()), "whole": [Decimal(3), Decimal(4), Decimal("5.0")]},
}


@pytest.mark.parametrize("form", FORMS)
def test_all_forms_of_rows_give_the_same(form: str) -> None:
    (batch,) = pa.Table.from_pandas(FRAME, preserve_index=False).to_batches()
    rows = FORMS[form](FRAME)
    wanted = bundle().run("transform", batch)
    same(bundle().run("transform", rows), wanted)
    each, kept, errors = bundle().run_each("transform", rows)
    same(each, wanted)
    assert (kept.tolist(), errors) == ([0, 1, 2], {})
    same(next(bundle().run_stream("transform", [rows])), wanted)
    same(bundle().run_arrow("transform", rows).to_pydict(), bundle().run_arrow("transform", batch).to_pydict())


@pytest.mark.parametrize("form", ["pieces", "arrays", "dicts", "arrow types", "categories", "whole floats"])
def test_all_forms_of_training_data_teach_the_same(form: str) -> None:
    schema = pa.Table.from_pandas(FRAME, preserve_index=False).schema  # whole floats are integers by it
    learnt = analyze(preprocess, FORMS[form](FRAME), schema=schema)
    assert learnt.signatures == bundle().signatures
    same(learnt.run("transform", FRAME), bundle().run("transform", FRAME))


def test_no_rows_give_empty_arrays() -> None:
    nothing: tuple[Any, ...] = (FRAME[:0], {name: [] for name in FRAME})
    for rows in nothing:
        results = bundle().run("transform", rows)
        assert {name: (len(values), values.dtype) for name, values in results.items()} == {
            name: (0, values.dtype) for name, values in bundle().run("transform", FRAME).items()
        }


def test_a_row_of_a_frame_is_a_row() -> None:
    wanted = bundle().run("transform", FRAME)
    for index, row in enumerate(FRAME.astype(object).where(FRAME.notna(), pd.NA).to_dict("records")):
        for variant in (row, FRAME.iloc[index].to_dict(), {**row, "whole": float(row["whole"])}):
            results = bundle().run_row("transform", variant)
            assert results == {name: pytest.approx(values[index]) for name, values in wanted.items()}


@pytest.mark.parametrize(
    ("column", "values", "says"),
    [
        ("whole", [3.0, 4.5, 5.0], "column 'whole' has 4.5, which does not fit int64"),
        ("whole", [3.0, np.inf, 5.0], "column 'whole' has inf, which does not fit int64"),
        ("whole", [3.0, 2.0**63, 5.0], "column 'whole' has 9.223372036854776e+18, which does not fit int64"),
        (
            "whole",
            np.array([3, 2**63, 5], "uint64"),
            "column 'whole' has 9223372036854775808, which does not fit int64",
        ),
        ("whole", [Decimal("1.5")] * 3, "column 'whole' has Decimal('1.5'), which does not fit int64"),
        ("whole", ["3", "4", "5"], "column 'whole' is string, the graph reads int64"),
        ("whole", [True, False, True], "column 'whole' is bool, the graph reads int64"),
        ("real", [1, 2**53 + 1, 3], "column 'real' has 9007199254740993, which does not fit float64"),
        ("real", ["1", "2", "3"], "column 'real' is string, the graph reads float64"),
        ("word", [1, 2, 3], "column 'word' is int64, the graph reads string"),
        ("truth", [0, 1, 0], "column 'truth' is int64, the graph reads bool"),
        ("truth", [[1], [2], [3]], "column 'truth' is list<item: int64>, the graph reads bool"),
        ("truth", [True], "column 'truth' has 1 values"),
    ],
)
def test_what_would_change_is_one_error_that_names_the_column(column: str, values: Any, says: str) -> None:
    with pytest.raises(InputError) as caught:
        bundle().run("transform", {**dict(FRAME.items()), column: values})
    assert says in caught.value.message


NUMBERS = st.integers(-(2**64), 2**64) | st.floats() | st.floats(-1e6, 1e6).map(round).map(float)
ARROW = {"int64": pa.int64(), "float64": pa.float64()}


@given(st.sampled_from([pa.int8(), pa.int32(), pa.int64(), pa.uint64(), pa.float32(), pa.float64()]),
       st.sampled_from(["int64", "float64"]), st.lists(st.none() | NUMBERS, max_size=8))  # fmt: skip
def test_a_cast_changes_no_value(kind: pa.DataType, dtype: str, numbers: list[int | float | None]) -> None:
    """Python's numbers compare exactly, whatever their types: they are the oracle, of batches as of rows."""
    try:
        column = pa.array(numbers, kind)
    except (pa.ArrowException, OverflowError, TypeError):
        return
    values = [None if value is not None and value != value else value for value in column.to_pylist()]
    python = int if dtype == "int64" else float

    def fits(value: int | float) -> bool:
        try:
            return python(value) == value and (dtype == "float64" or -(2**63) <= value < 2**63)
        except OverflowError:  # an infinity as an integer
            return False

    if all(value is None or fits(value) for value in values):
        cast = as_column(column, dtype, "x")
        assert cast.type == ARROW[dtype]
        assert [None if value is not None and value != value else value for value in cast.to_pylist()] == values
    else:
        with pytest.raises(InputError, match=r"column 'x' has .*, which does not fit"):
            as_column(column, dtype, "x")
    for value in values:
        if value is None or fits(value):
            assert as_value(value, dtype, "x") == value
        else:
            with pytest.raises(InputError, match=r"column 'x' has .*, which does not fit"):
                as_value(value, dtype, "x")


@settings(max_examples=30)
@given(st.lists(st.none() | st.lists(st.integers(-5, 5).map(float) | st.just(0.5), max_size=3), max_size=5))
def test_so_in_lists(values: list[list[float] | None]) -> None:
    column = pa.array(values, pa.list_(pa.float64()))
    if all(item.is_integer() for items in values for item in items or ()):
        assert as_column(column, "list<int64>", "x").to_pylist() == values
    else:
        with pytest.raises(InputError, match=r"column 'x' has 0\.5, which does not fit int64"):
            as_column(column, "list<int64>", "x")


@pytest.mark.parametrize("value", [10**400, -(10**400), 2**63, Decimal("1e400"), float("inf")])
def test_a_whole_number_beyond_int64_is_unusable(value: object) -> None:
    with pytest.raises(InputError, match="distance"):
        as_value(value, "int64", "distance")
