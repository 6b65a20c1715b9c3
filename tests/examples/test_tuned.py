"""The tuned example: what the search found is what was trained and pushed; its metric against scikit-learn's."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from drivetrain.tests.examples import flights_job as job

pytest.importorskip("optuna")
pytestmark = [pytest.mark.slow, pytest.mark.engine, pytest.mark.timeout(900)]


def test_the_best_of_the_search_is_what_is_pushed(tmp_path: Path) -> None:
    from drivetrain.engine import Bundle
    from sklearn.metrics import r2_score

    root = tmp_path / ".drivetrain"
    done = job.run(root, project=job.REPOSITORY / "examples" / "tuned", timeout=600)
    assert done.code == 0, (done.result, done.err)
    assert set(done.states.values()) == {"COMPLETE"}
    study = json.loads((done.path(root, "Tuner", "results") / "content" / "study.json").read_text())
    assert len(study["trials"]) == 12
    best = study["trials"][study["best"]]
    value = json.loads((done.path(root, "Tuner", "best_hyperparameters") / "content" / "value.json").read_text())
    assert value == best["hyperparameters"]
    for trial in study["trials"]:
        assert ("momentum" in trial["hyperparameters"]) == (trial["hyperparameters"]["optimizer"] == "sgd")
    model = done.path(root, "Trainer", "model")
    epochs = json.loads((model / "extra" / "history.json").read_text())["epochs"]
    assert [[epoch["eval_loss"]] for epoch in epochs] == best["curve"]
    assert best["values"]["eval_loss"] == min(
        trial["values"]["eval_loss"] for trial in study["trials"] if trial["state"] == "COMPLETE"
    )
    examples = done.path(root, "ExampleGen", "examples") / "content"
    rows = [pq.read_table(part) for part in sorted((examples / "split=test").glob("*.parquet"))]
    bundle = Bundle.load(model / "content")
    predicted, weights = [], []
    for table in rows:
        for batch in table.combine_chunks().to_batches():
            predicted.append(np.asarray(bundle.run("predict", batch)["predicted"]))
            weights += batch.column("body_mass_g").to_pylist()
    known = np.array([weight is not None for weight in weights])
    kilograms = np.array([weight or 0 for weight in weights]) / 1000
    assert r2_score(kilograms[known], np.concatenate(predicted)[known]) > 0.75
