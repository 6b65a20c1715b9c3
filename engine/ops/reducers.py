"""A user's own analyzer: a mergeable reducer, run in the full pass."""

from __future__ import annotations

from typing import Any

from ...errors import InputError
from .._caller import caller
from ..tracing.columns import read
from ..tracing.objects import remember
from ..tracing.primitives import bind_analyzer, current
from .arguments import Array, Value

__all__ = ["reduce"]


def reduce(reducer: Any, *columns: Value, shape: tuple[int, ...] = (), dtype: str = "float32") -> Array:
    """What a reducer of your own makes of the training data.

    It is Python and NumPy, and runs while the data is analysed, never in serving: the bundle holds its result.

    Args:
        reducer: An object with `create()`, `add(state, *values)`, `merge(left, right)` and `extract(state)`. A state is
            a NumPy array or a tuple of them; `add` and `merge` must give equal states for equal rows, however these are
            split. It gets one array per column: float64 or int64 (a column with missing values: float64, NaN there),
            two-dimensional for vectors, objects with None for text. On other machines it is found by its import name.
        columns: What it looks at, at least one.
        shape: Of the result.
        dtype: float32 or int32.

    Returns:
        An array of that shape and dtype.

    Raises:
        InputError: It has not all four methods; or, of the analysis, one of them failed.
    """
    lacking = [name for name in ("create", "add", "merge", "extract") if not callable(getattr(reducer, name, None))]
    if lacking or isinstance(reducer, type):
        what = "is a class" if isinstance(reducer, type) else f"has no {', '.join(lacking)}"
        raise InputError(f"the reducer {reducer!r:.60} {what}", fix="give an object with all four", where=caller())
    if dtype not in ("float32", "int32"):
        raise InputError(f"a reducer's result cannot be {dtype!r}", fix="use float32 or int32", where=caller())
    if not columns:
        raise InputError("reduce of no column", fix="reduce(reducer, column)", where=caller())
    inputs = []
    for value in columns:
        column = read(value, "given to reduce")
        column._check_readable()
        vector = not column.on_host and column.fact.handle is None and column.values.ndim > 1
        if vector and column.values.shape[0] != current().batch:
            raise InputError("reduce of something that is not one value per row", fix="pass a column", where=caller())
        inputs.append(column.values if vector else column.handle)
    name = read(columns[0]).name
    params = {"roles": ["value"] * len(inputs), "reducer": remember(reducer), "column": name}
    return bind_analyzer("reduce", inputs, (dtype, tuple(shape)), params)
