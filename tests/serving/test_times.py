"""Dates and timestamps in requests: rows are sent as they are in the data that the model was trained on."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import jsonschema
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
from drivetrain.errors import InputError
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


FAR = pa.table(
    {"day": pa.array([6_585_442, 0, None], pa.int32()).cast(pa.date32()),
     "at": pa.array([2**57, 0, None], pa.int64()).cast(pa.timestamp("us")), "count": [1, 2, 3]}
)  # fmt: skip


def test_times_that_python_has_none_of_are_sent_as_the_numbers_that_they_are(
    server: OpenServer, tmp_path: Path
) -> None:
    answers = analyze(features, TABLE).run("transform", FAR)
    expected = [{name: int(answers[name][row]) for name in answers} for row in range(FAR.num_rows)]
    with client_of(server) as client:
        assert [*client.predict({name: FAR[name] for name in FAR.column_names}).rows] == expected
    pa.parquet.write_table(FAR, tmp_path / "far.parquet")
    result = CliRunner().invoke(cli, ["predict", f"{server.rest}/v1/models/days", f"{tmp_path}/far.parquet", "--json"])
    assert json.loads(result.stdout)["predictions"] == expected


def test_predict_sends_the_file_that_was_trained_on(server: OpenServer, tmp_path: Path) -> None:
    pa.csv.write_csv(TABLE, tmp_path / "days.csv")
    pa.parquet.write_table(TABLE, tmp_path / "days.parquet")
    for name in ("days.csv", "days.parquet"):
        result = CliRunner().invoke(cli, ["predict", f"{server.rest}/v1/models/days", str(tmp_path / name), "--json"])
        assert json.loads(result.stdout)["predictions"] == EXPECTED


ISO = [
    {"day": "2026-01-01", "at": "2026-01-01T20:30:00+02:00", "count": 1},
    {"day": "1969-12-30", "at": "1969-12-30T23:59:59Z", "count": 2},
    {"day": "2024-02-29T00:00", "at": "2024-02-29", "count": 3},
]


def test_json_has_dates_as_people_write_them(server: OpenServer) -> None:
    """Rows, columns and --row; numbers beside text, and what is missing."""

    def ask(body: dict[str, Any]) -> Any:
        status, _, answer = server.ask("POST", "/v1/models/days:predict", body=json.dumps(body).encode())
        assert status == 200, answer
        return answer

    assert ask({"instances": ISO})["predictions"] == EXPECTED
    columns = {name: [row[name] for row in ISO] for name in ISO[0]}
    answer = ask({"inputs": columns})["outputs"]
    assert [dict(zip(answer, row, strict=True)) for row in zip(*answer.values(), strict=True)] == EXPECTED
    mixed = [{**ISO[0], "day": 1767225600000}, {**ISO[1], "day": None}, {**ISO[2], "day": ["2024-02-29"]}]
    assert ask({"instances": mixed})["predictions"] == [EXPECTED[0], {**EXPECTED[1], "weekday": -1}, EXPECTED[2]]
    for transport in ("json", "binary"):
        with client_of(server, transport) as client:
            assert [*client.predict(ISO).rows] == EXPECTED
            assert [*client.predict(columns).rows] == EXPECTED
    result = CliRunner().invoke(
        cli, ["predict", f"{server.rest}/v1/models/days", "--json", *(f"--row={json.dumps(row)}" for row in ISO)]
    )
    assert json.loads(result.stdout)["predictions"] == EXPECTED


def test_metadata_and_errors_say_what_to_send(server: OpenServer) -> None:
    words = 'milliseconds since 1970 (UTC), or text such as "2026-01-01"'
    times = server.ask("GET", "/v1/models/days/metadata")[2]["metadata"]["times"]
    assert {name: of["type"] for name, of in times.items()} == {"day": "date", "at": "timestamp"}
    assert all(words in of["send"] for of in times.values())
    document = server.ask("GET", "/openapi.json")[2]
    (row,) = [each for name, each in document["components"]["schemas"].items() if name.endswith("row")]
    assert words in row["properties"]["day"]["description"]
    jsonschema.validate(ISO[0], {**row, "components": document["components"]})
    wrong = {**ISO[0], "day": "1 January"}
    status, _, answer = server.ask("POST", "/v1/models/days:predict", body=json.dumps({"instances": [wrong]}).encode())
    assert status == 400
    assert "input 'day' is a date, and the text '1 January' is none" in answer["error"]
    assert words in answer["error"]
    with client_of(server) as client, pytest.raises(InputError) as caught:
        client.predict([wrong])
    assert caught.value.message == "column 'day' is int64 (a date), row 0 has the text '1 January'"
    assert words in str(caught.value.fix)
    with client_of(server, "grpc") as client, pytest.raises(InputError) as caught:  # whose metadata has no room
        client.predict([ISO[0]])
    assert "milliseconds since 1970" in str(caught.value.fix)


@pytest.mark.parametrize("number", [20473, 0, -1, 1767225600000])
def test_numbers_are_milliseconds(server: OpenServer, number: int) -> None:
    """Whether or not the training data has a time of day."""
    expected = dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=number)
    with client_of(server) as client:
        (row,) = client.predict([{"day": number, "at": number, "count": 1}]).rows
    assert row == {"weekday": expected.weekday(), "hour": expected.hour, "count": 1}
