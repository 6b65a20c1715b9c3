"""Sources from what a person has at hand: frames, tables, data sets, paths and patterns."""

import pickle
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from drivetrain.data import Source, statistics
from drivetrain.data.reading.source_of import source_of
from drivetrain.errors import InputError


def rows(source: Source) -> list[dict[str, Any]]:
    return [row for shard in range(len(source.shards)) for batch in source.read(shard) for row in batch.to_pylist()]


def types(source: Source) -> dict[str, str]:
    return {field.name: str(field.type) for field in source.schema}


def frame() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "n": [1, 2, 3],
            "x": [0.5, np.nan, np.inf],
            "s": ["a", None, "ü"],
            "c": pd.Categorical(["u", "v", "u"]),
            "t": pd.to_datetime(["2013-01-02", None, "2013-01-02T05:00"], utc=True, format="ISO8601"),
            "l": [[1, 2], [], None],
            "i": pd.array([1, None, 2**62], dtype="Int64"),
            7: [True, False, True],
        }
    )


def test_a_frame_gives_its_values() -> None:
    source = source_of(frame())
    kinds = types(source)
    assert kinds.pop("t").startswith("timestamp[")
    assert kinds == {
        "n": "int64",
        "x": "double",
        "s": "string",
        "c": "string",
        "l": "list<element: int64>",
        "i": "int64",
        "7": "bool",
    }
    read = rows(source)
    assert read[0] == {
        "n": 1,
        "x": 0.5,
        "s": "a",
        "c": "u",
        "t": datetime(2013, 1, 2, tzinfo=UTC),
        "l": [1, 2],
        "i": 1,
        "7": True,
    }
    assert read[1] == {"n": 2, "x": None, "s": None, "c": "v", "t": None, "l": [], "i": None, "7": False}
    assert read[2]["x"] == np.inf
    assert read[2]["i"] == 2**62


def test_a_series_with_a_name_is_a_column() -> None:
    series = frame()["x"]
    assert rows(source_of(series)) == rows(source_of(series.to_frame()))


def test_an_index_with_a_name_is_a_column() -> None:
    table = pd.DataFrame({"a": [1, 2]}, index=pd.Index(["x", "y"], name="key"))
    assert rows(source_of(table)) == [{"key": "x", "a": 1}, {"key": "y", "a": 2}]
    assert source_of(table.rename_axis(None)).columns == ("a",)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (pd.DataFrame({"ok": [1, 2], "m": [1, "x"]}), "column 'm' is not a column of one type"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "two columns are named 'a'"),
        (pd.DataFrame([[1, 2]], columns=["1", 1]), "two columns are named '1'"),
        (pd.DataFrame({"big": [2**70, 1]}), "column 'big' is not a column of one type"),
        (pd.DataFrame({"a": []}), "no rows"),
        (pa.table({"a": pa.array([], pa.int64())}), "no rows"),
        (pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]), "two columns are named 'a'"),
        (7, "'int' cannot be read as rows"),
        ([], "'list' cannot be read as rows"),
        ("nowhere/*.csv", "no file matches"),
        ("nowhere.csv", "does not exist"),
    ],
)
def test_what_cannot_be_read_is_an_error(bad: object, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        source_of(bad)
    assert caught.value.fix


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (pd.Series([1, 2]), 'has no name for its column\n  fix: name it, e.g. series.rename("mass")'),
        (pa.chunked_array([[1, 2]]), "a ChunkedArray has no columns with names"),
    ],
)
def test_a_column_without_a_name_is_an_error(bad: object, message: str) -> None:
    with pytest.raises(InputError) as caught:
        statistics(bad)
    assert message in str(caught.value)


def test_tables_batches_readers_and_streams() -> None:
    table = pa.table({"a": [1, None, 3], "b": pa.array(["x", "y", None]).dictionary_encode()})
    expected = table.to_pylist()

    class Stream:
        def __arrow_c_stream__(self, schema: object = None) -> object:
            return table.__arrow_c_stream__(schema)

    for data in (table, table.combine_chunks().to_batches()[0], table.to_reader(), Stream()):
        source = source_of(data)
        assert rows(source) == expected
        assert types(source) == {"a": "int64", "b": "string"}
    assert source_of(source) is source


def test_a_table_is_cut_into_shards_that_travel_alone() -> None:
    table = pa.table({"a": range(200_000), "b": pa.array(["x" * 20] * 200_000, pa.large_string())})
    source = source_of(table)
    assert [shard.rows for shard in source.shards] == [65536, 65536, 65536, 3392]
    assert len(pickle.dumps(source.shards[3])) < 200_000
    again = pickle.loads(pickle.dumps(source))
    assert rows(again.select(["a"])) == rows(source.select(["a"])) == table.select(["a"]).to_pylist()


def test_a_data_set_has_its_partitions_as_columns(tmp_path: Path) -> None:
    table = pa.table({"a": [1, 2, 3, 4], "year": [2013, 2014, 2013, 2014]})
    ds.write_dataset(table, tmp_path, format="parquet", partitioning=["year"], partitioning_flavor="hive")
    source = source_of(ds.dataset(tmp_path, partitioning="hive"))
    assert sorted((row["year"], row["a"]) for row in rows(source)) == [(2013, 1), (2013, 3), (2014, 2), (2014, 4)]
    assert len(source.shards) == 2
    assert rows(pickle.loads(pickle.dumps(source))) == rows(source)
    Path(source.shards[0].path).write_bytes(b"PAR1")
    with pytest.raises(InputError, match="cannot be read"):
        rows(source)
    with pytest.raises(InputError, match="cannot be read"):
        source_of(ds.dataset(tmp_path, partitioning="hive", schema=table.schema))


def test_paths_patterns_and_lists(tmp_path: Path) -> None:
    for number in (10, 9):
        (tmp_path / f"{number}.csv").write_text(f"a\n{number}\n")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "x.parquet")
    assert rows(source_of(tmp_path / "9.csv")) == [{"a": 9}]
    assert rows(source_of(str(tmp_path / "*.csv"))) == [{"a": 10}, {"a": 9}]
    assert rows(source_of([tmp_path / "9.csv", str(tmp_path / "10.csv")])) == [{"a": 9}, {"a": 10}]
    assert rows(source_of(str(tmp_path / "x.parquet"))) == [{"a": 1}]


def test_statistics_of_a_frame_equal_those_of_its_parquet(tmp_path: Path) -> None:
    table = frame().drop(columns=["l"])
    table.columns = table.columns.astype(str)
    with warnings.catch_warnings(action="ignore"):  # pyarrow 25 uses what pandas 3.1 deprecates
        table.to_parquet(tmp_path / "x.parquet")
    ours, files = statistics(source_of(table)), statistics(source_of(tmp_path / "x.parquet"))
    assert ours.to_json() == files.to_json()


def test_statistics_take_what_a_source_is_made_of(tmp_path: Path) -> None:
    table = frame()[["n", "x", "s"]]
    table.to_csv(tmp_path / "x.csv", index=False)
    found = statistics({"frame": table, "file": str(tmp_path / "*.csv")})
    assert [dataset["name"] for dataset in found.document["datasets"]] == ["frame", "file"]
    assert found.to_json() == statistics({"frame": source_of(table), "file": source_of(tmp_path / "x.csv")}).to_json()
    assert statistics(table).document["datasets"][0]["rows"] == 3


def test_a_series_is_a_frame_of_one_column() -> None:
    assert rows(source_of(pd.Series([1, None], name="n"))) == [{"n": 1.0}, {"n": None}]


def test_columns_by_name() -> None:
    columns: dict[str, Any] = {
        "list": [1, 2, np.nan],
        "texts": ["a", np.nan, pd.NA],
        "numpy": np.array([1, 2, 3], ">i2"),
        "masked": np.ma.masked_array([1, 2, 3], [False, True, False]),
        "objects": np.array([True, None, np.nan], object),
        "days": np.array(["2024-02-01", "NaT", "2024-02-03"], "datetime64[ms]"),
        "vectors": np.arange(6.0).reshape(3, 2),
        "arrow": pa.array([1, None, 3]),
        "chunks": pa.chunked_array([[1], [2, 3]]),
        "series": pd.Series([1, None, 3], dtype="Int64"),
        "index": pd.Index(["x", "y", "z"]),
        "category": pd.Categorical(["u", None, "u"]),
    }
    read = pd.DataFrame(rows(source_of(columns)))
    wanted = pd.DataFrame({**columns, "vectors": columns["vectors"].tolist(), "chunks": [1, 2, 3]})
    for name in columns:
        if name == "vectors":
            assert list(read[name]) == list(wanted[name])
        else:
            assert [None if pd.isna(value) else value for value in read[name]] == [
                None if pd.isna(value) else value for value in wanted[name]
            ], name
    assert statistics({"train": columns, "eval": columns}).splits == {"train": 3, "eval": 3}


@pytest.mark.parametrize(
    ("data", "says", "fix"),
    [
        ({"a": [1], "b": [1, 2]}, "column 'b' has 2 values, 'a' has 1", "a value for each row"),
        ({"a": [1, "x"]}, "column 'a' is not a column of one type", "one type"),
        (pd.DataFrame({"a": [1, "x", None]}), "column 'a' is not a column of one type", "frame['a'].astype('string')"),
        ({"a": 1}, "1 is not a list or array; one row of values goes to run_row", "a list"),
        ({"a": "text"}, "'text' is not a list or array", "a list"),
        (np.arange(3), "'ndarray' cannot be read as rows", "pyarrow.table({name: values})"),
        (pa.chunked_array([[1]]), "a ChunkedArray has no columns with names", "pa.table"),
        ([1, 2], "'list' cannot be read as rows", "pyarrow.table"),
    ],
)
def test_what_is_no_table_is_told(data: object, says: str, fix: str) -> None:
    with pytest.raises(InputError) as caught:
        source_of(data)
    assert says in caught.value.message
    assert fix in str(caught.value.fix)
