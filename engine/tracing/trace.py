"""Trace a preprocessing function once, with a symbolic batch, into one jaxpr."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Any

import jax
import jax.numpy as jnp
import pyarrow as pa

from ...errors import DrivetrainError, InputError, suggest
from ...positions import saved_position
from ...user_code import defined_at, mistake, raised_at
from .._caller import ENTRY, caller
from ..graphs.nodes import ARRAY_DTYPES, LIST_DTYPES
from ..host_ops.columns import column_dtype
from ..host_ops.dates import is_time
from ..ragged.ragged import Ragged
from .columns import Column, Fact, dense
from .numpy_functions import ADVICE
from .pandas_names import HOW_MANY, PANDAS
from .primitives import CURRENT, HANDLE, Trace, bind_host, shaped

_DEVICE = {"string": "string", "int64": "int32", "float64": "float32", "bool": "bool", **{d: d for d in LIST_DTYPES}}


@dataclass(frozen=True)
class TracedInverse:
    """A `columns.Inverse` whose results stand at some places among the jaxpr's outputs."""

    rule: str
    settings: Mapping[str, float]
    places: tuple[int, ...]


@dataclass(frozen=True)
class TracedOutput:
    """One output of the function: where it stands among the jaxpr's outputs, and how many ids a category has."""

    name: str
    position: int
    extra_ids: int | None = None
    vocabulary_position: int | None = None
    least_ids: int = 0
    inverse: TracedInverse | None = None


@dataclass(frozen=True)
class TracedCheck:
    """What must hold of every row: where its bool array stands among the jaxpr's outputs."""

    position: int
    message: str
    where: str | None


@dataclass(frozen=True)
class Traced:
    """A traced function. Its inputs are the columns' handles, in order; `batch` is the symbolic dimension."""

    jaxpr: Any  # jax.extend.core.ClosedJaxpr
    columns: tuple[tuple[str, str], ...]
    outputs: tuple[TracedOutput, ...]
    batch: Any
    checks: tuple[TracedCheck, ...] = ()


def trace(
    fn: Callable[[Mapping[str, Any]], Mapping[str, Any]], schema: pa.Schema, *, check_floats: bool = False
) -> Traced:
    """Call the function once on symbolic columns.

    Args:
        fn: Takes a mapping from column name to `Column` or JAX array, returns one from output name to such.
        schema: The raw columns with their Arrow types.
        check_floats: Whether every float output is to be finite in every row.

    Raises:
        InputError: The function used a column that does not exist, treated text as a number, gave something that is
            no mapping of columns, or failed under JAX; with the user's file and line.
    """
    if not callable(fn):
        raise InputError(f"the preprocessing function is {fn!r:.60}", fix='name a function, e.g. "features:preprocess"')
    columns = tuple((field.name, column_dtype(field.type) or f"other:{field.type}") for field in schema)
    times = {field.name for field in schema if is_time(getattr(field.type, "value_type", field.type))}
    widths = {field.name: field.type.list_size for field in schema if pa.types.is_fixed_size_list(field.type)}
    (batch,) = jax.export.symbolic_shape("b")
    outputs: list[TracedOutput] = []
    checks: list[TracedCheck] = []

    def run(*handles: Any) -> list[Any]:
        tracing = Trace(batch)
        token, entry = CURRENT.set(tracing), ENTRY.set((run.__code__, defined_at(fn)))
        try:
            returned = fn(_Columns(columns, handles, widths, times))
            flat: list[Any] = []
            for name, value in _checked(fn, returned).items():
                outputs.append(_emit(name, value, flat, batch, defined_at(fn)))
                if check_floats:
                    _check_finite(name, flat[outputs[-1].position], tracing, defined_at(fn))
            for holds, message, where in tracing.checks:
                checks.append(TracedCheck(len(flat), message, saved_position(where)))
                flat.append(holds)
            return flat
        finally:
            CURRENT.reset(token)
            ENTRY.reset(entry)

    handle = shaped((batch,), jnp.dtype(HANDLE))
    try:
        jaxpr = jax.make_jaxpr(run)(*[handle] * len(columns))
    except DrivetrainError:
        raise
    except Exception as error:  # the user's own code failed: whatever it is, name his line
        where = None if _within(error, run.__code__) else defined_at(fn)
        raise mistake(error, fix=_advice(error), where=where) from error
    return Traced(jaxpr, columns, tuple(outputs), batch, tuple(checks))


def _within(error: Exception, entry: CodeType) -> bool:
    """Whether it was raised below the call of the user's function in `entry`, at a line of the user's."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code is not entry:
        trace = trace.tb_next
    return trace is not None and raised_at(trace) is not None


def _check_finite(name: str, array: Any, tracing: Trace, where: str | None) -> None:
    if jnp.issubdtype(array.dtype, jnp.floating):
        finite = jnp.all(jnp.isfinite(array), tuple(range(1, array.ndim)))
        tracing.check(finite, f"output {name!r} is missing or not finite", where)


def _advice(error: Exception) -> str | None:
    if isinstance(error, AttributeError) and error.name in PANDAS:
        return PANDAS[error.name]
    if "'_DimExpr' object cannot be" in str(error):  # len()
        return HOW_MANY
    if "truth value" in str(error) or type(error).__name__.startswith("TracerBool"):
        return "use ops.where(condition, a, b), and & | ~ in place of and, or, not"
    if type(error).__name__.startswith("InconclusiveDim"):
        return "ops.where(condition, a, b) in place of if; in a reshape the rows stay the first dimension: (-1, 2)"
    if type(error).__name__ == "TracerArrayConversionError":
        return ADVICE
    if "__jax_array__" in str(error) or "no 'a" in str(error):
        return "ops.fill_missing or ops.cast(…, 'float32') makes a Column a JAX array"
    if type(error).__name__ in ("ConcretizationTypeError", "TracerIntegerConversionError"):
        return (
            "jax.numpy takes it; math and int() do not. What is learnt has no value yet, and a shape needs a number, "
            "e.g. a vocabulary's top_k + oov_buckets + 1"
        )
    return None


class _Columns(Mapping[str, Any]):
    """The raw columns by name, made when first asked for."""

    def __init__(
        self,
        columns: tuple[tuple[str, str], ...],
        handles: tuple[Any, ...],
        widths: Mapping[str, int],
        times: Container[str],
    ) -> None:
        self._widths = widths
        self._times = times
        self._columns = {name: (dtype, handle) for (name, dtype), handle in zip(columns, handles, strict=True)}
        self._values: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._columns:
            fix = suggest(str(name), list(self._columns), "the columns are")
            raise InputError(f"there is no column {name!r}", fix=fix, where=caller())
        if name not in self._values:
            host, handle = self._columns[name]
            if host.startswith("other:"):
                self._values[name] = Column(name, "other", Fact(name, None, host[6:]))
            else:
                column = Column(name, _DEVICE[host], Fact(name, handle, host, time=name in self._times))
                fixed = name in self._widths and host != "list<string>"
                self._values[name] = dense(column, self._widths[name]) if fixed else column.public()
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._columns:
            raise AttributeError(f"the columns have no attribute {name!r}", name=name, obj=self)
        raise InputError(f"columns.{name} is not a column", fix=f"write columns[{name!r}]", where=caller())


def _checked(fn: Callable[..., Any], returned: Any) -> Mapping[str, Any]:
    where = defined_at(fn)
    if not isinstance(returned, Mapping) or not returned:
        kind = "nothing" if returned is None or isinstance(returned, Mapping) else f"a {type(returned).__name__}"
        raise InputError(
            f"the preprocessing function returned {kind}",
            fix="return a dict from output name to column",
            where=where,
        )
    for name in returned:
        if not isinstance(name, str) or not name:
            raise InputError(f"an output is named {name!r}", fix="name outputs with text", where=where)
    return returned


def _emit(name: str, value: Any, flat: list[Any], batch: Any, where: str | None) -> TracedOutput:
    """Append an output's arrays to `flat` and describe it."""
    column = value if isinstance(value, Column) else None
    if isinstance(value, Ragged):
        flat.append(_listed(name, value, where))
        return _sized(name, flat, None)
    trace = CURRENT.get()
    fact = column.fact if column is not None else trace.fact(value) if trace is not None else None
    if column is not None and column.on_host:
        flat.append(column.handle)
        return _sized(name, flat, fact)
    if column is not None:
        array = column.values
        if column.valid is not None:
            # What leaves as an array has no room for missing values: the graph refuses them when it runs, by the
            # output's name.
            described = {"output": name, "dtype": str(array.dtype)}
            signature = (str(array.dtype), ("b", *array.shape[1:]), False)
            (array,) = bind_host("require", [array, column.valid], [signature], described)
    else:
        try:
            array = jnp.asarray(value)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"output {name!r} is {value!r:.60}", fix="give a column or an array", where=where
            ) from error
    if str(array.dtype) not in ARRAY_DTYPES:
        raise InputError(f"output {name!r} is {array.dtype}", fix="ops.cast it to float32 or int32", where=where)
    if not array.shape or array.shape[0] != batch:
        array = jnp.broadcast_to(array, (batch, *array.shape))
    if not all(isinstance(dim, int) for dim in array.shape[1:]):
        raise InputError(
            f"output {name!r} has shape {array.shape}", fix="only the first dimension may be the batch", where=where
        )
    if 0 in array.shape:
        raise InputError(
            f"output {name!r} has shape {array.shape}: a row of it holds nothing", fix="leave it out", where=where
        )
    flat.append(array)
    return _sized(name, flat, fact)


def _listed(name: str, value: Ragged, where: str | None) -> Any:  # Any: a tracer
    """The handle of a list column of a Ragged's values."""
    kind = {"f": "list<float64>", "i": "list<int64>", "u": "list<int64>"}.get(value.values.dtype.kind)
    flattened = re.fullmatch(r"n\d+", str(value.segment_ids.shape[0]))
    if kind is None or value.values.ndim != 1 or flattened is None:
        raise InputError(
            f"output {name!r} is {value!r}, which is not a list column",
            fix="give one number per value, of the rows that ops.to_ragged gave; pool or to_dense what else there is",
            where=where,
        )
    params = {"dtype": kind, "output": name}
    (handle,) = bind_host("unflatten", [value.lengths, value.values], [(kind, ("b",), True)], params)
    return handle


def _sized(name: str, flat: list[Any], fact: Fact | None) -> TracedOutput:
    """Describe the output that stands last in `flat`; the results that its ids or its inverse depend on go after it."""
    position = len(flat) - 1
    size = fact.size if fact is not None else None
    inverse = fact.inverse if fact is not None else None
    if inverse is not None:
        flat += inverse.results
        positions = tuple(range(position + 1, len(flat)))
        return TracedOutput(name, position, inverse=TracedInverse(inverse.rule, inverse.settings, positions))
    if size is None:
        return TracedOutput(name, position)
    if size.vocabulary is None:
        return TracedOutput(name, position, size.extra)
    flat.append(size.vocabulary)
    return TracedOutput(name, position, size.extra, position + 1, size.least)
