"""Imputation: missing values filled with a statistic of the training data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, overload

from ...errors import InputError
from .._caller import caller
from ..tracing.columns import read
from . import statistics
from .arguments import Array, Value
from .values import fill_missing, is_missing

_RULES: Final[dict[str, Callable[[Value], Any]]] = {
    "mean": statistics.mean,
    "median": statistics.median,
    "mode": statistics.mode,
}


@overload
def imputed(x: Value, how: str = ..., *, indicator: Literal[False] = ...) -> Value: ...
@overload
def imputed(x: Value, how: str = ..., *, indicator: Literal[True]) -> tuple[Value, Array]: ...
def imputed(x: Value, how: str = "mean", *, indicator: bool = False) -> Any:
    """`fill_missing` with the mean, median or mode of the training data; text takes "mode" only.

    Args:
        x: The column.
        how: "mean", "median" or "mode".
        indicator: Whether to give `is_missing(x)` beside it.

    Returns:
        The filled column, or with `indicator` that and a bool array.
    """
    column = read(x, "given to imputed")
    allowed = ("mode",) if column.dtype == "string" else tuple(_RULES)
    if how not in allowed:
        raise InputError(
            f"column {column.name!r} cannot be imputed by {how!r}", fix=f"use {' or '.join(allowed)}", where=caller()
        )
    value = _RULES[how](x)
    filled = fill_missing(x, value > 0 if column.dtype == "bool" and how == "mode" else value)
    return (filled, is_missing(x)) if indicator else filled
