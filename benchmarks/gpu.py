"""What a GPU does for trainings, transforms and the server, beside the processor: `python benchmarks/gpu.py`.

Each part runs in a process of its own for each platform (`--platforms cpu gpu`), and prints as a table:

- steps a second of `TrainingRun.fit`, of a hand-written loop of jitted steps on the same batches, and of that step on
  one batch that stays on the device, for a dense network in float32 and bfloat16, and for a table of embeddings;
- rows a second of a transform of columns and of one with matrices, placed as usual, and with every stage on the GPU;
- requests a second, and their latency, of a server of a dense network, for requests of 1 and 64 rows;
- rows a second of ResNet-50, BERT-Large, DLRM and a decoder (`gpu_models.py`), trained by `fit` and by a hand-written
  loop; of full size on a GPU alone, which also writes this table to docs/benchmarks.md.

Nothing is added to the ledger: its machines have no GPU.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa

PLATFORMS = {"cpu": "cpu", "gpu": "cuda,cpu"}
PARTS = ("train", "transform", "serve", "models")
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
BEGIN, END = "<!-- measured: begin -->\n", "<!-- measured: end -->\n"
FEATURES = 64


@dataclass(frozen=True)
class Size:
    """How much is measured.

    Attributes:
        batch: Rows of a training step.
        steps: Of an epoch, by platform: a processor takes much longer for one.
        width: Of the hidden layers, three of them.
        ids: Rows of the table of embeddings.
        rows: Of the transforms, those with matrices on an eighth of them.
        hidden: Of the served network's two layers.
        seconds: Of each measurement of the server.
    """

    batch: int
    steps: Mapping[str, int]
    width: int
    ids: int
    rows: int
    hidden: int
    seconds: float


FULL = Size(8192, {"cpu": 3, "gpu": 64}, 2048, 100_000, 1 << 20, 4096, 2.0)
TINY = Size(128, {"cpu": 8, "gpu": 8}, 32, 100, 1 << 14, 64, 0.5)
EPOCHS = 3
COMPILE_FAST = {
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    "XLA_FLAGS": "--xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=0",
}
"""The environment of tiny models: what they take is the time to compile them."""


# -- trainings


def train(size: Size, where: str, folder: Path) -> dict[str, float]:
    """Steps a second of each network."""
    steps = size.steps[where]
    figures: dict[str, float] = {}
    kinds = {"dense, f32": (False, "float32"), "ids, f32": (True, "float32")}
    if where == "gpu":  # a processor has no such arithmetic
        kinds["dense, bf16"] = False, "bfloat16"
    for name, (embeds, dtype) in kinds.items():
        rates = _trained(size, steps, folder / name.replace(", ", "-"), embeds=embeds, dtype=dtype)
        figures |= {f"{name}: {what}, steps/s": rate for what, rate in rates.items()}
        figures[f"{name}: fit / hand-written loop"] = rates["fit"] / rates["hand-written loop"]
    per_row = 6 * (FEATURES * size.width + 2 * size.width**2 + size.width)  # a step is three times the forward pass
    for name in kinds.keys() - {"ids, f32"}:
        rate = figures[f"{name}: batch on the device, steps/s"]
        figures[f"{name}: batch on the device, TFLOP/s"] = rate * size.batch * per_row / 1e12
    return figures


def _trained(size: Size, steps: int, folder: Path, *, embeds: bool, dtype: str) -> dict[str, float]:
    import jax
    import jax.numpy as jnp
    import optax
    from drivetrain.engine import TrainingRun
    from drivetrain.engine.graphs.graph import FieldSpec
    from drivetrain.engine.training.model import Model
    from drivetrain.tests.engine.training_problem import write

    random = np.random.default_rng(0)
    count = size.batch * steps
    x = random.normal(size=(count, FEATURES)).astype(np.float32)
    columns: dict[str, Any] = {
        "x": pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), FEATURES),
        "y": x.mean(axis=1),
    }
    features = {"x": FieldSpec("float32", (FEATURES,)), "y": FieldSpec("float32")}
    if embeds:
        columns["id"] = (random.zipf(1.3, count) % size.ids).astype(np.int32)
        features["id"] = FieldSpec("int32", (), size.ids)
    content = write(folder, {"train": pa.table(columns)})
    wide = [FEATURES, FEATURES] if embeds else [FEATURES, size.width, size.width, size.width]

    def init(key: Any) -> Any:
        keys = jax.random.split(key, len(wide) + 1)
        layers = [
            jax.random.normal(k, (a, b)) / np.sqrt(a) for k, a, b in zip(keys, wide, [*wide[1:], 1], strict=False)
        ]
        return {"layers": layers, "table": jax.random.normal(keys[-1], (size.ids if embeds else 1, FEATURES)) / 10}

    def apply(params: Any, inputs: Any) -> Any:
        h = inputs["x"] + (params["table"][inputs["id"]] if embeds else 0.0)
        h = h.astype(dtype)
        for layer in params["layers"][:-1]:
            h = jax.nn.relu(h @ layer.astype(dtype))
        return (h @ params["layers"][-1].astype(dtype))[:, 0].astype(jnp.float32)

    def loss(outputs: Any, batch: Any) -> Any:
        return jnp.mean((outputs - batch["y"]) ** 2)

    optimizer = optax.adam(1e-3)
    reports: list[tuple[float, int]] = []
    run = TrainingRun(
        features,
        content,
        epochs=EPOCHS,
        batch_size=size.batch,
        eval_split=None,
        progress=lambda done, total, unit: reports.append((time.perf_counter(), done)),
    )
    run.fit(Model(init, apply), loss=loss, predict=lambda y: {"y": y}, optimizer=optimizer, label="y")
    reports = [report for report in reports if report[1]]  # the first dispatches compile
    (begin, first), (end, last) = reports[0], reports[-1]
    rates = {"fit": (last - first) / size.batch / (end - begin)}

    @partial(jax.jit, donate_argnums=0)
    def step(state: Any, batch: Any) -> Any:
        params, memory = state
        value, gradients = jax.value_and_grad(lambda p: loss(apply(p, batch), batch))(params)
        updates, memory = optimizer.update(gradients, memory, params)
        return (optax.apply_updates(params, updates), memory), value

    params = init(run.key())
    state, value = step((params, optimizer.init(params)), next(run.batches()))
    value.block_until_ready()
    begin = time.perf_counter()
    for epoch in range(EPOCHS):
        for batch in run.batches("train", epoch):
            state, value = step(state, jax.device_put(batch))
    value.block_until_ready()
    rates["hand-written loop"] = EPOCHS * steps / (time.perf_counter() - begin)
    batch = jax.device_put(next(run.batches()))
    begin = time.perf_counter()
    for _ in range(EPOCHS * steps):
        state, value = step(state, batch)
    value.block_until_ready()
    rates["batch on the device"] = EPOCHS * steps / (time.perf_counter() - begin)
    return rates


# -- transforms


def transform(size: Size, where: str, _: Path) -> dict[str, float]:
    """Rows a second of each transform, placed as usual and, on a GPU, with all on it."""
    import jax.numpy as jnp
    from drivetrain.engine import Bundle, analyze, on, ops

    random = np.random.default_rng(1)
    words = np.array([f"w{number}" for number in range(1000)])
    names = [f"n{at}" for at in range(8)]
    table = pa.table(
        {
            **{name: random.normal(size=size.rows) for name in names},
            "word": words[random.zipf(1.3, size.rows) % len(words)],
        }
    )
    matrices = [random.normal(size=(8, size.width)) / 3, random.normal(size=(size.width, size.width)) / size.width**0.5]
    weights = [matrix.astype(np.float32) for matrix in matrices]

    def columns(c: ops.Columns) -> ops.Columns:
        numbers = {name: ops.z_score(c[name]) for name in names[:6]}
        buckets = {name: ops.bucketize(c[name], 10) for name in names[6:]}
        return {**numbers, **buckets, "word": ops.vocabulary(c["word"], top_k=500, oov_buckets=10)}

    def dense(c: ops.Columns) -> ops.Columns:
        h = jnp.stack([ops.fill_missing(ops.z_score(c[name]), 0.0) for name in names], -1)
        for weight in weights:
            h = jnp.tanh(h @ weight)
        return {"mean": h.mean(-1), "most": h.max(-1)}

    def on_gpu(fn: Callable[[ops.Columns], ops.Columns], c: ops.Columns) -> ops.Columns:
        with on("gpu"):
            return fn(c)

    figures: dict[str, float] = {}
    for name, fn, rows in (("columns", columns, size.rows), ("dense", dense, size.rows // 8)):
        batches = table.slice(0, rows).combine_chunks().to_batches(max_chunksize=8192)
        placed: dict[str, Callable[[ops.Columns], ops.Columns]] = {"as placed": fn}
        if where == "gpu":
            placed["all on the GPU"] = partial(on_gpu, fn)
        for how, each in placed.items():
            bundle: Bundle = analyze(each, table.slice(0, 100_000))
            _run_all(bundle, batches[:2])
            figures[f"{name}: {how}, M rows/s"] = rows / _seconds(partial(_run_all, bundle, batches)) / 1e6
    return figures


def _run_all(bundle: Any, batches: list[pa.RecordBatch]) -> None:
    for _ in bundle.run_stream("transform", batches):
        pass


def _seconds(work: Callable[[], object]) -> float:
    """The median of three."""
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


# -- the server


def serve(size: Size, where: str, folder: Path) -> dict[str, float]:
    """Requests a second and the latency of a dense network."""
    from drivetrain.tests.serving.bundles import rows_of, write_network

    (folder / "net").mkdir()
    write_network(folder / "net" / "1", hidden=size.hidden)
    rows = rows_of(1, 64)["x"].to_pylist()
    figures: dict[str, float] = {}
    with _server(folder) as address:
        for count, connections in ((1, 1), (1, 64), (64, 16)):
            body = json.dumps({"instances": rows[:count]}).encode()
            asyncio.run(_ask(address, body, connections, size.seconds / 2))
            latencies = asyncio.run(_ask(address, body, connections, size.seconds))
            label = f"{count} rows, {connections} connections"
            figures[f"{label}: requests/s"] = len(latencies) / size.seconds
            figures[f"{label}: p50 ms"] = statistics.median(latencies) * 1e3
            figures[f"{label}: p99 ms"] = float(np.quantile(latencies, 0.99)) * 1e3
    return figures


@contextmanager
def _server(folder: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "drivetrain", "serve", str(folder / "net"), "--json", "--rest-port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["address"]
        finally:
            process.send_signal(signal.SIGTERM)


async def _ask(address: str, body: bytes, connections: int, seconds: float) -> list[float]:
    """The seconds that each request took; every connection asks again as soon as it is answered."""
    parts = urlsplit(address)
    head = f"POST /v1/models/net:predict HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Length: {len(body)}\r\n\r\n"
    request = head.encode() + body
    latencies: list[float] = []
    end = time.perf_counter() + seconds

    async def connect() -> None:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        while (begin := time.perf_counter()) < end:
            writer.write(request)
            lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
            length = next(int(line.split(":")[1]) for line in lines if line.startswith("content-length:"))
            answer = await reader.readexactly(length)
            if " 200 " not in lines[0]:
                raise RuntimeError(answer.decode())
            latencies.append(time.perf_counter() - begin)
        writer.close()

    await asyncio.gather(*(connect() for _ in range(connections)))
    return latencies


# -- large models


def models(size: Size, where: str, _: Path) -> dict[str, float]:
    """Rows a second of each large model; on a processor of tiny ones alone."""
    from drivetrain.benchmarks import gpu_models

    tiny = size is TINY
    if where == "cpu" and not tiny:
        print("models of full size are not trained on a processor", file=sys.stderr)
        return {}
    figures: dict[str, float] = {}
    for name, build in gpu_models.WORKLOADS.items():
        print(f"models: {name}", file=sys.stderr, flush=True)
        workload = build(tiny=tiny)
        figures |= gpu_models.figures(replace(workload, steps=3, epochs=2) if tiny else workload)
    return figures


# -- the table


def hardware(where: str) -> str:
    """What a platform is here."""
    import jax

    device = jax.devices()[0]
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        cpu = next((line.split(":")[1].strip() for line in info.read_text().splitlines() if "model name" in line), cpu)
    named = f"{cpu}, {os.cpu_count()} cores" if where == "cpu" else device.device_kind
    return f"{where}: {named}; JAX {jax.__version__} on {device.platform}"


def measure(part: str, where: str, *, tiny: bool) -> dict[str, Any]:
    """One part on one platform, in a process of its own: the figures, or the error."""
    command = [sys.executable, __file__, "--part", part, "--platforms", where, *(["--tiny"] if tiny else [])]
    environment = {**os.environ, "JAX_PLATFORMS": PLATFORMS[where], **(COMPILE_FAST if tiny else {})}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{part} on {where} ended with code {done.returncode}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--platforms", nargs="+", choices=PLATFORMS, default=["cpu", "gpu"])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--tiny", action="store_true", help="sizes that show that it runs, and nothing else")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        (where,) = options.platforms
        with tempfile.TemporaryDirectory() as scratch:
            part = {"train": train, "transform": transform, "serve": serve, "models": models}[options.part]
            figures = part(TINY if options.tiny else FULL, where, Path(scratch))
        print(json.dumps({"hardware": hardware(where), "figures": figures}))
        return
    every: dict[str, Any] = {}
    for part in options.parts:
        for where in options.platforms:
            result = measure(part, where, tiny=options.tiny)
            every.setdefault("hardware", {})[where] = result["hardware"]
            every.setdefault(part, {})[where] = result["figures"]
        _print_part(part, every[part])
        if options.json:
            options.json.write_text(json.dumps(every, indent=1) + "\n")
    print(*every["hardware"].values(), sep="\n")
    if "gpu" in every.get("models", {}) and not options.tiny:
        today = datetime.now(tz=UTC).date().isoformat()
        PAGE.write_text(with_table(PAGE.read_text("utf-8"), every["models"]["gpu"], every["hardware"]["gpu"], today))


def with_table(page: str, figures: Mapping[str, float], hardware: str, day: str) -> str:
    """A page with these figures, and of what and when they are, in place of what stood between its two marks.

    Raises:
        ValueError: The page has no such marks.
    """
    before, mark, rest = page.partition(BEGIN)
    _, closing, after = rest.partition(END)
    if not mark or not closing:
        raise ValueError(f"the page lacks a line {(BEGIN if not mark else END).strip()}")
    rows = [f"| {name} | {value:,.4g} |\n" for name, value in figures.items()]
    table = f"{day}, {hardware}:\n\n| | |\n|---|---|\n" + "".join(rows)
    return before + BEGIN + "\n" + table + "\n" + END + after


def _print_part(part: str, figures: Mapping[str, Mapping[str, float]]) -> None:
    names = list(dict.fromkeys(name for each in figures.values() for name in each))
    print(f"{part:66}" + "".join(f"{where:>12}" for where in figures))
    for name in names:
        cells = [each.get(name) for each in figures.values()]
        print(f"  {name:64}" + "".join(f"{'' if cell is None else f'{cell:.4g}':>12}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
