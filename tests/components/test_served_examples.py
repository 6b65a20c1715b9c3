"""ServedExamples: the log of a server as examples: which rows, in which order, when it runs again; a planted skew."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain.components.served_examples import ServedExamples
from drivetrain.engine import FieldSpec, Signature
from drivetrain.errors import InputError
from drivetrain.metadata import Examples
from drivetrain.pipelines import Home, NodeResult, files, load_pipeline, run_pipeline
from drivetrain.serving.log_files import FOOTER, day_folder, file_name
from drivetrain.serving.logged_rows import AnsweredRequest, RowSchema

SIGNATURE = Signature({"carrier": FieldSpec("string"), "hour": FieldSpec("int64")}, {"late": FieldSpec("float32")})
START = datetime(2026, 11, 26, 23, 0, tzinfo=UTC)


def write(
    folder: Path, carriers: Sequence[str | None], hour: int = 7, *, version: int = 3, minute: int = 0,
    model: str = "flights", signature: str = "predict", hashed: Sequence[str] = (), days: Sequence[int] = (),
    **more: FieldSpec,
) -> Path:  # fmt: skip
    """A file as the server writes it: a request a second, from a minute after `START` on."""
    start = (START + timedelta(minutes=minute) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    more |= {"day": FieldSpec("int64")} if days else {}
    times = {"day": "date"} if days else {}
    asked = Signature({**SIGNATURE.inputs, **more}, SIGNATURE.outputs, dict.fromkeys(more), times=times)
    requests = [
        AnsweredRequest(
            f"{minute}-{number}", start + number * 1_000_000,
            {"carrier": [carrier], "hour": [hour]} | ({"day": [days[number] * 86_400_000]} if days else {}), 1,
            {"late": np.array([0.5], np.float32)}, 0,
        )
        for number, carrier in enumerate(carriers)
    ]  # fmt: skip
    path = day_folder(folder / model, version, start) / file_name(signature, start)
    path.parent.mkdir(parents=True, exist_ok=True)
    schema = RowSchema(model, version, f"digest-{version}", signature, asked, hashed=hashed, key=b"k" * 16)
    pq.write_table(schema.whole([schema.table(requests)]), path)
    return path


TIMES = {"day": "date", "at": "timestamp[us]", "seen": "timestamp[ns, tz=UTC]", "days": "date"}


def write_times(folder: Path, day: date, times: Mapping[str, str], *, version: int, minute: int) -> Path:
    """A file of one request of a day, whose bundle says these times of its columns."""
    start = (START + timedelta(minutes=minute) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    inputs = {name: FieldSpec("list<int64>" if name == "days" else "int64") for name in TIMES}
    asked = Signature(inputs, SIGNATURE.outputs, times=times)
    midnight = (day - date(1970, 1, 1)).days * 86_400_000
    columns: dict[str, Any] = {name: [midnight + 3_600_000] for name in ("at", "seen")}
    columns |= {"day": [midnight], "days": [[midnight, None]]}
    request = AnsweredRequest(str(day), start, columns, 1, {"late": np.array([0.5], np.float32)}, 0)
    path = day_folder(folder / "flights", version, start) / file_name("predict", start)
    path.parent.mkdir(parents=True, exist_ok=True)
    schema = RowSchema("flights", version, f"digest-{version}", "predict", asked)
    pq.write_table(schema.whole([schema.table([request])]), path)
    return path


@pytest.mark.parametrize("earlier", [{}, {"day": "date", "at": "timestamp"}])
def test_times_are_those_of_the_data_whatever_release_logged_them(tmp_path: Path, earlier: dict[str, str]) -> None:
    """Earlier releases logged the numbers that the model reads, and so does a bundle that does not say the unit."""
    days = [date(2026, 11, 2), date(1969, 12, 31), date(2024, 2, 29)]
    log = tmp_path / "log"
    old = write_times(log, days[0], earlier, version=3, minute=1)
    write_times(log, days[1], TIMES, version=3, minute=2)
    write_times(log, days[2], earlier, version=4, minute=3)
    if not earlier:
        footer = json.loads(pq.read_metadata(old).metadata[FOOTER])
        del footer["times"]  # as a file of an earlier release
        pq.write_table(pq.read_table(old).replace_schema_metadata({FOOTER: json.dumps(footer)}), old)
    examples = ServedExamples(files(str(log / "flights/*/*/*.parquet")), inputs_only=True)
    (part,) = examples.content.glob("split=served/*.parquet")
    table = pq.ParquetFile(part).read()
    assert {name: str(table.schema.field(name).type) for name in ("day", "at", "seen")} == {
        "day": "date32[day]", "at": "timestamp[us]", "seen": "timestamp[ns, tz=UTC]",
    }  # fmt: skip
    assert table["day"].to_pylist() == days
    assert table["days"].to_pylist() == [[day, None] for day in days]
    assert table["at"].to_pylist() == [datetime(day.year, day.month, day.day, 1) for day in days]
    assert [moment.timestamp() for moment in table["seen"].to_pylist()] == [
        datetime(day.year, day.month, day.day, 1, tzinfo=UTC).timestamp() for day in days
    ]
    alone = ServedExamples(files(str(old)), inputs_only=True)  # of files of an earlier release, what it had
    (part,) = alone.content.glob("split=served/*.parquet")
    assert str(pq.ParquetFile(part).schema_arrow.field("at").type) == "int64"


def rows_of(examples: Examples) -> list[dict[str, Any]]:
    (split,) = examples.rows
    table = pa.concat_tables(
        pq.read_table(path, partitioning=None) for path in sorted(examples.content.glob(f"split={split}/*.parquet"))
    )
    assert examples.rows[split] == table.num_rows
    return list(table.to_pylist())


def ids(examples: Examples) -> list[str]:
    return [row["request_id"] for row in rows_of(examples)]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    write(tmp_path / "log", ["UA", None], minute=5)
    write(tmp_path / "log", ["DL"], minute=1)
    write(tmp_path / "log", ["AA", "AA"], minute=90)  # on the next day
    write(tmp_path / "log", ["B6"], version=4, minute=2)
    return tmp_path / "log"


def test_rows_come_in_the_order_of_versions_and_times(log: Path) -> None:
    examples = ServedExamples(f"{log}/flights/*/*/*.parquet")
    assert examples.rows == {"served": 6}
    assert ids(examples) == ["1-0", "5-0", "5-1", "90-0", "90-1", "2-0"]
    assert rows_of(examples)[2] == {
        "carrier": None, "hour": 7, "prediction_late": 0.5, "request_id": "5-1",
        "request_time": START + timedelta(minutes=5, seconds=1), "request_row": 0, "model_name": "flights",
        "model_version": 3, "model_bundle": "digest-3", "model_signature": "predict",
    }  # fmt: skip
    inputs = ServedExamples(f"{log}/flights/*/*/*.parquet", inputs_only=True, split="serving", span=4)
    assert rows_of(inputs)[0] == {"carrier": "DL", "hour": 7}
    assert (inputs.span, inputs.rows) == (4, {"serving": 6})


def test_versions_and_times_are_chosen(log: Path) -> None:
    every = f"{log}/flights/**/*.parquet"
    assert ids(ServedExamples(every, versions=[4])) == ["2-0"]
    assert ids(ServedExamples(every, since="2026-11-27")) == ["90-0", "90-1"]
    assert ids(ServedExamples(every, since="2026-11-26T23:02", until="2026-11-26T23:05:01")) == ["5-0", "2-0"]
    assert ids(ServedExamples(every, since="2026-11-27T01:30:01+01:00")) == ["90-1"]
    newest = ServedExamples(files(f"{log}/flights/*/{{YYYY}}-{{MM}}-{{DD}}/*.parquet"))
    assert (ids(newest), newest.span) == (["90-0", "90-1"], (datetime(2026, 11, 27) - datetime(1970, 1, 1)).days)


def test_mistakes_are_named(log: Path) -> None:
    every = f"{log}/**/*.parquet"
    for parameters, words in (
        ({"versions": [7]}, "no rows of version 7\\n.*it has 3, 4"),
        ({"since": "yesterday"}, "since='yesterday' is not a time"),
        ({"since": "2027-01-01"}, "not one of the 6 rows"),
        ({"signature": "evaluate"}, "no rows of the signature 'evaluate'"),
        ({"split": "a/b"}, "a/b"),
    ):
        with pytest.raises(InputError, match=words):
            ServedExamples(every, **parameters)
    write(log, ["UA"], signature="evaluate")
    assert len(ids(ServedExamples(every))) == 6
    assert len(ids(ServedExamples(every, signature="evaluate"))) == 1
    path = write(log, ["UA"], minute=9, hashed=["carrier"])
    with pytest.raises(InputError, match=r"a column is hashed in .* and not in the other files"):
        ServedExamples(every)
    path.unlink()
    write(log, ["UA"], version=5, distance=FieldSpec("float64"))
    with pytest.raises(InputError, match="versions 5 and 3 have different columns"):
        ServedExamples(every)
    write(log, ["UA"], model="delays")
    with pytest.raises(InputError, match="several models, 'delays' and 'flights'"):
        ServedExamples(every)
    pq.write_table(pa.table({"carrier": ["UA"]}), log / "other.parquet")
    with pytest.raises(InputError, match="is not a file of a request log"):
        ServedExamples(str(log / "other.parquet"))
    for footer in ("{}", "[" * 100_000, '{"facts": []}', "null", "1"):
        table = pa.table({"carrier": ["UA"]}).replace_schema_metadata({FOOTER: footer})
        pq.write_table(table, log / "other.parquet")
        with pytest.raises(InputError, match="is not a file of a request log"):
            ServedExamples(str(log / "other.parquet"))
    path = write(log, ["UA"], version=6)
    path.write_bytes(path.read_bytes().replace(b"carrier", b"\xa7arrier"))
    with pytest.raises(InputError, match="not a whole Parquet file"):
        ServedExamples(str(path))
    (log / "half.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match="not a whole Parquet file"):
        ServedExamples(str(log / "half.parquet"))


def test_small_files_become_few_parts(log: Path) -> None:
    for minute in range(100, 130):
        write(log, ["UA"], minute=minute)
    examples = ServedExamples(f"{log}/flights/*/*/*.parquet")
    assert len([*examples.content.glob("split=served/*.parquet")]) == 1
    assert examples.rows == {"served": 36}


PIPELINE = """
import drivetrain as dt
from drivetrain.components import ExampleGen, ExampleValidator, ImportSchema, ServedExamples, StatisticsGen


@dt.pipeline
def shop() -> None:
    examples = ExampleGen("train.csv")
    served = ServedExamples("log/flights/*/*/*.parquet", inputs_only=True)
    serving = StatisticsGen.options(id="ServingStatistics")(served)
    ExampleValidator(examples, StatisticsGen(examples), ImportSchema("schema.yaml"), serving=serving)
"""


def test_a_planted_skew_is_found_and_only_what_is_new_is_run(project: Callable[..., Path]) -> None:
    folder = project(pipeline=PIPELINE)
    lines = [f"{('UA', 'DL')[number % 2]},{number % 24},1970-01-{1 + number % 20:02}" for number in range(600)]
    (folder / "train.csv").write_text("carrier,hour,day\n" + "\n".join(lines) + "\n")
    (folder / "schema.yaml").write_text(
        "format: drivetrain.schema/1\nfeatures:\n  carrier: {type: string, skew: {l_infinity: 0.1}}\n"
        "  hour: {type: int}\n  day: {type: date, skew: {jensen_shannon: 0.1}}\n"
    )
    write(folder / "log", ["UA", "DL"] * 100, days=list(range(20)) * 10)
    home = Home(folder / "root")

    def run() -> tuple[set[str], NodeResult]:
        """The nodes that were not taken from the cache, and the validator's result."""
        nodes = run_pipeline(home, load_pipeline(folder)).nodes
        return {name for name, node in nodes.items() if node.state != "CACHED"}, nodes["ExampleValidator"]

    ran, validator = run()
    assert len(ran) == 6
    assert not validator.vetoed
    assert run()[0] == set()
    write(folder / "log", ["UA"] * 200, minute=10, days=list(range(20)) * 10)
    ran, validator = run()
    assert ran == {"ServedExamples", "ServingStatistics", "ExampleValidator"}
    assert validator.vetoed
    (anomalies,) = validator.outputs["anomalies"]
    reported = json.loads((home.payloads.local(anomalies.uri) / "content" / "anomalies.json").read_text())["anomalies"]
    assert {(each["feature"], each["split"]) for each in reported} == {("carrier", "train"), ("carrier", "eval")}
    home.close()
