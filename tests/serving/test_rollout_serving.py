"""Rollouts and shadows of a server: by the admin API, over restarts, and over several workers."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import yaml

pytest.importorskip("httptools")

from drivetrain.components.pusher import push
from drivetrain.serving.config import read_models
from drivetrain.serving.rollout_control import RolloutAction
from drivetrain.serving.server import ServerOptions
from drivetrain.tests.engine.bundles.test_for_serving import expected
from drivetrain.tests.serving.bundles import rows_of, write_network
from drivetrain.tests.serving.open_server import OpenServer, open_server
from drivetrain.tests.serving.running import RunningServer, serving
from drivetrain.tests.serving.test_server import until
from drivetrain.tests.serving.test_workers import ask, workers_of

pytestmark = pytest.mark.engine
ROOT = Path(__file__).parents[2]
HIDDEN = 24
X = [row["x"] for row in rows_of(9).to_pylist()]
GUARD = "{window_seconds: 60, min_requests: 20, p99_ratio: null, refused_rate: null, drift: 0.25, min_predictions: 100}"


def write_models(folder: Path, steps: str, guard: str = GUARD, more: str = "") -> None:
    (folder / "models.yaml").write_text(
        f"models:\n  net:\n    base_path: net\n    rollout: {{steps: {steps}, guard: {guard}}}\n{more}"
    )


def serving_here(folder: Path, **options: Any) -> AbstractContextManager[OpenServer]:
    """A server of the models that were written, in this process."""
    return open_server(ServerOptions(poll_seconds=0.1, **options), read_models(folder / "models.yaml"))


@pytest.fixture(autouse=True)
def _decided_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rollouts of servers in this process are looked at all the time."""
    monkeypatch.setattr("drivetrain.serving.rollout_control.LOOK_SECONDS", 0.05)


def traffic(server: RunningServer | OpenServer) -> dict[str, Any]:
    status, body, _ = ask(server, "/v1/models/net/traffic", None)
    assert status == 200
    return dict(body)


def ask_all(server: RunningServer | OpenServer, rows: int = 8, requests: int = 60) -> Counter[str]:
    """The versions that answered, each as its own weights say."""
    versions: Counter[str] = Counter()
    for number in range(requests):
        start = number * rows % 400
        body = json.dumps({"instances": X[start : start + rows]}).encode()
        status, answer, headers = ask(server, "/v1/models/net:predict", body, key=str(number))
        assert status == 200
        version = headers["x-drivetrain-version"]
        np.testing.assert_allclose(
            answer["predictions"], expected(int(version), HIDDEN)[start : start + rows], atol=1e-6
        )
        versions[version] += 1
    return versions


def asked_by_the_alert() -> set[str]:
    """The metrics of the alert on rollbacks, after a look at its labels."""
    rules = yaml.safe_load((ROOT / "examples" / "serving" / "prometheus-rules.yaml").read_text())["groups"][0]["rules"]
    (alert,) = [rule for rule in rules if "rollbacks" in rule["expr"]]
    assert {*re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", alert["expr"])))} == {
        "job", "limit", "model", "version",
    }  # fmt: skip
    assert {*re.findall(r'limit!="(\w+)"', alert["expr"])} <= {*get_args(RolloutAction)}  # an operator's are no alarm
    return {*re.findall(r"drivetrain_\w+", alert["expr"])}


def candidate(server: RunningServer | OpenServer) -> Any:
    return traffic(server)["rollout"]["candidate"]


@pytest.mark.parametrize("workers", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_a_version_whose_predictions_drift_is_taken_back_for_good(
    tmp_path: Path, workers: str, caplog: pytest.LogCaptureFixture
) -> None:
    for seed in (1, 2):
        write_network(tmp_path / str(seed), seed, hidden=HIDDEN)
    push(tmp_path / "1", tmp_path / "net")
    write_models(tmp_path, "[{share: 0, minutes: 600}, {share: 50}]", more="    shadow: {}\n")

    def served() -> AbstractContextManager[RunningServer | OpenServer]:
        arguments = ("--config", "models.yaml", "--poll", "0.1", "--workers", workers)
        return serving_here(tmp_path) if workers == "1" else serving(tmp_path, *arguments)

    with caplog.at_level(logging.INFO, "drivetrain.serving"), served() as server:
        assert traffic(server)["current"] == 1
        push(tmp_path / "2", tmp_path / "net")
        until(lambda: candidate(server) == 2)
        # At no share, it is a shadow.
        until(lambda: ask_all(server, requests=4) == {"1": 4} and traffic(server)["shadows"])
        until(lambda: traffic(server)["shadows"][0]["outputs"])
        (shadow,) = traffic(server)["shadows"]
        assert (shadow["version"], shadow["answered_by"], shadow["errors"]) == (2, 1, {})
        assert shadow["outputs"]["score"]["differing_share"] == 1.0
        assert 0 < shadow["outputs"]["score"]["max_absolute_difference"] < 1
        for body in (b'{"instances": 3}', b'{"instances": [["text"]]}'):  # refused as JSON, and by the model
            assert ask(server, "/v1/models/net/versions/2:predict", body)[0] == 400
        until(lambda: traffic(server)["rollout"]["figures"]["candidate"]["requests"] == 2)
        assert traffic(server)["rollout"]["figures"]["candidate"]["refused_rate"] == 1.0
        assert ask(server, "/v1/models/net/rollout/hold", b'{"version": 7}')[0] == 400
        status, body, _ = ask(server, "/v1/models/net/rollout/advance", b"")
        assert (status, body["shares"]) == (200, {"2": 50})
        versions = ask_all(server)
        assert set(versions) == {"1", "2"}
        until(lambda: ask_all(server) and candidate(server) is None, pause=0.3)
        failed = traffic(server)["rollout"]["failed"]
        assert [(each["version"], each["limit"]) for each in failed] == [(2, "drift")]
        assert ask_all(server) == {"1": 60}
        if isinstance(server, RunningServer):  # another that takes the place of one knows it, too
            killed = workers_of(server).pop()
            os.kill(killed, signal.SIGKILL)
            until(lambda: len(workers_of(server) - {killed}) == 2)
            assert ask_all(server) == {"1": 60}
        metrics = ask(server, "/metrics", None)[1]
        assert 'drivetrain_serving_rollbacks_total{limit="drift",model="net",version="2"} 1.0' in metrics
        assert asked_by_the_alert() == {"drivetrain_serving_rollbacks_total"}
        assert 'drivetrain_serving_traffic_share{model="net",version="1"} 100.0' in metrics
        log = server.log.read_text() if isinstance(server, RunningServer) else caplog.text
        assert "population stability index" in log
        if isinstance(server, RunningServer):
            assert server.end() == 0
    with served() as server:
        assert traffic(server)["current"] == 1
        assert ask_all(server) == {"1": 60}
        assert ask(server, "/v1/models/net/rollout/retry", b"")[0] == 200
        until(lambda: candidate(server) == 2)


def test_a_rollout_that_goes_well_ends_with_the_new_version(tmp_path: Path) -> None:
    for seed in (1, 2):
        write_network(tmp_path / str(seed), seed, hidden=HIDDEN)
    push(tmp_path / "1", tmp_path / "net")
    write_models(
        tmp_path,
        "[{share: 20, minutes: 0.003}, {share: 100, minutes: 0.003}]",
        "{drift: null, p99_ratio: null, min_requests: 5}",
    )
    with serving_here(tmp_path, admin=False) as server:
        push(tmp_path / "2", tmp_path / "net")
        until(lambda: ask_all(server, requests=30) and traffic(server)["current"] == 2, pause=0.05)
        assert ask_all(server) == {"2": 60}
        status, body, _ = ask(server, "/v1/models/net/rollout/abort", b"")
        assert (status, "--admin" in body["error"]) == (403, True)
    with serving_here(tmp_path) as server:
        assert ask_all(server, requests=4) == {"2": 4}
        status, body, _ = ask(server, "/v1/models/net/rollout/rollback", b'{"version": 2}')
        assert (status, body["current"], body["rollout"]["previous"]) == (200, 1, None)
        assert ask_all(server) == {"1": 60}  # at once
        metrics = ask(server, "/metrics", None)[1]
        assert 'drivetrain_serving_rollbacks_total{limit="rollback",model="net",version="2"} 1.0' in metrics
        assert ask(server, "/v1/models/net/rollout/rollback", b"")[0] == 400
