"""Analyzers of numbers: values of the whole training data, computed in a full pass before anything is transformed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import jax.numpy as jnp

from ...errors import InputError
from .._caller import caller
from ..tracing.columns import Column, read
from ..tracing.primitives import bind_analyzer, current
from .arguments import Array, LearntText, Value, at_least

__all__ = [
    "correlation", "count", "covariance", "histogram", "max", "mean", "median", "min", "mode", "pca", "quantiles",
    "size", "std", "sum", "var",
]  # fmt: skip

_DEVICE: Final = {"bool": "int32", "list<int64>": "int32", "list<float64>": "float32"}


def mean(x: Value, *, elementwise: bool = False) -> Array:
    """float32 scalar: the mean; NaN for no value. Elementwise, of an array [batch, d], one per element: float32[d]."""
    return _analyze("mean", x, "float32", elementwise=elementwise)


def var(x: Value, *, elementwise: bool = False) -> Array:
    """The population variance (÷ n); NaN for no value. Shape and dtype as `mean`."""
    return _analyze("var", x, "float32", elementwise=elementwise)


def std(x: Value, *, elementwise: bool = False) -> Array:
    """The square root of `var`."""
    return jnp.sqrt(var(x, elementwise=elementwise))


def sum(x: Value, *, elementwise: bool = False) -> Array:  # noqa: A001  # ops.sum is the field's name
    """The sum, rounded once; 0 for no value. Shape and dtype as `mean`."""
    return _analyze("sum", x, "float32", elementwise=elementwise)


def count(x: Value, *, elementwise: bool = False) -> Array:
    """int32 scalar: how many values are present and finite; elementwise int32[d]."""
    return _analyze("count", x, "int32", elementwise=elementwise)


def size(x: Value) -> Array:
    """int32 scalar: how many rows there are, those where `x` is missing included."""
    column = read(x, "given to size")
    column._check_readable()
    if column.on_host or column.fact.handle is not None:
        return bind_analyzer("size", [column.handle], ("int32", ()), {"column": column.name})
    (values, *_), _, _ = operands(x, "given to size")
    return bind_analyzer("size", [values], ("int32", ()), {"column": column.name})


def min(x: Value, *, elementwise: bool = False) -> Array:  # noqa: A001  # as sum
    """Scalar of x's dtype: the smallest value; elementwise [d]. No value: NaN, or for integers an error."""
    return _analyze("min", x, None, elementwise=elementwise)


def max(x: Value, *, elementwise: bool = False) -> Array:  # noqa: A001  # as sum
    """Scalar of x's dtype: the largest value; as `min`."""
    return _analyze("max", x, None, elementwise=elementwise)


def quantiles(x: Value, buckets: int, *, weights: Value = None, elementwise: bool = False) -> Array:
    """The `buckets` − 1 boundaries, of x's dtype: boundary i is the value at position floor(i·N/buckets) of N sorted.

    Args:
        x: The column.
        buckets: How many buckets, at least 2.
        weights: A column of numbers, 0 or more and none missing: how often each row counts. Boundary i is the first
            value at which the cumulative weight exceeds i/buckets of all; float32 then.
        elementwise: Of an array [batch, d]: the boundaries of each element, [d, buckets − 1].
    """
    at_least("buckets", buckets, 2)
    params: dict[str, object] = {"buckets": buckets}
    if weights is None:
        return _analyze("quantiles", x, None, params, (buckets - 1,), elementwise=elementwise)
    if elementwise:
        raise InputError("weighted quantiles are not elementwise", fix="take one element at a time", where=caller())
    inputs, roles, column = operands(x, "given to quantiles")
    by = weight_of(weights)
    params = {**params, "roles": [*roles, "weight"], "weight": by.name, "column": column.name}
    return bind_analyzer("quantiles", [*inputs, by.handle], ("float32", (buckets - 1,)), params)


def median(x: Value, *, elementwise: bool = False) -> Array:
    """float32 scalar: the middle value, or the midpoint of the two middle ones; elementwise float32[d]."""
    return _analyze("median", x, "float32", elementwise=elementwise)


def mode(x: Value) -> Array | LearntText:
    """The most frequent value, the smallest of several: a scalar of x's dtype, or for text what `fill_missing` takes.

    Raises:
        InputError: Of the analysis, for more than 2^20 distinct numbers.
    """
    column = read(x, "given to mode")
    if column.dtype == "string":
        handle = bind_analyzer("mode_of_text", [column.handle], ("vocabulary", ()), {"column": column.name})
        return LearntText(column.name, handle)
    return _analyze("mode", x, None)


def histogram(x: Value, bins: int | Sequence[float] = 10) -> tuple[Array, Array]:
    """Counts and edges, as `numpy.histogram` gives them.

    Args:
        x: The column.
        bins: How many buckets of equal width between the smallest and the largest value, or the edges, ascending.

    Returns:
        int32[n] counts, the last bucket closed on both sides and values outside not counted; float32[n + 1] edges.
    """
    if isinstance(bins, (int, bool)):
        at_least("bins", bins, 1)
        edges: int | list[float] = bins
        n = bins
    else:
        edges = [float(edge) for edge in bins]
        if len(edges) < 2 or not all(a < b for a, b in pairwise(edges)):
            raise InputError(f"the edges {edges!r:.60} do not rise", fix="give two or more, ascending", where=caller())
        n = len(edges) - 1
    counts = _analyze("histogram_counts", x, "int32", {"bins": edges}, (n,))
    return counts, _analyze("histogram_edges", x, "float32", {"bins": edges}, (n + 1,))


def covariance(x: Value) -> Array:
    """float32[d, d] of an array [batch, d]: the population covariance (÷ n) of rows that are finite throughout."""
    return _products("covariance", x)


def correlation(x: Value) -> Array:
    """float32[d, d] of an array [batch, d]: Pearson's r; NaN for a constant element. Rows as `covariance`."""
    return _products("correlation", x)


def pca(x: Value, k: int) -> Array:
    """The first k principal directions of an array [batch, d], as float32[d, k]: `x @ directions` is [batch, k].

    Eigenvectors of `covariance`, largest eigenvalue first; nothing is centred, as in TFT. The sign, which is free, is
    chosen so that each one's entry of largest magnitude (the first of equals) is positive. Zeros where no row counts.
    """
    at_least("k", k, 1)
    width = _width(read(x, "given to pca"), "pca")
    if k > width:
        raise InputError(f"k is {k}, x has {width} elements", fix=f"use {width} or less", where=caller())
    return _products("pca", x, {"k": k}, (width, k))


def ends(x: Value, *, elementwise: bool = False) -> tuple[Array, Array]:
    """The smallest and the largest value as float32, NaN for none; shapes as `min`."""
    params = {"as": "float32"}  # distinguishes them from min and max of the column's own dtype
    least, most = (_analyze(kind, x, "float32", params, elementwise=elementwise) for kind in ("min", "max"))
    return least, most


def numbers(column: Column, doing: str) -> None:
    """Raise InputError, with the user's line, for text and lists of text, which are not numbers."""
    if column.item not in ("int64", "float64"):
        column.check_numeric(doing)


def operands(x: Value, doing: str) -> tuple[list[Any], list[str], Column]:
    """What an analyzer of numbers reads of x: the inputs, their roles, and the column for its name and dtype.

    Raises:
        InputError: It is text, or no column.
    """
    column = read(x, doing)
    numbers(column, doing)
    if column.fact.handle is not None:
        return [column.fact.handle], ["value"], column
    if not column.values.shape or column.values.shape[0] != current().batch:
        name = doing.removeprefix("given to ")
        raise InputError(f"{name} of something that is not one value per row", fix="pass a column", where=caller())
    # In floats NaN marks what is missing, and analyzers leave it out; integers and booleans need `valid` beside.
    valid = None if column.values.dtype.kind == "f" else column.valid
    if valid is None:
        return [column.values], ["value"], column
    return [column.values, valid], ["value", "valid"], column


def weight_of(weights: Value) -> Column:
    """A column of weights. Raises InputError where it is not numbers, one per row."""
    _, _, column = operands(weights, "given as weights")
    if column.item is not None or (column.fact.handle is None and column.values.ndim != 1):
        raise InputError(f"the weights {column.name!r} are not one number per row", fix="pass a column", where=caller())
    return column


def _analyze(
    kind: str,
    x: Value,
    dtype: str | None,
    params: dict[str, Any] | None = None,
    shape: tuple[int, ...] = (),
    *,
    elementwise: bool = False,
) -> Array:
    inputs, roles, column = operands(x, f"given to {kind}")
    if dtype is None:
        dtype = _DEVICE.get(column.dtype, column.dtype)
    params = {**(params or {}), "roles": roles, "column": column.name}
    if elementwise:
        width = _width(column, kind)
        params["width"] = width
        shape = (width, *shape)
    return bind_analyzer(kind, inputs, (dtype, shape), params)


def _products(kind: str, x: Value, params: dict[str, Any] | None = None, shape: tuple[int, ...] | None = None) -> Array:
    inputs, roles, column = operands(x, f"given to {kind}")
    width = _width(column, kind)
    params = {**(params or {}), "roles": roles, "width": width, "column": column.name}
    return bind_analyzer(kind, inputs, ("float32", shape or (width, width)), params)


def _width(column: Column, kind: str) -> int:
    shape: tuple[Any, ...] = () if column.on_host else tuple(column.values.shape)
    if len(shape) != 2 or shape[0] != current().batch:
        raise InputError(
            f"{kind} takes vectors, and column {column.name!r} is not one",
            fix="pass an array of shape [batch, d], such as jnp.stack([a, b], axis=-1)",
            where=caller(),
        )
    return int(shape[1])


def tukey(x: Value, *, elementwise: bool = False) -> Array:
    """float32[4] (elementwise [d, 4]): location, scale, left and right h of the Tukey HH distribution of x."""
    return _analyze("tukey", x, "float32", None, (4,), elementwise=elementwise)
