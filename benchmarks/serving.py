"""What the model server answers in a second, beside its own no-op: `python benchmarks/serving.py [--peers kserve …]`.

A network of 16 → 64 → 64 → 1 and the flights bundle, one row a request, REST, at 1, 16 and 64 connections, by `wrk` (of
Debian's packages) in one thread. Each cell is the median of passes that go through all cells in turn, since these
machines are noisy: only ratios count. `bare` is the network without metrics, split and log; `logged` has all of them,
and logs 10 % of the requests; `ramped` has a rollout at 10 % with a guard, `shadowed` a shadow of 10 %. Peers are
installed into environments of their own when they are named.

The network over gRPC, as the Open Inference Protocol has it, by `h2load` (of Debian's nghttp2-client), one call at a
time on each connection, beside the call of the same service that computes nothing, and beside one that computes nothing
in a bare server of gRPC's own library (`grpc.aio`). Then how long a server takes from its start until it is ready, and
what it costs to take over new versions of the network while it is idle.
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
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import grpc
import numpy as np
import psutil
from drivetrain.benchmarks.common import Bars, flights, report
from drivetrain.benchmarks.serving_peers import GRPC_PEERS, PEERS, start
from drivetrain.serving.protos import message_class
from drivetrain.tests.serving.bundles import rows_of, weights, write_network

CONNECTIONS = (1, 16, 64)
FLIGHTS: Final = Path(__file__).parent.parent / "served" / "flights"
"""What the example has pushed, where it ran."""
BARS: Bars = {
    "network / no-op, 64 connections": (0.35, False),
    "flights / network, 64 connections": (0.5, False),
    "network, 64 connections: p99 ms": (10.0, True),
    "logged / bare, 64 connections": (0.75, False),
    "network / fastapi, 16 connections": (3.0, False),
    "network / fastapi, 64 connections": (3.0, False),
    "network / kserve, 16 connections": (6.0, False),
    "network / kserve, 64 connections": (8.0, False),
    "network / kserve, 64 connections: p99": (1 / 8, True),
    "network / mlserver, 16 connections": (7.0, False),
    "network / mlserver, 64 connections": (8.0, False),
    "network / bentoml, 16 connections": (15.0, False),
    "network / bentoml, 64 connections": (15.0, False),
    "network / triton, 16 connections": (1.0, False),
    "network / triton, 64 connections": (1.0, False),
    "gRPC network / gRPC no-op, 16 connections": (0.6, False),
    "gRPC network / gRPC no-op, 64 connections": (0.6, False),
    "gRPC network / gRPC kserve, 16 connections": (1.5, False),
    "gRPC network / gRPC kserve, 64 connections": (1.5, False),
    "network, cold: start to ready s": (3.0, True),
    "flights, compilations kept: start to ready s": (3.0, True),
    "a new version: compilations": (0.0, True),
}
_SERVICE: Final = "inference.GRPCInferenceService"
_SWAPS: Final = 5
_COMPILED: Final = "Finished XLA compilation"  # what JAX says of each
_BARE = """
import sys
from drivetrain.serving.metrics import ServingMetrics

ServingMetrics.answered = lambda *_, **__: None
from drivetrain.console.cli import cli

cli(sys.argv[1:])
"""


_AIO = """
import asyncio
import sys

import grpc.aio

async def main() -> None:
    async def live(content, context):
        return b"\\x08\\x01"

    server = grpc.aio.server()
    handlers = {"ServerLive": grpc.unary_unary_rpc_method_handler(live)}
    service = grpc.method_handlers_generic_handler("inference.GRPCInferenceService", handlers)
    server.add_generic_rpc_handlers((service,))
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    await server.start()
    await server.wait_for_termination()

asyncio.run(main())
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
    command = [
        "wrk",
        "-t1",
        f"-c{connections}",
        f"-d{seconds:g}s",
        "--latency",
        "--timeout",
        "30s",
        "-s",
        str(script),
        target.url,
    ]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if "Non-2xx" in text or "Socket errors" in text:
        raise RuntimeError(text)
    qps, percentile = re.search(r"Requests/sec:\s+([\d.]+)", text), re.search(r"99%\s+([\d.]+)(us|ms|s)", text)
    assert qps is not None, text
    assert percentile is not None, text
    return Rate(float(qps[1]), float(percentile[1]) * {"us": 1e-3, "ms": 1.0, "s": 1e3}[percentile[2]])


class GrpcRate(NamedTuple):
    """Answers a second, and the server's CPU in microseconds for each."""

    qps: float
    cpu: float


class GrpcTarget(NamedTuple):
    """What is called: an address, a method of the Open Inference Protocol's service, and the bytes of its message."""

    address: str
    method: str
    message: bytes


def h2load(target: GrpcTarget, connections: int, seconds: float, folder: Path) -> GrpcRate:
    """One pass.

    Raises:
        RuntimeError: A call failed.
    """
    path = f"/{_SERVICE}/{target.method}"
    # It counts what comes with HTTP's status 200, as gRPC's errors do: one call shows that there is none.
    with grpc.insecure_channel(target.address.removeprefix("http://")) as channel:
        channel.unary_unary(path)(target.message, timeout=30)
    frame = folder / "frame"
    frame.write_bytes(b"\0" + len(target.message).to_bytes(4, "big") + target.message)
    headers = ["-H", "content-type: application/grpc", "-H", "te: trailers"]
    command = ["h2load", "-t1", f"-c{connections}", "-m1", f"-D{seconds:g}", f"-d{frame}", *headers]
    server = _listener(target.address)
    before = _cpu_seconds(server)
    text = subprocess.run([*command, target.address + path], capture_output=True, text=True, check=True).stdout
    cpu = _cpu_seconds(server) - before
    rate, failures = re.search(r", ([\d.]+) req/s", text), re.search(r"(\d+) failed, (\d+) errored", text)
    if rate is None or failures is None or failures.groups() != ("0", "0"):
        raise RuntimeError(text)
    return GrpcRate(float(rate[1]), cpu / (float(rate[1]) * seconds) * 1e6)


def _listener(address: str) -> psutil.Process:
    """The process that listens at an address of this machine."""
    port = int(address.rpartition(":")[2])
    listening = (each for each in psutil.net_connections("tcp") if each.status == psutil.CONN_LISTEN)
    return psutil.Process(next(each.pid for each in listening if each.laddr and each.laddr.port == port))


@contextmanager
def bare_grpc() -> Iterator[str]:
    """A server of gRPC's own library, of which the one method computes nothing: its address."""
    with subprocess.Popen([sys.executable, "-c", _AIO], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


def grpc_targets(address: str, bare: str, row: list[float], peers: Mapping[str, str]) -> dict[str, GrpcTarget]:
    """The calls that compute nothing, and the network of this server and of others, by their addresses."""
    request = message_class("inference.ModelInferRequest")(model_name="network")
    request.inputs.add(name="x", datatype="FP32", shape=[1, len(row)])
    request.raw_input_contents.append(np.array(row, "<f4").tobytes())
    infer = request.SerializeToString()
    targets = {
        "no-op": GrpcTarget(address, "ServerLive", b""),
        "grpc.aio no-op": GrpcTarget(bare, "ServerLive", b""),
        "network": GrpcTarget(address, "ModelInfer", infer),
    }
    return {**targets, **{name: GrpcTarget(peer, "ModelInfer", infer) for name, peer in peers.items()}}


class OurServer(NamedTuple):
    """A server of ours.

    Attributes:
        process: What it runs in.
        rest: Where it answers HTTP, "http://127.0.0.1:8501".
        grpc: Where it answers gRPC, likewise.
        seconds: From its start until it was ready.
    """

    process: psutil.Process
    rest: str
    grpc: str
    seconds: float


@contextmanager
def ours(folder: Path, *models: str, bare: bool = False, log: Path | None = None) -> Iterator[OurServer]:
    """Our server, or one that counts nothing.

    Args:
        folder: With `cache`, where compilations are kept.
        models: What it serves, as its command line has it.
        bare: Whether it counts nothing.
        log: Where its errors go, with each compilation.
    """
    program = ["-c", _BARE] if bare else ["-m", "drivetrain"]
    command = [sys.executable, *program, "serve", *models, "--json", "--rest-port", "0", "--grpc-port", "0"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), "JAX_PLATFORMS": "cpu"}
    with ExitStack() as stack:
        errors = None
        if log is not None:
            environment["JAX_LOG_COMPILES"] = "1"
            errors = stack.enter_context(log.open("w"))
        started = time.monotonic()
        process = stack.enter_context(
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment, cwd=folder)
        )
        stack.callback(process.send_signal, signal.SIGTERM)
        assert process.stdout is not None
        listening = json.loads(process.stdout.readline())
        assert listening["ready"], listening
        seconds = time.monotonic() - started
        yield OurServer(psutil.Process(process.pid), listening["address"], f"http://{listening['grpc']}", seconds)


def start_seconds(folder: Path, address: Path, repeat: int, *, cold: bool) -> float:
    """From the start of a server with one model until it is ready: the median.

    Args:
        folder: For `cache`.
        address: Of the model.
        repeat: How many starts count.
        cold: Whether nothing was compiled before; else a start that does not count compiles.
    """
    seconds = []
    for turn in range(repeat if cold else repeat + 1):
        if cold:
            shutil.rmtree(folder / "cache", ignore_errors=True)
        with ours(folder, str(address)) as server:
            if cold or turn:
                seconds.append(server.seconds)
    return statistics.median(seconds)


def swaps(folder: Path) -> dict[str, float]:
    """What it costs a server to take over versions of the network, each with weights of its own.

    Returns:
        Compilations of all of them, and the medians of a swap's CPU seconds and of the seconds until clients have it.
    """
    models, waiting = folder / "swapped", folder / "waiting"
    models.mkdir()
    waiting.mkdir()
    write_network(models / "1", 0)
    shutil.rmtree(models / "1-transform")
    for version in range(2, _SWAPS + 2):
        write_network(waiting / str(version), version)
    log = folder / "compilations"
    with ours(folder, str(models), "--poll", "0.05", log=log) as server:
        before = log.read_text().count(_COMPILED)
        assert before, "compilations are logged"
        cpu, seconds = [], []
        for version in range(2, _SWAPS + 2):
            idle = _cpu_seconds(server.process)
            time.sleep(1)
            idle = _cpu_seconds(server.process) - idle  # of looking for versions
            begun, begun_cpu = time.monotonic(), _cpu_seconds(server.process)
            (waiting / str(version)).rename(models / str(version))
            while _version_of(server.rest) != version:
                time.sleep(0.005)
            seconds.append(time.monotonic() - begun)
            time.sleep(max(begun + 1 - time.monotonic(), 0))
            cpu.append(_cpu_seconds(server.process) - begun_cpu - idle)
        compiled = log.read_text().count(_COMPILED) - before
    return {
        "a new version: compilations": compiled,
        "a new version: CPU s": statistics.median(cpu),
        "a new version: until it answers s": statistics.median(seconds),
    }


def _cpu_seconds(process: psutil.Process) -> float:
    times = [each.cpu_times() for each in (process, *process.children(recursive=True))]
    return float(sum(each.user + each.system for each in times))


def _version_of(address: str) -> int:
    with urllib.request.urlopen(f"{address}/v2/models/swapped") as answer:
        return int(answer.headers["x-drivetrain-version"])


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
    if FLIGHTS.is_dir():
        lines.append(f"  flights: {{base_path: {FLIGHTS}}}")
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
    parser.add_argument("--peers", nargs="*", choices=list(PEERS), default=[])
    parser.add_argument("--grpc-only", action="store_true", help="neither REST nor starts nor new versions")
    parser.add_argument("--environments", type=Path, help="where peers are installed, and found by the next run")
    options = parser.parse_args()
    for program, package in (("wrk", "wrk"), ("h2load", "nghttp2-client")):
        if shutil.which(program) is None:
            parser.error(f"{program} is not installed: apt-get install {package}")
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        folder = Path(scratch)
        targets = write_models(folder)
        server = stack.enter_context(ours(folder, "--config", "models.yaml"))
        asked: dict[str, Target] = {}
        if not options.grpc_only:
            asked = {name: Target(server.rest + target.url, target.body) for name, target in targets.items()}
            bare = stack.enter_context(ours(folder, "--config", "models.yaml", bare=True))
            asked["bare"] = Target(bare.rest + targets["network"].url, targets["network"].body)
        (row,) = json.loads(targets["network"].body or "")["instances"]
        weights_file = folder / "weights.npz"
        np.savez(weights_file, **weights(0, 64))  # type: ignore[arg-type]  # its stub means an option
        for name in [] if options.grpc_only else options.peers:
            peer = stack.enter_context(start(name, folder / name, weights_file, options.environments))
            asked[name] = Target(peer + PEERS[name].path, PEERS[name].body(row))
        grpc_peers = {
            name: stack.enter_context(start(name, folder / f"{name}-grpc", weights_file, options.environments, peer))
            for name, peer in GRPC_PEERS.items()
            if name in options.peers
        }
        called = grpc_targets(server.grpc, stack.enter_context(bare_grpc()), row, grpc_peers)
        rates: dict[tuple[str, int], list[Rate]] = {}
        grpc_rates: dict[tuple[str, int], list[GrpcRate]] = {}
        for turn in range(options.repeat + 1):
            for connections in CONNECTIONS:
                for name, target in asked.items():
                    rate = wrk(target, connections, options.seconds if turn else 1.0, folder)
                    if turn:
                        rates.setdefault((name, connections), []).append(rate)
                for name, call in called.items():
                    calls = h2load(call, connections, options.seconds if turn else 1.0, folder)
                    if turn:
                        grpc_rates.setdefault((name, connections), []).append(calls)
        stack.close()  # what is idle takes a little all the same
        figures: dict[str, float] = {}
        if not options.grpc_only:
            seconds = start_seconds(folder, folder / "network", options.repeat, cold=True)
            figures["network, cold: start to ready s"] = seconds
            if FLIGHTS.is_dir():
                seconds = start_seconds(folder, FLIGHTS, options.repeat, cold=False)
                figures["flights, compilations kept: start to ready s"] = seconds
            figures.update(swaps(folder))
    middle = {cell: statistics.median(rate.qps for rate in each) for cell, each in rates.items()}
    for (name, connections), each in rates.items():
        figures[f"{name}, {connections} connections: QPS"] = middle[name, connections]
        figures[f"{name}, {connections} connections: p99 ms"] = statistics.median(rate.p99 for rate in each)
    for connections in CONNECTIONS:
        pairs = [("network", "no-op"), ("logged", "bare")]
        pairs += [(name, "network") for name in ("flights", "logged", "ramped", "shadowed")]
        pairs += [("network", name) for name in PEERS]
        for above, below in pairs:
            if above in asked and below in asked:
                ratio = middle[above, connections] / middle[below, connections]
                figures[f"{above} / {below}, {connections} connections"] = ratio
    grpc_middle = {
        cell: GrpcRate(*(statistics.median(values) for values in zip(*each, strict=True)))
        for cell, each in grpc_rates.items()
    }
    for (name, connections), calls in grpc_middle.items():
        figures[f"gRPC {name}, {connections} connections: QPS"] = calls.qps
        figures[f"gRPC {name}, {connections} connections: CPU us"] = calls.cpu
        if name != "network":
            network = grpc_middle["network", connections]
            figures[f"gRPC network / gRPC {name}, {connections} connections"] = network.qps / calls.qps
            figures[f"CPU: gRPC network / gRPC {name}, {connections} connections"] = network.cpu / calls.cpu
    if "kserve" in asked:
        pair = (statistics.median(rate.p99 for rate in rates[name, 64]) for name in ("network", "kserve"))
        figures["network / kserve, 64 connections: p99"] = next(pair) / next(pair)
    report("serving", figures, BARS)


if __name__ == "__main__":
    main()
