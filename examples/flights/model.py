"""Wide and deep: a linear model over the categories beside a small network over everything."""

import jax
import jax.numpy as jnp
import optax
from drivetrain.engine import Trained, TrainingRun, nnx_model
from flax import nnx

from .features import CATEGORIES, NUMERIC

MONTHS = 13  # 1 to 12; 0 is not a month


class WideAndDeep(nnx.Module):
    """Logits of a late arrival, shape [batch]."""

    def __init__(self, sizes: dict[str, int], *, rngs: nnx.Rngs) -> None:
        self.sizes = sizes
        width = sum(sizes.values())
        self.wide = nnx.Linear(width, 1, rngs=rngs)
        self.hidden = nnx.Linear(len(NUMERIC) + width, 64, rngs=rngs)
        self.narrow = nnx.Linear(64, 32, rngs=rngs)
        self.out = nnx.Linear(32, 1, rngs=rngs)

    def __call__(self, features: dict[str, jax.Array]) -> jax.Array:
        numbers = jnp.stack([features[name] for name in NUMERIC], axis=-1)
        categories = jnp.concatenate(
            [jax.nn.one_hot(features[name], size) for name, size in self.sizes.items()], axis=-1
        )
        deep = jax.nn.relu(self.hidden(jnp.concatenate([numbers, categories], axis=-1)))
        return (self.wide(categories) + self.out(jax.nn.relu(self.narrow(deep))))[:, 0]


def train(run: TrainingRun) -> Trained:
    """Fit with Adam on the log-loss."""
    sizes = {name: run.features[name].size or MONTHS for name in ("hour", *CATEGORIES, "month")}
    return run.fit(
        nnx_model(lambda rngs: WideAndDeep(sizes, rngs=rngs)),
        loss=lambda logits, batch: optax.sigmoid_binary_cross_entropy(logits, batch["late"]).mean(),
        predict=lambda logits: {"probability": jax.nn.sigmoid(logits)},
        optimizer=optax.adam(1e-3),
        label="late",
    )
