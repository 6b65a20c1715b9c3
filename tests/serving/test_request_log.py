"""The request log: what was asked and answered over every protocol, read by pyarrow; full disks; what is deleted."""

from __future__ import annotations

import asyncio
import errno
import hmac
import http.client
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("httptools")

import grpc
import ml_dtypes
from drivetrain.engine import FieldSpec, Signature
from drivetrain.errors import InputError
from drivetrain.serving import manager, protos, request_log
from drivetrain.serving.api import Described, InferenceAnswer, InferenceRequest, ModelRef, RequestError
from drivetrain.serving.config import ModelConfig, read_models
from drivetrain.serving.log_files import FOOTER, day_folder, file_name
from drivetrain.serving.logged_rows import AnsweredRequest, RowSchema, arrow_type, as_type
from drivetrain.serving.request_log import SALT, RequestLog, RequestLogOptions, is_sampled
from drivetrain.serving.server import Listening, ServerOptions, bind, serve
from drivetrain.serving.tensor_proto import to_tensor_proto
from drivetrain.serving.version import Prepared

SIGNATURE = Signature(
    {
        "carrier": FieldSpec("string"),
        "hour": FieldSpec("int64"),
        "distance": FieldSpec("float64"),
        "vector": FieldSpec("list<float64>"),
        "model_name": FieldSpec("string"),
    },
    {"score": FieldSpec("float32"), "shout": FieldSpec("string")},
    {"distance": None, "model_name": "?"},
)
MODEL = Described("flights", 3, {"predict": SIGNATURE}, "d1ge57")
ROW = {"carrier": "UA", "hour": 17, "distance": 762.5, "vector": [0.5, -1.0], "model_name": "Boeing"}
OTHER = {"carrier": None, "hour": 5, "distance": None, "vector": [2.0, 4.0], "model_name": None}
KEY = "a salt that nobody knows"


class NumpyBundle:
    """What a server needs of a bundle: the answer is hour + the vector's first number, and the carrier in capitals."""

    signatures = MODEL.signatures

    def takes_columns(self, signature: str) -> bool:
        return False

    def run_row(self, signature: str, row: Mapping[str, Any]) -> dict[str, Any]:
        carrier = row["carrier"]
        return {"score": float(row["hour"] + row["vector"][0]), "shout": None if carrier is None else carrier.upper()}

    def run(self, signature: str, batch: pa.RecordBatch) -> dict[str, Any]:
        rows = [self.run_row(signature, row) for row in batch.to_pylist()]
        shout = np.empty(len(rows), object)
        shout[:] = [row["shout"] for row in rows]
        return {"score": np.array([row["score"] for row in rows], np.float32), "shout": shout}


@pytest.fixture
def serving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Serves version 3 of `flights` over both protocols with a log; what waits is written where the block ends."""
    (tmp_path / "flights" / "3").mkdir(parents=True)
    (tmp_path / "flights" / "3" / "manifest.json").write_text("{}")
    monkeypatch.setattr(manager, "prepare", lambda *_: Prepared(MODEL, tmp_path / "flights" / "3", 0))
    monkeypatch.setattr(manager, "read_bundle", lambda _: NumpyBundle())
    monkeypatch.setattr(manager, "compile_bundle", lambda _: {})

    @contextmanager
    def start(**options: Any) -> Iterator[Listening]:
        config = ModelConfig(
            "flights", str(tmp_path / "flights"), request_log=RequestLogOptions(str(tmp_path / "log"), **options)
        )
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        listening: list[Listening] = []
        ready = threading.Event()

        def started(up: Listening) -> None:
            listening.append(up)
            ready.set()

        server = ServerOptions(rest_port=0, grpc_port=0, poll_seconds=0)
        port = bind("127.0.0.1", 0)
        running = asyncio.run_coroutine_threadsafe(serve([config], server, port, started), loop)
        running.add_done_callback(lambda _: ready.set())
        try:
            assert ready.wait(30)
            if not listening:
                running.result()
            yield listening[0]
        finally:
            running.cancel()
            for _ in range(3000):  # cancelled is not yet ended
                if not asyncio.run_coroutine_threadsafe(_others(), loop).result(30):
                    break
                time.sleep(0.01)
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    return start


async def _others() -> int:
    return len(asyncio.all_tasks()) - 1


def post(listening: Listening, path: str, body: Any, **headers: str) -> tuple[Any, dict[str, str]]:
    """The JSON and the headers of an answer."""
    connection = http.client.HTTPConnection(listening.address.removeprefix("http://"), timeout=30)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("POST", path, json.dumps(body), named)
    response = connection.getresponse()
    answer = json.loads(response.read())
    connection.close()
    assert response.status == 200, answer
    return answer, {name.lower(): value for name, value in response.getheaders()}


def logged(folder: Path) -> list[dict[str, Any]]:
    """The rows of a folder's log, in the order in which they were asked."""
    rows = [row for path in folder.glob("*/*/*/*.parquet") for row in pq.read_table(path).to_pylist()]
    return sorted(rows, key=lambda row: (row["request_time"], row["request_row"]))


def infer_body(rows: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    kinds = {"carrier": "BYTES", "hour": "INT64", "distance": "FP64", "vector": "FP64"}
    inputs = []
    for name, kind in kinds.items():
        values = [row[name] for row in rows]
        shape = [len(rows), 2] if name == "vector" else [len(rows)]
        inputs.append({"name": name, "datatype": kind, "shape": shape, "data": values})
    return {"inputs": inputs, **fields}


def test_rows_are_what_was_asked_and_answered_over_every_protocol(tmp_path: Path, serving: Any) -> None:
    before = datetime.now(UTC)
    with serving() as up:
        single, _ = post(up, "/v1/models/flights:predict", {"instances": [ROW]}, x_request_id="tfs")
        two, headers = post(up, "/v1/models/flights:predict", {"instances": [ROW, OTHER]})
        oip, oip_headers = post(up, "/v2/models/flights/infer", infer_body([OTHER, ROW], id="oip"))
        wanted = infer_body([ROW], id="ignored", outputs=[{"name": "score"}])
        part, _ = post(up, "/v2/models/flights/infer", wanted, x_request_id="header")
        with grpc.insecure_channel(str(up.grpc_address)) as channel:
            request = protos.PredictRequest()
            request.model_spec.name = "flights"
            word = np.array([b"DL"], object)
            tensors = {"carrier": word, "hour": np.array([9]), "vector": np.array([[1, 2]], np.float32)}
            for name, values in tensors.items():
                request.inputs[name].CopyFrom(to_tensor_proto(values, name))
            call = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
            predicted = protos.PredictResponse.FromString(
                call(request.SerializeToString(), metadata=[("x-request-id", "grpc")])
            )
            infer = protos.ModelInferRequest(model_name="flights", id="grpc-oip")
            for name, kind, shape, raw in (
                ("carrier", "BYTES", [1], b"\x02\x00\x00\x00AA"),
                ("hour", "INT64", [1], np.int64(3).tobytes()),
                ("vector", "FP32", [1, 2], np.array([7, 8], np.float32).tobytes()),
            ):
                infer.inputs.add(name=name, datatype=kind, shape=shape)
                infer.raw_input_contents.append(raw)
            _, ended = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer").with_call(
                infer.SerializeToString()
            )
    rows = logged(tmp_path / "log")
    by_id: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_id.setdefault(row["request_id"], []).append(row)
    assert list(by_id) == ["tfs", headers["x-request-id"], "oip", "header", "grpc", "grpc-oip"]
    assert oip_headers["x-request-id"] == "oip"
    assert dict(ended.trailing_metadata())["x-request-id"] == "grpc-oip"

    def inputs(request_id: str) -> list[dict[str, Any]]:
        return [{name: row[name] for name in SIGNATURE.inputs} for row in by_id[request_id]]

    def outputs(request_id: str) -> list[dict[str, Any]]:
        return [{name: row[f"prediction_{name}"] for name in SIGNATURE.outputs} for row in by_id[request_id]]

    assert inputs("tfs") == [ROW]
    assert outputs("tfs") == single["predictions"]
    assert inputs(headers["x-request-id"]) == [ROW, OTHER]
    assert outputs(headers["x-request-id"]) == two["predictions"]
    assert inputs("oip") == [OTHER | {"model_name": "?"}, ROW | {"model_name": "?"}]  # its default: it was not sent
    assert [row["score"] for row in outputs("oip")] == oip["outputs"][0]["data"]
    assert outputs("header") == [{"score": part["outputs"][0]["data"][0], "shout": None}]  # was not wanted
    assert inputs("grpc") == [{"carrier": "DL", "hour": 9, "distance": None, "vector": [1.0, 2.0], "model_name": "?"}]
    assert outputs("grpc") == [{"score": predicted.outputs["score"].float_val[0], "shout": "DL"}]
    assert outputs("grpc-oip") == [{"score": 10.0, "shout": "AA"}]
    assert [row["request_row"] for row in by_id["oip"]] == [0, 1]
    assert {
        (row["model_name_"], row["model_version"], row["model_bundle"], row["model_signature"]) for row in rows
    } == {("flights", 3, "d1ge57", "predict")}
    assert all(before <= row["request_time"] <= datetime.now(UTC) for row in rows)
    (file, *_) = (tmp_path / "log").glob("*/*/*/*.parquet")
    assert file.relative_to(tmp_path / "log").parts[:3] == ("flights", "3", f"{rows[0]['request_time']:%Y-%m-%d}")
    kinds = {field.name: str(field.type).replace("element", "item") for field in pq.read_schema(file)}
    assert kinds["vector"] == "list<item: double>"
    assert kinds["hour"] == "int64"
    assert kinds["request_time"] == "timestamp[us, tz=UTC]"


def test_columns_that_are_denied_or_hashed(
    tmp_path: Path, serving: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(SALT, KEY)
    with (
        caplog.at_level(logging.WARNING, "drivetrain.serving"),
        serving(deny=("distance", "shout", "careier"), hash=("carrier", "hour", "vector", "score")) as up,
    ):
        post(up, "/v1/models/flights:predict", {"instances": [ROW, OTHER]})
    assert "careier" in caplog.text
    assert "did you mean 'carrier'" in caplog.text
    first, second = logged(tmp_path / "log")
    assert not {"distance", "prediction_shout"} & first.keys()

    def hashed(text: str) -> str:
        return hmac.new(KEY.encode(), text.encode(), "sha256").hexdigest()

    assert first["carrier"] == hashed("UA")
    assert (first["hour"], second["hour"]) == (hashed("17"), hashed("5"))
    assert first["vector"] == hashed("[0.5, -1.0]")
    assert second["carrier"] is None
    assert len(first["prediction_score"]) == 64  # an output is meant by its own name, too
    files = b"".join(path.read_bytes() for path in (tmp_path / "log").rglob("*") if path.is_file())
    assert KEY.encode() not in files
    assert KEY not in caplog.text


@pytest.mark.parametrize("salt", [KEY, None, "short"], ids=["salt", "none", "short"])
def test_the_models_own_schema_decides_too(
    tmp_path: Path,
    serving: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    salt: str | None,
) -> None:
    """And options take nothing of it back; what cannot be hashed is left out."""
    rules = {"distance": "deny", "carrier": "hash", "hour": "what a later release says"}
    described = replace(MODEL, signatures={"predict": replace(SIGNATURE, request_log=rules)})
    monkeypatch.setattr(manager, "prepare", lambda *_: Prepared(described, tmp_path / "flights" / "3", 0))
    if salt is not None:
        monkeypatch.setenv(SALT, salt)
    options = {"hash": ("distance", "vector")} if salt == KEY else {"deny": ("vector",)}
    with caplog.at_level(logging.WARNING, "drivetrain.serving"), serving(**options) as up:
        post(up, "/v1/models/flights:predict", {"instances": [{**ROW, "carrier": "confidential"}]})
    (row,) = logged(tmp_path / "log")
    assert not {"distance", "hour"} & row.keys()
    assert row["model_name_"] == "flights"
    if salt == KEY:
        assert row["carrier"] == hmac.new(KEY.encode(), b"confidential", "sha256").hexdigest()
        assert len(row["vector"]) == 64
    else:
        assert "carrier" not in row
        assert f"leaves out carrier, which the model's schema has hashed: {SALT} holds no key" in caplog.text
    (file,) = (tmp_path / "log").rglob("*.parquet")
    assert b"confidential" not in file.read_bytes()


def test_hashing_without_a_salt_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"flights": RequestLogOptions(str(tmp_path), hash=("carrier",), salt_from="MY_SALT")}
    for salt, problem in ((None, "MY_SALT is not set"), ("short", "MY_SALT has fewer than 16")):
        if salt is not None:
            monkeypatch.setenv("MY_SALT", salt)
        with pytest.raises(InputError, match=problem):
            RequestLog(options)


def test_a_sample_is_a_share_and_decides_equally_twice() -> None:
    ids = [f"request-{number}" for number in range(10_000)]
    tenth = {each for each in ids if is_sampled(each, 0.1)}
    assert 880 < len(tenth) < 1120  # four standard deviations of a binomial
    assert tenth == {each for each in ids if is_sampled(each, 0.1)}
    assert tenth < {each for each in ids if is_sampled(each, 0.2)}
    assert all(is_sampled(each, 1.0) for each in ids)


def metric(up: Listening, name: str) -> float:
    connection = http.client.HTTPConnection(up.address.removeprefix("http://"), timeout=30)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name))


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


DROPPED = "drivetrain_serving_log_dropped_rows_total"
WRITTEN = "drivetrain_serving_logged_rows_total"


def test_a_full_disk_loses_rows_and_no_answer(
    tmp_path: Path, serving: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = os.fsync

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    body = {"instances": [ROW, OTHER]}
    monkeypatch.setattr(request_log, "_LOOK", 0.02)
    with caplog.at_level(logging.WARNING, "drivetrain.serving"), serving(write_seconds=0.05) as up:
        monkeypatch.setattr(os, "fsync", full)
        for count in range(1, 4):
            post(up, "/v1/models/flights:predict", body)
            until(lambda count=count: metric(up, f'{DROPPED}{{model="flights",reason="disk"}}') == 2 * count)  # type: ignore[misc]
        monkeypatch.setattr(os, "fsync", real)
        post(up, "/v1/models/flights:predict", body, x_request_id="later")
        until(lambda: metric(up, WRITTEN) == 2)
        (tmp_path / "log" / "flights").rename(tmp_path / "log" / "away")
        post(up, "/v1/models/flights:predict", body)
        until(lambda: metric(up, DROPPED) == 8)
        (tmp_path / "log" / "away").rename(tmp_path / "log" / "flights")
        post(up, "/v1/models/flights:predict", body, x_request_id="last")
        until(lambda: metric(up, WRITTEN) == 4)
        said = [record.getMessage() for record in caplog.records if "lost" in record.getMessage()]
        assert len(said) == 1  # in less than a minute
        assert "No space left on device" in said[0]
    assert [row["request_id"] for row in logged(tmp_path / "log")] == ["later", "later", "last", "last"]
    assert not list((tmp_path / "log").rglob("*.tmp"))


def answered(log: RequestLog, request_id: str, row: Mapping[str, Any], score: Any = 1.0) -> None:
    request = InferenceRequest(
        ModelRef("flights"), "predict", {name: [value] for name, value in row.items()}, 1, request_id=request_id
    )
    outputs = {"score": np.array([score], np.float32), "shout": np.array(["!"], object)}
    ended: list[InferenceAnswer | RequestError] = []
    log.recording(MODEL, "predict", request, ended.append)(InferenceAnswer("flights", 3, outputs, "d1ge57"))
    assert len(ended) == 1


def test_what_waits_is_bounded_and_an_odd_value_costs_its_own_request_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = RequestLog({"flights": RequestLogOptions(str(tmp_path))})
    answered(log, "odd", ROW | {"carrier": "\ud800"})  # a lone surrogate has no UTF-8
    nested: list[Any] = []
    for _ in range(5000):  # too deep to be measured
        nested = [nested]
    answered(log, "deep", ROW | {"vector": nested})
    answered(log, "whole", ROW | {"hour": 17.0, "distance": 5})
    monkeypatch.setattr(request_log, "_QUEUE", 50_000)
    answered(log, "large", ROW | {"carrier": "x" * 50_000})
    log.start()
    log.close()
    assert log.counts() == ({"flights": 1}, {("flights", "value"): 2, ("flights", "queue"): 1})
    (row,) = logged(tmp_path)
    assert (row["request_id"], row["hour"], row["distance"]) == ("whole", 17, 5.0)


WRITER = """
import sys, time
import numpy as np
from drivetrain.engine.bundles.manifest import Signature
from drivetrain.engine.graphs.graph import FieldSpec
from drivetrain.serving import request_log
from drivetrain.serving.api import Described, InferenceAnswer, InferenceRequest, ModelRef
request_log._LOOK = 0.001
log = request_log.RequestLog({"m": request_log.RequestLogOptions(sys.argv[1], write_seconds=0.001)})
log.start()
model = Described("m", 1, {"predict": Signature({"x": FieldSpec("int64")}, {"y": FieldSpec("int64")})})
for number in range(10**9):
    request = InferenceRequest(ModelRef("m"), "predict", {"x": [number]}, 1, request_id=str(number))
    log.recording(model, "predict", request, id)(InferenceAnswer("m", 1, {"y": np.array([-number])}))
    time.sleep(0.0005)
"""


def test_a_killed_server_leaves_whole_files_alone(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)])
    try:
        until(lambda: len([*tmp_path.rglob("*.parquet")]) > 20)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(30)
    rows = logged(tmp_path)
    assert [row["request_id"] for row in rows] == [str(number) for number in range(len(rows))]
    assert [(row["x"], row["prediction_y"]) for row in rows] == [(number, -number) for number in range(len(rows))]


def test_retention_deletes_what_the_log_wrote_and_nothing_else(tmp_path: Path) -> None:
    schema = RowSchema("flights", 3, "d1ge57", "predict", SIGNATURE)
    now = time.time_ns() // 1000

    def write(days: int, name: str = "") -> Path:
        when = now - days * 86_400_000_000
        rows = schema.whole([schema.table([AnsweredRequest("a", when, {name: [ROW[name]] for name in ROW}, 1, {}, 0)])])
        folder = day_folder(tmp_path / "flights", 3, when)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / (name or file_name("predict", when))
        pq.write_table(rows, path)
        return path

    old, kept, users = write(9), write(7), write(9, "copy.parquet")
    alike = old.with_name(file_name("predict", now))
    pq.write_table(pa.table({"a": [1]}), alike)
    damaged = old.with_name(file_name("a", now))  # the first by name
    damaged.write_bytes(old.read_bytes().replace(b"carrier", b"\xa7arrier"))
    half = write(30, f".{file_name('predict', now)}.0123abcd.tmp")
    link = old.with_name(file_name("predict", now))
    link.symlink_to(kept)
    assert FOOTER in pq.read_metadata(old).metadata
    for options in (RequestLogOptions(str(tmp_path)), RequestLogOptions(str(tmp_path), keep_days=7)):
        there = old.exists()
        log = RequestLog({"flights": options})
        log.start()
        log.close()
        assert there
        assert not half.exists()
        assert old.exists() == (options.keep_days is None)
    assert kept.exists()
    assert users.exists()
    assert alike.exists()
    assert damaged.exists()
    assert link.is_symlink()
    assert not half.parent.exists()


def test_options_in_the_file_of_models(tmp_path: Path) -> None:
    path = tmp_path / "models.yaml"
    text = "models:\n  flights:\n    base_path: x\n    request_log: "
    fields = "sample: 0.1, deny: [ssn], hash: [carrier], salt_from: MY_SALT, keep_days: 30, write_seconds: 5"
    path.write_text(f"{text}{{folder: log, {fields}}}")
    assert read_models(path)[0].request_log == RequestLogOptions(
        str(tmp_path / "log"), 0.1, ("ssn",), ("carrier",), "MY_SALT", 30, 5
    )
    for mistake, words in (
        ("{}", "no folder"),
        ("{folder: s3://bucket/log}", "not a URL"),
        ("{folder: log, sample: 1.5}", "a sample of 1.5"),
        ("{folder: log, keep_days: 0}", "keep_days is 0"),
        ("{folder: log, deny: [a], hash: [a]}", "'a' is both denied and hashed"),
        ("{folder: log, salt: abc}", "'salt'"),
        ("{folder: log, keep_days: 1000000}", "keep_days is 1000000"),
    ):
        path.write_text(text + mistake)
        with pytest.raises(InputError, match=words) as error:
            read_models(path)
        assert "models.yaml" in str(error.value)
    (tmp_path / "file").write_text("")
    log = RequestLog({"flights": RequestLogOptions(str(tmp_path / "file"))})
    with pytest.raises(InputError, match="the request log cannot be written to"):
        log.start()


@pytest.mark.parametrize(
    ("spec", "parts", "kind", "values"),
    [
        (FieldSpec("float32", (2,)), [np.array([[1, 2]], np.float32), np.array([[3, 4]], np.float32)],
         pa.list_(pa.float32()), [[1, 2], [3, 4]]),
        (FieldSpec("bfloat16", (1, 2)), [np.array([[[0.5, 2]]], ml_dtypes.bfloat16)],
         pa.list_(pa.list_(pa.float32())), [[[0.5, 2]]]),
        (FieldSpec("float16"), [np.array([0.5], np.float16)], pa.float32(), [0.5]),
        (FieldSpec("uint8", (2,)), [[[1, 2]], np.array([[3, 4]], np.uint8)], pa.list_(pa.uint8()), [[1, 2], [3, 4]]),
        (FieldSpec("int64"), [[1, None], pa.array([3]), [4.0, float("nan")]], pa.int64(), [1, None, 3, 4, None]),
        (FieldSpec("list<string>"), [[["a", "b"], []], [None]], pa.list_(pa.string()), [["a", "b"], [], None]),
        (FieldSpec("bool"), [[True], np.array([False])], pa.bool_(), [True, False]),
    ],
    ids=lambda value: value.dtype if isinstance(value, FieldSpec) else "",
)  # fmt: skip
def test_values_have_the_types_of_the_signature(spec: FieldSpec, parts: Any, kind: pa.DataType, values: Any) -> None:
    assert arrow_type(spec) == kind
    column = as_type("x", parts, spec, kind)
    assert (column.type, column.to_pylist()) == (kind, values)
    assert arrow_type(FieldSpec("complex64")) is None


def test_times_are_those_of_the_training_data_and_a_hash_is_of_the_number() -> None:
    signature = Signature(
        {"day": FieldSpec("int64"), "at": FieldSpec("int64"), "born": FieldSpec("int64"), "count": FieldSpec("int64")},
        {"score": FieldSpec("float32")},
        times={"day": "date", "at": "timestamp[us]", "born": "date"},
    )
    schema = RowSchema("flights", 3, "d1ge57", "predict", signature, hashed=["born"], key=KEY.encode())
    moment = 1_767_292_200_123
    columns = {"day": [moment], "at": [moment], "born": [moment], "count": [7]}
    request = AnsweredRequest("a", 0, columns, 1, {"score": np.array([0.5], np.float32)}, 0)
    (row,) = schema.table([request]).to_pylist()
    assert (row["day"], row["at"]) == (date(2026, 1, 1), datetime(2026, 1, 1, 18, 30, 0, 123_000))
    assert row["born"] == hmac.new(KEY.encode(), str(moment).encode(), "sha256").hexdigest()
    assert row["count"] == 7
    with pytest.raises(pa.ArrowInvalid):  # the log drops it, and counts it
        schema.table([replace(request, columns=columns | {"at": [2**62]})])


@pytest.mark.parametrize("name", ["预测" * 40, "p" * 300, "..", "a/b", '"%2E"', "__proto__"])
def test_any_name_of_a_model_and_a_signature_is_a_folder_and_a_file(tmp_path: Path, name: str) -> None:
    signature = Signature({"x": FieldSpec("float32")}, {"score": FieldSpec("float32")})
    names = (name, name + "!")  # which differ at their ends alone
    log = RequestLog({each: RequestLogOptions(str(tmp_path / "log")) for each in names})
    log.start()
    for each in names:
        described = Described(each, 3, {name: signature, name + "?": signature}, "d1ge57")
        for asked in described.signatures:
            request = InferenceRequest(ModelRef(each), asked, {"x": [1.5]}, 1, request_id="r1")
            answer = InferenceAnswer(each, 3, {"score": np.array([0.5], np.float32)}, "d1ge57")
            log.recording(described, asked, request, lambda _: None)(answer)
    log.close()
    assert log.counts() == (dict.fromkeys(names, 2), {})
    tables = [pq.read_table(path) for path in (tmp_path / "log").glob("*/3/*/*.parquet")]
    assert {(table["model_name"][0].as_py(), table["model_signature"][0].as_py()) for table in tables} == {
        (each, asked) for each in names for asked in (name, name + "?")
    }
    assert len([*(tmp_path / "log").iterdir()]) == len(names)


def test_days_are_those_of_the_requests() -> None:
    midnight = int((datetime(2026, 11, 27, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(microseconds=1))
    assert day_folder(Path("m"), 3, midnight - 1) == Path("m/3/2026-11-26")
    assert day_folder(Path("m"), 3, midnight) == Path("m/3/2026-11-27")
    assert file_name("pre/dict", midnight).startswith("pre%2Fdict-20261127T000000000000-")
