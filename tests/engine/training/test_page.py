"""The page on models, docs/training.md: its blocks run, and train."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import optax
import pyarrow as pa
import pytest
from drivetrain.engine.graphs.graph import FieldSpec
from drivetrain.engine.training.training import TrainingRun

pytestmark = pytest.mark.engine
PAGE = Path(__file__).parents[3] / "docs" / "training.md"
SPECS = {
    "carat": FieldSpec("float32"),
    "depth": FieldSpec("float32"),
    "cut": FieldSpec("int32", size=4),
    "log_price": FieldSpec("float32"),
}


def test_what_the_page_shows_trains(tmp_path: Path, problem: ModuleType) -> None:
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL):
        exec(block, names)
    random = np.random.default_rng(0)
    carat, depth = random.normal(size=(2, 2048)).astype(np.float32)
    columns = {
        "carat": carat,
        "depth": depth,
        "cut": random.integers(0, 4, 2048).astype(np.int32),
        "log_price": (2 * carat + 1).astype(np.float32),
    }
    content = problem.write(tmp_path, {"train": pa.table(columns)})
    run = TrainingRun(SPECS, content, epochs=8, batch_size=64, eval_split=None)
    trained = names["train"](run)
    assert trained.history[-1].loss < 0.1 < trained.history[0].loss
    by_hand = names["train_by_hand"](run)
    np.testing.assert_allclose(by_hand.params["weights"], [2, 0], atol=0.01)
    np.testing.assert_allclose(by_hand.params["bias"], 1, atol=0.01)
    assert names["linear"].apply is by_hand.apply
    options: Any = {"loss": names["loss"], "predict": lambda output: {"log_price_hat": output}, "label": "log_price"}
    centred = run.fit(names["centred"], optimizer=optax.sgd(0.1), callbacks=[names["Slow"]()], **options)
    assert "fell from" in centred.stopped
    assert centred.params["state"]["mean"] == pytest.approx(carat.mean(), abs=0.15)
