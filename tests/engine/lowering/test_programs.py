"""Device programs with their weights: inside the program where they are small, given to it where they are large."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("jax")

import jax
import jax.numpy as jnp
from drivetrain import data
from drivetrain.engine import Bundle, analyze, export_model, ops
from drivetrain.engine.graphs.nodes import DeviceStage
from drivetrain.engine.lowering import programs

pytestmark = pytest.mark.engine

DICE = np.random.default_rng(0)
X, IDS = DICE.normal(size=20_000), DICE.integers(0, 64, 20_000)
LARGE = (4 << 20) // 8 + 1  # rows of two words: over 4 MiB


def looked_up(height: int) -> tuple[Bundle, Callable[[slice], Any]]:
    """A bundle of a table so high and a dense layer behind it, and the same by numpy in float64."""
    table, dense = DICE.normal(size=(height, 2)).astype(np.float32), DICE.normal(size=(2, 8)).astype(np.float32)

    def preprocess(columns: ops.Columns) -> ops.Columns:
        found = jnp.asarray(table)[ops.fill_missing(columns["id"], 0)]
        return {
            "y": jnp.tanh(found * ops.fill_missing(columns["x"], 0.0)[:, None]) @ jnp.asarray(dense),
            "z": found[:, 0],
        }

    def by_numpy(of: slice) -> Any:
        found = table[IDS[of]].astype(np.float64)
        return {"y": np.tanh(found * X[of, None]) @ dense, "z": found[:, 0]}

    source = data.source_of(pa.table({"x": X[:100], "id": IDS[:100]}))
    return analyze(preprocess, source, data.executor("local")), by_numpy


def rows(of: slice) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"x": X[of], "id": IDS[of]})


@pytest.mark.parametrize("height", [64, LARGE], ids=["small", "large"])
def test_weights_inside_the_program_or_given_to_it_compute_the_same(height: int) -> None:
    bundle, by_numpy = looked_up(height)
    few = slice(0, 100)
    found, wanted = bundle.run("transform", rows(few)), by_numpy(few)
    row_outputs = bundle.run_row("transform", {"x": float(X[7]), "id": int(IDS[7])})
    for name, values in wanted.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(np.asarray(row_outputs[name]), values[7], rtol=1e-5, atol=1e-6)
    for stage in [node for node in bundle.graph.nodes if isinstance(node, DeviceStage)]:
        bound = bundle._programs._choose((stage.program, stage.weights, 512), stage)
        assert len(bound.weights) == (len(stage.weights) if height == LARGE else 0)


def test_a_row_has_the_same_bits_however_many_come_with_it() -> None:
    bundle, _ = looked_up(64)
    whole = bundle.run("transform", rows(slice(None)))  # 8,192 at a time
    for start in range(0, len(X), 500):
        part = bundle.run("transform", rows(slice(start, start + 500)))
        for name, values in part.items():
            assert values.tobytes() == whole[name][start : start + 500].tobytes()


def test_accelerators_alone_run_every_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """JAX_PLATFORMS=cuda: JAX then refuses to name a processor."""
    bundle, by_numpy = looked_up(64)
    real = jax.local_devices

    def accelerators_alone(**options: str) -> list[Any]:
        return real(backend="tpu") if options else [SimpleNamespace(platform="gpu")]  # refused in the same words

    monkeypatch.setattr(jax, "local_devices", accelerators_alone)
    few = slice(0, 100)
    outputs = bundle.run("transform", rows(few))
    row_outputs = bundle.run_row("transform", {"x": float(X[7]), "id": int(IDS[7])})
    for name, values in by_numpy(few).items():
        np.testing.assert_allclose(outputs[name], values, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(np.asarray(row_outputs[name]), values[7], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("platforms", "processor"), [(("cpu",), True), (("cpu", "cuda"), False)])
def test_a_stage_runs_where_its_program_was_exported_for(
    platforms: tuple[str, ...], processor: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large enough for an accelerator, if its program can run on one."""
    weights = {"w": np.ones((2, 5000), np.float32), "v": np.ones((5000, 2000), np.float32)}
    looked_up(64)[0].save(tmp_path / "graph")
    export_model(
        tmp_path / "graph",
        lambda params, features: (features["y"][:, :2] @ params["w"] @ params["v"]).sum(-1),
        weights,
        lambda outputs: {"p": outputs},
        label="z",
        out=tmp_path / "model",
        platforms=platforms,
    )
    bundle = Bundle.load(tmp_path / "model")
    (stage,) = [node for node in bundle.graph.nodes if isinstance(node, DeviceStage)]
    bundle._programs.prepare(stage)
    (cpu, *_) = jax.local_devices(backend="cpu")
    monkeypatch.setattr(jax, "local_devices", lambda **options: [cpu] if options else [SimpleNamespace(platform="gpu")])
    monkeypatch.setattr(programs.Programs, "_bind", lambda self, stage, device: device)
    chosen = bundle._programs._choose((stage.program, stage.weights, 512), stage)
    assert chosen is (cpu if processor else None)


def of_weight(path: Path, graph: Path, weight: float) -> Path:
    """A model that gives so many times the first of "y"; the same program for every weight."""
    export_model(
        graph,
        lambda params, features: features["y"][:, 0] * params["w"],
        {"w": np.full((), weight, np.float32)},
        lambda outputs: {"p": outputs},
        label="z",
        out=path,
    )
    return path


def test_a_bundle_that_is_loaded_again_compiles_nothing_and_has_its_own_weights(tmp_path: Path) -> None:
    from jax import monitoring

    graph = looked_up(64)[0]
    graph.save(tmp_path / "graph")
    models = {weight: of_weight(tmp_path / f"{weight}", tmp_path / "graph", weight) for weight in (2.0, 3.0)}
    few, compiled = rows(slice(0, 100)), [0]
    first = graph.run("transform", few)["y"][:, 0]

    def count(event: str, duration_secs: float, **_: str | int) -> None:
        compiled[0] += event.endswith("backend_compile_duration")

    monitoring.register_event_duration_secs_listener(count)
    try:
        counts = []
        for weight in (2.0, 3.0, 2.0, 3.0):
            outputs = Bundle.load(models[weight]).run("predict", few)["p"]
            np.testing.assert_allclose(outputs, weight * first, rtol=1e-5)
            counts.append(compiled[0])
    finally:
        monitoring.unregister_event_duration_listener(count)
    assert 0 < counts[0] < counts[1] == counts[2] == counts[3]


def test_few_programs_are_kept(tmp_path: Path) -> None:
    looked_up(64)[0].save(tmp_path / "graph")
    for number in range(programs._RECENT + 1):
        path = of_weight(tmp_path / f"{number}", tmp_path / "graph", float(number))
        Bundle.load(path).run("predict", rows(slice(0, 10)))
    assert len(programs._recent) == programs._RECENT
