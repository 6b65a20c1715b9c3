"""The accumulator's laws for every kind of model: equal rows, equal bytes, however they came in."""

from __future__ import annotations

import itertools
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from drivetrain import InputError
from drivetrain.components.evaluation import Confidence, EvaluationConfig, Slice, metric
from drivetrain.components.evaluation.accumulator import MetricsAccumulator
from drivetrain.components.evaluation.metrics import METRICS, without_options
from drivetrain.components.evaluation.rows import TASKS, Task
from evaluating import column  # type: ignore[import-not-found]  # conftest puts this folder on the path
from hypothesis import given, settings
from hypothesis import strategies as st

IN = Slice("in", sql="m = 1")  # its column is drawn here: true or null
AVERAGED = [metric("auc", average="macro"), metric("f1", average="micro"), metric("recall", class_id=1)]


def every(task: Task) -> list[Any]:
    """All metrics that a kind of model has without options."""
    names = [name for name, of_name in METRICS.items() if any(task in each.tasks for each in of_name)]
    some = [name for name in names if without_options(name) is not None]
    return some + (AVERAGED if task.startswith("multi") else [])


def query_of(task: Task) -> str | None:
    """What `EvaluationConfig` calls the column of the query."""
    return "q" if task == "ranking" else None


def rows_of(task: Task, seed: int, rows: int) -> pa.RecordBatch:
    """Labels, predictions of two models with ties, weights of whole halves, and two columns to slice by."""
    rng = np.random.default_rng(seed)
    columns: dict[str, Any] = {}
    if task in ("binary", "regression", "ranking"):
        numbers = rng.integers(0, 4, rows) if task == "ranking" else np.round(rng.normal(size=rows), 1)
        columns["label"] = rng.integers(0, 2, rows) if task == "binary" else numbers
        columns["query"] = rng.integers(0, 7, rows)
        columns |= {model: np.round(rng.random(rows), 1) for model in ("candidate", "baseline")}
    else:
        columns["label"] = rng.integers(0, 3, rows) if task == "multiclass" else rng.integers(0, 2, (rows, 3))
        columns |= {model: np.round(rng.random((rows, 3)), 1) for model in ("candidate", "baseline")}
    columns["weight"] = rng.choice([0.5, 1.0, 3.0], rows)
    columns["slice:in"] = [True if each < 0.4 else None for each in rng.random(rows)]
    columns |= {"slice:c": rng.choice(["a", "b", ""], rows), "slice:m": rng.integers(0, 2, rows)}
    batch = pa.record_batch({name: column(values) for name, values in columns.items()})
    tags = [rng.choice(["x", "y", "z"], rng.integers(0, 4)).tolist() or None for _ in range(rows)]
    return batch.append_column("slice:tags", pa.array(tags, pa.list_(pa.string())))


@pytest.mark.parametrize("task", TASKS)
@settings(deadline=None, max_examples=6)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 30),
    cuts=st.lists(st.integers(0, 30), max_size=4),
    exact_rows=st.sampled_from([0, 5, 99]),
    weighted=st.booleans(),
    least=st.sampled_from([0, 4]),
    limits=st.fixed_dictionaries(
        {
            "accumulator._AT_ONCE": st.sampled_from([1, 7, 1 << 19]),
            "accumulator._KEPT_BYTES": st.sampled_from([1, 300, 1 << 24]),
            "accumulator._NEW": st.sampled_from([1, 7, 1 << 18]),
            "accumulator._ROWS_OF_A_SLICE": st.sampled_from([0, 1, 1024]),
            "accumulator._SLICES": st.sampled_from([4, 12, 1024]),
            "score_table._AT_ONCE": st.sampled_from([1, 7, 1 << 18]),
            "score_table._COUNTERS": st.sampled_from([1, 30, 1 << 20]),
            "cells._SORTED": st.sampled_from([0, 100_000]),
        }
    ),
)
def test_equal_rows_give_equal_bytes(
    task: Task,
    seed: int,
    rows: int,
    cuts: list[int],
    exact_rows: int,
    weighted: bool,
    least: int,
    limits: dict[str, int],
) -> None:
    """Whenever rows are put into sums and states, too."""
    config = EvaluationConfig(
        "y", "p", slices=[["c"], ["c", "m"], ["m", IN], ["tags"], ["tags", "m"]], metrics=every(task),
        exact_rows=99 if task == "ranking" else exact_rows, weight="w" if weighted else None, task=task,
        min_examples=least, query=query_of(task),
    )  # fmt: skip
    table = rows_of(task, seed, rows)

    def state(parts: list[pa.RecordBatch]) -> MetricsAccumulator:
        accumulator = MetricsAccumulator(config, baseline=True)
        for part in parts:
            accumulator.add_batch(part)
        accumulator.compact()
        return accumulator

    def merged(left: MetricsAccumulator, right: MetricsAccumulator) -> MetricsAccumulator:
        left.merge(right)
        return left

    whole = state([table])
    expected, result = whole.to_bytes(), whole.result()
    shuffled = table.take(pa.array(np.random.default_rng(seed).permutation(rows)))
    bounds = [0, *sorted(min(cut, rows) for cut in cuts), rows]
    parts = [shuffled.slice(low, high - low) for low, high in itertools.pairwise(bounds)]
    with pytest.MonkeyPatch.context() as patch:
        for name, limit in limits.items():
            patch.setattr(f"drivetrain.components.evaluation.{name}", limit)
        for together in (state(parts), reduce(merged, [state([part]) for part in parts])):
            assert together.to_bytes() == expected
            assert together.result() == result
        mixed = [state([part]) for part in parts]
        saved = [each.to_bytes() for each in mixed]
        assert reduce(merged, map(MetricsAccumulator.from_bytes, saved)).to_bytes() == expected
        mixed[::2] = map(MetricsAccumulator.from_bytes, saved[::2])
        assert reduce(merged, mixed).result() == result


@pytest.mark.parametrize(
    ("task", "exact_rows"),
    [(task, rows) for task in TASKS for rows in ([1000] if task == "ranking" else [0, 25, 1000])],
)
def test_intervals_are_the_same_through_bytes_and_merges_of_the_same_shards(task: Task, exact_rows: int) -> None:
    config = EvaluationConfig(
        "y", "p", slices=[["c"], ["tags"]], metrics=every(task), task=task, weight="w", query=query_of(task),
        exact_rows=exact_rows,
        confidence=Confidence("bootstrap", buckets=15, resamples=20),
    )  # fmt: skip
    table = rows_of(task, 1, 90)
    shards = [table.slice(start, 30) for start in (0, 30, 60)]

    def state(shard: pa.RecordBatch, batch: int) -> MetricsAccumulator:
        accumulator = MetricsAccumulator(config, baseline=True)
        for start in range(0, 30, batch):
            accumulator.add_batch(shard.slice(start, batch))
        return accumulator

    results = []
    for batch in (30, 7):
        first, *others = [state(shard, batch) for shard in shards]
        for other in others:
            first.merge(MetricsAccumulator.from_bytes(other.to_bytes()) if batch == 7 else other)
        results.append(first.result()["slices"])
    wide = [item for item in results[0] if item["n"] == 90]
    assert any(isinstance(each, tuple) for each in wide[0]["intervals"]["change"].values())
    for left, right in zip(*results, strict=True):
        for kind, intervals in left["intervals"].items():
            for name, interval in intervals.items():
                other_interval = right["intervals"][kind][name]
                # Sums of floats over batches of another size differ in their last bits, few of them: approx takes long.
                if other_interval != interval:
                    assert other_interval == pytest.approx(interval, rel=1e-9, abs=1e-12), (left["slice"], kind, name)


@pytest.mark.parametrize("task", TASKS)
def test_metrics_are_the_same_without_plots(task: Task) -> None:
    """Also where a plot alone needs rows in order, or a state that no metric has; through bytes, too."""
    config = EvaluationConfig(
        "y", "p", slices=[["c"]], metrics=every(task)[:3], task=task, query=query_of(task),
        exact_rows=99 if task == "ranking" else 0,
    )  # fmt: skip
    drawing, plain = (MetricsAccumulator(config, baseline=True, plots=plots) for plots in (True, False))
    for accumulator in (drawing, plain):
        accumulator.add_batch(rows_of(task, 1, 60))
    expected, bare = drawing.result(), plain.result()
    assert bare["plots"] == {"candidate": {}, "baseline": {}}
    assert {**bare, "plots": expected["plots"]} == expected
    assert MetricsAccumulator(config, baseline=True, plots=False).load(plain.to_bytes()).result() == bare


def test_summed_slices_have_the_values_of_kept_ones() -> None:
    """But for curves, which come from bins."""
    for task in TASKS[:-1]:  # tests/components/evaluation/test_ranking.py has the last
        table, results = rows_of(task, 1, 200), []
        for exact_rows in (0, 1000):
            config = EvaluationConfig("y", "p", metrics=every(task), exact_rows=exact_rows, task=task, weight="w")
            accumulator = MetricsAccumulator(config, baseline=True)
            accumulator.add_batch(table)
            results.append(accumulator.result()["slices"][0]["metrics"]["candidate"])
        for name, value in results[1].items():
            near = 1e-3 if "auc" in name or name == "average_precision" else 1e-12
            assert results[0][name] == (value if isinstance(value, str) else pytest.approx(value, rel=near)), name


def test_lists_of_another_length_in_a_later_batch() -> None:
    accumulator = MetricsAccumulator(EvaluationConfig("y", "p", metrics=["macro_f1"]))
    for width, words in ((3, None), (2, "3 values in some rows and 2 in others")):
        batch = pa.record_batch({"label": pa.array([0]), "candidate": column(np.full((1, width), 0.5))})
        if words is None:
            accumulator.add_batch(batch)
        else:
            with pytest.raises(InputError, match=words):
                accumulator.add_batch(batch)


@pytest.mark.parametrize("exact_rows", [0, 99])
def test_shards_of_lists_of_two_lengths_are_not_merged(exact_rows: int) -> None:
    config = EvaluationConfig("y", "p", metrics=["macro_f1"], exact_rows=exact_rows)
    states = []
    for width in (2, 3):
        shard = MetricsAccumulator(config)
        shard.add_batch(pa.record_batch({"label": pa.array([0]), "candidate": column(np.full((1, width), 0.5))}))
        states.append(MetricsAccumulator.from_bytes(shard.to_bytes()))
    with pytest.raises(InputError, match="'p' has 2 values in some rows and 3 in others"):
        states[0].merge(states[1])
