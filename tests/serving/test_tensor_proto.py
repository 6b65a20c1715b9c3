"""Tensors and examples as columns and back: against TensorFlow's own reading, Python's exact numbers, and struct."""

from __future__ import annotations

import base64
import json
import math
import struct
import tracemalloc
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from drivetrain.engine.bundles.manifest import Signature
from drivetrain.engine.graphs.graph import FieldSpec
from drivetrain.serving.api import RequestError, StatusCode
from drivetrain.serving.infer_tensors import add_outputs, from_raw, request_tensors, to_raw
from drivetrain.serving.protos import Message, ModelInferRequest, ModelInferResponse, TensorProto, message_class
from drivetrain.serving.tensor_columns import Allowance, changed_by, column_of, columns_of, dense, numpy_dtype
from drivetrain.serving.tensor_proto import example_columns, to_array, to_tensor_proto
from drivetrain.tests.serving.fake_models import DTYPES
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as np_st

# A TensorProto's bytes, and those of the values that TensorFlow's C++ (tf.io.parse_tensor, 2.21) reads in it.
TENSORS: list[tuple[str, Any]] = json.loads((Path(__file__).parent / "data" / "tensorflow_tensors.json").read_text())
PLENTY = 1 << 20
SHAPES = np_st.array_shapes(min_dims=1, min_side=0, max_side=3)


@cache
def bytes_of(size: int) -> st.SearchStrategy[bytes]:
    """So many bytes; hypothesis looks through a strategy once."""
    return st.binary(min_size=size, max_size=size)


def read(tensor: Message, allowance: int = PLENTY) -> np.ndarray[Any, Any]:
    return to_array(tensor, "x", Allowance(allowance))


def tensor(dtype: int, shape: list[int], **fields: Any) -> Message:
    message = TensorProto(dtype=dtype, **fields)
    for size in shape:
        message.tensor_shape.dim.add(size=size)
    return message


def refused(call: Any, *arguments: Any, code: StatusCode = StatusCode.INVALID_ARGUMENT) -> str:
    with pytest.raises(RequestError) as caught:
        call(*arguments)
    assert caught.value.code is code
    assert "\n" not in caught.value.message
    return caught.value.message


# --- TensorProto ---


def test_tensors_are_read_as_tensorflow_reads_them() -> None:
    kinds = set()
    for content, expected in TENSORS:
        message = TensorProto.FromString(base64.b64decode(content))
        values = read(message)
        kinds.add((values.dtype.name, bool(message.tensor_content)))
        assert list(values.shape) == [axis.size for axis in message.tensor_shape.dim]
        if values.dtype == object:
            assert values.ravel().tolist() == [base64.b64decode(text) for text in expected]
        else:
            assert values.tobytes() == base64.b64decode(expected)
    assert kinds >= {(name, typed) for name in (*DTYPES, "object") for typed in (False, True)}


@pytest.mark.parametrize("name", DTYPES)
@given(data=st.data())
def test_numbers_go_and_return(name: str, data: st.DataObject) -> None:
    dtype = numpy_dtype(name)
    shape = data.draw(SHAPES)
    content = data.draw(bytes_of(math.prod(shape) * dtype.itemsize))
    values = np.frombuffer(content, np.uint8 if name == "bool" else dtype).astype(dtype, copy=False).reshape(shape)
    back = read(TensorProto.FromString(to_tensor_proto(values, "x").SerializeToString()))
    assert (back.dtype, back.shape) == (values.dtype, values.shape)
    # Bits are kept, but those of signaling NaNs, where Python's floats are in between.
    assert back.tobytes() == values.tobytes() or np.array_equal(back, values, equal_nan=True)


@given(st.lists(st.text()))
def test_text_goes_and_returns(texts: list[str]) -> None:
    values = np.empty(len(texts), object)
    values[:] = [text.encode(errors="replace") for text in texts]
    assert read(to_tensor_proto(values, "x")).tolist() == values.tolist()
    raw = from_raw(to_raw(values), "BYTES", len(values), "x")
    assert raw.tolist() == values.tolist()


def test_text_packed_as_bytes_is_read() -> None:
    long = b"x" * 300
    assert read(tensor(7, [2], tensor_content=b"\x03\xac\x02abc" + long)).tolist() == [b"abc", long]
    for content in (b"\x03ab", b"\x03abcd", b"\x80", b"\xff" * 9, b"\x01", b"\x00\x00\x00"):
        assert "texts" in refused(read, tensor(7, [2], tensor_content=content))


def test_the_last_value_is_repeated() -> None:
    assert read(tensor(1, [2, 3], float_val=[1, 2])).tolist() == [[1, 2, 2], [2, 2, 2]]
    assert read(tensor(7, [3], string_val=[b"a"])).tolist() == [b"a"] * 3
    assert read(tensor(14, [2], half_val=[0x3F80])).astype(float).tolist() == [1, 1]
    assert read(tensor(9, [2])).tolist() == [0, 0]


@pytest.mark.parametrize("shape", [[1 << 40], [1, 1 << 40], [1 << 20, 1 << 20], [1 << 62, 4], [1 << 21]])
@pytest.mark.parametrize("fields", [{"dtype": 1, "float_val": [1.0]}, {"dtype": 7, "string_val": [b"a"]}, {"dtype": 9}])
def test_memory_is_not_spent_on_claims(shape: list[int], fields: dict[str, Any]) -> None:
    message = tensor(shape=shape, **fields)
    tracemalloc.start()
    try:
        refused(read, message, code=StatusCode.RESOURCE_EXHAUSTED)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_claims_of_one_request_add_up() -> None:
    allowance = Allowance(1000)
    for _ in range(2):
        to_array(tensor(1, [100], float_val=[1]), "x", allowance)
    refused(to_array, tensor(1, [100], float_val=[1]), "x", allowance, code=StatusCode.RESOURCE_EXHAUSTED)
    to_array(tensor(1, [1000], tensor_content=bytes(4000)), "x", allowance)  # what was sent is not claimed


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        (tensor(1, [2], float_val=[1, 2, 3]), "3 values"),
        (tensor(1, [2], tensor_content=b"1234567"), "7 bytes"),
        (tensor(1, [2], double_val=[1, 2]), "double_val"),
        (tensor(1, [], float_val=[1]), "single value"),
        (tensor(1, [-1], float_val=[1]), "no shape"),
        (tensor(1, [0, 1 << 62, 1 << 62]), "no array"),
        (tensor(1, [1] * 33, float_val=[1]), "33 axes"),
        (tensor(0, [1]), "DT_INVALID"),
        (tensor(20, [1]), "DT_RESOURCE"),
        (tensor(101, [1], float_val=[1]), "101"),
        (tensor(6, [1], int_val=[128]), "int8"),
        (tensor(4, [1], int_val=[-1]), "uint8"),
        (tensor(19, [1], half_val=[65536]), "float16"),
        (tensor(19, [1], half_val=[-1]), "float16"),
        (tensor(8, [1], scomplex_val=[1]), "complex"),
        (TensorProto(dtype=1, tensor_shape={"unknown_rank": True}, float_val=[1]), "no shape"),
    ],
)
def test_what_is_no_tensor_is_refused(message: Message, cause: str) -> None:
    assert cause in refused(read, message)


# --- columns ---


EDGES = [0, 1, 127, 128, 255, 256, 2047, 2049, 2**24, 2**24 + 1, 2**31, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1]
NUMBERS = [each for each in DTYPES if each != "bool"]


@pytest.mark.parametrize("target", NUMBERS)
@pytest.mark.parametrize("source", NUMBERS)
def test_values_that_a_cast_would_change(source: str, target: str) -> None:
    """Against exact fractions of Python."""
    start, end = numpy_dtype(source), numpy_dtype(target)
    rng = np.random.default_rng(7)
    if start.kind in "iu":
        bounds = np.iinfo(start)
        values = np.array([x for edge in EDGES for x in (edge, -edge) if bounds.min <= x <= bounds.max], start)
        values = np.append(values, rng.integers(bounds.min, bounds.max, 30, start, endpoint=True))
    else:
        with np.errstate(all="ignore"):
            values = np.array([*EDGES, *np.negative(EDGES, dtype=float), 0.5, 1e30, np.inf, -np.inf, np.nan])
            values = np.append(values, rng.normal(size=30)).astype(start)
    if (start.kind == "c") != (end.kind == "c"):
        assert changed_by(values, end).all()
        return
    with np.errstate(all="ignore"):
        cast = values.astype(end)
    assert changed_by(values, end).tolist() == [not same(*pair) for pair in zip(values, cast, strict=True)]


def same(value: Any, cast: Any) -> bool:
    if isinstance(cast, np.complexfloating):
        return same(value.real, cast.real) and same(value.imag, cast.imag)
    exact = [int(each) if isinstance(each, np.integer) else float(each) for each in (value, cast)]
    if any(math.isnan(each) for each in exact):
        return all(math.isnan(each) for each in exact)
    if any(math.isinf(each) for each in exact):
        return exact[0] == exact[1]
    return Fraction(exact[0]) == Fraction(exact[1])


def test_numbers_become_the_type_that_is_read() -> None:
    column = column_of(np.array([1, 2], np.int32), FieldSpec("float64"), "x")
    assert (column.dtype, column.tolist()) == (np.float64, [1.0, 2.0])
    assert column_of(np.array([1.0, 2.0]), FieldSpec("int64"), "x").dtype == np.int64
    assert column_of(np.array([1.0, np.nan]), FieldSpec("int64"), "x") == [1, None]
    assert column_of(np.array([[1.5]], np.float32), FieldSpec("bfloat16", (1,)), "x").dtype == ml_dtypes.bfloat16
    assert column_of(np.array([[1], [2]]), FieldSpec("int64"), "x").tolist() == [1, 2]  # as Keras has scalars
    assert column_of(np.array([[1, 2]]), FieldSpec("list<float64>"), "x").tolist() == [[1.0, 2.0]]
    assert column_of(np.array([[b"a", b"\xc3\x9f"]], object), FieldSpec("list<string>"), "x") == [["a", "ß"]]
    assert column_of(np.array([b"a", b""], object), FieldSpec("string"), "x") == ["a", ""]


@pytest.mark.parametrize(
    ("values", "spec", "cause"),
    [
        (np.array([0.1]), FieldSpec("float32"), "0.1 in row 0"),
        (np.array([1, 300]), FieldSpec("uint8"), "300 in row 1"),
        (np.array([1.5]), FieldSpec("int64"), "1.5"),
        (np.array([np.nan]), FieldSpec("int32"), "nan"),
        (np.array([2**53 + 1]), FieldSpec("float64"), "9007199254740993"),
        (np.array([1]), FieldSpec("bool"), "bool"),
        (np.array([True]), FieldSpec("int64"), "is bool"),
        (np.array([b"a"], object), FieldSpec("int64"), "is string"),
        (np.array([1.0]), FieldSpec("string"), "reads string"),
        (np.array([b"a", b"\xff"], object), FieldSpec("string"), "row 1"),
        (np.zeros((2, 4)), FieldSpec("float32", (3,)), "[2, 4]"),
        (np.zeros(2), FieldSpec("list<float64>"), "rows, n"),
        (np.zeros((2, 2)), FieldSpec("float64"), "[2, 2]"),
        (np.array([1j]), FieldSpec("float64"), "1j"),
    ],
)
def test_columns_of_another_kind_are_refused(values: Any, spec: FieldSpec, cause: str) -> None:
    assert cause in refused(column_of, values, spec, "x")


def test_inputs_are_those_of_the_signature() -> None:
    signature = Signature({"a": FieldSpec("int64"), "b": FieldSpec("int64")}, {}, {"b": None})
    columns, rows = columns_of({"a": np.arange(3), "other": np.arange(4)}, signature)
    assert (list(columns), rows) == (["a"], 3)
    assert "'a' is missing" in refused(columns_of, {"b": np.arange(3)}, signature)
    misspelt = {"aa": np.arange(3), "b": np.arange(3)}  # as both services send it here
    assert "column 'a' is missing, and 'aa' is not read" in refused(columns_of, misspelt, signature)
    assert "3 rows" in refused(columns_of, {"a": np.arange(2), "b": np.arange(3)}, signature)
    nothing_needed = Signature({"b": FieldSpec("int64")}, {}, {"b": None})
    assert "no input" in refused(columns_of, {"other": np.arange(3)}, nothing_needed)


def test_outputs_are_dense() -> None:
    def objects(*values: Any) -> Any:
        array = np.empty(len(values), object)
        array[:] = values
        return array

    assert dense(objects("a", None, "ß"), FieldSpec("string"), "y").tolist() == [b"a", b"", "ß".encode()]
    assert dense(np.array(["a", "b"]), None, "y").tolist() == [b"a", b"b"]
    assert dense(objects([1, 2], [3, 4]), FieldSpec("list<int64>"), "y").tolist() == [[1, 2], [3, 4]]
    assert dense(objects(["a"], ["b"]), FieldSpec("list<string>"), "y").tolist() == [[b"a"], [b"b"]]
    floats = dense(objects(1.5, None), FieldSpec("float64"), "y")
    assert floats.dtype == np.float64
    assert np.isnan(floats[1])
    assert dense(objects(1, 2), None, "y").tolist() == [1, 2]
    for values, dtype in (
        (objects([1], [1, 2]), "list<int64>"),
        (objects(1, None), "int64"),
        (objects(True, None), "bool"),
    ):
        refused(dense, values, FieldSpec(dtype), "y", code=StatusCode.FAILED_PRECONDITION)


# --- tf.Example ---

FEATURES = Signature(
    {
        "word": FieldSpec("string"),
        "count": FieldSpec("int64"),
        "weight": FieldSpec("float64"),
        "flag": FieldSpec("bool"),
        "tags": FieldSpec("list<string>"),
        "sizes": FieldSpec("list<int64>"),
        "late": FieldSpec("int64"),
        "vector": FieldSpec("float32", (2,)),
    },
    {},
    {"late": 7},
)


def examples(*rows: dict[str, list[Any]], context: dict[str, list[Any]] | None = None) -> Message:
    message = message_class("tensorflow.serving.Input")()
    listed = message.example_list if context is None else message.example_list_with_context
    for row in rows:
        fill(listed.examples.add(), row)
    if context is not None:
        fill(listed.context, context)
    if not rows:
        listed.SetInParent()
    return message


def fill(example: Message, row: dict[str, list[Any]]) -> None:
    example.SetInParent()
    for name, values in row.items():
        feature = example.features.feature[name]
        kind = {str: "bytes_list", bytes: "bytes_list", float: "float_list", int: "int64_list"}[
            type((values or [0])[0])
        ]
        stored = [value.encode() if isinstance(value, str) else value for value in values]
        getattr(feature, kind).SetInParent()
        getattr(feature, kind).value.extend(stored)


def columns(message: Message, signature: Signature = FEATURES, allowance: int = PLENTY) -> tuple[dict[str, Any], int]:
    return example_columns(message, signature, Allowance(allowance))


def test_examples_are_rows() -> None:
    full: dict[str, list[Any]] = {
        "word": ["ß"],
        "count": [3],
        "weight": [0.5],
        "flag": [1],
        "tags": ["a", "b"],
        "sizes": [1, 2],
    }
    read_columns, rows = columns(
        examples({**full, "vector": [1.0, 2.0]}, {"vector": [3, 4], "weight": [2], "tags": []})
    )
    vector = read_columns.pop("vector")
    assert (vector.dtype, vector.tolist()) == (np.float32, [[1, 2], [3, 4]])
    assert rows == 2
    assert read_columns == {
        "word": ["ß", None],
        "count": [3, None],
        "weight": [0.5, 2.0],
        "flag": [True, None],
        "tags": [["a", "b"], []],
        "sizes": [[1, 2], None],
    }


def test_defaults_stand_where_some_rows_have_a_value() -> None:
    read_columns, _ = columns(examples({"vector": [1, 2], "late": [1]}, {"vector": [1, 2]}))
    assert read_columns["late"] == [1, 7]


def test_a_context_is_in_all_rows() -> None:
    message = examples({"word": ["a"]}, {}, context={"word": ["c"], "vector": [1, 2]})
    read_columns, _ = columns(message)
    assert read_columns["word"] == ["a", "c"]
    assert read_columns["vector"].tolist() == [[1, 2], [1, 2]]


@pytest.mark.parametrize(
    ("row", "cause"),
    [
        ({"count": ["a"]}, "'count' is a list of bytes"),
        ({"word": [1]}, "'word' is a list of int64"),
        ({"count": [1, 2]}, "2 values"),
        ({"count": [1.5]}, "1.5"),
        ({"flag": [2]}, "neither 0 nor 1"),
        ({"flag": [1.0]}, "bool"),
        ({"word": [b"\xff"]}, "UTF-8"),
        ({"vector": [1.0]}, "1 values"),
        ({"vector": []}, "missing in row 0"),
        ({"tags": [1]}, "list of int64"),
    ],
)
def test_features_of_another_kind_are_refused(row: dict[str, list[Any]], cause: str) -> None:
    assert cause in refused(columns, examples({"vector": [1.0, 2.0], **row}))


def test_an_input_without_examples_is_refused() -> None:
    assert "no input" in refused(columns, message_class("tensorflow.serving.Input")())
    assert "no examples" in refused(columns, examples())


def test_examples_of_nothing_are_bounded() -> None:
    many = examples(*[{}] * 1000)
    refused(columns, many, FEATURES, 10_000, code=StatusCode.RESOURCE_EXHAUSTED)
    wide = examples(*[{}] * 100, context={"word": ["x" * 10_000]})
    refused(columns, wide, FEATURES, 100_000, code=StatusCode.RESOURCE_EXHAUSTED)


# --- the Open Inference Protocol ---


def infer_request(datatype: str, shape: list[int], raw: bytes | None = None, **contents: Any) -> Message:
    request = ModelInferRequest()
    stored = request.inputs.add(name="x", datatype=datatype, shape=shape)
    if raw is not None:
        request.raw_input_contents.append(raw)
    if contents:
        for field, values in contents.items():
            getattr(stored.contents, field).extend(values)
    return request


def test_raw_contents_are_little_endian() -> None:
    request = infer_request("FP32", [2], struct.pack("<2f", 1.5, -2))
    assert request_tensors(request)["x"].tolist() == [1.5, -2]
    assert request_tensors(infer_request("INT16", [1], b"\x01\x02"))["x"].tolist() == [0x0201]
    assert request_tensors(infer_request("BOOL", [2], b"\x00\x02"))["x"].tolist() == [False, True]
    assert request_tensors(infer_request("BF16", [1], b"\x80\x3f"))["x"].astype(float).tolist() == [1]
    texts = struct.pack("<I", 2) + b"ab" + struct.pack("<I", 0)
    assert request_tensors(infer_request("BYTES", [2], texts))["x"].tolist() == [b"ab", b""]
    assert request_tensors(infer_request("FP64", [0], b""))["x"].shape == (0,)


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("name", [each for each in DTYPES if not each.startswith("complex")] + ["object"])
def test_outputs_are_read_as_inputs(name: str, raw: bool) -> None:
    values = np.array([[0, 1], [1, 0]]).astype(numpy_dtype(name))
    if name == "object":
        values = np.array([[b"a", b""], [b"\xff", b"b"]], object)
    response = ModelInferResponse()
    add_outputs(response, {"x": values}, raw=raw)
    typed = not raw and name not in ("float16", "bfloat16")  # which have no typed contents
    assert bool(response.raw_output_contents) is not typed
    assert bool(response.outputs[0].contents.ListFields()) is typed
    request = ModelInferRequest(raw_input_contents=response.raw_output_contents)
    request.inputs.add().MergeFromString(response.outputs[0].SerializeToString())
    back = request_tensors(request)["x"]
    assert (back.dtype, back.tolist()) == (values.dtype, values.tolist())


@pytest.mark.parametrize(
    ("request_message", "cause"),
    [
        (infer_request("FP32", [2], b"1234"), "4 bytes"),
        (infer_request("FP32", [1 << 62, 4], b"1234"), "bytes"),
        (infer_request("FP32", [0, 1 << 62, 1 << 62], b""), "no array"),
        (infer_request("FP32", [-1], b""), "negative"),
        (infer_request("FP32", [], b"1234"), "single value"),
        (infer_request("FP128", [1], b"1234"), "FP128"),
        (infer_request("FP32", [1], b"1234", fp32_contents=[1]), "send either"),
        (infer_request("FP32", [1], fp64_contents=[1]), "fp64_contents"),
        (infer_request("FP32", [2], fp32_contents=[1]), "1 values"),
        (infer_request("FP32", [1 << 40], fp32_contents=[1]), "1 values"),
        (infer_request("FP16", [1], fp32_contents=[1]), "has no contents"),
        (infer_request("INT8", [1], int_contents=[128]), "INT8"),
        (infer_request("UINT8", [1], uint_contents=[256]), "UINT8"),
        (infer_request("BYTES", [1], b"\x05\x00\x00\x00ab"), "1 texts"),
        (infer_request("BYTES", [1], b"\xff\xff\xff\xff"), "1 texts"),
        (infer_request("BYTES", [1], b"\x00\x00\x00\x00\x00"), "1 texts"),
        (infer_request("BYTES", [1 << 40], b"\x00\x00\x00\x00"), "texts"),
    ],
)
def test_what_is_no_request_is_refused(request_message: Message, cause: str) -> None:
    with pytest.raises(RequestError) as caught:
        request_tensors(request_message)
    assert caught.value.code is StatusCode.INVALID_ARGUMENT
    assert cause in f"{caught.value.message} {caught.value.fix}"


def test_inputs_and_raw_contents_are_as_many() -> None:
    request = infer_request("FP32", [1], b"1234")
    request.raw_input_contents.append(b"1234")
    assert "2 raw contents" in refused(request_tensors, request)
    twice = infer_request("FP32", [1], fp32_contents=[1])
    twice.inputs.append(twice.inputs[0])
    assert "twice" in refused(request_tensors, twice)


def test_a_type_that_a_protocol_does_not_have() -> None:
    values = np.zeros(1, ml_dtypes.float8_e5m2)
    refused(to_tensor_proto, values, "y", code=StatusCode.FAILED_PRECONDITION)
    with pytest.raises(RequestError) as caught:
        add_outputs(ModelInferResponse(), {"y": np.zeros(1, complex)}, raw=True)
    assert caught.value.code is StatusCode.FAILED_PRECONDITION
