"""Analyzers: full-pass values of a column (mean, quantiles, vocabulary …), as mergeable accumulators without JAX.

They see present, finite values only: null, NaN and ±inf are left out. Sums are exact (`ExactSum`), so results do not
depend on order or shards. Value tables are exact; the quantiles of a column with more than 2^20 distinct numbers come
from a `QuantileSketch`, which is deterministic and off by about 0.2 % of the rows at most. A vocabulary
is always exact, so its memory grows with the number of distinct words.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...data.counting.sketches import QuantileSketch
from ...data.counting.sums import ExactMoments
from ...data.counting.tables import NumberTable, TextTable, count_numbers, count_texts, merge_numbers, merge_texts, top
from ...errors import InputError

SCALARS: Final = ("mean", "var", "min", "max", "sum", "count")
_EXACT: Final = 1 << 20  # distinct numbers that a table keeps
_PENDING: Final = 16  # tables of batches merged at once


@dataclass(frozen=True)
class Analysis:
    """One state to keep during a pass: what kind, of which columns of the pass's batches.

    Attributes:
        kind: "moments" (every scalar analyzer), "numbers" (quantiles) or "words" (vocabulary).
        column: The batch's column to look at; lists are flattened.
        valid: The boolean column that says which rows count, where the column itself cannot say it.
    """

    kind: str
    column: str
    valid: str | None = None


class AnalyzerPass:
    """The states of all analyzers of one phase, a `data.Accumulator`."""

    def __init__(self, analyses: tuple[Analysis, ...]) -> None:
        self.analyses = analyses
        self.states: list[_Moments | _Numbers | _Words] = [_STATES[analysis.kind]() for analysis in analyses]

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Take in one batch."""
        for analysis, state in zip(self.analyses, self.states, strict=True):
            column = batch.column(analysis.column)
            if pa.types.is_fixed_size_list(column.type):
                column = column.flatten()
            if analysis.valid is not None:
                column = column.filter(batch.column(analysis.valid))
            state.add(column)

    def merge(self, other: Self) -> None:
        """Take in the states of the shards that follow."""
        if other.analyses != self.analyses:
            raise InputError("these states belong to different analyzers", fix="analyse again")
        for mine, theirs in zip(self.states, other.states, strict=True):
            mine.merge(theirs)  # type: ignore[arg-type]  # same kinds: same analyses

    def compact(self) -> None:
        """Merge what is pending."""
        for state in self.states:
            state.compact()

    def result(self) -> Mapping[str, Any]:  # Any: the states themselves, read with `finish`
        """The states by position ("0", "1", …)."""
        self.compact()
        return {str(index): state for index, state in enumerate(self.states)}

    def to_bytes(self) -> bytes:
        """JSON line (version and analyses), then each state, length first."""
        self.compact()
        head = {"version": 1, "analyses": [[a.kind, a.column, a.valid] for a in self.analyses]}
        parts = [json.dumps(head).encode(), *(state.to_bytes() for state in self.states)]
        return _frame(parts)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The states again. Raises InputError where the bytes are no such states."""
        try:
            head, *bodies = _unframe(data)
            described = json.loads(head)
            if described["version"] != 1:
                raise ValueError(described["version"])
            made = cls(tuple(Analysis(*item) for item in described["analyses"]))
            if len(bodies) != len(made.states):
                raise ValueError(len(bodies))
            made.states = [_STATES[a.kind].from_bytes(b) for a, b in zip(made.analyses, bodies, strict=True)]
        except (ValueError, KeyError, TypeError, pa.ArrowInvalid) as error:
            raise InputError(f"these bytes are no analyzer states: {error!r:.80}", fix="analyse again") from error
        return made


def finish(kind: str, params: Mapping[str, Any], state: Any) -> Any:
    """An analyzer's value from the state it needs.

    Args:
        kind: One of `SCALARS`, "quantiles" or "vocabulary".
        params: Of the analyzer: `buckets`; or `top_k`, `min_count`, `keep_empty`.
        state: As `AnalyzerPass.result` gives it.

    Returns:
        mean, var, min, max are NaN where no value was seen; var is the population variance (÷ n). Boundary i of n
        quantile buckets is the value at place floor(i·N/n) of the N sorted values (TFT's choice); NaN for N = 0.
        The words of a vocabulary: count descending, ties in reverse code point order, as TFT sorts them.
    """
    if kind == "vocabulary":
        return state.words(params["top_k"], params["min_count"], params["keep_empty"])
    if kind == "quantiles":
        return state.quantiles(params["buckets"])
    return state.scalar(kind)


def needs(kind: str) -> str:
    """The kind of state an analyzer reads."""
    return {"vocabulary": "words", "quantiles": "numbers"}.get(kind, "moments")


def _finite(column: pa.Array) -> NDArray[Any]:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.null_count:
        column = column.drop_null()
    values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    if values.dtype.kind == "f":
        values = values.astype(np.float64, copy=False)
        finite = np.isfinite(values)
        return values if finite.all() else values[finite]
    return values.astype(np.int64)


class _Moments:
    def __init__(self) -> None:
        self.moments = ExactMoments()
        self.low: float | int | None = None
        self.high: float | int | None = None

    def add(self, column: pa.Array) -> None:
        values = _finite(column)
        if len(values):
            self.moments.add(values)
            self._range(values.min().item(), values.max().item())

    def _range(self, low: float | int, high: float | int) -> None:
        self.low = low if self.low is None else min(self.low, low)
        self.high = high if self.high is None else max(self.high, high)

    def merge(self, other: _Moments) -> None:
        self.moments.merge(other.moments)
        if other.low is not None and other.high is not None:
            self._range(other.low, other.high)

    def compact(self) -> None:
        """Nothing to do: the size is fixed."""

    def scalar(self, kind: str) -> float | int:
        if kind == "count":
            return self.moments.count
        if kind == "sum":
            return self.moments.sum.value()
        if kind == "mean":
            return self.moments.mean()
        if kind == "var":
            return self.moments.variance()
        value = self.low if kind == "min" else self.high
        return math.nan if value is None else value

    def to_bytes(self) -> bytes:
        return _frame([json.dumps([self.low, self.high]).encode(), self.moments.to_bytes()])

    @classmethod
    def from_bytes(cls, data: bytes) -> _Moments:
        made = cls()
        ends, body = _unframe(data)
        made.low, made.high = json.loads(ends)
        made.moments = ExactMoments.from_bytes(body)
        return made


class _Numbers:
    def __init__(self) -> None:
        self.tables: list[NumberTable] = []
        self.sketch: QuantileSketch | None = None

    def add(self, column: pa.Array) -> None:
        values = _finite(column)
        if len(values):
            self._take(count_numbers(values))

    def _take(self, table: NumberTable) -> None:
        if self.sketch is not None:
            self.sketch.add(_as_floats(table))
            return
        self.tables.append(table)
        if len(self.tables) >= _PENDING:
            self.compact()

    def merge(self, other: _Numbers) -> None:
        if other.sketch is not None:
            self._to_sketch()
            assert self.sketch is not None
            self.sketch.merge(other.sketch)
        for table in other.tables:
            self._take(table)

    def compact(self) -> None:
        if self.tables:
            self.tables = [merge_numbers(self.tables)]
            if len(self.tables[0].values) > _EXACT:
                self._to_sketch()

    def _to_sketch(self) -> None:
        if self.sketch is None:
            self.sketch = QuantileSketch()
        for table in self.tables:
            self.sketch.add(_as_floats(table))
        self.tables = []

    def quantiles(self, buckets: int) -> list[float]:
        self.compact()
        table = self.sketch.table() if self.sketch is not None else self.tables[0] if self.tables else None
        if table is None:
            return [math.nan] * (buckets - 1)
        ends = np.cumsum(table.counts)
        places = [index * int(ends[-1]) // buckets for index in range(1, buckets)]
        found: list[float] = table.values[np.searchsorted(ends, places, side="right")].tolist()
        return found

    def to_bytes(self) -> bytes:
        self.compact()
        if self.sketch is None:
            table = self.tables[0] if self.tables else NumberTable(np.zeros(0), np.zeros(0, np.int64))
            return _frame([b"exact", _ipc({"value": pa.array(table.values), "count": pa.array(table.counts)})])
        head = json.dumps({"odd": [int(odd) for odd in self.sketch.odd], "error": int(self.sketch.error)}).encode()
        return _frame([b"sketch", head, *(_ipc({"value": pa.array(level)}) for level in self.sketch.levels)])

    @classmethod
    def from_bytes(cls, data: bytes) -> _Numbers:
        made = cls()
        tag, *parts = _unframe(data)
        if tag == b"exact":
            values, counts = _columns(parts[0])
            if len(values):
                made.tables = [NumberTable(values.to_numpy(), counts.to_numpy())]
            return made
        head = json.loads(parts[0])
        made.sketch = QuantileSketch()
        made.sketch.odd, made.sketch.error = head["odd"], head["error"]
        made.sketch.levels = [_columns(part)[0].to_numpy() for part in parts[1:]]
        return made


def _as_floats(table: NumberTable) -> NumberTable:
    return NumberTable(table.values.astype(np.float64), table.counts)


class _Words:
    def __init__(self) -> None:
        self.tables: list[TextTable] = []

    def add(self, column: pa.Array) -> None:
        if pa.types.is_boolean(column.type) or pa.types.is_integer(column.type):
            column = column.cast(pa.string())
        self.tables.append(count_texts(column))
        if len(self.tables) >= _PENDING:
            self.compact()

    def merge(self, other: _Words) -> None:
        self.tables += other.tables

    def compact(self) -> None:
        if self.tables:
            self.tables = [merge_texts(self.tables)]

    def words(self, top_k: int | None, min_count: int, keep_empty: bool) -> list[str]:
        self.compact()
        if not self.tables:
            return []
        ranked = top(self.tables[0], len(self.tables[0].counts))
        kept = [value.decode() for value, count in ranked if count >= min_count and (keep_empty or value)]
        return kept[:top_k]

    def to_bytes(self) -> bytes:
        self.compact()
        if not self.tables:
            return b""
        return _ipc({"value": self.tables[0].values, "count": pa.array(self.tables[0].counts)})

    @classmethod
    def from_bytes(cls, data: bytes) -> _Words:
        made = cls()
        if data:
            values, counts = _columns(data)
            made.tables = [TextTable(values, counts.to_numpy())]
        return made


_STATES: Final[Mapping[str, Any]] = {"moments": _Moments, "numbers": _Numbers, "words": _Words}


def _frame(parts: Sequence[bytes]) -> bytes:
    return b"".join(len(part).to_bytes(8, "little") + part for part in parts)


def _unframe(data: bytes) -> list[bytes]:
    parts, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 8], "little")
        if at + 8 + size > len(data):
            raise ValueError("truncated")
        parts.append(data[at + 8 : at + 8 + size])
        at += 8 + size
    return parts


def _ipc(columns: Mapping[str, pa.Array]) -> bytes:
    sink = io.BytesIO()
    table = pa.table(dict(columns))
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _columns(data: bytes) -> list[pa.Array]:
    return [column.combine_chunks() for column in pa.ipc.open_stream(data).read_all().columns]
