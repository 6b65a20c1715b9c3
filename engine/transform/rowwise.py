"""Rows by themselves: a function whose result for one row depends on another is refused, in a transform or a model.

Which rows share a batch is arbitrary, and batches are padded. `jnp.mean(x)` over it means nothing, and differs
between training and serving; what is meant is `ops.mean(x)`, of the whole training data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import prod
from pathlib import Path
from typing import Any, Final

from ...errors import InputError
from ...user_code import is_users
from ..tracing.equations import CALLS, scan_operands
from ..tracing.primitives import KIND
from ..tracing.training_only import TRAINING_ONLY
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

    Kernels of your own are not looked into; nor is the number of rows (`x.shape[0]`) followed once a loop carries it on
    as a number.

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
        *_mixtures(closed.jaxpr, closed.jaxpr.outvars, numbers, exported=exported),
        *_row_counts(closed.jaxpr, numbers),
    ]
    if mixtures:
        # The count of a mean, say, is not what is wrong: another mixture is named before it.
        name, where = min(mixtures, key=lambda mixture: mixture[0] == _COUNT)
        raise InputError(
            f"{name} goes over the rows of a batch, and which rows share a batch is arbitrary", fix=fix, where=where
        )


def _live_equations(jaxpr: Any, outputs: Iterable[Any]) -> tuple[list[Equation], set[int]]:  # Any: jaxpr, variables
    """The equations that some outputs need, and the ids of all variables that are needed."""
    needed = {id(var) for var in outputs}
    kept = []
    for equation in reversed(jaxpr.eqns):
        if equation.effects or any(id(var) in needed for var in equation.outvars):
            needed.update(id(var) for var in equation.invars)
            kept.append(equation)
    return kept[::-1], needed


def _mixtures(jaxpr: Any, outputs: Iterable[Any], numbers: RowNumbers, *, exported: bool) -> Iterator[_Mixture]:
    """All equations that mix rows, or compute with their number, in the order of the program."""
    live, needed = _live_equations(jaxpr, outputs)
    for equation in live:
        if KIND in equation.params or (exported and str(equation.params.get("name", "")).startswith(TRAINING_ONLY)):
            continue
        ours = _is_ours(equation)
        numbers.mark_outputs(equation, ours=ours)
        if ours:
            continue
        called = list(_inner_jaxprs(equation))
        # A plain call only passes its operands on: whether it mixes rows is decided by the equations inside.
        if not any(_is_plain_call(equation, inner) for inner in called):
            name = _mixing_primitive(equation, numbers)
            if name is not None:
                yield name, _where(equation)
        for inner in called:
            numbers.carry_over(inner.invars, operands(equation, len(inner.invars)))
            wanted = inner.outvars
            if _is_plain_call(equation, inner):
                pairs = zip(inner.outvars, equation.outvars, strict=True)
                wanted = [var for var, outer in pairs if id(outer) in needed]
            # JAX caches what it traced by function and shapes. A library's inner jaxpr therefore has the lines of the
            # first call of it, which may be another one; this equation's line is then the right one.
            for name, where in _mixtures(inner, wanted, numbers, exported=exported):
                yield name, (where if _is_users_own(inner) else None) or _where(equation)
            if _is_plain_call(equation, inner):
                numbers.carry_over(equation.outvars, inner.outvars)


def _row_counts(jaxpr: Any, numbers: RowNumbers) -> Iterator[_Mixture]:
    """The outputs that are the number of rows itself."""
    makers = {id(var): equation for equation in jaxpr.eqns for var in equation.outvars}
    for var in jaxpr.outvars:
        if numbers.is_row_count(var):
            yield _COUNT, _where(makers[id(var)])


def _inner_jaxprs(equation: Equation) -> Iterable[Any]:
    """The jaxprs that an equation calls, without a loop's condition, which may ask whether any row goes on."""
    for param, value in equation.params.items():
        for inner in value if isinstance(value, (tuple, list)) else (value,):
            jaxpr = getattr(inner, "jaxpr", inner)
            if param != "cond_jaxpr" and hasattr(jaxpr, "eqns"):
                yield jaxpr


def _is_plain_call(equation: Equation, inner: Any) -> bool:
    """Whether an equation is a plain call: its operands and results are those of the inner jaxpr, one to one."""
    counts = len(equation.invars), len(equation.outvars)
    return equation.primitive.name in _CALL_PRIMITIVES and counts == (len(inner.invars), len(inner.outvars))


def _mixing_primitive(equation: Equation, numbers: RowNumbers) -> str | None:
    """The name of an equation's primitive if it mixes rows by itself, without a look at what it calls; else None."""
    name = str(equation.primitive.name)
    if numbers.computes_with_row_count(equation):
        return _COUNT
    inputs, outputs = ([var.aval for var in side] for side in (equation.invars, equation.outvars))
    if any(map(rows_of, inputs)) and not any(map(rows_of, outputs)) and name != "while":
        return name
    if name in _LAYOUT_PRIMITIVES and numbers.reads_list_layout(equation):
        return None
    if name in _PICKING_PRIMITIVES:
        return name if _picks_other_rows(equation, numbers) else None
    rule = _RULES.get(name)
    return name if rule is not None and rule(equation.params, inputs, outputs) else None


def _over_rows(param: str) -> Callable[..., bool]:
    """The rule for a primitive that reduces or orders along the axes in that parameter: none of them may be of rows."""

    def rule(params: Any, inputs: list[Any], outputs: list[Any]) -> bool:
        axes = params[param]
        named = axes if isinstance(axes, tuple) else (axes,)
        rows = {axis for aval in inputs for axis in rows_of(aval)}
        return any(int(axis) in rows for axis in named)

    return rule


def _reshapes_rows(params: Any, inputs: list[Any], outputs: list[Any]) -> bool:
    """Whether a reshape moves values between rows: then the sizes before an axis of rows have another product."""
    shape = (
        inputs[0].shape if params["dimensions"] is None else [inputs[0].shape[axis] for axis in params["dimensions"]]
    )
    return _sizes_before_rows(shape) != _sizes_before_rows(outputs[0].shape)


def _sizes_before_rows(shape: Any) -> list[Any]:  # sizes, symbolic ones among them
    return [prod(shape[:axis]) for axis, size in enumerate(shape) if not isinstance(size, int)]


def _tiles_rows(params: Any, inputs: list[Any], outputs: list[Any]) -> bool:
    return any(params["reps"][axis] != 1 for axis in rows_of(inputs[0]))


def _contracts_rows(params: Any, inputs: list[Any], outputs: list[Any]) -> bool:
    axes, _ = params["dimension_numbers"]
    return any(axis in rows_of(aval) for aval, named in zip(inputs, axes, strict=False) for axis in named)


def _cuts_rows(params: Any, inputs: list[Any], outputs: list[Any]) -> bool:
    return any(inputs[0].shape[axis] != outputs[0].shape[axis] for axis in rows_of(inputs[0]))


def _picks_other_rows(equation: Equation, numbers: RowNumbers) -> bool:
    """Whether rows are picked or set by numbers other than their own: x[0], x[1:], x[i], x.at[i].set(…)."""
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
        mark = numbers.mark_of(chosen, tuple(places).index(axis))
        if not rows_of(chosen.aval) or mark is None or not (mark is LISTS or mark == shape[axis]):
            return True
    return False


def _convolves_rows(params: Any, inputs: list[Any], outputs: list[Any]) -> bool:
    batch = params["dimension_numbers"].lhs_spec[0]
    return (
        bool(rows_of(inputs[1])) or any(axis != batch for axis in rows_of(inputs[0])) or params["batch_group_count"] > 1
    )


def _slides_over_rows(params: Any, inputs: list[Any], outputs: list[Any]) -> bool:
    return any(params["window_dimensions"][axis] != 1 for aval in inputs for axis in rows_of(aval))


def _overlays_rows(params: Any, inputs: list[Any], outputs: list[Any]) -> bool:
    return any(inputs[0].shape[axis] != inputs[1].shape[axis] for axis in rows_of(inputs[0]))


def _rows_span_matrix(params: Any, inputs: list[Any], outputs: list[Any]) -> bool:
    return any(axis >= len(aval.shape) - 2 for aval in inputs for axis in rows_of(aval))


def _solves_over_rows(params: Any, inputs: list[Any], outputs: list[Any]) -> bool:
    """Triangular systems: each column of the right side (or row, from the right) is solved by itself."""
    side = len(inputs[1].shape) - (2 if params["left_side"] else 1)
    return _rows_span_matrix(params, inputs[:1], outputs) or side in rows_of(inputs[1])


def _transforms_rows(params: Any, inputs: list[Any], outputs: list[Any]) -> bool:
    ends = len(params["fft_lengths"]) if "fft_lengths" in params else 1
    return any(axis >= len(inputs[0].shape) - ends for axis in rows_of(inputs[0]))


def _draws_per_row(params: Any, inputs: list[Any], outputs: list[Any]) -> bool:
    """Random numbers for each row follow its position in the batch, which serving does not repeat."""
    return any(map(rows_of, outputs))


def _carries_over_rows(params: Any, inputs: list[Any], outputs: list[Any]) -> bool:
    """Whether a scan takes a step per row and carries something on: then a row's result depends on the rows before."""
    return not isinstance(params["length"], int) and scan_operands(params)[1] > 0


_RULES: Final[dict[str, Callable[..., bool]]] = {
    **dict.fromkeys(("reduce_sum", "reduce_max", "reduce_min", "reduce_prod"), _over_rows("axes")),
    **dict.fromkeys(("reduce_and", "reduce_or", "reduce_xor", "argmax", "argmin"), _over_rows("axes")),
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"), _over_rows("axis")),
    "sort": _over_rows("dimension"), "concatenate": _over_rows("dimension"), "rev": _over_rows("dimensions"),
    "reduce": _over_rows("dimensions"), "dot_general": _contracts_rows, "scan": _carries_over_rows,
    "random_bits": _draws_per_row, "conv_general_dilated": _convolves_rows, "triangular_solve": _solves_over_rows,
    "dynamic_update_slice": _overlays_rows, "reshape": _reshapes_rows, "tile": _tiles_rows,
    **dict.fromkeys(("slice", "dynamic_slice", "pad"), _cuts_rows), **dict.fromkeys(("top_k", "fft"), _transforms_rows),
    **dict.fromkeys([f"reduce_window{of}" for of in ("", "_sum", "_max", "_min")], _slides_over_rows),
    **dict.fromkeys(("cholesky", "eig", "eigh", "geqrf", "householder_product", "lu"), _rows_span_matrix),
    **dict.fromkeys(("qr", "schur", "svd"), _rows_span_matrix),
}  # fmt: skip
"""Primitive → whether it mixes rows, from its params and the shapes of what it takes and gives."""

_COUNT: Final = "x.shape[0] as a number"
_CALL_PRIMITIVES: Final = (*CALLS, "custom_jvp_call", "custom_vjp_call", "remat2", "checkpoint")
_PICKING_PRIMITIVES: Final = ("gather", "scatter", "scatter-add", "scatter-mul", "scatter-min", "scatter-max")
# What computes where the rows of lists begin: allowed on integers that say how lists are laid out.
_LAYOUT_PRIMITIVES: Final = ("slice", "dynamic_slice", "gather", "pad", "concatenate", "cumsum")


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
