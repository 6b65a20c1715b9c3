"""A server under mixed load, while versions come and go and workers are killed: every answer is looked at.

`python -m drivetrain.tests.serving.soak --seconds 600` prints what was seen, and ends with code 1 where anything is not
as it is to be. Clients keep their connections and ask by
TensorFlow Serving's JSON (rows and columns), the Open Inference Protocol's JSON and binary tensors, and over gRPC. What
each bundle must answer is computed with NumPy from its weights; the digest in an answer's header says which it was.
The versions of model `a` change at once, those of `r` by the steps of a rollout, in which no caller may go back.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from urllib.parse import urlsplit

import grpc
import numpy as np
import psutil
from drivetrain.components.pusher import push
from drivetrain.serving.client import Client
from drivetrain.serving.protos import message_class
from drivetrain.tests.serving.bundles import FEATURES, rows_of, weights, write_network
from drivetrain.tests.serving.running import RunningServer, serving

HIDDEN = 64
SEEDS = (1, 2, 3)
MOST_SWAP_RATIO = 3.0
"""The p99 of the second in which a version of the same architecture takes over, by the steady one."""
MODELS = """
models:
  a: {base_path: a}
  r:
    base_path: r
    rollout:
      steps: [{share: 1, minutes: 0.02}, {share: 10, minutes: 0.03}, {share: 50, minutes: 0.03}, {share: 100}]
"""
ROWS = np.array([row["x"] for row in rows_of(7, 32).to_pylist()], np.float32)


@dataclass(frozen=True)
class Answer:
    """When a request was answered, how long it took in seconds, and the version that the answer names."""

    moment: float
    latency: float
    version: int


@dataclass(frozen=True)
class Loss:
    """A connection that broke before an answer came: whose, when it was opened, and when it broke."""

    client: int
    opened: float
    moment: float


@dataclass(frozen=True)
class SwapLatencies:
    """The p99 in seconds of the seconds around each swap, and of each second far from any event."""

    around: Sequence[float]
    steady: Sequence[float]

    @property
    def ratio(self) -> float:
        """The medians of both, the one by the other."""
        return median(self.around) / median(self.steady)

    def __str__(self) -> str:
        shown = " ".join(f"{1e3 * p99:.0f}" for p99 in self.around)
        return (
            f"p99 in the second of a swap, ms: {shown}; steady: {1e3 * median(self.steady):.0f} (of {len(self.steady)} "
            f"seconds); median of the {len(self.around)} swaps by it: {self.ratio:.2f}, at most {MOST_SWAP_RATIO:g}"
        )


@dataclass
class SoakReport:
    """What the clients saw.

    Attributes:
        answers: Every answer that was right.
        by_door: Their number by door.
        wrong: Answers that are not those of the bundle that they name, or not 200.
        lost: Requests that got no answer, and connections that were not taken.
        swaps, rollbacks: The moments at which clients first met the version.
        ramps: When a rollout had ended.
        kills: When a worker was killed, and when it was dead.
        backwards: Callers that a rollout moved back to the old version.
    """

    answers: list[Answer] = field(default_factory=list)
    by_door: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    lost: list[Loss] = field(default_factory=list)
    swaps: list[float] = field(default_factory=list)
    rollbacks: list[float] = field(default_factory=list)
    ramps: list[float] = field(default_factory=list)
    kills: list[tuple[float, float]] = field(default_factory=list)
    backwards: list[str] = field(default_factory=list)

    def p99(self, begin: float, end: float) -> float | None:
        """The latency in seconds that 99 of 100 answers kept between two moments; None where there were too few."""
        latencies = [each.latency for each in self.answers if begin <= each.moment < end]
        return quantiles(latencies, n=100)[98] if len(latencies) >= 100 else None

    def lost_without_cause(self) -> list[Loss]:
        """The losses of connections that no worker had taken which was killed then.

        Until it is dead a killed process still takes connections: its files are closed last.
        """
        return [
            loss
            for loss in self.lost
            if not any(loss.opened <= dead and 0 <= loss.moment - kill <= 5 for kill, dead in self.kills)
        ]

    def swap_latencies(self) -> SwapLatencies:
        """What it costs the answers that a version takes over, by the seconds far from any event."""
        events = [*self.swaps, *self.rollbacks, *(kill for kill, _ in self.kills)]
        first, last = self.answers[0].moment, self.answers[-1].moment
        seconds = [first + offset for offset in range(int(last - first))]
        quiet = [second for second in seconds if all(abs(second + 0.5 - event) > 2 for event in events)]
        steady = [p99 for second in quiet if (p99 := self.p99(second, second + 1)) is not None]
        around = [p99 for swap in self.swaps if (p99 := self.p99(swap - 0.5, swap + 0.5)) is not None]
        return SwapLatencies(around, steady)

    def problems(self) -> list[str]:
        """What must not be, whatever the machine; [] where all is well."""
        seen: Mapping[str, Sequence[object]] = {
            "wrong": self.wrong,
            "moved back by a rollout": self.backwards,
            "lost without a cause": self.lost_without_cause(),
        }
        return [f"{len(what)} {kind}: {what[:5]}" for kind, what in seen.items() if what]


def scores(seed: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """What the network of a seed says of `ROWS`, in float64."""
    matrices = [matrix.astype(np.float64) for matrix in weights(seed, HIDDEN).values()]
    hidden = np.tanh(np.tanh(ROWS.astype(np.float64) @ matrices[0]) @ matrices[1])
    answer: np.ndarray[tuple[int], np.dtype[np.float64]] = 1 / (1 + np.exp(-(hidden @ matrices[2])[:, 0]))
    return answer


@dataclass
class Soak:
    """The clients, and what befalls the server.

    Args:
        server: A server of `models.yaml` in `folder`, with two workers at least and gRPC.
        folder: Its folder, with the bundles by seed and the pushed versions in `a` and `r`.
        connections: How many clients ask at once.
        seed: Of what is asked.
        pause: Seconds that a client waits between two requests.
    """

    server: RunningServer
    folder: Path
    connections: int
    seed: int
    pause: float = 0.0
    report: SoakReport = field(default_factory=SoakReport)
    _expected: Mapping[str, np.ndarray[tuple[int], np.dtype[np.float64]]] = field(init=False)
    _ended: bool = False
    _newest: int = 0
    _reached: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        manifests = {seed: json.loads((self.folder / str(seed) / "manifest.json").read_bytes()) for seed in SEEDS}
        self._expected = {manifest["digest"]: scores(seed) for seed, manifest in manifests.items()}

    async def run(self, seconds: float, swaps: int, rollbacks: int, ramps: int, kills: int) -> SoakReport:
        """Ask for so long, with these events spread over the time."""
        clients = [asyncio.create_task(self._client(number)) for number in range(self.connections)]
        clients += [asyncio.create_task(self._grpc_client(self.connections + number)) for number in range(2)]
        drawn = random.Random(self.seed)
        rolled_back = set(drawn.sample(range(swaps), rollbacks))
        events = [event for at in range(swaps) for event in ("swap", *["rollback"] * (at in rolled_back))]
        for event in ["ramp"] * ramps + ["kill"] * kills:
            events.insert(drawn.randint(0, len(events)), event)
        begin = time.monotonic()
        try:
            for number, event in enumerate(events):
                due = begin + seconds * (number + 0.5) / len(events)
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                await getattr(self, f"_{event}")()
            await asyncio.sleep(max(0.0, begin + seconds - time.monotonic()))
        finally:
            self._ended = True
        await asyncio.gather(*clients)
        return self.report

    def _versions(self) -> list[int]:
        return sorted(int(path.name) for path in (self.folder / "a").iterdir() if path.name.isdigit())

    async def _swap(self) -> None:
        seed = SEEDS[len(self.report.swaps) % len(SEEDS)]
        version, _ = await asyncio.to_thread(push, self.folder / str(seed), self.folder / "a")
        self.report.swaps.append(await self._until_met(version))

    async def _rollback(self) -> None:
        *_, before, newest = self._versions()
        (self.folder / "a" / str(newest)).rename(self.folder / f"removed-{len(self.report.rollbacks)}")
        self.report.rollbacks.append(await self._until_met(before))

    async def _ramp(self) -> None:
        seed = SEEDS[len(self.report.ramps) % len(SEEDS)]
        version, _ = await asyncio.to_thread(push, self.folder / str(seed), self.folder / "r")
        with Client(self.server.address, "r") as client:
            deadline = time.monotonic() + 60
            while (await asyncio.to_thread(client.traffic))["rollout"]["incumbent"] != version:
                if time.monotonic() > deadline:
                    raise AssertionError(f"version {version} takes over nothing: {client.traffic()}")
                await asyncio.sleep(0.1)
        self.report.ramps.append(time.monotonic())

    async def _kill(self) -> None:
        children = psutil.Process(self.server.process.pid).children()
        workers = [child for child in children if "drivetrain.serving.worker" in child.cmdline()]
        worker = random.Random(self.seed).choice(workers)
        worker.kill()
        killed = time.monotonic()
        with suppress(psutil.NoSuchProcess):
            # Its first thread is a zombie while others, and its sockets with them, are still alive.
            while worker.status() != psutil.STATUS_ZOMBIE or worker.num_threads() > 1:
                await asyncio.sleep(0.001)
        self.report.kills.append((killed, time.monotonic()))

    async def _until_met(self, version: int) -> float:
        """When an answer first named a version."""
        deadline = time.monotonic() + 60
        while self._newest != version:
            if time.monotonic() > deadline:
                raise AssertionError(f"version {version} answers nothing: {self.server.log.read_text()[-2000:]}")
            await asyncio.sleep(0.01)
        return time.monotonic()

    def _check(
        self, door: str, model: str, caller: int, begin: float, rows: Sequence[int], values: object, version: str,
        digest: str,
    ) -> None:  # fmt: skip
        now = time.monotonic()
        expected = self._expected.get(digest)
        if expected is None or not np.allclose(np.asarray(values, np.float64), expected[list(rows)], rtol=0, atol=1e-5):
            self.report.wrong.append(f"{door}: version {version}, digest {digest}: {values}")
            return
        if model == "a":
            self._newest = int(version)
        elif int(version) < self._reached.get(caller, 0):
            self.report.backwards.append(
                f"{door}: caller {caller} was at version {self._reached[caller]}, now {version}"
            )
        else:
            self._reached[caller] = int(version)
        self.report.answers.append(Answer(now, now - begin, int(version)))
        self.report.by_door[door] += 1

    def _lose(self, number: int, opened: float) -> None:
        self.report.lost.append(Loss(number, opened, time.monotonic()))

    async def _client(self, number: int) -> None:
        """One connection, opened again where it breaks."""
        drawn = random.Random(f"{self.seed} {number}")
        address = urlsplit(self.server.address)
        while not self._ended:
            opened = time.monotonic()
            try:
                reader, writer = await asyncio.open_connection(address.hostname, address.port)
            except OSError:
                self._lose(number, opened)
                continue
            try:
                while not self._ended:
                    await self._ask(number, drawn, reader, writer)
                    await asyncio.sleep(self.pause)
            except (OSError, asyncio.IncompleteReadError):
                self._lose(number, opened)
            finally:
                writer.close()

    async def _ask(
        self, number: int, drawn: random.Random, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        model, door = drawn.choice(("a", "a", "r")), drawn.choice(("rows", "columns", "oip", "binary"))
        rows = [drawn.randrange(len(ROWS)) for _ in range(drawn.choice((1, 1, 1, 3, 9)))]
        path, headers, body = _request(door, model, rows)
        begin = time.monotonic()
        sent = f"Host: soak\r\nx-drivetrain-key: {number}\r\nContent-Length: {len(body)}\r\n{headers}"
        head = f"POST {path} HTTP/1.1\r\n{sent}\r\n"
        writer.write(head.encode() + body)
        answer_head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        fields = dict(line.lower().split(": ", 1) for line in answer_head[1:] if line)
        data = await reader.readexactly(int(fields["content-length"]))
        if " 200 " not in answer_head[0]:
            self.report.wrong.append(f"{door}: {answer_head[0]} {data[:300]!r}")
            return
        values = _values(door, data, fields)
        version, digest = fields["x-drivetrain-version"], fields["x-drivetrain-digest"]
        self._check(door, model, number, begin, rows, values, version, digest)

    async def _grpc_client(self, number: int) -> None:
        drawn = random.Random(f"{self.seed} {number}")
        request_class, answer_class = (message_class(f"inference.ModelInfer{kind}") for kind in ("Request", "Response"))
        while not self._ended:
            opened = time.monotonic()
            async with grpc.aio.insecure_channel(
                str(self.server.grpc), options=[("grpc.use_local_subchannel_pool", 1)]
            ) as channel:
                call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
                try:
                    while not self._ended:
                        rows = [drawn.randrange(len(ROWS)) for _ in range(3)]
                        request = request_class(model_name="a")
                        request.inputs.add(name="x", datatype="FP32", shape=[len(rows), FEATURES])
                        request.raw_input_contents.append(ROWS[rows].tobytes())
                        begin = time.monotonic()
                        pending = call(request.SerializeToString(), timeout=30)
                        answer = answer_class.FromString(await pending)
                        fields = {str(key): str(value) for key, value in await pending.trailing_metadata()}
                        values = np.frombuffer(answer.raw_output_contents[0], np.float32)
                        version, digest = fields["x-drivetrain-version"], fields["x-drivetrain-digest"]
                        self._check("grpc", "a", number, begin, rows, values, version, digest)
                        await asyncio.sleep(self.pause)
                except grpc.aio.AioRpcError as error:
                    if error.code() is grpc.StatusCode.UNAVAILABLE:  # its worker is gone
                        self._lose(number, opened)
                    else:
                        self.report.wrong.append(f"grpc: {error.code()} {error.details()}")


def _request(door: str, model: str, rows: Sequence[int]) -> tuple[str, str, bytes]:
    """Path, headers and body of a request for some of `ROWS`."""
    values = ROWS[list(rows)]
    if door == "rows":
        return f"/v1/models/{model}:predict", "", json.dumps({"instances": values.tolist()}).encode()
    if door == "columns":
        return f"/v1/models/{model}:predict", "", json.dumps({"inputs": {"x": values.tolist()}}).encode()
    tensor: dict[str, object] = {"name": "x", "shape": list(values.shape), "datatype": "FP32"}
    if door == "oip":
        return (
            f"/v2/models/{model}/infer",
            "",
            json.dumps({"inputs": [{**tensor, "data": values.ravel().tolist()}]}).encode(),
        )
    data = values.astype("<f4").tobytes()
    tensor["parameters"] = {"binary_data_size": len(data)}
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    return f"/v2/models/{model}/infer", f"Inference-Header-Content-Length: {len(head)}\r\n", head + data


def _values(door: str, data: bytes, fields: Mapping[str, str]) -> object:
    if door == "binary":
        after = data[int(fields["inference-header-content-length"]) :]
        return struct.unpack(f"<{len(after) // 4}f", after)
    answer = json.loads(data)
    if door == "oip":
        return answer["outputs"][0]["data"]
    return answer["predictions"] if door == "rows" else answer["outputs"]


def soak(
    folder: Path,
    seconds: float,
    *,
    swaps: int,
    rollbacks: int,
    ramps: int,
    kills: int,
    connections: int,
    seed: int,
    pause: float = 0.0,
) -> SoakReport:
    """Start a server of two workers on new bundles, and put it to the test."""
    for each in SEEDS:
        write_network(folder / str(each), each, hidden=HIDDEN)
    for each, model in ((SEEDS[-1], "a"), (SEEDS[-2], "a"), (SEEDS[-1], "r")):
        push(folder / str(each), folder / model)
    (folder / "models.yaml").write_text(MODELS)
    options = ("--config", "models.yaml", "--workers", "2", "--poll", "0.2", "--grpc-port", "0")
    with serving(folder, *options) as server:
        return asyncio.run(Soak(server, folder, connections, seed, pause).run(seconds, swaps, rollbacks, ramps, kills))


def main() -> None:
    """Print what was seen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    try:
        report = soak(
            folder,
            options.seconds,
            swaps=20,
            rollbacks=5,
            ramps=3,
            kills=1,
            connections=options.connections,
            seed=options.seed,
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"seed {options.seed}: {len(report.answers)} answers, {dict(report.by_door)}")
    events: dict[str, Sequence[object]] = {
        "swaps": report.swaps,
        "rollbacks": report.rollbacks,
        "ramps": report.ramps,
        "killed": report.kills,
    }
    print(", ".join(f"{len(moments)} {what}" for what, moments in events.items()))
    print(f"{len(report.lost)} lost, {len(report.lost_without_cause())} of them without a cause")
    latencies, problems = report.swap_latencies(), report.problems()
    print(latencies)
    if latencies.ratio > MOST_SWAP_RATIO:
        problems.append("swaps make answers too slow")
    print("\n".join(problems) or "all is well")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
