"""Tape and derivatives against jax.grad, hand formulas, finite differences and scipy."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from drivetrain.engine import Tape, TensorSpec, custom_gradient, function, hessian, hvp, jacobian, value_and_gradient
from drivetrain.errors import InputError
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.engine

AT = np.array([1, -2, 3], np.float32)
X = jnp.asarray(AT)
VECTORS = st.lists(st.integers(-16, 16).map(lambda k: k / 8 + 1 / 16), min_size=3, max_size=3)


def cubes(x: Any) -> Any:
    return (x**3).sum()


def waves(x: Any) -> Any:
    return jnp.sin(x) * x[::-1]


def test_a_gradient_of_a_call() -> None:
    with Tape() as tape:
        y = tape.call(cubes, X)
    np.testing.assert_allclose(tape.gradient(y, X), 3 * AT**2)


@jax.jit
@functools.partial(jax.grad, argnums=(0, 1))
def slopes_of_chain(x: Any, w: Any) -> Any:
    h = jnp.tanh(w @ x)
    return (h * 2 * x).sum() * h.sum()


@settings(deadline=None, max_examples=5)
@given(VECTORS)
def test_chained_calls_are_the_chain_rule(values: list[float]) -> None:
    x = jnp.float32(values)
    w = jnp.float32([[1, 2, 0], [0, 1, 3], [2, 0, 1]])
    with Tape(persistent=True) as tape:
        hidden = tape.call(lambda x, w: jnp.tanh(w @ x), x, w)
        doubled = tape.call(lambda h: {"a": h * 2, "b": h.sum()}, hidden)
        y = tape.call(lambda d, x: (d["a"] * x).sum() * d["b"], doubled, x)

    wanted = slopes_of_chain(x, w)
    for one, other in zip(tape.gradient(y, (x, w)), wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
    h, at = np.float64(hidden), np.float64(x)
    by_hidden = 2 * at * h.sum() + (h * 2 * at).sum()
    np.testing.assert_allclose(tape.gradient(y, hidden), by_hidden, rtol=1e-4, atol=1e-4)


def test_sources_and_targets_are_trees_and_weights_weigh() -> None:
    parameters = {"w": jnp.float32([2, 3, 4]), "b": jnp.float32(1)}
    with Tape(persistent=True) as tape:
        y = tape.call(lambda p, x: p["w"] * x + p["b"], parameters, X)
    weights = jnp.float32([1, 10, 100])
    found = tape.gradient(y, parameters, weights)
    np.testing.assert_allclose(found["w"], [1, -20, 300])
    np.testing.assert_allclose(found["b"], 111.0)
    ones = tape.gradient(y, parameters)
    np.testing.assert_allclose(ones["w"], X)
    with pytest.raises(InputError, match="output_gradients"):
        tape.gradient(y, parameters, jnp.ones(2))


def test_unconnected_sources() -> None:
    other = jnp.float32([5.0, 6.0])
    with Tape(persistent=True) as tape:
        y = tape.call(cubes, X)
    assert tape.gradient(y, other) is None
    np.testing.assert_array_equal(tape.gradient(y, other, unconnected="zero"), [0.0, 0.0])
    assert tape.gradient(y, [X, other])[1] is None


def test_integers_have_no_gradient_and_pass_through() -> None:
    k = jnp.int32(2)
    with Tape(persistent=True) as tape:
        y, count = tape.call(lambda x, k: (x * k, k + 1), X, k)
        z = tape.call(lambda y, c: y.sum() * c, y, count)
    np.testing.assert_array_equal(tape.gradient(z, X), [6.0, 6.0, 6.0])
    assert tape.gradient(z, k) is None


def test_a_tape_is_used_once_unless_persistent() -> None:
    with Tape() as tape:
        y = tape.call(cubes, X)
    tape.gradient(y, X)
    with pytest.raises(InputError, match="used already") as found:
        tape.gradient(y, X)  # again
    assert found.value.where is not None
    assert found.value.where.startswith(f"{__file__}:")
    with pytest.raises(InputError, match="not recording"):
        tape.call(cubes, X)


def test_only_what_is_watched() -> None:
    w = jnp.float32(2)
    with Tape(persistent=True, watch_inputs=False) as tape:
        tape.watch(X)
        y = tape.call(lambda x, w: (x * w).sum(), X, w)
        untouched = tape.call(lambda w: w * 3, w)
    np.testing.assert_array_equal(tape.gradient(y, X), [2.0, 2.0, 2.0])
    assert tape.gradient(y, w) is None
    assert tape.gradient(untouched, w) is None
    for wrong in (3.0, jnp.int32(3)):
        with pytest.raises(InputError, match="cannot be watched"):
            tape.watch(wrong)


def test_recording_can_stop() -> None:
    with Tape(persistent=True) as tape:
        with tape.stop_recording():
            frozen = tape.call(lambda x: x * 5, X)
        y = tape.call(lambda x, f: (x * f).sum(), X, frozen)
    np.testing.assert_array_equal(tape.gradient(y, X), 5 * AT)  # what was frozen counts as a constant


def test_an_output_that_is_its_input_has_an_identity_of_its_own() -> None:
    with Tape(persistent=True) as tape:
        same = tape.call(lambda x: x, X)
        y = tape.call(lambda s: (s * s).sum(), same)
    assert same is not X
    np.testing.assert_array_equal(tape.gradient(y, X), 2 * AT)
    np.testing.assert_array_equal(tape.gradient(y, same), 2 * AT)


def test_nested_tapes_give_higher_derivatives() -> None:
    with Tape(persistent=True) as third:
        with Tape(persistent=True) as second:
            with Tape() as first:
                y = first.call(cubes, X)
            slope = first.gradient(y, X)
        bend = second.gradient(slope, X)
        total = third.call(jnp.sum, bend)
    np.testing.assert_allclose(slope, 3 * AT**2)
    np.testing.assert_allclose(bend, 6 * AT)
    np.testing.assert_allclose(third.gradient(total, X), [6.0, 6.0, 6.0])
    np.testing.assert_allclose(second.gradient(y, X), 3 * AT**2)  # the inner call was seen by those around it


def test_nested_tapes_through_calls_of_the_outer_one() -> None:
    def deep(x: Any) -> Any:
        return jnp.exp(x * 0.1)

    def loss(h: Any, x: Any) -> Any:
        return (h**2 * x).sum()

    with Tape() as outer:
        h = outer.call(deep, X)
        with Tape(persistent=True) as inner:
            y = inner.call(loss, h, X)
        by_h, by_x = inner.gradient(y, (h, X))
        z = outer.call(lambda a, b: (a * b).sum(), by_h, by_x)

    def plain(x: Any) -> Any:
        a, b = jax.grad(loss, (0, 1))(deep(x), x)
        return (a * b).sum()

    np.testing.assert_allclose(outer.gradient(z, X), jax.grad(plain)(X), rtol=1e-5)


def test_what_a_call_records_on_tapes_of_its_own_is_seen_as_a_whole() -> None:
    def slope(order: int, x: Any) -> Any:
        if order == 0:
            return x**5
        with Tape() as tape:
            y = tape.call(slope, order - 1, x)
        return tape.gradient(y, x)

    assert [float(slope(order, jnp.float32(2))) for order in range(1, 5)] == [80.0, 160.0, 240.0, 240.0]


def test_mistakes_with_tapes_are_told() -> None:
    x = jnp.float32(3)
    with Tape(persistent=True) as tape:
        y = tape.call(lambda x: {"a": x**2}, x)
        tape.call(lambda x: x**2, 3.0)
    for wrong, fix in (
        (lambda: tape.gradient(y["a"] * 2, x), "tape.call"),
        (lambda: tape.gradient(y, 3.0), "jnp.asarray"),
        (lambda: tape.jacobian(y, x), "by itself"),
        (lambda: tape.jacobian(y["a"], {"x": x}), "by itself"),  # type: ignore[arg-type]  # what is wrong
    ):
        with pytest.raises(InputError) as found:
            wrong()
        assert fix in (found.value.fix or "")
        assert (found.value.where or "").startswith(f"{__file__}:")


def test_numpys_scalars_are_sources() -> None:
    x = np.float32(3)
    with Tape() as tape:
        y = tape.call(lambda x: x**2, x)
    assert float(tape.gradient(y, x)) == 6.0


def test_a_tape_inside_of_a_function() -> None:
    @function
    def slope(x: Any) -> Any:
        with Tape() as tape:
            y = tape.call(lambda x: x**3 if x > 0 else -x, x)
        return tape.gradient(y, x)

    assert float(slope(jnp.float32(2))) == 12.0
    assert float(slope(jnp.float32(-2))) == -1.0
    assert slope.trace_count == 1
    assert float(jax.grad(slope)(jnp.float32(2))) == 12.0


def test_the_tapes_jacobian() -> None:
    with Tape(persistent=True) as tape:
        y = tape.call(waves, X)
    np.testing.assert_allclose(tape.jacobian(y, X), slopes_of_waves(AT), rtol=1e-6, atol=1e-6)
    assert tape.jacobian(y, jnp.ones((2, 2))).shape == (3, 2, 2)


def slopes_of_waves(x: np.ndarray) -> np.ndarray:
    """By hand."""
    return np.diag(np.cos(x) * x[::-1]) + np.fliplr(np.diag(np.sin(x)))


def rough(x: Any) -> Any:
    return (jnp.tanh(x) * x[0] * x).sum()


def test_jacobian_hessian_and_their_products() -> None:
    sloped, curved, rough_curve = jax.jit(jacobian(waves)), jax.jit(hessian(cubes)), jax.jit(hessian(rough))
    bent = jax.jit(lambda x, v: (hvp(cubes, (x,), (v,)), hvp(rough, (x,), (v,))))
    both = jax.jit(value_and_gradient(cubes))

    @settings(deadline=None, max_examples=15)
    @given(VECTORS, VECTORS)
    def check(values: list[float], along: list[float]) -> None:
        x, v = np.array(values, np.float32), np.array(along, np.float32)
        np.testing.assert_allclose(sloped(x), slopes_of_waves(x), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(curved(x), np.diag(6 * x), rtol=1e-5, atol=1e-5)
        products = bent(x, v)
        np.testing.assert_allclose(products[0], 6 * x * v, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(products[1], np.asarray(rough_curve(x)) @ v, rtol=1e-3, atol=1e-3)
        value, slope = both(x)
        np.testing.assert_allclose(value, np.sum(x**3), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(slope, 3 * x**2, rtol=1e-5)

    check()


def test_jacobians_of_either_mode_and_several_arguments() -> None:
    def wide(x: Any, y: Any) -> Any:  # more outputs than inputs
        return jnp.outer(x, y).ravel()

    def narrow(x: Any, y: Any) -> Any:
        return (x * y).sum()

    y = jnp.float32([4, 5, 6])
    for fn in (wide, narrow):
        ours, wanted = jax.jit(jacobian(fn, (0, 1)))(X, y), jax.jit(jax.jacrev(fn, (0, 1)))(X, y)
        for derivative, reference in zip(ours, wanted, strict=True):
            np.testing.assert_allclose(derivative, reference)


def test_functions_with_control_flow_have_all_of_them() -> None:
    @function(max_steps=10)
    def powers(x: Any) -> Any:
        total, term = x * 0, x
        while abs(term).max() > 1e-3:
            total = total + term
            term = term * x
        return total.sum()

    x = jnp.float32([0.25, -0.125])
    four = np.polynomial.Polynomial([0, 1, 1, 1, 1])  # four steps until every term is small
    point = np.asarray(x, np.float64)
    np.testing.assert_allclose(value_and_gradient(powers)(x)[1], four.deriv()(point), rtol=1e-5)
    np.testing.assert_allclose(hvp(powers, (x,), (jnp.ones(2),)), four.deriv(2)(point), rtol=1e-5)


def test_scipys_check_agrees() -> None:
    with jax.enable_x64(True):
        slope: Callable[..., Any] = value_and_gradient(lambda x: (jnp.sin(x) * x**2).sum())
        error = scipy.optimize.check_grad(
            lambda x: float(slope(jnp.asarray(x))[0]), lambda x: np.asarray(slope(jnp.asarray(x))[1]), np.ones(3)
        )
    assert error < 1e-6


@custom_gradient
def log1pexp(x: Any) -> Any:
    e = jnp.exp(x)
    return jnp.log(1 + e), lambda dy: dy * (1 - 1 / (1 + e))


@custom_gradient
def scaled(x: Any, y: Any, factor: float = 2.0) -> Any:
    return x * y * factor, lambda dy: (dy * y * 100, -dy * x)


def test_custom_gradients() -> None:
    # TensorFlow's own example: without the custom gradient the slope at 100 is nan.
    assert float(jax.grad(log1pexp)(jnp.float32(100))) == 1.0
    assert np.isnan(jax.grad(lambda x: jnp.log(1 + jnp.exp(x)))(jnp.float32(100)))
    sigmoid = jax.nn.sigmoid(jnp.float32(0.5))
    np.testing.assert_allclose(jax.grad(log1pexp)(jnp.float32(0.5)), sigmoid, rtol=1e-6)
    np.testing.assert_allclose(jax.grad(jax.grad(log1pexp))(jnp.float32(0.5)), sigmoid * (1 - sigmoid), rtol=1e-5)
    assert float(scaled(jnp.float32(3), jnp.float32(4))) == 24.0
    found = jax.grad(scaled, (0, 1))(jnp.float32(3), jnp.float32(4), factor=5.0)
    assert [float(item) for item in found] == [400.0, -3.0]


@custom_gradient
def repeated(x: Any, count: Any) -> Any:
    return x * count, lambda dy: (dy * count, None)


def test_a_custom_gradient_may_be_none() -> None:
    assert float(jax.grad(repeated)(jnp.float32(2), jnp.int32(3))) == 3.0
    assert float(jax.grad(repeated, 1)(jnp.float32(2), jnp.float32(3))) == 0.0


@custom_gradient
def exactly_cubed(x: Any) -> Any:
    return x**3, lambda dy: dy * 3 * x**2


@function(input_signature=[TensorSpec((None,))])
def total_of_cubes(x: Any) -> Any:
    return (x**3).sum() if x.sum() > 0 else (x**3).sum() * 1.0


def test_where_there_is_no_forward_mode_it_goes_backwards_twice() -> None:
    np.testing.assert_allclose(jax.jit(jacobian(exactly_cubed))(X), np.diag(3 * AT**2))
    np.testing.assert_allclose(jax.jit(hessian(lambda x: exactly_cubed(x).sum()))(X), np.diag(6 * AT), rtol=1e-6)
    for fn in (total_of_cubes, lambda x: exactly_cubed(x).sum()):
        np.testing.assert_allclose(hvp(fn, (X,), (X,)), 6 * AT * AT, rtol=1e-6)
    with pytest.raises(TypeError, match="requires real-valued inputs"):
        jacobian(lambda k: k * 2)(jnp.int32([1, 2]))


@custom_gradient
def kinked(x: Any) -> Any:
    y = x
    if x < 0:
        y = x * 0.1
    return y, lambda dy: dy * 7 if x > 0 else dy * 3


def test_custom_gradients_in_functions_and_on_tapes() -> None:
    graph = function(lambda x: kinked(x) * 2)
    np.testing.assert_allclose([float(graph(jnp.float32(v))) for v in (1, -1)], [2.0, -0.2])
    np.testing.assert_allclose([float(jax.grad(graph)(jnp.float32(v))) for v in (1, -1)], [14.0, 6.0])
    x = jnp.float32(100)
    with Tape() as tape:
        y = tape.call(log1pexp, x)
    assert float(tape.gradient(y, x)) == 1.0


def test_what_is_not_scalar_has_no_gradient() -> None:
    with pytest.raises(InputError, match=r"waves gives float32\[3\]"):
        value_and_gradient(waves)(X)
    with pytest.raises(InputError, match="only a floating scalar"):
        hvp(waves, (X,), (X,))
    with pytest.raises(InputError, match="the vectors have shapes"):
        hvp(cubes, (X,), (jnp.ones(2),))
