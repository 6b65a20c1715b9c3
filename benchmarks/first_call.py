"""The first call of a bundle with a 100 MB table in a new process: `python benchmarks/first_call.py`.

Printed beside the same with executables kept (`engine.keep_compiled`), and the seconds that importing JAX takes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROWS, WIDTH = 1_638_400, 16  # float32: 104.9 MB

_PROCESS = """
import json, sys, time
start = time.perf_counter()
import jax
jax.devices()
from drivetrain.engine import Bundle, keep_compiled
imported = time.perf_counter()
if sys.argv[2] == "kept":
    keep_compiled()
bundle = Bundle.load(sys.argv[1])
loaded = time.perf_counter()
bundle.run_row("predict", {"x": 0.5, "word": "a"})
row = time.perf_counter()
import pyarrow as pa
bundle.run("predict", pa.record_batch({"x": [0.5] * 512, "word": ["a"] * 512}))
batch = time.perf_counter()
print(json.dumps({"import": imported - start, "load": loaded - imported, "first row": row - loaded,
                  "first batch": batch - row}))
"""


def measure() -> dict[str, Any]:
    """Export a model whose table has 104.9 MB and call it in new processes.

    Returns:
        `blob`: bytes of the exported program; `weights`: bytes of the tables; and under `nothing kept`, `kept: first
        process` and `kept: next process` the seconds of `import` (JAX and its devices), `load` (with digests), `first
        row` (compiled for one row) and `first batch` (compiled for 512).
    """
    with tempfile.TemporaryDirectory() as folder:
        path = _export(Path(folder))
        environment = {**os.environ, "XDG_CACHE_HOME": str(Path(folder, "cache"))}
        environment.pop("JAX_COMPILATION_CACHE_DIR", None)

        def process(mode: str) -> dict[str, float]:
            command = [sys.executable, "-c", _PROCESS, str(path), mode]
            done = subprocess.run(command, env=environment, cwd=folder, stdout=subprocess.PIPE, check=True, text=True)
            seconds: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
            return seconds

        return {
            "blob": sum(file.stat().st_size for file in path.glob("device/*.stablehlo")),
            "weights": sum(file.stat().st_size for file in path.glob("weights/*")),
            "nothing kept": process("plain"),
            "kept: first process": process("kept"),
            "kept: next process": process("kept"),
        }


def _export(folder: Path) -> Path:
    import jax.numpy as jnp
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
    from drivetrain import data
    from drivetrain.engine import analyze, export_model, ops

    def preprocess(columns: ops.Columns) -> ops.Columns:
        return {
            "x": ops.fill_missing(columns["x"], 0.0),
            "word": ops.hash_buckets(columns["word"], ROWS - 1),
            "label": ops.fill_missing(columns["x"], 0.0),
        }

    def model(params: Any, features: Any) -> Any:
        hidden = jnp.tanh(params["table"][features["word"]] @ params["dense"] + features["x"][:, None])
        return hidden.sum(-1)

    pq.write_table(pa.table({"x": [0.0, 1.0], "word": ["a", "b"]}), folder / "rows.parquet")
    analyze(preprocess, data.open_parquet([folder / "rows.parquet"]), data.executor("local")).save(folder / "graph")
    params = {"table": np.zeros((ROWS, WIDTH), np.float32), "dense": np.ones((WIDTH, WIDTH), np.float32)}
    export_model(folder / "graph", model, params, lambda out: {"p": out}, label="label", out=folder / "model")
    return folder / "model"


if __name__ == "__main__":
    for name, value in measure().items():
        if isinstance(value, dict):
            value = ", ".join(f"{what} {seconds:.2f} s" for what, seconds in value.items())
        print(f"{name}: {value}")
