"""Times, decimals, codes and vectors as raw columns; parts of the calendar are Arrow's and datetime's."""

import datetime as dt
import decimal
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from drivetrain.engine import Bundle, ops
from drivetrain.engine.host_ops.columns import as_column, as_value
from drivetrain.engine.host_ops.dates import PARTS, UNITS, from_milliseconds, time_of, time_type
from drivetrain.engine.host_ops.kernels import host_op
from drivetrain.errors import InputError
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.engine

TIMES = st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2250, 1, 1))
ARROWS: dict[str, Any] = {
    "year": pc.year, "month": pc.month, "day": pc.day, "day_of_week": pc.day_of_week, "day_of_year": pc.day_of_year,
    "hour": pc.hour, "minute": pc.minute, "second": pc.second,
    "second_of_day": lambda x: pc.seconds_between(pc.floor_temporal(x, unit="day"), x),
    "days": lambda x: pc.floor_temporal(x, unit="day").cast(pa.date32()).cast(pa.int32()),
}  # fmt: skip


@given(st.lists(st.none() | TIMES, max_size=8), st.sampled_from(["ms", "us", "ns"]), st.sampled_from([None, "UTC"]))
def test_numbers_are_times_again(times: list[dt.datetime | None], unit: str, zone: str | None) -> None:
    moments = [None if time is None else time.replace(microsecond=time.microsecond // 1000 * 1000) for time in times]
    numbers = pa.array([None if time is None else as_value(time, "int64", "t") for time in moments], pa.int64())
    kind = pa.timestamp(unit, zone)
    assert time_type(time_of(kind)) == kind
    expected = pa.array(moments, pa.timestamp("us")).cast(pa.timestamp(unit)).cast(kind)
    assert from_milliseconds(numbers, kind).equals(expected)
    days = [None if time is None else time.date() for time in moments]
    assert from_milliseconds(numbers, pa.date32()).to_pylist() == days
    lists = pa.ListArray.from_arrays([0, len(numbers), len(numbers)], numbers)
    assert from_milliseconds(lists, pa.list_(pa.date32())).to_pylist() == [days, []]


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us"), pa.list_(pa.date32())])
@pytest.mark.parametrize("number", [2**63 - 1, -(2**63)])
def test_numbers_beyond_all_times_are_errors(kind: pa.DataType, number: int) -> None:
    numbers = pa.array([None, [0, number]]) if pa.types.is_list(kind) else pa.array([0, None, number])
    with pytest.raises(pa.ArrowInvalid):
        from_milliseconds(numbers, kind)


@given(st.lists(st.none() | TIMES, min_size=1, max_size=8), st.sampled_from(["ms", "us", "ns"]))
def test_parts_are_arrows(times: list[dt.datetime | None], unit: str) -> None:
    column = pa.array(times, pa.timestamp("us")).cast(pa.timestamp(unit), safe=False)
    entered = as_column(column, "int64", "t")
    for part, oracle in ARROWS.items():
        kernels = host_op("timestamp_part")
        params = {"part": part, "unit": "ms"}
        found = kernels.batch(params, ())(entered)
        wanted = oracle(entered.cast(pa.timestamp("ms"))).cast(pa.int64())
        assert found.to_pylist() == wanted.to_pylist(), part
        assert [kernels.row(params, ())(value) for value in entered.to_pylist()] == wanted.to_pylist(), part
    assert ARROWS.keys() == PARTS.keys()


@given(TIMES, st.integers(-12, 12))
def test_a_rows_time_is_the_columns(time: dt.datetime, zone: int) -> None:
    (wanted,) = as_column(pa.array([time], pa.timestamp("us")), "int64", "t").to_pylist()
    aware = time.replace(tzinfo=dt.UTC).astimezone(dt.timezone(dt.timedelta(hours=zone)))
    assert as_value(time, "int64", "t") == as_value(aware, "int64", "t") == wanted
    assert as_value(np.datetime64(time, "us"), "int64", "t") == wanted
    assert as_value(time.date(), "int64", "d") == as_column(pa.array([time.date()]), "int64", "d")[0].as_py()


def test_raw_columns_of_every_such_kind(learn: Any, tmp_path: Path) -> None:
    times = [dt.datetime(2013, 1, 1, 23, 59, 59, 999999), None, dt.datetime(1969, 12, 31, 12), dt.datetime(2024, 2, 29)]

    def fn(c: Any) -> Any:
        return {
            "hour": ops.fill_missing(ops.timestamp_part(c["t"], "hour"), -1),
            "weekday": ops.vocabulary(ops.timestamp_part(c["zoned"], "day_of_week")),
            "month": ops.timestamp_part(c["day"], "month") * 1.0,
            "age": ops.z_score(ops.timestamp_part(c["day"], "days")),
            "cycle": ops.timestamp_cycle(c["t"], "hour"),
            "unix": ops.timestamp_part(c["seconds"], "year", unit="s"),
            "price": ops.z_score(c["price"]), "code": ops.vocabulary(c["code"]),
        }  # fmt: skip

    prices = [decimal.Decimal("1.50"), None, decimal.Decimal("-2.25"), decimal.Decimal("0.75")]
    bundle, out = learn(
        fn, t=pa.array(times, pa.timestamp("us")), zoned=pa.array(times, pa.timestamp("ms", "Europe/Oslo")),
        day=pa.array([None if time is None else time.date() for time in times], pa.date32()),
        seconds=pa.array([0, 10**9, -1, 2 * 10**9]), price=pa.array(prices, pa.decimal128(8, 2)),
        code=pa.array([7, 8, 7, None]).dictionary_encode(),
    )  # fmt: skip
    assert out["hour"].tolist() == [23, -1, 12, 0]
    np.testing.assert_array_equal(out["month"], [1, np.nan, 12, 2])
    assert out["unix"].tolist() == [1970, 2001, 1969, 2033]
    angle = 2 * np.pi * np.array([23, np.nan, 12, 0]) / 24
    np.testing.assert_allclose(out["cycle"], np.stack([np.sin(angle), np.cos(angle)], -1), atol=1e-6)
    numbers = np.array([1.5, np.nan, -2.25, 0.75])
    np.testing.assert_allclose(out["price"], (numbers - np.nanmean(numbers)) / np.nanstd(numbers), rtol=1e-6)
    assert out["code"].tolist() == [0, 1, 0, 3]
    days = np.array([np.nan if time is None else (time.date() - dt.date(1970, 1, 1)).days for time in times])
    np.testing.assert_allclose(out["age"], (days - np.nanmean(days)) / np.nanstd(days), rtol=1e-5)
    bundle.save(tmp_path / "bundle")
    loaded = Bundle.load(tmp_path / "bundle")
    row = {"t": 0, "zoned": None, "day": dt.date(2013, 1, 1), "seconds": 0, "price": 1, "code": 8}
    assert loaded.run_row("transform", row)["hour"] == 0


def test_the_page_lists_every_part_and_unit() -> None:
    page = (Path(__file__).parents[3] / "docs" / "transform.md").read_text("utf-8")
    times = page.partition("### Times")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:4] for line in times.splitlines() if line.startswith("| `")]
    cycles = {name: cycle.strip() == "yes" for names, _, cycle in rows for name in re.findall(r"`(\w+)`", names)}
    assert cycles == {name: period is not None for name, (_, _, period) in PARTS.items()}
    assert set(UNITS) == set(re.findall(r'`"(\w+)"`', times))


def test_mistakes_with_times(learn: Any) -> None:
    column = {"t": pa.array([dt.datetime(2013, 1, 1)]), "f": [1.5], "n": [2**62], "text": ["a"]}
    for fn, message in (
        (lambda c: {"y": ops.timestamp_part(c["t"], "century")}, "no part 'century' of a time"),
        (lambda c: {"y": ops.timestamp_part(c["t"], "hour", unit="h")}, "timestamp_part: no unit 'h' of a time"),
        (lambda c: {"y": ops.timestamp_cycle(c["t"], "hour", unit="sec")}, "timestamp_cycle: no unit 'sec' of a time"),
        (lambda c: {"y": ops.timestamp_cycle(c["text"], "hour")}, "given to timestamp_cycle"),
        (lambda c: {"y": ops.timestamp_part(c["f"], "hour")}, "column 'f' is not a time"),
        (
            lambda c: {"y": ops.timestamp_part(c["n"], "day_of_week")},
            "'n' is of whole numbers, .*\n  fix: say by unit=",
        ),
        (lambda c: {"y": ops.timestamp_cycle(c["n"], "hour")}, "timestamp_cycle: column 'n' is of whole numbers"),
        (lambda c: {"y": ops.timestamp_cycle(c["t"], "year")}, "year does not come round"),
        (lambda c: {"y": ops.timestamp_part(c["n"], "year", unit="s")}, "is not a time in s since 1970"),
        (lambda c: {"y": ops.timestamp_cycle(c["n"], "hour", unit="s")}, "what the numbers count: ns, us, ms, s, days"),
    ):
        with pytest.raises(InputError, match=message) as caught:
            learn(fn, **column)
        assert "test_dates.py" in str(caught.value)


def test_a_fill_leaves_a_time_a_time(learn: Any) -> None:
    times = pa.array([dt.datetime(2013, 1, 1), None], pa.timestamp("us"))
    _, out = learn(lambda c: {"y": ops.timestamp_part(ops.fill_missing(c["t"], 0), "year")}, t=times)
    assert out["y"].tolist() == [2013, 1970]


def test_days_between_two_dates(learn: Any) -> None:
    """Subtracted as they are, times are refused, and the fix that the error names gives what datetime gives."""
    dates = [dt.date(2026, 1, 31), dt.date(2024, 3, 1), dt.date(1969, 12, 31)]
    booked = [dt.date(2026, 1, 1), dt.date(2024, 2, 28), dt.date(1970, 1, 1)]
    columns = {"date": pa.array(dates, pa.date32()), "booked": pa.array(booked, pa.date32())}
    fix = r"column 'date' is a time, 1769817600000 ms .*\n  fix: calculate with ops.timestamp_part\(x, \"days\"\)"
    with pytest.raises(InputError, match=fix):
        learn(lambda c: {"y": ops.fill_missing(c["date"] - c["booked"], 0)}, **columns)
    with pytest.raises(InputError, match="ms since 1970 in row 0, which does not fit"):
        learn(lambda c: {"y": ops.fill_missing(c["date"], 0)}, **columns)

    def lead(c: Any) -> Any:
        return {
            "y": ops.fill_missing(ops.timestamp_part(c["date"], "days") - ops.timestamp_part(c["booked"], "days"), 0)
        }

    bundle, out = learn(lead, **columns)
    days = [(date - before).days for date, before in zip(dates, booked, strict=True)]
    assert out["y"].tolist() == days
    rows = [{"date": date, "booked": before} for date, before in zip(dates, booked, strict=True)]
    assert [int(bundle.run_row("transform", row)["y"]) for row in rows] == days
