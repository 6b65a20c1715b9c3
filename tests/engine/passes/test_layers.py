"""What algebraic passes fold into weights, against JAX, flax and plain numpy; and what they must leave alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from drivetrain.engine.graphs.graph import Graph  # noqa: E402
from drivetrain.engine.passes import EXPORTED, FROZEN, drop_training, fold, inline, optimize, prune  # noqa: E402
from drivetrain.engine.tracing.training_only import debug_assert, dropout  # noqa: E402

from .graphs import (  # noqa: E402
    close,
    ops,
    optimized,
    optimized_with_reports,
    run,
    same_bits,
    traced,
    with_updates,
)

pytestmark = pytest.mark.engine

RANDOM = np.random.default_rng(11)
X = RANDOM.normal(size=(16, 5)).astype(np.float32)
IMAGE = RANDOM.normal(size=(4, 6, 6, 4)).astype(np.float32)


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return RANDOM.normal(size=shape).astype(np.float32)


def frozen(graph: Graph, **inputs: Any) -> tuple[Graph, dict[str, dict[str, int]]]:
    """The graph after FROZEN, which computes the same to 1e-6, and what each pass removed."""
    simplified, reports = optimized_with_reports(graph, FROZEN)
    close(run(simplified, **inputs), run(graph, **inputs))
    return simplified, {report.name: report.removed for report in reports if report.removed}


# --- known work is done once --------------------------------------------------------------------------------------


def test_fold_computes_what_depends_on_weights_alone() -> None:
    weights = {"v": normal(5, 3), "g": normal(3)}
    graph = traced(lambda x, v, g: x @ (v * (g / jnp.linalg.norm(v, axis=0))), weights, x=X)
    made, gone = frozen(graph, x=X)
    assert ops(made) == {"dot_general": 1}
    assert list(made.weights) == ["folded:folded"]
    assert set(gone) == {"forget_gradients", "fold"} - ({"forget_gradients"} - set(gone))


def test_fold_names_a_weight_after_the_one_it_is_made_of() -> None:
    simplified = optimized(traced(lambda x, w: x @ w.T, {"w": normal(3, 5)}, x=X), (fold, prune))
    assert list(simplified.weights) == ["w:folded"]


def test_fold_leaves_what_would_grow_what_is_random_and_what_changes() -> None:
    grown = traced(lambda x, w: x.sum() + jnp.broadcast_to(w, (500, 500)), {"w": normal(500)}, x=X)
    assert optimized(grown, fold) is grown
    noisy = traced(lambda x, w: x + jax.random.normal(jax.random.key(0), (5,)) * w, {"w": normal(5)}, x=X)
    assert ops(optimized(noisy, (inline, fold)))["random_bits"] == 1
    counted = traced(lambda x, n: (x + jnp.sqrt(n), n + 1), {"n": np.ones(5, np.float32)}, x=X)
    state = with_updates(counted, n="1")
    simplified = optimized(state, FROZEN)
    assert "n" in simplified.weights
    given = np.full(5, 9, np.float32)
    same_bits(run(simplified, x=X, n=given), run(state, x=X, n=given))


# --- training alone ------------------------------------------------------------------------------------------------


def test_drop_training_works_in_functions_loops_and_branches() -> None:
    layer = jax.jit(lambda x: dropout(x, 0.5, jax.random.key(3)) * 2)

    def fn(x: Any) -> Any:
        def step(h: Any, _: Any) -> Any:
            return layer(debug_assert(h, h < 0, "never true")), None

        y, _ = jax.lax.scan(step, layer(x), length=2)
        return jax.lax.cond(y.sum() < 1e9, layer, lambda v: v, y)

    graph = traced(fn, x=X)
    simplified = optimized(graph, drop_training)
    assert "training_only" not in "".join(str(node.equation.params) for node in simplified.nodes)  # type: ignore[union-attr]
    assert not any(node.equation.effects for node in simplified.nodes)  # type: ignore[union-attr]
    np.testing.assert_array_equal(run(simplified, x=X)["0"], X * 16)


def test_a_graph_that_trains_keeps_its_dropout() -> None:
    graph = traced(lambda x: dropout(x, 0.5, jax.random.key(3)), x=X)
    simplified = optimized(graph, EXPORTED)
    results = run(simplified, x=X)
    same_bits(results, run(graph, x=X))
    assert (results["0"] == 0).any()


# --- batch normalisation -------------------------------------------------------------------------------------------

LAYOUTS = {
    "NHWC": (("NHWC", "HWIO", "NHWC"), 1, (3, 3, 4, 6)),
    "NCHW": (("NCHW", "OIHW", "NCHW"), 1, (6, 4, 3, 3)),
    "grouped": (("NHWC", "HWIO", "NHWC"), 2, (3, 3, 2, 6)),
    "depthwise": (("NHWC", "HWIO", "NHWC"), 4, (3, 3, 1, 8)),
    "NCHW depthwise": (("NCHW", "OIHW", "NCHW"), 4, (8, 1, 3, 3)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("bias", [False, True])
def test_batch_norm_goes_into_any_convolution(layout: str, bias: bool) -> None:
    numbers, groups, shape = LAYOUTS[layout]
    first = numbers[2].startswith("NC")
    channels = shape[0] if first else shape[-1]
    spread = (channels, 1, 1) if first else (channels,)
    weights = {"w": normal(*shape) / 4, "b": normal(channels), "mean": normal(channels), "g": normal(channels)}
    weights |= {"var": np.abs(normal(channels)) + 0.5, "beta": normal(channels)}

    def fn(x: Any, w: Any, b: Any, mean: Any, g: Any, var: Any, beta: Any) -> Any:
        y = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=numbers, feature_group_count=groups)
        y = y + b.reshape(spread) if bias else y
        scale = jax.lax.rsqrt(var + 1e-5) * g
        return jax.nn.relu((y - mean.reshape(spread)) * scale.reshape(spread) + beta.reshape(spread))

    x = IMAGE.transpose(0, 3, 1, 2).copy() if first else IMAGE
    made, gone = frozen(traced(fn, weights, x=x), x=x)
    assert ops(made)["conv_general_dilated"] == ops(made)["add"] == 1
    assert not {"mul", "sub", "rsqrt"} & set(ops(made))
    assert gone["fold_batch_norm"]["mul"] == gone["fold_batch_norm"]["sub"] == 1


@pytest.mark.slow
def test_flax_modules_in_inference_mode_are_folded() -> None:
    nnx = pytest.importorskip("flax.nnx")

    class Net(nnx.Module):  # type: ignore[misc,name-defined]
        def __init__(self, rngs: Any) -> None:
            self.conv = nnx.Conv(4, 6, (3, 3), rngs=rngs)
            self.first = nnx.BatchNorm(6, use_running_average=True, rngs=rngs)
            self.dense = nnx.Linear(6, 5, rngs=rngs)
            self.second = nnx.BatchNorm(5, use_running_average=True, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            x = nnx.relu(self.first(self.conv(x)))
            return self.second(self.dense(x.mean((1, 2))))

    net = Net(nnx.Rngs(0))
    for norm in (net.first, net.second):
        norm.mean[...] = normal(*norm.mean.shape)
        norm.var[...] = np.abs(normal(*norm.var.shape)) + 0.5
        norm.scale[...] = normal(*norm.scale.shape)
        norm.bias[...] = normal(*norm.bias.shape)
    definition, state = nnx.split(net)
    leaves, tree = jax.tree_util.tree_flatten(state)
    weights = {f"w{place}": np.asarray(leaf) for place, leaf in enumerate(leaves)}

    def fn(x: Any, *arrays: Any) -> Any:
        return nnx.merge(definition, jax.tree_util.tree_unflatten(tree, arrays))(x)

    graph = traced(fn, weights, x=IMAGE)
    made, gone = frozen(graph, x=IMAGE)
    np.testing.assert_allclose(run(made, x=IMAGE)["0"], net(IMAGE), rtol=1e-5, atol=1e-5)
    assert ops(made)["add"] == 2
    assert not {"mul", "sub", "rsqrt"} & set(ops(made))
    assert gone["fold_batch_norm"]["mul"] == 2


@pytest.mark.slow
def test_batch_norm_stays_where_something_else_reads_or_digits_would_go() -> None:
    w, scale = normal(5, 3), normal(3)
    held = {"w": w, "s": scale}
    for fn in (
        lambda x, w, s: (x @ w, (x @ w) * s),  # the product is an output too
        lambda x, w, s: (x @ w) * s + jnp.sin(x @ w),
        lambda x, w, s: s / (x @ w),
        lambda x, w, s: (x @ w) * (s * jnp.inf),
        lambda x, w, s: (x @ w) / 0.0,
        lambda x, w, s: (x @ w + 1e6) - 1e6,
        lambda x, w, s: (x @ w - 1e4) * s,
        lambda x, w, s: (x @ w) * 1e-30 * s,
    ):
        graph = traced(fn, held, x=X)
        _, reports = optimize(graph, FROZEN)
        assert not {r.name: r.removed for r in reports}["fold_batch_norm"], fn
        close(run(optimized(graph, FROZEN), x=X), run(graph, x=X))


def test_a_weight_that_changes_is_not_folded_into() -> None:
    graph = traced(lambda x, w: ((x @ w) * 2, w * 0.9), {"w": normal(5, 2)}, x=X)
    state = with_updates(graph, w="1")
    simplified = optimized(state, FROZEN)
    given = normal(5, 2)
    same_bits(run(simplified, x=X, w=given), run(state, x=X, w=given))
