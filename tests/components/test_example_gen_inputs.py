"""ExampleGen's inputs: every kind of file, splits that are there already, a column that names them, and the cache."""

from __future__ import annotations

import csv as python_csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain.components.example_gen import ExampleGen
from drivetrain.data import open_examples
from drivetrain.digest import digest_tree
from drivetrain.errors import InputError
from drivetrain.metadata import Examples
from drivetrain.pipelines import Home, RunOptions, load_pipeline, run_pipeline
from drivetrain.pipelines.project.context import LaunchContext, enter

TABLE = [{"n": i, "x": i / 4, "s": f"Nr. {i}", "fold": "ab"[i % 3 == 0]} for i in range(200)]


def by_split(examples: Examples) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for split in examples.rows:
        source = open_examples(examples.content, split)
        found[split] = [row for shard in source.shards for batch in source.read(shard) for row in batch.to_pylist()]
    return found


def write(folder: Path, kind: str, table: list[dict[str, Any]] = TABLE, name: str = "x") -> str:
    path = folder / f"{name}.{kind}"
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(table), path)
    elif kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in table))
    elif kind == "avro":
        fastavro = pytest.importorskip("fastavro")
        types = {"n": "long", "x": "double", "s": "string", "fold": "string"}
        fields = [{"name": name, "type": types[name]} for name in table[0]]
        with path.open("wb") as file:
            fastavro.writer(file, {"type": "record", "name": "row", "fields": fields}, table)
    else:
        with path.open("w", newline="") as text:
            writer = python_csv.DictWriter(text, table[0], delimiter="\t" if kind == "tsv" else ",")
            writer.writeheader()
            writer.writerows(table)
    return str(path)


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "avro"])
def test_every_kind_of_file_gives_the_same_splits(tmp_path: Path, kind: str) -> None:
    expected = by_split(ExampleGen(write(tmp_path, "parquet")))
    assert sum(map(len, expected.values())) == 200
    assert by_split(ExampleGen(write(tmp_path, kind))) == expected


@pytest.mark.beam
def test_the_same_bytes_on_beam(tmp_path: Path) -> None:
    pytest.importorskip("apache_beam")
    paths = [write(tmp_path, kind) for kind in ("jsonl", "avro", "tsv")]
    by_files = {"b": write(tmp_path, "csv", TABLE[:50], "1"), "a": write(tmp_path, "csv", TABLE[50:], "2")}

    def digests() -> list[str]:
        made = [ExampleGen(path) for path in paths]
        made += [ExampleGen(by_files), ExampleGen(paths[0], split_column="fold")]
        return [digest_tree(examples.content).fingerprint for examples in made]

    local = digests()
    leave = enter(LaunchContext(executor="beam"))
    try:
        assert digests() == local
    finally:
        leave()


def test_encoding_and_delimiter_are_passed_on(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes("name:n\nMüller:1\n".encode("latin-1"))
    examples = ExampleGen(str(path), splits={"all": 1}, encoding="latin-1", delimiter=":")
    assert by_split(examples) == {"all": [{"name": "Müller", "n": 1}]}
    with pytest.raises(InputError, match=r"delimiter: .* is Parquet, not CSV"):
        ExampleGen(write(tmp_path, "parquet"), delimiter=":")
    with pytest.raises(InputError, match="mixes CSV and Parquet"):
        ExampleGen(str(tmp_path / "x.*"))


def test_splits_that_are_there_already_share_one_schema(tmp_path: Path) -> None:
    write(tmp_path, "csv", [{"n": 1}, {"n": 2}], "a1")
    write(tmp_path, "csv", [{"n": 3}], "a2")
    write(tmp_path, "csv", [{"n": 0.5}], "b")
    examples = ExampleGen({"train": str(tmp_path / "a*.csv"), "eval": str(tmp_path / "b.csv")}, span=3)
    assert by_split(examples) == {"train": [{"n": 1.0}, {"n": 2.0}, {"n": 3.0}], "eval": [{"n": 0.5}]}
    assert (examples.rows, examples.span) == ({"train": 3, "eval": 1}, 3)


def test_a_column_names_the_splits(tmp_path: Path) -> None:
    found = by_split(ExampleGen(write(tmp_path, "parquet"), split_column="fold"))
    assert found == {name: [row for row in TABLE if row["fold"] == name] for name in ("a", "b")}
    numbers = [{"n": i, "x": 0.5, "s": "", "fold": i % 3} for i in range(9)]
    found = by_split(ExampleGen(write(tmp_path, "parquet", numbers), split_column="fold"))
    assert found == {str(name): [row for row in numbers if row["fold"] == name] for name in range(3)}


@pytest.mark.parametrize(
    ("folds", "message"),
    [
        (["a", None], "has no value of 'fold' in row 2"),
        (["a", "../b"], "'../b' cannot name a split"),
        ([str(i) for i in range(101)], "more than 100 splits"),
        ([0.5, 1.5], "'fold' is double"),
    ],
)
def test_a_column_that_cannot_name_splits(tmp_path: Path, folds: list[Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ExampleGen(write(tmp_path, "parquet", [{"fold": fold} for fold in folds]), split_column="fold")


def test_contradicting_splits_are_named(tmp_path: Path) -> None:
    path = write(tmp_path, "csv")
    given: list[tuple[dict[str, Any], str]] = [
        ({"data": {"a": path, "b": str(tmp_path / "*.csv")}}, "is in the splits 'a' and 'b'"),
        ({"data": {"a": 3}}, "the files of the split 'a' are 3"),
        ({"data": {}}, "there are no splits"),
        ({"data": {"../a": path}}, "cannot name a split"),
        ({"data": {"a": path}, "splits": {"x": 1}}, "given in more than one way"),
        ({"data": {"a": path}, "split_column": "fold"}, "given in more than one way"),
        ({"data": path, "split_by": "n", "split_column": "fold"}, "given in more than one way"),
        ({"data": path, "split_column": "nothing"}, "there is no column 'nothing'"),
    ]
    for arguments, message in given:
        with pytest.raises(InputError, match=message):
            ExampleGen(arguments.pop("data"), **arguments)


def test_files_by_split_are_found_and_keyed_by_content_in_a_run(tmp_path: Path, project: Callable[..., Path]) -> None:
    folder = project(
        "shop",
        pipeline="""
            import drivetrain as dt
            from drivetrain.components import ExampleGen

            @dt.pipeline
            def shop(test: str = "b.csv") -> None:
                ExampleGen({"train": "a*.csv", "eval": dt.files("b.csv"), "test": test})
            """,
    )
    for name, value in (("a1", 1), ("a2", 2), ("b", 3), ("c", 4)):
        write(folder, "csv", [{"n": value}], name)
    home = Home(tmp_path / "home" / ".drivetrain")
    pipeline = load_pipeline(folder)
    states = []
    for value in (4, 4, 5):
        write(folder, "csv", [{"n": value}], "c")
        result = run_pipeline(home, pipeline, {"test": "c.csv"}, RunOptions())
        (node,) = result.nodes.values()
        states.append(node.state)
    home.close()
    assert states[0] == states[2] != states[1]
