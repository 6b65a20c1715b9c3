"""Large models, trained by `fit` and by a loop of jitted steps written by hand: the part "models" of `gpu.py`.

Their rows are random, of the shapes of real ones, and lie in memory: what is measured is training, not the reading of
files. FLOPs are those that the model needs, three times those of the forward pass, whatever is computed beyond them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
from drivetrain import engine
from drivetrain.engine import Model, TrainingRun, models, nnx_model
from drivetrain.engine.graphs.graph import FieldSpec
from flax import nnx

Columns = dict[str, np.ndarray]  # [rows, …]
LABEL = "label"
PEAKS = {"NVIDIA H100 80GB HBM3": 989.4e12, "NVIDIA H200": 989.4e12, "NVIDIA A100-SXM4-80GB": 312e12}
"""Multiplications and additions in bfloat16 per second, without sparsity, by NVIDIA's data sheets."""


@dataclass(frozen=True)
class Workload:
    """A model, and random rows that it can be trained on.

    Attributes:
        name: What it is called.
        unit: What a row is, in the plural.
        model: Its functions.
        rows: Columns of so many rows, the label among them.
        loss: From outputs and batch.
        flops: Of a training step, for one row.
        batch: Rows of a step.
        steps: Of an epoch, each with rows of its own.
        epochs: How often those rows are trained on.
        precision: Of `fit`, and of the loop by hand.
        optimizer: From optax.
    """

    name: str
    unit: str
    model: Model
    rows: Callable[[int, np.random.Generator], Columns]
    loss: Callable[[Any, Mapping[str, Any]], Any]
    flops: float
    batch: int
    steps: int = 8
    epochs: int = 5
    precision: str = "bfloat16"
    optimizer: optax.GradientTransformation = field(default_factory=lambda: optax.adam(1e-4))

    def columns(self) -> Columns:
        """An epoch."""
        return self.rows(self.batch * self.steps, np.random.default_rng(0))


def forward_flops(model: Model, columns: Columns) -> float:
    """What XLA counts for one row in a forward pass."""
    features = {name: jnp.zeros((1, *each.shape[1:]), each.dtype) for name, each in columns.items() if name != LABEL}
    cost: Any = jax.jit(model.apply).lower(jax.eval_shape(model.init, jax.random.key(0)), features).cost_analysis()
    return float(cost["flops"])


def module(build: Callable[[nnx.Rngs], Any], call: Callable[[Any, Mapping[str, Any]], Any]) -> Model:
    """An architecture as a model: how it is built, and how it is called with features."""

    class Called(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.network = build(rngs)

        def __call__(self, features: Mapping[str, Any]) -> Any:
            return call(self.network, features)

    return nnx_model(Called)


def class_loss(logits: Any, batch: Mapping[str, Any]) -> Any:
    """Of a class, or of several in a row of logits [batch, several, classes]."""
    return optax.softmax_cross_entropy_with_integer_labels(logits, batch[LABEL]).mean()


# -- the workloads


def resnet(*, tiny: bool) -> Workload:
    """ResNet-50 on images of 224 × 224, SGD with momentum (He et al. 2015; Goyal et al. 2017)."""
    depths, edge, classes = ((1, 1), 16, 10) if tiny else ((3, 4, 6, 3), 224, 1000)
    model = module(
        lambda rngs: models.ResNet(depths, classes, width=8 if tiny else 64, rngs=rngs),
        lambda network, features: network((features["image"].astype(jnp.float32) - 118.0) / 58.0),
    )

    def rows(count: int, random: np.random.Generator) -> Columns:
        image = random.integers(0, 256, (count, edge, edge, 3), np.uint8)
        return {"image": image, LABEL: random.integers(0, classes, count, np.int32)}

    flops = 3 * forward_flops(model, rows(1, np.random.default_rng(0)))
    optimizer = optax.sgd(0.1, 0.9, nesterov=True)
    return Workload("ResNet-50", "images", model, rows, class_loss, flops, 8 if tiny else 256, optimizer=optimizer)


def bert(length: int, predicted: int, batch: int, *, tiny: bool) -> Workload:
    """BERT-Large learns masked tokens (Devlin et al. 2018)."""
    size = replace(models.BERT_LARGE, kernel="cudnn" if jax.default_backend() == "gpu" else None)
    name = f"BERT-Large, {length} tokens"
    if tiny:
        length, predicted, batch = length // 16, predicted // 16, 4
        size = models.TransformerSize(100, length=length, width=16, layers=1, heads=2)
    model = module(
        lambda rngs: models.MaskedLanguageModel(size, rngs=rngs),
        lambda network, features: network(features["tokens"], masked=features["masked"]),
    )

    def rows(count: int, random: np.random.Generator) -> Columns:
        return {
            "tokens": random.integers(0, size.vocabulary, (count, length), np.int32),
            "masked": np.sort(random.random((count, length)).argsort(1)[:, :predicted].astype(np.int32)),
            LABEL: random.integers(0, size.vocabulary, (count, predicted), np.int32),
        }

    flops = models.training_flops(size, length, predicted=predicted)
    return Workload(name, "sequences", model, rows, class_loss, flops, batch)


def decoder(*, tiny: bool) -> Workload:
    """A decoder of the size of GPT-2's smallest learns the next tokens."""
    length = 16 if tiny else 1024
    if tiny:
        size = models.TransformerSize(100, length=length, width=16, layers=1, heads=2)
    else:
        kernel: Literal["cudnn"] | None = "cudnn" if jax.default_backend() == "gpu" else None
        size = models.TransformerSize(50_304, length=length, width=768, layers=12, heads=12, kernel=kernel)
    model = module(lambda rngs: models.Decoder(size, rngs=rngs), lambda network, features: network(features["tokens"]))

    def rows(count: int, random: np.random.Generator) -> Columns:
        tokens = random.integers(0, size.vocabulary, (count, length + 1), np.int32)
        return {"tokens": tokens[:, :-1].copy(), LABEL: tokens[:, 1:].copy()}

    flops = models.training_flops(size, length)
    return Workload("decoder of 124M", "sequences", model, rows, class_loss, flops, 4 if tiny else 16)


def dlrm(*, tiny: bool) -> Workload:
    """DLRM with Criteo's columns, 13 numbers and 26 categories (Naumov et al. 2019); every row of a table moves."""
    ids, width = (50, 4) if tiny else (100_000, 64)
    categories = {f"category {number}": ids for number in range(3 if tiny else 26)}
    numbers = [f"number {number}" for number in range(13)]
    bottom, top = ((8,), (8,)) if tiny else ((512, 256), (1024, 1024, 512, 256))
    model = module(
        lambda rngs: models.DLRM(categories, numbers, width=width, bottom=bottom, top=top, rngs=rngs),
        lambda network, features: network(features),
    )

    def rows(count: int, random: np.random.Generator) -> Columns:
        columns = {name: random.normal(size=count).astype(np.float32) for name in numbers}
        columns |= {name: (random.zipf(1.2, count) % ids).astype(np.int32) for name in categories}
        return {**columns, LABEL: random.integers(0, 2, count).astype(np.float32)}

    def loss(logits: Any, batch: Mapping[str, Any]) -> Any:
        return optax.sigmoid_binary_cross_entropy(logits, batch[LABEL]).mean()

    flops = 3 * forward_flops(model, rows(1, np.random.default_rng(0)))
    batch = 64 if tiny else 8192
    return Workload("DLRM", "rows", model, rows, loss, flops, batch, precision="float32", optimizer=optax.sgd(0.1))


WORKLOADS: Mapping[str, Callable[..., Workload]] = {
    "ResNet-50": resnet,
    "BERT-Large, 128": partial(bert, 128, 20, 256),
    "BERT-Large, 512": partial(bert, 512, 80, 64),
    "DLRM": dlrm,
    "decoder": decoder,
}
"""By name: functions of `tiny`, whether the model is one that shows that it runs and nothing else."""


# -- how fast each is


def figures(workload: Workload) -> dict[str, float]:
    """Rows a second of `fit`, of the loop by hand and of its step on a batch that stays on the device; TFLOP/s, MFU."""
    columns = workload.columns()
    rates = {"fit": fit_rate(workload, columns), **loop_rates(workload, columns)}
    kind = "bf16" if workload.precision == "bfloat16" else "f32"
    title = f"{workload.name}, {kind}"
    table = {f"{title}: {what}, {workload.unit}/s": rate for what, rate in rates.items()}
    table[f"{title}: fit / hand-written loop"] = rates["fit"] / rates["hand-written loop"]
    table[f"{title}: fit, TFLOP/s"] = rates["fit"] * workload.flops / 1e12
    peak = PEAKS.get(jax.devices()[0].device_kind)
    if peak is not None and kind == "bf16":
        table[f"{title}: fit, MFU"] = rates["fit"] * workload.flops / peak
    return table


def fit_rate(workload: Workload, columns: Columns) -> float:
    """Of `TrainingRun.fit`, after its first dispatch."""
    specs = {name: FieldSpec(str(each.dtype), each.shape[1:]) for name, each in columns.items()}
    reports: list[tuple[float, int]] = []
    run = TrainingRun(
        specs,
        Path("none"),  # no examples: all rows are in memory
        epochs=workload.epochs,
        batch_size=workload.batch,
        eval_split=None,
        depth=2,  # batches of images are large
        progress=lambda done, total, unit: reports.append((time.perf_counter(), done)),
    )
    run.fit(
        workload.model,
        loss=workload.loss,
        predict=lambda outputs: {"outputs": outputs},
        optimizer=workload.optimizer,
        label=LABEL,
        data=engine.input.from_arrays(columns).batch(workload.batch),
        precision=workload.precision,  # type: ignore[arg-type]  # a str
    )
    reports = [report for report in reports if report[1]]
    (begin, first), (end, last) = reports[0], reports[-1]
    return (last - first) / (end - begin)


def loop_rates(workload: Workload, columns: Columns) -> dict[str, float]:
    """Of a loop as a person would write it for this model."""
    model, optimizer = workload.model, workload.optimizer
    compute = jnp.dtype(workload.precision)

    def cast(tree: Any, dtype: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf, tree)

    @jax.jit
    def init(key: jax.Array) -> Any:
        params, state = model.parts(model.init(key))
        return params, state, optimizer.init(params)

    @partial(jax.jit, donate_argnums=0)
    def step(carry: Any, batch: Any, number: Any) -> Any:
        params, state, memory = carry
        key = jax.random.fold_in(jax.random.key(1), number)

        def objective(params: Any) -> Any:
            features = cast({name: each for name, each in batch.items() if name != LABEL}, compute)
            outputs, after = model.step(cast(params, compute), state, features, key)
            return workload.loss(cast(outputs, jnp.float32), batch), after

        (value, after), gradients = jax.value_and_grad(objective, has_aux=True)(params)
        updates, memory = optimizer.update(gradients, memory, params)
        return (optax.apply_updates(params, updates), cast(after, jnp.float32), memory), value

    def batch_at(number: int) -> Columns:
        begin = number % workload.steps * workload.batch
        return {name: each[begin : begin + workload.batch] for name, each in columns.items()}

    count = workload.epochs * workload.steps
    carry, value = step(init(jax.random.key(0)), batch_at(0), 0)
    value.block_until_ready()
    rates: dict[str, float] = {}
    on_device = jax.device_put(batch_at(0))
    batches: dict[str, Callable[[int], Any]] = {
        "hand-written loop": lambda number: jax.device_put(batch_at(number)),
        "batch on the device": lambda number: on_device,
    }
    for what, batch_of in batches.items():
        begin = time.perf_counter()
        for number in range(count):
            carry, value = step(carry, batch_of(number), number)
        if not np.isfinite(float(value)):
            raise RuntimeError(f"{workload.name}: the loss of the loop by hand is {float(value)}")
        rates[what] = count * workload.batch / (time.perf_counter() - begin)
    return rates
