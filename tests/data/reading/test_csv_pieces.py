"""Large CSV and JSON lines files in pieces: the same rows, or the same error, as the file read in one go."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from drivetrain.data import open_files
from drivetrain.data.reading import csv_files, jsonl_files
from drivetrain.errors import InputError
from hypothesis import example, given, settings
from hypothesis import strategies as st

CELLS = ["1", "", "x", '""', '"a""b"', '"new\nline"', '"a,b"', '"cr\r\nlf"', '5" pipe', ' "blank"', '"a"b', "NA", "é"]
CELLS += ['"""']
ENDS = ["\n", "\r\n", "\n\n", "\n \n"]


def outcome(path: Path, size: int, block: int = 4 << 20) -> tuple[list[dict[str, Any]] | str, int]:
    """Rows or error of a file in pieces of about so many bytes; and how many pieces there were."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (csv_files, jsonl_files):
            patch.setattr(module, "_SHARD_BYTES", size)
            patch.setattr(module, "_BLOCK_BYTES", block)
        try:
            source = open_files([path])
        except InputError as error:
            return str(error), 0
        rows = [row for shard in source.shards for batch in source.read(shard) for row in batch.to_pylist()]
        assert source.rows == len(rows)
        assert [shard.rows for shard in source.shards] == [
            sum(batch.num_rows for batch in source.read(shard)) for shard in source.shards
        ]
        return rows, len(source.shards)


@settings(deadline=None)
@given(
    rows=st.lists(st.tuples(st.sampled_from(CELLS), st.sampled_from(CELLS)), min_size=1, max_size=30),
    end=st.sampled_from(ENDS),
    header=st.sampled_from(["a,b", "\ufeffa,b", '\ufeff"a","b"', '\n\n"a\nb",c', "a,b,c"]),
    closed=st.booleans(),
    size=st.integers(1, 60),
    block=st.sampled_from([64, 100, 4 << 20]),
)
@example([("x", '"'), ("x", "y"), ('"', "z")], "\n", "a,b", True, 1, 64)  # a quote that opens a cell of many lines
def test_pieces_make_the_same_rows(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, str]],
    end: str,
    header: str,
    closed: bool,
    size: int,
    block: int,
) -> None:
    path = tmp_path_factory.mktemp("csv") / "x.csv"
    text = end.join([header, *map(",".join, rows)]) + (end if closed else "")
    path.write_bytes(text.encode())
    assert outcome(path, size, block)[0] == outcome(path, 1 << 30)[0]


@pytest.mark.slow
@settings(deadline=None)
@given(
    rows=st.lists(st.lists(st.text(st.sampled_from('a",\n\r; é1'), max_size=5), min_size=3, max_size=3), min_size=20),
    size=st.integers(1, 100),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
)
def test_what_python_writes_is_divided(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]], size: int, quoting: Any
) -> None:
    path = tmp_path_factory.mktemp("csv") / "x.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file, quoting=quoting)
        writer.writerows([["k", "a", "b", "c"], *([str(number), *row] for number, row in enumerate(rows))])
    got, pieces = outcome(path, size, 64)
    assert got == outcome(path, 1 << 30)[0]
    assert pieces >= min(10, path.stat().st_size // 64 // 4)


@pytest.mark.parametrize("before", range(55, 65))
def test_line_breaks_of_windows_in_a_cell_at_the_end_of_a_block(tmp_path: Path, before: int) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(f'a,{"b" * (before - 5)}\r\n1,"x\r\n\r\ny"\r\n'.encode())
    assert list(outcome(path, 1 << 30, 64)[0][0].values()) == [1, "x\r\n\r\ny"]  # type: ignore[union-attr]


def test_a_line_in_a_late_piece_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    good = 'a,b\n1,"x\ny"\n\n' + "2,z\n" * 1000
    for bad, message in ((b"3,4,5\n", r"x\.csv:1005: 3 cells"), (b"3,\xff\n", r"x\.csv:1005: not UTF-8")):
        path.write_bytes(good.encode() + bad + b"2,z\n" * 1000)
        text, _ = outcome(path, 200, 64)
        assert text == outcome(path, 1 << 30)[0]
        assert isinstance(text, str)
        with pytest.raises(InputError, match=message):
            raise InputError(text)


def test_json_lines_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    lines = [json.dumps({"n": number, "s": "é\\n" * (number % 7)}, ensure_ascii=False) for number in range(500)]
    path.write_text("\ufeff" + "\n\n".join(lines))
    rows, pieces = outcome(path, 300, 100)
    assert rows == outcome(path, 1 << 30)[0] == [json.loads(line) for line in lines]
    assert pieces > 10
    path.write_text("\n".join([*lines, "{"]))
    assert outcome(path, 300, 100)[0] == outcome(path, 1 << 30)[0]


def test_digits_that_are_lost_are_told(tmp_path: Path) -> None:
    far = 2**53 + 1
    (tmp_path / "1.csv").write_text(f"zip,far,id,x\n10001,{far - 1},{far},1.5\n00501,{far},{far},007.5\n")
    (tmp_path / "2.csv").write_text("zip,far,id,x\n00502,0.5,1,0\n")
    notes: list[str] = []
    keep = "(unless column_types declares it a string or decimal128)"
    open_files([tmp_path / "1.csv", tmp_path / "2.csv"], note=notes.append)
    assert [note.replace(f"{tmp_path}/", "") for note in notes] == [
        f"1.csv:3: column 'zip' is int64, so '00501' loses its zeros {keep}; so is 'x'",
        f"1.csv:3: column 'far' is float64, which rounds '{far}' {keep}",
    ]
    notes.clear()
    open_files([tmp_path / "1.csv"], column_types={"zip": "string", "x": "string"}, note=notes.append)
    assert notes == []
    (tmp_path / "x.jsonl").write_text(f'{{"far": {far}, "id": {far}}}\n{{"far": 0.5, "id": 1}}\n')
    open_files([tmp_path / "x.jsonl"], note=notes.append)
    assert [note.replace(f"{tmp_path}/", "") for note in notes] == [
        f"x.jsonl:1: column 'far' is float64, which rounds {far}"
    ]


def test_a_first_line_that_looks_like_data_is_told(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("0.23,Ideal,E\n0.21,Premium,E\n")
    notes: list[str] = []
    open_files([tmp_path / "x.csv"], note=notes.append)
    assert notes == [f"{tmp_path}/x.csv:1: a column is named '0.23': is the first line data? It must name the columns"]
    (tmp_path / "y.csv").write_text("carat,inf,NaN\n0.21,1,2\n")
    notes.clear()
    open_files([tmp_path / "y.csv"], note=notes.append)
    assert notes == []


def test_a_quote_amid_a_cell_ends_the_dividing(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a,b\n" + "1,x\n" * 500 + '1,5" pipe\n' + "1,x\n" * 500)
    rows, pieces = outcome(path, 100, 64)
    assert rows == outcome(path, 1 << 30)[0]
    assert pieces == pytest.approx(500 * 4 / 128, rel=0.3)


def test_a_file_that_loses_rows_between_two_passes(tmp_path: Path) -> None:
    for name, line in (("x.csv", "1,x\n"), ("x.jsonl", '{"a": 1, "b": "x"}\n')):
        path = tmp_path / name
        path.write_text(("a,b\n" if name == "x.csv" else "") + line * 100)
        source = open_files([path])
        path.write_text(("a,b\n" if name == "x.csv" else "") + line * 99)
        with pytest.raises(InputError, match=rf"{name} changed while in use"):
            list(source.read(0))
