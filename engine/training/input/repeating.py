"""Repeating: the epochs of a dataset, one after another."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from itertools import count

from ....errors import InputError
from .dataset import InputStep, State, Stream, measured, parts_of


@dataclass(frozen=True)
class Repeated(InputStep):
    """See `Dataset.repeat`. Its state is the epoch under way and the parent's in it."""

    epochs: int | None

    def __post_init__(self) -> None:
        if self.epochs is not None and self.epochs < 1:
            raise InputError(f"repeat of {self.epochs} epochs", fix="use 1 or more, or None for no end")

    @property
    def label(self) -> str:
        """In short."""
        return f"repeat({'' if self.epochs is None else self.epochs})"

    @property
    def rows(self) -> int | None:  # type: ignore[override]  # as of every step: computed, not stored
        """Of all epochs."""
        return None if self.epochs is None or self.parent.rows is None else self.epochs * self.parent.rows

    @property
    def batch_size(self) -> int | None:  # type: ignore[override]
        """As before, where each epoch ends with a full batch."""
        size, rows = self.parent.batch_size, self.parent.rows
        return size if size and rows is not None and rows % size == 0 else None

    def stream(self, epoch: int, state: State = None) -> Stream:
        """See `Dataset.stream`."""
        first, within = parts_of(state, (0, None))
        for number in range(first, self.epochs) if self.epochs is not None else count(first):
            empty = within is None
            with closing(measured(self.parent, epoch * (self.epochs or 0) + number, within)) as elements:
                for element, after in elements:
                    empty = False
                    yield element, [number, after]
            if empty and self.epochs is None:
                raise InputError(f"{self.parent} has no rows to repeat", fix="look at its source and filters")
            within = None
