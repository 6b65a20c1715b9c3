"""Products: exact sums of a vector column's places and of their products; covariance, correlation and PCA."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ...data.aggregates.sums import ExactSum, rounded
from ...data.states import frame, unframe
from .states import Rows, vectors

Floats = NDArray[np.float64]


class Products:
    """Σx and Σxxᵀ over the rows whose every place is present and finite.

    A product of two float32 is exact in float64, so the sums are; about d²/2 × 10 ms per million rows of width d.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self.sums = [ExactSum() for _ in range(width)]
        self.products = [ExactSum() for _ in range(width * (width + 1) // 2)]

    def add(self, rows: Rows) -> None:
        """Take in one batch."""
        for column in rows.values:
            values = vectors(column)
            values = values[np.isfinite(values).all(axis=1)]
            for one, total in zip(values.T, self.sums, strict=True):
                total.add(one)
            for (i, j), total in zip(self._pairs(), self.products, strict=True):
                total.add(values[:, i] * values[:, j])

    def _pairs(self) -> list[tuple[int, int]]:
        return [(i, j) for i in range(self.width) for j in range(i + 1)]

    def merge(self, other: Products) -> None:
        """Take in another state."""
        for mine, theirs in zip([*self.sums, *self.products], [*other.sums, *other.products], strict=True):
            mine.merge(theirs)

    def compact(self) -> None:
        """Nothing to do: the size is fixed."""

    def covariance(self) -> Floats:
        """The population covariance (÷ n), float64[width, width]; NaN for no row."""
        n = self.sums[0].count if self.sums else 0
        if not n:
            return np.full((self.width, self.width), np.nan)
        means = [total.fraction() / n for total in self.sums]
        found = np.zeros((self.width, self.width))
        for (i, j), total in zip(self._pairs(), self.products, strict=True):
            spread: Fraction = total.fraction() / n - means[i] * means[j]
            found[i, j] = found[j, i] = rounded(spread)
        return found

    def correlation(self) -> Floats:
        """Pearson's r of each two places; NaN where one of them does not vary."""
        spread = self.covariance()
        deviation = np.sqrt(np.diag(spread))
        with np.errstate(invalid="ignore", divide="ignore"):
            found = spread / deviation[:, None] / deviation[None, :]
        found = np.clip(found, -1.0, 1.0)
        varies = deviation > 0
        found[np.arange(self.width), np.arange(self.width)] = np.where(varies, 1.0, np.nan)
        found[~varies] = found[:, ~varies] = np.nan
        return np.asarray(found)

    def components(self, k: int) -> Floats:
        """float64[width, k]: the eigenvectors of the covariance by falling eigenvalue, zeros for no row.

        An eigenvector's sign is free; here its entry of largest magnitude (the first of equals) is positive.
        """
        spread = self.covariance()
        if not np.isfinite(spread).all():
            return np.zeros((self.width, k))
        _, found = np.linalg.eigh(spread)
        chosen = found[:, ::-1][:, :k]
        size = np.abs(chosen)
        largest = np.argmax(size >= size.max(axis=0) * (1 - 1e-9), axis=0)
        signs = np.sign(chosen[largest, np.arange(chosen.shape[1])])
        return np.asarray(chosen * np.where(signs == 0, 1.0, signs))

    def to_bytes(self) -> bytes:
        """Every sum behind the other."""
        return frame([total.to_bytes() for total in [*self.sums, *self.products]])

    def load(self, data: bytes) -> None:
        """Become the state that `to_bytes` wrote."""
        found = [ExactSum.from_bytes(body) for body in unframe(data)]
        if len(found) != len(self.sums) + len(self.products):
            raise ValueError(len(found))
        self.sums, self.products = found[: self.width], found[self.width :]
