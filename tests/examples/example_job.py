"""What the tests of the examples share: a whole run, its rows before and after Transform, its model alone."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from drivetrain.tests.examples import flights_job as job

NODES = ("StatisticsGen", "ImportSchema", "ExampleValidator", "Transform", "Trainer", "Evaluator", "Pusher")

ALONE = """
import sys, json
import numpy as np, pyarrow.parquet as pq
from drivetrain.engine import Bundle
bundle, rows = Bundle.load(sys.argv[1]), pq.read_table(sys.argv[2])
batch = bundle.run("predict", rows.combine_chunks().to_batches()[0])["probability"]
one = [bundle.run_row("predict", row)["probability"] for row in rows.slice(0, 100).to_pylist()]
assert not {name.partition(".")[0] for name in sys.modules} & {"trips", "aircraft", "messages"}
print(json.dumps([np.asarray(batch, float).tolist(), [float(np.asarray(x).reshape(())) for x in one]]))
"""


@dataclass(frozen=True)
class Example:
    """A finished run of an example's pipeline; `source` is the node that made its raw examples."""

    root: Path
    done: job.Done
    source: str

    def rows(self, split: str, *, transformed: bool = False) -> pa.Table:
        """The rows of a split, in stored order."""
        content = self.done.path(self.root, "Transform" if transformed else self.source, "examples") / "content"
        return pa.concat_tables(
            [pq.read_table(path) for path in sorted((content / f"split={split}").glob("*.parquet"))]
        )

    def frames(self, split: str) -> tuple[pd.DataFrame, pa.Table]:
        """Raw rows as a frame, and the transformed ones beside them: Transform keeps the order."""
        raw, made = self.rows(split), self.rows(split, transformed=True)
        assert raw.num_rows == made.num_rows > 0
        return raw.to_pandas(), made

    def metric(self, name: str, part: str = "overall") -> float:
        metrics = pq.read_table(self.done.path(self.root, "Evaluator", "evaluation") / "content" / "metrics.parquet")
        (value,) = [row["value"] for row in metrics.to_pylist() if row["metric"] == name and row["slice"] == part]
        return float(value)

    def pushed(self) -> Path:
        receipt = self.done.path(self.root, "Pusher", "pushed_model") / "content" / "receipt.json"
        told = json.loads(receipt.read_text())
        return Path(self.root.parent / told["destination"] / str(told["version"]))


def run(name: str, root: Path, source: str = "ExampleGen") -> Example:
    """The example's pipeline by the real command, everything up to the push."""
    done = job.run(root, project=job.REPOSITORY / "examples" / name, timeout=600)
    assert done.code == 0, (done.result, done.err)
    assert done.states == dict.fromkeys([source, *NODES], "COMPLETE")
    return Example(root, done, source)


def matrix(table: pa.Table, name: str) -> np.ndarray:
    """A transformed column as an array, [rows] or [rows, width]."""
    column = table[name].combine_chunks()
    if pa.types.is_list(column.type) or pa.types.is_fixed_size_list(column.type):
        return np.asarray(column.flatten()).reshape(len(column), -1)
    return np.asarray(column)


def predicted_alone(example: Example, unknown: list[str], folder: Path) -> np.ndarray:
    """The pushed model's probabilities for raw rows without the columns `unknown`, in a process without the project.

    Row by row is compared with the batch, and the batch with what the Trainer's bundle gives here.
    """
    from drivetrain.engine import Bundle

    rows = example.rows("eval").slice(0, 1000).combine_chunks()
    pq.write_table(rows.drop(unknown), folder / "rows.parquet")
    command = [sys.executable, "-c", ALONE, str(example.pushed()), str(folder / "rows.parquet")]
    out = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder, timeout=240)
    batch, one = (np.asarray(part) for part in json.loads(out.stdout))
    np.testing.assert_allclose(one, batch[: len(one)], atol=1e-5)
    here = Bundle.load(example.done.path(example.root, "Trainer", "model") / "content")
    np.testing.assert_allclose(batch, here.run("evaluate", rows.to_batches()[0])["probability"], atol=1e-5)
    return batch


def words_by_count(texts: pd.Series, top_k: int | None = None, least: int = 1) -> list[str]:
    """A vocabulary as TFT orders it: by count, ties in reverse code point order."""
    counts = texts.dropna().value_counts()
    kept = [(count, word) for word, count in counts.items() if count >= least]
    return [word for _, word in sorted(kept, reverse=True)][:top_k]
