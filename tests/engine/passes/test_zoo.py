"""Every graph of the zoo through every chain: structural ones to the bit, algebraic ones to 1e-6, against plain jit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

jax = pytest.importorskip("jax")

from drivetrain.engine.graphs.nodes import DeviceOp  # noqa: E402
from drivetrain.engine.passes import EXPORTED, FROZEN, STRUCTURAL, optimize, outline, write_scans  # noqa: E402

from ..zoo import Animal, zoo  # noqa: E402
from .graphs import close, optimized, run, same_bits  # noqa: E402

pytestmark = pytest.mark.engine

WRITTEN = (*EXPORTED, write_scans, outline)  # as a program is
ANIMALS = {animal.name: animal for animal in zoo()}


@pytest.fixture(params=ANIMALS)
def animal(request: pytest.FixtureRequest) -> Animal:
    return ANIMALS[request.param]


@pytest.mark.slow
def test_chains_keep_results(animal: Animal) -> None:
    graph = animal.graph()
    before = run(graph, **animal.inputs)
    for name, expected in animal.expected().items():
        np.testing.assert_allclose(before[name], expected, rtol=1e-5, atol=1e-5)
    same_bits(run(optimized(graph, STRUCTURAL), **animal.inputs), before)
    same_bits(run(optimized(graph, WRITTEN), **animal.inputs), before)
    close(run(optimized(graph, FROZEN), **animal.inputs), before)


def test_nothing_dead_is_left(animal: Animal) -> None:
    traced = animal.graph()
    for chain in (STRUCTURAL, EXPORTED, WRITTEN, FROZEN):
        graph, _ = optimize(traced, chain)
        read = {name for node in graph.nodes for name in node.inputs} | set(graph.roots("call"))
        assert all(any(tensor.id in read for tensor in node.outputs) for node in graph.nodes)
        assert read.issuperset(graph.weights)
        ops = [node for node in graph.nodes if isinstance(node, DeviceOp)]
        calls = {node.op for node in ops} & {"jit", "custom_jvp_call"}
        assert calls <= ({"custom_jvp_call"} if chain is STRUCTURAL else {"jit"} if chain is WRITTEN else set())
        named = {
            node.equation.params["name"] for node in graph.nodes if isinstance(node, DeviceOp) and node.op == "jit"
        }
        assert named <= {"repeated"}


def test_an_output_that_nobody_wants_costs_nothing() -> None:
    graph = ANIMALS["mlp"].graph()
    outputs = {"y": graph.signatures["call"]["y"]}
    (wanted, reports) = optimize(replace(graph, signatures={"call": outputs}), STRUCTURAL)
    assert reports[0].name == "prune"
    assert reports[0].removed["jit"] == 1
    assert "svd" not in {node.equation.params.get("name") for node in wanted.nodes if isinstance(node, DeviceOp)}


def test_preprocessing_is_shared_between_the_heads_of_a_joined_graph() -> None:
    animal = ANIMALS["joined"]
    graph, reports = optimize(animal.graph(), WRITTEN)
    names = [getattr(node, "op", "") for node in graph.nodes]
    assert names.count("stack") == names.count("concatenate") == 1
    assert names.count("dot_general") == 4
    assert sum(report.before - report.after for report in reports if report.name == "share") >= 57


def test_batch_norm_goes_into_both_convolutions() -> None:
    graph, reports = optimize(ANIMALS["cnn"].graph(), FROZEN)
    (folded,) = (report for report in reports if report.name == "fold_batch_norm")
    assert folded.removed["mul"] == folded.removed["sub"] == 2
    assert "rsqrt" not in {getattr(node, "op", "") for node in graph.nodes}
