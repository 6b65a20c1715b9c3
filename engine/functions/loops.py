"""Loops of the graph: `while` and `for` as `lax.while_loop`, `lax.scan` or, with a bound, a masked scan.

Python runs a loop as long as it knows by itself whether to go on; from the step on where a tensor decides, the rest
becomes one loop of the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Never

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from ...errors import InputError
from .._caller import caller
from .branches import join_paths
from .carry import Carry
from .iterables import Rows, Steps, staged
from .options import DEFAULTS, LoopOptions
from .values import Changes, Getter, Setter, is_traced, refuse_changes, truth

Leaves = list[Any]  # JAX arrays


@dataclass(frozen=True)
class Block:
    """The variables of a loop, and how to read and write them."""

    get: Getter
    put: Setter
    names: Sequence[str]
    changes: Changes


def while_(
    test: Callable[[], Any],  # Any: a bool or a tracer
    body: Callable[[], None],
    get: Getter,
    put: Setter,
    names: Sequence[str],
    changes: Changes,
    hint: Callable[[], object] | None,
) -> None:
    """Run a while loop, or from where a tensor decides, make it one of the graph."""
    options = _options(hint)
    while not is_traced(going := test()):
        if not going:
            return
        body()
    truth(going, "the condition of this while")
    block = Block(get, put, names, changes)
    refuse_changes(changes, "a while")
    _repeat(block, lambda _: body(), test, None, options)


def for_(
    items: Any,  # Any: what the user iterates over
    body: Callable[[Any], None],
    test: Callable[[], Any] | None,
    get: Getter,
    put: Setter,
    names: Sequence[str],
    changes: Changes,
    hint: Callable[[], object] | None,
) -> None:
    """Run a for loop; over a tensor or a range with a tensor's bounds, make it one of the graph."""
    options = _options(hint)
    block = Block(get, put, names, changes)
    if test is not None and not is_traced(going := test()) and not going:
        return
    over = staged(items)
    if isinstance(over, Steps):
        refuse_changes(changes, "a for")
        _repeat(block, body, test, over, options)
    elif isinstance(over, Rows):
        if options.unroll:
            _in_python(block, (over.row(index) for index in range(over.length)), body, test)
        elif jax.export.is_symbolic_dim(over.length):  # a batch of any size: lax.scan wants to know it
            refuse_changes(changes, "a for")
            steps = Steps(0, jnp.asarray(over.length), 1)
            _repeat(block, lambda index: body(over.row(index)), test, steps, options)
        elif over.length:
            refuse_changes(changes, "a for")
            _scan(block, body, test, over)
    elif isinstance(items, range) and items and options.unroll is False:
        refuse_changes(changes, "a for")
        _scan(block, body, test, Rows.of_range(items))
    else:
        _in_python(block, items, body, test)


def _in_python(block: Block, items: Iterable[Any], body: Callable[[Any], None], test: Callable[[], Any] | None) -> None:
    """Python's own loop; a step behind an exit that a tensor decides runs under a condition."""
    get, put = block.get, block.put
    for item in items:
        going = True if test is None else test()
        if not is_traced(going):
            if not going:
                return
            body(item)
            continue
        refuse_changes(block.changes, "a for")
        before = get()

        def run(item: Any = item, before: Sequence[Any] = before) -> Sequence[Any]:  # Any: the user's variables
            put(before)
            body(item)
            return get()

        put(join_paths(going, run, lambda before=before: before, block.names))  # type: ignore[misc]  # default


def _options(hint: Callable[[], object] | None) -> LoopOptions:
    hinted = hint() if hint is not None else None
    options = hinted if isinstance(hinted, LoopOptions) else LoopOptions()
    default = DEFAULTS.get()
    return LoopOptions(default.max_steps if options.max_steps is None else options.max_steps, options.unroll)


def _scan(block: Block, body: Callable[[Any], None], test: Callable[[], Any] | None, over: Rows) -> None:
    """A loop of a known number of steps, one or more."""
    carry = Carry(block.get, block.put, block.names, lambda leaves: body(over.rebuilt(leaves)), over.structs())
    alive = carry.condition(test) if test is not None else None
    last = alive is None  # every step runs, so what the last one leaves is certain
    start = carry.start() + (carry.fresh_start() if last else [])
    count = len(carry.start())

    def step(state: Leaves, row: Leaves) -> tuple[Leaves, None]:
        if alive is None:
            return carry.step(state[:count], row, fresh=True), None
        return lax.cond(alive(state), lambda: carry.step(state, row), lambda: state), None

    end, _ = lax.scan(step, start, over.leaves, length=over.length)
    carry.finish(end, fresh=last, reason="a step that may not run")


def _repeat(
    block: Block,
    body: Callable[[Any], None],
    test: Callable[[], Any] | None,
    over: Steps | None,
    options: LoopOptions,
) -> None:
    """A loop whose number of steps the graph finds out: a while_loop, or with max_steps a scan over that many."""
    item = [] if over is None else [over.struct()]
    carry = Carry(block.get, block.put, block.names, lambda leaves: body(leaves[0] if leaves else None), item)
    alive = carry.condition(test) if test is not None else None
    where = caller()

    def going(count: Any, state: Leaves) -> Any:  # Any: traced numbers
        within = True if over is None else count < over.count
        return within if alive is None else jnp.logical_and(within, alive(state))

    def step(count: Any, state: Leaves) -> Leaves:
        return carry.step(state, [] if over is None else [over.at(count)])

    if options.max_steps is None:
        _, end = lax.while_loop(
            lambda both: going(*both), lambda both: (both[0] + 1, step(*both)), (jnp.int32(0), carry.start())
        )
        carry.finish([_unbounded(leaf, where) for leaf in end], reason="a loop that may run no step")
        return

    def masked(state: Leaves, count: Any) -> tuple[Leaves, None]:
        return lax.cond(going(count, state), lambda: step(count, state), lambda: state), None

    end, _ = lax.scan(masked, carry.start(), jnp.arange(options.max_steps, dtype=jnp.int32))
    cut = going(jnp.int32(options.max_steps), end)
    shown = [jnp.where(cut, jnp.nan, leaf) if jnp.issubdtype(leaf.dtype, jnp.inexact) else leaf for leaf in end]
    carry.finish(shown, reason="a loop that may run no step")


# --- the mark on the results of a loop without a bound: a gradient through it is an error that says where ---------

_MARK: Final = Primitive("unbounded_loop")


def _unbounded(value: jax.Array, where: str | None) -> jax.Array:
    """The value itself; its gradient raises InputError at `where`. Forward derivatives pass."""
    if not jnp.issubdtype(value.dtype, jnp.inexact):
        return value
    marked: jax.Array = _MARK.bind(value, where=where)  # type: ignore[no-untyped-call]  # JAX types no Primitive
    return marked


@_MARK.def_impl  # type: ignore[untyped-decorator]  # as above
def _run(value: Any, *, where: str | None) -> Any:  # Any: an array
    return value


@_MARK.def_abstract_eval  # type: ignore[untyped-decorator]  # as above
def _shape(aval: Any, *, where: str | None) -> Any:  # Any: an aval
    return aval


def _transposed(*_: Any, where: str | None) -> Never:  # Any: cotangents
    raise InputError(
        "a gradient goes through a loop whose number of steps is not bounded",
        fix="begin its body with set_max_steps(n), or give @function(max_steps=n): at most n steps, with gradients",
        where=where,
    )


def _batched(values: Any, dims: Any, *, where: str | None) -> Any:  # Any: arrays and their batch dimensions
    return _unbounded(values[0], where), dims[0]


ad.deflinear2(_MARK, _transposed)  # type: ignore[no-untyped-call]  # JAX types none of these
batching.primitive_batchers[_MARK] = _batched
mlir.register_lowering(_MARK, mlir.lower_fun(_run, multiple_results=False))
