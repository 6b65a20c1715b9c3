"""A long sequence cut into few segments: equal neighbours, and patterns that repeat, are one."""

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
        return [Segment(index, index + 1) for index in range(len(keys))]
    cuts = [index for index, key in enumerate(keys) if not index or key != keys[index - 1]]
    runs = [Segment(a, b) for a, b in zip(cuts, [*cuts[1:], len(keys)], strict=True)]
    if len(runs) > limit:
        runs = _repeats(runs, keys)
    if len(runs) > limit:
        ends = [round(part * len(runs) / limit) for part in range(limit + 1)]
        runs = [runs[a] if b - a == 1 else Segment(runs[a].start, runs[b - 1].stop) for a, b in pairwise(ends)]
    return runs


def _repeats(runs: Sequence[Segment], keys: Sequence[Hashable]) -> list[Segment]:
    names = [keys[run.start] for run in runs]
    repeats: list[Segment] = []
    at = 0
    while at < len(runs):
        best = (0, 1, 1)  # runs covered, runs in the pattern, times it repeats
        for period in range(1, min(_LONGEST, (len(runs) - at) // _LEAST) + 1):
            stop = at + period
            # A sequence has period p where each item equals the one p before it.
            while stop < len(runs) and names[stop] == names[stop - period]:
                stop += 1
            times = (stop - at) // period
            if times >= _LEAST and times * period > best[0]:
                best = (times * period, period, times)
        if best[0]:
            repeats.append(Segment(runs[at].start, runs[at + best[0] - 1].stop, best[2]))
        else:
            repeats.append(runs[at])
        at += best[0] or 1
    return repeats
