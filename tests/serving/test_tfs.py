"""TensorFlow Serving's bodies: the cases of its documentation, base64, several outputs, tokens of floats."""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from drivetrain.engine import FieldSpec, Signature
from drivetrain.serving import tfs
from drivetrain.serving.api import Described, InferenceAnswer, ModelRef, RequestError
from hypothesis import given
from hypothesis import strategies as st

REF = ModelRef("m")
INPUTS = {
    "tag": FieldSpec("string"),
    "signal": FieldSpec("list<float64>"),
    "count": FieldSpec("int64"),
    "words": FieldSpec("list<string>"),
}
MODEL = Described("m", 7, {"predict": Signature(INPUTS, {"score": FieldSpec("float32")}, {"count": 4})})
NARROW = Described("m", 7, {"predict": Signature({"x": FieldSpec("float64")}, {"score": FieldSpec("float32")})})


def columns(body: Any, described: Described = MODEL) -> dict[str, Any]:
    request, _ = tfs.decode_predict(json.dumps(body).encode(), described, REF)
    assert all(len(values) == request.rows for values in request.columns.values())
    return dict(request.columns)


def test_rows_and_columns_say_the_same() -> None:
    rows = [{"tag": "foo", "signal": [1, 2.5]}, {"tag": None, "signal": []}]
    by_row = columns({"instances": rows})
    by_column = columns({"inputs": {"tag": ["foo", None], "signal": [[1, 2.5], []]}})
    assert by_row == by_column == {"tag": ["foo", None], "signal": [[1, 2.5], []]}


def test_base64_is_text_wherever_a_value_may_stand() -> None:
    word = {"b64": base64.b64encode("größe".encode()).decode()}
    assert columns({"instances": [{"tag": word, "words": [word, "b"]}]}) == {
        "tag": ["größe"],
        "words": [["größe", "b"]],
    }
    assert columns({"inputs": {"tag": [word]}}) == {"tag": ["größe"]}
    only = Described("m", 1, {"predict": Signature({"tag": FieldSpec("string")}, {})})
    assert columns({"instances": [word, "b"]}, only) == {"tag": ["größe", "b"]}
    for broken in ({"b64": "!"}, {"b64": 3}, {"b64": base64.b64encode(b"\xff").decode()}):
        with pytest.raises(RequestError, match="'tag' has base64 that is no UTF-8 text"):
            columns({"instances": [{"tag": broken}]})


def test_the_name_of_an_input_called_b64_wins() -> None:
    word = {"b64": base64.b64encode("größe".encode()).decode()}
    for dtype, value, expected in (("string", "a", "a"), ("string", word, "größe"), ("int64", 3, 3)):
        only = Described("m", 1, {"predict": Signature({"b64": FieldSpec(dtype)}, {})})
        assert columns({"instances": [{"b64": value}, {"b64": None}]}, only) == {"b64": [expected, None]}
        assert columns({"inputs": {"b64": [value]}}, only) == {"b64": [expected]}
        assert columns({"instances": [value if value != word else "größe"]}, only) == {"b64": [expected]}


def test_a_scalar_may_stand_in_a_list_of_its_own() -> None:
    assert columns({"instances": [{"count": [3], "tag": ["a"]}]}) == {"count": [3], "tag": ["a"]}
    assert columns({"instances": [[1.5], [2]]}, NARROW) == {"x": [1.5, 2]}
    assert columns({"inputs": [[1.5], [2]]}, NARROW) == {"x": [1.5, 2]}


def test_a_default_stands_for_what_a_row_lacks() -> None:
    assert columns({"instances": [{"tag": "a", "count": 1}, {"tag": "b"}]}) == {"tag": ["a", "b"], "count": [1, 4]}
    assert columns({"instances": [{"tag": "a", "more": 1}]}) == {"tag": ["a"]}


@pytest.mark.parametrize("body", [{"instances": [{"taq": "a"}]}, {"inputs": {"taq": ["a"], "signal": [[1.5]]}}])
def test_a_misspelt_column_is_named(body: Any) -> None:
    with pytest.raises(RequestError, match=r"'tag' is missing, and 'taq' is not read\n  fix: did you mean 'tag'\?"):
        columns(body)


def test_what_is_not_read_is_no_misspelling_where_nothing_is_missing() -> None:
    row = {"tag": "a", "taq": "b", "signal": [], "words": [], "counts": 3}
    assert columns({"instances": [row]}) == {"tag": ["a"], "signal": [[]], "words": [[]]}


def test_a_context_is_shared_by_all_examples() -> None:
    body = json.dumps({"context": {"tag": "all", "count": 1}, "examples": [{"count": 2}, {}]}).encode()
    request = tfs.decode_examples(body, MODEL, REF)
    assert request.columns == {"tag": ["all", "all"], "count": [2, 1]}


def answer(**outputs: Any) -> InferenceAnswer:
    return InferenceAnswer("m", 7, {name: np.asarray(values) for name, values in outputs.items()})


def test_one_output_is_bare_and_several_are_named() -> None:
    single = answer(score=np.array([0.5, 2], dtype=np.float32))
    assert json.loads(tfs.encode_rows(single)) == {"predictions": [0.5, 2]}
    assert json.loads(tfs.encode_columns(single)) == {"outputs": [0.5, 2]}
    two = answer(score=[[1.0, 2.0], [3.0, 4.0]], word=np.array(["a", None], dtype=object))
    assert json.loads(tfs.encode_rows(two)) == {
        "predictions": [{"score": [1, 2], "word": "a"}, {"score": [3, 4], "word": None}]
    }
    assert json.loads(tfs.encode_columns(two)) == {"outputs": {"score": [[1, 2], [3, 4]], "word": ["a", None]}}


def test_floats_that_are_not_finite_are_tokens() -> None:
    assert (
        tfs.encode_rows(answer(score=[np.nan, np.inf, -np.inf, 1.0])) == b'{"predictions":[NaN,Infinity,-Infinity,1.0]}'
    )


def test_bytes_leave_as_base64() -> None:
    body = json.loads(tfs.encode_rows(answer(word_bytes=np.array(["a", None], dtype=object))))
    assert body == {"predictions": [{"b64": "YQ=="}, None]}


def test_classes_and_numbers() -> None:
    table = answer(
        probabilities=[[0.25, 0.75], [1.0, 0.0]], classes=np.array([["no", "yes"], ["no", "yes"]], dtype=object)
    )
    assert tfs.classifications(table) == [[("no", 0.25), ("yes", 0.75)], [("no", 1.0), ("yes", 0.0)]]
    assert json.loads(tfs.encode_classifications(answer(p=[0.5]))) == {"results": [[["0", 0.5]]]}
    assert json.loads(tfs.encode_regressions(answer(p=[0.5, 1.5]))) == {"results": [0.5, 1.5]}
    for several in (answer(a=[0.5], b=[0.5]), answer(a=[1])):
        with pytest.raises(RequestError, match="needs one"):
            tfs.encode_regressions(several)
    with pytest.raises(RequestError, match="several numbers for a row"):
        tfs.encode_regressions(answer(p=[[0.5, 1.5]]))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["instances", "inputs", "b64", "tag", "signal", "count", "words", "signature_name", "x"]
                ),
                inner,
                max_size=3,
            )
        ),
        max_leaves=12,
    )
)
def test_any_json_is_rows_or_one_error(body: Any) -> None:
    data = json.dumps(body).encode()
    for described in (MODEL, NARROW):
        for decode in (tfs.decode_predict, tfs.decode_examples):
            with suppress(RequestError):
                decode(data, described, REF)
