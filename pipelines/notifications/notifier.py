"""Tells people what happened in a store: looks for events, and sends what the rules say, by a loop or once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from ...digest import canonical_json
from ...errors import DrivetrainError
from ...metadata import ConflictError
from ..launcher.home import Home
from .channels import DEADLINE, DeliveryError, deliver, failure_of
from .events import Event, EventSource, Mark, every_source
from .message import Message, compose
from .outbox import Outbox, begin_outbox, close_batch, find_outbox, outbox_name, put, put_off, take
from .settings import NotificationSettings, Rule

ATTEMPTS: Final = 8
_FIRST_PAUSE: Final = 15.0
_LONGEST_PAUSE: Final = 900.0
"""Seconds: 15 after the first attempt, then twice as many each time, so half an hour in all."""
_LEASE: Final = 2 * DEADLINE
"""Seconds for which no other process sends what one has begun to send."""
_KEEP: Final = 600_000_000
"""Microseconds after which marks are written though nothing came that is to be told."""

Report = Callable[[str], None]


class _Looks:
    """What sources said in one look: for rules that have looked as far before, none is asked again."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._begun: dict[str, Mark] = {}
        self._looks: dict[tuple[str, bytes], tuple[list[Event], Mark]] = {}

    def begin(self, source: EventSource) -> Mark:
        """The mark of who begins now."""
        if source.name not in self._begun:
            self._begun[source.name] = source.begin(self._home)
        return self._begun[source.name]

    def at(self, source: EventSource, mark: Mark) -> tuple[list[Event], Mark]:
        """What came since a mark, and the mark afterwards."""
        key = (source.name, canonical_json(mark))
        if key not in self._looks:
            self._looks[key] = source.look(self._home, mark)
        return self._looks[key]


@dataclass(frozen=True)
class _Sending:
    """A message on its way."""

    outbox: Outbox
    message: Message
    answer: Future[str]


class Notifier:
    """Looks at a store, and sends what is to be told. Several may be at work on one store.

    Args:
        home: The root.
        settings: What is told to whom.
        sources: Where events come from.
        report: Called with a line for each message that was sent or not.
    """

    def __init__(
        self,
        home: Home,
        settings: NotificationSettings,
        *,
        sources: Sequence[EventSource] | None = None,
        report: Report = lambda line: None,
    ) -> None:
        self._home = home
        self._settings = settings
        self._sources = every_source() if sources is None else sources
        self._report = report
        self._ahead: dict[str, tuple[int, Mapping[str, Mark]]] = {}
        """By outbox: the version of its record, and marks further on than those in it, up to which nothing came."""

    def run(self, stop: threading.Event, *, poll: float = 5.0) -> None:
        """Look every `poll` seconds until `stop` is set."""
        failure = ""
        while not stop.is_set():
            try:
                self.look()
                failure = ""
            except Exception as error:  # a store that restarts, a damaged record: a scheduler beside it goes on
                message = error.message if isinstance(error, DrivetrainError) else f"{type(error).__name__}: {error}"
                if message != failure:
                    self._report(f"notifications: {message}; trying again")
                failure = message
            stop.wait(poll)

    def look(self, *, at_once: bool = False) -> None:
        """Look once for events, and send what is due; `at_once`: without waiting for what may come with it."""
        looks = _Looks(self._home)
        sendings = []
        failure: DrivetrainError | None = None
        for rule in self._settings.rules:
            for channel in rule.channels:
                try:
                    outbox = self._collected(rule, channel, looks)
                    if _is_due(outbox, rule, self._home.store.now(), at_once=at_once):
                        sendings.append(self._begin(rule, channel, take(self._home, outbox, _LEASE)))
                except ConflictError:  # another process changed it: at the next look
                    self._ahead.pop(outbox_name(rule.name, channel), None)
                except DrivetrainError as error:  # a record of a newer release, say: the others are told
                    failure = error
        over = time.monotonic() + DEADLINE
        for sending in sendings:
            answer = failure_of(sending.answer, over - time.monotonic())
            try:
                self._end(sending, *answer)
            except DrivetrainError as error:  # the store went away: the others may be recorded all the same
                failure = error
        if failure is not None:
            raise failure

    def _collected(self, rule: Rule, channel: str, looks: _Looks) -> Outbox:
        """An outbox with what came since the last look."""
        home = self._home
        outbox = find_outbox(home, rule.name, channel)
        if outbox is None:
            outbox = begin_outbox(home, rule.name, channel, {each.name: looks.begin(each) for each in self._sources})
        version, marks = self._ahead.get(outbox.name, (0, outbox.marks))
        before = marks if version == outbox.context.version else outbox.marks
        events: list[Event] = []
        after: dict[str, Mark] = {}
        for source in self._sources:
            mark = before[source.name] if source.name in before else looks.begin(source)
            news, after[source.name] = looks.at(source, mark)
            events += [event for event in news if rule.wants(event)]
        if events or (after != outbox.marks and home.store.now() > outbox.marked + _KEEP):
            return put(home, outbox, sorted(events, key=lambda event: event.at), after)
        self._ahead[outbox.name] = (outbox.context.version, after)
        return outbox

    def _begin(self, rule: Rule, channel: str, outbox: Outbox) -> _Sending:
        batch = outbox.batch
        assert batch is not None
        events = outbox.waiting[: batch.size]
        message = compose(batch.id, rule.name, events, batch.more, rule.subject, rule.text)
        return _Sending(outbox, message, deliver(self._settings.channels[channel], message))

    def _end(self, sending: _Sending, remark: str, failure: DeliveryError | None) -> None:
        """Record what became of a message."""
        outbox, message = sending.outbox, sending.message
        batch = outbox.batch
        assert batch is not None
        where = f"{outbox.channel}: {message.subject}"
        facts = {"subject": message.subject, "count": dict(message.count)}
        if failure is None:
            close_batch(self._home, outbox, {**facts, "reason": remark}, is_sent=True)
            self._report(f"told {where}{f' ({remark})' if remark else ''}")
        elif failure.is_final or batch.attempts >= ATTEMPTS:
            runs = sorted({event.run for event in message.events})
            close_batch(self._home, outbox, {**facts, "reason": failure.message, "runs": runs}, is_sent=False)
            self._report(f"could not tell {where}: {failure.message}; given up after {batch.attempts} attempts")
        else:
            pause = max(min(_FIRST_PAUSE * 2 ** (batch.attempts - 1), _LONGEST_PAUSE), failure.pause or 0.0)
            put_off(self._home, outbox, pause)
            self._report(f"could not tell {where}: {failure.message}; trying again in {pause:g} s")


def _is_due(outbox: Outbox, rule: Rule, now: int, *, at_once: bool) -> bool:
    if outbox.batch is not None:
        return now >= outbox.batch.next
    if not outbox.waiting and not outbox.more:
        return False
    wait = 0 if at_once else rule.wait
    return now >= outbox.since + wait * 1_000_000 and now >= outbox.sent + rule.window * 1_000_000
