"""How a new version takes over a model's traffic: by which steps, watched by which guard."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from ..errors import InputError

_LONGEST_WINDOW: Final = 86_400.0
_MOST_STEPS: Final = 100


@dataclass(frozen=True)
class RampStep:
    """A share of the requests, and how long the new version keeps it.

    Attributes:
        share: Percent of the requests that name no version, 0 to 100.
        minutes: Until the next step, counted while the new version can be asked; None: until an operator advances it.
    """

    share: float
    minutes: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 100:
            raise InputError(f"a step has {self.share!r} percent of the requests", fix="write 0 to 100")
        if self.minutes is not None and not 0 <= self.minutes < math.inf:
            raise InputError(f"a step takes {self.minutes!r} minutes", fix="write a number of minutes, or none")


@dataclass(frozen=True)
class Guard:
    """What the new version must keep, judged every two seconds; where it does not, the old one has all traffic again.

    Rates and latencies are those of the requests that came to a version over the window, its predictions those that it
    made then. A limit that is None is not looked at.

    Attributes:
        window_seconds: How far back is looked.
        min_requests: Of each version that is judged; a step is not left before the new version has answered as many.
        error_rate: By how much the share of requests that failed by the server's fault (codes UNKNOWN,
            DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, INTERNAL, UNAVAILABLE, DATA_LOSS) may be above the old version's;
            above 0 where that had fewer than `min_requests`.
        refused_rate: The same of requests that were refused for what they sent; only beside an old version that had
            `min_requests`.
        p99_seconds: The latency, from the rows to the predictions, that 99 of 100 requests must keep.
        p99_ratio: The same as a multiple of the old version's, where that had `min_requests`.
        drift: The population stability index of the predictions against the old version's over the same window, the
            largest of any output.
        min_predictions: Of each version, for `drift`; with few the index is large by chance.
    """

    window_seconds: float = 300.0
    min_requests: int = 100
    error_rate: float | None = 0.02
    refused_rate: float | None = 0.05
    p99_seconds: float | None = None
    p99_ratio: float | None = 3.0
    drift: float | None = 0.25
    min_predictions: int = 500

    def __post_init__(self) -> None:
        if not 2 <= self.window_seconds <= _LONGEST_WINDOW:
            raise InputError(f"window_seconds is {self.window_seconds!r}", fix="write 2 seconds to a day: 300, say")
        for name in ("min_requests", "min_predictions"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}", fix="write 1 at least; hundreds say more")
        for name, most in (("error_rate", 1.0), ("refused_rate", 1.0), ("p99_seconds", math.inf),
                           ("p99_ratio", math.inf), ("drift", math.inf)):  # fmt: skip
            limit = getattr(self, name)
            if limit is not None and not 0 < limit <= most:
                raise InputError(f"the guard's {name} is {limit!r}", fix=f"write a number above 0, or leave {name} out")


@dataclass(frozen=True)
class Rollout:
    """A model whose new versions take over by steps.

    Attributes:
        steps: From small to whole. Where the last one is of 100 percent, the version has taken over when it has ended;
            otherwise it stays there.
        state: A folder of this machine where it is written down how far each rollout is and which versions failed, so
            that a restart knows.
        version: The version that takes over; None: each that is newer than the one that serves.
        guard: What it must keep; None: nothing is judged.
    """

    steps: tuple[RampStep, ...]
    state: str
    version: int | None = None
    guard: Guard | None = None

    def __post_init__(self) -> None:
        if not 1 <= len(self.steps) <= _MOST_STEPS:
            raise InputError(f"a rollout has {len(self.steps)} steps", fix=f"write 1 to {_MOST_STEPS}")
        shares = [step.share for step in self.steps]
        if any(after <= before for before, after in pairwise(shares)):
            raise InputError(
                "the shares of the steps do not grow", fix="write them from small to whole: 1, 10, 50, 100"
            )
        if self.steps[-1].minutes is not None and self.steps[-1].share < 100:
            raise InputError("the last step has minutes, and no step comes after it",
                             fix="leave minutes out, or end with {share: 100}")  # fmt: skip
        if "://" in self.state:
            raise InputError("the state of a rollout is a folder of this machine, not a URL", fix="name a folder")


@dataclass(frozen=True)
class RoutePlan:
    """Where a model's requests go that name no version, as all workers are told.

    Attributes:
        incumbent: The version that has what the candidate has not; None: the newest that has not failed.
        candidate: The version that takes over; None: there is none.
        share: Percent of the requests that go to it.
        failed: Versions that are not to be asked, while there are others, each with the digest of its bundle.
        previous: The version that served before the incumbent, to which an operator may go back; None: there is none.
    """

    incumbent: int | None = None
    candidate: int | None = None
    share: float = 0.0
    failed: tuple[tuple[int, str], ...] = ()
    previous: int | None = None

    @property
    def versions(self) -> set[int]:
        """Those that it needs: two, of which one is for going forward or, where there is no such, back."""
        other = self.previous if self.candidate is None else self.candidate
        return {number for number in (self.incumbent, other) if number is not None}

    def newest(self, available: Sequence[int]) -> int | None:
        """The version that answers what the candidate does not.

        Args:
            available: Those that can be asked, and have not failed, ascending.
        """
        if self.incumbent in available:
            return self.incumbent
        others = [number for number in available if number != self.candidate]
        return max(others or available, default=None)
