"""Several workers at one port: alike, replaced when they die, ended together."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

pytest.importorskip("httptools")

from drivetrain.components.pusher import push
from drivetrain.errors import DrivetrainError, InputError
from drivetrain.serving import workers
from drivetrain.serving.access import digest_of
from drivetrain.serving.api import RequestError, StatusCode
from drivetrain.serving.channel import Channel
from drivetrain.serving.config import ModelConfig
from drivetrain.serving.rollout import RampStep, Rollout
from drivetrain.serving.rollout_control import ModelSight
from drivetrain.serving.server import ServerOptions
from drivetrain.serving.workers import WorkerSupervisor
from drivetrain.tests.engine.bundles.test_for_serving import expected
from drivetrain.tests.serving.bundles import rows_of, write_network
from drivetrain.tests.serving.open_server import OpenServer
from drivetrain.tests.serving.running import RunningServer, serving

HIDDEN = 24
X = [row["x"] for row in rows_of(9).slice(0, 3).to_pylist()]
BODY = json.dumps({"instances": X}).encode()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Two workers with the models `a` of two versions and `b`, over REST and gRPC."""
    folder = tmp_path_factory.mktemp("workers")
    for seed in (1, 2):
        write_network(folder / str(seed), seed, hidden=HIDDEN)
        push(folder / str(seed), folder / "a")
    push(folder / "1", folder / "b")
    (folder / "models.yaml").write_text(
        "models:\n  a: {base_path: a, versions: all, traffic: {2: 50}}\n  b: {base_path: b}\n"
    )
    with serving(folder, "--config", "models.yaml", "--workers", "2", "--poll", "0.2", "--grpc-port", "0") as running:
        yield running


def ask(
    server: RunningServer | OpenServer, path: str, body: bytes | None = BODY, key: str = ""
) -> tuple[int, Any, dict[str, str]]:
    """Status, JSON and headers of an answer over a connection of its own, which the system gives to any worker."""
    parts = urlsplit(server.address)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=30)
    try:
        connection.request("GET" if body is None else "POST", path, body, {"x-drivetrain-key": key} if key else {})
        answer = connection.getresponse()
        data = answer.read()
        return answer.status, json.loads(data) if data[:1] in b"{[" else data.decode(), dict(answer.getheaders())
    finally:
        connection.close()


def workers_of(server: RunningServer) -> set[int]:
    """The process ids of the workers that live."""
    pids = set()
    for child in psutil.Process(server.process.pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):  # a zombie is one too
            if "drivetrain.serving.worker" in child.cmdline():
                pids.add(child.pid)
    return pids


def counted(server: RunningServer, model: str) -> Counter[str]:
    """Requests for a model that each worker answered, by its own count."""
    _, text, _ = ask(server, "/metrics", None)
    counts: Counter[str] = Counter()
    for line in text.splitlines():
        if line.startswith("drivetrain_serving_requests_total{") and f'code="OK",model="{model}"' in line:
            counts[line.split('worker="')[1].split('"')[0]] += int(float(line.rpartition(" ")[2]))
    return counts


def until(condition: Any, seconds: float = 60) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.engine
def test_both_answer_alike_and_any_of_them_tells_the_counts_of_both(server: RunningServer) -> None:
    versions: dict[str, set[str]] = {}
    for number in range(40):
        key = str(number % 8)
        status, body, headers = ask(server, "/v1/models/a:predict", key=key)
        assert status == 200
        version = headers["x-drivetrain-version"]
        versions.setdefault(key, set()).add(version)
        assert body["predictions"] == pytest.approx(expected(int(version), HIDDEN)[:3].tolist(), abs=1e-6)
    assert {len(each) for each in versions.values()} == {1}  # a caller stays with a version, whoever answers
    counts = counted(server, "a")
    assert counts.total() == 40
    assert set(counts) == {"0", "1"}
    assert all(counts.values())


@pytest.mark.slow
@pytest.mark.engine
def test_traffic_that_is_split_by_request_is_split_in_both(server: RunningServer) -> None:
    path = "/v1/models/a/traffic"
    for shares, versions in (({"1": 100}, {"1"}), ({}, {"2"}), ({"2": 50}, {"1", "2"})):
        assert ask(server, path, json.dumps({"shares": shares}).encode())[0] == 200
        assert [ask(server, path, None)[1]["shares"] for _ in range(8)] == [shares] * 8  # whoever answers
        asked = [ask(server, "/v1/models/a:predict")[2]["x-drivetrain-version"] for _ in range(30)]
        assert set(asked) == versions


@pytest.mark.slow
@pytest.mark.engine
def test_a_worker_that_is_killed_is_replaced_and_the_clients_of_the_other_see_nothing(server: RunningServer) -> None:
    assert ask(server, "/v2/repository/models/b/unload", b"{}")[0] == 200
    assert {ask(server, "/v1/models/b:predict")[0] for _ in range(16)} == {503}  # in both
    before = workers_of(server)
    ended = threading.Event()
    lost: Counter[str] = Counter()
    answered: Counter[int] = Counter()

    def client(number: int) -> None:
        parts = urlsplit(server.address)
        connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=30)
        while not ended.is_set():
            try:
                connection.request("POST", "/v1/models/a:predict", BODY)
                answer = connection.getresponse()
                answer.read()
                assert answer.status == 200
                answered[number] += 1
            except (http.client.HTTPException, OSError):
                lost[str(number)] += 1
                connection.close()
        connection.close()

    with ThreadPoolExecutor(8) as pool:
        clients = [pool.submit(client, number) for number in range(8)]
        try:
            until(lambda: len(answered) == 8 and min(answered.values()) > 20)
            killed = psutil.Process(min(before))
            clients_of_killed = sum(each.status == psutil.CONN_ESTABLISHED for each in killed.net_connections("tcp"))
            killed.kill()
            until(lambda: len(workers_of(server)) == 2 and workers_of(server) != before)
            until(lambda: ask(server, "/v1/models/a:predict")[0] == 200 and len(counted(server, "a")) == 2)
        finally:
            ended.set()
        for each in clients:
            each.result()
    # A client of the killed one loses what it asked at that moment, and goes on with the other.
    assert len(lost) <= clients_of_killed
    assert max(lost.values(), default=0) <= 1
    assert {ask(server, "/v1/models/b:predict")[0] for _ in range(16)} == {503}  # the new one was told
    assert "ended with code -9; another takes its place" in server.log.read_text()
    assert ask(server, "/v2/repository/models/b/load", b"{}")[0] == 200
    assert {ask(server, "/v1/models/b:predict")[0] for _ in range(16)} == {200}
    assert ask(server, "/v2/repository/models/c/load", b"{}")[0] == 404


@pytest.mark.slow
@pytest.mark.engine
def test_no_worker_takes_a_gpus_memory_in_advance(server: RunningServer) -> None:
    environments = [psutil.Process(pid).environ() for pid in workers_of(server)]
    assert [variables["XLA_PYTHON_CLIENT_PREALLOCATE"] for variables in environments] == ["false", "false"]


def test_grpc_too(server: RunningServer) -> None:
    import grpc
    from drivetrain.serving.protos import message_class

    metadata, answer_class = (
        message_class(f"inference.Model{kind}") for kind in ("MetadataRequest", "MetadataResponse")
    )
    for _ in range(8):
        options = [("grpc.use_local_subchannel_pool", 1)]  # a connection of its own
        with grpc.insecure_channel(str(server.grpc), options=options) as channel:
            call = channel.unary_unary("/inference.GRPCInferenceService/ModelMetadata")
            assert answer_class.FromString(call(metadata(name="a").SerializeToString(), timeout=30)).name == "a"


@pytest.mark.slow
@pytest.mark.engine
def test_all_end_together(server: RunningServer, tmp_path: Path) -> None:
    port = urlsplit(server.address).port
    with pytest.raises(InputError, match="Address already in use"):  # another server of workers is none of ours
        asyncio.run(WorkerSupervisor([], ServerOptions(rest_port=int(port or 0), workers=2)).run(print))
    workers = workers_of(server)
    assert server.end() == 0
    assert not any(psutil.pid_exists(pid) for pid in workers)
    # And a supervisor that is killed leaves none behind.
    with serving(tmp_path, str(server.log.parent / "b"), "--workers", "2") as running:
        workers = workers_of(running)
        assert len(workers) == 2
        running.process.kill()
        until(lambda: not any(psutil.pid_exists(pid) for pid in workers))


@pytest.mark.slow
@pytest.mark.engine
def test_a_worker_that_cannot_be_started_or_does_not_answer_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In this process: too many open files for a while, a broken file of keys, a worker that is stopped."""
    write_network(tmp_path / "bundle", 1, hidden=HIDDEN)
    push(tmp_path / "bundle", tmp_path / "m")
    (tmp_path / "keys.yaml").write_text(f"keys: {{app: {{sha256: {digest_of('secret')}}}}}")
    monkeypatch.setattr(workers, "_UNHEARD", 3.0)
    monkeypatch.setattr(workers, "_SOON", 0.0)
    options = ServerOptions(rest_port=0, workers=2, keys=tmp_path / "keys.yaml")
    supervisor = WorkerSupervisor([ModelConfig("m", str(tmp_path / "m"))], options)

    async def pids(other: set[int] = frozenset()) -> set[int]:  # type: ignore[assignment]
        while len(running := {each.process.pid for each in supervisor._informed}) < 2 or running & other:
            await asyncio.sleep(0.05)
        return running

    async def main() -> None:
        serving = asyncio.create_task(supervisor.run(lambda _: None))
        first = await asyncio.wait_for(pids(), 60)
        await supervisor._up.wait()
        (tmp_path / "keys.yaml").write_text("keys: [broken")  # the old ones stay, for those that come later too
        real, refusals = socket.socketpair, iter([OSError(24, "Too many open files")])

        def scarce(*arguments: Any) -> Any:
            for refusal in refusals:
                raise refusal
            return real(*arguments)

        monkeypatch.setattr(socket, "socketpair", scarce)
        stopped, killed = sorted(first)
        os.kill(stopped, signal.SIGSTOP)
        os.kill(killed, signal.SIGKILL)
        await asyncio.wait_for(pids(first), 60)
        supervisor._ended.set()
        await asyncio.wait_for(serving, 60)

    asyncio.run(main())
    assert "could not be started ([Errno 24] Too many open files)" in caplog.text
    assert "has not answered for 3 s and is killed" in caplog.text


def test_a_port_is_held_before_a_worker_listens() -> None:
    with workers._reserved("127.0.0.1", 0, "--grpc-port") as held:
        port = held.getsockname()[1]
        with (
            pytest.raises(InputError, match=f"another server is about to listen at port {port}"),
            workers._reserved("127.0.0.1", port, "--grpc-port"),
        ):
            pass
    with workers._reserved("127.0.0.1", port, "--grpc-port"):
        pass


def test_a_port_of_grpc_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        options = ServerOptions(rest_port=0, grpc_port=taken.getsockname()[1], workers=2)
        with pytest.raises(InputError, match="Address already in use") as caught:
            asyncio.run(WorkerSupervisor([], options).run(print))
    assert "--grpc-port" in str(caught.value.fix)


def test_a_worker_that_does_not_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    started: list[Any] = []
    with pytest.raises(DrivetrainError, match=r"worker \d ended with code 1 before it was up"):
        asyncio.run(
            WorkerSupervisor([ModelConfig("m", "/nowhere")], ServerOptions(rest_port=0, workers=2)).run(started.append)
        )
    assert not started


@pytest.mark.parametrize("trouble", ["hangs", "refuses"])
def test_a_worker_is_told_the_plan_of_traffic_until_it_follows_and_nobody_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, trouble: str
) -> None:
    """Two workers, of which the first has trouble with the first plan it is told."""
    monkeypatch.setattr(workers, "_FOLLOW_SECONDS", 0.3)
    rollout = Rollout((RampStep(10), RampStep(100)), str(tmp_path))
    supervisor = WorkerSupervisor([ModelConfig("net", "net", rollout=rollout)], ServerOptions(workers=2))
    supervisor._rollouts.configure(supervisor._configs)
    followed: dict[str, list[tuple[int, float]]] = {"0": [], "1": []}
    sight = {"net": {"available": {"1": "a", "2": "b"}, "tallies": {}}}
    asked: Counter[str] = Counter()

    async def worker(name: str) -> list[Any]:
        async def answer(question: str, value: Any) -> Any:
            if question == "sights":
                return sight
            asked[name] += 1
            if name == "0" and asked[name] == 1:
                if trouble == "refuses":
                    raise RequestError(StatusCode.INTERNAL, "not now")
                await asyncio.sleep(3600)
            followed[name].append((value["net"]["candidate"], value["net"]["share"]))
            return None

        near, far = socket.socketpair()
        its_end, process_end = Channel(answer), Channel(answer)
        listening = [await its_end.open(near), await process_end.open(far)]
        supervisor._informed.add(workers._Worker(name, None, its_end))  # type: ignore[arg-type] # none runs
        return listening

    async def main() -> None:
        listening = [*await worker("0"), *await worker("1")]
        supervisor._rollouts.look({"net": ModelSight({1: "a"})})
        deciding = asyncio.create_task(supervisor._decide())
        while not followed["1"]:
            await asyncio.sleep(0.01)
        assert followed == {"0": [], "1": [(2, 10)]}
        async with asyncio.timeout(0.2):  # a change has not to wait for who hangs
            async with supervisor._changing:
                pass
        await deciding
        await supervisor._decide()  # nothing has changed
        assert followed == {"0": [(2, 10)], "1": [(2, 10)]}
        await supervisor._decide()
        assert asked == {"0": 2, "1": 1}
        for each in listening:
            each.cancel()
        await asyncio.gather(*listening, return_exceptions=True)

    asyncio.run(main())
    says = "has not said for 0.3 s that it follows" if trouble == "hangs" else "does not follow the rollouts: not now"
    assert f"worker 0 {says}" in caplog.text


def test_a_change_does_not_wait_for_a_worker_that_hangs_but_for_one_that_loads(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Three workers: the first takes its time and answers other questions, the second answers nothing more."""
    monkeypatch.setattr(workers, "_SOON_ANSWERED", 0.05)
    monkeypatch.setattr(workers, "_HANGS", 0.2)
    supervisor = WorkerSupervisor([ModelConfig("a", "a")], ServerOptions(workers=3))
    configured: list[str] = []
    hanging = asyncio.Event()

    async def worker(name: str) -> list[Any]:
        async def answer(question: str, value: Any) -> Any:
            if name == "1":
                await hanging.wait()
            if question == "configure":
                await asyncio.sleep(0.5 if name == "0" else 0)  # twice as long as who hangs is waited for
                configured.append(name)
            return name

        near, far = socket.socketpair()
        its_end, process_end = Channel(answer), Channel(answer)
        listening = [await its_end.open(near), await process_end.open(far)]
        supervisor._informed.add(workers._Worker(name, None, its_end, {}))  # type: ignore[arg-type] # none runs
        return listening

    async def main() -> None:
        listening = [each for name in "012" for each in await worker(name)]
        async with asyncio.timeout(10):
            await supervisor._configure([ModelConfig("b", "b")])
            assert configured == ["2", "0"]
            assert [config.name for config in supervisor._configs] == ["b"]  # for the one that takes its place
            assert await supervisor._of_all("counts", None) == ["0", "2"]  # what metrics are made of
            hanging.set()
            while configured != ["2", "0", "1"]:  # it had been told
                await asyncio.sleep(0.01)
        for each in listening:
            each.cancel()
        await asyncio.gather(*listening, return_exceptions=True)

    asyncio.run(main())
    assert "worker 1 hangs; nobody waits for what it says to 'configure'" in caplog.text
    assert "worker 0 hangs" not in caplog.text


def test_either_end_of_a_channel_may_ask() -> None:
    async def main() -> None:
        async def first(question: str, value: Any) -> Any:
            return [question, value, await near.ask("back", value + 1)] if question == "there" else None

        async def second(question: str, value: Any) -> Any:
            if question == "refuse":
                raise RequestError(StatusCode.NOT_FOUND, "there is no such thing", fix="ask for another")
            if question == "break":
                raise KeyError(value)
            if question == "never":
                await asyncio.sleep(60)
            return value * 2

        left, right = socket.socketpair()
        near, far = Channel(first), Channel(second)
        listening = [await near.open(left), await far.open(right)]
        assert await far.ask("there", 20) == ["there", 20, 42]
        assert await near.ask("large", "é" * 1_000_000) == "é" * 2_000_000
        assert await asyncio.gather(*(near.ask("many", number) for number in range(100))) == [*range(0, 200, 2)]
        with pytest.raises(RequestError, match="there is no such thing") as refused:
            await near.ask("refuse")
        assert (refused.value.code, refused.value.fix) == (StatusCode.NOT_FOUND, "ask for another")
        with pytest.raises(RequestError, match="KeyError") as broken:
            await near.ask("break", "secret")
        assert broken.value.code is StatusCode.INTERNAL
        waiting = asyncio.create_task(near.ask("never"))
        await asyncio.sleep(0)
        right.close()
        listening[1].cancel()
        far._writer.close()  # type: ignore[union-attr]
        with pytest.raises(ConnectionError):
            await waiting
        with pytest.raises(ConnectionError):
            await near.ask("more", 1)
        await asyncio.gather(*listening, return_exceptions=True)

    asyncio.run(main())


def test_who_starts_workers_does_without_jax() -> None:
    code = "import sys; import drivetrain.console.serve, drivetrain.serving.workers; print('jax' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"
