"""What is known at submit stands in expressions: they say the same as before, of less."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from drivetrain.pipelines.ir.expressions import dependencies, evaluate
from drivetrain.pipelines.kubeflow.reuse import _KnownResults
from hypothesis import given
from hypothesis import strategies as st


@dataclass(frozen=True)
class _Values:
    """Two nodes have ended, one of them skipped perhaps; two are still to come."""

    gone: frozenset[str]
    numbers: dict[str, int]

    def parameter(self, name: str) -> int:
        return 4

    def property(self, node: str, output: str, name: str) -> int:
        assert node not in self.gone, "what was skipped has no value"
        return self.numbers[node]

    def collected(self, node: str, output: str, name: str) -> list[int]:
        return [] if node in self.gone else [self.numbers[node]] * 2

    def item(self, loop: str) -> int:
        return 2

    def status(self, field: str) -> str:
        return "COMPLETE"

    def skipped(self, node: str) -> bool:
        return node in self.gone


ENDED = frozenset({"A", "B"})


def _of(node: str) -> dict[str, Any]:
    return {"$property": [node, "value", "value"]}


def _expressions(gone: frozenset[str]) -> st.SearchStrategy[Any]:
    """Numbers and truths; what was skipped is named only where it may be missing."""
    there = [_of(node) for node in "ABCD" if node not in gone]
    choices = st.lists(st.sampled_from([_of(node) for node in "ABCD"]), min_size=1, max_size=3).filter(
        lambda each: any(one in there for one in each)
    )
    numbers = (
        st.integers(0, 6)
        | st.sampled_from([*there, {"$param": "p"}, {"$item": "loop"}])
        | choices.map(lambda each: {"$one_of": each})
    )
    missing = st.sampled_from("ABCD").map(lambda node: {"$optional": _of(node)})
    compared = st.tuples(st.sampled_from(["eq", "lt", "ge"]), numbers, numbers).map(lambda each: {"$op": list(each)})
    absent = missing.map(lambda each: {"$op": ["eq", each, None]})
    held = numbers.map(lambda each: {"$op": ["in", each, {"$collect": ["A", "value", "value"]}]})
    truths = compared | absent | held | st.booleans()
    return st.recursive(
        truths,
        lambda inner: (
            st.tuples(st.sampled_from(["and", "or"]), inner, inner).map(lambda each: {"$op": list(each)})
            | inner.map(lambda each: {"$op": ["not", each]})
        ),
        max_leaves=6,
    )


GONE = st.frozensets(st.sampled_from("AC"))


@pytest.mark.slow
@given(GONE.flatmap(lambda gone: st.tuples(st.just(gone), _expressions(gone))))
def test_an_expression_says_the_same_without_what_has_ended(given: tuple[frozenset[str], Any]) -> None:
    gone, expression = given
    values = _Values(gone, {"A": 1, "B": 3, "C": 5, "D": 2})
    left = _KnownResults(values, ENDED).value(expression)
    assert evaluate(left, values) == evaluate(expression, values)
    assert not {need.node for need in dependencies(left)} & ENDED


@given(
    st.recursive(
        st.integers() | st.text(max_size=3) | st.none(),
        lambda inner: st.dictionaries(st.text(max_size=3), inner) | st.lists(inner),
        max_leaves=6,
    )
)
def test_any_value_can_stand_for_what_gave_it(value: Any) -> None:
    class One(_Values):
        def property(self, node: str, output: str, name: str) -> Any:
            return value

    values = One(frozenset(), {})
    assert evaluate(_KnownResults(values, ENDED).value(_of("A")), values) == value
