"""Statistics per key against numpy's over each group; new, missing and too many keys."""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest
from drivetrain.engine import ops
from drivetrain.errors import InputError
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.engine

NAN = math.nan
X = [1.0, 3.0, 10.0, 20.0, 30.0, None, 7.0, math.inf, 5.0, NAN]
K = ["a", "a", "b", "b", "b", "b", None, "a", "only", "none"]


def groups() -> dict[Any, np.ndarray[Any, Any]]:
    rows = [(k, x) for k, x in zip(K, X, strict=True) if k is not None and x is not None and math.isfinite(x)]
    return {key: np.array([x for k, x in rows if k == key]) for key in {k for k, _ in rows}}


def test_every_statistic_is_numpys_of_the_group(learn: Any) -> None:
    names = ("mean", "var", "min", "max", "sum")
    fn = lambda c: {  # noqa: E731
        **{name: getattr(ops, f"{name}_per_key")(c["x"], c["k"]) for name in names},
        "count": ops.count_per_key(c["k"]), "q": ops.quantiles_per_key(c["x"], c["k"], 3),
    }  # fmt: skip
    bundle, out = learn(fn, x=pa.array(X), k=pa.array(K))
    for row, key in enumerate(K):
        seen = groups().get(key)
        for name in names:
            wanted = NAN if seen is None else getattr(np, name)(seen)
            np.testing.assert_allclose(out[name][row], wanted, rtol=1e-6, err_msg=f"{name} of {key}")
        wanted_edges = np.full(2, NAN) if seen is None else np.sort(seen)[[len(seen) // 3, 2 * len(seen) // 3]]
        np.testing.assert_array_equal(out["q"][row], wanted_edges)
        assert out["count"][row] == (0 if key is None else K.count(key))
    assert out["count"].dtype == np.int32
    assert [name for name in bundle.payload.assets if "per-key" in name]
    new = bundle.run_row("transform", {"x": 1.0, "k": "new"})
    assert new["count"] == 0
    assert np.isnan(new["mean"])


def test_mappers_and_what_they_make_of_a_new_key(learn: Any) -> None:
    fn = lambda c: {  # noqa: E731
        "z": ops.z_score_per_key(c["x"], c["k"]), "s": ops.min_max_per_key(c["x"], c["k"], -1, 1),
        "b": ops.bucketize_per_key(c["x"], c["k"], 2),
    }  # fmt: skip
    bundle, out = learn(fn, x=pa.array(X), k=pa.array(K))
    a, b = groups()["a"], groups()["b"]
    np.testing.assert_allclose(out["z"][:2], (a - a.mean()) / a.std())
    np.testing.assert_allclose(out["z"][2:5], (b - b.mean()) / b.std(), rtol=1e-6)
    np.testing.assert_array_equal(out["z"][[5, 6, 8, 9]], [NAN, 7.0, 0.0, NAN])
    np.testing.assert_allclose(out["s"], [-1, 1, -1, 0, 1, NAN, 0, math.inf, 0, NAN])
    assert out["b"].tolist() == [0, 1, 0, 1, 1, 2, 3, 1, 1, 3]
    assert bundle.run_row("transform", {"x": 5.0, "k": "new"}) == {"z": 5.0, "s": 0.0, "b": 3}
    assert bundle.signatures["transform"].outputs["b"].size == 4


def test_weighted_quantiles_of_a_key_are_those_of_repeated_values(learn: Any) -> None:
    weights = [3, 1, 2, 0, 5, 2, 1, 4, 1, 1]
    fn = lambda c: {  # noqa: E731
        "q": ops.quantiles_per_key(c["x"], c["k"], 3, weights=c["w"]),
        "b": ops.bucketize_per_key(c["x"], c["k"], 3, weights=c["w"]),
    }
    _, out = learn(fn, x=pa.array(X), k=pa.array(K), w=pa.array(weights))
    for row, (key, x) in enumerate(zip(K, X, strict=True)):
        seen = groups().get(key)
        if seen is None:
            assert np.isnan(out["q"][row]).all()
            assert out["b"][row] == 4
            continue
        kept = [(v, w) for k, v, w in zip(K, X, weights, strict=True) if k == key and v is not None and v in seen]
        repeated = np.sort(np.repeat([v for v, _ in kept], [w for _, w in kept]))
        edges = repeated[[len(repeated) // 3, 2 * len(repeated) // 3]]
        np.testing.assert_array_equal(out["q"][row], edges)
        assert out["b"][row] == (3 if x is None or math.isnan(x) else (x >= edges).sum())
    with pytest.raises(InputError, match="the weights in column 'w' have the weight -1"):
        learn(fn, x=pa.array(X), k=pa.array(K), w=pa.array([-1.0] * len(X)))


def test_integers_and_booleans_are_keys(learn: Any) -> None:
    fn = lambda c: {  # noqa: E731
        "n": ops.mean_per_key(c["x"], c["n"]), "b": ops.sum_per_key(c["x"] * 2, c["b"]),
        "made": ops.max_per_key(c["i"], c["n"] % 2), "id": ops.mean_per_key(c["x"], ops.bucketize(c["x"], 2)),
        "or": ops.count_per_key(ops.fill_missing(c["b"], False)),
    }  # fmt: skip
    columns = {
        "x": [1.0, 2.0, 4.0, 8.0], "n": pa.array([-1, -1, None, 12]), "i": pa.array([5, None, 7, 9]),
        "b": pa.array([True, False, True, None]),
    }  # fmt: skip
    _, out = learn(fn, **columns)
    np.testing.assert_array_equal(out["n"], [1.5, 1.5, NAN, 8])
    np.testing.assert_array_equal(out["b"], [10, 4, 10, NAN])
    np.testing.assert_array_equal(out["made"], [5, 5, NAN, 9])
    np.testing.assert_array_equal(out["id"], [1.5, 1.5, 6, 6])
    np.testing.assert_array_equal(out["or"], [2, 2, 2, 2])


ROWS = st.lists(
    st.tuples(st.none() | st.sampled_from("abc"), st.none() | st.floats(-1e5, 1e5) | st.just(NAN)), max_size=40
)


@settings(deadline=None, max_examples=60)
@given(ROWS, st.integers(0, 40), st.booleans())
def test_split_order_and_encoding_change_nothing(rows: list[Any], cut: int, encoded: bool) -> None:
    from drivetrain.engine.analyzers.analysis import Analysis, AnalyzerPass

    columns = (("value", "x"), ("key", "k"))
    analyses = (
        *(Analysis(f"keyed-{kind}", columns, '{"key": "k"}') for kind in ("moments", "numbers")),
        Analysis("keyed-weighted", (*columns, ("weight", "w")), '{"key": "k", "weight": "w"}'),
    )

    def state(part: list[Any]) -> AnalyzerPass:
        states = AnalyzerPass(analyses)
        key = pa.array([k for k, _ in part], pa.string())
        column = pa.array([x for _, x in part], pa.float64())
        weight = pa.array([0.0 if x is None or math.isnan(x) else abs(x) for _, x in part], pa.float64())
        states.add_batch(pa.record_batch({"x": column, "k": key.dictionary_encode() if encoded else key, "w": weight}))
        states.compact()
        return AnalyzerPass.from_bytes(states.to_bytes())

    left = state(rows[cut:])
    left.merge(state(rows[:cut]))
    assert left.to_bytes() == state(rows).to_bytes() == state(rows[::-1]).to_bytes()


def test_too_many_keys_are_refused(learn: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from drivetrain.engine.analyzers import keyed

    monkeypatch.setattr(keyed, "KEYS", 2)
    with pytest.raises(InputError, match="key column 'k' has more than 2 distinct values") as caught:
        learn(lambda c: {"z": ops.z_score_per_key(c["x"], c["k"])}, x=[1.0, 2.0, 3.0], k=["a", "b", "c"])
    assert "hash_buckets" in str(caught.value.fix)


@pytest.mark.parametrize(
    ("fn", "says"),
    [
        (lambda c: {"y": ops.mean_per_key(c["x"], c["x"])}, "column 'x' is float, no key"),
        (lambda c: {"y": ops.mean_per_key(c["k"], c["k"])}, "column 'k' is text"),
        (lambda c: {"y": ops.mean_per_key(jnp.stack([c["x"]], -1), c["k"])}, "several values per row"),
        (lambda c: {"y": ops.bucketize_per_key(c["x"], c["k"], 1)}, "buckets is 1"),
        (lambda c: {"y": ops.min_max_per_key(c["x"], c["k"], 1, 0)}, "low 1 is not below high 0"),
    ],
)
def test_mistakes_name_the_users_line(learn: Any, fn: Any, says: str) -> None:
    with pytest.raises(InputError) as caught:
        learn(fn, x=[1.0], k=["a"])
    assert says in caught.value.message
    assert "test_per_key.py:" in str(caught.value.where)
