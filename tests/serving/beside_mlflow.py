"""MLflow's own client put to our registry: `python -m drivetrain.tests.serving.beside_mlflow PYTHON`.

PYTHON is that of an environment with `mlflow-skinny`. Its requests and our answers to them are written to
data/mlflow_registry.json, with what the client made of the answers, which test_mlflow_registry.py plays back.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from drivetrain.metadata import ArtifactRecord, MetadataStore, StagedArtifact
from drivetrain.metadata.approvals import ApprovalRule
from drivetrain.metadata.registry import Registry
from drivetrain.serving.mlflow_registry import MlflowRegistry

RECORDED = Path(__file__).with_name("data") / "mlflow_registry.json"
_BEGIN = 1_790_000_000_000_000  # microseconds since 1970: every change comes a second after the one before

CALLS = """
c.get_registered_model("flights")
c.get_registered_model("nothing")
c.search_registered_models()
c.search_registered_models("name = 'flights'")
c.search_registered_models("name LIKE 'f%' AND tags.team = 'ops'")
c.search_registered_models("name ILIKE '%TAXI%'")
c.search_registered_models("size = 3")
c.search_registered_models(max_results=1, order_by=["name DESC"])
c.search_registered_models(max_results=1, order_by=["name DESC"], page_token="1")
c.get_model_version("flights", "2")
c.get_model_version("flights", "9")
c.get_model_version_by_alias("flights", "champion")
c.get_model_version_by_alias("flights", "latest")
c.get_model_version_by_alias("flights", "nothing")
c.get_model_version_download_uri("flights", "1")
c.get_latest_versions("flights")
c.search_model_versions("name = 'flights'")
c.search_model_versions("name = 'flights' and version_number > 1")
c.search_model_versions("run_id IN ('run-1', 'run-3')")
c.search_model_versions("tags.`auc` = '0.91'", order_by=["version_number ASC"])
c.search_model_versions("name = 'flights'", max_results=2)
c.set_registered_model_alias("flights", "champion", "1")
c.create_registered_model("mine")
c.delete_registered_model("flights")
c.create_model_version("flights", "s3://x/y")
c.set_registered_model_tag("flights", "a", "b")
c.search_experiments()
mlflow.artifacts.download_artifacts("models:/flights@champion") and sorted(
    path.name for path in pathlib.Path(mlflow.artifacts.download_artifacts("models:/flights@champion")).iterdir())
mlflow.artifacts.download_artifacts("models:/flights/1") and "downloaded"
"""

CLIENT = """
import ast, json, pathlib, sys
import mlflow
from mlflow import MlflowClient
from mlflow.entities.model_registry import ModelVersion, RegisteredModel

def plain(value):
    if isinstance(value, list):
        return [plain(each) for each in value] + ([{"token": value.token}] if getattr(value, "token", None) else [])
    if isinstance(value, (ModelVersion, RegisteredModel)):
        return {name: plain(held) for name, held in value if held not in (None, [], {}, "")}
    if isinstance(value, dict):
        return {name: plain(held) for name, held in value.items()}
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)

mlflow.set_tracking_uri(sys.argv[1])
c = MlflowClient(sys.argv[1], sys.argv[1])
for statement in ast.parse(sys.stdin.read()).body:
    call = ast.unparse(statement)
    try:
        value = plain(eval(call))
    except Exception as error:
        value = {"error": type(error).__name__, "code": getattr(error, "error_code", ""), "says": str(error)[:120]}
    print(json.dumps([call, value]), flush=True)
"""


def registered(path: Path) -> Registry:
    """Two registered models, the same each time: three versions of one, aliases, tags, a rule, approvals."""
    now = [_BEGIN]

    def clock() -> int:
        now[0] += 1_000_000
        return now[0]

    store = MetadataStore.open(path, clock=clock)
    registry = Registry(store)
    for number, name in enumerate(["flights", "flights", "taxi-late", "flights"], 1):
        run = store.context("run", f"run-{number}", {"by": "ada"})
        execution = store.start("Trainer", contexts=[run])
        new = StagedArtifact("Model", f"artifacts/Trainer/{execution.uid}/model", f"{number:064}", 1)
        (model,) = store.publish(execution, {"model": [new]})["model"]
        registry.register(name, model, by="ada", why=f"of month {number}")
    registry.describe("flights", description="Whether a flight is late.", tags={"team": "ops"}, by="ada")
    registry.describe("flights", 2, description="With weather.", tags={"auc": "0.91"}, by="ada")
    registry.require("flights", "champion", ApprovalRule(), by="ada")
    registry.answer("flights", 2, approved=True, by="bob")
    registry.set_alias("flights", "champion", 2, by="ada")
    registry.set_alias("flights", "challenger", 3, by="ada")
    return registry


def folder_of(model: ArtifactRecord) -> str:
    """Where the files of a model of `registered` lie."""
    return f"file:///tmp/drivetrain-registered/{int(model.fingerprint)}"


def main() -> None:
    """Record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("python")
    python = parser.parse_args().python
    exchanges: list[dict[str, Any]] = []
    for number in range(1, 5):  # for the client to copy
        folder = Path(f"/tmp/drivetrain-registered/{number}")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "manifest.json").write_text("{}")
    with tempfile.TemporaryDirectory() as scratch:
        models = MlflowRegistry(registered(Path(scratch) / "metadata.db"), folder_of)

        class Door(BaseHTTPRequestHandler):
            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                status, reply = models.answer(self.command, self.path, body)
                exchanges.append(
                    {"method": self.command, "target": self.path, "body": body.decode(), "status": status}
                    | {"answer": reply, "agent": self.headers["user-agent"]}
                )
                data = json.dumps(reply).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PATCH = do_DELETE = answer

            def log_message(self, *arguments: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Door)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        client = subprocess.Popen(
            [python, "-c", CLIENT, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={"PATH": "/usr/bin:/bin", "HOME": scratch, "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"},
        )  # fmt: skip
        output, _ = client.communicate(CALLS, timeout=300)
        server.shutdown()
    calls = [json.loads(line) for line in output.splitlines()]
    for call, value in calls:
        print(call, "\n   ", json.dumps(value)[:300])
    if client.returncode:
        sys.exit(client.returncode)
    RECORDED.write_text(json.dumps({"calls": calls, "exchanges": exchanges}, indent=1) + "\n")


if __name__ == "__main__":
    main()
