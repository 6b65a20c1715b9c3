"""Several outputs in one pass: the bytes and numbers of each alone, on any executor, from one call of the model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from drivetrain.components.evaluation import EvaluationConfig, Slice, Threshold
from drivetrain.components.evaluation.outputs import ONLY, OutputsAccumulator, OutputScores, joint_verdict
from drivetrain.components.evaluation.run import evaluate, evaluate_outputs
from drivetrain.data import LocalExecutor, source_of
from drivetrain.errors import InputError

CONFIGS = {
    "late": EvaluationConfig(
        "late", "p", slices=[["c"], [Slice("bin", sql="minutes", bins=3)]], thresholds=[Threshold("auc", lower=0.9)]
    ),
    "minutes": EvaluationConfig("minutes", "m", task="regression", slices=[["c", "late"]], weight="w", min_examples=40),
    "order": EvaluationConfig(
        "gain", "r", task="ranking", query="q", thresholds=[Threshold("mean_reciprocal_rank", lower=0.0)]
    ),
}


class Guess:
    """A model with three outputs, which counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def setup(self) -> None:
        pass

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.calls += 1
        minutes = batch.column("minutes").to_numpy()
        p = 1 / (1 + np.exp(-minutes / 20))
        return pa.record_batch(
            {
                "p": pa.array(p),
                "m": pa.array(minutes * 0.9),
                "r": pa.array(np.sin(minutes)),
                "late": batch.column("late"),
            }
        )


def rows(count: int = 600) -> pd.DataFrame:
    generator = np.random.default_rng(1)
    minutes = generator.normal(0, 20, count)
    return pd.DataFrame(
        {
            "minutes": minutes,
            "late": (minutes + generator.normal(0, 10, count) > 0).astype(int),
            "c": generator.choice(["a", "b"], count),
            "w": generator.random(count) + 0.5,
            "q": generator.integers(0, 90, count),
            "gain": generator.integers(0, 3, count),
        }
    )


@pytest.mark.parametrize("exact_rows", [100, 10_000])
def test_each_output_is_measured_as_it_would_be_alone(exact_rows: int) -> None:
    """A ranking of more rows has its queries brought together first, in a pass of its own."""
    configs = {name: replace(config, exact_rows=exact_rows) for name, config in CONFIGS.items()}
    model = Guess()
    source = source_of(rows())
    together = evaluate_outputs(source, configs, LocalExecutor(threads=1), model, model)
    assert list(together) == ["late", "minutes", "order"]
    for name, config in configs.items():
        assert together[name] == evaluate(source, config, LocalExecutor(threads=1), Guess(), Guess())


def test_the_model_is_called_once_for_all() -> None:
    model = Guess()
    evaluate_outputs(source_of(rows()), CONFIGS, LocalExecutor(threads=1), model)
    assert model.calls == 1


@pytest.mark.beam
def test_the_same_on_beam_and_through_bytes(tmp_path: Any) -> None:
    from drivetrain.data.beam import BeamExecutor

    table = rows()
    paths = []
    for index, part in enumerate(np.array_split(np.arange(len(table)), 3)):
        paths.append(tmp_path / f"{index}.parquet")
        table.iloc[part].to_parquet(paths[-1])
    configs = {name: CONFIGS[name] for name in ("late", "minutes")}
    expected = evaluate_outputs(source_of(paths), configs, LocalExecutor(), Guess())
    assert evaluate_outputs(source_of(paths), configs, BeamExecutor(), Guess()) == expected
    scores = OutputScores(tuple(configs.values()), Guess())
    state = OutputsAccumulator(tuple(configs.values()))
    state.add_batch(scores(pa.RecordBatch.from_pandas(table, preserve_index=False)))
    for again in (OutputsAccumulator.from_bytes(state.to_bytes()), state.load(state.to_bytes())):
        assert again.to_bytes() == state.to_bytes()
        assert [part.result() for part in again.parts] == [part.result() for part in state.parts]
    for cut in range(0, len(state.to_bytes()), 997):
        with pytest.raises(InputError):
            OutputsAccumulator.from_bytes(state.to_bytes()[:cut])


def test_a_model_is_blessed_where_each_output_is() -> None:
    good, bad = (
        {**verdict(), "blessed": blessed, "failures": [] if blessed else ["auc 0.4 < 0.9"]} for blessed in (1, 0)
    )
    assert joint_verdict({ONLY: good}) == good
    joint = joint_verdict({"a": good, "b": bad})
    assert not joint["blessed"]
    assert joint["failures"] == ["b: auc 0.4 < 0.9"]
    assert joint["thresholds"][0] == {"metric": "auc", "text": "a: auc 0.95 > 0.9", "output": "a"}
    assert [item["text"] for item in joint["withheld"]] == ["a: 2 slices", "b: 2 slices"]
    assert {name: each["min_examples"] for name, each in joint["outputs"].items()} == {"a": 5, "b": 5}
    assert joint_verdict({"a": good, "b": good})["blessed"]


def verdict() -> dict[str, Any]:
    return {
        "baseline": "compared", "examples": 10, "thresholds": [{"metric": "auc", "text": "auc 0.95 > 0.9"}],
        "missing_slices": [], "confidence": None, "bins": {}, "min_examples": 5,
        "withheld": [{"columns": ["c"], "text": "2 slices"}], "withheld_thresholds": [], "missing_thresholds": False,
    }  # fmt: skip
