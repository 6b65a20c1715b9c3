"""Kernels of text and lists: batches equal rows, and both equal Python, TensorFlow, or the paper that defines them."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from drivetrain.engine.analyzers.documents import Documents
from drivetrain.engine.analyzers.states import ColumnsByRole
from drivetrain.engine.host_ops.columns import as_column, as_value
from drivetrain.engine.host_ops.fingerprint64 import fingerprint64
from drivetrain.engine.host_ops.kernels import host_op
from drivetrain.engine.host_ops.siphash import siphash
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.engine


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
        array = batch(as_column(column, dtype, "x"), *more)
        results = array.to_pylist() if isinstance(array, pa.Array) else list(array)
        # Equal texts are equal values, NaN and signs of zero too; numpy, which says what differs, takes a while.
        if any(isinstance(value, np.ndarray) for value in wanted) or repr(results) != repr(wanted):
            np.testing.assert_equal(results, wanted, str(column.type))
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
        results = agree("substr", {"start": start, "stop": stop}, values, "string")
        assert results == each(values, lambda v, a=start, b=stop: v[a:b])


@given(WORDS)
def test_case_and_whitespace_are_unicodes(values: list[str | None]) -> None:
    known = set(map(chr, range(32, 127))) | set("\t\n\v\f\r") | set(map(chr, range(0xE0, 0xF7)))
    one = each(values, lambda v: "".join(c for c in v if c in known))
    assert agree("lower", {}, one, "string") == each(one, lambda v: "".join(c.lower() for c in v))
    assert agree("upper", {}, one, "string") == each(one, lambda v: "".join(c.upper() for c in v))
    assert agree("strip", {"characters": None}, one, "string") == each(one, str.strip)
    for op in ("lower", "upper"):
        agree(op, {}, values, "string")
    agree("strip", {"characters": None}, values, "string")


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["a", "a+", "[a-z]", "(a)(b)?", "b|a", r"\.", "x*", ""])
@given(values=st.lists(st.none() | st.text("abx.,", max_size=8), max_size=8))
def test_regular_expressions_equal_pythons(pattern: str, values: list[str | None]) -> None:
    full, part = ({"pattern": pattern, "full": whole} for whole in (True, False))
    assert agree("matches", full, values, "string") == each(values, lambda v: re.fullmatch(pattern, v) is not None)
    assert agree("matches", part, values, "string") == each(values, lambda v: re.search(pattern, v) is not None)
    results = agree("regex_replace", {"pattern": pattern, "replacement": r"<\0>"}, values, "string")
    pieces = agree("split", {"delimiters": None, "pattern": pattern}, values, "string")
    if pattern not in ("x*", ""):  # Python and RE2 differ on empty matches next to others
        assert results == each(values, lambda v: re.sub(pattern, r"<\g<0>>", v))
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
    results = agree("parse", parse, values, "list<string>")
    assert results == inside(lambda w: int(w) if re.fullmatch(r"\s*[+-]?\d+\s*", w) else -1)
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
    results = agree("multi_hot", {"depth": depth}, values, "list<int64>")
    for row, made in zip(values, results, strict=True):
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

    results = agree("parse", {"dtype": "float64", "column": "x", "default": 0.5}, values, "string")
    np.testing.assert_equal(results, each(values, number))


@given(TOKENS, st.integers(1, 3), st.integers(0, 2))
def test_ngrams_equal_a_loop(values: list[Any], lo: int, more: int) -> None:
    def runs(words: list[str]) -> list[str]:
        found = [(at, n, "_".join(words[at : at + n])) for n in range(lo, lo + more + 1) for at in range(len(words))]
        return [text for at, n, text in sorted(found) if at + n <= len(words)]

    params = {"lo": lo, "hi": lo + more, "separator": "_"}
    assert agree("ngrams", params, values, "list<string>") == [None if row is None else runs(row) for row in values]


def test_no_size_of_ngrams_takes_long() -> None:
    for lo in (1, 3, 10**12):
        params = {"lo": lo, "hi": 10**12, "separator": "_"}
        results = agree("ngrams", params, [["a", "b", "c"], None, []], "list<string>")
        assert results == [
            ["a", "a_b", "a_b_c", "b", "b_c", "c"] if lo == 1 else ["a_b_c"] if lo == 3 else [],
            None,
            [],
        ]


@given(TOKENS, IDS, NUMBERS)
def test_distinct_keeps_the_first_of_each(texts: list[Any], ids: list[Any], numbers: list[Any]) -> None:
    for values, dtype in ((texts, "list<string>"), (ids, "list<int64>")):
        wanted = [None if row is None else list(dict.fromkeys(row)) for row in values]
        assert agree("distinct", {"dtype": dtype}, values, dtype) == wanted
    agree("distinct", {"dtype": "list<float64>"}, numbers, "list<float64>")


@given(NUMBERS, st.lists(st.floats(-10, 10, width=32), min_size=3, max_size=3))
def test_scaling_of_lists_equals_numpy(values: list[Any], by: list[float]) -> None:
    centre, scale, shift = by[0], by[1] or 1.0, by[2]
    results = agree("list_affine", {}, values, "list<float64>", np.array([centre, scale, shift], np.float32))
    with np.errstate(all="ignore"):
        for row, made in zip(values, results, strict=True):
            if row is None:
                assert made is None
            else:
                np.testing.assert_allclose(made, (np.array(row) - centre) / scale + shift, rtol=1e-12)


@given(NUMBERS, st.lists(st.floats(-3, 3, width=32), max_size=4).map(sorted))
def test_buckets_of_lists_equal_a_count(values: list[Any], edges: list[float]) -> None:
    results = agree("list_buckets", {"edges": edges}, values, "list<float64>")
    assert results == agree("list_buckets", {}, values, "list<float64>", np.array(edges))
    for row, made in zip(values, results, strict=True):
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


def test_the_keyed_hash_is_tensorflows() -> None:
    golden = Path(__file__).parents[2] / "golden" / "tft_text.json"
    case = json.loads(golden.read_text())["strong_hash"]
    key = (0x0706050403020100, 0x0F0E0D0C0B0A0908)
    assert [siphash(word, key) % 2**62 for word in case["words"]] == case["expected"]


def test_a_pattern_that_backtracks_elsewhere_takes_no_time() -> None:
    text = "a" * 5000 + "b"  # Python's re would need 2^5000 steps
    assert agree("matches", {"pattern": "(a|a)*c|(a+)+$", "full": True}, [text], "string") == [False]


@given(st.lists(st.lists(st.none() | st.lists(st.integers(0, 9), max_size=5), max_size=5), max_size=5), st.randoms())
def test_documents_merge_in_any_order(batches: list[list[Any]], random: Any) -> None:
    def state(values: list[Any]) -> Documents:
        made = Documents()
        made.add(ColumnsByRole([pa.array(values, pa.list_(pa.int64()))]))
        read = Documents()
        read.load(made.to_bytes())
        return read

    whole = state([row for batch in batches for row in batch])
    merged = Documents()
    for batch in random.sample(batches, len(batches)):
        merged.merge(state(batch))
    assert merged.to_bytes() == whole.to_bytes()
    present = [set(row) for batch in batches for row in batch if row is not None]
    counts = Counter(item for row in present for item in row)
    wanted = [{"id": -1, "documents": len(present)}]
    wanted += [{"id": item, "documents": count} for item, count in sorted(counts.items())]
    assert whole.frequencies().to_pylist() == wanted
