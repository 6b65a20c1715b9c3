"""What training costs beside a plain JAX loop: `python benchmarks/training.py [--repeat 3] [--epochs 6] [--rows N]`.

The flights example's model on all 336,776 transformed flights, batches of 512, Adam. The loop is what a
person would write without us: the columns in memory as NumPy arrays, a permutation for each epoch, one jitted step with
the state given away, the same network, loss and optimizer. Both run in turn, in one process.

Steady state: wall seconds of the epochs after the first. Fixed cost: of `TrainingRun.fit` beyond as many steady epochs
as it ran: looking at the model, initial state, compiling. "Compiled before": as in Trainer, which keeps executables,
from the second time on. Waiting for input: by what `fit` itself says of its time. Input alone: the same batches, and
those of a pipeline of steps, read without training, beside the rate at which `fit` trains.

Sparse tables: a DLRM of two tables, one of a million rows of 32 floats, trained by `fit` with a lazy Adam of the rows
that each batch names, and with the Adam of whole tables, in turn. `--rows 100_000_000` trains, alone, a table of so
many rows of 8 floats by row-wise Adagrad, and compares what `fit` plans to take with what the process takes at most.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import optax
import pyarrow as pa
from drivetrain import data
from drivetrain.benchmarks.common import Bars, flights, report, write
from drivetrain.engine import (
    Bundle,
    Callback,
    EpochRecord,
    FieldSpec,
    SparseTables,
    TrainingProgress,
    TrainingRun,
    analyze,
    apply,
    keep_compiled,
    nnx_model,
    rowwise_adagrad,
)
from drivetrain.engine.models import DLRM, table_ids
from drivetrain.examples.flights import model as example
from drivetrain.examples.flights.features import preprocess

if TYPE_CHECKING:
    from drivetrain.engine import Model

BATCH = 512
BARS: Bars = {
    "fit / raw JAX loop, steady examples/s": (0.95, False),
    "fit: fixed cost: wall s": (0.8, True),
    "fit of ten epochs / raw JAX loop, examples/s": (0.9, False),
    "fit: fixed cost, compiled before: wall s": (0.8, True),
    "fit of ten epochs, compiled before / raw JAX loop, examples/s": (0.9, False),
    "fit: share of its time waiting for input": (0.03, True),
    "input alone / fit, steady examples per CPU s": (10, False),
    "cache > shuffle > batch alone / fit, steady examples per CPU s": (10, False),
    "sparse tables / dense Adam, a million rows of 32, steps per CPU s": (20, False),
}
LARGE: Bars = {"large table: most memory taken / planned": (1.25, True)}
ITEMS, STEPS = 1000, 16  # rows of the other table; steps of an epoch


@dataclass
class Clock(Callback):
    """When each epoch ended, on the clock and in CPU seconds."""

    ends: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def on_epoch_end(self, progress: TrainingProgress, record: EpochRecord) -> None:
        """Look at the clock."""
        self.ends.append(time.perf_counter())
        self.cpu.append(time.process_time())


class Captured(Exception):  # noqa: N818 - not an error: how a function is asked what it would fit
    """The arguments of a call to `fit`."""


def example_model(run: TrainingRun) -> tuple[Model, Mapping[str, Any]]:
    """What the example's `train` gives to `fit`."""

    class Capturing(TrainingRun):
        def fit(self, model: Model, **options: Any) -> Any:
            raise Captured(model, options)

    try:
        example.train(Capturing(**{name: getattr(run, name) for name in run.__dataclass_fields__}))
    except Captured as captured:
        model, options = captured.args
    return model, options


def transformed(folder: Path) -> TrainingRun:
    """All flights as the example's Transform gives them."""
    source = data.open_files([write(flights(), folder / "flights.parquet")])
    local = data.executor("local")
    rows = folder / "rows"
    local.map(source, None, data.sinks(rows, ["train"])).write(rows)
    train = data.open_examples(rows, "train")
    analyze(preprocess, train, local).save(folder / "graph")
    apply(folder / "graph", {"train": train}, folder / "examples", local)
    features = Bundle.load(folder / "graph").signatures["transform"].outputs
    return TrainingRun(features, folder / "examples", batch_size=BATCH, eval_split=None)


def fitted(run: TrainingRun, model: Model, options: Mapping[str, Any]) -> tuple[float, float, float, float]:
    """Seconds of a steady epoch, seconds in all, the share that waited for input, CPU seconds of a steady epoch."""
    clock, begin = Clock(), time.perf_counter()
    trained = run.fit(model, **options, callbacks=[clock])
    whole = time.perf_counter() - begin
    steady = statistics.median(np.diff(clock.ends).tolist())
    waiting = trained.seconds["input"] / (whole - trained.seconds["start"])
    return steady, whole, waiting, statistics.median(np.diff(clock.cpu).tolist())


def by_hand(run: TrainingRun, columns: Mapping[str, Any], model: Model, options: Mapping[str, Any]) -> float:
    """Seconds of a steady epoch of the plain loop."""
    optimizer, label = options["optimizer"], options["label"]

    @jax.jit
    def init(key: Any) -> Any:
        params = model.init(key)
        return params, optimizer.init(params)

    def step(state: Any, batch: Any) -> Any:
        params, memory = state

        def objective(params: Any) -> Any:
            features = {name: value for name, value in batch.items() if name != label}
            return options["loss"](model.apply(params, features), batch)

        loss, gradients = jax.value_and_grad(objective)(params)
        updates, memory = optimizer.update(gradients, memory, params)
        return (optax.apply_updates(params, updates), memory), loss

    compiled = jax.jit(step, donate_argnums=0)
    state, ends = init(run.key()), []
    rows = len(columns[label])
    for epoch in range(run.epochs):
        order = np.random.default_rng(epoch).permutation(rows)
        losses = []
        for begin in range(0, rows - BATCH + 1, BATCH):
            chosen = order[begin : begin + BATCH]
            state, loss = compiled(state, {name: column[chosen] for name, column in columns.items()})
            losses.append(loss)
        np.mean([float(loss) for loss in losses])
        ends.append(time.perf_counter())
    return statistics.median(np.diff(ends).tolist())


def read(batches: Iterable[Any]) -> float:
    """CPU seconds of batches that are only counted."""
    begin = time.process_time()
    for _ in batches:
        pass
    return time.process_time() - begin


def table_run(folder: Path, rows: int) -> TrainingRun:
    """Random ids of users and items, with a label."""
    random, examples = np.random.default_rng(0), STEPS * BATCH
    columns = {
        "user": random.integers(0, rows, examples).astype(np.int32),
        "item": random.integers(0, ITEMS, examples).astype(np.int32),
        "label": (random.random(examples) < 0.5).astype(np.float32),
    }
    source = data.open_files([write(pa.table(columns), folder / "ids.parquet")])
    data.executor("local").map(source, None, data.sinks(folder / "ids", ["train"])).write(folder / "ids")
    specs = {"user": FieldSpec("int32", (), rows), "item": FieldSpec("int32", (), ITEMS), "label": FieldSpec("float32")}
    return TrainingRun(specs, folder / "ids", batch_size=BATCH, eval_split=None)


def table_model(rows: int, width: int) -> tuple[Model, dict[str, Any], dict[str, str]]:
    """A DLRM, what `fit` is given with it, and the ids of its tables."""
    sizes = {"user": rows, "item": ITEMS}
    options = {
        "loss": lambda logits, batch: optax.sigmoid_binary_cross_entropy(logits, batch["label"]).mean(),
        "predict": lambda logits: {"probability": jax.nn.sigmoid(logits)},
        "optimizer": optax.adam(1e-3),
        "label": "label",
    }
    return nnx_model(lambda rngs: DLRM(sizes, width=width, rngs=rngs)), options, table_ids(sizes)


def sparse_tables(folder: Path, repeat: int) -> dict[str, float]:
    """Steps of a million rows, sparse and dense in turn."""
    run = table_run(folder, 1_000_000)
    model, options, ids = table_model(1_000_000, 32)
    sparse, dense = [], []
    for _ in range(repeat):
        tables = SparseTables(ids, optax.adam(1e-3))
        sparse.append(fitted(replace(run, epochs=40), model, {**options, "tables": tables})[3])
        dense.append(fitted(replace(run, epochs=3), model, options)[3])
    rates = {name: STEPS / statistics.median(cpu) for name, cpu in (("sparse", sparse), ("dense", dense))}
    return {
        "sparse tables, a million rows of 32: steps per CPU s": rates["sparse"],
        "dense Adam, a million rows of 32: steps per CPU s": rates["dense"],
        "sparse tables / dense Adam, a million rows of 32, steps per CPU s": rates["sparse"] / rates["dense"],
    }


def large_table(folder: Path, rows: int) -> dict[str, float]:
    """What a table takes, by plan and at most in this process, and its steps."""
    run = replace(table_run(folder, rows), epochs=40)
    model, options, ids = table_model(rows, 8)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    clock = Clock()
    trained = run.fit(model, **options, tables=SparseTables(ids, rowwise_adagrad(1e-2)), callbacks=[clock])
    taken = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / 1e9
    planned = sum(trained.memory.values()) / 1e9
    return {
        f"a table of {rows} rows of 8: planned GB": planned,
        f"a table of {rows} rows of 8: peak GB": taken,
        "large table: most memory taken / planned": taken / planned,
        f"a table of {rows} rows of 8: steps per CPU s": STEPS / statistics.median(np.diff(clock.cpu).tolist()),
    }


def main() -> None:
    """Print the figures, each with its bar."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--rows", type=int, help="train a table of so many rows, and nothing else")
    options = parser.parse_args()
    if options.rows:
        with tempfile.TemporaryDirectory() as folder:
            report("training", large_table(Path(folder), options.rows), LARGE)
        return
    with tempfile.TemporaryDirectory() as folder:
        run = replace(transformed(Path(folder)), epochs=options.epochs)
        model, how = example_model(run)
        whole_split = replace(run, batch_size=run.train_data.rows)
        columns = next(whole_split.batches())
        fits, loops, kept, loader, steps = [], [], [], [], []
        examples = run.steps_per_epoch * BATCH
        pipeline = run.dataset().cache().shuffle(0).batch(BATCH)
        read(pipeline)
        for repeat in range(options.repeat):
            fits.append(fitted(run, model, how))
            loops.append(by_hand(run, columns, model, how))
            loader.append(read(run.train_data.epoch(repeat + 1)))
            steps.append(read(pipeline))
        keep_compiled(Path(folder) / "compiled")
        fitted(run, model, how)
        for _ in range(options.repeat):
            kept.append(fitted(run, model, how))
        by_tables = sparse_tables(Path(folder), options.repeat)
    steady, whole, waiting, cpu = (statistics.median(values) for values in zip(*fits, strict=True))
    loop = statistics.median(loops)
    fixed = whole - options.epochs * steady
    fixed_kept = statistics.median(whole - options.epochs * steady for steady, whole, _, _ in kept)
    figures = {
        "fit, steady: M examples/s": examples / steady / 1e6,
        "raw JAX loop: M examples/s": examples / loop / 1e6,
        "fit / raw JAX loop, steady examples/s": loop / steady,
        "fit: fixed cost: wall s": fixed,
        "fit of ten epochs / raw JAX loop, examples/s": 10 * loop / (fixed + 10 * steady),
        "fit: fixed cost, compiled before: wall s": fixed_kept,
        "fit of ten epochs, compiled before / raw JAX loop, examples/s": 10 * loop / (fixed_kept + 10 * steady),
        "fit: share of its time waiting for input": waiting,
        "input alone / fit, steady examples per CPU s": cpu / statistics.median(loader),
        "cache > shuffle > batch alone / fit, steady examples per CPU s": cpu / statistics.median(steps),
        **by_tables,
    }
    report("training", figures, BARS)


if __name__ == "__main__":
    main()
