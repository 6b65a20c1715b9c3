"""A schema of a CSV against what pandas makes of the very file: no type error is pandas' own, and none is hidden."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from drivetrain import data
from drivetrain.data import Anomalies, Feature, Schema
from hypothesis import given
from hypothesis import strategies as st

ROWS = 60
TIMES = ["day", "day_gaps", "time", "time_gaps", "zoned", "zoned_gaps"]


@pytest.fixture(scope="module")
def csv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A column of every type that a CSV has, each also with gaps."""
    path = tmp_path_factory.mktemp("csv") / "data.csv"
    kinds: dict[str, Callable[[int], str]] = {
        "whole": str,
        "real": lambda row: f"{row}.5",
        "truth": lambda row: str(row % 3 == 0),
        "word": lambda row: f"w{row % 5}",
        "day": lambda row: f"2024-02-{row % 28 + 1:02}",
        "time": lambda row: f"2024-02-{row % 28 + 1:02} 10:00:{row:02}",
        "zoned": lambda row: f"2024-02-{row % 28 + 1:02}T10:00:{row:02}Z",
    }
    columns = {name: [text(row) for row in range(ROWS)] for name, text in kinds.items()}
    gaps = {f"{name}_gaps": ["" if row % 7 == 3 else text for row, text in enumerate(texts)]
            for name, texts in columns.items()}  # fmt: skip
    both = {**columns, **gaps, "nothing": [""] * ROWS}
    lines = [",".join(both), *(",".join(cells) for cells in zip(*both.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def schema(csv: Path) -> Schema:
    return data.infer_schema(data.statistics(csv))


READS: dict[str, Callable[[Path], pd.DataFrame]] = {
    "as it comes": pd.read_csv,
    "nullable": lambda path: pd.read_csv(path, dtype_backend="numpy_nullable"),
    "arrow": lambda path: pd.read_csv(path, dtype_backend="pyarrow"),
    "converted": lambda path: pd.read_csv(path).convert_dtypes(),
    "dates": lambda path: pd.read_csv(path, parse_dates=TIMES),
    "objects": lambda path: pd.read_csv(path).astype(object),
    "categories": lambda path: pd.read_csv(path).astype("category"),
    "narrow": lambda path: pd.read_csv(path).astype({"whole": "uint8", "whole_gaps": "float32", "real": "float32"}),
    "NA": lambda path: pd.read_csv(path).astype(object).where(lambda frame: frame.notna(), pd.NA),
    "Python's engine": lambda path: pd.read_csv(path, engine="python"),
}


@pytest.mark.parametrize("read", READS)
def test_a_frame_of_the_file_passes(csv: Path, schema: Schema, read: str) -> None:
    frame = READS[read](csv)
    anomalies = data.validate(frame, schema)
    assert anomalies.anomalies == (), anomalies.document
    assert data.update_schema(schema, frame).changes == ()
    whole = [note for note in anomalies.notes if "count as int" in note]
    arrow = "float" if read == "narrow" else "double"
    assert whole == [
        f"whole_gaps is float ({arrow}) with whole numbers only, which count as int"
    ] * (read not in ("nullable", "arrow", "converted"))  # fmt: skip
    texts = [name for name in TIMES if any(note.startswith(f"{name} is text") for note in anomalies.notes)]
    assert texts == ([] if read == "dates" else TIMES)


def test_what_is_accepted_is_said(csv: Path, schema: Schema, tmp_path: Path) -> None:
    anomalies = data.validate(pd.read_csv(csv), schema)
    assert anomalies.passed
    assert "whole_gaps is float (double) with whole numbers only" in repr(anomalies)
    anomalies.save(tmp_path / "anomalies.json")
    assert Anomalies.load(tmp_path / "anomalies.json").notes == anomalies.notes == anomalies.with_rows({}).notes
    assert "zoned_gaps is text that reads as timestamp" in anomalies.to_html()
    assert "notes" not in data.validate(csv, schema).document  # as it was before there were notes


@pytest.mark.parametrize(
    ("name", "values", "says"),
    [
        ("whole_gaps", [1.0, 2.0**53 + 2], "9007199254740994.0 is beyond 2^53"),
        ("whole_gaps", ["1", "2"], "all that data has of it can be read as int"),
        (
            "day",
            pd.to_datetime(["2024-02-01", "2024-02-01 00:01"], format="mixed"),
            "day is timestamp, the schema says",
        ),
        ("word", [1, 2], "word is int, the schema says string"),
        ("truth", [0, 1], "truth is int, the schema says bool"),
    ],
)
def test_what_is_wrong_stays_wrong(schema: Schema, name: str, values: Any, says: str) -> None:
    feature = schema.feature(name)
    table = pa.table({name: pa.array(values)})  # not from pandas: NaN would be missing
    anomalies = data.validate(table, Schema((feature,)))
    anomaly = next(anomaly for anomaly in anomalies.anomalies if anomaly.type == "UNEXPECTED_DATA_TYPE")
    assert says in anomaly.message
    assert f"column_types={{{name!r}: " in anomaly.fix
    assert anomalies.notes == ()


@pytest.mark.parametrize("values", [[1.0, 336.5, None], [1.0, np.inf]])
def test_what_no_reader_could_make_whole_is_for_the_schema_to_say(values: list[Any]) -> None:
    schema = Schema((data.Feature("price", "int"),))
    (anomaly,) = data.validate(pa.table({"price": pa.array(values)}), schema).anomalies
    assert anomaly.fix == "correct these values, or write `type: float` for price in the schema"


@pytest.mark.parametrize(
    ("name", "values", "odd"),
    [
        ("whole_gaps", ["1", "x", "2"], ["x"]),
        ("half", ["1.5", "1_000", " 2 ", "-inf"], ["1_000"]),
        (
            "day",
            ["2024-02-01", "20240131", "2024-02-01 00:00", "2024-02-02", "2024-02-30", "2024-02-03"],
            ["20240131", "2024-02-01 00:00", "2024-02-30"],
        ),
        ("time", ["2024-02-01 10:00", "2024-02-01T10:00:01.5", "2024-02-03", "soon"], ["soon"]),
        ("truth", ["TRUE", "false", "yes", "true"], ["yes"]),
    ],
)
def test_texts_that_no_cell_of_the_type_is_are_quoted(
    schema: Schema, name: str, values: list[str], odd: list[str]
) -> None:
    named = schema.find_feature(name)
    feature = Feature(name, "float" if named is None else named.type)
    table, wanted = pa.table({name: pa.array([*values, None]).dictionary_encode()}), Schema((feature,))
    (anomaly,) = data.anomalous_rows(table, data.validate(table, wanted), wanted).anomalies
    assert sorted(item["value"] for item in anomaly.values) == sorted(odd)
    assert [row["values"][name] for row in anomaly.rows] == [value for value in values if value in odd]
    assert "cannot be read as " + feature.type in anomaly.message
    assert all(f'"{text}"' in anomaly.fix for text in odd)
    assert 'null_values=["", "NA", ' in anomaly.fix


def test_texts_of_another_type_throughout_are_not_taken_for_missing_values(schema: Schema) -> None:
    feature = schema.feature("truth")
    (anomaly,) = data.validate(pa.table({"truth": ["yes", "no", "no"]}), Schema((feature,))).anomalies
    assert anomaly.message == "truth is string, the schema says bool; 'no' (2), 'yes' (1) cannot be read as bool"
    assert anomaly.fix == "write truth as bool, or change its type in the schema"


def test_rows_that_are_not_whole_are_quoted() -> None:
    frame = pd.DataFrame({"n": [1.0, None, 2.5, 3.0]})
    schema = Schema((Feature("n", "int"),))
    anomalies = data.anomalous_rows(frame, data.validate(frame, schema), schema)
    assert [row["row"] for row in anomalies.anomalies[0].rows] == [2]


@given(st.lists(st.none() | st.floats(width=32) | st.integers(-(2**60), 2**60).map(float), min_size=1, max_size=30))
def test_floats_are_integers_where_no_integer_is_in_doubt(values: list[float | None]) -> None:
    anomalies = data.validate(pa.table({"n": pa.array(values, pa.float64())}), Schema((Feature("n", "int"),)))
    present = [value for value in values if value is not None]
    wanted = all(value.is_integer() and abs(value) <= 2**53 for value in present)
    assert anomalies.passed == wanted
    assert bool(anomalies.notes) == (wanted and bool(present))


@pytest.mark.parametrize("odd", [None, 0.25])
def test_so_does_a_column_that_is_too_varied_for_a_table(odd: float | None, tmp_path: Path) -> None:
    numbers = np.arange(3000.0)
    if odd is not None:
        numbers[2999] = odd
    schema = Schema((Feature("n", "int"),))
    statistics = data.statistics(pa.table({"n": numbers}), limit=100)
    assert statistics.column("data", "n").sketches is not None
    statistics.save(tmp_path)
    other = data.statistics(pa.table({"n": np.arange(5000.0, 5050.0)}), limit=100)
    for measured in (statistics, data.Statistics.load(tmp_path), statistics.merge(other), other.merge(statistics)):
        assert data.validate(measured, schema).passed == (odd is None)


@pytest.mark.parametrize(
    ("write", "left_out"),
    [
        (lambda frame, path: frame.to_csv(path), True),
        (lambda frame, path: frame.to_csv(path, index=False), False),
        (lambda frame, path: frame[frame.whole > 9].to_csv(path), True),
        (lambda frame, path: frame.set_index(frame.word + frame.whole.astype(str)).to_csv(path, sep=";"), True),
        (lambda frame, path: frame.set_index([frame.index, frame.index]).rename_axis([None, None]).to_csv(path), True),
    ],
    ids=["index", "no index", "a part", "an index of text", "an index of two levels"],
)
def test_a_file_that_pandas_wrote_passes(
    csv: Path, schema: Schema, tmp_path: Path, write: Callable[[pd.DataFrame, Path], None], left_out: bool
) -> None:
    again = tmp_path / "again.csv"
    write(pd.read_csv(csv), again)
    notes: list[str] = []
    assert data.open_files([again], note=notes.append).columns == data.open_files([csv]).columns
    assert any("has no name and is left out" in note for note in notes) == left_out
    relaxed = Schema(tuple(Feature(spec.name, spec.type) for spec in schema.features))
    for rows in (again, pd.read_csv(again, sep=None, engine="python")):
        anomalies = data.validate(rows, relaxed)
        assert anomalies.anomalies == (), anomalies.document
        assert any("whole_gaps is float" in note for note in anomalies.notes)


def test_an_index_that_came_back_as_a_column_is_left_out(csv: Path, schema: Schema, tmp_path: Path) -> None:
    pd.read_csv(csv).to_csv(tmp_path / "again.csv")
    frame = pd.read_csv(tmp_path / "again.csv")
    assert frame.columns[0] == "Unnamed: 0"
    anomalies = data.validate(frame, schema)
    assert anomalies.passed
    assert "Unnamed: 0 is left out: the index that pandas wrote into a file" in anomalies.notes
    moved = frame[[*frame.columns[1:], frame.columns[0]]]
    assert [anomaly.type for anomaly in data.validate(moved, schema).anomalies] == ["SCHEMA_NEW_COLUMN"]


def test_integers_are_compared_with_the_floats_that_pandas_makes_of_them(csv: Path, schema: Schema) -> None:
    drift = {"jensen_shannon": 0.1}
    bounded = Schema(tuple(Feature(spec.name, spec.type, drift=drift if spec.name in ("whole_gaps", "day") else {})
                           for spec in schema.features))  # fmt: skip
    frame = pd.read_csv(csv)
    for current, previous in ((frame, csv), (csv, frame), (frame, frame)):
        assert data.validate(current, bounded, previous=previous).anomalies == ()


def test_pandas_has_nothing_to_warn_of(csv: Path, schema: Schema) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data.validate(pd.read_csv(csv, parse_dates=TIMES), schema)
