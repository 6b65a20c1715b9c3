"""The options of a statistics pass, checked when they are made.

A new option is an attribute here with its check in `__post_init__`, a parameter of `document.statistics`, and what
`StatisticsAccumulator` does with it. States store the options, and only states with equal ones can be merged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from ...errors import InputError, suggest
from ..base import Accumulator
from ..slices import SliceValue
from .column import EXACT_LIMIT
from .describe import Detail
from .lift import Lift, lift_of
from .sliced import Spec

Factory: TypeAlias = Callable[[], Accumulator]
Slicing: TypeAlias = str | Sequence[str] | Mapping[str, Sequence[SliceValue] | None]
"""How rows are sliced: by a column, by the combinations of several, or by columns of which only some values count."""

_DETAIL: Final = Detail()


@dataclass(frozen=True)
class StatisticsOptions:
    """What a statistics pass computes; small, and pickles.

    Attributes:
        limit: Distinct values of a column up to which everything about it is exact.
        columns: The features, or None for every column.
        weight: The column with each row's weight: numbers ≥ 0, a missing one counts as 0.
        slices: How rows are sliced, in the form that `slicings` gives.
        label: The column with which mutual information is computed.
        lift: How to compute the lift of categories for the label, None: not at all. True, False and a mapping are taken
            too, and become one of these.
        correlations: Whether to correlate every two numeric features.
        sample_rate: The share of rows to look at; a row is in or out by a hash of its values.
        seed: Another seed, another sample.
        top_values: Most frequent values listed.
        buckets: Buckets of histograms.
        quantiles: Levels of quantiles, ascending.
        custom: A user's accumulators, each made by a factory that pickles by reference.
        computed: Columns that are not the data's own, but computed to check a schema by; each with what it is
            computed from.

    Raises:
        InputError: A value is out of range or of another kind.
    """

    limit: int = EXACT_LIMIT
    columns: Sequence[str] | None = None
    weight: str | None = None
    slices: tuple[Spec, ...] = ()
    label: str | None = None
    lift: Lift | None = None
    correlations: bool = False
    sample_rate: float = 1.0
    seed: int = 0
    top_values: int = _DETAIL.top_values
    buckets: int = _DETAIL.buckets
    quantiles: Sequence[float] = _DETAIL.quantiles
    custom: Mapping[str, Factory] = field(default_factory=dict, compare=False)
    computed: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        for name, least in (("limit", 1), ("top_values", 0), ("buckets", 1)):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < least:
                raise InputError(f"{name} must be a whole number of at least {least}, not {getattr(self, name)!r}")
        if not _is_number(self.sample_rate) or not 0 < self.sample_rate <= 1:
            raise InputError(f"sample_rate must be above 0 and at most 1, not {self.sample_rate!r}")
        if not isinstance(self.seed, int):
            raise InputError(f"seed must be a whole number, not {self.seed!r}")
        if not isinstance(self.custom, Mapping):
            raise InputError(f"custom must map names to factories, not {self.custom!r}")
        for name, make in self.custom.items():
            if not callable(make):
                raise InputError(f"custom={{{name!r}: {make!r}}} is not a factory", fix="give the accumulator's class")
        lift: Any = self.lift  # Any: whatever was written
        object.__setattr__(self, "lift", lift_of(lift))
        if self.lift is not None and self.label is None:
            raise InputError("lift needs a label", fix='name it: label="column"')
        quantiles: Any = self.quantiles  # Any: whatever was written
        levels = list(quantiles) if isinstance(quantiles, Iterable) else []
        within = bool(levels) and all(_is_number(level) and 0 <= level <= 1 for level in levels)
        if not within or levels != sorted(set(levels)):
            raise InputError(f"quantiles must be levels from 0 to 1, ascending, not {self.quantiles!r}")
        object.__setattr__(self, "quantiles", tuple(map(float, levels)))
        if self.columns is not None:
            object.__setattr__(self, "columns", _names(self.columns, "columns"))  # a list will do

    @property
    def columns_only(self) -> bool:
        """Whether all that is computed is statistics of every column by itself, of all rows."""
        return not self.needed and self.columns is None and not (self.correlations or self.custom or self.sampled)

    @property
    def sampled(self) -> bool:
        """Whether some rows are left out."""
        return self.sample_rate < 1

    @property
    def detail(self) -> Detail:
        """How much the document lists of each column."""
        return Detail(self.top_values, self.buckets, tuple(self.quantiles))

    @property
    def needed(self) -> dict[str, str]:
        """Columns that an option other than `columns` names, each with that option, for errors."""
        uses = {name: f"slices={[name for name, _ in spec]}" for spec in self.slices for name, _ in spec}
        for use in ("label", "weight"):
            if (name := getattr(self, use)) is not None:
                uses[name] = f"{use}={name!r}"
        return uses

    @property
    def whole_rows(self) -> bool:
        """Whether every column must be read: a row's hash is of all its values, and a user's accumulator sees all."""
        return bool(self.sampled or self.label is not None or self.custom)

    def check(self, names: Sequence[str]) -> None:
        """Check that the data has every column that an option names.

        Raises:
            InputError: It lacks one; the error lists those it has.
        """
        wanted = {name: f"columns={name!r}" for name in self.columns or ()} | self.needed
        for name, use in wanted.items():
            if name not in names:
                fix = suggest(name, names, "the columns are:")
                raise InputError(f"there is no column {name!r}, which {use} names", fix=fix)

    def to_json(self) -> dict[str, Any]:
        """The options as plain values; a user's accumulators by their names."""
        values = {name: value for name, value in vars(self).items() if name != "custom"}
        return {**values, "lift": self.lift and vars(self.lift), "custom": sorted(self.custom)}


def options_from_json(values: Mapping[str, Any], custom: Mapping[str, Factory]) -> StatisticsOptions:
    """The options that `StatisticsOptions.to_json` wrote, with the factories in `custom` of the names among them."""
    known = {name: custom[name] for name in values["custom"] if name in custom}
    slices = slicings([dict(spec) for spec in values["slices"]])
    columns = None if values["columns"] is None else tuple(values["columns"])
    computed = tuple((name, origin) for name, origin in values.get("computed", ()))
    return StatisticsOptions(**{**values, "slices": slices, "columns": columns, "custom": known, "computed": computed})


def difference(left: StatisticsOptions, right: StatisticsOptions) -> str | None:
    """The first option in which two passes differ, or None."""
    mine, others = left.to_json(), right.to_json()
    return next((name for name in mine if name != "custom" and mine[name] != others[name]), None)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def slicings(slices: Any) -> tuple[Spec, ...]:
    """Slicings in their one form: the columns of each, with the values that count, or None for all.

    Raises:
        InputError: One has none of the forms of `Slicing`.
    """
    if isinstance(slices, str | Mapping):
        slices = (slices,)
    if not isinstance(slices, Iterable):
        raise InputError(f"slices must be a list, not {slices!r}", fix='write e.g. slices=["carrier"]')
    return tuple(dict.fromkeys(map(_slicing, slices)))


def _names(columns: Any, what: str) -> tuple[str, ...]:
    names = () if isinstance(columns, str) or not isinstance(columns, Iterable) else tuple(columns)
    if not names or not all(isinstance(name, str) for name in names):
        raise InputError(f"{what} must be a list of column names, not {columns!r}")
    return tuple(dict.fromkeys(names))


def _slicing(slicing: Any) -> Spec:
    if isinstance(slicing, str):
        slicing = (slicing,)
    if isinstance(slicing, Mapping):
        _names(slicing, "a slice")
        return tuple((name, None if values is None else _values(name, values)) for name, values in slicing.items())
    return tuple((name, None) for name in _names(slicing, "a slice"))


def _values(name: str, listed: Any) -> tuple[SliceValue, ...]:
    if isinstance(listed, str) or not isinstance(listed, Iterable):
        raise InputError(
            f"a slice must list the values of {name!r}, not {listed!r}", fix=f"write {{{name!r}: [value]}}"
        )
    values = tuple(listed)
    for value in values:
        if not isinstance(value, str | int | float) or (isinstance(value, float) and not math.isfinite(value)):
            raise InputError(
                f"a slice of {name!r} cannot have the value {value!r}", fix="give text, numbers, True or False"
            )
    return values
