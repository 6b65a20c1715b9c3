"""Rows by themselves: a function that lets one row of a batch look at another is refused, in a transform or a model.

A batch is however many rows happen to come together, and is padded. `jnp.mean(x)` over it means nothing, and differs
between training and serving; what is meant is `ops.mean(x)`, of the whole training data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import prod
from pathlib import Path
from typing import Any, Final

from ...errors import InputError
from .._caller import is_users
from ..tracing.equations import CALLS
from ..tracing.marks import TRAINING_ONLY
from ..tracing.primitives import KIND
from .row_numbers import LISTS, RowNumbers, operands, rows_of

_OURS: Final = str(Path(__file__).parent.parent / "ragged") + "/"  # counts values over rows, so that each gets its own

TRANSFORM_FIX: Final = (
    "ops.mean, ops.sum, ops.max … are of the whole training data; within a row, name the axis: axis=-1"
)
PREDICT_FIX: Final = (
    "name an axis within the row (axis=-1); what is known of all rows belongs in params, as batch normalisation keeps "
    "its running mean, or in preprocess (ops.mean …)"
)

Equation = Any  # jax.extend.core.JaxprEqn, here and below
_Mixture = tuple[str, str | None]  # the name of a primitive, and the user's line


def check_rowwise(closed: Any, fix: str = TRANSFORM_FIX, *, exported: bool = False) -> None:
    """Look at every equation that an output, a check or an analyzer needs.

    What a kernel of one's own does is not looked into, nor how many rows there are (`x.shape[0]`) where a loop carries
    that on as a number.

    Args:
        closed: A closed jaxpr with a symbolic batch.
        fix: What to do about it.
        exported: Whether what is for training alone (dropout of the engine's own) will be dropped.

    Raises:
        InputError: One reduces, sorts, shifts or picks rows, lays their values out otherwise, computes with how many
            there are, or draws random numbers for them, with the user's line. Rows may be picked by their own numbers
            (`v[jnp.arange(n), i]`), and values of lists by where they lie.
    """
    numbers = RowNumbers()
    mixtures = [
        *_mixed(closed.jaxpr, closed.jaxpr.outvars, numbers, exported=exported),
        *_row_counts(closed.jaxpr, numbers),
    ]
    if mixtures:
        # The count of a mean, say, is not what is wrong: another mixture is named before it.
        name, where = min(mixtures, key=lambda mixture: mixture[0] == _COUNT)
        raise InputError(
            f"{name} goes over the rows of a batch, which are however many come together", fix=fix, where=where
        )


def _live(jaxpr: Any, outputs: Iterable[Any]) -> tuple[list[Equation], set[int]]:  # Any: a jaxpr, its variables
    """The equations that some outputs need, and the ids of all variables that are needed."""
    needed = {id(var) for var in outputs}
    kept = []
    for equation in reversed(jaxpr.eqns):
        if equation.effects or any(id(var) in needed for var in equation.outvars):
            needed.update(id(var) for var in equation.invars)
            kept.append(equation)
    return kept[::-1], needed


def _mixed(jaxpr: Any, outputs: Iterable[Any], numbers: RowNumbers, *, exported: bool) -> Iterator[_Mixture]:
    """All that mixes rows, or counts them, in order."""
    live, needed = _live(jaxpr, outputs)
    for equation in live:
        if KIND in equation.params or (exported and str(equation.params.get("name", "")).startswith(TRAINING_ONLY)):
            continue
        ours = _is_ours(equation)
        numbers.learn(equation, ours=ours)
        if ours:
            continue
        called = list(_called(equation))
        if not any(_passes(equation, inner) for inner in called):  # else the inner equations are looked at below
            name = _mixing(equation, numbers)
            if name is not None:
                yield name, _where(equation)
        for inner in called:
            numbers.enter(inner.invars, operands(equation, len(inner.invars)))
            wanted = inner.outvars
            if _passes(equation, inner):
                pairs = zip(inner.outvars, equation.outvars, strict=True)
                wanted = [var for var, outer in pairs if id(outer) in needed]
            for name, where in _mixed(inner, wanted, numbers, exported=exported):
                yield name, (where if _is_users_own(inner) else None) or _where(equation)
            if _passes(equation, inner):
                numbers.enter(equation.outvars, inner.outvars)


def _row_counts(jaxpr: Any, numbers: RowNumbers) -> Iterator[_Mixture]:
    """The results that are how many rows there are."""
    makers = {id(var): equation for equation in jaxpr.eqns for var in equation.outvars}
    for var in jaxpr.outvars:
        if numbers.counted(var):
            yield _COUNT, _where(makers[id(var)])


def _called(equation: Equation) -> Iterable[Any]:
    """The jaxprs that an equation calls, but for a loop's condition: that can only ask whether any row goes on."""
    for param, value in equation.params.items():
        for inner in value if isinstance(value, (tuple, list)) else (value,):
            jaxpr = getattr(inner, "jaxpr", inner)
            if param != "cond_jaxpr" and hasattr(jaxpr, "eqns"):
                yield jaxpr


def _passes(equation: Equation, inner: Any) -> bool:
    """Whether an equation is a plain call: what goes in and comes out is what the inner jaxpr takes and gives."""
    counts = len(equation.invars), len(equation.outvars)
    return equation.primitive.name in _CALLS and counts == (len(inner.invars), len(inner.outvars))


def _mixing(equation: Equation, numbers: RowNumbers) -> str | None:
    """What mixes rows in an equation by itself: the name of its primitive."""
    name = str(equation.primitive.name)
    if numbers.counts(equation):
        return _COUNT
    inputs, outputs = ([var.aval for var in side] for side in (equation.invars, equation.outvars))
    if any(map(rows_of, inputs)) and not any(map(rows_of, outputs)) and name != "while":
        return name
    if name in _LAID_OUT and numbers.listed(equation):
        return None
    if name in _PICKING:
        return name if _picked(equation, numbers) else None
    rule = _RULES.get(name)
    return name if rule is not None and rule(equation.params, inputs, outputs) else None


def _along(param: str) -> Callable[..., bool]:
    """An axis, or several, that may not be of rows."""

    def rule(params: Any, inputs: list[Any], outputs: list[Any]) -> bool:
        axes = params[param]
        named = axes if isinstance(axes, tuple) else (axes,)
        rows = {axis for aval in inputs for axis in rows_of(aval)}
        return any(int(axis) in rows for axis in named)

    return rule


def _moved(params: Any, inputs: list[Any], outputs: list[Any]) -> bool:
    """Whether rows are laid out otherwise: before each axis of rows there are to be as many values as there were."""
    shape = (
        inputs[0].shape if params["dimensions"] is None else [inputs[0].shape[axis] for axis in params["dimensions"]]
    )
    return _before(shape) != _before(outputs[0].shape)


def _before(shape: Any) -> list[Any]:  # sizes, symbolic ones among them
    return [prod(shape[:axis]) for axis, size in enumerate(shape) if not isinstance(size, int)]


def _repeated(params: Any, inputs: list[Any], outputs: list[Any]) -> bool:
    return any(params["reps"][axis] != 1 for axis in rows_of(inputs[0]))


def _contracted(params: Any, inputs: list[Any], outputs: list[Any]) -> bool:
    axes, _ = params["dimension_numbers"]
    return any(axis in rows_of(aval) for aval, named in zip(inputs, axes, strict=False) for axis in named)


def _cut(params: Any, inputs: list[Any], outputs: list[Any]) -> bool:
    return any(inputs[0].shape[axis] != outputs[0].shape[axis] for axis in rows_of(inputs[0]))


def _picked(equation: Equation, numbers: RowNumbers) -> bool:
    """Rows picked or set by other numbers than their own: x[0], x[1:], x[i], x.at[i].set(…)."""
    shape, chosen = equation.invars[0].aval.shape, equation.invars[1]
    how, params = equation.params["dimension_numbers"], equation.params
    picks = "slice_sizes" in params
    places = how.start_index_map if picks else how.scatter_dims_to_operand_dims
    for axis in rows_of(equation.invars[0].aval):
        if axis in how.operand_batching_dims or (picks and params["slice_sizes"][axis] == shape[axis]):
            continue
        if axis not in places:
            if picks:
                return True
            continue  # whole rows are set
        mark = numbers.of(chosen, tuple(places).index(axis))
        if not rows_of(chosen.aval) or mark is None or not (mark is LISTS or mark == shape[axis]):
            return True
    return False


def _convolved(params: Any, inputs: list[Any], outputs: list[Any]) -> bool:
    batch = params["dimension_numbers"].lhs_spec[0]
    return (
        bool(rows_of(inputs[1])) or any(axis != batch for axis in rows_of(inputs[0])) or params["batch_group_count"] > 1
    )


def _windowed(params: Any, inputs: list[Any], outputs: list[Any]) -> bool:
    return any(params["window_dimensions"][axis] != 1 for aval in inputs for axis in rows_of(aval))


def _overlaid(params: Any, inputs: list[Any], outputs: list[Any]) -> bool:
    return any(inputs[0].shape[axis] != inputs[1].shape[axis] for axis in rows_of(inputs[0]))


def _matrix(params: Any, inputs: list[Any], outputs: list[Any]) -> bool:
    return any(axis >= len(aval.shape) - 2 for aval in inputs for axis in rows_of(aval))


def _solved(params: Any, inputs: list[Any], outputs: list[Any]) -> bool:
    """Triangular systems: each column of the right side (or row, from the right) is solved by itself."""
    side = len(inputs[1].shape) - (2 if params["left_side"] else 1)
    return _matrix(params, inputs[:1], outputs) or side in rows_of(inputs[1])


def _last(params: Any, inputs: list[Any], outputs: list[Any]) -> bool:
    ends = len(params["fft_lengths"]) if "fft_lengths" in params else 1
    return any(axis >= len(inputs[0].shape) - ends for axis in rows_of(inputs[0]))


def _drawn(params: Any, inputs: list[Any], outputs: list[Any]) -> bool:
    """Random numbers by the place in the batch."""
    return any(map(rows_of, outputs))


def _carried(params: Any, inputs: list[Any], outputs: list[Any]) -> bool:
    return not isinstance(params["length"], int) and params["num_carry"] > 0


_RULES: Final[dict[str, Callable[..., bool]]] = {
    **dict.fromkeys(("reduce_sum", "reduce_max", "reduce_min", "reduce_prod"), _along("axes")),
    **dict.fromkeys(("reduce_and", "reduce_or", "reduce_xor", "argmax", "argmin"), _along("axes")),
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"), _along("axis")),
    "sort": _along("dimension"), "concatenate": _along("dimension"), "rev": _along("dimensions"),
    "reduce": _along("dimensions"), "dot_general": _contracted, "scan": _carried,
    "random_bits": _drawn, "conv_general_dilated": _convolved, "triangular_solve": _solved,
    "dynamic_update_slice": _overlaid, "reshape": _moved, "tile": _repeated,
    **dict.fromkeys(("slice", "dynamic_slice", "pad"), _cut), **dict.fromkeys(("top_k", "fft"), _last),
    **dict.fromkeys([f"reduce_window{of}" for of in ("", "_sum", "_max", "_min")], _windowed),
    **dict.fromkeys(("cholesky", "eig", "eigh", "geqrf", "householder_product", "lu", "qr", "schur", "svd"), _matrix),
}  # fmt: skip
"""Primitive → whether it mixes rows, from its params and the shapes of what it takes and gives."""

_COUNT: Final = "x.shape[0] as a number"
_CALLS: Final = (*CALLS, "custom_jvp_call", "custom_vjp_call", "remat2", "checkpoint")
_PICKING: Final = ("gather", "scatter", "scatter-add", "scatter-mul", "scatter-min", "scatter-max")
_LAID_OUT: Final = (
    "slice",
    "dynamic_slice",
    "gather",
    "pad",
    "concatenate",
    "cumsum",
)  # what where rows begin is made by


def _frames(equation: Equation) -> list[Any]:
    return list(getattr(equation.source_info.traceback, "frames", ()))


def _is_users_own(jaxpr: Any) -> bool:
    """Whether a jaxpr is of a function of the user's; of a library's, the lines may be of another call of it."""
    return is_users(str(getattr(getattr(jaxpr, "debug_info", None), "func_filename", None) or "<"))


def _is_ours(equation: Equation) -> bool:
    return any(frame.file_name.startswith(_OURS) for frame in _frames(equation))


def _where(equation: Equation) -> str | None:
    users_frame = next((frame for frame in _frames(equation) if is_users(frame.file_name)), None)
    return None if users_frame is None else f"{users_frame.file_name}:{users_frame.line_num}"
