"""In which order executions must be stored so that what makes an artifact comes before what takes it."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence


def sorted_by_flow(
    executions: Sequence[int], events: Iterable[tuple[int, int, int]], inputs: Sequence[int], outputs: Sequence[int]
) -> list[int]:
    """The executions, makers before takers and before who gives the same again, otherwise by id; circles come last.

    It holds a few numbers for every event, so it is for stores that were not recorded in order.

    Args:
        executions: Their ids.
        events: Execution, artifact, kind.
        inputs: The kinds of events that take an artifact.
        outputs: Those that give one.
    """
    makers: dict[int, int] = {}
    takers: dict[int, list[int]] = {}
    for execution, artifact, kind in events:
        if kind in outputs:
            makers[artifact] = min(execution, makers.get(artifact, execution))
        if kind in outputs or kind in inputs:
            takers.setdefault(artifact, []).append(execution)
    waits = dict.fromkeys(executions, 0)
    follows: dict[int, list[int]] = {}
    for artifact, maker in makers.items():
        for taker in takers.get(artifact, ()):
            if taker != maker and taker in waits and maker in waits:
                waits[taker] += 1
                follows.setdefault(maker, []).append(taker)
    ready = [execution for execution, count in waits.items() if not count]
    heapq.heapify(ready)
    found: list[int] = []
    while ready:
        execution = heapq.heappop(ready)
        found.append(execution)
        for taker in follows.get(execution, ()):
            waits[taker] -= 1
            if not waits[taker]:
                heapq.heappush(ready, taker)
    return found + sorted(execution for execution, count in waits.items() if count)
