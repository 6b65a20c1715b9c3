"""The four questions to the weather: their metrics against scikit-learn's, and a model of noisy labels refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain.engine import BundleFn
from drivetrain.tests.examples.forks import commands, drive
from drivetrain.tests.forks import Forks
from sklearn import metrics as sk

pytestmark = [pytest.mark.slow, pytest.mark.engine, pytest.mark.timeout(900)]
PROJECT = Path(__file__).parents[2] / "examples" / "weather"


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with commands() as forks:
        yield forks


def drivetrain(forks: Forks, *arguments: str, root: Path) -> dict[str, Any]:
    done = drive(forks, *arguments, "--root", str(root))
    assert done.code == 0, done.err
    return done.result


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("weather") / ".drivetrain"


def output(root: Path, run: dict[str, Any], node: str) -> Path:
    (uri,) = [artifact["uri"] for values in run["nodes"][node]["outputs"].values() for artifact in values]
    return root / str(uri) / "content"


def judged(forks: Forks, root: Path, question: str) -> tuple[dict[str, float], dict[str, np.ndarray], pa.Table]:
    """The overall metrics, what the pushed model gives for the eval split, and its raw rows."""
    run = drivetrain(forks, "run", str(PROJECT), "--pipeline", question, root=root)
    assert run["state"] == "COMPLETE"
    assert run["nodes"]["Pusher"]["state"] == "COMPLETE"
    (part,) = (output(root, run, "ExampleGen") / "split=eval").glob("*.parquet")
    rows = pq.read_table(part)
    evaluate = BundleFn(root.parent / "served" / question / "1", "evaluate")
    evaluate.setup()
    scored = pa.Table.from_batches([evaluate(batch) for batch in rows.combine_chunks().to_batches()])
    outputs = {
        name: np.array(column.to_pylist(), dtype=np.float64)
        for name, column in zip(scored.column_names, scored.columns, strict=True)
    }
    metrics = pq.read_table(output(root, run, "Evaluator") / "metrics.parquet").to_pylist()
    return {row["metric"]: row["value"] for row in metrics if row["slice"] == "overall"}, outputs, rows


def test_a_number(forks: Forks, root: Path) -> None:
    ours, outputs, raw = judged(forks, root, "temperature")
    warm = np.nan_to_num(raw["temp"].to_numpy(), nan=55.0)
    np.testing.assert_allclose(outputs["warmth"], warm, atol=1)
    assert ours["r2"] == pytest.approx(sk.r2_score(outputs["warmth"], outputs["degrees"]), rel=1e-9)
    assert ours["mae"] == pytest.approx(sk.mean_absolute_error(outputs["warmth"], outputs["degrees"]), rel=1e-9)
    assert ours["r2"] > 0.99


def test_one_class_of_several(forks: Forks, root: Path) -> None:
    ours, outputs, raw = judged(forks, root, "season")
    label, scores = outputs["season_id"].astype(int), outputs["probabilities"]
    np.testing.assert_array_equal(label, np.asarray(raw["month"]) % 12 // 3)
    assert ours["accuracy"] == pytest.approx(sk.accuracy_score(label, scores.argmax(axis=1)))
    assert ours["log_loss"] == pytest.approx(sk.log_loss(label, scores / scores.sum(axis=1, keepdims=True)), rel=1e-6)
    assert ours["macro_f1"] == pytest.approx(sk.f1_score(label, scores.argmax(axis=1), average="macro"))
    assert ours["accuracy"] > 0.6


def test_several_labels(forks: Forks, root: Path) -> None:
    ours, outputs, _ = judged(forks, root, "conditions")
    label, scores = outputs["holds"], outputs["probabilities"]
    assert ours["auc"] == pytest.approx(sk.roc_auc_score(label, scores, average="macro"), rel=1e-9)
    assert ours["hamming_loss"] == pytest.approx(sk.hamming_loss(label, scores > 0.5))
    assert ours["micro_f1"] == pytest.approx(sk.f1_score(label, scores > 0.5, average="micro"))
    assert ours["auc"] > 0.85


def test_a_ranking(forks: Forks, root: Path) -> None:
    ours, outputs, raw = judged(forks, root, "windiest")
    hours = raw["time_hour"].to_numpy()
    values = []
    for hour in np.unique(hours):
        label, score = outputs["wind"][hours == hour], outputs["score"][hours == hour]
        if label.any():
            values.append(sk.ndcg_score([label], [score]) if len(label) > 1 else 1.0)
    assert ours["ndcg"] == pytest.approx(np.mean(values), rel=1e-9)
    assert ours["query_count"] == len(np.unique(hours))
    assert ours["ndcg"] > 0.93


def test_a_model_of_noisy_labels_is_refused_and_a_better_one_blessed(forks: Forks, root: Path) -> None:
    noisy = root.parent / "noisy"
    shutil.copytree(PROJECT, noisy, ignore=shutil.ignore_patterns("__pycache__"))
    code = (noisy / "model.py").read_text()
    assert code.count('batch["season_id"]).mean()') == 1
    (noisy / "model.py").write_text(code.replace('batch["season_id"])', 'jnp.roll(batch["season_id"], 1))'))
    arguments = ("run", str(noisy), "--pipeline", "season")
    refused = drivetrain(forks, *arguments, root=root)
    assert refused["nodes"]["Pusher"]["state"] == "SKIPPED"
    verdict = json.loads((output(root, refused, "Evaluator") / "validation.json").read_text())
    assert not verdict["blessed"]
    assert any("accuracy" in failure for failure in verdict["failures"])
    (noisy / "model.py").write_text(code)
    assert drivetrain(forks, *arguments, root=root)["nodes"]["Pusher"]["state"] in ("COMPLETE", "CACHED")
