"""The functional core of a model: pure functions, and the adapter that makes them from a Flax NNX module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import InputError, missing_extra

if TYPE_CHECKING:
    import jax
    from flax import nnx

Params = Any  # any pytree of arrays: JAX does not name its type either
ModelState = Any  # likewise
Variables = Any  # parameters, with the state where there is one
Outputs = Any  # what the model's own apply returns; drivetrain only hands it on


@dataclass(frozen=True)
class Model:
    """A model as pure functions; parameters live outside it, so every tool of JAX applies.

    Attributes:
        init: Variables from a PRNG key: the parameters, a pytree of arrays. Traced under `jax.jit`. Where there is a
            `train`, {"params": parameters, "state": state}: what the optimizer changes, and what training steps change,
            such as the statistics of a batch normalisation.
        apply: Outputs from variables and features, as the model is evaluated and served; features are arrays of shape
            [batch, *feature shape] by name (a `Ragged` where a feature is a list per row), without the label. Traced:
            no Python control flow on values.
        train: Outputs and the next state from parameters, state, features and a PRNG key, another one in each step:
            what a model does in a training step, where it is something else than `apply`.
    """

    init: Callable[[jax.Array], Variables]
    apply: Callable[[Variables, Mapping[str, jax.Array]], Outputs]
    train: Callable[[Params, ModelState, Mapping[str, jax.Array], jax.Array], tuple[Outputs, ModelState]] | None = None

    def parts(self, variables: Variables) -> tuple[Params, ModelState]:
        """Parameters and state, which is empty where there is no `train`."""
        return (variables, {}) if self.train is None else (variables["params"], variables["state"])

    def variables(self, params: Params, state: ModelState) -> Variables:
        """What `apply` takes, from the parts."""
        return params if self.train is None else {"params": params, "state": state}

    def step(
        self, params: Params, state: ModelState, features: Mapping[str, jax.Array], key: jax.Array
    ) -> tuple[Outputs, ModelState]:
        """What happens in a training step."""
        if self.train is None:
            return self.apply(params, features), state
        return self.train(params, state, features, key)


_CHECKED = 1 << 20
"""Numbers of an array that are looked at together."""


def first_broken(params: Params) -> str | None:
    """The path of the first array that holds NaN or infinity, such as "hidden.kernel"; None where all are finite."""
    import jax
    import numpy as np

    for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0]:
        if not jax.numpy.issubdtype(jax.numpy.result_type(leaf), jax.numpy.inexact):
            continue
        array = np.asarray(leaf).reshape(-1)
        # Part by part: of a table of gigabytes all answers at once would be one more.
        parts = (array[begin : begin + _CHECKED] for begin in range(0, array.size, _CHECKED))
        as_floats = (part.astype(np.float32) if part.dtype.kind == "V" else part for part in parts)  # V: bfloat16
        if not all(np.isfinite(part).all() for part in as_floats):
            return jax.tree_util.keystr(path, simple=True, separator=".")
    return None


def nnx_model(build: Callable[[nnx.Rngs], nnx.Module]) -> Model:
    """The functional core of a Flax NNX module.

    The module is built abstractly once, here, for its structure; `init` builds it under jit (eagerly, each of its
    random arrays would be compiled by itself), `apply` merges parameters and structure while it is traced, which
    costs nothing per step.

    Args:
        build: Makes the module from its random streams. Its `__call__` takes the mapping of features.

    Returns:
        A `Model` whose parameters are a nested dict of the module's `nnx.Param`s: readable names, no Flax types. Where
        the module holds more (batch statistics, variables of its own, random streams) it is trained in Flax's `train()`
        mode and applied in its `eval()` mode. Random streams are no state: in each step they begin anew from that
        step's key, so that any step can be computed again.

    Raises:
        InputError: It is a module, not a function that makes one.
    """
    try:
        from flax import nnx
    except ImportError as error:
        raise missing_extra("flax", "engine") from error
    from .random_streams import random_streams

    if isinstance(build, nnx.Module):
        name = type(build).__name__
        raise InputError(
            f"nnx_model takes a function that makes the module, not a {name}",
            fix=f"write nnx_model(lambda rngs: {name}(…, rngs=rngs))",
        )
    abstract: Any = nnx.eval_shape(lambda: build(random_streams(0)))
    modes = {}
    for mode in ("train", "eval"):
        getattr(abstract, mode)()
        modes[mode] = _split(abstract)
    structure = modes["eval"]
    if not structure.state and not structure.streams:
        return Model(
            init=lambda key: nnx.to_pure_dict(nnx.state(build(random_streams(key)), nnx.Param)),
            apply=lambda params, features: structure.merged(params, {}, None)(features),
        )

    def init(key: jax.Array) -> Variables:
        params, _, state = nnx.state(build(random_streams(key)), nnx.Param, nnx.RngState, ...)
        return {"params": nnx.to_pure_dict(params), "state": nnx.to_pure_dict(state)}

    def train(
        params: Params, state: ModelState, features: Mapping[str, jax.Array], key: jax.Array
    ) -> tuple[Outputs, ModelState]:
        module = modes["train"].merged(params, state, key)
        outputs = module(features)
        _, _, changed = nnx.state(module, nnx.Param, nnx.RngState, ...)
        return outputs, nnx.to_pure_dict(changed)

    def apply(variables: Variables, features: Mapping[str, jax.Array]) -> Outputs:
        return structure.merged(variables["params"], variables["state"], None)(features)

    return Model(init, apply, train)


@dataclass(frozen=True)
class _Structure:
    """A module taken apart in one mode: what it is, and templates of its variables of three kinds."""

    graph: Any
    params: Any
    streams: Any
    state: Any

    def merged(self, params: Params, state: ModelState, key: jax.Array | None) -> Any:
        """The module with these variables; its random streams begin at a key, or at any where none is drawn from."""
        from flax import nnx

        filled = []
        for template, values in ((self.params, params), (self.state, state)):
            filled.append(nnx.State(dict(template)))
            nnx.replace_by_pure_dict(filled[-1], values)
        streams = [
            (path, variable.replace(_stream(variable, key, number)))
            for number, (path, variable) in enumerate(nnx.to_flat_state(self.streams))
        ]
        return nnx.merge(self.graph, filled[0], nnx.from_flat_state(streams), filled[1])


def _stream(variable: Any, key: jax.Array | None, number: int) -> jax.Array:
    """The first value of a random stream's variable: its key, an array of keys in a stack of layers, or its count."""
    import jax
    import jax.numpy as jnp
    from flax import nnx

    shape = variable.get_value().shape
    if isinstance(variable, nnx.RngCount):
        return jnp.zeros(shape, jnp.uint32)
    first = jax.random.fold_in(jax.random.key(0) if key is None else key, number)
    return jax.random.split(first, shape) if shape else first


def _split(module: Any) -> _Structure:
    from flax import nnx

    graph, params, streams, state = nnx.split(module, nnx.Param, nnx.RngState, ...)  # type: ignore[misc]
    return _Structure(graph, params, streams, state)
