"""What the graphs of the zoo cost, against XLA's own analysis of the compiled programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
from drivetrain.engine.graphs.cost import cost  # noqa: E402
from drivetrain.engine.passes import EXPORTED, optimize  # noqa: E402

from ..passes.graphs import traced  # noqa: E402
from ..zoo import Animal, zoo  # noqa: E402

pytestmark = pytest.mark.engine

ANIMALS = {animal.name: animal for animal in zoo()}
ROWS = 24
MATRICES = ("mlp", "wide_and_deep", "cnn", "transformer", "branches", "joined", "normalised")
LOOPS = {"rnn": 6, "gru": 6}  # XLA counts a loop's body once, we as often as it runs


def both(animal: Animal) -> tuple[Any, dict[str, float]]:
    """Our cost of the graph without equal work, and XLA's."""
    graph, _ = optimize(animal.graph(), EXPORTED)
    with jax.default_device(jax.devices("cpu")[0]):  # XLA counts nothing in what it gives to cuDNN
        compiled = jax.jit(animal.apply).lower(animal.params, dict(animal.inputs)).compile()
    return cost(graph, rows=ROWS), compiled.cost_analysis()


@pytest.mark.parametrize("name", MATRICES)
def test_what_multiplies_matrices_costs_what_xla_says(name: str) -> None:
    ours, theirs = both(ANIMALS[name])
    assert ours.exact
    assert ours.flops == pytest.approx(theirs["flops"], rel=0.1)
    assert ours.transcendentals == pytest.approx(theirs.get("transcendentals", 0), rel=0.1)


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_costs_its_turns_where_xla_counts_one(name: str) -> None:
    ours, theirs = both(ANIMALS[name])
    turns = LOOPS[name]
    assert ours.transcendentals == turns * theirs["transcendentals"]
    assert (turns - 1) * theirs["flops"] < ours.flops < turns * theirs["flops"]


@pytest.mark.parametrize("name", ["embedding_bag", "bags_by_segment"])
def test_gathers_and_scatters_cost_no_more_than_xla_says(name: str) -> None:
    """XLA counts the arithmetic of indices, and what it fuses into several readers as often as that."""
    ours, theirs = both(ANIMALS[name])
    assert 0.2 * theirs["flops"] < ours.flops < theirs["flops"]


def test_an_open_loop_is_counted_once_and_says_so() -> None:
    ours, theirs = both(ANIMALS["newton"])
    assert not ours.exact
    assert ours.flops == pytest.approx(theirs["flops"], rel=0.25)


@pytest.mark.parametrize(
    "settings",
    [
        {"window_strides": (2, 1), "padding": "SAME"},
        {"window_strides": (1, 1), "padding": "VALID"},
        {"window_strides": (1, 2), "padding": [(3, 1), (0, 2)], "rhs_dilation": (2, 1)},
        {"window_strides": (1, 1), "padding": [(2, 2), (2, 2)], "lhs_dilation": (2, 2)},
        {"window_strides": (1, 1), "padding": "SAME", "feature_group_count": 2},
    ],
)
def test_a_convolution_costs_exactly_what_xla_says(settings: dict[str, Any]) -> None:
    x = np.ones((8, 9, 9, 4), np.float32)
    w = np.ones((3, 3, 4 // settings.get("feature_group_count", 1), 6), np.float32)

    def fn(x: Any, w: Any) -> Any:
        return jax.lax.conv_general_dilated(x, w, dimension_numbers=("NHWC", "HWIO", "NHWC"), **settings)

    with jax.default_device(jax.devices("cpu")[0]):
        theirs = jax.jit(fn).lower(x, w).compile().cost_analysis()
    assert cost(traced(fn, {"w": w}, x=x), rows=8).flops == theirs["flops"]
