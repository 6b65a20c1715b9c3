"""Small networks with random parameters, filled by NumPy: drawing them by JAX compiles a program for each shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture(scope="session")
def lively() -> Callable[[Callable[[], Any]], Any]:
    """From what builds a module, the module, its parameters far from first values: near those all attention is a mean.

    Its `__call__` is compiled once per shape.
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
