"""Logistic regression in plain JAX: a weight for each number."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import optax
from drivetrain.engine import Model, Trained, TrainingRun

from .features import NUMBERS

Params = dict[str, jax.Array]


def init(key: jax.Array) -> Params:
    """No weight for anything."""
    return {"weights": jnp.zeros(len(NUMBERS)), "bias": jnp.zeros(())}


def apply(params: Params, features: Mapping[str, jax.Array]) -> jax.Array:
    """Logits of an Adelie, shape [batch]."""
    return jnp.stack([features[name] for name in NUMBERS], axis=-1) @ params["weights"] + params["bias"]


def train(run: TrainingRun) -> Trained:
    """Fit with Adam on the log-loss."""
    return run.fit(
        Model(init, apply),
        loss=lambda logits, batch: optax.sigmoid_binary_cross_entropy(logits, batch["adelie"]).mean(),
        predict=lambda logits: {"probability": jax.nn.sigmoid(logits)},
        optimizer=optax.adam(0.1),
        label="adelie",
    )
