"""Chains of text ops as one op: the same on batches, on rows and as the ops one by one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("jax")
from drivetrain.engine.graphs.graph import Graph, Output
from drivetrain.engine.graphs.json import graph_json, graph_of_json
from drivetrain.engine.graphs.nodes import HostNode, Tensor
from drivetrain.engine.host_ops.columns import as_column
from drivetrain.engine.host_ops.kernels import host_op
from drivetrain.engine.passes import fuse_text, optimize

pytestmark = pytest.mark.engine

STRIP: dict[str, object] = {"characters": None}
SWAP: dict[str, object] = {"pattern": "a+", "replacement": "A"}
LOOKUP: dict[str, object] = {"words": ["x", "bAb", "A"], "oov_buckets": 1}


def chain(*ops: tuple[str, dict[str, object]], wanted: tuple[int, ...] = ()) -> Graph:
    """Ops on a text column one after the other; the last result is wanted, and those that `wanted` numbers."""
    nodes = []
    read = "column/t"
    for place, (op, params) in enumerate(ops):
        dtype = "int32" if op in ("lookup", "hash") else "string"
        made = Tensor(f"t{place}", dtype, column=dtype == "string")
        nodes.append(HostNode(op, (read,), (made,), params))
        read = made.id
    outputs = {name: Output(name) for name in (read, *(f"t{place}" for place in wanted))}
    return Graph({"t": Tensor("column/t", "string", column=True)}, tuple(nodes), {"call": outputs})


CHAIN: tuple[tuple[str, dict[str, object]], ...] = (
    ("strip", STRIP),
    ("lower", {}),
    ("regex_replace", SWAP),
    ("lookup", LOOKUP),
)


def test_a_chain_becomes_one_node_that_survives_json() -> None:
    graph, (report,) = optimize(chain(*CHAIN), (fuse_text,))
    graph.check()
    (node,) = graph.nodes
    assert report.removed == {"strip": 1, "lower": 1, "regex_replace": 1, "lookup": 1}
    assert [step["op"] for step in node.params["steps"]] == [op for op, _ in CHAIN]  # type: ignore[union-attr]
    assert fuse_text(graph) is graph
    assert graph_of_json(graph_json(graph)).nodes == graph.nodes


def test_what_is_read_twice_or_wanted_ends_a_chain() -> None:
    wanted = fuse_text(chain(*CHAIN, wanted=(1,)))
    assert [node.op for node in wanted.nodes if isinstance(node, HostNode)] == ["fused", "fused"]
    assert {output.tensor for output in wanted.signatures["call"].values()} == {"t1", "t3"}
    one = chain(("lower", {}))
    assert fuse_text(one) is one
    typed = chain(("length", {"unit": "chars"}), ("lookup", LOOKUP))
    assert fuse_text(typed) is typed


@settings(max_examples=50, deadline=None)
@given(st.lists(st.none() | st.sampled_from([" x ", "BaaB", "a", "", "ÅØ "]) | st.text(max_size=6), max_size=12))
def test_batch_row_and_single_steps_agree(values: list[str | None]) -> None:
    (node,) = fuse_text(chain(*CHAIN)).nodes
    assert isinstance(node, HostNode)
    plain = as_column(pa.array(values, pa.string()), "string", "t")
    expected = plain
    for op, params in CHAIN:
        expected = host_op(op).batch(params, ())(expected)
    batch, row = host_op("fused").batch(node.params, ()), host_op("fused").row(node.params, ())
    np.testing.assert_array_equal(batch(plain), expected)
    np.testing.assert_array_equal(batch(plain.dictionary_encode()), expected)
    assert [row(value) for value in values] == expected.tolist()


def test_an_op_that_is_not_of_one_text_is_refused() -> None:
    with pytest.raises(ValueError, match="not an op of one text"):
        host_op("fused").batch({"steps": [{"op": "concat", "params": {}, "assets": 0}]}, ())
