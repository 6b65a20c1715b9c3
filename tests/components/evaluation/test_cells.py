"""Sums of many slices at once are those of each slice by itself."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from drivetrain.components.evaluation.cells import Cells
from drivetrain.components.evaluation.resampling import BucketSums
from drivetrain.components.evaluation.rows import SliceRows
from drivetrain.components.evaluation.states import MetricState, Sums, Term
from numpy.typing import NDArray

SLICES, BUCKETS = 9, 5


class EveryKind(Sums):
    """Rows by a mask, positions, a slice; counts and values."""

    names = ("all", "some", "few", "above")

    def terms(self, rows: SliceRows) -> Iterator[Term]:
        """Each row's."""
        yield Term("all")
        yield Term("some", rows.prediction[rows.label], rows.label)
        yield Term("few", of=np.flatnonzero(rows.label))
        above = np.searchsorted(rows.prediction, 0.5)  # they are sorted
        yield Term("above", rows.prediction[above:], slice(above, None))


def drawn(rows: int, weighted: bool, scale: float) -> tuple[SliceRows, NDArray[np.int32]]:
    """Rows, and the codes of their slices: four, none or one of four more, and one that all have."""
    rng = np.random.default_rng(rows)
    numbers = np.sort(rng.normal(size=rows) * np.where(rng.random(rows) < 0.1, scale, 1.0))
    weight = rng.random(rows) if weighted else np.ones(rows)
    bucket = rng.integers(0, BUCKETS, rows).astype(np.int16)
    codes = np.stack([rng.integers(0, 4, rows), rng.integers(3, 8, rows), np.full(rows, 8)], axis=1).astype(np.int32)
    codes[codes == 3] = -1
    return SliceRows(rng.random(rows) < 0.3, numbers, weight, bucket=bucket), codes


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("rows", [0, 1, 40, 20_000])
@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e300, math.inf])
@pytest.mark.parametrize("state", [EveryKind(), BucketSums(EveryKind(), BUCKETS)], ids=["exact", "by bucket"])
def test_each_slice_has_its_own_sums(state: MetricState, scale: float, rows: int, weighted: bool) -> None:
    table, codes = drawn(rows, weighted, scale)
    together = {code: state.init() for code in range(SLICES)}
    with np.errstate(all="ignore"):
        state.add_each(together, table, Cells.group(codes, table.bucket, SLICES))
        for code in range(SLICES):
            alone = state.add(state.init(), table.take((codes == code).any(axis=1)))
            for name, total in alone.items():
                if isinstance(total, np.ndarray):
                    assert together[code][name] == pytest.approx(total, rel=1e-9, nan_ok=True)
                else:
                    assert together[code][name].to_bytes() == total.to_bytes(), (code, name)
