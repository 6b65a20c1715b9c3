"""The network of another library, as the benchmark of trainings runs it, learns what scikit-learn learns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from drivetrain.benchmarks.training_peers import save, seconds

pytestmark = [pytest.mark.engine, pytest.mark.slow]


def test_keras_trains_the_benchmarks_network(tmp_path: Path) -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    random = np.random.default_rng(0)
    delay = random.normal(size=8192).astype(np.float32)
    carrier = random.integers(0, 3, 8192).astype(np.int32)
    late = (2 * delay + carrier - 1 + random.logistic(size=8192) > 0).astype(np.float32)
    columns = {"delay": delay, "carrier": carrier, "late": late}
    setup = {
        "columns": str(save(columns, tmp_path / "columns.npz")),
        "label": "late",
        "numbers": ["delay"],
        "sizes": {"carrier": 3},
        "batch_size": 64,
        "epochs": 6,
    }
    taken, loss = seconds("Keras fit, 32 steps per execution", setup, tmp_path)
    assert taken > 0
    matrix = np.column_stack([delay, carrier == 1, carrier == 2])
    chances = linear_model.LogisticRegression(C=1e6).fit(matrix, late).predict_proba(matrix)[:, 1]
    expected = -np.mean(late * np.log(chances) + (1 - late) * np.log(1 - chances))
    assert loss == pytest.approx(expected, rel=0.05)
