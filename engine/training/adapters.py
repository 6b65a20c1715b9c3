"""Models written with other libraries, each as the functional core that `TrainingRun.fit` takes."""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...errors import DrivetrainError, InputError
from .model import Model, ModelState, Outputs, Params, Variables

if TYPE_CHECKING:
    import jax

    Features = Mapping[str, jax.Array]


def keras_model(build: Callable[[], Any], *, seed: int = 0) -> Model:
    """The functional core of a Keras 3 model, on Keras's JAX backend.

    Args:
        build: Makes the model: a functional one whose inputs are a mapping of features, or one that has been called
            once, so that its weights exist. It need not be compiled: loss and optimizer are those of `fit`.
        seed: Of Keras's initial weights and of its layers' random numbers; give the run's. Keras seeds Python's and
            NumPy's global generators with it, too.

    Returns:
        A `Model` whose parameters are the trainable weights by their paths. All other variables (moving averages, seeds
        of dropout) are its state. `init` ignores its key: Keras draws the weights while it builds.

    Raises:
        DrivetrainError: Keras is not installed.
        InputError: Keras runs on another backend, or the model has no weights yet, or losses of its own.
    """
    os.environ.setdefault("KERAS_BACKEND", "jax")
    keras: Any = _imported("keras")
    if keras.backend.backend() != "jax":
        raise InputError(
            f"Keras computes with {keras.backend.backend()}", fix="set KERAS_BACKEND=jax before Keras is imported"
        )
    # So that the weights' names do not depend on what was built before. To collect garbage is not what it is for.
    keras.utils.clear_session(free_memory=False)
    keras.utils.set_random_seed(seed)
    module = build()
    if not module.built:
        raise InputError("the Keras model has no weights yet", fix="call it once on a batch of features in build")
    if module.losses:
        raise InputError(
            "the Keras model has losses of its own, which fit does not see",
            fix="add them in the loss, or decay weights by optax.add_decayed_weights",
        )
    trained = {variable.path: variable.value for variable in module.trainable_variables}
    others = {variable.path: variable.value for variable in module.non_trainable_variables}
    inputs = list(module.input) if isinstance(getattr(module, "input", None), Mapping) else None

    def call(params: Params, state: ModelState, features: Features, *, training: bool) -> Any:
        chosen = features if inputs is None else {name: features[name] for name in inputs}
        return module.stateless_call(
            [params[name] for name in trained], [state[name] for name in others], chosen, training=training
        )

    def train(params: Params, state: ModelState, features: Features, key: jax.Array) -> tuple[Outputs, ModelState]:
        outputs, values = call(params, state, features, training=True)
        return outputs, dict(zip(others, values, strict=True))

    def apply(variables: Variables, features: Features) -> Outputs:
        return call(variables["params"], variables["state"], features, training=False)[0]

    return Model(lambda key: {"params": dict(trained), "state": dict(others)}, apply, train)


def equinox_model(build: Callable[[jax.Array], Any]) -> Model:
    """The functional core of an Equinox module.

    Args:
        build: Makes the module from a PRNG key; or module and state, as `eqx.nn.make_with_state` gives them. As Equinox
            has it, the module is called with one row's features, a mapping of arrays [*feature shape], and is mapped
            over the rows of a batch, whose axis is called "batch". One whose `__call__` takes `key` is given a key for
            each row, None when it is evaluated. With a state it is called with it as the second argument, and returns
            outputs and state.

    Returns:
        A `Model` whose parameters are the module's floating arrays by their paths; other arrays, and what is in
        Equinox's state, are its state.

    Raises:
        DrivetrainError: Equinox is not installed.
    """
    import jax
    import jax.numpy as jnp

    equinox: Any = _imported("equinox")
    abstract = equinox.filter_eval_shape(build, jax.random.key(0))
    with_state = isinstance(abstract, tuple)
    paths, structure = jax.tree_util.tree_flatten_with_path(abstract)
    names = [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in paths]
    inside = len(jax.tree.leaves(abstract[0] if with_state else abstract))  # the leaves of the module come first
    arrays = {name for name, (_, leaf) in zip(names, paths, strict=True) if isinstance(leaf, jax.ShapeDtypeStruct)}
    trained = {
        name
        for name, (_, leaf) in zip(names[:inside], paths[:inside], strict=True)
        if name in arrays and jnp.issubdtype(leaf.dtype, jnp.inexact)
    }
    takes_key = "key" in inspect.signature(type(abstract[0] if with_state else abstract).__call__).parameters

    def init(key: jax.Array) -> Variables:
        leaves = dict(zip(names, jax.tree.leaves(build(key)), strict=True))
        return {
            "params": {name: leaves[name] for name in names if name in trained},
            "state": {name: leaves[name] for name in names if name in arrays - trained},
        }

    def call(params: Params, state: ModelState, features: Features, key: jax.Array | None) -> Any:
        values = {**params, **state}
        leaves = [values.get(name, leaf) for name, (_, leaf) in zip(names, paths, strict=True)]
        whole = jax.tree.unflatten(structure, leaves)
        module, memory = whole if with_state else (whole, None)
        if key is None:
            module = equinox.nn.inference_mode(module)
        keys = None  # nor are rows counted: where a model is exported their number is a symbol
        if key is not None and takes_key:
            keys = jax.random.split(key, len(jax.tree.leaves(features)[0]))

        def of_row(features: Features, memory: Any, key: Any) -> Any:
            keywords = {"key": key} if takes_key else {}
            return module(features, memory, **keywords) if with_state else (module(features, **keywords), None)

        mapped = jax.vmap(of_row, in_axes=(0, None, None if keys is None else 0), out_axes=(0, None), axis_name="batch")
        return mapped(features, memory, keys)

    def train(params: Params, state: ModelState, features: Features, key: jax.Array) -> tuple[Outputs, ModelState]:
        outputs, memory = call(params, state, features, key)
        return outputs, {**state, **dict(zip(names[inside:], jax.tree.leaves(memory), strict=True))}

    def apply(variables: Variables, features: Features) -> Outputs:
        return call(variables["params"], variables["state"], features, None)[0]

    return Model(init, apply, train)


def haiku_model(forward: Callable[..., Outputs], features: Features) -> Model:
    """The functional core of a function that uses Haiku's modules.

    Args:
        forward: `forward(features, is_training)` gives outputs; what `hk.transform_with_state` takes.
        features: A batch of the right shapes and dtypes for Haiku to build the parameters from; `run.example()`.

    Raises:
        InputError: `forward` does not take these two arguments.
        DrivetrainError: Haiku is not installed.
    """
    haiku: Any = _imported("haiku")
    try:
        inspect.signature(forward).bind(features, True)
    except TypeError as error:
        raise InputError(
            f"haiku_model calls forward(features, is_training), and this one takes {inspect.signature(forward)}",
            fix="write def forward(features, is_training): …, which is true in training steps alone",
        ) from error
    transformed = haiku.transform_with_state(forward)

    def init(key: jax.Array) -> Variables:
        params, state = transformed.init(key, features, True)
        return {"params": params, "state": state}

    def train(params: Params, state: ModelState, features: Features, key: jax.Array) -> tuple[Outputs, ModelState]:
        outputs, after = transformed.apply(params, state, key, features, True)
        return outputs, after

    def apply(variables: Variables, features: Features) -> Outputs:
        return transformed.apply(variables["params"], variables["state"], None, features, False)[0]

    return Model(init, apply, train)


_PACKAGES = {"haiku": "dm-haiku"}


def _imported(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = _PACKAGES.get(module, module)
        raise DrivetrainError(f"{package} is not installed", fix=f"pip install {package}") from error
