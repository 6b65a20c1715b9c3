"""Checks of rows: they survive export, no pass removes them, and they fail only their own row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("jax")

import jax
from drivetrain import data
from drivetrain.engine import Bundle, analyze, apply, export_model, ops
from drivetrain.errors import InputError

pytestmark = pytest.mark.engine


def preprocess(columns: ops.Columns) -> ops.Columns:
    ops.check(columns["start"] <= columns["end"], "a trip ends after it starts")
    ops.check_range(columns["age"], 0, 120)
    ops.check(columns["arrival"] > -1000, "no arrival is that early")
    ops.check(columns["unread"] != "stolen", "the card is stolen")
    return {
        "length": ops.fill_missing(columns["end"] - columns["start"], 0.0),
        "age": ops.fill_missing(ops.cast(columns["age"], "float32"), 30.0),
        "late": ops.cast(ops.fill_missing(columns["arrival"], 0.0) > 15.0, "float32"),
    }


def table(rows: int = 50) -> pa.Table:
    return pa.table(
        {
            "start": np.arange(rows, dtype=np.float64),
            "end": np.arange(rows, dtype=np.float64) + 1,
            "age": pa.array([None if row % 7 == 3 else row for row in range(rows)], pa.int64()),
            "arrival": np.linspace(-20, 40, rows),
            "unread": ["fine"] * rows,
        }
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checks")
    pq.write_table(table(), folder / "raw.parquet")
    source = data.open_parquet([folder / "raw.parquet"])
    analyze(preprocess, source, data.executor("local")).save(folder / "graph")
    apply(folder / "graph", {"train": source}, folder / "examples", data.executor("local"))

    def model(params: Any, features: Any) -> Any:
        return features["length"] * params["w"]  # reads neither age nor the cards

    predict = lambda y: {"p": jax.nn.sigmoid(y)}  # noqa: E731
    export_model(folder / "graph", model, {"w": np.ones((), np.float32)}, predict, label="late", out=folder / "model")
    return folder


def changed(**values: Any) -> pa.RecordBatch:
    """Row 3 of the table with other values."""
    columns = table().to_pydict()
    for name, value in values.items():
        columns[name][3] = value
    return pa.RecordBatch.from_pydict(columns, schema=table().schema)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"start": 9.0}, r"a trip ends after it starts \(start = 9.0, end = 4.0\)"),
        ({"age": -1}, r"age is not from 0 to 120 \(age = -1\)"),
        ({"unread": "stolen"}, r"the card is stolen \(unread = 'stolen'\)"),
    ],
)
def test_a_row_that_breaks_a_check_fails_in_training_and_serving(
    made: Path, values: dict[str, Any], message: str
) -> None:
    batch = changed(**values)
    row = {name: column[3] for name, column in batch.to_pydict().items()}
    for folder, signature in (("graph", "transform"), ("model", "predict"), ("model", "evaluate")):
        bundle = Bundle.load(made / folder)
        with pytest.raises(InputError, match=f"check failed in row 3: {message}") as raised:
            bundle.run(signature, batch)
        assert raised.value.where is not None
        assert raised.value.where.startswith("test_checks.py:preprocess+")  # no folder and no line: it is in the bundle
        with pytest.raises(InputError, match=f"check failed: {message}"):
            bundle.run_row(signature, row)


def test_only_the_failing_row_of_a_batch_of_strangers_fails(made: Path) -> None:
    bundle = Bundle.load(made / "model")
    found, kept, errors = bundle.run_each("predict", changed(age=-1, start=99.0))
    assert list(errors) == [3]
    assert kept.tolist() == [row for row in range(50) if row != 3]
    whole = bundle.run("predict", pa.RecordBatch.from_pydict(table().to_pydict(), schema=table().schema))
    np.testing.assert_array_equal(found["p"], whole["p"][kept])


def test_no_error_gives_every_row_and_a_missing_column_is_no_rows_fault(made: Path) -> None:
    bundle = Bundle.load(made / "model")
    batch = changed()
    found, kept, errors = bundle.run_each("predict", batch)
    assert (len(found["p"]), len(kept), errors) == (50, 50, {})
    with pytest.raises(InputError, match="column 'age' is missing"):
        bundle.run_each("predict", batch.drop_columns(["age"]))


def test_prediction_needs_no_column_of_the_label_and_evaluation_checks_it(made: Path) -> None:
    bundle = Bundle.load(made / "model")
    assert set(bundle.signatures["predict"].inputs) == {"start", "end", "age", "unread"}
    with pytest.raises(InputError, match="no arrival is that early"):
        bundle.run("evaluate", changed(arrival=-5000.0))


@pytest.mark.parametrize("name", ["age", "start"])
def test_a_condition_on_a_missing_value_is_not_true_and_a_range_lets_it_pass(made: Path, name: str) -> None:
    def strict(columns: ops.Columns) -> ops.Columns:
        ops.check(columns[name] >= 0, "it is there, and positive")
        return {"x": ops.is_missing(columns[name])}

    def lenient(columns: ops.Columns) -> ops.Columns:
        ops.check((columns[name] >= 0) | ops.is_missing(columns[name]), "it is positive")
        ops.check_range(columns[name], 0)
        return {"x": ops.is_missing(columns[name])}

    source, local = data.open_parquet([made / "raw.parquet"]), data.executor("local")
    with pytest.raises(InputError, match="it is there, and positive"):
        analyze(strict, source, local).run_row("transform", {name: None})
    assert analyze(lenient, source, local).run_row("transform", {name: None}) == {"x": True}


def test_apply_names_the_row_that_fails(made: Path, tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_batches([changed(age=500)]), tmp_path / "raw.parquet")
    source = data.open_parquet([tmp_path / "raw.parquet"])
    with pytest.raises(InputError, match=r"check failed in row 3: age is not from 0 to 120 \(age = 500\)"):
        apply(made / "graph", {"train": source}, tmp_path / "examples", data.executor("local"))


def test_float_outputs_are_checked_on_request(made: Path) -> None:
    source = data.open_parquet([made / "raw.parquet"])

    def fn(columns: ops.Columns) -> ops.Columns:
        inverse = 1.0 / (columns["end"] - columns["start"] - 0.5)
        return {"inverse": inverse, "id": ops.vocabulary(columns["unread"])}

    for wanted in (False, True):
        bundle = analyze(fn, source, data.executor("local"), check_floats=wanted)
        row = {"start": 0.5, "end": 1.0, "unread": "fine"}
        if wanted:
            with pytest.raises(InputError, match="output 'inverse' is missing or not finite"):
                bundle.run_row("transform", row)
        else:
            assert bundle.run_row("transform", row)["inverse"] == np.inf


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (lambda c: ops.check(c["age"], "x"), "give one bool per row"),
        (lambda c: ops.check(c["age"] > 1, " "), "a check without a message"),
        (lambda c: ops.check_range(c["age"], 3, 1), "low 3 is above high 1"),
        (lambda c: ops.check_range(c["unread"], 3), "is text and was given to check_range"),
    ],
)
def test_what_is_no_check_is_refused_at_the_users_line(made: Path, fn: Any, message: str) -> None:
    def wrong(columns: ops.Columns) -> ops.Columns:
        fn(columns)
        return {"age": columns["age"]}

    with pytest.raises(InputError, match=message) as raised:
        analyze(wrong, data.open_parquet([made / "raw.parquet"]), data.executor("local"))
    assert raised.value.where is not None
    assert raised.value.where.startswith(str(Path(__file__)))
