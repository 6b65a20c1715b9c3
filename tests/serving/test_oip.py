"""The Open Inference Protocol over REST: bodies as clients write and read them, and a corpus of broken ones."""

from __future__ import annotations

import json
import struct
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from drivetrain.engine import FieldSpec, Signature
from drivetrain.serving import oip
from drivetrain.serving.api import (
    Described,
    InferenceAnswer,
    InferenceRequest,
    ModelRef,
    RequestError,
    VersionState,
    VersionStatus,
)
from drivetrain.serving.infer_tensors import DTYPES
from drivetrain.serving.oip import ResponseWishes
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

REF = ModelRef("m")
INPUTS = {
    "x": FieldSpec("float64"),
    "n": FieldSpec("int64"),
    "word": FieldSpec("string"),
    "signal": FieldSpec("list<float64>"),
}
OUTPUTS = {"score": FieldSpec("float32"), "word": FieldSpec("string")}
MODEL = Described("m", 7, {"predict": Signature(INPUTS, OUTPUTS, dict.fromkeys(INPUTS))})


def decode(body: Any, rest: bytes | None = None) -> tuple[InferenceRequest, ResponseWishes]:
    head = json.dumps(body).encode()
    return oip.decode(head + (rest or b""), None if rest is None else len(head), MODEL, REF)


def encoded(
    values: Any, wishes: ResponseWishes, dtype: str | None = None, name: str = "out"
) -> tuple[bytes, int | None]:
    """The body of an answer with one output, of the array's own dtype unless told."""
    signature = Signature({}, {name: FieldSpec(dtype or values.dtype.name)})
    return oip.encode_answer(InferenceAnswer("m", 7, {name: values}), signature, wishes)


def tensor(name: str, datatype: str, shape: list[int], data: Any = None, **parameters: Any) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape} | (
        {"data": data} if data is not None else {"parameters": parameters}
    )


def test_flat_and_nested_data_say_the_same() -> None:
    for data in ([1, 2.5, 3, 4], [[1, 2.5], [3, 4]]):
        request, _ = decode({"inputs": [tensor("signal", "FP64", [2, 2], data)]})
        assert request.columns == {"signal": [[1, 2.5], [3, 4]]}
        assert request.rows == 2
    for shape in ([2], [2, 1]):
        request, _ = decode({"inputs": [tensor("word", "BYTES", shape, ["a", None])]})
        assert request.columns == {"word": ["a", None]}


def test_binary_tensors_follow_the_json() -> None:
    words = struct.pack("<I", 2) + "é".encode() + struct.pack("<I", 0)
    numbers = np.array([1.5, -2.0], dtype="<f4").tobytes()
    inputs = [
        tensor("word", "BYTES", [2], binary_data_size=len(words)),
        tensor("x", "FP32", [2, 1], binary_data_size=8),
    ]
    request, _ = decode({"inputs": inputs}, words + numbers)
    assert request.columns["word"] == ["é", ""]
    assert request.columns["x"].tolist() == [1.5, -2.0]


@given(
    arrays.arrays(st.sampled_from([np.float32, np.int64, np.uint8, np.bool_, np.float16]), st.tuples(st.integers(1, 5)))
)
def test_answers_come_back_as_they_left(values: Any) -> None:
    for wishes in (ResponseWishes("i"), ResponseWishes("i", None)):
        body, length = encoded(values, wishes)
        head = json.loads(body if length is None else body[:length])
        assert (head["model_name"], head["model_version"], head["id"]) == ("m", "7", "i")
        (out,) = head["outputs"]
        numpy_type = np.dtype(DTYPES[out["datatype"]])
        got: Any = np.array(out["data"], numpy_type) if length is None else np.frombuffer(body[length:], numpy_type)
        np.testing.assert_array_equal(got.reshape(out["shape"]), values)


def test_what_is_asked_for_is_what_comes() -> None:
    x = tensor("x", "FP64", [1], [1])
    outputs = [{"name": "word", "parameters": {"binary_data": True}}, {"name": "score"}]
    request, wishes = decode(
        {"id": "7", "inputs": [x], "outputs": outputs, "parameters": {"signature_name": "predict"}}
    )
    assert (request.outputs, wishes) == (("word", "score"), ResponseWishes("7", frozenset({"word"})))
    assert decode({"inputs": [x], "parameters": {"binary_data_output": True}})[1] == ResponseWishes("", None)
    words = np.array(["é", None], dtype=object)
    body, length = encoded(words, ResponseWishes("", frozenset({"word"})), "string", "word")
    assert body[length:] == struct.pack("<I", 2) + "é".encode() + struct.pack("<I", 0)
    plain = json.loads(encoded(words, ResponseWishes(), "string", "word")[0])
    assert plain["outputs"][0]["data"] == ["é", ""]


def test_floats_that_are_not_finite_are_tokens() -> None:
    body, _ = encoded(np.array([np.nan, np.inf]), ResponseWishes())
    assert b'"data":[NaN,Infinity]' in body
    head = b'{"inputs": [{"name": "x", "datatype": "FP64", "shape": [2], "data": [NaN, -Infinity]}]}'
    request, _ = oip.decode(head, None, MODEL, REF)
    assert np.isnan(request.columns["x"][0])


def test_lists_of_several_lengths_are_refused_and_of_one_are_a_matrix() -> None:
    lists = np.empty(2, dtype=object)
    lists[:] = [[1.0, 2.0], [3.0, 4.0]]
    body, _ = encoded(lists, ResponseWishes(), "list<float64>")
    assert json.loads(body)["outputs"] == [{"name": "out", "shape": [2, 2], "datatype": "FP64", "data": [1, 2, 3, 4]}]
    lists[1] = [3.0]
    with pytest.raises(RequestError, match="several lengths"):
        encoded(lists, ResponseWishes(), "list<float64>")


def test_numbers_of_which_some_are_missing() -> None:
    numbers = np.empty(2, dtype=object)
    numbers[:] = [3, None]
    body, _ = encoded(numbers, ResponseWishes(), "float64")
    assert b'"datatype":"FP64","data":[3.0,NaN]' in body
    with pytest.raises(RequestError, match="is missing in row 1, which a tensor cannot say"):
        encoded(numbers, ResponseWishes(), "int64")
    numbers[1] = 4
    assert b'"datatype":"INT64","data":[3,4]' in encoded(numbers, ResponseWishes(), "int64")[0]


def test_metadata_and_index() -> None:
    described = oip.metadata(MODEL, [6, 7])
    assert described["versions"] == ["6", "7"]
    assert described["inputs"][3] == {"name": "signal", "datatype": "FP64", "shape": [-1, -1]}
    assert [each["datatype"] for each in described["outputs"]] == ["FP32", "BYTES"]
    statuses = {"m": [VersionStatus(7, VersionState.AVAILABLE), VersionStatus(8, VersionState.END, message="damaged")]}
    assert [each["state"] for each in oip.repository_index(statuses)] == ["READY", "UNAVAILABLE"]
    assert [each["version"] for each in oip.repository_index(statuses, ready_only=True)] == ["7"]


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        (None, "not a list"),
        (3, "not a list"),
        ([3], "not a list of objects"),
        ([], "no input that the signature reads"),
        ([{}], "no name"),
        ([{"name": "x"}], "datatype"),
        ([tensor("x", "FLOAT", [1], [1])], "datatype"),
        ([tensor("x", "FP64", [], [1])], "shape"),
        ([tensor("x", "FP64", [-1], [1])], "shape"),
        ([{"name": "x", "datatype": "FP64", "shape": [1.5], "data": [1]}], "shape"),
        ([tensor("x", "FP64", [True], [1])], "shape"),
        ([tensor("x", "FP64", [1 << 40], [1])], "shape"),
        ([tensor("signal", "FP64", [1 << 20, 1 << 20], [1])], "shape"),
        ([tensor("signal", "FP64", [1 << 30, 0], [])], "shape"),
        ([tensor("x", "FP64", [2], [1])], "1 values for the shape"),
        ([tensor("x", "FP64", [1], 1)], "a number"),
        ([tensor("x", "FP64", [1], [[[1]]])], "nested deeper"),
        ([tensor("x", "FP64", [1, 2], [1, 2])], "2 values for each row"),
        ([tensor("x", "FP64", [1], [1]), tensor("x", "FP64", [1], [1])], "twice"),
        ([tensor("x", "FP64", [1], [1]), tensor("n", "INT64", [2], [1, 2])], "input 'n' has 2 rows, 'x' has 1"),
        ([tensor("x", "FP64", [0], [])], "no rows"),
        ([tensor("z", "FP64", [1], [1])], "no input that the signature reads"),
        ([tensor("x", "FP64", [1])], "no data"),
        ([tensor("x", "FP64", [1], shared_memory_region="r")], "shared memory is not served"),
        ([tensor("x", "FP64", [1], binary_data_size=8)], "8 bytes, 0 are left"),
        ([tensor("x", "FP64", [1], binary_data_size=-8)], "are left"),
        ([tensor("x", "FP64", [1], binary_data_size="8")], "are left"),
    ],
)
def test_a_broken_body_is_told_what_is_wrong(inputs: Any, words: str) -> None:
    with pytest.raises(RequestError) as error:
        decode({"inputs": inputs})
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("datatype", "shape", "rest", "words"),
    [
        ("FP64", [1], b"1234567", "7 bytes"),
        ("FP64", [1], b"123456789", "9 bytes"),
        ("BYTES", [1], b"\x05\x00\x00\x00abc", "not the 1 texts"),
        ("BYTES", [1], b"\x05\x00", "not the 1 texts"),
        ("BYTES", [2], b"\x01\x00\x00\x00a", "not the 2 texts"),
        ("BYTES", [1], b"\x01\x00\x00\x00\xff", "UTF-8"),
        ("BYTES", [1], b"\xff\xff\xff\xffa", "not the 1 texts"),
    ],
)
def test_broken_bytes_are_told_what_is_wrong(datatype: str, shape: list[int], rest: bytes, words: str) -> None:
    name = "word" if datatype == "BYTES" else "x"
    with pytest.raises(RequestError) as error:
        decode({"inputs": [tensor(name, datatype, shape, binary_data_size=len(rest))]}, rest)
    assert words in str(error.value)
    with pytest.raises(RequestError, match="follow the tensors"):
        decode({"inputs": [tensor("x", "FP64", [1], [1])]}, b"more")


def test_a_misspelt_column_is_named() -> None:
    model = Described("m", 7, {"predict": Signature(INPUTS, OUTPUTS, {"word": None, "signal": None})})
    body = {"inputs": [tensor("x", "FP64", [1], [1]), tensor("nn", "INT64", [1], [2]), tensor("y", "FP64", [1], [3])]}
    with pytest.raises(RequestError, match=r"column 'n' is missing, and 'nn' is not read\n  fix: did you mean 'n'\?"):
        oip.decode(json.dumps(body).encode(), None, model, REF)


def test_what_the_signature_reads_must_be_there() -> None:
    narrow = Described("m", 7, {"predict": Signature({"x": FieldSpec("float64"), "n": FieldSpec("int64")}, OUTPUTS)})
    body = json.dumps({"inputs": [tensor("x", "FP64", [1], [1])]}).encode()
    with pytest.raises(RequestError, match="input 'n' is missing"):
        oip.decode(body, None, narrow, REF)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["inputs", "outputs", "name", "datatype", "shape", "data", "parameters", "id", "x"]),
                inner,
                max_size=4,
            )
        ),
        max_leaves=15,
    ),
    st.none() | st.integers(0, 60),
)
def test_any_json_is_rows_or_one_error(body: Any, length: int | None) -> None:
    with suppress(RequestError):
        oip.decode(json.dumps(body).encode(), length, MODEL, REF)
