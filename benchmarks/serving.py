"""What the model server answers in a second, beside its own no-op: `python benchmarks/serving.py [--peers fastapi]`.

A network of 16 → 64 → 64 → 1 and the flights bundle, one row a request, REST, at 1, 16 and 64 connections, by `wrk` (of
Debian's packages) in one thread. Each cell is the median of passes that go through all cells in turn, since these
machines are noisy: only ratios count. `bare` is the network without metrics, split and log; `logged` has all of them,
and logs 10 % of the requests; `ramped` has a rollout at 10 % with a guard, `shadowed` a shadow of 10 %. Peers are
installed into environments of their own when they are named.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from drivetrain.benchmarks.common import Bars, flights, report
from drivetrain.tests.serving.bundles import rows_of, write_network

CONNECTIONS = (1, 16, 64)
BARS: Bars = {
    "network / no-op, 64 connections": (0.35, False),
    "flights / network, 64 connections": (0.5, False),
    "network, 64 connections: p99 ms": (10.0, True),
    "logged / bare, 64 connections": (0.75, False),
    "network / fastapi, 16 connections": (3.0, False),
    "network / fastapi, 64 connections": (3.0, False),
}
_FASTAPI = """
import sys, numpy as np, uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

weights = np.load(sys.argv[2])

class Request(BaseModel):
    instances: list[list[float]]

app = FastAPI()

@app.post("/v1/models/network:predict")
async def predict(request: Request) -> dict[str, list[float]]:
    x = np.array(request.instances, dtype=np.float32)
    logits = np.tanh(np.tanh(x @ weights["w0"]) @ weights["w1"]) @ weights["w2"]
    return {"predictions": (1 / (1 + np.exp(-logits[:, 0]))).tolist()}

uvicorn.run(app, port=int(sys.argv[1]), log_level="warning", access_log=False)
"""


_BARE = """
import sys
from drivetrain.serving.metrics import ServingMetrics

ServingMetrics.answered = lambda *_, **__: None
from drivetrain.console.cli import cli

cli(sys.argv[1:])
"""


class Target(NamedTuple):
    """What is asked: an address, and the body of a POST (None: a GET)."""

    url: str
    body: str | None


class Rate(NamedTuple):
    """Answers a second, and the latency in milliseconds that 99 of 100 keep."""

    qps: float
    p99: float


def wrk(target: Target, connections: int, seconds: float, folder: Path) -> Rate:
    """One pass.

    Raises:
        RuntimeError: An answer was not 200, or there was none.
    """
    script = folder / "request.lua"
    body = "" if target.body is None else f"wrk.method = 'POST'\nwrk.body = [==[{target.body}]==]\n"
    script.write_text(f"{body}wrk.headers['Content-Type'] = 'application/json'\n")
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds:g}s", "--latency", "-s", str(script), target.url]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if "Non-2xx" in text or "Socket errors" in text:
        raise RuntimeError(text)
    qps, percentile = re.search(r"Requests/sec:\s+([\d.]+)", text), re.search(r"99%\s+([\d.]+)(us|ms|s)", text)
    assert qps is not None, text
    assert percentile is not None, text
    return Rate(float(qps[1]), float(percentile[1]) * {"us": 1e-3, "ms": 1.0, "s": 1e3}[percentile[2]])


@contextmanager
def ours(folder: Path, models: Path, *, bare: bool = False) -> Iterator[str]:
    """Our server, or one that counts nothing; gives its address."""
    program = ["-c", _BARE] if bare else ["-m", "drivetrain"]
    command = [sys.executable, *program, "serve", "--json", "--rest-port", "0", "--config", str(models)]
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), "JAX_PLATFORMS": "cpu"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=folder) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["address"]
        finally:
            process.send_signal(signal.SIGTERM)


@contextmanager
def fastapi(folder: Path, port: int = 18080) -> Iterator[str]:
    """A hand-written server of the same network, in NumPy."""
    import numpy as np
    from drivetrain.tests.serving.bundles import weights

    environment = folder / "fastapi"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    python = environment / "bin" / "python"
    packages = ["fastapi", "uvicorn[standard]", "numpy"]
    subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
    np.savez(folder / "weights.npz", **weights(0, 64))  # type: ignore[arg-type]  # its stub means an option
    with subprocess.Popen([python, "-c", _FASTAPI, str(port), str(folder / "weights.npz")]) as process:
        try:
            _wait(f"http://127.0.0.1:{port}/docs")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.send_signal(signal.SIGTERM)


def _wait(url: str) -> None:
    for _ in range(200):
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError(f"{url} does not answer")


def write_models(folder: Path) -> dict[str, Target]:
    """The bundles, and what each is asked, by its path."""
    network = folder / "network"
    network.mkdir()
    write_network(network / "1", 0)
    shutil.rmtree(network / "1-transform")
    log = f"request_log: {{folder: {folder}/log, sample: 0.1, write_seconds: 5}}"
    lines = ["models:", f"  network: {{base_path: {network}}}"]
    lines.append(f"  logged: {{base_path: {network}, traffic: {{1: 10}}, {log}}}")
    versions = folder / "versions"
    versions.mkdir()
    for version, seed in ((1, 0), (2, 1)):
        write_network(versions / str(version), seed)
        shutil.rmtree(versions / f"{version}-transform")
    rollout = f"rollout: {{version: 1, steps: [{{share: 10}}], guard: {{drift: null}}, state: {folder}/state}}"
    lines.append(f"  ramped: {{base_path: {versions}, {rollout}}}")
    lines.append(f"  shadowed: {{base_path: {versions}, shadow: {{version: 1, sample: 0.1}}}}")
    x = rows_of(1, 1)["x"][0].as_py()
    targets = {
        "no-op": Target("/v2/health/live", None),
        "network": Target("/v1/models/network:predict", json.dumps({"instances": [x]})),
        **{
            name: Target(f"/v1/models/{name}:predict", json.dumps({"instances": [x]}))
            for name in ("logged", "ramped", "shadowed")
        },
    }
    trained = Path(__file__).parent.parent / "served" / "flights"
    if trained.is_dir():
        lines.append(f"  flights: {{base_path: {trained}}}")
        wanted = ("month", "hour", "dep_time", "sched_dep_time", "dep_delay", "distance", "carrier", "origin", "dest")
        row = {name: flights().slice(0, 1)[name][0].as_py() for name in wanted}
        targets["flights"] = Target("/v1/models/flights:predict", json.dumps({"instances": [row]}))
    (folder / "models.yaml").write_text("\n".join(lines) + "\n")
    return targets


def main() -> None:
    """Print the figures, each with its bar."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each cell")
    parser.add_argument("--peers", nargs="*", choices=["fastapi"], default=[])
    options = parser.parse_args()
    if shutil.which("wrk") is None:
        parser.error("wrk is not installed: apt-get install wrk")
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        folder = Path(scratch)
        targets = write_models(folder)
        address = stack.enter_context(ours(folder, folder / "models.yaml"))
        asked = {name: Target(address + target.url, target.body) for name, target in targets.items()}
        bare = stack.enter_context(ours(folder, folder / "models.yaml", bare=True))
        asked["bare"] = Target(bare + targets["network"].url, targets["network"].body)
        if "fastapi" in options.peers:
            peer = stack.enter_context(fastapi(folder))
            asked["fastapi"] = Target(peer + targets["network"].url, targets["network"].body)
        rates: dict[tuple[str, int], list[Rate]] = {}
        for turn in range(options.repeat + 1):
            for connections in CONNECTIONS:
                for name, target in asked.items():
                    rate = wrk(target, connections, options.seconds if turn else 1.0, folder)
                    if turn:
                        rates.setdefault((name, connections), []).append(rate)
    figures: dict[str, float] = {}
    middle = {cell: statistics.median(rate.qps for rate in each) for cell, each in rates.items()}
    for (name, connections), each in rates.items():
        figures[f"{name}, {connections} connections: QPS"] = middle[name, connections]
        figures[f"{name}, {connections} connections: p99 ms"] = statistics.median(rate.p99 for rate in each)
    for connections in CONNECTIONS:
        pairs = ("network", "no-op"), ("flights", "network"), ("logged", "network"), ("logged", "bare")
        others = ("ramped", "network"), ("shadowed", "network"), ("network", "fastapi")
        for above, below in (*pairs, *others):
            if above in asked and below in asked:
                ratio = middle[above, connections] / middle[below, connections]
                figures[f"{above} / {below}, {connections} connections"] = ratio
    report("serving", figures, BARS)


if __name__ == "__main__":
    main()
