"""Lift of every value of a category for every value of a label: P(y | x) / P(y), from exact counts of the pairs.

As TensorFlow Data Validation's `LiftStatsGenerator` defines it, P is over all rows, those without a label too: 1 where
the two are independent, above 1 where x makes y more likely.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...errors import InputError
from ..arrays import numpy_of
from ..slices import SliceValue, encode_column, rank_of
from .column import TEXT, kind_of

MOST_TEXTS: Final = 1_000  # distinct values of a column
MOST_INTEGERS: Final = 100  # likewise; more are a quantity
MOST_LABELS: Final = 100
_LONGEST: Final = 1_000  # characters of a category

_Counts: TypeAlias = dict[SliceValue, int]  # by value of the label, None where that is missing


@dataclass(frozen=True)
class Lift:
    """How lift is computed and listed.

    Attributes:
        boundaries: Finite, ascending: a label that is a number is cut into [-inf, b0), [b0, b1), …, [bn, inf].
        min_x_count: Rows that a value must be in to be listed.
        top: Values listed per value of the label, the largest lift first.
        bottom: And the smallest, which follow them.

    Raises:
        InputError: A value is out of range or of another kind.
    """

    boundaries: Sequence[float] = ()
    min_x_count: int = 1
    top: int = 10
    bottom: int = 10

    def __post_init__(self) -> None:
        for name in ("min_x_count", "top", "bottom"):
            value: Any = getattr(self, name)  # Any: whatever was written
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise InputError(f"lift: {name} must be a whole number of at least 0, not {value!r}")
        boundaries: Any = self.boundaries
        cuts: list[Any] = (
            list(boundaries) if isinstance(boundaries, Iterable) and not isinstance(boundaries, str) else [None]
        )
        numbers = all(isinstance(cut, int | float) and not isinstance(cut, bool) for cut in cuts)
        finite = numbers and all(abs(cut) <= sys.float_info.max for cut in cuts)  # whole numbers may be beyond
        if not finite or cuts != sorted(set(cuts)) or len(cuts) >= MOST_LABELS:
            raise InputError(
                f"lift: boundaries must be fewer than {MOST_LABELS} finite numbers, ascending, not {boundaries!r}"
            )
        object.__setattr__(self, "boundaries", tuple(map(float, cuts)))


def lift_of(lift: Any) -> Lift | None:
    """The argument `lift` of `statistics` (a boolean, a `Lift` or a mapping of its attributes) as a `Lift`, or None.

    Raises:
        InputError: It is none of these.
    """
    if lift is None or isinstance(lift, Lift):
        return lift
    if isinstance(lift, bool):
        return Lift() if lift else None
    known = list(vars(Lift()))
    if isinstance(lift, Mapping) and set(lift) <= set(known):
        return Lift(**lift)
    raise InputError(f"lift must be true, false or a mapping of {', '.join(known)}, not {lift!r}")


class LiftCounts:
    """Counts of rows by value of each column and of the label.

    Attributes:
        rows: All rows.
        labels: Rows by value of the label, without rows that have none.
        columns: By column and its value; None for a column that has too many values to be a category.
    """

    def __init__(self, label: str, options: Lift) -> None:
        self.label = label
        self.options = options
        self.rows = 0
        self.labels: _Counts = {}
        self.columns: dict[str, dict[SliceValue, _Counts] | None] = {}

    def add(self, rows: pa.RecordBatch, features: Mapping[str, pa.Array]) -> None:
        """See `CrossColumnState.add`.

        Raises:
            InputError: The label has too many values, or is of a type that has no categories.
        """
        self.rows += rows.num_rows
        codes, values = self._encode_label(rows.column(self.label))
        self._add_labels(dict(zip(values, np.bincount(codes, minlength=len(values)).tolist(), strict=True)))
        for name, array in features.items():
            if name == self.label or kind_of(array.type) not in {"bool", "int", *TEXT} or self._is_out(name):
                continue
            self._add_column(name, _crossed(name, array, codes, values))

    def _encode_label(self, label: pa.Array) -> tuple[NDArray[np.int64], list[SliceValue]]:
        """The index of each row's value among the label's distinct values, and these."""
        kind = kind_of(label.type)
        if not self.options.boundaries:
            if kind not in {"bool", "int", "null", *TEXT}:
                raise InputError(
                    f"the label {self.label!r} is {label.type}: lift is of categories",
                    fix='cut a number into buckets, lift={"boundaries": [0, 15]}, or choose another label',
                )
            return encode_column(self.label, label)
        if kind not in ("int", "float", "null"):
            raise InputError(
                f"the label {self.label!r} is {label.type}, which lift's boundaries do not cut",
                fix="leave out the boundaries",
            )
        plain = label.dictionary_decode() if pa.types.is_dictionary(label.type) else label
        missing = numpy_of(plain.is_null())
        numbers = numpy_of(plain.cast(pa.float64(), safe=False).fill_null(0.0))
        ends = [-math.inf, *self.options.boundaries, math.inf]
        shown = [repr(end).removesuffix(".0") for end in ends]
        titles: list[SliceValue] = [f"[{low}, {high})" for low, high in pairwise(shown)]
        titles[-1] = f"[{shown[-2]}, inf]"
        codes = np.searchsorted(np.array(self.options.boundaries), numbers, side="right")
        codes[missing | np.isnan(numbers)] = len(titles)
        return codes, [*titles, None]

    def _add_labels(self, more: _Counts) -> None:
        _add_counts(self.labels, {value: count for value, count in more.items() if value is not None})
        if len(self.labels) > MOST_LABELS:
            raise InputError(
                f"the label {self.label!r} has more than {MOST_LABELS} values, too many for lift",
                fix='cut a number into buckets, lift={"boundaries": [0, 15]}, or choose another label',
            )

    def _is_out(self, name: str) -> bool:
        return name in self.columns and self.columns[name] is None

    def _add_column(self, name: str, more: dict[SliceValue, _Counts] | None) -> None:
        known = self.columns.setdefault(name, {})
        if known is None or more is None:
            self.columns[name] = None
            return
        for x, counts in more.items():
            _add_counts(known.setdefault(x, {}), counts)
        if len(known) > (MOST_TEXTS if all(isinstance(x, str) for x in known) else MOST_INTEGERS):
            self.columns[name] = None

    def merge(self, other: LiftCounts) -> None:
        """Take in the counts of other rows.

        Raises:
            InputError: The label has too many values.
        """
        self.rows += other.rows
        self._add_labels(other.labels)
        for name, more in other.columns.items():
            self._add_column(name, more)

    def result(self, names: Sequence[str]) -> dict[str, Any]:
        """`{"label", "rows", "min_x_count", "features": [{"name", "values"}], "left_out": [names]}`.

        `values` are `{"y", "y_count", "lift": [{"x", "x_count", "count", "lift"}]}`, ascending by y; of x those of
        largest lift, then those of smallest, descending.
        """
        names = [name for name in names if name in self.columns]
        return {
            "label": self.label,
            "rows": self.rows,
            "min_x_count": self.options.min_x_count,
            "features": [
                {"name": name, "values": self._values(counts)}
                for name in names if (counts := self.columns[name]) is not None
            ],
            "left_out": [name for name in names if self.columns[name] is None],
        }  # fmt: skip

    def _values(self, counts: Mapping[SliceValue, _Counts]) -> list[dict[str, Any]]:
        sizes = {
            x: size
            for x in sorted(counts, key=rank_of)
            if (size := sum(counts[x].values())) >= self.options.min_x_count
        }
        by_label = []
        for y in self._label_order():
            y_count = self.labels[y]
            lifts: list[dict[str, Any]] = [
                {"x": x, "x_count": size, "count": (both := counts[x].get(y, 0)),
                 "lift": both * self.rows / (size * y_count)}
                for x, size in sizes.items()
            ]  # fmt: skip
            lifts.sort(key=itemgetter("lift"), reverse=True)  # stable: equal ones ascending by x
            first = min(self.options.top, len(lifts))
            last = max(len(lifts) - self.options.bottom, first)
            by_label.append({"y": y, "y_count": y_count, "lift": lifts[:first] + lifts[last:]})
        return by_label

    def _label_order(self) -> list[SliceValue]:
        if not self.options.boundaries:
            return sorted(self.labels, key=rank_of)
        return sorted(self.labels, key=lambda title: float(str(title)[1:].partition(",")[0]))

    def to_parts(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """See `CrossColumnState.to_parts`; counts are sorted lists of pairs."""
        columns = {
            name: None if counts is None else [[x, _listed(counts[x])] for x in sorted(counts, key=rank_of)]
            for name, counts in self.columns.items()
        }
        return {"rows": self.rows, "labels": _listed(self.labels), "columns": columns}, {}

    def load_parts(self, head: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        """See `CrossColumnState.load_parts`."""
        self.rows, self.labels = head["rows"], dict(map(tuple, head["labels"]))
        for name, counts in head["columns"].items():
            self.columns[name] = None if counts is None else {x: dict(map(tuple, pairs)) for x, pairs in counts}


def _crossed(
    name: str, array: pa.Array, labels: NDArray[np.int64], ys: Sequence[SliceValue]
) -> dict[SliceValue, _Counts] | None:
    """Rows by value and label; None where a value is not a category: bytes that are not text, a long text."""
    try:
        codes, values = encode_column(name, array)
    except InputError:
        return None
    # One more than the limit, as a missing value may be among them.
    if len(values) > MOST_TEXTS + 1 or any(isinstance(value, str) and len(value) > _LONGEST for value in values):
        return None
    crossed: dict[SliceValue, _Counts] = {}
    pairs, counts = np.unique(codes * len(ys) + labels, return_counts=True)
    for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True):
        x, y = divmod(pair, len(ys))
        if values[x] is not None:
            _add_counts(crossed.setdefault(values[x], {}), {ys[y]: count})
    return crossed


def _add_counts(counts: _Counts, more: _Counts) -> None:
    for value, count in more.items():
        if count:
            counts[value] = counts.get(value, 0) + count


def _listed(counts: _Counts) -> list[list[Any]]:
    return [[value, counts[value]] for value in sorted(counts, key=rank_of)]
