"""What triggers say together: and, or, debounce, cooldown; and that none loses or doubles what came."""

from __future__ import annotations

from datetime import timedelta

import pytest
from drivetrain.errors import BuildError, InputError
from drivetrain.pipelines.triggers import (
    After,
    Cron,
    Drift,
    Every,
    Failed,
    MetricDrop,
    NewArtifact,
    NewRows,
    NewSpan,
    Schedule,
    Trigger,
)  # fmt: skip
from drivetrain.pipelines.triggers.reading import read_schedule, read_trigger
from hypothesis import given
from hypothesis import strategies as st

from .views import BEGIN, HandMadeView, Watcher, artifact

SPANS = NewSpan("data/{SPAN}.csv")
LEAVES = st.sampled_from([
    Cron("0 3 * * *", tz="Europe/Oslo"), Every("6h", catch_up="all"), SPANS, NewArtifact("Model", pipeline="shop"),
    Drift(features=("age", "fare")), MetricDrop("auc", below=0.7), After("shop"), Failed("shop"),
    NewRows("SELECT max(id) FROM t", "env:SHOP", poll="1h"),
])  # fmt: skip
TRIGGERS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: pair[0] & pair[1]),
        st.tuples(inner, inner).map(lambda pair: pair[0] | pair[1]),
        inner.map(lambda trigger: trigger.debounce("10m")),
        inner.map(lambda trigger: trigger.cooldown("1d12h")),
    ),
    max_leaves=6,
)


@given(TRIGGERS)
def test_a_trigger_comes_back_from_json_and_reads_as_it_was_written(trigger: Trigger) -> None:
    assert read_trigger(trigger.to_json()) == trigger
    kinds = (Cron, Every, NewSpan, NewArtifact, NewRows, Drift, MetricDrop, After, Failed)
    names = {kind.__name__: kind for kind in kinds}
    assert eval(str(trigger), names) == trigger
    schedule = Schedule(trigger, {"rows": 3}, max_active=2, version="pin", runner="process")
    assert read_schedule(schedule.to_json()) == schedule


def test_the_json_of_a_trigger_stays_as_it_is() -> None:
    """It names what triggers remember: another spelling would forget it."""
    assert (Cron("0 3 * * *", tz="Europe/Oslo") & SPANS.debounce("10m")).key == (
        '{"$trigger":"AllOf","triggers":[{"$trigger":"Cron","fields":"0 3 * * *","tz":"Europe/Oslo"},'
        '{"$trigger":"Debounce","quiet":600,"trigger":{"$trigger":"NewSpan","pattern":"data/{SPAN}.csv"}}]}'
    )


@pytest.mark.parametrize(
    "body",
    [
        {"$trigger": "Magic"},
        {"$trigger": "Cron"},
        {"$trigger": "Cron", "fields": "x"},
        {"$trigger": "Every", "period": "1h", "new": 1},
        {},
        3,
    ],
)
def test_what_is_no_trigger_is_refused(body: object) -> None:
    with pytest.raises(BuildError):
        read_trigger(body)
    with pytest.raises(BuildError):
        read_schedule({"trigger": body})


def test_a_feature_that_is_named_alone() -> None:
    assert Drift(features="fare") == Drift(features=["fare"]) == Drift(features=("fare",))


def test_a_schedule_refuses_what_makes_no_sense() -> None:
    with pytest.raises(BuildError, match="is not a trigger"):
        Schedule("0 3 * * *")  # type: ignore[arg-type]
    with pytest.raises(BuildError, match="is not a trigger"):
        SPANS & "0 3 * * *"  # type: ignore[operator]
    with pytest.raises(InputError, match="max_active"):
        Schedule(SPANS, max_active=0)
    with pytest.raises(InputError, match="version"):
        Schedule(SPANS, version="latest")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="parameters"):
        Schedule(SPANS, parameters=5)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="names no span"):
        NewSpan("data/*.csv")
    with pytest.raises(InputError, match="no bound"):
        MetricDrop("auc")
    with pytest.raises(InputError, match="is named without its pipeline"):
        Drift(made_by="Validator")
    with pytest.raises(InputError, match="no run ends"):
        After("shop", state="DONE")
    for trigger in (After, Failed):
        with pytest.raises(InputError, match=f"{trigger.__name__} names no pipeline"):
            trigger("")


def test_both_of_two_are_waited_for() -> None:
    view = HandMadeView(files=[(BEGIN + timedelta(minutes=30), 1, None)])
    watcher = Watcher(Every("1h") & SPANS, view)
    assert "no new span" not in (reason := watcher.look(40).reason)
    assert "is due at 2026-01-01 01:00" in reason
    signal = watcher.look(61)
    assert signal.due
    assert "was due at 2026-01-01 01:00 UTC; and NewSpan" in signal.reason
    assert "span 1" in signal.reason
    assert not watcher.look(62).due
    assert "no new span" in watcher.look(130).reason
    view.files.append((BEGIN + timedelta(minutes=140), 2, None))
    assert watcher.look(141).due  # the hour has been waited for since 2:00


def test_either_of_two_will_do_and_the_other_is_not_used_up() -> None:
    view = HandMadeView(files=[(BEGIN + timedelta(minutes=30), 1, None)])
    watcher = Watcher(Every("1h") | SPANS, view)
    assert "span 1" in watcher.look(31).reason
    assert watcher.look(60).due
    assert not watcher.look(61).due


def test_what_arrives_together_is_one_run() -> None:
    view = HandMadeView(files=[(BEGIN + timedelta(minutes=at), at, None) for at in (1, 5, 9)])
    watcher = Watcher(SPANS.debounce("10m"), view)
    signals = {at: watcher.look(at) for at in (2, 6, 10, 15, 19, 20, 21, 40)}
    assert [at for at, signal in signals.items() if signal.due] == [20]
    assert "waited for until nothing new has come for 10m" in signals[10].reason
    assert "span 1, 5, 9" in signals[20].reason
    assert signals[10].wake == BEGIN + timedelta(minutes=20)
    assert signals[10].poll == 60


def test_a_run_at_most_once_in_so_long() -> None:
    view = HandMadeView(published=[artifact(at, "Model", at) for at in (1, 10, 70, 75)])
    watcher = Watcher(NewArtifact("Model").cooldown("1h"), view)
    signals = {at: watcher.look(at) for at in (2, 11, 30, 61, 62, 71, 121, 122, 123, 300)}
    assert [at for at, signal in signals.items() if signal.due] == [2, 62, 122]
    assert "began less than 1h ago" in signals[11].reason
    assert signals[11].wake == BEGIN + timedelta(minutes=62)
    assert "and 1 more" in signals[122].reason


@given(st.lists(st.tuples(st.integers(1, 50), st.sampled_from(["Model", "span", "run"])), max_size=25), st.data())
def test_whatever_comes_starts_a_run_and_none_without_it(events: list[tuple[int, str]], data: st.DataObject) -> None:
    """Of `a | b` looked at whenever: each run names what no run before it named, and nothing is left over."""
    view, at, count = HandMadeView(), 0, 0
    watcher = Watcher(NewArtifact("Model") | SPANS, view)
    runs: list[str] = []
    came: list[str] = []
    for pause, what in events:
        at += pause
        if what == "Model":
            view.published.append(artifact(len(view.published) + 1, "Model", at))
            came.append(f"artifacts/Model/{len(view.published)} ")
        elif what == "span":
            count += 1
            view.files.append((BEGIN + timedelta(minutes=at), count, None))
            came.append(f"span {count}")
        if data.draw(st.booleans()):
            signal = watcher.look(at)
            runs += [signal.reason] if signal.due else []
    signal = watcher.look(at + 1)
    runs += [signal.reason] if signal.due else []
    assert not watcher.look(at + 2).due
    assert len(runs) <= len(came)
    assert bool(runs) == bool(came)
    assert len(set(runs)) == len(runs)
    if came and came[-1].startswith("artifacts"):
        assert came[-1] in runs[-1]
