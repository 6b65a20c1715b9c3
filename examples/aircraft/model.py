"""A linear model, as the census example trains: numbers and one-hots dense, the many words by a weight each."""

import jax
import jax.numpy as jnp
import optax
from drivetrain.engine import Trained, TrainingRun, nnx_model
from flax import nnx

from .features import IDS, NUMBERS, ONE_HOT

SCALARS = (*NUMBERS, "no_speed", "common")
ARRAYS = (*ONE_HOT, "type", "engine")


class Linear(nnx.Module):
    """Logits of this century, shape [batch]; an embedding of width 1 is the weight of a sparse one-hot."""

    def __init__(self, width: int, sizes: dict[str, int], *, rngs: nnx.Rngs) -> None:
        self.dense = nnx.Linear(width, 1, rngs=rngs)
        zeros = nnx.initializers.zeros_init()
        self.sparse = nnx.Dict(
            {name: nnx.Embed(size, 1, embedding_init=zeros, rngs=rngs) for name, size in sizes.items()}
        )

    def __call__(self, features: dict[str, jax.Array]) -> jax.Array:
        scalars = jnp.stack([features[name] for name in SCALARS], axis=-1)
        logits = self.dense(jnp.concatenate([scalars, *(features[name] for name in ARRAYS)], axis=-1))
        return (logits + sum(table(features[name]) for name, table in self.sparse.items()))[:, 0]


def train(run: TrainingRun) -> Trained:
    """Fit with Adam on the log-loss."""
    width = len(SCALARS) + sum(run.features[name].shape[0] for name in ARRAYS)
    sizes = {name: size for name in IDS if (size := run.features[name].size)}
    return run.fit(
        nnx_model(lambda rngs: Linear(width, sizes, rngs=rngs)),
        loss=lambda logits, batch: optax.sigmoid_binary_cross_entropy(logits, batch["new"]).mean(),
        predict=lambda logits: {"probability": jax.nn.sigmoid(logits)},
        optimizer=optax.adam(2e-2),
        label="new",
    )
