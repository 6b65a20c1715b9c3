"""Gaussianization, interpolation, imputation and inverses, against scipy, scikit-learn and TensorFlow Transform."""

import json
import math
from itertools import combinations
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.special
import scipy.stats
from drivetrain import data
from drivetrain.data.aggregates.tables import count_numbers
from drivetrain.engine import analyze, inverse, ops
from drivetrain.engine.analyzers.tukey import l_moments, tukey_parameters
from drivetrain.errors import InputError
from sklearn.impute import SimpleImputer

pytestmark = pytest.mark.engine

NAN = math.nan
CASES = {
    case["name"]: case
    for case in json.loads((Path(__file__).parents[2] / "golden" / "tft_cases.json").read_text())["cases"]
}


def of_tuples(x: Any, weights: list[int]) -> float:
    """An L-moment by its definition: the mean over all r-tuples of an alternating sum of their sorted values."""
    found = [float(np.dot(np.sort(chosen), weights)) for chosen in combinations(x, len(weights))]
    return float(np.mean(found)) / len(weights)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_l_moments_are_means_over_all_tuples(seed: int) -> None:
    x = np.random.default_rng(seed).lognormal(size=11).round(1)  # with ties
    wanted = [of_tuples(x, w) for w in ([1], [-1, 1], [1, -2, 1], [-1, 3, -3, 1])]
    np.testing.assert_allclose(l_moments(count_numbers(x)), wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("left", "right"), [(0.0, 0.0), (0.2, 0.2), (0.0, 0.5), (0.4, 0.1)])
def test_the_tails_of_a_tukey_distribution_are_found_again(left: float, right: float) -> None:
    u = scipy.stats.norm.ppf((np.arange(200_000) + 0.5) / 200_000)
    v = u * np.exp(np.where(u < 0, left, right) * u * u / 2)
    centre, scale, hl, hr = tukey_parameters(count_numbers(5 + 3 * v))
    np.testing.assert_allclose([centre, scale, hl, hr], [5, 3, left, right], atol=0.02)


def test_a_long_tailed_column_becomes_normal(tmp_path: Path) -> None:
    u = np.random.default_rng(4).normal(size=2000)
    x = 10 + 2 * u * np.exp(np.where(u < 0, 0.1, 0.3) * u * u / 2)
    rows = np.r_[x[:40], NAN, 1e30]
    fn = lambda c: {"g": ops.scale_to_gaussian(c["x"]), "t": ops.statistics.tukey(c["x"])}  # noqa: E731
    pq.write_table(pa.table({"x": x}), tmp_path / "x.parquet")
    bundle = analyze(fn, data.open_parquet([tmp_path / "x.parquet"]), data.executor("local"))
    out = bundle.run("transform", pa.record_batch({"x": rows}))
    centre, scale, left, right = (float(v) for v in out["t"][0])
    v = (rows - centre) / scale
    h = np.where(v < 0, left, right)
    wanted = np.sign(v) * np.sqrt(scipy.special.lambertw(h * v * v).real / h)
    np.testing.assert_allclose(out["g"][:41], wanted[:41], rtol=2e-4, atol=2e-5)
    assert math.isfinite(out["g"][41])
    whole = bundle.run("transform", pa.record_batch({"x": x}))["g"]
    assert abs(scipy.stats.kurtosis(whole)) < 0.3 < scipy.stats.kurtosis(x)


def test_golden_gaussian_interpolation_and_elementwise(learn: Any) -> None:
    case = CASES["numeric_full_pass"]
    fn = lambda c: {  # noqa: E731
        "gauss": ops.scale_to_gaussian(c["x"]), "interp": ops.apply_buckets_with_interpolation(c["x"], [2, 4, 8]),
        "size": ops.size(c["x"]),
    }  # fmt: skip
    bundle, out = learn(fn, x=pa.array([row["x"] for row in case["input"]], pa.float32()))
    for name, values in out.items():
        np.testing.assert_allclose(values, [row[name] for row in case["expected"]["transformed"]], rtol=1e-6)
    later = case["expected"]["applied_to_new_data"]
    for row, wanted in zip(later["input"], later["output"], strict=True):
        outputs = bundle.run_row("transform", row)
        np.testing.assert_allclose(
            [outputs["gauss"], outputs["interp"]], [wanted["gauss"], wanted["interp"]], rtol=1e-6
        )
    case = CASES["elementwise"]

    def vectors(c: Any) -> Any:
        x = jnp.stack([c["a"], c["b"]], -1)
        return {
            "all": ops.z_score(x), "el": ops.z_score(x, elementwise=True), "cov": ops.covariance(x),
            "pca": x @ ops.pca(x, 1),
        }  # fmt: skip

    _, out = learn(vectors, **{name: [row["x"][place] for row in case["input"]] for place, name in enumerate("ab")})
    for name, values in out.items():
        wanted = [row[name] for row in case["expected"]["transformed"]]
        np.testing.assert_allclose(values.reshape(np.shape(wanted)), wanted, rtol=1e-6, err_msg=name)


def test_golden_per_key(learn: Any) -> None:
    case = CASES["hash_and_per_key"]
    fn = lambda c: {  # noqa: E731
        "z": ops.z_score_per_key(c["x"], c["k"]), "m": ops.min_max_per_key(c["x"], c["k"]),
        "b": ops.bucketize_per_key(c["x"], c["k"], 2),
    }  # fmt: skip
    rows = case["input"]
    bundle, out = learn(fn, x=pa.array([r["x"] for r in rows], pa.float32()), k=[r["k"] for r in rows])
    for name, values in out.items():
        np.testing.assert_allclose(values, [row[name] for row in case["expected"]["transformed"]], rtol=1e-6)
    later = case["expected"]["applied_to_new_data"]
    outputs = bundle.run_row("transform", later["input"][0])
    assert outputs["z"] == later["output"][0]["z"]
    assert (outputs["b"], later["output"][0]["b"]) == (3, -1)  # a new key has an id of its own
    assert outputs["m"] == 0.5  # TFT: a sigmoid of x


@pytest.mark.parametrize("edges", [[2.0, 4.0, 8.0], [3.0], [0.0, 0.0, 1.0]])
def test_interpolation_is_numpys(learn: Any, edges: list[float]) -> None:
    x = np.array([-9.0, 0.0, 0.5, 2.0, 3.0, 5.0, 8.0, 99.0])
    fn = lambda c: {"y": ops.apply_buckets_with_interpolation(c["x"], edges)}  # noqa: E731
    _, out = learn(fn, x=np.r_[x, NAN])
    n = len(edges)
    wanted = np.interp(x, edges, np.linspace(0, 1, n)) if n > 1 else (x >= edges[0]).astype(float)
    if edges[0] != edges[-1] and edges.count(0.0) == 2:
        wanted[1] = 0.5  # at a doubled boundary numpy leaves the choice open
    np.testing.assert_allclose(out["y"], [*wanted, NAN], rtol=1e-6)


@pytest.mark.parametrize("how", ["mean", "median", "mode"])
def test_imputation_is_scikit_learns(learn: Any, how: str) -> None:
    x = pa.array([1.0, 4.0, 4.0, None, NAN, 12.0])

    def fn(c: Any) -> Any:
        filled, missing = ops.imputed(c["x"], how, indicator=True)
        return {"x": filled, "missing": missing, "n": ops.imputed(c["n"], how)}

    _, out = learn(fn, x=x, n=pa.array([3, None, 3, 9, 9, 3]))
    imputer = SimpleImputer(strategy="most_frequent" if how == "mode" else how, add_indicator=True)
    wanted = imputer.fit_transform(np.array([1, 4, 4, NAN, NAN, 12.0])[:, None])
    np.testing.assert_allclose(out["x"], wanted[:, 0], rtol=1e-6)
    np.testing.assert_array_equal(out["missing"], wanted[:, 1])
    seen = np.array([3, 3, 9, 9, 3])
    by = {"mean": seen.mean(), "median": 3, "mode": 3}[how]
    np.testing.assert_allclose(out["n"], [3, by, 3, 9, 9, 3], rtol=1e-6)


def test_the_mode_of_text_and_booleans_fills_them(learn: Any) -> None:
    fn = lambda c: {  # noqa: E731
        "w": ops.fill_missing(c["w"], ops.mode(c["w"])), "id": ops.vocabulary(ops.imputed(c["w"], "mode")),
        "b": ops.imputed(c["b"], "mode"),
    }  # fmt: skip
    words = ["b", None, "a", "b", "a", "c"]
    _, out = learn(fn, w=pa.array(words), b=pa.array([True, None, True, False, True, True]))
    assert out["w"].tolist() == ["b", "a", "a", "b", "a", "c"]  # of two equally frequent the smaller, as scikit-learn
    assert out["b"].tolist() == [True, True, True, False, True, True]
    assert out["id"].tolist() == [1, 0, 0, 1, 0, 2]


def test_text_without_a_value_stays_missing(learn: Any) -> None:
    _, out = learn(lambda c: {"w": ops.imputed(c["w"], "mode")}, w=pa.array([None, None], pa.string()))
    assert out["w"].tolist() == [None, None]


def test_scaled_outputs_are_turned_back(learn: Any, tmp_path: Path) -> None:
    from drivetrain.engine import Bundle

    x = np.array([1.0, 5.0, 7.5, -2.0, 11.0], np.float32)

    def fn(c: Any) -> Any:
        v = jnp.stack([c["x"], c["n"] * 2.0], -1)
        z = ops.z_score(c["x"])
        s = ops.min_max(c["n"], -1, 3)
        return {
            "z": z, "s": s, "e": ops.z_score(v, elementwise=True), "const": ops.min_max(c["one"]), "x": c["x"],
            "back": ops.inverse_z_score(z, c["x"]), "n": ops.inverse_min_max(s, c["n"], -1, 3),
        }  # fmt: skip

    n = np.array([3, 9, 1, 2, 2])
    bundle, out = learn(fn, x=x, n=n, one=[4.0] * 5)
    np.testing.assert_allclose(out["back"], x, rtol=1e-5)
    np.testing.assert_allclose(out["n"], n, rtol=1e-5)
    bundle.save(tmp_path / "saved")
    loaded = Bundle.load(tmp_path / "saved")
    np.testing.assert_allclose(inverse(loaded, "z")(out["z"]), x, rtol=1e-5)
    np.testing.assert_allclose(inverse(loaded, "s")(out["s"]), n, rtol=1e-5)
    np.testing.assert_allclose(inverse(loaded, "e")(out["e"]), np.stack([x, 2.0 * n], -1), rtol=1e-5)
    np.testing.assert_allclose(inverse(loaded, "const")(out["const"]), 4.0)
    assert inverse(loaded, "z")(jnp.asarray(out["z"])).dtype == jnp.float32
    with pytest.raises(InputError, match="output 'x' cannot be turned back"):
        inverse(loaded, "x")
    with pytest.raises(InputError, match="no output 'nope'"):
        inverse(loaded, "nope")


_GAUSSIAN = json.loads((Path(__file__).parents[2] / "golden" / "tft_gaussian.json").read_text())["cases"]


@pytest.mark.parametrize("case", _GAUSSIAN, ids=[case["name"] for case in _GAUSSIAN])
def test_gaussianization_is_tfts_of_one_batch(learn: Any, case: Any) -> None:
    _, out = learn(lambda c: {"g": ops.scale_to_gaussian(c["x"])}, x=pa.array(case["x"], pa.float32()))
    np.testing.assert_allclose(out["g"], case["gauss"], rtol=2e-5, atol=2e-6)
