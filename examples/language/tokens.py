"""What both models share: rows of one text or of several as arrays, and what a prediction says."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from drivetrain.engine import Ragged, TrainingRun, ragged
from drivetrain.engine.training.input import Dataset

from .features import WINDOW


class Tokens(NamedTuple):
    """Of each row, int32 [batch, WINDOW].

    Attributes:
        ids: Of the characters.
        before: Of the character before each; at the begin of a text, the id after the last one.
        positions: Of each in its text.
        segment_ids: Which text of the row each belongs to, from 1 on; 0 behind the last.
    """

    ids: jax.Array
    before: jax.Array
    positions: jax.Array
    segment_ids: jax.Array

    @classmethod
    def of(cls, features: Mapping[str, Any], size: int) -> "Tokens":
        """Packed rows, or a text in each, as a bundle has them."""
        ids = features["ids"]
        if isinstance(ids, Ragged):
            positions = jnp.broadcast_to(jnp.arange(WINDOW), (ids.rows, WINDOW))
            segment_ids = ragged.sequence_mask(ids.lengths, WINDOW).astype(jnp.int32)
            ids = ragged.to_dense(ids, WINDOW)
        else:
            positions, segment_ids = features["positions"], features["segment_ids"]
        before = jnp.pad(ids[:, :-1], ((0, 0), (1, 0)))
        return cls(ids, jnp.where(positions == 0, size, before), positions, segment_ids)

    def log_likelihood(self, log_probabilities: jax.Array) -> jax.Array:
        """Of all characters of a row, float32 [batch], from those of each character [batch, WINDOW, size]."""
        likely = jnp.take_along_axis(log_probabilities, self.ids[..., None], axis=-1)[..., 0]
        return jnp.sum(jnp.where(self.segment_ids > 0, likely, 0.0), axis=-1)

    def hits(self, log_probabilities: jax.Array) -> jax.Array:
        """How many of a row's characters are the likeliest, float32 [batch]."""
        hit = (jnp.argmax(log_probabilities, axis=-1) == self.ids) & (self.segment_ids > 0)
        return jnp.sum(hit.astype(jnp.float32), axis=-1)


def packed(run: TrainingRun, split: str | None = None) -> Dataset:
    """Batches of rows that are filled with whole texts; of the train split in another order each epoch."""
    rows = run.dataset(split).select("ids")
    if split is None:
        rows = rows.shuffle(run.seed, window=10_000)
    return rows.pack("ids", length=WINDOW, window=256).map(counted).batch(run.batch_size)


def counted(columns: Mapping[str, Any]) -> dict[str, Any]:
    """With the number of characters of each packed row."""
    return {**columns, "characters": np.sum(columns["segment_ids"] > 0, axis=1).astype(np.float32)}
