"""`MetricSeries`: whatever way predictions and labels come, a window has the numbers of an evaluation of its rows."""

from __future__ import annotations

import resource
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import ExitStack
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import drivetrain as dt
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from drivetrain.components.evaluation import EvaluationConfig, Slice, Threshold, metric
from drivetrain.components.evaluation.series import BatchOutcome, MetricSeries
from drivetrain.errors import DrivetrainError, InputError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

DAY = timedelta(days=1)
CONFIG = EvaluationConfig(label="late", prediction="p", slices=[["carrier"]], metrics=["auc", "log_loss", "precision"])


def flights(rows: int = 600, seed: int = 0, days: int = 3) -> pd.DataFrame:
    dice = np.random.default_rng(seed)
    late = dice.integers(0, 2, rows)
    seconds = np.sort(dice.integers(0, days * 86_400, rows))
    return pd.DataFrame(
        {
            "id": dice.permutation(rows),
            "at": pd.Timestamp("2026-01-05", tz="UTC") + pd.to_timedelta(seconds, unit="s"),
            "p": np.clip(late * 0.3 + dice.random(rows) * 0.7, 0, 1),
            "carrier": dice.choice(["AA", "UA", "DL"], rows),
            "w": dice.random(rows),
            "late": late,
        }
    )


def series(folder: Path, config: EvaluationConfig = CONFIG, **settings: Any) -> MetricSeries:
    options: dict[str, Any] = {"key": "id", "time": "at", "window": DAY, "wait": 7 * DAY}
    return MetricSeries(folder, config, **options | settings)


def batch_values(rows: pd.DataFrame, config: EvaluationConfig) -> dict[tuple[str, str], Any]:
    """What `drivetrain.evaluate` gives: (slice, metric) → value, or why there is none."""
    result = dt.evaluate(
        rows, label="late", predictions="p", slices=config.slices, metrics=config.metrics, weight=config.weight,
        task=config.task,
    ).frame()  # fmt: skip
    return values_of(result)


def values_of(frame: pd.DataFrame) -> dict[tuple[str, str], Any]:
    return {
        (row.slice, row.metric): row.undefined if pd.notna(row.undefined) else row.value for row in frame.itertuples()
    }


def check_equal(measured: MetricSeries, rows: pd.DataFrame, length: timedelta = DAY) -> None:
    """Each window of the series has, to the bit, what an evaluation of its rows has."""
    frame = measured.frame(None if length == measured.window else length)
    starts = rows["at"].dt.floor(length)
    assert set(frame["start"]) == set(starts)
    for start, window in frame.groupby("start"):
        assert values_of(window) == batch_values(rows[starts == start], measured.config)


def test_labels_that_come_later_give_the_numbers_of_a_batch(tmp_path: Path) -> None:
    rows = flights()
    measured = series(tmp_path)
    assert measured.add_predictions(rows.drop(columns="late")) == BatchOutcome(waiting=600)
    assert measured.frame().empty
    labels = rows.sample(frac=1, random_state=3)[["id", "late"]]
    assert measured.add_labels(labels[:400]) == BatchOutcome(judged=400)
    check_equal(measured, rows[rows["id"].isin(labels["id"][:400])])
    assert measured.add_labels(labels) == BatchOutcome(judged=200, repeated=400)
    check_equal(measured, rows)
    check_equal(MetricSeries(tmp_path), rows)  # opened anew
    assert (measured.windows()["judged"] == rows.groupby(rows["at"].dt.floor("1D")).size().to_numpy()).all()
    assert "600 predictions, 600 of them with labels" in repr(measured)


@given(
    seed=st.integers(0, 1000),
    cuts=st.lists(st.integers(0, 60), max_size=6),
    label_cuts=st.lists(st.integers(0, 60), max_size=6),
    order=st.randoms(use_true_random=False),
)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_parts_in_any_order_sent_twice_give_the_same(
    tmp_path_factory: pytest.TempPathFactory, seed: int, cuts: list[int], label_cuts: list[int], order: Any
) -> None:
    rows = flights(60, seed)
    measured = series(tmp_path_factory.mktemp("series"))
    parts: list[tuple[Any, pd.DataFrame]] = []
    for method, table, at in (
        (measured.add_predictions, rows.drop(columns="late"), cuts),
        (measured.add_labels, rows.sample(frac=1, random_state=seed)[["id", "late"]], label_cuts),
    ):
        ends = [0, *sorted(at), 60]
        parts += [(method, table[start:end]) for start, end in pairwise(ends)]
    order.shuffle(parts)
    parts += parts[:2]
    for method, part in parts:
        method(part)
    check_equal(measured, rows)


@pytest.mark.parametrize(
    "config",
    [
        EvaluationConfig("late", "p", slices=[Slice("big", sql="w > 0.5"), ["carrier", "big"]], weight="w"),
        EvaluationConfig("late", "p", task="regression", slices=[["carrier"]]),
        EvaluationConfig("late", "p", metrics=[metric("precision", threshold=0.3), "expected_calibration_error"]),
    ],
)
def test_weights_expressions_and_other_tasks(tmp_path: Path, config: EvaluationConfig) -> None:
    rows = flights()
    measured = series(tmp_path, config)
    for start in range(0, 600, 150):
        measured.add_predictions(rows[start : start + 150])
        measured.add_labels(rows[start : start + 150])
    check_equal(measured, rows)


def test_lists_of_probabilities(tmp_path: Path) -> None:
    dice = np.random.default_rng(5)
    rows = flights(200).assign(p=list(dice.dirichlet(np.ones(3), 200)), late=dice.integers(0, 3, 200))
    config = EvaluationConfig("late", "p", task="multiclass")
    measured = series(tmp_path, config)
    measured.add_predictions(rows)
    measured.add_labels(rows[:77])
    measured.add_labels(rows)
    check_equal(measured, rows)


def test_another_number_of_classes_is_refused_before_it_waits(tmp_path: Path) -> None:
    rows = flights(100).assign(p=[[0.9, 0.1]] * 100)
    measured = series(tmp_path, EvaluationConfig("late", "p", task="multiclass"))
    measured.add_predictions(rows)
    measured.add_labels(rows)
    for scores, message in (
        ([0.1, 0.2, 0.7], "'p' is lists of 3 double here and was lists of 2 double before"),
        ("0.1", "'p' is string here and was lists of 2 double before"),
    ):
        with pytest.raises(InputError, match=message):
            measured.add_predictions(rows[:1].assign(id=1000, p=[scores]))
    with pytest.raises(InputError, match="'p' has lists of several lengths"):
        measured.add_predictions(rows[:2].assign(id=[1000, 1001], p=[[0.5, 0.5], [0.2, 0.3, 0.5]]))
    check_equal(measured, rows)


@pytest.mark.parametrize(
    "carriers",
    [[1.5, None], [None, 1.5], [1, 1.5], [1.5, 2], [None, "AA", None], [pd.Categorical(["AA"]), "UA"]],
)
def test_types_that_hold_the_same_values_wait_together(tmp_path: Path, carriers: list[Any]) -> None:
    rows = flights(len(carriers), days=1)
    measured = series(tmp_path, EvaluationConfig("late", "p", slices=[["carrier"]], metrics=["log_loss"]))
    for row, carrier in enumerate(carriers):
        measured.add_predictions(rows[row : row + 1].assign(carrier=carrier))
    measured.add_labels(rows.assign(late=rows["late"].astype(float)))
    values = [carrier[0] if isinstance(carrier, pd.Categorical) else carrier for carrier in carriers]
    check_equal(measured, rows.assign(carrier=values))


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ({"carrier": "AA"}, {"carrier": 1}, "column 'carrier' is int64 here and was .*string before"),
        ({"carrier": 2**53 + 1}, {"carrier": 1.5}, "column 'carrier' has numbers of type int64 .* as double"),
        ({"carrier": 1.5}, {"carrier": 2**53 + 1}, "column 'carrier' has numbers of type int64 .* as double"),
        ({}, {"carrier": [{}]}, "column 'carrier' is struct.* here and was .*string before"),
        ({"late": 1}, {"late": True}, "label 'late' is bool here and was int64 before"),
    ],
)
def test_types_that_do_not_meet_are_refused_before_they_wait(
    tmp_path: Path, first: dict[str, Any], second: dict[str, Any], message: str
) -> None:
    rows = flights(2, days=1)
    measured = series(tmp_path)
    add = measured.add_labels if "late" in first else measured.add_predictions
    add(rows[:1].assign(**first))
    with pytest.raises(InputError, match=message):
        add(rows[1:].assign(**second))
    measured.add_predictions(rows[:1].assign(**first))
    measured.add_labels(rows[:1])
    assert measured.windows()["judged"].sum() == 1


def test_predictions_that_are_all_missing_do_not_block_their_labels(tmp_path: Path) -> None:
    rows = flights(10)
    measured = series(tmp_path)
    measured.add_predictions(rows.assign(p=None))
    assert measured.add_labels(rows).unusable == 10


def test_windows_join_to_longer_ones(tmp_path: Path) -> None:
    rows = flights()
    measured = series(tmp_path, window=timedelta(hours=6))
    measured.add_predictions(rows)
    measured.add_labels(rows)
    check_equal(measured, rows, DAY)
    assert len(measured.windows()) == 12
    with pytest.raises(InputError, match="no multiple of the windows"):
        measured.table(timedelta(hours=9))
    with pytest.raises(InputError, match="every must be a timedelta, not '1d'"):
        measured.frame("1d")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"datetime.date\(2026, 1, 7\) is no datetime"):
        measured.close_until(date(2026, 1, 7))  # type: ignore[arg-type]


def test_a_window_closes_when_its_labels_are_not_waited_for_any_longer(tmp_path: Path) -> None:
    rows = flights(days=2)
    first = rows["at"] < "2026-01-06"
    measured = series(tmp_path, wait=2 * DAY)
    measured.add_predictions(rows)
    measured.add_labels(rows[first][:100])
    later = pd.DataFrame({"id": [9000], "at": [pd.Timestamp("2026-01-08", tz="UTC")], "p": 0.5, "carrier": "AA"})
    measured.add_predictions(later)
    assert measured.windows()["closed"].tolist() == [True, False, False]
    assert measured.add_labels(rows[first][100:]).judged == 0
    assert measured.add_predictions(rows[first]) == BatchOutcome(late=int(first.sum()))
    assert measured.windows()["judged"].tolist() == [100, 0, 0]
    check_equal(measured, rows[first][:100])
    assert measured.table()["closed"].to_pylist() == [True] * len(measured.table())
    measured.close_until(datetime(2026, 2, 1, tzinfo=UTC))
    assert measured.windows()["closed"].all()
    with sqlite3.connect(tmp_path / "series.db") as database:  # nothing waits for ever
        assert database.execute("SELECT count(*) FROM predictions").fetchone() == (0,)


def test_predictions_of_a_window_that_would_be_closed_are_late(tmp_path: Path) -> None:
    rows = flights(4).assign(at=pd.to_datetime(["2026-01-16", "2026-01-05", "2026-01-05", "2026-01-15"], utc=True))
    measured = series(tmp_path)
    measured.add_predictions(rows[:1])
    assert measured.add_predictions(rows[1:]) == BatchOutcome(waiting=1, late=2)
    assert measured.windows()[["closed", "predicted", "late"]].to_numpy().tolist() == [
        [True, 0, 2], [False, 1, 0], [False, 1, 0]
    ]  # fmt: skip


def test_rows_of_one_call_do_not_close_each_others_windows(tmp_path: Path) -> None:
    rows = flights(240, days=10)
    for start in range(0, 240, 80):
        rows[start : start + 80].to_parquet(tmp_path / f"{start}.parquet")
    measured = series(tmp_path / "series", window=timedelta(hours=6), wait=DAY)
    for outcome in (BatchOutcome(waiting=240), BatchOutcome(repeated=240)):
        assert measured.add_predictions(str(tmp_path / "*.parquet")) == outcome
    assert measured.add_labels(rows) == BatchOutcome(judged=240)
    assert not measured.windows()["closed"].any()
    measured.add_predictions(rows[-1:].assign(id=1000))
    due = measured.windows()["end"] + DAY <= rows["at"].max()
    assert (measured.windows()["closed"] == due).all()
    check_equal(measured, rows, timedelta(hours=6))


def test_windows_before_1970_wait_for_their_labels_too(tmp_path: Path) -> None:
    rows = flights()
    rows["at"] -= timedelta(days=30_000)
    measured = series(tmp_path)
    measured.add_predictions(rows)
    measured.add_predictions(rows[-1:].assign(id=1000))
    assert not measured.windows()["closed"].any()
    measured.add_labels(rows)
    check_equal(measured, rows)


def test_labels_without_predictions_are_given_up(tmp_path: Path) -> None:
    measured = series(tmp_path, wait=2 * DAY)
    measured.add_labels(pd.DataFrame({"id": range(50), "late": 1}))
    measured.add_predictions(flights(20).assign(id=range(100, 120)))
    measured.add_labels(pd.DataFrame({"id": range(100, 110), "late": 1}))
    with sqlite3.connect(tmp_path / "series.db") as database:
        assert database.execute("SELECT count(*), sum(waiting) FROM labels, chunks USING (chunk)").fetchone()[0] == 50
        measured.close_until(datetime(2026, 2, 1, tzinfo=UTC))
        assert database.execute("SELECT count(*) FROM labels").fetchone() == (0,)
        assert database.execute("SELECT count(*) FROM chunks").fetchone() == (0,)


def test_rows_that_cannot_be_judged_are_counted_and_quoted(tmp_path: Path) -> None:
    rows = flights()
    rows.loc[[3, 5], "p"] = [7.0, np.nan]
    rows.loc[8, "late"] = 2
    measured = series(tmp_path, EvaluationConfig("late", "p", task="binary"))
    measured.add_predictions(rows)
    outcome = measured.add_labels(rows)
    assert (outcome.judged, outcome.unusable) == (597, 3)
    first = measured.windows().iloc[0]
    assert first["unusable"] == 3
    assert f"id {rows['id'][3]}" in first["problem"]
    check_equal(measured, rows.drop([3, 5, 8]))


def test_a_missing_label_says_nothing(tmp_path: Path) -> None:
    rows = flights()
    measured = series(tmp_path)
    measured.add_predictions(rows)
    unknown = rows["late"].astype(float).where(rows["id"] % 2 == 0)
    assert measured.add_labels(rows.assign(late=unknown)).waiting == 300
    measured.add_labels(rows)
    check_equal(measured, rows)


def test_thresholds_judge_each_window(tmp_path: Path) -> None:
    rows = flights()
    rows.loc[rows["at"] >= "2026-01-07", "p"] = 0.5
    config = EvaluationConfig("late", "p", metrics=["auc"], thresholds=[Threshold("auc", lower=0.7)])
    measured = series(tmp_path, config)
    measured.add_predictions(rows)
    measured.add_labels(rows)
    windows = measured.windows()
    assert windows["passed"].tolist() == [True, True, False]
    assert windows["failures"][2] == "overall AUC 0.5: < 0.7"


def test_intervals_do_not_depend_on_how_rows_came(tmp_path: Path) -> None:
    config = EvaluationConfig("late", "p", metrics=["auc", "log_loss"], confidence="jackknife")
    rows = flights(2000, days=1)
    rows["p"] = rows["p"].round(1)  # rows alike, which their keys tell apart
    frames = []
    for step in (1, 2000):
        measured = series(tmp_path / str(step), config)
        measured.add_predictions(rows)
        for start in range(0, 2000 if step > 1 else 100, step):
            measured.add_labels(rows[start : start + step])
        measured.add_labels(rows[::-1])
        frames.append(measured.frame())
    pd.testing.assert_frame_equal(*frames)
    batch = dt.evaluate(rows, label="late", predictions="p", metrics=["auc"], confidence="jackknife").frame()
    width = frames[0].set_index("metric").loc["auc"]
    assert width.upper - width.lower == pytest.approx((batch.upper - batch.lower)[0], rel=0.7)


def test_a_users_own_metric_is_named_again_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "profits.py").write_text(
        "from drivetrain.components.evaluation import Metric\n"
        "def profit():\n"
        "    return Metric.of_rows('Profit', lambda rows: float(sum(rows.label * rows.prediction)))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    config = EvaluationConfig("late", "p", metrics=["profits:profit"], task="binary")
    rows = flights()
    series(tmp_path / "s", config).add_predictions(rows)
    measured = MetricSeries(tmp_path / "s", config)
    measured.add_labels(rows)
    expected = (rows["late"] * rows["p"]).groupby(rows["at"].dt.floor("1D")).sum()
    np.testing.assert_allclose(measured.frame()["value"], expected, rtol=1e-12)


SENDER = """
import sys, pandas as pd
from datetime import timedelta
from drivetrain.components.evaluation.series import MetricSeries
rows = pd.read_parquet(sys.argv[2])
measured = MetricSeries(sys.argv[1])
print("ready", flush=True)
part = rows[int(sys.argv[3]) :: 2]
for start in range(0, len(part), 20):
    measured.add_predictions(part[start : start + 20])
    measured.add_labels(part[start : start + 20])
"""


def sender(folder: Path, rows: Path, part: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SENDER, str(folder), str(rows), str(part)], stdout=subprocess.PIPE, text=True
    )


@pytest.mark.slow
def test_processes_write_at_once_and_one_is_killed(tmp_path: Path) -> None:
    rows = flights(1200)
    rows.to_parquet(tmp_path / "rows.parquet")
    measured = series(tmp_path / "series")
    with ExitStack() as processes:
        writers = [
            processes.enter_context(sender(tmp_path / "series", tmp_path / "rows.parquet", part)) for part in (0, 1)
        ]
        assert writers[0].stdout is not None
        writers[0].stdout.readline()
        time.sleep(0.1)
        writers[0].send_signal(signal.SIGKILL)
        assert writers[0].wait(60) == -signal.SIGKILL
        assert writers[1].wait(120) == 0
        again = processes.enter_context(sender(tmp_path / "series", tmp_path / "rows.parquet", 0))  # sends all anew
        assert again.wait(120) == 0
    check_equal(measured, rows)


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    rows = flights(5000)
    measured = series(tmp_path)
    measured.add_predictions(rows[:100])
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "series.db").stat().st_size + 8192, before[1]))
    try:
        with pytest.raises(DrivetrainError, match=r"series\.db cannot be used"):
            measured.add_predictions(rows)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert measured.windows()["predicted"].sum() == 100
    measured.add_predictions(rows)
    measured.add_labels(rows)
    check_equal(measured, rows)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    series(tmp_path).add_predictions(flights())
    path = tmp_path / "series.db"
    path.write_bytes(b"no database at all" + path.read_bytes()[18:])
    with pytest.raises(InputError, match=r"series\.db is not a series of metrics"):
        MetricSeries(tmp_path)
    path.write_bytes(b"")
    with pytest.raises(InputError, match="a new one needs config, key, time, window, wait"):
        MetricSeries(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": None}, r"the key 'id' is missing in row 0"),
        ({"id": 1.5}, r"the key 'id' is double"),
        ({"at": pd.NaT}, r"the time 'at' is missing in row 0|neither a timestamp"),
        ({"at": "2026-01-05"}, r"the time 'at' is .*string, neither a timestamp nor a date"),
        ({"at": pd.Timestamp("2200-01-01", tz="UTC")}, r"of row 0 is 2200-01-01 .*more than a day from now"),
        ({"id": "x"}, r"the keys 'id' are texts, and those before were whole numbers"),
    ],
)
def test_a_bad_batch_is_refused_and_nothing_of_it_kept(tmp_path: Path, change: Any, message: str) -> None:
    measured = series(tmp_path)
    measured.add_predictions(flights(10))
    with pytest.raises(InputError, match=message):
        measured.add_predictions(flights(20).assign(**change))
    assert measured.windows()["predicted"].sum() == 10


def test_settings_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no series of metrics"):
        MetricSeries(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
    with pytest.raises(InputError, match="does not measure rankings"):
        series(tmp_path, EvaluationConfig("late", "p", query="id"))
    with pytest.raises(InputError, match="window must be a timedelta"):
        series(tmp_path, window=timedelta(milliseconds=1500))
    series(tmp_path)
    with pytest.raises(InputError, match="begun with another window"):
        MetricSeries(tmp_path, window=2 * DAY)
    with pytest.raises(InputError, match="begun with another config"):
        MetricSeries(tmp_path, EvaluationConfig("late", "q"))
    with pytest.raises(InputError, match="carrier"):
        series(tmp_path).add_predictions(flights().drop(columns="carrier"))


def test_dates_and_times_without_a_zone_are_utc(tmp_path: Path) -> None:
    rows = flights()
    naive = rows.assign(at=rows["at"].dt.tz_localize(None))
    measured = series(tmp_path / "naive")
    measured.add_predictions(naive)
    measured.add_labels(naive)
    check_equal(measured, rows)
    dates = pa.table({**{name: rows[name] for name in ("id", "p", "carrier")}, "at": pa.array(rows["at"].dt.date)})
    other = series(tmp_path / "dates")
    other.add_predictions(dates)
    other.add_labels(rows)
    check_equal(other, rows)
