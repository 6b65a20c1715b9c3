"""Bodies of the Open Inference Protocol through the REST interface: those of a real client, and broken ones."""

from __future__ import annotations

import asyncio
import json
import math
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("httptools")

from drivetrain.engine import FieldSpec, Signature, analyze, ops
from drivetrain.serving import manager, oip
from drivetrain.serving.api import Described, ModelRef
from drivetrain.serving.config import ModelConfig
from drivetrain.serving.http import HttpRequest, HttpResponse
from drivetrain.serving.metrics import ServingMetrics
from drivetrain.serving.rest import RestApi
from drivetrain.serving.version import Prepared
from numpy.typing import NDArray

pytestmark = pytest.mark.engine

RECORDED = Path(__file__).parent / "data" / "oip"  # its README says by what
REQUESTS: dict[str, Any] = json.loads((RECORDED / "requests.json").read_text("utf-8"))
Ask: TypeAlias = Callable[[bytes, int | None], HttpResponse]

VECTORS = {
    "v": FieldSpec("float32", (2,)), "h": FieldSpec("float16"), "b": FieldSpec("bfloat16"), "u": FieldSpec("uint64"),
    "i": FieldSpec("int8"), "tags": FieldSpec("list<string>"), "on": FieldSpec("bool", (1,)),
}  # fmt: skip
COLUMNS = {"x": FieldSpec("float64"), "n": FieldSpec("int64"), "flag": FieldSpec("bool"), "city": FieldSpec("string")}


def preprocess(c: ops.Columns) -> ops.Columns:
    """Each column again, in the types that models have."""
    count = ops.cast(ops.fill_missing(c["n"], 0), "float32")
    return {"score": ops.fill_missing(c["x"], -1.0), "count": count, "flag": c["flag"], "label": c["city"]}


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """The answer to a body for the model `m`, which has the inputs `COLUMNS`, all but `x` with defaults."""
    folder = tmp_path_factory.mktemp("m")
    (folder / "3").mkdir()
    bundle = analyze(preprocess, pa.table({"x": [1.0], "n": [1], "flag": [True], "city": ["a"]}))
    bundle = bundle.with_defaults({"n": 1, "flag": False, "city": "?"}).for_serving()
    graph = replace(bundle.graph, signatures={"predict": bundle.graph.signatures["transform"]})
    bundle = replace(bundle, graph=graph)
    loop = asyncio.new_event_loop()
    models = manager.ModelManager([ModelConfig("m", str(folder))], poll_seconds=0)
    with pytest.MonkeyPatch.context() as patch:
        prepared = Prepared(Described("m", 3, bundle.signatures), folder / "3", 0)
        patch.setattr(manager, "prepare", lambda *_: prepared)
        patch.setattr(manager, "read_bundle", lambda _: bundle)
        patch.setattr(manager, "compile_bundle", lambda _: dict.fromkeys(bundle.signatures, 0.0))
        loop.run_until_complete(models.start())
    api = RestApi(models, ServingMetrics())

    async def answer(body: bytes, header_length: int | None) -> HttpResponse:
        future: asyncio.Future[HttpResponse] = loop.create_future()
        headers = {} if header_length is None else {"inference-header-content-length": str(header_length)}
        api(HttpRequest("POST", "/v2/models/m/infer", headers, body), future.set_result)
        return await future

    yield lambda body, header_length: loop.run_until_complete(asyncio.wait_for(answer(body, header_length), 30))
    loop.run_until_complete(models.stop())
    loop.close()


# --- what a real client writes ---


NO_ROWS = ("none_binary", "none_json")


@pytest.mark.parametrize("case", sorted(REQUESTS.keys() - NO_ROWS))
def test_the_bodies_of_tritonclient_are_its_tensors(case: str) -> None:
    values = REQUESTS[case]["values"]
    inputs = {name: {**COLUMNS, **VECTORS}[name] for name in values}
    described = Described("m", 3, {"predict": Signature(inputs, {"score": FieldSpec("float32")})})
    body = (RECORDED / f"{case}.body").read_bytes()
    request, _ = oip.decode(body, REQUESTS[case]["header_length"], described, ModelRef("m"))
    assert (request.rows, [*request.columns]) == (4, [*inputs])
    for name, sent in values.items():
        column = request.columns[name]
        if isinstance(column, list):
            np.testing.assert_array_equal(column, sent)  # NaN too
            continue
        assert column.dtype.name == inputs[name].value_dtype
        expected = np.array(sent, float if name in "vhb" else column.dtype).reshape(column.shape)
        np.testing.assert_array_equal(column.astype(expected.dtype), expected)


def tensors_of(body: bytes, header_length: int | None) -> dict[str, NDArray[Any]]:
    """The tensors of a body or an answer as NumPy reads them, without a line of the server's."""
    document, rest = json.loads(body[:header_length]), body[header_length or len(body) :]
    tensors = {}
    for each in document.get("inputs") or document["outputs"]:
        size = each.get("parameters", {}).get("binary_data_size")
        if size is None:
            values = np.array(each["data"], object if each["datatype"] == "BYTES" else NUMPY[each["datatype"]])
        elif each["datatype"] == "BYTES":
            texts, start = [], 0
            while start < size:
                end = start + 4 + struct.unpack_from("<I", rest, start)[0]
                texts.append(rest[start + 4 : end].decode())
                start = end
            values = np.array(texts, object)
        else:
            values = np.frombuffer(rest[:size], NUMPY[each["datatype"]])
        rest = rest[size or 0 :]
        tensors[each["name"]] = values.reshape(each["shape"])
    assert not rest
    return tensors


NUMPY: dict[str, Any] = {
    "BOOL": bool, "INT8": "i1", "INT16": "<i2", "INT32": "<i4", "INT64": "<i8", "UINT8": "u1", "UINT16": "<u2",
    "UINT32": "<u4", "UINT64": "<u8", "FP16": "<f2", "FP32": "<f4", "FP64": "<f8", "BF16": ml_dtypes.bfloat16,
}  # fmt: skip


@pytest.mark.parametrize("case", ["columns_json", "columns_binary", "columns_mixed", "strange_json", "strange_binary"])
def test_answers_are_what_numpy_reads_in_the_bodies_of_tritonclient(ask: Ask, case: str) -> None:
    body, header_length = (RECORDED / f"{case}.body").read_bytes(), REQUESTS[case]["header_length"]
    answer = ask(body, header_length)
    assert answer.status == 200, answer.body
    length = dict(answer.headers).get("inference-header-content-length")
    outputs = tensors_of(answer.body, None if length is None else int(length))
    asked = [each["name"] for each in json.loads(body[:header_length]).get("outputs", [])]
    assert [*outputs] == (asked or ["score", "count", "flag", "label"])
    sent = {"n": np.ones(4), "flag": np.zeros(4), "city": np.full(4, "?"), **tensors_of(body, header_length)}
    with np.errstate(over="ignore"):
        sent["x"] = np.where(np.isnan(sent["x"]), -1, sent["x"]).astype(np.float32)
    for output, column in {"score": "x", "count": "n", "flag": "flag", "label": "city"}.items():
        if output in outputs:
            np.testing.assert_array_equal(outputs[output], sent[column].astype(outputs[output].dtype))


def test_bytes_of_tensors_are_not_copied() -> None:
    values = np.arange(2048, dtype=np.float32).reshape(2, 1024)
    described = Described("m", 3, {"predict": Signature({"x": FieldSpec("float32", (1024,))}, {})})
    for blanks in range(4):  # numbers stand where the JSON ends, also where no address of theirs is a multiple of 4
        header = body_of(tensor("x", "FP32", [2, 1024], None, binary_data_size=values.nbytes)) + b" " * blanks
        body = header + values.tobytes()
        column = oip.decode(body, len(header), described, ModelRef("m"))[0].columns["x"]
        np.testing.assert_array_equal(column, values)
        assert np.shares_memory(column, np.frombuffer(body, np.uint8))


# --- malformed bodies ---


def tensor(name: str, datatype: str, shape: list[int], data: object, **parameters: object) -> dict[str, object]:
    values = {"name": name, "datatype": datatype, "shape": shape}
    return values | ({"data": data} if data is not None else {}) | ({"parameters": parameters} if parameters else {})


def body_of(*inputs: object, **other: object) -> bytes:
    return json.dumps({"inputs": list(inputs), **other}).encode()


X = tensor("x", "FP64", [1], [1.5])


def changed(**changes: object) -> bytes:
    """The usual body with another field, or without it."""
    fields = {**X, **changes}
    return body_of({key: value for key, value in fields.items() if value is not ...})


def binary(shape: list[int], size: object, packed: bytes, datatype: str = "FP64", **other: object) -> tuple[bytes, int]:
    header = body_of({**tensor("x", datatype, shape, None, binary_data_size=size), **other})
    return header + packed, len(header)


NAMED = {  # the error names it
    "shape missing": changed(shape=...),
    "shape null": changed(shape=None),
    "shape a number": changed(shape=1),
    "shape text": changed(shape="1"),
    "shape an object": changed(shape={"0": 1}),
    "shape of text": changed(shape=["1"]),
    "shape of a fraction": changed(shape=[1.5]),
    "shape of a float": changed(shape=[1.0]),
    "shape of a bool": changed(shape=[True]),
    "shape of null": changed(shape=[None]),
    "shape nested": changed(shape=[[1]]),
    "shape empty": changed(shape=[]),
    "shape negative": changed(shape=[-1]),
    "shape minus 2^63": changed(shape=[-(2**63)]),
    "shape huge": changed(shape=[2**31]),
    "shape 2^63": changed(shape=[2**63]),
    "shape 2^64": changed(shape=[2**64]),
    "shape of 4000 digits": changed(shape=[10**4000]),
    "shape huge and empty": changed(shape=[2**40, 0], data=[]),
    "shape empty and huge": changed(shape=[0, 2**40], data=[]),
    "shape too many dimensions": changed(shape=[1, 1, 1]),
    "shape of 100000 dimensions": changed(shape=[1] * 100_000),
    "shape of another vector": changed(shape=[1, 2], data=[1.5, 2.5]),
    "shape with more rows": changed(shape=[2]),
    "shape with fewer rows": changed(shape=[1], data=[1.5, 2.5]),
    "no rows for values": changed(shape=[0]),
    "datatype missing": changed(datatype=...),
    "datatype null": changed(datatype=None),
    "datatype a number": changed(datatype=64),
    "datatype a list": changed(datatype=["FP64"]),
    "datatype unknown": changed(datatype="FP128"),
    "datatype in small letters": changed(datatype="fp64"),
    "datatype of numpy": changed(datatype="float64"),
    "datatype empty": changed(datatype=""),
    "datatype long": changed(datatype="F" * 1_000_000),
    "datatype with an escape": changed(datatype="\x1b[31m"),
    "datatype text for a number": changed(datatype="BYTES", data=["1.5"]),
    "datatype bool for a number": changed(datatype="BOOL", data=[True]),
    "data missing": changed(data=...),
    "data null": changed(data=None),
    "data a number": changed(data=1.5),
    "data text": changed(data="1.5"),
    "data an object": changed(data={"b64": "AAAA"}),
    "data true": changed(data=True),
    "data of text": changed(data=["1.5"]),
    "data of NaN as text": changed(data=["NaN"]),
    "data of a bool": changed(data=[True]),
    "data of an object": changed(data=[{"b64": "AAAA"}]),
    "data of an empty object": changed(data=[{}]),
    "data empty": changed(data=[]),
    "data nested too deep": changed(data=[[1.5]]),
    "data nested much too deep": changed(data=[[[[[[1.5]]]]]]),
    "data nested in part": changed(shape=[2], data=[1.5, [2.5]]),
    "data nested in part of a column": changed(shape=[2, 1], data=[1.5, [2.5]]),
    "data nested empty": changed(data=[[]]),
    "data nested unequally": changed(shape=[2, 1], data=[[1.5], [2.5, 3.5]]),
    "data nested transposed": changed(shape=[2, 1], data=[[1.5, 2.5]]),
    "data of a null list": changed(shape=[2, 1], data=[[1.5], None]),
    "data mixed": changed(shape=[3], data=[1.5, "a", True]),
    "data a large integer": changed(data=[10**400]),
    "data an integer of 4000 digits": changed(data=[10**4000]),
    "data half a pair": changed(datatype="BYTES", data=["\ud800"]),
    "data beyond INT8": changed(datatype="INT8", data=[128]),
    "data below UINT8": changed(datatype="UINT8", data=[-1]),
    "data beyond INT64": changed(datatype="INT64", data=[2**63]),
    "data beyond UINT64": changed(datatype="UINT64", data=[2**64]),
    "data a fraction for INT64": changed(datatype="INT64", data=[1.5]),
    "data NaN for INT64": changed(datatype="INT64", data=[math.nan]),
    "data Infinity for INT64": changed(datatype="INT64", data=[math.inf]),
    "parameters a list": changed(parameters=[]),
    "parameters text": changed(parameters="binary"),
    "binary size without a header": changed(data=..., parameters={"binary_data_size": 8}),
    "binary size and data": changed(parameters={"binary_data_size": 0}),
    "binary size text": changed(data=..., parameters={"binary_data_size": "8"}),
    "binary size a fraction": changed(data=..., parameters={"binary_data_size": 8.5}),
    "binary size a bool": changed(data=..., parameters={"binary_data_size": True}),
    "binary size negative": changed(data=..., parameters={"binary_data_size": -8}),
    "twice": body_of(X, X),
    "missing": body_of(tensor("z", "FP64", [1], [1.5]), tensor("a", "FP64", [1], [1.5])).replace(b'"a"', b'"x "'),
    "other rows": body_of(tensor("city", "BYTES", [2], ["a", "b"]), X),
    "other has no rows": body_of(tensor("z", "FP64", [], [1.5]), X).replace(b'"z"', b'"x"'),
}

OTHER = {
    "data an integer of 5000 digits": body_of(X).replace(b"[1.5]", b"[" + b"9" * 5000 + b"]"),
    "shared memory": changed(data=..., parameters={"shared_memory_region": "r", "shared_memory_byte_size": 8}),
    "empty": b"",
    "blank": b"  \n",
    "not JSON": b"inputs",
    "cut": body_of(X)[:-2],
    "cut in text": body_of(X)[:15],
    "two documents": body_of(X) + body_of(X),
    "bytes after": body_of(X) + b"\0",
    "null": b"null",
    "a number": b"1",
    "text": b'"inputs"',
    "a list": b"[]",
    "an empty object": b"{}",
    "NaN": b"NaN",
    "not UTF-8": body_of(X).replace(b'"x"', b'"\xff"'),
    "binary without a header": body_of(X) + bytes(range(256)),
    "single quotes": body_of(X).replace(b'"', b"'"),
    "a comment": b"/* */" + body_of(X),
    "a trailing comma": body_of(X).replace(b"[1.5]", b"[1.5,]"),
    "hexadecimal": body_of(X).replace(b"1.5", b"0x15"),
    "a number without digits": body_of(X).replace(b"1.5", b"1."),
    "deep lists": b"[" * 1_000_000,
    "deep objects": b'{"inputs":' * 300_000,
    "deep data": body_of(X).replace(b"[1.5]", b"[" * 100_000 + b"]" * 100_000),
    "deep data and NaN": body_of(X).replace(b"[1.5]", b"[NaN," + b"[" * 100_000 + b"]" * 100_000 + b"]"),
    "deep data within limits": body_of(X).replace(b"[1.5]", b"[" * 900 + b"]" * 900),
    "deep parameters": changed(parameters={"a": 1}).replace(b'{"a": 1}', b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
    "inputs missing": b'{"id": "1"}',
    "inputs null": b'{"inputs": null}',
    "inputs an object": b'{"inputs": {"x": [1.5]}}',
    "inputs text": b'{"inputs": "x"}',
    "inputs empty": b'{"inputs": []}',
    "inputs of null": b'{"inputs": [null]}',
    "inputs of numbers": b'{"inputs": [1.5]}',
    "inputs of lists": b'{"inputs": [[1.5]]}',
    "inputs of an empty object": b'{"inputs": [{}]}',
    "instances of TensorFlow Serving": b'{"instances": [[1.5]]}',
    "name missing": changed(name=...),
    "name null": changed(name=None),
    "name a number": changed(name=5),
    "name a list": changed(name=["x"]),
    "name unknown": changed(name="y"),
    "name empty": changed(name=""),
    "name half a pair": changed(name="\ud800"),
    "name of a megabyte": changed(name="x" * 1_000_000),
    "unknown with huge rows": changed(name="y", shape=[10**4000]),
    "id a number": body_of(X, id=5),
    "id a list": body_of(X, id=["1"]),
    "id true": body_of(X, id=True),
    "id half a pair": body_of(X, id="\udfff"),
    "parameters a list": body_of(X, parameters=[1]),
    "parameters text": body_of(X, parameters="a"),
    "signature a number": body_of(X, parameters={"signature_name": 1}),
    "signature a list": body_of(X, parameters={"signature_name": ["predict"]}),
    "signature unknown": body_of(X, parameters={"signature_name": "nope"}),
    "signature of a megabyte": body_of(X, parameters={"signature_name": "p" * 1_000_000}),
    "signature half a pair": body_of(X, parameters={"signature_name": "\ud800"}),
    "binary_data_output text": body_of(X, parameters={"binary_data_output": "true"}),
    "binary_data_output a number": body_of(X, parameters={"binary_data_output": 1}),
    "outputs an object": body_of(X, outputs={"score": {}}),
    "outputs text": body_of(X, outputs="score"),
    "outputs of text": body_of(X, outputs=["score"]),
    "outputs of null": body_of(X, outputs=[None]),
    "outputs without a name": body_of(X, outputs=[{}]),
    "outputs name a number": body_of(X, outputs=[{"name": 1}]),
    "outputs unknown": body_of(X, outputs=[{"name": "scores"}]),
    "outputs of a megabyte": body_of(X, outputs=[{"name": "s" * 1_000_000}]),
    "outputs parameters a list": body_of(X, outputs=[{"name": "score", "parameters": []}]),
    "outputs binary_data text": body_of(X, outputs=[{"name": "score", "parameters": {"binary_data": "no"}}]),
    "outputs binary_data a number": body_of(X, outputs=[{"name": "score", "parameters": {"binary_data": 0}}]),
    "outputs classification": body_of(X, outputs=[{"name": "score", "parameters": {"classification": 3}}]),
    "outputs in shared memory": body_of(X, outputs=[{"name": "score", "parameters": {"shared_memory_region": "r"}}]),
}

NUMBER = np.array([1.5]).tobytes()
BINARY = {
    "fewer bytes than stated": binary([1], 8, NUMBER[:7]),
    "more bytes than stated": binary([1], 8, NUMBER + b"\0"),
    "no bytes": binary([1], 8, b""),
    "bytes of half a value": binary([1], 4, NUMBER[:4]),
    "bytes of two values": binary([1], 16, NUMBER * 2),
    "no size": binary([1], None, NUMBER),
    "size negative": binary([1], -8, NUMBER),
    "size huge": binary([1], 2**63, NUMBER),
    "size of 4000 digits": binary([1], 10**4000, NUMBER),
    "size text": binary([1], "8", NUMBER),
    "rows huge": binary([2**40], 8, NUMBER),
    "rows huge and lists empty": binary([2**40, 0], 0, b""),
    "data too": binary([1], 8, NUMBER, data=[1.5]),
    "wrong item size": binary([1], 8, NUMBER, "FP32"),
    "text": binary([1], 8, NUMBER, "BYTES"),
    "unknown datatype": binary([1], 8, NUMBER, "FP8"),
    "header beyond the body": (body_of(X), len(body_of(X)) + 1),
    "header negative": (body_of(X), -1),
    "header 0": (body_of(X), 0),
    "header short": (body_of(X), 10),
    "header huge": (body_of(X), 10**30),
    "header and no binary data": (body_of(X) + NUMBER, len(body_of(X))),
}

PACKED = struct.pack("<I", 1) + b"a"
TEXT_BYTES = {
    "cut in a length": (1, PACKED[:3]),
    "cut in a value": (1, PACKED[:4]),
    "a length beyond": (1, struct.pack("<I", 2) + b"a"),
    "a length of 4 GiB": (1, struct.pack("<I", 2**32 - 1) + b"a"),
    "fewer values": (2, PACKED),
    "fewer values of enough bytes": (2, struct.pack("<I", 8) + b"abcdefgh"),
    "more values": (1, PACKED * 2),
    "bytes after": (1, PACKED + b"\0"),
    "not UTF-8": (1, struct.pack("<I", 1) + b"\xff"),
    "half a pair": (1, struct.pack("<I", 3) + b"\xed\xa0\x80"),
    "big-endian": (1, struct.pack(">I", 1) + b"a"),
    "no bytes": (1, b""),
    "many of no bytes": (100, b""),
}

MALFORMED: dict[str, tuple[bytes, int | None]] = {
    **{f"x: {case}": (body, None) for case, body in NAMED.items()},
    **{case: (body, None) for case, body in OTHER.items()},
    **{f"binary: {case}": body for case, body in BINARY.items()},
    **{
        f"city: {case}": binary([rows], len(packed), packed, "BYTES", name="city")
        for case, (rows, packed) in TEXT_BYTES.items()
    },
    **{
        f"{case} of no rows": ((RECORDED / f"{case}.body").read_bytes(), REQUESTS[case]["header_length"])
        for case in NO_ROWS
    },
}


@pytest.mark.parametrize("case", sorted(MALFORMED))
def test_a_malformed_body_is_refused_with_what_is_wrong(ask: Ask, case: str) -> None:
    answer = ask(*MALFORMED[case])
    assert answer.status == 400, answer.body[:500]
    assert answer.content_type == b"application/json"
    document = json.loads(answer.body)
    assert [*document] == ["error"]
    assert 10 < len(document["error"]) < 500  # megabytes are not sent back
    assert document["error"].isprintable()
    for name in ("x", "city"):
        if case.startswith(f"{name}: "):
            assert f"'{name}" in document["error"]
