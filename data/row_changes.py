"""How the rows of one Examples folder differ from those of another, without a key: as sets of whole rows."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow.parquet as pq

from .examples import Manifest
from .rowhash import Hashes, hash_rows

Kind = Literal["appended", "added", "removed", "edited", "replaced", "reordered", "unchanged"]


@dataclass(frozen=True)
class RowChanges:
    """What became of the rows.

    Attributes:
        added: Rows of the new folder that the old one does not hold, counted as often as they occur.
        removed: Rows of the old folder that the new one does not hold.
        kept: Rows of both.
        columns: What became of columns: "x added", "x removed", "x int64 -> double". Rows are compared by the others.
        at_end: Whether each split begins with all the rows that it had, in their order.
    """

    added: int
    removed: int
    kept: int
    columns: tuple[str, ...]
    at_end: bool

    @property
    def kind(self) -> Kind:
        """All that happened to the rows, in a word."""
        if self.removed:
            return "removed" if not self.added else "edited" if self.kept else "replaced"
        if self.added:
            return "appended" if self.at_end else "added"
        return "unchanged" if self.at_end else "reordered"


def row_changes(old: Path, new: Path) -> RowChanges:
    """Compare the rows of two content folders of Examples; in memory, 8 bytes a row.

    Raises:
        InputError: One holds no examples, or a column of a type that has no hash.
        OSError, pyarrow.ArrowException: A part cannot be read.
    """
    before, after = Manifest.read(old), Manifest.read(new)
    was, now = dict(before.schema), dict(after.schema)
    columns = (
        *(f"{name} removed" for name in was if name not in now),
        *(f"{name} added" for name in now if name not in was),
        *(f"{name} {was[name]} -> {kind}" for name, kind in now.items() if was.get(name, kind) != kind),
    )
    common = [name for name, kind in was.items() if now.get(name) == kind]
    earlier, later = _hashes(old, before, common), _hashes(new, after, common)
    names = dict.fromkeys((*earlier, *later))
    none = np.zeros(0, dtype=np.uint64)
    rows, side = np.unique(np.concatenate([none, *earlier.values(), *later.values()]), return_inverse=True)
    count = sum(map(len, earlier.values()))
    difference = np.bincount(side[count:], minlength=len(rows)) - np.bincount(side[:count], minlength=len(rows))
    added, removed = int(difference[difference > 0].sum()), -int(difference[difference < 0].sum())
    at_end = all(_begins_with(later.get(name, none), earlier.get(name, none)) for name in names)
    return RowChanges(added, removed, count - removed, columns, at_end)


def _begins_with(rows: Hashes, first: Hashes) -> bool:
    return len(rows) >= len(first) and bool((rows[: len(first)] == first).all())


def _hashes(content: Path, manifest: Manifest, columns: Collection[str]) -> dict[str, Hashes]:
    """A hash of each row, by split."""
    none = np.zeros(0, dtype=np.uint64)
    return {
        split: np.concatenate([none, *(each for part in parts for each in _part(content / part.path, columns))])
        for split, parts in manifest.splits
    }


def _part(path: Path, columns: Collection[str]) -> list[Hashes]:
    with pq.ParquetFile(path) as file:
        return [hash_rows(batch) for batch in file.iter_batches(columns=list(columns))]
