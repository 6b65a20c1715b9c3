"""Graphs shown: as text, as a table, as a page; what each node costs and which line of the user's made it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain import data
from drivetrain.engine import Bundle, TensorSpec, analyze, function, ops
from drivetrain.engine.functions import stateful
from drivetrain.engine.graphs.cost import cost
from drivetrain.engine.graphs.graph import Graph
from drivetrain.tests.engine.zoo import zoo

pytestmark = pytest.mark.engine

W = np.ones((8, 8), np.float32)
HERE = Path(__file__)


def deep(x: Any) -> Any:
    for _ in range(250):
        y = x @ W
        y = jnp.tanh(y)
        x = x + y - 0.5
    return x


def large() -> Graph:
    """1,000 nodes on three lines."""
    return function(autograph=False)(deep).get_concrete_function(TensorSpec((None, 8))).graph


def line_of(text: str) -> int:
    return next(at for at, line in enumerate(HERE.read_text("utf-8").splitlines(), 1) if line.strip() == text)


def test_a_large_graph_is_told_in_few_lines() -> None:
    graph = large()
    assert len(graph.nodes) == 1000
    lines = repr(graph).splitlines()
    assert lines[0] == "Graph(1 inputs, 1 weights of 256 B, 1,000 nodes)"
    first, last = line_of("y = x @ W"), line_of("x = x + y - 0.5")
    (summary,) = (line for line in lines if "1,000 nodes, 250 times the same" in line)
    assert f"{HERE.name}:{first}, {HERE.name}:{first + 1}, {HERE.name}:{last}" in summary
    assert "250 dot_general" in summary
    assert len(lines) < 10


def test_a_small_graph_is_told_whole() -> None:
    (graph,) = (animal.graph() for animal in zoo() if animal.name == "mlp")
    text = repr(graph)
    assert all(str(node) in text for node in graph.nodes)
    assert "…" not in text


def test_what_is_described() -> None:
    (animal,) = (animal for animal in zoo() if animal.name == "wide_and_deep")
    graph = animal.graph()
    said = graph.describe(rows=100)
    assert json.loads(json.dumps(said)) == said
    total = cost(graph, rows=100)
    assert said["total"] == {"flops": total.flops + total.transcendentals, "bytes": total.bytes, "exact": True}
    assert sum(node["flops"] for node in said["nodes"]) == said["total"]["flops"]
    assert sum(node["bytes"] for node in said["nodes"]) == said["total"]["bytes"]
    held = sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(animal.params))
    assert sum(weight["bytes"] for weight in said["weights"]) == held
    assert all(Path(node["where"].rpartition(":")[0]).name == "zoo.py" for node in said["nodes"])


def test_every_node_has_the_users_line() -> None:
    said = large().describe()
    lines = {node["op"]: int(node["where"].rpartition(":")[2]) for node in said["nodes"]}
    assert lines["dot_general"] == line_of("y = x @ W")
    assert lines["tanh"] == line_of("y = jnp.tanh(y)")
    assert lines["add"] == lines["sub"] == line_of("x = x + y - 0.5")


def test_a_table_of_nodes() -> None:
    pytest.importorskip("pandas")
    graph = large()
    table = graph.to_pandas(rows=10)
    assert len(table) == 1000
    assert table.flops.sum() == 250 * (2 * 10 * 8 * 8 + 3 * 10 * 8)
    assert list(table[table.op == "tanh"].type.unique()) == ["float32[b,8]"]


def test_a_page_and_a_notebooks_cell() -> None:
    graph = large()
    page = graph.to_html()
    assert "× 250" in page
    assert "<script" not in page
    assert graph._repr_html_().startswith("<iframe")


def test_state_is_drawn_as_next_values() -> None:
    traced = function(lambda mean, x: (mean * 0.9 + x * 0.1, x - mean)).get_concrete_function(np.ones(3), np.ones(3))
    page = stateful(traced, "mean").to_html()
    assert ">next mean<" in page
    assert ">▪ mean<" in page


def preprocess(columns: Any) -> Any:
    delay = ops.fill_missing(columns["delay"], 0.0)
    ops.check(delay < 5000.0, "no flight is this late")
    return {"delay": ops.z_score(delay), "carrier": ops.vocabulary(columns["carrier"])}


def test_a_bundle_is_drawn_with_what_its_stages_hold(tmp_path: Path) -> None:
    table = pa.table({"delay": [1.0, None, 7.0], "carrier": ["UA", "AA", "UA"]})
    pq.write_table(table, tmp_path / "raw.parquet")
    analyzed = analyze(preprocess, data.open_parquet([tmp_path / "raw.parquet"]), data.executor("local"))
    analyzed.save(tmp_path / "bundle")
    for bundle in (analyzed, Bundle.load(tmp_path / "bundle")):
        page = bundle.to_html()
        assert ">no flight is this late<" in page
        assert "device stage" in page
        assert "FLOP per row" in page
        assert "▪ 2 weights, 8 B" in page
        assert f"{HERE.name}:preprocess+1" in page
        assert bundle._repr_html_().startswith("<iframe")
    (stage,) = (node for node in analyzed.graph.describe(rows=100)["nodes"] if node["kind"] == "stage")
    (node,) = (node for node in analyzed.graph.nodes if str(node).startswith("device<"))
    assert stage["flops"] == 100 * node.flops > 0  # type: ignore[union-attr]
