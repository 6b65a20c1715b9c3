"""Analyzers of numbers against numpy, scipy and scikit-learn: elementwise, weighted, of vectors, a user's own."""

import math
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest
import scipy.stats
from drivetrain.engine import ops
from drivetrain.errors import InputError
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.engine

NAN, INF = math.nan, math.inf


def vectors(c: Any) -> Any:
    return jnp.stack([c["a"], c["b"], c["c"]], axis=-1)


def data(rows: int = 40, seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    a = rng.normal(3, 2, rows)
    return {"a": a, "b": 2 * a + rng.normal(size=rows), "c": rng.integers(0, 5, rows).astype(float)}


def test_elementwise_statistics_are_numpys_along_the_rows(learn: Any) -> None:
    columns = data()
    x = np.stack(list(columns.values()), -1).astype(np.float32)
    names = ("mean", "var", "std", "min", "max", "sum", "count", "median")

    def fn(c: Any) -> Any:
        v = vectors(c)
        found = {name: getattr(ops, name)(v, elementwise=True) for name in names}
        return {
            **found, "q": ops.quantiles(v, 4, elementwise=True), "z": ops.z_score(v, elementwise=True),
            "s": ops.min_max(v, elementwise=True), "all": ops.z_score(v), "b": ops.bucketize(v, 3, elementwise=True),
        }  # fmt: skip

    _, out = learn(fn, **columns)
    for name in names:
        wanted = np.full(3, len(x)) if name == "count" else getattr(np, name)(x.astype(float), axis=0)
        assert out[name].shape == (40, 3)
        np.testing.assert_allclose(out[name][0], wanted, rtol=1e-5, err_msg=name)
    ordered = np.sort(x, axis=0)
    np.testing.assert_array_equal(out["q"][0], ordered[[10, 20, 30]].T)
    np.testing.assert_allclose(out["z"], (x - x.mean(0)) / x.std(0), atol=1e-5)
    np.testing.assert_allclose(out["all"], (x - x.mean()) / x.std(), atol=1e-5)
    np.testing.assert_allclose(out["s"], (x - x.min(0)) / np.ptp(x, axis=0), atol=1e-6)
    edges = ordered[[40 // 3, 2 * 40 // 3]]
    np.testing.assert_array_equal(out["b"], (x[:, None, :] >= edges[None]).sum(1))


def test_every_analyzer_leaves_out_what_is_no_finite_number(learn: Any) -> None:
    x = [3.0, None, NAN, INF, -INF, 1.0, 2.0, 2.0]
    seen = np.array([3.0, 1.0, 2.0, 2.0])
    names = ("mean", "var", "std", "min", "max", "sum", "median")
    fn = lambda c: {  # noqa: E731
        **{name: getattr(ops, name)(c["x"]) for name in names}, "mode": ops.mode(c["x"]), "count": ops.count(c["x"]),
        "size": ops.size(c["x"]), "q": ops.quantiles(c["x"], 2), "h": ops.histogram(c["x"], 2)[0],
        "g": ops.scale_to_gaussian(c["x"]), "e": ops.mean(jnp.stack([c["x"]], -1), elementwise=True),
    }  # fmt: skip
    _, out = learn(fn, x=pa.array(x))
    for name in names:
        np.testing.assert_allclose(out[name][0], getattr(np, name)(seen), rtol=1e-6, err_msg=name)
    assert (out["mode"][0], out["count"][0], out["size"][0], out["q"][0, 0]) == (2, 4, 8, 2)
    np.testing.assert_array_equal(out["h"][0], np.histogram(seen, 2)[0])
    np.testing.assert_allclose(out["e"][0], [2.0])
    assert [str(v) for v in out["g"][1:5]] == ["nan", "nan", "inf", "-inf"]


X = np.array([1.0, 2.0, 4.0, 7.0, 11.0, 16.0])
ODD = np.array([NAN, INF, -INF, 100.0, 1.0])


def gaussian(x: Any) -> Any:
    return (x - X.mean()) / X.std()  # six values tell of no tails


MAPPERS: dict[str, tuple[Any, Any]] = {
    "z_score": (ops.z_score, lambda x: (x - X.mean()) / X.std()),
    "min_max": (lambda x: ops.min_max(x, -1, 1), lambda x: -1 + 2 * (x - 1) / 15),
    "scale_to_gaussian": (ops.scale_to_gaussian, gaussian),
    "z_score_per_key": (lambda x: ops.z_score_per_key(x, ops.fill_missing(x > -9, True)), gaussian),
    "bucketize": (
        lambda x: ops.bucketize(x, 3),
        lambda x: np.where(np.isnan(x), 3, np.searchsorted(X[[2, 4]], x, side="right")),
    ),
    "interpolation": (
        lambda x: ops.apply_buckets_with_interpolation(x, [2.0, 4.0]),
        lambda x: np.where(np.isnan(x), x, np.interp(x, [2, 4], [0, 1])),
    ),
    "imputed": (lambda x: ops.imputed(x, "median"), lambda x: np.where(np.isnan(x), np.median(X), x)),
    "inverse_z_score": (lambda x: ops.inverse_z_score(x, x), lambda x: x * X.std() + X.mean()),
    "inverse_min_max": (lambda x: ops.inverse_min_max(x, x), lambda x: x * 15 + 1),
}


@pytest.mark.parametrize("name", MAPPERS)
def test_every_mapper_keeps_nan_and_gives_infinities_what_the_formula_gives(learn: Any, name: str) -> None:
    op, wanted = MAPPERS[name]
    bundle, out = learn(lambda c: {"y": op(c["x"])}, x=pa.array([*X, None, NAN]))
    np.testing.assert_allclose(out["y"], wanted(np.array([*X, NAN, NAN])), rtol=1e-5, atol=1e-6)
    odd = ODD[:-2] if name == "z_score_per_key" else ODD  # there -Inf has another key than the rest
    with np.errstate(invalid="ignore"):
        expected = wanted(odd)
    if name == "z_score_per_key":
        expected[2] = -INF
    np.testing.assert_allclose(bundle.run("transform", pa.record_batch({"x": odd}))["y"], expected, rtol=1e-5)


def test_of_no_value_at_all(learn: Any) -> None:
    fn = lambda c: {  # noqa: E731
        "mean": ops.mean(c["x"]), "median": ops.median(c["x"]), "mode": ops.mode(c["x"]), "sum": ops.sum(c["x"]),
        "q": ops.quantiles(c["x"], 3), "w": ops.quantiles(c["x"], 3, weights=c["w"]), "n": ops.size(c["x"]),
        "h": ops.histogram(c["x"], 3)[0], "z": ops.z_score(c["x"]), "g": ops.scale_to_gaussian(c["x"]),
    }  # fmt: skip
    bundle, out = learn(fn, x=pa.array([None, NAN], pa.float64()), w=[1.0, 2.0])
    assert (out["sum"][0], out["n"][0], out["h"][0].tolist()) == (0, 2, [0, 0, 0])
    for name in ("mean", "median", "mode", "q", "w"):
        assert np.isnan(out[name]).all(), name
    assert bundle.run_row("transform", {"x": 5.0, "w": 1.0})["z"] == 5.0
    assert bundle.run_row("transform", {"x": 5.0, "w": 1.0})["g"] == 5.0


def test_median_and_mode_are_numpys_and_scipys(learn: Any) -> None:
    x = np.array([5, 1, 1, 9, 9, 4], np.int64)
    fn = lambda c: {"median": ops.median(c["x"]), "mode": ops.mode(c["x"]), "flag": ops.mode(c["x"] > 3)}  # noqa: E731
    _, out = learn(fn, x=x)
    assert out["median"][0] == np.median(x)
    assert out["mode"][0] == scipy.stats.mode(x).mode
    assert out["flag"][0] == 1
    assert out["mode"].dtype == np.int32


@pytest.mark.parametrize("bins", [1, 7, [0.0, 1.0, 2.5, 4.0]])
def test_histograms_are_numpys(learn: Any, bins: Any) -> None:
    x = np.random.default_rng(3).normal(2, 2, 200).round(1)
    fn = lambda c: dict(zip(("counts", "edges"), ops.histogram(c["x"], bins), strict=True))  # noqa: E731
    _, out = learn(fn, x=x)
    counts, edges = np.histogram(x, bins)
    np.testing.assert_array_equal(out["counts"][0], counts)
    np.testing.assert_allclose(out["edges"][0], edges, rtol=1e-6)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.integers(-5, 5), st.integers(0, 4)), min_size=1, max_size=30),
    st.integers(2, 6),
    st.integers(0, 30),
)
def test_whole_weights_are_repetition(rows: list[tuple[int, int]], buckets: int, cut: int) -> None:
    from drivetrain.engine.analyzers.analysis import Analysis, AnalyzerPass, finish

    analyses = (Analysis("weighted", (("value", "x"), ("weight", "w")), '{"weight": "w"}'),)

    def state(part: list[tuple[int, int]]) -> AnalyzerPass:
        states = AnalyzerPass(analyses)
        states.add_batch(
            pa.record_batch(
                {"x": pa.array([x for x, _ in part], pa.int64()), "w": pa.array([w for _, w in part], pa.int64())}
            )
        )
        states.compact()
        return AnalyzerPass.from_bytes(states.to_bytes())

    left = state(rows[:cut])
    left.merge(state(rows[cut:]))
    assert left.to_bytes() == state(rows[::-1]).to_bytes()
    learnt = finish("quantiles", {"buckets": buckets, "weight": "w"}, left.result()["0"])
    repeated = np.sort(np.repeat([x for x, _ in rows], [w for _, w in rows]))
    if len(repeated):
        assert learnt == [repeated[i * len(repeated) // buckets] for i in range(1, buckets)]
    else:
        assert np.isnan(learnt).all()


def test_weighted_buckets(learn: Any) -> None:
    x, w = [1.0, 2.0, 3.0, None], [6.0, 1.0, 1.5, 9.0]
    _, out = learn(lambda c: {"b": ops.bucketize(c["x"], 2, weights=c["w"])}, x=pa.array(x), w=w)
    assert out["b"].tolist() == [1, 1, 1, 2]  # the boundary is 1: more than half of the weight


@pytest.mark.parametrize(
    ("w", "says"),
    [
        ([1.0, -2.0], "column 'w' have the weight -2"),
        ([1.0, None], "column 'w' have a missing value"),
        ([INF, 1.0], "column 'w' have the weight inf"),
    ],
)
def test_bad_weights_are_refused(learn: Any, w: Any, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        learn(lambda c: {"q": ops.quantiles(c["x"], 2, weights=c["w"])}, x=[1.0, 2.0], w=pa.array(w))
    assert "test_statistics.py:" in str(caught.value.where)


def test_weighted_quantiles_beyond_the_table_come_from_a_sketch(monkeypatch: pytest.MonkeyPatch) -> None:
    from drivetrain.engine.analyzers import weighted
    from drivetrain.engine.analyzers.analysis import Analysis, AnalyzerPass, finish

    monkeypatch.setattr(weighted, "_EXACT", 500)
    rng = np.random.default_rng(5)
    x, w = rng.normal(size=20_000), rng.uniform(0, 3, 20_000)
    parts = [AnalyzerPass((Analysis("weighted", (("value", "x"), ("weight", "w")), '{"weight": "w"}'),)) for _ in "ab"]
    for place in range(20):
        rows = slice(1000 * place, 1000 * (place + 1))
        parts[place // 10].add_batch(pa.record_batch({"x": x[rows], "w": w[rows]}))
    left = AnalyzerPass.from_bytes(parts[0].to_bytes())
    left.merge(parts[1])
    learnt = finish("quantiles", {"buckets": 5, "weight": "w"}, left.result()["0"])
    shares = [w[x < edge].sum() / w.sum() for edge in learnt]
    np.testing.assert_allclose(shares, [0.2, 0.4, 0.6, 0.8], atol=0.01)


def test_covariance_correlation_and_pca(learn: Any) -> None:
    from sklearn.decomposition import PCA

    columns = {**data(60, 1)}
    x = np.stack(list(columns.values()), -1).astype(np.float32)
    fn = lambda c: {  # noqa: E731
        "cov": ops.covariance(vectors(c)), "corr": ops.correlation(vectors(c)), "pca": ops.pca(vectors(c), 2),
        "y": vectors(c) @ ops.pca(vectors(c), 2),
    }  # fmt: skip
    _, out = learn(fn, **columns)
    np.testing.assert_allclose(out["cov"].reshape(-1, 3, 3)[0], np.cov(x.T, ddof=0), rtol=1e-5)
    np.testing.assert_allclose(out["corr"].reshape(-1, 3, 3)[0], np.corrcoef(x.T), rtol=1e-5)
    wanted = PCA(2).fit(x).components_.T
    found = out["pca"].reshape(-1, 3, 2)[0]
    np.testing.assert_allclose(np.abs(found), np.abs(wanted), atol=1e-5)
    assert (found[np.abs(found).argmax(0), [0, 1]] > 0).all()
    np.testing.assert_allclose(out["y"], x @ found, rtol=1e-4)


def test_a_row_of_a_vector_counts_only_if_finite_throughout(learn: Any) -> None:
    a, b = [1.0, 2.0, None, 4.0, 7.0], [1.0, INF, 3.0, 0.0, 7.0]
    fn = lambda c: {  # noqa: E731
        "cov": ops.covariance(jnp.stack([c["a"], c["b"], 0 * c["a"]], -1)),
        "r": ops.correlation(jnp.stack([c["a"], c["b"], jnp.nan_to_num(c["a"]) * 0], -1)),
    }
    _, out = learn(fn, a=pa.array(a), b=b)
    kept = np.array([[1, 1, 0], [4, 0, 0], [7, 7, 0]], float)
    np.testing.assert_allclose(out["cov"].reshape(-1, 3, 3)[0], np.cov(kept.T, ddof=0), rtol=1e-6)
    found = out["r"].reshape(-1, 3, 3)[0]
    np.testing.assert_allclose(found[:2, :2], np.corrcoef(kept[:, :2].T), rtol=1e-6)
    assert np.isnan(found[2]).all()


def test_lists_are_looked_at_value_by_value(learn: Any) -> None:
    column = pa.array([[1.0, 2.0], [], None, [6.0]], pa.list_(pa.float64()))
    _, out = learn(lambda c: {"mean": ops.mean(c["v"]) + 0 * c["x"], "x": c["x"]}, v=column, x=np.arange(4.0))
    assert out["mean"][0] == 3.0


@dataclass(frozen=True)
class GeometricMean:
    """exp of the mean logarithm, the sum kept exact enough for equal states by whole numbers of 2^-40."""

    floor: float

    def create(self) -> Any:
        return np.zeros(2, np.int64)

    def add(self, state: Any, x: Any, w: Any) -> Any:
        kept = x > self.floor
        return state + np.array([np.rint(np.log(x[kept]) * 2.0**40).sum(), kept.sum()]).astype(np.int64)

    def merge(self, left: Any, right: Any) -> Any:
        return left + right

    def extract(self, state: Any) -> Any:
        return math.exp(state[0] / 2.0**40 / state[1])


def test_a_reducer_of_the_users_own(learn: Any) -> None:
    x = np.array([1.0, 2.0, 4.0, -1.0, 8.0, 0.5, 3.0])
    fn = lambda c: {  # noqa: E731
        "all": ops.reduce(GeometricMean(0.0), c["x"], c["w"]),
        "big": ops.reduce(GeometricMean(1.0), c["x"], c["w"]),
    }
    bundle, out = learn(fn, x=x, w=["a"] * 7)
    np.testing.assert_allclose(out["all"][0], scipy.stats.gmean(x[x > 0]), rtol=1e-6)
    np.testing.assert_allclose(out["big"][0], scipy.stats.gmean(x[x > 1]), rtol=1e-6)
    assert len(bundle.payload.weights) == 2


def test_a_reducers_state_round_trips_and_needs_its_reducer() -> None:
    from drivetrain.engine.analyzers.analysis import Analysis, AnalyzerPass

    analyses = (Analysis("reduced", (("value", "x"), ("value", "x")), '{"reducer": "r"}', GeometricMean(0.0)),)
    states = AnalyzerPass(analyses)
    states.add_batch(pa.record_batch({"x": [1.0, 2.0]}))
    again = AnalyzerPass(analyses).load(states.to_bytes())
    assert again.to_bytes() == states.to_bytes()
    with pytest.raises(InputError, match="the reducer NoneType failed in create"):
        AnalyzerPass.from_bytes(states.to_bytes())


class Failing(GeometricMean):
    def add(self, state: Any, x: Any, w: Any) -> Any:
        raise RuntimeError("no luck")


@pytest.mark.parametrize(
    ("fn", "says"),
    [
        (lambda c: {"y": ops.mean(c["x"], elementwise=True)}, "takes vectors, and column"),
        (lambda c: {"y": ops.pca(jnp.stack([c["x"]], -1), 2)}, "k is 2, x has 1"),
        (lambda c: {"y": ops.histogram(c["x"], [1.0, 1.0])[0]}, "do not rise"),
        (lambda c: {"y": ops.median(c["w"])}, "column 'w' is text"),
        (lambda c: {"y": ops.size(3.0)}, "size of something that is not one value per row"),
        (lambda c: {"y": ops.quantiles(c["x"], 2, weights=c["w"])}, "column 'w' is text"),
        (lambda c: {"y": ops.reduce(GeometricMean, c["x"])}, "is a class"),
        (lambda c: {"y": ops.reduce(object(), c["x"])}, "has no create, add, merge, extract"),
        (lambda c: {"y": ops.reduce(GeometricMean(0.0), c["x"], dtype="float64")}, "cannot be 'float64'"),
        (lambda c: {"y": ops.imputed(c["x"], "middle")}, "cannot be imputed by 'middle'"),
        (lambda c: {"y": ops.imputed(c["w"], "mean")}, "cannot be imputed by 'mean'"),
    ],
)
def test_mistakes_name_the_users_line(learn: Any, fn: Any, says: str) -> None:
    with pytest.raises(InputError) as caught:
        learn(fn, x=[1.0], w=["a"])
    assert says in caught.value.message
    assert "test_statistics.py:" in str(caught.value.where)


def test_a_failing_reducer_is_named(learn: Any) -> None:
    with pytest.raises(InputError, match="reducer Failing failed in add: RuntimeError: no luck"):
        learn(lambda c: {"y": ops.reduce(Failing(0.0), c["x"], c["x"])}, x=[1.0])


def test_too_many_numbers_have_no_mode(learn: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from drivetrain.engine.analyzers import numbers

    monkeypatch.setattr(numbers, "_EXACT", 3)
    with pytest.raises(InputError, match="column 'x' has more than 3 distinct numbers") as caught:
        learn(lambda c: {"y": ops.mode(c["x"])}, x=np.arange(10.0))
    assert "test_statistics.py:" in str(caught.value.where)
