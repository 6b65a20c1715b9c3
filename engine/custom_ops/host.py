"""Host ops in Python: a function of Arrow columns, or of one row's values, as an op of preprocessing functions."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...errors import DrivetrainError, InputError
from ...user_code import explain, raised_at
from .._caller import caller
from ..graphs.nodes import ARRAY_DTYPES, BATCH, COLUMN_DTYPES
from ..host_ops.columns import (
    ARROW,
    Assets,
    Kernel,
    Params,
    codes_of,
)
from .extensions import owner
from .registry import Fn, Op, register

_DEVICE: Final = {"int64": "int32", "float64": "float32"}
_EXACT: Final = {"string": str, "float64": float, "bool": bool}  # an int may be too wide


@dataclass(frozen=True)
class Returns:
    """The type of a host op's result for one row.

    Attributes:
        dtype: "string", "int64", "float64", "bool" or a list ("list<string>"): a column, which may miss values;
            or an array's dtype ("float32", "int32", "uint8" …): no row misses its value.
        shape: The shape of an array's value in one row: `()` for a number.
    """

    dtype: str
    shape: tuple[int, ...] = ()

    @property
    def column(self) -> bool:
        """Whether it is a column, which may have missing values, and no array."""
        return self.dtype in COLUMN_DTYPES and not self.shape

    @property
    def possible(self) -> bool:
        """Whether the engine has such values."""
        return all(dim > 0 for dim in self.shape) and (self.column or self.dtype in ARRAY_DTYPES)


def host_op(
    name: str,
    *,
    returns: str | Returns | Callable[..., str | Returns],
    by: Literal["batch", "row"] = "batch",
    row: Fn | None = None,
) -> Callable[[Fn], Op]:
    """Decorate a pure Python function as a host op: it runs on the CPU, on batches and on single rows.

    By batch, the function takes Arrow arrays (text, int64, float64, bool or lists, as the columns are, never
    dictionary-encoded) of one length, and gives an Arrow or numpy array or a list of that length. By row, it takes one
    Python value per column, None where missing, and gives one; on batches it is then called once for each distinct
    value of a single column. Keyword-only arguments are settings: numbers, text, booleans, lists of them, kept in the
    graph; an untrusted bundle may set them to any such value.

    Args:
        name: `namespace.name`, of a namespace that the function's distribution or `use` declares.
        returns: A dtype, or `Returns(dtype, shape)`; or a function from the settings to one of them.
        by: Whether the decorated function works by batch or by row.
        row: The same function by row, if the decorated one is by batch. Default: call that one with one-row arrays.

    Raises:
        InputError: The name is invalid or taken, the namespace belongs to another distribution, or the function's
            signature is unsuitable.
    """

    def decorate(fn: Fn) -> Op:
        extension = owner(name, str(getattr(fn, "__module__", "")))
        python = _PythonOp(name, fn, returns, by, row)
        defined = f"{fn.__module__}:{fn.__qualname__}"
        kernels = {"batch": python.batch, "row": python.row}
        return register(
            Op(name, kernels, python.call, python.output, export="node", extension=extension, defined=defined)
        )

    return decorate


class _PythonOp:
    """A host op's functions, and what the engine makes of them."""

    def __init__(self, name: str, fn: Fn, returns: Any, by: str, row: Fn | None) -> None:
        self.name, self._fn, self._by, self._row = name, fn, by, row
        self._returns = returns
        self._columns, self._settings = 0, dict[str, Any]()
        for parameter in inspect.signature(fn).parameters.values():
            if parameter.kind is parameter.KEYWORD_ONLY:
                self._settings[parameter.name] = parameter.default
            elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                self._columns += 1
            else:
                self._columns = 0
                break
        if not self._columns:
            raise InputError(
                f"op {name!r}: {fn.__qualname__} takes no fixed number of columns",
                fix="take columns by position and settings as keyword-only arguments: def f(column, *, size=3)",
                where=caller(),
            )
        if not callable(returns):
            self.returns({})

    # --- the rule ---

    def returns(self, settings: Mapping[str, Any]) -> Returns:
        """What the op gives with these settings."""
        try:
            returned: object = self._returns(**settings) if callable(self._returns) else self._returns
        except Exception as error:  # the op's own code, on settings that may be untrusted
            raise InputError(
                f"op {self.name!r} cannot take {dict(settings)!r:.120}: {type(error).__name__}: {error!s:.120}",
                fix="give settings that its returns= takes",
                where=caller(),
            ) from error
        returned = Returns(returned) if isinstance(returned, str) else returned
        if not isinstance(returned, Returns) or not returned.possible:
            raise InputError(
                f"op {self.name!r} returns {returned!r:.80}",
                fix=f"return one of {', '.join((*COLUMN_DTYPES, *ARRAY_DTYPES))}, of an array with one row's shape",
                where=caller(),
            )
        return returned

    def output(self, **settings: Any) -> tuple[str, tuple[str | int, ...], bool]:
        """The shape rule, as a tensor's dtype, shape and whether it is a column."""
        returned = self.returns(self.checked(settings))
        return returned.dtype, (BATCH, *returned.shape), returned.column

    def checked(self, settings: Any) -> dict[str, Any]:  # Any: of a call, or JSON of a bundle
        """The settings with their defaults. Raises InputError where one is unknown, missing or no constant."""
        full = {**self._settings, **settings}
        unknown = [key for key in full if key not in self._settings]
        missing = [key for key, value in full.items() if value is inspect.Parameter.empty]
        odd = [key for key, value in full.items() if key not in missing and not _is_constant(value)]
        for what, keys in (("has no setting", unknown), ("needs the setting", missing), ("takes no such", odd)):
            if keys:
                raise InputError(
                    f"op {self.name!r} {what} {keys[0]!r:.80}",
                    fix=f"its settings are {', '.join(self._settings) or 'none'}: numbers, text, booleans, lists",
                    where=caller(),
                )
        return full

    # --- in a preprocessing function ---

    def call(self, *arguments: Any, **settings: Any) -> Any:
        """Add the op to the graph; on Arrow arrays, run it."""
        if len(arguments) != self._columns:
            raise InputError(
                f"op {self.name!r} takes {self._columns} columns, {len(arguments)} were given",
                fix="give so many",
                where=caller(),
            )
        full = self.checked(settings)
        if all(isinstance(value, (pa.Array, pa.ChunkedArray)) for value in arguments):
            arrays = [value.combine_chunks() if isinstance(value, pa.ChunkedArray) else value for value in arguments]
            return self.batch({"settings": full}, ())(*arrays)
        from ..tracing.columns import Column, Fact, read  # late: kernels run without JAX
        from ..tracing.primitives import bind_host, current

        current()
        columns = [read(value, f"given to {self.name}") for value in arguments]
        for value, column in zip(arguments, columns, strict=True):
            if column.fact.handle is None and column.values.ndim != 1:
                raise InputError(
                    f"op {self.name!r} takes one value per row, not {value!r:.60}", fix="give a column", where=caller()
                )
        handles = [column.handle for column in columns]
        kinds = [column.fact.host or _host_dtype(column.values.dtype) for column in columns]
        returned = self.returns(full)
        output: tuple[str, tuple[str | int, ...], bool]
        output = (returned.dtype, (BATCH, *returned.shape), returned.column)
        (result,) = bind_host(self.name, handles, [output], {"settings": full, "inputs": kinds})
        if not returned.column:
            return result
        label = columns[0].name
        fact = Fact(label, result, returned.dtype)
        return Column(label, _DEVICE.get(returned.dtype, returned.dtype), fact).public()

    # --- kernels ---

    def batch(self, params: Params, assets: Assets) -> Kernel:
        """The kernel for Arrow columns."""
        settings = self.checked(params["settings"])
        returned = self.returns(settings)
        fn = partial(self._guarded, self._fn, settings)

        def whole(*columns: pa.Array) -> Any:
            return self._fitted(fn(*map(_decoded, columns)), returned, len(columns[0]))

        def by_value(column: pa.Array) -> Any:
            codes, values = codes_of(column)
            used, places = np.unique(codes, return_inverse=True)
            words = [None if code == len(values) else values[code].as_py() for code in used.tolist()]
            results = self._fitted([fn(word) for word in words], returned, len(words))
            return results.take(pa.array(places)) if returned.column else results[places]

        def by_row(*columns: pa.Array) -> Any:
            results = [fn(*values) for values in zip(*(column.to_pylist() for column in columns), strict=True)]
            return self._fitted(results, returned, len(results))

        def one_by_one(*columns: pa.Array) -> Any:
            nested = pa.types.is_nested(columns[0].type)
            return by_row(*columns) if len(columns) > 1 or nested else by_value(columns[0])

        return whole if self._by == "batch" else one_by_one

    def row(self, params: Params, assets: Assets) -> Kernel:
        """The kernel for one row's values."""
        settings = self.checked(params["settings"])
        returned = self.returns(settings)
        row_function = self._fn if self._by == "row" else self._row
        if row_function is not None:
            fn, exact = partial(self._guarded, row_function, settings), _EXACT.get(returned.dtype)

            def single(*values: Any) -> Any:
                returned_value = fn(*values)
                if returned.column and (returned_value is None or type(returned_value) is exact):
                    return returned_value
                return _first(self._fitted([returned_value], returned, 1))

            return single
        kinds = [ARROW[kind] for kind in params["inputs"]]
        batch = self.batch(params, assets)

        def kernel(*values: Any) -> Any:
            return _first(batch(*(pa.array([value], kind) for value, kind in zip(values, kinds, strict=True))))

        return kernel

    def _guarded(self, fn: Fn, settings: Mapping[str, Any], *values: Any) -> Any:
        try:
            return fn(*values, **settings)
        except DrivetrainError:
            raise
        except Exception as error:  # the op's own code failed: whatever it is, name its line
            rows = [value for value in values if not isinstance(value, pa.Array)]
            on = f" on {', '.join(map(repr, rows)):.120}" if rows else ""
            said, advice = explain(error)
            raise InputError(
                f"op {self.name!r} failed{on}: {said:.200}",
                fix=advice or f"{fn.__qualname__} must take every value that the columns have, None among them",
                where=raised_at(error.__traceback__),
            ) from error

    def _fitted(self, returned_values: Any, returned: Returns, rows: int) -> Any:
        """The function's results as an Arrow column or an array of the dtype and shape that `returns` declares."""
        try:
            return (
                _column(returned_values, returned.dtype, rows)
                if returned.column
                else _array(returned_values, returned, rows)
            )
        except (ValueError, TypeError, OverflowError, pa.ArrowException) as error:
            raise InputError(
                f"op {self.name!r} did not give {returned.dtype}{list(returned.shape) or ''} for {rows} rows: "
                f"{str(error).splitlines()[0]:.160}",
                fix="return what its returns= says, one value per row",
            ) from error


def _column(values: Any, dtype: str, rows: int) -> pa.Array:
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if not isinstance(array, pa.Array):
        array = pa.array(array)
    array = _decoded(array)
    if len(array) != rows:
        raise ValueError(f"it has {len(array)} values")
    return array if array.type == ARROW[dtype] else array.cast(ARROW[dtype])


def _array(values: Any, returned: Returns, rows: int) -> NDArray[Any]:
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.Array):
        if values.null_count:
            raise ValueError("a value is missing, which an array has no room for")
        values = values.to_pylist() if pa.types.is_nested(values.type) else values.to_numpy(zero_copy_only=False)
    array = np.asarray(values)
    if not rows and not len(array):
        return np.zeros((0, *returned.shape), _numpy_dtype(returned.dtype))
    if array.shape != (rows, *returned.shape):
        raise ValueError(f"its shape is {array.shape}")
    dtype = _numpy_dtype(returned.dtype)
    if array.dtype.kind in "iu" and dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if array.size and (int(array.min()) < limits.min or int(array.max()) > limits.max):
            raise ValueError(f"a value is beyond {dtype}")
        return array.astype(dtype, copy=False)
    if array.dtype.kind == "f" and dtype.kind == "V":  # bfloat16
        return array.astype(dtype)
    return array.astype(dtype, casting="same_kind", copy=False)


def _decoded(array: pa.Array) -> pa.Array:
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _numpy_dtype(dtype: str) -> np.dtype[Any]:
    if dtype == "bfloat16":
        import ml_dtypes

        dtype = ml_dtypes.bfloat16
    return np.dtype(dtype)


def _first(values: Any) -> Any:
    return values[0].as_py() if isinstance(values, pa.Array) else values[0]


def _host_dtype(dtype: Any) -> str:
    return {"i": "int64", "u": "int64", "f": "float64", "b": "bool", "V": "float64"}[dtype.kind]


def _is_constant(value: Any) -> bool:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return all(map(_is_constant, value))
    if not (value is None or isinstance(value, (bool, int, float, str))):
        return False
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True
