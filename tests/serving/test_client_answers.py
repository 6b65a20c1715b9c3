"""Clients of servers that answer something else than they were asked: one error that names it, and never other rows."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import http.server
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import pytest

pytest.importorskip("httptools")
pytest.importorskip("grpc")

import grpc
from drivetrain.errors import InputError
from drivetrain.serving import AsyncClient, Client, Prediction, ServerError, async_client, grpc_calls, protos
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.engine
Transport = Literal["json", "binary", "grpc"]
Json: TypeAlias = Any
TRANSPORTS: Final[tuple[Transport, ...]] = ("json", "binary", "grpc")
ROWS: Final = [{"x": 1.0}, {"x": 2.0}, {"x": 3.0}]
LENGTH: Final = "inference-header-content-length"
HOSTILE: Final = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def described(dtype: str = "DT_DOUBLE", size: Json = "-1") -> Json:
    return {"dtype": dtype, "tensor_shape": {"dim": [{"size": size}]}}


def metadata(*outputs: str) -> Json:
    signature = {"inputs": {"x": described()}, "outputs": {name: described() for name in outputs}}
    return {"metadata": {"signature_def": {"signature_def": {"serving_default": signature}}}}


@dataclass
class Answering:
    """A server that answers what a test says: HTTP and gRPC at once."""

    http: int = 0
    grpc: int = 0
    described: Json = field(default_factory=lambda: metadata("y"))
    described_grpc: bytes = b""
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)

    def url(self, transport: Transport) -> str:
        return f"http://127.0.0.1:{self.grpc if transport == 'grpc' else self.http}"

    def of(self, body: Json, *outputs: str, **headers: str) -> None:
        """Answer this, as the model with these outputs."""
        self.described = metadata(*(outputs or ("y",)))
        self.body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.headers = headers


@pytest.fixture(scope="module")
def server() -> Iterator[Answering]:
    answering = Answering()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            described = json.dumps(answering.described).encode()
            self.reply(described if self.path.endswith("/metadata") else answering.body, {})

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.reply(answering.body, answering.headers)

        def reply(self, content: bytes, headers: dict[str, str]) -> None:
            self.send_response(200)
            for name, value in {**headers, "content-length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_request(self, *args: Any) -> None:
            pass

    class Handlers(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc ships no types
        def service(self, call: Any) -> Any:
            is_metadata = call.method.endswith("/GetModelMetadata")
            return grpc.unary_unary_rpc_method_handler(
                lambda request, context: answering.described_grpc if is_metadata else answering.body
            )

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening, ThreadPoolExecutor(4) as pool:
        thread = threading.Thread(target=listening.serve_forever, args=(0.02,))
        thread.start()
        rpc = grpc.server(pool, handlers=[Handlers()])
        answering.http, answering.grpc = listening.server_port, rpc.add_insecure_port("127.0.0.1:0")
        answering.described_grpc = grpc_metadata()
        rpc.start()
        try:
            yield answering
        finally:
            rpc.stop(None).wait()
            listening.shutdown()
            thread.join()


def grpc_metadata() -> bytes:
    tensor = protos.message_class("tensorflow.TensorInfo")(dtype=2)
    tensor.tensor_shape.dim.add(size=-1)
    signatures = protos.SignatureDefMap()
    signatures.signature_def["serving_default"].inputs["x"].CopyFrom(tensor)
    signatures.signature_def["serving_default"].outputs["y"].CopyFrom(tensor)
    response = protos.GetModelMetadataResponse()
    response.metadata["signature_def"].value = signatures.SerializeToString()
    return bytes(response.SerializeToString())


Ask: TypeAlias = Callable[..., Prediction]


@contextmanager
def asking(server: Answering, transport: Transport, is_async: bool) -> Iterator[Ask]:
    """Asks one client, which keeps its connections, for the predictions of `ROWS`."""
    if not is_async:
        with Client(server.url(transport), "m", transport=transport, retries=0) as client:
            yield lambda rows=ROWS: client.predict(rows)
        return
    with asyncio.Runner() as runner:

        async def start() -> AsyncClient:
            return AsyncClient(server.url(transport), "m", transport=transport, retries=0)

        awaited = runner.run(start())
        try:
            yield lambda rows=ROWS: runner.run(awaited.predict(rows))
        finally:
            runner.run(awaited.close())


def problem(ask: Ask, rows: Json = ROWS) -> str:
    with pytest.raises(ServerError, match="answers 200, but") as caught:
        ask(rows)
    assert caught.value.status == 200
    return caught.value.message.partition("answers 200, but ")[2]


# --- JSON ---

BY_COLUMN: Final = {"x": [1.0, 2.0, 3.0]}


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("body", "words"),
    [
        ([], "no JSON: b'[]'"),
        ({}, "'predictions' of the answer is None, where a list has to be"),
        ({"predictions": {"y": [1, 2, 3]}}, "'predictions' of the answer is a dict, where a list has to be"),
        ({"predictions": [1, 2]}, "output 'y' has 2 rows, where 3 were asked"),
        ({"predictions": [1, 2, 3, 4]}, "output 'y' has 4 rows, where 3 were asked"),
        ({"predictions": []}, "output 'y' has 0 rows, where 3 were asked"),
        ({"predictions": [{"y": 1}, {"y": 2}, {"z": 3}]}, "not every row has the outputs of the first, y"),
        ({"predictions": [{"y": 1}, 2, 3]}, "not every row has the outputs of the first, y"),
        ({"predictions": [{}, {}, {}]}, "it has no outputs"),
        ({"predictions": [1, "2", 3]}, "output 'y' mixes numbers and text"),
        ({"predictions": [1, True, 3]}, "output 'y' mixes booleans and numbers"),
        ({"predictions": [1, [2], 3]}, "output 'y' mixes lists and numbers"),
        ({"predictions": [[1], [[2]], [3]]}, "output 'y' mixes lists and numbers"),
        ({"predictions": [1, {"y": 2}, 3]}, "output 'y' has an object that is not base64"),
        ({"predictions": [{"b64": 1}, None, None]}, "output 'y' has an object that is not base64"),
    ],
)
def test_rows_in_json_that_are_none(server: Answering, is_async: bool, body: Json, words: str) -> None:
    server.of(body)
    with asking(server, "json", is_async) as ask:
        assert problem(ask) == words


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"outputs": 1}, "output 'y' is 1, where a list has to be"),
        ({"predictions": [1, 2, 3]}, "output 'y' is None, where a list has to be"),
        ({"outputs": {}}, "it has no outputs"),
        ({"outputs": {"y": [1, 2, 3], "z": [1, 2]}}, "output 'z' has 2 rows, where 3 were asked"),
        ({"outputs": {"y": "abc"}}, "output 'y' is the text 'abc', where a list has to be"),
    ],
)
def test_columns_in_json_that_are_none(server: Answering, body: Json, words: str) -> None:
    server.of(body)
    with asking(server, "json", False) as ask:
        assert problem(ask, BY_COLUMN) == words


def test_values_without_the_name_of_one_of_several_outputs(server: Answering) -> None:
    server.of({"predictions": [1, 2, 3]}, "y", "z")
    with asking(server, "json", False) as ask:
        assert problem(ask) == "it does not say which of the outputs y, z its values are"
        server.of({"predictions": [1, 2, 3]}, "z")  # as where another version has come meanwhile
        assert ask().outputs == {"z": [1, 2, 3]}


def test_what_json_may_be(server: Answering) -> None:
    """Missing values and lists of several lengths are no mistake; NaN is no JSON, and stands for itself."""
    with asking(server, "json", False) as ask:
        columns: list[list[Json]] = [
            [None, 1, 2.5], [[1], None, [2, None]], [{"b64": "YQ=="}, "a", None], [[], [], []], [True, None, False],
            [None, None, None], [[[1], []], [], [[2]]],
        ]  # fmt: skip
        for values in columns:
            server.of({"predictions": values})
            assert ask().rows == tuple(values)
            server.of({"predictions": [{"y": each, "z": 1} for each in values]}, "y", "z")
            assert [row["y"] for row in ask().rows] == values
            server.of({"outputs": values})
            assert ask(BY_COLUMN).outputs == {"y": values}
        server.of(b'{"predictions": [NaN, Infinity, 1]}')
        assert np.isnan(ask().rows[0])


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_version_that_is_no_number(server: Answering, transport: Transport) -> None:
    if transport == "grpc":  # whose answers have no headers here
        return
    with asking(server, transport, False) as ask:
        body, length = binary({"y": np.ones(3)})
        for version in ("newest", "-1", "1.5", "", "9" * 5000):
            server.of({"predictions": [1, 2, 3]} if transport == "json" else body)
            server.headers = {"x-drivetrain-version": version, **({} if transport == "json" else {LENGTH: str(length)})}
            assert problem(ask).startswith(f"its version is {version[:70]!r}"[:80])


# --- binary ---


def binary(outputs: dict[str, Any], change: Callable[[Json], None] = lambda head: None) -> tuple[bytes, int]:
    """An answer of these float64 outputs with what a test changes of its JSON, and how long that is."""
    head: Json = {
        "outputs": [
            {
                "name": name,
                "datatype": "FP64",
                "shape": [*values.shape],
                "parameters": {"binary_data_size": values.nbytes},
            }
            for name, values in outputs.items()
        ]
    }
    change(head)
    content = json.dumps(head).encode()
    return content + b"".join(values.tobytes() for values in outputs.values()), len(content)


def first(**fields: Json) -> Callable[[Json], None]:
    return lambda head: head["outputs"][0].update(fields)


def sized(size: Json) -> Callable[[Json], None]:
    return first(parameters={"binary_data_size": size})


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda head: head.clear(), "'outputs' of the answer is None, where a list has to be"),
        (lambda head: head["outputs"].clear(), "its last 48 bytes belong to no output"),
        (lambda head: head["outputs"].insert(0, 3), "'name' of an output is None, where text has to be"),
        (first(name=3), "'name' of an output is 3, where text has to be"),
        (first(name="z"), "output 'z' stands twice"),
        (first(datatype="FP128"), "output 'y' has the type 'FP128'"),
        (first(datatype=["FP64"]), "'datatype' of output 'y' is a list of 1, where text has to be"),
        (first(datatype="FP32"), "output 'y' has 24 bytes, which are no FP32 of the shape [3]"),
        (first(datatype="BYTES"), "output 'y' has 24 bytes, which are no BYTES of the shape [3]"),
        (first(shape=[4]), "output 'y' has 4 rows, where 3 were asked"),
        (first(shape=[1, 3]), "output 'y' has 1 rows, where 3 were asked"),
        (first(shape=[3, 2]), "output 'y' has 24 bytes, which are no FP64 of the shape [3, 2]"),
        (first(shape=[]), "output 'y' has the shape []"),
        (first(shape=[-3, -1]), "output 'y' has the shape [-3, -1]"),
        (first(shape=[3.0]), "output 'y' has the shape [3.0]"),
        (first(shape=[True] * 3), "output 'y' has the shape [True, True, True]"),
        (first(shape="333"), "'shape' of output 'y' is the text '333', where a list has to be"),
        (first(shape=[3] + [1] * 40), f"output 'y' has the shape {[3] + [1] * 40!r:.80}"),
        (
            first(shape=[3, 2**70]),
            "output 'y' has 24 bytes, which are no FP64 of the shape [3, 1180591620717411303424]",
        ),
        (first(parameters=None), "'parameters' of output 'y' is None, where an object has to be"),
        (sized(None), "'binary_data_size' of output 'y' is None, where a whole number has to be"),
        (sized("24"), "'binary_data_size' of output 'y' is the text '24', where a whole number has to be"),
        (sized(24.0), "'binary_data_size' of output 'y' is 24.0, where a whole number has to be"),
        (sized(-24), "output 'y' has a binary_data_size of -24, of 48 bytes that are left"),
        (sized(49), "output 'y' has a binary_data_size of 49, of 48 bytes that are left"),
        (sized(2**70), "output 'y' has a binary_data_size of 1180591620717411303424, of 48 bytes that are left"),
        (sized(16), "output 'y' has 16 bytes, which are no FP64 of the shape [3]"),
    ],
)
def test_binary_outputs_that_are_none(
    server: Answering, is_async: bool, change: Callable[[Json], None], words: str
) -> None:
    body, length = binary({"y": np.arange(3.0), "z": np.ones(3)}, change)
    server.of(body, **{LENGTH: str(length)})
    with asking(server, "binary", is_async) as ask:
        assert problem(ask) == words


def test_sizes_that_no_memory_has_and_text_that_is_none(server: Answering) -> None:
    with asking(server, "binary", False) as ask:
        for kind, shape, content, words in (
            ("FP64", [3, 0, 2**62], b"", "has 0 bytes, which are no FP64 of the shape [3, 0, 4611686018427387904]"),
            ("FP64", [3, 0, 2**70], b"", "has 0 bytes, which are no FP64"),
            ("BYTES", [3, 2**62], b"", "has 0 bytes, which are no BYTES"),
            ("BYTES", [3], struct.pack("<I", 2**32 - 1), "has 4 bytes, which are no BYTES"),
            ("BYTES", [3], (struct.pack("<I", 1) + b"\xff") * 3, "has text that is no UTF-8"),
        ):
            tensor = {"name": "y", "datatype": kind, "shape": shape, "parameters": {"binary_data_size": len(content)}}
            head = json.dumps({"outputs": [tensor]}).encode()
            server.of(head + content, **{LENGTH: str(len(head))})
            assert problem(ask).startswith(f"output 'y' {words}")


@pytest.mark.parametrize("length", ["", "-1", "+5", "1e2", "abc", "10000", "9" * 5000, "5"])
def test_a_length_of_the_json_that_is_none(server: Answering, length: str) -> None:
    body, _ = binary({"y": np.arange(3.0)})
    server.of(body, **{LENGTH: length})
    with asking(server, "binary", False) as ask:
        words = problem(ask)
        assert words.startswith("no JSON") if length == "5" else words.endswith(f" of its {len(body):,} bytes are JSON")


def test_bytes_that_are_of_no_output(server: Answering) -> None:
    body, length = binary({"y": np.arange(3.0)})
    server.of(body + b"12345678", **{LENGTH: str(length)})
    with asking(server, "binary", False) as ask:
        assert problem(ask) == "its last 8 bytes belong to no output"
        server.of(body, **{LENGTH: str(length)})
        assert ask().rows == (0.0, 1.0, 2.0)


# --- gRPC ---


def infer(*tensors: tuple[str, str, list[int], bytes]) -> Any:
    response = protos.ModelInferResponse()
    for name, kind, shape, content in tensors:
        response.outputs.add(name=name, datatype=kind, shape=shape)
        response.raw_output_contents.append(content)
    return response


@pytest.mark.parametrize("is_async", [False, True])
def test_grpc_outputs_that_are_none(server: Answering, is_async: bool) -> None:
    values = np.arange(3.0).tobytes()
    fewer, more = infer(("y", "FP64", [3], values)), infer(("y", "FP64", [3], values))
    fewer.ClearField("raw_output_contents")
    more.raw_output_contents.append(b"")
    with asking(server, "grpc", is_async) as ask:
        for response, words in (
            (infer(), "it has no outputs"),
            (fewer, "it has 1 outputs and 0 raw contents"),
            (more, "it has 1 outputs and 2 raw contents"),
            (infer(("y", "FP64", [3], values), ("y", "FP64", [3], values)), "output 'y' stands twice"),
            (infer(("y", "FP64", [2], values[:16])), "output 'y' has 2 rows, where 3 were asked"),
            (infer(("y", "FP64", [3], values[:23])), "output 'y' has 23 bytes, which are no FP64 of the shape [3]"),
            (infer(("y", "FP64", [-3], values)), "output 'y' has the shape [-3]"),
            (infer(("y", "", [3], values)), "output 'y' has the type ''"),
        ):
            server.body = response.SerializeToString()
            assert problem(ask) == words
        server.body = b"\xff\xff\xff"
        assert problem(ask).startswith(r"no ModelInferResponse: b'\xff\xff\xff'")
        server.body = infer(("y", "FP64", [3], values)).SerializeToString()
        assert ask().rows == (0.0, 1.0, 2.0)


def test_a_grpc_answer_that_is_too_large_is_not_read(server: Answering, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was, whatever its size."""
    monkeypatch.setattr(grpc_calls, "MOST_BYTES", 1 << 20)
    server.body = bytes(2 << 20)
    for is_async in (False, True):
        with asking(server, "grpc", is_async) as ask, pytest.raises(ServerError, match="answers with more than"):
            ask()


# --- metadata, status, traffic ---


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({}, "'metadata' of the answer is None"),
        ({"metadata": {"signature_def": {"signature_def": []}}}, "'signature_def' of the metadata is a list of 0"),
        ({"metadata": {"signature_def": {"signature_def": {"s": 1}}}}, "'inputs' of signature 's' is None"),
        (("x", 1), "'tensor_shape' of 'x' in the metadata is None"),
        (("x", {"tensor_shape": {}}), "'dtype' of 'x' in the metadata is None"),
        (("x", described(size="many")), "'x' in the metadata has the shape {'dim': [{'size': 'many'}]}"),
        (("x", described(size=None)), "'x' in the metadata has the shape {'dim': [{'size': None}]}"),
        (("x", described(size="9" * 5000)), "'x' in the metadata has the shape"),
        (("x", {"dtype": "DT_INT64", "tensor_shape": {"dim": 3}}), "'dim' of 'x' in the metadata is 3"),
        (
            ("x", {"dtype": "DT_INT64", "tensor_shape": {"dim": ["3"]}}),
            "'x' in the metadata has the shape {'dim': ['3']}",
        ),
    ],
)
def test_metadata_that_is_none(server: Answering, answer: Json, words: str) -> None:
    server.of({"predictions": [1, 2, 3]})
    if isinstance(answer, tuple):
        name, field_of = answer
        server.described["metadata"]["signature_def"]["signature_def"]["serving_default"]["inputs"][name] = field_of
    else:
        server.described = answer
    with asking(server, "json", False) as ask:
        assert problem(ask).startswith(words)


@pytest.mark.parametrize(
    "dtype", ["DT_INT", "DT_INT99999999999", "DT_UINT7", "DT_FINFO", "DT_VOID", "", "DT_COMPLEX64"]
)
def test_types_of_inputs_that_this_client_does_not_know(server: Answering, dtype: str) -> None:
    """JSON leaves them to the server; there are no tensors of them."""
    server.of({"predictions": [1, 2, 3]})
    server.described["metadata"]["signature_def"]["signature_def"]["serving_default"]["inputs"]["x"] = described(dtype)
    with asking(server, "json", False) as ask:
        assert ask().rows == (1, 2, 3)
    with asking(server, "binary", False) as ask, pytest.raises(InputError, match="which is no tensor here"):
        ask()


def test_grpc_metadata_and_status_that_are_none(server: Answering) -> None:
    response = protos.GetModelMetadataResponse()
    status = protos.GetModelStatusResponse()
    status.model_version_status.add(version=1, state=77)
    with Client(server.url("grpc"), "m", transport="grpc", retries=0) as client:
        try:
            for content, words in (
                (b"\xff", "no GetModelMetadataResponse"),
                (response.SerializeToString(), "it has no signature_def"),
            ):
                server.described_grpc = content
                with pytest.raises(ServerError, match=words):
                    client.predict(ROWS)
        finally:
            server.described_grpc = grpc_metadata()
        server.body = status.SerializeToString()
        with pytest.raises(ServerError, match=r"there is no tensorflow\.serving\.ModelVersionStatus\.State 77"):
            client.status()


STATE: Final = {"version": "3", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
STATES: Final = {"model_version_status": [STATE, STATE]}
ROLLOUT: Final[Json] = {
    "incumbent": 3, "candidate": 4, "share": 10.0,
    "failed": [{"version": 2, "limit": "error_rate", "reason": "too many"}],
}  # fmt: skip
TRAFFIC: Final[Json] = {
    "model": "m", "current": 3, "shares": {"4": 10.0}, "shadow": None, "shadows": [],
    "rollout": ROLLOUT,
}  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({}, "'model_version_status' of the answer is None"),
        ({"model_version_status": [3]}, "'version' of a version is None"),
        ({"model_version_status": [{**STATE, "version": 3}]}, "'version' of a version is 3"),
        ({"model_version_status": [{**STATE, "version": "three"}]}, "a version is called 'three'"),
        ({"model_version_status": [{**STATE, "state": None}]}, "'state' of version 3 is None"),
        ({"model_version_status": [{**STATE, "status": {"error_code": 0}}]}, "'error_code' of version 3 is 0"),
        ({"traffic": {"current": 3}}, "'shares' of the answer is None"),
        ({"traffic": {**TRAFFIC, "current": "3"}}, "'current' of the answer is the text '3'"),
        ({"traffic": {**TRAFFIC, "rollout": 1}}, "'rollout' of the answer is 1"),
        ({"traffic": {**TRAFFIC, "rollout": {**ROLLOUT, "share": 1e999}}}, "the share of the rollout is inf"),
        ({"traffic": {**TRAFFIC, "rollout": {**ROLLOUT, "failed": [{}]}}}, "'version' of a failed version"),
    ],
)  # fmt: skip
def test_states_and_traffic_that_are_none(server: Answering, answer: Json, words: str) -> None:
    server.of(answer.get("traffic", answer))
    with Client(server.url("json"), "m", retries=0) as client:
        for ask in [client.traffic] if "traffic" in answer else [client.status]:
            with pytest.raises(ServerError, match="answers 200, but") as caught:
                ask()
            assert caught.value.message.partition("answers 200, but ")[2].startswith(words)
        server.of({"model_version_status": [STATE]})
        assert client.status() == [STATE]
        server.of(TRAFFIC)
        assert client.traffic() == TRAFFIC


# --- what is asked ---


@pytest.mark.parametrize("value", [1.0, "UA", None, np.float64(1), {"y": 1}])
def test_a_column_that_is_no_list(server: Answering, value: Json) -> None:
    with (
        asking(server, "json", False) as ask,
        pytest.raises(InputError, match=r"column 'x' is .*, no list(?s:.*)one row"),
    ):
        ask({"x": value})


# --- HTTP of an event loop ---


def answered_by(content: bytes, *, without_end: bool = False) -> tuple[Any, threading.Thread]:
    """A port where this is answered, once; and then again and again the same, without an end."""
    listening = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        connection, _ = listening.accept()
        with connection:
            connection.recv(65_536)
            try:
                connection.sendall(content)
                while without_end:
                    connection.sendall(content[-65_536:])
            except OSError:
                pass

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    return listening, thread


def ask_status(port: int) -> Any:
    async def ask() -> Any:
        async with AsyncClient(f"http://127.0.0.1:{port}", "m", retries=0, timeout=60) as client:
            return await client.status()

    return asyncio.run(ask())


def test_a_head_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only bodies were counted."""
    monkeypatch.setattr(async_client, "MOST_BYTES", 64 << 20)
    for line in (b"x-name: value\r\n" * 5000, b"x" * 65_536):
        listening, thread = answered_by(b"HTTP/1.1 200 OK\r\nx-long: " + line, without_end=True)
        with listening, pytest.raises(ServerError, match=r"answers with more than|is no HTTP"):
            ask_status(listening.getsockname()[1])
        thread.join(20)
        assert not thread.is_alive()


def test_two_answers_to_one_request_are_none() -> None:
    """They were put together: the first's rows under the second's headers."""
    content = json.dumps({"model_version_status": [STATE]}).encode()
    whole = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(content) + content
    listening, thread = answered_by(whole + b"HTTP/1.1 200 OK\r\nx-drivetrain-version: 9\r\ncontent-length: 0\r\n\r\n")
    with listening, pytest.raises(ServerError, match="the answer is no HTTP"):
        ask_status(listening.getsockname()[1])
    thread.join(20)


# --- anything at all ---

SCALARS: Final = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
    | st.sampled_from([-1, 2, 3, 4, 24, 2**63, 2**70, "FP32", "BYTES", "BF16", "y", "3"])
)  # fmt: skip
ANYTHING: Final = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["y", "z", "b64", "name"]), inner, max_size=3)
    ),
    max_leaves=8,
)


def mutated(draw: Callable[[st.SearchStrategy[Any]], Any], body: Json) -> Json:
    """The body with up to three of its parts replaced by anything, or gone."""
    body = copy.deepcopy(body)
    for _ in range(draw(st.integers(0, 3))):
        holders: list[tuple[Any, Any]] = []
        waiting = [body]
        while waiting:
            holder = waiting.pop()
            for key in holder if isinstance(holder, dict) else range(len(holder)) if isinstance(holder, list) else ():
                holders.append((holder, key))
                waiting.append(holder[key])
        if not holders:
            break
        holder, key = draw(st.sampled_from(holders))
        if draw(st.booleans()):
            holder[key] = draw(ANYTHING)
        else:
            del holder[key]
    return body


def ask_hostile(ask: Callable[[], Any]) -> Any:
    """What was answered; None: a server's error that says what is wrong with it."""
    try:
        return ask()
    except ServerError as error:
        refusal = error
    assert refusal.status == 200
    assert "answers 200, but " in refusal.message
    assert len(refusal.message) < 1000
    return None


def answer_or_error(ask: Ask, rows: Json = ROWS) -> Prediction | None:
    """What was answered, with as many rows as were asked; None: an error that says what is wrong with it."""
    answer = ask_hostile(lambda: ask(rows))
    if answer is None:
        return None
    assert isinstance(answer, Prediction)
    assert {len(values) for values in answer.outputs.values()} == {len(ROWS)}
    assert len(answer.rows) == len(ROWS)
    return answer


NAMED: Final = {"predictions": [{"y": 1.5, "z": ["a", "b"]}, {"y": 2, "z": ["c", "d"]}, {"y": 3, "z": ["e", "f"]}]}


@pytest.mark.parametrize("is_async", [False, True])
def test_any_json(server: Answering, is_async: bool) -> None:
    with asking(server, "json", is_async) as ask:

        @HOSTILE
        @given(st.data(), st.sampled_from([NAMED, {"predictions": [1, 2.5, 3]}]))
        def rows(data: st.DataObject, body: Json) -> None:
            answer = mutated(data.draw, body)
            server.of(answer)
            if (prediction := answer_or_error(ask)) is not None:
                named = isinstance(answer["predictions"][0], dict) and answer["predictions"][0].keys() != {"b64"}
                if named and len(prediction.outputs) == 1:
                    answer["predictions"] = [next(iter(row.values())) for row in answer["predictions"]]
                assert [*prediction.rows] == answer["predictions"]

        @HOSTILE
        @given(st.data(), st.sampled_from([[1, 2, 3], {"y": [1, 2, 3], "z": ["a", None, "b"]}]))
        def columns(data: st.DataObject, values: Json) -> None:
            answer = mutated(data.draw, {"outputs": values})
            server.of(answer)
            if (prediction := answer_or_error(ask, BY_COLUMN)) is not None:
                outputs = answer["outputs"]
                assert prediction.outputs == (outputs if isinstance(outputs, dict) else {"y": outputs})

        rows()
        columns()


@pytest.mark.parametrize("is_async", [False, True])
def test_any_binary_answer(server: Answering, is_async: bool) -> None:
    head = {
        "outputs": [
            {"name": "y", "datatype": "FP64", "shape": [3], "parameters": {"binary_data_size": 24}},
            {"name": "z", "datatype": "INT32", "shape": [3, 2], "parameters": {"binary_data_size": 24}},
            {"name": "t", "datatype": "BYTES", "shape": [3], "parameters": {"binary_data_size": 15}},
        ]
    }
    content = np.arange(3.0).tobytes() + np.arange(6, dtype=np.int32).tobytes() + (struct.pack("<I", 1) + b"a") * 3
    with asking(server, "binary", is_async) as ask:

        @HOSTILE
        @given(st.data(), st.binary(max_size=8), st.integers(0, len(content)), st.integers(-3, 3))
        def bodies(data: st.DataObject, noise: bytes, cut: int, off: int) -> None:
            encoded = json.dumps(mutated(data.draw, head)).encode()
            sent = data.draw(st.sampled_from([content, content[:cut], content + noise, noise, content[:cut] + noise]))
            length = len(encoded) + (off if data.draw(st.booleans()) else 0)
            server.of(encoded + sent, **{LENGTH: str(length)})
            if (prediction := answer_or_error(ask)) is not None:
                values = [prediction.outputs[each["name"]] for each in json.loads((encoded + sent)[:length])["outputs"]]
                if all((each.dtype.kind, each.dtype.itemsize) in (("f", 8), ("i", 4)) for each in values):
                    assert b"".join(each.tobytes() for each in values) == (encoded + sent)[length:]

        bodies()


@pytest.mark.parametrize("is_async", [False, True])
def test_any_grpc_answer(server: Answering, is_async: bool) -> None:
    tensors = st.tuples(
        st.sampled_from(["y", "z", ""]),
        st.sampled_from(["FP64", "FP32", "INT8", "BOOL", "BYTES", "BF16", "", "fp64"]),
        st.lists(st.sampled_from([3, 3, 1, 0, 2, -1, 2**62, 2**63 - 1]), max_size=4),
        st.sampled_from([np.arange(3.0).tobytes(), b"", b"abc", (struct.pack("<I", 1) + b"\xff") * 3])
        | st.binary(max_size=40),
    )
    valid = ("y", "FP64", [3], np.arange(3.0).tobytes())
    with asking(server, "grpc", is_async) as ask:

        @HOSTILE
        @given(st.lists(st.just(valid) | tensors, max_size=3), st.integers(0, 4), st.binary(max_size=6))
        def bodies(drawn: list[tuple[str, str, list[int], bytes]], raw: int, noise: bytes) -> None:
            response = infer(*drawn)
            if raw < len(drawn):
                del response.raw_output_contents[raw:]
            server.body = response.SerializeToString() + noise
            if (prediction := answer_or_error(ask)) is not None:
                for values in prediction.outputs.values():
                    assert isinstance(values, np.ndarray)

        @HOSTILE
        @given(st.binary(max_size=60))
        def noise_alone(content: bytes) -> None:
            server.body = content
            answer_or_error(ask)

        bodies()
        noise_alone()


@pytest.mark.parametrize("is_async", [False, True])
def test_any_metadata(server: Answering, is_async: bool) -> None:
    """What a server says that it reads may refuse the rows; else there is an answer, or a server's error."""

    @HOSTILE
    @given(st.data())
    def bodies(data: st.DataObject) -> None:
        for transport in TRANSPORTS[:2]:
            server.of({"predictions": [1, 2, 3]})
            if transport == "binary":
                server.body, length = binary({"y": np.arange(3.0)})
                server.headers = {LENGTH: str(length)}
            server.described = mutated(data.draw, metadata("y"))
            with asking(server, transport, is_async) as ask, contextlib.suppress(InputError):
                ask_hostile(ask)

    bodies()


def test_any_status_and_traffic(server: Answering) -> None:
    with Client(server.url("json"), "m", retries=0) as client:

        @HOSTILE
        @given(st.data())
        def bodies(data: st.DataObject) -> None:
            for ask, body in ((client.status, STATES), (client.traffic, TRAFFIC)):
                server.of(mutated(data.draw, body))
                answer = ask_hostile(ask)
                if answer is not None:
                    sent = json.loads(server.body)
                    assert answer == (sent["model_version_status"] if body is STATES else sent)

        bodies()
