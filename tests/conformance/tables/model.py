"""A linear model of heavy penguins."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
from drivetrain.engine import Trained, TrainingRun, nnx_model
from flax import nnx

from .features import CATEGORIES, NUMERIC


class Linear(nnx.Module):
    """Logits, shape [batch]."""

    def __init__(self, sizes: dict[str, int], *, rngs: nnx.Rngs) -> None:
        self.sizes = sizes
        self.weights = nnx.Linear(len(NUMERIC) + sum(sizes.values()), 1, rngs=rngs)

    def __call__(self, features: dict[str, jax.Array]) -> jax.Array:
        numbers = jnp.stack([features[name] for name in NUMERIC], axis=-1)
        hot = [jax.nn.one_hot(features[name], size) for name, size in self.sizes.items()]
        return self.weights(jnp.concatenate([numbers, *hot], axis=-1))[:, 0]


def train(run: TrainingRun) -> Trained:
    """Fit with Adam on the log-loss."""
    sizes = {name: run.features[name].size or 1 for name in CATEGORIES}
    return run.fit(
        nnx_model(lambda rngs: Linear(sizes, rngs=rngs)),
        loss=lambda logits, batch: optax.sigmoid_binary_cross_entropy(logits, batch["heavy"]).mean(),
        predict=lambda logits: {"probability": jax.nn.sigmoid(logits)},
        optimizer=optax.adam(float(run.hyperparameters.get("rate", 0.1))),
        label="heavy",
    )
