"""A trigger over a stretch of time: what it would have started, or would start, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from heapq import heapify, heappop

from ..triggers.trigger import Marks, Trigger, TriggerView


@dataclass(frozen=True)
class Firing:
    """A run that a trigger starts: when (UTC), and why."""

    at: datetime
    reason: str

    def to_json(self) -> dict[str, object]:
        """As `schedule test --json` prints it."""
        return {"at": self.at.isoformat(), "reason": self.reason}


def replay(
    trigger: Trigger,
    view_at: Callable[[datetime], TriggerView],
    begin: datetime,
    end: datetime,
    moments: Iterable[datetime] = (),
    marks: Marks | None = None,
    most: int | None = None,
) -> tuple[list[Firing], str]:
    """What a trigger starts between two moments, and what it says at the end.

    Args:
        trigger: The trigger.
        view_at: What it sees at a moment.
        begin: When it begins to watch (UTC).
        end: The last moment.
        moments: When something came that it may wait for, beside what it asks for itself.
        marks: What it remembers at the beginning.
        most: How many firings at most; it ends there.
    """
    coming = [moment for moment in moments if begin < moment < end]
    heapify(coming)
    firings, now, remembered = [], begin, dict(marks or {})
    while True:
        signal = trigger.check(view_at(now), remembered)
        remembered |= signal.started if signal.due else signal.marks
        if signal.due:
            firings.append(Firing(now, signal.reason))
            if most is not None and len(firings) >= most:
                return firings, signal.reason
        elif now >= end:  # asked for again after each firing: another may be due at the same moment
            return firings, signal.reason
        else:
            while coming and coming[0] <= now:
                heappop(coming)
            following = [*coming[:1], *([] if signal.wake is None else [signal.wake])]
            now = min((moment for moment in following if now < moment < end), default=end)
