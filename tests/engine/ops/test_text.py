"""Text and lists from the traced function to a bundle in a fresh process, row by row too; numbers are TFT's."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain import data
from drivetrain.engine import Bundle, analyze, export_model, ops, ragged
from drivetrain.errors import InputError

pytestmark = pytest.mark.engine

GOLDENS = Path(__file__).parents[2] / "golden"
GOLDEN = json.loads((GOLDENS / "tft_text.json").read_text())


@pytest.fixture
def learn(tmp_path: Path):  # type: ignore[no-untyped-def]
    """Analyse and compare batches with rows; where asked, with those of the saved bundle in a fresh process too."""

    def run(fn: Any, columns: dict[str, Any], fresh: bool = False) -> tuple[Bundle, dict[str, np.ndarray[Any, Any]]]:
        table = pa.table(columns)
        pq.write_table(table, tmp_path / "data.parquet", row_group_size=2)
        bundle = analyze(fn, data.open_parquet([tmp_path / "data.parquet"]), data.executor("local"))
        (batch,) = table.combine_chunks().to_batches()
        out = bundle.run("transform", batch)
        rows = [bundle.run_row("transform", row) for row in table.to_pylist()]
        for place, row in enumerate(rows):
            for name, value in row.items():
                np.testing.assert_equal(value, out[name][place], name)
        if fresh:
            compare_with_fresh(bundle, out)
        return bundle, out

    def compare_with_fresh(bundle: Bundle, out: dict[str, Any]) -> None:
        bundle.save(tmp_path / "bundle")
        script = (
            "import json, sys; from drivetrain.engine import Bundle; import pyarrow.parquet as pq\n"
            "bundle = Bundle.load(sys.argv[1]); table = pq.read_table(sys.argv[2])\n"
            "(batch,) = table.combine_chunks().to_batches(); out = bundle.run('transform', batch)\n"
            "rows = [bundle.run_row('transform', row) for row in table.to_pylist()]\n"
            "print(json.dumps([{k: v.tolist() for k, v in out.items()}, \n"
            "    [{k: getattr(v, 'tolist', lambda v=v: v)() for k, v in row.items()} for row in rows]]))\n"
        )
        ran = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path / "bundle"), str(tmp_path / "data.parquet")],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        fresh_out, fresh_rows = json.loads(ran.stdout)
        for name, values in out.items():
            np.testing.assert_equal(fresh_out[name], values.tolist())
            np.testing.assert_equal([row[name] for row in fresh_rows], values.tolist())

    return run


def test_text_as_tft_has_it(learn: Any) -> None:
    def fn(c: Any) -> Any:
        words = ops.split(c["t"], " ")
        learnt = ops.learn_vocabulary(words, top_k=3)
        ids = ops.apply_vocabulary(words, learnt, oov_buckets=0)
        i1, w1 = ops.tfidf(ids, ops.vocabulary_size(ids) + 1)
        i2, w2 = ops.tfidf(ids, 4, smooth=False)
        return {
            "sizes": ops.vocabulary_size(learnt) * 10 + ops.vocabulary_size(ids),
            "bow": ops.bag_of_words(words), "bow2": ops.bag_of_words(words, (1, 3), "_"),
            "bow3": ops.bag_of_words(words, (2, 3), "_"), "ng": ops.ngrams(words, (2, 3), "_"),
            "dd": ops.deduplicate(words), "wc": ops.word_count(words), "ids": ids, "i1": i1, "w1": w1, "i2": i2,
            "w2": w2, "oov": ops.vocabulary(words, top_k=3, oov_buckets=2), "h": ops.hash_buckets(c["t"], 1000003),
            "hk": ops.hash_buckets(c["t"], 1000003, key=(1, 2)),
            "hkl": ops.hash_buckets(words, 1000003, key=(2**63 - 25, 12345)),
        }  # fmt: skip

    case = GOLDEN["text"]
    _, out = learn(fn, {"t": pa.array([row["t"] for row in case["input"]])})
    assert out["sizes"].tolist() == [33] * len(case["input"])
    for name in case["ops"]:
        for found, row in zip(out[name], case["expected"], strict=True):
            if name in ("w1", "w2"):
                np.testing.assert_allclose(found, row[name], rtol=2e-7)
            else:
                assert found == row[name], name


def test_lists_of_numbers_as_tft_has_them(learn: Any) -> None:
    case = GOLDEN["lists"]
    fn = lambda c: {  # noqa: E731
        "z": ops.z_score(c["x"]), "m": ops.min_max(c["x"], -1, 1), "b": ops.bucketize(c["x"], 3),
        "v": ops.vocabulary(c["s"], oov_buckets=0),
    }  # fmt: skip
    columns = {name: [row[name] for row in case["input"]] for name in ("x", "s")}
    bundle, out = learn(fn, columns)
    for name in case["ops"]:
        for found, row in zip(out[name], case["expected"], strict=True):
            np.testing.assert_allclose(found, row[name], rtol=1e-6, err_msg=name)
    assert bundle.signatures["transform"].outputs["b"].size == 4
    assert bundle.signatures["transform"].outputs["v"].dtype == "list<int64>"
    assert bundle.run_row("transform", {"x": [float("nan")], "s": None})["b"] == [3]


def test_a_value_on_a_boundary_is_in_its_bucket_whatever_its_width(learn: Any) -> None:
    """0.1 is not a float32: the boundary, which the device holds, is a little larger."""
    fn = lambda c: {  # noqa: E731
        "b": ops.bucketize(c["x"], 2), "a": ops.apply_buckets(c["x"], [0.1]), "s": ops.bucketize(c["y"], 2),
    }  # fmt: skip
    x = [0.0, 0.1, 0.1, 0.2]
    for kind in (pa.float32(), pa.float64()):
        bundle, out = learn(fn, {"x": pa.array([[v] for v in x], pa.list_(kind)), "y": pa.array(x, kind)})
        assert out["b"].tolist() == out["a"].tolist() == [[0], [1], [1], [1]]
        assert out["s"].tolist() == [0, 1, 1, 1]
        assert bundle.run_row("transform", {"x": [0.1], "y": 0.1}) == {"b": [1], "a": [1], "s": 1}


CASES = {case["name"]: case for case in json.loads((GOLDENS / "tft_cases.json").read_text())["cases"]}


def test_the_golden_text_case(learn: Any) -> None:
    def fn(c: Any) -> Any:
        words = ops.split(c["t"])
        ids = ops.vocabulary(words, oov_buckets=0)
        idx, w = ops.tfidf(ids, 3)
        return {
            "bow": ops.bag_of_words(words, (1, 2)), "ngr": ops.ngrams(words, (1, 2)), "wc": ops.word_count(words),
            "ids": ids, "idx": idx, "w": w,
        }  # fmt: skip

    case = CASES["text_tfidf_ngrams"]
    bundle, out = learn(fn, {"t": [row["t"] for row in case["input"]]})
    for place, row in enumerate(case["expected"]["transformed"]):
        for name, value in row.items():
            if name == "w":
                np.testing.assert_allclose(out[name][place], value, rtol=1e-6)
            else:
                assert out[name][place] == value, name
    words = [table["value"].to_pylist() for table in bundle.payload.assets.values() if "value" in table.column_names]
    assert words == [case["expected"]["vocabularies"]["v"]]


def test_the_golden_sparse_case(learn: Any) -> None:
    case = CASES["sparse_fill_missing"]
    fn = lambda c: {"d": ops.to_dense(c["x"], 1, fill=-7)[:, 0], "z": ops.z_score(c["x"])}  # noqa: E731
    _, out = learn(fn, {"x": [row["x"] for row in case["input"]]})
    for name in ("d", "z"):
        assert out[name].tolist() == [row[name] for row in case["expected"]["transformed"]]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("vocab_basic", {"oov_buckets": 0}), ("vocab_topk_oov", {"top_k": 2, "oov_buckets": 3}),
        ("vocab_int_input", {"oov_buckets": 0}),
    ],
)  # fmt: skip
def test_the_golden_vocabularies(learn: Any, name: str, settings: dict[str, Any]) -> None:
    case = CASES[name]
    (column,) = case["input"][0]
    given = [row[column] for row in case["input"]]
    bundle, out = learn(lambda c: {"id": ops.vocabulary(c[column], **settings)}, {column: given})
    assert out["id"].tolist() == [row["id"] for row in case["expected"]["transformed"]]
    new = case["expected"].get("applied_to_new_data", {"input": [], "output": []})
    assert [bundle.run_row("transform", row) for row in new["input"]] == new["output"]


def test_every_op_from_trace_to_bundle(learn: Any) -> None:
    def fn(c: Any) -> Any:
        clean = ops.lower(ops.strip(ops.regex_replace(c["t"], r"[.!]+", " ")))
        words = ops.split(clean)
        label = ops.lookup(c["t"], {"<=50K.": 0, ">50K": 1}, default=-1)
        ids = ops.vocabulary(words, top_k=3)
        index, weight = ops.tfidf(ids, ops.vocabulary_size(ids) + 1)
        return {
            "clean": clean, "words": words, "upper": ops.upper(c["t"]), "joined": ops.join(words, "+"),
            "both": ops.concat(c["t"], "/", ops.cast(c["n"], "string"), separator="-"), "sub": ops.substr(c["t"], 1, 3),
            "chars": ops.fill_missing(ops.length(c["t"]), -1), "word_chars": ops.length(words),
            "bytes": ops.fill_missing(ops.length(c["t"], "bytes"), -1),
            "full": ops.where(ops.regex_full_match(c["t"], "[a-z ]+"), 1, 0),
            "part": ops.where(ops.regex_contains(c["t"], "50"), 1, 0),
            "ends": ops.where(ops.ends_with(c["t"], "K"), 1, 0), "start": ops.where(ops.starts_with(c["t"], "<"), 1, 0),
            "label": ops.fill_missing(label, -2), "of_n": ops.lookup(c["n"], {7: "seven"}),
            "rate": ops.lookup(c["t"], {"x": 1, ">50K": 0.5}), "number": ops.parse(c["d"], "float32"),
            "whole": ops.fill_missing(ops.parse(c["d"], "int32", default=-1), -2),
            "given": ops.apply_vocabulary(c["t"], ["x", ">50K"]),
            "one": ops.multi_hot(ops.apply_vocabulary(words, ["50k", "a"]), 3),
            "has": ops.where(ops.is_in(words, ["a", "é"]), 1, 0), "filled": ops.fill_missing(words, ["none"]),
            "count": ops.fill_missing(ops.word_count(c["t"]), 0),
            "dense": ops.to_dense(ops.hash_buckets(words, 9), 4, fill=-1),
            "unknown": ops.is_missing(words), "numbers": ops.parse(words, "float32", default=0.25),
            "learnt": ids, "index": index, "weight": weight, "bags": ops.bag_of_words(words, (1, 2), "_"),
            "pairs": ops.ngrams(words, (2, 2), "_"), "distinct": ops.deduplicate(words),
            "keyed": ops.hash_buckets(words, 1000003, key=(2**63 - 25, 12345)),
        }  # fmt: skip

    t = ["<=50K.", ">50K", None, "", "A a  É!", "x"]
    n = [7, None, 1, 2, 3, 7]
    d = ["1.5", "x", None, "3", "", "nan"]
    bundle, out = learn(fn, {"t": pa.array(t), "n": pa.array(n), "d": pa.array(d)}, fresh=True)
    nan = float("nan")
    wanted: dict[str, Any] = {
        "clean": ["<=50k", ">50k", None, "", "a a  é", "x"],
        "words": [["<=50k"], [">50k"], None, [], ["a", "a", "é"], ["x"]],
        "upper": ["<=50K.", ">50K", None, "", "A A  É!", "X"], "joined": ["<=50k", ">50k", None, "", "a+a+é", "x"],
        "both": ["<=50K.-/-7", None, None, "-/-2", "A a  É!-/-3", "x-/-7"],
        "sub": ["=5", "50", None, "", " a", ""], "chars": [6, 4, -1, 0, 7, 1], "bytes": [6, 4, -1, 0, 8, 1],
        "word_chars": [[5], [4], None, [], [1, 1, 1], [1]],
        "full": [0, 0, 0, 0, 0, 1], "part": [1, 1, 0, 0, 0, 0], "ends": [0, 1, 0, 0, 0, 0], "start": [1, 0, 0, 0, 0, 0],
        "label": [0, 1, -2, -1, -1, -1], "of_n": ["seven", None, None, None, None, "seven"],
        "rate": [nan, 0.5, nan, nan, nan, 1], "number": [1.5, nan, nan, 3, nan, nan], "whole": [-1, -1, -2, 3, -1, -1],
        "given": [2, 1, 3, 2, 2, 0], "has": [0, 0, 0, 0, 1, 0], "count": [1, 1, 0, 0, 3, 1],
        "one": [[0, 0, 1], [0, 0, 1], [0, 0, 0], [0, 0, 0], [0, 1, 1], [0, 0, 1]],
        "filled": [["<=50k"], [">50k"], ["none"], [], ["a", "a", "é"], ["x"]],
        "unknown": [0, 0, 1, 0, 0, 0], "numbers": [[0.25], [0.25], None, [], [0.25] * 3, [0.25]],
    }  # fmt: skip
    for name, values in wanted.items():
        np.testing.assert_equal(out[name].tolist(), values, name)
    assert out["dense"][2].tolist() == [-1] * 4
    assert out["dense"].dtype == np.int32
    assert bundle.signatures["transform"].outputs["given"].size == 4
    with pytest.raises(InputError, match="column 't' has a list of 5 values in row 0, not 4"):
        bundle.run("transform", pa.record_batch({"t": ["a b c d e"], "n": [1], "d": ["1"]}))


@pytest.mark.parametrize(
    ("fn", "says"),
    [
        (lambda c: ops.lower(c["i"]), "column 'i' is int32 and was given to lower"),
        (lambda c: ops.split(c["l"]), "column 'l' is list<string> and was split"),
        (lambda c: ops.regex_replace(c["t"], "(", ""), "the regular expression '(' cannot be used"),
        (lambda c: ops.regex_replace(c["t"], "a", r"\1"), "Rewrite schema requests 1 matches"),
        (lambda c: ops.regex_contains(c["t"], r"(?=a)"), "cannot be used: Invalid regular expression"),
        (lambda c: ops.regex_contains(c["l"], "a"), "column 'l' is a list and was given to regex_contains"),
        (lambda c: ops.split(c["t"], " ", regex=" "), "by delimiters or by regex"),
        (lambda c: ops.split(c["t"], ""), "split by no delimiter"),
        (lambda c: ops.length(c["t"], "words"), "no unit 'words'"),
        (lambda c: ops.concat("a"), "concat of no column"),
        (lambda c: ops.concat([c["t"], "a"]), "concat takes columns and texts one by one, not a list"),
        (lambda c: ops.join(c["t"]), "which takes lists of text"),
        (lambda c: ops.lookup(c["t"], {}), "a lookup table of nothing"),
        (lambda c: ops.lookup(c["t"], {"a": 1, "b": "c"}), "a lookup table of int, str"),
        (lambda c: ops.lookup(c["t"], {"a": float("nan")}), "holds NaN"),
        (lambda c: ops.lookup(c["l"], {"a": 1}), "need a default"),
        (lambda c: ops.parse(c["t"], "int32", default=0.5), "the default 0.5 is not of type int32"),
        (lambda c: ops.parse(c["t"], "float64"), "not parsed as 'float64'"),
        (lambda c: ops.parse(c["l"], "int32"), "with a default"),
        (lambda c: ops.ngrams(c["l"], (2, 1)), "the largest n-gram is 1"),
        (lambda c: ops.tfidf(c["l"], 3), "which takes list<int64>"),
        (lambda c: ops.tfidf(c["n"], 0), "size is 0"),
        (lambda c: ops.to_dense(c["n"], 3), "the fill None is not one"),
        (lambda c: ops.to_dense(c["l"], 3), "which takes list<int64> or list<float64>"),
        (lambda c: ops.multi_hot(ops.vocabulary(c["l"])), "not known while tracing"),
        (lambda c: ops.one_hot(c["n"], 3), "column 'n' is a list"),
        (lambda c: ops.z_score(c["l"]), "column 'l' is a list"),
        (lambda c: ops.fill_missing(c["l"], "a"), "takes a list<string>, not 'a'"),
        (lambda c: ops.fill_missing(c["n"], ["a"]), "takes a list<int64>"),
        (lambda c: ops.hash_buckets(c["t"], 3, key=(1, 2**64)), "the key is"),
        (lambda c: ops.apply_vocabulary(c["t"], ["a", "a"]), "or one twice"),
        (lambda c: ops.cast(c["l"], "string"), "column 'l' is a list"),
        (lambda c: ops.where(c["b"], c["l"], c["l"]), "column 'l' is a list"),
    ],
)
def test_mistakes_name_the_op_and_the_users_line(tmp_path: Path, fn: Any, says: str) -> None:
    table = pa.table({"t": ["a"], "i": [1], "l": [["a"]], "n": [[1]], "b": [True]})
    pq.write_table(table, tmp_path / "data.parquet")
    with pytest.raises(InputError) as caught:
        analyze(
            lambda c: {"y": fn(c)}, data.open_parquet([tmp_path / "data.parquet"]), data.executor("local"),
        )  # fmt: skip
    assert says in caught.value.message
    assert "test_text.py:" in str(caught.value.where)


def test_the_pages_example(learn: Any) -> None:
    page = (Path(__file__).parents[3] / "docs" / "transform-text.md").read_text("utf-8")
    space: dict[str, Any] = {}
    exec(page.partition("```python\n")[2].partition("```")[0], space)
    reviews, moods = ["Good movie, good!", "Bad movie", "", None], ["good", "bad", None, "odd"]
    bundle, out = learn(space["preprocess"], {"review": pa.array(reviews), "mood": pa.array(moods)})
    assert out["terms"].tolist() == [[0, 1], [0, 2], [], None]  # movie, good, bad
    np.testing.assert_allclose(out["weights"][0], [0.4292274, 1.128765], rtol=1e-6)  # TFT's, in the golden case
    assert out["words"].tolist() == [3, 2, 0, 0]
    assert out["label"].tolist() == [1, 0, -1, -1]
    assert out["pairs"].sum(axis=1).tolist() == [2, 1, 0, 0]
    assert bundle.run_row("transform", {"review": "unseen", "mood": "bad"})["terms"] == [3]


def test_a_served_model_reads_text_and_lists(tmp_path: Path) -> None:
    def preprocess(c: Any) -> Any:
        words = ops.split(c["t"])
        return {
            "x": ops.to_dense(ops.z_score(c["x"]), 2, fill=0),
            "bag": ops.multi_hot(ops.apply_vocabulary(words, ["a", "b"], oov_buckets=0), 2),
            "ids": ops.vocabulary(words),
            "y": ops.lookup(c["m"], {"good": 1.0, "bad": 0.0}, default=0.0),
        }

    def model(params: Any, features: Any) -> Any:
        pooled = ragged.embedding_bag(params["table"], features["ids"])[:, 0]
        return features["x"].sum(axis=1) + features["bag"] @ params["w"] + pooled

    params = {"w": np.array([10.0, 20.0], np.float32), "table": np.arange(8, dtype=np.float32).reshape(8, 1)}
    x, t, m = [[1.0, 3.0], [5.0], [], None], ["a a", "b c", "", None], ["good", "bad", None, "odd"]
    table = pa.table({"x": pa.array(x), "t": pa.array(t), "m": pa.array(m)})
    pq.write_table(table, tmp_path / "data.parquet")
    source = data.open_parquet([tmp_path / "data.parquet"])
    analyze(preprocess, source, data.executor("local")).save(tmp_path / "graph")
    export_model(tmp_path / "graph", model, params, lambda o: {"p": o}, label="y", out=tmp_path / "model")
    bundle = Bundle.load(tmp_path / "model")
    (batch,) = table.to_batches()
    found = bundle.run("predict", batch)["p"]
    values = np.array([1.0, 3.0, 5.0])
    z = (values - values.mean()) / values.std()
    # Words by count: a, then b and c in reverse order; the mean of their rows of the table.
    wanted = [z[0] + z[1] + 10 + 0, z[2] + 20 + (1 + 2) / 2, 0, 0]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    rows: list[Any] = [bundle.run_row("predict", row)["p"] for row in table.to_pylist()]
    np.testing.assert_allclose(rows, wanted, rtol=1e-5, atol=1e-6)
