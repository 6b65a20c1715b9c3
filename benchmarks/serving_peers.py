"""Other model servers, each serving the benchmark's network in NumPy from an environment of its own.

One process each, access logs off, so that what is compared is the server. `PEERS` says how each is installed, what its
program is and what it is asked; `start` installs it and gives its address.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

_NETWORK = """
import os
import numpy as np

weights = np.load(os.environ["NETWORK_WEIGHTS"])
w0, w1, w2 = weights["w0"], weights["w1"], weights["w2"]

def score(rows):
    x = np.asarray(rows, dtype=np.float32)
    return 1 / (1 + np.exp(-(np.tanh(np.tanh(x @ w0) @ w1) @ w2)[:, 0]))
"""

_FASTAPI = """
import os
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from network import score

class Request(BaseModel):
    instances: list[list[float]]

app = FastAPI()

@app.post("/v1/models/network:predict")
async def predict(request: Request) -> dict[str, list[float]]:
    return {"predictions": score(request.instances).tolist()}

uvicorn.run(app, port=int(os.environ["NETWORK_PORT"]), log_level="warning", access_log=False)
"""

_KSERVE = """
import logging
import os
from kserve import Model, ModelServer
from network import score

class Network(Model):
    def __init__(self):
        super().__init__("network")
        self.ready = True

    async def predict(self, payload, headers=None, response_headers=None):
        return {"predictions": score(payload["instances"]).tolist()}

logging.disable(logging.INFO)
ModelServer(http_port=int(os.environ["NETWORK_PORT"]), enable_grpc=False, workers=1).start([Network()])
"""

_KSERVE_GRPC = """
import logging
import os
from kserve import InferOutput, InferResponse, Model, ModelServer
from network import score

class Network(Model):
    def __init__(self):
        super().__init__("network")
        self.ready = True

    async def predict(self, payload, headers=None, response_headers=None):
        scores = score(payload.inputs[0].as_numpy())
        output = InferOutput("score", list(scores.shape), "FP32")
        output.set_data_from_numpy(scores)
        return InferResponse(payload.id, "network", [output])

logging.disable(logging.INFO)
ports = {"http_port": int(os.environ["NETWORK_PORT"]), "grpc_port": int(os.environ["GRPC_PORT"])}
ModelServer(**ports, workers=1).start([Network()])
"""

_MLSERVER = """
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse
from network import score

class Network(MLModel):
    async def predict(self, payload):
        rows = NumpyCodec.decode_input(payload.inputs[0])
        output = NumpyCodec.encode_output("score", score(rows))
        return InferenceResponse(model_name=self.name, outputs=[output])
"""

_BENTOML = """
import bentoml
from network import score

@bentoml.service(workers=1, logging={"access": {"enabled": False}})
class Network:
    @bentoml.api
    async def predict(self, instances: list[list[float]]) -> list[float]:
        return score(instances).tolist()
"""

_TRITON = """
import os
import sys

sys.path[:0] = os.environ["NETWORK_PATHS"].split(":")
import triton_python_backend_utils as backend
from network import score

class TritonPythonModel:
    def execute(self, requests):
        return [
            backend.InferenceResponse([
                backend.Tensor("score", score(backend.get_input_tensor_by_name(request, "x").as_numpy()))
            ])
            for request in requests
        ]
"""
_TRITON_CONFIG = """
name: "network"
backend: "python"
max_batch_size: 64
dynamic_batching {}
input [{ name: "x" data_type: TYPE_FP32 dims: [16] }]
output [{ name: "score" data_type: TYPE_FP32 dims: [1] reshape { shape: [] } }]
"""


@dataclass(frozen=True)
class Peer:
    """A server to compare with.

    Attributes:
        packages: What pip installs.
        files: Its files, by their path below its folder.
        command: Started in its folder; `{python}`, `{bin}`, `{site}`, `{folder}` and `{port}` are filled in.
        ready: The path that answers 200 once it serves.
        path: What is asked.
        protocol: `v1`: TensorFlow Serving's JSON; `v2`: the Open Inference Protocol's; `bentoml`: its own.
        environment: Variables, filled in like the command.
        address: What `start` gives, filled in likewise.
    """

    packages: Sequence[str]
    files: Mapping[str, str]
    command: Sequence[str]
    ready: str
    path: str = "/v1/models/network:predict"
    protocol: str = "v1"
    environment: Mapping[str, str] = field(default_factory=dict)
    address: str = "http://127.0.0.1:{port}"

    def body(self, row: Sequence[float]) -> str:
        """The request for one row of 16 numbers."""
        if self.protocol == "v2":
            tensor = {"name": "x", "shape": [1, len(row)], "datatype": "FP32", "data": list(row)}
            return json.dumps({"inputs": [tensor]})
        return json.dumps({"instances": [list(row)]})


PEERS: Mapping[str, Peer] = {
    "fastapi": Peer(
        ("fastapi", "uvicorn[standard]", "numpy"), {"server.py": _FASTAPI}, ("{python}", "server.py"), "/docs"
    ),
    "kserve": Peer(("kserve",), {"server.py": _KSERVE}, ("{python}", "server.py"), "/v1/models/network"),
    "mlserver": Peer(
        ("mlserver",),
        {
            "model.py": _MLSERVER,
            "model-settings.json": json.dumps({"name": "network", "implementation": "model.Network"}),
            "settings.json": json.dumps({"parallel_workers": 0, "debug": False, "metrics_endpoint": None}),
        },
        ("{bin}/mlserver", "start", "."),
        "/v2/models/network/ready",
        path="/v2/models/network/infer",
        protocol="v2",
        environment={"MLSERVER_HTTP_PORT": "{port}", "MLSERVER_GRPC_PORT": "{other_port}"},
    ),
    "bentoml": Peer(
        ("bentoml", "numpy"),
        {"service.py": _BENTOML},
        ("{bin}/bentoml", "serve", "service:Network", "--port", "{port}"),
        "/readyz",
        path="/predict",
        protocol="bentoml",
        environment={"BENTOML_HOME": "{folder}/home", "BENTOML_DO_NOT_TRACK": "True"},
    ),
    # Its Python backend alone is in the wheel, and wants Debian's Python 3.11 with libpython3.11.
    "triton": Peer(
        ("nvidia-pytriton==0.7.0", "numpy<2"),
        {"models/network/config.pbtxt": _TRITON_CONFIG, "models/network/1/model.py": _TRITON},
        (
            "{site}/pytriton/tritonserver/bin/tritonserver", "--model-repository={folder}/models",
            "--backend-directory={folder}/backends", "--http-address=127.0.0.1", "--http-port={port}",
            "--allow-grpc=false", "--allow-metrics=false", "--log-info=false",
        ),
        "/v2/models/network/ready",
        path="/v2/models/network/infer",
        protocol="v2",
        environment={
            "PATH": "/usr/bin:/bin", "PYTHONHOME": "/usr", "NETWORK_PATHS": "{folder}:{site}",
            "LD_LIBRARY_PATH": "{site}/nvidia_pytriton.libs",
        },
    ),
}  # fmt: skip

GRPC_PEERS: Mapping[str, Peer] = {
    "kserve": Peer(
        ("kserve",),
        {"server.py": _KSERVE_GRPC},
        ("{python}", "server.py"),
        "/v1/models/network",
        environment={"GRPC_PORT": "{other_port}"},
        address="http://127.0.0.1:{other_port}",
    )
}
"""Those that answer the Open Inference Protocol over gRPC, at the address that `start` gives."""


@contextmanager
def start(
    name: str, folder: Path, weights: Path, environments: Path | None = None, peer: Peer | None = None
) -> Iterator[str]:
    """Install a peer, start it and wait until it serves; gives its address.

    Args:
        name: One of `PEERS`.
        folder: Where its files go; created.
        weights: The network's, as an .npz of `w0`, `w1`, `w2`.
        environments: Where its environment goes, and is found again; None: below `folder`.
        peer: What it serves, where that is not the network.

    Raises:
        RuntimeError: It ended, or does not answer within two minutes.
    """
    peer = peer or PEERS[name]
    environment = (environments or folder) / name
    python = environment / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *peer.packages], check=True)
    (site,) = environment.glob("lib/python*/site-packages")
    for path, text in {"network.py": _NETWORK, **peer.files}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    if name == "triton":
        _lay_out_triton(folder, site)
    ports = {"port": _free_port(), "other_port": _free_port()}
    filled = {"python": python, "bin": python.parent, "site": site, "folder": folder, **ports}
    variables = {
        **os.environ, "NETWORK_WEIGHTS": str(weights), "NETWORK_PORT": str(ports["port"]), "DO_NOT_TRACK": "1",
        "OMP_NUM_THREADS": "1",
        **{variable: text.format(**filled) for variable, text in peer.environment.items()},
    }  # fmt: skip
    command = [word.format(**filled) for word in peer.command]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=variables, stdout=log, stderr=log, start_new_session=True)
    try:
        _wait(f"http://127.0.0.1:{ports['port']}{peer.ready}", process, folder / "log")
        yield peer.address.format(**filled)
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended by itself
            for child in psutil.Process(process.pid).children(recursive=True):  # BentoML's have groups of their own
                child.kill()
        process.kill()
        process.wait()


def _lay_out_triton(folder: Path, site: Path) -> None:
    """The server's backends, with the program that runs a model in Debian's Python 3.11."""
    backends = site / "pytriton" / "tritonserver" / "backends"
    shutil.copytree(backends, folder / "backends", dirs_exist_ok=True)
    stub = site / "pytriton" / "tritonserver" / "python_backend_stubs" / "3.11" / "triton_python_backend_stub"
    shutil.copy2(stub, folder / "backends" / "python" / stub.name)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(1200):
        if process.poll() is not None:
            raise RuntimeError(f"it ended with {process.returncode}: {log.read_text()[-2000:]}")
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError(f"{url} does not answer: {log.read_text()[-2000:]}")
