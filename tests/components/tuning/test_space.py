"""Search spaces: what they refuse, what a grid of them is, and what exists beside what."""

from __future__ import annotations

import itertools
import json
import math
import warnings
from typing import Any

import drivetrain as dt
import pytest
from drivetrain.components.tuning.space import SearchSpace, contains, described, is_active, last_of
from drivetrain.errors import InputError
from hypothesis import given as for_all
from hypothesis import strategies as st


def test_domains_are_json_that_comes_back() -> None:
    space = {
        "rate": dt.log_uniform(1e-4, 0.1),
        "units": dt.integers(16, 128, step=16),
        "optimizer": dt.choice("adam", "sgd"),
        "momentum": dt.uniform(0.0, 0.9, only_if={"optimizer": "sgd"}),
        "layers": dt.choice([64], [64, 32], None),
    }
    again = json.loads(json.dumps(space))
    assert SearchSpace.read(again).domains == SearchSpace.read(space).domains
    assert again["momentum"]["only_if"] == {"optimizer": ["sgd"]}


def test_a_domain_may_be_written_by_hand() -> None:
    by_hand: Any = {
        "units": {"kind": "integer", "low": 1, "high": 3, "only_if": {"deep": True}},
        "deep": {"kind": "choice", "values": [True, False]},
        "rate": {"kind": "float", "low": 0.0, "high": 1.0},
    }
    ours = {
        "units": dt.integers(1, 3, only_if={"deep": True}),
        "deep": dt.choice(True, False),
        "rate": dt.uniform(0.0, 1.0),
    }
    assert SearchSpace.read(by_hand).domains == SearchSpace.read(ours).domains


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: dt.uniform(1, 1), "the range from 1 to 1 is empty"),
        (lambda: dt.uniform(2, 1), "the range from 2 to 1 is empty"),
        (lambda: dt.uniform(0, math.inf), "inf is no bound"),
        (lambda: dt.uniform(0, 1, step=0.3), "steps of 0.3 do not lead from 0 to 1"),
        (lambda: dt.uniform(0, 1, step=0), "the step 0 leads nowhere"),
        (lambda: dt.log_uniform(0, 1), "a logarithmic range cannot begin at 0"),
        (lambda: dt.integers(0.5, 3), "0.5 is no bound of a range of integers"),  # type: ignore[arg-type]
        (lambda: dt.integers(True, 3), "True is no bound"),
        (lambda: dt.integers(1, 9, step=2, log=True), "a logarithmic range has no step"),
        (lambda: dt.choice("adam"), "a choice has two values or more"),
        (lambda: dt.choice("adam", "adam"), "a choice names a value twice"),
        (lambda: dt.choice("adam", object()), "not JSON"),
        (lambda: dt.uniform(-1e308, 1e308), r"-1e\+308 is no bound of a range of floats"),
        (lambda: dt.uniform(math.nan, 1), "nan is no bound"),
        (lambda: dt.integers(0, 2**53 + 1), "9007199254740993 is no bound of a range of integers"),
        (lambda: dt.integers(0, 5, step=10**400), "is no bound of a range of integers"),
    ],
)
def test_what_is_no_domain_is_refused(make: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        make()


@pytest.mark.parametrize(
    ("space", "says"),
    [
        ({}, "the search space is empty"),
        ({"rate": 0.1}, "'rate': 0.1 is no domain"),
        ({"rate": {"kind": []}}, "'rate': {'kind': []} is no domain"),
        ({"rate": {"kind": "float", "low": 0, "high": 1, "only_if": 5}}, "'rate': only_if is 5"),
        ({"rate": {"kind": "float", "low": 1.0, "high": 0.5}}, "'rate': the range from 1.0 to 0.5 is empty"),
        ({"m": dt.uniform(0, 1, only_if={"optimiser": 1}), "optimizer": dt.choice(1, 2)}, "did you mean 'optimizer'"),
        ({"m": dt.uniform(0, 1, only_if={"o": "c"}), "o": dt.choice("a", "b")}, "'o' being 'c', which it cannot be"),
        (
            {"a": dt.choice(1, 2, only_if={"b": 1}), "b": dt.choice(1, 2, only_if={"a": 1})},
            "'a', 'b' depend on each other in a circle",
        ),
    ],
)
def test_a_space_that_cannot_be_is_refused_by_name(space: Any, says: str) -> None:
    with pytest.raises(InputError) as error:
        SearchSpace.read(space)
    assert says in str(error.value)


def test_equal_numbers_of_other_types_are_other_choices() -> None:
    space = SearchSpace.read({"flag": dt.choice(True, 1, "1", None)})
    assert [point["flag"] for point in space.grid] == [True, 1, "1", None]
    assert space.problem_of({"flag": 1.0}) is not None


def test_a_grid_is_the_product_of_its_values() -> None:
    space = SearchSpace.read(
        {"rate": dt.uniform(0.1, 0.3, step=0.1), "units": dt.integers(2, 6, step=2), "kind": dt.choice("a", "b")}
    )
    expected = [
        {"rate": rate, "units": units, "kind": kind}
        for rate, units, kind in itertools.product([0.1, 0.2, 0.3], [2, 4, 6], ["a", "b"])
    ]
    assert space.grid == expected
    assert all(space.problem_of(point) is None for point in space.grid)


def test_a_grid_holds_what_depends_on_another_where_it_exists() -> None:
    space = SearchSpace.read(
        {"momentum": dt.choice(0.0, 0.9, only_if={"optimizer": ["sgd"]}), "optimizer": dt.choice("adam", "sgd")}
    )
    assert space.grid == [
        {"optimizer": "adam"},
        {"optimizer": "sgd", "momentum": 0.0},
        {"optimizer": "sgd", "momentum": 0.9},
    ]
    assert space.problem_of({"optimizer": "adam", "momentum": 0.9}) == "'momentum' does not exist beside the others"
    assert space.problem_of({"optimizer": "sgd"}) == "'momentum' is missing"


def test_what_a_grid_cannot_hold_is_refused() -> None:
    with pytest.raises(InputError, match="cannot hold the hyperparameter 'rate', whose range is continuous"):
        _ = SearchSpace.read({"rate": dt.log_uniform(1e-3, 1)}).grid
    with pytest.raises(InputError, match="more than 1,000,000 points"):
        _ = SearchSpace.read({"a": dt.integers(1, 2000), "b": dt.integers(1, 2000)}).grid


@for_all(st.integers(-50, 50), st.integers(1, 40), st.integers(1, 7), st.integers(-200, 400))
def test_integers_hold_what_range_holds(low: int, steps: int, step: int, value: int) -> None:
    high = low + steps * step
    space = SearchSpace.read({"n": dt.integers(low, high, step=step)})
    expected = range(low, high + 1, step)
    assert [point["n"] for point in space.grid] == list(expected)
    assert (space.problem_of({"n": value}) is None) == (value in expected)


def test_drawing_asks_for_what_exists_alone() -> None:
    space = SearchSpace.read(
        {"deep": dt.choice(1, 2, only_if={"momentum": 0.9}),
         "momentum": dt.choice(0.0, 0.9, only_if={"optimizer": "sgd"}), "optimizer": dt.choice("adam", "sgd")}
    )  # fmt: skip
    assert list(space.domains) == ["optimizer", "momentum", "deep"]
    first = space.draw(lambda name, domain: domain["values"][0])
    assert first == {"optimizer": "adam"}
    last = space.draw(lambda name, domain: domain["values"][-1])
    assert last == {"optimizer": "sgd", "momentum": 0.9, "deep": 2}
    assert not is_active(space.domains["deep"], first)


def test_hyperparameters_in_a_line() -> None:
    assert described({"rate": 0.0123456, "units": 64, "kind": "adam"}) == "rate 0.01235, units 64, kind adam"
    assert described({str(number): number for number in range(9)}).endswith("5 5, …")


def test_what_depends_on_a_number_exists_where_the_number_is_equal() -> None:
    space = {"a": dt.uniform(0, 1, step=0.5), "b": dt.choice("x", "y", only_if={"a": 1})}
    grid = SearchSpace.read(space).grid
    assert grid == [{"a": 0.0}, {"a": 0.5}, {"a": 1.0, "b": "x"}, {"a": 1.0, "b": "y"}]


@for_all(low=st.floats(-10, 10), step=st.floats(1e-3, 5), steps=st.integers(1, 40))
def test_optuna_has_every_step_to_the_last(low: float, step: float, steps: int) -> None:
    """Its own check of a range, and what it then draws; ours of a value lets all of them pass."""
    domain = dt.uniform(low, low + steps * step, step=step)
    distributions = pytest.importorskip("optuna.distributions")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        distribution = distributions.FloatDistribution(low, last_of(domain), step=step)
    assert round((distribution.high - low) / step) == steps
    assert all(contains(domain, low + number * step) for number in range(steps + 1))
    assert contains(domain, distribution.high)
    assert not contains(domain, low + (steps + 1) * step)
    assert not contains(domain, low + step / 2)
