"""A small network: embeddings of planes, places and buckets beside the numbers and one-hots."""

import jax
import jax.numpy as jnp
import optax
from drivetrain.engine import Trained, TrainingRun, nnx_model
from flax import nnx

from .features import BUCKETED, CLOCK, DENSE, ONE_HOT, WORDS

IDS = (*WORDS, *(f"{name}_bucket" for name in BUCKETED))
NUMBERS = (*DENSE, "no_pressure", "rain", "frequent")
ROWS = (*ONE_HOT, *CLOCK)


class Network(nnx.Module):
    """Logits of a lost fifth, shape [batch]."""

    def __init__(self, sizes: dict[str, int], width: int, *, rngs: nnx.Rngs) -> None:
        self.embeddings = nnx.Dict({name: nnx.Embed(size, 8, rngs=rngs) for name, size in sizes.items()})
        self.hidden = nnx.Linear(8 * len(sizes) + width, 64, rngs=rngs)
        self.narrow = nnx.Linear(64, 32, rngs=rngs)
        self.out = nnx.Linear(32, 1, rngs=rngs)

    def __call__(self, features: dict[str, jax.Array]) -> jax.Array:
        embedded = [embed(features[name]) for name, embed in self.embeddings.items()]
        numbers = jnp.stack([features[name] for name in NUMBERS], axis=-1)
        x = jnp.concatenate([*embedded, numbers, *(features[name] for name in ROWS)], axis=-1)
        return self.out(jax.nn.relu(self.narrow(jax.nn.relu(self.hidden(x)))))[:, 0]


def train(run: TrainingRun) -> Trained:
    """Fit with Adam on the log-loss."""
    sizes = {name: size for name in IDS if (size := run.features[name].size)}
    width = len(NUMBERS) + sum({**ONE_HOT, **CLOCK}.values())
    return run.fit(
        nnx_model(lambda rngs: Network(sizes, width, rngs=rngs)),
        loss=lambda logits, batch: optax.sigmoid_binary_cross_entropy(logits, batch["lost"]).mean(),
        predict=lambda logits: {"probability": jax.nn.sigmoid(logits)},
        optimizer=optax.adam(2e-3),
        label="lost",
    )
