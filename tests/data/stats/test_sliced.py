"""Statistics of slices against pandas: which rows are in which, and that a slice is a data set of its own."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from drivetrain.data import drift, infer_schema, merge_statistics, statistics, validate
from drivetrain.data.stats.document import Statistics
from drivetrain.errors import InputError
from drivetrain.tests.data.flights import month

TABLE = pa.table(
    {
        "g": ["m", "f", "m", None, "f"],
        "x": [1, 2, 4, 9, 2],
        "tags": [["a", "b", "a"], [], ["b"], ["a"], None],
        "ok": [True, False, None, True, True],
    }
)


def test_each_value_each_cross_and_each_listed_value() -> None:
    measured = statistics(TABLE, slices=["g", ["g", "x"], {"x": [4, 7], "g": None}])
    assert measured.slices("data") == {
        "g=f": 2, "g=m": 2, "g=f, x=2": 2, "g=m, x=1": 1, "g=m, x=4": 1, "x=4, g=m": 1,
    }  # fmt: skip
    parts = {part["name"]: part for part in measured.document["datasets"][0]["slices"]}
    assert parts["g=m, x=1"]["key"] == [["g", "m"], ["x", 1]]
    assert next(f for f in parts["g=m"]["features"] if f["name"] == "x")["mean"]["value"] == 2.5


def test_a_list_is_in_the_slice_of_each_value_once() -> None:
    measured = statistics(TABLE, slices=["tags", {"tags": ["a"], "g": ["m"]}])
    assert measured.slices("data") == {"tags=a": 2, "tags=b": 2, "tags=a, g=m": 1}


def test_bytes_that_are_text_make_the_slices_of_the_text() -> None:
    raw = TABLE.set_column(0, "g", TABLE["g"].cast(pa.binary()))
    ours, texts = (statistics(table, slices=["g", {"g": ["m"], "x": None}]) for table in (raw, TABLE))
    assert ours.slices("data") == texts.slices("data")
    with pytest.raises(InputError, match="'g' of type binary has values that are not UTF-8"):
        statistics(pa.table({"g": [b"m", b"\xff"]}), slices=["g"])


def test_truths_and_numbers_are_not_mixed_up() -> None:
    assert statistics(TABLE, slices=["ok", {"ok": [True]}]).slices("data") == {"ok=False": 1, "ok=True": 3}
    with pytest.raises(InputError, match="asks for 'x' = '4', but the column is int64"):
        statistics(TABLE, slices=[{"x": ["4"]}])
    with pytest.raises(InputError, match="asks for 'x' = True"):
        statistics(TABLE, slices=[{"x": [True]}])


def test_flights_by_carrier_and_origin_as_pandas_groups_them() -> None:
    table = month(1)
    measured = statistics(table, slices=["carrier", ["origin", "carrier"]], columns=["dep_delay", "dest"])
    frame = table.to_pandas()
    expected = {f"carrier={key}": len(rows) for key, rows in frame.groupby("carrier")}
    expected |= {f"origin={a}, carrier={b}": len(rows) for (a, b), rows in frame.groupby(["origin", "carrier"])}
    assert measured.slices("data") == expected
    means = frame.groupby("carrier").dep_delay.mean()
    for key, mean in means.items():
        part = measured.of_slice("data", f"carrier={key}")
        feature = part.features(f"data [carrier={key}]")["dep_delay"]
        assert feature["mean"]["value"] == pytest.approx(mean)
        assert feature["missing"] == frame[frame.carrier == key].dep_delay.isna().sum()


@pytest.mark.slow
def test_a_slice_is_validated_and_compared_like_a_data_set(tmp_path: Path) -> None:
    january, june = (statistics(month(number), slices=["origin"]) for number in (1, 6))
    january.save(tmp_path)
    old = Statistics.load(tmp_path).of_slice("data", "origin=JFK")
    new = june.of_slice("data", "origin=JFK")
    schema = infer_schema(old)
    assert not [anomaly for anomaly in validate(old, schema).anomalies if anomaly.severity == "ERROR"]
    frames = [
        month(number).to_pandas().query("origin == 'JFK'").carrier.value_counts(normalize=True) for number in (1, 6)
    ]
    report = drift(new, old).to_json()
    distance = frames[1].sub(frames[0], fill_value=0).abs().max()
    assert f"{distance:.6f}"[:7] in report
    (tmp_path / "slice").mkdir()
    new.save(tmp_path / "slice")
    again = Statistics.load(tmp_path / "slice")
    assert again.state("data [origin=JFK]").to_bytes() == new.state("data [origin=JFK]").to_bytes()


def test_two_slices_of_one_name_do_not_mix() -> None:
    rows = pa.table({"c": ["AA", "AA, m=1", "AA, m=1"], "m": [1, 2, 2]})
    measured = statistics(rows, slices=[["c", "m"], "c"]).of_slice("data", "c=AA, m=1")
    assert (measured.splits, measured.state("data [c=AA, m=1]").rows) == ({"data [c=AA, m=1]": 1}, 1)


def test_slashes_in_a_slice_do_not_leave_the_folder(tmp_path: Path) -> None:
    part = statistics(pa.table({"p": ["../../a/b", "c"]}), slices=["p"]).of_slice("data", "p=../../a/b")
    part.save(tmp_path)
    assert [path.parent for path in tmp_path.rglob("*.bin")] == [tmp_path / "states"]
    assert Statistics.load(tmp_path).state("data [p=../../a/b]").rows == 1


def test_spans_merge_slice_by_slice() -> None:
    first, second = TABLE.slice(0, 2), TABLE.slice(2)
    merged = merge_statistics([statistics(part, slices=["g", "tags"]) for part in (first, second)])
    assert merged.to_json() == statistics(TABLE, slices=["g", "tags"]).to_json()


def test_slices_without_end_are_refused() -> None:
    with pytest.raises(InputError, match=r"slices by \[\['id'\]\] are more than 1,000"):
        statistics(pd.DataFrame({"id": range(1_001)}), slices=["id"])


def test_errors_name_what_there_is() -> None:
    with pytest.raises(InputError, match="no column 'h'") as caught:
        statistics(TABLE, slices=["h"])
    assert "g, x, tags, ok" in str(caught.value)
    with pytest.raises(InputError, match="has no slice 'g=x'") as caught:
        statistics(TABLE, slices=["g"]).of_slice("data", "g=x")
    assert "g=f; g=m" in str(caught.value)
    with pytest.raises(InputError, match="list the values"):
        statistics(TABLE, slices=[{"g": "m"}])
    assert statistics(TABLE, slices="g").slices("data") == {"g=f": 2, "g=m": 2}
