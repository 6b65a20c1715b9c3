"""The functional core of a model: two pure functions, and the adapter that makes them from a Flax NNX module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import InputError, missing_extra

if TYPE_CHECKING:
    import jax
    from flax import nnx

Params = Any  # any pytree of arrays: JAX does not name its type either
Outputs = Any  # what the model's own apply returns; drivetrain only hands it on


@dataclass(frozen=True)
class Model:
    """A model as two pure functions; parameters live outside it, so every tool of JAX applies.

    Attributes:
        init: Parameters (a pytree of arrays) from a PRNG key. Traced under `jax.jit`.
        apply: Outputs from parameters and features; features are arrays of shape [batch, *feature shape] by name (a
            `Ragged` where a feature is a list per row), without the label. Traced: no Python control flow on values.
    """

    init: Callable[[jax.Array], Params]
    apply: Callable[[Params, Mapping[str, jax.Array]], Outputs]


def nnx_model(build: Callable[[nnx.Rngs], nnx.Module]) -> Model:
    """The functional core of a Flax NNX module.

    The module is built abstractly once, here, for its structure; `init` builds it under jit (eagerly, each of its
    random arrays would be compiled by itself), `apply` merges parameters and structure while it is traced, which
    costs nothing per step.

    Args:
        build: Makes the module from its random streams. Its `__call__` takes the mapping of features.

    Returns:
        A `Model` whose parameters are a nested dict of the module's `nnx.Param`s: readable names, no Flax types.

    Raises:
        InputError: The module holds state besides parameters (batch statistics, dropout streams), which a pure
            `apply(params, features)` cannot carry from step to step.
    """
    try:
        from flax import nnx
    except ImportError as error:
        raise missing_extra("flax", "engine") from error

    graph, template, rest = nnx.split(nnx.eval_shape(lambda: build(nnx.Rngs(0))), nnx.Param, ...)  # type: ignore[misc]
    other = [f"{'.'.join(map(str, path))} ({type(value).__name__})" for path, value in nnx.to_flat_state(rest)]
    if other:
        raise InputError(
            f"the module holds state that training does not carry: {', '.join(other[:4])}",
            fix="use layers that hold parameters alone (LayerNorm for BatchNorm, no Dropout), "
            "or write your own loop over run.batches()",
        )

    def init(key: jax.Array) -> Params:
        return nnx.to_pure_dict(nnx.state(build(nnx.Rngs(key)), nnx.Param))

    def apply(params: Params, features: Mapping[str, jax.Array]) -> Outputs:
        state = nnx.State(dict(template))
        nnx.replace_by_pure_dict(state, params)
        module: Any = nnx.merge(graph, state)  # Any: nnx.Module does not declare __call__
        return module(features)

    return Model(init, apply)
