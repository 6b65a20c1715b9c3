"""The metrics as an accumulator: rows of small slices as they are, the states of metrics for large ones."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...data.aggregates.sums import ExactSum
from ...data.arrays import arrow_of, numpy_of
from ...data.rowhash import hash_column
from ...data.slices import SliceKey, SliceTable, key_text, rank_of, shown_value, title
from ...data.states import StateFormat, read_arrays, write_arrays
from ...errors import InputError
from .cells import by_code, in_order_of_code
from .checks import Problems, check_classes, labels_of, queries_of, scores_of, weights_of
from .confidence import hash_of
from .config import EvaluationConfig
from .definitions import Metric, Result, checked
from .intervals import between, bucketed_states, intervals_between, intervals_of
from .plots import plots_of
from .row_table import SUMMED, RowTable, joined
from .rows import SliceRows
from .slicing import encode_cells
from .states import Leaves, MetricState

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_STATE: Final = StateFormat("metrics state", b"DTEV", 5, "QQ", "evaluate again")  # JSON, the rows kept, the leaves
CANDIDATE: Final = "candidate"
BASELINE: Final = "baseline"
_AT_ONCE: Final = 1 << 19  # rows that are put into their slices together
_KEPT_BYTES: Final = 1 << 24  # of the rows that are kept until the large ones of their slices are summed up
_NEW: Final = 1 << 18  # rows that are summed early together
_SLICES: Final = 1024  # slices whose sums are at hand together
_ROWS_OF_A_SLICE: Final = 1024  # from which on a slice's sums cost little beside those of its rows
_SPARSE: Final = 4096  # elements from which an array that is mostly zeros is written as positions and values

_Group: TypeAlias = tuple[Mapping[str, Any], int, list[dict[MetricState, Any]]]
"""A slice as column → value, its rows, and for each model what its metrics between slices are computed from."""


class MetricsAccumulator:
    """Every metric of every slice in one pass. Takes the batches that `Scores` makes.

    Equal rows give equal results and equal bytes however they were split and merged. (Intervals, and with weights
    slices of more than `exact_rows` rows: for the same shards along the same tree.)

    Args:
        config: What to measure. With queries, all documents of one must be in one shard, or no slice may have more
            than `exact_rows` rows.
        baseline: Whether the batches hold the baseline's predictions as well.
        plots: Whether anything is drawn. The bytes of a state without plots are read by `load` of another without.
    """

    def __init__(self, config: EvaluationConfig, baseline: bool = False, *, plots: bool = True) -> None:
        self.config = config
        self.plots = plots
        self.models = (CANDIDATE, BASELINE) if baseline else (CANDIDATE,)
        self.rows = 0
        self._metrics: dict[str, Metric] = config.measures
        self._plots = plots_of(config.task, self._metrics) if plots else {}
        # Metrics whose states are equal share one. Only the overall slice, the first of all specs, is drawn.
        states = dict.fromkeys(metric.state for metric in self._metrics.values())
        states |= dict.fromkeys(bucketed_states(config, self._metrics).values())
        drawn = states | dict.fromkeys(plot.state for plot in self._plots.values())
        self._states: list[tuple[MetricState, ...]] = [tuple(states if spec else drawn) for spec in config.specs]
        self._in_order = config.weight is not None or not all(state.any_order for state in drawn)  # sums depend on it
        self._limit = None if any(state.keeps_rows for state in drawn) else config.exact_rows
        self._slices = SliceTable(config.specs)
        self._counts = np.zeros(0, dtype=np.int64)
        self._kept: list[RowTable] = []  # in no state but the sums of `_early`
        self._new: list[RowTable] = []  # likewise, and not in these either
        self._unspilled = 0  # bytes of the rows kept since slices were last turned into states
        self._widths: dict[str, int] = {}  # values in a row, of labels and predictions that have several
        self._leaves: dict[int, list[list[Leaves | None]]] = {}  # code → for each model, for each state
        self._spilled: set[int] = set()  # the slices with too many rows to keep
        self._early = False  # whether the exact sums of all slices have the rows kept
        self._waiting: list[RowTable] = []  # rows that are neither kept nor summed up yet, nor counted
        self._waiting_rows = 0
        self._problems = Problems()
        self._unusable = 0  # rows of this process that have a problem

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Take in scored rows; what cannot be judged is counted and reported by `result`.

        A column `key` stands for the row's position in what intervals draw by.
        """
        config = self.config
        columns = {name: batch.column(f"slice:{name}") for name in config.slice_columns}
        table: dict[str, NDArray[Any]] = {}
        table["label"], fine = labels_of(batch.column("label"), config, self._problems, self.rows)
        for model in self.models:
            name = f"{config.prediction!r} of the {model}"
            table[model], usable = scores_of(batch.column(model), name, config, self._problems, self.rows)
            fine &= usable
        if config.weight is not None:
            table["weight"], known = weights_of(batch.column("weight"), config.weight, self._problems, self.rows)
            fine &= known
        if config.query is not None:
            table["query"], known = queries_of(batch.column("query"), config.query, self._problems, self.rows)
            fine &= known
        if table[CANDIDATE].ndim == 2:
            fine &= check_classes(table["label"], table[CANDIDATE], config, self._problems, self.rows)
        if fine.any():  # how many values a row has is not known where all are missing
            self._check_widths(
                {name: table[name].shape[1] for name in ("label", *self.models) if table[name].ndim == 2}
            )
        if config.confidence is not None:
            hashes = table.get("query")
            if hashes is None and "key" in batch.schema.names:
                hashes = hash_column(batch.column("key"))
            if hashes is None:
                hashes = hash_of(self.rows, [table["label"], table[CANDIDATE]])  # the same with a baseline and without
            table["bucket"] = config.resampling.bucket_of(hashes)
        self.rows += batch.num_rows
        self._unusable += int((~fine).sum())
        positions, cell, codes = encode_cells(self._slices, columns, batch.num_rows, config.expressions)
        if positions is not None:
            table = {name: values.take(positions, axis=0) for name, values in table.items()}
            fine = fine[positions]
        self._waiting.append(RowTable(table, cell, codes).where(fine))
        self._waiting_rows += len(cell)
        # A slice's share of a batch is small, and a sum over few rows costs hardly less than one over many. A query may
        # go on in the next batch of its shard: slices of queries are summed up at its end.
        if self._waiting_rows >= _AT_ONCE and config.query is None:
            self._settle()

    def _check_widths(self, widths: Mapping[str, int]) -> None:
        for name, width in widths.items():
            before = self._widths.setdefault(name, width)
            if before != width:
                what = f"label {self.config.label!r}" if name == "label" else f"prediction {self.config.prediction!r}"
                raise InputError(
                    f"{what} has {before} values in some rows and {width} in others", fix="return as many in each row"
                )
        if len({self._widths[model] for model in self.models if model in self._widths}) > 1:
            raise InputError("the baseline's predictions have another number of classes than the candidate's")

    def merge(self, other: Self) -> None:
        """Add the state of the rows that follow: quoted rows of problems are numbered after ours.

        Raises:
            InputError: Its rows have another number of classes.
        """
        self._check_widths(other._widths)
        self._settle()
        other._settle()
        self._problems.merge(other._problems, self.rows)
        self.rows += other.rows
        renumber = np.array([*(self._slices.code(key) for key in other._slices.codes), SUMMED], dtype=np.int32)
        early = (self._early or other._early) and len(self._slices) <= _SLICES
        for side in (self, other):
            side._sum_early(early)
        self._count()
        np.add.at(self._counts, renumber[:-1], other._counts)
        spilled = {int(renumber[old]) for old in other._spilled}
        if self._in_order:
            self._spill(spilled)  # a state has no rows to give back, so this side becomes one too
        self._spilled |= spilled
        states_of = self._states_by_code()
        for old, theirs in other._leaves.items():
            code = int(renumber[old])
            mine = self._leaves.setdefault(code, theirs)
            if mine is not theirs:
                self._leaves[code] = [
                    [_merged(state, *pair) for state, *pair in zip(states_of[code], *by_state, strict=True)]
                    for by_state in zip(mine, theirs, strict=True)
                ]
        # Rows of a slice that is summed up on this side join it: its count is beyond `exact_rows` already. They come in
        # canonical order where float sums depend on it: to sort them in every merge takes as long as to measure them.
        if self._in_order:
            for table in other._sorted():
                self._keep(table.renumbered(renumber))
        else:
            self._kept += [table.renumbered(renumber) for table in other._kept]
            self._new += [table.renumbered(renumber) for table in other._new]
            self._unspilled += sum(table.nbytes for table in (*other._kept, *other._new))
            self._sum_new()
        self._spill_large()

    def set_aside(self) -> tuple[int, list[tuple[str, int, str]]]:
        """Leave out the rows that cannot be judged, which `result` then does not report.

        Returns:
            How many they were, and of each kind of problem the first row and its value.
        """
        first = [(kind, *quoted[0]) for kind, (_, quoted) in self._problems.kinds.items()]
        unusable, self._unusable = self._unusable, 0
        self.rows -= unusable
        self._problems = Problems()
        return unusable, first

    def _settle(self) -> None:
        """Keep the rows that wait, or sum them up, as their slices are."""
        self._count()
        waiting, self._waiting, self._waiting_rows = joined(self._waiting), [], 0
        for table in waiting:
            self._counts += np.array(table.cells(len(self._slices), by_bucket=False).counts(), dtype=np.int64)
            if self._early and self._in_order:
                self._sum_up(table, early=True)
            self._keep(table)
        rows = sum(map(len, self._kept))
        if len(self._slices) <= _SLICES and rows >= _ROWS_OF_A_SLICE * len(self._slices):
            self._sum_early(True)
        self._sum_new()
        self._spill_large()

    def _count(self) -> None:
        """Make room for the counts of all slices."""
        missing = len(self._slices) - len(self._counts)
        self._counts = np.concatenate([self._counts, np.zeros(missing, dtype=np.int64)])

    def _keep(self, table: RowTable) -> None:
        """Keep rows that are counted, and summed up where that is done early."""
        if self._in_order and self._spilled:
            mine, table = table.split(self._spilled, len(self._slices))
            self._sum_up(mine)
        if len(table):
            (self._new if self._early and not self._in_order else self._kept).append(table)
            self._unspilled += table.nbytes

    def _sum_early(self, early: bool) -> None:
        """Have the rows of all slices, kept or not, in their exact sums; or those of rows that are kept in none.

        Where slices are few, all take as long as one, and rows come to be summed once. Of many, sums would take more
        memory than their rows.
        """
        if early == self._early:
            return
        if early:
            self._new, self._kept = self._kept, []
            self._sum_new(all_rows=self._in_order)
        else:
            self._spill(())
            self._leaves = {code: leaves for code, leaves in self._leaves.items() if code in self._spilled}
        self._early = early

    def _sum_new(self, *, all_rows: bool = False) -> None:
        """Put rows into the sums of `_early`: all, or as soon as their slices cost little beside them."""
        if self._new and (all_rows or sum(map(len, self._new)) >= _NEW):
            for table in joined(self._new):
                self._sum_up(table, early=True)
                self._kept.append(table)
            self._new = []

    def _spill_large(self, *, all_rows: bool = False) -> None:
        """Turn large slices into states; soon enough to bound the memory, or all of them."""
        # To do so takes long for few rows. But where sums depend on the order of rows, it depends on nothing else.
        if self._limit is not None and (all_rows or self._in_order or self._unspilled >= _KEPT_BYTES):
            self._spill(np.flatnonzero(self._counts > self._limit).tolist())

    def _spill(self, codes: Iterable[int]) -> None:
        """Turn slices into states, the rows kept so far included; further rows of them are only added to these."""
        new = {code for code in codes if code not in self._spilled}
        chosen = new if self._in_order else new | self._spilled  # of these, rows may have been kept
        self._unspilled = 0
        self._sum_new(all_rows=True)
        if not chosen:
            return
        self._spilled |= new
        if len(self._kept) == 1 and self._in_order:
            self._kept = self._sorted()  # those that stay come to be sorted too: here it is done once for both
        pairs = [table.split(chosen, len(self._slices)) for table in self._kept]
        self._kept = [rest for _, rest in pairs if len(rest)]
        for table in joined([mine for mine, _ in pairs if len(mine)]):
            self._sum_up(self._ordered(table) if self._in_order else table)

    def _states_by_code(self) -> list[tuple[MetricState, ...]]:
        return [self._states[spec] for spec, _ in self._slices.codes]

    def _sum_up(self, table: RowTable, *, early: bool = False) -> None:
        """Add rows to the states of their slices, each slice's in their order.

        Args:
            table: The rows, and their slices.
            early: To the exact sums alone; else, where these have them already, to all others.
        """
        if not len(table):
            return
        rows = [self._view(table, model) for model in range(len(self.models))]
        cells = table.cells(len(self._slices), by_bucket=not early)
        states_of = self._states_by_code()
        present = [code for code, count in enumerate(cells.counts()) if count]
        for code in present:
            if code not in self._leaves:
                self._leaves[code] = [[None] * len(states_of[code]) for _ in self.models]

        def wanted(state: MetricState) -> bool:
            return _is_early(state) if early else not (self._early and _is_early(state))

        def leaves_of(code: int, model: int, index: int) -> Leaves:
            leaves = self._leaves[code][model]
            known = leaves[index]
            if known is None:
                known = leaves[index] = states_of[code][index].init()
            return known

        with np.errstate(all="ignore"):  # what overflows becomes infinite, and the metric undefined
            for (index, state), (model, each) in itertools.product(enumerate(self._states[0]), enumerate(rows)):
                if state.by_cells and wanted(state):
                    having = [code for code in present if index < len(states_of[code])]
                    state.add_each({code: leaves_of(code, model, index) for code in having}, each, cells)
            for spec, states in enumerate(self._states):
                rest = [(index, state) for index, state in enumerate(states) if not state.by_cells and wanted(state)]
                for code, which in by_code(table.column(spec)) if rest else ():
                    for model, each in enumerate(rows):
                        part = each.take(which)
                        for index, state in rest:
                            self._leaves[code][model][index] = state.add(leaves_of(code, model, index), part)

    def _view(self, table: RowTable, model: int) -> SliceRows:
        """The rows as the metrics of a model see them."""
        columns = table.columns
        before = columns[BASELINE] if model == 0 and len(self.models) > 1 else None
        score, others = columns[self.models[model]], (columns.get("bucket"), columns.get("query"))
        if "weight" in columns:
            return SliceRows(columns["label"], score, columns["weight"], before, *others)
        return SliceRows.of_weight_1(columns["label"], score, before, *others)

    def compact(self) -> None:
        """Bound the size of the state."""
        # Tables of rows take as much memory apart as joined: they are joined once, where they are needed.
        if self.config.query is None:
            self._settle()

    def _sorted(self) -> list[RowTable]:
        """The rows kept, in canonical order: whatever way equal rows came in, they stand alike."""
        return [self._ordered(table) for table in joined(self._kept)]

    def _ordered(self, table: RowTable, *, ties: bool = True) -> RowTable:
        return table.by_score([*self.models, "label", "weight", "query", "bucket"], ties=ties)

    def _canonical(self, *, ties: bool = True) -> None:
        """Put the state into the form that `to_bytes` writes: one table of sorted rows, slices numbered by value.

        Without `ties`, rows of the same score stand in any order.
        """
        self._settle()
        self._sum_new(all_rows=True)
        self._spill_large(all_rows=True)
        renumber = self._slices.sort()
        counts = np.empty_like(self._counts)
        counts[renumber] = self._counts
        self._counts = counts
        self._leaves = dict(sorted((int(renumber[code]), leaves) for code, leaves in self._leaves.items()))
        self._spilled = {int(renumber[code]) for code in self._spilled}
        of_code = np.append(renumber, SUMMED).astype(np.int32)
        self._kept = [self._ordered(table.renumbered(of_code), ties=ties) for table in joined(self._kept)]

    def measured(self) -> Iterator[tuple[list[tuple[str, Any]], int, bool, list[dict[MetricState, Any]]]]:
        """Each slice, the overall one first, with what its metrics are computed from.

        Slices that are withheld are left out.

        Yields:
            The slice as (column, value) pairs, its rows, whether they are all at hand, and for each model a mapping of
            state to what it gives.
        """
        self._canonical(ties=self._in_order)
        keys = list(self._slices.codes)
        together: dict[int, list[dict[MetricState, Any]]] = {}
        for spec, states in enumerate(self._states):
            codes = [code for code, key in enumerate(keys) if key[0] == spec]
            alone = [state for state in states if not state.exact_by_cells]
            kept = [self._by_slice(model, spec, codes) if alone else [] for model in range(len(self.models))]
            for position, code in enumerate(codes):
                pairs, count = self._slices.pairs(keys[code]), int(self._counts[code])
                if code not in self._spilled and code not in together:
                    together = self._together(keys[code : code + _SLICES], code)
                if self._too_small(pairs, count):
                    continue
                with np.errstate(all="ignore"):
                    if code in self._spilled:
                        sums = [self._finished(code, model, states) for model in range(len(self.models))]
                    else:
                        sums = [
                            {state: state.exact(rows[position]) for state in alone} | by_state
                            for rows, by_state in zip(kept, together[code], strict=True)
                        ]
                yield pairs, count, code not in self._spilled, sums

    def _finished(self, code: int, model: int, states: Iterable[MetricState]) -> dict[MetricState, Any]:
        """What some states of a slice, the first ones, give."""
        leaves = self._leaves[code][model] if code in self._leaves else itertools.repeat(None)
        return {
            state: state.finish(state.init() if each is None else each)
            for state, each in zip(states, leaves, strict=False)
        }

    def _together(self, keys: Sequence[SliceKey], first: int) -> dict[int, list[dict[MetricState, Any]]]:
        """For each of these slices whose rows are kept, numbered from `first` on, what `measured` gives by cells."""
        of_spec = {code: key[0] for code, key in enumerate(keys, first) if code not in self._spilled}
        sums: dict[int, list[dict[MetricState, Any]]] = {code: [{} for _ in self.models] for code in of_spec}
        table = self._rows_kept()
        rows = [self._view(table, model) for model in range(len(self.models))]
        cells = table.cells(len(self._slices))
        for (index, state), (model, each) in itertools.product(enumerate(self._states[0]), enumerate(rows)):
            if not state.exact_by_cells:
                continue
            having = [code for code, spec in of_spec.items() if state in self._states[spec]]
            if self._early and _is_early(state):
                known = {code: self._leaves[code][model][index] for code in having if code in self._leaves}
                leaves = {code: known.get(code) or state.init() for code in having}
            else:
                leaves = {code: state.init() for code in having}
                with np.errstate(all="ignore"):
                    state.add_each(leaves, each, cells)
            for code, leaf in leaves.items():
                sums[code][model][state] = state.finish(leaf)
        return sums

    def _rows_kept(self) -> RowTable:
        """The rows kept, in one table: of none, with the columns that rows have."""
        if self._kept:
            return self._kept[0]
        names = ("label", "weight", "query", "bucket", *self.models)
        return RowTable.of({name: np.zeros(0) for name in names}, np.zeros((0, len(self._states)), dtype=np.int32))

    def _too_small(self, values: Sequence[Any], count: int) -> bool:
        return bool(values) and count < self.config.min_examples

    def withheld(self) -> list[tuple[list[tuple[str, Any]], int]]:
        """The slices with fewer than `min_examples` rows, as (column, value) pairs, and their rows. Not to be shown."""
        self._count()
        counted = zip(self._slices.codes, self._counts.tolist(), strict=True)
        small = [(key, count) for key, count in counted if self._too_small(key[1], count)]
        small.sort(key=lambda item: (item[0][0], [rank_of(value) for value in item[0][1]]))
        return [(self._slices.pairs(key), count) for key, count in small]

    def _by_slice(self, model: int, spec: int, codes: Sequence[int]) -> list[SliceRows]:
        """The rows of each slice of a spec, sorted by the model's prediction."""
        table = self._rows_kept()
        column, scores = table.column(spec), table.columns[self.models[model]]
        rows = self._view(table, model)
        if model and scores.ndim == 1:
            by_score = np.argsort(scores, kind="stable")
            column, rows = column.take(by_score), rows.take(by_score)
        order, spans = in_order_of_code(column)
        if order is not None:
            rows = rows.take(order)
        parts = {code: rows.take(span) for code, span in spans}
        nothing = rows.take(slice(0, 0))
        return [parts.get(code, nothing) for code in codes]

    def result(self) -> Mapping[str, Any]:
        """The metrics: `rows`, `task`, `slices`, the overall one first, `withheld`, and `plots` of the overall slice.

        Each slice is `slice` (text), `key` (JSON), `pairs`, `n`, `exact`, `errors` (metric → bound), `auc_error` (the
        largest of these), `metrics`: model → metric → value, or the reason why it is undefined, and `intervals` (see
        `intervals_of`). `withheld` has, for each slicing with slices of fewer than `min_examples` rows, its `columns`,
        and how many `slices` and `rows`.

        Raises:
            InputError: Labels or predictions that cannot be judged, or no rows.
        """
        self._problems.check(self.rows)
        if not self.rows:
            raise InputError("there are no examples to evaluate", fix="choose another split")
        slices: list[dict[str, Any]] = []
        drawn: dict[str, Any] = {}
        metrics = {name: metric for name, metric in self._metrics.items() if not metric.by}
        compared = {name: metric for name, metric in self._metrics.items() if metric.by}
        states = [metric.state for metric in compared.values()]
        states += bucketed_states(self.config, compared).values()
        groups: list[_Group] = []
        for pairs, count, exact, sums in self.measured():
            if not pairs:
                drawn = {
                    model: {name: plot.draw(each[plot.state]) for name, plot in self._plots.items()}
                    for model, each in zip(self.models, sums, strict=True)
                }
            errors = {
                name: max(metric.error(each[metric.state]) for each in sums)
                for name, metric in metrics.items()
                if metric.error is not None
            }
            values = {
                model: {name: metric.value(each[metric.state]) for name, metric in metrics.items()}
                for model, each in zip(self.models, sums, strict=True)
            }
            groups.append((dict(pairs), count, [{state: each[state] for state in states} for each in sums]))
            slices.append(
                {
                    "slice": title(pairs),
                    "key": key_text(pairs),
                    "pairs": pairs,
                    "n": count,
                    "exact": exact,
                    "errors": errors,
                    "auc_error": max(errors.values(), default=0.0),
                    "metrics": values,
                    "intervals": intervals_of(self.config, metrics, values, sums, count),
                }
            )
        self._compare(slices, compared, groups)
        if compared:
            for model, part in zip(self.models, _groups_compared(compared, groups, len(self.models)), strict=True):
                drawn[model]["groups"] = part
        hidden: dict[tuple[str, ...], list[int]] = {}
        for pairs, count in self.withheld():
            hidden.setdefault(tuple(name for name, _ in pairs), []).append(count)
        withheld = [
            {"columns": list(columns), "slices": len(counts), "rows": sum(counts)} for columns, counts in hidden.items()
        ]
        return {
            "rows": self.rows,
            "task": self.config.task,
            "slices": slices,
            "withheld": withheld,
            "plots": drawn,
        }

    def _compare(
        self,
        slices: Sequence[Mapping[str, Any]],
        compared: Mapping[str, Metric],
        groups: Sequence[_Group],
    ) -> None:
        """Add the metrics between slices to each slice that is divided further by their columns."""
        specs = {frozenset(spec) for spec in self._slices.specs}

        @cache  # for each slice a look-up, not a search of all
        def divided(columns: frozenset[str], within: tuple[str, ...]) -> dict[tuple[Any, ...], list[_Group]]:
            parts: dict[tuple[Any, ...], list[_Group]] = {}
            for group in groups:
                if group[0].keys() == columns:
                    parts.setdefault(tuple(group[0][column] for column in within), []).append(group)
            return parts

        for (name, metric), item in itertools.product(compared.items(), slices):
            within = dict(item["pairs"])
            columns = frozenset({*within, *metric.by})
            if columns == within.keys() or columns not in specs:
                continue
            members = divided(columns, tuple(within)).get(tuple(within.values()), [])
            chosen = [(_group_name(values, metric.by), sums) for values, _, sums in members]
            for index, model in enumerate(self.models):
                item["metrics"][model][name] = between(metric, index, chosen)
            for kind, intervals in intervals_between(self.config, name, metric, self.models, chosen, item["n"]).items():
                item["intervals"].setdefault(kind, {}).update(intervals)

    def to_bytes(self) -> bytes:
        """A header, JSON, and two Arrow IPC streams: the columns of the rows kept, and the arrays of the states."""
        self._canonical()
        arrays: dict[str, Any] = {}
        # Of slices whose rows are kept there are no sums in it: they are summed again where it is read.
        states_of = self._states_by_code()
        summed = [
            [code, [_packed_each(states_of[code], leaves, arrays) for leaves in by_model]]
            for code, by_model in self._leaves.items()
            if code in self._spilled
        ]
        rows = {
            name: values
            for table in self._kept
            for name, values in (*table.columns.items(), ("codes", table.codes[table.cell]))
        }
        kept = [[name, values.dtype.str, list(values.shape)] for name, values in rows.items()]
        head = json.dumps(
            {
                "config": self.config,
                "models": self.models,
                "rows": self.rows,
                "slices": [[spec, list(values)] for spec, values in self._slices.codes],
                "counts": self._counts.tolist(),
                "kept": kept,
                "widths": self._widths,
                "summed": summed,
                "problems": self._problems.to_json(),
            },
            sort_keys=True,
            default=_fields_of,  # of the configuration and what is in it: `asdict` copies all of that first
        ).encode()
        return _STATE.pack(
            head, write_arrays({name: _array(values) for name, values in rows.items()}), write_arrays(arrays)
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The state that `to_bytes` wrote; with metrics of a user's, `load` of an empty one knows where to find them.

        Raises:
            InputError: The bytes are not such a state.
        """
        with _STATE.unpack(data) as (head, rows, leaves):
            written = json.loads(bytes(head))
            empty = cls(EvaluationConfig.from_json(written["config"]), baseline=BASELINE in written["models"])
            return empty._restored(written, read_arrays(rows), read_arrays(leaves))

    def load(self, data: bytes) -> Self:
        """The state that `to_bytes` wrote, for the configuration of this empty one.

        Raises:
            InputError: The bytes are not such a state.
        """
        with _STATE.unpack(data) as (head, rows, leaves):
            empty = type(self)(self.config, baseline=len(self.models) > 1, plots=self.plots)
            return empty._restored(json.loads(bytes(head)), read_arrays(rows), read_arrays(leaves))

    def _restored(self, head: Mapping[str, Any], rows: Mapping[str, Any], arrays: Mapping[str, Any]) -> Self:
        self.rows = head["rows"]
        self._problems = Problems.from_json(head["problems"])
        self._slices.codes = {(spec, tuple(values)): code for code, (spec, values) in enumerate(head["slices"])}
        self._counts = np.array(head["counts"], dtype=np.int64)
        self._widths = head["widths"]
        if head["kept"]:
            kept = {
                name: numpy_of(rows[name]).astype(np.dtype(kind)).reshape(shape) for name, kind, shape in head["kept"]
            }
            self._kept = [RowTable.of(kept, kept.pop("codes"))]
        for code, by_model in head["summed"]:
            self._leaves[code] = [[_unpacked(leaves, arrays) for leaves in states] for states in by_model]
            self._spilled.add(code)
        return self


def _group_name(values: Mapping[str, Any], by: Iterable[str]) -> str:
    return ", ".join(shown_value(values[name]) for name in by)


def _groups_compared(compared: Mapping[str, Metric], groups: Sequence[_Group], models: int) -> list[list[Any]]:
    """For each model what metrics between slices compare in all rows: for the columns of each, every group's values."""
    parts: list[list[Any]] = [[] for _ in range(models)]
    for by in dict.fromkeys(metric.by for metric in compared.values()):
        metrics = {name: metric for name, metric in compared.items() if metric.by == by}
        mine = [group for group in groups if group[0].keys() == {*by}]
        columns: dict[str, list[list[Result]]] = {}  # title → for each group, for each model
        for name, metric in metrics.items():
            for compared_title, value in metric.compares.items():
                values = [[checked(value(each[metric.state])) for each in sums] for _, _, sums in mine]
                # Of several thresholds, say, the second has the name of its metric beside the title.
                known = columns.get(compared_title, values) == values
                columns[compared_title if known else f"{compared_title} ({name})"] = values
        for model, part in enumerate(parts):
            members = [
                {
                    "group": _group_name(pairs, by),
                    "n": count,
                    "values": {column: values[at][model] for column, values in columns.items()},
                }
                for at, (pairs, count, _) in enumerate(mine)
            ]
            part.append({"by": list(by), "metrics": list(metrics), "groups": members})
    return parts


def _is_early(state: MetricState) -> bool:
    """Whether rows may be in a state before it is known that their slice is large, as in exact sums."""
    return state.any_order and state.exact_by_cells


def _merged(state: MetricState, left: Leaves | None, right: Leaves | None) -> Leaves | None:
    """The leaves of both sides; None where neither has any."""
    return left if right is None else right if left is None else state.merge(left, right)


def _fields_of(value: DataclassInstance) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _array(values: NDArray[Any]) -> Any:
    flat = np.ascontiguousarray(values).reshape(-1)
    return arrow_of(flat.view(np.uint8) if flat.dtype == np.bool_ else flat)


def _packed_each(
    states: Iterable[MetricState], leaves: Iterable[Leaves | None], arrays: dict[str, Any]
) -> list[dict[str, Any]]:
    pairs = zip(states, leaves, strict=True)
    return [_packed(state.init() if each is None else each, arrays) for state, each in pairs]


def _packed(leaves: Leaves, arrays: dict[str, Any]) -> dict[str, Any]:
    """A state as JSON; its arrays go to `arrays`, each under a number."""
    packed: dict[str, Any] = {}
    for name, leaf in sorted(leaves.items()):
        if isinstance(leaf, ExactSum):
            packed[name] = leaf.to_bytes().hex()
            continue
        values = np.asarray(leaf)
        if values.dtype.kind not in "biuf":
            raise InputError(f"a metric's state holds {name!r} of type {values.dtype}", fix="use numbers and arrays")
        flat = values.reshape(-1)
        form: list[Any] = [values.dtype.str, list(values.shape)]
        # Of booleans it takes a quarter of the time.
        if len(flat) > _SPARSE and len(occupied := np.flatnonzero(flat != 0)) < len(flat) // 4:
            arrays[str(len(arrays))] = _array(occupied)
            form, flat = [*form, len(arrays) - 1], flat[occupied]
        arrays[str(len(arrays))] = _array(flat)
        packed[name] = [*form, len(arrays) - 1]
    return packed


def _unpacked(packed: Mapping[str, Any], arrays: Mapping[str, Any]) -> Leaves:
    leaves: Leaves = {}
    for name, form in packed.items():
        if isinstance(form, str):
            leaves[name] = ExactSum.from_bytes(bytes.fromhex(form))
            continue
        kind, shape, *numbers = form
        values = numpy_of(arrays[str(numbers[-1])]).astype(np.dtype(kind))
        if len(numbers) > 1:
            flat = np.zeros(int(np.prod(shape)), dtype=values.dtype)
            flat[numpy_of(arrays[str(numbers[0])])] = values
            values = flat
        leaves[name] = values.reshape(shape)  # a copy already, which `add` may change
    return leaves
