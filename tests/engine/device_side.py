"""What one device makes of graphs, in a process of its own; `test_on_gpu` compares two of them.

Each stage runs on JAX's default device, however small it is: placement would leave most of them to the processor.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from drivetrain import data
from drivetrain.engine import Bundle, analyze, export_model
from drivetrain.engine.lowering import programs
from drivetrain.engine.lowering.calling import callable_of
from drivetrain.engine.passes import EXPORTED, optimize, outline, write_scans
from drivetrain.tests.engine.test_train_serve_equality import model, preprocess
from drivetrain.tests.engine.zoo import zoo

ROWS = 50  # of those that are asked one by one


def make(folder: Path) -> None:
    """Learn from `train.parquet` beside the folder, and write the bundles `graph` and `model` into it."""
    learnt = analyze(preprocess, data.open_parquet([folder.parent / "train.parquet"]), data.executor("local"))
    learnt.save(folder / "graph")
    random = np.random.default_rng(3)
    sizes = learnt.signatures["transform"].outputs
    params = {
        "w": random.normal(size=(6 + 16 + 2, 8)).astype(np.float32),
        "table": random.normal(size=(sizes["ids"].size or 0, 8)).astype(np.float32),
        "words": random.normal(size=sizes["word_id"].size).astype(np.float32),
    }
    predict: Any = lambda logits: {"p": jax.nn.sigmoid(logits)}  # noqa: E731
    export_model(folder / "graph", model, params, predict, label="late", out=folder / "model")


def run(folder: Path, out: Path) -> None:
    """Write what the bundles of a folder give for `raw.parquet`, in batches and row by row."""
    (rows,) = pq.read_table(folder.parent / "raw.parquet").combine_chunks().to_batches()
    for name, signature in (("graph", "transform"), ("model", "predict")):
        bundle = Bundle.load(folder / name)
        batch = bundle.run_arrow(signature, rows)
        single = [bundle.run_row(signature, row) for row in rows.slice(0, ROWS).to_pylist()]
        by_row = {
            field.name: pa.array(
                [value.ravel() if hasattr(value := row[field.name], "ravel") else value for row in single],
                field.type,
                from_pandas=False,
            )
            for field in batch.schema
        }
        pq.write_table(pa.Table.from_batches([batch]), out / f"{name}-batches.parquet")
        pq.write_table(pa.table(by_row), out / f"{name}-rows.parquet")


def run_zoo(out: Path) -> None:
    """Write what each graph of the zoo gives, optimised as a program is."""
    for animal in zoo():
        graph, _ = optimize(animal.graph(), (*EXPORTED, write_scans, outline))
        results = {name: np.asarray(array) for name, array in callable_of(graph)(animal.inputs).items()}
        np.savez(out / f"{animal.name}.npz", **results)  # type: ignore[arg-type]  # its stub means an option


def main(what: str, *folders: str) -> None:
    """Do one of these, and print the device and how many stages it ran."""
    stages: set[str] = set()

    def default_device(stage: Any, rows: int, devices: Any) -> None:
        stages.add(stage.program)

    doing: dict[str, Callable[..., None]] = {"make": make, "run": run, "zoo": run_zoo}
    with mock.patch.object(programs, "device_of", default_device):
        doing[what](*map(Path, folders))
    print(json.dumps({"platform": jax.local_devices()[0].platform, "stages": len(stages)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
