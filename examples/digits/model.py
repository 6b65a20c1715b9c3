"""A small residual network, trained on images that are moved at random."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import optax
from drivetrain import engine
from drivetrain.engine import TensorBoard, Trained, TrainingRun, nnx_model
from drivetrain.engine.models import ResNet
from flax import nnx

DIGITS = 10


class Network(nnx.Module):
    """Logits [batch, 10] of the feature `image`."""

    def __init__(self, *, rngs: nnx.Rngs) -> None:
        self.resnet = ResNet((1, 1, 1), DIGITS, bottleneck=False, width=16, channels=1, small_images=True, rngs=rngs)

    def __call__(self, features: Mapping[str, jax.Array]) -> jax.Array:
        logits: jax.Array = self.resnet(features["image"])
        return logits


def batches(run: TrainingRun) -> engine.input.Dataset:
    """Images in another order in each epoch, each moved by up to a pixel; a mirrored digit would be none."""
    moved = engine.input.ShiftAndFlip("image", 1, flip=False)
    return run.dataset().cache().shuffle(run.seed).batch(run.batch_size).map(moved, seed=run.seed)


def loss(logits: jax.Array, batch: Mapping[str, jax.Array]) -> jax.Array:
    mean: jax.Array = optax.softmax_cross_entropy_with_integer_labels(logits, batch["digit"]).mean()
    return mean


def accuracy(logits: jax.Array, batch: Mapping[str, jax.Array]) -> jax.Array:
    return jnp.mean(logits.argmax(-1) == batch["digit"])


def train(run: TrainingRun) -> Trained:
    """Fit by a rate that rises and falls, and keep the average of the last steps' parameters."""
    steps = run.epochs * run.steps_per_epoch
    return run.fit(
        nnx_model(lambda rngs: Network(rngs=rngs)),
        loss=loss,
        predict=lambda logits: {"probabilities": jax.nn.softmax(logits)},
        optimizer=optax.adamw(optax.cosine_onecycle_schedule(steps, 1e-2), weight_decay=1e-2),
        label="digit",
        data=batches(run),
        eval_data=run.dataset("eval").batch(run.batch_size),
        metrics={"accuracy": accuracy},
        callbacks=[TensorBoard()],
        ema=0.98,
    )
