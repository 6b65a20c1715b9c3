"""Tape: calls recorded as a small DAG of their vector-Jacobian products, walked backwards for gradients.

A `@function` that is called while a tape lasts records itself, as one call; `tape.call` records a plain one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import get_opaque_trace_state

from ...errors import InputError
from .._caller import caller
from .autograph import CONVERTING, convert
from .values import having

Tree = Any  # a tree of arrays, the user's


@dataclass(frozen=True)
class _Call:
    """One recorded call: what was differentiable, what came out, and how to go back or do it again."""

    run: Callable[..., list[Any]]  # from the differentiable inputs to the flat outputs
    inputs: list[Any]
    outputs: list[Any]
    back: Callable[[list[Any]], Sequence[Any]]  # from cotangents of the outputs to those of the inputs


_TAPES: Final[ContextVar[tuple[Tape, ...]]] = ContextVar("drivetrain_tapes", default=())


class Tape:
    """Records calls of `@function`s, and those made by `tape.call`, and differentiates their results by reverse mode.

    Arrays are known by identity: what a recorded call returned, given to the next one, connects the two. A call is
    recorded as a whole, whatever it calls in turn. Calls in other threads are not seen, nor are those in a function
    that JAX transforms meanwhile (`jax.jit`, `jax.vmap`): record that function's call instead.

    Args:
        persistent: Whether gradients may be asked for more than once.
        watch_inputs: Whether every floating input of a call counts as watched; else only what `watch` named.
    """

    def __init__(self, *, persistent: bool = False, watch_inputs: bool = True) -> None:
        self.persistent = persistent
        self.watch_inputs = watch_inputs
        self._calls: list[_Call] = []
        self._known: dict[int, Any] = {}  # arrays that gradients may reach; kept, so that an id stays its own
        self._results: dict[int, Any] = {}  # all that calls returned while it recorded
        self._recording = False
        self._used = False
        self._token: Token[tuple[Tape, ...]] | None = None
        self._trace: object = None  # JAX's trace that it was entered in

    def __enter__(self) -> Tape:
        if self in _TAPES.get():
            raise InputError("the tape is recording already", fix="enter it once, or make another", where=caller())
        self._recording = True
        self._trace = _trace()
        self._token = _TAPES.set((*_TAPES.get(), self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._recording = False
        if self._token is not None:
            _TAPES.reset(self._token)

    def watch(self, *trees: Tree) -> None:
        """Count arrays as sources.

        Raises:
            InputError: A leaf is not a floating array, or a Python number, which has no identity.
        """
        for leaf in jax.tree.leaves(trees):
            if not _differentiable(leaf):
                raise InputError(
                    f"{leaf!r:.40} cannot be watched", fix="watch arrays of a floating dtype: jnp.asarray(3.0)",
                    where=caller(),
                )  # fmt: skip
            self._known[id(leaf)] = leaf

    @contextmanager
    def stop_recording(self) -> Iterator[None]:
        """While this lasts, calls run and are not recorded on this tape."""
        before, self._recording = self._recording, False
        try:
            yield
        finally:
            self._recording = before

    def call(self, fn: Callable[..., Tree], *args: Any, **kwargs: Any) -> Tree:  # Any: the user's arguments
        """Call a function and record it, on this tape and on those around it.

        Returns:
            What it returns.

        Raises:
            InputError: The tape is not entered.
        """
        if self not in _TAPES.get():
            raise InputError("the tape is not recording", fix="call within `with Tape() as tape:`", where=caller())
        trace = _trace()
        tapes = [tape for tape in _TAPES.get() if tape._recording and (tape is self or tape._trace == trace)]
        return _record(tapes, convert(fn) if CONVERTING.get() else fn, args, kwargs)

    def gradient(
        self,
        target: Tree,
        sources: Tree,
        output_gradients: Tree = None,
        *,
        unconnected: Literal["none", "zero"] = "none",
    ) -> Tree:
        """The gradient of the sum of the target's elements with respect to the sources.

        Args:
            target: Results of recorded calls.
            sources: Inputs or results of recorded calls.
            output_gradients: Weights of the target's elements, in its structure; ones by default.
            unconnected: What a source gets on which the target does not depend: None, or zeros.

        Returns:
            Arrays in the structure of `sources`, each with the shape and dtype of its source.

        Raises:
            InputError: The tape was used already and is not persistent, a target was not made by a call that it
                recorded, a source is a Python number, or the weights do not fit.
        """
        self._use(target, sources)
        weights = self._weights(target, output_gradients)
        gradients = self._outwards(jax.tree.leaves(target), jax.tree.leaves(sources), weights)
        if unconnected == "zero":
            pairs = zip(jax.tree.leaves(sources), gradients, strict=True)
            gradients = [jnp.zeros_like(source) if item is None else item for source, item in pairs]
        return jax.tree.unflatten(jax.tree.structure(sources), gradients)

    def jacobian(self, target: jax.Array, source: jax.Array) -> jax.Array:
        """The derivative of each element of the target by each of the source: shape target.shape + source.shape.

        Zeros where the target does not depend on the source.

        Raises:
            InputError: As `gradient`; or target or source is a tree of arrays.
        """
        self._use(target, source)
        if not _differentiable(target) or not _differentiable(source):
            raise InputError(
                "tape.jacobian takes one floating array as target and one as source",
                fix="ask for each by itself, with a persistent tape; or jacobian(fn)(tree)",
                where=caller(),
            )
        rows = jnp.eye(target.size, dtype=target.dtype).reshape(target.size, *target.shape)

        def row(weights: jax.Array) -> jax.Array:
            (gradient,) = self._outwards([target], [source], [weights])
            return jnp.zeros_like(source) if gradient is None else gradient

        return jax.vmap(row)(rows).reshape(*target.shape, *source.shape)

    def _use(self, target: Tree, sources: Tree) -> None:
        if self._used and not self.persistent:
            raise InputError("the tape was used already", fix="Tape(persistent=True)", where=caller())
        known = self._known.keys() | self._results.keys()
        if any(_differentiable(leaf) and id(leaf) not in known for leaf in jax.tree.leaves(target)):
            raise InputError(
                "the target was not made by a call that this tape recorded: arithmetic outside of calls is not seen",
                fix="put it into a @function, or y = tape.call(fn, x), down to the target itself",
                where=caller(),
            )
        number = next((leaf for leaf in jax.tree.leaves(sources) if isinstance(leaf, (float, complex))), None)
        if number is not None and not isinstance(number, np.generic):
            raise InputError(
                f"the source {number!r} is a Python number, which no tape can follow",
                fix="give the call and the gradient one array: x = jnp.asarray(…)",
                where=caller(),
            )
        self._used = True

    def _weights(self, target: Tree, output_gradients: Tree) -> list[Any]:
        tree: Any  # JAX types no comparison of PyTreeDefs
        leaves, tree = jax.tree.flatten(target)
        if output_gradients is None:
            return [jnp.ones_like(leaf) for leaf in leaves]
        weights = jax.tree.leaves(output_gradients)
        if jax.tree.structure(output_gradients) != tree or any(
            np.shape(leaf) != np.shape(weight) for leaf, weight in zip(leaves, weights, strict=True)
        ):
            raise InputError(
                "output_gradients do not have the structure and shapes of the target",
                fix="give one array for each of the target's",
                where=caller(),
            )
        return [jnp.asarray(weight, leaf.dtype) for weight, leaf in zip(weights, leaves, strict=True)]

    def _outwards(self, targets: list[Any], sources: list[Any], weights: list[Any]) -> list[Any]:
        """Gradients as arrays; where tapes around this one record, as a call of its own, so that they see it."""
        around = [tape for tape in _listening() if tape is not self]
        if not around:
            return self._backwards(targets, sources, weights)
        # The tapes around see the walk back as one call, so they can differentiate it. For that it must be a function
        # of all that it reads (the leaves of the DAG, the sources and the weights) and run the recorded calls again:
        # the vector-Jacobian products that were kept hold their inputs as constants.
        produced = {id(output) for call in self._calls for output in call.outputs}
        reads = {id(item): item for call in self._calls for item in call.inputs if id(item) not in produced}
        reads |= {id(item): item for item in sources if id(item) not in produced}
        keys = list(reads)
        reached = [item is not None for item in self._backwards(targets, sources, weights)]

        def again(inputs: list[Any], weights: list[Any]) -> list[Any]:
            values = dict(zip(keys, inputs, strict=True))
            copy = Tape(watch_inputs=self.watch_inputs)
            for call in self._calls:
                call_inputs = [values.get(id(item), item) for item in call.inputs]
                outputs, back = jax.vjp(call.run, *call_inputs)
                values.update(zip(map(id, call.outputs), outputs, strict=True))
                copy._calls.append(_Call(call.run, call_inputs, outputs, back))
            ends, starts = ([values.get(id(item), item) for item in items] for items in (targets, sources))
            copy._known = {id(values.get(key, item)): item for key, item in self._known.items()}
            return [item for item in copy._backwards(ends, starts, weights) if item is not None]

        gradients = iter(_record(around, again, ([reads[key] for key in keys], weights), {}))
        return [next(gradients) if there else None for there in reached]

    def _backwards(self, targets: list[Any], sources: list[Any], weights: list[Any]) -> list[Any]:
        total: dict[int, Any] = {}
        for target, weight in zip(targets, weights, strict=True):
            _add(total, target, weight)
        for call in reversed(self._calls):
            if not any(id(output) in total for output in call.outputs):
                continue
            cotangents = [total.get(id(output), _zero(output)) for output in call.outputs]
            for item, part in zip(call.inputs, call.back(cotangents), strict=True):
                _add(total, item, part)
        return [total.get(id(source)) for source in sources]


def recorded(fn: Callable[..., Tree], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tree:  # Any: as in Tape.call
    """Call a function as a `@function` is called: recorded where tapes listen, else as it is."""
    tapes = _listening() if _TAPES.get() else []
    return _record(tapes, fn, args, kwargs) if tapes else fn(*args, **kwargs)


def _listening() -> list[Tape]:
    """The tapes that record calls made here.

    A tape that was entered outside of the current trace (of `jax.jit`, `jax.grad`, a branch of the graph) is none of
    them: it would keep that trace's tracers, which mean nothing once the trace has ended.
    """
    trace = _trace()
    return [tape for tape in _TAPES.get() if tape._recording and tape._trace == trace]


def _trace() -> object:
    """JAX's current trace; equal to itself alone."""
    state: object = get_opaque_trace_state()  # type: ignore[no-untyped-call]  # JAX types it not
    return state


def _record(tapes: list[Tape], fn: Callable[..., Tree], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tree:
    """Run a function, on those of the tapes that reach one of its inputs."""
    leaves, tree = jax.tree.flatten((args, kwargs))
    for tape in tapes:
        if tape.watch_inputs:
            tape._known |= {id(leaf): leaf for leaf in leaves if _differentiable(leaf)}
    places = [at for at, leaf in enumerate(leaves) if any(id(leaf) in tape._known for tape in tapes)]
    structure: list[Any] = []

    def run(*inputs: Any) -> list[Any]:
        replaced = list(leaves)
        for at, value in zip(places, inputs, strict=True):
            replaced[at] = value
        inner_args, inner_kwargs = jax.tree.unflatten(tree, replaced)
        with having(_TAPES, ()):  # the tapes have this call as a whole: what it records by itself is its own
            outputs, shape = jax.tree.flatten(fn(*inner_args, **inner_kwargs))
        structure.append(shape)
        return [jnp.asarray(output) for output in outputs]

    if not places:  # nothing watched goes in; the results are known all the same, as targets without a gradient
        plain = run()
        for tape in tapes:
            tape._results |= {id(output): output for output in plain}
        return jax.tree.unflatten(structure[-1], plain)
    inputs = [leaves[at] for at in places]
    outputs, back = jax.vjp(run, *inputs)
    # An output that is an input, given through, gets an identity of its own.
    seen = {id(leaf) for leaf in leaves}
    distinct: list[Any] = []
    for output in outputs:
        distinct.append(jnp.copy(output) if id(output) in seen else output)
        seen.add(id(distinct[-1]))
    call = _Call(run, inputs, distinct, back)
    for tape in tapes:
        tape._results |= {id(output): output for output in distinct}
        if any(id(item) in tape._known for item in inputs):
            tape._calls.append(call)
            tape._known |= {id(output): output for output in distinct}
    return jax.tree.unflatten(structure[-1], distinct)


def _differentiable(leaf: Any) -> bool:  # Any: any leaf of the user's
    return isinstance(leaf, (jax.Array, np.ndarray, np.generic)) and jnp.issubdtype(leaf.dtype, jnp.inexact)


def _zero(output: Any) -> Any:  # Any: an array; its cotangent
    if jnp.issubdtype(output.dtype, jnp.inexact):
        return jnp.zeros_like(output)
    return np.zeros(output.shape, jax.dtypes.float0)


def _add(total: dict[int, Any], item: Any, part: Any) -> None:  # Any: an array; its cotangent
    if part.dtype == jax.dtypes.float0 or not jnp.issubdtype(jnp.asarray(item).dtype, jnp.inexact):
        return
    total[id(item)] = total[id(item)] + part if id(item) in total else part
