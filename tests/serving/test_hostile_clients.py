"""Ten thousand broken requests, a thousand idle connections, slow ones: no 500, no more memory, and it goes on."""

from __future__ import annotations

import contextlib
import json
import random
import resource
import socket
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

pytest.importorskip("httptools")

from drivetrain.components.pusher import push
from drivetrain.serving.client import Client
from drivetrain.tests.serving.bundles import rows_of, write_network
from drivetrain.tests.serving.running import RunningServer, serving

pytestmark = [pytest.mark.engine, pytest.mark.slow]
ROW = rows_of(9).to_pylist()[0]["x"]
BODIES = [
    json.dumps({"instances": [ROW, ROW]}).encode(),
    json.dumps({"instances": [{"x": ROW}], "signature_name": "predict"}).encode(),
    json.dumps({"inputs": {"x": [ROW]}}).encode(),
    json.dumps({"examples": [{"x": ROW}], "context": {"y": 1}}).encode(),
    json.dumps({"inputs": [{"name": "x", "datatype": "FP64", "shape": [1, 16], "data": ROW}], "id": "1"}).encode(),
    b'{"instances": [[NaN, Infinity, -Infinity, 1e400, null, "a", true, {"b64": "YQ=="}]]}',
    json.dumps({"instances": [{"x": ROW}], "baseline": [{"x": ROW}], "steps": 2, "output": "score"}).encode(),
    b'{"shares": {"1": 10, "2": 0.5}}',
    *[b'{"shares": {"2": 10}}', b'{"version": 2}', b'{"ready": true}', b""] * 2,
]
PATHS = [
    "/v2/models/net/infer", "/v2/models/net/versions/1/infer", "/v2/models/net", "/v2/repository/index", "/v2",
    "/v1/models/net:predict", "/v1/models/net:classify", "/v1/models/net:regress", "/v1/models/net/versions/1:predict",
    "/v1/models/net/labels/x:predict", "/v1/models/no:predict", "/v1/models/net/metadata", "/v1/models", "/metrics",
    "/v1/models/net:predict?x=%00", "/v1/models/%6eet:predict", "/v1/models/net/versions/99999999999999999999:predict",
    "/v1/models/net:explain", "/v1/models/net/versions/1:explain", "/v1/models/no:explain", "/v1/models/spare/traffic",
    "/v1/models/net/traffic", "/v1/models/no/traffic", "/v2/repository/models/spare/load", "/openapi.json", "/",
    "/v2/repository/models/spare/unload", "/v2/repository/models/no/load", "/v2/repository/models/net/%00",
    *(f"/v1/models/net/rollout/{each}" for each in ("hold", "resume", "advance", "abort", "rollback", "retry", "x")),
    "/v1/models/spare/rollout/hold", "/v2/health/ready", "/v2/health/live/", "//v1/models",
]  # fmt: skip
MODELS = "{models: {net: {base_path: net, rollout: {steps: [{share: 50}], guard: {}}}, spare: {base_path: net}}}"
TOKENS = [
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b'"',
    b"\\",
    b"null",
    b"NaN",
    b"-1e999",
    b"9" * 400,
    b"\xff",
    b"\x00",
    b"\\ud800",
]


def mutated(chosen: random.Random, body: bytes) -> bytes:
    """A body with a few changes."""
    data = bytearray(body)
    for _ in range(chosen.randint(0, 5)):
        at = chosen.randrange(len(data) + 1)
        match chosen.randrange(5):
            case 0:
                data[at : at + 1] = bytes([chosen.randrange(256)])
            case 1:
                del data[at : at + chosen.randint(1, 20)]
            case 2:
                data[at:at] = chosen.choice(TOKENS) * chosen.choice([1, 1, 2, 50])
            case 3:
                data[at:at] = data[chosen.randrange(len(data) + 1) :][: chosen.randint(1, 40)]
            case _:
                data = data[:at] or bytearray(b"x")
    return bytes(data)


def answer_to(connection: socket.socket, message: bytes) -> bytes:
    """The head of the answer to a message; the connection may be closed."""
    connection.sendall(message)
    received = b""
    while b"\r\n\r\n" not in received:
        part = connection.recv(65536)
        if not part:
            return received
        received += part
    head, _, body = received.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    while len(body) < length and not message.startswith(b"HEAD "):
        body += connection.recv(65536)
    return head


def memory(server: RunningServer) -> int:
    """Bytes of the process."""
    return int(psutil.Process(server.process.pid).memory_info().rss)


@contextlib.contextmanager
def files_limited(most: int) -> Iterator[None]:
    """What is started meanwhile may have so many files open, unless it asks for more."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_ten_thousand_broken_requests(tmp_path: Path) -> None:
    write_network(tmp_path / "bundle", 1, hidden=24)
    push(tmp_path / "bundle", tmp_path / "net")
    write_network(tmp_path / "other", 2, hidden=24)
    (tmp_path / "models.yaml").write_text(MODELS)
    with serving(tmp_path, "--config", "models.yaml", "--poll", "0.2") as server:
        push(tmp_path / "other", tmp_path / "net")  # takes over, until it is told otherwise
        parts = urlsplit(server.address)
        where = (str(parts.hostname), int(parts.port or 0))
        statuses: Counter[int] = Counter()
        sizes: list[int] = []
        chosen = random.Random(20261127)
        connection = socket.create_connection(where, 30)
        for number in range(10_000):
            body, path = mutated(chosen, chosen.choice(BODIES)), chosen.choice(PATHS)
            method = chosen.choice(["POST"] * 20 + ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"])
            head = f"{method} {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            answer = answer_to(connection, head + body)
            statuses[int(answer[9:12])] += 1
            if b"connection: close" in answer:
                connection.close()
                connection = socket.create_connection(where, 30)
            if number in (2_000, 9_999):
                sizes.append(memory(server))
        connection.close()
        assert sum(statuses.values()) == 10_000
        assert {status for status in statuses if status >= 500} == set(), statuses
        assert min(statuses[200], statuses[400], statuses[404]) > 300
        assert sizes[1] < sizes[0] + (16 << 20)
        with Client(server.address, "net") as client:
            assert client.predict([{"x": ROW}]).version in (1, 2)
        assert server.end() == 0
    assert "Traceback" not in server.log.read_text()


def test_a_thousand_idle_and_a_hundred_slow_connections(tmp_path: Path) -> None:
    """They take no more than their memory, and others are answered as before, also from a shell that allows less."""
    write_network(tmp_path / "bundle", 1, hidden=24)
    push(tmp_path / "bundle", tmp_path / "net")
    with contextlib.ExitStack() as stack:
        with files_limited(256):
            server = stack.enter_context(serving(tmp_path, "net"))
        parts = urlsplit(server.address)
        where = (str(parts.hostname), int(parts.port or 0))
        before = memory(server)
        idle = [socket.create_connection(where, 30) for _ in range(1_000)]
        slow = [socket.create_connection(where, 30) for _ in range(100)]
        with Client(server.address, "net") as client:
            for byte in b"POST /v1/models/net:predict HTTP/1.1\r\n":
                for each in slow:
                    each.sendall(bytes([byte]))
                start = time.monotonic()
                assert client.predict([{"x": ROW}]).version == 1
                assert time.monotonic() - start < 10
            assert memory(server) < before + (64 << 20)
        for each in [*idle, *slow]:
            each.close()
        assert server.end() == 0
