"""One state per key, and one per element of a vector: statistics of groups, and elementwise ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, Final, Generic, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...data.aggregates.tables import binary
from ...data.states import frame, read_columns, unframe, write_columns
from ...errors import InputError
from .kinds import Params, StateNeed
from .states import ColumnsByRole, Numeric, finite_of, numbers_of, texts_of, vectors, weights_of

_WAITING: Final = 1 << 20  # rows

S = TypeVar("S", bound=Numeric)

PER_KEY: Final = 1 << 14
"""How many distinct numbers the state of one key keeps exactly."""

KEYS: Final = 1 << 18
"""How many distinct keys a pass keeps; about 1 kB each for moments."""


class Keyed(Generic[S]):
    """A state per key (text, whole number or boolean). Rows whose key or value is missing are left out.

    Rows wait until there are 2^20 of them, so that each key's state is given many at once: with many keys a call per
    key and batch would cost more than the arithmetic. Where the rows have weights, a state is given values and weights
    as float64[n, 2].
    """

    def __init__(self, make: Callable[[], S], name: str, weight_name: str = "") -> None:
        self.make = make
        self.name = name
        self.weight_name = weight_name
        self.states: dict[bytes, S] = {}
        self._positions: dict[bytes, int] = {}  # of the keys, in the order they were met
        self._waiting: list[tuple[NDArray[np.int64], NDArray[Any]]] = []

    def add(self, rows: ColumnsByRole) -> None:
        """Take in one batch.

        Raises:
            InputError: There are more than 2^18 distinct keys; or a weight is missing, negative or not finite.
        """
        flat = rows.flat()
        (column,) = flat.values
        assert flat.key is not None
        key = texts_of(flat.key)
        encoded = key if pa.types.is_dictionary(key.type) else key.dictionary_encode()
        words = binary(texts_of(encoded.dictionary)).to_pylist()
        named = np.array([word is not None for word in words] + [False])
        codes = encoded.indices.cast(pa.int64()).fill_null(len(words)).to_numpy(zero_copy_only=False)
        values = numbers_of(column)
        kept = named[codes]
        if values.dtype.kind == "f":
            kept &= np.isfinite(values)
        if flat.weight is not None:
            values = np.column_stack([values.astype(np.float64), weights_of(flat.weight, self.weight_name)])
        codes, values = codes[kept], values[kept]
        if not len(codes):
            return
        # A code numbers the words of this batch's dictionary, a position the keys of the whole pass: only positions
        # can wait across batches. Keys without a row that counts get none.
        positions = np.zeros(len(words), np.int64)
        for code in np.flatnonzero(np.bincount(codes, minlength=len(words))).tolist():
            positions[code] = self._position(words[code])
        # Concatenated int64 and float64 would be float64, and whole numbers above 2^53 would be rounded.
        if self._waiting and self._waiting[0][1].dtype != values.dtype:
            self._settle()
        self._waiting.append((positions[codes], values))
        if sum(len(waiting) for waiting, _ in self._waiting) >= _WAITING:
            self._settle()

    def _position(self, word: bytes) -> int:
        position = self._positions.get(word)
        if position is None:
            self._state_of(word)
            position = self._positions[word] = len(self._positions)
        return position

    def _settle(self) -> None:
        """Give the states what waits for them."""
        if not self._waiting:
            return
        positions, values = (np.concatenate(parts) for parts in zip(*self._waiting, strict=True))
        self._waiting = []
        order = np.argsort(positions, kind="stable")
        positions, values = positions[order], values[order]
        words = list(self._positions)
        starts = np.flatnonzero(np.diff(positions, prepend=-1)).tolist()
        for start, end in pairwise([*starts, len(positions)]):
            self.states[words[positions[start]]].take(values[start:end])

    def _state_of(self, word: bytes) -> S:
        state = self.states.get(word)
        if state is None:
            if len(self.states) >= KEYS:
                raise InputError(
                    f"the key column {self.name!r} has more than {KEYS:,} distinct values",
                    fix="group the rare ones: a vocabulary with top_k, or hash_buckets, makes such a key",
                )
            state = self.states[word] = self.make()
        return state

    def merge(self, other: Keyed[S]) -> None:
        """Merge the states of other rows, key by key. Raises as `add`."""
        self._settle()
        other._settle()
        for word, state in other.states.items():
            self._state_of(word).merge(state)

    def compact(self) -> None:
        """Give the keys' states the rows that wait for them, then compact each of them."""
        self._settle()
        for state in self.states.values():
            state.compact()

    def items(self) -> Iterator[tuple[str, S]]:
        """Key and state, in the order of the keys' bytes."""
        self._settle()
        for word in sorted(self.states):
            yield word.decode(), self.states[word]

    def to_bytes(self) -> bytes:
        """The keys in order as Arrow IPC, then each state."""
        self.compact()
        words = sorted(self.states)
        keys = write_columns({"key": pa.array(words, pa.large_binary())})
        return frame([keys, *(self.states[word].to_bytes() for word in words)])

    def load(self, data: bytes) -> None:
        """Become the state that `to_bytes` wrote."""
        keys, *bodies = unframe(data)
        for word, body in zip(read_columns(keys)[0].to_pylist(), bodies, strict=True):
            self._state_of(word).load(body)


class Elementwise(Generic[S]):
    """A state per element of a vector column."""

    def __init__(self, make: Callable[[], S], width: int) -> None:
        self.states = [make() for _ in range(width)]

    def add(self, rows: ColumnsByRole) -> None:
        """Take in the present, finite numbers of each element."""
        for column in rows.values:
            for state, values in zip(self.states, vectors(column).T, strict=True):
                state.take(finite_of(values))

    def merge(self, other: Elementwise[S]) -> None:
        """Merge the states of other rows, element by element."""
        for mine, theirs in zip(self.states, other.states, strict=True):
            mine.merge(theirs)

    def compact(self) -> None:
        """Compact the state of each element."""
        for state in self.states:
            state.compact()

    def to_bytes(self) -> bytes:
        """The elements' states, framed one after the other."""
        return frame([state.to_bytes() for state in self.states])

    def load(self, data: bytes) -> None:
        """Become the state that `to_bytes` wrote."""
        for state, body in zip(self.states, unframe(data), strict=True):
            state.load(body)


def elementwise_if_wide(kind: str) -> Callable[[Params], StateNeed]:
    """The need of an analyzer that reads a state of that kind, or one per element of a vector (parameter "width")."""
    return lambda params: (f"elementwise-{kind}", ("width",)) if params.get("width") else (kind, ())


def read_each(state: Any, read: Callable[[Any], Any]) -> Any:
    """What `read` gives of a state; of an `Elementwise` a list of what it gives of each element's."""
    return [read(element) for element in state.states] if isinstance(state, Elementwise) else read(state)


def keyed_column(state: Keyed[Any]) -> pa.Array:
    """The keys of a keyed state as text, in the order of `items`."""
    return pa.array([key for key, _ in state.items()], pa.string())
