"""Dates and timestamps in requests: rows are sent as they are in the data that the model was trained on."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

pytest.importorskip("httptools")
pytest.importorskip("grpc")

from click.testing import CliRunner
from drivetrain.console.cli import cli
from drivetrain.engine import analyze, ops
from drivetrain.serving import Client
from drivetrain.serving.config import ModelConfig
from drivetrain.serving.server import ServerOptions
from drivetrain.tests.serving.open_server import OpenServer, open_server

pytestmark = pytest.mark.engine
Transport = Literal["json", "binary", "grpc"]

DAYS = [dt.date(2026, 1, 1), dt.date(1969, 12, 30), dt.date(2024, 2, 29)]
TIMES = [dt.datetime(2026, 1, 1, 18, 30), dt.datetime(1969, 12, 30, 23, 59, 59), dt.datetime(2024, 2, 29)]
TABLE = pa.table({"day": pa.array(DAYS), "at": pa.array(TIMES, pa.timestamp("us")), "count": [1, 2, 3]})
EXPECTED = [
    {"weekday": day.weekday(), "hour": at.hour, "count": count}
    for day, at, count in zip(DAYS, TIMES, (1, 2, 3), strict=True)
]


def features(c: ops.Columns) -> ops.Columns:
    return {
        "weekday": ops.fill_missing(ops.timestamp_part(c["day"], "day_of_week"), -1),
        "hour": ops.fill_missing(ops.timestamp_part(c["at"], "hour"), -1),
        "count": c["count"],
    }


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenServer]:
    folder = tmp_path_factory.mktemp("times")
    (folder / "days").mkdir()
    analyze(features, TABLE).save(folder / "days" / "1")
    with open_server(ServerOptions(poll_seconds=0), [ModelConfig("days", str(folder / "days"))]) as running:
        yield running


def client_of(server: OpenServer, transport: Transport = "json") -> Client:
    return Client(f"http://{server.grpc}" if transport == "grpc" else server.rest, "days", transport=transport)


def columns_of(kind: str) -> dict[str, Any]:
    """The table as columns of numpy, Arrow and pandas."""
    if kind == "numpy ns":
        return {"day": np.array(DAYS, "M8[ns]"), "at": np.array(TIMES, "M8[ns]"), "count": np.array([1, 2, 3])}
    if kind == "numpy D":
        return {"day": np.array(DAYS, "M8[D]"), "at": np.array(TIMES, "M8[s]"), "count": [1, 2, 3]}
    if kind == "arrow":
        return {"day": TABLE["day"].combine_chunks(), "at": TABLE["at"], "count": TABLE["count"]}
    frame = pd.DataFrame({"day": DAYS, "at": pd.to_datetime(TIMES).tz_localize("UTC"), "count": [1, 2, 3]})
    return {"day": frame["day"], "at": frame["at"], "count": frame["count"].to_numpy()}


@pytest.mark.parametrize("transport", ["json", "binary", "grpc"])
def test_rows_have_dates_as_the_training_data_has_them(server: OpenServer, transport: Transport) -> None:
    """And columns that the model does not read may hold dates, too."""
    zone = dt.timezone(dt.timedelta(hours=2))
    with client_of(server, transport) as client:
        rows = [{**row, "unread": dt.date(2026, 1, 1)} for row in TABLE.to_pylist()]
        assert [*client.predict(rows).rows] == EXPECTED
        zoned = [{**row, "at": row["at"].replace(tzinfo=dt.UTC).astimezone(zone)} for row in TABLE.to_pylist()]
        assert [*client.predict(zoned).rows] == EXPECTED
        missing = [{"day": pd.NaT, "at": np.datetime64("NaT"), "count": 1}, *TABLE.to_pylist()]
        assert [*client.predict(missing).rows] == [{"weekday": -1, "hour": -1, "count": 1}, *EXPECTED]


@pytest.mark.parametrize("transport", ["json", "binary", "grpc"])
@pytest.mark.parametrize("kind", ["numpy ns", "numpy D", "arrow", "pandas"])
def test_columns_of_dates(server: OpenServer, transport: Transport, kind: str) -> None:
    with client_of(server, transport) as client:
        assert [*client.predict(columns_of(kind)).rows] == EXPECTED


def test_predict_sends_the_file_that_was_trained_on(server: OpenServer, tmp_path: Path) -> None:
    pa.csv.write_csv(TABLE, tmp_path / "days.csv")
    pa.parquet.write_table(TABLE, tmp_path / "days.parquet")
    for name in ("days.csv", "days.parquet"):
        result = CliRunner().invoke(cli, ["predict", f"{server.rest}/v1/models/days", str(tmp_path / name), "--json"])
        assert json.loads(result.stdout)["predictions"] == EXPECTED
