"""CSV files as others write them: encodings, delimiters, and the errors where neither is what was thought."""

import csv
import gzip
import io
import zipfile
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain.data import Source
from drivetrain.data.reading import csv_files
from drivetrain.data.reading.csv_dialect import CsvFile
from drivetrain.data.reading.csv_files import open_csv
from drivetrain.errors import InputError
from hypothesis import given, settings
from hypothesis import strategies as st


def rows(source: Source) -> list[dict[str, Any]]:
    return [row for shard in range(len(source.shards)) for batch in source.read(shard) for row in batch.to_pylist()]


def write(folder: Path, data: bytes | str, name: str = "x.csv") -> Path:
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


TABLE = "name,n\nMüller,1\n€uro,2\n"
READ = [{"name": "Müller", "n": 1}, {"name": "€uro", "n": 2}]


@pytest.mark.parametrize(
    ("data", "declared"),
    [
        (TABLE.encode("utf-8-sig"), None),
        (TABLE.encode("utf-8-sig"), "utf-8"),
        (TABLE.encode("utf-16"), None),
        (b"\xfe\xff" + TABLE.encode("utf-16-be"), None),
        (TABLE.encode("utf-16-le"), "utf-16-le"),
        (b"\xff\xfe" + TABLE.encode("utf-16-le"), "utf-16-le"),
        (TABLE.encode("utf-32"), None),
        (TABLE.encode("cp1252"), "cp1252"),
        (TABLE.encode("iso8859-15"), "iso-8859-15"),
    ],
)
def test_encodings(tmp_path: Path, data: bytes, declared: str | None) -> None:
    assert rows(open_csv([write(tmp_path, data)], encoding=declared)) == READ
    assert rows(open_csv([write(tmp_path, gzip.compress(data), "x.csv.gz")], encoding=declared)) == READ
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("x.csv", data)
    assert rows(open_csv([tmp_path / "x.zip"], encoding=declared)) == READ


@pytest.mark.parametrize(
    ("data", "encoding", "message"),
    [
        (TABLE.encode("cp1252"), None, "x.csv:2: not UTF-8 text"),
        (b"a,b\n1,2\n\n3,\x81\n", "cp1252", "x.csv:4: not cp1252 text"),
        (b"\x81,b\n1,2\n", "cp1252", "x.csv:1: not cp1252 text"),
        ("a,b\n1,2\n".encode("utf-16") + b"\x00\xd8a\x00\n\x00", None, "x.csv:3: not utf-16 text"),
        ("a,b\n1,2\n".encode("utf-16") + b"x", None, "x.csv:3: not utf-16 text"),
        (TABLE.encode(), "klingon", "there is no encoding 'klingon'"),
        (TABLE.encode(), "rot13", "there is no encoding 'rot13'"),
        (TABLE.encode(), "ascii", "x.csv:2: not ascii text"),
    ],
)
def test_bytes_without_a_meaning_name_the_line(tmp_path: Path, data: bytes, encoding: str | None, message: str) -> None:
    with pytest.raises(InputError) as caught:
        open_csv([write(tmp_path, data)], encoding=encoding)
    assert message in str(caught.value)
    assert caught.value.fix


def test_the_line_of_a_late_byte_counts_all_blocks(tmp_path: Path) -> None:
    lines = [b"a,b"] + [b"%d,caf\xe9" % number for number in range(30_000)]
    assert len(rows(open_csv([write(tmp_path, b"\n".join(lines))], encoding="latin-1"))) == 30_000
    lines[20_000] = b"1,\x81"
    with pytest.raises(InputError, match=r"x\.csv:20001: not cp1252 text"):
        open_csv([write(tmp_path, b"\n".join(lines))], encoding="cp1252")


@pytest.mark.parametrize(
    ("data", "name"),
    [
        ("a;b\n1;x,y\n", "x.csv"),
        ("a\tb\n1\tx,y\n", "x.csv"),
        ("a|b\n1|x,y\n", "x.csv"),
        ("\n\n\"a\";b\n1;'x,y'\n".replace("'", '"'), "x.csv"),
        ("a\tb\n1\tx,y\n", "x.tsv"),
    ],
)
def test_delimiters_are_seen_in_the_header(tmp_path: Path, data: str, name: str) -> None:
    assert rows(open_csv([write(tmp_path, data, name)])) == [{"a": 1, "b": "x,y"}]


def test_a_comma_outside_quotes_decides(tmp_path: Path) -> None:
    assert open_csv([write(tmp_path, "a;b;c;d,e\n1,2\n")]).columns == ("a;b;c;d", "e")
    assert open_csv([write(tmp_path, '"a,b";c\n1;2\n')]).columns == ("a,b", "c")
    assert open_csv([write(tmp_path, "a;b\n1;2\n")], delimiter=",").columns == ("a;b",)
    assert open_csv([write(tmp_path, "a,b\tc\n1\t2\n", "x.tsv")]).columns == ("a,b", "c")
    assert rows(open_csv([write(tmp_path, "a:b\n1:2\n")], delimiter=":")) == [{"a": 1, "b": 2}]
    assert open_csv([write(tmp_path, "alone\n1\n")]).columns == ("alone",)


@pytest.mark.parametrize("delimiter", ["", ";;", '"', "\n", "é"])
def test_a_delimiter_is_one_character(tmp_path: Path, delimiter: str) -> None:
    with pytest.raises(InputError, match="cannot divide cells"):
        open_csv([write(tmp_path, "a\n1\n")], delimiter=delimiter)


def test_a_ragged_line_names_the_delimiter(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"x\.csv:4: 3 cells where the header has 2: 3;4;5") as caught:
        open_csv([write(tmp_path, 'a;b\n1;"x\ny"\n3;4;5\n')])
    assert "';'" in str(caught.value)
    with pytest.raises(InputError, match="a quote is opened and never closed"):
        open_csv([write(tmp_path, 'a;b\n1;"x\n')])
    with pytest.raises(InputError, match="no column"):
        open_csv([write(tmp_path, "a;b\n1;2\n", "1.csv"), write(tmp_path, "a:b\n1:2\n", "2.csv")])


# All that cp1252 has; hypothesis takes a second to try each character of Unicode.
CP1252 = set(bytes(range(256)).decode("cp1252", "ignore")) - set("\0\r\x85\x1c\x1d\x1e")
cell = st.text("".join(sorted(CP1252)), max_size=6)


@settings(max_examples=60, deadline=None)
@given(
    table=st.lists(st.tuples(cell, cell), min_size=1, max_size=20),
    delimiter=st.sampled_from(",;\t|:"),
    encoding=st.sampled_from(["cp1252", "utf-16", "utf-8"]),
)
def test_what_python_writes_comes_back(
    tmp_path_factory: pytest.TempPathFactory, table: list[tuple[str, str]], delimiter: str, encoding: str
) -> None:
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n", delimiter=delimiter)
    writer.writerows([("a", "b"), ("#", "#"), *table])  # the first row keeps both columns text
    path = write(tmp_path_factory.mktemp("csv"), text.getvalue().encode(encoding))
    source = open_csv([path], delimiter=delimiter, encoding=encoding)
    assert [tuple(row.values()) for row in rows(source)][1:] == table


def test_pandas_reads_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_files, "_BLOCK_BYTES", 1 << 10)
    frame = pd.DataFrame({"n": range(999), "x": [i / 7 for i in range(999)], "s": [f"Zürich;{i}" for i in range(999)]})
    frame.to_csv(tmp_path / "x.csv", sep=";", encoding="utf-16", index=False)
    ours = pd.DataFrame(rows(open_csv([tmp_path / "x.csv"])))
    pd.testing.assert_frame_equal(ours, pd.read_csv(tmp_path / "x.csv", sep=";", encoding="utf-16"))


def test_a_parquet_file_that_is_named_csv_is_called_what_it_is(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": list(range(1000))}), tmp_path / "a.csv")
    with pytest.raises(InputError, match=r"a.csv is a Parquet file by its content\n  fix: name it .parquet"):
        CsvFile.of(tmp_path / "a.csv")
    (tmp_path / "b.csv").write_text("PAR1,b\n1,2\n")  # a column of that name
    assert CsvFile.of(tmp_path / "b.csv").delimiter == ","
    (tmp_path / "c.csv").write_text("PAR1")
    assert CsvFile.of(tmp_path / "c.csv").encoding == "utf-8"
