"""A trigger by a topic of a Kafka-compatible broker: so many messages came."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import InputError
from .durations import seconds_of
from .trigger import Marks, Signal, Trigger, TriggerView


@dataclass(frozen=True)
class NewMessages(Trigger):
    """Due when so many messages came to a topic since it last started a run; needs the extra `kafka`.

    Attributes:
        topic: Its name.
        servers: "host:port" of some brokers, separated by commas; or `env:NAME`, a variable that holds this, or a JSON
            object of librdkafka's settings with `bootstrap.servers`: security, names, passwords.
        count: How many.
        poll: How often it is asked, e.g. "1m"; seconds in the IR.
    """

    topic: str
    servers: str
    count: int = 1
    poll: str | int = 60

    def __post_init__(self) -> None:
        object.__setattr__(self, "poll", seconds_of(self.poll))
        if type(self.count) is not int or self.count < 1:
            raise InputError(f"count is {self.count!r:.40}", fix="give 1 or more")
        if not self.servers.startswith("env:") and "{" in self.servers:
            raise InputError("servers holds settings", fix='put them into a variable: servers="env:KAFKA"')

    def check(self, view: TriggerView, marks: Marks) -> Signal:
        """See `Trigger.check`. Its mark is the next offset of each partition, as JSON has it: by its number as text."""
        ends = {str(partition): offset for partition, offset in view.offsets(self.servers, self.topic).items()}
        mark, poll = marks.get(self.key), seconds_of(self.poll)
        now = {self.key: ends}
        if mark is None:
            return Signal(False, f"{self} watches from now on", now, now, poll=poll)
        # A topic that was made anew begins at 0 again: then all in it is new.
        new = sum(end - (mark.get(each, 0) if mark.get(each, 0) <= end else 0) for each, end in ends.items())
        if new < self.count:
            return Signal(False, f"{self}: fewer new messages", {self.key: mark}, {self.key: mark}, poll=poll)
        return Signal(True, f"{self}: {new} new messages", {self.key: mark}, now, poll=poll)
