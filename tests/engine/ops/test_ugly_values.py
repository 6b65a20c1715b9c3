"""Values that nobody planned for: whole numbers beyond int32, words that look like numbers, text that is none."""

import datetime as dt
import decimal
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from drivetrain import data
from drivetrain.engine import Bundle, analyze, ops
from drivetrain.errors import InputError

pytestmark = pytest.mark.engine

Columns = Any  # what a preprocessing function takes
WIDE = [3, None, 2**40, -(2**62), 2**60 + 1, 5, 5, -7]
TIMES = [dt.datetime(2020, 1, 1, 5), None, dt.datetime(1960, 2, 29), dt.datetime(2100, 1, 1)] * 2
TABLE = pa.table({
    "wide": pa.array(WIDE),
    "when": pa.array(TIMES, pa.timestamp("us")),
    "key": ["p", "q"] * 4,
    "text": ["a", None, "é", "12", "1_000", " 5 ", "99999999999", "٣"],
    "x": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, None],
})  # fmt: skip


def learn(fn: Callable[[Columns], Any], table: pa.Table = TABLE) -> Bundle:
    return analyze(lambda c: {"y": fn(c)}, data.source_of(table), data.executor("local"))


def both(bundle: Bundle, table: pa.Table = TABLE) -> np.ndarray:
    """The output of a batch, after checking that each of its rows alone gives the same."""
    (batch,) = table.combine_chunks().to_batches()
    array = np.asarray(bundle.run("transform", batch)["y"])
    rows = [np.asarray(bundle.run_row("transform", row)["y"]).reshape(array.shape[1:]) for row in table.to_pylist()]
    np.testing.assert_allclose(rows, array, rtol=1e-6)
    return array


def floats(values: list[Any]) -> np.ndarray:
    return np.array([np.nan if value is None else value for value in values], np.float64)


@pytest.mark.parametrize("name", ["wide", "when"])
def test_whole_numbers_beyond_int32_are_scaled_as_floats(name: str) -> None:
    given = WIDE if name == "wide" else TABLE["when"].cast(pa.timestamp("ms")).cast(pa.int64()).to_pylist()
    x = floats(given)
    low, high = np.nanmin(x), np.nanmax(x)
    np.testing.assert_array_equal(both(learn(lambda c: ops.cast(c[name], "float32"))), x.astype(np.float32))
    wanted = (x - np.nanmean(x)) / np.nanstd(x)
    np.testing.assert_allclose(both(learn(lambda c: ops.z_score(c[name]))), wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(both(learn(lambda c: ops.min_max(c[name]))), (x - low) / (high - low), atol=1e-6)
    edges = np.sort(x[~np.isnan(x)].astype(np.float32))[[7 * 1 // 3, 7 * 2 // 3]] if name == "wide" else None
    buckets = both(learn(lambda c: ops.bucketize(ops.cast(c[name], "float32"), 3)))
    if edges is not None:
        np.testing.assert_array_equal(buckets, [3 if v != v else np.searchsorted(edges, v, "right") for v in x])


def test_whole_numbers_beyond_int32_are_scaled_per_key() -> None:
    x, odd = floats(WIDE), np.arange(8) % 2 == 1
    found = both(learn(lambda c: ops.z_score_per_key(c["wide"], c["key"])))
    for rows in (odd, ~odd):
        wanted = (x[rows] - np.nanmean(x[rows])) / np.nanstd(x[rows])
        np.testing.assert_allclose(found[rows], wanted, rtol=1e-5, atol=1e-6)


def test_min_max_of_no_whole_number_at_all_is_midway() -> None:
    none = pa.table({"n": pa.nulls(3, pa.int64())})
    bundle = learn(lambda c: ops.min_max(c["n"]), none)
    assert np.isnan(both(bundle, none)).all()
    assert both(bundle, pa.table({"n": [7]})).tolist() == [0.5]


@pytest.mark.parametrize(
    ("fn", "says"),
    [
        (lambda c: c["wide"] + 1, r"'wide' has 1099511627776 in row 2, .*ops.cast it to float32"),
        (lambda c: ops.cast(c["text"], "float32"), r"cast: 'a', from column 'text' in row 0, is not a number"),
        (
            lambda c: ops.cast(ops.substr(c["text"], 0, 1), "int32"),
            r"cast: 'a', from column 'text' in row 0, is not a whole number",
        ),
        (
            lambda c: ops.timestamp_part(c["wide"], "year", unit="days"),
            r"'wide' has -?\d+ in row 2, which is not a time",
        ),
    ],
)
def test_the_row_and_the_value_are_told(fn: Callable[[Columns], Any], says: str) -> None:
    (batch,) = TABLE.combine_chunks().to_batches()
    with pytest.raises(InputError, match=rf"(?s)test_ugly_values.py:test_the_row_and_the_value_are_told: .*{says}"):
        learn(lambda c: ops.fill_missing(fn(c), 0)).run("transform", batch)


def test_words_that_only_python_takes_for_numbers() -> None:
    """int("1_000") is 1000 in Python and in nothing else; what int32 cannot hold gives the default."""
    found = both(learn(lambda c: ops.fill_missing(ops.parse(c["text"], "int32", -1), -2)))
    assert found.tolist() == [-1, -2, -1, 12, -1, 5, -1, 3]


@pytest.mark.parametrize(
    ("fn", "says"),
    [
        (lambda c: ops.z_score(c["text"]), "given to z_score"),
        (lambda c: ops.min_max(c["text"]), "given to min_max"),
        (lambda c: ops.bucketize(c["text"], 3), "given to bucketize"),
        (lambda c: ops.mean_per_key(c["text"], c["key"]), "given to mean_per_key"),
        (lambda c: ops.z_score_per_key(c["text"], c["key"]), "given to z_score_per_key"),
        (lambda c: ops.bucketize_per_key(c["text"], c["key"], 3), "given to bucketize_per_key"),
        (lambda c: ops.regex_full_match(c["x"], "a"), "given to regex_full_match"),
        (lambda c: ops.lookup(c["x"], {"a": 1}), "given to lookup"),
        (lambda c: ops.fill_missing(c["x"], []), r"takes a number, not \[\]"),
        (lambda c: ops.is_in(c["x"], [1.0]), "'x' is float32 and takes no values: compare it"),
        (lambda c: ops.is_in(c["text"], "abc"), "takes texts, not 'abc'"),
        (lambda c: ops.zscore(c["x"]), r"there is no ops.zscore, did you mean 'z_score'\?"),  # type: ignore[attr-defined]
        (lambda c: ops.scale_to_0_1(c["x"]), r"there is no ops.scale_to_0_1, did you mean 'min_max'\?"),  # type: ignore[attr-defined]
        (lambda c: ops.vocabulary(c["text"], num_oov_buckets=1), r"no 'num_oov_buckets', did you mean 'oov_buckets'\?"),  # type: ignore[call-arg]
        (lambda c: ops.vocabulary(c["text"], topk=1), r"vocabulary takes no 'topk', did you mean 'top_k'\?"),  # type: ignore[call-arg]
    ],
)
def test_errors_name_the_op_as_it_was_called(fn: Callable[[Columns], Any], says: str) -> None:
    with pytest.raises(InputError, match=rf"test_ugly_values.py:\d+: .*{says}"):
        learn(fn)


def test_is_in_whole_numbers() -> None:
    found = both(learn(lambda c: ops.fill_missing(ops.is_in(c["wide"], [5, 2**40]), False)))
    assert found.tolist() == [value in (5, 2**40) for value in WIDE]


@pytest.mark.parametrize("value", [10**400, decimal.Decimal("sNaN")])
def test_numbers_that_no_float_holds(value: object) -> None:
    bundle = learn(lambda c: ops.z_score(c["x"]))
    with pytest.raises(InputError, match="column 'x'"):
        bundle.run_row("transform", {"x": value})


@pytest.mark.parametrize("op", [ops.strip, ops.lower, ops.split, lambda x: ops.regex_replace(x, "a", "b")])
def test_half_a_character_is_the_callers_error(op: Callable[[Any], Any]) -> None:
    bundle = learn(lambda c: op(c["text"]))
    with pytest.raises(InputError, match="half a character") as caught:
        bundle.run_row("transform", {"text": "a\ud800b"})
    assert "graph.json" not in str(caught.value)
