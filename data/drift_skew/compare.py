"""Every measure of drift of one feature, computed when it is asked for; each says whether it is exact.

A new measure is a method of `Comparison` and its line in `MEASURES`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from ..aggregates.sums import ExactMoments
from ..aggregates.tables import NumberTable
from ..stats.column import ColumnState
from . import measures
from .pair import (
    CellRows,
    Pair,
    comparable,
    equal_mass_cells,
    frequent_cells,
    pair_of_columns,
    value_cells,
)
from .tfdv import tfdv_histogram, tfdv_jensen_shannon

CELLS: Final = 20  # equal-mass cells of numbers for `l_infinity` and `jensen_shannon_quantiles`
PSI_CELLS: Final = 10
CERTAIN: Final = 20  # a text of a summary is a cell of its own from this share on, in units of the share's error
MOVED: Final = 5  # cells listed, those that changed most


@dataclass(frozen=True)
class Measure:
    """One number about the change of one feature.

    Attributes:
        name: One of `MEASURES`.
        value: The number; None where it has none, and `note` says why.
        exact: Whether it was computed from whole value tables (an exact p-value is another matter).
        error: Where not exact: the largest error of the shares it was computed from.
        over: What the shares are of: "values", "cells" (of about equal mass), "histogram" (TFDV's), "rows", or "items"
            (of lists).
        at: The value or cell with the largest difference, of the measures that look for it.
        p_value: The p-value, of measures that are tests.
        adjusted_p: The same, corrected for all tests of all features (see `drift`).
        effect: Of the tests and of Wasserstein's distance: how large the change is in a unit of its own.
        effect_name: What `effect` is, e.g. "Cohen's h".
        note: Why there is no value, or how to read it.
    """

    name: str
    value: float | None
    exact: bool = True
    error: float | None = None
    over: str = ""
    at: Any = None
    p_value: float | None = None
    adjusted_p: float | None = None
    effect: float | None = None
    effect_name: str = ""
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The measure as JSON-able values, without what does not apply."""
        fields = {key: getattr(self, key) for key in self.__dataclass_fields__}
        always = ("name", "value", "exact")
        return {key: value for key, value in fields.items() if key in always or value not in (None, "")}


class Comparison:
    """One feature on two sides, and what several measures share.

    Lists are compared by their innermost values, as in TFDV, and by how many rows are missing.

    Args:
        current: The feature's state in the data at hand.
        previous: Its state in the control.
        lengths: Compare instead how many items the lists of this level have (0: the column's own), and how many of
            these items are missing; both must have such lists.

    Attributes:
        current: What is compared: the innermost values, or the lists of a level for their lengths.
        previous: Likewise of the control.
        present: What missing rates are of: the rows, or the items of those lists; of both sides.
    """

    def __init__(self, current: ColumnState, previous: ColumnState, *, lengths: int | None = None) -> None:
        sides = current.levels, previous.levels
        self.current, self.previous = (levels[-1 if lengths is None else lengths] for levels in sides)
        self.present = tuple(levels[0 if lengths is None else lengths + 1] for levels in sides)
        self._counted = "rows" if lengths is None else "items"
        self._same_depth = len(sides[0]) == len(sides[1])

    def measure(self, name: str) -> Measure:
        """One of `MEASURES`; without a value where it has none, and with the reason."""
        if name == "missing_rate":
            return self.missing_rate()
        if self._nothing is not None:
            return Measure(name, None, note=self._nothing)
        measured = MEASURES[name](self)
        if measured.value is None or self.pair.error is None:
            return measured
        return replace(measured, exact=False, error=self.pair.error)

    @cached_property
    def _nothing(self) -> str | None:
        """Why the values have no measures, if they have none."""
        for side, column in (("the current data", self.current), ("the control", self.previous)):
            if not column.count:
                return f"{side} has no values"
        if comparable(self.current, self.previous):
            return None
        if self._structs:
            return "a struct is compared field by field"
        if self.current.arrow == self.previous.arrow:
            return f"values of type {self.current.arrow} have no distances here"
        return f"{self.current.arrow} cannot be compared with {self.previous.arrow}"

    @property
    def same_type(self) -> bool:
        """Whether the values can be compared; a column without values can be compared with any."""
        if not self.current.count or not self.previous.count:
            return True
        same = comparable(self.current, self.previous) or self.current.arrow == self.previous.arrow
        return (same or self._structs) and self._same_depth

    @property
    def _structs(self) -> bool:
        return self.current.kind == self.previous.kind == "struct"

    @property
    def booleans(self) -> bool:
        """Whether both sides are booleans."""
        return self.current.kind == self.previous.kind == "bool"

    @cached_property
    def pair(self) -> Pair:
        """Both columns over one list of values."""
        return pair_of_columns(self.current, self.previous)

    @cached_property
    def over(self) -> str:
        """What a cell is: a value, or a cell of neighbouring numbers."""
        return "values" if self.pair.discrete else "cells"

    @cached_property
    def cells(self) -> CellRows:
        """The cells of all measures but PSI (which takes the control's) and TFDV's histogram."""
        if not self.pair.discrete:
            return equal_mass_cells(self.pair, CELLS, control=False)
        return value_cells(self.pair) if self.pair.error is None else frequent_cells(self.pair, CERTAIN)

    @cached_property
    def widest(self) -> CellRows:
        """The cells of the measures that look at one cell only, so that small errors of many do not add up."""
        return value_cells(self.pair) if self.pair.discrete else self.cells

    def missing_rate(self) -> Measure:
        """Whether the share of missing values differs; NaN is missing too: pandas writes one for the other."""
        sides = [(side.missing + side.nan, side.rows) for side in self.present]
        outcome = measures.two_proportions(*sides[0], *sides[1])
        if outcome is None:
            return Measure("missing_rate", None, over=self._counted, note=f"a side has no {self._counted}")
        if not sides[0][0] and not sides[1][0]:
            # Without a p-value: a test of nothing would count among all tests, and make their correction stricter.
            return Measure("missing_rate", 0.0, over=self._counted)
        apart = abs(sides[0][0] / sides[0][1] - sides[1][0] / sides[1][1])
        return Measure(
            "missing_rate",
            apart,
            over=self._counted,
            p_value=outcome.p_value,
            effect=outcome.effect,
            effect_name="Cohen's h",
        )

    def l_infinity(self) -> Measure:
        """TFDV's comparator for texts; here also for numbers, which TFDV skips without a word."""
        value, cell = measures.l_infinity(self.widest.current, self.widest.previous)
        return Measure("l_infinity", value, over=self.over, at=self.widest.label(cell) if value else None)

    def normalized_abs_difference(self) -> Measure:
        """TFDV's comparator of counts: the largest difference of two counts, over all rows of both sides."""
        value = measures.normalized_abs_difference(self.widest.current, self.widest.previous)
        return Measure("normalized_abs_difference", value, over=self.over)

    def jensen_shannon(self) -> Measure:
        """TFDV's definition: texts over values, numbers over its histogram, which one outlier stretches."""
        pair = self.pair
        if not pair.numeric or self.booleans:
            value = measures.jensen_shannon(self.cells.current, self.cells.previous)
            return Measure("jensen_shannon", value, over="values")
        sides = []
        for rows in (pair.current, pair.previous):
            some = rows > 0
            table = NumberTable(pair.values[some], rows[some])
            sides.append(tfdv_histogram(table) if len(table.counts) else None)
        odd = pair.odd_current.astype(np.float64), pair.odd_previous.astype(np.float64)
        return Measure("jensen_shannon", tfdv_jensen_shannon(sides[0], sides[1], *odd), over="histogram")

    def jensen_shannon_quantiles(self) -> Measure:
        """The same divergence over values or cells of equal mass, which no outlier moves."""
        value = measures.jensen_shannon(self.cells.current, self.cells.previous)
        return Measure("jensen_shannon_quantiles", value, over=self.over)

    def psi(self) -> Measure:
        """Population stability index: over tenths of the control; texts and integers of at most ten values over values.

        Of B cells and n and m rows without any drift it is about (B - 1)(1/n + 1/m): of 95 ages, each a cell, and 600
        rows a side 0.3, beyond the bounds that are usual for ten cells.
        """
        by_value = not self.pair.numeric or (self.pair.discrete and len(self.pair.values) <= PSI_CELLS)
        cells = self.cells if by_value else equal_mass_cells(self.pair, PSI_CELLS, control=True)
        return Measure("psi", measures.psi(cells.current, cells.previous), over="values" if by_value else "cells")

    def wasserstein(self) -> Measure:
        """How far finite numbers moved on average, in their unit; the effect is in σ of the control."""
        pair = self.pair
        if not pair.numeric:
            return Measure("wasserstein", None, note="text has no distances")
        if not pair.current.any() or not pair.previous.any():
            return Measure("wasserstein", None, note="a side has no finite number")
        value = measures.wasserstein(pair.values, pair.current, pair.previous)
        if not math.isfinite(value):
            return Measure("wasserstein", None, note="beyond the range of float64")
        effect = 0.0
        if value:
            spread = self.spread()
            if not spread:
                return Measure("wasserstein", value, over="values", note="the control does not vary: no effect in σ")
            effect = value / spread
            if not math.isfinite(effect):
                return Measure("wasserstein", value, over="values", note="its effect is beyond the range of float64")
        return Measure("wasserstein", value, over="values", effect=effect, effect_name="σ of the control")

    def spread(self) -> float | None:
        """Standard deviation of the control's finite numbers; None where it has no finite one."""
        if self.previous.sketches is not None:
            moments = self.previous.sketches.moments
        else:
            moments = ExactMoments()
            some = self.pair.previous > 0
            moments.add(self.pair.values[some], self.pair.previous[some])
        deviation = moments.std()
        return deviation if math.isfinite(deviation) else None

    def kolmogorov_smirnov(self) -> Measure:
        """Largest distance of the cumulative distributions; infinities are the outermost values, NaN is left out."""
        pair = self.pair
        if not pair.numeric or self.booleans:
            return Measure("kolmogorov_smirnov", None, note="values without an order: see chi_squared")
        sides = []
        for rows, odd in ((pair.current, pair.odd_current), (pair.previous, pair.odd_previous)):
            ends = dict(zip(pair.odd, odd.tolist(), strict=True))
            sides.append(np.concatenate(([ends.get("-Inf", 0)], rows, [ends.get("+Inf", 0)])))
        if not sides[0].any() or not sides[1].any():
            return Measure("kolmogorov_smirnov", None, note="a side has nothing but NaN")
        return _tested("kolmogorov_smirnov", measures.kolmogorov_smirnov(*sides), "values", "D")

    def chi_squared(self) -> Measure:
        """Whether the shares of categories differ."""
        if not self.pair.discrete:
            return Measure("chi_squared", None, note="numbers that are not categories: see kolmogorov_smirnov")
        outcome = measures.chi_squared(self.cells.current, self.cells.previous)
        if outcome is None:
            return Measure("chi_squared", None, note="fewer than two values are frequent enough")
        return _tested("chi_squared", outcome, "values", "Cramér's V")

    def new_values(self) -> Measure:
        """Whether there are values that the control lacks, also where each of them is rare."""
        pair = self.pair
        if not pair.discrete:
            return Measure("new_values", None, note="numbers that are not categories: see kolmogorov_smirnov")
        if pair.error is not None:
            return Measure("new_values", None, note="too many distinct values to know all of both sides")
        outcome = measures.new_values(self.cells.current, self.cells.previous)
        if not outcome.statistic:  # without a p-value, as of missing rates: there is nothing to test
            return Measure("new_values", 0.0, over="values")
        return _tested("new_values", outcome, "values", "share of new values beyond chance")

    def moved(self) -> list[dict[str, Any]]:
        """The cells whose share changed most: `{"value", "current", "previous"}`, shares of the rows present."""
        if self._nothing is not None:
            return []
        current, previous = measures.shares(self.cells.current), measures.shares(self.cells.previous)
        apart = np.abs(current - previous)
        order = np.argsort(-apart, kind="stable")[:MOVED]
        return [
            {"value": self.cells.label(int(at)), "current": float(current[at]), "previous": float(previous[at])}
            for at in order
            if apart[at]
        ]


def _tested(name: str, outcome: measures.TestOutcome, over: str, effect_name: str) -> Measure:
    return Measure(
        name, outcome.statistic, over=over, p_value=outcome.p_value, effect=outcome.effect, effect_name=effect_name
    )


MEASURES: Final[Mapping[str, Callable[[Comparison], Measure]]] = {
    "l_infinity": Comparison.l_infinity,
    "normalized_abs_difference": Comparison.normalized_abs_difference,
    "jensen_shannon": Comparison.jensen_shannon,
    "jensen_shannon_quantiles": Comparison.jensen_shannon_quantiles,
    "psi": Comparison.psi,
    "wasserstein": Comparison.wasserstein,
    "kolmogorov_smirnov": Comparison.kolmogorov_smirnov,
    "chi_squared": Comparison.chi_squared,
    "new_values": Comparison.new_values,
    "missing_rate": Comparison.missing_rate,
}
