"""The digits example: pixels of files are scikit-learn's, the network is better than its models, and it is served."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drivetrain.tests.examples import example_job, flights_job

pytest.importorskip("sklearn")
pytest.importorskip("PIL")
pytest.importorskip("tensorboardX")
pytestmark = [pytest.mark.slow, pytest.mark.engine, pytest.mark.timeout(900)]

PROJECT = flights_job.REPOSITORY / "examples" / "digits"


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> example_job.Example:
    root = tmp_path_factory.mktemp("digits") / ".drivetrain"
    done = flights_job.run(root, project=PROJECT, timeout=600)
    assert done.code == 0, (done.result, done.err)
    assert done.states == dict.fromkeys(["ExampleGen", "Pixels", *example_job.NODES], "COMPLETE")
    return example_job.Example(root, done, "Pixels")


def images(digits: example_job.Example, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Pixels [rows, 64] and labels."""
    rows = digits.rows(split)
    return example_job.matrix(rows, "pixels"), np.array(rows["label"].to_pylist(), np.int64)


def test_every_image_of_scikit_learn_is_in_one_split(digits: example_job.Example) -> None:
    from sklearn.datasets import load_digits

    expected, truth = load_digits(return_X_y=True)
    seen = []
    for split in ("train", "eval", "test"):
        pixels, labels = images(digits, split)
        numbers = [int(Path(path).stem) for path in digits.rows(split)["path"].to_pylist()]
        np.testing.assert_array_equal(pixels, np.minimum(expected[numbers] * 16, 255))
        np.testing.assert_array_equal(labels, truth[numbers])
        seen += numbers
    assert sorted(seen) == list(range(1797))


def test_the_network_is_better_than_a_linear_model_of_pixels(digits: example_job.Example) -> None:
    from drivetrain.engine import Bundle
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import accuracy_score, log_loss

    pixels, truth = images(digits, "test")
    bundle = Bundle.load(digits.done.path(digits.root, "Trainer", "model") / "content")
    batches = digits.rows("test").combine_chunks().to_batches()
    probabilities = np.concatenate([bundle.run("predict", batch)["probabilities"] for batch in batches])
    accuracy = accuracy_score(truth, probabilities.argmax(1))
    assert digits.metric("accuracy") == pytest.approx(accuracy)
    assert digits.metric("log_loss") == pytest.approx(log_loss(truth, probabilities), rel=1e-4)
    learnt, answers = images(digits, "train")
    linear = LogisticRegression(max_iter=5000).fit(learnt / 255, answers)
    linear_accuracy = accuracy_score(truth, linear.predict(pixels / 255))
    assert accuracy > linear_accuracy + 0.01
    page = (PROJECT / "README.md").read_text("utf-8")
    for name, value in {"this network": accuracy, "logistic regression": linear_accuracy}.items():
        (written,) = re.findall(rf"^\| {name}.*? \| ([\d.]+) % ", page, re.M)
        assert float(written) / 100 == pytest.approx(value, abs=0.01), name


def test_what_tensorboard_shows_is_with_the_model(digits: example_job.Example) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logs = digits.done.path(digits.root, "Trainer", "model") / "extra" / "logs"
    (folder,) = {path.parent for path in logs.rglob("events*")}
    events = EventAccumulator(str(folder)).Reload()
    curves = [tag for tag in events.Tags()["scalars"] if "accuracy" in tag]
    assert curves
    assert events.Scalars(curves[0])[-1].value > 0.9


def test_pixels_are_answered_by_the_server_without_the_project(digits: example_job.Example, tmp_path: Path) -> None:
    pytest.importorskip("httptools")
    from drivetrain.engine import Bundle
    from drivetrain.serving.client import Client
    from drivetrain.tests.serving.running import serving

    batch = digits.rows("test").slice(0, 20).combine_chunks().to_batches()[0]
    pixels = batch.column("pixels").to_pylist()
    here = Bundle.load(digits.done.path(digits.root, "Trainer", "model") / "content")
    expected = here.run("predict", batch)["probabilities"]
    with serving(tmp_path, str(digits.pushed().parent)) as server:
        with Client(server.address, "digits") as client:
            answer = client.predict([{"pixels": row} for row in pixels])
        np.testing.assert_allclose(answer.outputs["probabilities"], expected, atol=1e-5)
        command = [sys.executable, "-m", "drivetrain", "predict", f"{server.address}/v1/models/digits", "--json"]
        command += ["--row", json.dumps({"pixels": pixels[0]})]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, timeout=120)
        result: Any = json.loads(done.stdout)
        np.testing.assert_allclose(result["predictions"][0], expected[0], atol=1e-5)
