"""`drivetrain.explain` against scikit-learn, closed forms, and columns that are known to matter or not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import drivetrain as dt
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from drivetrain.components.evaluation import metric
from drivetrain.components.explanation.explain import Effort
from drivetrain.components.explanation.files import write
from drivetrain.data import source_of
from drivetrain.engine import Bundle, analyze, export_model, ops
from drivetrain.errors import InputError
from sklearn import inspection
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.tree import DecisionTreeClassifier

pytestmark = pytest.mark.engine

FEATURES = ["mean radius", "mean texture", "mean smoothness", "worst concavity"]


@pytest.fixture(scope="module")
def cancer() -> tuple[pd.DataFrame, DecisionTreeClassifier]:
    frame = load_breast_cancer(as_frame=True).frame[[*FEATURES, "target"]]
    return frame, DecisionTreeClassifier(max_depth=4, random_state=1).fit(frame[FEATURES][:300], frame["target"][:300])


def test_importance_is_scikit_learns(cancer: Any) -> None:
    frame, tree = cancer
    held = frame[300:].reset_index(drop=True)
    result = dt.explain(
        held, lambda rows: tree.predict_proba(rows[FEATURES])[:, 1], label="target", metric="auc",
        effort=Effort(repeats=30, attributed=0),
    )  # fmt: skip
    theirs = inspection.permutation_importance(
        tree, held[FEATURES], held["target"], scoring="roc_auc", n_repeats=30, random_state=5
    )
    ours = result.importance().set_index("column")
    for name, mean, std in zip(FEATURES, theirs.importances_mean, theirs.importances_std, strict=True):
        assert ours["importance"][name] == pytest.approx(mean, abs=4 * std * (2 / 30) ** 0.5 + 1e-9), name
        assert ours["lower"][name] <= ours["importance"][name] <= ours["upper"][name]
    assert [each.column for each in result.importances] == list(ours["importance"].sort_values(ascending=False).index)
    assert repr(result).startswith("269 rows looked at; auc 0.9")


def test_dependence_is_scikit_learns() -> None:
    frame = load_diabetes(as_frame=True).frame
    names = ["bmi", "bp", "s5"]
    forest = RandomForestRegressor(10, random_state=0).fit(frame[names], frame["target"])
    result = dt.explain(frame[names], lambda rows: forest.predict(rows[names]), effort=Effort(points=7, attributed=0))
    assert result.importances == ()
    for name in names:
        ours = result.dependence_on(name)
        grid = ours["value"].to_numpy()
        theirs = inspection.partial_dependence(
            forest, frame[names], [name], kind="both", custom_values={name: grid}, method="brute"
        )
        np.testing.assert_allclose(ours["mean"], theirs["average"][0], rtol=1e-9)
        each = theirs["individual"][0]
        np.testing.assert_allclose(ours["low"], np.quantile(each, 0.1, axis=0), rtol=1e-9)
        np.testing.assert_allclose(ours["high"], np.quantile(each, 0.9, axis=0), rtol=1e-9)
        assert ours["share"].sum() == pytest.approx(1.0)
        assert {grid[0], grid[-1]} == {frame[name].min(), frame[name].max()}


def test_of_a_linear_model_attributions_are_weight_times_distance() -> None:
    frame = load_diabetes(as_frame=True, scaled=False).frame
    names = ["bmi", "bp", "s5"]
    line = LinearRegression().fit(frame[names], frame["target"])
    result = dt.explain(
        frame[names], lambda rows: line.predict(rows[names]), effort=Effort(attributed=30, steps=3, max_rows=1000)
    )
    assert result.gap is not None
    assert result.gap < 1e-9
    for name, weight in zip(names, line.coef_, strict=True):
        expected = weight * (frame[name] - frame[name].mean())[:30]
        np.testing.assert_allclose(result.attributions[name].to_numpy(), expected, rtol=1e-6, atol=1e-9)
    means = result.mean_attributions()
    assert list(means.values()) == sorted(means.values(), reverse=True)


def test_a_column_that_says_nothing_is_worth_nothing_and_slices_differ() -> None:
    """y is x where g is a, and z where g is b."""
    dice = np.random.default_rng(1)
    frame = pd.DataFrame({name: dice.normal(size=2_000) for name in ("x", "z", "noise")})
    frame["g"] = np.where(dice.random(2_000) < 0.5, "a", "b")
    frame["y"] = np.where(frame["g"] == "a", frame["x"], frame["z"])
    result = dt.explain(
        frame, lambda rows: np.where(rows["g"] == "a", rows["x"], rows["z"]) + 0 * rows["noise"],
        label="y", metric="mae", slices=[["g"]], columns=["x", "z", "noise", "g"],
    )  # fmt: skip
    worth = {(each.slice, each.column): each for each in result.importances}
    assert worth["overall", "noise"].importance == 0.0
    assert worth["g=a", "x"].importance == pytest.approx(2 / np.pi**0.5, rel=0.1)  # E|x − x'|
    assert worth["g=a", "z"].importance == 0.0
    assert worth["g=b", "z"].importance > 1
    assert worth["overall", "g"].importance > 0.3
    assert {each.n for each in result.importances if each.slice == "g=a"} == {int((frame["g"] == "a").sum())}
    within = result.dependence_on("x", "g=a")  # where the model is x itself
    np.testing.assert_allclose(within["mean"], within["value"])
    np.testing.assert_allclose(within["low"], within["value"])
    share = (frame["g"] == "a").mean()
    np.testing.assert_allclose(
        result.dependence_on("x")["mean"],
        share * within["mean"] + (1 - share) * result.dependence_on("x", "g=b")["mean"],
    )
    assert "by slice" in result._repr_html_()
    with pytest.raises(InputError, match="there is no slice 'g=c'"):
        result.dependence_on("x", "g=c")
    texts = result.dependence_on("g")
    assert sorted(texts["value"]) == ["a", "b"]
    assert texts["share"].sum() == 1.0


def test_of_several_classes() -> None:
    frame = load_iris(as_frame=True).frame
    names = [name for name in frame if name != "target"]
    logistic = LogisticRegression(max_iter=1000).fit(frame[names], frame["target"])
    result = dt.explain(
        frame, lambda rows: logistic.predict_proba(rows[names]), label="target", effort=Effort(attributed=9)
    )
    assert result.metric == "log_loss"
    assert result.importances[0].column.startswith("petal")
    length = result.dependence_on("petal length (cm)")
    assert length.groupby("value")["mean"].sum().to_numpy() == pytest.approx(1.0)
    # They add up to the change of each class's probability, and over classes to 0, as probabilities add up to 1.
    assert result.gap is not None
    assert result.gap < 1e-3
    attributed = result.attributions.to_pandas()
    assert attributed[["row", "output"]].to_numpy().tolist() == [
        [row, output] for row in range(9) for output in range(3)
    ]
    assert attributed.groupby("row")[names].sum().to_numpy() == pytest.approx(0.0, abs=1e-6)
    means = pd.DataFrame([frame[names].mean()])
    change = logistic.predict_proba(frame[names][:9]) - logistic.predict_proba(means)
    assert attributed[names].sum(axis=1).to_numpy() == pytest.approx(change.reshape(-1), abs=1e-3)


def preprocess(columns: ops.Columns) -> ops.Columns:
    return {
        "x": ops.z_score(columns["x"]),
        "town": ops.vocabulary(columns["town"]),
        "y": ops.cast(columns["y"], "float32"),
    }


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pd.DataFrame]:
    dice = np.random.default_rng(2)
    frame = pd.DataFrame({"x": dice.normal(3, 2, 500), "town": dice.choice(["Ulm", "Bonn"], 500), "unread": 1.0})
    frame["y"] = (frame["x"] > 3).astype(int)
    folder = tmp_path_factory.mktemp("model") / "bundle"
    graph = folder.parent / "graph"
    analyze(preprocess, source_of(frame)).save(graph)
    export_model(
        graph,
        lambda weight, columns: weight * columns["x"],
        np.float32(2.0),
        lambda logit: {"probability": 1 / (1 + jnp.exp(-logit))},
        label="y",
        out=folder,
    )
    return folder, frame


def test_a_bundle_is_explained_by_the_columns_that_it_reads(bundle: tuple[Path, pd.DataFrame]) -> None:
    folder, frame = bundle
    result = dt.explain(frame, folder, label="y", effort=Effort(attributed=20, steps=64))
    worth = {each.column: each.importance for each in result.importances}
    assert worth["x"] > 0.5
    assert worth.get("town", 0.0) == 0.0
    assert "unread" not in worth
    assert result.gap is not None
    assert result.gap < 0.01  # in float32
    page = result._repr_html_()
    for words in ("Importance", "Attributions", "Predictions by x"):
        assert words in page


def test_a_bundle_is_evaluated_and_searched_by_its_folder(bundle: tuple[Path, pd.DataFrame]) -> None:
    """Its path was looked for among the columns."""
    folder, frame = bundle
    loaded = Bundle.load(folder)
    frame = frame.assign(p=np.asarray(loaded.run("predict", frame)["probability"], np.float64))
    expected = dt.evaluate(frame, label="y", predictions="p").overall["p"]
    for predictions in (str(folder), folder, loaded, {"new": folder}):
        assert list(dt.evaluate(frame, label="y", predictions=predictions).overall.values()) == [expected]
    frame.loc[frame["town"] == "Ulm", "y"] = 1 - frame["y"]
    worst = dt.find_slices(frame.drop(columns="p"), label="y", predictions=folder, columns=["town", "unread"])
    assert [each.name for each in worst.slices] == ["town=Ulm"]


def test_slices_of_one_name_are_told_apart() -> None:
    """No value, and the text "(missing)", were one slice of the dependence."""
    frame = pd.DataFrame({"town": [None] * 40 + ["(missing)"] * 30 + ["Ulm"] * 30, "x": np.arange(100.0)})
    frame["y"] = np.arange(100) % 2
    result = dt.explain(frame, lambda rows: rows["x"].to_numpy() / 100, label="y", slices=[["town"]], columns=["x"])
    names = ["town='(missing)'", "town=(missing)", "town=Ulm"]
    sizes = {each.slice: each.n for each in result.importances}
    assert sizes == {"overall": 100, **dict(zip(names, (30, 40, 30), strict=True))}
    assert {each.slice for each in result.dependence} == set(sizes)


def test_a_sample_is_taken_of_many_rows() -> None:
    frame = pd.DataFrame({"x": np.arange(5_000.0)})
    result = dt.explain(frame, lambda rows: rows["x"].to_numpy(), effort=Effort(max_rows=200))
    assert result.rows == 200
    again = dt.explain(frame, lambda rows: rows["x"].to_numpy(), effort=Effort(max_rows=200))
    assert again == result


def test_an_infinite_number_leaves_plain_json(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": np.arange(9.0), "z": 1.0}).assign(x=lambda rows: rows["x"].replace(3.0, np.inf))
    result = dt.explain(frame, lambda rows: np.where(rows["x"] > 6, 5.0, rows["x"]))
    write(result, tmp_path, tmp_path, title="x")

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    facts = json.loads((tmp_path / "explanation.json").read_text(), parse_constant=refuse)
    assert facts["gap"] is not None
    assert result.attributions["row"].to_pylist() == [0, 1, 2, 4, 5, 6, 7, 8]
    assert all(np.isfinite(value) for value in result.mean_attributions().values())
    with pytest.raises(InputError, match="the model gave nan for row"):
        dt.explain(frame, lambda rows: np.where(rows["x"] > 6, np.nan, rows["x"]))


def test_names_do_not_steer_the_terminal() -> None:
    frame = pd.DataFrame({"a\x1b[31m\nb": [1.0, 2.0], "t\x1b\nt": [[1], [2]], "y": [0.0, 2.0]})
    text = repr(dt.explain(frame, lambda rows: rows.iloc[:, 0].to_numpy(), label="y", task="regression"))
    assert "\x1b" not in text
    assert r"a\x1b[31m\nb: " in text
    assert r"left out: t\x1b\nt (" in text


def test_what_is_not_looked_at_is_told() -> None:
    frame = pd.DataFrame({"x": [1.0, 2.0, np.nan], "tags": [["a"], [], ["b"]], "gone": [None, None, None], "c": 1.0})
    result = dt.explain(frame, lambda rows: rows["x"].fillna(0).to_numpy())
    assert set(result.left_out) == {"tags", "gone"}
    assert "left out: tags (it holds list" in repr(result)
    assert len(result.dependence_on("c")) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"label": "z"}, "'z'"),
        ({"columns": ["q"]}, "'q'"),
        ({"label": "y", "slices": [["h"]]}, "'h'"),
        ({"label": "y", "metric": "acuracy"}, "accuracy"),
        ({"model": lambda rows: np.zeros(3)}, r"an array of shape \(3,\) .* for 4 rows"),
        ({"data": pd.DataFrame({"x": [1.0]})}, "two rows or more"),
    ],
)
def test_what_cannot_be_explained_is_refused(options: dict[str, Any], words: str) -> None:
    frame = pd.DataFrame({"x": [0.1, 0.2, 0.3, 0.4], "y": [0, 1, 0, 1]})
    call: dict[str, Any] = {"data": frame, "model": lambda rows: rows["x"].to_numpy()} | options
    with pytest.raises(InputError, match=words):
        dt.explain(call.pop("data"), call.pop("model"), **call)


def test_efforts_and_names_are_checked(bundle: tuple[Path, pd.DataFrame]) -> None:
    with pytest.raises(InputError, match="repeats must be a whole number of at least 1"):
        Effort(repeats=0)
    with pytest.raises(InputError, match=r"predict gives no 'probabilty'.*\n.*probability"):
        dt.explain(bundle[1], bundle[0], prediction="probabilty")
    result = dt.explain(bundle[1], bundle[0], label="y", effort=Effort(repeats=1, attributed=0))
    assert result.importances[0].lower is None
    with pytest.raises(InputError, match="there is no slice"):
        result.importance("town=Ulm")
    with pytest.raises(InputError, match="there is no dependence on"):
        result.dependence_on("z")


def test_shares_of_small_integers() -> None:
    table = pa.table({"a": pa.array([200] * 60 + [250] * 40, pa.uint8()), "y": [0, 1] * 50})
    shares = dt.explain(table, lambda rows: rows.a.astype(float) / 500, columns=["a"]).dependence_on("a")["share"]
    assert list(shares) == [0.6, 0.4]


def test_metrics_that_importance_cannot_be_measured_by() -> None:
    frame = pd.DataFrame({"y": [0, 1] * 50, "c": ["a", "b", "b", "b"] * 25, "x": np.arange(100.0)})
    gap = metric("gap", of="accuracy", by="c")
    with pytest.raises(InputError, match="compares slices"):
        dt.explain(frame, lambda rows: rows.x / 100, label="y", metric=gap)
    with pytest.raises(InputError, match="auc has no value on these rows"):
        dt.explain(frame.assign(y=1), lambda rows: rows.x / 100, label="y", metric="auc", task="binary")


def test_large_predictions_have_their_mean() -> None:
    """Their sum was infinite, and NumPy warned."""
    frame = pd.DataFrame({"x": np.arange(40.0)})
    result = dt.explain(frame, lambda rows: np.where(rows["x"] < 0, 0.0, 1.5e308))
    assert [each.mean for each in result.dependence] == pytest.approx([1.5e308] * len(result.dependence))
    with pytest.raises(InputError, match="the model gave inf for row 31, and no finite numbers for 9 rows"):
        dt.explain(frame, lambda rows: np.where(np.arange(len(rows)) > 30, np.inf, 0.0))
    masked = np.ma.MaskedArray(np.ones(40), np.arange(40) == 7)
    with pytest.raises(InputError, match="the model gave nan for row 7"):
        dt.explain(frame, lambda rows: masked)
