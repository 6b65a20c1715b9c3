"""`mlflow`: what a tracking server is sent; it answers as MLflow 3.17 was seen to."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from click.testing import Result

Json = dict[str, Any]
Command = Callable[..., Result]
Read = Callable[[Result], Json]
PREFIX = "/api/2.0/mlflow/"


class Tracking(ThreadingHTTPServer):
    """Experiments and runs in memory; a parameter never changes, a point is kept once."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.experiments: dict[str, str] = {}
        self.runs: dict[str, Json] = {}
        self.keys: set[str | None] = set()
        self.broken = False

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def answer(self, path: str, query: Json, body: Json) -> tuple[int, Json]:
        match path:
            case "experiments/get-by-name":
                name = query["experiment_name"][0]
                if name not in self.experiments:
                    return 404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": f"no experiment {name}"}
                return 200, {"experiment": {"experiment_id": self.experiments[name], "name": name}}
            case "experiments/create":
                self.experiments[body["name"]] = str(len(self.experiments))
                return 200, {"experiment_id": self.experiments[body["name"]]}
            case "runs/search":
                assert body["filter"].startswith("tags.`drivetrain.run` = '")
                wanted = body["filter"].split("'")[1]
                matching = [run for run in self.runs.values() if run["tags"].get("drivetrain.run") == wanted]
                return 200, {"runs": [{"info": {"run_id": run["run_id"]}} for run in matching]} if matching else {}
            case "runs/create":
                number = f"{len(self.runs):032x}"
                tags = {tag["key"]: tag["value"] for tag in body["tags"]}
                self.runs[number] = {**body, "run_id": number, "tags": tags, "params": {}, "points": set()}
                return 200, {"run": {"info": {"run_id": number}}}
            case "runs/log-batch":
                run = self.runs[body["run_id"]]
                assert len(body.get("metrics", [])) <= 1000
                assert len(body.get("params", [])) <= 100
                assert len(body.get("tags", [])) <= 100
                for each in body.get("params", []):
                    if run["params"].setdefault(each["key"], each["value"]) != each["value"]:
                        return 400, {"error_code": "INVALID_PARAMETER_VALUE"}
                run["tags"] |= {each["key"]: each["value"] for each in body.get("tags", [])}
                for each in body.get("metrics", []):
                    run["points"].add((each["key"], each["step"], each["value"], each["timestamp"]))
                return 200, {}
            case "runs/update":
                self.runs[body["run_id"]] |= body
                return 200, {}
        return 404, {"error_code": "ENDPOINT_NOT_FOUND"}


class Handler(BaseHTTPRequestHandler):
    server: Tracking

    def _answer(self) -> None:
        parts = urlsplit(self.path)
        assert parts.path.startswith(PREFIX)
        self.server.keys.add(self.headers.get("Authorization"))
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        status, answer = self.server.answer(parts.path.removeprefix(PREFIX), parse_qs(parts.query), body)
        data = b"<html>" if self.server.broken else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = _answer

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


@pytest.fixture
def tracking() -> Iterator[Tracking]:
    server = Tracking()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_runs_are_mirrored_once_each_with_all_that_is_known(
    shop: Path, tracking: Tracking, drivetrain: Command, last_json: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "a-secret-token")
    ends = (("-p", "rows=3", "--tag", "best=1", "--note", "the first"), ("-p", "rows=99"), ("-p", "fail=crash"))
    ids = [last_json(drivetrain("run", "shop", "--json", *words))["run"] for words in ends]
    to = ("--to", tracking.address, "--prefix", "team/")
    assert last_json(drivetrain("mlflow", *to, "--json"))["mirrored"] == 3
    assert tracking.experiments == {"team/shop": "0"}
    runs = {run["tags"]["drivetrain.run"]: run for run in tracking.runs.values()}
    assert [runs[each]["status"] for each in ids] == ["FINISHED", "KILLED", "FAILED"]
    first = runs[ids[0]]
    assert first["params"] == {"rows": "3", "limit": "10", "fail": "", "seconds": "0.0"}
    assert first["tags"]["best"] == "1"
    assert first["tags"]["mlflow.note.content"] == "the first"
    assert first["tags"]["artifact.Train.model"].startswith("artifacts/Train/")
    assert first["end_time"] >= first["start_time"] > 1_700_000_000_000
    assert runs[ids[1]]["tags"]["drivetrain.state"] == "STOPPED"
    assert tracking.keys == {"Bearer a-secret-token"}

    assert last_json(drivetrain("mlflow", *to, "--json"))["mirrored"] == 0
    assert drivetrain("mlflow", ids[0], *to).stdout == f"mirrored 1 run into {tracking.address}\n"
    drivetrain("tag", "--run", ids[1], "late")
    assert last_json(drivetrain("mlflow", *to, "--json"))["mirrored"] == 1
    assert len(tracking.runs) == 3
    assert runs[ids[1]]["tags"]["late"] == "true"


def test_metrics_go_with_their_steps_and_nodes(
    home_with_metrics: Path, tracking: Tracking, drivetrain: Command
) -> None:
    for _ in range(2):  # what is logged twice is there once
        assert drivetrain("mlflow", "--to", tracking.address, "--root", str(home_with_metrics)).exit_code == 0
    (run,) = tracking.runs.values()
    points = {(key, step, value) for key, step, value, _ in run["points"]}
    assert {("loss", 10, 0.5), ("loss", 20, 0.25), ("Judge/auc", 0, 0.9), ("Train/auc", 0, 0.8)} == points


@pytest.fixture
def home_with_metrics(tmp_path: Path) -> Path:
    from drivetrain.metadata import StagedArtifact
    from drivetrain.pipelines import Home

    home = Home(tmp_path / ".drivetrain")
    store = home.store
    run = store.context("run", "20261128-000000-abcd", {"pipeline": "p", "state": "COMPLETE", "tags": {}})
    train = store.start("Train", contexts=[run])
    steps = {"loss": [[10, 0.5], [20, 0.25]], "bad": [[1, None]]}
    facts = {"node": "Train", "metrics": {"loss": 0.25, "auc": 0.8}, "metric_steps": steps}
    store.publish(train, {}, properties=facts)
    judge = store.start("Judge", contexts=[run])
    new = StagedArtifact("Evaluation", "artifacts/Judge/1/out", "f", 1, {"metrics": {"auc": 0.9, "none": None}})
    store.publish(judge, {"out": [new]}, properties={"node": "Judge"})
    home.close()
    return tmp_path / ".drivetrain"


def test_a_server_that_is_none_is_the_users(shop: Path, tracking: Tracking, drivetrain: Command) -> None:
    drivetrain("run", "shop")
    for address, message in (
        ("ftp://ann:hunter2@host/x", "ftp://host/x is not a tracking server"),
        ("http://ann:hunter2@127.0.0.1:9/", "http://127.0.0.1:9 does not answer as MLflow does"),
    ):
        result = drivetrain("mlflow", "--to", address)
        assert result.exit_code == 2
        assert message in result.stderr
        assert "hunter2" not in result.stderr
    tracking.broken = True
    result = drivetrain("mlflow", "--to", tracking.address)
    assert (result.exit_code, "answers 404: <html>" in result.stderr) == (2, True)
    tracking.broken = False
    assert drivetrain("mlflow", "--to", tracking.address).exit_code == 0
