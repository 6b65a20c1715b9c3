"""Random streams are Flax's: the same keys from the same programs, without the errors that nobody reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import pytest
from drivetrain.engine.training.random_streams import random_streams
from flax import nnx
from jax._src.core import Tracer

pytestmark = pytest.mark.engine


class Noisy(nnx.Module):
    """A module of every kind of stream: drawn from, forked, and split for a stack of layers."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first = nnx.Linear(3, 4, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        self.second = nnx.Linear(4, 2, rngs=rngs)
        self.kept = rngs

        @nnx.split_rngs(splits=3)
        @nnx.vmap(in_axes=(0,), out_axes=0)
        def layers(rngs: nnx.Rngs) -> nnx.Linear:
            return nnx.Linear(2, 2, rngs=rngs)

        self.layers = layers(rngs)

    def __call__(self, inputs: jax.Array) -> jax.Array:
        for _ in range(2):
            inputs = self.dropout(inputs)
        return self.second(self.dropout(self.first(inputs))) + self.kept.normal((2,))


def everything_of(streams: Callable[[Any], nnx.Rngs]) -> Callable[[Any, Any], Any]:
    def run(key: Any, inputs: Any) -> Any:
        module = Noisy(streams(key))
        return module(inputs), nnx.to_pure_dict(nnx.state(module))

    return run


def test_they_are_flaxs_from_the_same_program(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = jax.random.key(7), jax.numpy.ones(3)
    theirs = jax.jit(everything_of(nnx.Rngs)).trace(*arguments)
    monkeypatch.setattr(Tracer, "sharding", property(lambda self: pytest.fail("an error that nobody reads")))
    ours = jax.jit(everything_of(random_streams)).trace(*arguments)
    assert str(ours.jaxpr) == str(theirs.jaxpr)
    assert ours.out_info == theirs.out_info
