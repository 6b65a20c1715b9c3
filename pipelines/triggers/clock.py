"""Triggers by the clock: cron in a time zone, and intervals."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice, takewhile
from typing import Final, Literal, TypeAlias

from ...errors import InputError
from .cron_fields import parse_cron
from .durations import seconds_of, spelled
from .trigger import Marks, Signal, Trigger, TriggerView, marked_moment
from .zones import moment_of, time_zone

CatchUp: TypeAlias = Literal["latest", "all", "none"]
_PUNCTUAL: Final = timedelta(minutes=5)
"""How late a run may begin that is not made up for: the scheduler looks every few seconds."""
_COUNTED: Final = 100
"""Times that were missed are counted up to here."""


class _TimeTable(Trigger):
    """Due at certain times. Its mark is the last time that it started a run for, or let pass."""

    catch_up: CatchUp

    def after(self, moment: datetime) -> Iterator[datetime]:
        """The times after a moment, in order; aware, in the trigger's zone."""
        raise NotImplementedError

    def latest(self, moment: datetime) -> datetime:
        """The last time at or before a moment."""
        raise NotImplementedError

    def check(self, view: TriggerView, marks: Marks) -> Signal:
        """See `Trigger.check`."""
        begin = marked_moment(marks.get(self.key), view.now) or view.now
        times = self.after(begin)
        first = next(times, None)
        if first is None or first > view.now:
            return self._wait(begin, first)
        latest = self.latest(view.now)
        if self.catch_up == "none" and view.now - latest > _PUNCTUAL:
            return self._wait(latest, next(self.after(view.now), None), f"was missed at {_minute(latest)}, ")
        scheduled = first if self.catch_up == "all" else latest
        more = takewhile(lambda each: each.astimezone(UTC) <= latest.astimezone(UTC), islice(times, _COUNTED))
        missed = sum(1 for _ in more) if scheduled is latest else 0
        count = f", for {'over ' * (missed == _COUNTED)}{missed + 1} times together" if missed else ""
        return Signal(
            True,
            f"{self} was due at {_minute(scheduled)}{count}",
            {self.key: begin.isoformat()},
            {self.key: scheduled.astimezone(UTC).isoformat()},
        )

    def _wait(self, mark: datetime, following: datetime | None, before: str = "") -> Signal:
        marks = {self.key: mark.astimezone(UTC).isoformat()}
        if following is None:
            return Signal(False, f"{self} {before}has no time left", marks, marks)
        return Signal(False, f"{self} {before}is due at {_minute(following)}", marks, marks, following.astimezone(UTC))


@dataclass(frozen=True)
class Cron(_TimeTable):
    """Due by five fields of cron: minute, hour, day of the month, month, day of the week; names, lists, ranges, steps.

    When clocks change, times are as Debian's cron has them. Where both the minute and the hour are named, as in
    `30 2 * * *`, a time in the hour that is left out is due right after it, once, and one in the hour that comes twice
    is due the first time. Where one of them begins with a star (`*/15 * * * *`), the clock is followed: nothing is due
    in an hour that is left out, and what is due in an hour that comes twice is due twice.

    Attributes:
        fields: E.g. "0 3 * * mon-fri", or "@daily".
        tz: The zone whose clocks show the times, e.g. "Europe/Oslo", or an offset, "+05:30".
        catch_up: What becomes of times at which no scheduler was at work: "latest" starts one run for all of them,
            "all" one for each, one after another, "none" lets them pass.
    """

    fields: str
    tz: str = "UTC"
    catch_up: CatchUp = "latest"

    def __post_init__(self) -> None:
        parse_cron(self.fields)
        time_zone(self.tz)
        _check_catch_up(self.catch_up)
        if not _has_times(self.fields):
            raise InputError(
                f"the cron expression {self.fields!r} names no date of any year", fix="give a day that the month has"
            )

    def after(self, moment: datetime) -> Iterator[datetime]:
        """The times after a moment, in order."""
        from cronsim import CronSim

        earlier = moment
        for time in CronSim(" ".join(parse_cron(self.fields).spelled), moment.astimezone(time_zone(self.tz))):
            if time.astimezone(UTC) > earlier.astimezone(UTC):  # two of a missing hour are due at the same moment
                yield time
                earlier = time

    def latest(self, moment: datetime) -> datetime:
        """The last time at or before a moment."""
        # Forward from ever further back: going back, cron's rules for a missing hour would have to be known here.
        for hours in (3 * 8**n for n in range(8)):
            times = takewhile(lambda time: time.astimezone(UTC) <= moment, self.after(moment - timedelta(hours=hours)))
            if newest := list(deque(times, maxlen=1)):
                return newest[0]
        raise InputError(
            f"{self} names no time before {moment:%Y-%m-%d}", fix="give one that comes at least in leap years"
        )


@dataclass(frozen=True)
class Every(_TimeTable):
    """Due at an interval, counted from `start`.

    Attributes:
        period: E.g. "6h", "1d12h"; seconds in the IR.
        start: A moment as ISO 8601, e.g. "2026-12-01T03:00+01:00"; in UTC where it names no offset.
        catch_up: See `Cron`.
    """

    period: str | int
    start: str = "1970-01-01"
    catch_up: CatchUp = "latest"

    def __post_init__(self) -> None:
        object.__setattr__(self, "period", seconds_of(self.period))
        _check_catch_up(self.catch_up)
        moment_of(self.start)

    def after(self, moment: datetime) -> Iterator[datetime]:
        """The times after a moment, in order."""
        count = max((moment - self._start) // self._length + 1, 0)
        with suppress(OverflowError):  # the end of the calendar
            while True:
                yield self._start + count * self._length
                count += 1

    def latest(self, moment: datetime) -> datetime:
        """The last time at or before a moment."""
        return self._start + (moment - self._start) // self._length * self._length

    @property
    def _length(self) -> timedelta:
        return timedelta(seconds=seconds_of(self.period))

    @property
    def _start(self) -> datetime:
        start = datetime.fromisoformat(self.start)
        return start if start.tzinfo else start.replace(tzinfo=UTC)

    def __str__(self) -> str:
        return super().__str__().replace(f"Every({self.period}", f"Every({spelled(seconds_of(self.period))!r}", 1)


@lru_cache(1024)  # the scheduler reads its schedules every few seconds
def _has_times(fields: str) -> bool:
    from cronsim import CronSim, CronSimError

    try:
        return next(CronSim(" ".join(parse_cron(fields).spelled), datetime(2026, 1, 1, tzinfo=UTC)), None) is not None
    except CronSimError:
        return False


def _check_catch_up(catch_up: str) -> None:
    if catch_up not in ("latest", "all", "none"):
        raise InputError(f"catch_up is {catch_up!r:.40}", fix="give 'latest', 'all' or 'none'")


def _minute(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} {moment.tzname() or moment.strftime('%z')}"
