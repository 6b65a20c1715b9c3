"""Host ops: the batch kernel equals the row kernel on any column, and both equal plain Python."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from drivetrain.engine.host_ops.columns import as_column, as_value
from drivetrain.engine.host_ops.fingerprint64 import fingerprint64
from drivetrain.engine.host_ops.kernels import host_op
from drivetrain.errors import InputError
from hypothesis import given
from hypothesis import strategies as st

WORDS = st.lists(
    st.none() | st.sampled_from(["", "a", "b", "ÅØ", "longer than eight"]) | st.text(max_size=40), max_size=20
)
NUMBERS = st.lists(st.none() | st.floats(width=32) | st.just(math.nan), max_size=20)
WHOLE = st.lists(st.none() | st.integers(-(2**31), 2**31 - 1), max_size=20)


def vocabulary(words: list[str]) -> pa.Table:
    return pa.table({"value": pa.array(words, pa.string())})


def encodings(values: list[Any], kind: pa.DataType) -> list[pa.Array]:
    """The same column as Arrow may bring it."""
    plain = pa.array(values, kind)
    found = [plain, pa.concat_arrays([plain, plain]).slice(len(values))]
    if pa.types.is_string(kind):
        found += [plain.dictionary_encode(), plain.cast(pa.large_string()), plain.dictionary_encode("encode")]
        codes = [1 + list(dict.fromkeys(values)).index(v) for v in values]
        words = pa.array(["stray", *dict.fromkeys(values), "stray"], kind)
        found.append(pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), words))
    return found


def agree(
    op: str, params: dict[str, Any], values: list[Any], dtype: str, assets: tuple[pa.Table, ...] = ()
) -> list[Any]:
    """The row kernel's results, after checking that every encoding of the batch gives them."""
    kind = {"string": pa.string(), "float64": pa.float64(), "int64": pa.int64(), "bool": pa.bool_()}[dtype]
    row = host_op(op).row(params, assets)
    wanted = [row(as_value(value, dtype, "x")) for value in values]
    batch = host_op(op).batch(params, assets)
    for column in encodings(values, kind):
        array = batch(as_column(column, dtype, "x"))
        found = array.to_pylist() if isinstance(array, pa.Array) else array.tolist()
        assert len(found) == len(wanted)
        for a, b in zip(found, wanted, strict=True):
            assert a == b or (a != a and b != b), (column.type, found, wanted)
    return wanted


@given(WORDS, st.lists(st.text(max_size=5), unique=True, max_size=6), st.integers(1, 5))
def test_lookup(values: list[str | None], words: list[str], buckets: int) -> None:
    results = agree("lookup", {"oov_buckets": buckets}, values, "string", (vocabulary(words),))
    for value, identifier in zip(values, results, strict=True):
        if value is None:
            assert identifier == len(words) + buckets
        elif value in words:
            assert identifier == words.index(value)
        else:
            assert identifier == len(words) + fingerprint64(value) % buckets


@given(WORDS, WORDS.map(lambda words: [word for word in words if word is not None]))
def test_string_ops(values: list[str | None], others: list[str]) -> None:
    assert agree("fill", {"value": "?", "dtype": "string"}, values, "string") == [
        "?" if v is None else v for v in values
    ]
    assert agree("valid", {}, values, "string") == [v is not None for v in values]
    assert agree("compare", {"test": "in", "value": others}, values, "string") == [
        None if v is None else v in others for v in values
    ]
    assert agree("compare", {"test": "lt", "value": "b"}, values, "string") == [
        None if v is None else v < "b" for v in values
    ]
    agree("hash", {"buckets": 7}, values, "string")


@given(WORDS, st.randoms())
def test_two_columns_of_text_compare(values: list[str | None], random: Any) -> None:
    shuffled = random.sample(values, len(values))
    for test in ("eq", "ne", "lt", "le", "gt", "ge"):
        row = host_op("compare").row({"test": test}, ())
        batch = host_op("compare").batch({"test": test}, ())
        wanted = [row(a, b) for a, b in zip(values, shuffled, strict=True)]
        assert (
            batch(pa.array(values, pa.string()).dictionary_encode(), pa.array(shuffled, pa.string())).to_pylist()
            == wanted
        )


@given(st.lists(st.tuples(st.none() | st.booleans(), *[st.none() | st.sampled_from(["", "ÅØ", "b"])] * 2), max_size=9))
def test_text_is_chosen(rows: list[tuple[bool | None, str | None, str | None]]) -> None:
    test, left, right = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [])
    for params in ({}, {"x": "fix"}, {"y": "fix"}, {"x": "fix", "y": ""}):
        sides = {"x": left, "y": right}
        wanted = [params.get("x", a) if t else params.get("y", b) for t, a, b in zip(test, left, right, strict=True)]
        given = [values for side, values in sides.items() if side not in params]
        row = host_op("choose").row(params, ())
        assert [row(*one) for one in zip(test, *given, strict=True)] == wanted
        for plain in (True, False):
            texts = [pa.array(values, pa.string()) for values in given]
            batch = host_op("choose").batch(params, ())
            columns = texts if plain else [text.dictionary_encode() for text in texts]
            assert batch(pa.array(test, pa.bool_()), *columns).to_pylist() == wanted


@given(NUMBERS)
def test_float_ops(values: list[float | None]) -> None:
    present = [v is not None and v == v for v in values]
    assert agree("valid", {}, values, "float64") == present
    filled = agree("fill", {"value": 2.0, "dtype": "float64"}, values, "float64")
    assert filled == [v if there else 2.0 for v, there in zip(values, present, strict=True)]
    agree("values", {"dtype": "float32", "column": "x"}, values, "float64")


@given(WHOLE)
def test_integer_ops(values: list[int | None]) -> None:
    assert agree("values", {"dtype": "int32", "column": "x"}, values, "int64") == [v or 0 for v in values]
    assert agree("fill", {"value": 9, "dtype": "int64"}, values, "int64") == [9 if v is None else v for v in values]
    assert agree("fill", {"value": 0.5, "dtype": "float64"}, values, "int64") == [
        0.5 if v is None else v for v in values
    ]
    wide = [None, 2**53 + 1, -(2**62) - 1]  # no float64 is so exact
    assert agree("fill", {"value": 0.5, "dtype": "float64"}, wide, "int64") == [0.5, 2.0**53, -(2.0**62)]
    spelled = agree("text", {}, values, "int64")
    assert spelled == [None if v is None else str(v) for v in values]
    assert agree("parse", {"dtype": "int64", "column": "x"}, spelled, "string") == values
    agree("lookup", {"oov_buckets": 2}, values, "int64", (vocabulary(["0", "1"]),))


@given(st.lists(st.none() | st.booleans(), max_size=9))
def test_boolean_ops(values: list[bool | None]) -> None:
    assert agree("values", {"dtype": "bool", "column": "x"}, values, "bool") == [bool(v) for v in values]
    spelled = agree("text", {}, values, "bool")
    assert agree("parse", {"dtype": "bool", "column": "x"}, spelled, "string") == values


@given(NUMBERS, st.data())
def test_columns_of_device_results(values: list[float | None], data: st.DataObject) -> None:
    array = np.array([0.0 if v is None else v for v in values], np.float32)
    valid = np.array(data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values))), bool)
    batch = host_op("column").batch({"dtype": "float64"}, ())(array, valid).to_pylist()
    row = host_op("column").row({"dtype": "float64"}, ())
    wanted = [row(v, ok) for v, ok in zip(array, valid, strict=True)]
    assert [repr(v) for v in batch] == [repr(v) for v in wanted]


# What pyfarmhash 0.4 gives, for every branch of the algorithm; TFT's own buckets are in test_analysis.py.
FINGERPRINTS = {
    0: 11160318154034397263, 5: 13992479962126222548, 12: 5676575430734197723, 20: 7349542659848948094,
    40: 13225568604757697556, 64: 3646545258579766308, 65: 13112763581500850699, 128: 2056131915184924913,
    129: 13911000258917250518, 200: 3225094344678046759,
}  # fmt: skip


@pytest.mark.parametrize("length", FINGERPRINTS)
def test_fingerprint_is_farmhashs(length: int) -> None:
    text = "abcdefghijklmnopqrstuvwxyz0123456789" * 7
    assert fingerprint64(text[:length]) == FINGERPRINTS[length]


def test_types_are_checked_by_name() -> None:
    for array, dtype in ((pa.array(["1"]), "float64"), (pa.array([True]), "int64"), (pa.array([1]), "string")):
        with pytest.raises(InputError, match="column 'x' is"):
            as_column(array, dtype, "x")
    assert as_column(pa.array([1, 2]), "float64", "x").to_pylist() == [1.0, 2.0]
    assert as_column(pa.nulls(2), "string", "x").type == pa.string()
    with pytest.raises(InputError, match="column 'x' is True, the graph reads int64"):
        as_value(True, "int64", "x")
    with pytest.raises(InputError, match="no host op 'nope'"):
        host_op("nope")
