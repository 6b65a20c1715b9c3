"""Labels, predictions and weights that cannot be judged: counted, the first rows quoted, raised once at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...errors import InputError, suggest
from .config import EvaluationConfig
from .tally import Floats, Labels

_QUOTED: Final = 5


@dataclass
class Problems:
    """For each kind of problem: how many rows have it, and the first of them as (row of the split, value)."""

    kinds: dict[str, tuple[int, list[tuple[int, str]]]] = field(default_factory=dict)

    def add(self, kind: str, bad: NDArray[np.bool_], values: Floats, offset: int) -> None:
        """Count the rows where `bad`, and quote the first; `offset` is the number of rows before this batch."""
        count = int(bad.sum())
        if count:
            first = [(offset + int(row), _shown(values[row])) for row in np.flatnonzero(bad)[:_QUOTED]]
            self._note(kind, count, first)

    def merge(self, other: Problems, offset: int) -> None:
        """Add the problems of rows that follow the `offset` rows of this side."""
        for kind, (count, first) in other.kinds.items():
            self._note(kind, count, [(offset + row, value) for row, value in first])

    def _note(self, kind: str, count: int, first: list[tuple[int, str]]) -> None:
        before, quoted = self.kinds.get(kind, (0, []))
        self.kinds[kind] = (before + count, (quoted + first)[:_QUOTED])

    def check(self, rows: int) -> None:
        """Raise one error that names every kind of trouble, if there is any.

        Raises:
            InputError: Some rows cannot be judged.
        """
        if not self.kinds:
            return
        lines = []
        for kind, (count, first) in self.kinds.items():
            quoted = ", ".join(f"row {row} ({value})" for row, value in first)
            lines.append(f"{kind} in {count:,} of {rows:,} rows: {quoted}{', …' if count > len(first) else ''}")
        raise InputError("; ".join(lines), fix=_fix(next(iter(self.kinds))))

    def to_json(self) -> list[Any]:
        """A list of [kind, rows, [row, value] of the first of them], which `from_json` reads."""
        return [[kind, count, [list(pair) for pair in first]] for kind, (count, first) in sorted(self.kinds.items())]

    @classmethod
    def from_json(cls, value: list[Any]) -> Self:
        """What `to_json` wrote."""
        return cls({kind: (count, [(row, text) for row, text in first]) for kind, count, first in value})


def labels_of(column: pa.Array, name: str, problems: Problems, offset: int) -> tuple[Labels, NDArray[np.bool_]]:
    """The labels as booleans, and which rows have one that is 0 or 1; both of shape (rows,)."""
    values = _numbers(column, f"label {name!r}")
    missing = np.isnan(values)
    odd = ~missing & (values != 0) & (values != 1)
    problems.add(f"label {name!r} is missing", missing, values, offset)
    problems.add(f"label {name!r} is neither 0 nor 1", odd, values, offset)
    return values == 1, ~(missing | odd)


def scores_of(column: pa.Array, name: str, problems: Problems, offset: int) -> Floats:
    """The predictions, NaN where they are none; shape (rows,)."""
    values = _numbers(column, f"prediction {name}")
    missing = np.isnan(values)
    outside = ~missing & ~((values >= 0) & (values <= 1))
    problems.add(f"prediction {name} is missing or NaN", missing, values, offset)
    problems.add(f"prediction {name} is no probability", outside, values, offset)
    return np.where(outside, np.nan, values) + 0.0  # -0.0 becomes 0.0: equal rows must have equal bytes in a state


def weights_of(column: pa.Array, name: str, problems: Problems, offset: int) -> Floats:
    """The weights, 0 where they are none; shape (rows,)."""
    values = _numbers(column, f"weight {name!r}")
    bad = ~(np.isfinite(values) & (values >= 0))
    problems.add(f"weight {name!r} is missing, infinite or negative", bad, values, offset)
    return np.where(bad, 0.0, values) + 0.0


def _numbers(column: pa.Array, what: str) -> Floats:
    """Shape (rows,), NaN for null; a list of one number per row counts as the number."""
    if pa.types.is_fixed_size_list(column.type) and column.type.list_size == 1 and not column.null_count:
        column = column.flatten()
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise InputError(f"{what} is of type {kind}, not one number per row", fix="return one value per example")
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    numbers: Floats = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return numbers


def _shown(value: float) -> str:
    return "missing" if np.isnan(value) else f"{value:g}"


def _fix(kind: str) -> str:
    if kind.startswith("label"):
        return "make the label 0 or 1 in the preprocessing function, with fill_missing where it may be missing"
    if kind.endswith("probability"):
        return "return jax.nn.sigmoid(logits) from predict"
    return "look at the training's loss and at these rows" if kind.startswith("prediction") else "mend these rows"


def check_columns(wanted: Mapping[str, str], known: Sequence[str], where: str | None = None) -> None:
    """Make sure that every wanted raw column exists.

    Args:
        wanted: Column → what it is needed for.
        known: The columns there are.
        where: The user's "file:line" that wants them.

    Raises:
        InputError: One is missing; the close ones are named, or all.
    """
    for column, purpose in wanted.items():
        if column not in known:
            raise InputError(
                f"{purpose} needs the column {column!r}, which the examples do not have",
                fix=suggest(column, known, "they have"),
                where=where,
            )


def check_outputs(config: EvaluationConfig, names: Sequence[str], who: str = "the model") -> None:
    """Make sure that a model gives what it is judged by.

    Args:
        config: Names label and prediction.
        names: What the model gives.
        who: Which model, for the message; of a baseline only the prediction counts.

    Raises:
        InputError: It does not; what it gives is named.
    """
    roles = {"prediction": config.prediction} | ({"label": config.label} if who == "the model" else {})
    for role, name in roles.items():
        if name not in names:
            raise InputError(
                f"the evaluation's {role} is {name!r}, which {who} does not give",
                fix=suggest(name, names, f"change the EvaluationConfig or what predict returns: {who} gives"),
                where=config.where,
            )
