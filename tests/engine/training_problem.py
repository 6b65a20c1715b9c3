"""Transformed examples like those of the flights, and a training on them; also run as a script by crash tests."""

from __future__ import annotations

import hashlib
import json
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from drivetrain.data import Manifest, Part
from drivetrain.digest import digest_file
from drivetrain.engine.graphs.graph import FieldSpec
from drivetrain.errors import Canceled

if TYPE_CHECKING:
    from drivetrain.metadata import Examples, TransformGraph

NUMBERS = ("dep_delay", "distance")
IDS = {"carrier": 18, "origin": 5}
SPECS = {
    **{name: FieldSpec("float32") for name in NUMBERS},
    **{name: FieldSpec("int32", (), size) for name, size in IDS.items()},
    "late": FieldSpec("float32"),
}


def columns(rows: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Random features and a label that depends on them."""
    random = np.random.default_rng(seed)
    made: dict[str, np.ndarray] = {name: random.normal(size=rows).astype(np.float32) for name in NUMBERS}
    for name, size in IDS.items():
        made[name] = random.integers(0, size, rows).astype(np.int32)
    logits = 2 * made["dep_delay"] - 0.5 * made["distance"] + 0.1 * made["carrier"] - 1
    made["late"] = (random.random(rows) < 1 / (1 + np.exp(-logits))).astype(np.float32)
    return made


def write(content: Path, splits: Mapping[str, pa.Table], *, parts: int = 2, group: int = 65_536) -> Path:
    """Tables as an Examples content folder."""
    written = []
    for split, table in splits.items():
        folder = content / f"split={split}"
        folder.mkdir(parents=True)
        files = []
        for number in range(parts):
            begin, end = (table.num_rows * k // parts for k in (number, number + 1))
            path = folder / f"part-{number:05d}.parquet"
            pq.write_table(table.slice(begin, end - begin), path, row_group_size=group, compression="zstd")
            relative = path.relative_to(content).as_posix()
            files.append(Part(relative, end - begin, path.stat().st_size, digest_file(path)))
        written.append((split, tuple(files)))
    schema = next(iter(splits.values())).schema
    Manifest(tuple(written), tuple((field.name, str(field.type)) for field in schema)).write(content)
    return content


def transformed(content: Path, preprocess: Callable[..., Any]) -> tuple[Examples, TransformGraph]:
    """The examples in a content folder transformed, and the graph, as Transform makes them."""
    from drivetrain import data, engine
    from drivetrain.metadata import Examples, TransformGraph

    local = data.executor("local")
    sources = {split: data.open_examples(content, split) for split in data.splits(content)}
    graph, examples = TransformGraph.new(), Examples.new()
    engine.analyze(preprocess, sources["train"], local).save(graph.content)
    engine.apply(graph.content, sources, examples.content, local)
    return examples, graph


def examples(content: Path, train: int = 4_000, evaluation: int = 1_000, **options: int) -> Path:
    """The problem's content folder with a train and an eval split."""
    splits = {"train": pa.table(columns(train, 0)), "eval": pa.table(columns(evaluation, 1))}
    return write(content, splits, **options)


def build(rngs: Any) -> Any:
    """A small wide-and-deep network in Flax NNX."""
    import jax.numpy as jnp
    from flax import nnx

    class WideAndDeep(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.wide = nnx.Dict({name: nnx.Embed(size, 1, rngs=rngs) for name, size in IDS.items()})
            self.hidden = nnx.Linear(len(NUMBERS), 16, rngs=rngs)
            self.out = nnx.Linear(16, 1, rngs=rngs)

        def __call__(self, features: Mapping[str, Any]) -> Any:
            assert "late" not in features
            numbers = jnp.stack([features[name] for name in NUMBERS], axis=-1)
            deep = self.out(nnx.relu(self.hidden(numbers)))
            return (deep + sum(self.wide[name](features[name]) for name in IDS))[:, 0]

    return WideAndDeep(rngs)


def fit(run: Any, *, loss: Callable[..., Any] | None = None, model: Any = None) -> Any:
    """Train the network on a run."""
    import jax
    import optax
    from drivetrain.engine.training.model import nnx_model

    return run.fit(
        model or nnx_model(build),
        loss=loss or (lambda logits, batch: optax.sigmoid_binary_cross_entropy(logits, batch["late"]).mean()),
        predict=lambda logits: {"probability": jax.nn.sigmoid(logits)},
        optimizer=optax.adam(1e-2),
        label="late",
    )


def fit_everything(run: Any, **options: Any) -> Any:
    """Train with all that is remembered: batch statistics, dropout, averages, a schedule, the best, callbacks."""
    import jax
    import jax.numpy as jnp
    import optax
    from drivetrain.engine import EarlyStopping
    from drivetrain.engine.training.model import nnx_model
    from flax import nnx

    class Normalised(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.hidden = nnx.Linear(len(NUMBERS), 16, rngs=rngs)
            self.norm = nnx.BatchNorm(16, rngs=rngs)
            self.dropout = nnx.Dropout(0.2, rngs=rngs)
            self.out = nnx.Linear(16, 1, rngs=rngs)

        def __call__(self, features: Mapping[str, Any]) -> Any:
            numbers = jnp.stack([features[name] for name in NUMBERS], axis=-1)
            return self.out(self.dropout(nnx.relu(self.norm(self.hidden(numbers)))))[:, 0]

    options = {"precision": "float16", "skip_nonfinite": True} | options
    return run.fit(
        nnx_model(Normalised),
        loss=lambda logits, batch: optax.sigmoid_binary_cross_entropy(logits, batch["late"]).mean(),
        predict=lambda logits: {"probability": jax.nn.sigmoid(logits)},
        optimizer=optax.chain(
            optax.clip_by_global_norm(1.0),
            optax.adamw(optax.cosine_decay_schedule(1e-2, run.epochs * run.steps_per_epoch)),
        ),
        label="late",
        metrics={"accuracy": lambda logits, batch: ((logits > 0) == (batch["late"] > 0.5)).mean()},
        callbacks=[EarlyStopping(patience=run.epochs)],
        keep_best="eval_loss",
        ema=0.99,
        **options,
    )


def fit_with_rollbacks(run: Any) -> Any:
    """The same, but that nothing is left out: a batch that breaks is one rollback."""
    from drivetrain.engine import Rollback

    rollback = Rollback(times=run.epochs, every=100)
    return fit_everything(run, precision="float32", skip_nonfinite=False, rollback=rollback)


def digest(params: Any) -> str:
    """One name for the bits of all parameters."""
    import jax

    body = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0]:
        body.update(jax.tree_util.keystr(path).encode() + np.asarray(leaf).tobytes())
    return body.hexdigest()


def cancel(number: int, frame: object) -> None:
    raise Canceled("SIGTERM")


def main(options: dict[str, Any]) -> None:
    """Train as the options say; print a line of JSON per progress report and one with the result.

    After `hold` examples it goes on slowly, until it is killed. SIGTERM cancels it, as it does a run.
    """
    from drivetrain.engine.training.strategy import strategy
    from drivetrain.engine.training.training import TrainingRun

    for name in ("examples", "work_dir"):
        if options.get(name):
            options[name] = Path(options[name])
    if "strategy" in options:
        options["strategy"] = strategy(options["strategy"])
    hold, first = options.pop("hold", float("inf")), -1
    train = {"": fit, "everything": fit_everything, "rollbacks": fit_with_rollbacks}[options.pop("how", "")]
    signal.signal(signal.SIGTERM, cancel)

    def tell(done: int, total: int | None, unit: str) -> None:
        nonlocal first
        first = done if first < 0 else first
        print(json.dumps({"done": done, "total": total}), flush=True)
        if done >= first + hold:
            time.sleep(0.05)

    run = TrainingRun(features=SPECS, progress=tell, **options)
    trained = train(run)
    found = {"digest": digest(trained.params), "first_step": trained.first_step, "examples": trained.examples}
    found["rollbacks"] = [[rollback.step, rollback.restored_step] for rollback in trained.rollbacks]
    print(json.dumps({**found, "losses": [[e.loss, e.eval_loss] for e in trained.history]}), flush=True)


def command() -> None:
    """Train as the JSON in the first argument says."""
    main(json.loads(sys.argv[1]))


if __name__ == "__main__":
    command()
