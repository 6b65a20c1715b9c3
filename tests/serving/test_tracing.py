"""Spans of requests over HTTP and gRPC, as OpenTelemetry's own SDK and a collector get them."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("httptools")
pytest.importorskip("opentelemetry.sdk")

import grpc
from drivetrain.engine import analyze
from drivetrain.errors import DrivetrainError
from drivetrain.serving import tracing
from drivetrain.serving.api import StatusCode
from drivetrain.serving.config import ModelConfig
from drivetrain.serving.protos import ModelInferRequest, PredictRequest
from drivetrain.serving.server import ServerOptions
from drivetrain.tests.serving.open_server import OpenServer, open_server
from drivetrain.tests.serving.test_access import FILE, bearer
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

pytestmark = pytest.mark.engine
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CALLER = [("traceparent", f"00-{TRACE}-{PARENT}-01"), ("tracestate", "vendor=1"), ("x-request-id", "mine")]
BODY = json.dumps({"instances": [{"secret": 1.5}, {"secret": 2.5}]}).encode()
PREDICT = "/tensorflow.serving.PredictionService/Predict"
INFER = "/inference.GRPCInferenceService/ModelInfer"
STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that doubles `secret`."""
    folder = tmp_path_factory.mktemp("tracing")
    analyze(lambda c: {"double": c["secret"] * 2}, pa.table({"secret": [1.5]})).save(folder / "m" / "1")
    return folder


@contextmanager
def traced(
    folder: Path, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> Iterator[tuple[OpenServer, list[ReadableSpan]]]:
    """A server whose spans are in the list, once it has ended."""
    exporter = InMemorySpanExporter()
    monkeypatch.setattr(tracing, "_exporter", lambda endpoint: exporter)
    spans: list[ReadableSpan] = []
    configs = [ModelConfig("m", str(folder / "m"))]
    with open_server(ServerOptions(poll_seconds=0, otlp_endpoint="http://collector", **options), configs) as server:
        yield server, spans
    spans.extend(exporter.get_finished_spans())


def infer_request(value: float, name: str = "m") -> Any:
    request = ModelInferRequest(model_name=name)
    tensor = request.inputs.add(name="secret", datatype="FP64", shape=[1])
    tensor.contents.fp64_contents.append(value)
    return request


def test_a_request_is_a_span_below_its_callers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    predict = PredictRequest()
    predict.model_spec.name = "m"
    predict.inputs["secret"].dtype = 2
    predict.inputs["secret"].tensor_shape.dim.add(size=3)
    predict.inputs["secret"].double_val.extend([1.0, 2.0, 3.0])
    with traced(folder, monkeypatch) as (server, spans):
        assert server.ask("POST", "/v1/models/m:predict", CALLER, body=BODY)[0] == 200
        assert server.call(PREDICT, predict.SerializeToString(), tuple(CALLER)) == "OK"
        assert server.call(INFER, infer_request(1.5).SerializeToString(), tuple(CALLER)) == "OK"
        assert server.ask("GET", "/v1/models/m")[0] == 200  # no prediction
    ours = {"drivetrain.model.name": "m", "drivetrain.model.version": 1, "drivetrain.request_id": "mine"}
    for span, name, more in zip(
        spans,
        ("POST /v1/models/{model}:predict", PREDICT[1:], INFER[1:]),
        (
            {
                "http.request.method": "POST", "http.route": "/v1/models/{model}:predict",
                "http.response.status_code": 200, "drivetrain.rows": 2,
            },
            {
                "rpc.system": "grpc", "rpc.service": "tensorflow.serving.PredictionService", "rpc.method": "Predict",
                "rpc.grpc.status_code": 0, "drivetrain.rows": 3,
            },
            {
                "rpc.system": "grpc", "rpc.service": "inference.GRPCInferenceService", "rpc.method": "ModelInfer",
                "rpc.grpc.status_code": 0, "drivetrain.rows": 1,
            },
        ),
        strict=True,
    ):  # fmt: skip
        assert (span.name, span.kind, span.status.is_unset) == (name, SpanKind.SERVER, True)
        assert span.attributes == {**ours, **more}
        assert span.parent is not None
        assert (f"{span.parent.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE, PARENT)
        assert span.context is not None
        assert f"{span.context.trace_id:032x}" == TRACE
        assert span.context.trace_state["vendor"] == "1"
        assert span.resource.attributes["service.name"] == "drivetrain"
        assert "secret" not in span.to_json()


@pytest.mark.parametrize(
    ("state", "members"),
    [
        ("vendor=1", 1),
        ("a=b ,\t1b@c=d e,", 2),
        (",".join(f"k{number}=v" for number in range(32)), 32),
        (",".join(f"k{number}=v" for number in range(33)), 0),
        ("a=b,A=c", 0),
        ("a=é", 0),
        ("=" * 512, 0),
        ("a=" + "x" * 600, 0),
        ("a=b,a=c", 0),
    ],
)
def test_a_state_that_is_none_is_dropped_and_fills_no_log(
    state: str, members: int, caplog: pytest.LogCaptureFixture
) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": state}
    tracing.RequestTracing(provider).begin("predict", {}, headers)._span.end()
    (span,) = exporter.get_finished_spans()
    assert span.parent is not None  # whatever the state is, the caller is known
    assert format(span.parent.span_id, "016x") == PARENT
    assert len(span.parent.trace_state) == members
    assert caplog.messages == []


def test_what_is_refused_says_so_and_whose_fault_it_is(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = [("traceparent", f"00-{TRACE}-{PARENT}-01" + "x" * 600), ("x-request-id", "mine")]
    with traced(folder, monkeypatch) as (server, spans):
        assert (
            server.ask("POST", "/v1/models/m:predict", hostile, body=b'{"instances": [{"secret": "text"}]}')[0] == 400
        )
        assert server.ask("POST", f"/v1/models/{'n' * 300}:predict", body=BODY)[0] == 404
        assert server.ask("POST", "/v2/repository/models/m/unload")[0] == 200
        assert server.ask("POST", "/v2/models/m/infer", body=b"{}")[0] == 503
        assert server.call(INFER, infer_request(1.0).SerializeToString()) == "UNAVAILABLE"
        assert server.call(INFER, infer_request(1.0, "other").SerializeToString()) == "NOT_FOUND"
    assert [(dict(span.attributes or {}).get("error.type"), span.status.is_ok) for span in spans] == [
        (None, True), (None, True), ("503", False), ("UNAVAILABLE", False), (None, True),
    ]  # fmt: skip
    assert spans[0].parent is None
    attributes = spans[0].attributes or {}
    assert (attributes["http.response.status_code"], attributes["drivetrain.request_id"]) == (400, "mine")
    assert all(len(str(value)) <= 100 for span in spans for value in (span.attributes or {}).values())


def test_a_stream_is_one_span_and_who_is_not_let_in_is_none(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "keys.yaml").write_text(FILE)
    metadata = [*CALLER, ("authorization", dict(bearer("app"))["Authorization"])]
    with traced(folder, monkeypatch, keys=tmp_path / "keys.yaml") as (server, spans):
        assert server.ask("POST", "/v1/models/m:predict", body=BODY)[0] == 401
        assert server.call(INFER, infer_request(1.0).SerializeToString()) == "UNAUTHENTICATED"
        with grpc.insecure_channel(server.grpc) as channel:
            messages = [infer_request(value).SerializeToString() for value in (1.0, 2.0, 3.0)]
            assert len(list(channel.stream_stream(STREAM)(iter(messages), timeout=10, metadata=metadata))) == 3
    (span,) = spans
    assert span.name == STREAM[1:]
    assert span.parent is not None
    assert (span.attributes or {})["rpc.grpc.status_code"] == int(StatusCode.OK)


def test_a_collector_gets_them(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the environment, as OpenTelemetry has it, and with what it says of the service."""
    received: list[tuple[str, Any]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            received.append((self.path, ExportTraceServiceRequest.FromString(body)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Collector) as collector:
        thread = threading.Thread(target=collector.serve_forever, args=(0.02,))
        thread.start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{collector.server_port}")
        monkeypatch.setenv("OTEL_SERVICE_NAME", "flights")
        try:
            with open_server(ServerOptions(poll_seconds=0), [ModelConfig("m", str(folder / "m"))]) as server:
                assert server.ask("POST", "/v1/models/m:predict", CALLER, body=BODY)[0] == 200
        finally:
            collector.shutdown()
            thread.join()
    ((path, exported),) = received
    assert path == "/v1/traces"
    (spans,) = exported.resource_spans
    resource = {each.key: each.value.string_value for each in spans.resource.attributes}
    assert resource["service.name"] == "flights"
    (span,) = spans.scope_spans[0].spans
    assert (span.name, span.trace_id.hex(), span.parent_span_id.hex()) == (
        "POST /v1/models/{model}:predict", TRACE, PARENT,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("variables", "is_wanted"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "s"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, False),
        ({"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, False),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317"}, False),
    ],
    ids=["nothing", "name", "endpoint", "traces", "exporter", "none", "disabled", "grpc"],
)
def test_the_environment_decides(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], is_wanted: bool) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    request_tracing = tracing.tracing_of(None)
    assert (request_tracing is not None) is is_wanted
    if request_tracing is not None:
        request_tracing.close()


def test_without_the_package_an_option_is_an_error_and_a_variable_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(
        DrivetrainError, match=r"opentelemetry is not installed\n  fix: pip install 'drivetrain\[otel\]'"
    ):
        tracing.tracing_of("http://collector")
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    assert tracing.tracing_of(None) is None
    assert "no spans are made: opentelemetry is not installed" in caplog.text


def test_nothing_is_imported_where_nobody_wants_spans() -> None:
    code = (
        "import sys; from drivetrain.serving import server, grpc_server, tracing;"
        "assert tracing.tracing_of(None) is None;"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert ended.stdout.strip() == "[]"
