"""Analyzers: full-pass values of columns (mean, quantiles, vocabulary …), as mergeable states without JAX.

They see present, finite values only: null, NaN and ±inf are left out. Sums are exact, so results do not depend on order
or shards. Value tables are exact; the quantiles of a column with more than 2^20 distinct numbers (per key: 2^14) come
from a `QuantileSketch`, which is deterministic and off by about 0.2 % of the rows at most. A vocabulary is always
exact, so its memory grows with the number of distinct words. A pass keeps up to 2^18 distinct keys.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import pyarrow as pa

from ...data.states import frame, reading_state, unframe
from ...errors import InputError
from .registry import ANALYZERS, STATES
from .states import ColumnsByRole, State


@dataclass(frozen=True)
class Analysis:
    """One state to keep during a pass: what kind, of which columns of the pass's batches.

    Attributes:
        kind: A name of `registry.STATES`.
        columns: (role, column of the batch): "value", "valid" (which rows count), "key", "weight", "label".
        options: What the state needs to be made, as canonical JSON.
        reducer: A user's own, for the kind "reduced"; it does not enter the state's bytes.
        where: The user's line, for errors; nor does it.
    """

    kind: str
    columns: tuple[tuple[str, str], ...]
    options: str = "{}"
    reducer: Any = field(default=None, compare=False)  # Any: a `Reducer`; `options` names it
    where: str | None = field(default=None, compare=False)

    def new(self) -> State:
        """A state of this kind that has seen no rows."""
        state: State = STATES[self.kind](json.loads(self.options), self.reducer)
        return state


class AnalyzerPass:
    """The states of all analyzers of one phase, a `data.Accumulator`."""

    def __init__(self, analyses: tuple[Analysis, ...], states: list[State] | None = None) -> None:
        self.analyses = analyses
        self.states = [analysis.new() for analysis in analyses] if states is None else states

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Add the batch's rows to every state. Raises InputError at the line of the analyzer that cannot take them."""
        for analysis, state in zip(self.analyses, self.states, strict=True):
            with _at(analysis):
                state.add(ColumnsByRole.of(batch, analysis.columns))

    def merge(self, other: Self) -> None:
        """Take in the states of the shards that follow."""
        if other.analyses != self.analyses:
            raise InputError("these states belong to different analyzers", fix="analyse again")
        for analysis, mine, theirs in zip(self.analyses, self.states, other.states, strict=True):
            with _at(analysis):
                mine.merge(theirs)

    def compact(self) -> None:
        """Bring every state into its canonical form, in which it takes the least memory."""
        for state in self.states:
            state.compact()

    def result(self) -> Mapping[str, Any]:  # Any: the states themselves, read with `finish`
        """The states by position ("0", "1", …)."""
        self.compact()
        return {str(index): state for index, state in enumerate(self.states)}

    def to_bytes(self) -> bytes:
        """JSON line (version and analyses), then each state, length first."""
        self.compact()
        head = {"version": 1, "analyses": [[a.kind, a.columns, a.options] for a in self.analyses]}
        parts = [json.dumps(head).encode(), *(state.to_bytes() for state in self.states)]
        return frame(parts)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The states again. Raises InputError if the bytes are not such states, or need a user's reducer (`load`)."""
        with reading_state("analyzer states", "analyse again"):
            head, *_ = unframe(data)
            described = [Analysis(k, tuple((r, c) for r, c in cs), o) for k, cs, o in json.loads(head)["analyses"]]
        return cls._read(data, tuple(described))

    def load(self, data: bytes) -> Self:
        """`from_bytes` for states of these very analyses, a user's reducers among them."""
        return self._read(data, self.analyses)

    @classmethod
    def _read(cls, data: bytes, analyses: tuple[Analysis, ...]) -> Self:
        with reading_state("analyzer states", "analyse again"):
            head, *bodies = unframe(data)
            if (version := json.loads(head)["version"]) != 1:
                raise ValueError(f"version {version}, not 1")
            analyzer_pass = cls(analyses)
            for state, body in zip(analyzer_pass.states, bodies, strict=True):
                state.load(body)
        return analyzer_pass


@contextmanager
def _at(analysis: Analysis) -> Iterator[None]:
    """Name the user's line in an error that has none."""
    try:
        yield
    except InputError as error:
        if error.where is not None or analysis.where is None:
            raise
        raise InputError(error.message, fix=error.fix, where=analysis.where) from error


def analysis_of(
    kind: str, params: Mapping[str, Any], columns: list[str], reducer: Any = None, where: str | None = None
) -> Analysis:
    """The analysis whose state an analyzer reads.

    Args:
        kind: A name of `registry.ANALYZERS`.
        params: Of the analyzer; "roles" says what each column is (by default a value, then which rows count).
        columns: The batch's columns, in that order.
        reducer: A user's own, or None.
        where: The user's line.
    """
    state_kind, options = ANALYZERS[kind].need(params)
    roles = params.get("roles") or ["value", "valid"]
    chosen = json.dumps({name: params[name] for name in options}, sort_keys=True)
    return Analysis(state_kind, tuple(zip(roles, columns, strict=False)), chosen, reducer, where)


def finish(kind: str, params: Mapping[str, Any], state: Any, key_fn: Any = None) -> Any:
    """An analyzer's value from the state it needs; the module that declares the kind says what it is.

    Args:
        kind: A name of `registry.ANALYZERS`.
        params: Of the analyzer.
        state: As `AnalyzerPass.result` gives it.
        key_fn: A vocabulary's coverage key: a user's function from word to key, or None.
    """
    return ANALYZERS[kind].finish({**params, "key_fn": key_fn}, state)
