"""The server before the stores: keys, namespaces, proxies, what is found by curl, and whatever else may be sent."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from drivetrain.errors import InputError
from drivetrain.metadata import MetadataStore, Owner, StagedArtifact
from drivetrain.metadata.operations import OPERATIONS
from drivetrain.metadata.remote.client import KEY
from drivetrain.metadata.remote.codec import signature_of
from drivetrain.serving.access import digest_of
from drivetrain.serving.http import HttpRequest, HttpResponse
from drivetrain.serving.metadata_access import AccessFile, read_access
from drivetrain.serving.metadata_server import MetadataServer, MetadataServerOptions, run_metadata_server
from drivetrain.tests.metadata.remote.server import MetadataServerProcess
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

FILE = f"""
namespaces:
  flights: flights.db
  taxi: taxi.db
keys:
  ann: {{sha256: {digest_of("dt_ann")}, roles: [writer], namespaces: [flights]}}
  bob: {{sha256: {digest_of("dt_bob")}, roles: [reader]}}
  old: {{sha256: {digest_of("dt_old")}, roles: [admin], expires: 2020-01-01}}
proxy:
  trusted: [10.0.0.0/8, "fd00::/8"]
  users:
    eve@example.com: {{roles: [reader], namespaces: [taxi]}}
    "*": {{roles: [reader]}}
"""
OWNER = Owner.current().to_dict()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stores") / "access.yaml"
    path.write_text(FILE)
    return path


@pytest.fixture(scope="module")
def server(file: Path) -> Iterator[MetadataServer]:
    server = MetadataServer(AccessFile(file))
    server.open_all()
    with MetadataStore.open(file.parent / "flights.db") as store:
        store.context("run", "r1", {"state": "COMPLETE", "pipeline": "p"})
        for index in range(5):
            execution = store.start("Make")
            store.publish(
                execution, {"out": [StagedArtifact("T", f"artifacts/{index}", "f" * 64, index, {"n": index})]}
            )
    yield server
    server.close()


def request(
    target: str, key: str | None = "dt_ann", body: bytes = b"", *, method: str = "GET", peer: str = "", **headers: str
) -> HttpRequest:
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return HttpRequest(method, target, named | ({} if key is None else {"authorization": f"Bearer {key}"}), body, peer)


def asked(server: MetadataServer, asking: HttpRequest) -> tuple[int, Any]:
    answer = server.answer(asking)
    return answer.status, json.loads(answer.body)


def operation(name: str, key: str, namespace: str = "flights", **changes: Any) -> HttpRequest:
    body = {"arguments": {}, "owner": OWNER, "session": "s" * 32, "number": 1, "again": False, "seen": [], **changes}
    return request(f"/v1/{namespace}/operations/{name}", key, json.dumps(body).encode(), method="POST")


@pytest.mark.parametrize("key", [None, "", "dt_eve", "dt_old", "dt_ann x", "dt_anne", "*", "a" * 300])
def test_who_has_no_key_gets_nothing(server: MetadataServer, key: str | None) -> None:
    answer = server.answer(request("/v1/flights/find", key))
    assert answer.status == 401
    assert ("www-authenticate", 'Bearer realm="drivetrain"') in answer.headers


def test_a_key_comes_by_either_header_and_not_by_both(server: MetadataServer) -> None:
    assert server.answer(request("/v1/flights/find", None, x_api_key="dt_ann")).status == 200
    assert server.answer(request("/v1/flights/find", "dt_ann", x_api_key="dt_ann")).status == 401
    assert server.answer(request("/v1/flights/find", None, authorization="Basic dt_ann")).status == 401


def test_another_namespace_is_refused_as_one_that_is_not_there(server: MetadataServer) -> None:
    texts = []
    for namespace in ("taxi", "nowhere"):
        for asking in (
            request(f"/v1/{namespace}/find"),
            operation("contexts", "dt_ann", namespace, arguments={"type": "run"}),
        ):
            status, body = asked(server, asking)
            assert status == 403
            texts.append(body["error"]["message"].replace(namespace, ""))
    assert len(set(texts)) == 1
    assert server.answer(request("/v1/taxi/find", "dt_bob")).status == 200


def test_pages_are_found_by_curl(server: MetadataServer) -> None:
    where = quote("property.n >= 1")
    target = f"/v1/flights/find?kind=artifacts&where={where}&order=-size&limit=3"
    status, page = asked(server, request(target, "dt_bob"))
    assert status == 200
    assert [each["size"] for each in page["records"]] == [4, 3, 2]
    assert page["records"][0]["created_at"].endswith("+00:00")
    _, rest = asked(server, request(f"{target}&page_token={quote(page['next_page_token'])}", "dt_bob"))
    assert ([each["size"] for each in rest["records"]], rest["next_page_token"]) == ([1], None)
    _, runs = asked(server, request(f"/v1/flights/find?where={quote('pipeline = ' + chr(39) + 'p' + chr(39))}"))
    assert [run["name"] for run in runs["records"]] == ["r1"]
    _, executions = asked(server, request("/v1/flights/find?kind=executions&limit=1"))
    assert executions["records"][0]["owner"] == OWNER


@pytest.mark.parametrize(
    "query",
    [
        "kind=contexts", "limit=0", "limit=1001", "limit=x", "limit=%C2%B2", "where=%27", "where=size+%3E",
        "order=owner", "page_token=x", "kind=runs&kind=runs", "sql=1", "a",
        "where=" + quote("size = 1; DROP TABLE artifact"),
        "&".join(f"k{index}=1" for index in range(20)),
    ],
)  # fmt: skip
def test_a_query_that_is_none_is_refused(server: MetadataServer, query: str) -> None:
    status, body = asked(server, request(f"/v1/flights/find?{query}"))
    assert status == 400
    assert body["error"]["message"]


@pytest.mark.parametrize("target", ["/", "/v1", "/v1/flights", "/v1/flights/find/x", "/v1//find", "//v1/flights/find"])
def test_elsewhere_there_is_nothing(server: MetadataServer, target: str) -> None:
    assert server.answer(request(target)).status in (403, 404)
    assert server.answer(request(target, method="DELETE")).status == 404


def test_a_user_is_who_a_trusted_proxy_says(server: MetadataServer) -> None:
    def status(namespace: str, peer: str, user: str) -> int:
        return server.answer(request(f"/v1/{namespace}/find", None, peer=peer, x_forwarded_user=user)).status

    assert status("taxi", "10.1.2.3", "eve@example.com") == 200
    assert status("taxi", "fd00::1", "eve@example.com") == 200
    assert status("taxi", "::ffff:10.1.2.3", "eve@example.com") == 200
    assert status("flights", "10.1.2.3", "eve@example.com") == 403
    assert status("flights", "10.1.2.3", "else@example.com") == 200
    assert status("taxi", "10.1.2.3", "eve@example.com, root") == 401  # it came twice
    assert status("taxi", "11.1.2.3", "eve@example.com") == 401
    assert status("taxi", "10.1.2.3", "") == 401
    writing = operation("start", "", arguments={"component": "Make"})
    headers = {"x-forwarded-user": "else@example.com"}
    answer = server.answer(HttpRequest("POST", writing.target, headers, writing.body, "10.1.2.3"))
    assert answer.status == 403


def test_a_key_that_is_taken_out_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "access.yaml"
    path.write_text(FILE)
    server = MetadataServer(AccessFile(path))
    asking = request("/v1/flights/find")
    assert server.answer(asking).status == 200
    path.write_text(FILE.replace(digest_of("dt_ann"), digest_of("dt_anew")))
    assert server.answer(asking).status == 401
    assert server.answer(request("/v1/flights/find", "dt_anew")).status == 200
    path.write_text(FILE + "\nkees: {}\n")  # whoever changed it meant something
    assert server.answer(request("/v1/flights/find", "dt_anew")).status == 401
    path.write_text(FILE)
    assert server.answer(asking).status == 200
    server.close()


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("roles: [writer]", "roles: [owner]", "owner"),
        ("namespaces: [flights]}", "namespaces: [nowhere]}", "nowhere"),
        (digest_of("dt_ann"), "dt_ann", "is not a SHA-256"),
        (digest_of("dt_ann"), digest_of("dt_bob"), "are the same"),
        ("10.0.0.0/8", "10.0.0.1/8", "is not a network"),
        ("taxi: taxi.db", "taxi: https://elsewhere/taxi", "another metadata server"),
        ("taxi: taxi.db", "../x: taxi.db", "other characters"),
        ("expires: 2020-01-01", "expires: soon", "is not a date"),
        ("roles: [writer]", "role: [writer]", "role"),
    ],
)
def test_a_file_that_is_wrong_is_named(before: str, after: str, says: str, tmp_path: Path) -> None:
    assert before in FILE
    with pytest.raises(InputError, match=says) as caught:
        read_access(FILE.replace(before, after), tmp_path / "access.yaml")
    assert "dt_ann" not in str(caught.value)


def test_keys_leave_no_machine_in_plain_text(file: Path) -> None:
    with pytest.raises(InputError, match="by plain HTTP"):
        run_metadata_server(MetadataServerOptions(file, "0.0.0.0", 0), print)


# -- hostile bodies

TEXTS = st.text(max_size=12)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(sorted(OPERATIONS)) | TEXTS


def expected(answer: HttpResponse) -> bool:
    body = json.loads(answer.body)
    failed = "the metadata server failed" in str(body.get("error", {}).get("message"))
    return not failed and (answer.status == 200) == ("error" not in body)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=NAMES, arguments=ANYTHING, owner=ANYTHING, seen=ANYTHING, number=ANYTHING)
def test_no_body_makes_it_fail(
    server: MetadataServer, name: str, arguments: Any, owner: Any, seen: Any, number: Any
) -> None:
    for changes in (
        {"arguments": arguments}, {"arguments": {"reference": arguments, "uri": arguments}}, {"owner": owner},
        {"seen": seen}, {"seen": [seen]}, {"number": number}, {"session": arguments}, {"again": number},
    ):  # fmt: skip
        asking = operation(quote(name, safe=""), "dt_ann", **changes)
        assert expected(server.answer(asking)), (name, changes)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_argument_makes_it_fail(server: MetadataServer, data: st.DataObject) -> None:
    """Arguments by their names, with values of any type, or records where others are wanted."""
    name = data.draw(st.sampled_from(sorted(OPERATIONS)))
    with MetadataStore.open(server.file.path.parent / "flights.db", readonly=True) as store:
        execution = signature_of(OPERATIONS["is_dead"].function).arguments_to_json((store.executions(limit=1)[0],), {})
    odd = [execution["execution"], "artifact", "LIVE", "upstream", -1, 2**70, "x" * 300, "\0", "\ud800"]
    values = ANYTHING | st.sampled_from(odd)
    hints = signature_of(OPERATIONS[name].function)._hints
    arguments = {parameter: data.draw(values) for parameter in hints}
    assert expected(server.answer(operation(name, "dt_ann", arguments=arguments))), (name, arguments)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b"null", b"[" * 100_000, b"\xff", b'{"a": NaN}', b"1" * 5000])
def test_a_body_that_is_no_request_is_refused(server: MetadataServer, body: bytes) -> None:
    status, answer = asked(server, request("/v1/flights/operations/start", body=body, method="POST"))
    assert status == 400
    assert "is no request for an operation" in answer["error"]["message"]


def test_an_answer_is_for_the_key_that_asked(server: MetadataServer, file: Path) -> None:
    first = server.answer(operation("start", "dt_ann", session="f" * 32, arguments={"component": "Secret"}))
    assert first.status == 200
    again = server.answer(operation("start", "dt_ann", session="f" * 32, again=True, arguments={"component": "Secret"}))
    assert again.body == first.body
    other = operation("start", "dt_bob", session="f" * 32, again=True, arguments={"component": "Secret"})
    assert server.answer(other).status == 403


# -- the process


@pytest.mark.slow
def test_a_key_is_looked_at_before_the_body_and_may_ask_only_so_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = MetadataServerProcess(tmp_path)
    namespace = server.namespace("a", tmp_path / "a.db")
    server.add_key("hasty", ["writer"], rate=4, burst=2)
    server.add_key("rare", ["reader"], rate=0.001)
    server.start()

    def status(key: str, length: int) -> int:
        with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)) as connection:
            connection.putrequest("POST", "/v1/a/operations/now")
            connection.putheader("authorization", f"Bearer {key}")
            connection.putheader("content-length", str(length))
            connection.endheaders()  # and no body
            answer = connection.getresponse()
            assert (answer.status == 429) == ("retry-after" in answer.headers)
            return answer.status

    try:
        for length in (1000, 30_000_000, 1 << 40):
            assert status("nobody", length) == 401
        assert status(server.secret("tests"), 1 << 40) == 413
        monkeypatch.setenv(KEY, server.secret("hasty"))
        with MetadataStore.open(namespace) as store:
            begun = time.monotonic()
            for number in range(8):  # whoever asks too often waits, and loses nothing
                store.context("run", f"r{number}")
            assert time.monotonic() - begun > 1
            assert len(store.contexts("run")) == 8
        assert [status(server.secret("rare"), 1 << 40) for _ in range(3)] == [413, 429, 429]
        server.add_key("another", ["reader"])  # the file is read anew, and nobody's rate begins anew with it
        assert status(server.secret("rare"), 1 << 40) == 429
        assert status(server.secret("another"), 1 << 40) == 413
    finally:
        server.end()


@pytest.mark.slow
def test_a_large_body_is_cut_off_and_no_key_is_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = MetadataServerProcess(tmp_path)
    server.start()
    try:
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        connection.request("GET", "/healthz")
        assert json.load(connection.getresponse()) == {"status": "ok"}
        connection.putrequest("POST", "/v1/a/operations/start")
        connection.putheader("authorization", f"Bearer {server.secret('tests')}")
        connection.putheader("content-length", str(1 << 40))
        connection.endheaders()
        assert connection.getresponse().status == 413
        connection.close()
        monkeypatch.setenv(KEY, server.secret("tests"))
        with MetadataStore.open(server.namespace("a", tmp_path / "a.db")) as store:
            store.start("Make")
        server.remove_key("tests")
        with pytest.raises(InputError, match="the key is not known"):
            MetadataStore.open(f"{server.address}/a")
        assert server.secret("tests") not in server.log
    finally:
        server.end()
