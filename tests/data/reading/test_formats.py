"""The registry of formats: by content where a format asks for it, else by the end of the name; options per format."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from drivetrain.data import open_files
from drivetrain.data.reading import files, formats
from drivetrain.data.reading.formats import FORMATS, FileFormat, ReadOptions, format_of
from drivetrain.data.reading.source_of import of_table
from drivetrain.errors import InputError


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.csv", "CSV"), ("A.TSV.GZ", "CSV"), ("a.parquet", "Parquet"), ("a.pq", "Parquet"), ("a.jsonl", "JSON lines"),
        ("a.ndjson.gz", "JSON lines"), ("a.avro", "Avro"), ("a.tfrecord", "TFRecord"), ("a.JPEG", "images"),
        ("data_tfrecord-00000-of-00002.gz", "TFRecord"), ("a.tar.gz", "images"),
    ],
)  # fmt: skip
def test_the_end_of_a_name_decides(tmp_path: Path, name: str, expected: str) -> None:
    path = tmp_path / name
    path.touch()
    assert format_of(path).name == expected


def test_every_format_is_named_where_a_file_is_of_none(tmp_path: Path) -> None:
    path = tmp_path / "a.orc"
    path.touch()
    with pytest.raises(InputError, match="not a kind of file") as caught:
        format_of(path)
    for file_format in FORMATS:
        assert file_format.shown in (caught.value.fix or "")


def test_a_new_format_is_one_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def open_lines(paths: list[Path], options: ReadOptions) -> object:
        encoding = options.encoding or "utf-8"
        return of_table(pa.table({"line": [line for path in paths for line in path.read_text(encoding).splitlines()]}))

    lines = FileFormat("lines", r"\.txt", ".txt", open_lines, options=frozenset({"encoding"}))  # type: ignore[arg-type]
    for module in (files, formats):
        monkeypatch.setattr(module, "FORMATS", (*FORMATS, lines))
    path = tmp_path / "a.txt"
    path.write_text("é\n", "latin-1")
    source = open_files([path], encoding="latin-1")
    assert [batch.to_pylist() for batch in source.read(0)] == [[{"line": "é"}]]
    with pytest.raises(InputError, match=r"delimiter: .* is lines, not CSV"):
        open_files([path], delimiter=";")
