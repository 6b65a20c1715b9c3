"""A closed jaxpr as a function: what tracing it anew gives, whatever it is given and whatever is done to it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from drivetrain.engine.graphs.nodes import DeviceOp  # noqa: E402
from drivetrain.engine.tracing.equations import as_function, aval_of, function_of  # noqa: E402
from jax.extend.core import jaxpr_as_fun  # noqa: E402

from ..zoo import Animal, zoo  # noqa: E402

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("animal", zoo(), ids=lambda animal: str(animal.name))
def test_it_is_written_as_jax_traces_it_anew(animal: Animal) -> None:
    graph = animal.graph(24)
    given = [*graph.inputs.values(), *graph.weights.values()]
    (outputs,) = graph.signatures.values()
    ops = [node for node in graph.nodes if isinstance(node, DeviceOp)]
    closed = function_of(graph, ops, [tensor.id for tensor in given], [output.tensor for output in outputs.values()])
    avals = [aval_of(tensor, graph.dims) for tensor in given]
    assert str(jax.make_jaxpr(as_function(closed))(*avals)) == str(jax.make_jaxpr(jaxpr_as_fun(closed))(*avals))
    ours, theirs = (
        jax.jit(lambda *a, fn=fn: fn(*a)).lower(*avals) for fn in (as_function(closed), jaxpr_as_fun(closed))
    )
    assert ours.as_text() == theirs.as_text()


def smooth(x: Any, w: Any) -> Any:
    return jax.nn.relu(jnp.where(x > 0, x, jnp.expm1(x)) @ w).sum()


X, W = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3), np.ones((3, 2), np.float32)


def test_its_equations_are_not_traced_again() -> None:
    primitive = jax.extend.core.Primitive("counted")
    traced: list[Any] = []

    def rule(aval: Any) -> Any:
        traced.append(aval)
        return aval

    primitive.def_abstract_eval(rule)
    run = as_function(jax.make_jaxpr(primitive.bind)(X))
    assert len(traced) == 1
    jax.make_jaxpr(run)(X)
    assert len(traced) == 1
    jax.make_jaxpr(run)(X.T)
    assert len(traced) == 2


@pytest.mark.parametrize("rows", [4, 7])
def test_other_types_than_it_was_made_for_are_traced(rows: int) -> None:
    """As JAX takes them: as many rows as the equations themselves allow, no whole numbers where it takes none."""
    run = as_function(jax.make_jaxpr(lambda x: (jnp.sin(x) * 2.0, x.T))(X))
    other = np.ones((rows, 3), np.float32)
    got = jax.jit(run)(other)
    np.testing.assert_allclose(got[0], np.sin(other) * 2, rtol=1e-6)
    with pytest.raises(TypeError, match="sin"):
        jax.jit(run)(other.astype(np.int32))


def test_it_is_differentiated_mapped_and_called_as_it_is() -> None:
    run = as_function(jax.make_jaxpr(smooth)(X, W))
    np.testing.assert_allclose(run(X, W)[0], smooth(X, W), rtol=1e-6)
    got, wanted = (jax.grad(fn, argnums=(0, 1))(X, W) for fn in (lambda *given: run(*given)[0], smooth))
    jax.tree.map(np.testing.assert_array_equal, got, wanted)
    np.testing.assert_allclose(
        jax.vmap(lambda x: run(x, W)[0])(np.stack([X, X + 1])), [smooth(X, W), smooth(X + 1, W)], rtol=1e-6
    )
