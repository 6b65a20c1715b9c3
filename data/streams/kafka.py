"""A topic of a Kafka-compatible broker as a stream. Offsets are kept with the spans, not in the broker's groups."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from ...errors import DrivetrainError, InputError, missing_extra
from ...redaction import mark_setting
from .micro_spans import Chunk

Decode = Callable[[bytes], Mapping[str, Any]]
"""A message's value as a row."""

_MOST: Final = 10_000  # messages taken at once
_REFRESH: Final = 30.0  # seconds after which new partitions are looked for
_TIMEOUT: Final = 10.0  # seconds to reach the broker in
_SECRETS: Final = ("password", "passphrase", "secret", "pem")  # how the names of settings end that hold a secret


def kafka_topic(
    topic: str,
    servers: str,
    *,
    decode: Decode | None = None,
    metadata: bool = False,
    config: Mapping[str, Any] | None = None,
) -> KafkaStream:
    """The messages of a topic, all partitions, from the oldest kept; needs the extra `kafka`.

    Rows come in the order of their offsets within a partition; partitions mix. Because a span and the offsets after it
    are published together, each message is in exactly one span.

    Args:
        topic: Its name.
        servers: "host:port" of some brokers, separated by commas.
        decode: What makes a row of a message's value, raising ValueError or KeyError for any other value; a JSON
            object where None.
        metadata: Also give columns kafka_partition, kafka_offset, kafka_timestamp and kafka_key.
        config: More settings of librdkafka, e.g. `security.protocol`. Take secrets from the environment; no span
            holds them, and errors and logs show `***` in their place; of fewer than 6 characters, where the setting
            itself is printed.

    Raises:
        DrivetrainError: The extra is not installed.
    """
    return KafkaStream(topic, servers, decode or _json_object, metadata, dict(config or {}))


def fetch_offsets(servers: str, topic: str) -> dict[int, int]:
    """The next offset of each partition of a topic.

    Args:
        servers: As of `kafka_topic`; or `env:NAME`, a variable that holds this, or a JSON object of librdkafka's
            settings with `bootstrap.servers`, of which no error shows a secret.
        topic: Its name.

    Raises:
        InputError: The variable is not set, or holds neither.
        BrokerError: No broker answers.
        DrivetrainError: There is no such topic, or the extra is not installed.
    """
    kafka = _client()
    name = f"kafka:{topic}"
    consumer = _consumer(servers, {"group.id": "drivetrain", **_settings(servers)})
    try:
        with _answering(name):
            return {
                partition: consumer.get_watermark_offsets(kafka.TopicPartition(topic, partition), timeout=_TIMEOUT)[1]
                for partition in _partitions(consumer, topic)
            }
    finally:
        consumer.close()


def _settings(servers: str) -> dict[str, Any]:
    if not servers.startswith("env:"):
        return {"bootstrap.servers": servers}
    name = servers.removeprefix("env:")
    value = os.environ.get(name)
    if not value:
        raise InputError(f"the environment variable {name} is not set", fix="set it to host:port")
    if not value.lstrip().startswith("{"):
        return {"bootstrap.servers": value}
    try:
        return dict(json.loads(value))
    except ValueError:
        raise InputError(f"the environment variable {name} is not a JSON object", fix="correct it") from None


class BrokerError(DrivetrainError):
    """None of the Kafka brokers that were named answers."""


def _client() -> Any:
    """The module; Any, because its stubs leave much of the client untyped."""
    try:
        import confluent_kafka
    except ModuleNotFoundError:
        raise missing_extra("confluent-kafka", "kafka") from None
    return confluent_kafka


def _mark_secrets(settings: Mapping[str, Any]) -> None:
    """Redact what the settings hold of secrets; not names and paths, which librdkafka hides in its log as well."""
    for key, value in settings.items():
        if isinstance(value, str) and (key.endswith(_SECRETS) or key == "sasl.oauthbearer.config"):
            mark_setting(key, value)


def _consumer(name: str, settings: Mapping[str, Any]) -> Any:
    """A client that connects when it is asked; `name` is who gave its settings, for the error."""
    kafka = _client()
    _mark_secrets(settings)
    try:
        return kafka.Consumer(dict(settings), logger=logging.getLogger(__name__))
    except kafka.KafkaException as error:
        # Its text may quote a value, so it is not shown whole: only the settings that it names.
        words = re.findall(r"[\w.]+", error.args[0].str())
        refused = [key for key in settings if key in words] or [error.args[0].name()]
        raise InputError(f"{name}: librdkafka refuses a setting ({', '.join(refused)})", fix="correct it") from None


@contextlib.contextmanager
def _answering(name: str) -> Iterator[None]:
    """What librdkafka raises while a broker is asked, as a BrokerError."""
    kafka = _client()
    try:
        yield
    except kafka.KafkaException as error:
        raise BrokerError(
            f"{name}: the broker does not answer ({error.args[0].str()})", fix="check the servers' addresses"
        ) from None


def _partitions(consumer: Any, topic: str) -> list[int]:
    """The numbers of a topic's partitions, sorted.

    Raises:
        BrokerError: No broker answers.
        DrivetrainError: There is no such topic.
    """
    with _answering(f"kafka:{topic}"):
        metadata = consumer.list_topics(topic, timeout=_TIMEOUT).topics[topic]
    if metadata.error is not None:
        raise DrivetrainError(f"kafka:{topic}: {metadata.error.str()}", fix="check the topic's name")
    return sorted(metadata.partitions)


class KafkaStream:
    """See `kafka_topic`; a `Stream`. Its position is the next offset of each partition."""

    def __init__(self, topic: str, servers: str, decode: Decode, metadata: bool, config: dict[str, Any]) -> None:
        self.name = f"kafka:{topic}"
        self._kafka = _client()
        self._topic = topic
        self._decode = decode
        self._metadata = metadata
        self._offsets: dict[int, int] = {}
        self._consumer: Any = None
        self._refreshed_at = 0.0
        self._config = {
            "group.id": "drivetrain",  # a name that librdkafka wants; nothing is committed to it
            **config,
            "bootstrap.servers": servers,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",  # rows that the broker no longer has must not be passed over in silence
        }
        _mark_secrets(self._config)

    def start(self, position: Any | None) -> None:
        """See `Stream.start`.

        Raises:
            InputError: librdkafka refuses a setting.
            DrivetrainError: The broker cannot be reached, or has no such topic.
        """
        self._offsets = {int(partition): offset for partition, offset in (position or {}).items()}
        self._consumer = _consumer(self.name, self._config)
        self._assign()

    def _assign(self) -> None:
        """Read every partition there is now, new ones from their beginning."""
        self._refreshed_at = time.monotonic()
        new = [each for each in _partitions(self._consumer, self._topic) if each not in self._offsets]
        if new or not self._consumer.assignment():
            # All of them or none: one whose offset is kept but that is not assigned would never be read.
            self._offsets |= {partition: self._low(partition) for partition in new}
            self._consumer.assign(
                [self._kafka.TopicPartition(self._topic, partition, at) for partition, at in self._offsets.items()]
            )

    def _low(self, partition: int) -> int:
        """The oldest offset that the broker still has of a partition."""
        with _answering(self.name):
            low, _ = self._consumer.get_watermark_offsets(
                self._kafka.TopicPartition(self._topic, partition), timeout=_TIMEOUT
            )
        return int(low)

    def poll(self, rows: int, seconds: float) -> list[Chunk]:
        """See `Stream.poll`.

        Raises:
            DrivetrainError: The broker gives an error, e.g. it no longer has the rows that come next.
        """
        if time.monotonic() - self._refreshed_at > _REFRESH:
            with contextlib.suppress(BrokerError):  # away for a while: the client connects again by itself
                self._assign()
        messages = self._consumer.consume(min(rows, _MOST), timeout=seconds)
        good: list[tuple[str, dict[str, Any]]] = []
        chunks: list[Chunk] = []
        for message in messages:
            if message.error() is not None:
                raise self._failed(message)
            self._offsets[message.partition()] = message.offset() + 1
            origin = f"{self.name} partition {message.partition()} offset {message.offset()}"
            try:
                good.append((origin, self._row(message)))
            except (ValueError, TypeError, LookupError, RecursionError) as error:
                why = f"there is no {error}" if isinstance(error, KeyError) else str(error)[:200]
                cause = InputError(
                    f"{origin}: the message is not a row ({why})",
                    fix='correct the producer, or pass decode=; on_bad="keep" goes on without it',
                )
                chunks.append(Chunk(origin, error=cause))
        return [*chunks, *_tables(good)]

    def _row(self, message: Any) -> dict[str, Any]:
        if message.value() is None:
            raise ValueError("it has no value")
        row = dict(self._decode(message.value()))
        if not all(str(name).strip() for name in row):
            raise ValueError("a field has no name")  # here, so that the messages around it are not refused with it
        if self._metadata:
            _, milliseconds = message.timestamp()
            row |= {
                "kafka_partition": message.partition(),
                "kafka_offset": message.offset(),
                "kafka_timestamp": pa.scalar(milliseconds, pa.timestamp("ms", "UTC")).as_py(),
                "kafka_key": message.key(),
            }
        return row

    def _failed(self, message: Any) -> DrivetrainError:
        error = message.error()
        if error.code() == self._kafka.KafkaError._AUTO_OFFSET_RESET:
            partition = message.partition()
            wanted, low = self._offsets.get(partition), self._low(partition)
            return DrivetrainError(
                f"{self.name} partition {partition}: the next row is {wanted}, the broker keeps none before {low}",
                fix="stream into a new folder, to begin with what is left; and let the broker keep rows for longer",
            )
        return DrivetrainError(f"{self.name}: {error.str()}", fix="check the broker; the stream goes on where it was")

    def position(self) -> Any:
        """See `Stream.position`."""
        return {str(partition): offset for partition, offset in sorted(self._offsets.items())}

    def close(self) -> None:
        """See `Stream.close`."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None


def _json_object(value: bytes) -> Mapping[str, Any]:
    row = json.loads(value)
    if not isinstance(row, dict):
        raise ValueError(f"it is JSON, but no object: {value[:40]!r}")
    return row


def _tables(rows: Iterable[tuple[str, dict[str, Any]]]) -> list[Chunk]:
    """Rows as one table; where their types do not fit together, a table each, so that only bad ones are refused."""
    decoded = list(rows)
    if not decoded:
        return []
    origin = decoded[0][0] if len(decoded) == 1 else f"{decoded[0][0]} to {decoded[-1][0].partition(' ')[2]}"
    names = list(dict.fromkeys(name for _, row in decoded for name in row))
    try:
        columns = {name: pa.array([row.get(name) for _, row in decoded]) for name in names}
        return [Chunk(origin, pa.table(columns))]
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        if len(decoded) > 1:
            return [chunk for row in decoded for chunk in _tables([row])]
        cause = InputError(f"{origin}: the message is not a row ({str(error)[:200]})", fix="correct the producer")
        return [Chunk(origin, error=cause)]
