"""Flax's random streams, quick to draw from in a traced function."""

from __future__ import annotations

from typing import Any

import jax
from flax import nnx


def random_streams(key: jax.Array | int) -> nnx.Rngs:
    """`nnx.Rngs(key)`, which gives the same numbers.

    Flax counts the draws of a stream, and before each it asks JAX for the sharding of the count. A traced array has
    none, and JAX words an error that nobody reads: it looks through all that was traced so far, so that half of the
    time that it takes to build a ResNet-50 is for these errors.
    """
    streams = nnx.Rngs(key)
    stream = streams["default"]
    setattr(streams, stream.tag, _QuickStream(stream.key.get_value(), tag=stream.tag))
    return streams


class _QuickStream(nnx.RngStream):
    """What is forked off it is of its kind too."""

    def __init__(self, key: jax.Array | int, *, tag: str) -> None:
        super().__init__(key, tag=tag)
        self.count = _DrawCount(self.count.get_value(), tag=tag)


class _DrawCount(nnx.RngCount):
    """Always set as a whole: Flax looks at shardings where an index stands beside the value."""

    def __setitem__(self, key: Any, value: Any) -> None:  # Any: an index; an array
        self.set_value(value)
