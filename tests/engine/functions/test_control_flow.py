"""A table of functions with control flow: Python itself on numbers and numpy arrays is the oracle of the graph.

Values: graph, eager and Python agree over hypothesis inputs. Gradients: against central differences of the Python
function in 64 bits, or against jax.grad of a version written by hand in lax.
"""

from __future__ import annotations

import functools
import linecache
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drivetrain.engine import function
from drivetrain.errors import InputError
from drivetrain.tests.engine.functions.table import (
    TABLE,
    Case,
    clipped,
    collatz,
    early_return,
    horner,
    long_range,
    mapped,
    nested_loops,
    newton,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.engine

IDS = [f"{case.fn.__name__}{case.static or ''}" for case in TABLE]
_QUICK = settings(
    max_examples=6, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def tensors(values: tuple[Any, ...]) -> list[Any]:
    return [jnp.asarray(value, jnp.int32 if isinstance(value, int) else jnp.float32) for value in values]


def numbers(values: tuple[Any, ...]) -> list[Any]:
    return [np.float64(value) if isinstance(value, float) else value for value in values]


def flat(tree: Any) -> list[np.ndarray[Any, Any]]:
    return [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(tree)]


@pytest.mark.parametrize("case", TABLE, ids=IDS)
def test_graph_eager_and_python_agree(case: Case) -> None:
    graph = function(case.fn)

    @_QUICK
    @given(st.tuples(*case.inputs))
    def check(values: tuple[Any, ...]) -> None:
        wanted = flat((case.reference or case.fn)(*numbers(values), **case.static))
        made = flat(graph(*tensors(values), **case.static))
        line_by_line = flat(graph.eager(*tensors(values), **case.static))
        assert len(made) == len(line_by_line) == len(wanted)
        for one, other, python in zip(made, line_by_line, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-5)
            np.testing.assert_allclose(one, python, rtol=2e-5, atol=1e-4)

    check()
    assert graph.trace_count == 1


@pytest.mark.parametrize("case", [case for case in TABLE if case.slopes], ids=lambda case: case.fn.__name__)
def test_gradients_agree_with_differences_or_a_version_by_hand(case: Case) -> None:
    graph = function(case.fn)
    oracle = case.reference or case.fn

    def total(fn: Callable[..., Any], values: list[Any]) -> Any:
        out = [leaf for leaf in jax.tree.leaves(fn(*values, **case.static)) if np.asarray(leaf).dtype.kind == "f"]
        return sum(np.sum(leaf) for leaf in out)

    slope = jax.jit(jax.grad(lambda *a: _floats(graph(*a, **case.static)), case.slopes))
    by_hand = case.by_hand or case.fn
    slope_by_hand = jax.jit(jax.grad(lambda *a: _floats(by_hand(*a)), case.slopes))

    @settings(_QUICK, max_examples=4)
    @given(st.tuples(*case.inputs))
    def check(values: tuple[Any, ...]) -> None:
        # Off the ties, where a branch or a maximum has no derivative.
        values = tuple(
            value if isinstance(value, int) else value + apart(value, place) for place, value in enumerate(values)
        )
        given_ = tensors(values)
        made = slope(*given_)
        if case.by_hand is not None:
            wanted = slope_by_hand(*given_)
        else:
            wanted = tuple(differences(lambda v: total(oracle, v), numbers(values), place) for place in case.slopes)
        for one, other in zip(made, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)

    check()


def _floats(tree: Any) -> Any:
    return sum(leaf.sum() for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.floating))


def apart(value: Any, place: int) -> Any:
    return 0.003 * (1 + place + np.arange(np.size(value)).reshape(np.shape(value)))


def differences(fn: Callable[[list[Any]], Any], values: list[Any], place: int) -> np.ndarray[Any, Any]:
    """Central differences in 64 bits."""
    at = np.asarray(values[place], np.float64)
    found = np.zeros(at.shape)
    for index in np.ndindex(at.shape):
        sides = []
        for sign_ in (1, -1):
            moved = at.copy()
            moved[index] += sign_ * 1e-6
            sides.append(float(fn([*values[:place], moved if at.shape else np.float64(moved), *values[place + 1 :]])))
        found[index] = (sides[0] - sides[1]) / 2e-6
    return found


def test_functions_given_to_jax_are_converted_too() -> None:
    xs = np.array([-1.5, 0.5, 2.0], np.float32)
    graph = function(mapped)
    np.testing.assert_array_equal(graph(xs), np.abs(xs))
    np.testing.assert_array_equal(jax.grad(lambda xs: graph(xs).sum())(xs), np.sign(xs))


def test_functions_in_lists_and_partials_are_converted_too() -> None:
    @function
    def switched(n: Any, x: Any) -> Any:
        chosen = jax.lax.switch(n, [lambda x: x * 10 if x > 0 else x, lambda x: -x], x)
        return chosen + jax.vmap(functools.partial(clipped, low=-1.0, high=1.0))(jnp.stack([x, -x]))

    np.testing.assert_array_equal(switched(jnp.int32(0), jnp.float32(3)), [31.0, 29.0])
    np.testing.assert_array_equal(switched(jnp.int32(1), jnp.float32(0.5)), [0.0, -1.0])


def test_the_table_covers_twenty_functions_and_more() -> None:
    assert len({case.fn.__name__ for case in TABLE}) >= 20


@pytest.mark.parametrize(
    ("fn", "arguments", "primitive"),
    [
        (collatz, (np.int32(7),), "while"),
        (early_return, (np.float32(1),), "cond"),
        (horner, (np.ones(5, np.float32), np.float32(1)), "scan"),
        (long_range, (np.float32(1),), "scan"),
        (newton, (np.float32(2),), "scan"),
        (nested_loops, (np.int32(2), np.int32(2)), "while"),
    ],
)
def test_loops_and_branches_are_in_the_graph(fn: Any, arguments: tuple[Any, ...], primitive: str) -> None:
    concrete = function(fn).get_concrete_function(*arguments)
    assert primitive in {str(equation.primitive) for equation in concrete.jaxpr.jaxpr.eqns}


def test_a_range_that_python_must_know_is_unrolled() -> None:
    names = [f"layer{k}" for k in range(40)]

    @function
    def walk(x: Any) -> Any:
        for i in range(40):
            x = x + len(names[i])
        return x

    assert float(walk(jnp.float32(0))) == sum(map(len, names))


def test_lambdas_of_one_line_are_told_apart() -> None:
    found = [lambda x: x + 1 if x > 0 else x, lambda x: (lambda x: x * 2 if x > 0 else x)(x) * 10 if x > 1 else x]
    assert [float(function(fn)(jnp.float32(3))) for fn in found] == [4.0, 60.0]


def test_what_is_typed_into_a_shell_is_converted(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "def typed(x):\n    if x > 0:\n        y = x\n    return y if x > 1 else -x\n"
    name = "<ipython-input-1-0123456789ab>"
    monkeypatch.setitem(linecache.cache, name, (len(text), None, text.splitlines(keepends=True), name))
    scope: dict[str, Any] = {}
    exec(compile(text, name, "exec"), scope)  # as a shell does
    with pytest.raises(InputError, match="'y' has a value on one path") as raised:
        function(scope["typed"])(jnp.float32(3))
    assert raised.value.where == f"{name}:2"


def test_conversion_keeps_globals_live_and_cells_shared() -> None:
    count = 0

    @function
    def add(x: Any) -> Any:
        nonlocal count
        count = count + 1
        return x + count if x > 0 else x

    assert float(add(jnp.float32(1))) == 2.0
    assert count == 1
