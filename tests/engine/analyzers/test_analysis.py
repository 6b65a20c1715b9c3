"""Analyzer states: any split of the rows gives the same bytes and numpy's values."""

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from drivetrain.engine.analyzers import numbers
from drivetrain.engine.analyzers.analysis import Analysis, AnalyzerPass, finish
from drivetrain.errors import InputError
from hypothesis import given, settings
from hypothesis import strategies as st

X, W = (("value", "x"),), (("value", "w"),)
ANALYSES = (
    Analysis("moments", X), Analysis("numbers", X), Analysis("words", W),
    Analysis("moments", (("value", "n"), ("valid", "ok"))), Analysis("size", X),
    Analysis("products", (("value", "v"),), '{"width": 2}'),
    Analysis("elementwise-moments", (("value", "v"),), '{"width": 2}'),
    Analysis("elementwise-numbers", (("value", "v"),), '{"width": 2}'),
)  # fmt: skip
WORDS = {"top_k": None, "min_count": 1, "keep_empty": True}

ROWS = st.lists(
    st.tuples(
        st.none() | st.floats(-1e6, 1e6) | st.sampled_from([math.nan, math.inf]),
        st.none() | st.sampled_from(["a", "b", "cc", ""]),
        st.integers(-9, 9),
        st.booleans(),
    ),
    max_size=40,
)


def batch(rows: list[Any]) -> pa.RecordBatch:
    x, w, n, ok = zip(*rows, strict=True) if rows else ((), (), (), ())
    columns = [pa.array(x, pa.float64()), pa.array(w, pa.string()), pa.array(n, pa.int64()), pa.array(ok, pa.bool_())]
    vectors = pa.array([[a, b] for a, b in zip(x, n, strict=True)], pa.list_(pa.float64(), 2))
    return pa.RecordBatch.from_arrays([*columns, vectors], names=["x", "w", "n", "ok", "v"])


def state(*parts: list[Any]) -> AnalyzerPass:
    states = AnalyzerPass(ANALYSES)
    for part in parts:
        states.add_batch(batch(part))
    states.compact()
    return states


@settings(deadline=None)
@given(ROWS, st.integers(0, 40), st.integers(0, 40))
def test_split_merge_and_round_trip_change_nothing(rows: list[Any], i: int, j: int) -> None:
    i, j = sorted((i, j))
    whole = state(rows)
    left = AnalyzerPass.from_bytes(state(rows[:i], rows[i:j]).to_bytes())
    left.merge(AnalyzerPass.from_bytes(state(rows[j:]).to_bytes()))
    assert left.to_bytes() == whole.to_bytes() == state(rows[::-1]).to_bytes()
    results = left.result()
    assert results["4"].rows == len(rows)
    kept = np.array([[row[0], row[2]] for row in rows if row[0] is not None and math.isfinite(row[0])])
    if len(kept):
        spread = finish("covariance", {}, results["5"])
        np.testing.assert_allclose(spread, np.cov(kept.T, ddof=0), rtol=1e-6, atol=1e-3)
    x = np.array([row[0] for row in rows if row[0] is not None and math.isfinite(row[0])])
    moments, numbers, words, masked = (results[str(i)] for i in range(4))
    if len(x):
        np.testing.assert_allclose(finish("mean", {}, moments), x.mean(), rtol=1e-9, atol=1e-6)
        np.testing.assert_allclose(finish("var", {}, moments), x.var(), rtol=1e-9, atol=1e-3)
        assert finish("min", {}, moments) == x.min()
        wanted = np.sort(x)[[k * len(x) // 4 for k in (1, 2, 3)]]
        np.testing.assert_array_equal(finish("quantiles", {"buckets": 4}, numbers), wanted)
    else:
        assert math.isnan(finish("mean", {}, moments))
    counts = Counter(row[1] for row in rows if row[1] is not None)
    assert finish("vocabulary", WORDS, words)["value"].to_pylist() == sorted(
        sorted(counts, reverse=True), key=lambda w: -counts[w]
    )
    assert finish("sum", {}, masked) == sum(row[2] for row in rows if row[3])


def test_dictionary_columns_and_vectors_count_the_same() -> None:
    words = pa.array(["b", None, "a", "b"])
    found = []
    for column in (words, words.dictionary_encode(), words.cast(pa.large_string())):
        states = AnalyzerPass((Analysis("words", W),))
        states.add_batch(pa.RecordBatch.from_arrays([column], names=["w"]))
        found.append(states.to_bytes())
    assert len(set(found)) == 1
    states = AnalyzerPass((Analysis("moments", (("value", "v"),)),))
    states.add_batch(pa.record_batch({"v": pa.array([[1.0, 2.0], [3.0, 6.0]], pa.list_(pa.float32(), 2))}))
    assert finish("mean", {}, states.result()["0"]) == 3.0


def test_too_many_distinct_numbers_become_a_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbers, "_EXACT", 1000)
    x = np.random.default_rng(1).normal(size=60_000)
    parts = [AnalyzerPass((Analysis("numbers", X),)) for _ in range(2)]
    for made, half in zip(parts, np.split(x, 2), strict=True):
        for piece in np.split(half, 10):
            made.add_batch(pa.record_batch({"x": piece}))
        made.compact()
    left = AnalyzerPass.from_bytes(parts[0].to_bytes())
    assert left.to_bytes() == parts[0].to_bytes()
    left.merge(parts[1])
    edges = finish("quantiles", {"buckets": 10}, left.result()["0"])
    ranks = np.searchsorted(np.sort(x), edges) / len(x)
    np.testing.assert_allclose(ranks, np.arange(1, 10) / 10, atol=0.005)


def test_damaged_states_are_refused() -> None:
    data = state([(1.0, "a", 1, True)]).to_bytes()
    for broken in (data[:-3], b"junk", data.replace(b'"version": 1', b'"version": 9')):
        with pytest.raises(InputError, match="not the analyzer states"):
            AnalyzerPass.from_bytes(broken)


# --- what TensorFlow Transform gave ---

_CASES = Path(__file__).parents[2] / "golden" / "tft_cases.json"
CASES = {case["name"]: case for case in json.loads(_CASES.read_text())["cases"]}


def golden(name: str, fn: Any, tmp_path: Path, kinds: dict[str, pa.DataType]) -> tuple[Any, Any, list[Any]]:
    import pyarrow.parquet as pq
    from drivetrain import data
    from drivetrain.engine import analyze

    given = CASES[name]["input"]
    rows = [{"x": float(x)} for x in range(1, 101)] if isinstance(given, str) else given
    number = {name: (lambda v: float(v)) if kind == pa.float32() else (lambda v: v) for name, kind in kinds.items()}
    columns = {key: pa.array([number[key](row[key]) for row in rows], kind) for key, kind in kinds.items()}
    table = pa.table(columns)
    pq.write_table(table, tmp_path / "golden.parquet")
    bundle = analyze(fn, data.open_parquet([tmp_path / "golden.parquet"]), data.executor("local"))
    out = bundle.run("transform", table.combine_chunks().to_batches()[0])
    return bundle, out, CASES[name]["expected"]["transformed"]


@pytest.mark.engine
def test_golden_numeric_full_pass(tmp_path: Path) -> None:
    from drivetrain.engine import ops

    fn = lambda c: {  # noqa: E731
        "z": ops.z_score(c["x"]), "mm": ops.min_max(c["x"], -1, 1), "s01": ops.min_max(c["x"]),
        "mean": ops.mean(c["x"]), "var": ops.var(c["x"]), "min": ops.min(c["x"]), "max": ops.max(c["x"]),
        "sum": ops.sum(c["x"]), "size": ops.count(c["x"]), "b3": ops.bucketize(c["x"], 3),
        "q4": ops.quantiles(c["x"], 4),
    }  # fmt: skip
    _, out, wanted = golden("numeric_full_pass", fn, tmp_path, {"x": pa.float32()})
    for name, values in out.items():
        np.testing.assert_allclose(values, [row[name] for row in wanted], rtol=1e-6, atol=1e-6, err_msg=name)


@pytest.mark.engine
def test_golden_constant_column(tmp_path: Path) -> None:
    from drivetrain.engine import ops

    fn = lambda c: {"z": ops.z_score(c["x"]), "b": ops.bucketize(c["x"], 3), "mm": ops.min_max(c["x"])}  # noqa: E731
    _, out, wanted = golden("constant_column", fn, tmp_path, {"x": pa.float32()})
    for name in ("z", "b"):
        np.testing.assert_array_equal(out[name], [row[name] for row in wanted])
    np.testing.assert_array_equal(out["mm"], 0.5)  # TFT: sigmoid(x), which the catalogue calls wrong


@pytest.mark.engine
@pytest.mark.parametrize(
    ("name", "column", "kind", "options"),
    [
        ("vocab_basic", "s", pa.string(), {}),
        ("vocab_int_input", "n", pa.int64(), {}),
        ("vocab_topk_oov", "s", pa.string(), {"top_k": 2, "oov_buckets": 3}),
    ],
)
def test_golden_vocabularies(tmp_path: Path, name: str, column: str, kind: pa.DataType, options: Any) -> None:
    from drivetrain.engine import ops

    fn = lambda c: {"id": ops.vocabulary(c[column], **options)}  # noqa: E731
    bundle, out, wanted = golden(name, fn, tmp_path, {column: kind})
    (words,) = (table["value"].to_pylist() for table in bundle.payload.assets.values())
    assert words == CASES[name]["expected"]["vocabularies"]["v"]
    # Without buckets TFT says -1 for an unknown word; here it has an id of its own.
    assert out["id"].tolist() == [len(words) if row["id"] == -1 else row["id"] for row in wanted]
    later = CASES[name]["expected"].get("applied_to_new_data")
    if later:
        found = [bundle.run_row("transform", row)["id"] for row in later["input"]]
        assert found == [len(words) if row["id"] == -1 else row["id"] for row in later["output"]]


@pytest.mark.engine
def test_golden_buckets_and_quantiles(tmp_path: Path) -> None:
    from drivetrain.engine import ops

    fn = lambda c: {"b": ops.apply_buckets(c["x"], [2.0, 5.0, 10.0])}  # noqa: E731
    _, out, wanted = golden("apply_buckets_edges", fn, tmp_path, {"x": pa.float32()})
    assert out["b"].tolist() == [*[row["b"] for row in wanted[:-1]], 4]  # NaN: TFT's last bucket, here its own id
    fn = lambda c: {"q": ops.quantiles(c["x"], 4), "b": ops.bucketize(c["x"], 4)}  # noqa: E731
    _, out, wanted = golden("quantiles_100", fn, tmp_path, {"x": pa.float32()})
    assert out["q"][0].tolist() == wanted[0]["q"]
    assert np.bincount(out["b"]).tolist() == [25, 25, 25, 25]


@pytest.mark.engine
def test_golden_one_nan_is_left_out(tmp_path: Path) -> None:
    from drivetrain.engine import ops

    def fn(c: ops.Columns) -> ops.Columns:
        x = c["x"]
        return {"b": ops.bucketize(x, 2), "min": ops.min(x), "sum": ops.sum(x), "s": ops.min_max(x)}

    _, out, wanted = golden("minmax_nan_only", fn, tmp_path, {"x": pa.float32()})
    assert out["b"].tolist() == [wanted[0]["b"], 2, wanted[2]["b"]]  # TFT: NaN to the last bucket
    assert out["min"].tolist() == [1, 1, 1]  # TFT: NaN
    assert out["sum"].tolist() == [4, 4, 4]  # TFT: NaN
    np.testing.assert_array_equal(out["s"], [0, np.nan, 1])  # TFT: sigmoid


@pytest.mark.engine
def test_golden_hash(tmp_path: Path) -> None:
    from drivetrain.engine import ops

    fn = lambda c: {"h": ops.hash_buckets(c["k"], 10)}  # noqa: E731
    _, out, wanted = golden("hash_and_per_key", fn, tmp_path, {"k": pa.string()})
    assert out["h"].tolist() == [row["h"] for row in wanted]
