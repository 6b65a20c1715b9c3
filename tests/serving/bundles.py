"""Bundles that the tests and benchmarks of the server serve: a small network, on columns or on one vector."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
from drivetrain.engine import Bundle, analyze, export_model, ops

FEATURES = 16


def rows_of(seed: int, count: int = 512, *, vector: bool = True) -> pa.Table:
    """Rows with the input `x` of 16 numbers, or columns `x0` to `x15`; and `y`, the label."""
    x = np.random.default_rng(seed).normal(size=(count, FEATURES))
    columns = {"x": pa.array(x.tolist())} if vector else {f"x{at}": x[:, at] for at in range(FEATURES)}
    return pa.table({**columns, "y": x.sum(axis=1)})


def weights(seed: int, hidden: int) -> dict[str, np.ndarray[Any, np.dtype[np.float32]]]:
    """Those of a network of 16 → hidden → hidden → 1."""
    rng = np.random.default_rng(seed)
    sizes = [FEATURES, hidden, hidden, 1]
    return {
        f"w{at}": (rng.normal(size=(wide, narrow)) / np.sqrt(wide)).astype(np.float32)
        for at, (wide, narrow) in enumerate(pairwise(sizes))
    }


def network(params: Mapping[str, Any], features: Mapping[str, Any]) -> Any:  # Any: JAX arrays
    """The network's one number per row."""
    hidden = jnp.tanh(jnp.tanh(features["x"] @ params["w0"]) @ params["w1"])
    return (hidden @ params["w2"])[:, 0]


def write_network(folder: Path, seed: int = 0, *, hidden: int = 64, vector: bool = True) -> Bundle:
    """A network with the weights of a seed, as a bundle with the signature `predict`: output `score`."""

    def preprocess(c: ops.Columns) -> ops.Columns:
        if vector:
            return {"x": ops.to_dense(c["x"], FEATURES, fill=0.0), "y": c["y"]}
        columns = [ops.fill_missing(c[f"x{at}"], 0.0) for at in range(FEATURES)]
        return {"x": jnp.stack(columns, axis=-1), "y": c["y"]}

    transform = folder.with_name(folder.name + "-transform")
    analyze(preprocess, rows_of(0, vector=vector)).save(transform)
    return export_model(
        transform,
        network,
        weights(seed, hidden),
        lambda logits: {"score": jax.nn.sigmoid(logits)},
        label="y",
        out=folder,
    )
