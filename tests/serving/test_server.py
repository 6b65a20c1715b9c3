"""The server as a user runs it: answers against NumPy, versions that come, go and are broken, an end without a loss."""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

pytest.importorskip("httptools")

import grpc
import uvloop
from click.testing import CliRunner
from drivetrain.components.pusher import push
from drivetrain.console.cli import cli
from drivetrain.console.exit_codes import USER_ERROR
from drivetrain.serving.api import StatusCode
from drivetrain.serving.client import Client, ServerError
from drivetrain.serving.config import ModelConfig, read_models
from drivetrain.serving.server import ServerOptions, bind
from drivetrain.tests.engine.bundles.test_for_serving import expected
from drivetrain.tests.serving.bundles import rows_of, write_network
from drivetrain.tests.serving.open_server import OpenServer, open_server
from drivetrain.tests.serving.running import RunningServer, serving

pytestmark = pytest.mark.engine
HIDDEN = 24
ROWS = [{"x": row["x"]} for row in rows_of(9).to_pylist()]


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Networks of one architecture, by seed."""
    folder = tmp_path_factory.mktemp("bundles")
    for seed in (1, 2, 3):
        write_network(folder / str(seed), seed, hidden=HIDDEN)
    return folder


@pytest.fixture(scope="module")
def server(bundles: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server of version 1, with the weights of seed 1."""
    folder = tmp_path_factory.mktemp("server")
    push(bundles / "1", folder / "models" / "net")
    (folder / "models.yaml").write_text("models:\n  net: {base_path: models/net}\n")
    with serving(folder, "--config", "models.yaml", "--poll", "0.1") as running:
        yield running


def ask(
    server: RunningServer | OpenServer, method: str, path: str, body: bytes | None = None
) -> tuple[int, dict[str, str], Any]:
    """Status, headers and JSON of an answer."""
    parts = urlsplit(server.address)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=30)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        data = answer.read()
        headers = {key.lower(): value for key, value in answer.getheaders()}
        return answer.status, headers, json.loads(data) if data.startswith(b"{") else data.decode()
    finally:
        connection.close()


def until(condition: Any, seconds: float = 30, pause: float = 0.02) -> None:
    """Wait for a condition, asking again after a pause of some seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(pause)


def test_every_format_gives_the_predictions_of_numpy(server: RunningServer) -> None:
    scores, x = expected(1, HIDDEN), [row["x"] for row in ROWS]
    bodies: list[tuple[str, Any, str]] = [
        ("predict", {"instances": [{"x": each} for each in x]}, "predictions"),
        ("predict", {"instances": x}, "predictions"),
        ("predict", {"inputs": x}, "outputs"),
        ("predict", {"inputs": {"x": x}, "signature_name": "serving_default"}, "outputs"),
        ("regress", {"examples": [{"x": each} for each in x]}, "results"),
    ]
    for verb, body, key in bodies:
        for count in (1, 2, 64, 65, 512):
            part = {name: (value[:count] if isinstance(value, list) else value) for name, value in body.items()}
            if isinstance(part.get("inputs"), dict):
                part["inputs"] = {"x": x[:count]}
            status, headers, answer = ask(server, "POST", f"/v1/models/net:{verb}", json.dumps(part).encode())
            assert status == 200, answer
            np.testing.assert_allclose(answer[key], scores[:count], atol=1e-6)
            assert headers["x-drivetrain-version"] == "1"
    status, _, answer = ask(server, "POST", "/v1/models/net:classify", json.dumps({"examples": ROWS[:2]}).encode())
    assert status == 200
    assert [row[0][0] for row in answer["results"]] == ["0", "0"]
    np.testing.assert_allclose([row[0][1] for row in answer["results"]], scores[:2], atol=1e-6)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not say what a process has loaded")
def test_what_it_does_not_need_is_not_loaded(server: RunningServer) -> None:
    status, _, answer = ask(server, "POST", "/v1/models/net:predict", json.dumps({"instances": ROWS[:3]}).encode())
    assert status == 200, answer
    loaded = Path(f"/proc/{server.process.pid}/maps").read_text()
    assert "/pyarrow/" in loaded
    assert "/pandas/" not in loaded
    assert "/scipy/linalg/cython_lapack" in loaded
    assert "/scipy/linalg/_flapack" not in loaded


def test_status_metadata_health_and_metrics(server: RunningServer) -> None:
    status, _, body = ask(server, "GET", "/v1/models/net")
    assert (status, body) == (
        200,
        {
            "model_version_status": [
                {"version": "1", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
            ]
        },
    )
    assert ask(server, "GET", "/v1/models/net/versions/1")[2] == body
    signature = ask(server, "GET", "/v1/models/net/metadata")[2]["metadata"]["signature_def"]["signature_def"]
    assert signature["serving_default"]["inputs"]["x"]["dtype"] == "DT_DOUBLE"
    assert signature["predict"]["outputs"]["score"]["tensor_shape"]["dim"] == [{"size": "-1", "name": ""}]
    # KServe's client reads the bodies, Triton's the statuses.
    for kind in ("live", "ready"):
        status, _, body = ask(server, "GET", f"/v2/health/{kind}")
        assert (status, body) == (200, {kind: True})
    before = ask(server, "GET", "/monitoring/prometheus/metrics")[2]
    ask(server, "POST", "/v1/models/net:predict", json.dumps({"instances": ROWS[:3]}).encode())
    after = ask(server, "GET", "/monitoring/prometheus/metrics")[2]

    def value(text: str, name: str) -> float:
        return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name))

    rows = 'drivetrain_serving_rows_total{model="net",version="1"}'
    assert value(after, rows) - value(before, rows) == 3
    # The names and labels that TensorFlow Serving's servables/tensorflow/util.cc has; its latency is in microseconds.
    for name, more in {
        ':tensorflow:serving:request_count{model_name="net",status="OK"}': 1,
        ':tensorflow:serving:request_example_count_total{model="net"}': 3,
        ':tensorflow:serving:request_latency_count{API="predict",entrypoint="REST",model_name="net"}': 1,
        ':tensorflow:serving:request_latency_bucket{API="predict",entrypoint="REST",le="+Inf",model_name="net"}': 1,
    }.items():
        assert value(after, name) - value(before, name) == more, name
    ends = [
        float(line.split('le="')[1].split('"')[0]) for line in after.splitlines() if "serving_seconds_bucket" in line
    ]
    micros = [
        float(line.split('le="')[1].split('"')[0]) for line in after.splitlines() if "request_latency_bucket" in line
    ]
    assert {*micros} == {1e6 * end for end in ends}
    seconds = value(after, 'drivetrain_serving_seconds_sum{model="net"')
    assert value(after, ":tensorflow:serving:request_latency_sum") == pytest.approx(1e6 * seconds)


def test_what_the_files_for_production_ask_for_is_there(server: RunningServer) -> None:
    """Probes, and the metrics and labels of the dashboard and the alerts."""
    files = Path(__file__).parents[2] / "examples" / "serving"
    manifests = "".join((files / name).read_text() for name in ("kubernetes.yaml", "kserve-runtime.yaml"))
    paths = {*re.findall(r"httpGet: \{path: ([^,]+),", manifests)}
    assert paths == {"/v2/health/live", "/v2/health/ready"}
    paths |= {*re.findall(r"prometheus\S+/path: (\S+)$", manifests, re.MULTILINE)}
    assert {path: ask(server, "GET", path)[0] for path in paths} == dict.fromkeys(paths, 200)
    assert len(paths) == 3
    ask(server, "POST", "/v1/models/net:predict", json.dumps({"instances": ROWS[:3]}).encode())
    ask(server, "POST", "/v1/models/net:predict", b"{}")
    samples: dict[str, set[str]] = {}
    for name, labels in re.findall(r"^([\w:]+)(?:\{(.*)\})? ", ask(server, "GET", "/metrics")[2], re.MULTILINE):
        samples.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
    dashboard = json.loads((files / "grafana-dashboard.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    queries += [variable["query"]["query"] for variable in dashboard["templating"]["list"][1:]]
    rules = yaml.safe_load((files / "prometheus-rules.yaml").read_text())["groups"][0]["rules"]
    # Of a server without rollouts: what rolled back is in test_rollout_serving.py.
    alerts = [rule["expr"] for rule in rules if rule["alert"] != "DrivetrainRolledBack"]
    for query in (*queries, *alerts):
        metrics = re.findall(r"\b(drivetrain_\w+)(?:\{([^}]*)\})?", query)
        assert metrics, query
        for name, labels in metrics:
            known = samples[name] | {"job", "instance"}  # which Prometheus adds
            assert {*re.findall(r"(\w+)[=!]", labels)} <= known, query
            assert {*re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", query)))} <= known, query
            assert {*re.findall(r"[A-Z_]{4,}", labels)} <= {code.name for code in StatusCode}, query
    assert {name for name in samples if name.startswith("drivetrain_")} >= {
        "drivetrain_serving_requests_total", "drivetrain_serving_rows_total", "drivetrain_serving_loaded",
    }  # fmt: skip


def test_the_open_inference_protocol(server: RunningServer) -> None:
    """JSON and binary tensors, as in `test_oip.py`, and the repository, whose models come and go."""
    scores, x = expected(1, HIDDEN), np.array([row["x"] for row in ROWS])
    for count in (1, 3, 64, 200):
        part = x[:count]
        plain = {"name": "x", "shape": list(part.shape), "datatype": "FP64", "data": part.reshape(-1).tolist()}
        body = json.dumps({"id": "q", "inputs": [plain]}).encode()
        status, headers, answer = ask(server, "POST", "/v2/models/net/infer", body)
        assert (status, answer["id"], headers["x-drivetrain-version"]) == (200, "q", "1")
        np.testing.assert_allclose(answer["outputs"][0]["data"], scores[:count], atol=1e-6)
        data = part.astype("<f4").tobytes()
        tensor = {"name": "x", "shape": list(part.shape), "datatype": "FP32"}
        inputs = [{**tensor, "parameters": {"binary_data_size": len(data)}}]
        head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
        parts = urlsplit(server.address)
        connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=30)
        length = {"Inference-Header-Content-Length": str(len(head))}
        connection.request("POST", "/v2/models/net/versions/1/infer", head + data, length)
        binary = connection.getresponse()
        received = binary.read()
        connection.close()
        numbers = np.frombuffer(received[int(str(binary.getheader("inference-header-content-length"))) :], "<f4")
        np.testing.assert_allclose(numbers, scores[:count], atol=1e-5)
    assert ask(server, "GET", "/v2")[2]["name"] == "drivetrain"
    assert ask(server, "GET", "/v2/models/net")[2]["outputs"][0] == {"name": "score", "datatype": "FP32", "shape": [-1]}
    assert ask(server, "POST", "/v2/models/net/infer", b'{"inputs": 1}')[0] == 400
    assert ask(server, "POST", "/v2/models/no/infer", b"{}")[0] == 404
    assert ask(server, "POST", "/v2/repository/models/net/unload")[0] == 200
    assert ask(server, "GET", "/v2/models/net/ready")[0] == 503
    assert ask(server, "POST", "/v1/models/net:predict", b'{"instances": [[1]]}')[0] == 503
    assert ask(server, "POST", "/v2/repository/models/net/load")[0] == 200
    assert ask(server, "GET", "/v2/models/net/ready")[0] == 200
    assert ask(server, "POST", "/v2/repository/models/no/load")[0] == 404


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("net:predict", b"", 400, "JSON"),
        ("net:predict", b"{", 400, "JSON"),
        ("net:predict", b"[1]", 400, "not an object"),
        ("net:predict", b"{}", 400, "neither 'instances' nor 'inputs'"),
        ("net:predict", b'{"instances": [], "inputs": []}', 400, "both"),
        ("net:predict", b'{"instances": []}', 400, "empty"),
        ("net:predict", b'{"instances": 1}', 400, "a number"),
        ("net:predict", b'{"instances": [1, {"x": [1]}]}', 400, "x"),
        ("net:predict", b'{"instances": [{"x": [1]}, 1]}', 400, "objects"),
        ("net:predict", b'{"instances": [{"y": [1]}]}', 400, "'x' is missing"),
        ("net:predict", b'{"instances": [{"x": [1]}, {"y": 1}]}', 400, "row 1 lacks 'x'"),
        ("net:predict", b'{"instances": [{"x": "text"}]}', 400, "'x'"),
        ("net:predict", b'{"instances": [{"x": [[1]]}]}', 400, "'x'"),
        ("net:predict", b'{"instances": [{"x": {"a": 1}}]}', 400, "'x'"),
        ("net:predict", b'{"instances": [{"x": [true]}]}', 400, "'x'"),
        ("net:predict", b'{"instances": [{"x": ["\xff"]}]}', 400, "JSON"),
        ("net:predict", b'{"instances": [{"x": ["\\ud800"]}]}', 400, ""),
        ("net:predict", b'{"instances": [{"x": [1' + b"0" * 5000 + b"]}]}", 400, ""),
        ("net:predict", b'{"instances": ' + b"[" * 200_000, 400, "nested too deeply"),
        ("net:predict", b'{"inputs": {"x": 3}}', 400, "a list"),
        ("net:predict", b'{"inputs": {"z": [3]}}', 400, "none of the model's inputs"),
        ("net:predict", b'{"instances": [[1]], "signature_name": 3}', 400, "signature_name"),
        ("net:predict", b'{"instances": [[1]], "signature_name": "pred"}', 400, "predict"),
        ("net:regress", b'{"instances": [[1]]}', 400, "examples"),
        ("net:regress", b'{"examples": [1]}', 400, "examples"),
        ("net:regress", b'{"examples": [{}], "context": 1}', 400, "context"),
        ("nett:predict", b"{}", 404, "did you mean 'net'"),
        ("net/versions/9:predict", b"{}", 404, "it serves 1"),
        ("net/labels/stable:predict", b"{}", 404, "no label"),
        (":predict", b"{}", 400, "Missing model name in request."),
        ("net:justify", b"{}", 400, "Malformed request: POST /v1/models/net:justify"),
        ("net:explain", b"{}", 400, "the body has no 'instances'"),
    ],
)
def test_a_bad_request_is_told_what_is_wrong(
    server: RunningServer, path: str, body: bytes, status: int, words: str
) -> None:
    answer = ask(server, "POST", f"/v1/models/{path}", body)
    assert (answer[0], list(answer[2])) == (status, ["error"]), answer
    assert words in answer[2]["error"]
    assert len(answer[2]["error"]) < 1000


def test_nan_and_infinity_are_numbers(server: RunningServer) -> None:
    body = b'{"instances": [[NaN, Infinity, -Infinity' + b", 0" * 13 + b"]]}"
    status, _, answer = ask(server, "POST", "/v1/models/net:predict", body)
    assert status == 200
    assert 0 <= answer["predictions"][0] <= 1 or np.isnan(answer["predictions"][0])


def test_bad_rows_among_good_ones_fail_alone(server: RunningServer) -> None:
    """Requests that come together are one batch; each client is answered for its own."""
    scores = expected(1, HIDDEN)
    outcomes: dict[int, tuple[int, Any]] = {}

    def send(at: int) -> None:
        row: Any = ROWS[at] if at % 4 else {"x": [None] * 15 + ["bad"]}
        status, _, answer = ask(server, "POST", "/v1/models/net:predict", json.dumps({"instances": [row]}).encode())
        outcomes[at] = status, answer

    threads = [threading.Thread(target=send, args=(at,)) for at in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 40
    for at, (status, answer) in outcomes.items():
        assert status == (200 if at % 4 else 400)
        if at % 4:
            assert answer["predictions"][0] == pytest.approx(scores[at], abs=1e-6)


def test_the_client_and_the_command(server: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drivetrain.serving.client_steps._FIRST_WAIT", 0.01)
    scores = expected(1, HIDDEN)
    with Client(server.address, "net") as client:
        prediction = client.predict(ROWS[:5])
        np.testing.assert_allclose(prediction.rows, scores[:5], atol=1e-6)
        assert (prediction.version, len(prediction.digest) > 10) == (1, True)
        assert client.status()[0]["state"] == "AVAILABLE"
        assert "predict" in client.metadata()["metadata"]["signature_def"]["signature_def"]
        with pytest.raises(ServerError, match="'x' is missing") as refused:
            client.predict([{"z": 1}])
        assert refused.value.status == 400
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS[:3]))
    url = f"{server.address}/v1/models/net"
    ran = CliRunner().invoke(cli, ["predict", url, str(tmp_path / "rows.jsonl"), "--json"])
    assert ran.exit_code == 0, ran.output
    np.testing.assert_allclose(json.loads(ran.output)["predictions"], scores[:3], atol=1e-6)
    ran = CliRunner().invoke(cli, ["predict", url, "--row", json.dumps(ROWS[0])])
    assert float(ran.output) == pytest.approx(scores[0], abs=1e-6)
    ran = CliRunner().invoke(cli, ["predict", "http://127.0.0.1:9/v1/models/net", "--row", "{}"])
    assert ran.exit_code != 0
    assert "does not answer" in ran.output
    for wrong, host in ((f"{server.address}/", server.address), ("net", "http://127.0.0.1:8501")):
        ran = CliRunner().invoke(cli, ["predict", wrong, "--row", "{}"])
        assert ran.exit_code == USER_ERROR
        assert f"fix: {host}/v1/models/NAME" in ran.output


def test_where_it_listens_is_printed(tmp_path: Path) -> None:
    """A port that was drawn is known to nobody else, that of gRPC neither."""
    arguments = ["serve", str(tmp_path / "net"), "--rest-port", "0", "--grpc-port", "0"]
    process = subprocess.Popen([sys.executable, "-m", "drivetrain", *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    late = threading.Timer(60, process.kill)
    late.start()
    try:
        lines = [process.stdout.readline() for _ in range(2)]
        _, _, address, _, target, *rest = lines[0].split()
        assert (f"{address} (REST), {target} (gRPC)" in lines[0], rest[-2:]) == (True, ["until", "Ctrl-C"])
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"http://{target}/v1/models/net", timeout=30)
        assert f"REST is at port {urlsplit(address).port} (--rest-port)" in json.load(caught.value)["error"]
        assert lines[1] == f"  {address}/v1/models/net\n"
        with grpc.insecure_channel(target) as channel:
            grpc.channel_ready_future(channel).result(30)
    finally:
        late.cancel()
        process.kill()
        process.wait(60)
        process.stdout.close()


def test_versions_come_and_go_under_load_without_an_error(bundles: Path, tmp_path: Path) -> None:
    """A push, a damaged push, a push, a rollback: each answer is that of the version it names."""
    base = tmp_path / "net"
    push(bundles / "1", base)
    scores = {1: expected(1, HIDDEN), 3: expected(3, HIDDEN)}
    wrong: list[Any] = []
    seen: set[int] = set()
    stop = threading.Event()

    def load(server: RunningServer) -> None:
        with Client(server.address, "net") as client:
            at = 0
            while not stop.is_set():
                at = (at + 1) % 500
                try:
                    answer = client.predict(ROWS[at : at + 2])
                except ServerError as error:
                    wrong.append(str(error))
                    return
                time.sleep(0.002)
                seen.add(answer.version)
                if not np.allclose(answer.rows, scores[answer.version][at : at + 2], atol=1e-6):
                    wrong.append((answer.version, at))

    with serving(tmp_path, str(base), "--poll", "0.05") as server:
        threads = [threading.Thread(target=load, args=(server,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        until(lambda: seen)
        (base / "2").mkdir()  # someone copies by hand, and only half of it came
        for name in ("manifest.json", "graph.json"):
            shutil.copy(bundles / "2" / name, base / "2" / name)

        def states() -> dict[str, str]:
            body = ask(server, "GET", "/v1/models/net")[2]["model_version_status"]
            return {version["version"]: version["state"] for version in body}

        until(lambda: states().get("2") == "END")
        assert states()["1"] == "AVAILABLE"
        reason = ask(server, "GET", "/v1/models/net/versions/2")[2]["model_version_status"][0]["status"]
        assert reason["error_code"] != "OK"
        assert reason["error_message"]
        push(bundles / "3", base)
        until(lambda: states().get("3") == "AVAILABLE" and states().get("1", "END") == "END")
        until(lambda: 3 in seen)
        for number in ("2", "3", "3.json"):  # rolled back by hand
            path = base / number
            path.rename(tmp_path / f"gone-{number}")
        until(lambda: states().get("1") == "AVAILABLE")
        base.rename(tmp_path / "away")  # storage is gone for a while
        until(lambda: f"waits for a version at {base}, which does not exist" in server.log.read_text())
        assert states()["1"] == "AVAILABLE"
        stop.set()
        for thread in threads:
            thread.join()
        assert server.end() == 0
    assert wrong == []
    assert seen == {1, 3}


def test_a_version_after_one_that_is_numbered_by_the_time_is_served(bundles: Path, tmp_path: Path) -> None:
    """TFX numbers versions by seconds, and Pusher goes on from there."""
    base = tmp_path / "net"
    shutil.copytree(bundles / "1", base / "1732800000")
    with (
        open_server(ServerOptions(poll_seconds=0.1), [ModelConfig("net", str(base))]) as server,
        Client(server.address, "net") as client,
    ):
        assert client.predict(ROWS[:1]).version == 1732800000
        assert push(bundles / "2", base)[0] == 1732800001
        until(lambda: client.predict(ROWS[:1]).version == 1732800001)


def test_a_split_is_kept_by_key(bundles: Path, tmp_path: Path) -> None:
    base = tmp_path / "net"
    for seed in (1, 2):
        push(bundles / str(seed), base)
    lines = "models: {net: {base_path: net, labels: {canary: 2}, traffic: {canary: 30}}}"
    (tmp_path / "models.yaml").write_text(lines)
    sides: list[dict[int, int]] = []
    for _ in range(2):  # over a restart
        with open_server(ServerOptions(), read_models(tmp_path / "models.yaml")) as server:
            side = {}
            for number in range(60):
                with Client(server.address, "net", key=f"customer {number}") as client:
                    side[number] = client.predict(ROWS[:1]).version
                    assert client.predict(ROWS[:1]).version == side[number]
            with Client(server.address, "net", label="canary", key="customer 0") as client:
                assert client.predict(ROWS[:1]).version == 2
            sides.append(side)
    assert sides[0] == sides[1]
    assert 5 < sum(version == 2 for version in sides[0].values()) < 35  # the newest, and yet not all


def test_an_end_under_load_loses_no_request(bundles: Path, tmp_path: Path) -> None:
    base = tmp_path / "net"
    push(bundles / "1", base)
    broken: list[str] = []
    answered = [0]

    def load(server: RunningServer) -> None:
        with Client(server.address, "net") as client:
            while True:
                try:
                    client.predict(ROWS[:1])
                    answered[0] += 1
                    time.sleep(0.002)
                except ServerError as error:
                    if "refused" not in str(error):  # the port is closed: a load balancer sends nobody there
                        broken.append(str(error))
                    return

    with serving(tmp_path, str(base), "--drain", "1") as server:
        threads = [threading.Thread(target=load, args=(server,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        until(lambda: answered[0] > 10)
        server.process.terminate()
        until(lambda: ask(server, "GET", "/v2/health/ready")[0] == 503)
        assert ask(server, "GET", "/v2/health/live")[0] == 200
        assert server.process.wait(30) == 0
        for thread in threads:
            thread.join()
    assert broken == []
    assert answered[0] > 10


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_no_part_of_an_answer_waits_until_the_one_before_is_acknowledged(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """As TCP has it without TCP_NODELAY, and clients take 40 ms for that."""

    async def option() -> int:
        accepted: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        class Accepting(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                taken = transport.get_extra_info("socket")
                accepted.set_result(taken.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
                transport.close()

        server = await asyncio.get_running_loop().create_server(Accepting, sock=bind("127.0.0.1", 0))
        async with server:
            with socket.create_connection(server.sockets[0].getsockname()):
                return await accepted

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(option()) != 0


def test_a_port_that_is_taken_and_an_address_without_versions(
    server: RunningServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    port = server.address.rpartition(":")[2]
    ran = CliRunner().invoke(cli, ["serve", str(tmp_path), "--rest-port", port])
    assert ran.exit_code == USER_ERROR
    assert f"cannot listen at 127.0.0.1:{port}" in ran.output
    (tmp_path / "models.yaml").write_text("models: {a: {base_path: a}}")
    for arguments, words in (((), "needs the address"), (("x", "--config", "models.yaml"), "needs the address"),
                             (("--config", "models.yaml", "--name", "a"), "are for a single model")):  # fmt: skip
        ran = CliRunner().invoke(cli, ["serve", *(str(tmp_path / a) if a.endswith("yaml") else a for a in arguments)])
        assert ran.exit_code == USER_ERROR
        assert words in ran.output
    nothing = ModelConfig("nothing", str(tmp_path / "nothing"))
    with (
        caplog.at_level(logging.INFO, "drivetrain.serving"),
        open_server(ServerOptions(poll_seconds=0.1, admin=False), [nothing]) as empty,
    ):
        assert ask(empty, "POST", "/v2/repository/models/nothing/load")[0] == 403
        assert ask(empty, "GET", "/v2/health/ready")[0] == 503
        status, headers, answer = ask(empty, "POST", "/v1/models/nothing:predict", b"{}")
        assert (status, headers["retry-after"]) == (503, "1")
        assert answer["error"] == "model 'nothing' has no version yet"  # no path of the server's
        waits = f"model nothing: waits for a version at {tmp_path / 'nothing'}, which does not exist yet"
        assert caplog.text.count(waits) == 1
    (tmp_path / "folder").mkdir()
    with serving(tmp_path / "folder", "../folder", "--poll", "0.1") as waiting:
        assert f"model folder: waits for a version at {tmp_path / 'folder'}\n" in waiting.log.read_text()


def test_a_folder_whose_surroundings_are_missing_is_a_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models.yaml").write_text("models: {flights: {base_path: served/flights}}")
    for arguments in (("served/flights",), ("--config", "models.yaml"), ("served/flights", "--workers", "2")):
        ran = CliRunner().invoke(cli, ["serve", "--rest-port", "0", *arguments])
        assert ran.exit_code == USER_ERROR
        assert f"there is no folder {tmp_path}/served, in which the versions of model 'flights' would" in ran.output
        assert "fix: mend the path" in ran.output


def test_grpc_beside_rest(bundles: Path, tmp_path: Path) -> None:
    """The same numbers by every protocol, one configuration for both, and an end for both."""
    import grpc
    from drivetrain.serving import protos

    push(bundles / "1", tmp_path / "net")
    scores, x = expected(1, HIDDEN), np.array([row["x"] for row in ROWS])
    with serving(tmp_path, "net", "--grpc-port", "0", "--poll", "0.1", "--request-log", "log") as server:
        assert server.grpc is not None
        with grpc.insecure_channel(server.grpc) as channel:

            def call(method: str, request: Any, answer: Any) -> Any:
                return answer.FromString(channel.unary_unary(method)(request.SerializeToString(), timeout=30))

            for count in (1, 5, 200):
                request = protos.PredictRequest()
                request.model_spec.name = "net"
                request.inputs["x"].dtype = 2
                request.inputs["x"].tensor_content = x[:count].astype("<f8").tobytes()
                for size in (count, 16):
                    request.inputs["x"].tensor_shape.dim.add(size=size)
                path = "/tensorflow.serving.PredictionService/Predict"
                response = call(path, request, protos.PredictResponse)
                values = response.outputs["score"]
                numbers = np.frombuffer(values.tensor_content, "<f4") if values.tensor_content else values.float_val
                np.testing.assert_allclose(numbers, scores[:count], atol=1e-6)
                assert response.model_spec.version.value == 1
                inference = protos.ModelInferRequest(model_name="net")
                inference.inputs.add(name="x", datatype="FP64", shape=[count, 16])
                inference.raw_input_contents.append(x[:count].astype("<f8").tobytes())
                path = "/inference.GRPCInferenceService/ModelInfer"
                inferred = call(path, inference, protos.ModelInferResponse)
                np.testing.assert_allclose(
                    np.frombuffer(inferred.raw_output_contents[0], "<f4"), scores[:count], atol=1e-6
                )
        rows = [line for line in ask(server, "GET", "/metrics")[2].splitlines() if "serving_rows_total{" in line]
        assert rows == ['drivetrain_serving_rows_total{model="net",version="1"} 412.0']
        assert server.end() == 0
    log = pq.read_table([*(tmp_path / "log" / "net" / "1").glob("*/*.parquet")])  # written when it was told to end
    assert log.num_rows == 412
    asked = {tuple(row): score for row, score in zip(x.tolist(), scores.tolist(), strict=True)}
    for row, score in zip(log["x"].to_pylist(), log["prediction_score"].to_pylist(), strict=True):
        assert score == pytest.approx(asked[tuple(row)], abs=1e-6)


@pytest.mark.parametrize("module", ["httptools", "uvloop", "msgspec"])
def test_a_missing_package_names_the_extra(module: str, tmp_path: Path) -> None:
    call = "from drivetrain.console.cli import cli; cli(['serve', 'x', '--rest-port', '0'])"
    code = f"import sys; sys.modules[{module!r}] = None; {call}"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ended.returncode == USER_ERROR
    fix = "fix: pip install 'drivetrain[serving]'"
    assert ended.stderr.splitlines() == [f"error: {module} is not installed", f"  {fix}"]


def test_a_server_that_starts_beside_a_damaged_newest_version_serves_the_one_before(
    bundles: Path, tmp_path: Path
) -> None:
    for seed in (1, 2, 3):
        push(bundles / str(seed), tmp_path / "net")
    weights = next((tmp_path / "net" / "3").glob("weights/*"))
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x07")
    with open_server(ServerOptions(poll_seconds=0.1), [ModelConfig("net", str(tmp_path / "net"))]) as server:
        status, headers, answer = ask(
            server, "POST", "/v1/models/net:predict", json.dumps({"instances": ROWS[:2]}).encode()
        )
        assert (status, headers["x-drivetrain-version"]) == (200, "2")
        np.testing.assert_allclose(answer["predictions"], expected(2, HIDDEN)[:2], atol=1e-6)
        states = {
            each["version"]: each["state"] for each in ask(server, "GET", "/v1/models/net")[2]["model_version_status"]
        }
        assert states == {"3": "END", "2": "AVAILABLE"}
        push(bundles / "1", tmp_path / "net")  # and a newer one that can be used takes over
        until(lambda: ask(server, "GET", "/v1/models/net/versions/4")[0] == 200)
        until(
            lambda: (
                ask(server, "POST", "/v1/models/net:predict", json.dumps({"instances": ROWS[:2]}).encode())[1][
                    "x-drivetrain-version"
                ]
                == "4"
            )
        )
