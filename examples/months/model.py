"""A linear model over two numbers and two categories."""

import jax
import jax.numpy as jnp
import optax
from drivetrain.engine import Trained, TrainingRun, nnx_model
from flax import nnx

from .features import NUMERIC


class Linear(nnx.Module):
    """Logits of a late arrival, shape [batch]."""

    def __init__(self, sizes: dict[str, int], *, rngs: nnx.Rngs) -> None:
        self.sizes = sizes
        self.out = nnx.Linear(len(NUMERIC) + sum(sizes.values()), 1, rngs=rngs)

    def __call__(self, features: dict[str, jax.Array]) -> jax.Array:
        numbers = [features[name][:, None] for name in NUMERIC]
        categories = [jax.nn.one_hot(features[name], size) for name, size in self.sizes.items()]
        return self.out(jnp.concatenate([*numbers, *categories], axis=-1))[:, 0]


def train(run: TrainingRun) -> Trained:
    """Fit with Adam on the log-loss."""
    sizes = {name: run.features[name].size or 1 for name in ("carrier", "origin")}
    return run.fit(
        nnx_model(lambda rngs: Linear(sizes, rngs=rngs)),
        loss=lambda logits, batch: optax.sigmoid_binary_cross_entropy(logits, batch["late"]).mean(),
        predict=lambda logits: {"probability": jax.nn.sigmoid(logits)},
        optimizer=optax.adam(1e-2),
        label="late",
    )
