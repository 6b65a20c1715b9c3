"""`drivetrain.find_slices`: names what was planted and nothing else, as every slice by brute force, in any table."""

from __future__ import annotations

import datetime
import itertools
from decimal import Decimal
from typing import Any

import drivetrain as dt
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from drivetrain import InputError
from drivetrain.components.evaluation import EvaluationConfig
from drivetrain.components.evaluation.cut_columns import cut_column
from drivetrain.components.evaluation.slice_evidence import Evidence, PermutationTest, powers_of, welch
from drivetrain.components.evaluation.slice_search import SliceSearch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression


def table_of(seed: int, rows: int, *, planted: bool = True) -> dict[str, Any]:
    """Ten columns of mixed types and calibrated predictions, which are turned round in 2 % of the rows if planted."""
    random = np.random.default_rng(seed)
    columns: dict[str, Any] = {
        f"kind{count}": random.choice([f"v{value}" for value in range(count)], rows) for count in (2, 4, 7)
    }
    columns["carrier"] = random.choice(list("ABCDEFGHIJ"), rows)
    columns["weekend"] = random.random(rows) < 2 / 7
    columns["month"] = random.integers(1, 13, rows)
    columns["distance"] = random.exponential(900, rows)
    columns["delay"] = random.normal(size=rows)
    columns["age"] = pa.array(random.uniform(size=rows), mask=random.random(rows) < 0.1)
    columns["day"] = pa.array(random.integers(15_000, 15_365, rows, dtype=np.int32)).cast(pa.date32())
    columns["p"] = random.beta(2, 2, rows)
    bad = (columns["carrier"] == "C") & (columns["distance"] >= 900 * np.log(5)) & planted  # a tenth of a fifth
    columns["late"] = (random.random(rows) < np.where(bad, 1 - columns["p"], columns["p"])).astype(int)
    return columns


def planted_first(seeds: range, rows: int) -> int:
    """On how many seeds the planted slice is named, before all else."""
    named = [dt.find_slices(table_of(seed, rows), label="late", predictions="p") for seed in seeds]
    return sum(len(slices) > 0 and set(slices[0].columns) == {"carrier", "distance"} for slices in named)


def without_any(seeds: range, rows: int) -> int:
    """On how many seeds without a planted slice none is named."""
    named = (dt.find_slices(table_of(seed, rows, planted=False), label="late", predictions="p") for seed in seeds)
    return sum(len(slices) == 0 for slices in named)


@pytest.mark.parametrize("rows", [5_000, 20_000])
def test_a_planted_slice_is_named_first(rows: int) -> None:
    assert planted_first(range(8), rows) == 8
    assert without_any(range(1_000, 1_008), rows) >= 7


@pytest.mark.slow
@pytest.mark.parametrize("rows", [5_000, 20_000])
def test_a_planted_slice_is_named_first_in_95_of_100(rows: int) -> None:
    assert planted_first(range(100, 200), rows) >= 95
    assert without_any(range(2_000, 2_100), rows) >= 95


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.05, 0.3, 0.8])
def test_of_two_losses_and_texts_alone_chance_names_no_slice(rate: float) -> None:
    # The hardest case: tests that hardly depend on each other, and losses of which most are large.
    named = 0
    for seed in range(100):
        random = np.random.default_rng(seed)
        data: dict[str, Any] = {f"c{number}": random.choice(list("abcdefgh"), 5_000) for number in range(10)}
        data |= {"y": (random.random(5_000) < rate).astype(int), "p": np.full(5_000, 0.3)}
        named += len(dt.find_slices(data, label="y", predictions="p")) > 0
    assert named <= 5


def test_what_is_said_of_a_slice_is_what_pandas_says() -> None:
    columns = table_of(3, 20_000)
    rows = pd.DataFrame({name: columns[name] for name in ("carrier", "distance", "late", "p")})
    slices = dt.find_slices(columns, label="late", predictions="p")
    assert len(slices) == 1
    (named,) = slices
    assert named.name.startswith("carrier=C, distance >= 1")
    least = float(named.name.rpartition(" ")[2])
    bad = (rows.carrier == "C") & (rows.distance >= least)
    loss = -np.log(np.where(rows.late == 1, rows.p, 1 - rows.p))
    inner, rest = loss[bad], loss[~bad]
    assert (named.rows, named.share) == (bad.sum(), bad.mean())
    assert named.loss == pytest.approx(inner.mean())
    assert named.rest_loss == pytest.approx(rest.mean())
    assert named.effect == pytest.approx((inner.mean() - rest.mean()) / np.sqrt((inner.var() + rest.var()) / 2))
    assert 0 < named.p_value < 1e-6
    assert slices.loss == pytest.approx(loss.mean())
    row = slices.frame().iloc[0]
    assert (row["slice"], row["rows"], row.effect) == (named.name, named.rows, named.effect)
    assert repr(slices).startswith("1 slice is worse than the rest: 20,000 rows, log-loss 0.5")
    assert f"{named.name}: {named.rows:,} rows" in repr(slices)
    assert "carrier=C" in slices._repr_html_()


def test_slices_go_into_an_evaluation() -> None:
    columns = table_of(3, 20_000)
    slices = dt.find_slices(columns, label="late", predictions="p")
    config = EvaluationConfig("late", "p", slices=slices.slices)
    assert config.expressions[slices[0].name].sql == slices[0].sql
    measured = dt.evaluate(columns, label="late", predictions="p", slices=slices.slices).frame()
    losses = measured[(measured.metric == "log_loss") & (measured.slice == f"{slices[0].name}=True")]
    assert losses.n.tolist() == [slices[0].rows]
    assert losses.value.tolist() == pytest.approx([slices[0].loss])


ROWS = 600
HALF = np.arange(ROWS) % 2 == 0
TIMES = [datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(hours=hour) for hour in range(ROWS)]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(np.where(HALF, "O'Hare", "a")),
        pa.array(np.where(HALF, "x", "y")).dictionary_encode(),
        pa.array(HALF),
        pa.array(np.where(HALF, 3, 2**62)),
        pa.array(np.where(HALF, 0.1 + 0.2, 0.3)),
        pa.array(np.where(HALF, np.inf, 1.0)),
        pa.array(np.where(HALF, 1.0, 0.5), mask=HALF),
        pa.array(np.where(HALF, np.nan, 0.5)),
        pa.array(["x"] * ROWS, mask=HALF),
        pa.array([Decimal("1.10") if half else Decimal("2.25") for half in HALF]),
        pa.array(np.where(HALF, 5, 9).astype(np.int32)).cast(pa.date32()),
        pa.array([TIMES[0 if half else 9] for half in HALF], pa.timestamp("us", "UTC")),
        pa.array([TIMES[0 if half else 9] for half in HALF], pa.timestamp("ns", "UTC")).cast(pa.timestamp("ns")),
        pa.array(np.where(HALF, np.linspace(1, 2, ROWS), np.linspace(0, 0.999, ROWS))),
        pa.array(np.where(HALF, np.linspace(1, 2, ROWS), np.linspace(0, 0.999, ROWS)), pa.float32()),
        pa.array(np.where(HALF, np.linspace(0, 0.999, ROWS), np.nan)),
    ],
    ids=lambda column: str(column.type),
)
def test_the_sql_of_every_type_names_its_rows(column: pa.Array) -> None:
    random = np.random.default_rng(0)
    data = {'a "b"': column, "y": np.where(HALF, 3, 0) + random.normal(size=ROWS), "p": np.zeros(ROWS)}
    slices = dt.find_slices(data, label="y", predictions="p", task="regression")
    assert [each.rows for each in slices] == [ROWS // 2], slices
    again = dt.evaluate(data, label="y", predictions="p", metrics=["mse"], slices=slices.slices).frame()
    inside = again[again.slice == f"{slices[0].name}=True"]
    assert inside.n.tolist() == [ROWS // 2]
    assert inside.value.tolist() == pytest.approx([slices[0].loss])


def test_ranges_have_round_bounds_and_heavy_values_a_cell() -> None:
    random = np.random.default_rng(0)
    rain = np.where(random.random(50_000) < 0.6, 0.0, random.exponential(3, 50_000))
    for bad, name in ((rain == 0, "rain=0"), (rain >= np.quantile(rain, 0.8), "rain >= ")):
        data = {"rain": rain, "y": random.normal(size=50_000) * np.where(bad, 3, 1), "p": np.zeros(50_000)}
        slices = dt.find_slices(data, label="y", predictions="p", task="regression")
        assert len(slices) == 1
        assert slices[0].name.startswith(name)
        assert len(slices[0].name) <= len("rain >= 2.08")
        assert abs(slices[0].rows - bad.sum()) <= 0.001 * 50_000


def test_a_bad_value_is_not_named_through_its_crosses_nor_a_cross_through_its_values() -> None:
    random = np.random.default_rng(1)
    data = {name: random.choice(list("abcde"), 10_000) for name in ("one", "two", "three")}
    data["same"] = np.char.upper(data["one"])  # the same rows by another name
    wide = data["one"] == "b"
    worse = (data["two"] == "c") & (data["three"] == "d")
    data |= {"y": random.normal(size=10_000) * np.where(worse, 4, np.where(wide, 2, 1)), "p": np.zeros(10_000)}
    slices = dt.find_slices(data, label="y", predictions="p", task="regression", max_columns=3)
    assert [each.name for each in slices] == ["two=c, three=d", "one=b"]
    twice = data | {"y": data["y"] * np.where(worse & wide, 3, 1)}
    slices = dt.find_slices(twice, label="y", predictions="p", task="regression", max_columns=3)
    assert [each.name for each in slices] == ["one=b, two=c, three=d", "two=c, three=d", "one=b"]


def test_what_is_worse_only_beside_what_was_taken_out_is_not_named() -> None:
    random = np.random.default_rng(0)
    hour, month = random.integers(0, 24, 20_000), random.integers(1, 13, 20_000)
    scale = 1 + (hour / 12) ** 2 * (1 + 0.5 * np.sin(month))  # no slice says all of it
    data = {"hour": hour, "month": month, "y": random.normal(size=20_000) * scale, "p": np.zeros(20_000)}
    slices = dt.find_slices(data, label="y", predictions="p", task="regression")
    assert len(slices) > 4
    assert min(each.effect for each in slices) >= 0.1
    assert [each for each in slices if each.loss <= each.rest_loss] == []


def test_a_cross_of_three_columns() -> None:
    random = np.random.default_rng(2)
    data: dict[str, Any] = {name: random.choice(list("abcd"), 20_000) for name in ("one", "two", "three", "four")}
    bad = (data["one"] == "a") & (data["two"] == "b") & (data["three"] == "c")
    data |= {"y": random.normal(size=20_000) * np.where(bad, 3, 1), "p": np.zeros(20_000)}
    slices = dt.find_slices(data, label="y", predictions="p", task="regression", max_columns=3)
    assert [each.name for each in slices] == ["one=a, two=b, three=c"]
    assert slices.looked_at == 4 * 4 + 6 * 16 + 4 * 64


def test_weights_are_respected() -> None:
    random = np.random.default_rng(0)
    data: dict[str, Any] = {"group": random.choice(list("abcd"), 4_000), "other": random.choice(list("xyz"), 4_000)}
    bad, gone = data["group"] == "a", data["other"] == "x"
    data |= {"y": random.normal(size=4_000) * np.where(bad | gone, 3, 1), "p": np.zeros(4_000)}
    data["w"] = np.where(gone, 0.0, random.uniform(0.5, 2, 4_000))
    assert len(dt.find_slices(data, label="y", predictions="p", task="regression")) > 1
    weighted = dt.find_slices(data, label="y", predictions="p", task="regression", weight="w")
    assert [each.name for each in weighted] == ["group=a"]
    kept, loss = bad & ~gone, data["y"] ** 2
    assert weighted[0].rows == kept.sum()
    assert weighted[0].share == pytest.approx(data["w"][kept].sum() / data["w"].sum())
    assert weighted[0].loss == pytest.approx(np.average(loss[kept], weights=data["w"][kept]))
    assert weighted.rows == (~gone).sum()
    same = dt.find_slices(data | {"w": 7 * data["w"]}, label="y", predictions="p", task="regression", weight="w")
    assert same[0].p_value == pytest.approx(weighted[0].p_value)


def test_every_task_has_its_loss() -> None:
    iris = load_iris(as_frame=True)
    frame, names = iris.frame.copy(), iris.feature_names
    model = LogisticRegression(max_iter=1000).fit(iris.data, iris.target)
    frame["name"] = iris.target_names[iris.target]
    scores = model.predict_proba(iris.data)
    by_position = dt.find_slices(frame, label="target", predictions=lambda rows: model.predict_proba(rows[names]),
                                 task="multiclass", columns=names)  # fmt: skip
    by_name = dt.find_slices(frame, label="name", predictions=lambda rows: model.predict_proba(rows[names]),
                             classes=iris.target_names.tolist(), columns=names)  # fmt: skip
    assert by_position.loss == by_name.loss == pytest.approx(-np.log(scores[np.arange(150), iris.target]).mean())
    assert by_position.findings == by_name.findings
    labels = np.array([[1, 0], [0, 1], [1, 1]] * 30)
    several = pa.table({"y": labels.tolist(), "p": np.full((90, 2), 0.25).tolist(), "c": ["a", "b", "c"] * 30})
    assert dt.find_slices(several, label="y", predictions="p").loss == pytest.approx(
        -np.log(np.where(labels == 1, 0.25, 0.75)).mean()
    )


def test_what_is_uncertain_is_apart_from_what_is_wrong() -> None:
    random = np.random.default_rng(0)
    data: dict[str, Any] = {"sure": random.choice(list("ab"), 10_000), "c": random.choice(list("xyz"), 10_000)}
    chance = np.where(data["sure"] == "a", 0.5, 0.95)
    data |= {"y": (random.random(10_000) < chance).astype(int), "p": chance}
    assert [each.name for each in dt.find_slices(data, label="y", predictions="p")] == ["sure=a"]
    assert len(dt.find_slices(data, label="y", predictions="p", excess=True)) == 0
    data["p"] = np.where(data["c"] == "y", 0.999, chance)
    wrong = dt.find_slices(data, label="y", predictions="p", excess=True)
    assert wrong[0].name == "sure=a, c=y"
    p = data["p"]
    loss = -np.log(np.where(data["y"] == 1, p, 1 - p)) - stats.entropy(np.array([p, 1 - p]))
    assert wrong.loss == pytest.approx(loss.mean())
    several = np.stack([p, (1 - p) / 2, (1 - p) / 2], axis=1)
    classes = {"y": 1 - data["y"], "p": several.tolist(), "c": data["c"]}
    loss = -np.log(np.where(data["y"] == 1, p, (1 - p) / 2)) - stats.entropy(several, axis=1)
    assert dt.find_slices(classes, label="y", predictions="p", excess=True).loss == pytest.approx(loss.mean())


def test_what_is_left_out_is_said() -> None:
    rows = 100_000
    data = {
        "user": [f"user {number}" for number in range(rows)],
        "list": [[1]] * rows,
        "constant": ["x"] * rows,
        "town": [f"town {number % 500}" for number in range(rows)],
        "number": np.arange(rows),
        "y": np.arange(rows) % 2,
        "p": np.full(rows, 0.5),
    }
    slices = dt.find_slices(data, label="y", predictions="p")
    assert slices.left_out == {
        "user": "100,000 distinct values",
        "list": f"{pa.list_(pa.int64())} makes no slices",
        "constant": "no value or range has 30 rows within and without",
        "town": "all but the 100 most frequent of 500 values",
    }
    assert "left out: user (100,000 distinct values)" in repr(slices)
    assert "100,000 distinct values" in slices._repr_html_()
    assert slices.looked_at == 100 + 54 + 100 * 54


def test_of_more_rows_a_sample_is_searched() -> None:
    columns = table_of(5, 20_000)
    slices = dt.find_slices(columns, label="late", predictions="p", max_rows=10_000)
    assert 9_500 < slices.rows < 10_500
    assert slices.of_rows == 20_000
    assert set(slices[0].columns) == {"carrier", "distance"}
    assert "of 20,000 rows" in repr(slices)
    columns["p"] = np.where(np.arange(20_000) >= 15_000, 1.5, columns["p"])
    with pytest.raises(dt.InputError, match=r"is not a probability in .* rows: row 15[0-9]{3} "):
        dt.find_slices(columns, label="late", predictions="p", max_rows=10_000)


def test_losses_that_do_not_vary_have_no_worse_slice() -> None:
    data = {"c": ["a", "b"] * 100, "y": [0.1] * 200, "p": [0.4] * 200}
    assert len(dt.find_slices(data, label="y", predictions="p", task="regression")) == 0
    wrong = {"c": ["a", "b"] * 100, "y": [1, 0] * 100, "p": [0.25] * 200}  # each value of one loss
    assert [each.name for each in dt.find_slices(wrong, label="y", predictions="p")] == ["c=a"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"label": "lat"}, r"the label needs the column 'lat'(.|\n)*did you mean 'late'"),
        ({"label": "carrier"}, r"label 'carrier' is text(.|\n)*classes="),
        ({"label": "distance"}, "label 'distance' is neither 0 nor 1|prediction .* "),
        ({"predictions": "q"}, "the prediction needs the column 'q'"),
        ({"predictions": 5}, "predictions must be a column or a function of rows, not 5"),
        ({"predictions": lambda rows: [0.5]}, r"gave an array of shape \(1,\)"),
        ({"predictions": "distance"}, "prediction 'distance' is not a probability in"),
        ({"predictions": "late"}, "label and prediction are both 'late'"),
        ({"columns": "carrier"}, r"columns must be a list of names(.|\n)*columns=\['carrier'\]"),
        ({"columns": ["carier"]}, r"the search needs the column 'carier'(.|\n)*did you mean 'carrier'"),
        ({"weight": "delay"}, "weight 'delay' is missing, infinite or negative in"),
        ({"weight": "none"}, "all of them weigh 0"),
        ({"task": "ranking"}, "query"),
        ({"task": "regression", "excess": True}, "excess is of probabilities, and numbers have none"),
        ({"max_columns": 4}, "max_columns must be a whole number from 1 to 3, not 4"),
        ({"min_examples": 0}, "min_examples must be a whole number from 2, not 0"),
        ({"bins": 1000}, "bins must be a whole number from 2 to 16, not 1000"),
        ({"level": 5}, "level must be between 0 and 1, such as 0.01, not 5"),
        ({"min_effect": -1}, "min_effect must be a number of standard deviations"),
        ({"task": "regression", "label": "huge"}, "the squared error is infinite in 500 of 500 rows"),
    ],
)
def test_a_mistake_is_named(options: dict[str, Any], says: str) -> None:
    columns = table_of(0, 500) | {"none": np.zeros(500), "huge": np.full(500, 1e300)}
    if options.get("label") == "distance":
        options |= {"task": "binary"}
    with pytest.raises(dt.InputError, match=says):
        dt.find_slices(columns, **{"label": "late", "predictions": "p"} | options)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    kinds=st.lists(st.sampled_from(["text", "few", "many", "missing"]), min_size=1, max_size=4),
    rows=st.integers(60, 250),
    width=st.integers(1, 3),
    weighted=st.booleans(),
)
def test_every_slice_is_looked_at_as_by_brute_force(
    seed: int, kinds: list[str], rows: int, width: int, weighted: bool
) -> None:
    random = np.random.default_rng(seed)
    columns, masks = [], []
    for number, kind in enumerate(kinds):
        values: Any = random.choice(list("abc"), rows) if kind == "text" else random.integers(0, 4, rows)
        values = random.normal(size=rows) if kind == "many" else values
        missing = random.random(rows) < 0.3 if kind == "missing" else np.zeros(rows, dtype=np.bool_)
        column = cut_column(f"c{number}", pa.array(values, mask=missing), 4, 5)
        assert not isinstance(column, str)
        columns.append(column)
        if kind == "text":
            apart = [values == value for value in "abc"]
        else:
            code = np.digitize(values, np.quantile(values, [0.25, 0.5, 0.75], method="inverted_cdf"), right=True)
            code = code if kind == "many" else values
            present = sorted(set(code[~missing]))
            apart = [np.isin(code, present[low:high]) & ~missing
                     for low, high in itertools.combinations(range(len(present) + 1), 2)]  # fmt: skip
            apart += [missing]
        masks.append([mask for mask in apart if 5 <= mask.sum() <= rows - 5])
    x = random.exponential(size=rows) * (random.uniform(size=rows) if weighted else 1)
    x = (x - x.mean()) / x.std()
    search = SliceSearch(columns, rows, width, 5, 0.9, 0.0)
    evidence = Evidence(x, x, np.ones(rows))
    assert sum(search.counts) == sum(
        np.prod([len(masks[number]) for number in some])
        for count in range(1, min(width, len(kinds)) + 1)
        for some in itertools.combinations(range(len(kinds)), count)
    )
    for count in range(1, min(width, len(kinds)) + 1):
        alpha = 0.9 / min(width, len(kinds)) / search.counts[count - 1]
        least = stats.norm.isf(alpha)
        expected = set()
        for some in itertools.combinations(range(len(kinds)), count):
            for cross in itertools.product(*(masks[number] for number in some)):
                inside = np.logical_and.reduce(cross)
                if not 5 <= inside.sum() <= rows - 5:
                    continue
                z = x[inside].sum() / np.sqrt(inside.sum() * (1 - inside.mean()))
                if z >= least and hall(x[inside], x[~inside]) <= alpha and x[inside].mean() > 0:
                    expected.add((some, inside.tobytes(), round(z, 6)))
        named = {
            (tuple(number for number, _ in cross), search.rows_of(cross).tobytes(), round(z, 6))
            for z, cross in search.candidates(evidence, count)
        }
        assert named == expected


def hall(x: Any, rest: Any) -> float:
    """The p-value of Welch's t by scipy, transformed as Hall's formula has it."""
    welch = stats.ttest_ind(x, rest, equal_var=False)
    error = np.sqrt(x.var(ddof=1) / len(x) + rest.var(ddof=1) / len(rest))
    third = stats.moment(x, 3) / len(x) ** 2 - stats.moment(rest, 3) / len(rest) ** 2
    a, t = third / error**3, welch.statistic
    return float(stats.t.sf(t + a / 3 * t**2 + a**2 / 27 * t**3 + a / 6, welch.df))


def test_the_tests_agree_with_scipy() -> None:
    random = np.random.default_rng(0)
    x, rest = random.exponential(size=80) + 0.2, random.exponential(size=500)
    p_value, effect = welch(powers_of(x), powers_of(rest))
    assert float(p_value) == pytest.approx(hall(x, rest), rel=1e-9)
    assert float(effect) == pytest.approx((x.mean() - rest.mean()) / np.sqrt((x.var() + rest.var()) / 2))


@pytest.mark.slow
@pytest.mark.parametrize("share", [20, 100, 500])
def test_the_saddlepoint_is_the_permutation_test(share: int) -> None:
    random = np.random.default_rng(0)
    losses = random.exponential(size=1000) ** 2
    losses = (losses - losses.mean()) / losses.std()
    draws = [random.choice(losses, share, replace=False, shuffle=False).sum() for _ in range(100_000)]
    for chance in (0.1, 0.01, 0.001):
        total = float(np.quantile(draws, 1 - chance))
        assert PermutationTest(losses).p_value(share, total) == pytest.approx(chance, rel=0.25)
    wrong = np.repeat([1.0, 0.0], [300, 700])
    scaled = (wrong - 0.3) / wrong.std()
    total = 60 * scaled[0] + (100 - 60) * scaled[-1]
    assert PermutationTest(scaled).p_value(100, total) == pytest.approx(stats.hypergeom.sf(59, 1000, 300, 100))


def test_few_losses_that_happen_to_be_alike_are_no_worse_slice() -> None:
    # 30 rows that are all wrong, of half that are: Welch's t is infinite, and chance alone does it in a few of 10^10.
    random = np.random.default_rng(0)
    named = []
    for _ in range(20):
        data = {f"c{number}": random.choice([f"v{value}" for value in range(150)], 5_000) for number in range(6)}
        data |= {"y": (random.random(5_000) < 0.5).astype(int), "p": np.full(5_000, 0.2)}
        named.append(len(dt.find_slices(data, label="y", predictions="p", min_examples=20)))
    assert sum(count > 0 for count in named) <= 2


def test_progress_counts_rows_and_slices() -> None:
    seen: list[tuple[int, int | None, str]] = []
    table = pd.DataFrame(table_of(1, 5_000))
    worst = dt.find_slices(table, label="late", predictions="p", progress=lambda *each: seen.append(each))
    assert seen[-len(worst) - 1][:3] == (5_000, 5_000, "rows")
    assert [each[0] for each in seen if each[2] == "slices"] == list(range(1, len(worst) + 1))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_each_of_two_bad_slices_is_named_once(seed: int, noise: float) -> None:
    rng = np.random.default_rng(seed)
    group, label = rng.choice(list("abcdef"), 2000), rng.integers(0, 2, 2000)
    right = np.clip(np.where(np.isin(group, ["a", "b"]), 0.2, 0.8) + noise * rng.normal(size=2000), 0.01, 0.99)
    frame = pd.DataFrame({"y": label, "p": np.where(label == 1, right, 1 - right), "g": group})
    worst = dt.find_slices(frame, label="y", predictions="p")
    assert sorted(worst.frame()["slice"]) == ["g=a", "g=b"]
    dt.evaluate(frame, label="y", predictions="p", slices=worst.slices)


def test_predicted_classes_have_no_loss() -> None:
    """Whole numbers were searched as amounts."""
    table = {"y": [0, 1, 2, 2] * 20, "p": [0, 1, 1, 2] * 20, "t": ["a", "b", "c", "c"] * 20, "x": list(range(80))}
    with pytest.raises(InputError, match="whole numbers, 3 different ones: classes or amounts"):
        dt.find_slices(table, label="y", predictions="p")
    with pytest.raises(
        InputError, match="the predictions 't' are classes, and the loss of a row is that of its scores"
    ):
        dt.find_slices({**table, "u": table["t"]}, label="u", predictions="t")
