"""CSV input: types over whole files, missing values, and one clear error for each kind of damage."""

import csv
import gzip
import io
import subprocess
import sys
import zipfile
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from drivetrain.data import Source, open_files
from drivetrain.data.reading import csv_files
from drivetrain.errors import InputError
from hypothesis import given, settings
from hypothesis import strategies as st


def rows(source: Source) -> list[dict[str, Any]]:
    return [row for shard in range(len(source.shards)) for batch in source.read(shard) for row in batch.to_pylist()]


def write(folder: Path, data: bytes | str, name: str = "x.csv") -> Path:
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def types(source: Source) -> dict[str, str]:
    return {field.name: str(field.type) for field in source.schema}


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["1", "-2", ""], "int64"),
        (["1", "2.5"], "double"),
        (["1", "nan", "1e5"], "double"),
        (["1", "x"], "string"),
        (["1", "true"], "string"),
        (["TRUE", "false", "NA"], "bool"),
        (["2013-01-02", ""], "date32[day]"),
        (["2013-01-02", "2013-01-02 05:00"], "timestamp[ms]"),
        (["2013-01-02T05:00:00.123", "2013-01-02T05:00:00.123456"], "timestamp[us]"),
        (["2013-01-02T05:00:00Z"], "timestamp[ms, tz=UTC]"),
        (["2013-01-02T05:00:00Z", "2013-01-02T05:00:00"], "string"),
        (["20130102", "2013-01-02"], "string"),
        (["0x1F", "1"], "string"),
        (["", "NA"], "string"),
        ([" 1", "2 "], "int64"),
        (['""', "7"], "int64"),
    ],
)
@pytest.mark.parametrize("files", [1, 2])
def test_types_fit_all_rows_of_all_files_in_any_order(tmp_path: Path, cells: list[str], kind: str, files: int) -> None:
    for order in (cells, cells[::-1]):
        parts = [order] if files == 1 else [order[:1], order[1:]]
        paths = [
            write(tmp_path, "k,v\n" + "".join(f"0,{cell}\n" for cell in part), f"{number}.csv")
            for number, part in enumerate(parts)
        ]
        source = open_files(paths)
        assert types(source)["v"] == kind
        assert len(rows(source)) == len(cells)


def test_a_late_block_widens_the_whole_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_files, "_BLOCK_BYTES", 64)
    lines = ["a,b,c"] + [f"{i},{i},{i}" for i in range(200)] + ["1,0.5,x"]
    source = open_files([write(tmp_path, "\n".join(lines))])
    assert types(source) == {"a": "int64", "b": "double", "c": "string"}
    read = rows(source)
    assert len(read) == 201
    assert read[7] == {"a": 7, "b": 7.0, "c": "7"}
    assert read[-1] == {"a": 1, "b": 0.5, "c": "x"}


def test_quoted_nulls_are_text_in_text_and_missing_elsewhere(tmp_path: Path) -> None:
    path = write(tmp_path, 'text,number\n"NA",1\nNA,"NA"\n"",""\n,2\nz,3\n')
    assert rows(open_files([path])) == [
        {"text": "NA", "number": 1},
        {"text": None, "number": None},
        {"text": "", "number": None},
        {"text": None, "number": 2},
        {"text": "z", "number": 3},
    ]


def test_times_and_words(tmp_path: Path) -> None:
    path = write(tmp_path, "d,t,b\n2013-01-02,2013-01-02T05:00:00,true\n,,FALSE\n")
    assert rows(open_files([path])) == [
        {"d": date(2013, 1, 2), "t": datetime(2013, 1, 2, 5), "b": True},
        {"d": None, "t": None, "b": False},
    ]


cell = st.text(st.characters(codec="utf-8", exclude_characters="\0\r", exclude_categories=["Cs"]), max_size=6)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(cell, cell), min_size=1, max_size=20))
def test_what_python_writes_comes_back(tmp_path_factory: pytest.TempPathFactory, table: list[tuple[str, str]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerows([("a", "b"), ("#", "#"), *table])  # the first row keeps both columns text
    source = open_files([write(tmp_path_factory.mktemp("csv"), text.getvalue())])
    assert [tuple(row.values()) for row in rows(source)][1:] == table


def test_compressed_files_and_a_byte_order_mark(tmp_path: Path) -> None:
    plain = b"\xef\xbb\xbfa,b\r\n1,x\r\n\r\n2,y"
    expected = [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]
    assert rows(open_files([write(tmp_path, plain)])) == expected
    assert rows(open_files([write(tmp_path, gzip.compress(plain), "x.csv.gz")])) == expected
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("inner.csv", plain)
        archive.writestr("__MACOSX/._inner.csv", b"junk")
    assert rows(open_files([tmp_path / "x.zip"])) == expected


def test_files_are_read_in_the_order_given(tmp_path: Path) -> None:
    paths = [write(tmp_path, f"a\n{number}\n", f"{number}.csv") for number in (3, 1, 2)]
    assert [row["a"] for row in rows(open_files(paths))] == [3, 1, 2]


def test_a_file_without_rows_among_others_is_a_month_without_rows(tmp_path: Path) -> None:
    paths = [write(tmp_path, "a,b\n", "0.csv"), write(tmp_path, "a,b\n1,2\n", "1.csv")]
    source = open_files(paths)
    assert [shard.rows for shard in source.shards] == [0, 1]
    assert types(source) == {"a": "int64", "b": "int64"}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "x.csv is empty"),
        (b"\n\n", "x.csv is empty"),
        (b"a,b\n", "x.csv: a header but no rows"),
        (b"a,b", "x.csv: a header but no rows"),
        (b"a,a\n1,2\n", "x.csv: two columns are named 'a'"),
        (b"a,\n1,2\n", "x.csv: column 2 has no name"),
        (b",\n1,2\n", "x.csv: column 1 has no name"),
        (b'a,b\n1,2\n3,"x\ny"\n\n4,5,6\n', "x.csv:6: 3 cells where the header has 2: 4,5,6"),
        (b"a,b\n1\n", "x.csv:2: 1 cells where the header has 2"),
        (b'a,b\n1,"2\n3,4\n', "x.csv: a quote is opened and never closed"),
        (b"a,b\n1,2\n1,\xff\n", "x.csv:3: not UTF-8 text"),
        ("a,b\n1,2\n".encode("utf-16-le"), "x.csv:1: not UTF-8 text"),
    ],
)
def test_damage_is_named(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(InputError) as caught:
        open_files([write(tmp_path, data)])
    assert message in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.fix


def test_more_than_a_block_in_one_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_files, "_BLOCK_BYTES", 64)
    with pytest.raises(InputError, match="a quote is opened and never closed"):
        open_files([write(tmp_path, 'a,b\n1,"' + "x" * 500 + "\n3,4\n")])
    source = open_files([write(tmp_path, f"a,b\n1,{'x' * 500}\n3,4\n")])
    assert rows(source) == [{"a": 1, "b": "x" * 500}, {"a": 3, "b": "4"}]
    monkeypatch.setattr(csv_files, "_LONG_BLOCK_BYTES", 128)
    with pytest.raises(InputError, match=r"a row longer than 0 MiB, or a quote that is never closed"):
        open_files([write(tmp_path, f"a,b\n1,{'x' * 500}\n3,4\n")])


@pytest.mark.parametrize("block", [16, 1 << 20])
@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["1", "9223372036854775807"], "int64"),
        (["1", "9223372036854775808"], "string"),
        (["12345678901234567890", "12345678901234567891"], "string"),
        (["-9223372036854775809", "NA", "5"], "string"),
        (["12345678901234567890", "0.5"], "double"),
        (["0.5", "1", "12345678901234567890"], "double"),
        (["1e5", "12345678901234567890"], "double"),
        (["1.5", "2"], "double"),
    ],
)
def test_whole_numbers_beyond_64_bits_keep_their_digits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cells: list[str], kind: str, block: int
) -> None:
    monkeypatch.setattr(csv_files, "_BLOCK_BYTES", block)
    monkeypatch.setattr(csv_files, "_LONG_BLOCK_BYTES", 64)
    for order in (cells, cells[::-1]):
        source = open_files([write(tmp_path, "k,v\n" + "".join(f"0,{cell}\n" for cell in order))])
        assert types(source)["v"] == kind
        if kind == "string":
            assert [row["v"] for row in rows(source)] == [None if cell == "NA" else cell for cell in order]


@pytest.mark.parametrize("block", [16, 1 << 20])
@pytest.mark.parametrize(
    ("cells", "note"),
    [
        (["1", "2.5", "3", "foo", "5", "bar"], "x.csv:5: column 'v' is text, because 'foo' is not a number"),
        (["2013-01-02", "2013-01-03", "NA", "never"], "x.csv:5: column 'v' is text, because 'never' is not a time"),
        (["true", "false", "maybe"], "x.csv:4: column 'v' is text, because 'maybe' is not true or false"),
        (["a", "1", "b"], None),
        (["1", "2"], None),
    ],
)
def test_a_column_that_is_text_for_the_sake_of_a_few_values_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cells: list[str], note: str | None, block: int
) -> None:
    monkeypatch.setattr(csv_files, "_BLOCK_BYTES", block)
    notes: list[str] = []
    path = write(tmp_path, "k,v\n" + "".join(f"0,{cell}\n" for cell in cells), "x.csv")
    open_files([path], note=notes.append)
    wanted = [] if note is None else [f"{note} (where it stands for a missing value, name it in null_values)"]
    assert [text.replace(f"{tmp_path}/", "") for text in notes] == wanted


def test_columns_that_are_text_for_the_sake_of_a_few_values_are_named(tmp_path: Path) -> None:
    notes: list[str] = []
    row = ",".join(["1.5"] * 6)
    open_files([write(tmp_path, f"a,b,c,d,e,f\n{row}\n{row}\nn/a,-,-,-,-,-\n", "x.csv")], note=notes.append)
    assert [note.partition("); ")[2] for note in notes] == ["so are 'b', 'c', 'd' and 2 more"]


def test_a_cell_that_is_none_of_the_declared_type_is_quoted_with_how_to_read_it_as_missing(tmp_path: Path) -> None:
    path = write(tmp_path, "k,v\n0,1.5\n0,n/a\n", "x.csv")
    with pytest.raises(InputError, match=r"x\.csv:3: column 'v' holds 'n/a', not double") as caught:
        open_files([path], column_types={"v": "float64"})
    assert 'null_values=["", "NA", "nan", "NaN", "n/a"]' in (caught.value.fix or "")
    source = open_files([path], column_types={"v": "float64"}, null_values=["", "NA", "nan", "NaN", "n/a"])
    assert [row["v"] for row in rows(source)] == [1.5, None]


def test_damaged_containers_are_named(tmp_path: Path) -> None:
    broken = gzip.compress(b"a,b\n1,2\n" * 1000)[:-20]
    with pytest.raises(InputError, match=r"x\.csv\.gz is damaged"):
        open_files([write(tmp_path, broken, "x.csv.gz")])
    with pytest.raises(InputError, match=r"x\.zip is damaged"):
        open_files([write(tmp_path, b"no zip", "x.zip")])
    with zipfile.ZipFile(tmp_path / "two.zip", "w") as archive:
        archive.writestr("a.csv", "a\n1\n")
        archive.writestr("b.csv", "a\n1\n")
    with pytest.raises(InputError, match=r"holds a.csv, b.csv, not one CSV"):
        open_files([tmp_path / "two.zip"])


def test_headers_must_agree(tmp_path: Path) -> None:
    first = write(tmp_path, "a,b\n1,2\n", "0.csv")
    with pytest.raises(InputError, match=r"1\.csv has no column 'b', .*0\.csv has"):
        open_files([first, write(tmp_path, "a,c\n1,2\n", "1.csv")])
    with pytest.raises(InputError, match="another order"):
        open_files([first, write(tmp_path, "b,a\n1,2\n", "1.csv")])


def test_a_file_that_changes_after_it_was_opened(tmp_path: Path) -> None:
    source = open_files([write(tmp_path, "a\n1\n")])
    write(tmp_path, "a\nx\n")
    with pytest.raises(InputError, match="changed while in use"):
        rows(source)


def test_only_the_columns_wanted(tmp_path: Path) -> None:
    source = open_files([write(tmp_path, "a,b,c\n1,2,3\n")]).select(["c", "a"])
    assert rows(source) == [{"c": 3, "a": 1}]
    assert source.schema == pa.schema([("c", pa.int64()), ("a", pa.int64())])


def test_a_pass_given_up_half_way_does_not_abort_the_process(tmp_path: Path) -> None:
    path = write(tmp_path, gzip.compress(b"a,b\n" + b"1,2\n" * 6_000_000, 1), "x.csv.gz")
    code = (
        "from drivetrain.data.reading import csv_dialect, csv_files\n"
        "from pathlib import Path\n"
        f"file = csv_dialect.CsvFile(Path({str(path)!r}))\n"
        "batches = csv_files._text_batches(file, (), None, 1 << 22, csv_files.CsvPiece())\n"
        "next(batches); next(batches)\n"
        "raise SystemExit(7)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (7, "")
