"""Triggers by what is in the store, and by files."""

from __future__ import annotations

import math
from datetime import timedelta

import pytest
from drivetrain.errors import InputError
from drivetrain.metadata import Model
from drivetrain.pipelines.triggers import After, Drift, Failed, MetricDrop, NewArtifact, NewRows, NewSpan, Trigger
from drivetrain.pipelines.triggers.trigger import EndedRun
from hypothesis import given
from hypothesis import strategies as st

from .views import BEGIN, HandMadeView, Watcher, artifact


@pytest.mark.parametrize(
    ("trigger", "due_at"),
    [
        (NewArtifact(Model), [20, 30]),
        (NewArtifact("Model", pipeline="shop"), [20]),
        (NewArtifact("Model", pipeline="shop", made_by="Train"), []),
        (NewArtifact("Examples"), []),
    ],
)
def test_an_artifact_of_a_type_and_a_maker(trigger: Trigger, due_at: list[int]) -> None:
    published = [
        artifact(1, "Model", -10),
        artifact(2, "Model", 15),
        artifact(3, "Model", 25),
        artifact(4, "Other", 35),
    ]
    watcher = Watcher(trigger, HandMadeView(published=published, makers={3: ("other", "Make")}))
    assert [at for at in (10, 20, 21, 30, 40) if watcher.look(at).due] == due_at


@pytest.mark.parametrize(("features", "due_at"), [((), [20, 40]), (("fare",), [40]), (("age",), [20])])
def test_features_that_drifted(features: tuple[str, ...], due_at: list[int]) -> None:
    published = [
        artifact(1, "Anomalies", 5),  # of an earlier release: it does not say
        artifact(2, "Anomalies", 15, drifted=["age"]),
        artifact(3, "Anomalies", 25, drifted=[]),
        artifact(4, "Anomalies", 35, drifted=["fare"]),
        artifact(5, "Anomalies", 36, drifted=[]),
    ]
    watcher = Watcher(Drift(features=features), HandMadeView(published=published))
    signals = {at: watcher.look(at) for at in (10, 20, 30, 40, 50)}
    assert [at for at, signal in signals.items() if signal.due] == due_at
    assert f"{features[0] if features else 'fare'} drifted" in signals[due_at[-1]].reason


@pytest.mark.parametrize(
    ("bounds", "due_at"),
    [
        ({"below": 0.75}, [30]),
        ({"by": 0.05}, [30]),
        ({"by": 0.2}, []),
        ({"above": 0.85}, [40]),
        ({"below": 0.8}, [20, 30]),
    ],
)
def test_a_metric_that_got_worse(bounds: dict[str, float], due_at: list[int]) -> None:
    values = {1: (5, 0.8), 2: (15, 0.79), 3: (25, 0.7), 4: (35, 0.9), 5: (36, math.nan)}
    published = [artifact(n, "Evaluation", at, metrics={"auc": value}) for n, (at, value) in values.items()]
    published.append(artifact(6, "Evaluation", 45, metrics={"rmse": 0.1}))
    watcher = Watcher(MetricDrop("auc", **bounds), HandMadeView(published=published))  # type: ignore[arg-type]
    signals = {at: watcher.look(at) for at in (10, 20, 30, 40, 50)}
    assert [at for at, signal in signals.items() if signal.due] == due_at
    if due_at == [30]:
        assert "auc is 0.7, " in signals[30].reason


def test_a_fall_between_two_looks_is_seen() -> None:
    """Of two evaluations that came together, the second alone is lower than the one before it."""
    view = HandMadeView(published=[artifact(1, "Evaluation", 5, metrics={"auc": 0.8})])
    watcher = Watcher(MetricDrop("auc", by=0.05), view)
    assert not watcher.look(6).due
    view.published += [
        artifact(2, "Evaluation", 7, metrics={"auc": 0.9}),
        artifact(3, "Evaluation", 8, metrics={"auc": 0.82}),
    ]
    assert "0.08 lower than before" in watcher.look(9).reason
    assert not watcher.look(10).due


@pytest.mark.parametrize("looks", [(6, 8, 10), (6, 10), (10,)])
def test_a_fall_is_seen_past_an_evaluation_without_the_metric(looks: tuple[int, ...]) -> None:
    """However often it was looked at meanwhile."""
    values = {1: (5, {"auc": 0.9}), 2: (7, {"rmse": 0.1}), 3: (9, {"auc": 0.7})}
    published = [artifact(n, "Evaluation", at, metrics=metrics) for n, (at, metrics) in values.items()]
    watcher = Watcher(MetricDrop("auc", by=0.05), HandMadeView(published=published))
    assert [watcher.look(at).due for at in looks] == [False] * (len(looks) - 1) + [True]


def test_runs_that_ended() -> None:
    states = {-5: "COMPLETE", 15: "FAILED", 25: "COMPLETE", 26: "COMPLETE", 35: "STOPPED"}
    ends = [("shop", EndedRun(f"r{at}", state, BEGIN + timedelta(minutes=at))) for at, state in states.items()]
    view = HandMadeView(ends=[*ends, ("other", EndedRun("o", "COMPLETE", BEGIN + timedelta(minutes=45)))])
    for trigger, due_at in ((After("shop"), [30]), (Failed("shop"), [20]), (After("shop", "STOPPED"), [40])):
        watcher = Watcher(trigger, view)
        signals = {at: watcher.look(at) for at in (10, 20, 30, 40, 50)}
        assert [at for at, signal in signals.items() if signal.due] == due_at
    assert "run r35 ended STOPPED" in signals[40].reason


@given(
    st.sampled_from([st.none(), st.integers(0, 3)]).flatmap(
        lambda versions: st.lists(st.tuples(st.integers(0, 400), versions), max_size=40)
    ),
    st.integers(1, 5),
)
def test_each_span_and_version_starts_one_run(files: list[tuple[int, int | None]], step: int) -> None:
    view = HandMadeView()
    watcher = Watcher(NewSpan("data/{SPAN}/{VERSION}.csv"), view)
    known: dict[int, int | None] = {}
    for at, (span, version) in enumerate(files):
        view.files.append((BEGIN, span, version))
        seen = known.get(span)
        new = span not in known or (version is not None and (seen is None or version > seen))
        if new:
            known[span] = version
        if at % step == 0 and step == 1:
            assert watcher.look(at).due == new
    watcher.look(1000)
    assert not watcher.look(1001).due
    view.files.clear()  # a disk that is away
    assert not watcher.look(1002).due
    view.files += [(BEGIN, span, version) for span, version in known.items()]
    assert not watcher.look(1003).due


def test_another_answer_of_a_database() -> None:
    answers = [(BEGIN + timedelta(minutes=at), answer) for at, answer in ((5, None), (15, "7"), (16, "9"), (25, "9"))]
    watcher = Watcher(NewRows("SELECT max(id) FROM t", "env:SHOP"), HandMadeView(answers=answers))
    signals = {at: watcher.look(at) for at in (6, 10, 20, 30)}
    assert [at for at, signal in signals.items() if signal.due] == [6, 20]
    assert signals[6].reason.endswith("the answer is NULL")
    assert signals[20].reason.endswith("the answer is 9")
    with pytest.raises(InputError, match="holds a password"):
        NewRows("SELECT 1", "postgresql://ann:pw@db/x")


def test_a_year_of_days_is_one_entry_of_what_is_remembered() -> None:
    view = HandMadeView(files=[(BEGIN, span, 1) for span in range(20000, 20365)])
    watcher = Watcher(NewSpan("data/{SPAN}/{VERSION}.csv"), view)
    assert list(watcher.marks.values()) == [[[20000, 20364, 1]]]
