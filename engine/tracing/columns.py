"""Column: what a preprocessing function gets where a plain JAX array would lose something.

Float columns are plain JAX arrays (float32, NaN where missing): every JAX function takes them. Text, lists, and
integers and booleans that may have missing values, are a `Column`: operators work and keep track of what is missing;
`jax.numpy` functions see its integers as float32 with NaN, its booleans with missing as False. Filled, it is a plain
array again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import jax
import jax.numpy as jnp

from ...errors import InputError
from .._caller import caller
from ..host_ops.columns import item_dtype
from .numpy_functions import function_like_numpy, like_numpy, unlike
from .overflow import check_arithmetic
from .pandas_names import HOW_MANY, PANDAS
from .primitives import CURRENT, bind_host, current

_COMPARISONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "eq": jnp.equal,
    "ne": jnp.not_equal,
    "lt": jnp.less,
    "le": jnp.less_equal,
    "gt": jnp.greater,
    "ge": jnp.greater_equal,
}
_UFUNCS: Final = {
    "equal": "eq", "not_equal": "ne", "less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge",
}  # fmt: skip
_MIRRORED: Final = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


@dataclass(frozen=True)
class Size:
    """How many ids a category has: `extra`, and the length of a vocabulary known after analysis, `most` at most.

    `least` of them, where an id is fixed that may lie beyond.
    """

    extra: int
    vocabulary: Any = None  # a tracer
    most: int | None = None
    least: int = 0


@dataclass(frozen=True)
class Inverse:
    """How an array is turned back into what it was made from: a rule of `engine.inverse`, and what it needs to know.

    Attributes:
        rule: "z_score" or "min_max".
        settings: Numbers known while tracing.
        results: Tracers of the analyzers' results.
    """

    rule: str
    settings: Mapping[str, float]
    results: tuple[Any, ...]


@dataclass(frozen=True)
class Fact:
    """What is known about an array beyond its values: where it comes from, whether nothing is missing, its ids.

    `time` is whether it is a raw timestamp or date: int64 milliseconds since 1970 UTC.
    """

    name: str
    handle: Any = None  # a tracer: the same values as a host column
    host: str | None = None  # that column's dtype
    complete: bool = False
    size: Size | None = None
    inverse: Inverse | None = None
    time: bool = False


class Column:
    """One nullable value per row; made by the tracer, not by hand.

    Attributes:
        name: The raw column's name, for errors.
        dtype: "string", "int32", "bool" or "float32"; "list<string>", "list<int64>" or "list<float64>"; "other" for an
            Arrow type the engine does not read.
    """

    __hash__: ClassVar[None]  # type: ignore[assignment]  # == builds a comparison
    __array_priority__ = 1000

    def __init__(
        self, name: str, dtype: str, fact: Fact, *, values: Any = None, valid: Any = None
    ) -> None:  # Any: tracers
        self.name = name
        self.dtype = dtype
        self.fact = fact
        self._values = values
        self._valid = valid

    @property
    def item(self) -> str | None:
        """What it is a list of: string, int64 or float64; None for no list."""
        return item_dtype(self.dtype)

    @property
    def on_host(self) -> bool:
        """Whether its values never are an array: text, lists, and what the engine does not read."""
        return self.item is not None or self.dtype in ("string", "other")

    @property
    def values(self) -> Any:  # Any: a JAX array
        """The values as a JAX array, missing integers 0, booleans False, floats NaN.

        Raises:
            InputError: It is text, or of a type the engine does not read.
        """
        if self._values is None:
            self.check_numeric("used as a number")
            params: dict[str, Any] = {"dtype": self.dtype, "column": self.name}
            if self.fact.time:
                params["time"] = True  # for the error: milliseconds do not fit
            (self._values,) = bind_host("values", [self.fact.handle], [(self.dtype, ("b",), False)], params)
        return self._values

    @property
    def valid(self) -> Any:  # Any: a JAX array or None
        """Which rows have a value, as a boolean array; None where all have."""
        if self.fact.complete:
            return None
        if self._valid is None:
            if self.fact.handle is not None:
                (self._valid,) = bind_host("valid", [self.fact.handle], [("bool", ("b",), False)], {})
            elif jnp.issubdtype(self.values.dtype, jnp.floating):
                self._valid = ~jnp.isnan(self.values)
        return self._valid

    @property
    def handle(self) -> Any:  # Any: a tracer
        """The values as a host column."""
        self._check_readable()
        if self.fact.handle is None:
            host = {"i": "int64", "u": "int64", "f": "float64", "b": "bool"}[self.values.dtype.kind]
            inputs = [self.values] if self.valid is None else [self.values, self.valid]
            (column,) = bind_host("column", inputs, [(host, ("b",), True)], {"dtype": host})
            return column
        return self.fact.handle

    def check_numeric(self, doing: str) -> None:
        """Raise InputError, with the user's line, if it is not a number."""
        self._check_readable()
        if self.dtype == "string":
            raise InputError(
                f"column {self.name!r} is text and was {doing}",
                fix="ops.vocabulary gives it ids, ops.cast parses numbers, == compares it with text",
                where=caller(),
            )
        if self.item is not None:
            raise InputError(
                f"column {self.name!r} is a list and was {doing}",
                fix="ops.to_dense or ops.multi_hot makes an array of it, ops.word_count gives its length",
                where=caller(),
            )

    def _check_readable(self) -> None:
        if self.dtype == "other":
            raise InputError(
                f"column {self.name!r} is {self.fact.host}, which the engine does not read",
                fix="store it as text, a number or a boolean",
                where=caller(),
            )

    def public(self) -> Any:  # Any: a Column or a JAX array
        """What a user gets: this, or the plain array where that loses nothing."""
        if self.on_host or not (self.fact.complete or self.dtype.startswith("float")):
            return self
        return current().note(self.values, self.fact)

    def __jax_array__(self) -> Any:  # Any: a JAX array
        """For jax.numpy: integers become float32 with NaN where missing; booleans count missing as False."""
        self.check_numeric("given to a numeric function")
        if self.fact.complete or self.values.dtype.kind in "fb":
            return (
                jnp.where(self.valid, self.values, False)
                if self.values.dtype == bool and self.valid is not None
                else self.values
            )
        return jnp.where(self.valid, self.values.astype(jnp.float32), jnp.nan)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **settings: Any) -> Any:
        test = _UFUNCS.get(ufunc.__name__)
        if test is not None and method == "__call__" and not settings:
            return compare(test, *inputs)
        return like_numpy(elementwise, ufunc, method, inputs, settings)

    def __array_function__(self, function: Any, types: Any, args: Any, settings: Any) -> Any:
        self.check_numeric(f"given to numpy.{function.__name__}")
        return function_like_numpy(function, args, settings)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        raise unlike("what asks a column for its values")

    def __repr__(self) -> str:
        return f"Column({self.name!r}, {self.dtype})"

    def __bool__(self) -> bool:
        raise InputError(
            f"column {self.name!r} stands for many rows and has no single truth value",
            fix="use ops.where(condition, a, b), and & | ~ in place of and, or, not",
            where=caller(),
        )

    def __float__(self) -> float:
        raise InputError(
            f"column {self.name!r} stands for many rows and is not a single number",
            fix="use jax.numpy in place of math, float() and int(), e.g. jnp.log for math.log",
            where=caller(),
        )

    def __int__(self) -> int:
        return int(float(self))

    def __iter__(self) -> Iterator[Any]:
        raise InputError(
            f"column {self.name!r} stands for any number of rows and cannot be looped over",
            fix=PANDAS["apply"],
            where=caller(),
        )

    def __len__(self) -> int:
        raise InputError(
            f"column {self.name!r} stands for any number of rows and has no len()", fix=HOW_MANY, where=caller()
        )

    def __getattr__(self, name: str) -> Any:
        why = "as it may have missing values; ops.fill_missing or ops.cast(…, 'float32') makes it a JAX array"
        raise AttributeError(f"a Column has no {name!r}" + ("" if name in PANDAS else f", {why}"))

    # Comparisons and arithmetic: what is missing stays missing.
    def __eq__(self, other: object) -> Any:
        return compare("eq", self, other)

    def __ne__(self, other: object) -> Any:
        return compare("ne", self, other)

    def __lt__(self, other: object) -> Any:
        return compare("lt", self, other)

    def __le__(self, other: object) -> Any:
        return compare("le", self, other)

    def __gt__(self, other: object) -> Any:
        return compare("gt", self, other)

    def __ge__(self, other: object) -> Any:
        return compare("ge", self, other)

    def __invert__(self) -> Any:
        return elementwise(jnp.logical_not if self.dtype == "bool" else jnp.invert, self)

    def __neg__(self) -> Any:
        return elementwise(jnp.negative, self)

    def __abs__(self) -> Any:
        return elementwise(jnp.abs, self)


def _operator(fn: Callable[[Any, Any], Any], *, swap: bool = False) -> Callable[[Column, object], Any]:
    if swap:
        return lambda self, other: elementwise(fn, other, self)
    return lambda self, other: elementwise(fn, self, other)


_OPERATORS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "add": jnp.add, "sub": jnp.subtract, "mul": jnp.multiply, "truediv": jnp.true_divide, "floordiv": jnp.floor_divide,
    "mod": jnp.mod, "pow": jnp.power, "xor": jnp.bitwise_xor,
}  # fmt: skip


def _logic(name: str) -> Callable[[Column, object], Any]:
    return lambda self, other: _either(self, other, decisive=name == "or")


def _either(left: Any, right: Any, *, decisive: bool) -> Any:  # Any: columns, arrays, bools
    """`|` where True decides, `&` where False does: whatever is missing on the other side (Kleene's logic)."""
    fn = jnp.bitwise_or if decisive else jnp.bitwise_and
    a, b = read(left, "given to & or |"), read(right, "given to & or |")
    if a.dtype != "bool" or b.dtype != "bool" or (a.valid is None and b.valid is None):
        return elementwise(fn, left, right)
    there = [jnp.ones((), bool) if column.valid is None else column.valid for column in (a, b)]
    decided = [valid & (column.values == decisive) for valid, column in zip(there, (a, b), strict=True)]
    valid = (there[0] & there[1]) | decided[0] | decided[1]
    return result(a.name, jnp.where(decided[0] | decided[1], decisive, fn(a.values, b.values)), valid)


for _name, _fn in _OPERATORS.items():
    setattr(Column, f"__{_name}__", _operator(_fn))
    setattr(Column, f"__r{_name}__", _operator(_fn, swap=True))
for _name in ("and", "or"):
    setattr(Column, f"__{_name}__", _logic(_name))
    setattr(Column, f"__r{_name}__", _logic(_name))  # the sides may change places


def _flatten(column: Column) -> tuple[tuple[Any, ...], str]:
    return (column.__jax_array__(),), column.name


def _unflatten(name: str, children: tuple[Any, ...]) -> Column:
    dtype = str(getattr(children[0], "dtype", "float32"))
    return Column(name, dtype, Fact(name, complete=True), values=children[0])


# jit-compiled functions, most of jax.numpy among them, take their arguments apart as pytrees.
jax.tree_util.register_pytree_node(Column, _flatten, _unflatten)


def read(value: Any, doing: str = "used") -> Column:  # Any: what a user passes
    """A Column, JAX array or number as a Column.

    Raises:
        InputError: It is something else.
    """
    if isinstance(value, Column):
        return value
    if isinstance(value, str) or not (hasattr(value, "dtype") or isinstance(value, (bool, int, float))):
        raise InputError(f"{value!r:.60} was {doing}, which takes a column", fix="pass a column", where=caller())
    array = value if isinstance(value, jax.Array) else jnp.asarray(value)
    trace = CURRENT.get()
    fact = trace.fact(value) if trace is not None else None
    dtype = str(array.dtype)
    known = fact or Fact("of an expression", complete=not jnp.issubdtype(array.dtype, jnp.floating))
    return Column(known.name, dtype, known, values=array)


def result(name: str, values: Any, valid: Any) -> Any:  # Any: JAX arrays; a Column or array back
    """Values and what is missing of them, as a user gets it."""
    if valid is None:
        return values
    if jnp.issubdtype(values.dtype, jnp.floating):
        return jnp.where(valid, values, jnp.nan)
    return Column(name, str(values.dtype), Fact(name), values=values, valid=valid)


def dense(column: Column, width: int, fill: float | None = None, *, shorter: bool = False) -> Any:  # Any: JAX array
    """A list column of numbers as an array [batch, width]; see `ops.to_dense`."""
    dtype = "float32" if column.item == "float64" else "int32"
    params = {"width": width, "fill": fill, "shorter": shorter, "dtype": dtype, "column": column.name}
    (array,) = bind_host("dense", [column.handle], [(dtype, ("b", width), False)], params)
    return current().note(array, Fact(column.name, complete=dtype == "int32"))


def both(*valids: Any) -> Any:  # Any: boolean arrays or None
    """Where every one is valid; None for everywhere."""
    valid_everywhere = None
    for valid in valids:
        if valid is not None:
            valid_everywhere = valid if valid_everywhere is None else valid_everywhere & valid
    return valid_everywhere


def _missing_matters(column: Column) -> Any:
    """The validity of integers and booleans; floats carry theirs as NaN by themselves."""
    return None if column.values.dtype.kind == "f" else column.valid


def elementwise(fn: Callable[..., Any], *operands: Any) -> Any:  # Any: columns, arrays, numbers
    """Apply a function row by row; a missing operand makes the result missing."""
    columns = [operand for operand in operands if isinstance(operand, Column)]
    for column in columns:
        column.check_numeric(f"given to {getattr(fn, '__name__', 'arithmetic')}")
    for operand in operands:
        if isinstance(operand, str):
            raise InputError(f"text {operand!r:.40} in arithmetic", fix="use a number", where=caller())
    arrays = [operand.values if isinstance(operand, Column) else operand for operand in operands]
    values = fn(*arrays)
    check_arithmetic(fn, columns[0].name, arrays, values)
    return result(columns[0].name, values, both(*(_missing_matters(column) for column in columns)))


def compare(test: str, left: Any, right: Any) -> Any:  # Any: as elementwise
    """Compare row by row: numbers on the device, text on the host in code point order."""
    for side in (left, right):
        if isinstance(side, Column) and side.item is not None:
            side.check_numeric("compared")
    if not isinstance(left, Column) or left.dtype != "string":
        if isinstance(right, Column) and right.dtype == "string":
            left, right, test = right, left, _MIRRORED[test]
        else:
            if isinstance(right, str):
                raise InputError(
                    f"numbers were compared with text {right!r:.40}", fix="compare with a number", where=caller()
                )
            return elementwise(_COMPARISONS[test], left, right)
    if isinstance(right, str):
        return _host_bool(left, [left.handle], {"test": test, "value": right}, left.fact.complete)
    if isinstance(right, Column) and right.dtype == "string":
        complete = left.fact.complete and right.fact.complete
        return _host_bool(left, [left.handle, right.handle], {"test": test}, complete)
    raise InputError(
        f"column {left.name!r} is text and was compared with {right!r:.40}", fix="compare it with text", where=caller()
    )


def isin(column: Column, words: list[Any]) -> Any:  # Any: as compare
    """Whether a value is one of the words, or numbers; missing stays missing."""
    return _host_bool(column, [column.handle], {"test": "in", "value": words}, column.fact.complete)


def _host_bool(column: Column, handles: list[Any], params: dict[str, Any], complete: bool) -> Any:
    (outcome,) = bind_host("compare", handles, [("bool", ("b",), True)], params)
    return Column(column.name, "bool", Fact(column.name, outcome, "bool", complete)).public()
