"""The clients, sync and async: the same answers by every transport, columns checked before they are sent, tries."""

from __future__ import annotations

import asyncio
import contextlib
import decimal
import http.server
import json
import math
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

pytest.importorskip("httptools")
pytest.importorskip("grpc")

import grpc
from drivetrain.engine import Bundle, analyze, ops
from drivetrain.errors import InputError
from drivetrain.serving import AsyncClient, Client, ServerError, client_steps
from drivetrain.serving import async_client as async_client_module
from drivetrain.serving import client as client_module
from drivetrain.serving.client_columns import InputType, check, column_tensor, plain
from drivetrain.serving.config import ModelConfig
from drivetrain.serving.server import ServerOptions
from drivetrain.serving.tls import TlsFiles
from drivetrain.tests.engine.bundles.test_bundle import build, rows
from drivetrain.tests.serving.open_server import OpenServer, open_server
from drivetrain.tests.serving.test_access import FILE

pytestmark = pytest.mark.engine
Transport = Literal["json", "binary", "grpc"]
TRANSPORTS: tuple[Transport, ...] = ("json", "binary", "grpc")


def texts(c: ops.Columns) -> ops.Columns:
    """Text, a flag, a vector and a list in; text, a flag and a vector out."""
    return {
        "loud": ops.upper(c["word"]),
        "id": ops.vocabulary(c["word"]),
        "not_flag": ops.fill_missing(c["flag"], False) == False,  # noqa: E712 - an array's
        "vector": ops.to_dense(c["vector"], 3, fill=0.0) * 2,
    }


TEXTS = pa.table(
    {
        "word": ["straße", "b", "日本語", "x" * 300],
        "flag": [True, False, None, True],
        "vector": [[0.1, 2.5, 1e30], [1.0, -0.0, 3.0], [math.inf, 1.0, 2.0], [4.0, 5.0, 6.0]],
    }
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bundles of numbers with missing values, in two versions, and of text."""
    folder = tmp_path_factory.mktemp("client")
    for version in (1, 2):
        built = build(folder / f"built{version}")
        (folder / "mixed").mkdir(exist_ok=True)
        built.rename(folder / "mixed" / str(version))
    (folder / "texts").mkdir()
    analyze(texts, TEXTS).save(folder / "texts" / "1")
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[OpenServer]:
    """Both bundles, `mixed` with a label."""
    configs = [
        ModelConfig("mixed", str(folder / "mixed"), policy="all", labels={"stable": 1}),
        ModelConfig("texts", str(folder / "texts")),
    ]
    with open_server(ServerOptions(poll_seconds=0), configs) as running:
        yield running


def url_of(server: OpenServer, transport: Transport) -> str:
    return f"http://{server.grpc}" if transport == "grpc" else server.rest


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_rows_and_columns_are_answered_as_the_bundle_does(
    server: OpenServer, folder: Path, transport: Transport
) -> None:
    """Missing numbers too; whatever the transport, the version and the form of the rows."""
    bundle = Bundle.load(folder / "mixed" / "2")
    table = rows(200).filter(pa.compute.is_valid(rows(200)["carrier"]))  # gRPC's tensors have no missing text
    expected = bundle.run("predict", table)
    with Client(url_of(server, transport), "mixed", transport=transport) as client:
        answer = client.predict(table.to_pylist())
        assert (answer.version, answer.digest) == (
            2,
            json.loads((folder / "mixed" / "2" / "manifest.json").read_bytes())["digest"],
        )
        assert answer.request_id
        assert [*answer.rows[0]] == ["probability", "pair"]
        np.testing.assert_allclose([row["probability"] for row in answer.rows], expected["probability"], atol=1e-6)
        np.testing.assert_allclose([row["pair"] for row in answer.rows], expected["pair"], atol=1e-6)
        columns = {name: table[name].to_pylist() for name in table.column_names}
        columns["speed"] = table["speed"].to_numpy()
        by_column = client.predict(columns)
        np.testing.assert_allclose(by_column.outputs["pair"], expected["pair"], atol=1e-6)
        parts = [*client.predict_all(table.to_pylist())]
        assert len(parts[0].rows) == table.num_rows
    for which in ({"version": 1}, {"label": "stable"}):
        with Client(url_of(server, transport), "mixed", transport=transport, **which) as client:
            assert client.predict(table.to_pylist()[:3], signature="predict").version == 1


@pytest.mark.parametrize("kind", ["numpy", "nullable", "arrow", "categories"])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_columns_and_rows_of_pandas(server: OpenServer, folder: Path, transport: Transport, kind: str) -> None:
    """Missing values as each of pandas' types has them."""
    table = rows(50).filter(pa.compute.is_valid(rows(50)["carrier"]))
    expected = Bundle.load(folder / "mixed" / "2").run("predict", table)["probability"]
    frame = table.to_pandas(types_mapper=pd.ArrowDtype if kind == "arrow" else None)
    if kind == "nullable":
        frame = frame.convert_dtypes()
    if kind == "categories":
        frame = frame.astype(dict.fromkeys(frame.select_dtypes("number").columns, "category"))
    frame.index += 7
    with Client(url_of(server, transport), "mixed", transport=transport) as client:
        for sent in (frame.to_dict("series"), {name: frame[name].array for name in frame}, frame.to_dict("records")):
            answer = client.predict(sent)
            np.testing.assert_allclose([row["probability"] for row in answer.rows], expected, atol=1e-6)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_decimals_are_numbers(server: OpenServer, folder: Path, transport: Transport) -> None:
    """As `Bundle.run_row` reads them; a column that the model does not read may hold some, too."""
    table = rows(20).filter(pa.compute.is_valid(rows(20)["carrier"]))
    asked = [
        {
            name: value if value is None or isinstance(value, str) else decimal.Decimal(repr(value))
            for name, value in {**row, "unread": 1.5}.items()
        }
        for row in table.to_pylist()
    ]
    expected = Bundle.load(folder / "mixed" / "2").run("predict", table)["probability"]
    with Client(url_of(server, transport), "mixed", transport=transport) as client:
        for sent in (asked, {name: [row[name] for row in asked] for name in asked[0]}):
            answer = client.predict(sent)
            np.testing.assert_allclose([row["probability"] for row in answer.rows], expected, atol=1e-6)


@pytest.mark.parametrize(
    ("text", "number"),
    [("1.50", 1.5), ("2.00", 2), ("18446744073709551615", 2**64 - 1), ("1E+400", math.inf), ("-0.0", 0),
     ("Infinity", math.inf), ("NaN", None), ("sNaN", None), ("1E+999999", math.inf), ("1E-999999", 0.0)],
)  # fmt: skip
def test_a_decimal_as_a_number(text: str, number: float | None) -> None:
    assert plain(decimal.Decimal(text)) == number


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_text_flags_and_vectors(server: OpenServer, folder: Path, transport: Transport) -> None:
    bundle = Bundle.load(folder / "texts" / "1")
    (name,) = bundle.signatures
    table = TEXTS.slice(0, 2) if transport == "grpc" else TEXTS  # no missing flag
    expected = bundle.run(name, table)
    asked = [{**row, "word": row["word"].encode()} if transport == "binary" else row for row in table.to_pylist()]
    if transport != "json":
        asked = asked[:2]
    with Client(url_of(server, transport), "texts", transport=transport) as client:
        answer = client.predict(asked)
    for at, row in enumerate(answer.rows):
        assert row["loud"] == expected["loud"][at]
        assert row["id"] == expected["id"][at]
        assert row["not_flag"] == expected["not_flag"][at]
        np.testing.assert_array_equal(row["vector"], expected["vector"][at])


def test_missing_text_goes_by_json_and_binary(server: OpenServer, folder: Path) -> None:
    table = rows(50)
    assert table["carrier"].null_count
    expected = Bundle.load(folder / "mixed" / "2").run("predict", table)["probability"]
    for transport in TRANSPORTS[:2]:
        with Client(url_of(server, transport), "mixed", transport=transport) as client:
            answer = client.predict(table.to_pylist())
            np.testing.assert_allclose(answer.outputs["probability"], expected, atol=1e-6)
    with (
        Client(url_of(server, "grpc"), "mixed", transport="grpc") as client,
        pytest.raises(InputError, match="'carrier' is string and has a missing value"),
    ):
        client.predict(table.to_pylist())


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_many_at_once_in_an_event_loop(server: OpenServer, folder: Path, transport: Transport) -> None:
    """Each task gets its own answer, over few connections; metadata and status are those of the other client."""
    table = rows(100).filter(pa.compute.is_valid(rows(100)["carrier"]))
    expected = Bundle.load(folder / "mixed" / "2").run("predict", table)["probability"]

    async def ask() -> list[float]:
        options: Any = {"connections": 4} if transport != "grpc" else {}
        async with AsyncClient(url_of(server, transport), "mixed", transport=transport, **options) as client:
            answers = await asyncio.gather(*(client.predict([row]) for row in table.to_pylist()))
            with Client(url_of(server, transport), "mixed", transport=transport) as other:
                assert await client.metadata() == other.metadata()
                assert await client.status() == other.status()
            parts = [len(part.rows) async for part in client.predict_all(table.to_pylist())]
            assert parts == [table.num_rows]
            return [answer.rows[0]["probability"] for answer in answers]

    np.testing.assert_allclose(asyncio.run(ask()), expected, atol=1e-6)


def test_metadata_and_status_are_the_same_by_every_transport(server: OpenServer) -> None:
    seen = []
    for transport in TRANSPORTS:
        with Client(url_of(server, transport), "mixed", transport=transport) as client:
            seen.append((client.metadata(), client.status()))
    assert seen[0] == seen[1] == seen[2]
    assert [each["version"] for each in seen[0][1]] == ["2", "1"]


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"hour": "noon"}, "'hour' is int64, row 1 has the text 'noon'"),
        ({"hour": 1.5}, "'hour' is int64, row 1 has 1.5"),
        ({"hour": 2**63}, "'hour' is int64, row 1 has 9223372036854775808, which does not fit"),
        ({"hour": True}, "'hour' is int64, row 1 has True"),
        ({"speed": [1.0, 2.0]}, "'speed' is float64, row 1 has a list of 2"),
        ({"speed": False}, "'speed' is float64, row 1 has False"),
        ({"carrier": 7}, "'carrier' is string, row 1 has 7"),
        ({"carrier": np.datetime64("2026-01-01")}, "'carrier' is string, row 1 has a date"),
    ],
)
def test_what_the_model_does_not_read_is_not_sent(
    server: OpenServer, transport: Transport, row: dict[str, Any], words: str
) -> None:
    good = {"delay": 1.0, "speed": 2.0, "hour": 3, "carrier": "UA", "arrival": 4}
    with Client(url_of(server, transport), "mixed", transport=transport) as client:
        before = requests_of(server)
        with pytest.raises(InputError, match=words):
            client.predict([good, {**good, **row}])
        assert requests_of(server) == before


def requests_of(server: OpenServer) -> list[str]:
    """How many requests for predictions ended how."""
    text = server.ask("GET", "/metrics")[2].decode()
    return [line for line in text.splitlines() if line.startswith("drivetrain_serving_requests_total")]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_what_the_server_refuses_is_said(server: OpenServer, transport: Transport) -> None:
    with Client(url_of(server, transport), "mixed", transport=transport) as client:
        for asked, words in (
            ([{"hour": 3}], "missing"),
            ([], "no rows|is empty|missing|no input"),
        ):
            with pytest.raises(ServerError, match=words) as caught:
                client.predict(asked)
            assert caught.value.status == 400
        with pytest.raises(ServerError, match="no signature 'none'"):
            client.predict([{"hour": 3}], signature="none")
    with Client(url_of(server, transport), "none", transport=transport) as client:
        with pytest.raises(ServerError, match="no model") as caught:
            client.predict([{"x": 1}])
        assert caught.value.status == 404
    with Client(url_of(server, transport), "mixed", label="none", transport=transport) as client:
        with pytest.raises(ServerError, match="no label") as caught:
            client.predict([{"x": 1}])
        assert caught.value.status == 404


def test_rows_that_differ_in_their_columns(server: OpenServer) -> None:
    """A tensor has a value for each; JSON leaves it to the server."""
    good = {"delay": 1.0, "speed": 2.0, "hour": 3, "carrier": "UA", "arrival": 4}
    lacking = {name: value for name, value in good.items() if name != "hour"}
    with (
        Client(url_of(server, "binary"), "mixed", transport="binary") as client,
        pytest.raises(InputError, match=r"row 1 lacks the column 'hour' \(int64\)"),
    ):
        client.predict([good, lacking])
    with Client(server.rest, "mixed") as client, pytest.raises(ServerError, match="row 1 lacks 'hour'"):
        client.predict([good, lacking])


def test_a_table_is_refused_and_what_the_error_says_instead_is_answered(server: OpenServer) -> None:
    table = rows(5).filter(pa.compute.is_valid(rows(5)["carrier"]))
    frame, first = table.to_pandas(), table.column_names[0]
    refused: list[tuple[Any, str]] = [
        (frame, f"a DataFrame is not rows: its item 0 is the text '{first}'"),
        (table, "a Table is not rows: its item 0 is a list of"),
        ([{}, "x"], "a list is not rows: its item 1 is the text 'x'"),
    ]
    with Client(server.rest, "mixed") as client:
        for sent, words in refused:
            with pytest.raises(InputError, match=words):
                client.predict(sent)
        answers = [client.predict(sent).rows for sent in (frame.to_dict("series"), table.to_pydict())]
        assert len(answers[0]) == table.num_rows
        assert answers[0] == answers[1] == client.predict(table.to_pylist()).rows


@pytest.mark.parametrize(
    ("dtype", "shape", "values", "problem"),
    [
        ("uint8", (), [255, 0], ""),
        ("uint8", (), [0, 256], "row 1 has 256, which does not fit"),
        ("uint8", (), [-1], "row 0 has -1, which does not fit"),
        ("int8", (2,), [[-128, 127], None], ""),
        ("int8", (2,), [[1, 2], [1, 2, 3]], "int8[2], row 1 has 3 values"),
        ("float32", (-1,), [[], [1, 2.5, None]], ""),
        ("float32", (-1,), [1.0], "float32[any], row 0 has 1.0, which is not a list"),
        ("bfloat16", (), [1, "x"], "row 1 has the text 'x'"),
        ("string", (-1,), [["a", b"b"], [None]], ""),
        ("string", (), [{"b64": "YQ=="}], ""),
        ("float64", (), [{"b64": "YQ=="}], "row 0 has a dict"),
        ("bool", (), [True, None], ""),
        ("bool", (), [1], "row 0 has 1"),
        ("int64", (), [5.0, [6]], ""),
        ("complex64", (), ["not looked at"], ""),
    ],
)
def test_checks_by_dtype_and_shape(dtype: str, shape: tuple[int, ...], values: list[Any], problem: str) -> None:
    of = InputType("c", dtype, shape)
    if not problem:
        check(values, of)
        return
    with pytest.raises(InputError) as caught:
        check(values, of)
    assert problem in caught.value.message


def test_large_whole_numbers_travel_exactly() -> None:
    for dtype, values in (("int64", [5.0, 2**53 + 1, -(2**63)]), ("uint64", [2**64 - 1, 1])):
        tensor = column_tensor(values, InputType("c", dtype))
        assert tensor.content is not None
        assert np.frombuffer(tensor.content, dtype).tolist() == values
    tensor = column_tensor([1, None, 2.0], InputType("c", "int64"))
    assert (tensor.datatype, tensor.content) == ("FP64", np.array([1, np.nan, 2]).tobytes())


@pytest.mark.parametrize(
    ("dtype", "shape", "values"),
    [
        ("bool", (), [True, None]),
        ("int64", (), [None, 2**53 + 1]),
        ("float32", (-1,), [[1.0], [1.0, 2.0]]),
        ("float32", (-1,), [[1.0], None]),
        ("int64", (-1,), [[], []]),
        ("string", (-1,), [["a"], []]),
        ("string", (-1,), [None, ["a"]]),
    ],
)
def test_what_no_tensor_holds_is_said(dtype: str, shape: tuple[int, ...], values: list[Any]) -> None:
    with pytest.raises(InputError, match=r"column 'c' has .*, which a tensor cannot hold"):
        column_tensor(values, InputType("c", dtype, shape))


# --- servers that are not there, or not yet ---


class Flaky(http.server.BaseHTTPRequestHandler):
    """Answers 503 as often as it is told, then the metadata and predictions of a model."""

    disable_nagle_algorithm = True  # it writes a body apart from its head
    refusals = 0
    asked: list[str]

    def do_GET(self) -> None:
        fields = {"x": {"dtype": "DT_DOUBLE", "tensor_shape": {"dim": [{"size": "-1"}]}}}
        signature = {"inputs": fields, "outputs": {"y": fields["x"]}}
        self._answer({"metadata": {"signature_def": {"signature_def": {"serving_default": signature}}}})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self._answer({"predictions": [1.5]})

    def _answer(self, body: dict[str, Any]) -> None:
        type(self).asked.append(self.command)
        status = 200
        if type(self).refusals:
            type(self).refusals -= 1
            status, body = 503, {"error": "not yet"}
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_request(self, *args: Any) -> None:
        pass


class Kept(Flaky):
    """Keeps its connections, and notes each."""

    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        type(self).asked.append("connection")
        super().setup()


class ManyAtOnce(http.server.ThreadingHTTPServer):
    """Of those that come at once, none is turned away, to come again a second later."""

    request_queue_size = 128


@contextmanager
def flaky(refusals: int, port: int = 0, handler: type[Flaky] = Flaky) -> Iterator[tuple[int, list[str]]]:
    """Its port, and what it was asked."""
    handler = type("Handler", (handler,), {"refusals": refusals, "asked": []})
    with ManyAtOnce(("127.0.0.1", port), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server.server_port, handler.asked
        finally:
            server.shutdown()
            thread.join()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def predict_async(url: str, **options: Any) -> Any:
    async def ask() -> Any:
        async with AsyncClient(url, "m", **options) as client:
            return await client.predict([{"x": 1.0}])

    return asyncio.run(ask())


def predict_sync(url: str, **options: Any) -> Any:
    with Client(url, "m", **options) as client:
        return client.predict([{"x": 1.0}])


@pytest.mark.parametrize("predict", [predict_sync, predict_async])
def test_503_is_tried_again_and_other_refusals_are_not(predict: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drivetrain.serving.client_steps._FIRST_WAIT", 0.01)
    with flaky(2) as (port, asked):
        assert predict(f"http://127.0.0.1:{port}").rows == (1.5,)
        assert asked == ["GET", "GET", "GET", "POST"]
    with flaky(9) as (port, asked):
        with pytest.raises(ServerError, match="not yet") as caught:
            predict(f"http://127.0.0.1:{port}", retries=1)
        assert (caught.value.status, asked) == (503, ["GET", "GET"])
    with flaky(9) as (port, asked), pytest.raises(ServerError):
        predict(f"http://127.0.0.1:{port}", retries=0)


def test_options_that_cannot_be_are_refused_before_anything_is_asked() -> None:
    for kind in (Client, AsyncClient):
        with pytest.raises(InputError, match="'http' is not a transport"):
            kind("http://127.0.0.1:1", "m", transport="http")  # type: ignore[arg-type]
        with pytest.raises(InputError, match="retries is -1"):
            kind("http://127.0.0.1:1", "m", retries=-1)
        with pytest.raises(InputError, match="is not a server"):
            kind("127.0.0.1:1", "m")
        with pytest.raises(InputError, match=r"models/m is not the server alone\n  fix: give http://host/apps, and"):
            kind("http://me:secret@host/apps/v1/models/m", "m")
        with pytest.raises(InputError, match="both named"):
            kind("http://127.0.0.1:1", "m", version=1, label="stable")


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_all_requests_of_a_client_go_over_one_connection(kind: Any) -> None:
    """An answer that is not ended would make each second request fail, and be tried again over a new one."""

    async def ask_async(client: AsyncClient) -> None:
        async with client:
            for _ in range(5):
                await client.predict([{"x": 1.0}])

    def ask(client: Client) -> None:
        with client:
            for _ in range(5):
                client.predict([{"x": 1.0}])

    with flaky(0, handler=Kept) as (port, asked):
        client = kind(f"http://127.0.0.1:{port}", "m", retries=0)
        if isinstance(client, AsyncClient):
            asyncio.run(ask_async(client))
        else:
            ask(client)
        assert asked == ["connection", "GET"] + ["POST"] * 5


def test_signatures_are_read_once_for_all_that_begin_together() -> None:
    async def ask(port: int) -> list[Any]:
        async with AsyncClient(f"http://127.0.0.1:{port}", "m") as client:
            return await asyncio.gather(*(client.predict([{"x": 1.0}]) for _ in range(20)))

    with flaky(0) as (port, asked):
        assert [answer.rows for answer in asyncio.run(ask(port))] == [(1.5,)] * 20
        assert sorted(asked) == ["GET"] + ["POST"] * 20


@pytest.mark.parametrize("predict", [predict_sync, predict_async])
def test_a_server_that_comes_while_a_client_waits(predict: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = threading.Event()

    def longest(_: float, most: float) -> float:
        refused.set()
        return most

    monkeypatch.setattr(client_steps, "random", SimpleNamespace(uniform=longest))
    port = free_port()
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(predict(f"http://127.0.0.1:{port}", retries=8)))
    thread.start()
    assert refused.wait(60)
    with flaky(0, port):
        thread.join(60)
    assert answers[0].rows == (1.5,)


@pytest.mark.parametrize("predict", [predict_sync, predict_async])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_server_that_is_not_there_or_does_not_answer(predict: Any, transport: Transport) -> None:
    with pytest.raises(ServerError, match="does not answer") as caught:
        predict(f"http://127.0.0.1:{free_port()}", transport=transport, retries=1)
    assert caught.value.status == 0
    assert ("--grpc-port" in str(caught.value.fix)) == (transport == "grpc")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        start = time.monotonic()
        with pytest.raises(ServerError, match="does not answer"):
            predict(f"http://127.0.0.1:{silent.getsockname()[1]}", transport=transport, timeout=0.1, retries=0)
        assert time.monotonic() - start < 10


@pytest.mark.parametrize("predict", [predict_sync, predict_async])
def test_a_wrong_scheme_or_port_is_named(folder: Path, predict: Any) -> None:
    """TLS where the server has none, and REST at gRPC's port."""
    with open_server(ServerOptions(poll_seconds=0), [ModelConfig("texts", str(folder / "texts"))]) as server:
        with pytest.raises(ServerError, match="does not answer") as caught:
            predict(server.rest.replace("http:", "https:"), retries=0)
        assert "begins with http://" in str(caught.value.fix)
        with pytest.raises(ServerError, match="this port speaks HTTP/2 alone, for gRPC"):
            predict(f"http://{server.grpc}", retries=0)


def test_keys_and_tls_by_every_transport(folder: Path, tmp_path: Path) -> None:
    cryptography = pytest.importorskip("cryptography")
    assert cryptography
    from drivetrain.tests.serving.test_tls import write_certificate

    certificate, key, _ = write_certificate(tmp_path, "server")
    (tmp_path / "keys.yaml").write_text(FILE)
    options = ServerOptions(poll_seconds=0, keys=tmp_path / "keys.yaml", tls=TlsFiles(certificate, key))
    http_tls = ssl.create_default_context(cafile=certificate)
    grpc_tls = grpc.ssl_channel_credentials(certificate.read_bytes())
    row = TEXTS.to_pylist()[0]
    with open_server(options, [ModelConfig("texts", str(folder / "texts"))]) as server:
        for transport in TRANSPORTS:
            url = f"https://{server.grpc}" if transport == "grpc" else server.rest
            tls: Any = grpc_tls if transport == "grpc" else http_tls
            with Client(url, "texts", api_key="app-secret", tls=tls, transport=transport) as client:
                assert client.predict([row]).rows[0]["loud"] == "STRAẞE"
            for api_key, status in (("", 401), ("wrong", 401), ("prometheus-secret", 403)):
                with Client(url, "texts", api_key=api_key, tls=tls, transport=transport) as client:
                    with pytest.raises(ServerError) as caught:
                        client.predict([row])
                    assert caught.value.status == status
            with (
                Client(url, "texts", api_key="app-secret", transport=transport, retries=0) as client,
                pytest.raises(ServerError, match="does not answer") as untrusted,
            ):
                client.predict([row])
            assert ("who signed its certificate" in str(untrusted.value.fix)) == (transport != "grpc")

        async def ask() -> Any:
            for transport in TRANSPORTS:
                url = f"https://{server.grpc}" if transport == "grpc" else server.rest
                tls: Any = grpc_tls if transport == "grpc" else http_tls
                async with AsyncClient(url, "texts", api_key="app-secret", tls=tls, transport=transport) as client:
                    assert (await client.predict([row])).rows[0]["loud"] == "STRAẞE"

        asyncio.run(ask())
    with pytest.raises(InputError, match=r"no ssl\.SSLContext"):
        Client("https://127.0.0.1:1", "m", tls=http_tls, transport="grpc")
    with pytest.raises(InputError, match=r"no ssl\.SSLContext"):
        Client("https://127.0.0.1:1", "m", tls=grpc_tls)


def test_a_model_that_reads_other_columns_by_now(folder: Path, tmp_path: Path) -> None:
    """What a client knows of a model may be old: it looks again before it refuses, and where it was refused."""
    (tmp_path / "m").mkdir()
    analyze(texts, TEXTS).save(tmp_path / "m" / "1")
    table = pa.table({"word": [1.5, 2.5], "other": ["a", "b"]})
    with open_server(ServerOptions(poll_seconds=0.05), [ModelConfig("m", str(tmp_path / "m"))]) as server:
        clients = [Client(url_of(server, each), "m", transport=each) for each in TRANSPORTS]
        for client in clients:
            assert client.predict(TEXTS.to_pylist()[:1]).version == 1
        analyze(lambda c: {"double": c["word"] * 2, "loud": ops.upper(c["other"])}, table).save(tmp_path / "m" / "2")
        deadline = time.monotonic() + 60
        while server.ask("GET", "/v1/models/m/versions/2/metadata")[0] != 200:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        for client in clients:
            answer = client.predict([{"word": 1.5, "other": "a"}])
            assert (answer.version, answer.rows[0]) == (2, {"double": 3.0, "loud": "A"})
            client.close()


@pytest.mark.parametrize(("status", "words"), [(200, "answers 200, but no JSON"), (400, "answers 400")])
def test_an_answer_that_is_nested_without_end_is_no_answer(status: int, words: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def lie() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(b"HTTP/1.1 %d X\r\nConnection: close\r\n\r\n" % status + b"[" * 100_000)

        liar = threading.Thread(target=lie, daemon=True)
        liar.start()
        with (
            Client(f"http://127.0.0.1:{listening.getsockname()[1]}", "net", timeout=20) as client,
            pytest.raises(ServerError, match=words),
        ):
            client.traffic()
        liar.join(20)


def _liar(*parts: bytes, pause: float = 0.0) -> socket.socket:
    """Answers every connection with these bytes, the last of them without end; it listens until it is closed."""
    listening = socket.create_server(("127.0.0.1", 0))

    def lie() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listening.accept()
                with connection, contextlib.suppress(OSError):
                    connection.recv(65_536)
                    connection.sendall(b"".join(parts[:-1]))
                    while True:
                        connection.sendall(parts[-1])
                        time.sleep(pause)

    threading.Thread(target=lie, daemon=True).start()
    return listening


HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNK = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"


def test_an_answer_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (client_module, async_client_module):
        monkeypatch.setattr(module, "MOST_BYTES", 1 << 20)
    with _liar(HEAD, b"Transfer-Encoding: chunked\r\n\r\n", CHUNK) as listening:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with Client(address, "net") as client, pytest.raises(ServerError, match="answers with more than"):
            client.traffic()

        async def ask() -> None:
            async with AsyncClient(address, "net") as client:
                await client.status()

        with pytest.raises(ServerError, match="answers with more than"):
            asyncio.run(ask())


def test_an_answer_that_drips_is_given_up_in_time() -> None:
    with _liar(HEAD, b"Content-Length: 99999999999999\r\n\r\n", b"x", pause=0.03) as listening:
        begin = time.monotonic()
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with Client(address, "net", timeout=0.3) as client, pytest.raises(ServerError, match=r"not 65,536|timed out"):
            client.traffic()
        assert time.monotonic() - begin < 10  # on a busy machine; it went on for ever
