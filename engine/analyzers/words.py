"""Words: how often each text occurs, alone or by weight and label; vocabularies are read off them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ...data.aggregates.tables import (
    TextTable,
    binary,
    count_texts,
    merge_texts,
    sum_texts,
    top,
)
from ...data.states import frame, read_columns, unframe, write_columns
from .information import LabelCounts, informations
from .kinds import AnalyzerKind, Params, StateMaker, StateNeed
from .states import ColumnsByRole, texts_of, weights_of

_PENDING: Final = 16  # tables of batches merged at once

Ranked = list[tuple[str, float]]  # words with what they are ordered by, best first


class Words:
    """Distinct texts and how often each occurs; exact, so memory grows with their number."""

    def __init__(self) -> None:
        self.tables: list[TextTable] = []

    def add(self, rows: ColumnsByRole) -> None:
        """Take in every present value of the columns."""
        for column in rows.flat().values:
            self.tables.append(count_texts(texts_of(column)))
        if len(self.tables) >= _PENDING:
            self.compact()

    def merge(self, other: Words) -> None:
        """Add the tables of other rows; they are merged by the next `compact`."""
        self.tables += other.tables

    def compact(self) -> None:
        """Merge the tables that wait into one, its texts distinct and ascending."""
        if self.tables:
            self.tables = [merge_texts(self.tables)]

    def ranked(self) -> Ranked:
        """Words by count, descending; ties in reverse code point order, as TFT has them."""
        self.compact()
        if not self.tables:
            return []
        return [(word.decode(), count) for word, count in top(self.tables[0], len(self.tables[0].counts))]

    def to_bytes(self) -> bytes:
        """The table as Arrow IPC; nothing for no words."""
        self.compact()
        if not self.tables:
            return b""
        return write_columns({"value": self.tables[0].values, "count": pa.array(self.tables[0].counts)})

    def load(self, data: bytes) -> None:
        """Become the state that `to_bytes` wrote."""
        if data:
            values, counts = read_columns(data)
            self.tables = [TextTable(values, counts.to_numpy())]


class TaggedWords:
    """How often each (word, label, weight) occurs, and each (label, weight) over all rows.

    A text table counts byte strings, so each (word, label, weight) is one: the word, the label, the weight as
    little-endian float64, and the label's length in bytes as little-endian int64. The length stands last, because only
    then the string can be taken apart from its end, whatever bytes the word and the label have.

    Weights are counted here, and summed only when they are read, over a sorted table: the sum depends neither on the
    order of the rows nor on how they were split.
    """

    def __init__(self, weight_name: str) -> None:
        self.weight_name = weight_name
        self.words = Words()
        self.rows = Words()

    def add(self, rows: ColumnsByRole) -> None:
        """Take in one batch; rows without a label, where there are labels, are left out.

        Raises:
            InputError: A weight is missing, negative or not finite.
        """
        if rows.label is not None:
            # The rows themselves are counted as if each held the empty word once: a row with a list of several words
            # is one row in the information's total.
            self._take(self.rows, ColumnsByRole([_blank(len(rows.label))], None, rows.weight, rows.label))
        self._take(self.words, rows.flat())

    def _take(self, into: Words, rows: ColumnsByRole) -> None:
        (column,) = rows.values
        word, words = _codes(texts_of(column))
        weights = np.ones(len(word)) if rows.weight is None else weights_of(rows.weight, self.weight_name)
        kept = word >= 0
        label, labels = np.zeros(len(word), np.int64), binary(pa.array([""]))
        if rows.label is not None:
            label, labels = _codes(texts_of(rows.label))
            kept &= label >= 0
        word, label, weights = word[kept], label[kept], weights[kept]
        if not len(word):
            return
        # Sorted, equal (word, label, weight) are neighbours, so that each is joined into bytes once per batch.
        order = np.lexsort((weights, label, word))
        word, label, weights = word[order], label[order], weights[order]
        same = (np.diff(word) == 0) & (np.diff(label) == 0) & (np.diff(weights) == 0)
        starts = np.flatnonzero(np.concatenate(([True], ~same)))
        named = labels.take(pa.array(label[starts]))
        lengths = pc.binary_length(named).to_numpy(zero_copy_only=False).astype("<i8")
        parts = [
            words.take(pa.array(word[starts])),
            named,
            _as_bytes(weights[starts].astype("<f8")),
            _as_bytes(lengths),
        ]
        tagged = pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.large_binary()))
        into.tables.append(sum_texts(tagged, np.diff(starts, append=len(word))))
        if len(into.tables) >= _PENDING:
            into.compact()

    def merge(self, other: TaggedWords) -> None:
        """Add the words and rows that another part of the data has."""
        self.words.merge(other.words)
        self.rows.merge(other.rows)

    def compact(self) -> None:
        """Merge the waiting tables of the words, and those of the rows."""
        self.words.compact()
        self.rows.compact()

    def ranked(self) -> Ranked:
        """Words by the sum of their weights, descending; ties as in `Words.ranked`."""
        return _sorted({word: math.fsum(by_label.values()) for word, by_label in _by_word(self.words).items()})

    def informative(self, adjusted: bool, min_diff: float | None) -> Ranked:
        """Words by their information about the label, in bits (see `information`); ties as in `Words.ranked`."""
        return _sorted(informations(_by_word(self.words), _by_word(self.rows).get("", {}), adjusted, min_diff))

    def to_bytes(self) -> bytes:
        """The table of the words, then that of the rows, as `Words.to_bytes` writes each."""
        return frame([self.words.to_bytes(), self.rows.to_bytes()])

    def load(self, data: bytes) -> None:
        """Become the state that `to_bytes` wrote."""
        words, rows = unframe(data)
        self.words.load(words)
        self.rows.load(rows)


def vocabulary(ranked: Ranked, params: Mapping[str, Any], key_fn: Callable[[str], object] | None) -> pa.Table:
    """The words kept, in order, with what they were ordered by.

    Args:
        ranked: All words, best first.
        params: top_k, min_count, keep_empty, by_digest, reserved, coverage_top_k, coverage_min_count; see
            `ops.learn_vocabulary`.
        key_fn: Gives a word's coverage key.

    Returns:
        Columns `value` (string) and `count` (int64; float64 for weights and information).
    """
    seen = [(word, count) for word, count in ranked if word or params["keep_empty"]]
    least = -math.inf if params["min_count"] is None else params["min_count"]
    kept = [(word, count) for word, count in seen if count >= least][: params["top_k"]]
    if key_fn is not None:
        covered: dict[object, int] = {}
        chosen = {word for word, _ in kept}
        for word, count in seen:
            key = key_fn(word)
            if count >= params["coverage_min_count"] and covered.get(key, 0) < params["coverage_top_k"]:
                covered[key] = covered.get(key, 0) + 1
                chosen.add(word)
        kept = [(word, count) for word, count in seen if word in chosen]
    if params.get("by_digest"):
        kept.sort(key=lambda item: hashlib.sha1(item[0].encode(), usedforsecurity=False).digest())
    reserved = list(dict.fromkeys(params.get("reserved", ())))
    if reserved:
        known = dict(ranked)
        kept = [*((word, known.get(word, 0)) for word in reserved), *(k for k in kept if k[0] not in set(reserved))]
    whole = all(isinstance(count, int) for _, count in kept)
    counts = pa.array([count for _, count in kept], pa.int64() if whole else pa.float64())
    return pa.table({"value": pa.array([word for word, _ in kept], pa.string()), "count": counts})


def _sorted(values: Mapping[str, float]) -> Ranked:
    return sorted(values.items(), key=lambda item: (item[1], item[0].encode()), reverse=True)


def _by_word(words: Words) -> dict[str, LabelCounts]:
    """Per word, label and its summed weight."""
    words.compact()
    weights: dict[str, dict[str, list[float]]] = {}
    if words.tables:
        table = words.tables[0]
        for tagged, count in zip(table.values.to_pylist(), table.counts.tolist(), strict=True):
            # 16 bytes at the end: the weight, then the length of the label before it.
            end = len(tagged) - 16 - int.from_bytes(tagged[-8:], "little")
            weight = float(np.frombuffer(tagged, "<f8", 1, len(tagged) - 16)[0])
            of = weights.setdefault(tagged[:end].decode(), {})
            of.setdefault(tagged[end:-16].decode(), []).append(weight * count)
    return {word: {label: math.fsum(sums) for label, sums in sorted(of.items())} for word, of in weights.items()}


def _codes(column: pa.Array) -> tuple[NDArray[np.int64], pa.Array]:
    """Per row the place of its text among the distinct ones, −1 for null; and those as `large_binary`."""
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    words = encoded.dictionary
    codes = encoded.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    if words.null_count:
        codes = np.where((codes >= 0) & words.is_null().to_numpy(zero_copy_only=False)[codes], -1, codes)
    return codes, binary(texts_of(words))


def _blank(rows: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([""]))


def _as_bytes(values: NDArray[Any]) -> pa.Array:
    """Each value's eight bytes as an element of a `large_binary` array."""
    offsets = np.arange(len(values) + 1, dtype=np.int64) * 8
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(pa.large_binary(), len(values), buffers)


def _vocabulary_need(params: Params) -> StateNeed:
    return ("tagged", ("weight",)) if params.get("weight") or params.get("label") else ("words", ())


def _vocabulary(params: Params, state: Words | TaggedWords) -> pa.Table:
    if isinstance(state, TaggedWords) and params.get("label"):
        ranked = state.informative(params["adjusted"], params["min_diff"])
    else:
        ranked = state.ranked()
    return vocabulary(ranked, params, params.get("key_fn"))


def _mode_of_text(params: Params, state: Words) -> pa.Table:
    """Column `value` with the most frequent text, the first in code point order of several; no row for no text."""
    ranked = state.ranked()
    most_frequent = [word for word, count in ranked if count == ranked[0][1]]
    return pa.table({"value": pa.array(sorted(most_frequent)[:1], pa.string())})


def _count_per_key(params: Params, state: Words) -> pa.Table:
    """Columns `key` and `count` (float64), keys ascending."""
    ranked = sorted(state.ranked())
    keys, counts = [word for word, _ in ranked], [count for _, count in ranked]
    return pa.table({"key": pa.array(keys, pa.string()), "count": pa.array(counts, pa.float64())})


STATES: Final[Mapping[str, StateMaker]] = {
    "words": lambda options, _: Words(),
    "tagged": lambda options, _: TaggedWords(options["weight"]),
}

ANALYZERS: Final = {
    "vocabulary": AnalyzerKind(_vocabulary_need, _vocabulary),
    "vocabulary_size": AnalyzerKind(_vocabulary_need, lambda params, state: _vocabulary(params, state).num_rows),
    "mode_of_text": AnalyzerKind(lambda params: ("words", ()), _mode_of_text),
    "count_per_key": AnalyzerKind(lambda params: ("words", ()), _count_per_key),
}
