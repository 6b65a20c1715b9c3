"""Sources over Parquet, and examples on disk: types, manifests, damage."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain.data import LocalExecutor, Manifest, open_examples, open_files, open_parquet, sinks, splits
from drivetrain.errors import InputError


def write(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def test_row_groups_are_shards_in_order(tmp_path: Path) -> None:
    for number in range(2):
        table = pa.table({"a": np.arange(10) + 10 * number})
        pq.write_table(table, tmp_path / f"{number}.parquet", row_group_size=4)
    source = open_files([tmp_path / "0.parquet", tmp_path / "1.parquet"])
    assert [shard.rows for shard in source.shards] == [4, 4, 2, 4, 4, 2]
    read = [batch["a"].to_pylist() for shard in source.shards for batch in source.read(shard, 3)]
    assert [len(values) for values in read] == [3, 1, 3, 1, 2, 3, 1, 3, 1, 2]
    assert [value for values in read for value in values] == list(range(20))
    assert pickle.loads(pickle.dumps(source)) == source


def test_every_encoding_of_text_is_one_type(tmp_path: Path) -> None:
    text = pa.array(["x", None, "y"])
    for number, column in enumerate([text, text.cast(pa.large_string()), text.dictionary_encode(), pa.nulls(3)]):
        source = open_parquet([write(tmp_path / f"{number}.parquet", s=column)])
        assert source.schema == pa.schema([("s", pa.string())])
        expected = [None] * 3 if number == 3 else ["x", None, "y"]
        for read in (source, source.with_dictionaries()):
            assert next(read.read(0))["s"].to_pylist() == expected
    assert pa.types.is_dictionary(next(open_parquet([tmp_path / "0.parquet"]).with_dictionaries().read(0))["s"].type)


def test_types_are_unified_over_files(tmp_path: Path) -> None:
    first = write(tmp_path / "0.parquet", a=pa.array([1], pa.int32()), b=pa.nulls(1), c=pa.array([1], pa.int64()))
    second = write(tmp_path / "1.parquet", a=pa.array([2], pa.int64()), b=pa.array(["x"]), c=pa.array([0.5]))
    source = open_files([first, second])
    assert source.schema == pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.float64())])
    assert [batch.to_pylist()[0] for i in range(2) for batch in source.read(i)] == [
        {"a": 1, "b": None, "c": 1.0},
        {"a": 2, "b": "x", "c": 0.5},
    ]
    with pytest.raises(InputError, match=r"2\.parquet: column 'a' is string, but int64 in .*0\.parquet"):
        open_files([first, second, write(tmp_path / "2.parquet", a=["t"], b=["x"], c=[1.0])])


def test_a_schema_survives_examples(tmp_path: Path) -> None:
    source = open_parquet(
        [
            write(
                tmp_path / "in.parquet",
                t=pa.array([1, None], pa.timestamp("s", "UTC")),
                d=pa.array([1, None], pa.date32()),
                l=pa.array([[1], None], pa.large_list(pa.int64())),
                n=pa.nulls(2),
                b=pa.array([True, None]),
                k=pa.array([b"x", None]),
            )
        ]
    )
    LocalExecutor().map(source, None, sinks(tmp_path / "c", ["all"])).write(tmp_path / "c")
    assert open_examples(tmp_path / "c", "all").schema == source.schema
    assert next(open_examples(tmp_path / "c", "all").read(0)).to_pylist() == next(source.read(0)).to_pylist()


@pytest.fixture
def content(tmp_path: Path) -> Path:
    source = open_parquet([write(tmp_path / "in.parquet", a=[1, 2, 3], b=["x", "y", "z"])])
    LocalExecutor().map(source, None, sinks(tmp_path / "c", ["train"])).write(tmp_path / "c")
    return tmp_path / "c"


def test_unknown_names_are_answered_with_the_known_ones(content: Path) -> None:
    with pytest.raises(InputError, match="no split 'test'") as caught:
        open_examples(content, "test")
    assert caught.value.fix == "they have train"
    with pytest.raises(InputError, match="no column 'z'") as caught:
        open_examples(content, "train", ["z"])
    assert caught.value.fix == "the columns are: a, b"


def test_another_format_is_refused(content: Path) -> None:
    path = content / "manifest.json"
    body = json.loads(path.read_text())
    path.write_text(json.dumps({**body, "format": 99}))
    with pytest.raises(InputError, match="has format 99; this release reads 1"):
        splits(content)
    path.write_text("{")
    with pytest.raises(InputError, match="is damaged"):
        splits(content)
    path.write_text("[]")
    with pytest.raises(InputError, match="not a manifest of examples"):
        splits(content)
    path.unlink()
    with pytest.raises(InputError, match="holds no examples"):
        splits(content)


def test_a_truncated_or_missing_part_is_named(content: Path) -> None:
    part = content / "split=train/part-00000.parquet"
    data = part.read_bytes()
    part.write_bytes(data[:-5])
    with pytest.raises(InputError, match=r"part-00000\.parquet is \d+ bytes, not \d+"):
        open_examples(content, "train")
    part.unlink()
    with pytest.raises(InputError, match=r"part-00000\.parquet is missing"):
        open_examples(content, "train")


def test_manifests_of_several_passes_join(content: Path, tmp_path: Path) -> None:
    manifest = Manifest.read(content)
    other = Manifest((("eval", manifest.parts("train")),), manifest.schema)
    assert list(Manifest.joined([manifest, other]).rows) == ["train", "eval"]
    with pytest.raises(InputError, match="same name"):
        Manifest.joined([manifest, manifest])
    with pytest.raises(InputError, match="different columns"):
        Manifest.joined([manifest, Manifest(other.splits, (("q", "int64"),))])


def test_wrong_inputs_are_named(tmp_path: Path) -> None:
    (tmp_path / "cut.parquet").write_bytes(write(tmp_path / "x.parquet", a=[1, 2]).read_bytes()[:-9])
    (tmp_path / "notes.docx").write_text("x")
    write(tmp_path / "empty.parquet", a=pa.array([], pa.int64()))
    for names, message in (
        ([], "no input files"),
        (["gone.csv"], "gone.csv does not exist"),
        (["gone.parquet"], "gone.parquet does not exist"),
        (["."], "is a folder"),
        (["cut.parquet"], "cut.parquet: not a whole Parquet file"),
        (["notes.docx"], "not a kind of file"),
        (["empty.parquet"], "empty.parquet: no rows"),
    ):
        with pytest.raises(InputError, match=message) as caught:
            open_files([tmp_path / name for name in names])
        assert "\n" not in caught.value.message
        assert caught.value.fix
    (tmp_path / "x.csv").write_text("a\n1\n")
    with pytest.raises(InputError, match="mixes CSV and Parquet"):
        open_files([tmp_path / "x.csv", tmp_path / "x.parquet"])
