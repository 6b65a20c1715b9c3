"""A weight for every word, and a weight for how long the message is."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from drivetrain.engine import Trained, TrainingRun, nnx_model, ragged
from flax import nnx

from .features import WORDS

Features = dict[str, Any]  # arrays, and two of them Ragged


class Bag(nnx.Module):
    """Logits of a TypeError, shape [batch]."""

    def __init__(self, *, rngs: nnx.Rngs) -> None:
        self.words = nnx.Param(jnp.zeros((WORDS + 1, 1)))
        self.length = nnx.Linear(1, 1, rngs=rngs)

    def __call__(self, features: Features) -> jax.Array:
        bag = ragged.embedding_bag(self.words[...], features["ids"], features["weights"], "sqrtn")
        logits: jax.Array = bag + self.length(features["length"][:, None])
        return logits[:, 0]


def train(run: TrainingRun) -> Trained:
    """Fit with Adam on the log-loss, and a price on large weights."""
    return run.fit(
        nnx_model(lambda rngs: Bag(rngs=rngs)),
        loss=lambda logits, batch: optax.sigmoid_binary_cross_entropy(logits, batch["type_error"]).mean(),
        predict=lambda logits: {"probability": jax.nn.sigmoid(logits)},
        optimizer=optax.adamw(3e-2, weight_decay=0.03),
        label="type_error",
    )
