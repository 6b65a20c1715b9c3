"""Times that Python has no word for: beyond the years 1 to 9999, near the ends of 64 bits, dates of any 32 bits."""

from __future__ import annotations

from pathlib import Path

import drivetrain as dt
import drivetrain.data as data
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain.errors import InputError

LAST = 2**63 - 1
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
EXTREMES = {
    **{
        f"timestamp[{unit}, {zone}] {name}": pa.array([value, 0, None], pa.int64()).cast(pa.timestamp(unit, zone))
        for unit, each in PER_SECOND.items()
        for zone in (None, "Europe/Oslo")
        for name, value in {"last": LAST, "first": -LAST, "year 10000": 253402300800 * each}.items()
        if abs(value) <= LAST
    },
    **{f"duration[{unit}]": pa.array([LAST, 0, None], pa.int64()).cast(pa.duration(unit)) for unit in PER_SECOND},
    **{f"date32 {day}": pa.array([day, 0, None], pa.int32()).view(pa.date32())
       for day in (2**31 - 1, -(2**31), 3 * 10**6)},
    **{f"date64 {day}": pa.array([day * 86_400_000, 0, None], pa.int64()).view(pa.date64())
       for day in (10**11, 3 * 10**6)},
}  # fmt: skip
REFUSED = {f"timestamp[s, {zone}] {name}" for zone in (None, "Europe/Oslo") for name in ("last", "first")} | {
    "date64 100000000000"
}


@pytest.mark.parametrize("name", EXTREMES)
def test_extreme_times_are_described_or_refused(name: str, tmp_path: Path) -> None:
    """Every step either says something or raises its one error: no OverflowError, no ValueError."""
    extreme = EXTREMES[name]
    table = pa.table({"c": extreme, "many": pa.array([[each.value] if each.is_valid else None for each in extreme],
                                                     pa.list_(pa.int64())), "k": [1, 2, 3]})  # fmt: skip
    plain = pa.table({"c": pa.nulls(3, extreme.type), "many": table["many"], "k": [1, 2, 3]})
    if name in REFUSED:  # it has no place in the type that they are read as: seconds as milliseconds, days
        with pytest.raises(InputError, match="'c' cannot be read"):
            data.statistics(table)
        return
    described = data.statistics(table)
    pq.write_table(table, tmp_path / "x.parquet")
    assert described.to_html()
    assert data.diff_examples({"a": plain}, {"a": table}, key="k").to_html()
    assert data.statistics(data.source_of(tmp_path / "x.parquet")).to_json()
    schema = data.schema_from_yaml(data.schema_to_yaml(data.infer_schema(described)))
    for observed in (described, data.statistics(plain)):
        assert data.validate(observed, schema).to_html()
        assert data.drift(observed, described).to_html()


@pytest.mark.parametrize("name", EXTREMES)
def test_slices_of_extreme_times_have_names(name: str) -> None:
    columns = {"late": [0, 1, 1] * 20, "p": [0.1, 0.8, 0.4] * 20}
    table = pa.table({**columns, "c": pa.chunked_array([EXTREMES[name]] * 20)})
    if name in REFUSED:
        with pytest.raises(InputError, match="'c' cannot be read"):
            dt.evaluate(table, label="late", predictions="p", slices=[(), ("c",)])
        return
    frame = dt.evaluate(table, label="late", predictions="p", slices=[(), ("c",)]).frame()
    titles = sorted(set(frame["slice"]))
    assert len(titles) == 4  # overall, the extreme time, that of 0, and what is missing
    if name == "timestamp[us, None] last":
        assert f"c={LAST} (timestamp[us])" in titles


def test_a_column_of_lists_of_times_beyond_python() -> None:
    times = pa.array([[LAST // 10**6, None], None], pa.list_(pa.timestamp("s")))
    structs = pa.array([{"d": 2**31 - 1}, {"d": None}], pa.struct([("d", pa.int32())])).cast(
        pa.struct([("d", pa.date32())])
    )
    table = pa.table({"t": times, "s": structs, "k": [1, 2]})
    assert data.diff_examples({"a": table.slice(0, 1)}, {"a": table.slice(1)}, key="k").to_html()


def test_a_model_that_takes_a_dataframe_gets_no_times_beyond_python() -> None:
    """Of which pandas has none; a model of Arrow's columns never sees them."""
    days = pa.array([3 * 10**6, 0] * 20, pa.int32()).cast(pa.date32())
    table = pa.table({"late": [0, 1] * 20, "p": [0.2, 0.7] * 20, "day": days})
    assert len(dt.evaluate(table, label="late", predictions="p").frame())
    for judge in (
        lambda model: dt.evaluate(table, label="late", predictions=model),
        lambda model: dt.explain(table, model, label="late"),
    ):
        with pytest.raises(InputError, match="column 'day' cannot be pandas': year 10183 is out of range"):
            judge(lambda rows: rows["p"])
