"""Bundles that answer requests: the same results, and equal programs compiled once."""

from __future__ import annotations

import gc
import weakref
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from drivetrain.engine import Bundle, analyze, ops
from drivetrain.errors import InputError
from drivetrain.tests.serving.bundles import rows_of, weights, write_network
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.engine

COLUMNS = {
    "real": (pa.float64(), st.none() | st.floats(width=32)),
    "whole": (pa.int64(), st.none() | st.integers(-(2**31), 2**31 - 1)),
    "word": (pa.string(), st.none() | st.sampled_from(["a", "b", "ß", ""])),
    "truth": (pa.bool_(), st.none() | st.booleans()),
    "list": (pa.list_(pa.float64()), st.none() | st.lists(st.floats(-1e9, 1e300), max_size=3)),
    "ids": (pa.list_(pa.int64()), st.none() | st.lists(st.integers(-5, 5), max_size=2)),
}
ROWS = {"real": 1.5, "whole": 3, "word": "a", "truth": True, "list": [1.0, 2.0, 3.0], "ids": [1, 2]}


@cache
def of_all_kinds() -> Bundle:
    """Every output is computed on the device, of inputs that the host prepares."""

    def preprocess(c: ops.Columns) -> ops.Columns:
        return {
            "number": ops.z_score(c["real"]) + ops.to_dense(c["list"], 3, fill=0.0).sum(axis=1),
            "code": ops.vocabulary(c["word"]) + ops.to_dense(c["ids"], 2, fill=7).max(axis=1),
            "kept": ops.fill_missing(c["truth"], False) & (ops.fill_missing(c["whole"], -1) > 2),
        }

    return analyze(preprocess, pa.Table.from_pylist([ROWS, {**ROWS, "real": 2.0, "word": "b"}])).for_serving()


@cache  # some tests compare thousands of answers
def expected(seed: int, hidden: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The scores of `rows_of(9)` by NumPy."""
    params = weights(seed, hidden)
    x = np.array(rows_of(9)["x"].to_pylist(), dtype=np.float32)
    logits = np.tanh(np.tanh(x @ params["w0"]) @ params["w1"]) @ params["w2"]
    scores = 1 / (1 + np.exp(-logits[:, 0].astype(np.float64)))
    scores.flags.writeable = False
    return np.asarray(scores)


def test_rows_and_batches_of_every_size_are_those_of_numpy(tmp_path: Path) -> None:
    write_network(tmp_path / "model", 4, hidden=24)
    bundle = Bundle.load(tmp_path / "model").for_serving()
    table, scores = rows_of(9), expected(4, 24)
    for count in (1, 2, 63, 64, 65, 512):
        np.testing.assert_allclose(bundle.run("predict", table[:count])["score"], scores[:count], atol=1e-6)
    row = table.slice(3, 1).to_pylist()[0]
    assert bundle.run_row("predict", row)["score"] == pytest.approx(scores[3], abs=1e-6)


def test_a_second_version_compiles_nothing(tmp_path: Path) -> None:
    from jax import monitoring

    for seed in range(3):
        write_network(tmp_path / f"{seed}", seed, hidden=25)
    compiled: list[str] = []

    def count(event: str, duration_secs: float, **_: str | int) -> None:
        if event.endswith("backend_compile_duration"):
            compiled.append(event)

    monitoring.register_event_duration_secs_listener(count)
    try:
        kept, table = [], rows_of(9)
        for seed in range(3):
            bundle = Bundle.load(tmp_path / f"{seed}").for_serving()
            scores = bundle.run("predict", table[:8])["score"]
            np.testing.assert_allclose(scores, expected(seed, 25)[:8], atol=1e-6)
            row = bundle.run_row("predict", table.slice(0, 1).to_pylist()[0])
            assert row["score"] == pytest.approx(expected(seed, 25)[0], abs=1e-6)
            kept.append(bundle)  # a program goes with the last bundle that has it
            if seed == 0:
                assert len(compiled) == 2  # one row, and up to 64
        assert len(compiled) == 2
    finally:
        monitoring.unregister_event_duration_listener(count)


def test_a_bundle_that_ran_is_gone_with_its_last_reference(tmp_path: Path) -> None:
    """Without the garbage collector, which a server does not let look at what was loaded."""
    write_network(tmp_path / "model", 4, hidden=26)
    bundle = Bundle.load(tmp_path / "model").for_serving()
    bundle.run("predict", rows_of(9)[:3])
    bundle.run_row("predict", rows_of(9).to_pylist()[0])
    programs = weakref.ref(bundle._programs)
    gc.collect()  # what compiling leaves behind
    gc.disable()
    try:
        del bundle
        assert programs() is None
    finally:
        gc.enable()


@settings(max_examples=60, deadline=None)
@given(st.fixed_dictionaries({name: st.lists(values, min_size=5, max_size=5) for name, (_, values) in COLUMNS.items()}))
def test_columns_of_python_values_give_what_a_batch_gives(columns: dict[str, list[Any]]) -> None:
    batch = pa.RecordBatch.from_pydict({name: pa.array(columns[name], kind) for name, (kind, _) in COLUMNS.items()})
    wanted = of_all_kinds().run("transform", batch)
    results = of_all_kinds().run_columns("transform", columns, 5)
    assert results.keys() == wanted.keys()
    for name, values in wanted.items():
        assert results[name].dtype == values.dtype
        np.testing.assert_array_equal(results[name], values)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("real", "1"),
        ("whole", 1.5),
        ("whole", 2**31),
        ("word", 1),
        ("list", [1.0] * 4),
        ("list", [True]),
        ("ids", [0.5]),
    ],
)
def test_columns_of_python_values_refuse_what_a_batch_refuses(name: str, value: object) -> None:
    with pytest.raises(InputError, match=name):
        of_all_kinds().run_columns(
            "transform", {**{key: [each] * 2 for key, each in ROWS.items()}, name: [value] * 2}, 2
        )
    with pytest.raises(InputError, match="'word' is missing"):
        of_all_kinds().run_columns("transform", {key: [each] for key, each in ROWS.items() if key != "word"}, 1)


@settings(max_examples=40, deadline=None)
@given(rows=st.lists(st.lists(st.floats(), min_size=3, max_size=3), min_size=3, max_size=3))
def test_columns_may_be_arrays(rows: list[list[float]]) -> None:
    of_rows = {key: [each] * 3 for key, each in ROWS.items()}
    wanted = of_all_kinds().run("transform", pa.table({**of_rows, "list": rows}))
    arrays = {"list": np.array(rows), "whole": np.array(of_rows["whole"])}
    results = of_all_kinds().run_columns("transform", {**of_rows, **arrays}, 3)
    for name, values in wanted.items():
        assert results[name].dtype == values.dtype
        np.testing.assert_array_equal(results[name], values)


def test_arrays_of_another_length_are_refused_as_lists_are() -> None:
    of_rows = {key: [each] * 2 for key, each in ROWS.items()}
    with pytest.raises(InputError, match="list"):
        of_all_kinds().run_columns("transform", {**of_rows, "list": np.zeros((2, 4))}, 2)


def test_columns_of_python_values_may_lack_those_with_defaults() -> None:
    bundle = of_all_kinds().with_defaults({"word": "b"})
    assert bundle.takes_columns("transform")
    without = {key: [each] * 3 for key, each in ROWS.items() if key != "word"}
    wanted = bundle.run("transform", pa.table({**{key: [each] * 3 for key, each in ROWS.items()}, "word": ["b"] * 3}))
    np.testing.assert_array_equal(bundle.run_columns("transform", without, 3)["code"], wanted["code"])
