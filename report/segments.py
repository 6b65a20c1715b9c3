"""A long sequence told briefly: neighbours that are alike, and patterns that repeat, as one."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

_LONGEST: Final = 32  # the longest pattern looked for, in runs
_LEAST: Final = 3  # how often it must repeat


@dataclass(frozen=True)
class Segment:
    """Items `start` to `stop` of a sequence, `times` times one pattern."""

    start: int
    stop: int
    times: int = 1


def segments(keys: Sequence[Hashable], limit: int) -> list[Segment]:
    """Cut a sequence into at most `limit` pieces.

    Single items if they are few enough, else runs of one key, else repeated patterns of runs, else even parts.
    """
    if len(keys) <= limit:
        return [Segment(place, place + 1) for place in range(len(keys))]
    cuts = [place for place, key in enumerate(keys) if not place or key != keys[place - 1]]
    runs = [Segment(a, b) for a, b in zip(cuts, [*cuts[1:], len(keys)], strict=True)]
    if len(runs) > limit:
        runs = _repeats(runs, keys)
    if len(runs) > limit:
        ends = [round(part * len(runs) / limit) for part in range(limit + 1)]
        runs = [runs[a] if b - a == 1 else Segment(runs[a].start, runs[b - 1].stop) for a, b in pairwise(ends)]
    return runs


def _repeats(runs: Sequence[Segment], keys: Sequence[Hashable]) -> list[Segment]:
    names = [keys[run.start] for run in runs]
    found: list[Segment] = []
    place = 0
    while place < len(runs):
        best = (0, 1, 1)  # covered, period, times
        for period in range(1, min(_LONGEST, (len(runs) - place) // _LEAST) + 1):
            stop = place + period
            while stop < len(runs) and names[stop] == names[stop - period]:
                stop += 1
            times = (stop - place) // period
            if times >= _LEAST and times * period > best[0]:
                best = (times * period, period, times)
        if best[0]:
            found.append(Segment(runs[place].start, runs[place + best[0] - 1].stop, best[2]))
        else:
            found.append(runs[place])
        place += best[0] or 1
    return found
