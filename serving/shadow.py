"""Shadow traffic: a version that answers silently what another has answered, and how far its answers differ.

It begins when the client has its answer, in a thread that rests as long as it has worked, and is left out where the
server is busy: nobody waits for it, and nobody sees what it says.
"""

from __future__ import annotations

import contextlib
import logging
import math
import random
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from .api import ColumnValues, Described, InferenceAnswer, InferenceRequest, RequestError, StatusCode
from .batching import Batcher, BatchingOptions, Done, Outputs, Predict, Rest
from .latency import BUCKETS
from .logged_rows import bytes_of
from .version import LoadedVersion

_LOG: Final = logging.getLogger("drivetrain.serving")
_BYTES: Final = 64 << 20  # that may wait
_OVERHEAD: Final = 400  # bytes of a request beside its values
_SAY: Final = 60.0  # seconds between two messages about a shadow that fails


@dataclass(frozen=True)
class ShadowTraffic:
    """A version that answers silently beside the one that is asked.

    Attributes:
        version: Which; None: the one that takes over by a rollout, whichever that is.
        sample: The share of the requests, above 0 and at most 1.
        tolerance: Numbers differ where they are further apart than this times the larger of 1 and the answered one.
        max_queue: Requests that may wait for it; further ones are left out, and counted.
    """

    version: int | None = None
    sample: float = 1.0
    tolerance: float = 1e-5
    max_queue: int = 256

    def __post_init__(self) -> None:
        if not 0 < self.sample <= 1:
            raise InputError(f"the shadow has a sample of {self.sample!r}", fix="write a share: 0.1, say")
        if not 0 <= self.tolerance < math.inf:
            raise InputError(f"the shadow's tolerance is {self.tolerance!r}", fix="write 0.00001, say")
        if self.max_queue < 1:
            raise InputError(f"the shadow's max_queue is {self.max_queue}", fix="write 1 at least")


@dataclass
class OutputDifference:
    """How far two versions' values of one output differ.

    Attributes:
        rows: Rows that were compared.
        differing: Rows of which a value differs by more than the tolerance.
        flipped: Rows whose class differs: text or a boolean is another, the largest of several scores is another,
            a score (a number from 0 to 1) is on the other side of 0.5.
        compared: Numbers that both versions had.
        total: Their absolute differences, added up.
        largest: The largest of them.
    """

    rows: int = 0
    differing: int = 0
    flipped: int = 0
    compared: int = 0
    total: float = 0.0
    largest: float = 0.0

    def add(self, other: OutputDifference) -> None:
        """Count what another one has counted."""
        self.rows += other.rows
        self.differing += other.differing
        self.flipped += other.flipped
        self.compared += other.compared
        self.total += other.total
        self.largest = max(self.largest, other.largest)


@dataclass
class ShadowCounts:
    """What came of the shadows that one version threw of another.

    Attributes:
        model: Of both.
        version: The shadow.
        answered: The version that answered the clients.
        requests: Requests that the shadow answered.
        seconds: What it took, together; with the time that it waited for its turn.
        buckets: How many took how long, by `latency.BUCKETS`.
        errors: Requests that it failed: code → how many.
        dropped: Requests that it was not asked, by reason: "busy" (others waited for their answers), "queue" (too many
            shadows waited), "unavailable" (the version was not there).
        outputs: By output.
    """

    model: str
    version: int
    answered: int
    requests: int = 0
    seconds: float = 0.0
    buckets: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    errors: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)
    outputs: dict[str, OutputDifference] = field(default_factory=dict)

    def add(self, other: ShadowCounts) -> None:
        """Count what another process has counted."""
        self.requests += other.requests
        self.seconds += other.seconds
        self.buckets = [a + b for a, b in zip(self.buckets, other.buckets, strict=True)]
        self.errors = dict(Counter(self.errors) + Counter(other.errors))
        self.dropped = dict(Counter(self.dropped) + Counter(other.dropped))
        for name, difference in other.outputs.items():
            self.outputs.setdefault(name, OutputDifference()).add(difference)

    def summary(self) -> dict[str, Any]:  # Any: JSON
        """What the admin API tells."""
        return {
            "version": self.version,
            "answered_by": self.answered,
            "requests": self.requests,
            "mean_seconds": self.seconds / self.requests if self.requests else None,
            "errors": self.errors,
            "dropped": self.dropped,
            "outputs": {
                name: {
                    "rows": each.rows,
                    "differing_share": each.differing / each.rows if each.rows else None,
                    "flipped_share": each.flipped / each.rows if each.rows else None,
                    "mean_absolute_difference": each.total / each.compared if each.compared else None,
                    "max_absolute_difference": each.largest if each.compared else None,
                }
                for name, each in sorted(self.outputs.items())
            },
        }


def difference(answered: NDArray[Any], shadow: NDArray[Any] | None, tolerance: float) -> OutputDifference:
    """How far a shadow's values of an output are from those that were answered.

    Args:
        answered: (rows, …).
        shadow: The same shape; anything else differs in every row.
        tolerance: See `ShadowTraffic`.
    """
    rows = len(answered)
    if shadow is None or shadow.shape != answered.shape or _is_number(shadow) != _is_number(answered):
        return OutputDifference(rows, rows)
    if not _is_number(answered):
        equal = [_same(a, b) for a, b in zip(answered.tolist(), shadow.tolist(), strict=True)]
        differing = rows - sum(equal)
        return OutputDifference(rows, differing, differing)
    if answered.dtype.kind == "b":
        differing = int((answered != shadow).reshape(rows, -1).any(axis=1).sum())
        return OutputDifference(rows, differing, differing)
    first = answered.astype(np.float64).reshape(rows, -1)
    second = shadow.astype(np.float64).reshape(rows, -1)
    known = np.isfinite(first) & np.isfinite(second)
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.where(known, np.abs(first - second), 0.0)
        alike = np.where(known, apart <= tolerance * np.maximum(1.0, np.abs(first)), False)
    alike |= (first == second) | (np.isnan(first) & np.isnan(second))
    if answered.ndim == 2 and answered.shape[1] > 1:
        flipped = first.argmax(axis=1) != second.argmax(axis=1)
    elif answered.ndim == 1 and answered.dtype.kind in "fV":
        scores = ((first >= 0) & (first <= 1) & (second >= 0) & (second <= 1))[:, 0]
        flipped = scores & ((first > 0.5) != (second > 0.5))[:, 0]
    else:
        flipped = np.zeros(rows, bool)
    return OutputDifference(
        rows,
        int((~alike).any(axis=1).sum()),
        int(flipped.sum()),
        int(known.sum()),
        float(apart.sum()),
        float(apart.max(initial=0.0)),
    )


def _is_number(values: NDArray[Any]) -> bool:
    return values.dtype.kind in "biufV"


def _same(first: Any, second: Any) -> bool:
    if isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
        return bool(np.array_equal(first, second))
    return bool(first == second) or (first != first and second != second)


class _Pair(NamedTuple):
    """Two answers to one request."""

    counts: ShadowCounts
    answered: Outputs
    shadow: Outputs
    tolerance: float


class ShadowRunner:
    """Asks shadows and compares.

    Args:
        executor: Where: one thread. Of the priority of others, since they wait while it holds Python's lock.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._batchers: WeakKeyDictionary[LoadedVersion, dict[str, Batcher]] = WeakKeyDictionary()
        self._counts: dict[tuple[str, int, int], ShadowCounts] = {}
        self._waiting = 0
        self._bytes = 0
        self._rest = Rest()
        self._said = -math.inf

    def counts(self) -> list[ShadowCounts]:
        """What came of it so far."""
        return [*self._counts.values()]

    def shadowing(
        self,
        options: ShadowTraffic,
        described: Described,
        version: int,
        loaded: LoadedVersion | None,
        signature: str,
        request: InferenceRequest,
        done: Done,
        queue: Batcher | None,
    ) -> Done:
        """What is to be called in place of `done`: it calls that first, then asks the shadow what was answered.

        Args:
            options: How.
            described: The version that is asked.
            version: The shadow.
            loaded: The shadow in memory; None where it is not.
            signature: What is asked.
            request: The request; its columns are not to be changed any more.
            done: What is called with the answer.
            queue: Where requests wait for the version that is asked.
        """

        def answered(result: InferenceAnswer | RequestError) -> None:
            done(result)
            if isinstance(result, RequestError):
                return
            key = (described.name, version, described.version)
            counts = self._counts.get(key)
            if counts is None:
                counts = self._counts[key] = ShadowCounts(*key)
            try:
                self._ask(options, counts, loaded, signature, request, result, queue)
            except Exception as error:  # whatever it is, others of the batch still wait for their answers
                self._failed(counts, StatusCode.INTERNAL, repr(error))

        return answered

    def _ask(
        self,
        options: ShadowTraffic,
        counts: ShadowCounts,
        loaded: LoadedVersion | None,
        signature: str,
        request: InferenceRequest,
        answer: InferenceAnswer,
        queue: Batcher | None,
    ) -> None:
        if loaded is None:
            _count(counts.dropped, "unavailable")
            return
        if queue is not None and queue.is_busy:
            _count(counts.dropped, "busy")
            return
        size = _OVERHEAD + sum(map(bytes_of, request.columns.values())) + sum(map(bytes_of, answer.outputs.values()))
        if self._waiting >= options.max_queue or self._bytes + size > _BYTES:
            _count(counts.dropped, "queue")
            return
        batcher = self._batcher(loaded, signature)
        if batcher is None:
            self._failed(counts, StatusCode.INVALID_ARGUMENT, f"it has no signature {signature!r}")
            return
        start = time.perf_counter()

        def done(result: InferenceAnswer | RequestError) -> None:
            self._waiting -= 1
            self._bytes -= size
            if isinstance(result, RequestError):
                self._failed(counts, result.code, result.message)
                return
            seconds = time.perf_counter() - start
            counts.requests += 1
            counts.seconds += seconds
            counts.buckets[bisect_left(BUCKETS, seconds)] += 1
            with contextlib.suppress(RuntimeError):  # the server is ending
                self._executor.submit(_compare, _Pair(counts, answer.outputs, result.outputs, options.tolerance))

        asked = InferenceRequest(request.model, signature, request.columns, request.rows)
        try:
            batcher.submit(asked, done)
        except RequestError:
            _count(counts.dropped, "queue")
            return
        self._waiting += 1  # of what was taken alone; it is done in a later turn of the loop
        self._bytes += size

    def _batcher(self, loaded: LoadedVersion, signature: str) -> Batcher | None:
        batchers = self._batchers.setdefault(loaded, {})
        if signature not in batchers and signature in loaded.predictors:
            predict = self._rest(_quiet(loaded.predictors[signature]))
            batchers[signature] = Batcher(loaded.described, predict, BatchingOptions(), self._executor, slow=True)
        return batchers.get(signature)

    def _failed(self, counts: ShadowCounts, code: StatusCode, message: str) -> None:
        _count(counts.errors, code.name)
        if time.monotonic() >= self._said + _SAY:
            self._said = time.monotonic()
            _LOG.warning("the shadow of model %s, version %d, failed: %.200s", counts.model, counts.version, message)


def is_chosen(sample: float) -> bool:
    """Whether a request is among a share of all, drawn."""
    return sample >= 1 or random.random() < sample  # noqa: S311 - nothing depends on nobody's knowing it


def _count(counts: dict[str, int], key: str) -> None:
    counts[key] = counts.get(key, 0) + 1


def _compare(pair: _Pair) -> None:
    """Compare two answers, in the thread of shadows, which alone writes to `outputs`."""
    for name, values in pair.answered.items():
        try:
            apart = difference(values, pair.shadow.get(name), pair.tolerance)
        except Exception:  # values of a kind that nobody has thought of differ
            apart = OutputDifference(len(values), len(values))
        total = pair.counts.outputs.get(name) or OutputDifference()
        total.add(apart)
        pair.counts.outputs[name] = total


def _quiet(predict: Predict) -> Predict:
    """The same, whose failures are told without a trace of each in the log."""

    def asked(columns: Mapping[str, ColumnValues], rows: int) -> Outputs:
        try:
            return predict(columns, rows)
        except InputError as error:
            raise RequestError(StatusCode.INVALID_ARGUMENT, error.message) from error
        except Exception as error:
            raise RequestError(StatusCode.INTERNAL, f"{type(error).__name__}: {error}") from error

    return asked


def merged(processes: Sequence[Sequence[ShadowCounts]]) -> list[ShadowCounts]:
    """The counts of several processes together."""
    together: dict[tuple[str, int, int], ShadowCounts] = {}
    for each in (each for counts in processes for each in counts):
        key = (each.model, each.version, each.answered)
        together.setdefault(key, ShadowCounts(*key)).add(each)
    return [together[key] for key in sorted(together)]
