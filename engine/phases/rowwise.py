"""Rows by themselves: a preprocessing function that lets one row of a batch look at another is refused.

A batch is however many rows happen to come together, and is padded. `jnp.mean(x)` over it is a number of nothing, and
another in training than in serving; what is meant is `ops.mean(x)`, of the whole training data.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from ...errors import InputError
from .._caller import is_users
from ..tracing.primitives import KIND
from ..tracing.trace import Traced

_OURS: Final = str(Path(__file__).parent.parent / "ragged") + "/"  # counts values over rows, so that each gets its own

Equation = Any  # jax.extend.core.JaxprEqn, here and below
Axes = tuple[int, ...]


def check_rowwise(traced: Traced) -> None:
    """Look at every equation that an output, a check or an analyzer needs.

    Raises:
        InputError: One reduces, sorts, shifts or picks rows, or draws random numbers for them, with the user's line.
            What is picked by an array of row numbers is not looked into.
    """
    for equation in _live(traced.jaxpr.jaxpr):
        found = _mixing(equation)
        if found is not None:
            raise InputError(
                f"{found} goes over the rows of a batch, which are however many come together",
                fix="ops.mean, ops.sum, ops.max … are of the whole training data; within a row, name the axis: axis=-1",
                where=_where(equation),
            )


def _live(jaxpr: Any) -> list[Equation]:  # Any: a jaxpr, here and below
    needed = {id(var) for var in jaxpr.outvars}
    kept = []
    for equation in reversed(jaxpr.eqns):
        if equation.effects or any(id(var) in needed for var in equation.outvars):
            needed.update(id(var) for var in equation.invars)
            kept.append(equation)
    return kept[::-1]


def _mixing(equation: Equation) -> str | None:
    """What mixes rows in an equation, or in what it calls: the name of a primitive."""
    if KIND in equation.params or _is_ours(equation):
        return None
    name = equation.primitive.name
    given, made = ([var.aval for var in side] for side in (equation.invars, equation.outvars))
    if any(map(_rows, given)) and not any(map(_rows, made)) and name != "while":
        return str(name)
    rule = _RULES.get(name)
    if rule is not None and rule(equation.params, given, made):
        return str(name)
    for param, value in equation.params.items():
        if param == "cond_jaxpr":  # whether any row goes on is all that a loop's condition can ask
            continue
        for inner in value if isinstance(value, (tuple, list)) else (value,):
            for each in getattr(getattr(inner, "jaxpr", inner), "eqns", ()):
                found = _mixing(each)
                if found is not None:
                    return found
    return None


def _rows(aval: Any) -> Axes:  # Any: a JAX aval, here and below
    """The axes that stand for rows, or for the values of all rows: those of no fixed size."""
    shape = getattr(aval, "shape", ())
    return tuple(axis for axis, size in enumerate(shape) if not isinstance(size, int))


def _along(param: str) -> Callable[..., bool]:
    """An axis, or several, that may not be of rows."""

    def rule(params: Any, given: list[Any], made: list[Any]) -> bool:
        axes = params[param]
        named = axes if isinstance(axes, tuple) else (axes,)
        rows = {axis for aval in given for axis in _rows(aval)}
        return any(int(axis) in rows for axis in named)

    return rule


def _contracted(params: Any, given: list[Any], made: list[Any]) -> bool:
    axes, _ = params["dimension_numbers"]
    return any(axis in _rows(aval) for aval, named in zip(given, axes, strict=False) for axis in named)


def _cut(params: Any, given: list[Any], made: list[Any]) -> bool:
    return any(given[0].shape[axis] != made[0].shape[axis] for axis in _rows(given[0]))


def _picked(params: Any, given: list[Any], made: list[Any]) -> bool:
    """Rows picked by fixed numbers, as x[0] and x[1:] do."""
    numbers = params["dimension_numbers"]
    free = [axis for axis in _rows(given[0]) if axis not in numbers.operand_batching_dims]
    return not _rows(given[1]) and any(params["slice_sizes"][axis] != given[0].shape[axis] for axis in free)


def _placed(params: Any, given: list[Any], made: list[Any]) -> bool:
    """Rows set by fixed numbers, as x.at[0].set(…) does."""
    numbers = params["dimension_numbers"]
    return not _rows(given[1]) and any(axis in numbers.scatter_dims_to_operand_dims for axis in _rows(given[0]))


def _last(params: Any, given: list[Any], made: list[Any]) -> bool:
    ends = len(params["fft_lengths"]) if "fft_lengths" in params else 1
    return any(axis >= len(given[0].shape) - ends for axis in _rows(given[0]))


def _drawn(params: Any, given: list[Any], made: list[Any]) -> bool:
    """Random numbers by the place in the batch."""
    return any(map(_rows, made))


def _carried(params: Any, given: list[Any], made: list[Any]) -> bool:
    return not isinstance(params["length"], int) and params["num_carry"] > 0


_RULES: Final[dict[str, Callable[..., bool]]] = {
    **dict.fromkeys(("reduce_sum", "reduce_max", "reduce_min", "reduce_prod"), _along("axes")),
    **dict.fromkeys(("reduce_and", "reduce_or", "reduce_xor", "argmax", "argmin"), _along("axes")),
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"), _along("axis")),
    "sort": _along("dimension"), "concatenate": _along("dimension"), "rev": _along("dimensions"),
    "reduce": _along("dimensions"), "dot_general": _contracted, "scan": _carried, "gather": _picked,
    "random_bits": _drawn,
    **dict.fromkeys(("slice", "dynamic_slice", "pad"), _cut), **dict.fromkeys(("top_k", "fft"), _last),
    **dict.fromkeys(("scatter", "scatter-add", "scatter-mul", "scatter-min", "scatter-max"), _placed),
}  # fmt: skip
"""Primitive → whether it mixes rows, from its params and the shapes of what it takes and gives."""


def _frames(equation: Equation) -> list[Any]:
    return list(getattr(equation.source_info.traceback, "frames", ()))


def _is_ours(equation: Equation) -> bool:
    return any(frame.file_name.startswith(_OURS) for frame in _frames(equation))


def _where(equation: Equation) -> str | None:
    found = next((frame for frame in _frames(equation) if is_users(frame.file_name)), None)
    return None if found is None else f"{found.file_name}:{found.line_num}"
