"""Every op against numpy, on batches and row by row, with what is missing."""

import math
import re
import statistics
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest
from drivetrain.engine import ops
from drivetrain.engine.tracing.pandas_names import HOW_MANY, PANDAS
from drivetrain.errors import InputError

pytestmark = pytest.mark.engine

NAN = float("nan")


def test_z_score_is_numpys_on_present_values(learn: Any) -> None:
    x = [1.0, None, NAN, 4.0, math.inf, 10.0, -2.5]
    _, out = learn(lambda c: {"z": ops.z_score(c["x"]), "m": ops.mean(c["x"]) + 0 * c["x"]}, x=pa.array(x))
    seen = np.array([1.0, 4.0, 10.0, -2.5])
    given = np.array([np.nan if v is None else v for v in x])
    np.testing.assert_allclose(out["z"], (given - seen.mean()) / seen.std(), rtol=1e-6)
    assert out["z"].dtype == np.float32


@pytest.mark.parametrize("x", [[5.0, 5.0], [None, None]])
def test_scaling_a_column_without_spread(learn: Any, x: list[float | None]) -> None:
    column = pa.array(x, pa.float64())
    _, out = learn(lambda c: {"z": ops.z_score(c["x"]), "s": ops.min_max(c["x"], -1, 1)}, x=column)
    wanted = [NAN if v is None else 0.0 for v in x]
    np.testing.assert_array_equal(out["z"], wanted)
    np.testing.assert_array_equal(out["s"], wanted)


def test_every_scalar_analyzer(learn: Any) -> None:
    x = np.array([3, 1, 2, 7, 7], np.int64)
    names = ("mean", "var", "std", "sum", "count", "min", "max")
    _, out = learn(lambda c: {name: getattr(ops, name)(c["x"]) for name in names}, x=x)
    wanted = [x.mean(), x.var(), x.std(), x.sum(), x.size, x.min(), x.max()]
    np.testing.assert_allclose([out[name][0] for name in names], wanted, rtol=1e-6)
    assert out["min"].dtype == np.int32
    assert out["count"].dtype == np.int32


def test_moments_do_not_cancel(learn: Any) -> None:
    x = 1e15 + np.arange(10.0)
    bundle, _ = learn(lambda c: {"v": ops.var(c["x"])}, x=x)
    assert bundle.payload.weights["transform/x/var"] == 8.25 == statistics.pvariance(x.tolist())  # numpy says 8.265625


@pytest.mark.parametrize("n", [2, 3, 10])
def test_buckets_hold_left_closed_quantiles(learn: Any, n: int) -> None:
    x = np.random.default_rng(n).integers(0, 40, 101).astype(float)
    bundle, out = learn(lambda c: {"b": ops.bucketize(c["x"], n)}, x=pa.array([*x, None, NAN]))
    edges = np.sort(x)[[i * len(x) // n for i in range(1, n)]]
    np.testing.assert_array_equal(out["b"], [*np.searchsorted(edges, x, side="right"), n, n])
    assert bundle.signatures["transform"].outputs["b"].size == n + 1


def test_many_buckets_take_the_searching_path(learn: Any) -> None:
    x = np.arange(1000, dtype=np.int64)
    _, out = learn(lambda c: {"b": ops.bucketize(c["x"], 200)}, x=x)
    np.testing.assert_array_equal(out["b"], x // 5)


def test_three_kinds_of_category_have_three_ids(learn: Any) -> None:
    words = ["b", "a", "a", None, "", "c", "c", "c"]
    fn = lambda c: {"id": ops.vocabulary(c["w"], top_k=2, oov_buckets=1)}  # noqa: E731
    bundle, out = learn(fn, w=pa.array(words))
    np.testing.assert_array_equal(out["id"], [2, 1, 1, 3, 2, 0, 0, 0])
    assert bundle.signatures["transform"].outputs["id"].size == 4
    assert bundle.run_row("transform", {"w": "never seen"}) == {"id": 2}


def test_vocabulary_order_and_limits(learn: Any) -> None:
    words = pa.array(["x", "y", "y", "z", "z", "rare", ""])
    bundle, _ = learn(
        lambda c: {
            "all": ops.vocabulary(c["w"], keep_empty=True),
            "often": ops.vocabulary(c["w"], min_count=2),
            "shout": ops.one_hot(ops.vocabulary(c["w"], top_k=1), depth=3),
        },
        w=words,
    )
    vocabularies = sorted(table["value"].to_pylist() for table in bundle.payload.assets.values())
    assert vocabularies == [["z"], ["z", "y"], ["z", "y", "x", "rare", ""]]
    assert bundle.signatures["transform"].outputs["shout"].shape == (3,)


def test_integers_and_booleans_are_categories_too(learn: Any) -> None:
    n, b = pa.array([111, 2, 2, None]), pa.array([True, None, True, False])
    fn = lambda c: {  # noqa: E731
        "n": ops.vocabulary(c["n"]), "b": ops.vocabulary(c["b"]), "h": ops.hash_buckets(c["n"], 5),
        "d": ops.vocabulary(ops.bucketize(c["n"], 2)),
    }  # fmt: skip
    bundle, out = learn(fn, n=n, b=b)
    np.testing.assert_array_equal(out["n"], [1, 0, 0, 3])
    np.testing.assert_array_equal(out["b"], [0, 3, 0, 1])
    assert out["h"][3] == 5
    assert {table["value"].to_pylist()[0] for table in bundle.payload.assets.values()} == {"2", "true", "1"}


def test_what_is_missing_stays_missing_until_filled(learn: Any) -> None:
    i, f, s = pa.array([1, None, 3]), pa.array([1.5, NAN, None]), pa.array(["a", None, ""])
    fn = lambda c: {  # noqa: E731
        "i_missing": ops.is_missing(c["i"]),
        "f_missing": ops.is_missing(c["f"]),
        "s_missing": ops.is_missing(c["s"]),
        "sum": ops.cast(c["i"] + 10, "float32"),
        "mean": ops.fill_missing(c["i"], ops.mean(c["i"])),
        "half": ops.fill_missing(c["i"], 0.5),
        "seven": ops.fill_missing(c["i"] * 2, 7),
        "log": jnp.log1p(c["i"]),
        "big": ops.fill_missing(c["i"] > 2, False),
        "a": ops.fill_missing(c["s"] == "a", False),
        "in": ops.where(ops.is_in(c["s"], ["a", ""]), 1, 0),
        "id": ops.vocabulary(ops.fill_missing(c["s"], "none")),
        "where": ops.fill_missing(ops.where(c["i"] > 2, c["i"], -c["i"]), 0),
    }
    _, out = learn(fn, i=i, f=f, s=s)
    wanted = {
        "i_missing": [0, 1, 0], "f_missing": [0, 1, 1], "s_missing": [0, 1, 0], "sum": [11, NAN, 13],
        "mean": [1, 2, 3], "half": [1, 0.5, 3], "seven": [2, 7, 6], "log": [np.log(2), NAN, np.log(4)],
        "big": [0, 0, 1], "a": [1, 0, 0], "in": [1, 0, 1], "id": [1, 0, 2], "where": [-1, 0, 3],
    }  # fmt: skip
    for name, values in wanted.items():
        np.testing.assert_allclose(out[name], np.asarray(values), rtol=1e-6, err_msg=name)


def test_jax_functions_take_columns(learn: Any) -> None:
    x = np.array([0.5, 1.5, 2.5])
    fn = lambda c: {  # noqa: E731
        "s": jax.nn.sigmoid(c["x"]),
        "v": jnp.stack([c["x"], c["x"] ** 2], axis=-1),
        "c": jnp.clip(c["x"], 1, 2),
        "w": jnp.where(c["x"] > 1, c["x"], -1.0),
        "n": jnp.where(c["b"], c["x"], 0.0),
        "inner": jax.jit(lambda v: ops.z_score(v) * 2)(c["x"]),
    }
    _, out = learn(fn, x=x, b=pa.array([True, None, False]))
    np.testing.assert_allclose(out["s"], 1 / (1 + np.exp(-x)), rtol=1e-6)
    np.testing.assert_allclose(out["v"], np.stack([x, x**2], -1), rtol=1e-6)
    np.testing.assert_allclose(out["n"], [0.5, 0, 0])
    np.testing.assert_allclose(out["inner"], 2 * (x - x.mean()) / x.std(), rtol=1e-5)


def test_casts(learn: Any) -> None:
    fn = lambda c: {  # noqa: E731
        "parsed": ops.cast(c["t"], "float32"),
        "whole": ops.fill_missing(ops.cast(c["f"], "int32"), -1),
        "flag": ops.cast(c["i"] > 1, "float32"),
        "spelled": ops.cast(c["i"], "string"),
        "text": c["t"],
    }
    _, out = learn(fn, t=pa.array(["1.5", None, "-2"]), f=pa.array([1.9, NAN, -1.9]), i=pa.array([1, 2, None]))
    np.testing.assert_allclose(out["parsed"], [1.5, NAN, -2])
    np.testing.assert_array_equal(out["whole"], [1, -1, -1])
    np.testing.assert_array_equal(out["flag"], [0, 1, NAN])
    assert out["spelled"].tolist() == ["1", "2", None]
    assert out["text"].tolist() == ["1.5", None, "-2"]


def test_vectors_cast_to_whole_numbers_are_an_output(learn: Any) -> None:
    fn = lambda c: {"x": ops.cast(jnp.stack([c["a"], c["b"]], axis=-1), "int32")}  # noqa: E731
    bundle, out = learn(fn, a=pa.array([1.9, 3.0]), b=pa.array([2.0, -4.2]))
    assert out["x"].tolist() == [[1, 2], [3, -4]]
    assert bundle.signatures["transform"].outputs["x"].shape == (2,)
    with pytest.raises(InputError, match="output 'x' has a missing value in row 1"):
        bundle.run("transform", pa.record_batch({"a": [1.0, 2.0], "b": [1.0, NAN]}))
    with pytest.raises(InputError, match="output 'x' has a missing value"):
        bundle.run_row("transform", {"a": 1.0, "b": NAN})


def test_analyzers_of_analyzed_values_take_a_pass_each(learn: Any) -> None:
    x = np.array([1.0, 2.0, 3.0, 10.0])

    def fn(c: Any) -> Any:
        centred = c["x"] - ops.mean(c["x"])
        scaled = centred / ops.max(jnp.abs(centred))
        return {"y": ops.bucketize(scaled, 2), "z": scaled - ops.min(scaled)}

    _, out = learn(fn, x=x)
    scaled = (x - x.mean()) / np.abs(x - x.mean()).max()
    np.testing.assert_allclose(out["z"], scaled - scaled.min(), atol=1e-6)
    np.testing.assert_array_equal(out["y"], [0, 0, 1, 1])


LINE = "test_ops.py:"


@pytest.mark.parametrize(
    ("fn", "says"),
    [
        (lambda c: {"y": c["nope"]}, "there is no column 'nope'"),
        (lambda c: {"y": c["s"] + 1}, "column 's' is text"),
        (lambda c: {"y": jnp.log(c["s"])}, "column 's' is text"),
        (lambda c: {"y": ops.z_score(c["s"])}, "column 's' is text"),
        (lambda c: {"y": ops.fill_missing(c["s"], 1.0)}, "takes text, not 1.0"),
        (lambda c: {"y": ops.fill_missing(c["x"], "a")}, "takes a number, not 'a'"),
        (lambda c: {"y": c["s"] == 3}, "compared with 3"),
        (lambda c: {"y": ops.vocabulary(c["x"])}, "is float, no category"),
        (lambda c: {"y": ops.vocabulary(c["s"], oov_buckets=-1)}, "oov_buckets is -1"),
        (lambda c: {"y": 1 if c["i"] > 2 else 0}, "no single truth value"),
        (lambda c: {"y": 1 if c["x"] > 2 else 0}, "depends on how many rows there are"),
        (lambda c: {"y": c["x"] + c["v"].oops}, "has no 'oops'"),
        (lambda c: {"y": ops.one_hot(ops.vocabulary(c["s"]))}, "not known while tracing"),
        (lambda c: {"y": ops.cast(c["x"], "float64")}, "no dtype 'float64'"),
        (lambda c: {"y": c["when"] == 1}, "column 'when' is time32[ms]"),
        (lambda c: [c["x"]], "returned a list"),
        (lambda c: {}, "returned nothing"),
        (lambda c: {"y": None}, "output 'y' is None"),
        (lambda c: {"y": jnp.zeros((2, 3)) @ jnp.zeros((2, 3))}, "3 values a row meet a layer or matrix that takes 2"),
        (lambda c: {"y": c["x"][:, None][:, :0]}, "a row of it holds nothing"),
    ],
)
def test_mistakes_name_the_op_and_the_users_line(learn: Any, fn: Any, says: str) -> None:
    columns = {"x": [1.0], "s": ["a"], "i": [1], "v": [1], "when": pa.array([0], pa.time32("ms"))}
    with pytest.raises(InputError) as caught:
        learn(fn, **columns)
    assert says in caught.value.message
    assert caught.value.where is not None
    assert LINE in caught.value.where


@pytest.mark.parametrize(
    ("fn", "fix"),
    [
        (lambda c: {"y": c["x"] / len(c["x"])}, "ops.size(column)"),
        (lambda c: {"y": c["x"] / len(c["s"])}, "ops.size(column)"),
        (lambda c: {"y": c["i"].fillna(0)}, "ops.fill_missing(column, value)"),
        (lambda c: {"y": c["x"].fillna(0)}, "ops.fill_missing(column, value)"),
        (lambda c: {"y": c["s"].lower()}, "ops.lower(column)"),
        (lambda c: {"y": c["s"].str.lower()}, "ops.lower(column)"),
        (lambda c: {"y": c["x"].isna()}, "ops.is_missing(column)"),
        (lambda c: {"y": c["i"].astype("float32")}, "ops.cast(column"),
        (lambda c: {"y": c["i"] - c["i"].mean()}, "ops.mean(column)"),
    ],
)
def test_what_pandas_has_names_the_op_that_does_it(learn: Any, fn: Any, fix: str) -> None:
    with pytest.raises(InputError) as caught:
        learn(fn, x=[1.0], s=["a"], i=[1])
    assert fix in str(caught.value.fix)
    assert LINE in str(caught.value.where)


def test_every_op_that_such_a_fix_names_is_one() -> None:
    for fix in (HOW_MANY, *PANDAS.values()):
        for name in re.findall(r"\bops\.(\w+)", fix):
            assert callable(getattr(ops, name))


def test_values_that_cannot_be_used_name_column_and_row(learn: Any) -> None:
    bundle, _ = learn(
        lambda c: {"i": c["i"], "t": ops.cast(c["t"], "int32")}, i=pa.array([1, 2]), t=pa.array(["1", "2"])
    )

    def run(i: list[Any], t: list[Any]) -> None:
        bundle.run("transform", pa.record_batch({"i": pa.array(i, pa.int64()), "t": pa.array(t)}))

    for i, t, says in (
        ([1, None], ["1", "1"], "output 'i' has a missing value in row 1"),
        ([1, 2**31], ["1", "1"], "column 'i' has 2147483648 in row 1"),
        ([1, 1], ["1", "one"], "cast: 'one', from column 't' in row 1, is not a whole number"),
    ):
        with pytest.raises(InputError, match=says):
            run(i, t)
    with pytest.raises(InputError, match="column 't' is missing"):
        bundle.run_row("transform", {"i": 1})
    with pytest.raises(InputError, match="column 'i' is 'x', the graph reads int64"):
        bundle.run_row("transform", {"i": "x", "t": "1"})


def test_a_graph_without_batched_device_inputs(learn: Any) -> None:
    _, out = learn(lambda c: {"k": ops.mean(c["x"]), "one": 1.0, "w": c["w"]}, x=[1.0, 3.0], w=["a", "b"])
    np.testing.assert_array_equal(out["k"], [2, 2])
    np.testing.assert_array_equal(out["one"], [1, 1])


def test_what_a_module_names_is_an_op_and_each_name_is_of_one_module() -> None:
    """A new op is written in one file: the package takes the names of its modules, and lists none itself."""
    modules = [import_module(f"{ops.__name__}.{entry.name}") for entry in iter_modules(ops.__path__)]
    names = [(name, getattr(module, name)) for module in modules for name in getattr(module, "__all__", ())]
    assert sorted(ops.__all__) == sorted(name for name, _ in names)
    assert len(dict(names)) == len(names) > 70
    assert all(getattr(ops, name) is value for name, value in names)
