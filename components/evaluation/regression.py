"""Metrics of numbers: errors of each kind, and how much of the labels' variance is explained."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Final, Literal

import numpy as np

from ...data.aggregates.sums import rounded
from ...errors import InputError
from .definitions import NO_ROWS, Definition, Direction, Metric, Result, is_finite, mean, ratio
from .means import calibration_of_numbers
from .rows import Floats, SliceRows
from .states import Leaves, Sums, Term

_ONE_LABEL: Final = "all labels are equal"
_TOO_LARGE: Final = "labels or predictions are too large for their squares to be numbers: measure them in another unit"
_TOO_SMALL: Final = "labels or predictions are too small for their squares to be numbers: measure them in another unit"
_FAR: Final = 330  # the exponents of 2 up to which the square of an error, times any weight, is a float
_UNIT: Final = 700  # errors beyond are measured in 2^700, or in 2^-700


@dataclass(frozen=True)
class Errors(Sums):
    """Σw of the error e = p − y, of e², |e|, and of |e / y| where y is not 0.

    The squares of errors near the ends of floats' range have sums of their own, in other units (Blue 1978, as LAPACK).
    """

    names: ClassVar[tuple[str, ...]] = (
        "weight", "error", "squared", "huge", "tiny", "absolute", "relative", "not_zero"
    )  # fmt: skip

    def terms(self, rows: SliceRows) -> Iterator[Term]:
        """Each row's weighted error and its powers; a relative error only where the label is not 0."""
        error = rows.prediction - rows.label
        size = np.abs(error)
        yield Term("weight")
        yield Term("error", rows.weight * error)
        yield from _squares(rows.weight, size)
        yield Term("absolute", rows.weight * size)
        some = rows.label != 0
        yield Term("relative", rows.weight[some] * np.abs(error[some] / rows.label[some]), some)
        yield Term("not_zero", of=some)


def _squares(weight: Floats, size: Floats) -> Iterator[Term]:
    """The terms of w·e², each row's in one of three sums."""
    huge, tiny = size > 2.0**_FAR, (size < 2.0**-_FAR) & (size > 0)
    far = huge | tiny
    usual = ~far if far.any() else slice(None)
    yield Term("squared", weight[usual] * size[usual] ** 2, usual)
    for name, which, unit in (("huge", np.flatnonzero(huge), _UNIT), ("tiny", np.flatnonzero(tiny), -_UNIT)):
        with np.errstate(over="ignore"):  # an infinite sum has no value, and says so
            yield Term(name, weight[which] * np.ldexp(size[which], -unit) ** 2, which)


@dataclass(frozen=True)
class LogErrors(Sums):
    """Σw, Σw·(ln(1+p) − ln(1+y))², and Σw of the rows with a number ≤ −1, which has no logarithm."""

    names: ClassVar[tuple[str, ...]] = ("weight", "squared", "impossible")

    def terms(self, rows: SliceRows) -> Iterator[Term]:
        """Each row's weighted squared difference of logarithms, where both numbers have one."""
        fine = (rows.prediction > -1) & (rows.label > -1)
        yield Term("weight")
        apart = np.log1p(rows.prediction[fine]) - np.log1p(rows.label[fine])
        yield Term("squared", rows.weight[fine] * apart**2, fine)
        yield Term("impossible", np.ones(int((~fine).sum())), ~fine)


@dataclass(frozen=True)
class QuantileErrors(Sums):
    """Σw and Σw·max(q·(y − p), (q − 1)·(y − p))."""

    quantile: float
    names: ClassVar[tuple[str, ...]] = ("weight", "loss")

    def terms(self, rows: SliceRows) -> Iterator[Term]:
        """Each row's weight and weighted pinball loss."""
        short = rows.label - rows.prediction
        yield Term("weight")
        yield Term("loss", rows.weight * np.maximum(self.quantile * short, (self.quantile - 1) * short))


@dataclass(frozen=True)
class Variances:
    """Weighted variances and covariance of labels and predictions, and the mean squared error; None for no rows."""

    label: float
    prediction: float
    covariance: float
    squared_error: float


@dataclass(frozen=True)
class Squares(Sums):
    """Exact Σw, Σw·y, Σw·p, Σw·y², Σw·p², Σw·y·p: variances are their differences, which would cancel in floats."""

    resampled_by: ClassVar[Literal["rows", "sums", "scores"]] = "rows"
    by_cells: ClassVar[bool] = False
    names: ClassVar[tuple[str, ...]] = ("w", "wy", "wp", "wyy", "wpp", "wyp")

    def terms(self, rows: SliceRows) -> Iterator[Term]:
        """Each row's, every product in two parts: rounded, and what the rounding lost.

        So there are more numbers than rows: they cannot be put into buckets (`resampled_by`) nor cells.
        """
        y, p, w = np.asarray(rows.label, np.float64), rows.prediction, rows.weight
        yield Term("w")
        for name, factors in (("wy", (y,)), ("wp", (p,)), ("wyy", (y, y)), ("wpp", (p, p)), ("wyp", (y, p))):
            parts = [factors[0]] if len(factors) == 1 else list(_product(*factors))
            yield Term(name, np.concatenate([product for part in parts for product in _product(w, part)]))

    def finish(self, leaves: Leaves) -> Variances | str | None:
        """The variances, or why there are none."""
        if not all(leaves[name].finite for name in self.names):
            return _TOO_LARGE
        w, wy, wp, wyy, wpp, wyp = (leaves[name].fraction() for name in self.names)
        if not w:
            return None
        if (wy and not wyy) or (wp and not wpp):
            return _TOO_SMALL

        def spread(product: Fraction, left: Fraction, right: Fraction) -> float:
            return rounded(product / w - (left / w) * (right / w))

        return Variances(
            spread(wyy, wy, wy), spread(wpp, wp, wp), spread(wyp, wy, wp), rounded((wyy - 2 * wyp + wpp) / w)
        )

    def exact(self, rows: SliceRows) -> Variances | str | None:
        """As `finish`: the sums are exact in either way."""
        return self.finish(self.add(self.init(), rows))


def _product(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """a·b rounded, and what the rounding lost (Dekker 1971), for factors whose product neither over- nor underflows."""
    with np.errstate(over="ignore", invalid="ignore"):
        product = a * b
        (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
        lost = a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)
    return product, np.where(np.isfinite(lost), lost, np.inf)  # what overflows leaves no finite sum


def _halves(a: Floats) -> tuple[Floats, Floats]:
    scaled = a * 134217729.0  # 2^27 + 1
    high = scaled - (scaled - a)
    return high, a - high


def mean_squared_error() -> Metric:
    """Σw(p − y)² / Σw."""
    return _of_errors("Mean squared error", "lower", _mean_square)


def root_mean_squared_error() -> Metric:
    """√(Σw(p − y)² / Σw)."""

    def result(sums: Mapping[str, float]) -> Result:
        squared, unit = _mean_square_in_units(sums)
        return squared if isinstance(squared, str) else math.ldexp(math.sqrt(squared), unit)

    return _of_errors("RMSE", "lower", result)


def _mean_square(sums: Mapping[str, float]) -> Result:
    """Σw·e² / Σw, or the reason where it leaves the range of floats."""
    squared, unit = _mean_square_in_units(sums)
    if isinstance(squared, str):
        return squared
    with suppress(OverflowError):
        value = math.ldexp(squared, 2 * unit)
        return _TOO_SMALL if value < sys.float_info.min and squared else value
    return _TOO_LARGE


def _mean_square_in_units(sums: Mapping[str, float]) -> tuple[Result, int]:
    """Σw·e² / Σw in units of 4^u, and u; or the reason where there is none."""
    total, unit = sums["squared"], 0
    if sums["huge"]:
        total, unit = sums["huge"] + math.ldexp(total, -2 * _UNIT), _UNIT
    elif sums["tiny"]:
        total, unit = (total + math.ldexp(sums["tiny"], -2 * _UNIT), 0) if total else (sums["tiny"], -_UNIT)
    squared = ratio(total, sums["weight"], NO_ROWS)
    return (_TOO_LARGE, 0) if squared == math.inf else (squared, unit)


def mean_absolute_error() -> Metric:
    """Σw|p − y| / Σw."""
    return _of_errors("Mean absolute error", "lower", lambda sums: mean(sums, "absolute"))


def mean_absolute_percentage_error() -> Metric:
    """100·Σw|(p − y) / y| / Σw over the rows whose label is not 0, as Keras and TFMA have it."""

    def result(sums: Mapping[str, float]) -> Result:
        share = ratio(sums["relative"], sums["not_zero"], "all labels are 0" if sums["weight"] else NO_ROWS)
        return share if isinstance(share, str) else 100 * share

    return _of_errors("Mean absolute percentage error", "lower", result)


def mean_error() -> Metric:
    """Σw(p − y) / Σw: above 0 the model promises too much."""
    return _of_errors("Mean error", None, lambda sums: mean(sums, "error"))


def mean_squared_log_error() -> Metric:
    """Σw(ln(1 + p) − ln(1 + y))² / Σw."""

    def result(sums: Mapping[str, float]) -> Result:
        return "a label or prediction is not above -1" if sums["impossible"] else mean(sums, "squared")

    return Metric("Mean squared log error", "lower", LogErrors(), result)


def quantile_loss(*, quantile: float = 0.5) -> Metric:
    """Σw·max(q(y − p), (q − 1)(y − p)) / Σw: least where p is the q-quantile of y (Koenker and Bassett 1978)."""
    if not is_finite(quantile) or not 0 < quantile < 1:
        raise InputError(f"quantile must lie between 0 and 1, not {quantile!r}")
    return Metric("Quantile loss", "lower", QuantileErrors(float(quantile)), lambda sums: mean(sums, "loss"))


def r2() -> Metric:
    """1 − Σw(p − y)² / Σw(y − ȳ)², ȳ being the mean label."""

    def result(variances: Variances) -> Result:
        return 1 - variances.squared_error / variances.label if variances.label else _ONE_LABEL

    return _of_variances("R²", result)


def squared_pearson_correlation() -> Metric:
    """cov(y, p)² / (var(y)·var(p)), weighted."""

    def result(variances: Variances) -> Result:
        if not variances.label or not variances.prediction:
            return _ONE_LABEL if not variances.label else "all predictions are equal"
        return min(1.0, (variances.covariance / variances.label) * (variances.covariance / variances.prediction))

    return _of_variances("Squared Pearson correlation", result)


def _of_errors(title: str, direction: Direction | None, result: Callable[[Mapping[str, float]], Result]) -> Metric:
    return Metric(title, direction, Errors(), result)


def _of_variances(title: str, value: Callable[[Variances], Result]) -> Metric:
    def result(variances: Variances | str | None) -> Result:
        if isinstance(variances, str):
            return variances
        return NO_ROWS if variances is None else value(variances)

    return Metric(title, "higher", Squares(), result)


def _regression(build: Callable[..., Metric], *, default: bool = False) -> Definition:
    return Definition(build, ("regression",), default)


REGRESSION_METRICS: Final[Mapping[str, Definition]] = {
    "rmse": _regression(root_mean_squared_error, default=True),
    "mse": _regression(mean_squared_error),
    "mae": _regression(mean_absolute_error, default=True),
    "mape": _regression(mean_absolute_percentage_error),
    "msle": _regression(mean_squared_log_error),
    "mean_error": _regression(mean_error, default=True),
    "r2": _regression(r2, default=True),
    "squared_pearson_correlation": _regression(squared_pearson_correlation),
    "quantile_loss": _regression(quantile_loss),
    "calibration": _regression(calibration_of_numbers, default=True),
}
