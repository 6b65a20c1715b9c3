"""One small network, with a head and a loss for each question."""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import optax
from drivetrain.engine import Trained, TrainingRun, nnx_model
from flax import nnx

from .features import CONDITIONS, NUMBERS, ORIGINS, SEASONS

Batch = Mapping[str, jax.Array]


class Network(nnx.Module):
    """Outputs of shape [batch, width]."""

    def __init__(self, width: int, *, months: bool, rngs: nnx.Rngs) -> None:
        self.months = months
        self.hidden = nnx.Linear(len(NUMBERS) + 24 + len(ORIGINS) + 13 * months, 64, rngs=rngs)
        self.out = nnx.Linear(64, width, rngs=rngs)

    def __call__(self, features: Batch) -> jax.Array:
        numbers = jnp.stack([features[name] for name in NUMBERS], axis=-1)
        parts = [numbers, jax.nn.one_hot(features["hour"], 24), jax.nn.one_hot(features["origin"], len(ORIGINS))]
        if self.months:
            parts.append(jax.nn.one_hot(features["month"], 13))
        return self.out(jax.nn.relu(self.hidden(jnp.concatenate(parts, axis=-1))))


def temperature(run: TrainingRun) -> Trained:
    """Degrees Fahrenheit, by the squared error."""
    return _fit(
        run,
        1,
        lambda out, batch: jnp.mean((out[:, 0] - batch["warmth"] / 50.0) ** 2),
        lambda out: {"degrees": out[:, 0] * 50.0},
        "warmth",
    )


def season(run: TrainingRun) -> Trained:
    """A probability of each season, by cross-entropy; the month is not looked at."""
    return _fit(
        run,
        len(SEASONS),
        lambda out, batch: optax.softmax_cross_entropy_with_integer_labels(out, batch["season_id"]).mean(),
        lambda out: {"probabilities": jax.nn.softmax(out)},
        "season_id",
        months=False,
    )


def conditions(run: TrainingRun) -> Trained:
    """A probability of each condition, by the log-loss of each."""
    return _fit(
        run,
        len(CONDITIONS),
        lambda out, batch: optax.sigmoid_binary_cross_entropy(out, batch["holds"]).mean(),
        lambda out: {"probabilities": jax.nn.sigmoid(out)},
        "holds",
    )


def windiest(run: TrainingRun) -> Trained:
    """A score to rank by: the expected wind."""
    return _fit(
        run, 1, lambda out, batch: jnp.mean((out[:, 0] - batch["wind"]) ** 2), lambda out: {"score": out[:, 0]}, "wind"
    )


def _fit(
    run: TrainingRun,
    width: int,
    loss: Callable[[jax.Array, Batch], jax.Array],
    predict: Callable[[jax.Array], dict[str, jax.Array]],
    label: str,
    *,
    months: bool = True,
) -> Trained:
    return run.fit(
        nnx_model(lambda rngs: Network(width, months=months, rngs=rngs)),
        loss=loss,
        predict=predict,
        optimizer=optax.adam(3e-3),
        label=label,
    )
