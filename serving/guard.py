"""Whether a version that takes over keeps what its guard asks: two versions over one window, and a verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from .rollout import Guard
from .version_tally import VersionTally

Limit: TypeAlias = Literal["error_rate", "refused_rate", "p99_seconds", "p99_ratio", "drift"]
"""The limits of a `Guard`."""

_GROUPS: Final = 10
"""Groups of about equal mass, by the old version, that numbers are compared in."""
_FLOOR: Final = 1e-4  # a share below it counts as this, as in `data.drift_skew.measures.psi`
_NINETY_NINE: Final = 0.99
BRIEF: Final = 0.01
"""Seconds of latency up to which its ratio is not judged: of fewer a busy machine alone makes a multiple."""


@dataclass(frozen=True)
class VersionFigures:
    """What a version did over the window.

    Attributes:
        requests: How many came.
        error_rate: The share of them that failed by the server's fault; None without requests.
        refused_rate: The share that was refused for what it sent.
        p99_seconds: What 99 of 100 answers took at most, from the rows to the predictions; None without answers.
        predictions: How many rows of its predictions were looked at.
    """

    requests: int = 0
    error_rate: float | None = None
    refused_rate: float | None = None
    p99_seconds: float | None = None
    predictions: int = 0

    @classmethod
    def of(cls, tally: VersionTally) -> VersionFigures:
        """From what was counted."""
        requests = tally.requests
        return cls(
            requests,
            tally.failed / requests if requests else None,
            tally.refused / requests if requests else None,
            tally.percentile(_NINETY_NINE),
            max((sum(cells.values()) for cells in tally.predictions.values()), default=0),
        )


@dataclass(frozen=True)
class GuardFigures:
    """What a guard looks at.

    Attributes:
        candidate: The version that takes over.
        incumbent: The one that it replaces.
        drift: Output → population stability index of the candidate's predictions against the incumbent's, where both
            have enough.
    """

    candidate: VersionFigures = field(default_factory=VersionFigures)
    incumbent: VersionFigures = field(default_factory=VersionFigures)
    drift: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Breach:
    """A limit that was not kept.

    Attributes:
        limit: Which.
        value: What was measured.
        reason: A sentence with the figures.
    """

    limit: Limit
    value: float
    reason: str


def figures_of(guard: Guard, candidate: VersionTally, incumbent: VersionTally) -> GuardFigures:
    """What the guard looks at, from what both versions did over its window."""
    drift = {}
    for output in candidate.predictions.keys() & incumbent.predictions.keys():
        new, old = candidate.predictions[output], incumbent.predictions[output]
        if min(sum(new.values()), sum(old.values())) >= guard.min_predictions:
            drift[output] = stability_index(new, old)
    return GuardFigures(VersionFigures.of(candidate), VersionFigures.of(incumbent), dict(sorted(drift.items())))


def breach_of(guard: Guard, figures: GuardFigures) -> Breach | None:
    """The first limit that the candidate does not keep; None where it keeps all that can be judged."""
    new, old = figures.candidate, figures.incumbent
    if new.requests < guard.min_requests:
        return None
    # The old version is left with few requests at the end of a rollout: too few to compare with, and then the limits
    # hold of the new one alone, or not at all.
    compared = old.requests >= guard.min_requests
    seen = f"in {new.requests:,} requests of the last {guard.window_seconds:g} s"
    if guard.error_rate is not None and new.error_rate is not None:
        before = old.error_rate or 0.0 if compared else 0.0
        if new.error_rate - before > guard.error_rate:
            beside = f", {before:.2%} of the old version's" if compared else ""
            return Breach(
                "error_rate",
                new.error_rate,
                f"{new.error_rate:.2%} of its requests failed{beside} {seen}; {guard.error_rate:.2%} more may",
            )
    if guard.refused_rate is not None and compared and new.refused_rate is not None:
        before = old.refused_rate or 0.0
        if new.refused_rate - before > guard.refused_rate:
            return Breach(
                "refused_rate",
                new.refused_rate,
                f"{new.refused_rate:.2%} of its requests were refused, {before:.2%} of the old version's {seen}; "
                f"{guard.refused_rate:.2%} more may",
            )
    if new.p99_seconds is not None:
        shown = f"99 of 100 requests took up to {1000 * new.p99_seconds:.3g} ms"
        if guard.p99_seconds is not None and new.p99_seconds > guard.p99_seconds:
            return Breach("p99_seconds", new.p99_seconds, f"{shown} {seen}; {1000 * guard.p99_seconds:.3g} ms may")
        if guard.p99_ratio is not None and compared and old.p99_seconds is not None:
            ratio = new.p99_seconds / old.p99_seconds
            if ratio > guard.p99_ratio and new.p99_seconds > BRIEF:
                return Breach(
                    "p99_ratio",
                    ratio,
                    f"{shown}, {1000 * old.p99_seconds:.3g} ms of the old version's {seen}; "
                    f"{guard.p99_ratio:g} times as long may",
                )
    if guard.drift is not None and figures.drift:
        output, index = max(figures.drift.items(), key=lambda item: item[1])
        if index > guard.drift:
            return Breach(
                "drift",
                index,
                f"the predictions {output!r} have a population stability index of {index:.3g} against the old "
                f"version's {seen}; {guard.drift:g} may",
            )
    return None


def stability_index(current: Mapping[str, int], previous: Mapping[str, int]) -> float:
    """The population stability index of two distributions over the cells of `VersionTally.predictions`.

    Σ (p − q) ln(p / q) over groups, as `data.drift_skew.measures.psi` has it, which a server would take half a second
    to import. Numbers are put into ten groups of about equal mass by `previous`, of which a cell that has a tenth by
    itself is one. A text that is a twentieth of `previous` is a group, all others are one together.
    """
    groups = _groups(current, previous)
    totals = [max(sum(side), 1) for side in zip(*groups, strict=True)]
    index = []
    for counts in groups:
        p, q = (max(count / total, _FLOOR) for count, total in zip(counts, totals, strict=True))
        index.append((p - q) * math.log(p / q))
    return math.fsum(index)


def _groups(current: Mapping[str, int], previous: Mapping[str, int]) -> Sequence[tuple[int, int]]:
    """The rows of both sides by group, of those that have any."""
    total = sum(previous.values())
    heavy = total / _GROUPS
    groups: list[tuple[int, int]] = []
    new, old = 0, 0
    cells = current.keys() | previous.keys()
    for number in sorted(int(cell) for cell in cells if not cell.startswith("=")):
        added = current.get(str(number), 0), previous.get(str(number), 0)
        if added[1] >= heavy:
            groups += [(new, old), added]
            new, old = 0, 0
            continue
        new, old = new + added[0], old + added[1]
        if old >= heavy:
            groups.append((new, old))
            new, old = 0, 0
    groups.append((new, old))
    rare_new, rare_old = 0, 0
    for cell in cells:
        if cell.startswith("="):
            counts = current.get(cell, 0), previous.get(cell, 0)
            if counts[1] >= heavy / 2:
                groups.append(counts)
            else:
                rare_new, rare_old = rare_new + counts[0], rare_old + counts[1]
    groups.append((rare_new, rare_old))
    return [group for group in groups if any(group)]
