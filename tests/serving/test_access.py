"""Keys: who is let in, to what, how often; over real sockets, in both protocols."""

from __future__ import annotations

import hashlib
import http.client
import json
import logging
import os
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("httptools")
pytest.importorskip("grpc")

from click.testing import CliRunner
from drivetrain.console.cli import cli
from drivetrain.errors import InputError
from drivetrain.serving.access import AccessKeys, OverRateError, TokenBucket
from drivetrain.serving.api import RequestError, StatusCode
from drivetrain.serving.client import Client, ServerError
from drivetrain.serving.protos import message_class
from drivetrain.serving.server import ServerOptions
from drivetrain.tests.serving.open_server import OpenServer, open_server

PREDICT = "/v1/models/flights:predict"
INFER = "/inference.GRPCInferenceService/ModelInfer"
LOAD = "/inference.GRPCInferenceService/RepositoryModelLoad"
METADATA = "/inference.GRPCInferenceService/ServerMetadata"


def line(name: str, rest: str = "") -> str:
    """A key's line of the file; its secret is its name with "-secret"."""
    return f"  {name}: {{sha256: {hashlib.sha256(f'{name}-secret'.encode()).hexdigest()}{rest}}}\n"


def bearer(name: str) -> list[tuple[str, str]]:
    """The header with a key's secret."""
    return [("Authorization", f"Bearer {name}-secret")]


FILE = (
    "keys:\n"
    + line("app")
    + line("one-model", ", models: [flights]")
    + line("slow", ", rate: 0.01, burst: 2")
    + line("slow-rpc", ", rate: 0.01, burst: 2")
    + line("old", ", expires: 2020-01-01")
    + line("prometheus", ", may: [metrics]")
    + line("boss", ", may: [admin]")
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenServer]:
    """A server with the keys above."""
    path = tmp_path_factory.mktemp("keys") / "keys.yaml"
    path.write_text(FILE)
    with open_server(ServerOptions(keys=path)) as running:
        yield running


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([], 401),
        (bearer("app"), 404),  # let in: there is no such model
        ([("AUTHORIZATION", "bEaReR app-secret")], 404),
        ([("x-Api-kEY", "app-secret")], 404),
        ([*bearer("app"), ("X-API-Key", "app-secret")], 401),
        ([*bearer("app"), *bearer("app")], 401),
        ([*bearer("app"), *bearer("boss")], 401),
        ([("Authorization", "")], 401),
        ([("Authorization", "Bearer ")], 401),
        ([("X-API-Key", "")], 401),
        ([("Authorization", "Basic app-secret")], 401),
        ([("Authorization", "app-secret")], 401),
        ([("Authorization", "Bearer app-secret\xe9")], 401),
        ([("Authorization", "Bearer app-secret app-secret")], 401),
        ([("Authorization", "Bearer APP-SECRET")], 401),
        ([("Authorization", "Bearer " + "x" * 10_000)], 401),
        ([("Authorization", "Bearer " + "x" * 20_000)], 431),
        ([("Authorization", f"Bearer {hashlib.sha256(b'app-secret').hexdigest()}")], 401),  # the file is no key
        (bearer("old"), 401),
        (bearer("prometheus"), 403),
        (bearer("boss"), 404),
    ],
)
def test_a_request_needs_one_known_key(server: OpenServer, headers: list[tuple[str, str]], status: int) -> None:
    """Whatever is sent in its stead is refused, and never repeated."""
    code, answered, body = server.ask("POST", PREDICT, headers, body=b"{}")
    assert code == status
    assert list(body) == ["error"]
    assert "secret" not in body["error"]
    assert ("www-authenticate" in answered) is (status == 401)


@pytest.mark.parametrize(("name", "status"), [("nobody", 401), ("app", None)])
def test_a_key_is_looked_at_before_the_body(server: OpenServer, name: str, status: int | None) -> None:
    """A stranger is answered while the body has yet to be sent; who has a key is waited for."""
    host, port = server.rest.removeprefix("http://").split(":")
    with closing(http.client.HTTPConnection(host, int(port), timeout=30)) as connection:
        connection.putrequest("POST", PREDICT)
        connection.putheader(*bearer(name)[0])
        connection.putheader("content-length", "30000000")
        connection.putheader("x-request-id", "mine")
        connection.endheaders()
        if status is None:
            assert server.ask("GET", "/v2/health/live")[0] == 200  # by then that head was read
            connection.sock.settimeout(0.1)
            with pytest.raises(TimeoutError):
                connection.getresponse()
            return
        answer = connection.getresponse()
        assert (answer.status, answer.headers["x-request-id"]) == (status, "mine")
        assert "www-authenticate" in answer.headers
        assert "error" in json.loads(answer.read())


def test_keys_in_the_address_are_not_read(server: OpenServer) -> None:
    """They would be in logs and histories."""
    for query in ("key=app-secret", "api_key=app-secret", "access_token=app-secret"):
        assert server.ask("GET", f"/v1/models?{query}")[0] == 401


def test_a_line_end_in_a_key_is_no_second_header(server: OpenServer) -> None:
    """A folded header is refused before anybody looks at its key."""
    assert server.ask("GET", "/v1/models", [("Authorization", "Bearer app-secret\r\n x")])[0] in (400, 401)


@pytest.mark.parametrize(
    ("name", "method", "path", "status"),
    [
        ("", "GET", "/v2/health/live", 200),
        ("", "GET", "/v2/health/ready", 200),
        ("", "GET", "/v2/health/%6cive", 200),
        ("", "GET", "/metrics", 401),
        ("", "GET", "/monitoring/prometheus/metrics", 401),
        ("", "GET", "/v2", 401),
        ("", "GET", "/nothing", 401),
        ("", "OPTIONS", PREDICT, 401),
        ("", "POST", "/v2/repository/models/flights/load", 401),
        ("app", "GET", "/metrics", 403),
        ("app", "GET", "/v2", 200),
        ("app", "GET", "/v1/models", 200),
        ("app", "POST", "/v2/repository/models/flights/load", 403),
        ("app", "POST", "/v2/repository/models/flights/%6coad", 403),
        ("boss", "POST", "/v2/repository/models/flights/load", 404),
        ("boss", "GET", "/metrics", 200),
        ("prometheus", "GET", "/metrics", 200),
        ("one-model", "GET", "/v1/models/flights", 404),
        ("one-model", "GET", "/v1/models/other", 403),
        ("one-model", "GET", "/v1/models/other/metadata", 403),
        ("one-model", "GET", "/v2/models/other", 403),
        ("one-model", "POST", "/v2/models/other/infer", 403),
        ("one-model", "POST", "/v1/models/oth%65r:predict", 403),
        ("one-model", "POST", "/v2/models/flights/infer", 404),
        ("one-model", "GET", "/v1/models", 403),
        ("one-model", "POST", "/v2/repository/index", 403),
    ],
)
def test_what_a_key_may(server: OpenServer, name: str, method: str, path: str, status: int) -> None:
    """Health needs none; the rest is by the file."""
    assert server.ask(method, path, bearer(name) if name else [])[0] == status


def test_a_key_has_its_rate(server: OpenServer) -> None:
    """A burst of two, then one in a hundred seconds; other keys do not wait for it."""
    assert [server.ask("GET", "/v2", bearer("slow"))[0] for _ in range(3)] == [200, 200, 429]
    _, headers, body = server.ask("GET", "/v2", bearer("slow"))
    assert 90 <= int(headers["retry-after"]) <= 100
    assert "'slow'" in body["error"]
    assert server.ask("GET", "/v2", bearer("app"))[0] == 200


def test_grpc_asks_for_the_same_keys(server: OpenServer) -> None:
    """With gRPC's codes, before a message is read."""
    model = message_class("inference.ModelInferRequest")(model_name="other").SerializeToString()
    ours = message_class("inference.ModelInferRequest")(model_name="flights").SerializeToString()
    limited = (("x-api-key", "one-model-secret"),)
    app = (("authorization", "Bearer app-secret"),)
    assert server.call(METADATA) == "UNAUTHENTICATED"
    assert server.call(INFER, b"\xff") == "UNAUTHENTICATED"
    assert server.call(METADATA, metadata=app) == "OK"
    assert server.call(METADATA, metadata=app + limited) == "UNAUTHENTICATED"
    assert server.call(METADATA, metadata=app + app) == "UNAUTHENTICATED"
    assert server.call(INFER, ours, limited) == "NOT_FOUND"
    assert server.call(INFER, model, limited) == "PERMISSION_DENIED"
    assert server.call("/inference.GRPCInferenceService/RepositoryIndex", b"", limited) == "PERMISSION_DENIED"
    assert server.call(LOAD, b"", app) == "PERMISSION_DENIED"
    assert server.call(LOAD, b"", (("x-api-key", "boss-secret"),)) != "PERMISSION_DENIED"
    slow = (("x-api-key", "slow-rpc-secret"),)
    assert [server.call(METADATA, metadata=slow) for _ in range(3)] == ["OK", "OK", "RESOURCE_EXHAUSTED"]
    assert server.call("/grpc.health.v1.Health/Check") == "OK"
    assert server.call("/inference.GRPCInferenceService/ServerLive") == "OK"
    assert server.call("/inference.GRPCInferenceService/ServerReady") == "OK"


def test_every_grpc_method_asks_for_a_key(server: OpenServer) -> None:
    """Also those that stream; health alone does not."""
    from drivetrain.serving.protos import POOL, SERVICES

    for service in SERVICES:
        for method in POOL.FindServiceByName(service).methods:
            if service == "grpc.health.v1.Health" or method.name in ("ServerLive", "ServerReady"):
                continue
            assert server.call(f"/{service}/{method.name}") == "UNAUTHENTICATED", method.full_name


def test_the_client_sends_its_key(server: OpenServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the argument, or the environment."""

    def status(api_key: str | None = None) -> int:
        with Client(server.rest, "flights", api_key=api_key) as client, pytest.raises(ServerError) as caught:
            client.status()
        assert "secret" not in str(caught.value)
        return caught.value.status

    monkeypatch.delenv("DRIVETRAIN_API_KEY", raising=False)
    assert (status(), status("app-secret")) == (401, 404)
    monkeypatch.setenv("DRIVETRAIN_API_KEY", "app-secret")
    assert (status(), status("wrong")) == (404, 401)
    with pytest.raises(InputError) as caught:
        Client(server.rest, "flights", api_key="app-secret\r\nx: y")
    assert "app-secret" not in str(caught.value)


def test_a_bucket_by_hand() -> None:
    """Two at once, then one each half second."""
    bucket = TokenBucket(rate=2, burst=2, tokens=2, since=100.0)
    assert [bucket.take(100.0) for _ in range(3)] == [0, 0, 0.5]
    assert bucket.take(100.25) == 0.25
    assert bucket.take(100.5) == 0
    assert [bucket.take(1000.0) for _ in range(3)] == [0, 0, 0.5]


def test_the_file_is_read_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A new key is known, a removed one is not; a broken file changes nothing; a used rate stays used."""
    path = tmp_path / "keys.yaml"
    slow = line("slow", ", rate: 0.01, burst: 1")

    def write(text: str) -> None:
        path.write_text(text)
        os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns + 10**9))
        keys.look()

    path.write_text("keys:\n" + line("app") + slow)
    keys = AccessKeys(path)
    assert keys.admit((), ["slow-secret"]).name == "slow"
    with caplog.at_level(logging.INFO, "drivetrain.serving"):
        write("keys:\n" + line("new") + slow)
        assert keys.known((), ["new-secret"]).name == "new"
        with pytest.raises(RequestError) as gone:
            keys.known((), ["app-secret"])
        assert gone.value.code is StatusCode.UNAUTHENTICATED
        with pytest.raises(OverRateError):
            keys.admit((), ["slow-secret"])
        write("keys: {app: {sha256: app-secret}}")
        assert keys.known((), ["new-secret"]).name == "new"
        keys.look()
        assert caplog.text.count("not a SHA-256") == 1  # told once, tried again
        later = AccessKeys(path, keys.text)  # who starts now has the keys that were last in order
        assert later.known((), ["new-secret"]).name == "new"
        later.look()
        assert later.known((), ["new-secret"]).name == "new"
        write("keys:\n" + line("app"))
        later.look()
        assert later.known((), ["app-secret"]).name == "app"
    assert "not a SHA-256" in caplog.text
    assert "app-secret" not in caplog.text
    path.unlink()
    keys.look()
    assert keys.known((), ["app-secret"]).name == "app"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no keys"),
        ("keys: {app: {sha256: hunter2}}", "not a SHA-256"),
        ("keys:\n" + line("app", ", may: [everything]"), "everything"),
        ("keys:\n" + line("app", ", rate: 0"), "rate is 0"),
        ("keys:\n" + line("app", ", rate: 1.0e-320"), "1e-06 at least"),
        ("keys:\n" + line("app", ", burst: 3"), "without a rate"),
        ("keys:\n" + line("app", ", expires: soon"), "not a date"),
        ("keys:\n" + line("app") + line("app").replace("  app", "  twin"), "the same"),
        ("keys:\n" + line("'a b'"), "name"),
    ],
)
def test_a_wrong_file_says_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    """Without what may be a secret."""
    (tmp_path / "keys.yaml").write_text(text)
    with pytest.raises(InputError) as caught:
        AccessKeys(tmp_path / "keys.yaml")
    assert message in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_pipe_in_the_files_place_holds_up_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "keys.yaml"
    path.write_text("keys:\n" + line("app"))
    keys = AccessKeys(path)
    path.unlink()
    os.mkfifo(path)
    keys.look()  # in the event loop: whatever waits here, all requests wait for
    assert keys.known((), ["app-secret"]).name == "app"
    assert "the keys stay as they were" in caplog.text


def test_a_new_key_works(tmp_path: Path) -> None:
    """Its line in a file lets its secret in; the line does not hold it."""
    result = CliRunner().invoke(cli, ["serve", "--new-key", "app"])
    secret, *_, entry = [text for text in result.output.splitlines() if text]
    assert secret not in entry
    (tmp_path / "keys.yaml").write_text(f"keys:\n{entry}\n")
    assert AccessKeys(tmp_path / "keys.yaml").known([f"Bearer {secret}"]).name == "app"
    other = json.loads(CliRunner().invoke(cli, ["serve", "--new-key", "app", "--json"]).output)
    assert other["secret"] != secret
    assert other["sha256"] == hashlib.sha256(other["secret"].encode()).hexdigest()


def test_a_limited_key_is_not_told_which_models_there_are(tmp_path: Path) -> None:
    (tmp_path / "keys.yaml").write_text("keys:\n" + line("app", ", models: [flights]"))
    for options, says in ((ServerOptions(keys=tmp_path / "keys.yaml"), False), (ServerOptions(), True)):
        with open_server(options) as server:
            status, _, body = server.ask("POST", PREDICT, bearer("app"), body=b'{"instances": [1]}')
            assert (status, "the server has" in body["error"]) == (404, says)


def test_a_server_that_anybody_may_ask_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Once, where it listens beyond this machine; not with keys."""
    (tmp_path / "keys.yaml").write_text(FILE)
    for options, warnings in (
        (ServerOptions(host="0.0.0.0"), 1),
        (ServerOptions(host="0.0.0.0", keys=tmp_path / "keys.yaml"), 0),
        (ServerOptions(), 0),
    ):
        caplog.clear()
        with open_server(options):
            pass
        assert caplog.text.count("without --keys") == warnings


def test_who_asks_without_a_key_is_told_how_to_give_one(
    server: OpenServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DRIVETRAIN_API_KEY", raising=False)
    words = ["predict", f"{server.rest}/v1/models/flights", "--row", "{}"]
    result = CliRunner().invoke(cli, words)
    assert result.exit_code == 2
    assert "answers 401" in result.stderr
    assert "fix: give the server's API key: --key-file FILE or DRIVETRAIN_API_KEY" in result.stderr
    (tmp_path / "key").write_text("nobodys-secret")
    result = CliRunner().invoke(cli, [*words, "--key-file", str(tmp_path / "key")])
    assert "fix: the key that was sent is not one of the server's" in result.stderr
    assert "nobodys" not in result.stderr


def test_a_file_of_a_key_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("x\n1\n")
    words = ["predict", "http://127.0.0.1:1/v1/models/m", str(tmp_path / "rows.csv"), "--key-file", str(tmp_path)]
    result = CliRunner().invoke(cli, words)
    assert result.exit_code == 2
    assert str(tmp_path) in result.stderr
    assert "Traceback" not in result.stderr
