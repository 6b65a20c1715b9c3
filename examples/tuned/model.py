"""A network whose size, optimizer and learning rate are hyperparameters."""

from collections.abc import Mapping
from itertools import pairwise

import jax
import jax.numpy as jnp
import optax
from drivetrain.engine import Trained, TrainingRun, nnx_model
from flax import nnx

from .features import CATEGORIES, NUMBERS

Batch = Mapping[str, jax.Array]


class Network(nnx.Module):
    """Kilograms, shape [batch]."""

    def __init__(self, sizes: Mapping[str, int], layers: list[int], *, rngs: nnx.Rngs) -> None:
        self.sizes = dict(sizes)
        widths = [len(NUMBERS) + sum(sizes.values()), *layers, 1]
        self.layers = nnx.List([nnx.Linear(width, following, rngs=rngs) for width, following in pairwise(widths)])

    def __call__(self, features: Batch) -> jax.Array:
        numbers = jnp.stack([features[name] for name in NUMBERS], axis=-1)
        categories = [jax.nn.one_hot(features[name], size) for name, size in self.sizes.items()]
        hidden = jnp.concatenate([numbers, *categories], axis=-1)
        for layer in list(self.layers)[:-1]:
            hidden = jax.nn.relu(layer(hidden))
        return self.layers[-1](hidden)[:, 0]


def train(run: TrainingRun) -> Trained:
    """Fit by the squared error, as the hyperparameters say."""
    chosen = run.hyperparameters
    if chosen["optimizer"] == "sgd":
        optimizer = optax.sgd(chosen["learning_rate"], chosen["momentum"])
    else:
        optimizer = optax.adam(chosen["learning_rate"])
    sizes = {name: run.features[name].size or 0 for name in CATEGORIES}
    return run.fit(
        nnx_model(lambda rngs: Network(sizes, chosen["layers"], rngs=rngs)),
        loss=lambda output, batch: jnp.mean((output - batch["kilograms"]) ** 2),
        predict=lambda output: {"predicted": output},
        optimizer=optimizer,
        label="kilograms",
    )
