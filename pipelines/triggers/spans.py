"""A trigger by files: new spans, and new versions of spans."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...errors import InputError
from ..project.spans import parse
from .durations import seconds_of
from .trigger import Marks, Signal, Trigger, TriggerView

Span = tuple[int, int | None]


@dataclass(frozen=True)
class NewSpan(Trigger):
    """Due when files of a new span are there, or a new version of one; also of a span older than others.

    A file is there from its first byte on: write it under another name and rename it, or wait with `.debounce("10m")`.

    Attributes:
        pattern: As `dt.files` takes it, with {SPAN} or a date, and {VERSION}: a path, or the URL of an object store.
        poll: How often is looked, e.g. "1m"; seconds in the IR.
    """

    pattern: str
    poll: str | int = 60

    def __post_init__(self) -> None:
        object.__setattr__(self, "poll", seconds_of(self.poll))
        if not parse(self.pattern).has_span:
            raise InputError(f"{self.pattern!r} names no span", fix="write {SPAN}, or {YYYY}, {MM} and {DD}")

    def check(self, view: TriggerView, marks: Marks) -> Signal:
        """See `Trigger.check`. Its mark is the spans that it has seen, as ranges with one version each."""
        mark = marks.get(self.key)
        spans = view.spans(self.pattern)
        poll = seconds_of(self.poll)
        if mark is None:
            begin = {self.key: _ranges(spans)}
            return Signal(False, f"{self} watches from now on", begin, begin, poll=poll)
        known = dict(_listed(mark))
        new = [(span, version) for span, version in spans if span not in known or _newer(version, known[span])]
        if not new:
            return Signal(False, f"{self}: no new span", {self.key: mark}, {self.key: mark}, poll=poll)
        names = [f"{span}" if version is None else f"{span} (version {version})" for span, version in new[-3:]]
        reason = f"{self}: span {', '.join(names)}{f' and {len(new) - 3} more' if new[3:] else ''}"
        # What was deleted stays known: a disk that comes back has nothing new.
        seen = {self.key: _ranges([*(known | dict(new)).items()])}
        return Signal(True, reason, {self.key: mark}, seen, poll=poll)


def _newer(version: int | None, known: int | None) -> bool:
    return version is not None and (known is None or version > known)


def _ranges(spans: Iterable[Span]) -> list[list[int | None]]:
    """Spans as [first, last, version], neighbours of one version together: a year of days is one entry."""
    ranges: list[list[int | None]] = []
    for span, version in sorted(spans):
        if ranges and ranges[-1][1] == span - 1 and ranges[-1][2] == version:
            ranges[-1][1] = span
        else:
            ranges.append([span, span, version])
    return ranges


def _listed(ranges: Iterable[Sequence[int | None]]) -> Iterable[Span]:
    for first, last, version in ranges:
        assert first is not None
        assert last is not None
        yield from ((span, version) for span in range(first, last + 1))
