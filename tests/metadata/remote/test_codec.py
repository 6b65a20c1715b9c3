"""What crosses between a store and who asks it is the same on both sides, and nothing else is built of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from drivetrain.errors import InputError
from drivetrain.metadata import ArtifactRecord, ContextRecord, ExecutionRecord, Owner, StagedArtifact
from drivetrain.metadata.finding import Page, RecordQuery
from drivetrain.metadata.operations import OPERATIONS
from drivetrain.metadata.records import Claim, LineageEdge, LineageGraph
from drivetrain.metadata.registry import RegisteredModel
from drivetrain.metadata.remote.codec import decoder, encoder, signature_of
from drivetrain.metadata.remote.service import StoreService
from hypothesis import given, settings
from hypothesis import strategies as st

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
NUMBERS = st.integers(-(2**63), 2**63 - 1)
TIMES = st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1)).map(lambda time: time.replace(tzinfo=UTC))
OWNERS = st.builds(Owner, TEXTS, TEXTS, NUMBERS, TEXTS)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=10,
)
PROPERTIES = st.dictionaries(TEXTS, JSON, max_size=4)
STATES = st.sampled_from(["LIVE", "DELETED"])
ARTIFACTS = st.builds(
    ArtifactRecord, NUMBERS, TEXTS, TEXTS, st.none() | TEXTS, TEXTS, TEXTS, NUMBERS, STATES, st.none() | NUMBERS,
    PROPERTIES, NUMBERS, TIMES, TIMES,
)  # fmt: skip
EXECUTIONS = st.builds(
    ExecutionRecord, NUMBERS, TEXTS, TEXTS, st.none() | TEXTS, st.none() | TEXTS, st.just("RUNNING"),
    st.none() | NUMBERS, PROPERTIES, st.none() | TEXTS, st.none() | OWNERS, NUMBERS, TIMES, st.none() | TIMES,
    st.none() | TIMES, TIMES,
)  # fmt: skip
CONTEXTS = st.builds(ContextRecord, NUMBERS, TEXTS, TEXTS, TEXTS, PROPERTIES, NUMBERS, TIMES, TIMES)
EDGES = st.builds(LineageEdge, NUMBERS, st.sampled_from(["INPUT", "OUTPUT"]), TEXTS, NUMBERS, NUMBERS)
CASES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (list[ContextRecord], st.lists(CONTEXTS, max_size=3)),
    (dict[str, list[ArtifactRecord]], st.dictionaries(TEXTS, st.lists(ARTIFACTS, max_size=2), max_size=2)),
    (ArtifactRecord | ExecutionRecord, ARTIFACTS | EXECUTIONS),
    (ExecutionRecord | None, st.none() | EXECUTIONS),
    (int | str, NUMBERS | TEXTS),
    (dict[int, datetime], st.dictionaries(NUMBERS, TIMES, max_size=4)),
    (set[int], st.sets(NUMBERS)),
    (Page[ArtifactRecord], st.builds(Page, st.lists(ARTIFACTS, max_size=2), st.none() | TEXTS)),
    (Claim, st.builds(Claim, TEXTS, OWNERS, NUMBERS, TIMES, st.floats(0.1, 1e6), st.none() | OWNERS)),
    (
        LineageGraph,
        st.builds(
            LineageGraph,
            st.dictionaries(NUMBERS, ARTIFACTS, max_size=2),
            st.dictionaries(NUMBERS, EXECUTIONS, max_size=2),
            st.lists(EDGES, max_size=3).map(tuple),
        ),
    ),
]


@settings(deadline=None, max_examples=40)
@given(st.data())
@pytest.mark.parametrize(("hint", "values"), CASES, ids=[str(hint)[-40:] for hint, _ in CASES])
def test_a_value_comes_back_as_it_was(hint: Any, values: st.SearchStrategy[Any], data: st.DataObject) -> None:
    value = data.draw(values)
    text = json.dumps(encoder(hint)(value), allow_nan=False)
    assert decoder(hint)(json.loads(text)) == value


def test_every_operation_can_be_sent() -> None:
    """A parameter or a result of a type that has no JSON would be found out only by who asks for it."""
    assert StoreService is not None  # its module imports those of all operations
    assert {"publish", "registry.set_alias", "audit.verify", "runs.imported_executions"} <= OPERATIONS.keys()
    for operation in OPERATIONS.values():
        signature = signature_of(operation.function)
        for hint in (*signature._hints.values(), signature._result):
            assert callable(encoder(hint, strict=True))
            assert callable(decoder(hint))


def test_what_reports_progress_is_not_sent() -> None:
    signature = signature_of(OPERATIONS["audit.verify"].function)
    assert signature.arguments_to_json((None,), {"progress": print}) == {"known": None}


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (int, True),
        (int, 1.0),
        (int, 2**63),
        (int, "1"),
        (str, 1),
        (bool, 1),
        (float, "nan"),
        (datetime, "2026-11-28"),
        (Owner, {"host": "h"}),
        (Owner, ["h", "b", 1, "s"]),
        (ContextRecord, {"id": 1}),
        (list[int], {"0": 1}),
        (dict[int, int], {"1": 1}),
        (tuple[int, ...], "12"),
        (int | None, "x"),
        (ArtifactRecord | ExecutionRecord, {"Owner": {}}),
        (Mapping[str, int], []),
    ],
)
def test_a_value_of_another_type_is_refused(hint: Any, value: object) -> None:
    with pytest.raises((ValueError, TypeError, LookupError)):
        decoder(hint)(value)


@pytest.mark.parametrize("value", [{1: "a"}, {"a": float("nan")}, {"a": object()}, {"a": "\ud800"}, {"a": 2**63}])
def test_properties_that_are_no_json_are_refused_before_they_are_sent(value: Any) -> None:
    signature = signature_of(OPERATIONS["start"].function)
    with pytest.raises(InputError):
        signature.arguments_to_json(("Make",), {"properties": value})


def test_an_iterator_is_sent_as_a_list_and_a_tuple_in_properties_too() -> None:
    numbers: Callable[..., Any] = lambda store, numbers: None  # noqa: E731 - the hints are set below
    numbers.__annotations__ = {"numbers": Iterable[int], "return": type(None)}
    assert signature_of(numbers).arguments_to_json((iter([1, 2]),), {}) == {"numbers": [1, 2]}
    staged = StagedArtifact("T", "artifacts/a", "f", 1, {"shape": (1, 2)})
    assert encoder(StagedArtifact, strict=True)(staged)["properties"] == {"shape": [1, 2]}


def test_a_query_keeps_its_defaults() -> None:
    assert decoder(RecordQuery)({}) == RecordQuery()
    assert decoder(RegisteredModel)({"name": "flights"}) == RegisteredModel("flights")
