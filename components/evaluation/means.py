"""Mean label, mean prediction and their ratio, for yes or no and for numbers alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from .definitions import NO_POSITIVES, Definition, Metric, mean, ratio
from .rows import SliceRows, Task
from .states import Sums, Term

_SCALARS: Final[tuple[Task, ...]] = ("binary", "regression")


@dataclass(frozen=True)
class WeightedMeans(Sums):
    """Σw, Σw·y and Σw·p."""

    names: ClassVar[tuple[str, ...]] = ("weight", "label", "prediction")

    def terms(self, rows: SliceRows) -> Iterator[Term]:
        """w, w·y and w·p."""
        yield Term("weight")
        yield Term("label", label=True) if rows.label.dtype == np.bool_ else Term("label", rows.weight * rows.label)
        yield Term("prediction", rows.weighted)


def calibration() -> Metric:
    """Σw·p / Σw·y: above 1 the model promises too much."""
    return _calibration(NO_POSITIVES)


def calibration_of_numbers() -> Metric:
    """Σw·p / Σw·y: above 1 the model promises too much."""
    return _calibration("the labels sum to 0")


def _calibration(reason: str) -> Metric:
    def result(sums: Mapping[str, float]) -> float | str:
        return ratio(sums["prediction"], sums["label"], reason)

    return Metric("Calibration", None, WeightedMeans(), result)


def mean_label() -> Metric:
    """Σw·y / Σw."""
    return Metric("Mean label", None, WeightedMeans(), lambda sums: mean(sums, "label"))


def mean_prediction() -> Metric:
    """Σw·p / Σw."""
    return Metric("Mean prediction", None, WeightedMeans(), lambda sums: mean(sums, "prediction"))


MEAN_METRICS: Final[Mapping[str, Definition]] = {
    "calibration": Definition(calibration, ("binary",), default=True),
    "mean_label": Definition(mean_label, _SCALARS, default=True),
    "mean_prediction": Definition(mean_prediction, _SCALARS, default=True),
}
