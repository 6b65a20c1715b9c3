"""One model by every protocol: the answers are those of the trainer and of the Evaluator, on ten thousand rows."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("httptools")
pytest.importorskip("httpx")
pytest.importorskip("grpc")

import grpc
import httpx
import jax
import jax.numpy as jnp
from drivetrain.engine import Bundle, analyze, export_model, ops
from drivetrain.engine.bundles.batch_fn import BundleFn
from drivetrain.serving import asgi
from drivetrain.serving.config import ModelConfig
from drivetrain.serving.protos import message_class
from drivetrain.serving.server import ServerOptions
from drivetrain.tests.serving.open_server import OpenServer, open_server

pytestmark = [pytest.mark.engine, pytest.mark.slow]
ROWS: Final = 10_000
CHUNK: Final = 500  # rows of a request
WIDTH: Final = 24
CITIES: Final = ["Zürich", "東京", "New York", "", 'a "quoted" \\ word']

Values: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Ask: TypeAlias = Callable[[pa.Table], Values]


def rows_of(seed: int, count: int) -> pa.Table:
    """Floats, some missing, whole numbers, booleans, text that is rare or not; and the label `late`."""
    rng = np.random.default_rng(seed)
    delay = rng.normal(10, 30, count)
    hour = rng.integers(0, 24, count)
    city = rng.choice([*CITIES, *map(str, range(50))], count)
    return pa.table(
        {
            "delay": pa.array(delay, mask=rng.random(count) < 0.1),
            "speed": pa.array(rng.lognormal(4, 1, count).astype(np.float32)),
            "hour": hour,
            "night": hour < 6,
            "city": pa.array(city.tolist()),
            "late": (delay > 15).astype(np.float32),
        }
    )


def preprocess(columns: ops.Columns) -> ops.Columns:
    """Scaled numbers, buckets, a vocabulary."""
    return {
        "delay": ops.z_score(ops.fill_missing(columns["delay"], 0.0)),
        "speed": ops.z_score(columns["speed"]),
        "hour": ops.bucketize(columns["hour"], 6),
        "night": ops.cast(columns["night"], "float32"),
        "city": ops.vocabulary(columns["city"], top_k=20, oov_buckets=2),
        "late": columns["late"],
    }


def network(params: Mapping[str, Any], features: Mapping[str, Any]) -> Any:  # Any: JAX arrays
    """Logits of a late arrival, shape [batch]."""
    numbers = jnp.stack([features["delay"], features["speed"], features["night"]], axis=-1)
    hidden = jnp.tanh(numbers @ params["numbers"] + params["hour"][features["hour"]] + params["city"][features["city"]])
    return hidden @ params["out"]


def predict(logits: Any) -> dict[str, Any]:
    """What a prediction shows."""
    return {"probability": jax.nn.sigmoid(logits)}


def params() -> dict[str, Values]:
    """Of a network that nobody trained."""
    rng = np.random.default_rng(3)
    shapes = {"numbers": (3, WIDTH), "hour": (6, WIDTH), "city": (22, WIDTH), "out": (WIDTH,)}
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


class Doors:
    """Ways to ask a server for a model's one output of floats.

    Args:
        server: Of models by name.
        model: Its name.
        inputs: Its inputs with their dtypes.
        output: What to ask for.
    """

    def __init__(self, server: OpenServer, model: str, inputs: Mapping[str, str], output: str) -> None:
        self._model, self._inputs, self._output = model, inputs, output
        self._http = http.client.HTTPConnection(urlsplit(server.rest).netloc, timeout=60)
        self._channel = grpc.insecure_channel(server.grpc)

    def close(self) -> None:
        """Close its connections."""
        self._http.close()
        self._channel.close()

    def all(self) -> dict[str, Ask]:
        """By name; each takes rows, and gives a number for each."""
        rest = self._post
        return {
            "v1 rows": partial(self.rows, rest),
            "v1 columns": partial(self.columns, rest),
            "v1 regress": partial(self.regress, rest),
            "v1 gRPC": partial(self.grpc_v1, as_content=True),
            "v1 gRPC, repeated values": partial(self.grpc_v1, as_content=False),
            "v2 JSON": partial(self.infer, rest, as_bytes=False),
            "v2 binary": partial(self.infer, rest, as_bytes=True),
            "v2 gRPC": partial(self.grpc_v2, as_bytes=True),
            "v2 gRPC, repeated values": partial(self.grpc_v2, as_bytes=False),
            "v2 gRPC stream": self.stream,
        }

    def _post(self, path: str, body: bytes, headers: Mapping[str, str]) -> tuple[Mapping[str, str], bytes]:
        self._http.request("POST", path, body, dict(headers))
        answer = self._http.getresponse()
        content = answer.read()
        assert answer.status == 200, content
        return {name.lower(): value for name, value in answer.getheaders()}, content

    def _json(self, post: Any, verb: str, body: Any) -> Any:
        return json.loads(post(f"/v1/models/{self._model}:{verb}", json.dumps(body).encode(), {})[1])

    def rows(self, post: Any, table: pa.Table) -> Values:
        """TensorFlow Serving's rows."""
        answers = self._json(post, "predict", {"instances": table.to_pylist()})["predictions"]
        return np.array([each[self._output] if isinstance(each, dict) else each for each in answers])

    def columns(self, post: Any, table: pa.Table) -> Values:
        """TensorFlow Serving's columns."""
        answers = self._json(post, "predict", {"inputs": table.to_pydict()})["outputs"]
        return np.array(answers[self._output] if isinstance(answers, dict) else answers)

    def regress(self, post: Any, table: pa.Table) -> Values:
        """TensorFlow Serving's examples."""
        return np.array(self._json(post, "regress", {"examples": table.to_pylist()})["results"])

    def _tensors(self, table: pa.Table) -> Iterator[tuple[str, str, Values]]:
        """Name, datatype and values of each input; of missing floats NaN, as tensors have none."""
        names = {"string": "BYTES", "bool": "BOOL", "float32": "FP32", "float64": "FP64", "int64": "INT64"}
        for name, dtype in self._inputs.items():
            column = table[name]
            if dtype == "string":
                yield name, "BYTES", np.array([(text or "").encode() for text in column.to_pylist()], object)
            else:
                values = column.to_numpy()
                yield name, names[dtype], values.astype(dtype)

    def infer(self, post: Any, table: pa.Table, *, as_bytes: bool) -> Values:
        """The Open Inference Protocol over REST."""
        tensors, parts = [], []
        for name, datatype, values in self._tensors(table):
            tensor: dict[str, Any] = {"name": name, "datatype": datatype, "shape": [len(values)]}
            if as_bytes:
                parts.append(raw(values))
                tensor["parameters"] = {"binary_data_size": len(parts[-1])}
            elif datatype == "BYTES":
                tensor["data"] = [text.decode() for text in values]
            else:
                tensor["data"] = [None if value != value else value for value in values.tolist()]
            tensors.append(tensor)
        head = json.dumps({"inputs": tensors, "parameters": {"binary_data_output": as_bytes}}).encode()
        headers = {"Inference-Header-Content-Length": str(len(head))} if as_bytes else {}
        path = f"/v2/models/{self._model}/infer"
        answered, content = post(path, head + b"".join(parts), headers)
        if not as_bytes:
            (output,) = (each for each in json.loads(content)["outputs"] if each["name"] == self._output)
            return np.array(output["data"])
        return np.frombuffer(content[int(answered["inference-header-content-length"]) :], np.float32)

    def grpc_v1(self, table: pa.Table, *, as_content: bool) -> Values:
        """TensorFlow Serving's gRPC."""
        request = message_class("tensorflow.serving.PredictRequest")()
        request.model_spec.name = self._model
        types = {"BYTES": (7, "string_val"), "BOOL": (10, "bool_val"), "FP32": (1, "float_val"),
                 "FP64": (2, "double_val"), "INT64": (9, "int64_val")}  # fmt: skip
        for name, datatype, values in self._tensors(table):
            tensor = request.inputs[name]
            tensor.dtype, field = types[datatype]
            tensor.tensor_shape.dim.add(size=len(values))
            if as_content and datatype != "BYTES":
                tensor.tensor_content = values.tobytes()
            else:
                getattr(tensor, field).extend(values.tolist())
        call = self._channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
        answer = message_class("tensorflow.serving.PredictResponse").FromString(call(request.SerializeToString()))
        tensor = answer.outputs[self._output]
        return np.frombuffer(tensor.tensor_content, np.float32) if tensor.tensor_content else np.array(tensor.float_val)

    def _infer_request(self, table: pa.Table, *, as_bytes: bool) -> Any:
        request = message_class("inference.ModelInferRequest")(model_name=self._model)
        fields = {"BYTES": "bytes_contents", "BOOL": "bool_contents", "FP32": "fp32_contents",
                  "FP64": "fp64_contents", "INT64": "int64_contents"}  # fmt: skip
        for name, datatype, values in self._tensors(table):
            tensor = request.inputs.add(name=name, datatype=datatype, shape=[len(values)])
            if as_bytes:
                request.raw_input_contents.append(raw(values))
            else:
                getattr(tensor.contents, fields[datatype]).extend(values.tolist())
        return request

    def _inferred(self, answer: Any) -> Values:
        at = [output.name for output in answer.outputs].index(self._output)
        if answer.raw_output_contents:
            return np.frombuffer(answer.raw_output_contents[at], np.float32)
        return np.array(answer.outputs[at].contents.fp32_contents)

    def grpc_v2(self, table: pa.Table, *, as_bytes: bool) -> Values:
        """The Open Inference Protocol over gRPC."""
        call = self._channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        content = call(self._infer_request(table, as_bytes=as_bytes).SerializeToString())
        return self._inferred(message_class("inference.ModelInferResponse").FromString(content))

    def stream(self, table: pa.Table) -> Values:
        """Messages of 100 rows in a stream."""
        parts = [table.slice(start, 100) for start in range(0, len(table), 100)]
        call = self._channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
        answer_class = message_class("inference.ModelStreamInferResponse")
        answers = []
        for content in call(iter([self._infer_request(part, as_bytes=True).SerializeToString() for part in parts])):
            answer = answer_class.FromString(content)
            assert not answer.error_message
            answers.append(self._inferred(answer.infer_response))
        return np.concatenate(answers)


def raw(values: Values) -> bytes:
    """A tensor's bytes, as the Open Inference Protocol has them."""
    if values.dtype == object:
        return b"".join(len(text).to_bytes(4, "little") + text for text in values)
    return values.tobytes()


def by_asgi(folder: Path, doors: Doors, model: str, table: pa.Table) -> dict[str, Values]:
    """The answers of an application, whose sockets are another's."""

    async def ask() -> dict[str, Values]:
        application = asgi({model: folder}, ServerOptions(poll_seconds=0))
        async with application, httpx.AsyncClient(transport=httpx.ASGITransport(application)) as client:

            def post(path: str, body: bytes, headers: Mapping[str, str]) -> tuple[Mapping[str, str], bytes]:
                asked = client.post(f"http://test{path}", content=body, headers=dict(headers))
                answer = asyncio.run_coroutine_threadsafe(asked, loop).result(60)
                assert answer.status_code == 200, answer.content
                return answer.headers, answer.content

            loop = asyncio.get_running_loop()
            asks: dict[str, Ask] = {
                "ASGI rows": partial(doors.rows, post),
                "ASGI v2 binary": partial(doors.infer, post, as_bytes=True),
            }
            return {name: await asyncio.to_thread(in_chunks, each, table) for name, each in asks.items()}

    return asyncio.run(ask())


def in_chunks(ask: Ask, table: pa.Table) -> Values:
    """What is answered to all rows, the first by itself."""
    sizes = [(0, 1), *((start, CHUNK) for start in range(1, len(table), CHUNK))]
    return np.concatenate([ask(table.slice(start, size)) for start, size in sizes])


def answers_by_door(
    folder: Path, model: str, table: pa.Table, inputs: Mapping[str, str], output: str
) -> dict[str, Values]:
    """What a model of a folder of versions answers to rows, by each protocol."""
    with open_server(ServerOptions(poll_seconds=0), [ModelConfig(model, str(folder))]) as server:
        doors = Doors(server, model, inputs, output)
        try:
            answers = {name: in_chunks(ask, table) for name, ask in doors.all().items()}
        finally:
            doors.close()
        return answers | by_asgi(folder, doors, model, table)


def test_ten_thousand_rows_are_answered_alike_by_every_door(tmp_path: Path) -> None:
    table, folder = rows_of(5, ROWS), tmp_path / "m"
    analyze(preprocess, rows_of(4, 2_000)).save(tmp_path / "transform")
    bundle = export_model(tmp_path / "transform", network, params(), predict, label="late", out=folder / "1")
    features = Bundle.load(tmp_path / "transform").run("transform", table)
    of_trainer = np.asarray(predict(network(params(), features))["probability"])
    (batch,) = table.combine_chunks().to_batches()
    of_evaluator = BundleFn(folder / "1", "predict")(batch).column("probability").to_numpy()
    np.testing.assert_allclose(of_evaluator, of_trainer, rtol=0, atol=1e-6)
    inputs = {name: spec.dtype for name, spec in bundle.signatures["predict"].inputs.items()}
    answers = answers_by_door(folder, "m", table.select([*inputs]), inputs, "probability")
    assert len(answers) == 12
    for door, values in answers.items():
        np.testing.assert_allclose(values, of_trainer, rtol=0, atol=1e-6, err_msg=door)
        np.testing.assert_allclose(values, of_evaluator, rtol=0, atol=1e-6, err_msg=door)
