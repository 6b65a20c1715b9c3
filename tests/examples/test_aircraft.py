"""The census-style example: its features and its model against other people's, and a row that fails."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from drivetrain.tests.examples import example_job

pytestmark = [pytest.mark.slow, pytest.mark.engine, pytest.mark.timeout(900)]
NUMBERS = ["seats", "engines", "speed"]
COMPANY = r"\b(INDUSTRIES?|AIRCRAFT|AEROSPACE|AEROSPATIALE|CORPORATION|COMPANY|CORP|CO|INC|LTD)\b"


@pytest.fixture(scope="module")
def aircraft(tmp_path_factory: pytest.TempPathFactory) -> example_job.Example:
    return example_job.run("aircraft", tmp_path_factory.mktemp("aircraft") / ".drivetrain")


def tidied(raw: pd.DataFrame) -> dict[str, pd.Series]:
    return {
        "family": raw["model"].map(lambda text: re.sub(r"[-/( ].*", "", text.strip())),
        "maker": raw["manufacturer"].map(lambda text: re.sub(COMPANY, "", text).strip()),
        "model": raw["model"].str.strip(),
        "airline": raw["tailnum"].map(lambda text: re.sub(r"^N?[0-9]+", "", text)),
    }


def label(raw: pd.DataFrame) -> np.ndarray:
    return np.asarray(raw["year"] >= 2000, np.float32)  # a missing one compares as False


def test_scaled_numbers_are_sklearns(aircraft: example_job.Example) -> None:
    from sklearn.preprocessing import MinMaxScaler

    train, _ = aircraft.frames("train")
    raw, made = aircraft.frames("eval")
    expected = MinMaxScaler().fit(train[NUMBERS]).transform(raw[NUMBERS])
    assert np.isnan(expected).any(axis=0).tolist() == [False, False, True]
    for place, name in enumerate(NUMBERS):
        wanted = np.where(np.isnan(expected[:, place]), 0.5, expected[:, place])
        np.testing.assert_allclose(example_job.matrix(made, name), wanted, atol=1e-5, err_msg=name)
    np.testing.assert_array_equal(example_job.matrix(made, "no_speed"), raw["speed"].isna())


def test_text_words_one_hots_and_label_are_pythons(aircraft: example_job.Example) -> None:
    train, _ = aircraft.frames("train")
    raw, made = aircraft.frames("eval")
    learnt, texts = tidied(train), tidied(raw)
    assert not learnt["maker"].str.contains("INDUSTRIE").any()
    for name, depth in (("family", 32), ("maker", 16)):
        words = example_job.words_by_count(learnt[name][learnt[name] != ""], depth)
        assert len(words) == depth
        places = texts[name].map({word: place for place, word in enumerate(words)}).fillna(depth)
        np.testing.assert_array_equal(example_job.matrix(made, name), np.eye(depth + 2)[places.astype(int)])
    for name in ("model", "airline"):
        words = example_job.words_by_count(learnt[name], least=2)
        places = texts[name].map({word: place for place, word in enumerate(words)})
        assert places.isna().any()
        np.testing.assert_array_equal(example_job.matrix(made, name), places.fillna(len(words)), err_msg=name)
        if name == "model":
            np.testing.assert_array_equal(example_job.matrix(made, "common"), places.notna())
    engines = ["Turbo-fan", "Turbo-jet", "Turbo-prop", "Turbo-shaft", "Reciprocating", "4 Cycle"]
    places = raw["engine"].map(dict(zip(engines, (0, 1, 2, 3, 4, 4), strict=True)))
    np.testing.assert_array_equal(example_job.matrix(made, "engine"), np.eye(6)[places])
    words = example_job.words_by_count(train["type"].str.lower().str.split().explode(), 6)
    expected = np.zeros((len(raw), 8))
    for row, text in enumerate(raw["type"].str.lower()):
        expected[row, [words.index(word) if word in words else 6 for word in text.split()]] = 1
    np.testing.assert_array_equal(example_job.matrix(made, "type"), expected)
    np.testing.assert_array_equal(example_job.matrix(made, "new"), label(raw))


def test_the_model_is_better_than_a_linear_one_of_the_raw_columns(aircraft: example_job.Example) -> None:
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss, roc_auc_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler, OneHotEncoder

    train, rows = (aircraft.rows(split).to_pandas() for split in ("train", "eval"))
    columns = make_column_transformer(
        (make_pipeline(MinMaxScaler(), SimpleImputer()), NUMBERS),
        (OneHotEncoder(handle_unknown="ignore"), ["type", "manufacturer", "model", "engine"]),
    )
    linear = make_pipeline(columns, LogisticRegression(max_iter=1000)).fit(train, label(train))
    predicted = linear.predict_proba(rows)[:, 1]
    assert aircraft.metric("auc") > roc_auc_score(label(rows), predicted)
    assert aircraft.metric("log_loss") < log_loss(label(rows), predicted)


def test_the_pushed_model_predicts_alone(aircraft: example_job.Example, tmp_path: Path) -> None:
    from sklearn.metrics import roc_auc_score

    predicted = example_job.predicted_alone(aircraft, ["year"], tmp_path)
    assert roc_auc_score(label(aircraft.rows("eval").slice(0, 1000).to_pandas()), predicted) > 0.9


def test_an_unknown_engine_has_a_place_and_a_year_of_neither_century_fails_its_row(
    aircraft: example_job.Example,
) -> None:
    from drivetrain.engine import Bundle
    from drivetrain.errors import InputError

    bundle = Bundle.load(aircraft.done.path(aircraft.root, "Transform", "graph") / "content")
    row = aircraft.rows("eval").slice(0, 1).to_pylist()[0]
    for engine, place in ((" TURBO  JET ", 1), ("4-cycle", 4), ("Warp drive", 5)):
        made = bundle.run_row("transform", {**row, "engine": engine})
        np.testing.assert_array_equal(np.asarray(made["engine"]).ravel(), np.eye(6)[place])
    for year, new in ((1999, 0.0), (2000, 1.0), (None, 0.0)):
        assert np.asarray(bundle.run_row("transform", {**row, "year": year})["new"]) == new
    with pytest.raises(InputError, match="the year is of neither century"):
        bundle.run_row("transform", {**row, "year": 1789})
