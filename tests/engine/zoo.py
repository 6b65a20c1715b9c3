"""A zoo of graphs: small models of every shape, traced with a symbolic batch, for passes, costs and benchmarks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from drivetrain.engine.graphs.graph import Graph
from drivetrain.engine.graphs.nodes import Tensor
from drivetrain.engine.tracing.equations import graph_of_jaxpr
from drivetrain.engine.tracing.primitives import shaped

Arrays = Mapping[str, Any]


@dataclass(frozen=True)
class Animal:
    """A function from params and inputs to named outputs, with values for both."""

    name: str
    apply: Callable[[Any, Arrays], Mapping[str, Any]]
    params: Any
    inputs: Mapping[str, np.ndarray[Any, Any]]

    def graph(self, rows: int | None = None) -> Graph:
        """As traced, params the weights: the batch symbolic, or of so many rows."""
        leaves, tree = jax.tree_util.tree_flatten_with_path(self.params)
        weights = {jax.tree_util.keystr(path, simple=True, separator="/"): np.asarray(leaf) for path, leaf in leaves}
        (batch,) = jax.export.symbolic_shape("b") if rows is None else (rows,)
        dim = "b" if rows is None else rows
        given = {name: shaped((batch, *a.shape[1:]), a.dtype) for name, a in self.inputs.items()}
        names: list[str] = []

        def run(*arrays: Any) -> list[Any]:
            inputs = dict(zip(self.inputs, arrays, strict=False))
            params = jax.tree_util.tree_unflatten(tree, arrays[len(self.inputs) :])
            made = self.apply(params, inputs)
            names[:] = made
            return list(made.values())

        shapes = [shaped(a.shape, a.dtype) for a in weights.values()]
        closed = jax.make_jaxpr(run)(*given.values(), *shapes)
        inputs = [(n, Tensor(n, str(a.dtype), (dim, *a.shape[1:]))) for n, a in self.inputs.items()]
        return graph_of_jaxpr(closed, inputs, {name: place for place, name in enumerate(names)}, weights=weights)

    def expected(self) -> dict[str, Any]:
        """What JAX itself gives, jitted."""
        return {name: np.asarray(a) for name, a in jax.jit(self.apply)(self.params, dict(self.inputs)).items()}


_RANDOM = np.random.default_rng(7)
_ROWS = 24


def _normal(*shape: int) -> np.ndarray[Any, Any]:
    return _RANDOM.normal(size=shape).astype(np.float32)


def _ids(size: int, *shape: int) -> np.ndarray[Any, Any]:
    return _RANDOM.integers(0, size, (_ROWS, *shape)).astype(np.int32)


def _dense(*sizes: int) -> list[dict[str, np.ndarray[Any, Any]]]:
    return [{"w": _normal(a, b) / np.float32(np.sqrt(a)), "b": _normal(b)} for a, b in pairwise(sizes)]


def _mlp(params: Any, x: Any) -> Any:
    for layer in params[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


def mlp(params: Any, given: Arrays) -> Arrays:
    """Dense layers; an expensive output beside the one that is wanted."""
    x = given["x"]
    return {"y": _mlp(params, x), "debug": jnp.linalg.svd(x.T @ x)[1][None] * jnp.ones((x.shape[0], 1))}


def wide_and_deep(params: Any, given: Arrays) -> Arrays:
    """Crossed ids into a linear part, embeddings into a deep one."""
    crossed = given["a"] * 7 + given["c"]
    deep = jnp.concatenate([params["ea"][given["a"]], params["ec"][given["c"]], given["x"]], -1)
    return {"p": jax.nn.sigmoid(params["wide"][crossed] + _mlp(params["deep"], deep)[:, 0])}


def embedding_bag(params: Any, given: Arrays) -> Arrays:
    """Padded bags of ids, mean pooled."""
    mask = (given["ids"] >= 0).astype(jnp.float32)
    rows = jnp.take(params["table"], jnp.maximum(given["ids"], 0), axis=0) * mask[..., None]
    pooled = rows.sum(1) / jnp.maximum(mask.sum(1, keepdims=True), 1.0)
    return {"y": _mlp(params["head"], pooled)}


def cnn(params: Any, given: Arrays) -> Arrays:
    """Convolution, batch normalisation with known statistics, twice; global pooling."""
    x = given["image"]
    for block in params["blocks"]:
        x = jax.lax.conv_general_dilated(x, block["w"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = (x - block["mean"]) * (jax.lax.rsqrt(block["var"] + 1e-5) * block["gamma"]) + block["beta"]
        x = jax.nn.relu(x)
    return {"y": _mlp(params["head"], x.mean((1, 2)))}


def transformer(params: Any, given: Arrays) -> Arrays:
    """One block of self-attention with layer norm."""
    x = params["embed"][given["tokens"]] + params["place"]
    q, k, v = (x @ params[name] for name in ("q", "k", "v"))
    scores = jnp.einsum("bik,bjk->bij", q, k) / jnp.sqrt(q.shape[-1])
    x = x + jax.nn.softmax(scores) @ v
    x = (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-6)
    return {"y": _mlp(params["head"], jax.nn.gelu(x).mean(1))}


def rnn(params: Any, given: Arrays) -> Arrays:
    """A recurrence by scan."""
    steps = jnp.swapaxes(given["x"], 0, 1)
    start = jnp.zeros((given["x"].shape[0], 8))
    last, _ = jax.lax.scan(lambda h, x: (jnp.tanh(x @ params["w"] + h @ params["u"]), None), start, steps)
    return {"y": last @ params["out"]}


def gru(params: Any, given: Arrays) -> Arrays:
    """A gated recurrence by scan, every state kept."""

    def step(h: Any, x: Any) -> Any:
        both = jnp.concatenate([x, h], -1)
        z, r = jax.nn.sigmoid(both @ params["z"]), jax.nn.sigmoid(both @ params["r"])
        h = (1 - z) * h + z * jnp.tanh(jnp.concatenate([x, r * h], -1) @ params["h"])
        return h, h

    start = jnp.zeros((given["x"].shape[0], 8))
    _, states = jax.lax.scan(step, start, jnp.swapaxes(given["x"], 0, 1))
    return {"y": states.mean(0) @ params["out"]}


def branches(params: Any, given: Arrays) -> Arrays:
    """A branch on a value, chosen while it runs, and a switch."""
    x = given["x"]
    y = jax.lax.cond(x.sum() > 0, lambda v: _mlp(params, v), lambda v: -_mlp(params, v), x)
    return {"y": jax.lax.switch(jnp.argmax(y.sum(0)) % 3, [jnp.sin, jnp.cos, jnp.tanh], y)}


def newton(params: Any, given: Arrays) -> Arrays:
    """An open loop: square roots until they are close."""

    def better(state: Any) -> Any:
        root, _ = state
        new = 0.5 * (root + x / root)
        return new, jnp.abs(new - root).max()

    x = jnp.abs(given["x"]) + 1.0
    root, _ = jax.lax.while_loop(lambda state: state[1] > 1e-3, better, (x, jnp.asarray(1.0)))
    return {"root": root * params["scale"]}


def bags_by_segment(params: Any, given: Arrays) -> Arrays:
    """Ragged rows: flat values with the row each belongs to, summed by segment."""
    rows = given["x"].shape[0]
    values = params["table"][given["ids"].reshape(-1)]
    pooled = jax.ops.segment_sum(values, jnp.repeat(jnp.arange(rows), 5, total_repeat_length=rows * 5), rows)
    return {"y": jnp.concatenate([pooled, given["x"]], -1) @ params["w"]}


def _prepare(given: Arrays, statistics: Arrays) -> dict[str, Any]:
    """As a transform does: z-scores, buckets, clipped ids."""
    made: dict[str, Any] = {}
    for name in ("delay", "distance", "speed"):
        spread = jnp.where(statistics[name][1] > 0, jnp.sqrt(statistics[name][1]), 1.0)
        made[name] = (jnp.nan_to_num(given[name]) - statistics[name][0]) / spread
    made["hour"] = jnp.sum(given["hour"][:, None] >= statistics["edges"], -1, dtype=jnp.int32)
    made["carrier"] = jnp.clip(given["carrier"], 0, 8)
    return made


def _features(params: Any, given: Arrays) -> Any:
    ready = _prepare(given, params["statistics"])
    numbers = jnp.stack([ready[name] for name in ("delay", "distance", "speed")], -1)
    embedded = params["carriers"].astype(jnp.float32)[ready["carrier"]]
    return jnp.concatenate([numbers, embedded, jax.nn.one_hot(ready["hour"], 5)], -1)


HEADS = ("late", "cancelled")


def joined(params: Any, given: Arrays) -> Arrays:
    """Transform and model in one; the preparation is done once for each head, as two people would write it."""
    return {head: jax.nn.sigmoid(_mlp(params[head], _features(params, given))[:, 0]) for head in HEADS}


def joined_by_hand(params: Any, given: Arrays) -> Arrays:
    """The same as one person would write it: prepared once for both heads."""
    x = _features(params, given)
    return {head: jax.nn.sigmoid(_mlp(params[head], x)[:, 0]) for head in HEADS}


def tied(params: Any, given: Arrays) -> Arrays:
    """An auto-encoder whose decoder is its encoder transposed twice over; casts and ones on the way."""
    code = jnp.tanh(given["x"] @ params["w"] * 1.0)
    back = code @ params["w"].T.T.T
    return {"x": (back - 0.0).astype(jnp.float32), "code": code / 1.0}


def normalised(params: Any, given: Arrays) -> Arrays:
    """Weights normalised on the fly, a gate, a maximum over experts."""
    w = params["v"] * (params["g"] / jnp.linalg.norm(params["v"], axis=0))
    experts = jnp.stack([given["x"] @ w, jax.nn.silu(given["x"] @ w), given["x"] @ params["v"]])
    return {"y": jnp.max(experts, 0)}


def _blocks() -> list[dict[str, np.ndarray[Any, Any]]]:
    found = []
    for a, b in ((3, 6), (6, 4)):
        found.append(
            {"w": _normal(3, 3, a, b) / 3, "mean": _normal(b), "var": np.abs(_normal(b)) + 0.5, "gamma": _normal(b),
             "beta": _normal(b)}
        )  # fmt: skip
    return found


def zoo() -> list[Animal]:
    """All of them, with fixed values."""
    statistics = {
        "delay": np.asarray([12.5, 40.0], np.float32),
        "distance": np.asarray([3.0, 9.0], np.float32),
        "speed": np.asarray([0.1, 0.0], np.float32),
        "edges": np.asarray([5.0, 9.0, 15.0, 20.0], np.float32),
    }
    raw = {
        "delay": _normal(_ROWS) * 20,
        "distance": _normal(_ROWS) * 3,
        "speed": np.where(_normal(_ROWS) > 1, np.nan, _normal(_ROWS)).astype(np.float32),
        "hour": _ids(24).astype(np.float32),
        "carrier": _ids(12),
    }
    wide = {"ea": _normal(6, 3), "ec": _normal(7, 4), "wide": _normal(42), "deep": _dense(12, 8, 1)}
    attention = {name: _normal(16, 16) / 4 for name in ("q", "k", "v")}
    gates = {name: _normal(12, 8) / 3 for name in ("z", "r", "h")}
    return [
        Animal("mlp", mlp, _dense(10, 16, 8, 3), {"x": _normal(_ROWS, 10)}),
        Animal("wide_and_deep", wide_and_deep, wide, {"a": _ids(6), "c": _ids(7), "x": _normal(_ROWS, 5)}),
        Animal(
            "embedding_bag", embedding_bag, {"table": _normal(20, 6), "head": _dense(6, 4)}, {"ids": _ids(21, 9) - 1}
        ),
        Animal("cnn", cnn, {"blocks": _blocks(), "head": _dense(4, 3)}, {"image": _normal(_ROWS, 8, 8, 3)}),
        Animal(
            "transformer",
            transformer,
            {"embed": _normal(30, 16), "place": _normal(7, 16), "head": _dense(16, 2), **attention},
            {"tokens": _ids(30, 7)},
        ),
        Animal(
            "rnn",
            rnn,
            {"w": _normal(4, 8) / 2, "u": _normal(8, 8) / 3, "out": _normal(8, 1)},
            {"x": _normal(_ROWS, 6, 4)},
        ),
        Animal("gru", gru, {**gates, "out": _normal(8, 2)}, {"x": _normal(_ROWS, 6, 4)}),
        Animal("branches", branches, _dense(10, 8, 3), {"x": _normal(_ROWS, 10)}),
        Animal("newton", newton, {"scale": np.asarray(2.0, np.float32)}, {"x": _normal(_ROWS, 3)}),
        Animal(
            "bags_by_segment",
            bags_by_segment,
            {"table": _normal(20, 6), "w": _normal(8, 3)},
            {"ids": _ids(20, 5), "x": _normal(_ROWS, 2)},
        ),
        Animal(
            "joined",
            joined,
            {
                "statistics": statistics,
                "carriers": _normal(9, 4).astype(np.float16),
                "late": _dense(12, 8, 1),
                "cancelled": _dense(12, 8, 1),
            },
            raw,
        ),
        Animal("tied", tied, {"w": _normal(6, 4)}, {"x": _normal(_ROWS, 6)}),
        Animal("normalised", normalised, {"v": _normal(5, 4), "g": _normal(4)}, {"x": _normal(_ROWS, 5)}),
    ]
