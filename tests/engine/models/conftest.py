"""Small networks, whose programs run once or a few times: compiling them is what takes long."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
from drivetrain.tests.engine.hurry import hurried


@pytest.fixture(autouse=True, scope="module")
def _compiled_in_a_hurry() -> Iterator[None]:
    with hurried() if importlib.util.find_spec("jax") else nullcontext():
        yield


@pytest.fixture(scope="session")
def lively() -> Callable[[Callable[[], Any]], Any]:
    """From what builds a module, the module, its parameters far from first values: near those all attention is a mean.

    They are drawn by NumPy: JAX would compile a program for each shape. `__call__` is compiled once per shape.
    """
    import jax
    import numpy as np
    from flax import nnx

    def filled(build: Callable[[], Any]) -> Any:
        random = np.random.default_rng(0)
        graph, params = nnx.split(nnx.eval_shape(build))
        values = [
            jax.numpy.asarray(
                (random.normal(scale=0.3, size=leaf.shape) + (path[-2].key == "scale")).astype(leaf.dtype)
            )
            for path, leaf in jax.tree_util.tree_leaves_with_path(params)
        ]
        return nnx.merge(graph, jax.tree.unflatten(jax.tree.structure(params), values))

    return filled
