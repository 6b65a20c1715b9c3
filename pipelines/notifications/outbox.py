"""What has yet to be sent by a rule to a channel: one record in the store, which is changed by compare-and-set.

Who sends first writes down that it does, and until when others leave it alone. So a message is sent once, whoever else
is at work; one whose sender dies in between is sent again, with the same id.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from ...errors import BuildError
from ...metadata import ConflictError, ContextRecord
from ..launcher.home import Home
from .events import Event, Mark, count

_KIND: Final = "notifications"
_LOG: Final = "sent notifications"
MOST: Final = 500
"""Events that a record holds; more are only counted."""


@dataclass(frozen=True)
class Batch:
    """The message that is being sent.

    Attributes:
        id: Its id.
        size: How many of the waiting events it is about, the oldest.
        more: And how many that are only counted, by kind.
        attempts: How often it was sent, this time included.
        next: When it is sent again, in microseconds since 1970.
    """

    id: str
    size: int
    more: Mapping[str, int]
    attempts: int
    next: int


@dataclass(frozen=True)
class Outbox:
    """What has yet to be sent by a rule to a channel. Times are microseconds since 1970, by the clock of the store.

    Attributes:
        rule: The rule.
        channel: The channel.
        marks: How far each source of events was looked through: source → its mark.
        marked: When the marks were written.
        waiting: What has yet to be told, the oldest first.
        more: How many more there are of each kind than a record holds.
        since: When the oldest of these came.
        batch: The message that is being sent, None where none is.
        sent: When the last message was sent; 0 where none was.
        context: The record.
    """

    rule: str
    channel: str
    marks: Mapping[str, Mark]
    marked: int
    waiting: tuple[Event, ...]
    more: Mapping[str, int]
    since: int
    batch: Batch | None
    sent: int
    context: ContextRecord

    @classmethod
    def of(cls, context: ContextRecord) -> Outbox:
        """The outbox that a record describes.

        Raises:
            BuildError: It describes none, or a newer release wrote it.
        """
        facts = context.properties
        try:
            return cls(
                facts["rule"],
                facts["channel"],
                dict(facts["marks"]),
                facts["marked"],
                tuple(Event(**each) for each in facts["waiting"]),
                dict(facts["more"]),
                facts["since"],
                None if facts["batch"] is None else Batch(**facts["batch"]),
                facts["sent"],
                context,
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BuildError(
                f"the record of notifications {context.name!r} cannot be read: {type(error).__name__}: {error}",
                fix="upgrade drivetrain where a newer one wrote it, or give the rule another name",
            ) from None

    @property
    def name(self) -> str:
        """The record's name."""
        return self.context.name

    def to_json(self) -> dict[str, object]:
        """As `notify list --json` prints it."""
        return {
            "rule": self.rule,
            "channel": self.channel,
            "waiting": len(self.waiting) + sum(self.more.values()),
            "attempts": 0 if self.batch is None else self.batch.attempts,
        }


def outbox_name(rule: str, channel: str) -> str:
    """What the record of a rule and a channel is called."""
    return f"{rule}/{channel}"


def find_outbox(home: Home, rule: str, channel: str) -> Outbox | None:
    """The outbox of a rule and a channel, None where nobody has looked for them yet."""
    context = home.store.find_context(_KIND, outbox_name(rule, channel))
    return None if context is None else Outbox.of(context)


def begin_outbox(home: Home, rule: str, channel: str, marks: Mapping[str, Mark]) -> Outbox:
    """The outbox of a rule and a channel, new unless another process was faster."""
    facts = {
        "rule": rule,
        "channel": channel,
        "marks": dict(marks),
        "marked": home.store.now(),
        "waiting": [],
        "more": {},
        "since": 0,
        "batch": None,
        "sent": 0,
    }
    return Outbox.of(home.store.context(_KIND, outbox_name(rule, channel), facts))


def outboxes(home: Home) -> list[Outbox]:
    """Every outbox, by name."""
    contexts = home.store.contexts(_KIND, limit=None)
    return [Outbox.of(context) for context in sorted(contexts, key=lambda context: context.name)]


def put(home: Home, outbox: Outbox, events: Sequence[Event], marks: Mapping[str, Mark]) -> Outbox:
    """An outbox with more events, and the marks up to which they were looked for: both are written, or neither.

    Raises:
        ConflictError: Another process changed it; look again.
    """
    now = home.store.now()
    kept = events[: max(0, MOST - len(outbox.waiting))] if not outbox.more else ()
    more = dict(outbox.more)
    for kind, number in count(events[len(kept) :]).items():
        more[kind] = more.get(kind, 0) + number
    is_first = bool(events) and not outbox.waiting
    changes = {
        "marks": dict(marks),
        "marked": now,
        "waiting": [*map(asdict, outbox.waiting), *map(asdict, kept)],
        "more": more,
        "since": now if is_first else outbox.since,
    }
    return _changed(home, outbox, changes)


def take(home: Home, outbox: Outbox, lease: float) -> Outbox:
    """An outbox whose next message this process sends now, and no other for the seconds of the lease.

    Raises:
        ConflictError: Another process was faster.
    """
    batch = outbox.batch or Batch(secrets.token_hex(8), len(outbox.waiting), outbox.more, 0, 0)
    following = Batch(batch.id, batch.size, batch.more, batch.attempts + 1, home.store.now() + round(lease * 1e6))
    return _changed(home, outbox, {"batch": asdict(following)})


def put_off(home: Home, outbox: Outbox, seconds: float) -> None:
    """Have the message that was taken be sent again after some seconds."""
    assert outbox.batch is not None
    later = {**asdict(outbox.batch), "next": home.store.now() + round(seconds * 1e6)}
    _settle(home, outbox, lambda current: {"batch": later})


def close_batch(home: Home, outbox: Outbox, facts: Mapping[str, object], *, is_sent: bool) -> None:
    """Take away the message that was sent, or given up, and record which.

    Args:
        home: The root.
        outbox: The outbox as it was when the message was taken.
        facts: What is recorded of the message.
        is_sent: Whether it was sent.
    """
    batch, now = outbox.batch, home.store.now()
    assert batch is not None
    entry = {"rule": outbox.rule, "channel": outbox.channel, "at": now, "is_sent": is_sent, **facts}
    home.store.context(_LOG, batch.id, {**entry, "attempts": batch.attempts})

    def without(current: Outbox) -> Mapping[str, object]:
        more = {kind: number - batch.more.get(kind, 0) for kind, number in current.more.items()}
        return {
            "batch": None,
            "waiting": [asdict(event) for event in current.waiting[batch.size :]],
            "more": {kind: number for kind, number in more.items() if number > 0},
            "since": now,
            **({"sent": now} if is_sent else {}),
        }

    _settle(home, outbox, without)


def log(home: Home, limit: int) -> list[Mapping[str, Any]]:  # Any: JSON
    """What was sent or given up, the newest first."""
    return [context.properties for context in home.store.contexts(_LOG, limit=limit)]


def _settle(home: Home, outbox: Outbox, changes: Callable[[Outbox], Mapping[str, object]]) -> None:
    """Change an outbox unless another process has taken its message over, or was done with it."""
    while outbox.batch is not None:
        taken = outbox.batch
        try:
            _changed(home, outbox, changes(outbox))
            return
        except ConflictError:
            context = home.store.find_context(_KIND, outbox.name)
            outbox = Outbox.of(context) if context is not None else outbox
            if outbox.batch is None or (outbox.batch.id, outbox.batch.attempts) != (taken.id, taken.attempts):
                return


def _changed(home: Home, outbox: Outbox, changes: Mapping[str, object]) -> Outbox:
    return Outbox.of(home.store.update_context(outbox.context, changes, expected_version=outbox.context.version))
