"""The mergeable state of comparing pairs of rows: counts per feature, differences, confusion tables, samples."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ...errors import InputError
from ..arrays import numpy_of
from ..rowhash import Hashes, hash_rows
from ..states import StateFormat
from ..stats.accumulator import StatisticsAccumulator
from ..validation.anomalous_rows import plain, value_at
from .equality import (
    BASE_ONLY,
    BOTH_MISSING,
    MATCH,
    MISMATCH,
    TEST_ONLY,
    compared_as,
    differences,
    outcomes,
)
from .join import (
    BASE,
    BASE_ROWS,
    KEY,
    PAIR,
    TEST,
    TEST_ROWS,
)

_STATE: Final = StateFormat("diff state", b"DTXD", 1, "I", "compare again")  # JSON, statistics of the differences
_OUTCOMES: Final = 5
_LONG: Final = 200  # bytes of a text beyond which a feature is none of few values
_CONFUSABLE: Final = frozenset({"bool", "int", "text"})


@dataclass(frozen=True)
class DiffSettings:
    """How pairs are compared.

    Attributes:
        keys: The key columns.
        features: The columns that are compared.
        digits: Decimals that floats are rounded to; None: not at all.
        samples: Differing pairs quoted of each feature, and keys of each kind.
        confusion: Most distinct values of a feature whose pairs of values are counted.
    """

    keys: tuple[str, ...]
    features: tuple[str, ...]
    digits: int | None
    samples: int
    confusion: int


@dataclass
class FeatureState:
    """What is counted of one feature.

    Attributes:
        counts: Pairs by outcome, shape (5,): see `equality.outcomes`.
        confusion: Pairs by (base value, test value) where they differ or not; None once there are too many values.
        samples: `[hash of the key, key, base value, test value]` of pairs that differ, smallest hashes first.
    """

    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(_OUTCOMES, np.int64))
    confusion: dict[tuple[Any, Any], int] | None = field(default_factory=dict)
    samples: list[list[Any]] = field(default_factory=list)


_COUNTS: Final = (
    "base_rows", "test_rows", "base_without_key", "test_without_key", "keys", "only_in_base", "only_in_test",
    "duplicate_keys", "base_duplicate_rows", "test_duplicate_rows", "pairs", "different_pairs",
)  # fmt: skip
_KEY_SAMPLES: Final = ("only_in_base", "only_in_test", "duplicate_keys")


class DiffAccumulator:
    """An `Accumulator` over the rows of a join (see `join.JoinShard`).

    Samples are the rows whose keys have the smallest hashes, so they do not depend on the order of the rows.

    Args:
        settings: How pairs are compared.
    """

    def __init__(self, settings: DiffSettings) -> None:
        self.settings = settings
        self.counts = dict.fromkeys(_COUNTS, 0)
        self.keys: dict[str, list[list[Any]]] = {name: [] for name in _KEY_SAMPLES}
        self.features = {name: FeatureState() for name in settings.features}
        self.differences = StatisticsAccumulator()

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Count the rows of a batch of the join: pairs, rows of one side, and what differs in pairs."""
        keys = pa.RecordBatch.from_arrays(
            [batch.column(KEY + name) for name in self.settings.keys], list(self.settings.keys)
        )
        hashes = hash_rows(keys)
        self._count(batch, keys, hashes)
        chosen = np.flatnonzero(numpy_of(batch.column(PAIR)))
        if len(chosen):
            rows = pa.array(chosen)
            self._compare(batch.take(rows), keys.take(rows), hashes[chosen])

    def _count(self, batch: pa.RecordBatch, keys: pa.RecordBatch, hashes: Hashes) -> None:
        base, test = (numpy_of(pc.fill_null(batch.column(name), 0)) for name in (BASE_ROWS, TEST_ROWS))
        is_key = numpy_of(keys.column(0).is_valid()) & (base + test > 0)
        marked_keys = {
            "only_in_base": is_key & (test == 0),
            "only_in_test": is_key & (base == 0),
            "duplicate_keys": is_key & ((base > 1) | (test > 1)),
        }
        numbers = {
            "base_rows": base,
            "test_rows": test,
            "base_without_key": base[~is_key],
            "test_without_key": test[~is_key],
            "keys": is_key,
            **marked_keys,
            "base_duplicate_rows": base[is_key & (base > 1)],
            "test_duplicate_rows": test[is_key & (test > 1)],
            "pairs": numpy_of(batch.column(PAIR)),
        }
        for name, values in numbers.items():
            self.counts[name] += int(values.sum())
        for name, marked in marked_keys.items():
            for row, number in self._smallest(marked, hashes):
                self.keys[name].append([number, _quoted(keys, row), int(base[row]), int(test[row])])
            self.keys[name] = self._least(self.keys[name])

    def _compare(self, pairs: pa.RecordBatch, keys: pa.RecordBatch, hashes: Hashes) -> None:
        differs = np.zeros(len(pairs), np.bool_)
        changes: dict[str, Any] = {}
        for name, state in self.features.items():
            base, test = (_side(pairs, prefix + name) for prefix in (BASE, TEST))
            shared = base is not None and test is not None
            base = pa.nulls(len(pairs), test.type) if base is None else base
            test = pa.nulls(len(pairs), base.type) if test is None else test
            try:
                outcome = outcomes(base, test, self.settings.digits)
            except InputError as error:
                raise InputError(f"column {name!r}: {error.message}", fix=error.fix) from error
            state.counts += np.bincount(outcome, minlength=_OUTCOMES)
            odd = (outcome != MATCH) & (outcome != BOTH_MISSING)
            if shared:
                differs |= odd
            change = differences(base, test)
            change[outcome != MISMATCH] = np.nan
            changes[name] = pa.array(change, mask=np.isnan(change))
            self._confuse(state, base, test, outcome)
            for row, number in self._smallest(odd, hashes):
                values = [plain(value_at(side, row)) for side in (base, test)]
                state.samples.append([number, _quoted(keys, row), *values])
            state.samples = self._least(state.samples)
        self.counts["different_pairs"] += int(differs.sum())
        self.differences.add_batch(pa.RecordBatch.from_arrays(list(changes.values()), list(changes)))

    def _smallest(self, marked: NDArray[np.bool_], hashes: Hashes) -> list[tuple[int, int]]:
        """Rows of the smallest hashes among those marked, with the hash."""
        rows = np.flatnonzero(marked)
        order = rows[np.argsort(hashes[rows], kind="stable")][: self.settings.samples]
        return [(int(row), int(hashes[row])) for row in order]

    def _least(self, samples: list[list[Any]]) -> list[list[Any]]:
        return sorted(samples, key=lambda sample: int(sample[0]))[: self.settings.samples]

    def _confuse(self, state: FeatureState, base: Any, test: Any, outcome: NDArray[np.int8]) -> None:
        if state.confusion is None:
            return
        if compared_as(base.type, test.type) not in _CONFUSABLE:
            state.confusion = None
            return
        left, right = base.dictionary_encode(), test.dictionary_encode()
        if max(len(side.dictionary) for side in (left, right)) > self.settings.confusion:
            state.confusion = None
            return
        values = [[*map(_few, _listed(side.dictionary)), None] for side in (left, right)]
        if any(value is _TOO_LONG for side in values for value in side):
            state.confusion = None
            return
        indices = [
            numpy_of(pc.fill_null(side.indices, len(side.dictionary))).astype(np.int64) for side in (left, right)
        ]
        codes = (indices[0] * len(values[1]) + indices[1])[outcome != BOTH_MISSING]
        for code, count in zip(*(part.tolist() for part in np.unique(codes, return_counts=True)), strict=True):
            pair = values[0][code // len(values[1])], values[1][code % len(values[1])]
            state.confusion[pair] = state.confusion.get(pair, 0) + count
        self._limit(state)

    def _limit(self, state: FeatureState) -> None:
        if state.confusion is not None:
            distinct = {value for pair in state.confusion for value in pair} - {None}
            if len(distinct) > self.settings.confusion:
                state.confusion = None

    def merge(self, other: Self) -> None:
        """Take in the pairs of other keys."""
        for name, count in other.counts.items():
            self.counts[name] += count
        for name, samples in other.keys.items():
            self.keys[name] = self._least(self.keys[name] + samples)
        for name, theirs in other.features.items():
            ours = self.features[name]
            ours.counts += theirs.counts
            ours.samples = self._least(ours.samples + theirs.samples)
            if ours.confusion is None or theirs.confusion is None:
                ours.confusion = None
                continue
            for pair, count in theirs.confusion.items():
                ours.confusion[pair] = ours.confusion.get(pair, 0) + count
            self._limit(ours)
        self.differences.merge(other.differences)

    def compact(self) -> None:
        """Compact the statistics of the differences, so that their size stays bounded."""
        self.differences.compact()

    def result(self) -> dict[str, Any]:
        """`{"counts", "keys", "features"}`: JSON-able, as a document of `ExamplesDiff` has them."""
        described = {feature["name"]: feature for feature in self.differences.result()["features"]}
        return {
            "counts": dict(self.counts),
            "key_samples": {
                name: [{"key": key, "base_rows": base, "test_rows": test} for _, key, base, test in samples]
                for name, samples in self.keys.items()
            },
            "features": [self._described(name, state, described.get(name)) for name, state in self.features.items()],
        }

    def _described(self, name: str, state: FeatureState, change: dict[str, Any] | None) -> dict[str, Any]:
        counts = state.counts.tolist()
        confusion = None
        if state.confusion:
            pairs = sorted(state.confusion.items(), key=lambda item: (-item[1], _order(item[0])))
            confusion = [{"base": base, "test": test, "count": count} for (base, test), count in pairs]
        if change is not None and not change["count"]:
            change = None
        return {
            "name": name,
            "matches": counts[MATCH],
            "mismatches": counts[MISMATCH],
            "base_only": counts[BASE_ONLY],
            "test_only": counts[TEST_ONLY],
            "both_missing": counts[BOTH_MISSING],
            "difference": None if change is None else _difference(change),
            "confusion": confusion,
            "samples": [{"key": key, "base": base, "test": test} for _, key, base, test in state.samples],
        }

    def to_bytes(self) -> bytes:
        """Header, JSON, and the state of the differences."""
        body = json.dumps(  # in the order of the columns, which `canonical_json` would lose
            {
                "settings": asdict(self.settings),
                "counts": self.counts,
                "keys": self.keys,
                "features": [
                    {
                        "counts": state.counts.tolist(),
                        "samples": state.samples,
                        "confusion": None
                        if state.confusion is None
                        else [[*pair, state.confusion[pair]] for pair in sorted(state.confusion, key=_order)],
                    }
                    for state in self.features.values()
                ],
            }
        ).encode()
        return _STATE.pack(body, self.differences.to_bytes())

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The state that `to_bytes` wrote.

        Raises:
            InputError: The bytes are not such a state, or of a version this release does not read.
        """
        with _STATE.unpack(data) as (text, differences):
            body = json.loads(bytes(text))
            options = body["settings"]
            columns = {name: tuple(options[name]) for name in ("keys", "features")}
            diff = cls(DiffSettings(**{**options, **columns}))
            diff.counts, diff.keys = body["counts"], body["keys"]
            for state, stored in zip(diff.features.values(), body["features"], strict=True):
                state.counts = np.array(stored["counts"], np.int64)
                state.samples = stored["samples"]
                table = stored["confusion"]
                state.confusion = None if table is None else {(base, test): count for base, test, count in table}
            diff.differences = StatisticsAccumulator.from_bytes(bytes(differences))
        return diff


_DESCRIBED: Final = ("mean", "std", "min", "max", "median", "quantiles", "histogram")
_TOO_LONG: Final = object()


def _difference(change: dict[str, Any]) -> dict[str, Any]:
    """The statistics that mean something of differences between numbers."""
    values = {name: change[name]["value"] for name in _DESCRIBED}
    return {"count": change["count"], "exact": all(change[name]["exact"] for name in _DESCRIBED), **values}


def _listed(dictionary: Any) -> list[Any]:
    if pa.types.is_string(dictionary.type):
        dictionary = dictionary.cast(pa.binary())  # not all of it is UTF-8 in fact
    values: list[Any] = dictionary.to_pylist()
    return values


def _few(value: Any) -> Any:
    return _TOO_LONG if isinstance(value, bytes) and len(value) > _LONG else plain(value)


def _order(pair: tuple[Any, Any]) -> str:
    return json.dumps(pair, ensure_ascii=True)


def _quoted(keys: pa.RecordBatch, row: int) -> dict[str, Any]:
    values = {name: value_at(keys.column(name), row) for name in keys.schema.names}
    whole = {field.name for field in keys.schema if pa.types.is_decimal(field.type) and not field.type.scale}
    return {name: int(value) if name in whole and value is not None else plain(value) for name, value in values.items()}


def _side(pairs: pa.RecordBatch, name: str) -> Any:
    index = pairs.schema.get_field_index(name)
    return None if index < 0 else pairs.column(index)
