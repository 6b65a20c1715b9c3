"""A wide and deep network whose tables are trained by the rows that a batch names."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import optax
from drivetrain.engine import SparseTables, Trained, TrainingRun, nnx_model, rowwise_adagrad
from drivetrain.engine.models import WideAndDeep, table_ids

from .features import CATEGORIES


def loss(output: jax.Array, batch: Mapping[str, jax.Array]) -> jax.Array:
    """The mean squared error."""
    return jnp.mean((output - batch["rating"]) ** 2)


def train(run: TrainingRun) -> Trained:
    """Fit the ratings."""
    sizes = {name: run.features[name].size or 0 for name in CATEGORIES}
    steps = run.epochs * run.steps_per_epoch
    return run.fit(
        nnx_model(lambda rngs: WideAndDeep(sizes, sizes, ["distance"], width=16, hidden=(128, 64), rngs=rngs)),
        loss=loss,
        predict=lambda output: {"predicted": output},
        optimizer=optax.adamw(optax.cosine_decay_schedule(2e-3, steps)),
        tables=SparseTables(
            {**table_ids(CATEGORIES), **table_ids(CATEGORIES, "wide")},
            rowwise_adagrad(optax.cosine_decay_schedule(0.2, steps)),
        ),
        label="rating",
    )
