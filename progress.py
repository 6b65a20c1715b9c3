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
