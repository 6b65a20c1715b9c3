"""Labels, predictions and weights that cannot be judged: counted, the first rows quoted, raised once at the end."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...data.rowhash import hash_column
from ...data.types import is_list
from ...errors import InputError, suggest
from .config import EvaluationConfig
from .metrics import averages
from .rows import Floats

_QUOTED: Final = 5
_NUMBERS: Final = 'a model that predicts numbers is judged with task="regression"'
_HEAVIEST: Final = 1e100  # of the weights of rows, and 1 / the lightest above 0
_LARGEST: Final = sys.float_info.max
_MOST_CLASSES: Final = 1 << 20


@dataclass
class Problems:
    """For each kind of problem: how many rows have it, and the first of them as (row of the split, value)."""

    kinds: dict[str, tuple[int, list[tuple[int, str]]]] = field(default_factory=dict)

    def add(self, kind: str, bad: NDArray[np.bool_], values: NDArray[Any] | Sequence[Any], offset: int) -> None:
        """Count the rows where `bad`, and quote the first; `offset` is the number of rows before this batch.

        Of rows of several values, the first bad one is quoted.
        """
        if bad.ndim == 2:
            first_bad = bad.argmax(axis=1)
            values = np.asarray(values)[np.arange(len(bad)), first_bad]
            bad = np.asarray(bad.any(axis=1))
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
        """The problems that `to_json` wrote."""
        return cls({kind: (count, [(row, text) for row, text in first]) for kind, count, first in value})


def labels_of(
    column: pa.Array, config: EvaluationConfig, problems: Problems, offset: int
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """The labels as `SliceRows` has them for the configuration's task, and which rows have one; the latter (rows,)."""
    name = f"label {config.label!r}"
    if config.task == "multilabel":
        values = _matrix(column, name)
        missing = np.isnan(values)
        odd = ~missing & (values != 0) & (values != 1)
        problems.add(f"{name} is missing", missing, values, offset)
        problems.add(f"{name} is neither 0 nor 1", odd, values, offset)
        return values == 1, ~(missing | odd).any(axis=1)
    if config.task == "multiclass":
        return _classes_of(column, name, config.classes, problems, offset)
    values = _numbers(column, name)
    if config.task == "binary":
        positive = values == 1
        known = positive | (values == 0)
        if not known.all():
            missing = np.isnan(values)
            problems.add(f"{name} is missing", missing, values, offset)
            problems.add(f"{name} is neither 0 nor 1", ~(missing | known), values, offset)
        return positive, known
    missing, odd = np.isnan(values), np.isinf(values)
    problems.add(f"{name} is missing", missing, values, offset)
    problems.add(f"{name} is infinite", odd, values, offset)
    if config.task == "ranking":
        negative = ~odd & (values < 0)
        problems.add(f"{name} is negative, which no relevance is,", negative, values, offset)
        odd = odd | negative
    return values + 0.0, ~(missing | odd)


def _classes_of(
    column: pa.Array, name: str, classes: Sequence[str | int] | None, problems: Problems, offset: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The position of each row's class, and which rows have one; both (rows,)."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if classes is None:
        values = _numbers(column, name)
        missing = np.isnan(values)
        odd = ~missing & ((values < 0) | (values != np.rint(values)) | (values >= _MOST_CLASSES))
        problems.add(f"{name} is missing", missing, values, offset)
        problems.add(f"{name} is no position of a class", odd, values, offset)
        fine = ~(missing | odd)
        return np.where(fine, values, 0).astype(np.int64), fine
    if _is_text(column.type):
        values = column.cast(pa.string())
    elif pa.types.is_integer(column.type):  # as floats, those beyond 2^53 would be each other
        values = column
    else:
        values = pa.array(_numbers(column, name), from_pandas=True)
    known = {each: index for index, each in enumerate(classes)}
    encoded = values.dictionary_encode()
    of_value = np.array([*(known.get(each, -1) for each in encoded.dictionary.to_pylist()), -1], dtype=np.int64)
    position = of_value[encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
    missing = values.is_null().to_numpy(zero_copy_only=False)
    odd = ~missing & (position < 0)
    if missing.any() or odd.any():
        texts = values.to_pylist()
        problems.add(f"{name} is missing", missing, texts, offset)
        problems.add(f"{name} is none of the classes", odd, texts, offset)
    return np.maximum(position, 0), ~(missing | odd)


def scores_of(
    column: pa.Array, name: str, config: EvaluationConfig, problems: Problems, offset: int
) -> tuple[Floats, NDArray[np.bool_]]:
    """The predictions, (rows,) or (rows, k), and which rows have them."""
    several = config.task in ("multiclass", "multilabel")
    if config.task == "binary" and (width := _width(column.type)) != 1:
        raise InputError(
            f"prediction {name} is a list of {f'{width} scores' if width else 'scores'} in each row, and the metrics "
            "judge one probability",
            fix=averages(config.items) or 'of several classes write task="multiclass"',
            where=config.where,
        )
    values = _matrix(column, f"prediction {name}") if several else _numbers(column, f"prediction {name}")
    any_number = config.task in ("regression", "ranking")
    low, high = (-_LARGEST, _LARGEST) if any_number else (0.0, 1.0)
    if low <= values.min(initial=high) and values.max(initial=low) <= high:  # which no NaN is
        return values + 0.0, np.ones(len(values), dtype=np.bool_)
    missing = np.isnan(values)
    problems.add(f"prediction {name} is missing or NaN", missing, values, offset)
    if any_number:
        outside = np.isinf(values)
        problems.add(f"prediction {name} is infinite", outside, values, offset)
    else:
        outside = ~missing & ~((values >= 0) & (values <= 1))
        problems.add(f"prediction {name} is not a probability", outside, values, offset)
    fine = ~(missing | outside)
    # -0.0 becomes 0.0: equal rows must have equal bytes in a state.
    return np.where(fine, values, 0.0) + 0.0, np.asarray(fine.all(axis=1)) if several else fine


def check_classes(
    label: NDArray[Any], scores: Floats, config: EvaluationConfig, problems: Problems, offset: int
) -> Any:
    """Which rows have a label among the classes that have scores; (rows,).

    Raises:
        InputError: There are not as many scores as classes or labels.
    """
    count = scores.shape[1]
    if config.classes is not None and len(config.classes) != count:
        raise InputError(
            f"the prediction {config.prediction!r} has {count} scores in a row, and there are "
            f"{len(config.classes)} classes",
            fix="name the class of each score, in their order: classes=[…]",
            where=config.where,
        )
    if label.ndim == 2:
        if label.shape[1] != count:
            raise InputError(
                f"the prediction {config.prediction!r} has {count} scores in a row, and the label {config.label!r} "
                f"{label.shape[1]} values",
                where=config.where,
            )
        return np.ones(len(label), dtype=np.bool_)
    beyond = label >= count
    problems.add(f"label {config.label!r} is no class of the {count} that have scores", beyond, label, offset)
    return ~beyond


def weights_of(column: pa.Array, name: str, problems: Problems, offset: int) -> tuple[Floats, NDArray[np.bool_]]:
    """The weights, 0 where they are none, and which rows have one; both (rows,)."""
    values = _numbers(column, f"weight {name!r}")
    bad = ~(np.isfinite(values) & (values >= 0))
    problems.add(f"weight {name!r} is missing, infinite or negative", bad, values, offset)
    # Products of the weights of two rows, and sums of these, are neither 0 nor infinite then.
    far = ~bad & (values != 0) & ((values < 1 / _HEAVIEST) | (values > _HEAVIEST))
    problems.add(f"weight {name!r} is beyond {1 / _HEAVIEST:g} to {_HEAVIEST:g}", far, values, offset)
    return np.where(bad | far, 0.0, values) + 0.0, ~(bad | far)


def queries_of(
    column: pa.Array, name: str, problems: Problems, offset: int
) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """A number for the query of each row, by a hash of 64 bits, and which rows have one; both (rows,)."""
    missing = column.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
    if missing.any():
        problems.add(f"query {name!r} is missing", missing, column.to_pylist(), offset)
    return hash_column(column), ~missing


def _numbers(column: pa.Array, what: str) -> Floats:
    """Shape (rows,), NaN for null; a list of one number per row counts as the number."""
    if pa.types.is_fixed_size_list(column.type) and column.type.list_size == 1 and not column.null_count:
        column = column.flatten()
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if not (is_number(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind)):
        fix = "return one value per example"
        if _is_text(kind) and what.startswith("weight"):
            fix = "make numbers of the texts"
        elif _is_text(kind):
            fix = "make 0 or 1 of each text; of several classes, name them in the order of their scores: classes=[…]"
        raise InputError(f"{what} is of type {kind}, not one number per row", fix=fix)
    return numbers_of(column.cast(pa.int8()) if pa.types.is_boolean(kind) else column)


def is_number(kind: pa.DataType) -> bool:
    """Whether values are numbers: whole ones, floats or decimals."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def numbers_of(column: pa.Array) -> Floats:
    """The floats nearest to numbers, (rows,), NaN for null."""
    numbers: Floats = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return numbers


def _width(kind: pa.DataType) -> int | None:
    """How many numbers a row holds; None of lists of any length."""
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size)
    return None if pa.types.is_list(kind) or pa.types.is_large_list(kind) else 1


def _matrix(column: pa.Array, what: str) -> Floats:
    """Shape (rows, k), NaN for null.

    Raises:
        InputError: Rows are not lists of numbers, all of one length.
    """
    kind = column.type
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
        kind = column.type
    if pa.types.is_null(kind):
        return np.full((len(column), 1), np.nan)
    if not is_list(kind):
        fix = "return one number for each class"
        if _is_text(kind):
            fix += "; a model that predicts classes is compared with others that do: give the classes of each model"
        raise InputError(f"{what} is of type {kind}, not a list of numbers", fix=fix)
    present = column.is_valid().to_numpy(zero_copy_only=False)
    lists = column.filter(column.is_valid())
    numbers, rows = _numbers(lists.flatten(), what), len(lists)
    lengths: list[int] = np.unique(lists.value_lengths().to_numpy(zero_copy_only=False)).tolist()
    if len(lengths) > 1:
        raise InputError(f"{what} has lists of {lengths[0]} to {lengths[-1]} values", fix="return as many in each row")
    width = lengths[0] if rows else max(getattr(kind, "list_size", 1), 1)
    if not width:
        raise InputError(f"{what} has lists of no values", fix="return one number for each class")
    matrix = np.full((len(column), width), np.nan)
    matrix[present] = numbers.reshape(rows, width)
    return matrix


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _shown(value: object) -> str:
    if isinstance(value, (float, np.floating)):
        return "missing" if np.isnan(value) else f"{value:g}"
    return "missing" if value is None else repr(value) if isinstance(value, str) else str(value)


def _fix(kind: str) -> str:
    # By its end, since a column may be called anything.
    if kind.endswith(("none of the classes", "position of a class", "that have scores")):
        return "name the class of each score, in their order: classes=[…]; or mend the labels"
    if kind.startswith("label") and kind.endswith("missing"):
        return "leave these rows out, or fill them: in a preprocessing function with fill_missing"
    if kind.endswith("neither 0 nor 1"):
        return f"make the label 0 or 1; {_NUMBERS}"
    if kind.endswith("probability"):
        return f"return jax.nn.sigmoid(logits), for several classes jax.nn.softmax(logits), from predict; {_NUMBERS}"
    return "look at the training's loss and at these rows" if kind.startswith("prediction") else "mend these rows"


def check_columns(wanted: Mapping[str, str], known: Sequence[str], where: str | None = None) -> None:
    """Make sure that every wanted raw column exists.

    Args:
        wanted: Column → what it is needed for.
        known: The columns there are.
        where: The user's "file:line" that wants them.

    Raises:
        InputError: One is missing, for which the close ones are named, or all; or is no text.
    """
    for column, purpose in wanted.items():
        written: Any = column  # a user's
        if not isinstance(written, str):
            fix = suggest("", known, "there are")
            raise InputError(f"{purpose} needs the name of a column, not {column!r}", fix=fix, where=where)
        if column not in known:
            raise InputError(
                f"{purpose} needs the column {column!r}, which the examples do not have",
                fix=suggest(column, known, "they have"),
                where=where,
            )


def check_slice_values(config: EvaluationConfig, schema: pa.Schema) -> None:
    """Make sure that the slice of a threshold may occur: among numbers no text does, nor a number among texts.

    Raises:
        InputError: It cannot.
    """
    for threshold in config.thresholds:
        for name, value in threshold.pinned.items():
            holds = _holds(schema.field(name).type) if name in schema.names else None
            kind = "booleans" if isinstance(value, bool) else "text" if isinstance(value, str) else "numbers"
            if value is not None and holds not in (None, kind):
                alike = {"text": repr(str(value)), "booleans": "True", "numbers": str(value)}[str(holds)]
                raise InputError(
                    f"the threshold on {threshold.metric!r} is for the slice {name}={value!r}, and the column {name!r} "
                    f"holds {holds}",
                    fix=f"write it as such: slice={{{name!r}: {alike}}}",
                    where=threshold.where,
                )


def _holds(kind: pa.DataType) -> str | None:
    """What values a column slices by, those of its lists where it has any; None of what is neither of three."""
    while pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind) or pa.types.is_dictionary(kind):
        kind = kind.value_type
    if _is_text(kind):
        return "text"
    if pa.types.is_boolean(kind):
        return "booleans"
    return "numbers" if pa.types.is_integer(kind) or pa.types.is_floating(kind) else None


def check_outputs(
    config: EvaluationConfig, names: Sequence[str], who: str = "the model", *, columns: Sequence[str] = ()
) -> None:
    """Make sure that a model gives what it is judged by, but for a label that is a raw column.

    Args:
        config: Names label and prediction.
        names: What the model gives.
        columns: The raw columns.
        who: Which model, for the message; of a baseline only the prediction counts.

    Raises:
        InputError: It does not; what it gives is named.
    """
    roles = {"prediction": config.prediction} | ({"label": config.label} if who == "the model" else {})
    for role, name in roles.items():
        if name not in names and not (role == "label" and name in columns):
            raise InputError(
                f"the evaluation's {role} is {name!r}, which {who} does not give",
                fix=suggest(name, names, f"change the EvaluationConfig or what predict returns: {who} gives"),
                where=config.where,
            )
