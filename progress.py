"""How long work says how far it is: one callback for all packages, from reading rows to checking payloads."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Called as long work goes on. It may raise `Canceled`: call it often, and let that pass through."""

    def __call__(self, done: int, total: int | None, unit: str, /) -> None:
        """`done` of `total` (None where unknown) `unit`s, e.g. rows, are finished."""
        ...


def no_progress(done: int, total: int | None, unit: str) -> None:
    """The progress that nobody watches."""


def part_of(progress: Progress, before: int, total: int | None) -> Progress:
    """The progress of one part of longer work, for whoever does the part.

    Args:
        progress: Of the whole.
        before: How much of it was done before the part began.
        total: How much the whole is; None where that is not known yet.
    """
    return lambda done, _, unit: progress(before + done if total is None else min(before + done, total), total, unit)
