"""Rankings against scikit-learn and TREC's own program, and the same numbers wherever a query's documents lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import drivetrain as dt
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import pytrec_eval
from drivetrain import InputError
from drivetrain.components.evaluation import EvaluationConfig, Threshold, metric
from drivetrain.components.evaluation.run import evaluate
from drivetrain.data import executor, open_parquet
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score

METRICS = [
    "ndcg", metric("ndcg", k=3), metric("ndcg", k=3, gain="exponential"), "mean_reciprocal_rank",
    metric("mean_reciprocal_rank", k=2), "mean_average_precision", metric("mean_average_precision", k=3),
    metric("hit_rate", k=2), metric("precision_at_k", k=3), metric("recall_at_k", k=3), "min_label_position",
    "query_count", "min_documents", "max_documents", "mean_documents",
]  # fmt: skip


class Columns:
    """A model that is columns of the data."""

    def setup(self) -> None:
        pass

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.select(["label", "score"])


def documents(seed: int, queries: int, *, ties: bool = False) -> pa.Table:
    rng = np.random.default_rng(seed)
    query = np.repeat([f"q{number}" for number in range(queries)], rng.integers(1, 9, queries))
    score = rng.choice([0.1, 0.2, 0.3], len(query)) if ties else rng.normal(size=len(query))
    columns = {"q": query, "label": rng.choice([0, 0, 1, 2, 3], len(query)), "score": score}
    columns |= {"w": np.where(np.char.endswith(query, "1"), 2.0, 1.0), "country": rng.choice(["a", "b"], len(query))}
    return pa.table(columns).take(pa.array(rng.permutation(len(query))))


def measured(table: pa.Table, folder: Path, name: str = "local", **options: Any) -> dict[str, Any]:
    pq.write_table(table, folder / "rows.parquet", row_group_size=40)
    config = EvaluationConfig("label", "score", query="q", **{"metrics": METRICS} | options)
    return evaluate(open_parquet([folder / "rows.parquet"]), config, executor(name), Columns())


def overall(table: pa.Table, folder: Path, **options: Any) -> dict[str, Any]:
    values: dict[str, Any] = measured(table, folder, **options)["metrics"]["slices"][0]["metrics"]["candidate"]
    return values


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10_000), queries=st.integers(1, 30))
def test_trecs_own_program_agrees(seed: int, queries: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    table = documents(seed, queries)
    ours = overall(table, tmp_path_factory.mktemp("rows"))
    relevance: dict[str, dict[str, int]] = {}
    run: dict[str, dict[str, float]] = {}
    for number, row in enumerate(table.to_pylist()):
        relevance.setdefault(row["q"], {})[str(number)] = row["label"]
        run.setdefault(row["q"], {})[str(number)] = row["score"]
    names = {
        "ndcg": "ndcg", "ndcg(k=3)": "ndcg_cut_3", "mean_reciprocal_rank": "recip_rank",
        "mean_average_precision": "map", "mean_average_precision(k=3)": "map_cut_3", "hit_rate(k=2)": "success_2",
        "precision_at_k(k=3)": "P_3", "recall_at_k(k=3)": "recall_3",
    }  # fmt: skip
    asked = {"ndcg", "ndcg_cut.3", "recip_rank", "map", "map_cut.3", "success.2", "P.3", "recall.3"}
    theirs = pytrec_eval.RelevanceEvaluator(relevance, asked).evaluate(run)
    relevant = [query for query, labels in relevance.items() if any(labels.values())]
    for mine, their in names.items():
        if relevant:
            assert ours[mine] == pytest.approx(np.mean([theirs[query][their] for query in relevant]), rel=1e-12)
        else:
            assert ours[mine] == "no query with a relevant document"
    sizes = [len(labels) for labels in relevance.values()]
    assert (ours["query_count"], ours["min_documents"], ours["max_documents"]) == (queries, min(sizes), max(sizes))
    assert ours["mean_documents"] == pytest.approx(np.mean(sizes))


@pytest.mark.parametrize("k", [None, 1, 3])
@pytest.mark.parametrize("gain", ["linear", "exponential"])
def test_scikit_learn_agrees_on_ndcg_with_ties_and_weights(k: int | None, gain: str, tmp_path: Path) -> None:
    table = documents(3, 60, ties=True)
    ours = overall(table, tmp_path, metrics=[metric("ndcg", k=k, gain=gain, name="ndcg")], weight="w")["ndcg"]
    values, weights = [], []
    for _, group in table.to_pandas().groupby("q"):
        gains = group.label if gain == "linear" else 2.0**group.label - 1
        if len(group) > 1 and gains.any():  # of one document scikit-learn has no opinion
            values.append(ndcg_score([gains], [group.score], k=k))
            weights.append(group.w.mean())
        elif gains.any():
            values.append(1.0)
            weights.append(group.w.mean())
    assert ours == pytest.approx(np.average(values, weights=weights), rel=1e-12)


def test_equal_predictions_gain_nothing_by_their_order(tmp_path: Path) -> None:
    table = pa.table({"q": [1, 1, 1], "label": [1, 0, 0], "score": [0.5, 0.5, 0.5]})
    for order in ([0, 1, 2], [2, 1, 0]):
        ours = overall(table.take(pa.array(order)), tmp_path)
        assert ours["mean_reciprocal_rank"] == ours["mean_average_precision"] == pytest.approx(1 / 3)
        assert ours["min_label_position"] == 3
        assert ours["hit_rate(k=2)"] == 0


@pytest.mark.parametrize(
    "name",
    ["local", pytest.param("beam", marks=[pytest.mark.beam, pytest.mark.slow, pytest.mark.filterwarnings("default")])],
)
def test_more_documents_than_are_kept_are_brought_together_by_query(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drivetrain.components.evaluation.run._BUCKET_ROWS", 150)
    table = documents(5, 200)
    options: dict[str, Any] = {"slices": [["country"]], "weight": "w", "confidence": "jackknife"}
    kept = measured(table, tmp_path, **options)["metrics"]["slices"]
    summed = measured(table, tmp_path, name, exact_rows=10, **options)["metrics"]["slices"]
    assert [item["exact"] for item in kept] == [True] * 3
    assert [item["exact"] for item in summed] == [False] * 3
    for left, right in zip(kept, summed, strict=True):
        assert right["n"] == left["n"]
        assert right["metrics"]["candidate"] == pytest.approx(left["metrics"]["candidate"], rel=1e-12)
        for each, (low, high) in left["intervals"]["candidate"].items():
            assert right["intervals"]["candidate"][each] == pytest.approx((low, high), rel=1e-9), each


def test_a_slice_ranks_its_own_documents_only(tmp_path: Path) -> None:
    table = documents(6, 50)
    sliced = measured(table, tmp_path, slices=[["country"]])["metrics"]["slices"]
    for item in sliced[1:]:
        chosen = table.filter(pa.compute.equal(table["country"], item["pairs"][0][1]))
        assert item["metrics"]["candidate"] == overall(chosen, tmp_path)


def test_a_better_ranking_is_blessed_and_a_worse_one_refused(tmp_path: Path) -> None:
    table = documents(7, 300)
    score = table["label"].to_numpy() + np.random.default_rng(0).normal(size=len(table))
    good = table.set_column(table.schema.get_field_index("score"), "score", pa.array(score))
    bounds = [Threshold("ndcg", lower=0.8, judge="strict")]
    for rows, blessed in ((good, True), (table, False)):
        verdict = measured(rows, tmp_path, thresholds=bounds, confidence="jackknife")["validation"]
        assert verdict["blessed"] is blessed
        assert verdict["thresholds"][0]["text"].startswith("overall NDCG 0.")


@pytest.mark.parametrize(
    ("column", "values", "says"),
    [
        ("label", [1, -1, 0], r"label 'label' is negative, which no relevance is, in 1 of 3 rows: row 1 \(-1\)"),
        ("q", [1.0, float("nan"), 2.0], r"query 'q' is missing in 1 of 3 rows: row 1 \(missing\)"),
        ("q", ["a", None, "a"], r"query 'q' is missing in 1 of 3 rows: row 1 \(missing\)"),
        ("score", [0.1, float("inf"), 0.2], r"prediction .* is infinite in 1 of 3 rows"),
    ],
)
def test_a_document_that_cannot_be_judged(column: str, values: list[Any], says: str, tmp_path: Path) -> None:
    columns = {"q": ["a", "a", "a"], "label": [1, 0, 0], "score": [0.1, 0.2, 0.3]} | {column: values}
    with pytest.raises(InputError, match=says):
        overall(pa.table(columns), tmp_path)


def test_rankings_and_queries_go_together() -> None:
    with pytest.raises(InputError, match="rankings are judged query by query, and no query is named"):
        EvaluationConfig("y", "p", metrics=["ndcg"])
    with pytest.raises(InputError, match="binary models are judged without query='q'"):
        EvaluationConfig("y", "p", task="binary", query="q")
    with pytest.raises(InputError, match=r"judges ranking models|judges binary models"):
        EvaluationConfig("y", "p", metrics=["auc"], query="q")
    assert EvaluationConfig("y", "p", query="q").task == "ranking"
    for k in (0, 10**400):
        with pytest.raises(InputError, match=f"k must be a number of documents, not {k!r:.40}"):
            EvaluationConfig("y", "p", metrics=[metric("precision_at_k", k=k)], query="q")


def test_a_query_of_one_document_and_none_at_all(tmp_path: Path) -> None:
    ours = overall(pa.table({"q": [1], "label": [2], "score": [0.0]}), tmp_path)
    assert (ours["ndcg"], ours["mean_reciprocal_rank"], ours["query_count"]) == (1, 1, 1)
    with pytest.raises(InputError, match="there are no examples to evaluate"):
        overall(
            pa.table(
                {"q": pa.array([], pa.int64()), "label": pa.array([], pa.int64()), "score": pa.array([], pa.float64())}
            ),
            tmp_path,
        )


@pytest.mark.parametrize("gain", ["linear", "exponential"])
@pytest.mark.parametrize("scale", [1e-17, 1e-300, 1.0, 1e150])
def test_labels_of_any_size_have_their_ndcg(gain: str, scale: float) -> None:
    """Of tiny ones the exponential gain was 0, and of large ones no number."""
    labels, scores = np.array([3.0, 0.0, 1.0, 2.0]), [0.1, 0.4, 0.3, 0.2]
    table = {"q": [1] * 4, "y": labels * scale, "p": scores}
    result = dt.evaluate(table, label="y", predictions="p", query="q", metrics=[metric("ndcg", gain=gain, name="it")])
    gains = labels  # 2^x - 1 is x·ln 2 for tiny x, and a constant factor makes no difference
    if gain == "exponential" and scale >= 1:
        gains = 2**labels - 1 if scale == 1 else (labels == 3) * 1.0  # the others are nothing beside the largest
    assert result.overall["p"]["it"] == pytest.approx(ndcg_score([gains], [scores]), rel=1e-12)
