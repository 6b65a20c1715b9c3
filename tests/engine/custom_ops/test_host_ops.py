"""Host ops in Python: what they compute in preprocessing, from analysis over a saved bundle to single rows."""

from __future__ import annotations

import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from drivetrain import data
from drivetrain.engine import (
    Bundle,
    analyze,
    apply,
    custom_ops,
    ops,
)
from drivetrain.errors import InputError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.engine

WORDS = ["Åse Berg", None, "", "bob", "bob", "Ægir"]
NUMBERS = [1.5, None, float("nan"), -2.0, 0.0, 1e300]
COUNTS = [3, None, -1, 0, 3, 2**31]  # the last is not an int32, half of it is
ROWS = pa.table({"name": WORDS, "size": NUMBERS, "count": COUNTS, "ok": [True, None, False, True, True, None]})


def initials(names: pa.Array, *, letters: int = 1) -> pa.Array:
    return pc.utf8_upper(pc.utf8_slice_codeunits(names, 0, letters))


def folded(name: Any) -> Any:
    return None if name is None else unicodedata.normalize("NFD", name).casefold()


def letters(names: pa.Array, *, size: int) -> Any:
    """How often each of the first letters of the alphabet stands in a name."""
    rows = [[(name or "").lower().count(chr(97 + place)) for place in range(size)] for name in names.to_pylist()]
    return np.array(rows, np.float32).reshape(len(names), size)


def ratio(size: Any, count: Any) -> Any:
    return None if size is None or not count else size / count


def source(table: pa.Table, folder: Path) -> Any:
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / "rows.parquet")
    return data.open_parquet([folder / "rows.parquet"])


def shop_ops() -> tuple[custom_ops.Op, ...]:
    wide = custom_ops.host_op("shop.letters", returns=lambda size: custom_ops.Returns("float32", (size,)))
    return (
        custom_ops.host_op("shop.initials", returns="string")(initials),
        custom_ops.host_op("shop.folded", returns="string", by="row")(folded),
        wide(letters),
        custom_ops.host_op("shop.ratio", returns="float64", by="row")(ratio),
        custom_ops.host_op("shop.half", returns="int64", row=lambda n: None if n is None else n // 2)(
            lambda counts: pa.array([None if n is None else n // 2 for n in counts.to_pylist()], pa.int64())
        ),
        custom_ops.host_op("shop.known", returns="bool")(lambda names: pc.is_in(names, pa.array(["bob", "Ægir"]))),
        custom_ops.host_op("shop.length", returns="int32")(lambda names: pc.fill_null(pc.utf8_length(names), 0)),
    )


def preprocess(columns: ops.Columns) -> ops.Columns:
    first, fold, wide, share, half, known, length = shop_ops()
    name = columns["name"]
    return {
        "initials": first(name, letters=2),
        "id": ops.vocabulary(fold(name)),
        "letters": wide(name, size=3) * 2.0,
        "ratio": ops.fill_missing(share(columns["size"], columns["count"]), -1.0),
        "half": ops.fill_missing(half(columns["count"]) % 1000, 7),
        "known": ops.fill_missing(known(name), False),
        "length": length(name) + 1,
    }


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return analyze(preprocess, source(ROWS, tmp_path / "raw"), data.LocalExecutor())


def test_what_the_ops_compute_is_what_python_does(bundle: Bundle) -> None:
    made = bundle.run("transform", ROWS.combine_chunks().to_batches()[0])
    assert made["initials"].tolist() == ["ÅS", None, "", "BO", "BO", "ÆG"]
    assert made["known"].tolist() == [False, False, False, True, True, True]
    assert made["length"].tolist() == [9, 1, 1, 4, 4, 5]
    assert made["half"].tolist() == [1, 7, 999, 0, 1, 2**30 % 1000]
    np.testing.assert_allclose(made["ratio"][:1], [0.5])
    assert made["ratio"][1] == made["ratio"][3] == -1
    expected = [[2.0 * (name or "").lower().count(letter) for letter in "abc"] for name in WORDS]
    np.testing.assert_array_equal(made["letters"], expected)
    (vocabulary,) = bundle.payload.assets.values()
    words = vocabulary["value"].to_pylist()
    assert set(words) == {folded(name) for name in WORDS if name}


def test_rows_are_as_batches_and_the_manifest_names_the_extension(bundle: Bundle, tmp_path: Path) -> None:
    bundle.save(tmp_path / "bundle")
    loaded = Bundle.load(tmp_path / "bundle")
    assert {requirement.op for requirement in loaded.extensions} == {op.name for op in shop_ops()}
    assert loaded.extensions[0] == custom_ops.Requirement("shop.folded", "shop-features", "0.3", None)
    batch = ROWS.combine_chunks().to_batches()[0]
    whole, again = bundle.run("transform", batch), loaded.run("transform", batch)
    for place, row in enumerate(ROWS.to_pylist()):
        single: Any = loaded.run_row("transform", row)
        for name, values in whole.items():
            np.testing.assert_array_equal(again[name], values)
            if values.dtype == object:
                assert single[name] == values[place]
            else:
                np.testing.assert_allclose(single[name], values[place], rtol=1e-6)
    assert loaded.to_files() == bundle.to_files()


def test_apply_writes_what_run_gives(bundle: Bundle, tmp_path: Path) -> None:
    bundle.save(tmp_path / "bundle")
    split = source(ROWS, tmp_path / "raw")
    apply(tmp_path / "bundle", {"train": split}, tmp_path / "content", data.LocalExecutor())
    written = pq.read_table(tmp_path / "content" / "split=train" / "part-00000.parquet")
    made = bundle.run("transform", ROWS.combine_chunks().to_batches()[0])
    assert written["initials"].to_pylist() == made["initials"].tolist()
    assert written["half"].to_pylist() == made["half"].tolist()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(st.none(), st.text(max_size=8)), max_size=12), st.booleans())
def test_batch_and_row_kernels_agree(names: list[str | None], encoded: bool) -> None:
    for op, settings_ in zip(shop_ops()[:3], ({"letters": 2}, {}, {"size": 3}), strict=True):
        column = pa.array(names, pa.string())
        params = {"settings": settings_, "inputs": ["string"]}
        whole = op.kernels["batch"](params, ())(column.dictionary_encode() if encoded else column)
        row = op.kernels["row"](params, ())
        singles = [row(name) for name in names]
        if isinstance(whole, pa.Array):
            assert whole.to_pylist() == singles
        else:
            assert whole.shape == (len(names), 3)
            np.testing.assert_array_equal(whole, np.reshape(singles, (len(names), 3)))


def test_on_arrow_arrays_an_op_just_runs() -> None:
    first = shop_ops()[0]
    assert first(pa.array(["ann", None])).to_pylist() == ["A", None]
    assert first(pa.chunked_array([["ann"], [None]]), letters=2).to_pylist() == ["AN", None]


def test_one_value_of_a_column_is_worked_out_once() -> None:
    seen: list[Any] = []

    def noted(name: Any) -> Any:
        seen.append(name)
        return name

    op = custom_ops.host_op("shop.noted", returns="string", by="row")(noted)
    assert op(pa.array(["a", "b", None, "a", None])).to_pylist() == ["a", "b", None, "a", None]
    assert sorted(seen, key=str) == [None, "a", "b"]


@pytest.mark.parametrize(
    ("returns", "made", "cause"),
    [
        ("string", [1, 2], None),  # numbers have a spelling
        ("int64", [1.5, 2.0], "did not give int64 for 2 rows"),
        ("int64", [1], "it has 1 values"),
        ("bool", ["x", "y"], "did not give bool"),
        ("uint8", [1, 300], "beyond uint8"),
        ("float32", [1.0, None], "did not give float32"),
        ("int32", np.array([1.0, 2.0]), "did not give int32"),
        (custom_ops.Returns("float32", (2,)), np.zeros((2, 3)), r"its shape is \(2, 3\)"),
        ("float32", pa.array([1.0, None]), "a value is missing"),
    ],
)
def test_what_does_not_fit_the_rule_is_told(returns: Any, made: Any, cause: str | None) -> None:
    op = custom_ops.host_op("shop.odd", returns=returns)(lambda names: made)
    if cause is None:
        assert op(pa.array(["a", "b"])).to_pylist() == ["1", "2"]
        return
    with pytest.raises(InputError, match=rf"op 'shop.odd' .*{cause}"):
        op(pa.array(["a", "b"]))


def test_an_op_that_fails_is_named_with_its_line(bundle: Bundle, tmp_path: Path) -> None:
    op = custom_ops.host_op("shop.fails", returns="int64", by="row")(lambda name: len(name))
    analyzed = analyze(lambda columns: {"n": ops.fill_missing(op(columns["name"]), 0)}, source(ROWS, tmp_path / "r"),
                   data.LocalExecutor())  # fmt: skip
    with pytest.raises(InputError, match=r"op 'shop.fails' failed on None: TypeError: .*NoneType") as error:
        analyzed.run("transform", ROWS.combine_chunks().to_batches()[0])
    assert (error.value.where or "").startswith(__file__)
    with pytest.raises(InputError, match=r"op 'shop.fails' failed on None: TypeError"):
        analyzed.run_row("transform", {"name": None})


@pytest.mark.parametrize(
    ("call", "cause"),
    [
        (lambda op, c: op(c["name"], c["name"]), "takes 1 columns, 2 were given"),
        (lambda op, c: op(c["name"], width=2), "has no setting 'width'"),
        (lambda op, c: op(c["name"], letters=object()), "takes no such 'letters'"),
        (lambda op, c: op(c["name"], letters=float("nan")), "takes no such 'letters'"),
        (lambda op, c: op(3.0), "takes one value per row"),
        (lambda op, c: op("text"), "was given to shop.initials, which takes a column"),
    ],
)
def test_a_wrong_call_is_told_at_the_users_line(call: Any, cause: str, tmp_path: Path) -> None:
    op = shop_ops()[0]
    with pytest.raises(InputError, match=cause) as error:
        analyze(lambda columns: {"x": call(op, columns)}, source(ROWS, tmp_path), data.LocalExecutor())
    assert (error.value.where or "").startswith(__file__)


def test_a_setting_without_default_is_needed(tmp_path: Path) -> None:
    op = shop_ops()[2]
    with pytest.raises(InputError, match="needs the setting 'size'"):
        analyze(lambda columns: {"x": op(columns["name"])}, source(ROWS, tmp_path), data.LocalExecutor())


def test_what_cannot_be_an_op_is_refused() -> None:
    with pytest.raises(InputError, match="no fixed number of columns"):
        custom_ops.host_op("shop.many", returns="string")(lambda *names: names[0])
    with pytest.raises(InputError, match=r"op 'shop.odd' returns .*float128"):
        custom_ops.host_op("shop.odd", returns="float128")(lambda name: name)
    with pytest.raises(InputError, match=r"belongs to no distribution: no entry point 'nobody'.*test_host_ops"):
        custom_ops.host_op("nobody.slug", returns="string")(lambda name: name)


def test_kernels_run_without_jax() -> None:
    script = (
        "import sys, pyarrow as pa\n"
        "from drivetrain.engine import custom_ops\n"
        "custom_ops.use('shop', distribution='shop', version='1')\n"
        "op = custom_ops.host_op('shop.same', returns='string', by='row')(lambda name: name)\n"
        "assert op(pa.array(['a'])).to_pylist() == ['a']\n"
        "assert 'jax' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=240)
