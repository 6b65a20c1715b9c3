"""A user's own analyzer: a mergeable reducer, written in Python and NumPy, run in the same pass as all others."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...data.states import frame, unframe
from ...errors import DrivetrainError, InputError
from .kinds import AnalyzerKind, StateMaker
from .states import ColumnsByRole, numbers_of, vectors


class Reducer(Protocol):
    """What `ops.reduce` takes: `add` and `merge` must give equal states for equal rows, however they are split.

    A state is a NumPy array, or a sequence of them; no object arrays. `values` holds one array per column given to
    `ops.reduce`: float64 or int64, NaN where missing; texts as objects, None where missing; vectors two-dimensional.
    """

    def create(self) -> Any:  # Any: an array or a sequence of arrays, here and below
        """The state of no rows."""

    def add(self, state: Any, *values: NDArray[Any]) -> Any:
        """The state with a batch's rows."""

    def merge(self, left: Any, right: Any) -> Any:
        """The state of the rows of both; `left` are those that come first."""

    def extract(self, state: Any) -> Any:
        """The result, an array of the shape and dtype that `ops.reduce` was given."""


class ReducerState:
    """The state of a user's reducer."""

    def __init__(self, reducer: Reducer) -> None:
        self.reducer = reducer
        self.state = self._call("create")

    def add(self, rows: ColumnsByRole) -> None:
        """Hand one batch to the reducer."""
        self.state = self._call("add", self.state, *(_as_numpy(column) for column in rows.values))

    def merge(self, other: ReducerState) -> None:
        """Have the reducer merge the state of the rows that follow. Raises InputError where it fails."""
        self.state = self._call("merge", self.state, other.state)

    def compact(self) -> None:
        """Nothing to do: the reducer bounds its state."""

    def result(self) -> Any:  # Any: as the reducer's extract
        """What the reducer's `extract` gives. Raises InputError where it fails."""
        return self._call("extract", self.state)

    def _call(self, method: str, *args: Any) -> Any:
        try:
            return getattr(self.reducer, method)(*args)
        except DrivetrainError:
            raise
        except Exception as error:  # the user's own code failed, whatever it is
            name = type(self.reducer).__qualname__
            raise InputError(
                f"the reducer {name} failed in {method}: {type(error).__name__}: {error}",
                fix=f"correct {name}.{method}",
            ) from error

    def to_bytes(self) -> bytes:
        """Whether it is one array, then each array as .npy."""
        single = isinstance(self.state, (np.ndarray, np.generic, int, float))
        arrays: Sequence[Any] = [self.state] if single else self.state
        return frame([b"one" if single else b"many", *(self._npy(array) for array in arrays)])

    def _npy(self, array: object) -> bytes:
        sink = io.BytesIO()
        try:
            np.save(sink, np.asarray(array), allow_pickle=False)
        except ValueError as error:
            name = type(self.reducer).__qualname__
            raise InputError(
                f"the reducer {name} keeps {type(array).__name__}, which is not an array of numbers",
                fix="keep NumPy arrays, or a tuple of them",
            ) from error
        return sink.getvalue()

    def load(self, data: bytes) -> None:
        """Become the state that `to_bytes` wrote."""
        tag, *bodies = unframe(data)
        arrays = [np.load(io.BytesIO(body), allow_pickle=False) for body in bodies]
        self.state = arrays[0] if tag == b"one" else tuple(arrays)


def _as_numpy(column: pa.Array) -> NDArray[Any]:
    kind = column.type
    if pa.types.is_fixed_size_list(kind):
        return vectors(column)
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return numbers_of(column)
    texts = np.empty(len(column), object)
    texts[:] = column.to_pylist()
    return texts


STATES: Final[Mapping[str, StateMaker]] = {"reduced": lambda options, reducer: ReducerState(reducer)}

ANALYZERS: Final = {
    "reduce": AnalyzerKind(lambda params: ("reduced", ("reducer",)), lambda params, state: state.result()),
}
