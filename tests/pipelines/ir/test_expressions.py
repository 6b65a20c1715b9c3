"""An expression as it is spelled in reasons and drawings means to Python what it means to the runner."""

from __future__ import annotations

from typing import Any

import pytest
from drivetrain.errors import InputError
from drivetrain.pipelines.ir.expressions import evaluate, spelled
from hypothesis import given
from hypothesis import strategies as st

NUMBERS = st.one_of(
    st.integers(-2, 2),
    st.sampled_from([{"$param": "a"}, {"$param": "b"}, {"$op": ["get", {"$param": "items"}, "one"]}]),
)
COMPARED = st.tuples(st.sampled_from(["eq", "ne", "lt", "le", "gt", "ge"]), NUMBERS, NUMBERS)


def _deeper(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=2, max_size=3)
    said = st.one_of(
        inner.map(lambda one: ["not", one]),
        several.map(lambda all_: ["and", *all_]),
        several.map(lambda all_: ["or", *all_]),
        st.tuples(st.sampled_from(["eq", "ne"]), inner, inner).map(list),
    )
    return said.map(lambda op: {"$op": op})


CONDITIONS = st.recursive(COMPARED.map(lambda op: {"$op": list(op)}), _deeper, max_leaves=8)


class Given:
    """Parameters, and nothing else."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values

    def parameter(self, name: str) -> Any:
        return self.values[name]


@given(CONDITIONS, st.integers(-2, 2), st.integers(-2, 2), st.integers(-2, 2))
def test_python_reads_it_the_same(condition: Any, a: int, b: int, one: int) -> None:
    values = {"a": a, "b": b, "items": {"one": one}}
    text = spelled(condition)
    assert eval(text, {"__builtins__": {}}, values) == evaluate(condition, Given(values))  # type: ignore[arg-type]


def test_it_reads_well() -> None:
    small = {"$op": ["le", {"$property": ["Best", "loss", "value"]}, {"$param": "good"}]}
    assert spelled({"$op": ["not", small]}) == "not (Best.loss <= good)"
    assert spelled({"$op": ["and", small, {"$op": ["not", {"$param": "off"}]}]}) == "Best.loss <= good and not off"
    assert spelled({"$op": ["and", small, {"$op": ["or", small, small]}]}).endswith(
        "and (Best.loss <= good or Best.loss <= good)"
    )


def test_an_item_that_is_not_there_is_told_with_the_near_one() -> None:
    metrics = {"$op": ["get", {"$param": "metrics"}, "rmsee"]}
    with pytest.raises(InputError, match=r"^metrics has no item 'rmsee'") as caught:
        evaluate({"$op": ["lt", metrics, 3]}, Given({"metrics": {"mae": 1.0, "rmse": 2.0}}))  # type: ignore[arg-type]
    assert caught.value.fix == "did you mean 'rmse'?"
