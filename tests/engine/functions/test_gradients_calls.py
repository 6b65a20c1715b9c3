"""Functions called while a tape lasts record themselves; their gradients against jax.grad of the plain functions."""

from __future__ import annotations

import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drivetrain.engine import Tape, TensorSpec, eager, function
from drivetrain.errors import InputError

pytestmark = pytest.mark.engine

X = jnp.float32([1.0, -2.0, 3.0])
W = jnp.float32([0.5, 0.25, -1.0])


def plain_weigh(x: Any, w: Any) -> Any:
    return jnp.tanh(x * w)


def plain_total(h: Any) -> Any:
    return (h**2).sum() if h.sum() > 0 else -(h**3).sum()


def plain_loss(x: Any, w: Any) -> Any:
    return plain_total(plain_weigh(x, w))


weigh = function(plain_weigh)
total = function(plain_total)


@function
def loss(x: Any, w: Any) -> Any:
    return total(weigh(x, w))


def same(ours: Any, wanted: Any) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), ours, wanted)


def test_a_function_called_in_a_tape_is_recorded() -> None:
    with Tape() as tape:
        y = loss(X, W)
    same(y, plain_loss(X, W))
    same(tape.gradient(y, (X, W)), jax.grad(plain_loss, (0, 1))(X, W))


def test_calls_one_after_the_other_are_connected_and_traced_as_often_as_without_a_tape() -> None:
    first, second = function(plain_weigh), function(plain_total)
    second(first(X, W))
    for _ in range(3):
        with Tape(persistent=True) as tape:
            hidden = first(X, w=W)
            y = second(hidden)
        same(tape.gradient(y, (X, W)), jax.grad(plain_loss, (0, 1))(X, W))
        same(tape.gradient(y, hidden), jax.grad(plain_total)(hidden))
    assert (first.trace_count, second.trace_count) == (1, 1)


def test_functions_and_tape_calls_mix_and_python_values_stay() -> None:
    @function
    def power(tree: Any, n: int, *, scale: float = 1.0) -> Any:
        return {"y": tree["x"] ** n * scale, "n": tree["k"] + n}

    with Tape() as tape:
        made = power({"x": X, "k": jnp.int32(2)}, 3, scale=2.0)
        y = tape.call(lambda made, w: (made["y"] * w).sum() * made["n"], made, W)
    assert int(made["n"]) == 5
    same(tape.gradient(y, (X, W)), jax.grad(lambda x, w: (2 * x**3 * w).sum() * 5, (0, 1))(X, W))


def test_nested_tapes_give_higher_derivatives() -> None:
    cubes = function(lambda x: (x**3).sum())
    with Tape() as third:
        with Tape() as second:
            with Tape() as first:
                y = cubes(X)
            slope = first.gradient(y, X)
        bend = second.gradient(slope, X)
    same(slope, 3 * X**2)
    same(bend, 6 * X)
    same(third.gradient(bend, X), jnp.full(3, 6.0))


def test_an_outer_tape_sees_what_an_inner_one_does_and_not_the_other_way_round() -> None:
    with Tape() as outer:
        hidden = weigh(X, W)
        with Tape() as inner:
            y = total(hidden)
    same(inner.gradient(y, hidden), jax.grad(plain_total)(hidden))
    same(outer.gradient(y, X), jax.grad(plain_loss)(X, W))


def test_a_tape_inside_of_a_function_that_a_tape_records() -> None:
    @function
    def slope(x: Any) -> Any:
        with Tape() as tape:
            y = total(x)
        return tape.gradient(y, x)

    with Tape() as tape:
        y = slope(X)
    wanted = jax.jacrev(jax.grad(plain_total))(X).sum(0)
    same(y, jax.grad(plain_total)(X))
    same(tape.gradient(y, X), wanted)


def test_only_what_is_watched_is_recorded() -> None:
    with Tape(persistent=True, watch_inputs=False) as tape:
        tape.watch(X)
        y = loss(X, W)
        untouched = total(W)
    same(tape.gradient(y, X), jax.grad(plain_loss)(X, W))
    assert tape.gradient(y, W) is None
    assert tape.gradient(untouched, W) is None
    with Tape() as tape:
        with tape.stop_recording():
            hidden = weigh(X, W)
        y = total(hidden)
    assert tape.gradient(y, X) is None  # what was frozen counts as a constant


def test_an_exception_leaves_no_tape_behind() -> None:
    @function
    def wrong(x: Any) -> Any:
        raise ValueError("on purpose")

    tape, later = Tape(persistent=True), Tape()
    results: list[Any] = []

    def fails() -> None:
        with tape:
            results.append(loss(X, W))
            wrong(X)

    with pytest.raises(ValueError, match="on purpose"):
        fails()
    (y,) = results
    same(tape.gradient(y, X), jax.grad(plain_loss)(X, W))
    outside = loss(X, W)
    with pytest.raises(InputError, match="not made by a call that this tape recorded"):
        tape.gradient(outside, X)
    with later:
        with pytest.raises(ValueError, match="on purpose"):
            wrong(X)
        y = loss(X, W)  # the tape goes on
    same(later.gradient(y, X), jax.grad(plain_loss)(X, W))


def test_a_tape_is_entered_once_at_a_time() -> None:
    with Tape(persistent=True) as tape:
        with pytest.raises(InputError, match="recording already"), tape:
            pass
        y = loss(X, W)
    with tape:
        z = total(y)
    same(tape.gradient(z, X), jax.grad(lambda x: plain_total(plain_loss(x, W)))(X))


def test_tapes_inside_of_jit_and_grad() -> None:
    @jax.jit
    def slopes(x: Any, w: Any) -> Any:
        with Tape() as tape:
            y = loss(x, w)
        return tape.gradient(y, (x, w))

    same(slopes(X, W), jax.grad(plain_loss, (0, 1))(X, W))
    same(jax.jacrev(slopes)(X, W)[0], jax.hessian(plain_loss)(X, W))
    same(jax.vmap(slopes)(jnp.stack([X, W]), jnp.stack([W, X]))[0][0], jax.grad(plain_loss)(X, W))


def test_what_jax_transforms_keeps_its_tracers_off_the_tape() -> None:
    with Tape(persistent=True) as tape:
        with jax.checking_leaks():
            by_jax = jax.grad(lambda x: weigh(x, W).sum())(X)
            jitted = jax.jit(lambda x: weigh(x, W).sum())(X)
            jax.vmap(lambda x: weigh(x, W))(jnp.stack([X, W]))
        y = loss(X, by_jax)
    same(by_jax, jax.grad(lambda x: plain_weigh(x, W).sum())(X))
    same(tape.gradient(y, X), jax.grad(plain_loss)(X, by_jax))
    with pytest.raises(InputError, match="not made by a call that this tape recorded") as refused:
        tape.gradient(jitted, X)
    assert "@function" in (refused.value.fix or "")


def test_line_by_line_too() -> None:
    with Tape(persistent=True) as tape:
        by_method = loss.eager(X, W)
        with eager():
            y = loss(X, W)
    for result in (by_method, y):
        same(tape.gradient(result, (X, W)), jax.grad(plain_loss, (0, 1))(X, W))


def test_signatures_methods_and_concrete_functions() -> None:
    class Model:
        @function(input_signature=[TensorSpec((None,))])
        def __call__(self, x: Any) -> Any:
            return (x**2).sum()

    wide = function(reduce_retracing=True)(lambda x: (x**2).sum())
    concrete = wide.get_concrete_function(X)
    model = Model()
    for fn in (model, model.__call__, wide, concrete):
        for x in (X, jnp.float32([4.0])) if fn is not concrete else (X,):
            with Tape() as tape:
                y = fn(x)
            same(tape.gradient(y, x), 2 * x)


def test_checks_hold_under_a_tape() -> None:
    @function(checks=True)
    def root(x: Any) -> Any:
        assert x > 0, "x must be positive"
        return jnp.sqrt(x)

    @function(checks=True)
    def thrice(x: Any) -> Any:
        return root(x) * 3

    x = jnp.float32(4)
    with Tape() as tape:
        y = root(x)
    assert (float(y), float(tape.gradient(y, x))) == (2.0, 0.25)
    with Tape(), pytest.raises(InputError, match="x must be positive"):
        root(jnp.float32(-4))
    with Tape() as tape:
        y = thrice(x)
    assert float(tape.gradient(y, x)) == 0.75


def test_a_tape_is_the_threads_own() -> None:
    made: list[Any] = []
    with Tape() as tape:
        thread = threading.Thread(target=lambda: made.append(loss(X, W)))
        thread.start()
        thread.join()
    with pytest.raises(InputError, match="not made by a call that this tape recorded"):
        tape.gradient(made[0], X)
