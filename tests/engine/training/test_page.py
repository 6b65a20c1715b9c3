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


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    """What the page's blocks define."""
    defined: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL):
        exec(block, defined)
    return defined


def test_what_the_page_shows_trains(tmp_path: Path, problem: ModuleType, names: dict[str, Any]) -> None:
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
    taped = names["train_with_a_tape"](run)
    np.testing.assert_allclose(taped.params["weights"], by_hand.params["weights"], atol=1e-4)
    np.testing.assert_allclose(taped.params["bias"], by_hand.params["bias"], atol=1e-4)
    moved = names["train_adversarially"](run)
    assert 0.5 < moved.params["weights"][0] < 1.99  # a flatter line is better off where inputs are moved against it
    options["optimizer"] = optax.sgd(0.1)
    stepped = run.fit(names["linear"], gradients=names["by_tape"], **options)
    np.testing.assert_allclose(stepped.params["weights"], by_hand.params["weights"], atol=1e-4)
    watched = run.fit(names["linear"], metrics=names["WATCHED"], eval_data=run.dataset().batch(64), **options)
    assert watched.history[-1].metrics["auc"] > 0.99
    assert watched.history[-1].metrics["r2"] == pytest.approx(1, abs=1e-3)
    by_table = names["train_tables"](run)
    assert by_table.history[-1].loss < by_table.history[0].loss


def test_several_losses_are_those_of_scikit_learn(tmp_path: Path, problem: ModuleType, names: dict[str, Any]) -> None:
    """Two outputs that share no parameter: each ends where the same weighted problem ends by itself."""
    linear_model = pytest.importorskip("sklearn.linear_model")
    random = np.random.default_rng(1)
    carat, depth = random.normal(size=(2, 2048)).astype(np.float32)
    cut = (2 * (carat + random.normal(size=2048) > 0) + (depth + random.normal(size=2048) > 0)).astype(np.int32)
    price = (2 * carat - depth + random.normal(size=2048)).astype(np.float32)
    columns = {"carat": carat, "depth": depth, "cut": cut, "log_price": price}
    content = problem.write(tmp_path, {"train": pa.table(columns), "eval": pa.table(columns)})
    trained = names["train_both"](TrainingRun(SPECS, content, epochs=100, batch_size=256))
    numbers = np.stack([carat, depth], axis=-1)
    line = linear_model.LinearRegression(fit_intercept=False).fit(numbers, price, sample_weight=np.abs(carat))
    np.testing.assert_allclose(trained.params["price"], line.coef_, atol=0.03)
    weights = np.asarray(names["CUT_WEIGHTS"])[cut]
    classes = linear_model.LogisticRegression(C=1e6, fit_intercept=False).fit(numbers, cut, sample_weight=weights)
    centred = trained.params["cut"] - trained.params["cut"].mean(axis=1, keepdims=True)
    np.testing.assert_allclose(centred, classes.coef_.T, atol=0.05)
    accuracy = (classes.predict(numbers) == cut).mean()
    assert trained.history[-1].metrics["cut_accuracy"] == pytest.approx(accuracy, abs=0.01)
