"""The metrics as an accumulator: rows of small slices as they are, a histogram of scores for large ones."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...data.slices import SliceTable, key_text, title
from ...data.states import StateFormat, from_ipc, to_ipc
from ...errors import InputError
from .checks import Problems, labels_of, scores_of, weights_of
from .config import EvaluationConfig
from .metrics import METRICS, auc_error
from .plots import plots
from .tally import Floats, Histogram, Labels, Tally, tally_rows

_STATE: Final = StateFormat("metrics state", b"DTEV", 1, "QQ", "evaluate again")  # JSON, the rows kept, the bins
CANDIDATE: Final = "candidate"
BASELINE: Final = "baseline"


class _Rows:
    """Rows of some slices: code, label, weight and one score per model, all of shape (n,) but scores (models, n)."""

    def __init__(self, codes: NDArray[np.int64], labels: Labels, weights: Floats | None, scores: Floats) -> None:
        self.codes, self.labels, self.weights, self.scores = codes, labels, weights, scores

    def take(self, which: NDArray[Any]) -> _Rows:
        weights = None if self.weights is None else self.weights[which]
        return _Rows(self.codes[which], self.labels[which], weights, self.scores[:, which])

    def renumbered(self, renumber: NDArray[np.int64]) -> _Rows:
        return _Rows(renumber[self.codes], self.labels, self.weights, self.scores)


class MetricsAccumulator:
    """Every metric of every slice in one pass. Takes the batches that `Scores` makes.

    Equal rows give equal results and equal bytes however they were split and merged. (With weights and more than
    `exact_rows` rows in a slice: for the same shards along the same tree.)

    Args:
        config: What to measure.
        baseline: Whether the batches hold the baseline's predictions as well.
    """

    def __init__(self, config: EvaluationConfig, baseline: bool = False) -> None:
        self.config = config
        self.models = (CANDIDATE, BASELINE) if baseline else (CANDIDATE,)
        self.rows = 0
        self._slices = SliceTable([tuple(spec) for spec in config.slices])
        self._counts = np.zeros(0, dtype=np.int64)
        self._kept: list[_Rows] = []
        self._histograms: dict[int, list[Histogram]] = {}
        self._problems = Problems()

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Take in scored rows; what cannot be judged is counted and reported by `result`."""
        columns = {name: batch.column(f"slice:{name}") for name in self.config.slice_columns}
        labels, fine = labels_of(batch.column("label"), self.config.label, self._problems, self.rows)
        scores = np.empty((len(self.models), batch.num_rows))
        for index, model in enumerate(self.models):
            name = f"{self.config.prediction!r} of the {model}"
            scores[index] = scores_of(batch.column(model), name, self._problems, self.rows)
        weights = None
        if self.config.weight is not None:
            weights = weights_of(batch.column("weight"), self.config.weight, self._problems, self.rows)
        self.rows += batch.num_rows
        fine &= np.isfinite(scores).all(axis=0)
        codes = self._slices.encode(columns, batch.num_rows)
        rows = _Rows(np.zeros(batch.num_rows, dtype=np.int64), labels, weights, scores)
        for code in codes:
            rows.codes = code
            self._take(rows.take(fine))

    def merge(self, other: Self) -> None:
        """Add the state of the rows that follow: quoted rows of problems are numbered after ours."""
        self._problems.merge(other._problems, self.rows)
        self.rows += other.rows
        renumber = np.array([self._slices.code(key) for key in other._slices.codes], dtype=np.int64)
        for old, theirs in other._histograms.items():
            code = int(renumber[old])
            self._count(code, theirs[0].rows)
            self._spill(code)  # a histogram has no rows to give back, so this side becomes one too
            for mine, histogram in zip(self._histograms[code], theirs, strict=True):
                mine.merge(histogram)
        # Rows of a slice that is a histogram on this side find it: its count is beyond `exact_rows` already.
        for rows in other._kept:
            self._take(rows.renumbered(renumber))

    def _take(self, rows: _Rows) -> None:
        self._count(len(self._slices) - 1, 0)
        self._counts += np.bincount(rows.codes, minlength=len(self._counts))
        for code in np.flatnonzero(self._counts > self.config.exact_rows).tolist():
            self._spill(code)
            mine = rows.codes == code
            if mine.any():
                self._fill(code, rows.take(mine))
                rows = rows.take(~mine)
        if len(rows.codes):
            self._kept.append(rows)

    def _count(self, code: int, rows: int) -> None:
        missing = max(code + 1, len(self._slices)) - len(self._counts)
        if missing > 0:
            self._counts = np.concatenate([self._counts, np.zeros(missing, dtype=np.int64)])
        if rows:
            self._counts[code] += rows

    def _spill(self, code: int) -> None:
        """Turn a slice into a histogram, the rows kept so far included; further rows of it are only counted."""
        if code in self._histograms:
            return
        self._histograms[code] = [Histogram() for _ in self.models]
        kept, self._kept = self._kept, []
        for rows in kept:
            mine = rows.codes == code
            if mine.any():
                self._fill(code, rows.take(mine))
                rows = rows.take(~mine)
            if len(rows.codes):
                self._kept.append(rows)

    def _fill(self, code: int, rows: _Rows) -> None:
        for histogram, scores in zip(self._histograms[code], rows.scores, strict=True):
            histogram.add(scores, rows.labels, rows.weights, self.config.threshold)

    def compact(self) -> None:
        """Put the state into its canonical form: one table of sorted rows, slices numbered by value.

        Equal rows then give equal bytes, however they came in.
        """
        renumber = self._slices.sort()
        self._count(len(self._slices) - 1, 0)
        counts = np.empty_like(self._counts)
        counts[renumber] = self._counts
        self._counts = counts
        self._histograms = {int(renumber[code]): self._histograms[code] for code in self._histograms}
        self._histograms = dict(sorted(self._histograms.items()))
        rows = _joined(self._kept, len(self.models), self.config.weight is not None).renumbered(renumber)
        weights = () if rows.weights is None else (rows.weights,)
        self._kept = [rows.take(np.lexsort((*weights, rows.labels, *rows.scores[::-1], rows.codes)))]

    def tallies(self) -> Iterator[tuple[list[tuple[str, Any]], list[Tally]]]:
        """Each slice as its (column, value) pairs, and its tally for each model; the overall slice first."""
        self.compact()
        rows = self._kept[0]
        starts = np.searchsorted(rows.codes, np.arange(len(self._slices) + 1))
        for key, code in self._slices.codes.items():
            if code in self._histograms:
                yield self._slices.pairs(key), [histogram.tally() for histogram in self._histograms[code]]
                continue
            mine = rows.take(np.arange(starts[code], starts[code + 1]))
            yield (
                self._slices.pairs(key),
                [tally_rows(scores, mine.labels, mine.weights, self.config.threshold) for scores in mine.scores],
            )

    def result(self) -> Mapping[str, Any]:
        """The metrics: `rows`, `slices` (a list, the overall one first) and `plots` of the overall slice.

        Each slice is `slice` (text), `key` (JSON), `pairs`, `n`, `exact`, `auc_error` (bound) and `metrics`: model →
        metric → value, or the reason why it is undefined.

        Raises:
            InputError: Labels that are missing or not 0 or 1, predictions that are no probabilities, or no rows.
        """
        self._problems.check(self.rows)
        if not self.rows:
            raise InputError("there are no examples to evaluate", fix="choose another split")
        slices: list[dict[str, Any]] = []
        drawn: dict[str, Any] = {}
        for pairs, tallies in self.tallies():
            if not pairs:
                drawn = {model: plots(tally) for model, tally in zip(self.models, tallies, strict=True)}
            slices.append(
                {
                    "slice": title(pairs),
                    "key": key_text(pairs),
                    "pairs": pairs,
                    "n": tallies[0].rows,
                    "exact": tallies[0].exact,
                    "auc_error": max(auc_error(tally) for tally in tallies),
                    "metrics": {
                        model: {name: METRICS[name].compute(tally) for name in self.config.metrics}
                        for model, tally in zip(self.models, tallies, strict=True)
                    },
                }
            )
        return {"rows": self.rows, "slices": slices, "plots": drawn}

    def to_bytes(self) -> bytes:
        """A header, JSON, and two Arrow IPC streams: the rows kept, and the occupied bins."""
        self.compact()
        head = json.dumps(
            {
                "config": self.config.to_json(),
                "models": self.models,
                "rows": self.rows,
                "slices": [[spec, list(values)] for spec, values in self._slices.codes],
                "histograms": [
                    [code, [histogram.to_json() for histogram in histograms]]
                    for code, histograms in self._histograms.items()
                ],
                "problems": self._problems.to_json(),
            },
            sort_keys=True,
        ).encode()
        rows = self._kept[0]
        table: dict[str, NDArray[Any]] = {"code": rows.codes, "label": rows.labels.astype(np.uint8)}
        if rows.weights is not None:
            table["weight"] = rows.weights
        table |= dict(zip(self.models, rows.scores, strict=True))
        return _STATE.pack(head, _ipc(table), _ipc(self._bins()))

    def _bins(self) -> dict[str, NDArray[Any]]:
        occupied = [
            (code, model, label, bins, histogram.mass[label, bins])
            for code, histograms in self._histograms.items()
            for model, histogram in enumerate(histograms)
            for label in (0, 1)
            for bins in [np.flatnonzero(histogram.mass[label])]
        ]
        lengths = [len(item[3]) for item in occupied]
        table: dict[str, NDArray[Any]] = {
            name: np.repeat(np.array([item[at] for item in occupied], dtype=np.int64), lengths)
            for at, name in enumerate(("code", "model", "label"))
        }
        table["bin"] = np.concatenate([item[3] for item in occupied]) if occupied else np.zeros(0, dtype=np.int64)
        table["mass"] = np.concatenate([item[4] for item in occupied]) if occupied else np.zeros(0)
        return table

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The state that `to_bytes` wrote.

        Raises:
            InputError: The bytes are no such state.
        """
        with _STATE.unpack(data) as (head, rows, bins):
            return cls._restored(json.loads(bytes(head)), _table(rows), _table(bins))

    @classmethod
    def _restored(
        cls, head: Mapping[str, Any], rows: Mapping[str, NDArray[Any]], bins: Mapping[str, NDArray[Any]]
    ) -> Self:
        accumulator = cls(EvaluationConfig.from_json(head["config"]), baseline=BASELINE in head["models"])
        accumulator.rows = head["rows"]
        accumulator._problems = Problems.from_json(head["problems"])
        accumulator._slices.codes = {(spec, tuple(values)): code for code, (spec, values) in enumerate(head["slices"])}
        accumulator._counts = np.bincount(rows["code"], minlength=len(accumulator._slices)).astype(np.int64)
        scores = np.stack([rows[model] for model in accumulator.models])
        accumulator._kept = [_Rows(rows["code"], rows["label"].astype(np.bool_), rows.get("weight"), scores)]
        for code, states in head["histograms"]:
            accumulator._histograms[code] = [Histogram.from_json(histogram) for histogram in states]
            accumulator._counts[code] = accumulator._histograms[code][0].rows
            for model, histogram in enumerate(accumulator._histograms[code]):
                mine = (bins["code"] == code) & (bins["model"] == model)
                histogram.mass[bins["label"][mine], bins["bin"][mine]] = bins["mass"][mine]
        return accumulator


def _joined(parts: Sequence[_Rows], models: int, weighted: bool) -> _Rows:
    if not parts:
        none = np.zeros(0)
        return _Rows(none.astype(np.int64), none.astype(np.bool_), none if weighted else None, np.zeros((models, 0)))
    return _Rows(
        np.concatenate([rows.codes for rows in parts]),
        np.concatenate([rows.labels for rows in parts]),
        np.concatenate([rows.weights for rows in parts if rows.weights is not None]) if weighted else None,
        np.concatenate([rows.scores for rows in parts], axis=1),
    )


def _ipc(columns: Mapping[str, NDArray[Any]]) -> bytes:
    return to_ipc(pa.record_batch([pa.array(values) for values in columns.values()], names=list(columns)))


def _table(data: memoryview) -> dict[str, NDArray[Any]]:
    table = from_ipc(data)
    return {name: table.column(name).to_numpy() for name in table.column_names}
