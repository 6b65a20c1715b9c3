"""A decoder of a few hundred thousand parameters, and what it writes after a text."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax
from drivetrain.engine import Trained, TrainingRun, models, nnx_model
from flax import nnx

from .features import WINDOW
from .tokens import Tokens, packed

WRITTEN = 32
"""Characters that a served model writes."""


class Writer(nnx.Module):
    """Log-likelihoods of rows; of a row with one text, the characters that are likeliest to follow it."""

    def __init__(self, size: int, shape: Mapping[str, Any], *, rngs: nnx.Rngs) -> None:
        self.size = size
        self.decoder = models.Decoder(models.TransformerSize(size + 1, length=WINDOW, **shape), rngs=rngs)

    def __call__(self, features: Mapping[str, Any]) -> dict[str, jax.Array]:
        tokens = Tokens.of(features, self.size)
        logits = self.decoder(tokens.before, segment_ids=tokens.segment_ids, positions=tokens.positions)
        log_probabilities = jax.nn.log_softmax(logits[..., : self.size])
        outputs = {
            "log_likelihood": tokens.log_likelihood(log_probabilities),
            "hits": tokens.hits(log_probabilities),
        }
        if "segment_ids" not in features:
            begin = jnp.full_like(tokens.ids[:, :1], self.size)
            prompts = jnp.concatenate([begin, tokens.ids], axis=1)
            lengths = 1 + jnp.sum(tokens.segment_ids, axis=1)
            outputs["continuation"] = models.generate(self.decoder, prompts, lengths, WRITTEN).tokens
        return outputs


def train(run: TrainingRun) -> Trained:
    """Fit by the loss per character, with a learning rate that rises and falls, and clipped gradients."""
    chosen = run.hyperparameters
    size = run.features["ids"].size
    assert size is not None  # it is a vocabulary's
    data = packed(run)
    steps = sum(1 for _ in data)
    rate = optax.warmup_cosine_decay_schedule(
        0.0, chosen["learning_rate"], warmup_steps=steps // 2, decay_steps=run.epochs * steps
    )
    return run.fit(
        nnx_model(lambda rngs: Writer(size, chosen["shape"], rngs=rngs)),
        loss=lambda outputs, batch: -jnp.sum(outputs["log_likelihood"]) / jnp.sum(batch["characters"]),
        predict=lambda outputs: outputs,
        optimizer=optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(rate, b2=0.98, weight_decay=0.1)),
        label="characters",
        metrics={"accuracy": lambda outputs, batch: jnp.sum(outputs["hits"]) / jnp.sum(batch["characters"])},
        data=data,
        eval_data=packed(run, run.eval_split),
        steps_per_epoch=steps,
        keep_best="eval_loss",
    )
