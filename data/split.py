"""Deterministic splits: a row's place depends on what it holds, never on where it stands."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..errors import InputError
from .rowhash import hash_column, hash_rows, mix

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_MOST = 10**9


@dataclass(frozen=True)
class HashSplit:
    """A `Route` that sends each row to one of several splits by hash.

    Equal rows, or rows with an equal value in `by`, always go together. A missing value of `by` is a value.

    Attributes:
        weights: Name and share of each split, in order; of total W, a row goes to the split that holds `hash mod W`.
        by: The column that decides, or None for the whole row.
    """

    weights: tuple[tuple[str, int], ...]
    by: str | None = None

    @classmethod
    def of(cls, weights: Mapping[Any, object], by: str | None = None) -> Self:  # Any: checked below
        """A split from names and whole-number shares, e.g. {"train": 2, "eval": 1}; order matters.

        Raises:
            InputError: No splits, a share that is no positive whole number, or a name that cannot be a folder's.
        """
        if not weights or not isinstance(weights, Mapping):
            raise InputError(
                "there are no splits" if not weights else f"splits are names with shares, not {weights!r:.80}",
                fix='say e.g. splits={"train": 2, "eval": 1}',
            )
        shares: list[tuple[str, int]] = []
        for name, weight in weights.items():
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise InputError(f"{name!r} cannot name a split", fix="use letters, digits, '_', '-' and '.'")
            if isinstance(weight, bool) or not isinstance(weight, int) or not 1 <= weight <= _MOST:
                raise InputError(
                    f"split {name!r} has the share {weight!r}", fix=f"use whole numbers from 1 to {_MOST:,}"
                )
            shares.append((name, weight))
        return cls(tuple(shares), by)

    @property
    def names(self) -> tuple[str, ...]:
        """The splits, in order."""
        return tuple(name for name, _ in self.weights)

    def __call__(self, batch: pa.RecordBatch) -> NDArray[np.integer]:
        """The number of each row's split; int64.

        Raises:
            InputError: There is no column `by`, or one of a type that has no hash.
        """
        if len(self.weights) == 1:
            return np.zeros(len(batch), dtype=np.int64)
        if self.by is None:
            hashes = hash_rows(batch)
        elif self.by in batch.schema.names:
            hashes = mix(hash_column(batch.column(self.by)))
        else:
            raise InputError(
                f"split_by: there is no column {self.by!r}", fix=f"the columns are: {', '.join(batch.schema.names)}"
            )
        bounds = np.cumsum([weight for _, weight in self.weights]).astype(np.uint64)
        chosen: NDArray[np.integer] = np.searchsorted(bounds, hashes % bounds[-1], side="right").astype(np.int64)
        return chosen
