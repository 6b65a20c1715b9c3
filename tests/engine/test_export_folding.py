"""Z-scores and min-max go into the model's first dense layer, from the saved transform; predictions stay to 1e-6."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain import data
from drivetrain.engine import Bundle, BundleError, analyze, export_model, ops, reseal
from drivetrain.engine import export as export_room
from drivetrain.tests.fixtures.bundles import make

pytestmark = pytest.mark.engine


def exported(graph: Path, apply: Any, params: Any, predict: Any, out: Path, *, fold: bool = True) -> Bundle:
    """The model as a later process would have it; without folding where that is asked."""
    with pytest.MonkeyPatch.context() as patch:
        if not fold:
            patch.setattr(export_room, "scalings", lambda bundle: {})
        export_model(graph, apply, params, predict, label="late", out=out)
    return Bundle.load(out)


def whole(table: pa.Table) -> pa.RecordBatch:
    (batch,) = table.combine_chunks().to_batches()
    return batch


def params_of(graph: Path) -> dict[str, Any]:
    rng = np.random.default_rng(7)
    made = Bundle.load(graph).signatures["transform"].outputs
    carriers, origins = (made[name].size or 0 for name in ("carrier", "origin"))
    shapes = {"carrier": (carriers, 3), "origin": (origins, 2), "dense": (9, 8), "bias": (8,), "out": (8,)}
    return {name: rng.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes.items()}


def test_a_flights_model_has_the_z_score_in_its_weights(tmp_path: Path) -> None:
    make.build(tmp_path / "made")
    graph = tmp_path / "made" / "graph"
    params = params_of(graph)
    folded = exported(graph, make.model, params, make.predict, tmp_path / "folded")
    apart = exported(graph, make.model, params, make.predict, tmp_path / "apart", fold=False)
    assert folded.export["folded_scaling"] == ["dep_delay"]
    assert "folded_scaling" not in apart.export
    raw = pq.read_table(tmp_path / "made" / "raw.parquet")["dep_delay"].to_numpy()
    delays = np.nan_to_num(raw)  # as fill_missing(…, 0.0) has it
    row = folded.payload.weights["model/dense:folded"][make.FEATURES.index("dep_delay")]
    np.testing.assert_allclose(row, params["dense"][0] / delays.std(), rtol=1e-6)
    batch = whole(make.flights(9_000, 1))
    found, wanted = folded.run("evaluate", batch), apart.run("evaluate", batch)
    for name, values in wanted.items():
        np.testing.assert_allclose(found[name], values, rtol=0, atol=1e-6)
    for place, values in enumerate(batch.slice(0, 50).to_pylist()):
        one = np.asarray(folded.run_row("predict", values)["probability"])
        np.testing.assert_allclose(one, wanted["probability"][place], atol=1e-6)


def numbers(count: int) -> pa.Table:
    dice = np.random.default_rng(5)
    return pa.table(
        {
            "x": pa.array(dice.normal(3, 7, count), mask=dice.random(count) < 0.1),
            "far": dice.normal(1e6, 1, count),
            "size": dice.exponential(50, count),
            "same": np.full(count, 4.0),
            "y": dice.normal(size=count),
        }
    )


def preprocess(columns: ops.Columns) -> ops.Columns:
    x, size = ops.fill_missing(columns["x"], 1.0), ops.fill_missing(columns["size"], 0.0)
    return {
        "x": ops.z_score(x),
        "far": ops.z_score(ops.fill_missing(columns["far"], 0.0)),
        "log": ops.z_score(jnp.log1p(size)),
        "pair": ops.z_score(jnp.stack([x, size], -1), elementwise=True),
        "same": ops.z_score(ops.fill_missing(columns["same"], 0.0)),
        "late": ops.fill_missing(ops.cast(columns["y"], "float32"), 0.0),
    }


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("folding")
    pq.write_table(numbers(2_000), folder / "raw.parquet")
    analyze(preprocess, data.open_parquet([folder / "raw.parquet"]), data.executor("local")).save(folder / "graph")
    return folder / "graph"


WEIGHTS = np.random.default_rng(1).normal(0, 0.3, (6, 4)).astype(np.float32)


def dense(weights: Any, features: Any) -> Any:
    sides = [features[name][:, None] for name in ("x", "far", "log", "same")]
    return jnp.concatenate([*sides, features["pair"]], -1) @ weights


def by_numpy(table: pa.Table) -> Any:
    """The dense layer in double precision, from the rows that were analysed."""
    x = np.nan_to_num(table["x"].to_numpy(), nan=1.0)
    far, log, same = table["far"].to_numpy(), np.log1p(table["size"].to_numpy()), np.zeros(len(table))
    columns = [x, far, log, same, x, table["size"].to_numpy()]
    scaled = [(values - values.mean()) / (values.std() or 1.0) for values in columns]
    return np.stack(scaled, -1) @ WEIGHTS


def test_vectors_and_what_the_device_computes_fold_and_what_would_lose_digits_stays(
    graph: Path, tmp_path: Path
) -> None:
    bundle = exported(graph, dense, WEIGHTS, lambda made: {"p": jax.nn.sigmoid(made)}, tmp_path / "model")
    assert bundle.export["folded_scaling"] == ["log", "pair", "same", "x"]  # far: 1e6 standard deviations from 0
    table = numbers(2_000)
    found = bundle.run("predict", whole(table))["p"]
    apart = exported(graph, dense, WEIGHTS, lambda made: {"p": jax.nn.sigmoid(made)}, tmp_path / "apart", fold=False)
    np.testing.assert_allclose(found, apart.run("predict", whole(table))["p"], rtol=0, atol=1e-6)
    steady = np.abs(found - 1 / (1 + np.exp(-by_numpy(table))))
    assert steady.max() < 0.05  # float32 holds 1e6 to 0.06; all else is exact
    transformed = Bundle.load(graph).run("transform", whole(table))
    np.testing.assert_allclose(transformed["x"], by_column(table, "x"), atol=1e-5)


def by_column(table: pa.Table, name: str) -> Any:
    values = np.nan_to_num(table[name].to_numpy(), nan=1.0)
    return (values - values.mean()) / values.std()


def test_a_feature_that_something_else_reads_too_stays_as_the_transform_gives_it(graph: Path, tmp_path: Path) -> None:
    def apply(weights: Any, features: Any) -> Any:
        return jnp.stack([features["x"], features["log"]], -1) @ weights[:2, :1], features["x"]

    def predict(made: Any) -> Any:
        return {"p": made[0][:, 0], "x": made[1]}

    bundle = exported(graph, apply, WEIGHTS, predict, tmp_path / "model")
    assert bundle.export["folded_scaling"] == ["log"]
    batch = whole(numbers(700))
    transformed = Bundle.load(graph).run("transform", batch)
    found = bundle.run("predict", batch)
    np.testing.assert_array_equal(found["x"], transformed["x"])
    np.testing.assert_allclose(
        found["p"], np.stack([transformed["x"], transformed["log"]], -1) @ WEIGHTS[:2, 0], atol=1e-6
    )


def to_ranges(columns: ops.Columns) -> ops.Columns:
    x, size = columns["x"], ops.fill_missing(columns["size"], 0.0)
    return {
        "x": ops.min_max(ops.fill_missing(x, 1.0), -1, 1),
        "size": ops.min_max(jnp.log1p(size)),
        "pair": ops.min_max(jnp.stack([ops.fill_missing(x, 1.0), size], -1), 2, 5, elementwise=True),
        "same": ops.min_max(ops.fill_missing(columns["same"], 0.0)),
        "far": ops.min_max(ops.fill_missing(columns["far"], 0.0)),
        "late": ops.fill_missing(ops.cast(columns["y"], "float32"), 0.0),
    }


def test_what_is_scaled_to_a_range_folds_too(tmp_path: Path) -> None:
    table = numbers(2_000)
    analyze(to_ranges, data.source_of(table), data.executor("local"), schema=table.schema).save(tmp_path / "graph")

    def apply(weights: Any, features: Any) -> Any:
        sides = [features[name][:, None] for name in ("x", "size", "same", "far")]
        return jnp.concatenate([*sides, features["pair"]], -1) @ weights

    folded = exported(tmp_path / "graph", apply, WEIGHTS, lambda made: {"p": made}, tmp_path / "model")
    assert folded.export["folded_scaling"] == ["pair", "size", "x"]  # same: midway; far: beyond float32's digits
    x, size = np.nan_to_num(table["x"].to_numpy(), nan=1.0), table["size"].to_numpy()

    def between(values: Any, low: float, high: float) -> Any:
        return low + (values - values.min()) / (values.max() - values.min()) * (high - low)

    far = Bundle.load(tmp_path / "graph").run("transform", whole(table))["far"]
    sides = [between(x, -1, 1), between(np.log1p(size), 0, 1), np.full(2_000, 0.5), far]
    wanted = np.stack([*sides, between(x, 2, 5), between(size, 2, 5)], -1) @ WEIGHTS
    np.testing.assert_allclose(folded.run("predict", whole(table))["p"], wanted, atol=3e-6)


def test_a_transform_that_lies_about_its_scaling_is_refused(graph: Path, tmp_path: Path) -> None:
    bundle = Bundle.load(graph)
    bundle.save(tmp_path / "graph")
    file = tmp_path / "graph" / "assets" / "inverses.arrow"
    table = pa.ipc.open_file(file.read_bytes()).read_all()
    for wrong in ("nothing", "transform/t0" if "transform/t0" in bundle.graph.tensors() else "column/x"):
        made = table.set_column(table.schema.get_field_index("of"), "of", pa.array([wrong] * len(table)))
        with pa.ipc.new_file(file, made.schema) as writer:
            writer.write_table(made)
        reseal(tmp_path / "graph")
        with pytest.raises(BundleError, match=r"assets/inverses\.arrow"):
            exported(tmp_path / "graph", dense, WEIGHTS, lambda made: {"p": made}, tmp_path / "model")
