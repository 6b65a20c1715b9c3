"""Integrated gradients against closed forms, whatever the size of the batches that a model is asked."""

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from drivetrain.engine.attribution import frequent, integrated_gradients, replaced
from drivetrain.errors import InputError

pytestmark = pytest.mark.engine


def test_attributions_of_a_curve_are_its_integral_and_add_up() -> None:
    """f = x²·y + e^x: ∫ ∂f/∂x along the line from 0 is x²y·2/3 + e^x − 1, and of y x²y/3."""
    dice = np.random.default_rng(0)
    table = pa.table({"x": dice.normal(size=50), "y": dice.normal(size=50)})

    def curve(rows: pa.Table) -> Any:
        x, y = rows["x"].to_numpy(), rows["y"].to_numpy()
        return x**2 * y + np.exp(x)

    values, off = integrated_gradients(
        table, curve, ["x", "y"], {"x": 0.0, "y": 0.0}, {"x": 1e-2, "y": 1e-2}, steps=200
    )
    x, y = table["x"].to_numpy(), table["y"].to_numpy()
    assert values.shape == (50, 2, 1)
    np.testing.assert_allclose(values[:, 0, 0], 2 / 3 * x**2 * y + np.exp(x) - 1, atol=1e-3)
    np.testing.assert_allclose(values[:, 1, 0], x**2 * y / 3, atol=1e-3)
    assert np.abs(off).max() < 1e-3


@pytest.mark.parametrize("batch", [1, 7, 100, 8192])
def test_the_model_is_asked_batches_and_gets_every_row_whole(batch: int) -> None:
    """Of a linear model with two outputs, w·(x − b) exactly; what is missing has no part, and other columns stay."""
    dice = np.random.default_rng(3)
    numbers = dice.normal(size=(5, 3))
    numbers[1, 2] = np.nan
    names = ["a", "b", "c"]
    table = pa.table(
        {"town": ["Ulm"] * 4 + ["Bonn"]}
        | {name: pa.array(numbers[:, at], from_pandas=True) for at, name in enumerate(names)}
    )
    weights = dice.normal(size=(3, 2))
    asked: list[int] = []

    def line(rows: pa.Table) -> Any:
        asked.append(rows.num_rows)
        assert rows.schema == table.schema
        x = np.column_stack([rows[name].to_numpy() for name in names])
        sign = np.where(np.array(rows["town"].to_pylist()) == "Bonn", -1.0, 1.0)
        return sign[:, None] * (np.nan_to_num(x) @ weights)

    baseline, spread = {"a": 1.0, "b": -2.0, "c": 0.5}, {"a": 1.0, "b": 0.0, "c": 3.0}
    values, off = integrated_gradients(table, line, names, baseline, spread, steps=4, batch=batch)
    sign = np.array([1, 1, 1, 1, -1])
    expected = sign[:, None, None] * np.nan_to_num(numbers - [1.0, -2.0, 0.5])[:, :, None] * weights
    np.testing.assert_allclose(values, expected, atol=1e-9)
    assert np.abs(off).max() < 1e-9
    assert max(asked) <= max(batch, 10)
    assert sum(asked) == 2 * 5 + 2 * 5 * 3 * 4


def test_a_column_is_replaced_by_a_value_of_its_type() -> None:
    table = pa.table({"n": [1, 2], "town": pa.array(["Ulm", "Bonn"]).dictionary_encode()})
    assert replaced(table, "n", 7)["n"].to_pylist() == [7, 7]
    assert replaced(table, "town", "Köln").schema == table.schema
    assert replaced(table, "town", None)["town"].to_pylist() == [None, None]
    for column, value in (("n", 1.5), ("n", "x"), ("town", 3)):
        with pytest.raises(InputError, match="which the column holds"):
            replaced(table, column, value)


def test_the_most_frequent_values_come_first_and_equally_frequent_ones_by_text() -> None:
    values = pa.chunked_array([["b", "a", None], ["c", "c", None]])
    assert frequent(values, 2) == [("c", 2), ("a", 1)]
    assert frequent(values.dictionary_encode(), 9) == [("c", 2), ("a", 1), ("b", 1)]


def test_times_that_python_has_none_of_are_no_frequent_values() -> None:
    days = pa.array([3 * 10**6, 3 * 10**6, 1, None, -(2**31)], pa.int32()).cast(pa.date32())
    assert frequent(pa.chunked_array([days]), 9) == [(dt.date(1970, 1, 2), 1)]


def test_halves_are_counted_and_put_in_place_of_others() -> None:
    table = pa.table({"h": pa.array([0.5, 0.5, None, 2.0], pa.float16())})
    assert frequent(table["h"], 9) == [(0.5, 2), (2.0, 1)]
    assert replaced(table, "h", 2.0)["h"].to_pylist() == [2.0] * 4
