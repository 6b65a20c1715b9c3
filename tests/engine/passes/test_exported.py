"""A transform and a model in one bundle: what both heads prepare is done once, what only training does not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from drivetrain import data  # noqa: E402
from drivetrain.engine import Bundle, analyze, export_model, ops  # noqa: E402
from drivetrain.engine.graphs.nodes import DeviceStage, HostNode  # noqa: E402
from drivetrain.engine.tracing.training_only import dropout  # noqa: E402

pytestmark = pytest.mark.engine

ROWS = 200


def preprocess(columns: ops.Columns) -> ops.Columns:
    carrier = ops.lower(ops.strip(columns["carrier"]))
    return {
        "delay": ops.z_score(ops.fill_missing(columns["delay"], 0.0)),
        "distance": ops.fill_missing(columns["distance"], 1.0),
        "carrier": ops.vocabulary(carrier, oov_buckets=1),
        "late": ops.cast(columns["delay"] > 15.0, "float32"),
    }


def raw() -> pa.Table:
    random = np.random.default_rng(3)
    return pa.table(
        {
            "delay": random.normal(10, 40, ROWS),
            "distance": np.abs(random.normal(500, 200, ROWS)) + 1,
            "carrier": np.array([" UA", "aa ", "DL"])[random.integers(0, 3, ROWS)],
        }
    )


def head(params: Any, features: Any, key: int) -> Any:
    """As one author writes it: the features prepared, scaled, put side by side, some dropped in training."""
    distance = (jnp.log(features["distance"]) - 6.0) / 0.5
    x = jnp.stack([features["delay"] / 2.0, distance], -1)
    x = jnp.concatenate([x, params["carriers"][features["carrier"]]], -1)
    x = jax.jit(lambda x: dropout(x, 0.5, jax.random.key(key)))(x)
    return jax.nn.relu(x @ params["w"] + params["b"]) @ params["v"]


def model(params: Any, features: Any) -> Any:
    return {name: head({**params["shared"], **params[name]}, features, 1)[:, 0] for name in ("one", "two")}


def without_dropout(params: Any, features: Any) -> Any:
    made = {}
    for name in ("one", "two"):
        held = {**params["shared"], **params[name]}
        distance = (np.log(features["distance"]) - 6.0) / 0.5
        x = np.stack([features["delay"] / 2.0, distance, *held["carriers"][features["carrier"]].T], -1)
        made[name] = (np.maximum(x @ held["w"] + held["b"], 0) @ held["v"])[:, 0]
    return made


def test_a_joined_bundle_prepares_once_and_predicts_what_numpy_does(tmp_path: Path) -> None:
    random = np.random.default_rng(4)

    def normal(*shape: int) -> np.ndarray[Any, Any]:
        return random.normal(size=shape).astype(np.float32)

    params = {name: {"w": normal(5, 8), "b": normal(8), "v": normal(8, 1)} for name in ("one", "two")}
    params["shared"] = {"carriers": normal(6, 3)}
    pq.write_table(raw(), tmp_path / "raw.parquet")
    analyze(preprocess, data.open_parquet([tmp_path / "raw.parquet"]), data.executor("local")).save(tmp_path / "graph")
    made = export_model(
        tmp_path / "graph", model, params, lambda o: o, label="late", out=tmp_path / "model", platforms=("cpu",)
    )

    graph = made.graph
    host = [node.op for node in graph.nodes if isinstance(node, HostNode)]
    steps = [s["op"] for n in graph.nodes if isinstance(n, HostNode) for s in n.params.get("steps", [{"op": n.op}])]
    assert steps.count("lookup") == steps.count("lower") == 1, host
    (predict,) = (name for name in made.payload.programs if name.startswith("predict"))
    text = str(jax.export.deserialize(bytearray(made.payload.programs[predict])).mlir_module())
    assert text.count("stablehlo.log ") == 1, "both heads take the logarithm of the same column"
    assert text.count("stablehlo.dot_general") == 4
    assert "threefry" not in text, "dropout is gone"
    assert {"model/one/w", "model/two/w"} <= set(made.payload.weights)

    (batch,) = raw().combine_chunks().to_batches()
    features = Bundle.load(tmp_path / "graph").run("transform", batch)
    expected = without_dropout(params, {name: np.asarray(array) for name, array in features.items()})
    predicted = made.run("predict", batch)
    for name, values in expected.items():
        np.testing.assert_allclose(predicted[name], values, rtol=2e-5, atol=2e-5)


def test_columns_that_are_scaled_alike_are_one_function_of_the_exported_program() -> None:
    names = [f"x{place}" for place in range(6)]
    random = np.random.default_rng(5)
    table = pa.table({name: random.normal(place, place + 1, ROWS) for place, name in enumerate(names)})

    def scaled(columns: ops.Columns) -> ops.Columns:
        return {name: jnp.tanh(ops.z_score(ops.fill_missing(columns[name], 0.0)) * 0.5) for name in names}

    analyzed = analyze(scaled, data.source_of(table), data.executor("local"))
    (program,) = analyzed.payload.programs.values()
    text = str(jax.export.deserialize(bytearray(program)).mlir_module())
    assert text.count("call @repeated(") == len(names)
    assert text.count("stablehlo.tanh ") == text.count("stablehlo.divide ") == 1

    (stage,) = (node for node in analyzed.graph.nodes if isinstance(node, DeviceStage))
    assert stage.needs == tuple((place,) for place in range(len(names))), "each output needs its own column alone"
    (batch,) = table.combine_chunks().to_batches()
    for name, found in analyzed.run("transform", batch).items():
        x = table[name].to_numpy()
        np.testing.assert_allclose(found, np.tanh((x - x.mean()) / x.std() * 0.5), rtol=1e-5, atol=1e-6)
    row = {name: table[name][3].as_py() for name in names}
    row_outputs = analyzed.run_row("transform", row)
    for name in names:
        x = table[name].to_numpy()
        np.testing.assert_allclose(
            np.asarray(row_outputs[name]), np.tanh((x[3] - x.mean()) / x.std() * 0.5), rtol=1e-5, atol=1e-6
        )
