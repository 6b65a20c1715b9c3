"""Products: exact sums of a vector column's elements and of their products; covariance, correlation and PCA."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...data.aggregates.sums import ExactSum, rounded
from ...data.states import frame, unframe
from .kinds import AnalyzerKind, Params, StateMaker
from .states import ColumnsByRole, vectors

Floats = NDArray[np.float64]


class Products:
    """Σx and Σxxᵀ over the rows whose every element is present and finite.

    A product of two float32 is exact in float64, so the sums are; about d²/2 × 10 ms per million rows of width d.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self.sums = [ExactSum() for _ in range(width)]
        self.products = [ExactSum() for _ in range(width * (width + 1) // 2)]

    def add(self, rows: ColumnsByRole) -> None:
        """Add x and xxᵀ of each row whose every element is present and finite."""
        for column in rows.values:
            values = vectors(column)
            values = values[np.isfinite(values).all(axis=1)]
            for column_values, total in zip(values.T, self.sums, strict=True):
                total.add(column_values)
            for (i, j), total in zip(self._pairs(), self.products, strict=True):
                total.add(values[:, i] * values[:, j])

    def _pairs(self) -> list[tuple[int, int]]:
        return [(i, j) for i in range(self.width) for j in range(i + 1)]

    def merge(self, other: Products) -> None:
        """Add the sums of other rows."""
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
        covariance = np.zeros((self.width, self.width))
        for (i, j), total in zip(self._pairs(), self.products, strict=True):
            spread: Fraction = total.fraction() / n - means[i] * means[j]
            covariance[i, j] = covariance[j, i] = rounded(spread)
        return covariance

    def correlation(self) -> Floats:
        """Pearson's r of each two elements; NaN where one of them does not vary."""
        spread = self.covariance()
        deviation = np.sqrt(np.diag(spread))
        with np.errstate(invalid="ignore", divide="ignore"):
            correlation = spread / deviation[:, None] / deviation[None, :]
        correlation = np.clip(correlation, -1.0, 1.0)
        varies = deviation > 0
        correlation[np.arange(self.width), np.arange(self.width)] = np.where(varies, 1.0, np.nan)
        correlation[~varies] = correlation[:, ~varies] = np.nan
        return np.asarray(correlation)

    def components(self, k: int) -> Floats:
        """float64[width, k]: the eigenvectors of the covariance by falling eigenvalue, zeros for no row.

        An eigenvector's sign is free; here its entry of largest magnitude (the first of equals) is positive.
        """
        spread = self.covariance()
        if not np.isfinite(spread).all():
            return np.zeros((self.width, k))
        _, eigenvectors = np.linalg.eigh(spread)
        chosen = eigenvectors[:, ::-1][:, :k]
        # Entries within 1e-9 of the largest count as equal: which of two is larger by rounding alone may differ between
        # builds of LAPACK, and would flip the sign.
        size = np.abs(chosen)
        largest = np.argmax(size >= size.max(axis=0) * (1 - 1e-9), axis=0)
        signs = np.sign(chosen[largest, np.arange(chosen.shape[1])])
        return np.asarray(chosen * np.where(signs == 0, 1.0, signs))

    def to_bytes(self) -> bytes:
        """The exact sums, then the sums of products, framed one after the other."""
        return frame([total.to_bytes() for total in [*self.sums, *self.products]])

    def load(self, data: bytes) -> None:
        """Become the state that `to_bytes` wrote."""
        totals = [ExactSum.from_bytes(body) for body in unframe(data)]
        if len(totals) != len(self.sums) + len(self.products):
            raise ValueError(len(totals))
        self.sums, self.products = totals[: self.width], totals[self.width :]


def _of_products(read: Callable[[Params, Products], Any]) -> AnalyzerKind:
    return AnalyzerKind(lambda params: ("products", ("width",)), read)


STATES: Final[Mapping[str, StateMaker]] = {"products": lambda options, _: Products(options["width"])}

ANALYZERS: Final = {
    "covariance": _of_products(lambda params, products: products.covariance()),
    "correlation": _of_products(lambda params, products: products.correlation()),
    "pca": _of_products(lambda params, products: products.components(params["k"])),
}
