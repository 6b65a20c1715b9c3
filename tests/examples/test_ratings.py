"""The ratings example: every pair as pandas counts it, its metrics as scikit-learn has them, and a plain baseline."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from drivetrain.tests.examples import example_job, flights_job

pytestmark = [pytest.mark.slow, pytest.mark.engine, pytest.mark.timeout(900)]

NODES = ("Ratings", *example_job.NODES, "Error")


@pytest.fixture(scope="module")
def ratings(tmp_path_factory: pytest.TempPathFactory) -> example_job.Example:
    root = tmp_path_factory.mktemp("ratings") / ".drivetrain"
    done = flights_job.run(root, project=flights_job.REPOSITORY / "examples" / "ratings", timeout=600)
    assert done.code == 0, (done.result, done.err)
    assert done.states == dict.fromkeys(NODES, "COMPLETE")
    return example_job.Example(root, done, "Ratings")


@pytest.fixture(scope="module")
def judged(ratings: example_job.Example) -> pd.DataFrame:
    """The rows of the eval split, with what the pushed model predicts."""
    from drivetrain.engine import Bundle

    rows = ratings.rows("eval").combine_chunks()
    (batch,) = rows.drop(["flights"]).to_batches()
    predicted = np.asarray(Bundle.load(ratings.pushed()).run("predict", batch)["predicted"])
    frame = rows.to_pandas()
    return frame.assign(predicted=predicted, rating=np.log1p(frame["flights"]))


def error(frame: pd.DataFrame, predicted: str) -> float:
    return float(np.sqrt(((frame[predicted] - frame["rating"]) ** 2).mean()))


def ndcg(frame: pd.DataFrame, predicted: str) -> float:
    """Of ten, the mean over the aircraft that fly somewhere."""
    from sklearn.metrics import ndcg_score

    flown = [pairs for _, pairs in frame.groupby("tailnum") if (pairs["rating"] > 0).any() and len(pairs) > 1]
    return float(np.mean([ndcg_score([pairs["rating"]], [pairs[predicted]], k=10) for pairs in flown]))


def test_each_pair_of_aircraft_and_airport_is_a_row(ratings: example_job.Example) -> None:
    flights = flights_job.flights().to_pandas().dropna(subset=["tailnum"])
    expected = pd.crosstab(flights["tailnum"], flights["dest"]).stack()
    rows = pd.concat([ratings.rows(split).to_pandas() for split in ("train", "eval")])
    pairs = rows.set_index(["tailnum", "dest"])["flights"].sort_index()
    assert len(pairs) == 4_043 * 104
    pd.testing.assert_series_equal(pairs, expected.sort_index(), check_names=False)
    carriers = flights.groupby("tailnum")["carrier"].min()
    assert (rows["carrier"].to_numpy() == carriers.loc[rows["tailnum"]].to_numpy()).all()
    np.testing.assert_allclose(rows["distance"], flights.groupby("dest")["distance"].mean().loc[rows["dest"]])


def test_the_metrics_are_those_of_scikit_learn(ratings: example_job.Example, judged: pd.DataFrame) -> None:
    assert ratings.metric("ndcg(k=10)") == pytest.approx(ndcg(judged, "predicted"), abs=2e-3)  # one of single airports
    content = ratings.done.path(ratings.root, "Error", "evaluation") / "content"
    rows = pq.read_table(content / "metrics.parquet").to_pylist()
    (value,) = [row["value"] for row in rows if row["metric"] == "rmse"]
    assert value == pytest.approx(error(judged, "predicted"), rel=1e-4)


def test_embeddings_know_more_than_the_mean_of_carrier_and_airport(
    ratings: example_job.Example, judged: pd.DataFrame
) -> None:
    train = ratings.rows("train").to_pandas()
    means = train.assign(rating=np.log1p(train["flights"])).groupby(["carrier", "dest"])["rating"].mean()
    pairs = pd.MultiIndex.from_frame(judged[["carrier", "dest"]])
    judged["mean"] = means.reindex(pairs).fillna(0).to_numpy()
    assert error(judged, "predicted") < 0.85 * error(judged, "mean")
    assert ndcg(judged, "predicted") > ndcg(judged, "mean") + 0.01


def test_an_aircraft_that_comes_later_has_an_embedding(ratings: example_job.Example) -> None:
    from drivetrain.engine import Bundle

    bundle = Bundle.load(ratings.pushed())
    row = {"tailnum": "N00000", "dest": "LAX", "carrier": "AA", "distance": 2475.0}
    assert np.isfinite(np.asarray(bundle.run_row("predict", row)["predicted"])).all()
    table = bundle.payload.weights["model/tables/tailnum/embedding"]
    assert table.shape == (4_043 + 8 + 1, 16)  # 8 ids for those that come later, one for a missing name
