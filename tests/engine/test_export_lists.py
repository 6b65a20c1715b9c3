"""Predictions that are lists: a `Ragged` that predict gives is a column of lists in the bundle."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain import data
from drivetrain.engine import Bundle, analyze, export_model, ops, ragged
from drivetrain.errors import InputError

pytestmark = pytest.mark.engine


def rows(count: int) -> pa.Table:
    dice = np.random.default_rng(3)
    scores = [dice.normal(size=dice.integers(0, 5)).tolist() if dice.random() < 0.8 else None for _ in range(count)]
    return pa.table(
        {
            "scores": pa.array(scores, pa.list_(pa.float64())),
            "tags": pa.array([dice.integers(0, 9, n % 3).tolist() for n in range(count)], pa.list_(pa.int64())),
            "label": dice.normal(size=count),
        }
    )


def preprocess(columns: ops.Columns) -> ops.Columns:
    return {
        "scores": columns["scores"],
        "tags": columns["tags"],
        "label": ops.fill_missing(ops.cast(columns["label"], "float32"), 0.0),
    }


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lists")
    pq.write_table(rows(200), folder / "raw.parquet")
    analyze(preprocess, data.open_parquet([folder / "raw.parquet"]), data.executor("local")).save(folder / "graph")
    return folder / "graph"


@pytest.mark.slow
def test_a_ragged_prediction_is_a_column_of_lists(graph: Path, tmp_path: Path) -> None:
    def predict(features: Any) -> Any:
        return {
            "share": ragged.softmax(features["scores"]),
            "total": ragged.sum(features["scores"]),
            "next": features["tags"] + 1,
        }

    export_model(graph, lambda p, f: f, np.float32(0), predict, label="label", out=tmp_path / "model")
    bundle = Bundle.load(tmp_path / "model")
    assert {name: spec.dtype for name, spec in bundle.signatures["predict"].outputs.items()} == {
        "share": "list<float64>",
        "total": "float32",
        "next": "list<int64>",
    }
    table = rows(9_000)  # more than one chunk for the device
    (batch,) = table.combine_chunks().to_batches()
    found = bundle.run_arrow("predict", batch)
    assert found.schema.field("share").type == pa.list_(pa.float64())
    assert found.schema.field("next").type == pa.list_(pa.int64())
    shares, nexts = found["share"].to_pylist(), found["next"].to_pylist()
    for place, row in enumerate(table.to_pylist()):
        weights = np.exp(np.array(row["scores"] or ()))
        np.testing.assert_allclose(shares[place], weights / weights.sum(), atol=1e-6)
        assert nexts[place] == [tag + 1 for tag in row["tags"]]
        if place < 40:
            row_outputs = bundle.run_row("predict", row)
            np.testing.assert_allclose(np.array(row_outputs["share"]), shares[place], atol=1e-6)
            assert row_outputs["next"] == nexts[place]
    none = bundle.run_arrow("evaluate", batch.slice(0, 0))
    assert none.schema.field("share").type == pa.list_(pa.float64())


@pytest.mark.parametrize(
    ("predict", "shown"),
    [
        (lambda f: {"p": ragged.from_dense(jnp.ones((3, 2)), jnp.ones((3, 2), bool))}, "Ragged"),
        (lambda f: {"p": f["scores"].map_values(lambda v: jnp.stack([v, v], -1))}, "Ragged"),
        (lambda f: {"p": f["scores"] > 0}, "Ragged"),
        (lambda f: {"p": [1.0]}, r"\[1\.0\]"),
    ],
)
def test_what_is_no_list_of_numbers_is_refused_at_export(graph: Path, tmp_path: Path, predict: Any, shown: str) -> None:
    with pytest.raises(InputError, match=f"prediction 'p' is {shown}"):
        export_model(graph, lambda p, f: f, np.float32(0), predict, label="label", out=tmp_path / "model")
    assert not (tmp_path / "model").exists()
