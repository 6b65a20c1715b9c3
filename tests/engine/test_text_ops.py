"""Text ops: batches equal rows, and both equal Python, TFT (golden) or the paper that defines them."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain import data
from drivetrain.engine import Bundle, analyze, ops
from drivetrain.engine.host.columns import as_column, as_value
from drivetrain.engine.host.fingerprint64 import fingerprint64
from drivetrain.engine.host.kernels import host_op
from drivetrain.engine.host.siphash import siphash
from drivetrain.errors import InputError
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.engine

settings.register_profile("engine", deadline=None)  # a first call may compile
settings.load_profile("engine")

TEXT = st.sampled_from(["", " ", "a", "aa b", "Ab,c", "İstanbul", "straße", "日本 語", "a\n", "12", "-3.5", "true"])
WORDS = st.lists(st.none() | TEXT | st.text(max_size=12), max_size=12)
TOKENS = st.lists(st.none() | st.lists(TEXT | st.text(max_size=3), max_size=6), max_size=8)
NUMBERS = st.lists(
    st.none() | st.lists(st.floats(width=32) | st.sampled_from([0.0, -0.0, 1.0]), max_size=6), max_size=8
)
IDS = st.lists(st.none() | st.lists(st.integers(-4, 9), max_size=7), max_size=8)
ITEMS = {"list<string>": pa.string(), "list<int64>": pa.int64(), "list<float64>": pa.float64()}


def agree(op: str, params: dict[str, Any], values: list[Any], dtype: str, *more: Any, assets: Any = ()) -> list[Any]:
    """The row kernel's results, after checking that every encoding of the batch gives them."""
    row, batch = host_op(op).row(params, assets), host_op(op).batch(params, assets)
    wanted = [row(as_value(value, dtype, "x"), *more) for value in values]
    kind = pa.list_(ITEMS[dtype]) if dtype in ITEMS else pa.string()
    plain = pa.array(values, kind)
    columns = [plain, pa.concat_arrays([plain, plain, plain]).slice(len(values), len(values))]
    if dtype == "string":
        columns += [plain.dictionary_encode(), plain.dictionary_encode("encode"), plain.cast(pa.large_string())]
    for column in columns:
        made = batch(as_column(column, dtype, "x"), *more)
        found = made.to_pylist() if isinstance(made, pa.Array) else list(made)
        np.testing.assert_equal(found, wanted, str(column.type))
    return wanted


def each(values: list[str | None], fn: Any) -> list[Any]:
    return [None if value is None else fn(value) for value in values]


@given(WORDS)
def test_ops_of_one_text_equal_pythons(values: list[str | None]) -> None:
    assert agree("strip", {"characters": " a"}, values, "string") == each(values, lambda v: v.strip(" a"))
    assert agree("length", {"unit": "chars"}, values, "string") == each(values, len)
    assert agree("length", {"unit": "bytes"}, values, "string") == each(values, lambda v: len(v.encode()))
    assert agree("starts_with", {"part": "a"}, values, "string") == each(values, lambda v: v.startswith("a"))
    assert agree("ends_with", {"part": "b"}, values, "string") == each(values, lambda v: v.endswith("b"))
    for start, stop in ((0, 2), (1, None), (-2, None), (1, -1), (-3, -1)):
        found = agree("substr", {"start": start, "stop": stop}, values, "string")
        assert found == each(values, lambda v, a=start, b=stop: v[a:b])


@given(WORDS)
def test_case_and_whitespace_are_unicodes(values: list[str | None]) -> None:
    simple = [v if v is None else "".join(c for c in v if len(c.upper()) == len(c.lower()) == 1) for v in values]
    one = [v if v is None else "".join(c for c in v if c.isascii() or "à" <= c <= "ö") for v in simple]
    assert agree("lower", {}, one, "string") == each(one, lambda v: "".join(c.lower() for c in v))
    assert agree("upper", {}, one, "string") == each(one, lambda v: "".join(c.upper() for c in v))
    assert agree("strip", {"characters": None}, one, "string") == each(
        one, lambda v: re.sub(r"\A[\t-\r ]+|[\t-\r ]+\Z", "", v)
    ) or any(set(v or "") & {"\x1c", "\x1d", "\x1e", "\x1f", "\x85", "\xa0"} for v in one)
    for op in ("lower", "upper"):
        agree(op, {}, values, "string")
    agree("strip", {"characters": None}, values, "string")


@pytest.mark.parametrize("pattern", ["a", "a+", "[a-z]", "(a)(b)?", "b|a", r"\.", "x*", ""])
@given(values=st.lists(st.none() | st.text("abx.,", max_size=8), max_size=8))
def test_regular_expressions_equal_pythons(pattern: str, values: list[str | None]) -> None:
    full, part = ({"pattern": pattern, "full": whole} for whole in (True, False))
    assert agree("matches", full, values, "string") == each(values, lambda v: re.fullmatch(pattern, v) is not None)
    assert agree("matches", part, values, "string") == each(values, lambda v: re.search(pattern, v) is not None)
    found = agree("regex_replace", {"pattern": pattern, "replacement": r"<\0>"}, values, "string")
    pieces = agree("split", {"delimiters": None, "pattern": pattern}, values, "string")
    if pattern not in ("x*", ""):  # Python and RE2 differ on empty matches next to others
        assert found == each(values, lambda v: re.sub(pattern, r"<\g<0>>", v))
        grouped = pattern.replace("(", "(?:")
        assert pieces == each(values, lambda v: [p for p in re.split(grouped, v) if p])


@given(WORDS)
def test_split_drops_empty_pieces(values: list[str | None]) -> None:
    wanted = each(values, lambda v: [piece for piece in re.split("[ ,b]", v) if piece])
    assert agree("split", {"delimiters": " ,b", "pattern": None}, values, "string") == wanted
    assert agree("split", {"delimiters": None, "pattern": "[ ,b]"}, values, "string") == wanted
    assert agree("split", {"delimiters": None, "pattern": ""}, values, "string") == each(values, list)
    ascii_only = [v for v in values if v is None or v.isascii()]
    known = agree("split", {"delimiters": None, "pattern": None}, ascii_only, "string")
    assert known == each(ascii_only, lambda v: re.sub("[\x1c-\x1f]", " ", v).split())
    agree("split", {"delimiters": None, "pattern": None}, values, "string")


def test_split_marks_no_text_that_has_the_mark() -> None:
    text = "\ufdd0a b\ufdd1 c" + "".join(map(chr, range(0xFDD0, 0xFDF0)))
    assert agree("split", {"delimiters": None, "pattern": " "}, [text], "string") == [text.split(" ")]


@given(TOKENS)
def test_ops_look_into_lists(values: list[Any]) -> None:
    def inside(fn: Any) -> list[Any]:
        return [None if row is None else [fn(word) for word in row] for row in values]

    assert agree("strip", {"characters": "a"}, values, "list<string>") == inside(lambda w: w.strip("a"))
    assert agree("length", {"unit": "chars"}, values, "list<string>") == inside(len)
    table = {"table": [["a", 7], ["日本 語", 9]], "default": 0, "dtype": "int64"}
    known = {"a": 7, "日本 語": 9}
    assert agree("translate", table, values, "list<string>") == inside(lambda w: known.get(w, 0))
    assert agree("join", {"separator": "·"}, values, "list<string>") == [
        None if row is None else "·".join(row) for row in values
    ]
    assert agree("list_count", {}, values, "list<string>") == [None if row is None else len(row) for row in values]
    parse = {"dtype": "int64", "column": "x", "default": -1, "list": True}
    found = agree("parse", parse, values, "list<string>")
    assert found == inside(lambda w: int(w) if re.fullmatch(r"\s*[+-]?\d+(_\d+)*\s*", w) else -1)
    hashed = agree("hash", {"buckets": 5, "key": [1, 2], "list": True}, values, "list<string>")
    assert hashed == inside(lambda w: siphash(w, (1, 2)) % 5)


@given(TOKENS, st.lists(TEXT, unique=True), st.integers(0, 3))
def test_categories_of_lists(values: list[Any], words: list[str], buckets: int) -> None:
    def identifier(word: str) -> int:
        if word in words:
            return words.index(word)
        return len(words) + fingerprint64(word) % buckets if buckets else -7

    params = {"oov_buckets": buckets, "default": -7, "list": True}
    asset = pa.table({"value": pa.array(words, pa.string())})
    wanted = [None if row is None else [identifier(word) for word in row] for row in values]
    assert agree("lookup", params, values, "list<string>", assets=(asset,)) == wanted
    assert agree("lookup", {**params, "words": words}, values, "list<string>") == wanted
    hits = [None if row is None else any(word in words for word in row) for row in values]
    assert agree("compare", {"test": "in", "value": words}, values, "list<string>") == hits
    filled = [words if row is None else row for row in values]
    assert agree("fill", {"value": words, "dtype": "list<string>"}, values, "list<string>") == filled


@given(IDS, st.integers(1, 8))
def test_multi_hot_equals_a_loop(values: list[Any], depth: int) -> None:
    found = agree("multi_hot", {"depth": depth}, values, "list<int64>")
    for row, made in zip(values, found, strict=True):
        assert made.tolist() == [i in (row or ()) for i in range(depth)]


@given(WORDS, st.none() | st.integers(0, 9))
def test_tables_keep_what_is_missing_missing(values: list[str | None], default: int | None) -> None:
    table = {"table": [["a", 1], ["", 2]], "default": default, "dtype": "int64"}
    assert agree("translate", table, values, "string") == each(values, lambda v: {"a": 1, "": 2}.get(v, default))


@given(WORDS)
def test_parse_gives_the_default_for_what_is_no_number(values: list[str | None]) -> None:
    def number(word: str) -> float:
        try:
            return float(word)
        except ValueError:
            return 0.5

    found = agree("parse", {"dtype": "float64", "column": "x", "default": 0.5}, values, "string")
    np.testing.assert_equal(found, each(values, number))


@given(TOKENS, st.integers(1, 3), st.integers(0, 2))
def test_ngrams_equal_a_loop(values: list[Any], lo: int, more: int) -> None:
    def runs(words: list[str]) -> list[str]:
        found = [(at, n, "_".join(words[at : at + n])) for n in range(lo, lo + more + 1) for at in range(len(words))]
        return [text for at, n, text in sorted(found) if at + n <= len(words)]

    params = {"lo": lo, "hi": lo + more, "separator": "_"}
    assert agree("ngrams", params, values, "list<string>") == [None if row is None else runs(row) for row in values]


@given(TOKENS, IDS, NUMBERS)
def test_distinct_keeps_the_first_of_each(texts: list[Any], ids: list[Any], numbers: list[Any]) -> None:
    for values, dtype in ((texts, "list<string>"), (ids, "list<int64>")):
        wanted = [None if row is None else list(dict.fromkeys(row)) for row in values]
        assert agree("distinct", {"dtype": dtype}, values, dtype) == wanted
    agree("distinct", {"dtype": "list<float64>"}, numbers, "list<float64>")


@given(NUMBERS, st.lists(st.floats(-10, 10, width=32), min_size=3, max_size=3))
def test_scaling_of_lists_equals_numpy(values: list[Any], by: list[float]) -> None:
    centre, scale, shift = by[0], by[1] or 1.0, by[2]
    found = agree("list_affine", {}, values, "list<float64>", np.array([centre, scale, shift], np.float32))
    with np.errstate(all="ignore"):
        for row, made in zip(values, found, strict=True):
            if row is None:
                assert made is None
            else:
                np.testing.assert_allclose(made, (np.array(row) - centre) / scale + shift, rtol=1e-12)


@given(NUMBERS, st.lists(st.floats(-3, 3, width=32), max_size=4).map(sorted))
def test_buckets_of_lists_equal_a_count(values: list[Any], edges: list[float]) -> None:
    found = agree("list_buckets", {"edges": edges}, values, "list<float64>")
    assert found == agree("list_buckets", {}, values, "list<float64>", np.array(edges))
    for row, made in zip(values, found, strict=True):
        wanted = row and [len(edges) + 1 if v != v else sum(v >= edge for edge in edges) for v in row]
        assert made == wanted


@given(IDS, st.integers(1, 6), st.booleans())
def test_tfidf_equals_a_loop(values: list[Any], size: int, smooth: bool) -> None:
    within = agree("modulo", {"size": size}, values, "list<int64>")
    assert within == [None if row is None else [v % size for v in row] for row in values]
    known = [row for row in within if row is not None]
    df = {t: sum(t in row for row in known) for t in range(0, size, 2)}  # odd ids are not in the training data
    rows = [(-1, len(known)), *((t, n) for t, n in df.items() if n)]
    table = pa.table({"id": [t for t, _ in rows], "documents": [n for _, n in rows]})
    terms = agree("terms", {}, within, "list<int64>")
    weights = agree("tfidf", {"smooth": smooth}, within, "list<int64>", assets=(table,))
    for row, ids, found in zip(within, terms, weights, strict=True):
        if row is None:
            assert ids is found is None
            continue
        assert ids == sorted(set(row))
        for t, weight in zip(ids, found, strict=True):
            n = df.get(t, 0)
            idf = 1 + (np.log((len(known) + 1) / (n + 1)) if smooth else np.log(len(known) / max(n, 1)))
            np.testing.assert_allclose(weight, row.count(t) / len(row) * idf, rtol=3e-7)


@given(st.lists(st.tuples(st.none() | TEXT, st.none() | st.text(max_size=3)), max_size=8))
def test_concat_is_missing_where_a_part_is(pairs: list[tuple[str | None, str | None]]) -> None:
    params = {"parts": [None, "+", None], "separator": "-"}
    row, batch = host_op("concat").row(params, ()), host_op("concat").batch(params, ())
    wanted = [None if a is None or b is None else f"{a}-+-{b}" for a, b in pairs]
    assert [row(a, b) for a, b in pairs] == wanted
    left, right = (pa.array([pair[place] for pair in pairs], pa.string()) for place in (0, 1))
    assert batch(left, right).to_pylist() == batch(left.dictionary_encode(), right).to_pylist() == wanted


def test_siphash_is_the_papers_and_tensorflows() -> None:
    # Appendix A of the paper.
    assert siphash(bytes(range(15)), (0x0706050403020100, 0x0F0E0D0C0B0A0908)) == 0xA129CA6149BE45E5
    # The documentation of tf.strings.to_hash_bucket_strong.
    assert [siphash(word, (1, 2)) % 3 for word in ("Hello", "TF")] == [2, 0]


GOLDENS = Path(__file__).parents[1] / "golden"
GOLDEN = json.loads((GOLDENS / "tft_text.json").read_text())


@pytest.fixture
def learn(tmp_path: Path):  # type: ignore[no-untyped-def]
    """Analyse, save, load in a fresh process, and compare its batches and its rows with the ones here."""

    def run(fn: Any, columns: dict[str, Any]) -> tuple[Bundle, dict[str, np.ndarray[Any, Any]]]:
        table = pa.table(columns)
        pq.write_table(table, tmp_path / "data.parquet", row_group_size=2)
        bundle = analyze(fn, data.open_parquet([tmp_path / "data.parquet"]), data.executor("local"))
        (batch,) = table.combine_chunks().to_batches()
        out = bundle.run("transform", batch)
        rows = [bundle.run_row("transform", row) for row in table.to_pylist()]
        for place, row in enumerate(rows):
            for name, value in row.items():
                np.testing.assert_equal(value, out[name][place], name)
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
        fresh, fresh_rows = json.loads(ran.stdout)
        for name, values in out.items():
            np.testing.assert_equal(fresh[name], values.tolist())
            np.testing.assert_equal([row[name] for row in fresh_rows], values.tolist())
        return bundle, out

    return run


def test_text_as_tft_has_it(learn: Any) -> None:
    def fn(c: Any) -> Any:
        words = ops.split(c["t"], " ")
        learnt = ops.learn_vocabulary(words, top_k=3)
        ids = ops.apply_vocabulary(words, learnt, oov_buckets=0)
        i1, w1 = ops.tfidf(ids, ops.vocabulary_size(learnt) + 1)
        i2, w2 = ops.tfidf(ids, 4, smooth=False)
        return {
            "bow": ops.bag_of_words(words), "bow2": ops.bag_of_words(words, (1, 3), "_"),
            "bow3": ops.bag_of_words(words, (2, 3), "_"), "ng": ops.ngrams(words, (2, 3), "_"),
            "dd": ops.deduplicate(words), "wc": ops.word_count(words), "ids": ids, "i1": i1, "w1": w1, "i2": i2,
            "w2": w2, "oov": ops.vocabulary(words, top_k=3, oov_buckets=2), "h": ops.hash_buckets(c["t"], 1000003),
            "hk": ops.hash_buckets(c["t"], 1000003, key=(1, 2)),
            "hkl": ops.hash_buckets(words, 1000003, key=(2**63 - 25, 12345)),
        }  # fmt: skip

    case = GOLDEN["text"]
    _, out = learn(fn, {"t": pa.array([row["t"] for row in case["input"]])})
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


def test_the_keyed_hash_is_tensorflows() -> None:
    case = GOLDEN["strong_hash"]
    key = (0x0706050403020100, 0x0F0E0D0C0B0A0908)
    assert [siphash(word, key) % 2**62 for word in case["words"]] == case["expected"]


def test_every_op_from_trace_to_bundle(learn: Any) -> None:
    def fn(c: Any) -> Any:
        clean = ops.lower(ops.strip(ops.regex_replace(c["t"], r"[.!]+", " ")))
        words = ops.split(clean)
        label = ops.lookup(c["t"], {"<=50K.": 0, ">50K": 1}, default=-1)
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
        }  # fmt: skip

    t = ["<=50K.", ">50K", None, "", "A a  É!", "x"]
    n = [7, None, 1, 2, 3, 7]
    d = ["1.5", "x", None, "3", "", "nan"]
    bundle, out = learn(fn, {"t": pa.array(t), "n": pa.array(n), "d": pa.array(d)})
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
        (lambda c: ops.regex_contains(c["l"], "a"), "column 'l' is a list and was given to matches"),
        (lambda c: ops.split(c["t"], " ", regex=" "), "by delimiters or by regex"),
        (lambda c: ops.split(c["t"], ""), "split by no delimiter"),
        (lambda c: ops.length(c["t"], "words"), "no unit 'words'"),
        (lambda c: ops.concat("a"), "concat of no column"),
        (lambda c: ops.join(c["t"]), "which takes lists of text"),
        (lambda c: ops.lookup(c["t"], {}), "a lookup table of nothing"),
        (lambda c: ops.lookup(c["t"], {"a": 1, "b": "c"}), "a lookup table of int, str"),
        (lambda c: ops.lookup(c["t"], {"a": float("nan")}), "holds NaN"),
        (lambda c: ops.lookup(c["l"], {"a": 1}), "need a default"),
        (lambda c: ops.parse(c["t"], "int32", default=0.5), "the default 0.5 is no int32"),
        (lambda c: ops.parse(c["t"], "float64"), "not parsed as 'float64'"),
        (lambda c: ops.parse(c["l"], "int32"), "with a default"),
        (lambda c: ops.ngrams(c["l"], (2, 1)), "the largest n-gram is 1"),
        (lambda c: ops.tfidf(c["l"], 3), "which takes list<int64>"),
        (lambda c: ops.tfidf(c["n"], 0), "size is 0"),
        (lambda c: ops.to_dense(c["n"], 3), "the fill None is none"),
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
    assert "test_text_ops.py:" in str(caught.value.where)


def test_a_pattern_that_backtracks_elsewhere_takes_no_time() -> None:
    text = "a" * 5000 + "b"  # Python's re would need 2^5000 steps
    assert agree("matches", {"pattern": "(a|a)*c|(a+)+$", "full": True}, [text], "string") == [False]
