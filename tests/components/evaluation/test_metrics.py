"""The metrics against scikit-learn, TFMA's golden outputs and brute force; their state against the laws of merging."""

from __future__ import annotations

import itertools
import json
import math
import warnings
from functools import partial, reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from drivetrain import InputError
from drivetrain.components.evaluation import METRICS, EvaluationConfig, metric
from drivetrain.components.evaluation.accumulator import MetricsAccumulator
from drivetrain.components.evaluation.binary import f1
from drivetrain.components.evaluation.definitions import Definition
from drivetrain.components.evaluation.metrics import DEFAULTS
from drivetrain.components.evaluation.score_table import BINS, bin_middle, bin_of
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn import metrics as sk

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "tfma_cases.json").read_text())
CASES = {case["name"]: case for case in GOLDEN["cases"]}
ALL = ("weighted_example_count", *DEFAULTS["binary"])


def batch(label: Any, score: Any, weight: Any = None, **slices: Any) -> pa.RecordBatch:
    columns = {"label": pa.array(label), "candidate": pa.array(score)}
    if weight is not None:
        columns["weight"] = pa.array(weight)
    columns |= {
        f"slice:{name}": values if isinstance(values, pa.Array) else pa.array(values) for name, values in slices.items()
    }
    return pa.record_batch(columns)


def measured(config: EvaluationConfig, *batches: pa.RecordBatch) -> dict[str, dict[str, Any]]:
    accumulator = MetricsAccumulator(config)
    for each in batches:
        accumulator.add_batch(each)
    return {item["slice"]: item["metrics"]["candidate"] for item in accumulator.result()["slices"]}


def config(**options: Any) -> EvaluationConfig:
    given: dict[str, Any] = {"label": "y", "prediction": "p", "metrics": ALL}
    return EvaluationConfig(**given | options)


def drawn(rows: int, seed: int, *, tied: bool) -> tuple[NDArray[Any], ...]:
    rng = np.random.default_rng(seed)
    score = rng.beta(0.5, 2, rows).astype(np.float32)
    if tied:
        score = np.round(score, 1)
    label = (rng.random(rows) < 0.1 + 0.6 * score).astype(np.float32)
    carrier = rng.choice(["AA", "UA", "B6"], rows, p=[0.7, 0.25, 0.05])
    month = rng.integers(1, 13, rows)
    return label, score, carrier, month, rng.exponential(2.0, rows)


def sklearn_metrics(label: NDArray[Any], score: NDArray[Any], weight: NDArray[Any] | None = None) -> dict[str, Any]:
    score = score.astype(np.float64)
    clipped = np.clip(score, 1e-7, 1 - 1e-7)
    called = score > 0.5
    mass = np.ones(len(label)) if weight is None else weight
    precision, recall, *_ = sk.precision_recall_fscore_support(label, called, average="binary", sample_weight=weight)
    return {
        "example_count": len(label),
        "weighted_example_count": math.fsum(mass),
        "auc": sk.roc_auc_score(label, score, sample_weight=weight),
        "accuracy": sk.accuracy_score(label, called, sample_weight=weight),
        "precision": precision,
        "recall": recall,
        "log_loss": sk.log_loss(label, clipped, sample_weight=weight),
        "calibration": math.fsum(mass * score) / math.fsum(mass * label),
        "mean_label": np.average(label.astype(np.float64), weights=mass),
        "mean_prediction": np.average(score, weights=mass),
    }


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("tied", [False, True])
def test_every_slice_equals_scikit_learn(tied: bool, weighted: bool) -> None:
    label, score, carrier, month, drawn_weight = drawn(4_000, 1, tied=tied)
    weight = drawn_weight if weighted else None
    found = measured(
        config(slices=[[], ["carrier"], ["carrier", "month"]], weight="w" if weighted else None),
        batch(label, score, weight, carrier=carrier, month=month),
    )
    assert len(found) == 1 + 3 + 36
    for name, metrics in found.items():
        mine = np.ones(len(label), bool)
        if name != "overall":
            pairs = dict(part.split("=") for part in name.split(", "))
            mine &= carrier == pairs["carrier"]
            mine &= (month == int(pairs["month"])) if "month" in pairs else True
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # scikit-learn warns where a metric is undefined
            expected = sklearn_metrics(label[mine], score[mine], None if weight is None else weight[mine])
        for each, value in expected.items():
            if isinstance(metrics[each], str):
                assert not np.isfinite(value) or value == 0, (name, each)
            else:
                assert metrics[each] == pytest.approx(value, rel=1e-12), (name, each)


def test_scores_closer_than_1e_4_are_not_ties() -> None:
    """TFMA's 10,000 thresholds put these two into one bucket and print 0.5."""
    assert measured(config(), batch([0, 1], [0.500010, 0.500011]))["overall"]["auc"] == 1.0


@pytest.mark.parametrize(
    "name", ["binary_all_metrics", "threshold_tie", "auc_ties_and_methods", "auc_single_class", "weighted_examples"]
)
def test_tfma_golden(name: str) -> None:
    case = CASES[name]
    expected = {
        value["key"]["name"]: value["value"].get("double_value") for value in case["expected"]["metrics"][0]["values"]
    }
    mine = {
        "auc": "auc",
        "auc_precision_recall": "pr_auc",
        "pr_interp": "pr_auc",
        "binary_accuracy": "accuracy",
        "precision": "precision",
        "recall": "recall",
        "binary_crossentropy": "log_loss",
        "calibration": "calibration",
        "mean_label": "mean_label",
        "mean_prediction": "mean_prediction",
        "weighted_example_count": "weighted_example_count",
    }
    weight = case["input"].get("w")
    found = measured(
        config(weight=None if weight is None else "w"),
        batch(case["input"]["label"], case["input"]["prediction"], weight),
    )["overall"]
    compared = 0
    for theirs, ours in mine.items():
        if theirs not in expected:
            continue
        compared += 1
        if name == "auc_single_class" and ours in ("auc", "pr_auc"):
            assert found[ours] == "only one class among the labels"  # the peer prints 0.0 and 1.0
        else:
            assert found[ours] == pytest.approx(expected[theirs], abs=1e-6), theirs
    assert compared >= 2
    assert found["example_count"] == len(case["input"]["label"])  # the peer's is weighted: 10, not 4


def test_pr_auc_equals_keras_on_10_000_thresholds() -> None:
    label, score, *_ = drawn(3_000, 2, tied=False)
    thresholds = np.array([-1e-7, *(np.arange(1, 9_999) / 9_999), 1 + 1e-7])
    hits = np.array([(label[score > t] == 1).sum() for t in thresholds], float)
    called = np.array([(score > t).sum() for t in thresholds], float)
    d_hits, d_called = hits[:-1] - hits[1:], called[:-1] - called[1:]
    slope = np.divide(d_hits, d_called, out=np.zeros_like(d_hits), where=d_called > 0)
    intercept = hits[1:] - slope * called[1:]
    safe = (called[:-1] > 0) & (called[1:] > 0)
    ratio = np.divide(called[:-1], called[1:], out=np.ones_like(d_hits), where=safe)
    keras = (slope * (d_hits + intercept * np.log(ratio))).sum() / label.sum()
    assert measured(config(), batch(label, score))["overall"]["pr_auc"] == pytest.approx(keras, abs=2e-4)


def test_a_threshold_of_its_own_goes_before_the_configurations(monkeypatch: pytest.MonkeyPatch) -> None:
    label, score, *_ = drawn(500, 3, tied=False)
    monkeypatch.setitem(METRICS, "f1_at_03", (Definition(partial(f1, threshold=0.3), ("binary",)),))
    judged = config(threshold=0.6, metrics=["f1", "f1_at_03", metric("f1_at_03", threshold=0.1, name="at 0.1")])
    values = measured(judged, batch(label, score))["overall"]
    for name, threshold in {"f1": 0.6, "f1_at_03": 0.3, "at 0.1": 0.1}.items():
        assert values[name] == pytest.approx(sk.f1_score(label, score > threshold), rel=1e-12), name


def test_undefined_is_a_reason_and_never_zero() -> None:
    found = measured(config(), batch([1.0, 1.0], [0.2, 0.3]))["overall"]
    assert found["auc"] == found["pr_auc"] == "only one class among the labels"
    assert found["precision"] == "nothing predicted positive"
    found = measured(config(), batch([0.0], [0.2]))["overall"]
    assert found["recall"] == found["calibration"] == "no positive labels"


def test_missing_slice_values_are_their_own_slice() -> None:
    found = measured(
        config(slices=[["dest"], ["delay"]]),
        batch([0, 1, 1], [0.1, 0.9, 0.8], dest=["X", None, None], delay=[float("nan"), None, 1.5]),
    )
    counts = {name: metrics["example_count"] for name, metrics in found.items()}
    assert counts == {
        "overall": 3, "dest=X": 1, "dest=(missing)": 2, "delay=1.5": 1, "delay=(missing)": 2,
    }  # fmt: skip


def test_slices_come_in_order_of_columns_then_values() -> None:
    found = measured(
        config(slices=[["month"], ["dest"]]),
        batch([0, 1, 1], [0.1, 0.9, 0.8], month=[10, 9, None], dest=["b", "a", "c"]),
    )
    assert list(found) == ["overall", "month=9", "month=10", "month=(missing)", "dest=a", "dest=b", "dest=c"]


def test_dictionary_and_plain_columns_are_the_same_slices() -> None:
    plain = pa.array(["a", None, "b", "a"])
    states = []
    for column in (plain, plain.dictionary_encode(), plain.cast(pa.large_string())):
        accumulator = MetricsAccumulator(config(slices=[["c"]]))
        accumulator.add_batch(batch([0, 1, 1, 0], [0.1, 0.2, 0.3, 0.4], c=column))
        states.append(accumulator.to_bytes())
    assert len(set(states)) == 1


def test_too_many_slices_are_refused() -> None:
    accumulator = MetricsAccumulator(config(slices=[["id"]]))
    rows = 20_001
    with pytest.raises(InputError, match="more than 20,000"):
        accumulator.add_batch(batch(np.zeros(rows), np.zeros(rows), id=np.arange(rows)))


@pytest.mark.parametrize(
    ("label", "score", "weight", "words"),
    [
        ([0.0, None, 1.0], [0.1, 0.2, 0.3], None, r"label 'y' is missing in 1 of 3 rows: row 1 \(missing\)"),
        ([0.0, float("nan"), 1.0], [0.1, 0.2, 0.3], None, "label 'y' is missing in 1 of 3 rows"),
        (
            [0.0, 2.0, 1.0],
            [0.1, 0.2, 0.3],
            None,
            r"(?s)neither 0 nor 1 in 1 of 3 rows: row 1 \(2\).*with task=\"regression\"",
        ),
        ([0.0, 1.0, 1.0], [0.1, float("nan"), 0.3], None, "'p' of the candidate is missing or NaN in 1 of 3"),
        (
            [0.0, 1.0, 1.0],
            [0.1, 1.5, -0.3],
            None,
            r"not a probability in 2 of 3 rows: row 1 \(1.5\), row 2 \(-0.3\)(?s:.*)with task=\"regression\"",
        ),
        ([0.0, 1.0, 1.0], [0.1, 0.5, 0.3], [1.0, -1.0, None], "missing, infinite or negative in 2 of 3"),
        (["0", "1", "1"], [0.1, 0.5, 0.3], None, "label 'y' is of type string"),
    ],
)
def test_what_cannot_be_judged_is_counted_and_quoted(
    label: list[Any], score: list[Any], weight: list[Any] | None, words: str
) -> None:
    with pytest.raises(InputError, match=words):
        measured(config(weight=None if weight is None else "w"), batch(label, score, weight))


def test_rows_of_later_shards_are_quoted_by_their_place_in_the_split() -> None:
    parts = [MetricsAccumulator(config()) for _ in range(3)]
    for part, label in zip(parts, ([0.0, 1.0], [1.0, None], [3.0, None]), strict=True):
        part.add_batch(batch(label, [0.5, 0.5]))
    parts[1].merge(MetricsAccumulator.from_bytes(parts[2].to_bytes()))
    parts[0].merge(parts[1])
    with pytest.raises(InputError, match=r"missing in 2 of 6 rows: row 3 \(missing\), row 5 .*neither.*row 4 \(3\)"):
        parts[0].result()


def test_no_examples_is_an_error() -> None:
    with pytest.raises(InputError, match="no examples"):
        MetricsAccumulator(config()).result()


rows_of = st.lists(
    st.tuples(
        st.booleans(),
        st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(0, 1, width=32)),
        st.sampled_from(["a", "b", "ø", "", None]),
        st.sampled_from([1, 2, None]),
    ),
    min_size=1,
    max_size=40,
)


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(
    rows=rows_of,
    cuts=st.lists(st.integers(0, 40), max_size=4),
    seed=st.integers(0, 99),
    exact=st.sampled_from([0, 6, 99]),
)
def test_equal_rows_give_equal_bytes_however_split_ordered_and_merged(
    rows: list[Any], cuts: list[int], seed: int, exact: int
) -> None:
    judged = config(slices=[["c"], ["c", "m"]], exact_rows=exact)

    def state(part: list[Any]) -> MetricsAccumulator:
        accumulator = MetricsAccumulator(judged)
        if part:
            label, score, first, second = zip(*part, strict=True)
            accumulator.add_batch(batch(label, score, c=pa.array(first, pa.string()), m=pa.array(second, pa.int64())))
        return accumulator

    whole = state(rows)
    shuffled = [rows[index] for index in np.random.default_rng(seed).permutation(len(rows))]
    bounds = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    parts = [state(shuffled[low:high]) for low, high in itertools.pairwise(bounds)]
    parts = [part if seed % 2 else MetricsAccumulator.from_bytes(part.to_bytes()) for part in parts]

    def merged(left: MetricsAccumulator, right: MetricsAccumulator) -> MetricsAccumulator:
        left.merge(right)
        return left

    together = reduce(merged, parts)
    assert together.to_bytes() == whole.to_bytes()
    assert MetricsAccumulator.from_bytes(whole.to_bytes()).to_bytes() == whole.to_bytes()
    assert together.result() == whole.result()


@pytest.mark.parametrize("weighted", [False, True])
def test_large_slices_are_histograms_within_their_stated_error(weighted: bool) -> None:
    label, score, carrier, _, weight = drawn(20_000, 3, tied=False)
    given = batch(label, score, weight if weighted else None, carrier=carrier)
    options = {"slices": [["carrier"]], "weight": "w" if weighted else None}
    exact = MetricsAccumulator(config(**options))
    rough = MetricsAccumulator(config(**options, exact_rows=5_000))
    exact.add_batch(given)
    for start in range(0, 20_000, 3_000):  # the limit is passed in the middle
        rough.add_batch(given.slice(start, 3_000))
    flags = {}
    for one, other in zip(exact.result()["slices"], rough.result()["slices"], strict=True):
        flags[one["slice"]] = other["exact"]
        assert one["exact"]
        assert one["n"] == other["n"]
        for name, value in one["metrics"]["candidate"].items():
            near = other["metrics"]["candidate"][name]
            if name == "auc":
                assert abs(value - near) <= other["auc_error"] + 1e-12
                assert other["auc_error"] < 2e-3
            elif name == "pr_auc":
                assert near == pytest.approx(value, abs=2e-3)
            else:
                assert near == pytest.approx(value, rel=1e-14), name
    assert flags == {"overall": False, "carrier=AA": False, "carrier=B6": True, "carrier=UA": flags["carrier=UA"]}


@given(st.lists(st.floats(0, 1), min_size=2, max_size=50))
def test_bins_never_fall_as_scores_rise(scores: list[float]) -> None:
    ordered = np.sort(np.array(scores) + 0.0)
    bins = bin_of(ordered)
    assert (np.diff(bins) >= 0).all()
    assert bins.min() >= 0
    assert bins.max() < BINS


def test_the_middle_of_a_bin_lies_in_it() -> None:
    bins = np.arange(BINS)
    middles = bin_middle(bins)
    assert (np.diff(middles) > 0).all()
    inner = (bins > 0) & (bins < BINS - 1)
    assert (bin_of(middles)[inner] == bins[inner]).all()


def test_bytes_of_another_kind_are_refused() -> None:
    with pytest.raises(InputError, match="not the metrics state"):
        MetricsAccumulator.from_bytes(b"DTXS\x01 something else entirely, long enough for a header")


def test_the_metrics_of_a_configuration_that_names_none() -> None:
    assert EvaluationConfig("label", "candidate").metrics == DEFAULTS["binary"]
    assert DEFAULTS["binary"] == (
        "example_count", "auc", "pr_auc", "accuracy", "precision", "recall", "log_loss", "calibration", "mean_label",
        "mean_prediction",
    )  # fmt: skip
    bars = [name for name, metric in EvaluationConfig("label", "candidate").measures.items() if metric.bar]
    assert bars == ["auc", "pr_auc", "accuracy", "precision", "recall"]
