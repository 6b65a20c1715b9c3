"""The server's gRPC side, over real channels: what TensorFlow's client sent and understood, and what is no request."""

from __future__ import annotations

import asyncio
import base64
import datetime
import ipaddress
import json
import logging
import random
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from drivetrain.errors import InputError
from drivetrain.serving import grpc_server as module
from drivetrain.serving import protos
from drivetrain.serving.api import InferenceAnswer, InferenceRequest, StatusCode
from drivetrain.serving.config import ModelConfig
from drivetrain.serving.grpc_server import grpc_handler
from drivetrain.serving.http import HttpLimits
from drivetrain.serving.metrics import ServingMetrics
from drivetrain.serving.protos import Message, message_class
from drivetrain.serving.server import ServerOptions, serve
from drivetrain.serving.tensor_proto import to_tensor_proto
from drivetrain.serving.tls import TlsFiles
from drivetrain.tests.serving.fake_models import FakeModels
from drivetrain.tests.serving.grpc_running import Client, grpc_running, handler_running
from google.protobuf import json_format

# What TensorFlow Serving's own client (tensorflow-serving-api 2.21) sent, and what it read in our answers.
RECORDED: list[dict[str, Any]] = json.loads((Path(__file__).parent / "data" / "tensorflow_client.json").read_text())
PREDICT = "/tensorflow.serving.PredictionService/Predict"
INFER = "/inference.GRPCInferenceService/ModelInfer"
HEALTH = "/grpc.health.v1.Health/Check"
RELOAD = "/tensorflow.serving.ModelService/HandleReloadConfigRequest"
MAX_BYTES = 1 << 20


class Served:
    """A server that all tests of this file ask, and what it was told to serve."""

    def __init__(self) -> None:
        self.models = FakeModels()
        self.configured: list[ModelConfig] = []
        self.metrics = ServingMetrics()

    async def reload(self, configs: Any) -> None:
        self.configured[:] = configs


@pytest.fixture(scope="module")
def served() -> Served:
    return Served()


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[Client]:
    options: dict[str, Any] = {
        "reload": served.reload,
        "limits": HttpLimits(body=MAX_BYTES),
        "admin": True,
        "metrics": served.metrics,
    }
    with grpc_running(served.models, **options) as running:
        yield running


def request_of(name: str, /, **fields: Any) -> Message:
    return message_class(name)(**fields)


def predict_request(model: str = "iris", rows: int = 2, **inputs: Any) -> Message:
    request = protos.PredictRequest()
    request.model_spec.name = model
    if model == "iris":
        words = np.empty(rows, object)
        words[:] = [b"a"] * rows
        inputs = {"words": words, "amount": np.arange(rows, dtype=float), "vector": np.ones((rows, 3), np.float32)}
    for name, values in inputs.items():
        request.inputs[name].CopyFrom(to_tensor_proto(values, name))
    return request


def infer_request(model: str = "iris", **fields: Any) -> Message:
    request = protos.ModelInferRequest(model_name=model, **fields)
    for name, kind, shape, raw in (
        ("words", "BYTES", [2], struct.pack("<I1sI1s", 1, b"a", 1, b"b")),
        ("amount", "FP64", [2], struct.pack("<2d", 1.5, 2.5)),
        ("vector", "FP32", [2, 3], struct.pack("<6f", *range(6))),
    ):
        request.inputs.add(name=name, datatype=kind, shape=shape)
        request.raw_input_contents.append(raw)
    return request


# --- TensorFlow Serving ---


@pytest.mark.parametrize("recorded", RECORDED, ids=[each["title"] for each in RECORDED if "title" in each])
def test_tensorflows_client_is_answered_as_it_was(client: Client, recorded: dict[str, Any]) -> None:
    content, method = base64.b64decode(recorded["request"]), recorded["method"]
    if "code" in recorded:
        name = next(code.name for code in grpc.StatusCode if code.value[0] == recorded["code"])
        assert client.code(method, content)[0] == name
        return
    kind = protos.POOL.FindServiceByName(method.split("/")[1]).methods_by_name[method.split("/")[2]].output_type
    answer = message_class(kind.full_name).FromString(client.raw(method, content)[0])
    assert json_format.MessageToDict(answer, descriptor_pool=protos.POOL) == recorded["parsed"]


def test_what_was_recorded_is_all_there_is() -> None:
    methods = {each["method"].split("/")[2] for each in RECORDED}
    services = ("tensorflow.serving.PredictionService", "tensorflow.serving.ModelService")
    assert methods == {name for each in services for name in protos.POOL.FindServiceByName(each).methods_by_name}


def test_headers_go_in_and_out(client: Client, served: Served) -> None:
    content = predict_request().SerializeToString()
    _, call = client.raw(PREDICT, content, metadata=(("x-request-id", "mine"), ("x-drivetrain-key", "old")))
    assert dict(call.trailing_metadata()) == {"x-request-id": "mine", "x-drivetrain-version": "1"}
    assert served.models.asked[-1].request_id == "mine"
    _, call = client.raw(PREDICT, content)
    trailing = dict(call.trailing_metadata())
    assert trailing["x-drivetrain-version"] == "2"
    assert len(trailing["x-request-id"]) == 16


def test_errors_have_the_request_id_too(client: Client) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        client.raw(PREDICT, predict_request("nope").SerializeToString(), metadata=(("x-request-id", "mine"),))
    assert dict(caught.value.trailing_metadata())["x-request-id"] == "mine"


def test_the_tasks_of_a_request_are_answered_by_one_version(client: Client, served: Served) -> None:
    request = protos.MultiInferenceRequest()
    for verb in ("classify", "regress"):
        task = request.tasks.add(method_name=f"tensorflow/serving/{verb}")
        task.model_spec.name, task.model_spec.signature_name = "iris", verb
    request.input.example_list.examples.add().features.feature["amount"].float_list.value.append(2)
    method = "/tensorflow.serving.PredictionService/MultiInference"
    answer = client(method, request, metadata=(("x-drivetrain-key", "old"),))
    assert [result.model_spec.version.value for result in answer.results] == [1, 1]
    assert served.models.asked[-1].model.version == 1
    assert answer.results[1].regression_result.regressions[0].value == 4
    request.tasks[1].model_spec.name = "echo"
    assert client.code(method, request) == ("INVALID_ARGUMENT", client.code(method, request)[1])
    request.tasks[1].CopyFrom(request.tasks[0])
    assert client.code(method, request)[0] == "INVALID_ARGUMENT"
    request.tasks[1].method_name = "tensorflow/serving/predict"
    assert client.code(method, request)[0] == "UNIMPLEMENTED"
    assert client.code(method, protos.MultiInferenceRequest())[0] == "INVALID_ARGUMENT"


def test_a_server_without_reload_has_none() -> None:
    request = request_of("tensorflow.serving.ReloadConfigRequest")
    request.config.model_config_list.config.add(name="a", base_path="/b")
    with grpc_running(FakeModels()) as client:
        assert client.code(RELOAD, request)[0] == "UNIMPLEMENTED"
        method = "/inference.GRPCInferenceService/RepositoryModelUnload"
        unload = request_of("inference.RepositoryModelUnloadRequest", model_name="iris")
        assert client.code(method, unload)[0] == "PERMISSION_DENIED"


def test_policies_of_versions(client: Client, served: Served) -> None:
    request = request_of("tensorflow.serving.ReloadConfigRequest")
    listed = request.config.model_config_list.config
    listed.add(name="a", base_path="/a").model_version_policy.latest.num_versions = 3
    listed.add(name="b", base_path="/b").model_version_policy.all.SetInParent()
    listed.add(name="c", base_path="/c").model_version_policy.specific.versions.extend([4, 5])
    listed.add(name="d", base_path="/d")
    assert client(RELOAD, request).status.error_code == 0
    assert [(each.name, each.policy, each.num_versions, each.versions) for each in served.configured] == [
        ("a", "latest", 3, ()),
        ("b", "all", 1, ()),
        ("c", "specific", 1, (4, 5)),
        ("d", "latest", 1, ()),
    ]
    for name, base_path, versions in (("d", "/x", [1]), ("", "/x", [1]), ("e", "", [1]), ("e/f", "/x", [1])):
        wrong = request_of("tensorflow.serving.ReloadConfigRequest")
        wrong.CopyFrom(request)
        added = wrong.config.model_config_list.config.add(name=name, base_path=base_path)
        added.model_version_policy.specific.versions.extend(versions)
        assert client.code(RELOAD, wrong)[0] == "INVALID_ARGUMENT"
    listed.add(name="e", base_path="/e").model_version_policy.specific.SetInParent()
    assert client.code(RELOAD, request)[0] == "INVALID_ARGUMENT"
    assert client.code(RELOAD, b"")[0] == "INVALID_ARGUMENT"


# --- the Open Inference Protocol ---


def test_a_model_is_asked_for_predictions(client: Client) -> None:
    answer = client(INFER, infer_request(id="ü", model_version="stable"))
    assert (answer.id, answer.model_name, answer.model_version) == ("ü", "iris", "1")
    assert [(each.name, each.datatype, each.shape[:]) for each in answer.outputs] == [
        ("total", "FP64", [2]), ("shout", "BYTES", [2]), ("double", "FP32", [2, 3])
    ]  # fmt: skip
    assert struct.unpack("<2d", answer.raw_output_contents[0]) == (4.5, 14.5)
    assert answer.raw_output_contents[1] == struct.pack("<I1sI1s", 1, b"A", 1, b"B")
    request = infer_request()
    request.outputs.add(name="double")
    assert [each.name for each in client(INFER, request).outputs] == ["double"]
    request.outputs.add(name="nope")
    assert client.code(INFER, request)[0] == "INVALID_ARGUMENT"


def test_typed_contents_are_answered_with_typed_contents(client: Client) -> None:
    request = protos.ModelInferRequest(model_name="iris")
    request.inputs.add(name="amount", datatype="INT32", shape=[2]).contents.int_contents.extend([1, 2])
    request.parameters["signature_name"].string_param = "regress"
    answer = client(INFER, request)
    assert answer.outputs[0].contents.fp32_contents[:] == [2, 4]
    assert not answer.raw_output_contents
    request.parameters["sequence_id"].int64_param = 7
    assert client.code(INFER, request)[0] == "INVALID_ARGUMENT"


def test_what_is_refused_unread_counts_for_its_version() -> None:
    models = FakeModels()
    with grpc_running(models) as client:
        request = infer_request()
        request.outputs.add(name="nope")
        assert client.code(INFER, request)[0] == "INVALID_ARGUMENT"
        assert client.code(PREDICT, protos.PredictRequest(model_spec={"name": "iris"}))[0] == "INVALID_ARGUMENT"
        assert client.code(INFER, infer_request("nope"))[0] == "NOT_FOUND"  # there is no version that refuses it
    assert models.refusals == [("iris", StatusCode.INVALID_ARGUMENT)] * 2


def test_each_message_of_a_stream_has_its_time_and_its_id() -> None:
    """However long the stream is open."""
    models = FakeModels()
    sent: list[float] = []
    seen: list[tuple[str, float, float]] = []
    infer = models.infer

    async def noting(request: InferenceRequest) -> InferenceAnswer:
        assert request.deadline is not None
        seen.append((request.request_id, request.deadline - 0.3, time.monotonic()))
        return await infer(request)

    models.infer = noting  # type: ignore[method-assign]

    def requests() -> Iterator[Message]:
        for name in ("first", "", "third", ""):
            sent.append(time.monotonic())
            yield infer_request(id=name)
            time.sleep(0.12)

    with grpc_running(models, timeout_seconds=0.3) as client:
        answers = [*client.stream("/inference.GRPCInferenceService/ModelStreamInfer", requests())]
    assert not any(each.error_message for each in answers)
    assert [name for name, *_ in seen][::2] == ["first", "third"]
    assert len({name for name, *_ in seen}) == 4
    assert all(before <= begin <= after for before, (_, begin, after) in zip(sent, seen, strict=True))


def test_a_stream_goes_on_after_an_error(client: Client) -> None:
    requests = [infer_request(id="1"), infer_request("nope", id="2"), infer_request(id="3")]
    answers = [*client.stream("/inference.GRPCInferenceService/ModelStreamInfer", requests)]
    assert [each.infer_response.id for each in answers] == ["1", "2", "3"]
    assert [bool(each.error_message) for each in answers] == [False, True, False]
    assert answers[2].infer_response.parameters["triton_final_response"].bool_param


def test_what_models_there_are(client: Client, served: Served) -> None:
    service = "/inference.GRPCInferenceService/"
    assert client(service + "ServerLive", request_of("inference.ServerLiveRequest")).live
    assert client(service + "ServerReady", request_of("inference.ServerReadyRequest")).ready
    assert client(service + "ServerMetadata", request_of("inference.ServerMetadataRequest")).name == "drivetrain"
    ready = {
        (name, version): client(
            service + "ModelReady", request_of("inference.ModelReadyRequest", name=name, version=version)
        ).ready
        for name, version in (("iris", ""), ("iris", "1"), ("iris", "3"), ("iris", "9"), ("nope", ""))
    }
    assert [key for key, value in ready.items() if value] == [("iris", ""), ("iris", "1")]
    metadata = client(service + "ModelMetadata", request_of("inference.ModelMetadataRequest", name="iris"))
    assert metadata.versions[:] == ["1", "2"]
    assert [(each.name, each.datatype, each.shape[:]) for each in metadata.inputs] == [
        ("words", "BYTES", [-1]), ("amount", "FP64", [-1]), ("vector", "FP32", [-1, 3])
    ]  # fmt: skip
    index = client(service + "RepositoryIndex", request_of("inference.RepositoryIndexRequest"))
    assert [(each.version, each.state, each.reason) for each in index.models if each.name == "iris"] == [
        ("3", "UNAVAILABLE", "a file is damaged"), ("2", "READY", ""), ("1", "READY", "")
    ]  # fmt: skip
    index = client(service + "RepositoryIndex", request_of("inference.RepositoryIndexRequest", ready=True))
    assert {each.state for each in index.models} == {"READY"}
    client(service + "RepositoryModelLoad", request_of("inference.RepositoryModelLoadRequest", model_name="iris"))
    client(service + "RepositoryModelUnload", request_of("inference.RepositoryModelUnloadRequest", model_name="iris"))
    assert served.models.loads == [("load", "iris"), ("unload", "iris")]
    unknown = request_of("inference.RepositoryModelLoadRequest", model_name="nope")
    assert client.code(service + "RepositoryModelLoad", unknown)[0] == "NOT_FOUND"


# --- errors, limits ---


def test_a_failure_is_logged_and_told_without_its_cause(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "drivetrain.serving"):
        code, details = client.code(PREDICT, predict_request("broken", amount=np.ones(1)))
    assert code == "INTERNAL"
    assert "secret" not in details
    assert "\n" not in details
    assert "a secret of the model's" in caplog.text


def test_errors_are_told_on_one_line(client: Client) -> None:
    code, details = client.code(PREDICT, predict_request("nope\n\x1b[31m" + "ü" * 5000))
    assert code == "NOT_FOUND"
    assert details.isprintable()
    assert len(details) < 1000
    assert client.code(PREDICT, predict_request("busy", amount=np.ones(1))) == (
        "RESOURCE_EXHAUSTED", "too much waits; ask later"
    )  # fmt: skip


def test_deadlines_are_the_clients(client: Client, served: Served) -> None:
    request = predict_request("slow", amount=np.ones(1))
    assert client.code(PREDICT, request, timeout=0.5)[0] == "DEADLINE_EXCEEDED"
    asked = served.models.asked[-1]
    assert asked.model.name == "slow"
    assert asked.deadline is not None
    with grpc_running(served.models, timeout_seconds=0.1) as impatient:
        assert impatient.code(PREDICT, request, timeout=60)[0] == "DEADLINE_EXCEEDED"


def test_predictions_are_counted(client: Client, served: Served) -> None:
    def predicted() -> int:
        counts = served.metrics._series.items()
        return sum(series.rows for key, series in counts if key == ("iris", 2, "predict", "GRPC"))

    before = predicted()
    client(PREDICT, predict_request(rows=3))
    assert predicted() == before + 3


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_messages_that_are_too_large_are_refused(client: Client, compression: grpc.Compression) -> None:
    """A compressed one is measured as it is unpacked: a megabyte of zeros is a kilobyte on the wire."""
    request = protos.ModelInferRequest(raw_input_contents=[bytes(MAX_BYTES * 4)])
    assert client.code(INFER, request, compression=compression)[0] == "RESOURCE_EXHAUSTED"
    assert client.code(INFER, infer_request(), compression=compression) == ("OK", "")


def test_claims_are_refused(client: Client) -> None:
    request = predict_request()
    request.inputs["amount"].tensor_shape.dim[0].size = 1 << 40
    assert client.code(PREDICT, request)[0] == "RESOURCE_EXHAUSTED"


def malformed() -> list[tuple[str, bytes]]:
    """Requests of which something is wrong, by the method that gets them."""
    spec = request_of("tensorflow.serving.PredictRequest").model_spec
    spec.name = "iris"
    bodies = [
        b"\xff", b"\x0a", b"\x0a\xff\xff\xff\xff\x0f", b"\x0b" * 200, b"\x00", b"\x80" * 20, b"\x0a\x02\x0a\xff",
        b"\x0a\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80", b"\x07\x07", b"\x12\x03abc", b"\x0a\x04\x0a\x02\xc3\x28",
    ]  # fmt: skip
    unary = [
        f"/{service}/{method.name}"
        for service in protos.SERVICES
        for method in protos.POOL.FindServiceByName(service).methods
        if not method.client_streaming and not method.server_streaming
    ]
    cases = [(method, body) for method in unary for body in bodies]
    rng = random.Random(5)
    whole = [(each["method"], base64.b64decode(each["request"])) for each in RECORDED if "code" not in each]
    whole.append((INFER, infer_request().SerializeToString()))
    for method, content in whole:
        cases += [(method, content[: rng.randrange(len(content))]) for _ in range(3)]
        for _ in range(6):
            changed = bytearray(content)
            for _ in range(rng.randint(1, 3)):
                changed[rng.randrange(len(changed))] = rng.randrange(256)
            cases.append((method, bytes(changed)))
    return cases


def test_what_is_malformed_is_the_clients_fault(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    cases = malformed()
    codes = {client.code(method, content)[0] for method, content in cases}
    assert len(cases) > 500
    assert codes <= {"OK", "INVALID_ARGUMENT", "NOT_FOUND", "RESOURCE_EXHAUSTED", "UNIMPLEMENTED"}
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert client.code(PREDICT, predict_request()) == ("OK", "")


def test_a_stream_of_what_is_no_request_ends(client: Client) -> None:
    call = client.channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")(iter([b"\xff"]), timeout=20)
    with pytest.raises(grpc.RpcError) as caught:
        next(call)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_method_that_is_not_there(client: Client) -> None:
    assert client.code("/inference.GRPCInferenceService/ModelConfig", b"")[0] == "UNIMPLEMENTED"


# --- health and reflection ---


def test_health(client: Client, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def status(service: str) -> int:
        answer = client(HEALTH, request_of("grpc.health.v1.HealthCheckRequest", service=service))
        return int(answer.status)

    assert [status(""), status("inference.GRPCInferenceService")] == [1, 1]
    assert client.code(HEALTH, request_of("grpc.health.v1.HealthCheckRequest", service="x"))[0] == "NOT_FOUND"
    listed = client("/grpc.health.v1.Health/List", request_of("grpc.health.v1.HealthListRequest"))
    assert set(listed.statuses) == {"", *protos.SERVICES}
    monkeypatch.setattr(module, "_WATCH_SECONDS", 0.01)
    watch = "/grpc.health.v1.Health/Watch"
    seen, *others = (client.stream(watch, request_of("grpc.health.v1.HealthCheckRequest")) for _ in range(3))
    assert [next(each).status for each in (seen, *others)] == [1, 1, 1]
    others.pop().close()  # type: ignore[attr-defined] # a generator
    served.models.ready = False
    try:
        assert [next(each).status for each in (seen, *others)] == [2, 2]
        assert status("") == 2
    finally:
        served.models.ready = True
    for each in (seen, *others):
        assert next(each).status == 1
        each.close()  # type: ignore[attr-defined]
    unknown = client.stream(watch, request_of("grpc.health.v1.HealthCheckRequest", service="x"))
    assert next(unknown).status == 3
    unknown.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_reflection(client: Client, version: str) -> None:
    name = f"grpc.reflection.{version}.ServerReflection"
    questions: list[dict[str, Any]] = [
        {"list_services": ""},
        {"file_containing_symbol": "tensorflow.serving.PredictionService.Predict"},
        {"file_containing_symbol": "inference.ModelInferRequest"},
        {"file_by_filename": "health.proto"},
        {"all_extension_numbers_of_type": "tensorflow.TensorProto"},
        {"file_containing_symbol": "no.Such"},
        {"file_containing_symbol": "tensorflow.serving.PredictionService.Nope"},
        {"file_by_filename": "/etc/passwd"},
        {"file_containing_extension": {"containing_type": "inference.ModelInferRequest", "extension_number": 9}},
        {},
    ]
    requests = [request_of(f"{name}Request", host="h", **question) for question in questions]
    answers = [*client.stream(f"/{name}/ServerReflectionInfo", requests)]
    assert [each.original_request for each in answers] == requests
    assert {each.name for each in answers[0].list_services_response.service} == set(protos.SERVICES)
    files = [len(each.file_descriptor_response.file_descriptor_proto) for each in answers]
    assert files == [0, 5, 1, 1, 0, 0, 0, 0, 0, 0]
    assert answers[4].all_extension_numbers_response.base_type_name == "tensorflow.TensorProto"
    assert [each.error_response.error_code for each in answers] == [0, 0, 0, 0, 0, 5, 5, 5, 5, 3]


# --- ports ---


def test_the_server_needs_no_grpc_of_others() -> None:
    code = "import sys; from drivetrain.serving import grpc_server, server; print('grpc' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert ended.stdout.strip() == "False"


def test_an_address_that_is_taken(client: Client) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        options = ServerOptions(rest_port=0, grpc_port=client.port)
        with pytest.raises(InputError, match="cannot listen") as caught:
            asyncio.run(serve([], options, free, lambda _: None))
    assert "--grpc-port" in str(caught.value.fix)


def test_a_socket_of_this_machine(tmp_path: Path) -> None:
    with handler_running(grpc_handler(FakeModels()), path=tmp_path / "s") as running:
        assert running.code(HEALTH, b"") == ("OK", "")


def test_clients_prove_who_they_are(tmp_path: Path) -> None:
    """Mutual TLS."""
    key, certificate = _certificate()
    for name, content in (("key", key), ("certificate", certificate)):
        (tmp_path / name).write_bytes(content)
    tls = TlsFiles(tmp_path / "certificate", tmp_path / "key", tmp_path / "certificate").context("h2")
    with grpc_running(FakeModels(), tls) as running:
        for pair, ready in (((key, certificate), True), ((None, None), False)):
            channel_credentials = grpc.ssl_channel_credentials(certificate, *pair)
            with grpc.secure_channel(f"127.0.0.1:{running.port}", channel_credentials) as channel:
                assert (Client(channel, running.port).code(HEALTH, b"")[0] == "OK") is ready
        assert running.code(HEALTH, b"")[0] == "UNAVAILABLE"  # in plain text


def _certificate() -> tuple[bytes, bytes]:
    """A key, and a certificate that it signed for itself, for 127.0.0.1."""
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return private, certificate.public_bytes(pem)
