"""Tell odd digits from even by a few labels, with an encoder that learnt to read: `python digits.py [FOLDER]`."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import drivetrain as dt
import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits

Params = Any  # pytrees of arrays
Apply = Callable[[Params, Any], Any]
Model = Callable[[Any], Any]
Draws = Sequence[tuple[np.ndarray, np.ndarray]]
LABELS = (5, 20)
"""Labelled images of odd digits, and as many of even ones."""


def digits(half: int) -> tuple[np.ndarray, np.ndarray]:
    """Half of the images [n, 8, 8, 1], and which digits they show. The halves have no image in common."""
    images, truth = load_digits(return_X_y=True)
    return (images[half::2] / 16).astype(np.float32).reshape(-1, 8, 8, 1), truth[half::2].astype(np.int32)


def encode(params: Params, images: Any) -> Any:
    """Two convolutions and a dense layer: 64 numbers per image."""
    x = images
    for name in ("conv1", "conv2"):
        x = jax.lax.conv_general_dilated(x, params[name], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        rows, height, width, channels = x.shape
        # The largest of each four, by a reshape: the gradient of `reduce_window` takes longer than all the rest.
        x = jax.nn.relu(x).reshape(rows, height // 2, 2, width // 2, 2, channels).max((2, 4))
    return jax.nn.relu(x.reshape(x.shape[0], 128) @ params["dense"])


def encoder_params(seed: int) -> Params:
    shapes = {"conv1": (3, 3, 1, 16), "conv2": (3, 3, 16, 32), "dense": (128, 64)}
    keys = jax.random.split(jax.random.key(seed), len(shapes))
    init = jax.nn.initializers.he_normal()
    return {name: init(key, shape) for key, (name, shape) in zip(keys, shapes.items(), strict=True)}


@partial(jax.jit, static_argnums=(0, 1))  # compiled once for a model, whatever it learns from
def step(apply: Apply, rate: float, params: Params, state: Any, data: tuple[Any, Any]) -> tuple[Params, Any]:
    """Params and Adam's state after another step."""

    def loss(params: Params) -> Any:
        return optax.softmax_cross_entropy_with_integer_labels(apply(params, data[0]), data[1]).mean()

    updates, state = optax.adam(rate).update(jax.grad(loss)(params), state)
    return optax.apply_updates(params, updates), state


def trained(apply: Apply, params: Params, data: tuple[Any, Any], *, steps: int = 200, rate: float = 3e-3) -> Params:
    """Params after some steps of Adam on all the data."""
    state = optax.adam(rate).init(params)
    for _ in range(steps):
        params, state = step(apply, rate, params, state, data)
    return params


def publish(folder: Path, seed: int = 0) -> None:
    """Learn to read the digits of one half, all labelled, and publish the encoder."""
    params = {"encoder": encoder_params(seed), "head": jnp.zeros((64, 10))}
    params = trained(lambda p, x: encode(p["encoder"], x) @ p["head"], params, digits(0))
    card = dt.hub.ModelCard("digits-encoder", "64 numbers per 8×8 image.", data="half of scikit-learn's digits")
    dt.hub.save(dt.hub.module(encode, params["encoder"], digits(0)[0]), folder, card=card)


def transferred(folder: Path, draws: Draws, *, trainable: bool) -> list[Model]:
    """The ten lines: classifiers of something else on the published encoder, one for each draw of labelled images."""
    encoder = dt.hub.load(folder, trainable=trainable)

    def apply(params: Params, images: Any) -> Any:
        return encoder(params["encoder"], images) @ params["head"] + params["bias"]

    params = {"encoder": encoder.params, "head": jnp.zeros((64, 2)), "bias": jnp.zeros(2)}
    return [partial(apply, trained(apply, params, data)) for data in draws]


def from_scratch(draws: Draws, seeds: range) -> list[Model]:
    """The same models with encoders that have seen nothing."""

    def apply(params: Params, images: Any) -> Any:
        return encode(params["encoder"], images) @ params["head"] + params["bias"]

    dense = {"head": jnp.zeros((64, 2)), "bias": jnp.zeros(2)}
    return [
        partial(apply, trained(apply, {"encoder": encoder_params(seed + 1), **dense}, data))
        for seed, data in zip(seeds, draws, strict=True)
    ]


def accuracies(folder: Path, labels: int, seeds: range) -> Mapping[str, float]:
    """Mean accuracy on the rest of the other half, by way of training, over seeds that draw the labelled images."""
    images, truth = digits(1)
    truth = truth % 2
    orders = [np.random.default_rng(seed).permutation(len(truth)) for seed in seeds]
    known = [np.concatenate([order[truth[order] == odd][:labels] for odd in range(2)]) for order in orders]
    draws = [(images[few], truth[few]) for few in known]
    models = {
        "scratch": from_scratch(draws, seeds),
        "frozen": transferred(folder, draws, trainable=False),
        "trainable": transferred(folder, draws, trainable=True),
    }
    rests = [np.setdiff1d(order, few) for order, few in zip(orders, known, strict=True)]
    return {
        name: float(
            np.mean(
                [
                    (np.asarray(model(images[rest])).argmax(-1) == truth[rest]).mean()
                    for model, rest in zip(each, rests, strict=True)
                ]
            )
        )
        for name, each in models.items()
    }


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
    publish(folder)
    print("| labels of each | from scratch | encoder frozen | encoder trained further |\n|---|---|---|---|")
    for labels in LABELS:
        accuracy = accuracies(folder, labels, range(3))
        print(f"| {labels} | " + " | ".join(f"{value:.1%}" for value in accuracy.values()) + " |")


if __name__ == "__main__":
    main()
