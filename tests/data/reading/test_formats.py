"""The registry of formats: by content where a format asks for it, else by the end of the name; options per format."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from drivetrain.data import open_files
from drivetrain.data.reading import files, formats
from drivetrain.data.reading.formats import FORMATS, FileFormat, ReadOptions, format_of
from drivetrain.data.reading.source_of import of_table
from drivetrain.errors import InputError

PAGE = (Path(__file__).parents[3] / "docs" / "ingestion.md").read_text("utf-8")


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
    path = tmp_path / "a.nothing"
    path.touch()
    with pytest.raises(InputError, match="not a kind of file") as caught:
        format_of(path)
    for file_format in FORMATS:
        assert file_format.shown in (caught.value.fix or "")


@pytest.mark.parametrize(
    "ending",
    [
        "parquet", "csv", "csv.gz", "tsv", "tsv.gz", "zip", "jsonl", "jsonl.gz", "ndjson", "ndjson.gz", "avro",
        "tfrecord", "tfrecord.gz", "png", "jpg", "gif", "bmp", "webp", "tiff", "tar", "tgz",
    ],
)  # fmt: skip
def test_the_error_for_an_unknown_format_shows_every_ending(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a.{ending}"
    path.touch()
    name, _, compression = ending.partition(".")
    assert re.search(rf"\.{name}\b", format_of(path).shown)
    assert not compression or re.search(r"\((each )?also \.gz\)", format_of(path).shown)


def test_the_page_has_every_format() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ")]
    assert [each.name for each in FORMATS if not any(line.startswith(f"| {each.name} ") for line in rows)] == []


def test_a_new_format_is_one_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def open_lines(paths: list[Path], options: ReadOptions) -> object:
        encoding = options.encoding or "utf-8"
        texts = []
        for path in paths:
            with pa.OSFile(str(path)) as file:  # past Python, which tells its audit hooks nothing
                texts.append(file.read().decode(encoding))
        return of_table(pa.table({"line": [line for text in texts for line in text.splitlines()]}))

    events: list[tuple[object, ...]] = []
    monkeypatch.setattr(sys, "audit", lambda *event: events.append(event))

    lines = FileFormat("lines", r"\.txt", ".txt", open_lines, options=frozenset({"encoding"}))  # type: ignore[arg-type]
    for module in (files, formats):
        monkeypatch.setattr(module, "FORMATS", (*FORMATS, lines))
    path = tmp_path / "a.txt"
    path.write_text("é\n", "latin-1")
    source = open_files([path], encoding="latin-1")
    assert [batch.to_pylist() for batch in source.read(0)] == [[{"line": "é"}]]
    assert ("open", str(path), "rb", os.O_RDONLY) in events
    with pytest.raises(InputError, match=r"delimiter: .* is lines, not CSV"):
        open_files([path], delimiter=";")
