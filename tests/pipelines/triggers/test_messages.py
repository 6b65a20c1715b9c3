"""NewMessages: due after so many, whatever the partitions; and what a broker says of a topic."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from drivetrain.errors import DrivetrainError, InputError
from drivetrain.pipelines.project.files import fetch_offsets
from drivetrain.pipelines.triggers import NewMessages
from drivetrain.pipelines.triggers.reading import read_trigger
from drivetrain.redaction import redact
from drivetrain.tests.pipelines.triggers.views import HandMadeView
from hypothesis import given
from hypothesis import strategies as st


class Topic(HandMadeView):
    """A view of a topic whose offsets are set by hand."""

    ends: Mapping[int, int] = {}  # type: ignore[assignment]  # it knows no runs

    def offsets(self, servers: str, topic: str) -> Mapping[int, int]:
        return dict(self.ends)


@given(st.lists(st.dictionaries(st.integers(0, 4), st.integers(0, 9), max_size=4), max_size=20), st.integers(1, 12))
def test_each_message_counts_once(steps: list[dict[int, int]], count: int) -> None:
    """Partitions come, and messages to them; the runs that begin took so many messages each, at least."""
    trigger, topic = NewMessages("clicks", "localhost:9092", count=count), Topic()
    marks = json.loads(json.dumps(dict(trigger.check(topic, {}).marks)))
    ends: dict[int, int] = {}
    taken = total = 0
    for step in steps:
        for partition, number in step.items():
            ends[partition] = ends.get(partition, 0) + number
            total += number
        topic.ends = ends
        signal = trigger.check(topic, marks)
        assert signal.due == (total - taken >= count)
        marks |= json.loads(json.dumps(dict(signal.started if signal.due else signal.marks)))
        taken = total if signal.due else taken


def test_what_was_there_before_and_a_topic_that_was_made_anew() -> None:
    trigger, topic = NewMessages("clicks", "localhost:9092", count=3), Topic()
    topic.ends = {0: 100}
    marks = trigger.check(topic, {}).marks
    assert not trigger.check(topic, marks).due
    topic.ends = {0: 2}
    assert not trigger.check(topic, marks).due
    topic.ends = {0: 3}
    assert trigger.check(topic, marks).reason.endswith(": 3 new messages")


def test_it_is_read_back_and_refuses_what_cannot_be() -> None:
    trigger = NewMessages("clicks", "env:KAFKA", count=7, poll="5m")
    assert read_trigger(trigger.to_json()) == trigger
    with pytest.raises(InputError, match="count is 0"):
        NewMessages("clicks", "env:KAFKA", count=0)
    with pytest.raises(InputError, match="servers holds settings"):
        NewMessages("clicks", '{"sasl.password": "p"}')


@pytest.fixture
def producer() -> Iterator[Any]:
    """librdkafka's own mock cluster, which speaks the protocol over real sockets."""
    kafka = pytest.importorskip("confluent_kafka")
    mock = kafka.Producer({"test.mock.num.brokers": 1, "log_level": 0})
    yield mock
    mock.flush(60)


def test_offsets_of_a_topic(producer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = producer.list_topics(timeout=60).brokers.values()
    address = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    for number in range(10):
        producer.produce("clicks", b"x", partition=number % 3)
    assert producer.flush(60) == 0
    offsets = fetch_offsets(address, "clicks")
    assert {partition: offsets[partition] for partition in range(3)} == {0: 4, 1: 3, 2: 3}
    settings = {"bootstrap.servers": address, "sasl.password": "open-sesame-77", "client.id": "shop"}
    monkeypatch.setenv("KAFKA", json.dumps(settings))
    assert fetch_offsets("env:KAFKA", "clicks") == offsets
    assert "sesame" not in redact("the password open-sesame-77")
    monkeypatch.setenv("KAFKA", json.dumps({**settings, "no.such.setting": "open-sesame-77"}))
    with pytest.raises(InputError, match=r"env:KAFKA: librdkafka refuses a setting \(no\.such\.setting\)") as error:
        fetch_offsets("env:KAFKA", "clicks")
    assert "sesame" not in str(error.value)
    monkeypatch.setenv("KAFKA", "{half")
    with pytest.raises(InputError, match="is not a JSON object"):
        fetch_offsets("env:KAFKA", "clicks")
    monkeypatch.delenv("KAFKA")
    with pytest.raises(InputError, match="the environment variable KAFKA is not set"):
        fetch_offsets("env:KAFKA", "clicks")


def test_a_broker_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("confluent_kafka")
    monkeypatch.setattr("drivetrain.data.streams.kafka._TIMEOUT", 0.1)
    with pytest.raises(DrivetrainError, match="kafka:clicks: the broker does not answer"):
        fetch_offsets("127.0.0.1:9", "clicks")
