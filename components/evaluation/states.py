"""What metrics are computed from: sums over rows that merge, in optax's manner `init`, `add`, `merge`.

A state is a frozen dataclass of its options; metrics whose states are equal share one computation for each slice. What
it sums up is a mapping of names to exact sums, arrays or numbers, so that it can be written as bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...data.aggregates.sums import ExactSum
from .cells import Cells
from .rows import Floats, Labels, SliceRows

Leaves: TypeAlias = dict[str, Any]
"""Name → `ExactSum`, or an array or number (NumPy's or JAX's), hence Any."""

_SHORT: Final = 500  # values up to which math.fsum is quicker than slices
_SLICES: Final = 6
_BLOCK: Final = 1 << 14  # values that a processor's cache holds while they are cut
_FAR: Final = 400  # exponents up to which no slice leaves float64's range
_SCALE: Final = 2200  # `ExactSum.take` counts in units of 2^-2200


class MetricState(Protocol):
    """How rows are summed up.

    `add` and `merge` may change and return what they are called with. Rows reach them in the same order for the same
    shards; to give equal bytes for every split of the rows, sums must be exact (`ExactSum`, or whole numbers).
    """

    keeps_rows: ClassVar[bool] = False
    """Whether only `exact` works, so that a slice's rows are kept whatever their number."""
    resampled_by: ClassVar[Literal["rows", "sums", "scores"]] = "rows"
    """What stands in for it where rows are in buckets (see `resampling`): itself, sums of floats, tables of scores."""
    any_order: ClassVar[bool] = False
    """Whether rows that all weigh 1 give the same bytes in any order."""
    by_cells: ClassVar[bool] = False
    """Whether `add_each` takes in the rows of all slices at once, so that no slice's are looked at by themselves."""

    @property
    def exact_by_cells(self) -> bool:
        """Whether that gives what `exact` gives, so that no slice's rows are needed by themselves at all."""
        return self.by_cells

    def init(self) -> Leaves:
        """The leaves of no rows, which `add` starts from."""
        ...

    def add(self, leaves: Leaves, rows: SliceRows) -> Leaves:
        """The leaves with these rows summed up as well; may change `leaves`."""
        ...

    def add_each(self, leaves: Mapping[int, Leaves], rows: SliceRows, cells: Cells) -> None:
        """What `add` would do for each of some slices.

        Args:
            leaves: By the code of the slice; they are changed.
            rows: Of all slices, whatever their order.
            cells: Which slices each row is in.
        """
        for code, which in cells.positions():
            if code in leaves:
                leaves[code].update(self.add(leaves[code], rows.take(which)))

    def merge(self, left: Leaves, right: Leaves) -> Leaves:
        """The leaves of the rows of both, `right` following `left`; may change either."""
        ...

    def finish(self, leaves: Leaves) -> Any:  # Any: what this state's metrics take
        """What metrics are computed from."""
        return leaves

    def exact(self, rows: SliceRows) -> Any:  # as above
        """What metrics are computed from where all rows are at hand, sorted by prediction and then canonically."""
        return self.finish(self.add(self.init(), rows))


class Term(NamedTuple):
    """What one sum is of.

    Attributes:
        name: Of the sum.
        values: A number for each row of `of`; None: the weights of these rows.
        of: Which rows: all, a slice of them, a mask, or positions.
        label: Of these only the ones with this label, where labels are yes or no; `of` is then all, or a mask.
    """

    name: str
    values: Floats | None = None
    of: slice | Labels | NDArray[np.int64] = slice(None)
    label: bool | None = None

    def plain(self, rows: SliceRows) -> Term:
        """The same sum, of the rows with the label."""
        if self.label is None:
            return self
        if isinstance(self.of, slice):
            which = rows.labelled[self.label]
        else:
            which = self.of & (rows.label if self.label else ~rows.label)
        return Term(self.name, None if self.values is None else self.values[which], which)

    def weights(self, rows: SliceRows) -> Floats:
        """What is summed up; of a `plain` one."""
        return rows.weight[self.of] if self.values is None else self.values

    def is_count(self, rows: SliceRows) -> bool:
        """Whether the sum is how many rows it is of."""
        return self.values is None and rows.unweighted

    def size(self, rows: SliceRows) -> int:
        """How many rows it is of; of a `plain` one."""
        if isinstance(self.of, slice):
            return len(rows.weight[self.of])
        return int(np.count_nonzero(self.of)) if self.of.dtype == np.bool_ else len(self.of)


class Sums(MetricState, Protocol):
    """States that are exact sums: a subclass says of what. Each is rounded once."""

    resampled_by: ClassVar[Literal["rows", "sums", "scores"]] = "sums"
    any_order: ClassVar[bool] = True
    by_cells: ClassVar[bool] = True
    names: ClassVar[tuple[str, ...]]

    def terms(self, rows: SliceRows) -> Iterator[Term]:
        """What each of `names` is the sum of."""
        ...

    def init(self) -> Leaves:
        """A sum of 0 for each of `names`."""
        return {name: ExactSum() for name in self.names}

    def add(self, leaves: Leaves, rows: SliceRows) -> Leaves:
        """Add each row's terms."""
        for term in (each.plain(rows) for each in self.terms(rows)):
            if term.is_count(rows):
                count = term.size(rows)
                leaves[term.name].take(count << _SCALE, count)
            else:
                add_exactly(leaves[term.name], term.weights(rows))
        return leaves

    def add_each(self, leaves: Mapping[int, Leaves], rows: SliceRows, cells: Cells) -> None:
        """Add each row's terms to the sums of its slices."""
        cells = cells.by_label(rows.label)
        for term in self.terms(rows):
            totals = {code: each[term.name] for code, each in leaves.items()}
            counts = cells.counts(term.of, term.label)
            if term.is_count(rows):
                for code, total in totals.items():
                    total.take(counts[code] << _SCALE, counts[code])
            else:
                _add_each_exactly(totals, term, rows, counts, cells)

    def merge(self, left: Leaves, right: Leaves) -> Leaves:
        """Add the sums of the right to those of the left, exactly, so in any order."""
        for name, total in left.items():
            total.merge(right[name])
        return left

    def finish(self, leaves: Leaves) -> Any:  # as in MetricState
        """What metrics are computed from: by default the mapping of name to sum."""
        return self.summed({name: total.value() for name, total in leaves.items()})

    def exact(self, rows: SliceRows) -> Any:  # as in MetricState
        """The same from all rows at once."""
        sums: dict[str, float] = {}
        for term in (each.plain(rows) for each in self.terms(rows)):
            sums[term.name] = float(term.size(rows)) if term.is_count(rows) else exact_sum(term.weights(rows))
        return self.summed(sums)

    def summed(self, sums: Mapping[str, float]) -> Any:  # as in MetricState
        """What metrics are computed from, given the sums."""
        return sums


def exact_sum(values: Floats) -> float:
    """Σ values, rounded once: the same bits as an `ExactSum`'s, and quicker."""
    if len(values) < _SHORT:
        with suppress(OverflowError, ValueError):  # infinities, or sums beyond float64's range on the way
            return math.fsum(values.tolist())
    total = ExactSum()
    add_exactly(total, values)
    return total.value()


def add_exactly(total: ExactSum, values: Floats) -> None:
    """Add values to an exact sum: as `ExactSum.add`, and quicker."""
    sliced = _sliced(values)
    if sliced is None:
        total.add(values)
    else:
        total.take(sum(int(math.ldexp(part[0], -unit)) << (unit + _SCALE) for part, unit in sliced), len(values))


def _add_each_exactly(
    totals: Mapping[int, ExactSum], term: Term, rows: SliceRows, counts: Sequence[int], cells: Cells
) -> None:
    """Add a term to the exact sums of the slices, by code; so many values to each."""
    values = term.weights(rows)
    if isinstance(term.of, slice) and term.of == slice(None):
        sliced = cells.once(values, lambda: _sliced(values, cells.of, len(cells.codes)))
    else:
        sliced = _sliced(values, cells.of[term.of], len(cells.codes))
    if sliced is None:
        term = term.plain(rows)
        values = term.weights(rows)
        for code, which in cells.positions(term.of):
            if code in totals:
                add_exactly(totals[code], values[which])
        return
    units = dict.fromkeys(totals, 0)
    for part, unit in sliced:
        whole = np.ldexp(cells.by_slice(part, term.label), -unit).astype(np.int64).tolist()
        for code in units:
            units[code] += whole[code] << (unit + _SCALE)
    for code, total in totals.items():
        total.take(units[code], counts[code])


def _sliced(values: Floats, cell: NDArray[np.int64] | None = None, cells: int = 1) -> list[tuple[Floats, int]] | None:
    """Σ values as Σ parts, (cells,), each with its unit, whose multiple every sum of it is.

    The values are cut into slices of b bits on a common grid (Rump, Ogita and Oishi 2008), with b so small that a
    slice's sum is a whole number of grid units below 2^53, which no order of adding rounds.

    Args:
        values: Floats.
        cell: The cell of each, where there are several.
        cells: How many there are.

    Returns:
        None where it takes too many slices, or values are not finite or far from 1.
    """
    if not len(values):
        return []
    largest = max(float(values.max()), -float(values.min()))
    if largest == 0:
        return []
    top = math.frexp(largest)[1] if largest < math.inf else _FAR  # NaN goes there too
    if not -_FAR < top < _FAR:
        return None
    bits = 52 - len(values).bit_length()
    units = [top - bits * number for number in range(1, _SLICES + 1)]
    sums = np.zeros((_SLICES, cells))
    block = min(max(_BLOCK, 4 * cells), len(values))
    part_of_block, rest_of_block = np.empty(block), np.empty(block)
    most = 0
    for start in range(0, len(values), block):
        rest = values[start : start + block]
        part, left = part_of_block[: len(rest)], rest_of_block[: len(rest)]
        for number, unit in enumerate(units):
            # Adding 1.5 · 2^(unit + 52) shifts the bits below 2^unit out of the float: it rounds to a multiple of it.
            magic = math.ldexp(1.5, unit + 52)
            np.add(rest, magic, out=part)
            part -= magic
            if cell is None or cells == 1:
                sums[number] += part.sum()
            else:
                sums[number] += np.bincount(cell[start : start + block], part, minlength=cells)
            rest = np.subtract(rest, part, out=left)  # exact, at most half a 2^unit
            if not rest.any():
                most = max(most, number + 1)
                break
        else:
            return None
    return list(zip(sums[:most], units[:most], strict=True))


@dataclass(frozen=True)
class AllRows(MetricState):
    """The rows themselves: for metrics that nothing smaller gives. No slice is summed up then, so memory grows."""

    keeps_rows: ClassVar[bool] = True

    def init(self) -> Leaves:
        """Never called, since `keeps_rows`: there is nothing smaller than the rows."""
        raise NotImplementedError

    def add(self, leaves: Leaves, rows: SliceRows) -> Leaves:
        """Never called, as `init`."""
        raise NotImplementedError

    def merge(self, left: Leaves, right: Leaves) -> Leaves:
        """Never called, as `init`."""
        raise NotImplementedError

    def exact(self, rows: SliceRows) -> SliceRows:
        """The rows, which whoever gets them next must find as they are."""
        return rows.read_only()


@dataclass(frozen=True)
class Reduction(MetricState):
    """Three functions as a state: a user's. What they return maps names to numbers or arrays."""

    start: Callable[[], Mapping[str, Any]]
    step: Callable[[Any, SliceRows], Mapping[str, Any]]
    join: Callable[[Any, Any], Mapping[str, Any]]

    def init(self) -> Leaves:
        """A copy of what the user's `start` returns."""
        return dict(self.start())

    def add(self, leaves: Leaves, rows: SliceRows) -> Leaves:
        """A copy of what the user's `step` returns, which gets the rows read-only."""
        return dict(self.step(leaves, rows.read_only()))

    def merge(self, left: Leaves, right: Leaves) -> Leaves:
        """A copy of what the user's `join` returns."""
        return dict(self.join(left, right))
