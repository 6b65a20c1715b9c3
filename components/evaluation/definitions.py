"""A metric: a state, and a function from what that sums up to a number, or to the reason why there is none.

One rule holds everywhere: what would be 0/0, or needs a class or rows that are not there, is undefined and says why. It
is never NaN, never 0 and never infinite.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

from ...errors import InputError
from .rows import TASKS, SliceRows, Task
from .states import AllRows, MetricState, Reduction

Result: TypeAlias = float | str
"""A metric's value, or the reason why it is undefined."""
Direction: TypeAlias = Literal["higher", "lower"]

NO_ROWS: Final = "no examples with any weight"
ONE_CLASS: Final = "only one class among the labels"
NO_POSITIVES: Final = "no positive labels"
NO_NEGATIVES: Final = "no negative labels"
NO_BASELINE: Final = "no baseline to compare with"


@dataclass(frozen=True)
class Metric:
    """One metric, as it is measured.

    Attributes:
        title: Its name for people.
        direction: Which way is better; None: neither.
        state: What it is computed from.
        result: Its value, from what `state` sums up of a slice.
        bar: Whether reports draw it as a bar; only for values from 0 to 1.
        error: The most by which its value can be off where a slice was too large for its rows to be kept.
        plot: Points [x, y] to draw of the overall slice, from the same sums; or buckets with the mean `prediction` and
            `label` of each.
        plot_state: What `plot` is drawn from, where that is another state.
        variance: The variance of its value by a formula, or why there is none, where rows have no weights.
        total: Whether it grows with the number of rows; resampled it would say nothing, so it has no interval.
        by: Of a metric between slices, the columns whose slices it compares; `result` then takes (value as text, what
            `state` sums up) of each such slice.
        compares: Likewise, what it compares: title → the value of one slice.
        tasks: The kinds of model that it can judge; of a user's own metric, since ours are listed in `METRICS`.
    """

    title: str
    direction: Direction | None
    state: MetricState
    result: Callable[[Any], Result]  # Any: what the state gives
    bar: bool = False
    error: Callable[[Any], float] | None = None
    plot: Callable[[Any], list[Any]] | None = None
    plot_state: MetricState | None = None
    variance: Callable[[Any], Result] | None = None
    total: bool = False
    by: tuple[str, ...] = ()
    compares: Mapping[str, Callable[[Any], Result]] = field(default_factory=dict)
    tasks: tuple[Task, ...] = TASKS

    def value(self, summed: Any) -> Result:  # what the state gives
        """Its value; NaN and infinities become reasons.

        Raises:
            InputError: A user's `result` gives neither a number nor a text.
        """
        result = self.result(summed)
        if isinstance(result, float) and math.isfinite(result):  # nearly always, and the quicker way
            return float(result)
        try:
            return checked(result)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"metric {self.title!r} gives {result!r:.80}, not a number",
                fix="return a number, or a text that says why there is none",
            ) from error

    @property
    def inline(self) -> str:
        """The title inside a sentence."""
        return self.title if self.title[:2].isupper() else self.title[:1].lower() + self.title[1:]

    def titled(self, title: str) -> Metric:
        """The same under another title."""
        return replace(self, title=title)

    @classmethod
    def of_rows(cls, title: str, compute: Callable[[SliceRows], Result], **options: Any) -> Metric:
        """A metric from a function of a slice's rows.

        All rows are then kept in memory, however many.

        Args:
            title: Its name for people.
            compute: From `SliceRows` to a number, or to a text that says why it is undefined.
            **options: Other attributes of `Metric`: direction, bar, plot, tasks.
        """
        return cls(title, options.pop("direction", None), AllRows(), compute, **options)

    @classmethod
    def reduce(
        cls,
        title: str,
        init: Callable[[], Mapping[str, Any]],
        add: Callable[[Any, SliceRows], Mapping[str, Any]],
        merge: Callable[[Any, Any], Mapping[str, Any]],
        result: Callable[[Any], Result],
        **options: Any,
    ) -> Metric:
        """A metric from a state of any size, which need not keep rows.

        Args:
            title: Its name for people.
            init: Gives the state of no rows: names → numbers or arrays.
            add: From a state and `SliceRows` to the state with these rows.
            merge: From the states of two parts to that of both.
            result: From a state to a number, or to a text that says why it is undefined.
            **options: Other attributes of `Metric`: direction, bar, plot, tasks.
        """
        return cls(title, options.pop("direction", None), Reduction(init, add, merge), result, **options)


@dataclass(frozen=True)
class Definition:
    """A metric of ours by name.

    Attributes:
        build: Gives the metric for its options, which are keyword arguments; `threshold` is the configuration's where
            it is not given.
        tasks: The kinds of model that it can judge.
        default: Whether it is measured and shown where a configuration names no metrics.
    """

    build: Callable[..., Metric]
    tasks: tuple[Task, ...]
    default: bool = False


def ratio(above: float, below: float, reason: str) -> Result:
    """The quotient, or the reason where there is none."""
    return above / below if below else reason


def mean(values: Mapping[str, float], name: str) -> Result:
    """The sum of that name over the sum of weights."""
    return ratio(values[name], values["weight"], NO_ROWS)


def is_finite(value: object) -> bool:
    """Whether a user wrote a number that a float can be: none of True, NaN and 10**400."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return abs(value) <= sys.float_info.max


def checked(value: object) -> Result:
    """What a metric gave, as a float or a reason: NaN and infinities become reasons."""
    if isinstance(value, str):
        return value
    try:
        number = float(value)  # type: ignore[arg-type]  # a NumPy or JAX scalar of a user's, too
    except OverflowError:
        return "the result is beyond the largest float"
    return number if math.isfinite(number) else f"the result is {number}"
