"""The four questions to the weather: their metrics against scikit-learn's, and a model of noisy labels refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn import metrics as sk

pytestmark = [pytest.mark.slow, pytest.mark.engine, pytest.mark.timeout(900)]
PROJECT = Path(__file__).parents[2] / "examples" / "weather"
EVALUATE = """
import sys
import pyarrow as pa, pyarrow.parquet as pq
from drivetrain.engine import BundleFn
evaluate = BundleFn(sys.argv[1], "evaluate")
evaluate.setup()
batches = pq.read_table(sys.argv[2]).combine_chunks().to_batches()
pq.write_table(pa.Table.from_batches([evaluate(batch) for batch in batches]), sys.argv[3])
"""


def drivetrain(*arguments: str, root: Path, code: int = 0) -> dict[str, Any]:
    command = [sys.executable, "-m", "drivetrain", *arguments, "--json", "--root", str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root.parent)
    assert done.returncode == code, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("weather") / ".drivetrain"


def output(root: Path, run: dict[str, Any], node: str) -> Path:
    (uri,) = [artifact["uri"] for values in run["nodes"][node]["outputs"].values() for artifact in values]
    return root / str(uri) / "content"


def judged(root: Path, question: str) -> tuple[dict[str, float], dict[str, np.ndarray], pa.Table]:
    """The overall metrics, what the pushed model gives for the eval split, and its raw rows."""
    run = drivetrain("run", str(PROJECT), "--pipeline", question, root=root)
    assert run["state"] == "COMPLETE"
    assert run["nodes"]["Pusher"]["state"] == "COMPLETE"
    (part,) = (output(root, run, "ExampleGen") / "split=eval").glob("*.parquet")
    scored = root.parent / "scored.parquet"
    model = root.parent / "served" / question / "1"
    subprocess.run([sys.executable, "-c", EVALUATE, str(model), str(part), str(scored)], check=True)
    outputs = {
        name: np.array(column.to_pylist(), dtype=np.float64) for name, column in zip(*_columns(scored), strict=True)
    }
    rows = pq.read_table(output(root, run, "Evaluator") / "metrics.parquet").to_pylist()
    return {row["metric"]: row["value"] for row in rows if row["slice"] == "overall"}, outputs, pq.read_table(part)


def _columns(path: Path) -> tuple[list[str], list[pa.ChunkedArray]]:
    table = pq.read_table(path)
    return table.column_names, table.columns


def test_a_number(root: Path) -> None:
    ours, outputs, raw = judged(root, "temperature")
    warm = np.nan_to_num(raw["temp"].to_numpy(), nan=55.0)
    np.testing.assert_allclose(outputs["warmth"], warm, atol=1)
    assert ours["r2"] == pytest.approx(sk.r2_score(outputs["warmth"], outputs["degrees"]), rel=1e-9)
    assert ours["mae"] == pytest.approx(sk.mean_absolute_error(outputs["warmth"], outputs["degrees"]), rel=1e-9)
    assert ours["r2"] > 0.99


def test_one_class_of_several(root: Path) -> None:
    ours, outputs, raw = judged(root, "season")
    label, scores = outputs["season_id"].astype(int), outputs["probabilities"]
    np.testing.assert_array_equal(label, np.asarray(raw["month"]) % 12 // 3)
    assert ours["accuracy"] == pytest.approx(sk.accuracy_score(label, scores.argmax(axis=1)))
    assert ours["log_loss"] == pytest.approx(sk.log_loss(label, scores / scores.sum(axis=1, keepdims=True)), rel=1e-6)
    assert ours["macro_f1"] == pytest.approx(sk.f1_score(label, scores.argmax(axis=1), average="macro"))
    assert ours["accuracy"] > 0.6


def test_several_labels(root: Path) -> None:
    ours, outputs, _ = judged(root, "conditions")
    label, scores = outputs["holds"], outputs["probabilities"]
    assert ours["auc"] == pytest.approx(sk.roc_auc_score(label, scores, average="macro"), rel=1e-9)
    assert ours["hamming_loss"] == pytest.approx(sk.hamming_loss(label, scores > 0.5))
    assert ours["micro_f1"] == pytest.approx(sk.f1_score(label, scores > 0.5, average="micro"))
    assert ours["auc"] > 0.85


def test_a_ranking(root: Path) -> None:
    ours, outputs, raw = judged(root, "windiest")
    hours = raw["time_hour"].to_numpy()
    values = []
    for hour in np.unique(hours):
        label, score = outputs["wind"][hours == hour], outputs["score"][hours == hour]
        if label.any():
            values.append(sk.ndcg_score([label], [score]) if len(label) > 1 else 1.0)
    assert ours["ndcg"] == pytest.approx(np.mean(values), rel=1e-9)
    assert ours["query_count"] == len(np.unique(hours))
    assert ours["ndcg"] > 0.93


def test_a_model_of_noisy_labels_is_refused_and_a_better_one_blessed(root: Path) -> None:
    noisy = root.parent / "noisy"
    shutil.copytree(PROJECT, noisy, ignore=shutil.ignore_patterns("__pycache__"))
    code = (noisy / "model.py").read_text()
    assert code.count('batch["season_id"]).mean()') == 1
    (noisy / "model.py").write_text(code.replace('batch["season_id"])', 'jnp.roll(batch["season_id"], 1))'))
    arguments = ("run", str(noisy), "--pipeline", "season")
    refused = drivetrain(*arguments, root=root)
    assert refused["nodes"]["Pusher"]["state"] == "SKIPPED"
    verdict = json.loads((output(root, refused, "Evaluator") / "validation.json").read_text())
    assert not verdict["blessed"]
    assert any("accuracy" in failure for failure in verdict["failures"])
    (noisy / "model.py").write_text(code)
    assert drivetrain(*arguments, root=root)["nodes"]["Pusher"]["state"] in ("COMPLETE", "CACHED")
