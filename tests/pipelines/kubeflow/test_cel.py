"""What is written in CEL against what is meant: a real evaluator and ours agree, or it is not written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from drivetrain.errors import InputError
from drivetrain.pipelines.ir.expressions import holds
from drivetrain.pipelines.kubeflow import cel as ours
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.kubeflow
cel = pytest.importorskip("cel")

PARAMETERS: dict[str, ours.Kind] = {
    "n": "number", "x": "number", "s": "string", "b": "bool", "items": "list", "names": "map",
}  # fmt: skip
PROPERTIES = ("p", "q")
NUMBERS = st.one_of(
    st.sampled_from([0, 1, -1, 2, 0.0, 1.0, 0.5, -0.5, 1e22, 1e-7]),
    st.integers(-(2**53), 2**53),
    st.floats(allow_nan=False, allow_infinity=False),
)
TEXTS = st.one_of(
    st.sampled_from(
        ["", "a", "it's", 'say "x"', "back\\slash", "two\nlines", "tab\t", "\r", "é", "😀", "\x00", "\u2028"]
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
)
SCALARS = st.one_of(NUMBERS, TEXTS, st.booleans(), st.none())
VALUES = st.one_of(SCALARS, st.lists(SCALARS, max_size=3), st.dictionaries(TEXTS, SCALARS, max_size=2))


class Given:
    """The values of one example."""

    def __init__(self, parameters: Mapping[str, Any], properties: Mapping[str, Any]) -> None:
        self.parameters, self.properties = parameters, properties

    def parameter(self, name: str) -> Any:
        return self.parameters[name]

    def property(self, node: str, output: str, name: str) -> Any:
        return self.properties[node]

    def collected(self, node: str, output: str, name: str) -> list[Any]:
        raise NotImplementedError

    def item(self, loop: str) -> Any:
        raise NotImplementedError

    def status(self, field: str) -> Any:
        raise NotImplementedError

    def skipped(self, node: str) -> bool:
        return False


OUTPUTS = st.sampled_from([{"$property": [name, "out", "value"]} for name in PROPERTIES])
NAMED = st.sampled_from([{"$param": name} for name in PARAMETERS])
PARTS = st.tuples(st.one_of(OUTPUTS, NAMED), st.one_of(st.integers(-1, 2), TEXTS)).map(lambda op: {"$op": ["get", *op]})
ANY = st.one_of(OUTPUTS, NAMED, PARTS, SCALARS, st.lists(SCALARS, max_size=3))
"""Values that seldom go together, so that most operations on them are left to the pod or fail."""
NUMERIC = st.one_of(st.sampled_from([{"$param": "n"}, {"$param": "x"}]), OUTPUTS, NUMBERS)
TEXTUAL = st.one_of(st.just({"$param": "s"}), OUTPUTS, TEXTS)


def _binary(names: list[str], one: st.SearchStrategy[Any], other: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.tuples(st.sampled_from(names), one, other).map(lambda op: {"$op": list(op)})


COMPARED = st.one_of(
    _binary(["eq", "ne", "lt", "le", "gt", "ge"], NUMERIC, NUMERIC),
    _binary(["eq", "ne", "lt", "le", "gt", "ge", "in"], TEXTUAL, TEXTUAL),
    _binary(["eq", "ne"], st.one_of(OUTPUTS, PARTS), st.one_of(SCALARS, st.lists(SCALARS, max_size=3))),
    _binary(["in"], st.one_of(OUTPUTS, NAMED, SCALARS), st.one_of(st.lists(SCALARS, max_size=4), NAMED)),
    _binary(["eq", "ne", "lt", "in", "and", "or"], ANY, ANY),
    st.just({"$param": "b"}),
)
EXPRESSIONS = st.recursive(
    COMPARED,
    lambda inner: st.one_of(_binary(["and", "or"], inner, inner), inner.map(lambda one: {"$op": ["not", one]})),
    max_leaves=6,
)
VALUATIONS = st.builds(
    Given,
    st.fixed_dictionaries(
        {
            "n": st.integers(-3, 3),
            "x": NUMBERS,
            "s": TEXTS,
            "b": st.booleans(),
            "items": st.lists(SCALARS, max_size=3),
            "names": st.dictionaries(TEXTS, SCALARS, max_size=2),
        }
    ),
    st.fixed_dictionaries(dict.fromkeys(PROPERTIES, VALUES)),
)


def as_protobuf(value: Any) -> Any:
    """A JSON value as KFP's driver gives it to CEL."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, (int, float)):
        return float(value)
    return {k: as_protobuf(v) for k, v in value.items()} if isinstance(value, dict) else [as_protobuf(v) for v in value]


def decided(text: str, parameters: Mapping[str, Any]) -> object:
    return cel.evaluate(text, {"inputs": {"parameter_values": {k: as_protobuf(v) for k, v in parameters.items()}}})


def said(*expressions: Any) -> str:
    return ours.condition(expressions, lambda node, output, name: f"{node}--{name}", PARAMETERS)


def compared(expression: Any, values: Given) -> str | None:
    """The condition, if CEL can say it and the launcher decides it; then with the answer that it must give."""
    try:
        text = said(expression)
    except ours.Untranslatable:
        event("left to the pod")
        return None
    try:
        wanted = holds(expression, values)
    except InputError:
        event("the node fails")
        return None
    given = {**values.parameters, **{f"{name}--value": [value] for name, value in values.properties.items()}}
    try:
        assert decided(text, given) is wanted, text
    except (TypeError, ValueError, IndexError, KeyError, RuntimeError) as error:
        event("CEL fails")
        return f"{text}: {error}"
    event("compared")
    return None


@settings(max_examples=250)
@given(EXPRESSIONS, VALUATIONS)
@example({"$op": ["eq", {"$property": ["p", "out", "value"]}, 1]}, Given({}, {"p": True}))
@example({"$op": ["in", {"$property": ["p", "out", "value"]}, [True, "a"]]}, Given({}, {"p": 1}))
@example({"$op": ["eq", {"$param": "s"}, 'it\'s \\ \n"é😀"']}, Given({"s": 'it\'s \\ \n"é😀"'}, {}))
@example({"$op": ["and", {"$op": ["or", {"$param": "b"}, True]}, {"$param": "b"}]}, Given({"b": False}, {}))
def test_cel_never_gives_another_answer(expression: Any, values: Given) -> None:
    # Values that the DSL does not compare (`True < 2`) may fail in CEL, and so aloud; never decide otherwise.
    compared(expression, values)


TYPED = st.recursive(
    st.one_of(
        _binary(
            ["eq", "ne", "lt", "le", "gt", "ge"],
            NUMERIC.filter(lambda one: one != {"$property": ["q", "out", "value"]}),
            NUMBERS,
        ),
        _binary(
            ["eq", "ne", "lt", "le", "gt", "ge", "in"],
            TEXTUAL.filter(lambda one: one != {"$property": ["p", "out", "value"]}),
            TEXTS,
        ),
        _binary(
            ["in"], st.just({"$property": ["q", "out", "value"]}), st.one_of(st.lists(TEXTS), st.just({"$param": "s"}))
        ),
        st.just({"$param": "b"}),
    ),
    lambda inner: st.one_of(_binary(["and", "or"], inner, inner), inner.map(lambda one: {"$op": ["not", one]})),
    max_leaves=6,
)


@given(TYPED, VALUATIONS, NUMBERS, TEXTS)
def test_cel_decides_what_is_compared_with_its_like(expression: Any, values: Given, p: float, q: str) -> None:
    assert compared(expression, Given(values.parameters, {"p": p, "q": q})) is None


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ({"$param": "b"}, "inputs.parameter_values['b']"),
        ({"$op": ["gt", {"$param": "n"}, 2]}, "inputs.parameter_values['n'] > 2.0"),
        ({"$op": ["eq", {"$param": "s"}, "it's"]}, r"inputs.parameter_values['s'] == 'it\'s'"),
        ({"$op": ["in", "a", {"$param": "items"}]}, "'a' in inputs.parameter_values['items']"),
        ({"$op": ["in", {"$param": "s"}, "abc"]}, "'abc'.contains(inputs.parameter_values['s'])"),
        (
            {"$op": ["ge", {"$property": ["Count", "value", "value"]}, 0.8]},
            "size(inputs.parameter_values['Count--value']) == 1 && inputs.parameter_values['Count--value'][0] >= 0.8",
        ),
    ],
)
def test_how_it_reads(expression: Any, text: str) -> None:
    assert said(expression) == text


@pytest.mark.parametrize(
    "expression",
    [
        {"$item": "loop"},
        {"$collect": ["p", "out", "value"]},
        {"$optional": {"$property": ["p", "out", "value"]}},
        {"$one_of": [{"$property": ["p", "out", "value"]}]},
        {"$status": "state"},
        {"$param": "may be none"},
        {"$op": ["eq", {"$param": "n"}, 2**53 + 1]},
        {"$op": ["eq", {"$property": ["p", "out", "value"]}, {"$property": ["q", "out", "value"]}]},
        {"$op": ["eq", {"$op": ["get", {"$param": "items"}, -1]}, "last"]},
        {"$op": ["eq", {"$param": "s"}, "\ud800"]},
        {"$op": ["lt", {"$param": "items"}, [1]]},
        {"$op": ["and", 1, {"$param": "b"}]},
        {"$param": "n"},
    ],
)
def test_what_cel_cannot_say_is_left_to_the_pod(expression: Any) -> None:
    with pytest.raises(ours.Untranslatable):
        said(expression)


def test_what_was_not_published_holds_the_task_back() -> None:
    text = said({"$op": ["ne", {"$property": ["p", "out", "value"]}, "x"]})
    assert decided(text, {"p--value": ["y"]}) is True
    assert decided(text, {"p--value": []}) is False
