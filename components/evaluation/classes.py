"""Any metric of yes or no for several classes: of one class against the rest, averaged over classes, or of the top k.

A row of k classes is k decisions, each yes or no. These states turn rows into such decisions and hand them on to the
state of the metric of yes or no.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np

from ...data.states import nested, nested_arrays
from ...errors import InputError, suggest
from .definitions import Metric, Result
from .rows import Floats, Labels, SliceRows
from .states import Leaves, MetricState

SEVERAL: Final = frozenset({"class_id", "average", "class_weights", "top_k", "kth"})
"""The options that make a metric of yes or no one of several classes."""
_AVERAGES: Final = ("micro", "macro", "weighted")


class Decisions(Protocol):
    """From rows of several classes to rows of yes or no."""

    def __call__(self, rows: SliceRows) -> SliceRows:
        """Rows of yes or no, one or several of each row; raises InputError where the classes do not allow it."""
        ...


def truth(rows: SliceRows) -> Labels:
    """Whether each class holds of each row, (n, k)."""
    several: Labels = rows.label if rows.label.ndim == 2 else rows.label[:, None] == np.arange(rows.prediction.shape[1])
    return several


@dataclass(frozen=True)
class OneClass:
    """Is it this class?"""

    class_id: int

    def __call__(self, rows: SliceRows) -> SliceRows:
        """One decision for each row."""
        classes = rows.prediction.shape[1]
        if self.class_id >= classes:
            raise InputError(f"there is no class {self.class_id} of {classes}", fix="count from 0: class_id=0")
        label = rows.label == self.class_id if rows.label.ndim == 1 else rows.label[:, self.class_id]
        baseline = None if rows.baseline is None else rows.baseline[:, self.class_id]
        return SliceRows(label, rows.prediction[:, self.class_id], rows.weight, baseline, rows.bucket)


@dataclass(frozen=True)
class EveryClass:
    """Is it class 0? Is it class 1? And so on."""

    class_weights: tuple[float, ...] | None = None

    def __call__(self, rows: SliceRows) -> SliceRows:
        """As many decisions as classes for each row, each with the row's weight times that of the class."""
        baseline = None if rows.baseline is None else rows.baseline.ravel()
        classes = rows.prediction.shape[1]
        weight = np.repeat(rows.weight, classes)
        if self.class_weights is not None:
            weight = weight * np.tile(_padded(self.class_weights, classes), len(rows.weight))
        bucket = None if rows.bucket is None else np.repeat(rows.bucket, classes)
        return SliceRows(truth(rows).ravel(), rows.prediction.ravel(), weight, baseline, bucket)


@dataclass(frozen=True)
class TopClasses:
    """As `EveryClass`, where the k classes with the highest scores are predicted with certainty and no other is.

    Of classes with the same score the first counts as higher.
    """

    k: int

    def __call__(self, rows: SliceRows) -> SliceRows:
        """As many decisions as classes for each row."""
        baseline = None if rows.baseline is None else self._top(rows.baseline)
        return EveryClass()(SliceRows(rows.label, self._top(rows.prediction), rows.weight, baseline, rows.bucket))

    def _top(self, scores: Floats) -> Floats:
        top = np.argsort(-scores, axis=1, kind="stable")[:, : self.k]
        chosen = np.zeros_like(scores)
        np.put_along_axis(chosen, top, 1.0, axis=1)
        return chosen


@dataclass(frozen=True)
class KthClass:
    """Is it the class with the k-th highest score? Of classes with the same score the first counts as higher."""

    k: int

    def __call__(self, rows: SliceRows) -> SliceRows:
        """One decision for each row."""
        label, prediction = self._kth(truth(rows), rows.prediction)
        # The baseline's k-th class is another decision, so that the two are not compared.
        return SliceRows(label, prediction, rows.weight, bucket=rows.bucket)

    def _kth(self, label: Labels, scores: Floats) -> tuple[Labels, Floats]:
        if self.k > scores.shape[1]:
            raise InputError(f"there is no class number {self.k} of {scores.shape[1]}", fix="give a lower kth=")
        at = np.argsort(-scores, axis=1, kind="stable")[:, self.k - 1 : self.k]
        return np.take_along_axis(label, at, axis=1)[:, 0], np.take_along_axis(scores, at, axis=1)[:, 0]


@dataclass(frozen=True)
class Decided(MetricState):
    """The state of a metric of yes or no, over decisions."""

    decisions: Decisions
    inner: MetricState

    def init(self) -> Leaves:
        """The inner state of no rows."""
        return self.inner.init()

    def add(self, leaves: Leaves, rows: SliceRows) -> Leaves:
        """With the rows' decisions."""
        return self.inner.add(leaves, self.decisions(rows))

    def merge(self, left: Leaves, right: Leaves) -> Leaves:
        """The decisions of both."""
        return self.inner.merge(left, right)

    def finish(self, leaves: Leaves) -> Any:  # as in MetricState
        """As the metric's state gives it."""
        return self.inner.finish(leaves)

    def exact(self, rows: SliceRows) -> Any:  # as in MetricState
        """As the metric's state gives it."""
        return self.inner.exact(self.decisions(rows))


@dataclass(frozen=True)
class PerClass(MetricState):
    """The state of a metric of yes or no for each class: pairs of the class's Σw over positives, and what it gives."""

    inner: MetricState

    def positives(self, rows: SliceRows) -> Any:  # a number, or an array of them
        """Σw over the rows of the class."""
        return float(rows.weight[rows.label].sum())

    def init(self) -> Leaves:
        """No rows, and no classes."""
        return {}

    def add(self, leaves: Leaves, rows: SliceRows) -> Leaves:
        """With the rows, for each class. Names are "class.name", and "class" alone its Σw over positives."""
        known = nested_arrays(leaves)
        for index in range(rows.prediction.shape[1]):
            decided = OneClass(index)(rows)
            after = self.inner.add(known.get(str(index)) or self.inner.init(), decided)
            leaves |= nested(str(index), after)
            leaves[str(index)] = leaves.get(str(index), 0.0) + self.positives(decided)
        return leaves

    def merge(self, left: Leaves, right: Leaves) -> Leaves:
        """The rows of both, class by class."""
        if not left or not right:
            return left or right
        mine, theirs = nested_arrays(left), nested_arrays(right)
        for index in map(str, _indices(left)):
            left |= nested(index, self.inner.merge(mine[index], theirs[index]))
            left[index] = left[index] + right[index]
        return left

    def finish(self, leaves: Leaves) -> Any:  # as in MetricState
        """A pair for each class."""
        known = nested_arrays(leaves)
        return [(leaves[index], self.inner.finish(known[index])) for index in map(str, _indices(leaves))]

    def exact(self, rows: SliceRows) -> Any:  # as in MetricState
        """A pair for each class."""
        pairs = []
        for index in range(rows.prediction.shape[1]):
            decided = OneClass(index)(rows)
            pairs.append((self.positives(decided), self.inner.exact(decided)))
        return pairs


def _padded(class_weights: Sequence[float], classes: int) -> list[float]:
    """The weight of each class: 0 for those beyond the end."""
    if len(class_weights) > classes:
        raise InputError(f"there are {len(class_weights)} class_weights for {classes} classes", fix="give one for each")
    return [*class_weights, *[0.0] * (classes - len(class_weights))]


def _indices(leaves: Leaves) -> list[int]:
    return sorted(int(name) for name in leaves if name.isdigit())


def average(values: Sequence[Result], weights: Sequence[float] | None = None) -> Result:
    """The mean over the classes for which there is a value; the first reason where there is none.

    That is scikit-learn's zero_division=nan.
    """
    shares = [1.0] * len(values) if weights is None else weights
    known = [
        (value, weight) for value, weight in zip(values, shares, strict=True) if isinstance(value, float) and weight
    ]
    if not known:
        return next((value for value in values if isinstance(value, str)), "no class has any weight")
    return sum(value * weight for value, weight in known) / sum(weight for _, weight in known)


def for_several_classes(
    metric: Metric,
    name: str,
    classes: Sequence[str | int] | None,
    *,
    class_id: Any = None,  # Any: what a user wrote
    average: str | None = None,
    class_weights: Any = None,
    top_k: Any = None,
    kth: Any = None,
) -> Metric:
    """A metric of yes or no for rows of several classes.

    Args:
        metric: The metric.
        name: What it is called, for errors.
        classes: The names of the classes.
        class_id: Of this class against the rest: its position, or its name.
        average: "micro": of the decisions on all classes together; "macro": the mean of the metric over classes;
            "weighted": the mean weighted by each class's share of the labels.
        class_weights: Of an average, how much each class counts, in the order of the scores and 0 beyond its end: a
            factor of its decisions, of its part in the mean, or of its share.
        top_k: Of the decisions on all classes together, where the k highest scores of a row are predicted.
        kth: Of one decision for each row: whether it is of the class with the k-th highest score.

    Raises:
        InputError: None or more than one of the options, or a class, average or number that there is not.
    """
    chosen = [option for option in (class_id, average, top_k, kth) if option is not None]
    if len(chosen) != 1:
        raise InputError(
            f"metric {name!r} of several classes needs one of the options class_id, average, top_k and kth"
        )
    weights = None if class_weights is None else _class_weights(class_weights, average, name)
    if class_id is not None:
        return _over(metric, Decided(OneClass(_class(class_id, classes)), metric.state), metric.result)
    for option, k, decisions in (("top_k", top_k, TopClasses), ("kth", kth, KthClass)):
        if k is None:
            continue
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise InputError(f"metric {name!r}: {option} must be a number of classes, not {k!r}")
        return _over(metric, Decided(decisions(k), metric.state), metric.result)
    if average not in _AVERAGES:
        raise InputError(f"metric {name!r}: average must be 'micro', 'macro' or 'weighted', not {average!r}")
    if average == "micro":
        return _over(metric, Decided(EveryClass(weights), metric.state), metric.result)
    return _over(metric, PerClass(metric.state), _averaged(metric.result, average == "weighted", weights))


def _averaged(
    result: Callable[[Any], Result], weighted: bool, class_weights: Sequence[float] | None
) -> Callable[[list[tuple[float, Any]]], Result]:
    def mean(classes: list[tuple[float, Any]]) -> Result:
        values = [result(tally) for _, tally in classes]
        shares = [share if weighted else 1.0 for share, _ in classes]
        if class_weights is not None:
            factors = _padded(class_weights, len(classes))
            shares = [share * factor for share, factor in zip(shares, factors, strict=True)]
        return average(values, shares)

    return mean


def _class_weights(value: Any, average: str | None, name: str) -> tuple[float, ...]:
    if average is None:
        raise InputError(f"metric {name!r}: class_weights are of an average", fix='add average="macro"')
    numbers = value if isinstance(value, (list, tuple)) else [value]
    if not all(
        isinstance(each, (int, float)) and not isinstance(each, bool) and 0 <= each < math.inf for each in numbers
    ):
        raise InputError(f"metric {name!r}: class_weights must be numbers of 0 or more, not {value!r}")
    return tuple(map(float, numbers))


def _over(metric: Metric, state: MetricState, result: Callable[[Any], Result]) -> Metric:
    return Metric(metric.title, metric.direction, state, result, bar=metric.bar, total=metric.total)


def _class(class_id: Any, classes: Sequence[str | int] | None) -> int:
    if classes is not None and class_id in classes:
        return list(classes).index(class_id)
    if isinstance(class_id, bool) or not isinstance(class_id, int) or class_id < 0 or classes is not None:
        fix = "give the class's position among the scores, or classes= to the configuration"
        raise InputError(
            f"there is no class {class_id!r}",
            fix=fix if classes is None else suggest(str(class_id), [str(name) for name in classes], "there are"),
        )
    return class_id
