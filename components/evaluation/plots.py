"""Points to draw, few enough for a page: ROC, confusion by threshold, calibration, residuals, the confusion matrix."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...errors import InputError
from .definitions import Metric
from .multiclass import ConfusionMatrix
from .rows import Floats, SliceRows, Task
from .score_table import ScoreTable, ScoreTally
from .states import Leaves, MetricState

_OURS: Final = ("roc", "calibration", "thresholds", "residuals", "confusion", "groups")
_POINTS: Final = 200
_BUCKETS: Final = 10
_THRESHOLDS: Final = 101  # 0, 0.01, … 1
_GROUPS: Final = 20
_EXPONENTS: Final = 30  # of bins: from 2^-31 to 2^29, beyond which the outermost bins hold everything
_MOST: Final = float(np.nextafter(2.0 ** (_EXPONENTS - 1), 0))
_FARTHEST: Final = 1e150  # is where larger numbers are drawn, whose sums and differences would be infinite
_LEAST: Final = 2.0 ** (-_EXPONENTS - 1)  # what is nearer to 0 has the bin of 0
_FINE, _COARSE = 8, 4  # bins for each power of two: of predictions, and of errors


@dataclass(frozen=True)
class Plot:
    """What is drawn of the overall slice, from what a state sums up."""

    state: MetricState
    draw: Callable[[Any], Any]  # from what the state gives to plain JSON


def plots_of(task: Task | None, metrics: Mapping[str, Metric]) -> dict[str, Plot]:
    """The plots of a kind of model, and those of its metrics that draw something, by name.

    Binary: `roc`: [false positive rate, true positive rate, threshold] from (0, 0) to (1, 1), at most 202 points, empty
    where only one class is there. `calibration`: for each tenth of [0, 1] that holds examples, its `low` and `high`
    edge, the `weight` in it, the mean `prediction` and the mean `label`. `thresholds`: for each hundredth the
    [threshold, true positives, false positives, true negatives, false negatives] of predictions above it.
    Regression: `residuals`: for each twentieth of the examples by prediction, its `weight`, the mean `prediction`, and
    the 10 %, 50 % and 90 % quantiles of the error prediction − label, as `low`, `middle` and `high`.
    Multi-class: `confusion`, a row of weights by predicted class for each label.
    Of a metric that draws something, by its name: [x, y] points, or buckets as those of `calibration`.
    Where metrics compare slices, the accumulator adds `groups`: for the columns `by` of some of them, their names
    (`metrics`) and each of the `groups`: its name, its rows `n`, and the `values` that are compared, by title.

    Raises:
        InputError: A metric that draws something is called as one of these. When drawn: its points are none.
    """
    plots: dict[str, Plot] = {}
    if task == "binary":
        drawn = {"roc": _roc, "calibration": _calibration, "thresholds": _thresholds}
        plots = {name: Plot(ScoreTable(), draw) for name, draw in drawn.items()}
    elif task == "regression":
        plots = {"residuals": Plot(ErrorGrid(), _residuals)}
    elif task == "multiclass":
        plots = {"confusion": Plot(ConfusionMatrix(), _matrix)}
    for name, metric in metrics.items():
        if metric.plot is None:
            continue
        if name in _OURS:
            raise InputError(
                f"metric {name!r} draws a plot, and a plot of ours has that name",
                fix=f'give it another: metric(…, name="{name} of mine")',
            )
        plots[name] = Plot(metric.plot_state or metric.state, _points(metric.title, metric.plot))
    return plots


def _points(title: str, plot: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """What a metric draws, as plain JSON."""

    def draw(summed: Any) -> Any:  # what the state gives
        drawn = plot(summed)
        try:
            points = [_point(each) for each in drawn]
        except (TypeError, ValueError, KeyError, OverflowError) as error:
            raise InputError(
                f"the plot of metric {title!r} has a point that cannot be drawn: {error}",
                fix="draw points [x, y] of finite numbers, and leave out where there is none",
            ) from error
        return points

    return draw


def _point(point: Any) -> list[float] | dict[str, float | None]:  # Any: a user's
    if not isinstance(point, Mapping):
        x, y = point
        return [_finite(x), _finite(y)]
    edges = {name: None if value is None else _finite(value) for name, value in point.items()}
    return edges | {name: _finite(point[name]) for name in ("prediction", "label")}


def _finite(value: Any) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{value} is not finite")
    return float(value)


@dataclass(frozen=True, eq=False)
class ErrorCloud:
    """Predictions ascending, their errors prediction − label, and weights; or the middles of bins of both."""

    prediction: Floats
    error: Floats
    weight: Floats


@dataclass(frozen=True)
class ErrorGrid(MetricState):
    """Predictions and errors: as they are where the rows are at hand, else Σw by bins of both.

    A bin holds the numbers that agree in sign, exponent and the first bits of the mantissa. Without weights it does not
    depend on the order of rows or merges; with weights the bins are float sums in the order of the merge tree.
    """

    def init(self) -> Leaves:
        """Empty bins, by prediction and error."""
        return {"mass": np.zeros((_bins(_FINE), _bins(_COARSE)))}

    def add(self, leaves: Leaves, rows: SliceRows) -> Leaves:
        """Add each row's weight to its bin."""
        mass, wide = leaves["mass"], _bins(_COARSE)
        cells = _bin(rows.prediction, _FINE) * wide + _bin(rows.prediction - rows.label, _COARSE)
        mass += np.bincount(cells, rows.weight, minlength=mass.size).reshape(mass.shape)
        return leaves

    def merge(self, left: Leaves, right: Leaves) -> Leaves:
        """Add the masses, (bins of predictions, bins of errors)."""
        left["mass"] += right["mass"]
        return left

    def finish(self, leaves: Leaves) -> ErrorCloud:
        """The middles of the occupied bins, with the weight of each."""
        at, error = np.nonzero(leaves["mass"])
        return ErrorCloud(_middle(at, _FINE), _middle(error, _COARSE), leaves["mass"][at, error])

    def exact(self, rows: SliceRows) -> ErrorCloud:
        """The rows, in order of their prediction."""
        order = np.argsort(rows.prediction, kind="stable")
        prediction, error = (
            np.clip(each[order], -_FARTHEST, _FARTHEST) for each in (rows.prediction, rows.prediction - rows.label)
        )
        return ErrorCloud(prediction, error, rows.weight[order])


def _bin(values: Floats, parts: int) -> NDArray[np.int64]:
    """The bin of each number, `parts` for each power of two, rising with the number."""
    mantissa, exponent = np.frexp(np.minimum(np.abs(values), _MOST))  # mantissas from 1/2 to 1
    part = np.floor(mantissa * 2 * parts).astype(np.int64) - parts
    size = np.where(np.abs(values) < _LEAST, 0, (exponent + _EXPONENTS) * parts + part + 1)
    bins: NDArray[np.int64] = np.where(values < 0, -size, size) + _bins(parts) // 2
    return bins


def _middle(bins: NDArray[np.int64], parts: int) -> Floats:
    """The number that stands for each bin."""
    size = np.abs(bins - _bins(parts) // 2)
    exponent, part = np.divmod(size - 1, parts)
    middle = np.ldexp((part + parts + 0.5) / (2 * parts), exponent - _EXPONENTS)
    return np.where(size == 0, 0.0, np.where(bins < _bins(parts) // 2, -middle, middle))


def _bins(parts: int) -> int:
    return 2 * 2 * _EXPONENTS * parts + 1


def _residuals(cloud: ErrorCloud) -> list[dict[str, float]]:
    ends = np.cumsum(cloud.weight)
    if not len(ends) or not ends[-1]:
        return []
    group = np.minimum((ends - cloud.weight / 2) / ends[-1] * _GROUPS, _GROUPS - 1).astype(np.int64)
    drawn = []
    for index in np.unique(group[cloud.weight > 0]).tolist():
        mine = np.flatnonzero((group == index) & (cloud.weight > 0))
        mine = mine[np.argsort(cloud.error[mine], kind="stable")]
        weight = cloud.weight[mine]
        reached = np.cumsum(weight) / weight.sum()
        low, middle, high = (
            float(cloud.error[mine[min(int(np.searchsorted(reached, share)), len(mine) - 1)]])
            for share in (0.1, 0.5, 0.9)
        )
        prediction = float(np.sum(cloud.prediction[mine] * weight) / weight.sum())
        drawn.append(
            {"weight": float(weight.sum()), "prediction": prediction, "low": low, "middle": middle, "high": high}
        )
    return drawn


def _matrix(matrix: Floats) -> list[list[float]]:
    rows: list[list[float]] = matrix.tolist()
    return rows


def _roc(tally: ScoreTally) -> list[list[float | None]]:
    if not tally.both_classes:
        return []
    hits, alarms = np.cumsum(tally.positives[::-1]), np.cumsum(tally.negatives[::-1])
    tpr, fpr, scores = hits / hits[-1], alarms / alarms[-1], tally.scores[::-1]
    # Even steps along the curve's length (fpr + tpr), so that steep and flat parts get points alike.
    wanted = np.linspace(0, 2, _POINTS)
    kept = np.unique(np.minimum(np.searchsorted(fpr + tpr, wanted), len(scores) - 1))
    points: list[list[float | None]] = [[0.0, 0.0, None]]
    points += [[float(fpr[at]), float(tpr[at]), float(scores[at])] for at in kept]
    return points if kept[-1] == len(scores) - 1 else [*points, [1.0, 1.0, float(scores[-1])]]


def _thresholds(tally: ScoreTally) -> list[list[float]]:
    thresholds = np.arange(_THRESHOLDS) / (_THRESHOLDS - 1)
    at = np.searchsorted(tally.scores, thresholds, side="right")
    below = [np.concatenate([[0.0], np.cumsum(mass)]) for mass in (tally.positives, tally.negatives)]
    missed, rejected = (mass[at] for mass in below)
    hits, alarms = (mass[-1] - mass[at] for mass in below)
    rows: list[list[float]] = np.column_stack([thresholds, hits, alarms, rejected, missed]).tolist()
    return rows


def _calibration(tally: ScoreTally) -> list[dict[str, float]]:
    bucket = np.minimum((tally.scores * _BUCKETS).astype(np.int64), _BUCKETS - 1)
    mass = tally.positives + tally.negatives
    weight = np.bincount(bucket, mass, minlength=_BUCKETS)
    label = np.bincount(bucket, tally.positives, minlength=_BUCKETS)
    score = np.bincount(bucket, mass * tally.scores, minlength=_BUCKETS)
    return [
        {
            "low": at / _BUCKETS,
            "high": (at + 1) / _BUCKETS,
            "weight": float(weight[at]),
            "prediction": float(score[at] / weight[at]),
            "label": float(label[at] / weight[at]),
        }
        for at in np.flatnonzero(weight).tolist()
    ]
