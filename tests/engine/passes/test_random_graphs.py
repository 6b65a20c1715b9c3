"""Laws of the passes on random graphs: dags of JAX functions on batches and weights, as hypothesis draws them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from drivetrain.engine.passes import EXPORTED, FROZEN, STRUCTURAL, outline  # noqa: E402

from .graphs import close, optimized, run, same_bits, traced  # noqa: E402

pytestmark = [pytest.mark.engine, pytest.mark.slow]

WIDTH = 4
CONSTANT = np.asarray([0.5, -1.0, 0.0, 2.0], np.float32)

jitted = jax.jit(lambda x, y: jnp.clip(x, -2, 2) * 1.0 + y)
twice = jax.jit(lambda x: jax.nn.relu(x) + jax.nn.relu(x) + CONSTANT)


def scanned(x: Any) -> Any:
    """A carry that is read, one that is not, and stacked results."""
    step = lambda state, _: ((jnp.tanh(state[0]) * 1.0, state[1] + 1), jax.nn.relu(state[0]))  # noqa: E731
    (last, _), steps = jax.lax.scan(step, (x, jnp.float32(0)), length=2)
    return last + steps.sum(0)


# Each keeps (b, WIDTH) float32, and values of a size that float32 can tell apart.
ONE: dict[str, Callable[[Any], Any]] = {
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "softmax": jax.nn.softmax,
    "logsumexp": lambda x: jax.scipy.special.logsumexp(x, -1, keepdims=True) * jnp.ones((1, WIDTH), jnp.float32),
    "negated twice": lambda x: jnp.negative(jnp.negative(x)),
    "plus zero": lambda x: x + 0.0,
    "minus zero": lambda x: x - 0.0,
    "times one": lambda x: 1.0 * x / 1.0,
    "scaled": lambda x: (x - 0.5) / 2.0,
    "scaled per column": lambda x: (x - CONSTANT) * np.asarray([1, 2, 0.5, -1], np.float32),
    "half": lambda x: jnp.clip(x, -9, 9).astype(jnp.float16).astype(jnp.float32),
    "bfloat16": lambda x: (jnp.clip(x, -9, 9).astype(jnp.bfloat16) + jnp.bfloat16(0)).astype(jnp.float32),
    "rounded": lambda x: jnp.clip(x, -9, 9).astype(jnp.int8).astype(jnp.int32).astype(jnp.int8).astype(jnp.float32),
    "reshaped": lambda x: x.reshape(-1, 2, WIDTH // 2).reshape(-1).reshape(x.shape),
    "transposed": lambda x: x.T.T.T.T,
    "sum": lambda x: x.sum(-1, keepdims=True) + jnp.zeros((1, WIDTH), jnp.float32),
    "mean": lambda x: x.mean(-1, keepdims=True) * 1.0 + x,
    "nan to num": jnp.nan_to_num,
    "sorted": lambda x: jax.lax.sort((x, x), num_keys=1)[0],
    "scan": scanned,
    "branch": lambda x: jax.lax.cond(x.shape[-1] > 3, jax.nn.relu, lambda v: v * 1.0, x),
    "chosen branch": lambda x: jax.lax.cond((x > 99).any(), jnp.tanh, lambda v: twice(v), x),
    "jit": twice,
    "checkpoint": jax.checkpoint(jnp.tanh),
}
TWO: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "tanh of product": lambda x, y: jnp.tanh(x * y),
    "max": jnp.maximum,
    "where": lambda x, y: jnp.where(x > y, x, y),
    "both": lambda x, y: jnp.concatenate([x[:, :2], y[:, 2:]], -1),
    "stack": lambda x, y: jnp.stack([x[:, 0], y[:, 1], x[:, 2], y[:, 3]], -1),
    "over columns": lambda x, y: x + y[:, :1],
    "jit": jitted,
}
WEIGHTED: dict[str, Callable[[Any, Any], Any]] = {
    "dense": lambda x, w: x @ w,
    "dense transposed": lambda x, w: x @ w.T.T.T,
    "dense scaled": lambda x, w: (x @ w) * w[0] + w[1],
    "dense of scaled": lambda x, w: ((x - 0.25) * 3.0) @ (w * 0.5),
    "normalised": lambda x, w: x @ (w / jnp.sqrt((w * w).sum(0) + 1.0)),
    "row": lambda x, w: x * w[2],
    "embedding": lambda x, w: w[jnp.clip(jnp.nan_to_num(x[:, 0]), 0, 3).astype(jnp.int32)],
}


@dataclass(frozen=True)
class Recipe:
    """Steps, each an op and which of the earlier values it reads, and which values are wanted."""

    steps: tuple[tuple[str, int, int], ...]
    wanted: tuple[int, ...]

    def __call__(self, x: Any, y: Any, *weights: Any) -> list[Any]:
        values = [x, y]
        for name, a, c in self.steps:
            kind, op = name.split(": ")
            first, second = values[a % len(values)], values[c % len(values)]
            if kind == "one":
                values.append(ONE[op](first))
            elif kind == "two":
                values.append(TWO[op](first, second))
            else:
                values.append(WEIGHTED[op](first, weights[c % len(weights)]))
        return [values[place % len(values)] for place in self.wanted]


NAMES = [f"one: {n}" for n in ONE] + [f"two: {n}" for n in TWO] + [f"weighted: {n}" for n in WEIGHTED] * 2
PLACES = st.integers(0, 12)
RECIPES = st.builds(
    Recipe,
    st.lists(st.tuples(st.sampled_from(NAMES), PLACES, PLACES), min_size=1, max_size=9).map(tuple),
    st.lists(PLACES, min_size=1, max_size=3).map(tuple),
)
FLOATS = st.floats(-3, 3, width=32) | st.sampled_from([0.0, -0.0])
ROWS = st.lists(st.lists(FLOATS, min_size=WIDTH, max_size=WIDTH), min_size=1, max_size=3)
SPECIAL = np.asarray([[np.nan, np.inf, -np.inf, -0.0]], np.float32)


def weights_of(seed: int) -> dict[str, np.ndarray[Any, Any]]:
    random = np.random.default_rng(seed)
    return {f"w{n}": (random.normal(size=(WIDTH, WIDTH)) / 2).astype(np.float32) for n in range(3)}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(RECIPES, ROWS, st.integers(0, 9))
def test_passes_keep_what_random_graphs_compute(recipe: Recipe, rows: list[list[float]], seed: int) -> None:
    x = np.asarray(rows, np.float32)
    y = x[:, ::-1] * np.float32(0.5)
    weights = weights_of(seed)
    graph = traced(recipe, weights, x=x, y=y)
    before = run(graph, x=x, y=y)
    plain = jax.jit(recipe)(x, y, *weights.values())
    close(before, {str(place): array for place, array in enumerate(plain)}, within=1e-5)
    special = np.concatenate([x, SPECIAL])
    odd = run(graph, x=special, y=special)
    for chain in (STRUCTURAL, (*EXPORTED, outline)):
        simplified = optimized(graph, chain)
        read = {name for node in simplified.nodes for name in node.inputs} | set(simplified.roots("call"))
        assert all(any(tensor.id in read for tensor in node.outputs) for node in simplified.nodes)
        same_bits(run(simplified, x=x, y=y), before)
        same_bits(run(simplified, x=special, y=special), odd)
    # Errors of 1e-6 grow in what comes after: casts and comparisons may then fall on the other side.
    steps = {name.split(": ")[1] for name, _, _ in recipe.steps}
    if not steps & {"half", "bfloat16", "rounded", "where", "embedding", "sorted", "chosen branch"}:
        close(run(optimized(graph, FROZEN), x=x, y=y), before, within=5e-6)
