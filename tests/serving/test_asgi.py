"""The ASGI application: the answers of the server's own sockets, alone and mounted, and its life."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest

pytest.importorskip("httptools")
pytest.importorskip("httpx")
pytest.importorskip("starlette")

import httpx
from drivetrain.engine import analyze
from drivetrain.errors import InputError
from drivetrain.serving import asgi
from drivetrain.serving.config import ModelConfig
from drivetrain.serving.http import HttpLimits
from drivetrain.serving.server import ServerOptions
from drivetrain.tests.serving.open_server import OpenServer, open_server
from drivetrain.tests.serving.test_access import FILE
from drivetrain.tests.serving.test_oip_bodies import MALFORMED, RECORDED, REQUESTS, preprocess
from drivetrain.tests.serving.test_page import HTML
from drivetrain.tests.serving.test_server import test_a_bad_request_is_told_what_is_wrong as bad_requests
from starlette.applications import Starlette
from starlette.routing import Mount

pytestmark = pytest.mark.engine
COMPARED = {"content-type", "content-length", "x-request-id", "x-drivetrain-version", "x-drivetrain-digest",
            "inference-header-content-length", "allow", "retry-after", "content-security-policy", "vary"}  # fmt: skip
Asked = tuple[str, str, bytes, dict[str, str]]
Answered = tuple[int, dict[str, str], bytes]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a model of four columns, of which three have defaults."""
    folder = tmp_path_factory.mktemp("asgi") / "net"
    bundle = analyze(preprocess, pa.table({"x": [1.0], "n": [1], "flag": [True], "city": ["a"]}))
    bundle.with_defaults({"n": 1, "flag": False, "city": "?"}).save(folder / "1")
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[OpenServer]:
    with open_server(ServerOptions(poll_seconds=0, admin=False), [ModelConfig("net", str(folder))]) as running:
        yield running


def corpus() -> Iterator[Asked]:
    """Everything that the tests of the server send malformed, what a real client sends, and each other path."""
    for path, body, *_ in bad_requests.pytestmark[0].args[1]:  # type: ignore[attr-defined] # pytest's
        yield "POST", f"/v1/models/{path}", body, {}
    recorded = {case: ((RECORDED / f"{case}.body").read_bytes(), REQUESTS[case]["header_length"]) for case in REQUESTS}
    for body, length in (*MALFORMED.values(), *recorded.values()):
        yield (
            "POST",
            "/v2/models/net/infer",
            body,
            {} if length is None else {"inference-header-content-length": str(length)},
        )
    good = b'{"instances": [{"x": 1.5, "city": "\xc3\x9f"}, {"x": null}]}'
    for method, path, body in (
        ("POST", "/v1/models/net:predict", good), ("POST", "/v1/models/n%65t%3Apredict?a=b", good),
        ("POST", "/v1/models/net/versions/1:predict", good), ("POST", "/v1/models/net/labels/%C3%9F:predict", good),
        ("GET", "/v1/models", b""), ("GET", "/v1/models/net/metadata", b""), ("HEAD", "/v1/models/net", b""),
        ("GET", "/v2/health/ready", b""), ("GET", "/openapi.json", b""), ("GET", "/", b""), ("GET", "/no%2Fthing", b""),
        ("DELETE", "/v2", b""), ("POST", "/v2/repository/index", b""), ("OPTIONS", "/v1/models", b""),
        ("POST", "/v2/repository/models/net/unload", b""), ("POST", "/v1/models/net/traffic", b"{}"),
        ("GET", "//v2", b""), ("GET", "/v1/models/%2E%2E/x", b""), ("GET", "/%00", b""), ("GET", "/%FF", b""),
    ):  # fmt: skip
        yield method, path, body, {}
    yield "GET", "/", b"", dict(HTML)


def by_socket(server: OpenServer, asked: Asked) -> Answered:
    method, path, body, headers = asked
    connection = http.client.HTTPConnection(urlsplit(server.rest).netloc, timeout=30)
    try:
        connection.request(method, path, body, {**headers, "X-Request-ID": "r"})
        answer = connection.getresponse()
        return answer.status, {key.lower(): value for key, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


async def by_asgi(client: Any, prefix: str, asked: Asked) -> Answered:
    method, path, body, headers = asked
    answer = await client.request(
        method, f"http://test{prefix}{path}", content=body, headers={"accept": "*/*", **headers, "X-Request-ID": "r"}
    )
    return answer.status_code, dict(answer.headers), answer.content


@asynccontextmanager
async def lived(application: Any) -> Any:
    """The application between the messages of its lifespan, which httpx does not send."""
    into: asyncio.Queue[Any] = asyncio.Queue()
    out: asyncio.Queue[Any] = asyncio.Queue()
    living = asyncio.ensure_future(application({"type": "lifespan", "asgi": {"version": "3.0"}}, into.get, out.put))
    await into.put({"type": "lifespan.startup"})
    assert await out.get() == {"type": "lifespan.startup.complete"}
    yield application
    await into.put({"type": "lifespan.shutdown"})
    assert await out.get() == {"type": "lifespan.shutdown.complete"}
    await living


def test_every_answer_is_that_of_the_socket_server(server: OpenServer, folder: Path) -> None:
    """Alone, and below a path of another application."""

    async def compare() -> int:
        application = asgi({"net": folder}, ServerOptions(poll_seconds=0))
        compared = 0
        async with lived(application):
            around = Starlette(routes=[Mount("/below/models", application)])
            for prefix, outer in (("", application), ("/below/models", around)):
                async with httpx.AsyncClient(transport=httpx.ASGITransport(outer)) as client:
                    for asked in corpus():
                        expected, answer = by_socket(server, asked), await by_asgi(client, prefix, asked)
                        assert answer[0] == expected[0], (asked, answer, expected)
                        assert answer[2] == expected[2], asked
                        for name in COMPARED:
                            assert answer[1].get(name) == expected[1].get(name), (asked, name)
                        compared += 1
        return compared

    assert asyncio.run(compare()) > 200


def test_it_starts_with_its_first_request_and_only_once(folder: Path) -> None:
    """Where it is mounted nobody tells it to start; and the application around it may."""

    async def ask() -> None:
        async with asgi({"net": str(folder)}, ServerOptions(poll_seconds=0)) as application:
            around = Starlette(routes=[Mount("/m", application)])
            async with httpx.AsyncClient(transport=httpx.ASGITransport(around)) as client:
                path = "http://test/m/v1/models/net:predict"
                asking = [client.post(path, json={"instances": [{"x": at}]}) for at in range(50)]
                answers = await asyncio.gather(*asking)
        assert [answer.json()["predictions"][0]["score"] for answer in answers] == [*range(50)]
        lazy = asgi([ModelConfig("net", str(folder))], ServerOptions(poll_seconds=0))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(lazy)) as client:
            answers = await asyncio.gather(*(client.get("http://test/v2/models/net/ready") for _ in range(9)))
        assert [answer.status_code for answer in answers] == [200] * 9

    asyncio.run(ask())


def test_limits_keys_and_what_it_does_not_speak(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "keys.yaml").write_text(FILE)

    async def ask() -> None:
        options = ServerOptions(poll_seconds=0, limits=HttpLimits(body=1000), keys=tmp_path / "keys.yaml")
        async with asgi({"net": folder}, options) as application:
            async with httpx.AsyncClient(transport=httpx.ASGITransport(application)) as client:
                path = "http://test/v1/models/net:predict"
                known = {"authorization": "Bearer app-secret"}
                assert (await client.post(path, content=b"x" * 1001, headers=known)).status_code == 413
                assert (await client.post(path, content=b"x" * 1000, headers=known)).status_code == 400
                assert (await client.post(path, content=b"{}")).status_code == 401
                both = [("authorization", "Bearer app-secret"), ("authorization", "Bearer boss-secret")]
                assert (await client.post(path, content=b"{}", headers=both)).status_code == 401
                unload = "http://test/v2/repository/models/net/unload"
                assert (await client.post(unload, headers=known)).status_code == 403
                assert (await client.post(unload, headers={"x-api-key": "boss-secret"})).status_code == 200
            with pytest.raises(ValueError, match="no websocket"):
                await application({"type": "websocket"}, None, None)  # type: ignore[arg-type]

    asyncio.run(ask())
    with pytest.raises(InputError, match="cannot be read"):
        asgi({"net": folder}, ServerOptions(keys=tmp_path / "none.yaml"))


def test_a_client_that_goes_away_harms_nobody(folder: Path) -> None:
    async def ask() -> list[Any]:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        async def gone() -> Any:
            return {"type": "http.disconnect"}

        async def broken(message: Any) -> None:
            raise OSError("the client is gone")

        async def whole() -> Any:
            return {"type": "http.request", "body": json.dumps({"instances": [{"x": 1}]}).encode()}

        scope: Any = {"type": "http", "method": "POST", "path": "/v1/models/net:predict", "headers": []}
        async with asgi({"net": folder}, ServerOptions(poll_seconds=0)) as application:
            await application(scope, gone, send)
            assert sent == []
            await application(scope, whole, broken)
            await application(scope, whole, send)
        return sent

    start, body = asyncio.run(ask())
    assert start["status"] == 200
    assert json.loads(body["body"])["predictions"][0]["score"] == 1
