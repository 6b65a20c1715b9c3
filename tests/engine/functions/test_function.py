"""@function: how often Python runs, what a retrace warning says, unknown sizes, methods, and the debugger's mode."""

from __future__ import annotations

import functools
import gc
import warnings
import weakref
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drivetrain.engine import ConcreteFunction, RetraceWarning, TensorSpec, eager, function
from drivetrain.errors import InputError
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.engine

ONES = np.ones(3, np.float32)


def scaled(x: Any, factor: Any = 2, *, name: str = "a") -> Any:
    return x * factor if name == "a" else -x


def test_one_trace_for_a_signature() -> None:
    graph = function(retrace_warning=100)(scaled)
    for _ in range(3):
        np.testing.assert_array_equal(graph(ONES), 2 * ONES)
    assert graph.trace_count == 1
    # Equal calls written otherwise are the same signature.
    graph(ONES, 2)
    graph(x=ONES)
    graph(ONES, factor=2, name="a")
    assert graph.trace_count == 1
    graph(np.ones(4, np.float32))  # a shape
    graph(ONES.astype(np.int32))  # a dtype
    graph(ONES, 3)  # a value
    graph(ONES, 3, name="b")
    graph(ONES, np.float32(3))  # an array: any value from now on
    graph(ONES, np.float32(4))
    assert graph.trace_count == 6
    assert [str(item.signature) for item in graph.concrete_functions] == [
        "x: float32[3], factor: 2, name: 'a'",
        "x: float32[4], factor: 2, name: 'a'",
        "x: int32[3], factor: 2, name: 'a'",
        "x: float32[3], factor: 3, name: 'a'",
        "x: float32[3], factor: 3, name: 'b'",
        "x: float32[3], factor: float32[], name: 'a'",
    ]
    assert graph.trace_count == 6  # looking at them traces nothing
    assert repr(graph) == "Function(scaled: 6 traces)"
    assert repr(graph.concrete_functions[5]) == (
        "ConcreteFunction(scaled(x: float32[3], factor: float32[], name: 'a') -> float32[3])"
    )


@settings(deadline=None, max_examples=10)
@given(st.lists(st.sampled_from([1, 1.0, True, 0.0, -0.0, "1", None, float("nan")]), min_size=1, max_size=8))
def test_python_values_that_look_equal_are_told_apart(values: list[Any]) -> None:
    seen: list[str] = []

    @function(retrace_warning=1000)
    def note(x: Any, value: Any) -> Any:
        seen.append(repr(value))
        return x

    for value in values:
        note(ONES, value)
    assert sorted(seen) == sorted({repr(value) for value in values})


def test_structures_are_part_of_a_signature() -> None:
    @function
    def total(tree: Any) -> Any:
        return sum(jax.tree.leaves(tree))

    assert float(total({"a": np.float32(1), "b": (np.float32(2), 3)})) == 6.0
    total({"a": np.float32(5), "b": (np.float32(2), 3)})
    assert total.trace_count == 1
    total({"a": np.float32(1), "c": (np.float32(2), 3)})
    assert [str(item) for item in total.concrete_functions] == [
        "total(tree['a']: float32[], tree['b'][0]: float32[], tree['b'][1]: 3)",
        "total(tree['a']: float32[], tree['c'][0]: float32[], tree['c'][1]: 3)",
    ]


@pytest.mark.parametrize(
    ("first", "second", "said", "fix"),
    [
        ((np.ones((7, 3), "f"),), (np.ones((9, 3), "f"),), "x: float32[7,3] → float32[9,3]", "TensorSpec((None, 3)"),
        ((ONES, 3), (ONES, 4), "factor: 3 → 4", "pass factor as an array"),
        ((ONES,), (ONES.astype(np.int32),), "x: float32[3] → int32[3]", "cast x to one dtype"),
        ((ONES,), (ONES[None],), "x: float32[3] → float32[1,3]", "give x one rank"),
        ((ONES, 3), (ONES, np.float32(3)), "factor: 3 → float32[]", "pass factor as an array each time"),
        (({"a": ONES},), ({"b": ONES},), "x['b']: not given → float32[3]", "the same arguments each time"),
        ((jnp.asarray(2.0),), (jnp.float32(2),), "the dtype of a Python number", "jnp.asarray(…, 'float32')"),
    ],
)
def test_a_retrace_warning_says_what_changed(first: Any, second: Any, said: str, fix: str) -> None:
    @function(retrace_warning=2)
    def leaves(x: Any, factor: Any = 1) -> Any:
        return jax.tree.map(lambda leaf: leaf * factor, x)

    leaves(*first)
    with pytest.warns(RetraceWarning) as found:
        leaves(*second)
    (warning,) = found
    assert str(warning.message).startswith("leaves was traced 2 times; last, ")
    assert said in str(warning.message)
    assert fix in str(warning.message)
    assert warning.filename == __file__


def test_the_warning_compares_with_the_nearest_signature_and_comes_at_doublings() -> None:
    graph = function(retrace_warning=3)(scaled)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for factor in range(13):
            graph(ONES, factor)
            graph(ONES, factor)
    texts = [str(item.message).splitlines()[0] for item in found]
    assert texts == [
        f"scaled was traced {count} times; last, factor: {count - 2} → {count - 1}" for count in (3, 6, 12)
    ]


def test_a_spec_with_an_unknown_batch_is_traced_once() -> None:
    runs = []

    @function(input_signature=[TensorSpec((None, 3)), TensorSpec((None,))])
    def scored(x: Any, w: Any, scale: float = 2.0) -> Any:
        runs.append(x.shape)
        return (x * w[:, None]).sum(1) * scale

    for size in (1, 2, 7, 100):
        x, w = np.random.default_rng(size).normal(size=(2, size, 3)).astype(np.float32)
        np.testing.assert_allclose(scored(x, w[:, 0]), (x * w[:, :1]).sum(1) * 2, rtol=1e-5, atol=1e-6)
    assert len(runs) == scored.trace_count == 1
    assert str(scored.concrete_functions[0]) == "scored(x: float32[b,3], w: float32[b], scale: 2.0)"
    x = jnp.arange(6.0).reshape(2, 3)
    slope = jax.grad(lambda x: scored(x, jnp.float32([1, 5])).sum())(x)
    np.testing.assert_allclose(slope, [[2.0] * 3, [10.0] * 3])
    scored(np.ones((2, 3), np.float32), np.ones(2, np.float32), 3.0)  # a Python value behind the tensors
    assert len(runs) == 2


@pytest.mark.slow
def test_higher_derivatives_with_an_unknown_batch() -> None:
    runs = []

    @function(input_signature=[TensorSpec((None, 3)), TensorSpec((None,))])
    def scored(x: Any, w: Any) -> Any:
        runs.append(x.shape)
        return (x * w[:, None]).sum(1) * 2

    x = jnp.arange(6.0).reshape(2, 3)
    second = jax.grad(lambda x: (jax.grad(lambda x: (scored(x, x[:, 0]) ** 2).sum())(x) ** 2).sum())(x)
    plain = jax.grad(
        lambda x: (jax.grad(lambda x: (((x * x[:, :1]).sum(1) * 2) ** 2).sum())(x) ** 2).sum()
    )(x)  # fmt: skip
    np.testing.assert_allclose(second, plain, rtol=1e-5)
    assert len(runs) == 1


def test_the_length_of_an_unknown_batch() -> None:
    @function(input_signature=[TensorSpec((None, 2))])
    def total(x: Any) -> Any:
        found = 0.0
        for i in range(len(x)):
            found += x[i, 0] if i > 0 else len(x)
        return found

    for size in (1, 4):
        assert float(total(np.ones((size, 2), np.float32))) == 2 * size - 1
    assert total.trace_count == 1


def test_loops_over_an_unknown_batch() -> None:
    @function(input_signature=[TensorSpec((None, 2))])
    def best(x: Any) -> Any:
        found, count = -1e9, 0
        for row in x:
            if row.sum() > found:
                found = row.sum()
        for i in range(x.shape[0]):
            count += i
        return found, count

    for size in (1, 4, 9):
        x = np.random.default_rng(size).normal(size=(size, 2)).astype(np.float32)
        found, count = best(x)
        np.testing.assert_allclose(found, x.sum(1).max(), rtol=1e-6)
        assert int(count) == sum(range(size))
    assert best.trace_count == 1


def test_reduce_retracing_finds_the_sizes_that_vary() -> None:
    @function(reduce_retracing=True)
    def dot(x: Any, y: Any) -> Any:
        return (x * y[:, None]).sum()

    for size in range(1, 7):
        assert float(dot(np.ones((size, 2), "f"), np.ones(size, "f"))) == 2 * size
    assert dot.trace_count == 2
    assert str(dot.concrete_functions[1].signature) == "x: float32[n0,2], y: float32[n0]"

    @function(reduce_retracing=True)
    def by_size(x: Any) -> Any:
        return x * 2 if x.shape[0] > 3 else x  # Python must know the size

    for size in (2, 5, 3):
        np.testing.assert_array_equal(by_size(np.ones(size, "f")), np.full(size, 2.0 if size > 3 else 1.0))


def test_what_could_not_be_traced_is_not_listed() -> None:
    @function(reduce_retracing=True)
    def branches(x: Any) -> Any:
        return x.sum() if x.shape[0] > 2 else x @ np.ones(2, np.float32)

    for size in (2, 3, 4):
        branches(np.ones(size, np.float32))  # no trace for all sizes: Python branches on the size
    with pytest.raises(TypeError, match="dot_general"):
        branches(np.ones((1, 5), np.float32))
    assert [str(item.signature) for item in branches.concrete_functions] == [f"x: float32[{n}]" for n in (2, 3, 4)]
    assert branches.trace_count == 3


def test_objects_that_look_the_same_are_told() -> None:
    class Model:
        def __repr__(self) -> str:
            return "Model()"

    @function(retrace_warning=2)
    def run(model: Any, x: Any) -> Any:
        return x

    with pytest.warns(RetraceWarning, match=r"another one, which looks the same\n  fix: objects count by identity"):
        run(Model(), run(Model(), ONES))
    gc.collect()
    assert [str(item) for item in run.concrete_functions] == ["run(model: Model(), x: float32[3])"] * 2


def test_concrete_functions_are_called_with_what_they_were_traced_for() -> None:
    graph = function(scaled)
    concrete = graph.get_concrete_function(TensorSpec((None,)), 3)
    assert isinstance(concrete, ConcreteFunction)
    assert [str(aval) for aval in concrete.jaxpr.in_avals] == ["float32[b]"]
    for size in (2, 5):
        np.testing.assert_array_equal(concrete(np.ones(size, "f")), np.full(size, 3.0))
    again = graph.get_concrete_function(TensorSpec((None,)), 3)
    np.testing.assert_array_equal(again(np.ones(3, "f")), np.full(3, 3.0))
    with pytest.raises(InputError, match=r"was traced for .* and called with"):
        concrete(np.ones(2, "f"), 4)
    fixed = graph.get_concrete_function(ONES)
    assert fixed.out_tree == jax.tree.structure(0)
    np.testing.assert_array_equal(fixed(ONES), 2 * ONES)
    with pytest.raises(InputError, match=r"argument 'x' is float32\[2\], and the signature says float32\[3\]"):
        fixed(np.ones(2, "f"))


class Model:
    def __init__(self, weight: float) -> None:
        self.weight = weight

    @function
    def predict(self, x: Any) -> Any:
        if x.sum() > 0:
            return x * self.weight
        return self.negative(x)

    def negative(self, x: Any) -> Any:
        return -x if x.sum() < -1 else x

    @function(input_signature=[TensorSpec((None,))])
    def signed(self, x: Any) -> Any:
        return x * self.weight


def test_methods_trace_once_for_an_instance_and_do_not_keep_it() -> None:
    one, two = Model(2.0), Model(3.0)
    for _ in range(2):
        np.testing.assert_array_equal(one.predict(ONES), 2 * ONES)
        np.testing.assert_array_equal(two.predict(ONES), 3 * ONES)
        np.testing.assert_array_equal(one.predict(-ONES), ONES)
        np.testing.assert_array_equal(one.signed(ONES[:2]), 2 * ONES[:2])
        np.testing.assert_array_equal(two.signed(ONES), 3 * ONES)
    assert Model.predict.trace_count == 2
    assert Model.signed.trace_count == 2
    np.testing.assert_array_equal(one.predict.eager(ONES), 2 * ONES)
    assert str(one.signed.get_concrete_function().jaxpr.in_avals[0]) == "float32[b]"
    gone = weakref.ref(two)
    del two
    gc.collect()
    assert gone() is None


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Weights:
    w: Any
    b: Any

    @function
    def linear(self, x: Any) -> Any:
        return x * self.w + self.b


def test_an_instance_that_is_a_pytree_is_traced_through() -> None:
    for scale in (1.0, 2.0, 3.0):
        weights = Weights(jnp.float32(scale), jnp.float32(1))
        np.testing.assert_array_equal(weights.linear(ONES), scale * ONES + 1)
    assert Weights.linear.trace_count == 1
    slope = jax.grad(lambda weights: weights.linear(ONES).sum())(Weights(jnp.float32(1), jnp.float32(0)))
    assert float(slope.w) == float(slope.b) == 3.0


def test_eager_runs_python_at_each_call_and_the_graph_once() -> None:
    stops: list[tuple[bool, float | None]] = []

    @function
    def inner(x: Any) -> Any:
        known = not isinstance(x, jax.core.Tracer)
        stops.append((known, float(x) if known else None))  # what a breakpoint would see
        return x + 1

    @function
    def outer(x: Any) -> Any:
        while x < 3:
            x = inner(x)
        return x

    for _ in range(3):
        assert float(outer(jnp.float32(0))) == 3.0
    graph = len(stops)
    assert all(not known for known, _ in stops)
    assert float(outer(jnp.float32(1))) == 3.0
    assert len(stops) == graph  # nothing of Python ran
    assert inner.trace_count == 1

    stops.clear()
    assert float(outer.eager(jnp.float32(0))) == 3.0
    assert stops == [(True, 0.0), (True, 1.0), (True, 2.0)]
    with eager():
        assert float(outer(jnp.float32(1))) == 3.0
    assert stops[3:] == [(True, 1.0), (True, 2.0)]
    assert outer.trace_count == 1


def test_functions_nest_differentiate_and_batch() -> None:
    @function
    def inner(x: Any) -> Any:
        return x * x if x > 0 else x

    @function
    def outer(x: Any) -> Any:
        return inner(x) * 3

    assert float(jax.grad(outer)(jnp.float32(2))) == 12.0
    np.testing.assert_array_equal(jax.vmap(outer)(jnp.float32([-1, 2])), [-3.0, 12.0])
    assert float(jax.jit(outer)(jnp.float32(2))) == 12.0
    assert float(jax.grad(jax.grad(outer))(jnp.float32(2))) == 6.0
    assert outer.trace_count == inner.trace_count == 1


def test_a_function_keeps_its_name_and_documentation() -> None:
    def documented(x: Any) -> Any:
        """What it does."""
        return x

    graph = function(documented)
    assert (vars(graph)["__name__"], graph.__doc__) == ("documented", "What it does.")
    assert graph.python_function is documented


def test_wrong_arguments_are_pythons_errors() -> None:
    graph = function(scaled)
    with pytest.raises(TypeError, match="missing a required argument: 'x'"):
        graph()
    with pytest.raises(TypeError, match="nonsense"):
        graph(ONES, nonsense=1)


class Doubler:
    def __call__(self, x: Any) -> Any:
        return x * 2 if x > 0 else x


def above(x: Any, low: float) -> Any:
    if x > low:
        return x
    return x * 0 + low


def test_callable_objects_and_partials_are_converted() -> None:
    for fn in (Doubler(), lambda x: Doubler()(x)):
        graph = function(fn)
        assert [float(graph(jnp.float32(v))) for v in (3, -3)] == [6.0, -3.0]
    graph = function(functools.partial(above, low=3.0))
    assert [float(graph(jnp.float32(v))) for v in (1, 5)] == [3.0, 5.0]


def test_nnx_modules_are_traced_through_and_branch() -> None:
    nnx = pytest.importorskip("flax.nnx")

    class Net(nnx.Module):  # type: ignore[misc, name-defined]  # imported here: flax is an extra
        def __init__(self) -> None:
            self.layer = nnx.Linear(3, 2, rngs=nnx.Rngs(0))

        def __call__(self, x: Any) -> Any:
            y = self.layer(x)
            if y.sum() > 0:
                y = -y
            return y

    @function
    def run(net: Any, x: Any) -> Any:
        return net(x)

    for seed in range(4):
        x = np.random.default_rng(seed).normal(size=(2, 3)).astype(np.float32)
        net = Net()
        plain = np.asarray(net.layer(x))
        np.testing.assert_allclose(run(net, x), -plain if plain.sum() > 0 else plain, rtol=1e-6)
    assert run.trace_count == 1
