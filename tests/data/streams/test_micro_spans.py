"""Streams: spans hold every row once, as pyarrow and numpy count them, also after a kill."""

import json
import logging
import math
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from drivetrain import redaction
from drivetrain.data import infer_schema, statistics
from drivetrain.data.schemas.yaml_read import schema_from_yaml
from drivetrain.data.streams import kafka as stream_kafka
from drivetrain.data.streams.directory import growing_directory
from drivetrain.data.streams.kafka import KafkaStream, kafka_topic
from drivetrain.data.streams.micro_spans import Chunk, StreamSpan, stream, stream_spans
from drivetrain.errors import DrivetrainError, InputError
from drivetrain.redaction import redact


def rows_of(span: StreamSpan) -> list[dict[str, Any]]:
    source = span.examples
    return [row for shard in range(len(source.shards)) for batch in source.read(shard) for row in batch.to_pylist()]


def put(folder: Path, name: str, table: pa.Table) -> None:
    """As a careful producer does: under another name first."""
    pq.write_table(table, folder / f".{name}")
    (folder / f".{name}").rename(folder / name)


def numbers(start: int, count: int) -> pa.Table:
    return pa.table({"n": pa.array(range(start, start + count)), "s": [f"v{i % 3}" for i in range(count)]})


@pytest.fixture
def incoming(tmp_path: Path) -> Path:
    folder = tmp_path / "incoming"
    folder.mkdir()
    return folder


def test_a_directory_that_grows(incoming: Path, tmp_path: Path) -> None:
    for number in range(3):
        put(incoming, f"{number}.parquet", numbers(10 * number, 10))

    def feed() -> Iterator[StreamSpan]:
        source = growing_directory(incoming, "*.parquet", quiet=0)
        for span in stream(source, tmp_path / "spans", rows=20, seconds=60, window=2, idle=0.01):
            if span.number == 1:
                put(incoming, "3.parquet", numbers(30, 15))
            yield span

    spans = list(feed())
    assert [span.rows for span in spans] == [20, 25]
    assert [row["n"] for span in spans for row in rows_of(span)] == list(range(45))
    window = spans[1].window
    assert window is not None
    feature = window.features("data")["n"]
    assert feature["count"] == 45
    assert feature["mean"]["value"] == np.arange(45).mean()
    assert feature["std"]["value"] == pytest.approx(np.arange(45).std(), rel=1e-12)
    both = statistics(pa.concat_tables([numbers(0, 10), numbers(10, 10), numbers(20, 10), numbers(30, 15)]))
    assert window.document == both.document


def test_goes_on_where_it_was(incoming: Path, tmp_path: Path) -> None:
    put(incoming, "a.parquet", numbers(0, 5))
    spans = tmp_path / "spans"
    first = list(stream(growing_directory(incoming, quiet=0), spans, idle=0.01))
    assert [span.rows for span in first] == [5]
    assert not list(stream(growing_directory(incoming, quiet=0), spans, idle=0.01))
    put(incoming, "b.parquet", numbers(5, 7))
    second = list(stream(growing_directory(incoming, quiet=0), spans, idle=0.01))
    assert [(span.number, span.rows) for span in second] == [(2, 7)]
    assert [row["n"] for span in stream_spans(spans) for row in rows_of(span)] == list(range(12))


def test_a_span_closes_by_age(incoming: Path, tmp_path: Path) -> None:
    put(incoming, "a.parquet", numbers(0, 5))
    began = time.monotonic()
    span = next(iter(stream(growing_directory(incoming, quiet=0), tmp_path / "spans", seconds=0.2)))
    assert span.rows == 5
    assert time.monotonic() - began >= 0.2


class ScriptedStream:
    """Gives chunks at times of a clock of its own, which moves while it is polled."""

    name = "scripted"

    def __init__(self, chunks: dict[float, Chunk]) -> None:
        self.time = 0.0
        self._chunks = chunks

    def clock(self) -> float:
        return self.time

    def start(self, position: Any | None) -> None:
        pass

    def poll(self, rows: int, seconds: float) -> list[Chunk]:
        until = self.time + seconds
        if not self._chunks or min(self._chunks) > until:
            self.time = until
            return []
        self.time = max(self.time, min(self._chunks))
        return [self._chunks.pop(min(self._chunks))]

    def position(self) -> Any:
        return None

    def close(self) -> None:
        pass


@pytest.mark.parametrize("idle", [0.125, 0.5, 1.375])
def test_it_ends_as_soon_as_it_was_idle_for_so_long(tmp_path: Path, idle: float) -> None:
    source = ScriptedStream({})
    assert not list(stream(source, tmp_path, idle=idle, clock=source.clock))
    assert source.time == idle


def test_while_a_span_is_published_it_is_not_idle(tmp_path: Path) -> None:
    source = ScriptedStream({0.0: Chunk("a", numbers(0, 5)), 0.25: Chunk("b", numbers(5, 5))})
    spans = []
    for span in stream(source, tmp_path, rows=5, idle=0.5, clock=source.clock):
        spans.append(span.rows)
        source.time += 100  # as a large span takes, or whoever asked for it
    assert spans == [5, 5]
    assert source.time == 200.5


def test_unfinished_files_wait(incoming: Path, tmp_path: Path) -> None:
    put(incoming, "a.parquet", numbers(0, 5))
    (incoming / "_b.parquet").write_bytes(b"half")
    (incoming / "c.parquet.tmp").write_bytes(b"half")
    pq.write_table(numbers(5, 5), incoming / "d.parquet")
    future = time.time() + 100
    os.utime(incoming / "d.parquet", (future, future))  # written to just now, for 100 seconds
    (span,) = stream(growing_directory(incoming, quiet=0), tmp_path / "spans", idle=0.01)
    assert span.rows == 5


def test_each_span_is_validated(incoming: Path, tmp_path: Path) -> None:
    schema = infer_schema(statistics(numbers(0, 10)))
    spans = tmp_path / "spans"
    good = numbers(0, 6)
    bad = good.set_column(1, "s", pa.array(["v0", "v1", "odd", "v2", "odd", "v0"]))
    for number, table in enumerate([good, bad, good]):
        put(incoming, f"{number}.parquet", table)
    published = list(stream(growing_directory(incoming, quiet=0), spans, rows=6, schema=schema, idle=0.01))
    assert [span.passed for span in published] == [True, False, True]
    anomalies = published[1].anomalies
    assert anomalies is not None
    (anomaly,) = anomalies.anomalies
    assert (anomaly.type, anomaly.feature) == ("ENUM_TYPE_UNEXPECTED_STRING_VALUES", "s")
    assert anomaly.values == ({"value": "odd", "count": 2},)
    assert [row["row"] for row in anomaly.rows] == [2, 4]
    # What did not pass is in no window.
    windows = [span.window for span in published]
    assert [window and window.splits["data"] for window in windows] == [6, 6, 12]


def test_drift_against_the_window(incoming: Path, tmp_path: Path) -> None:
    features = "features:\n  s: {type: string, drift: {l_infinity: 0.2}}\n  n: {type: int}\n"
    schema = schema_from_yaml("format: drivetrain.schema/1\n" + features)
    put(incoming, "0.parquet", numbers(0, 30))
    put(incoming, "1.parquet", numbers(0, 30))
    put(incoming, "2.parquet", numbers(0, 30).set_column(1, "s", pa.array(["v0"] * 30)))
    published = list(
        stream(growing_directory(incoming, quiet=0), tmp_path / "spans", rows=30, schema=schema, idle=0.01)
    )
    assert [span.passed for span in published] == [True, True, False]
    assert published[2].anomalies is not None
    assert [anomaly.type for anomaly in published[2].anomalies.anomalies] == ["COMPARATOR_L_INFTY_HIGH"]


def test_a_window_slides(incoming: Path, tmp_path: Path) -> None:
    for number in range(5):
        put(incoming, f"{number}.parquet", numbers(number, 1))
    spans = tmp_path / "spans"
    options: dict[str, Any] = {"rows": 1, "window": 3, "idle": 0.01}
    published = list(stream(growing_directory(incoming, quiet=0), spans, **options))
    put(incoming, "5.parquet", numbers(5, 1))
    published += stream(growing_directory(incoming, quiet=0), spans, **options)  # the window is taken up again
    windows = [span.window for span in published]
    lows = [window.features("data")["n"]["min"]["value"] for window in windows if window]
    assert lows == [0, 0, 0, 1, 2, 3]


def test_a_column_that_comes_and_goes(incoming: Path, tmp_path: Path) -> None:
    parts = [
        pa.table({"n": [1, 2], "old": ["a", None]}),
        pa.table({"n": [3], "tags": [["x", "y"]], "at": [{"x": 1.5}]}),
        pa.table({"tags": [["x"]], "n": [4], "old": ["b"]}),
    ]
    for number, part in enumerate(parts):
        put(incoming, f"{number}.parquet", part)
    spans = list(stream(growing_directory(incoming, quiet=0), tmp_path / "spans", rows=1, window=3, idle=0.01))
    read = [pa.Table.from_batches(span.examples.read(0)) for span in spans]
    together = statistics(pa.concat_tables(read, promote_options="default"))
    assert spans[-1].window is not None
    assert spans[-1].window.features("data") == together.features("data")
    assert list(spans[-1].statistics.features("data")) == ["tags", "n", "old"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("nothing", "values", "rows"),
    [
        *(([None, None], values, rows) for values in ([7], ["x"], [{"a": 1}], [[1.5]]) for rows in (1, 100)),
        ([[], None], [[1, 2]], 100),
        ([[]], [[{"a": "x"}]], 100),
    ],
)
def test_what_holds_no_value_is_of_any_type(
    incoming: Path, tmp_path: Path, nothing: list[Any], values: list[Any], rows: int
) -> None:
    for number, some in enumerate((nothing, values, nothing)):
        lines = "".join(json.dumps({"n": number, "v": value}) + "\n" for value in some)
        (incoming / f"{number}.jsonl").write_text(lines)
    spans = list(stream(growing_directory(incoming, quiet=0), tmp_path / "spans", rows=rows, idle=0.01))
    window = spans[-1].window
    assert window is not None
    assert spans[-1].window_spans == len(spans) == (3 if rows == 1 else 1)
    in_window, alone = (measured.features("data")["v"] for measured in (window, statistics(pa.table({"v": values}))))
    everything = [*nothing, *values, *nothing]
    assert (in_window["type"], in_window["missing"]) == (alone["type"], everything.count(None))
    if rows > 1:
        assert [row["v"] for row in rows_of(spans[0])] == everything


def test_whole_numbers_that_no_float_holds(incoming: Path, tmp_path: Path) -> None:
    put(incoming, "0.parquet", pa.table({"v": [2**53 + 1]}))
    put(incoming, "1.parquet", pa.table({"v": [0.5]}))
    put(incoming, "2.parquet", pa.table({"v": [3]}))
    spans = list(stream(growing_directory(incoming, quiet=0), tmp_path / "spans", on_bad="keep", idle=0.01))
    assert [row["v"] for span in spans for row in rows_of(span)] == [2**53 + 1, 3]
    assert "column 'v' does not fit double" in spans[0].rejected[0]["error"]


@pytest.mark.slow
def test_a_column_that_changes_its_type_begins_a_new_window(incoming: Path, tmp_path: Path) -> None:
    values: list[list[Any]] = [[1, 2], [3], [4.5], [5.5], ["six"]]
    seen = []
    for number, some in enumerate(values):
        put(incoming, f"{number}.parquet", pa.table({"v": some}))
        # Each time another process, which must find the same window in the spans there are.
        for span in stream(growing_directory(incoming, quiet=0), tmp_path / "spans", rows=1, window=3, idle=0.01):
            assert span.window is not None
            seen.append((span.window_spans, span.window.splits["data"], span.window.features("data")["v"]["type"]))
    assert seen == [(1, 2, "int"), (2, 3, "int"), (1, 1, "float"), (2, 2, "float"), (1, 1, "string")]


def test_bad_files(incoming: Path, tmp_path: Path) -> None:
    put(incoming, "a.parquet", numbers(0, 5))
    (incoming / "b.parquet").write_bytes(b"PAR1 not really")
    os.utime(incoming / "b.parquet", (time.time() - 50, time.time() + 1))
    spans = tmp_path / "spans"
    with pytest.raises(InputError, match=r"b\.parquet"):
        list(stream(growing_directory(incoming, quiet=-10), spans, idle=0.01))
    assert not stream_spans(spans)
    (span,) = stream(growing_directory(incoming, quiet=-10), spans, idle=0.01, on_bad="keep")
    assert span.rows == 5
    assert [Path(rejected["origin"]).name for rejected in span.rejected] == ["b.parquet"]
    pq.write_table(numbers(0, 9), incoming / "a.parquet")
    with pytest.raises(InputError, match=r"a\.parquet was changed after it was read"):
        list(stream(growing_directory(incoming, quiet=-10), spans, idle=0.01))


def test_types_that_do_not_go_together(incoming: Path, tmp_path: Path) -> None:
    put(incoming, "a.parquet", pa.table({"x": [1, 2]}))
    put(incoming, "b.parquet", pa.table({"x": [1.5], "y": ["new"]}))
    put(incoming, "c.parquet", pa.table({"x": ["text"]}))
    (span,) = stream(growing_directory(incoming, quiet=0), tmp_path / "spans", idle=0.01, on_bad="keep")
    assert rows_of(span) == [{"x": 1.0, "y": None}, {"x": 2.0, "y": None}, {"x": 1.5, "y": "new"}]
    assert "column 'x' is string here and double in the rows before" in span.rejected[0]["error"]


def test_types_by_name(incoming: Path, tmp_path: Path) -> None:
    put(incoming, "a.parquet", pa.table({"at": ["2026-03-01T12:00:00Z"]}))
    put(incoming, "b.parquet", pa.table({"at": ["soon"]}))
    types = {"at": pa.timestamp("ms", "UTC")}
    (span,) = stream(
        growing_directory(incoming, quiet=0), tmp_path / "spans", types=types, idle=0.01, on_bad="keep"
    )  # fmt: skip
    assert span.statistics.features("data")["at"]["min"]["value"] == "2026-03-01T12:00:00Z"
    assert "'at' is not all timestamp" in span.rejected[0]["error"]


def test_two_at_once(incoming: Path, tmp_path: Path) -> None:
    put(incoming, "a.parquet", numbers(0, 5))
    running = stream(growing_directory(incoming, quiet=0), tmp_path / "spans", rows=1)
    next(running)
    with pytest.raises(DrivetrainError, match="another process streams into"):
        next(stream(growing_directory(incoming, quiet=0), tmp_path / "spans"))
    running.close()  # type: ignore[attr-defined]  # an iterator that is a generator
    assert not list(stream(growing_directory(incoming, quiet=0), tmp_path / "spans", idle=0.01))


KILLED = """
    import sys
    from drivetrain.data.streams.micro_spans import stream
    from drivetrain.data.streams.directory import growing_directory
    for span in stream(growing_directory(sys.argv[1], quiet=0), sys.argv[2], rows=3, window=3, idle=float(sys.argv[3])):
        print(span.number, flush=True)
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_again_and_again(incoming: Path, tmp_path: Path) -> None:
    spans = tmp_path / "spans"
    killed = threading.Semaphore(0)

    def produce() -> None:
        for number in range(120):
            if number in (30, 60, 90):
                killed.acquire()
            time.sleep(0.02)
            put(incoming, f"{number:03}.parquet", numbers(2 * number, 2))

    producer = threading.Thread(target=produce, daemon=True)
    producer.start()
    command = [sys.executable, "-c", textwrap.dedent(KILLED), str(incoming), str(spans)]
    kills = 0
    while len(stream_spans(spans)) * 4 < 236:
        process = subprocess.Popen([*command, "600"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert process.stdout is not None
        if not process.stdout.readline() and process.poll() is not None:
            pytest.fail("the stream ended by itself")
        time.sleep(0.02 * kills)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        kills += 1
        killed.release()
    producer.join()
    subprocess.run([*command, "0.2"], check=True, capture_output=True)
    published = stream_spans(spans)
    assert kills >= 3
    assert [row["n"] for span in published for row in rows_of(span)] == list(range(240))
    assert [span.number for span in published] == list(range(1, len(published) + 1))
    assert not list(spans.glob(".span-*.tmp"))


def test_a_disk_that_is_full_loses_nothing(incoming: Path, tmp_path: Path) -> None:
    put(incoming, "a.parquet", pa.table({"x": np.random.default_rng(0).random(200_000)}))
    spans = tmp_path / "spans"
    code = f"""
        import resource, signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
        from drivetrain.data.streams.micro_spans import stream
        from drivetrain.data.streams.directory import growing_directory
        list(stream(growing_directory({str(incoming)!r}, quiet=0), {str(spans)!r}, rows=1))
    """
    failed = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False
    )  # fmt: skip
    assert failed.returncode == 1
    assert "cannot write" in failed.stderr
    assert not stream_spans(spans)
    (span,) = stream(growing_directory(incoming, quiet=0), spans, idle=0.01)
    assert span.rows == 200_000


def test_facts_of_another_format(incoming: Path, tmp_path: Path) -> None:
    put(incoming, "a.parquet", numbers(0, 5))
    (span,) = stream(growing_directory(incoming, quiet=0), tmp_path / "spans", idle=0.01)
    facts = json.loads((span.folder / "span.json").read_text()) | {"format": 9}
    (span.folder / "span.json").write_text(json.dumps(facts))
    with pytest.raises(InputError, match="has format 9"):
        list(stream(growing_directory(incoming, quiet=0), tmp_path / "spans", idle=0.01))


def test_options_that_make_no_sense(incoming: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a span needs a row"):
        next(stream(growing_directory(incoming), tmp_path / "spans", rows=0))
    schema = schema_from_yaml("format: drivetrain.schema/1\nenvironments: [SERVING]\nfeatures: {n: {type: int}}\n")
    with pytest.raises(InputError, match="no environment 'SERVIN'"):
        next(stream(growing_directory(incoming), tmp_path / "spans", schema=schema, environment="SERVIN"))
    with pytest.raises(InputError, match="is not a directory"):
        growing_directory(tmp_path / "nowhere")


# --- Kafka: librdkafka's own mock cluster speaks the protocol over real sockets


@pytest.fixture
def producer() -> Iterator[Any]:
    mock = confluent_kafka.Producer({"test.mock.num.brokers": 1, "log_level": 0})
    yield mock
    mock.flush(60)


# A broker that has no rows answers a fetch when this time is over, and until then nothing else that is asked.
IMPATIENT = {"fetch.wait.max.ms": 10, "topic.metadata.refresh.fast.interval.ms": 20}


def servers(producer: Any) -> str:
    brokers = producer.list_topics(timeout=60).brokers.values()
    return ",".join(f"{broker.host}:{broker.port}" for broker in brokers)


def test_every_message_in_one_span(producer: Any, tmp_path: Path) -> None:
    address = servers(producer)
    for number in range(1000):
        producer.produce("clicks", json.dumps({"n": number, "user": f"u{number % 7}"}), partition=number % 3)
    assert producer.flush(60) == 0
    spans = tmp_path / "spans"
    source = kafka_topic("clicks", address, metadata=True, config=IMPATIENT)
    for span in stream(source, spans, rows=300):
        if span.number == 2:
            break  # stopped; rows of an open span are read again
    for number in range(1000, 1100):
        producer.produce("clicks", json.dumps({"n": number, "user": None}), partition=number % 3)
    assert producer.flush(60) == 0
    came = sum(span.rows for span in stream_spans(spans))
    for span in stream(
        kafka_topic("clicks", address, metadata=True, config=IMPATIENT), spans, rows=300, seconds=0.2, window=1000
    ):
        came += span.rows
        if came >= 1100:
            break
    published = stream_spans(spans)
    every = [row for span in published for row in rows_of(span)]
    assert sorted(row["n"] for row in every) == list(range(1100))
    assert all(span.rows <= 300 for span in published)
    for partition in range(3):
        ours = [row for row in every if row["kafka_partition"] == partition]
        assert [row["kafka_offset"] for row in ours] == list(range(len(ours)))
    table = pa.Table.from_pylist(every)
    window = published[-1].window
    assert window is not None
    assert window.features("data")["user"]["missing"] == table["user"].null_count
    assert window.features("data")["n"]["mean"]["value"] == pc.mean(table["n"]).as_py()


@pytest.mark.slow
def test_messages_that_are_no_rows(producer: Any, tmp_path: Path) -> None:
    address = servers(producer)
    deep = '{"n": ' + "[" * 100_000 + "]" * 100_000 + "}"
    for value in ('{"n": 1}', "{half", "[1]", None, '{"n": 2}', '{"n": "three"}', '{"": 1}', deep, '{"n": 1e999}'):
        producer.produce("clicks", value, partition=0)
    assert producer.flush(60) == 0
    with pytest.raises(InputError, match="kafka:clicks partition 0 offset 1: the message is not a row"):
        list(stream(kafka_topic("clicks", address), tmp_path / "strict"))
    span = next(stream(kafka_topic("clicks", address), tmp_path / "spans", rows=3, on_bad="keep"))  # the last is good
    assert rows_of(span) == [{"n": 1}, {"n": 2}, {"n": math.inf}]
    assert sorted(rejected["origin"].rpartition(" ")[2] for rejected in span.rejected) == ["1", "2", "3", "5", "6", "7"]
    with pytest.raises(InputError, match=r"offset 0: the message is not a row \(there is no 'm'\)"):
        next(stream(kafka_topic("clicks", address, decode=lambda value: {"m": json.loads(value)["m"]}), tmp_path / "m"))


def test_rows_that_the_broker_no_longer_has(producer: Any, tmp_path: Path) -> None:
    address = servers(producer)
    producer.produce("clicks", '{"n": 1}', partition=0)
    assert producer.flush(60) == 0
    source = kafka_topic("clicks", address, config=IMPATIENT)
    assert isinstance(source, KafkaStream)
    source.start({"0": 7})  # an offset that this broker does not have, as after it dropped old rows
    with pytest.raises(DrivetrainError, match="partition 0: the next row is 7"):
        list(map(source.poll, [10] * 2000, [0.05] * 2000))
    source.close()


def redacted_by_librdkafka(settings: dict[str, str]) -> set[str]:
    """The settings whose values librdkafka does not show when it logs its configuration."""
    lines: list[str] = []
    logger = logging.Logger("configuration")
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    base = {"group.id": "g", "bootstrap.servers": "127.0.0.1:9", "log_level": 7, "debug": "conf"}
    consumer = confluent_kafka.Consumer({**base, **settings}, logger=logger)
    for _ in range(100):
        consumer.poll(0.05)
        if all(any(f" {name} = " in line for line in lines) for name in settings):
            break
    consumer.close()
    return {name for name in settings if any(f" {name} = [redacted]" in line for line in lines)}


def test_what_librdkafka_hides_is_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [
        "sasl.password", "sasl.username", "ssl.key.password", "ssl.keystore.password", "ssl.key.pem", "ssl.ca.pem",
        "ssl.certificate.pem", "sasl.oauthbearer.client.secret", "sasl.oauthbearer.config", "ssl.key.location",
        "sasl.oauthbearer.assertion.private.key.pem", "sasl.oauthbearer.assertion.private.key.passphrase",
        "sasl.oauthbearer.assertion.private.key.file", "client.id",
    ]  # fmt: skip
    settings = {name: f"open-sesame-{number}" for number, name in enumerate(names, 100)}
    hidden = redacted_by_librdkafka(settings)
    assert {"sasl.password", "sasl.oauthbearer.client.secret", "sasl.username", "ssl.key.location"} <= hidden
    assert "client.id" not in hidden
    hidden -= {"sasl.username", "ssl.key.location", "sasl.oauthbearer.assertion.private.key.file"}  # names and paths
    settings["sasl.oauthbearer.client.credentials.client.secret"] = "open-sesame-99"  # another name of client.secret
    hidden.add("sasl.oauthbearer.client.credentials.client.secret")

    monkeypatch.setattr(redaction, "_secrets", frozenset())
    kafka_topic("clicks", "127.0.0.1:9", config=settings)
    assert {name for name in hidden if settings[name] in redact(f"it is {settings[name]}.")} == set()
    assert redact(settings["client.id"]) == settings["client.id"]

    monkeypatch.setattr(redaction, "_secrets", frozenset())
    short = {"client.id": "abc", "sasl.password": "abc"}
    kafka_topic("clicks", "127.0.0.1:9", config=short)
    assert redact(f"config={short}, abc") == "config={'client.id': 'abc', ***}, abc"

    monkeypatch.setattr(redaction, "_secrets", frozenset())
    monkeypatch.setenv("KAFKA", json.dumps({**settings, "no.such.setting": "x"}))
    with pytest.raises(InputError, match=r"env:KAFKA: librdkafka refuses a setting \(no\.such\.setting\)"):
        stream_kafka.fetch_offsets("env:KAFKA", "clicks")
    assert {name for name in hidden if settings[name] in redact(f"it is {settings[name]}.")} == set()


@pytest.mark.parametrize(
    "setting",
    [
        {"socket.timeout.ms": "open-sesame"},
        {"security.protocol": "open-sesame"},  # its text quotes the value
        {"ssl.keystore.location": "open-sesame"},  # its text names the setting between other quotes
    ],
    ids=lambda setting: next(iter(setting)),
)
def test_a_setting_that_librdkafka_refuses(setting: dict[str, str], tmp_path: Path) -> None:
    source = kafka_topic("clicks", "127.0.0.1:9", config=setting)
    (name,) = setting
    with pytest.raises(
        InputError, match=rf"^kafka:clicks: librdkafka refuses a setting \({re.escape(name)}\)"
    ) as caught:
        next(stream(source, tmp_path / "spans"))
    assert "sesame" not in str(caught.value)


class AwayFor:
    """A consumer whose broker does not answer what the offsets of some partitions are."""

    def __init__(self, consumer: Any, partitions: set[int]) -> None:
        self.consumer = consumer
        self.partitions = partitions

    def __getattr__(self, name: str) -> Any:
        return getattr(self.consumer, name)

    def get_watermark_offsets(self, partition: Any, timeout: float) -> Any:
        if partition.partition in self.partitions:
            raise confluent_kafka.KafkaException(confluent_kafka.KafkaError(confluent_kafka.KafkaError._TRANSPORT))
        return self.consumer.get_watermark_offsets(partition, timeout=timeout)


def test_partitions_that_cannot_be_asked_are_read_later(producer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that goes away while new partitions are looked for: all of them are read when it is back."""
    address = servers(producer)
    for partition in range(3):
        producer.produce("clicks", json.dumps({"n": partition}), partition=partition)
    assert producer.flush(60) == 0
    source = kafka_topic("clicks", address, config=IMPATIENT)
    assert isinstance(source, KafkaStream)
    source.start({"0": 1})
    source._consumer.assign([confluent_kafka.TopicPartition("clicks", 0, 1)])  # as before 1 and 2 came
    source._offsets = {0: 1}
    source._consumer = AwayFor(source._consumer, {2})
    rows: list[dict[str, Any]] = []
    with monkeypatch.context() as patch:
        patch.setattr(stream_kafka, "_REFRESH", -1.0)
        assert source.poll(10, 0.0) == []
        assert source.position() == {"0": 1}
        source._consumer.partitions.clear()
        source._assign()
    for _ in range(1000):
        rows += [row for chunk in source.poll(10, 0.02) if chunk.table is not None for row in chunk.table.to_pylist()]
        if len(rows) == 2:
            break
    assert sorted(row["n"] for row in rows) == [1, 2]
    source.close()


def test_no_broker_and_no_secret(tmp_path: Path) -> None:
    source = kafka_topic(
        "clicks", "127.0.0.1:9", config={"sasl.password": "hunter2", "socket.timeout.ms": 500, "log_level": 0}
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream_kafka, "_TIMEOUT", 0.1)
        with pytest.raises(DrivetrainError, match="kafka:clicks: the broker does not answer") as caught:
            next(stream(source, tmp_path / "spans"))
    assert "hunter2" not in str(caught.value)
    assert isinstance(source, KafkaStream)
    assert not any("hunter2" in path.read_text() for path in tmp_path.rglob("*") if path.is_file())
