"""Vocabularies by weight and by information, against numpy and scikit-learn; reserved, covered, named and inverted."""

import hashlib
import math
from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from drivetrain.engine import ops
from drivetrain.engine.analyzers.information import expected_information, informations
from drivetrain.errors import InputError
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import entropy
from sklearn.metrics import mutual_info_score
from sklearn.metrics.cluster import contingency_matrix, expected_mutual_information

pytestmark = pytest.mark.engine

WORDS = ["a", "b", "a", "c", "b", "a", None, "d", "c", "e"]
LABELS = [1, 0, 1, 0, 0, 1, 1, 0, 0, 1]


def table(bundle: Any, name: str) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = bundle.payload.assets[name].to_pydict()
    return found


def test_weights_order_words_by_their_sum(learn: Any) -> None:
    weights = [0.1, 5.0, 0.1, 2.0, 0.5, 0.1, 9.0, 2.0, 0.0, 0.0]
    fn = lambda c: {  # noqa: E731
        "id": ops.vocabulary(c["w"], weights=c["by"], name="v", min_count=0.2),
        "all": ops.vocabulary(c["w"], weights=c["by"], name="all"),
    }
    bundle, out = learn(fn, w=pa.array(WORDS), by=weights)
    assert table(bundle, "all")["value"] == ["b", "d", "c", "a", "e"]  # e has no weight, and yet occurs, as in TFT
    sums: dict[str, list[float]] = defaultdict(list)
    for word, weight in zip(WORDS, weights, strict=True):
        if word is not None and weight:
            sums[word].append(weight)
    assert table(bundle, "v") == {"value": ["b", "d", "c", "a"], "count": [math.fsum(sums[w]) for w in "bdca"]}
    assert out["id"].tolist() == [3, 0, 3, 2, 0, 3, 5, 1, 2, 4]


def test_vocabularies_without_a_name_are_called_after_their_columns(learn: Any) -> None:
    def fn(c: Any) -> dict[str, Any]:
        both = ops.learn_vocabulary(c["w"], c["a/b é"])
        return {
            "w": ops.vocabulary(c["w"]), "top": ops.vocabulary(c["w"], top_k=1), "W": ops.vocabulary(c["W"]),
            "odd": ops.vocabulary(c["a/b é"]), "w2": ops.apply_vocabulary(c["w"], both),
        }  # fmt: skip

    bundle, _ = learn(fn, **{name: pa.array(WORDS) for name in ("w", "W", "a/b é")})
    assert set(bundle.payload.assets) == {
        "vocabulary.w", "vocabulary.w.2", "vocabulary.W.3", "vocabulary.a_b__", "vocabulary.w+a_b__",
    }  # fmt: skip
    assert bundle.payload.assets["vocabulary.w+a_b__"].schema.metadata == {b"column": "w+a/b é".encode()}
    page = bundle.to_html()
    assert "▪ vocabulary.w.2<" in page  # in the box of the op that looks words up
    assert "<td>transform</td><td>input</td><td>W</td><td>string?[b]</td>" in page


def test_labels_order_words_by_information(learn: Any) -> None:
    fn = lambda c: {"id": ops.vocabulary(c["w"], labels=c["y"], name="v", min_count=0.5)}  # noqa: E731
    bundle, _ = learn(fn, w=pa.array(WORDS), y=LABELS)
    y = np.array(LABELS)
    share = np.bincount(y) / len(y)
    wanted = {}
    for word in "abcde":
        with_it = np.bincount(y[[w == word for w in WORDS]], minlength=2)
        wanted[word] = with_it.sum() * entropy(with_it, share, base=2)  # the relative entropy, times the rows
    kept = [word for word in sorted(wanted, key=lambda w: (wanted[w], w), reverse=True) if wanted[word] >= 0.5]
    assert table(bundle, "v")["value"] == kept
    np.testing.assert_allclose(table(bundle, "v")["count"], [wanted[word] for word in kept], rtol=2e-4)


def test_information_of_a_word_and_its_absence_is_scikit_learns() -> None:
    x, y = np.array([w == "a" for w in WORDS]), np.array(LABELS)
    both = {
        word: {str(label): float(((x == present) & (y == label)).sum()) for label in (0, 1)}
        for word, present in (("a", True), ("not a", False))
    }
    by_word = informations(both, {"0": 5.0, "1": 5.0}, adjusted=False, min_diff=0.0)
    bits = mutual_info_score(x, y) / math.log(2) * len(x)
    assert by_word["a"] + by_word["not a"] == pytest.approx(bits, rel=1e-3)
    table = contingency_matrix(x, y, sparse=True)
    chance = expected_mutual_information(table, len(x)) / math.log(2) * len(x)
    mine = sum(expected_information(10, float(n), 5.0) for n in (x.sum(), (~x).sum()) for _ in (0, 1))
    assert mine == pytest.approx(chance, rel=1e-9)
    adjusted = informations(both, {"0": 5.0, "1": 5.0}, adjusted=True, min_diff=0.0)
    assert adjusted["a"] + adjusted["not a"] == pytest.approx(bits - chance, rel=1e-3)


def test_what_is_close_to_independence_tells_nothing() -> None:
    words = {"x": {"0": 6.0, "1": 4.0}, "all": {"0": 50.0, "1": 50.0}}
    by_word = informations(words, {"0": 50.0, "1": 50.0}, adjusted=False, min_diff=None)
    assert by_word == {"x": 0.0, "all": 0.0}
    assert informations(words, {"0": 50.0, "1": 50.0}, adjusted=False, min_diff=0.5)["x"] > 0
    with pytest.raises(InputError, match="'twice' occurs 20 times in rows of weight 10"):
        informations({"twice": {"0": 20.0}}, {"0": 10.0}, adjusted=False, min_diff=0.0)


ROWS = st.lists(
    st.tuples(st.none() | st.sampled_from(["a", "bb", ""]), st.none() | st.sampled_from(["y", "no"]), st.floats(0, 9)),
    max_size=30,
)


@settings(deadline=None, max_examples=60)
@given(ROWS, st.integers(0, 30))
def test_tagged_words_do_not_depend_on_splits_and_order(rows: list[Any], cut: int) -> None:
    from drivetrain.engine.analyzers.analysis import Analysis, AnalyzerPass

    columns = (("value", "w"), ("weight", "by"), ("label", "y"))
    analyses = (Analysis("tagged", columns, '{"weight": "by"}'),)

    def state(part: list[Any]) -> AnalyzerPass:
        states = AnalyzerPass(analyses)
        w, y, by = zip(*part, strict=True) if part else ((), (), ())
        given = [pa.array(w, pa.string()), pa.array(y, pa.string()), pa.array(by, pa.float64())]
        states.add_batch(pa.RecordBatch.from_arrays(given, names=["w", "y", "by"]))
        states.compact()
        return AnalyzerPass.from_bytes(states.to_bytes())

    left = state(rows[cut:])
    left.merge(state(rows[:cut]))
    assert left.to_bytes() == state(rows).to_bytes() == state(rows[::-1]).to_bytes()
    sums: Counter[str] = Counter()
    for word, label, weight in rows:
        if word is not None and label is not None:
            sums[word] += weight
    found = dict(left.result()["0"].ranked())
    assert found.keys() == sums.keys()
    for word, total in sums.items():
        assert found[word] == pytest.approx(total, rel=1e-12)


def test_reserved_words_come_first_and_beyond_top_k(learn: Any) -> None:
    fn = lambda c: {"id": ops.vocabulary(c["w"], reserved=["<pad>", "b"], top_k=2, name="v")}  # noqa: E731
    bundle, out = learn(fn, w=pa.array(WORDS))
    assert table(bundle, "v") == {"value": ["<pad>", "b", "a", "c"], "count": [0, 2, 3, 2]}
    assert out["id"].tolist()[:3] == [2, 1, 2]


def test_words_in_the_order_of_their_digests(learn: Any) -> None:
    fn = lambda c: {"id": ops.vocabulary(c["w"], by_digest=True, reserved=["<pad>"], top_k=3, name="v")}  # noqa: E731
    bundle, out = learn(fn, w=pa.array(WORDS))
    ordered = sorted(["a", "c", "b"], key=lambda word: hashlib.sha1(word.encode()).hexdigest())
    assert table(bundle, "v")["value"] == ["<pad>", *ordered]
    assert out["id"].tolist()[0] == 1 + ordered.index("a")


def first_letter(word: str) -> str:
    return word[0]


def test_coverage_keeps_the_best_of_each_group(learn: Any) -> None:
    words = ["x1"] * 5 + ["x2"] * 4 + ["y1"] * 2 + ["y2"] + ["z1"]
    fn = lambda c: {  # noqa: E731
        "all": ops.vocabulary(c["w"], top_k=1, coverage_key=first_letter, name="all"),
        "often": ops.vocabulary(c["w"], top_k=1, coverage_key=first_letter, coverage_min_count=2, name="often"),
        "two": ops.vocabulary(c["w"], min_count=9, coverage_key=first_letter, coverage_top_k=2, name="two"),
    }
    bundle, _ = learn(fn, w=words)
    assert table(bundle, "all")["value"] == ["x1", "y1", "z1"]
    assert table(bundle, "often")["value"] == ["x1", "y1"]
    assert table(bundle, "two")["value"] == ["x1", "x2", "y1", "z1", "y2"]


def test_one_vocabulary_of_two_columns(learn: Any) -> None:
    def fn(c: Any) -> Any:
        v = ops.learn_vocabulary(c["origin"], c["dest"], name="airports")
        return {
            "o": ops.apply_vocabulary(c["origin"], v), "d": ops.apply_vocabulary(c["dest"], "airports"),
            "n": ops.vocabulary_size(v), "h": ops.one_hot(ops.apply_vocabulary(c["dest"], v), depth=5),
        }  # fmt: skip

    origin, dest = pa.array(["JFK", "EWR", None]), pa.array(["LAX", "JFK", "EWR"])
    bundle, out = learn(fn, origin=origin, dest=dest)
    assert table(bundle, "airports") == {"value": ["JFK", "EWR", "LAX"], "count": [2, 2, 1]}
    assert out["o"].tolist() == [0, 1, 4]
    assert out["d"].tolist() == [2, 0, 1]
    assert out["n"].tolist() == [3, 3, 3]
    assert list(bundle.payload.assets) == ["airports"]


def test_words_of_lists_go_with_their_rows_label(learn: Any) -> None:
    lists = pa.array([["a", "b"], ["a"], [], None, ["b"]], pa.list_(pa.string()))

    def fn(c: Any) -> Any:
        v = ops.learn_vocabulary(c["w"], labels=c["y"], name="v")
        return {"n": ops.vocabulary_size(v)}

    from drivetrain.engine.analyzers.analysis import Analysis, AnalyzerPass

    states = AnalyzerPass((Analysis("tagged", (("value", "w"), ("label", "y")), '{"weight": ""}'),))
    states.add_batch(pa.record_batch({"w": lists, "y": pa.array([1, 1, 0, 0, 0])}))
    found = dict(states.result()["0"].informative(False, 0.0))
    assert found["a"] == pytest.approx(2 * math.log2(5 / 2), rel=1e-3)
    _, out = learn(fn, w=lists, y=[1, 1, 0, 0, 0])
    assert out["n"][0] == 2


def test_ids_and_words_round_trip(learn: Any) -> None:
    def fn(c: Any) -> Any:
        ids = ops.vocabulary(c["w"])
        return {"ids": ids, "words": ops.inverse_vocabulary(ids)}

    bundle, out = learn(fn, w=pa.array(WORDS))
    assert out["words"].tolist() == WORDS
    assert bundle.run_row("transform", {"w": "new"})["words"] is None
    from drivetrain.engine import inverse

    assert inverse(bundle, "ids")(out["ids"]).tolist() == WORDS
    assert inverse(bundle, "ids")(np.array([-1, 99])).tolist() == [None, None]


@pytest.mark.parametrize(
    ("fn", "says"),
    [
        (lambda c: {"y": ops.apply_vocabulary(c["w"], "nope")}, "there is no vocabulary 'nope'"),
        (lambda c: {"y": ops.vocabulary(c["w"], name="a/b")}, "cannot be named 'a/b'"),
        (lambda c: {"y": ops.vocabulary(c["w"], name="inverses")}, "cannot be named 'inverses'"),
        (lambda c: {"y": ops.vocabulary(c["w"], name="v") + ops.vocabulary(c["n"], name="v")}, "'v' is already learnt"),
        (lambda c: {"y": ops.vocabulary(c["w"], weights=c["w"])}, "column 'w' is text"),
        (lambda c: {"y": ops.vocabulary(c["w"], labels=c["x"])}, "column 'x' is float, no category"),
        (lambda c: {"y": ops.vocabulary(c["w"], min_count=-1)}, "min_count is -1"),
        (lambda c: {"y": ops.vocabulary(c["w"], reserved="a")}, "reserved is 'a'"),
        (lambda c: {"y": ops.apply_vocabulary(c["w"], ops.learn_vocabulary())}, "of no column"),
        (lambda c: {"y": ops.inverse_vocabulary(c["n"] * 2)}, "not known to be of a vocabulary"),
        (
            lambda c: {"y": ops.apply_vocabulary(c["w"], ops.learn_vocabulary(c["w"], c["n"], labels=c["n"]))},
            "weights and labels go with one column",
        ),
    ],
)
def test_mistakes_name_the_users_line(learn: Any, fn: Any, says: str) -> None:
    with pytest.raises(InputError) as caught:
        learn(fn, w=["a"], n=[1], x=[1.0])
    assert says in caught.value.message
    assert "test_vocabularies.py:" in str(caught.value.where)
