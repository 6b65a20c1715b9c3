"""A server on a GPU: its answers, where it computes, and how much of the GPU several workers take."""

from __future__ import annotations

import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("jax")

from drivetrain.tests.serving.bundles import rows_of, weights, write_network
from drivetrain.tests.serving.running import RunningServer, serving

pytestmark = [pytest.mark.engine, pytest.mark.gpu, pytest.mark.timeout(300)]

HIDDEN = 4096  # 34 million operations a row: a GPU is done first with one row already
ROWS = rows_of(5, 256)["x"].to_pylist()


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "net"
    folder.mkdir()
    write_network(folder / "1", 1, hidden=HIDDEN)
    return folder


def by_numpy(rows: list[list[float]]) -> np.ndarray:
    """The scores, in float64."""
    of = {name: array.astype(np.float64) for name, array in weights(1, HIDDEN).items()}
    logits = np.tanh(np.tanh(np.asarray(rows) @ of["w0"]) @ of["w1"]) @ of["w2"]
    scores: np.ndarray = 1 / (1 + np.exp(-logits[:, 0]))
    return scores


def predict(server: RunningServer, rows: list[list[float]]) -> list[float]:
    """The scores of a request with these rows."""
    body = json.dumps({"instances": rows}).encode()
    request = urllib.request.Request(f"{server.address}/v1/models/net:predict", body)
    with urllib.request.urlopen(request, timeout=60) as answer:
        scores: list[float] = json.load(answer)["predictions"]
    return scores


@pytest.fixture(autouse=True)
def as_a_user_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing said of the memory."""
    monkeypatch.delenv("XLA_PYTHON_CLIENT_PREALLOCATE", raising=False)


def test_answers_are_those_of_numpy_for_any_number_of_rows(models: Path, tmp_path: Path) -> None:
    from drivetrain.tests.gpu import Peak

    with Peak() as peak, serving(tmp_path, str(models)) as server:
        for size in (1, 3, 64, 65, 256):
            np.testing.assert_allclose(predict(server, ROWS[:size]), by_numpy(ROWS[:size]), atol=1e-2)
        with ThreadPoolExecutor(16) as pool:  # rows of many callers are computed together
            scores = list(pool.map(lambda row: predict(server, [row])[0], ROWS))
        np.testing.assert_allclose(scores, by_numpy(ROWS), atol=1e-2)
        assert server.end() == 0
    assert peak.bytes > 64 << 20  # it computed there: its weights alone are 64 MiB


def test_workers_take_what_they_need_and_leave_the_rest_to_each_other(models: Path, tmp_path: Path) -> None:
    from drivetrain.tests.gpu import Peak

    with Peak() as peak, serving(tmp_path, str(models), "--workers", "4") as server:
        with ThreadPoolExecutor(16) as pool:
            scores = list(pool.map(lambda row: predict(server, [row])[0], ROWS))
        np.testing.assert_allclose(scores, by_numpy(ROWS), atol=1e-2)
        assert server.end() == 0
    assert 4 * (64 << 20) < peak.bytes < 4 * (2 << 30)
