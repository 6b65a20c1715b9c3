"""The worst slices of the data, found automatically: tested, corrected for all that was looked at, none twice.

The search joins three methods. As in Slice Finder (Chung et al. 2019, "Slice Finder: Automated Data Slicing for Model
Validation"), a slice is worse where a one-sided test and an effect size say so. As in SliceLine (Sagadeeva and Boehm
2021, "SliceLine: Fast, Linear-Algebra-based Slice Finding for ML Model Debugging"), crosses are counted in tables, and
left out where their values bound what they can reach. As in a scan statistic (Kulldorff 1997), the slice of the
strongest evidence is named, its excess is taken out of the losses, and the search goes on in what is left: so nothing
is named only because it overlaps with what was named before.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.special import expit, ndtr, ndtri, stdtr

from ...data import Source, source_of
from ...data.arrays import numpy_of
from ...data.frames import frame
from ...data.slices import MISSING, encode_column
from ...errors import InputError
from ...redaction import printable
from .binary import CLIP
from .checks import Problems, check_classes, check_columns, labels_of, scores_of, weights_of
from .config import EvaluationConfig, Slice
from .rows import Floats, Task
from .standalone import Predictor, TableModel, models_of, task_of_values

_Ints: TypeAlias = NDArray[np.int64]
_Rows: TypeAlias = NDArray[np.bool_]

_MOST_DISTINCT: Final = 10_000  # values beyond which a column of texts is one of names
_MOST_VALUES: Final = 100  # of a column of texts; the table of a cross has a cell for each combination
_MOST_BINS: Final = 16  # whose ranges are 135, and those of three columns 2.5 million
_KEPT: Final = 1_000
_STEP: Final = 0.01  # standard deviations to which the permutation test rounds losses
_SEED: Final = 20_190  # of the sample of larger tables


def find_slices(
    data: object,
    *,
    label: str,
    predictions: Predictor,
    columns: Sequence[str] | None = None,
    weight: str | None = None,
    task: Task | None = None,
    classes: Sequence[str | int] | None = None,
    excess: bool = False,
    max_columns: int = 2,
    min_examples: int = 30,
    level: float = 0.01,
    min_effect: float = 0.1,
    bins: int = 10,
    limit: int = 10,
    max_rows: int = 1_000_000,
) -> WorstSlices:
    """Find where a model is worse than elsewhere: values, ranges and their crosses, the strongest evidence first.

    Args:
        data: What `data.source_of` takes.
        label: The column of labels.
        predictions: A column, or a function from a DataFrame of rows to an array, as `evaluate` takes it.
        columns: Where to look; None: all columns but label, predictions and weight. Texts, booleans, numbers, dates and
            times make slices, and so does what is missing; other columns are left out.
        weight: A column of weights ≥ 0; rows of weight 0 are left out.
        task: None: what label and predictions look like. It decides the loss of a row: log-loss (binary, multi-class,
            the mean over labels of multi-label), or the squared error (regression).
        classes: The class of each score, where labels are not positions.
        excess: Take from each log-loss what the model itself expects, the entropy of its probabilities: what is left is
            large where the model is wrong, and not where the outcome is merely uncertain.
        max_columns: How many columns a slice may be a cross of, up to 3.
        min_examples: Rows that a slice has at least, and the rest too.
        level: How often data on which no slice is worse may have any named: the family-wise error, over all slices
            that could be looked at. Each number of columns has an equal part of it.
        min_effect: The least effect of a slice that is named.
        bins: Parts of equal count into which numbers of more distinct values are cut; slices are ranges of adjacent
            ones.
        limit: Slices that are named at most.
        max_rows: Rows beyond which a random sample of about as many is searched.

    Raises:
        InputError: A column that is not there, labels or predictions that cannot be judged, a task without a loss of
            each row, or an option out of its range.
    """
    _check_options(max_columns, min_examples, level, min_effect, bins, limit, max_rows)
    source = source_of(data)
    if not isinstance(predictions, str) and not callable(predictions):
        raise InputError(f"predictions must be a column or a function of rows, not {predictions!r}")
    if isinstance(columns, str):
        raise InputError(f"find_slices: columns must be a list of names, not {columns!r}", fix=f"columns=[{columns!r}]")
    needed = {label: "the label"} | ({predictions: "the prediction"} if isinstance(predictions, str) else {})
    needed |= {weight: "the weight"} if weight else {}
    check_columns(needed | dict.fromkeys(columns or (), "the search"), source.columns)
    candidates = (
        [name for name in source.columns if name not in needed] if columns is None else [*dict.fromkeys(columns)]
    )
    if task is None and classes is None:
        task = task_of_values(source, label, predictions)
    ((model_name, _),) = models_of(predictions).items()
    config = EvaluationConfig(label, model_name, task=task, classes=classes, weight=weight)
    if classes is None and _is_text(source.schema.field(label).type):
        raise InputError(
            f"label {label!r} is text, and the classes of the scores are not named",
            fix='make it 0 or 1 for a probability, or name the class of each score: classes=["no", "yes"]',
        )
    if excess and config.task == "regression":
        raise InputError("find_slices: excess is of probabilities, and numbers have none", fix="remove it")
    model = TableModel(label, config.prediction, predictions)
    loss, weights, table = _losses(source, config, model, candidates, max_rows, excess=excess)
    searched: list[_CutColumn] = []
    left_out: dict[str, str] = {}
    for name in candidates:
        column = _column(name, table.pop(name), bins, min_examples)
        if isinstance(column, str):
            left_out[name] = column
        else:
            searched.append(column)
            if column.left_out:
                left_out[name] = column.left_out
    search = _SliceSearch(searched, len(loss), max_columns, min_examples, level, min_effect)
    findings = tuple(itertools.islice(search.worst(loss, weights), limit))
    what = "squared error" if config.task == "regression" else "excess log-loss" if excess else "log-loss"
    mean = float(np.average(loss, weights=weights))
    return WorstSlices(findings, what, mean, len(loss), source.rows, sum(search.counts), level, left_out)


@dataclass(frozen=True)
class WorseSlice:
    """A slice on which the model is worse than on the rest.

    Attributes:
        name: For people: "carrier=AA, distance >= 900".
        sql: Its condition, a DuckDB expression over the columns.
        columns: What it is made of.
        rows: How many it has.
        share: Its share of all rows, or of their weight.
        loss: Its mean loss.
        rest_loss: That of all other rows.
        effect: (loss − rest_loss) / √((s² + r²) / 2), where s and r are the standard deviations of the losses within
            and without (Chung et al. 2019).
        p_value: The larger of Welch's test and of a permutation test, times the number of slices that could be
            looked at. It is of what the slices named before it leave.
    """

    name: str
    sql: str
    columns: tuple[str, ...]
    rows: int
    share: float
    loss: float
    rest_loss: float
    effect: float
    p_value: float

    @property
    def slice(self) -> Slice:
        """What `EvaluationConfig(slices=[…])` and `evaluate(slices=[…])` take."""
        return Slice(self.name, sql=self.sql)


_FIELDS: Final = ("slice", "rows", "share", "loss", "rest_loss", "effect", "p_value", "sql")


@dataclass(frozen=True)
class WorstSlices(Sequence[WorseSlice]):
    """The slices that `find_slices` names, the strongest evidence first.

    Attributes:
        findings: The slices.
        measure: What the losses are: "log-loss", "excess log-loss" or "squared error".
        loss: The mean loss of all rows.
        rows: How many rows were searched.
        of_rows: How many the data have; more than `rows` of a sample or where weights are 0.
        looked_at: The slices that could be looked at, for which p-values are corrected.
        level: The family-wise error.
        left_out: Columns that were not searched, and why; or which of their values were not.
    """

    findings: tuple[WorseSlice, ...]
    measure: str
    loss: float
    rows: int
    of_rows: int
    looked_at: int
    level: float
    left_out: Mapping[str, str]

    def __getitem__(self, index: Any) -> Any:
        return self.findings[index]

    def __len__(self) -> int:
        return len(self.findings)

    @property
    def slices(self) -> list[Slice]:
        """All of them, for `EvaluationConfig(slices=…)` and `evaluate(slices=…)`."""
        return [finding.slice for finding in self.findings]

    def frame(self) -> Any:  # a pandas.DataFrame: pandas ships no types
        """One row for each slice: what `WorseSlice` has.

        Raises:
            DrivetrainError: pandas is not installed.
        """
        return frame(_FIELDS, self._cells())

    def _cells(self) -> list[tuple[Any, ...]]:
        return [
            (each.name, each.rows, each.share, each.loss, each.rest_loss, each.effect, each.p_value, each.sql)
            for each in self.findings
        ]

    @property
    def summary(self) -> str:
        """One line."""
        count = len(self.findings)
        worse = f"{count or 'no'} slice{' is' if count == 1 else 's are'} worse than the rest"
        sampled = f" of {self.of_rows:,}" if self.of_rows > self.rows else ""
        return (
            f"{worse}: {self.rows:,}{sampled} rows, {self.measure} {self.loss:.4g}, {self.looked_at:,} slices searched"
        )

    def __repr__(self) -> str:
        lines = [
            f"  {each.name}: {each.rows:,} rows ({each.share:.1%}), {self.measure} {each.loss:.4g} against "
            f"{each.rest_loss:.4g}, effect {each.effect:.2f}, "
            + (f"p = {each.p_value:.1g}" if each.p_value else "p < 1e-300")
            for each in self.findings
        ]
        left_out = (f"  left out: {name} ({why})" for name, why in self.left_out.items())
        return printable("\n".join([self.summary, *lines, *left_out]))

    def _repr_html_(self) -> str:
        from ...report import TableColumn, framed, join, page, percent, section, table

        numbers = ("Rows", "Share", self.measure.capitalize(), "Rest", "Effect", "p-value")
        heads: list[TableColumn | str] = ["Slice", *(TableColumn(name, numeric=True) for name in numbers), "SQL"]
        rows = [(name, n, percent(share), *others) for name, n, share, *others in self._cells()]
        parts = [section("The worst slices", table(heads, rows, empty="No slice is worse than the rest."))]
        if self.left_out:
            parts.append(section("Left out", table(["Column", "Why"], list(self.left_out.items()))))
        return framed(page("Slices", join(parts), subtitle=self.summary))


def _check_options(
    max_columns: Any, min_examples: Any, level: Any, min_effect: Any, bins: Any, limit: Any, max_rows: Any
) -> None:
    def refuse(name: str, value: object, wanted: str) -> None:
        raise InputError(f"find_slices: {name} must be {wanted}, not {value!r}")

    counts: list[tuple[str, Any, int, int | None]] = [
        ("max_columns", max_columns, 1, 3),
        ("min_examples", min_examples, 2, None),
        ("bins", bins, 2, _MOST_BINS),
        ("limit", limit, 1, None),
        ("max_rows", max_rows, 1, None),
    ]
    for name, value, least, most in counts:
        if (
            isinstance(value, bool)
            or not isinstance(value, int)
            or value < least
            or (most is not None and value > most)
        ):
            refuse(name, value, f"a whole number from {least}" + ("" if most is None else f" to {most}"))
    if isinstance(level, bool) or not isinstance(level, (int, float)) or not 0 < level < 1:
        refuse("level", level, "between 0 and 1, such as 0.01")
    if isinstance(min_effect, bool) or not isinstance(min_effect, (int, float)) or not 0 <= min_effect < math.inf:
        refuse("min_effect", min_effect, "a number of standard deviations, such as 0.1")


def _losses(
    source: Source, config: EvaluationConfig, model: TableModel, columns: Sequence[str], max_rows: int, *, excess: bool
) -> tuple[Floats, Floats, dict[str, pa.Array]]:
    """The loss and the weight of each row, and its columns; rows of weight 0 are left out.

    Raises:
        InputError: Rows cannot be judged, or all weigh 0.
    """
    share = max_rows / max(source.rows, 1)
    random = np.random.default_rng(_SEED)
    problems = Problems()
    losses: list[Floats] = []
    weights: list[Floats] = []
    pieces: dict[str, list[pa.Array]] = {name: [] for name in columns}
    positions: list[_Ints] = []
    rows = sampled = 0
    for batch in (batch for shard in source.shards for batch in source.read(shard)):
        chosen = np.flatnonzero(random.random(batch.num_rows) < share)
        positions.append(rows + chosen)
        rows += batch.num_rows
        part = batch if share >= 1 else batch.take(pa.array(chosen))
        weight, loss = _loss_of(part, config, model, problems, sampled, excess=excess)
        sampled += part.num_rows
        some = weight > 0
        losses.append(loss[some])
        weights.append(weight[some])
        for name in columns:
            pieces[name].append(part.column(name).filter(pa.array(some)))
    if problems.kinds and share < 1:  # quoted by their place in the data, not in the sample
        where = np.concatenate(positions)
        problems.kinds = {
            kind: (count, [(int(where[row]), text) for row, text in quoted])
            for kind, (count, quoted) in problems.kinds.items()
        }
    problems.check(sampled)
    loss = np.concatenate(losses) if losses else np.zeros(0)
    if not len(loss):
        raise InputError("there are no rows to search" + (": all of them weigh 0" if sampled else ""))
    return loss, np.concatenate(weights), {name: pa.concat_arrays(parts) for name, parts in pieces.items()}


def _loss_of(
    batch: pa.RecordBatch,
    config: EvaluationConfig,
    model: TableModel,
    problems: Problems,
    offset: int,
    *,
    excess: bool,
) -> tuple[Floats, Floats]:
    """Weight and loss of each row; what cannot be judged is added to the problems, and weighs 0."""
    outputs = model(batch)
    label, fine = labels_of(outputs.column(config.label), config, problems, offset)
    score, usable = scores_of(outputs.column(config.prediction), repr(config.prediction), config, problems, offset)
    fine = fine & usable
    if score.ndim == 2:
        fine = fine & check_classes(label, score, config, problems, offset)
    weight = np.ones(len(score))
    if config.weight is not None:
        weight, _ = weights_of(batch.column(config.weight), config.weight, problems, offset)
    label, score = label[fine], score[fine]
    if config.task == "regression":
        with np.errstate(over="ignore"):
            some = (score - label) ** 2
    else:
        score = np.clip(score, CLIP, 1 - CLIP)
        if config.task == "multiclass":
            some = -np.log(score[np.arange(len(score)), label])
            expected = -(score * np.log(score)).sum(axis=1)
        else:
            some = -np.log(np.where(label, score, 1 - score))
            expected = -(score * np.log(score) + (1 - score) * np.log(1 - score))
        some = some - expected if excess else some
        some = some.mean(axis=1) if some.ndim == 2 else some
    loss = np.zeros(len(weight))
    loss[fine] = some
    problems.add("the squared error is infinite", np.isinf(loss), loss, offset)
    return np.where(fine, weight, 0.0), loss


@dataclass(frozen=True, eq=False)
class _CutColumn:
    """A column cut into cells, and the slices that it makes: ranges of cells.

    Attributes:
        name: Of the column.
        codes: The cell of each row.
        cells: How many there are.
        low: The first cell of each slice.
        high: The cell after its last.
        words: What each is called, and its SQL.
        left_out: What of the column is not searched, if anything.
    """

    name: str
    codes: NDArray[np.uint8]
    cells: int
    low: _Ints
    high: _Ints
    words: list[tuple[str, str]]
    left_out: str

    @cached_property
    def ranges(self) -> Floats:
        """1 where a slice has a cell; shape (cells, slices)."""
        cell = np.arange(self.cells)[:, None]
        return ((cell >= self.low) & (cell < self.high)).astype(np.float64)

    def rows(self, which: int) -> _Rows:
        """Whether each row is in the slice."""
        rows: _Rows = (self.codes >= self.low[which]) & (self.codes < self.high[which])
        return rows


def _column(name: str, column: pa.Array, bins: int, min_examples: int) -> _CutColumn | str:
    """The slices of a column that have enough rows within and without; why there are none."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = column.type
    if pa.types.is_null(kind) or _is_text(kind) or pa.types.is_boolean(kind):
        cut = _by_value(name, column)
    elif pa.types.is_decimal(kind) or pa.types.is_floating(kind):
        cut = _by_range(name, column.cast(pa.float64()), bins)
    elif pa.types.is_integer(kind) or pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        cut = _by_range(name, column, bins)
    else:
        return f"{kind} makes no slices"
    if isinstance(cut, str):
        return cut
    codes, slices, left_out = cut
    cells = int(max(high for _, high, *_ in slices)) + 1
    below = np.concatenate([[0], np.cumsum(np.bincount(codes, minlength=cells))])
    slices = [each for each in slices if min_examples <= below[each[1]] - below[each[0]] <= len(codes) - min_examples]
    if not slices:
        return f"no value or range has {min_examples:,} rows within and without"
    low, high = (np.array([each[end] for each in slices], dtype=np.int64) for end in (0, 1))
    return _CutColumn(name, codes.astype(np.uint8), cells, low, high, [each[2:] for each in slices], left_out)


_Cut: TypeAlias = tuple[_Ints, list[tuple[int, int, str, str]], str]
"""The cell of each row; the slices: the first cell, that after the last, name and SQL; what is not among them."""


def _by_value(name: str, column: pa.Array) -> _Cut | str:
    index, values = encode_column(name, column)
    if len(values) > _MOST_DISTINCT:
        return f"{len(values):,} distinct values"
    counts = np.bincount(index, minlength=len(values))
    frequent = np.argsort(-counts, kind="stable")[:_MOST_VALUES]
    cell = np.full(len(values), len(frequent))  # the others have a cell, and are no slice
    cell[frequent] = np.arange(len(frequent))
    quoted = _quoted(name)
    slices = []
    for number, which in enumerate(frequent.tolist()):
        value = values[which]
        if value is None:
            sql = f"{quoted} IS NULL"
        elif isinstance(value, bool):
            sql = f"{quoted} = {str(value).lower()}"
        else:
            text = str(value).replace("'", "''")
            sql = f"{quoted} = '{text}'"
        slices.append((number, number + 1, f"{name}={MISSING if value is None else value}", sql))
    left_out = f"all but the {_MOST_VALUES} most frequent of {len(values):,} values"
    return cell[index], slices, left_out if len(values) > _MOST_VALUES else ""


def _by_range(name: str, column: pa.Array, bins: int) -> _Cut | str:
    """Cells of equal count, those of few distinct values of one value each; slices are ranges of adjacent ones."""
    valid = numpy_of(pc.fill_null(column.is_valid(), False))
    values = numpy_of(column)
    floats = values.dtype.kind == "f"
    if floats:
        valid = valid & ~np.isnan(values)
    distinct, counts = np.unique(values[valid], return_counts=True)
    if len(distinct) <= bins:
        starts = np.arange(len(distinct))
    else:
        share = int(valid.sum()) / bins
        ends = np.searchsorted(np.cumsum(counts), share * np.arange(1, bins)) + 1
        heavy = np.flatnonzero(counts >= share)  # a cell each
        starts = np.unique(np.concatenate([[0], ends, heavy, heavy + 1]))
        starts = starts[starts < len(distinct)]
        if floats:
            starts = _rounded(starts, distinct, counts, heavy, int(share / 100))
    codes = np.full(len(values), len(starts))
    codes[valid] = np.searchsorted(distinct[starts], values[valid], side="right") - 1
    literal = _literals(column.type)
    quoted = _quoted(name)
    not_nan = f" AND NOT isnan({quoted})" if floats else ""  # which DuckDB takes for the largest number
    bounds = [
        literal(_short(distinct[start - 1], distinct[start], distinct[start]) if floats and start else distinct[start])
        for start in starts.tolist()
    ]
    alone = np.diff([*starts.tolist(), len(distinct)]) == 1
    slices = []
    for low, high in itertools.combinations(range(len(starts) + 1), 2):
        if (low, high) == (0, len(starts)):
            slices.append((low, high, f"{name} not missing", f"{quoted} IS NOT NULL{not_nan}"))
        elif high == low + 1 and alone[low]:
            text, sql = literal(distinct[starts[low]])
            slices.append((low, high, f"{name}={text}", f"{quoted} = {sql}"))
        elif high == len(starts):
            text, sql = bounds[low]
            slices.append((low, high, f"{name} >= {text}", f"{quoted} >= {sql}{not_nan}"))
        elif low == 0:
            text, sql = bounds[high]
            slices.append((low, high, f"{name} < {text}", f"{quoted} < {sql}"))
        else:
            (least, least_sql), (most, most_sql) = bounds[low], bounds[high]
            slices.append(
                (low, high, f"{least} <= {name} < {most}", f"{quoted} >= {least_sql} AND {quoted} < {most_sql}")
            )
    nan = f" OR isnan({quoted})" if floats else ""
    slices.append((len(starts), len(starts) + 1, f"{name}={MISSING}", f"({quoted} IS NULL{nan})"))
    return codes, slices, ""


def _literals(kind: pa.DataType) -> Callable[[Any], tuple[str, str]]:
    """What a value of a column is called, and its SQL."""
    if pa.types.is_floating(kind):
        return _number_literal
    if pa.types.is_integer(kind):
        return lambda value: (str(value), str(value))
    if pa.types.is_date32(kind):
        return lambda value: (str(np.datetime64(int(value), "D")), f"DATE '{np.datetime64(int(value), 'D')}'")
    word, zone = ("TIMESTAMP", "") if kind.tz is None else ("TIMESTAMPTZ", "+00")

    def of_time(value: Any) -> tuple[str, str]:
        text = str(np.datetime64(int(value), kind.unit)).replace("T", " ")
        return text.removesuffix(".000") + zone, f"{word} '{text}{zone}'"

    return of_time


def _number_literal(value: Any) -> tuple[str, str]:
    text = repr(float(value))
    if not math.isfinite(value):
        return text, f"CAST('{text}' AS DOUBLE)"
    # With an exponent it is a DOUBLE; without one it would be a DECIMAL, which may become another double.
    return text.removesuffix(".0"), text if "e" in text else f"{text}e0"


def _rounded(starts: _Ints, distinct: Floats, counts: _Ints, heavy: _Ints, slack: int) -> _Ints:
    """Cells that begin at numbers of few figures; so many rows may change cells for it, and heavy values stay alone."""
    below = np.cumsum(counts) - counts
    fixed = {0, *heavy.tolist(), *(heavy + 1).tolist()}
    rounded = []
    for start in starts.tolist():
        if start not in fixed:
            least = int(np.searchsorted(below, below[start] - slack))
            most = int(np.searchsorted(below, below[start] + slack, side="right")) - 1
            bound = _short(distinct[min(least, start - 1)], distinct[start], distinct[most])
            start = int(np.searchsorted(distinct, bound))
        rounded.append(start)
    return np.unique(rounded)


def _short(before: float, value: float, most: float) -> float:
    """The number of the fewest figures near a value that is more than one number, and not more than another."""
    for figures in range(1, 18):
        short = float(f"{value:.{figures}g}")
        if before < short <= most:
            return short
    return value


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _is_text(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


_Cross: TypeAlias = tuple[tuple[int, int], ...]
"""A slice: column and value, by their numbers."""


class _SliceSearch:
    """The slices of columns, and those of them that are worse.

    A row's loss enters as x = w·(loss − mean loss), scaled to a variance of 1; its mean is 0. A slice is worse than the
    rest where its Σx is too large for chance.

    Attributes:
        columns: What slices are made of.
        counts: For each number of columns, how many slices there could be: an upper bound, known before the search.
    """

    def __init__(
        self, columns: Sequence[_CutColumn], rows: int, max_columns: int, min_examples: int, level: float, effect: float
    ) -> None:
        self.columns = columns
        self.rows = rows
        self.min_examples = min_examples
        self.min_effect = effect
        self.level = level
        self.max_columns = max(min(max_columns, len(columns)), 1)
        sizes = [len(column.words) for column in columns]
        self.counts = [
            sum(math.prod(some) for some in itertools.combinations(sizes, width))
            for width in range(1, self.max_columns + 1)
        ]
        self._empty: set[tuple[int, ...]] = set()  # sets of columns no cross of which has enough rows

    def alpha(self, width: int) -> float:
        """The p-value that a slice of so many columns must not exceed."""
        return self.level / self.max_columns / max(self.counts[width - 1], 1)

    def worst(self, loss: Floats, weight: Floats) -> Iterator[WorseSlice]:
        """The slices that are worse; each is tested on what those before it leave."""
        left = loss.copy()
        while True:
            x = weight * (left - np.average(left, weights=weight))
            x = x - x.mean()
            spread = float(x.std())
            if not spread > 1e-12 * float(np.abs(left).max()) * float(weight.max()):
                return
            best = self._best(_Evidence(x / spread, loss, weight))
            if best is None:
                return
            cross, p_value = best
            rows = self.rows_of(cross)
            yield self._finding(cross, rows, p_value, loss, weight)
            inner = np.average(left[rows], weights=weight[rows])
            left[rows] -= inner - np.average(left[~rows], weights=weight[~rows])

    def rows_of(self, cross: _Cross) -> _Rows:
        """Whether each row is in the slice."""
        rows = np.ones(self.rows, dtype=np.bool_)
        for column, which in cross:
            rows &= self.columns[column].rows(which)
        return rows

    def _finding(self, cross: _Cross, rows: _Rows, p_value: float, loss: Floats, weight: Floats) -> WorseSlice:
        words = [self.columns[column].words[which] for column, which in cross]
        inner, rest = (float(np.average(loss[some], weights=weight[some])) for some in (rows, ~rows))
        return WorseSlice(
            ", ".join(text for text, _ in words),
            " AND ".join(sql for _, sql in words),
            tuple(self.columns[column].name for column, _ in cross),
            int(rows.sum()),
            float(weight[rows].sum() / weight.sum()),
            inner,
            rest,
            _effect_of(rows, loss, weight),
            p_value,
        )

    def _best(self, evidence: _Evidence) -> tuple[_Cross, float] | None:
        """The slice of the strongest evidence that passes all tests, and its p-value, corrected."""
        candidates = [item for width in range(1, self.max_columns + 1) for item in self.candidates(evidence, width)]
        # Of the same rows, the slice of the fewest columns.
        candidates.sort(key=lambda item: (-round(item[0], 9), len(item[1])))
        for _, cross in candidates:
            p_value = self._p_value(cross, evidence)
            if p_value is not None:
                return self._simplest(cross, p_value, evidence)
        return None

    def _p_value(self, cross: _Cross, evidence: _Evidence) -> float | None:
        """Corrected for all slices; None where it is not small enough, or the effect not large enough."""
        rows, x = self.rows_of(cross), evidence.x
        powers, rest = _powers(x[rows]), _powers(x[~rows])
        welch, effect_left = _welch(powers, rest)
        p_value = max(float(welch), evidence.permutation.p_value(int(powers[0]), float(powers[1])))
        effect = min(float(effect_left), _effect_of(rows, evidence.loss, evidence.weight))
        alpha = self.alpha(len(cross))
        return p_value * self.level / alpha if p_value <= alpha and effect >= self.min_effect else None

    def _simplest(self, cross: _Cross, p_value: float, evidence: _Evidence) -> tuple[_Cross, float]:
        """The slice of fewer columns around a cross, where the cross is not clearly worse than the rest of it."""
        rows, x = self.rows_of(cross), evidence.x
        parents = []
        for parent in itertools.combinations(cross, len(cross) - 1) if len(cross) > 1 else ():
            rest = self.rows_of(parent) & ~rows
            apart = float(_welch(_powers(x[rows]), _powers(x[rest]))[0]) if rest.sum() > 1 else 1.0
            if apart > self.level / max(self.counts[0], 1):
                parents.append((-apart, parent))
        for _, parent in sorted(parents):
            corrected = self._p_value(parent, evidence)
            if corrected is not None:
                return self._simplest(parent, corrected, evidence)
        return cross, p_value

    def candidates(self, evidence: _Evidence, width: int) -> Iterator[tuple[float, _Cross]]:
        """Slices of so many columns that pass all but the permutation test, and the z-scores of their Σx.

        Of the slices of the same columns, those with the largest z-scores, `_KEPT` at most.
        """
        x, alpha = evidence.x, self.alpha(width)
        least = -float(ndtri(alpha))
        alive = [np.flatnonzero(_reach(column, x, self.min_examples) >= least) for column in self.columns]
        for numbers in itertools.combinations(range(len(self.columns)), width):
            if not all(len(alive[number]) for number in numbers) or self._is_empty(numbers):
                continue
            columns = [self.columns[number] for number in numbers]
            shape = [column.cells for column in columns]
            cell = columns[0].codes.astype(np.intp)
            for column in columns[1:]:
                cell *= column.cells
                cell += column.codes
            ranges = [column.ranges[:, alive[number]] for number, column in zip(numbers, columns, strict=True)]

            def sums(weights: Floats | None) -> Floats:
                return _sums(np.bincount(cell, weights, math.prod(shape)).reshape(shape), ranges)  # noqa: B023

            n = sums(None)
            enough = (n >= self.min_examples) & (n <= self.rows - self.min_examples)
            if not enough.any():
                if all(len(alive[number]) == len(self.columns[number].words) for number in numbers):
                    self._empty.add(numbers)
                continue
            total = sums(x)
            z = np.full(n.shape, -np.inf)
            z[enough] = total[enough] / np.sqrt(n[enough] * (1 - n[enough] / self.rows))
            hits = np.nonzero(z >= least)
            if len(hits[0]):
                powers = np.array([n[hits], total[hits], *(sums(power)[hits] for power in evidence.more_powers)])
                p_value, effect = _welch(powers, evidence.powers[:, None] - powers)
                hits = tuple(axis[(p_value <= alpha) & (effect >= self.min_effect)] for axis in hits)
            if len(hits[0]):
                losses = np.array([sums(term)[hits] for term in evidence.loss_terms])
                effect = _effect(losses, evidence.loss_sums[:, None] - losses)
                hits = tuple(axis[effect >= self.min_effect] for axis in hits)
            for hit in np.argsort(-z[hits], kind="stable")[:_KEPT].tolist():
                values = [int(axis[hit]) for axis in hits]
                yield (
                    float(z[tuple(values)]),
                    tuple((number, int(alive[number][value])) for number, value in zip(numbers, values, strict=True)),
                )

    def _is_empty(self, numbers: Collection[int]) -> bool:
        return any(some in self._empty for some in itertools.combinations(numbers, len(numbers) - 1))


def _sums(table: NDArray[Any], ranges: Sequence[Floats]) -> Floats:
    """The sums over every combination of ranges of cells, out of a table of cells."""
    for some in ranges:  # the first axis goes, and its ranges come last
        table = np.tensordot(table, some, axes=(0, 0))
    return table


def _reach(column: _CutColumn, x: Floats, min_examples: int) -> Floats:
    """For each slice of a column, a bound of the z-score of any cross within it (the bound of SliceLine).

    Σx over n of its rows is at most the sum of all that are positive, and at most n times the largest. The first bound
    falls with n up to half of all rows, and rises beyond; the second rises: so the most is where both meet, or at
    the end.
    """
    rows = len(x)
    positive = np.bincount(column.codes, np.maximum(x, 0), column.cells) @ column.ranges
    count = np.bincount(column.codes, minlength=column.cells) @ column.ranges
    most = np.full(column.cells, -np.inf)
    np.maximum.at(most, column.codes, x)
    largest = np.array([most[low:high].max() for low, high in zip(column.low, column.high, strict=True)])

    def bound(n: NDArray[Any]) -> Floats:
        reach: Floats = np.minimum(positive, n * largest) / np.sqrt(n * (1 - n / rows))
        return reach

    last = np.minimum(count, rows - min_examples)
    meet = np.clip(positive / np.maximum(largest, 1e-300), min_examples, last)
    return np.maximum(bound(meet), bound(last))


def _powers(x: Floats) -> Floats:
    """Rows, Σx, Σx² and Σx³; shape (4,)."""
    return np.array([len(x), x.sum(), (x * x).sum(), (x * x * x).sum()])


def _welch(powers: Floats, rest: Floats) -> tuple[Floats, Floats]:
    """The p-value of Welch's one-sided test that the mean of x is not larger within, and the effect size.

    Losses are skewed, so that t alone finds too little or, of slices in which most rows are wrong, too much: it is
    transformed by its skewness (Hall 1992, "On the Removal of Skewness by Transformation").

    Args:
        powers: See `_powers`, of each slice; shape (4, …).
        rest: Of the rows that it is compared with.
    """
    sides = []
    for n, first, second, third in (powers, rest):
        mean = first / n
        variance = np.maximum(second / n - mean**2, 0)
        sides.append((n, mean, variance, third / n - 3 * mean * variance - mean**3))
    (n, mean, variance, skew), (m, rest_mean, rest_variance, rest_skew) = sides
    a, b = variance / (n - 1), rest_variance / (m - 1)
    apart = mean - rest_mean
    with np.errstate(divide="ignore", invalid="ignore"):
        t = apart / np.sqrt(a + b)
        df = (a + b) ** 2 / (a**2 / (n - 1) + b**2 / (m - 1))
        skewness = (skew / n**2 - rest_skew / m**2) / (a + b) ** 1.5
        t = t + skewness * t**2 / 3 + skewness**2 * t**3 / 27 + skewness / 6
        effect = apart / np.sqrt((variance + rest_variance) / 2)
        p_value = stdtr(df, -t)
    # Where no loss varies, any difference is sure: the permutation test decides.
    varies = a + b > 0
    return np.where(varies, p_value, apart <= 0), np.where(varies, effect, np.where(apart > 0, np.inf, 0))


def _effect(sums: Floats, rest: Floats) -> Floats:
    """The difference of mean losses in standard deviations; of Σw, Σw·loss and Σw·loss² within and without, (3, …)."""
    (mean, variance), (rest_mean, rest_variance) = (
        (first / weight, np.maximum(second / weight - (first / weight) ** 2, 0))
        for weight, first, second in (sums, rest)
    )
    spread = np.sqrt((variance + rest_variance) / 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(mean > rest_mean, (mean - rest_mean) / spread, np.minimum(mean - rest_mean, 0)))


def _effect_of(rows: _Rows, loss: Floats, weight: Floats) -> float:
    terms = _loss_terms(loss, weight)
    return float(_effect(*(np.array([float(term[some].sum()) for term in terms]) for some in (rows, ~rows))))


def _loss_terms(loss: Floats, weight: Floats) -> tuple[Floats, Floats, Floats]:
    centred = loss - np.average(loss, weights=weight)  # or else the squares would cancel
    return weight, weight * centred, weight * centred**2


class _Evidence:
    """What a pass of the search looks at.

    Attributes:
        x: What each row adds to the evidence; of mean 0 and variance 1.
        loss: The loss of each row, as it was.
        weight: Its weight.
    """

    def __init__(self, x: Floats, loss: Floats, weight: Floats) -> None:
        self.x, self.loss, self.weight = x, loss, weight
        self.more_powers = (x * x, x * x * x)
        self.powers = _powers(x)
        self.loss_terms = _loss_terms(loss, weight)
        self.loss_sums = np.array([term.sum() for term in self.loss_terms])
        self.permutation = _Permutation(x)


class _Permutation:
    """The chance that as many rows, drawn at random, have as large a sum: the permutation test, by saddlepoint.

    Welch's test alone calls a slice worse whose few losses happen to be alike; here the rows are a draw without
    replacement from all. Rows are in or out by independent coins, given how many are in: the double saddlepoint
    approximation (Skovgaard 1987; Booth and Butler 1990), which is a logistic regression of membership on x.
    """

    def __init__(self, x: Floats) -> None:
        _, group = np.unique(np.rint(x / _STEP), return_inverse=True)
        self.counts = np.bincount(group).astype(np.float64)
        self.values = np.bincount(group, x) / self.counts
        self.rows = len(x)

    def p_value(self, n: int, total: float) -> float:
        """The chance that Σx over n rows is at least this much."""
        if total <= 0:
            return 1.0
        if len(self.values) == 2:  # where the approximation, which is of a continuous sum, is half of the chance
            from scipy.stats import hypergeom  # late: slow to import, and seldom needed

            low, high = self.values
            return float(hypergeom.sf(round((total - n * low) / (high - low)) - 1, self.rows, self.counts[1], n))
        c, g, base = self.counts, self.values, math.log(n / (self.rows - n))
        share = n / self.rows
        point, height = np.zeros(2), 0.0  # of n·s + Σ·t − K(s, t), which is concave; K is 0 at 0
        hessian = np.eye(2)
        for _ in range(60):
            odds = base + point[0] + point[1] * g
            chance = expit(odds)
            spread = c * chance * (1 - chance)
            gradient = np.array([n - (c * chance).sum(), total - (c * chance * g).sum()])
            hessian = np.array([[spread.sum(), (spread * g).sum()], [(spread * g).sum(), (spread * g * g).sum()]])
            if np.abs(gradient).max() < 1e-7 * max(n, 1):
                break
            determinant = float(np.linalg.det(hessian))
            if not determinant > 1e-12:  # the largest sum there is, or nearly: what is reached bounds the chance
                break
            step = np.linalg.solve(hessian, gradient)
            for halving in range(40):
                trial = point + step * 0.5**halving
                cumulant = float(
                    (c * (np.logaddexp(math.log1p(-share), math.log(share) + trial[0] + trial[1] * g))).sum()
                )
                reached = float(n * trial[0] + total * trial[1] - cumulant)
                if reached > height:
                    break
            else:
                break
            point, height = trial, reached
        w = math.sqrt(2 * max(height, 0.0))
        u = float(point[1]) * math.sqrt(max(float(np.linalg.det(hessian)), 0.0) / (self.rows * share * (1 - share)))
        if w < 1e-3:
            return 0.5
        correction = math.exp(-0.5 * w * w) / math.sqrt(2 * math.pi) * (1 / u - 1 / w) if u > 0 else 0.0
        return min(max(float(ndtr(-w)) + correction, 0.0), 1.0)
