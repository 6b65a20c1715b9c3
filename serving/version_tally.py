"""What a version did since somebody looked: requests by how they ended, their latencies, what was predicted."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .api import InferenceAnswer, RequestError, StatusCode
from .batching import Done
from .latency import FINE_BUCKETS

SERVER_FAULTS: Final = frozenset({
    StatusCode.UNKNOWN, StatusCode.DEADLINE_EXCEEDED, StatusCode.RESOURCE_EXHAUSTED, StatusCode.INTERNAL,
    StatusCode.UNAVAILABLE, StatusCode.DATA_LOSS,
})  # fmt: skip
"""How requests end that a client could do nothing about."""

_KEPT: Final = 1024  # answers whose predictions are looked at, between two looks
_ROWS: Final = 256  # of an answer, those that are looked at
_TEXTS: Final = 200  # distinct texts of an output, from one look to the next; further ones are one cell
_MOST_CLASSES: Final = 1000
_NO_NUMBER: Final = "=nan"
_OTHER: Final = "=…"


@dataclass
class VersionTally:
    """Counts that are added to one another: those of several processes, and of several looks.

    Attributes:
        answered: Requests.
        failed: Requests that failed by the server's fault.
        refused: Requests that were refused for what they sent.
        latencies: Answered requests by the bucket of `FINE_BUCKETS` that they are in; last those that took longer.
        predictions: Output → cell → rows. The cell of a number is a whole number, the larger the larger; that of a text
            or of the most likely class begins with "=".
    """

    answered: int = 0
    failed: int = 0
    refused: int = 0
    latencies: list[int] = field(default_factory=lambda: [0] * (len(FINE_BUCKETS) + 1))
    predictions: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def requests(self) -> int:
        """How many requests it counted: answered, failed and refused."""
        return self.answered + self.failed + self.refused

    def add(self, other: VersionTally) -> None:
        """Count what another one has counted."""
        self.answered += other.answered
        self.failed += other.failed
        self.refused += other.refused
        self.latencies = [a + b for a, b in zip(self.latencies, other.latencies, strict=True)]
        for output, cells in other.predictions.items():
            mine = self.predictions.setdefault(output, {})
            for cell, rows in cells.items():
                mine[cell] = mine.get(cell, 0) + rows

    def percentile(self, share: float) -> float | None:
        """The seconds that this share of the answers took at most, up to a bucket's end; None without answers."""
        if not self.answered:
            return None
        rest = share * self.answered
        for end, count in zip(FINE_BUCKETS, self.latencies, strict=False):
            rest -= count
            if rest <= 0:
                return end
        return FINE_BUCKETS[-1]


class VersionRecorder:
    """Counts the requests of one version in the event loop, at a microsecond each."""

    def __init__(self) -> None:
        self._tally = VersionTally()
        self._outputs: list[Mapping[str, NDArray[Any]]] = []

    def recording(self, done: Done) -> Done:
        """What is to be called in place of `done`: it calls that first, then counts."""
        start = time.perf_counter()

        def recorded(result: InferenceAnswer | RequestError) -> None:
            seconds = time.perf_counter() - start
            done(result)
            if isinstance(result, RequestError):
                self.refused(result.code)
                return
            self._tally.answered += 1
            self._tally.latencies[bisect_left(FINE_BUCKETS, seconds)] += 1
            if len(self._outputs) < _KEPT:
                self._outputs.append(result.outputs)

        return recorded

    def refused(self, code: StatusCode) -> None:
        """A request was not answered."""
        if code in SERVER_FAULTS:
            self._tally.failed += 1
        else:
            self._tally.refused += 1

    def take(self) -> VersionTally:
        """What was counted since the last time."""
        tally, self._tally = self._tally, VersionTally()
        outputs, self._outputs = self._outputs, []
        by_name: dict[str, list[NDArray[Any]]] = {}
        for each in outputs:
            for name, values in each.items():
                by_name.setdefault(name, []).append(values[:_ROWS])
        for name, parts in by_name.items():
            cells = cells_of(parts)
            if cells:
                tally.predictions[name] = cells
        return tally


def cells_of(parts: Iterable[NDArray[Any]]) -> dict[str, int]:
    """Rows of an output by what was predicted: see `VersionTally.predictions`; nothing of outputs that are lists.

    A number's cell has its sign, its exponent and six bits of its fraction: neighbours differ by 1.6 %.

    Args:
        parts: (rows,) or, of classes, (rows, classes).
    """
    counts: Counter[str] = Counter()
    numbers: list[NDArray[np.float32]] = []
    for values in parts:
        if values.dtype.kind in "OUS":
            counts.update("=" + str(value)[:200] for value in values if isinstance(value, str))
        elif values.dtype.kind in "fiubV" and values.ndim == 1:
            with np.errstate(over="ignore"):
                numbers.append(values.astype(np.float32))
        elif values.dtype.kind in "fV" and values.ndim == 2 and 2 <= values.shape[1] <= _MOST_CLASSES:
            counts.update(f"={index}" for index in values.astype(np.float32).argmax(axis=1).tolist())
    if numbers:
        joined = np.concatenate(numbers) + np.float32(0)  # of -0.0, 0.0
        finite = ~np.isnan(joined)
        if not finite.all():
            counts[_NO_NUMBER] += int((~finite).sum())
        bits = joined[finite].view(np.int32) >> 17
        cells, rows = np.unique(np.where(bits < 0, -1 - (bits & 0x3FFF), bits), return_counts=True)
        counts.update(dict(zip(map(str, cells.tolist()), rows.tolist(), strict=True)))
    texts = [cell for cell in counts if cell.startswith("=")]
    if len(texts) > _TEXTS:
        kept = {cell for cell, _ in counts.most_common(_TEXTS)}
        for cell in texts:
            if cell not in kept:
                counts[_OTHER] += counts.pop(cell)
    return dict(counts)


class SlidingWindow:
    """The tallies of a model's versions over the last seconds.

    Args:
        seconds: How many.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._looks: deque[tuple[float, dict[int, VersionTally]]] = deque()

    def add(self, now: float, tallies: Mapping[int, VersionTally]) -> None:
        """Count what was seen at a look, and forget what is too old; `now` in seconds."""
        if tallies:
            self._looks.append((now, dict(tallies)))
        while self._looks and self._looks[0][0] <= now - self.seconds:
            self._looks.popleft()

    def forget(self, version: int) -> None:
        """Begin anew with a version."""
        for _, tallies in self._looks:
            tallies.pop(version, None)

    def of(self, version: int | None) -> VersionTally:
        """What a version did over the window; nothing for None."""
        total = VersionTally()
        for _, tallies in self._looks:
            if version in tallies:
                total.add(tallies[version])
        return total
