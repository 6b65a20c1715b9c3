"""Drift of whole data sets: pairing, corrections, verdicts, odd values, sketches, and a report's other forms."""

from __future__ import annotations

import collections
import datetime
import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain import data
from drivetrain.data.drift_skew.compare import MEASURES, Comparison
from drivetrain.data.drift_skew.pair import equal_mass_cells, pair_of_columns
from drivetrain.data.drift_skew.report import drift
from drivetrain.data.stats.accumulator import StatisticsAccumulator
from drivetrain.data.stats.document import Statistics, from_states
from drivetrain.errors import InputError
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

SYMMETRIC = ("l_infinity", "normalized_abs_difference", "jensen_shannon", "jensen_shannon_quantiles")


def state(columns: dict[str, Any], limit: int = 100_000) -> StatisticsAccumulator:
    accumulator = StatisticsAccumulator(limit)
    arrays = [value if isinstance(value, pa.Array) else pa.array(value) for value in columns.values()]
    accumulator.add_batch(pa.RecordBatch.from_arrays(arrays, list(columns)))
    return accumulator


def of(**columns: Any) -> Statistics:
    return from_states({"data": state(columns)})


def compared(current: Any, previous: Any) -> Comparison:
    return Comparison(state({"x": current}).columns["x"], state({"x": previous}).columns["x"])


def test_every_feature_is_there_also_where_nothing_changed() -> None:
    same = of(a=[1, 2, 3], b=["x", None, "y"], c=[True, False, True], d=[[1], [1, 2], None])
    report = drift(same, same)
    assert [feature.name for feature in report.pairs[0].features] == ["a", "b", "c", "d", "d (lengths)"]
    assert report.drifted == ()
    for feature in report.pairs[0].features:
        assert list(feature.measures) == list(MEASURES)
        assert {measure.value for measure in feature.measures.values()} <= {0.0, None}
        assert feature.status == "compared"
        assert feature.moved == ()


def test_one_span_on_each_side_need_not_have_one_name() -> None:
    report = drift(from_states({"june": state({"x": [1]})}), from_states({"january": state({"x": [2, 2]})}))
    assert [(pair.current, pair.previous, pair.rows) for pair in report.pairs] == [("june", "january", (1, 2))]


def test_data_sets_are_paired_by_name_or_as_named() -> None:
    both = from_states({"train": state({"x": [1, 2]}), "eval": state({"x": [1, 3]})})
    partly_named = from_states({"train": state({"x": [1, 2]}), "test": state({"x": [1]})})
    report = drift(both, partly_named)
    assert [(pair.current, pair.previous) for pair in report.pairs] == [("train", "train")]
    assert report.unpaired == ("eval", "test")
    split = drift(both, both, pairs=[("eval", "train")])
    assert [(pair.current, pair.previous) for pair in split.pairs] == [("eval", "train")]
    with pytest.raises(InputError, match="no data set 'tset'"):
        drift(both, partly_named, pairs=[("train", "tset")])
    with pytest.raises(InputError, match="no data set is in both"):
        drift(both, from_states({"a": state({"x": [1]}), "b": state({"x": [1]})}))


def test_frames_tables_and_paths_are_taken_as_well(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"x": [1.0, 2.0, None], "s": ["a", "b", "b"]})
    path = tmp_path / "x.parquet"
    pq.write_table(pa.Table.from_pandas(frame), path)
    report = data.drift(frame, path)
    assert [(feature.name, feature.drifted) for feature in report.pairs[0].features] == [("x", False), ("s", False)]
    assert report["x"].measures["wasserstein"].value == 0
    named = data.drift({"june": frame}, {"may": pa.table({"x": [1.0], "s": ["a"]})})
    assert (named.pairs[0].current, named.pairs[0].previous) == ("june", "may")
    assert named["x"].measures["missing_rate"].value == pytest.approx(1 / 3)


def test_statistics_that_were_saved(tmp_path: Path) -> None:
    for name, values in (("a", [1, 2, 3]), ("b", [2, 3, 4])):
        (tmp_path / name).mkdir()
        of(x=values).save(tmp_path / name)
    loaded = drift(Statistics.load(tmp_path / "a"), Statistics.load(tmp_path / "b"))
    assert loaded.to_json() == drift(of(x=[1, 2, 3]), of(x=[2, 3, 4])).to_json()


def test_unknown_words_are_refused() -> None:
    with pytest.raises(InputError, match="no correction 'bonferroni'"):
        drift(of(x=[1]), of(x=[1]), correction="bonferroni")


def test_a_feature_that_one_side_lacks_and_one_whose_type_changed() -> None:
    report = drift(of(a=[1, 1], c=["1", "2"]), of(b=[1, 1], c=[1, 2]))
    assert {feature.name: feature.status for feature in report.pairs[0].features} == {
        "a": "only in current",
        "c": "type changed",
        "b": "only in previous",
    }
    assert report.drifted == ("a", "c", "b")
    assert report["c"].measures["psi"].value is None
    assert report["c"].measures["psi"].note == "string cannot be compared with int64"
    assert report["c"].measures["missing_rate"].value == 0


def test_integers_and_floats_are_one_kind_of_number() -> None:
    report = drift(of(x=[1, 2, 3]), of(x=[1.0, 2.0, 3.0]))
    assert report["x"].status == "compared"
    assert report["x"].measures["jensen_shannon"].value == 0


def test_without_values_there_is_no_distance_but_a_missing_rate() -> None:
    report = drift(of(x=pa.array([None, None], pa.float64())), of(x=[1.0, 2.0]))
    assert report["x"].measures["missing_rate"].value == 1
    assert report["x"].measures["jensen_shannon"].value is None
    assert report["x"].measures["jensen_shannon"].note == "the current data has no values"
    assert drift(of(x=pa.array([], pa.int64())), of(x=[1]))["x"].measures["missing_rate"].note == "a side has no rows"
    nothing = drift(of(x=pa.nulls(3)), of(x=[1]))["x"]
    assert nothing.status == "compared"
    assert nothing.measures["psi"].note == "the current data has no values"


NAN, INF = float("nan"), float("inf")


def test_nan_and_infinities_are_cells_of_their_own() -> None:
    values = [0.0, 10.0, NAN, NAN, INF, -INF]
    same = compared(values, values)
    for name in MEASURES:
        assert same.measure(name).value in (0.0, None)
    half = compared([0.0, 10.0], [0.0, 10.0, NAN, NAN])
    # P = (½, ½, 0), Q = (¼, ¼, ½): by hand, ½·log2(4/3) + ½·(½·log2(2/3) + ½·log2(2)).
    by_hand = 0.5 * np.log2(4 / 3) + 0.5 * (0.5 * np.log2(2 / 3) + 0.5)
    assert half.measure("jensen_shannon").value == pytest.approx(by_hand)
    assert half.measure("jensen_shannon_quantiles").value == pytest.approx(by_hand)
    assert half.measure("l_infinity").at == "NaN"
    assert half.measure("kolmogorov_smirnov").value == 0  # of what can be put in order
    assert half.measure("missing_rate").value == 0.5  # NaN is not a value, whoever writes it
    up = compared([1.0, INF], [1.0, 2.0])
    assert up.measure("kolmogorov_smirnov").value == 0.5
    assert up.measure("kolmogorov_smirnov").value == stats.ks_2samp([1.0, INF], [1.0, 2.0]).statistic
    assert up.measure("wasserstein").value == 0.5  # of the finite ones
    assert compared([NAN], [1.0]).measure("wasserstein").note == "a side has no finite number"
    assert compared([INF], [INF]).measure("jensen_shannon").value == 0


def test_wasserstein_has_an_effect_in_sigma_of_the_control() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.normal(3, 2, 500), rng.normal(0, 2, 400)
    distance = compared(a, b).measure("wasserstein")
    assert distance.value == pytest.approx(stats.wasserstein_distance(a, b), rel=1e-12)
    assert distance.effect == pytest.approx(stats.wasserstein_distance(a, b) / b.std(), rel=1e-12)
    still = compared([1, 2], [5, 5]).measure("wasserstein")
    assert (still.value, still.effect) == (3.5, None)
    assert "does not vary" in still.note


def test_truths_are_categories() -> None:
    comparison = compared([True] * 99 + [False], [True] * 100)
    # ½·log2(1/0.995) + ½·(0.99·log2(0.99/0.995) + 0.01·log2(2)), by hand
    by_hand = 0.5 * np.log2(1 / 0.995) + 0.5 * (0.99 * np.log2(0.99 / 0.995) + 0.01)
    assert comparison.measure("jensen_shannon").value == pytest.approx(by_hand)
    assert comparison.measure("kolmogorov_smirnov").value is None
    assert compared([1] * 99 + [0], [1] * 100).measure("jensen_shannon").value == 1  # TFDV's definition of numbers


def test_integers_with_few_values_are_categories_as_well() -> None:
    comparison = compared([1, 3] * 500, [1, 2, 2, 3] * 250)
    test = comparison.measure("chi_squared")
    wanted = stats.chi2_contingency([[500, 0, 500], [250, 500, 250]], correction=False)
    assert (test.value, test.p_value) == pytest.approx((wanted.statistic, wanted.pvalue))
    assert comparison.measure("l_infinity").at == 2
    many = compared(list(range(200)), list(range(200)))
    assert many.measure("chi_squared").value is None
    assert many.measure("l_infinity").over == "cells"


def test_a_column_whose_texts_are_all_new_has_drifted_though_each_is_rare() -> None:
    then = of(name=[f"then {row % 600}" for row in range(2000)], key=[f"a{row}" for row in range(2000)])
    now = of(name=[f"now {row % 600}" for row in range(2000)], key=[f"b{row}" for row in range(2000)])
    report = drift(now, then)
    assert report["name"].measures["new_values"].value == 1.0
    assert report.drifted == ("name",)
    assert "share of new values beyond chance" in report["name"].reason
    # Identifiers are new in any data; the share says so, and no more.
    assert (report["key"].measures["new_values"].value, report["key"].measures["new_values"].effect) == (1.0, 0.0)
    same = drift(then, then)["name"].measures["new_values"]
    assert (same.value, same.p_value) == (0.0, None)


def test_verdicts_need_significance_and_size() -> None:
    rng = np.random.default_rng(2)
    control = of(x=rng.normal(0, 1, 50_000))
    tiny = drift(of(x=rng.normal(0.05, 1, 50_000)), control)["x"]
    assert tiny.measures["kolmogorov_smirnov"].adjusted_p < 1e-6  # type: ignore[operator]
    assert not tiny.drifted
    assert drift(of(x=rng.normal(0.5, 1, 50_000)), control)["x"].reason == "D 0.2, adjusted p < 1e-300"
    few = drift(of(x=rng.normal(0.3, 1, 10)), of(x=rng.normal(0, 1, 10)))["x"]
    assert not few.drifted  # large, but by chance


def test_p_values_are_corrected_over_all_columns() -> None:
    rng = np.random.default_rng(4)
    columns = {f"c{index}": rng.normal(size=300) for index in range(40)}
    others = {f"c{index}": rng.normal(size=300) for index in range(40)}
    raw = drift(of(**columns), of(**others), correction="none").pairs[0].features
    first = [feature.measures["kolmogorov_smirnov"] for feature in raw]
    assert min(measure.p_value or 0 for measure in first) < 0.05
    assert [measure.p_value for measure in first] == [measure.adjusted_p for measure in first]
    for correction in ("bh", "holm"):
        features = drift(of(**columns), of(**others), correction=correction).pairs[0].features
        tests = [m for feature in features for m in feature.measures.values() if m.p_value is not None]
        assert min(measure.adjusted_p or 0 for measure in tests) > 0.05
        if correction == "bh":
            wanted = stats.false_discovery_control([measure.p_value for measure in tests])
            assert [measure.adjusted_p for measure in tests] == pytest.approx(wanted.tolist())


def test_times_have_distances_in_their_unit() -> None:
    day = datetime.datetime(2013, 1, 1, tzinfo=datetime.UTC)
    days = [day + datetime.timedelta(days=index) for index in range(10)]
    kind = pa.timestamp("s", "UTC")
    comparison = compared(pa.array(days[1:], kind), pa.array(days[:-1], kind))
    assert comparison.measure("wasserstein").value == pytest.approx(86_400, rel=1e-15)
    assert comparison.moved()[0]["value"] == "2013-01-01T00:00:00Z"
    other = compared(pa.array(days, kind), pa.array(days, pa.timestamp("ms", "UTC")))
    assert other.measure("psi").note == "timestamp[s, tz=UTC] cannot be compared with timestamp[ms, tz=UTC]"
    struct = compared(pa.array([{"a": 1}]), pa.array([{"a": 1}])).measure("psi")
    assert struct.note == "a struct is compared field by field"


def test_sketches_are_marked_and_stay_within_their_error() -> None:
    rng = np.random.default_rng(6)
    a, b = rng.normal(0.3, 1, 30_000), rng.normal(0, 1, 30_000)
    rough = Comparison(*(state({"x": side}, limit=1000).columns["x"] for side in (a, b)))
    exact = compared(a, b)
    for name in ("kolmogorov_smirnov", "jensen_shannon", "jensen_shannon_quantiles", "psi", "wasserstein"):
        estimate, true = rough.measure(name), exact.measure(name)
        assert true.exact
        assert true.error is None
        assert not estimate.exact
        assert 0 < (estimate.error or 0) < 0.02
        assert estimate.value == pytest.approx(true.value, rel=0.1)
    d, true = rough.measure("kolmogorov_smirnov"), exact.measure("kolmogorov_smirnov")
    assert abs(d.value - true.value) <= d.error  # type: ignore[operator]
    assert rough.measure("missing_rate").exact


def test_sketched_texts_compare_their_frequent_values() -> None:
    rng = np.random.default_rng(7)
    ids = [f"id{index}" for index in range(3000)]
    a = [*ids, *rng.choice(["x", "y", "z"], 30_000, p=[0.6, 0.3, 0.1]).tolist()]
    b = [*(f"other{index}" for index in range(3000)), *rng.choice(["x", "y", "z"], 30_000, p=[0.3, 0.3, 0.4]).tolist()]
    exact = compared(a, b).measure("l_infinity")
    assert exact.at == "z"
    for limits in ((1000, 1000), (1000, 100_000), (100_000, 1000)):
        sides = (state({"x": side}, limit).columns["x"] for side, limit in zip((a, b), limits, strict=True))
        estimate = Comparison(*sides).measure("l_infinity")
        assert not estimate.exact
        assert estimate.at in ("x", "z")
        assert estimate.value == pytest.approx(exact.value, abs=estimate.error)
    same = Comparison(state({"x": a}, 1000).columns["x"], state({"x": a}).columns["x"])
    assert same.measure("l_infinity").value == pytest.approx(0, abs=same.measure("l_infinity").error)


def test_errors_of_many_sketched_texts_do_not_add_up_to_drift() -> None:
    rng = np.random.default_rng(9)
    # 5,000 texts of one distribution; the longer side loses far more of each count than the shorter.
    weights = 1 / np.arange(20, 5020)
    a, b = (rng.choice(5000, size, p=weights / weights.sum()).astype(str).tolist() for size in (200_000, 20_000))
    comparison = Comparison(*(state({"x": side}, 1000).columns["x"] for side in (a, b)))
    assert (comparison.measure("chi_squared").effect or 0) < 0.05
    assert comparison.measure("jensen_shannon").value < 0.01  # type: ignore[operator]
    assert comparison.measure("psi").value < 0.02  # type: ignore[operator]


numbers = st.lists(st.one_of(st.integers(-5, 5).map(float), st.just(NAN), st.just(INF), st.none()), max_size=25)


@settings(deadline=None)  # the machine may be busy
@given(numbers, numbers)
def test_laws(a: list[float | None], b: list[float | None]) -> None:
    there, back = (compared(pa.array(x, pa.float64(), from_pandas=False), pa.array(y, pa.float64(), from_pandas=False))
                   for x, y in ((a, b), (b, a)))  # fmt: skip
    for name in MEASURES:
        value, other = there.measure(name).value, back.measure(name).value
        assert (value is None) == (other is None)
        if value is None or other is None:
            continue
        assert value >= 0
        if name in SYMMETRIC or name == "kolmogorov_smirnov":
            assert value == pytest.approx(other, abs=1e-12)
            assert value <= 1
    itself = compared(pa.array(a, pa.float64(), from_pandas=False), pa.array(a, pa.float64(), from_pandas=False))
    for name in MEASURES:
        assert itself.measure(name).value in (0.0, None)


@settings(deadline=None)
@given(st.lists(st.integers(0, 400), min_size=4, max_size=60), st.integers(0, 3))
def test_measures_do_not_depend_on_how_the_rows_were_merged(values: list[int], turn: int) -> None:
    cuts = sorted({0, len(values) // 4, len(values) // 2, 3 * len(values) // 4, len(values)})
    parts = [state({"x": pa.array(values[low:high], pa.int64())}) for low, high in pairwise(cuts)]
    parts = parts[turn:] + parts[:turn]
    merged = parts[0]
    for part in parts[1:]:
        merged.merge(part)
    control = state({"x": list(range(300))}).columns["x"]
    whole = Comparison(state({"x": pa.array(values, pa.int64())}).columns["x"], control)
    again = Comparison(merged.columns["x"], control)
    for name in MEASURES:
        assert whole.measure(name) == again.measure(name)


floats = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=80)


@settings(deadline=None)
@given(floats, floats, st.booleans())
def test_cells_hold_every_row_once(a: list[float], b: list[float], control: bool) -> None:
    pair = pair_of_columns(state({"x": a}).columns["x"], state({"x": b}).columns["x"])
    cells = equal_mass_cells(pair, 10, control=control)
    assert (cells.current.sum(), cells.previous.sum()) == (len(a), len(b))


@settings(deadline=None)
@given(floats)
def test_an_outlier_moves_no_row_to_another_cell(a: list[float]) -> None:
    far = [1e12 if value == max(a) else value for value in a]
    near, moved = (
        equal_mass_cells(pair_of_columns(column, column), 10, control=False)
        for column in (state({"x": side}).columns["x"] for side in (a, far))
    )
    assert near.current.tolist() == moved.current.tolist()


def test_a_value_with_a_cells_mass_is_a_cell_of_its_own() -> None:
    pair = pair_of_columns(
        state({"x": [1.0]}).columns["x"], state({"x": [5.0] * 5 + [1.0, 2.0, 7.0, 8.0, 9.0]}).columns["x"]
    )
    cells = equal_mass_cells(pair, 4, control=True)
    labels = [cells.label(index) for index in range(len(cells.previous))]
    assert labels == ["[1.0, 2.0]", 5.0, 7.0, "[8.0, 9.0]"]
    assert cells.previous.tolist() == [2, 5, 1, 2]
    # A constant control: what is above, and what is below, stays apart from it.
    for value in (1.0, 9.0):
        constant = pair_of_columns(state({"x": [value]}).columns["x"], state({"x": [5.0]}).columns["x"])
        assert len(equal_mass_cells(constant, 10, control=True).current) == 2


def test_psi_equals_numpy_over_tenths_of_the_control() -> None:
    rng = np.random.default_rng(8)
    a, b = rng.normal(0.4, 1.2, 4000), rng.normal(0, 1, 5000)
    # Each cell ends with the last of 500 control rows.
    last = np.sort(b)[499:-1:500]
    p = np.bincount(np.searchsorted(last, a), minlength=10) / len(a)
    q = np.full(10, 0.1)
    index = compared(a, b).measure("psi").value
    assert index == pytest.approx(np.sum((p - q) * np.log(p / q)), rel=1e-9)


def test_psi_of_whole_numbers_is_over_tenths_too_and_noise_is_none() -> None:
    rng = np.random.default_rng(8)
    a, b = rng.permutation(np.repeat(np.arange(90), 7)), np.repeat(np.arange(90), 10)
    index = compared(a, b).measure("psi")
    assert index.value == pytest.approx(0, abs=1e-12)
    assert index.over == "cells"
    # The same ages, dealt at random: each a cell, they would be at 0.3, beyond every usual bound.
    noise, control = rng.integers(0, 95, 600), rng.integers(0, 95, 600)
    by_chance = compared(noise, control).measure("psi").value
    assert by_chance is not None
    assert by_chance < 0.1
    moved = np.minimum(b + 30, 89)
    p = np.histogram(moved, bins=np.arange(0, 91, 9))[0] / len(moved)
    expected = np.sum((np.maximum(p, 1e-4) - 0.1) * np.log(np.maximum(p, 1e-4) / 0.1))
    assert compared(moved, b).measure("psi").value == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("values", [[0, 1, 1, 3], [True, False, True, True], ["a", "b", "b", "c"]])
def test_psi_of_few_values_and_of_texts_is_over_values(values: list[Any]) -> None:
    index = compared(values, [*values, values[1]]).measure("psi")
    counts = collections.Counter(values)
    p = np.array([count / 4 for count in counts.values()])
    q = np.array([(count + (value == values[1])) / 5 for value, count in counts.items()])
    assert index.value == pytest.approx(np.sum((p - q) * np.log(p / q)))
    assert index.over == "values"


def test_what_a_report_can_be_turned_into() -> None:
    pytest.importorskip("pandas")
    report = drift(of(a=[1, 2, 2], b=["x", '<b>&"', None], gone=[1, 1, 1]), of(a=[1, 1, 1], b=["x", "x", "x"]))
    document = json.loads(report.to_json())
    assert document == json.loads(json.dumps(report.to_dict()))
    assert document["format"] == "drivetrain.drift/1"
    assert drift(of(a=[1]), of(a=[2])).to_json() == drift(of(a=[1]), of(a=[2])).to_json()
    frame = report.to_pandas()
    assert len(frame) == 2 * len(MEASURES) + 1
    line = frame[(frame.feature == "a") & (frame.measure == "l_infinity")].iloc[0]
    assert line["value"] == pytest.approx(2 / 3)
    html = report.to_html()
    assert "&lt;b&gt;" in html
    assert '<b>&"' not in html
    assert "only in current" in html
    assert "://" not in html
    assert report._repr_html_().startswith("<iframe")


def test_scipy_is_imported_only_when_a_test_is_asked_for() -> None:
    code = (
        "import sys, drivetrain.data.drift_skew.report\n"
        "from drivetrain.data.stats.accumulator import StatisticsAccumulator as S\n"
        "from drivetrain.data.drift_skew.compare import Comparison\n"
        "from drivetrain.data.arrays import arrow_of\n"
        "import numpy as np, pyarrow as pa\n"
        "s = S(); s.add_batch(pa.RecordBatch.from_arrays([arrow_of(np.array([1, 2]))], ['x']))\n"
        "c = Comparison(s.columns['x'], s.columns['x'])\n"
        "for n in ('l_infinity', 'jensen_shannon', 'psi', 'wasserstein', 'missing_rate'): c.measure(n)\n"
        "assert not {'scipy', 'pandas'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
