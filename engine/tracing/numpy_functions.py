"""NumPy functions of columns: those that jax.numpy has too are its; what is missing stays missing, as in operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp

from ...errors import InputError
from .._caller import caller


def like_numpy(
    elementwise: Callable[..., Any], ufunc: Any, method: str, inputs: Sequence[Any], settings: Mapping[str, Any]
) -> Any:  # Any: a NumPy ufunc, columns, arrays
    """A ufunc of columns, row by row. Raises InputError for one that jax.numpy does not have."""
    twin = getattr(jnp, ufunc.__name__.split(" ")[0], None)
    if method != "__call__" or settings or twin is None:
        raise unlike(f"numpy.{ufunc.__name__}" + (f".{method}" if method != "__call__" else ""))
    return elementwise(twin, *inputs)


def function_like_numpy(function: Any, args: Sequence[Any], settings: Mapping[str, Any]) -> Any:  # Any: as above
    """Another NumPy function, of whole columns. Raises as `like_numpy`."""
    twin = getattr(jnp, function.__name__, None)
    if twin is None:
        raise unlike(f"numpy.{function.__name__}")
    return twin(*args, **settings)


def unlike(name: str) -> InputError:
    """The error for a NumPy function that cannot be traced."""
    return InputError(f"{name} cannot be traced: {_WHY}", fix=ADVICE, where=caller())


_WHY = "NumPy runs on values, of which there are none yet"
ADVICE = (
    "use jax.numpy in place of NumPy, e.g. jnp.log1p for np.log1p; or make a host op of what has no twin there: "
    "engine.custom_ops.host_op (docs/custom-ops.md)"
)
"""What to do about a NumPy function that cannot be traced."""
