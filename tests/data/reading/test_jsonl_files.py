"""JSON lines input: types over whole files, missing fields, nested values, and one clear error for each damage."""

import gzip
import io
import json
import math
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from drivetrain.data import Source
from drivetrain.data.reading import jsonl_files
from drivetrain.data.reading.jsonl_files import open_jsonl
from drivetrain.errors import InputError
from hypothesis import given, settings
from hypothesis import strategies as st


def rows(source: Source) -> list[dict[str, Any]]:
    return [row for shard in range(len(source.shards)) for batch in source.read(shard) for row in batch.to_pylist()]


def write(folder: Path, data: bytes | str, name: str = "x.jsonl") -> Path:
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def types(source: Source) -> dict[str, str]:
    return {field.name: str(field.type) for field in source.schema}


@pytest.mark.parametrize(
    ("cells", "kind", "values"),
    [
        (["1", "-2", "null"], "int64", [1, -2, None]),
        (["9007199254740993", "9223372036854775807"], "int64", [9007199254740993, 9223372036854775807]),
        (["1", "9223372036854775808"], "string", ["1", "9223372036854775808"]),  # every digit kept
        (["0.5", "9223372036854775808"], "double", [0.5, 2.0**63]),
        (["1", "2.5", "9007199254740993"], "double", [1.0, 2.5, 9007199254740992.0]),
        (["1", "-1e999"], "double", [1.0, -math.inf]),
        (["true", "false"], "bool", [True, False]),
        (["true", "1.10"], "string", ["true", "1.10"]),
        (['"1"', '"2"'], "string", ["1", "2"]),
        (['"v"', "1.10", "1e5", '{"a": [1.0, "é"]}'], "string", ["v", "1.10", "1e5", '{"a":[1.0,"é"]}']),
        (['"2013-01-02"', "null"], "date32[day]", [date(2013, 1, 2), None]),
        (['"2013-01-02"', '"2013-01-02T05:00"'], "timestamp[ms]", [datetime(2013, 1, 2), datetime(2013, 1, 2, 5)]),
        (['"2013-01-02T07:00:00+02:00"'], "timestamp[ms, tz=UTC]", [datetime(2013, 1, 2, 5, tzinfo=UTC)]),
        (['"2013-01-02"', '"never"'], "string", ["2013-01-02", "never"]),
        (['"2013-01-02"', "7"], "string", ["2013-01-02", "7"]),
        (["null", "null"], "string", [None, None]),
        (["[1, null]", "[]", "null", "[2.5]"], "list<element: double>", [[1.0, None], [], None, [2.5]]),
        (["[1]", '["a"]'], "list<element: string>", [["1"], ["a"]]),
        (["[[]]"], "list<element: list<element: string>>", [[[]]]),
        (
            ['{"a": 1}', '{"b": "x"}', "null"],
            "struct<a: int64, b: string>",
            [{"a": 1, "b": None}, {"a": None, "b": "x"}, None],
        ),
        (["{}"], "string", ["{}"]),
    ],
)
@pytest.mark.parametrize("files", [1, 2])
def test_types_fit_all_rows_of_all_files_in_any_order(
    tmp_path: Path, cells: list[str], kind: str, values: list[Any], files: int
) -> None:
    for step in (1, -1):
        order, expected = cells[::step], values[::step]
        parts = [order] if files == 1 else [order[:1], order[1:]]
        paths = [
            write(tmp_path, "".join(f'{{"k": 0, "v": {cell}}}\n' for cell in part), f"{number}.jsonl")
            for number, part in enumerate(parts)
        ]
        source = open_jsonl(paths)
        assert [row["v"] for row in rows(source)] == expected
        if "struct" not in kind or step == 1:  # fields stand in the order in which they first appear
            assert types(source) == {"k": "int64", "v": kind}


def test_columns_are_the_names_of_all_rows(tmp_path: Path) -> None:
    first = write(tmp_path, '{"a": 1}\n\n{"b": "x", "a": 2}', "1.jsonl")
    second = write(tmp_path, b'\xef\xbb\xbf{"c": true}\r\n', "2.ndjson")
    source = open_jsonl([first, second])
    assert source.columns == ("a", "b", "c")
    assert rows(source) == [
        {"a": 1, "b": None, "c": None},
        {"a": 2, "b": "x", "c": None},
        {"a": None, "b": None, "c": True},
    ]
    assert rows(source.select(["c", "a"]))[2] == {"c": True, "a": None}


def test_a_late_block_widens_the_whole_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl_files, "_BLOCK_BYTES", 64)
    lines = [json.dumps({"a": i, "b": i, "c": i}) for i in range(200)] + ['{"a": 1, "b": 0.5, "c": "x"}']
    source = open_jsonl([write(tmp_path, gzip.compress("\n".join(lines).encode()), "x.jsonl.gz")])
    assert types(source) == {"a": "int64", "b": "double", "c": "string"}
    read = rows(source)
    assert len(read) == source.rows == 201
    assert read[7] == {"a": 7, "b": 7.0, "c": "7"}
    assert read[-1] == {"a": 1, "b": 0.5, "c": "x"}


text = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=6)
record = st.fixed_dictionaries(
    {"i": st.integers(-(2**63), 2**63 - 1) | st.none(), "f": st.floats() | st.none(), "s": text, "t": st.lists(text)},
    optional={"b": st.booleans(), "o": st.fixed_dictionaries({"x": st.integers(-9, 9)})},
)


@settings(max_examples=60, deadline=None)
@given(st.lists(record, min_size=1, max_size=20))
def test_what_python_writes_comes_back(tmp_path_factory: pytest.TempPathFactory, table: list[dict[str, Any]]) -> None:
    first = {"i": 1, "f": 0.5, "s": "#", "t": ["#"], "b": True, "o": {"x": 1}}
    lines = "\n".join(json.dumps(row) for row in [first, *table])
    read = rows(open_jsonl([write(tmp_path_factory.mktemp("jsonl"), lines)]))[1:]
    assert repr(read) == repr([{name: row.get(name) for name in first} for row in table])  # repr: NaN equals itself


def test_pandas_reads_the_same(tmp_path: Path) -> None:
    frame = pd.DataFrame({"n": [1, 2, 3], "x": [0.1, None, 1e-300], "s": ["a", "ü", None], "b": [True, False, True]})
    lines = frame.to_json(orient="records", lines=True, double_precision=15)
    source = open_jsonl([write(tmp_path, lines)])
    expected = pd.read_json(io.StringIO(lines), orient="records", lines=True)
    for name in frame:
        ours = pd.Series([row[name] for row in rows(source)], dtype=expected[name].dtype, name=name)
        pd.testing.assert_series_equal(ours, expected[name])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"a": 1}\n{"a": 2, "b', "x.jsonl:2: not JSON at character 10 (Unterminated string"),
        (b'{"a": 1}\n\n{"a": 2} {"a": 3}\n', "x.jsonl:3: not JSON at character 10 (Extra data"),
        (b'[{"a": 1}, {"a": 2}]', "x.jsonl:1: a list, not an object"),
        (b'{"a": 1}\nnull\n', "x.jsonl:2: a null, not an object"),
        (b'{"a": 1}\n{"b": {"a": 1, "a": 2}}\n', "x.jsonl:2: two fields are named 'a'"),
        (b'{"a": 1}\n{"a": "caf\xe9"}\n', "x.jsonl:2: not UTF-8 text at byte 11"),
        (b'{"a": "x"}\n{"a": "\\ud83d"}\n', "x.jsonl:2: column 'a' holds half a character"),
        (b'{"a": 1}\n{"a": ["\\ud83d"]}\n', "x.jsonl:2: column 'a' holds half a character"),
        (b'{"a": 1}\n{"a": {"\\ud83d": 1}}\n', "x.jsonl:2: column 'a' holds half a character"),
        (b'{"a": 1}\n{"\\ud83d": 1}\n', "x.jsonl:2: column '\\ud83d' holds half a character"),
        (b'{"a": ' + b"9" * 5000 + b"}\n", "x.jsonl:1: Exceeds the limit"),
        (b'{"a": ' + b"[" * 200_000 + b"]" * 200_000 + b"}\n", "x.jsonl:1: maximum recursion"),
        (b'{"": 1}\n', "column 1 has no name"),
        (b"{}\n{}\n", "the objects have no fields"),
    ],
)
def test_damage_names_the_line(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(InputError) as caught:
        open_jsonl([write(tmp_path, data)])
    assert message in str(caught.value)
    assert caught.value.fix


def test_a_cut_archive_and_a_missing_file(tmp_path: Path) -> None:
    whole = gzip.compress(b"".join(b'{"a": %d}\n' % i for i in range(9999)))
    with pytest.raises(InputError, match="is damaged"):
        open_jsonl([write(tmp_path, whole[:-99], "x.jsonl.gz")])
    with pytest.raises(InputError, match="does not exist"):
        open_jsonl([tmp_path / "none.jsonl"])


def test_a_file_that_changes_is_noticed(tmp_path: Path) -> None:
    whole = '{"a": 1, "b": [1], "c": "#"}\n{"a": 2, "b": [2], "c": "%s"}\n'
    for other in ('{"a": 1}\n{"a": "x"}\n', '{"a": 1}\n', '{"a": 1}\n{"a": 0.5}\n', '{"a": 1}\n{"b": [0.5]}\n'):
        for last in ("#", "1"):
            source = open_jsonl([write(tmp_path, whole.replace('"%s"', last if last == "1" else f'"{last}"'))])
            assert rows(source)[1]["c"] == last
            write(tmp_path, other)
            with pytest.raises(InputError, match="changed while in use"):
                rows(source)
