"""`drivetrain.evaluate`: any table, any model, the numbers of scikit-learn and of a pipeline's Evaluator."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import drivetrain as dt
import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain import InputError
from drivetrain.components.evaluation import Metric, Slice, Threshold, metric
from sklearn import metrics as sk
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.linear_model import LinearRegression, LogisticRegression

FEATURES = ["mean radius", "mean texture"]


@pytest.fixture(scope="module")
def model() -> LogisticRegression:
    frame = load_breast_cancer(as_frame=True).frame
    return LogisticRegression(max_iter=5000).fit(frame[FEATURES][:300], frame.target[:300])


@pytest.fixture(scope="module")
def cancer(model: LogisticRegression) -> pd.DataFrame:
    """569 rows, with the predictions of a model, a constant, and a column to slice by."""
    frame = load_breast_cancer(as_frame=True).frame
    frame["p"], frame["half"] = model.predict_proba(frame[FEATURES])[:, 1], 0.5
    frame["large"] = np.where(frame["mean area"] > 700, "yes", "no")
    return frame


def test_every_kind_of_table_gives_what_scikit_learn_gives(cancer: pd.DataFrame, tmp_path: Path) -> None:
    table = pa.Table.from_pandas(cancer[["target", "p", "large"]], preserve_index=False)
    pq.write_table(table, tmp_path / "rows.parquet")
    kinds = [cancer, table, str(tmp_path / "rows.parquet"), duckdb.sql("select * from cancer"),
             {name: table[name] for name in table.column_names}]  # fmt: skip
    for data in kinds:
        result = dt.evaluate(data, label="target", predictions="p", slices=[["large"]])
        assert result.overall["p"]["auc"] == pytest.approx(sk.roc_auc_score(cancer.target, cancer.p), rel=1e-12)
        rows = result.where(large="yes").frame().set_index(["slice", "metric"]).value
        some = cancer[cancer.large == "yes"]
        assert rows["large=yes", "log_loss"] == pytest.approx(sk.log_loss(some.target, some.p), rel=1e-9)
        assert ("large=no", "auc") not in rows.index


def test_models_are_functions_of_rows_too(cancer: pd.DataFrame, model: LogisticRegression) -> None:
    result = dt.evaluate(
        cancer,
        label="target",
        predictions={
            "regression": lambda rows: model.predict_proba(rows[FEATURES])[:, 1],
            "old": "half",
            "column": "p",
        },
        baseline="old",
        slices=[["large"]],
        thresholds=[Threshold("auc", change_absolute=0.1)],
        confidence="delong",
    )
    # scikit-learn's own probabilities differ in the last bits by how the rows lie in memory.
    assert result.overall["regression"] == pytest.approx(result.overall["column"], rel=1e-12)
    assert result.blessed == {"regression": True, "column": True, "old": False} | {"old": result.blessed["old"]}
    rows = result.frame()
    auc = rows[(rows.model == "regression") & (rows.metric == "auc") & (rows.slice == "overall")].iloc[0]
    assert auc.lower < auc.value < auc.upper
    assert auc.change == auc.value - 0.5
    compared = result.compare("regression", "old")
    assert list(compared.columns) == ["slice", "n", "metric", "regression", "old", "difference"]
    first = compared.iloc[0]
    assert abs(first.difference) <= abs(compared[compared.metric == first.metric].difference).max()
    assert repr(result).startswith("regression: AUC 0.9")
    page = result._repr_html_()
    assert page.count("<iframe srcdoc") == 3
    assert "large=yes" in page


def test_the_task_is_seen_by_labels_and_predictions() -> None:
    iris, diabetes = load_iris(as_frame=True), load_diabetes(as_frame=True)
    several = LogisticRegression(max_iter=1000).fit(iris.data, iris.target)
    table = pa.table({"y": iris.target.to_numpy(), "p": list(several.predict_proba(iris.data))})
    ours = dt.evaluate(table, label="y", predictions="p").overall["p"]
    assert ours["accuracy"] == pytest.approx(several.score(iris.data, iris.target))
    called = dt.evaluate(
        iris.frame,
        label="target",
        predictions=lambda rows: several.predict_proba(rows[iris.feature_names]),
        task="multiclass",
    )
    assert called.overall["lambda"] == ours
    line = LinearRegression().fit(diabetes.data, diabetes.target)
    numbers = dt.evaluate(
        diabetes.frame, label="target", predictions={"line": lambda rows: line.predict(rows[diabetes.feature_names])}
    ).overall["line"]
    assert numbers["r2"] == pytest.approx(line.score(diabetes.data, diabetes.target), rel=1e-9)
    labels = pa.table({"y": [[1, 0], [0, 1]], "p": [[0.9, 0.2], [0.1, 0.7]]})
    assert dt.evaluate(labels, label="y", predictions="p").overall["p"]["exact_match"] == 1


def test_rankings_and_weights() -> None:
    table = {"q": [1, 1, 2, 2], "y": [1, 0, 0, 1], "p": [0.9, 0.1, 0.8, 0.3], "w": [1.0, 1.0, 3.0, 3.0]}
    ours = dt.evaluate(table, label="y", predictions="p", query="q", weight="w", metrics=["mean_reciprocal_rank"])
    assert ours.overall["p"]["mean_reciprocal_rank"] == pytest.approx((1 + 3 * 0.5) / 4)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"label": "tagret"}, r"the label needs the column 'tagret'.*\n.*did you mean 'target'"),
        ({"predictions": ["p", "q"]}, "the prediction needs the column 'q'"),
        ({"predictions": []}, "there are no predictions to judge"),
        ({"predictions": ["p", "half", "p"]}, "the predictions 'p' are named twice"),
        ({"metrics": []}, "there are no metrics"),
        ({"predictions": {"a": 5}}, "the model 'a' is 5, neither a column nor a function of rows"),
        ({"baseline": "half"}, "there is no model 'half' to compare with"),
        ({"weight": "w"}, "the weight needs the column 'w'"),
        ({"predictions": "mean area"}, "is not a probability in 569 of 569 rows"),
        ({"predictions": {"a": lambda rows: [0.5]}}, r"the model 'a' gave an array of shape \(1,\) .* for 569 rows"),
        (
            {"predictions": {"a": lambda rows: rows["large"]}},
            "the predictions are classes, and the labels 'target' are not of",
        ),
    ],
)
def test_a_mistake_is_named(cancer: pd.DataFrame, options: dict[str, Any], says: str) -> None:
    with pytest.raises(dt.InputError, match=says):
        dt.evaluate(cancer, **{"label": "target", "predictions": "p"} | options)


def test_a_slice_or_model_that_is_not_there(cancer: pd.DataFrame) -> None:
    result = dt.evaluate(cancer, label="target", predictions="p", slices=[["large"]])
    with pytest.raises(dt.InputError, match=r"there is no slice large=maybe(.|\n)*large=yes"):
        result.where(large="maybe")
    with pytest.raises(dt.InputError, match="there is no model 'q'"):
        result.compare("p", "q")
    with pytest.raises(dt.InputError, match="the table has no rows"):
        dt.evaluate(cancer[:0], label="target", predictions="p")


def test_decimals_and_large_whole_numbers_are_numbers(cancer: pd.DataFrame) -> None:
    frame = cancer.assign(score=(cancer["mean radius"] / 40).round(3))
    texts = pa.table({"target": frame["target"], "score": [Decimal(str(score)) for score in frame["score"]]})
    assert dt.evaluate(texts, label="target", predictions="score").overall == (
        dt.evaluate(frame, label="target", predictions="score").overall
    )
    large = pa.table({"y": pa.array([0, 2**63], pa.uint64()), "p": [0.0, 2.0**63]})
    assert dt.evaluate(large, label="y", predictions="p").overall["p"]["rmse"] == 0.0


@pytest.mark.parametrize("weight", [5e-324, 1e308])
def test_weights_whose_products_are_no_numbers_are_refused(weight: float) -> None:
    """The AUC was 0."""
    frame = pd.DataFrame({"y": [0, 1, 1], "p": [0.1, 0.9, 0.8], "w": [weight] * 3})
    with pytest.raises(dt.InputError, match=r"weight 'w' is beyond 1e-100 to 1e[+]100 in 3 of 3 rows"):
        dt.evaluate(frame, label="y", predictions="p", weight="w")


NOTEBOOK = """
import pandas as pd
import drivetrain as dt
from drivetrain.components.evaluation import Metric

def largest() -> Metric:
    return Metric.of_rows("Largest", lambda rows: float(rows.prediction.max()))

def odd() -> Metric:
    return Metric.of_rows("Odd", lambda rows: {"a": 1})

frame = pd.DataFrame({"y": [0, 1], "p": [0.25, 0.75]})
print(dt.evaluate(frame, label="y", predictions="p", metrics=[largest]).overall["p"]["largest"])
try:
    dt.evaluate(frame, label="y", predictions="p", metrics=[odd])
except dt.InputError as error:
    print(error)
"""


def test_a_metric_may_be_a_function_of_the_notebook() -> None:
    ran = subprocess.run([sys.executable, "-c", NOTEBOOK], capture_output=True, text=True, check=True, timeout=120)
    value, *error = ran.stdout.splitlines()
    assert value == "0.75"
    assert error[0] == "metric 'Odd' gives {'a': 1}, not a number"


def test_models_that_are_functions_say_what_kind_they_are(cancer: pd.DataFrame) -> None:
    iris = load_iris(as_frame=True).frame
    names = [name for name in iris if name != "target"]
    forest = LogisticRegression(max_iter=1000).fit(iris[names], iris["target"])
    result = dt.evaluate(iris, label="target", predictions=lambda rows: forest.predict_proba(rows[names]))
    accuracy = sk.accuracy_score(iris["target"], forest.predict(iris[names]))
    assert next(iter(result.overall.values()))["accuracy"] == pytest.approx(accuracy)
    labels = pa.table({"y": [[1, 0], [0, 1], [1, 1]]})
    several = dt.evaluate(labels, label="y", predictions={"m": lambda rows: np.full((len(rows), 2), 0.75)})
    assert several.overall["m"]["exact_match"] == pytest.approx(1 / 3)
    column = dt.evaluate(cancer, label="target", predictions={"m": lambda rows: rows[["p"]].to_numpy()})
    assert column.overall["m"] == dt.evaluate(cancer, label="target", predictions="p").overall["p"]


def test_of_a_slice_overall_is_the_slices(cancer: pd.DataFrame) -> None:
    """It was that of all rows."""
    slices = [["large"], ["large", "target"]]
    result = dt.evaluate(cancer, label="target", predictions="p", slices=slices).where(large="yes")
    rows = cancer[cancer["large"] == "yes"]
    assert result.overall["p"]["auc"] == pytest.approx(sk.roc_auc_score(rows["target"], rows["p"]))
    crossed = dt.evaluate(cancer, label="target", predictions="p", slices=slices[1:]).where(large="yes")
    with pytest.raises(dt.InputError, match="no slice is by large alone"):
        crossed.overall  # noqa: B018


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"label": pd.Series([0, 1])}, "label is the name of a column, not a Series"),
        ({"predictions": pd.Series([0.5])}, "predictions are columns or functions, not a Series"),
        ({"metrics": [Metric.of_rows("Profit", len)]}, "metrics has the Metric 'Profit', not the function"),
    ],
)
def test_what_is_no_name_is_named(cancer: pd.DataFrame, options: dict[str, Any], says: str) -> None:
    with pytest.raises(dt.InputError, match=says):
        dt.evaluate(cancer, **{"label": "target", "predictions": "p"} | options)


def test_a_baseline_leaves_the_intervals_as_they_are(cancer: pd.DataFrame) -> None:
    options: dict[str, Any] = {"label": "target", "metrics": ["auc", "recall"], "confidence": "jackknife"}
    ends = ["lower", "upper"]
    alone = dt.evaluate(cancer, predictions="p", **options).frame()
    beside = dt.evaluate(cancer, predictions=["p", "half"], baseline="half", **options).frame()
    assert beside[beside["model"] == "p"][ends].to_numpy() == pytest.approx(alone[ends].to_numpy())
    assert beside[beside["model"] == "p"]["change_lower"].notna().any()


def test_groups_of_one_name_are_groups_of_their_own() -> None:
    """A missing value and the text "(missing)", or crosses whose values joined by a comma are equal."""
    frame = pd.DataFrame({"g": [None] * 40 + ["(missing)"] * 40 + ["a"] * 40, "y": np.arange(120) % 2})
    frame["p"] = np.where(frame.g == "(missing)", 1 - frame.y, frame.y) * 0.8 + 0.1
    odds = metric("equalized_odds_difference", by="g", name="odds")
    judged = dt.evaluate(frame, label="y", predictions="p", metrics=[odds], thresholds=[Threshold("odds", upper=0.1)])
    assert (judged.overall["p"]["odds"], judged.blessed) == (1.0, {"p": False})
    crosses = [("q", "r", 1)] * 40 + [("x", "y, z", 0)] * 40 + [("x, y", "z", 1)] * 40
    frame = pd.DataFrame(crosses, columns=["a", "b", "right"]).assign(y=np.arange(120) % 2)
    frame["p"] = np.where(frame.right == 1, frame.y, 1 - frame.y) * 0.8 + 0.1
    gaps = [metric("gap", of="accuracy", by=["a", "b"], name="gap"),
            metric("gap", of="accuracy", by=["a", "b"], between=["x, y, z", "q, r"], name="pair")]  # fmt: skip
    result = dt.evaluate(frame, label="y", predictions="p", metrics=gaps)
    assert result.overall["p"] == {"gap": 1.0, "pair": None}
    assert "2 groups are called x, y, z" in set(result.frame()["undefined"])


def test_slices_of_no_value_and_of_the_text_missing_have_titles_of_their_own() -> None:
    frame = pd.DataFrame({"g": [None] * 4 + ["(missing)"] * 4, "y": [0, 1] * 4, "p": [0.1, 0.9] * 2 + [0.9, 0.1] * 2})
    result = dt.evaluate(frame, label="y", predictions="p", metrics=["accuracy"], slices=[["g"]])
    values = result.frame().set_index("slice")["value"]
    assert values.to_dict() == {"overall": 0.5, "g=(missing)": 1.0, "g='(missing)'": 0.0}


def test_a_ratio_of_negative_values_is_undefined() -> None:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"y": rng.normal(size=400), "p": rng.normal(size=400) * 2, "g": ["a", "b"] * 200})
    ratio = metric("gap_ratio", of="r2", by="g", name="ratio")
    result = dt.evaluate(frame, label="y", predictions="p", task="regression", metrics=[ratio])
    assert result.overall["p"]["ratio"] is None
    assert "below 0 in a group" in set(result.frame()["undefined"])


def test_a_negative_baseline_does_not_turn_the_gate_around() -> None:
    rng = np.random.default_rng(2)
    y = rng.normal(size=400)
    frame = pd.DataFrame({"y": y, "old": y + rng.normal(size=400) * 1.2})
    frame["worse"], frame["better"] = y + rng.normal(size=400) * 2, y + rng.normal(size=400) / 2
    gate = Threshold("r2", change_relative=0.0)
    judged = dt.evaluate(
        frame, label="y", predictions=["worse", "better", "old"], baseline="old", task="regression", metrics=["r2"],
        thresholds=[gate],
    )  # fmt: skip
    assert (judged.overall["old"]["r2"] or 0) < 0
    assert judged.blessed == {"worse": False, "better": True, "old": True}


def test_a_change_is_judged_by_the_scale_of_the_metric() -> None:
    rng = np.random.default_rng(3)
    y = rng.normal(size=500) * 4e-7
    frame = pd.DataFrame({"y": y, "old": y + rng.normal(size=500) * 1e-8, "new": y * 0})
    gates = [Threshold("mse", change_absolute=0.0)]
    judged = dt.evaluate(
        frame, label="y", predictions=["new", "old"], baseline="old", task="regression", metrics=["mse"],
        thresholds=gates,
    )  # fmt: skip
    assert judged.blessed == {"new": False, "old": True}


@pytest.mark.parametrize("name", ["w", "q", "y", "p"])
def test_a_model_may_have_the_name_of_a_column(name: str) -> None:
    score = np.random.default_rng(4).random(100)
    frame = pd.DataFrame({"y": [0, 1] * 50, "w": [1.0] * 50 + [0.0] * 50, "q": np.arange(100) // 10, "p": score})
    options: list[dict[str, Any]] = [
        {"weight": "w", "metrics": ["accuracy", "weighted_example_count"]},
        {"query": "q", "metrics": ["query_count", "ndcg"]},
    ]
    for each in options:
        named, plain = (
            dt.evaluate(frame, label="y", predictions={model: lambda rows: rows.p.to_numpy()}, **each).overall[model]
            for model in (name, "model")
        )
        assert named == plain


def test_a_function_sees_the_rows_as_they_are() -> None:
    """Their index and their types, whatever batches they come in."""
    rng = np.random.default_rng(5)
    frame = pd.DataFrame({"y": rng.integers(0, 2, 150_000)}, index=np.arange(150_000) * 3)
    frame["kind"] = pd.Categorical(["a", "b"] * 75_000)
    right = pd.Series(np.where(frame.y == 1, 0.9, 0.1), index=frame.index)

    def model(rows: pd.DataFrame) -> Any:
        assert list(rows.columns) == ["y", "kind"]
        assert isinstance(rows.kind.dtype, pd.CategoricalDtype)
        return right.loc[rows.index]

    for part in (frame, frame[100:200]):
        assert (
            dt.evaluate(part, label="y", predictions={"m": model}, metrics=["accuracy"]).overall["m"]["accuracy"] == 1
        )


def test_the_label_is_no_prediction() -> None:
    frame = pd.DataFrame({"y": [0, 1] * 50})
    with pytest.raises(InputError, match="'y' is the label and a prediction of it"):
        dt.evaluate(frame, label="y", predictions="y")


def test_columns_that_sql_cannot_tell_apart_are_refused() -> None:
    frame = pd.DataFrame({"y": [0, 1] * 50, "p": [0.2, 0.8] * 50, "d": range(100), "D": range(100)})
    with pytest.raises(InputError, match="'D' and 'd', which are one column to SQL"):
        dt.evaluate(frame, label="y", predictions="p", slices=[[Slice("both", sql='"D" > 5 AND d < 3')]])


def test_counts_between_slices_have_no_interval() -> None:
    frame = pd.DataFrame({"y": [0, 1] * 50, "p": [0.2, 0.8] * 50, "g": ["a", "b", "b", "b"] * 25})
    gap = metric("gap", of="example_count", by="g", name="gap")
    result = dt.evaluate(frame, label="y", predictions="p", metrics=["accuracy", gap], confidence="jackknife")
    assert result.overall["p"]["gap"] == 50
    assert result.frame().query("metric == 'gap'")["lower"].isna().all()


KINDS = ["setosa", "versicolor", "virginica"]


@pytest.fixture(scope="module")
def flowers() -> tuple[pd.DataFrame, LogisticRegression]:
    """Iris with a model's scores in a column for each class, its class as a number and as a text, and the label so."""
    bunch = load_iris(as_frame=True)
    frame, names = bunch.frame, np.array(KINDS)
    model = LogisticRegression(max_iter=1000).fit(frame[bunch.feature_names], frame.target)
    scores, kind = model.predict_proba(frame[bunch.feature_names]), model.predict(frame[bunch.feature_names])
    columns = dict(zip(KINDS, scores.T, strict=True)) | {"lists": list(scores)}
    return frame.assign(**columns, kind=kind, word=names[kind], name=names[frame.target]), model


def test_columns_of_class_scores_are_one_model(flowers: Any) -> None:
    """They were judged as three models of numbers."""
    frame, _ = flowers
    with pytest.raises(InputError, match=r"sum to 1 in each row: they are scores of the classes of one model") as error:
        dt.evaluate(frame, label="target", predictions=KINDS)
    assert "predictions={\"model\": ['setosa', 'versicolor', 'virginica']}" in str(error.value)
    lists = dt.evaluate(frame, label="target", predictions="lists").overall["lists"]
    for label in ("target", "name"):  # of texts, the columns' names are the classes
        assert dt.evaluate(frame, label=label, predictions={"m": KINDS}).overall["m"] == lists
    with pytest.raises(InputError, match="the column 'word' of class scores is of type string"):
        dt.evaluate(frame, label="target", predictions={"m": ["setosa", "word"]}, task="multiclass")


@pytest.mark.parametrize("form", ["columns", "functions"])
def test_predicted_classes_are_counted_and_not_measured(flowers: Any, form: str) -> None:
    """Whole numbers were judged as amounts, and texts refused."""
    frame, _ = flowers

    def of(name: str) -> Any:
        return name if form == "columns" else {name: lambda rows: rows[name].to_numpy()}

    with pytest.raises(
        InputError, match=r"whole numbers, 3 different ones: classes or amounts(.|\n)*task=\"multiclass"
    ):
        dt.evaluate(frame, label="target", predictions=of("kind"))
    numbers = dt.evaluate(frame, label="target", predictions=of("kind"), task="multiclass").overall["kind"]
    texts = dt.evaluate(frame, label="name", predictions=of("word")).overall["word"]
    assert texts == numbers
    assert texts["accuracy"] == pytest.approx(sk.accuracy_score(frame.target, frame.kind))
    assert texts["macro_f1"] == pytest.approx(sk.f1_score(frame.target, frame.kind, average="macro"))
    assert "log_loss" not in texts
    amounts = dt.evaluate(frame, label="target", predictions=of("kind"), task="regression").overall["kind"]
    assert amounts["mae"] == pytest.approx(sk.mean_absolute_error(frame.target, frame.kind))


def test_what_predicted_classes_cannot_be_judged_by(flowers: Any) -> None:
    frame, _ = flowers
    with pytest.raises(InputError, match="classes without scores, and log_loss judges scores"):
        dt.evaluate(frame, label="name", predictions="word", metrics=["accuracy", "log_loss"])
    with pytest.raises(InputError, match="classes, and the labels 'target' are not of their type"):
        dt.evaluate(frame, label="target", predictions="word")
    with pytest.raises(InputError, match="the prediction 'word' is 'setosa', none of the 2 classes"):
        dt.evaluate(frame, label="name", predictions="word", classes=["versicolor", "virginica"])


def test_a_metric_of_yes_or_no_says_how_it_judges_several_classes(flowers: Any) -> None:
    frame, _ = flowers
    kinds: list[dict[str, Any]] = [{}, {"task": "multiclass"}]
    for options in kinds:
        with pytest.raises(InputError, match=r'metric\(\'f1\', average="macro"\).*class_id=…; or macro_f1'):
            dt.evaluate(frame, label="target", predictions="lists", metrics=["f1"], **options)
    with pytest.raises(InputError, match=r'metric\(\'auc\', average="macro"\)'):
        dt.evaluate(frame, label="target", predictions="lists", metrics=["macro_f1", "auc"])
    with pytest.raises(InputError, match="did you mean 'auc'"):
        dt.evaluate(frame, label="target", predictions="lists", metrics=["AUC"])


def test_a_method_of_an_estimator_gets_the_features_that_it_was_fitted_on(flowers: Any) -> None:
    """It got the label, too."""
    frame, model = flowers
    lists = dt.evaluate(frame, label="target", predictions="lists").overall["lists"]
    assert dt.evaluate(frame, label="target", predictions=model.predict_proba).overall["predict_proba"] == lists
    some = frame[[*model.feature_names_in_, "target"]]
    unnamed = LogisticRegression(max_iter=1000).fit(some.drop(columns="target").to_numpy(), some.target)
    assert dt.evaluate(some, label="target", predictions=unnamed.predict_proba).overall["predict_proba"] == lists
    with pytest.raises(InputError, match="was fitted on 4 columns without names, and the rows have 11"):
        dt.evaluate(frame, label="target", predictions=unnamed.predict_proba)
    with pytest.raises(InputError, match=r"the model 'predict_proba' needs the column 'petal width \(cm\)'"):
        dt.evaluate(frame.drop(columns="petal width (cm)"), label="target", predictions=model.predict_proba)


@pytest.mark.parametrize("names", [KINDS[::-1], [1, 2, 5]])
def test_an_estimator_says_which_class_each_score_is_of(flowers: Any, names: list[Any]) -> None:
    """Texts were refused, and whole numbers taken for positions."""
    frame, model = flowers
    kinds = np.array(names)[frame.target]
    refitted = LogisticRegression(max_iter=1000).fit(frame[model.feature_names_in_], kinds)
    frame = frame.assign(kind=kinds)
    overall = dt.evaluate(frame, label="kind", predictions=refitted.predict_proba).overall["predict_proba"]
    scores = refitted.predict_proba(frame[model.feature_names_in_])
    assert overall["log_loss"] == pytest.approx(sk.log_loss(kinds, scores, labels=refitted.classes_), rel=1e-9)
    assert overall["accuracy"] == sk.accuracy_score(kinds, refitted.predict(frame[model.feature_names_in_]))
    worst = dt.find_slices(frame, label="kind", predictions=refitted.predict_proba, columns=["petal width (cm)"])
    assert worst.loss == pytest.approx(overall["log_loss"], rel=1e-9)


def test_scores_in_another_order_of_the_classes_are_refused(flowers: Any) -> None:
    """The second model was judged by the order of the first."""
    frame, _ = flowers
    with pytest.raises(InputError, match=r"the model 'b' are of the classes \['virginica', 'versicolor', 'setosa'"):
        dt.evaluate(frame, label="name", predictions={"a": KINDS, "b": KINDS[::-1]})


MASKED: Any = np.ma.MaskedArray([[0.1, 0.9], [0.2, 0.8]], np.array([[0, 0], [0, 1]], bool))


@pytest.mark.parametrize(
    ("data", "predictions", "says"),
    [
        (
            {"y": np.ma.MaskedArray([0, 1, 1], np.array([0, 1, 0], bool)), "p": [0.1, 0.9, 0.8]},
            "p",
            "label 'y' is missing in 1 of 3",
        ),
        ({"y": [0, 1]}, {"m": lambda rows: MASKED[1]}, "prediction 'm' of the candidate is missing or NaN in 1 of 2"),
        ({"y": [0, 1]}, {"m": lambda rows: MASKED}, "prediction 'm' of the candidate is missing or NaN in 1 of 2"),
        ({"y": [0, 1], "p": MASKED}, "p", "'p' .* in 1 of 2"),
    ],
)
def test_what_a_mask_hides_is_missing(data: Any, predictions: Any, says: str) -> None:
    """The values beneath it were judged."""
    with pytest.raises(InputError, match=says):
        dt.evaluate(data, label="y", predictions=predictions)


def test_a_folder_that_is_no_bundle_is_named(cancer: pd.DataFrame, tmp_path: Path) -> None:
    (tmp_path / "versions" / "3").mkdir(parents=True)
    (tmp_path / "versions" / "3" / "manifest.json").write_text("{}")
    for folder, says in (
        (str(tmp_path), ": .* has no manifest.json"),
        (tmp_path, ": .* has no manifest.json"),
        (tmp_path / "versions", r": .* has no manifest.json\n.*name one, the newest is .*3"),
        ("served/nothing/1", r": there is no folder served/nothing/1\n  fix: name the folder that holds manifest.json"),
    ):
        with pytest.raises(InputError, match=f"neither a column nor a bundle{says}"):
            dt.evaluate(cancer, label="target", predictions=folder)
