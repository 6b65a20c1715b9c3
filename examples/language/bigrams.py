"""The baseline: how often each character followed each other one, counted."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from drivetrain.engine import Trained, TrainingRun

from .tokens import Tokens


def train(run: TrainingRun) -> Trained:
    """Count pairs; what was never seen has the share that single characters give it (Witten and Bell 1991)."""
    size = run.features["ids"].size
    assert size is not None  # it is a vocabulary's
    pairs = np.zeros((size + 1, size))
    for block in run.dataset():
        ids, splits = block["ids"].values, block["ids"].splits
        before = np.concatenate([[size], ids[:-1]])
        before[splits[:-1]] = size
        np.add.at(pairs, (before, ids), 1)
    params = {"log_probabilities": np.log(smoothed(pairs)).astype(np.float32)}

    def apply(params: Any, features: Mapping[str, Any]) -> dict[str, jax.Array]:
        tokens = Tokens.of(features, size)
        log_probabilities = params["log_probabilities"][tokens.before]
        return {
            "log_likelihood": tokens.log_likelihood(log_probabilities),
            "hits": tokens.hits(log_probabilities),
        }

    return Trained(params, apply, predict=lambda outputs: outputs, label="characters")


def smoothed(pairs: np.ndarray) -> np.ndarray:
    """The share of each character after each other one, [before, character], from how often it came."""
    singles = pairs.sum(axis=0) + 1
    kinds = np.maximum((pairs > 0).sum(axis=1, keepdims=True), 1)
    shares: np.ndarray = (pairs + kinds * singles / singles.sum()) / (pairs.sum(axis=1, keepdims=True) + kinds)
    return shares
