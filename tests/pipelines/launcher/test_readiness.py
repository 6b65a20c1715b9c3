"""`readiness` against the rules of docs/control-flow.md, stated here in plain Python, over all small cases."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from drivetrain.pipelines.ir.expressions import Dependency
from drivetrain.pipelines.launcher.readiness import Readiness, UpstreamTask, Verdict, readiness
from drivetrain.pipelines.launcher.states import EndState
from hypothesis import given, settings
from hypothesis import strategies as st

PENDING = "PENDING"
LOST = "LOST"
ENDS = [*EndState, LOST, PENDING]
KINDS = ["need", "optional", "choice", "after"]


def upstream(name: str, end: EndState | str, *, gathered: bool = False, veto: str = "") -> UpstreamTask:
    if end == LOST:
        return UpstreamTask(name, None, "did not run", gathered, veto)
    return UpstreamTask(name, None if end == PENDING else EndState(end), "", gathered, veto)


def rules(
    needs: list[tuple[Dependency, list[UpstreamTask]]], false_conditions: list[str], *, on_exit: bool
) -> set[Verdict]:
    """What the page allows; a set, because a task that both a skip and a failure keep from running may be either."""
    every = [(need, task) for need, tasks in needs for task in tasks]
    allowed: set[Verdict] = set()
    for need, task in every:
        succeeded = task.end in ("COMPLETE", "CACHED")
        failed = task.end in ("FAILED", "BLOCKED", "CANCELED") or task.lost != ""
        # "A node that failed blocks what needs it, whatever the branch"; what runs on exit may do without.
        if failed and not (on_exit and need.kind == "optional"):
            allowed.add(Verdict.BLOCK)
        # "nodes that must have ended first", and where they are gates, passed.
        if succeeded and need.kind == "after" and task.veto:
            allowed.add(Verdict.BLOCK)
        # "What is in a branch that is not taken is skipped, and so is what needs its outputs";
        # "An item that was skipped is left out of the list".
        if task.end == "SKIPPED" and need.kind == "need" and not task.gathered:
            allowed.add(Verdict.SKIP)
    # "`dt.one_of(a, b)` is the first of several that was not skipped".
    for group in {need.group for need, _ in every if need.kind == "choice"}:
        skipped = [task for need, task in every if need.group == group and task.end == "SKIPPED"]
        others = [task for need, task in every if need.group == group and task.end != "SKIPPED"]
        if skipped and not any(task.end in ("COMPLETE", "CACHED") for task in others):
            waiting = any(task.end is None and not task.lost for task in others)
            if not waiting and any(need.kind == "choice" for need, task in every if task in skipped):
                allowed.add(Verdict.SKIP)
    if allowed:
        return allowed
    if any(task.end is None and not task.lost for _, task in every):
        return {Verdict.WAIT}
    return {Verdict.SKIP} if false_conditions else {Verdict.RUN}


def small_cases() -> Iterator[tuple[list[tuple[Dependency, list[UpstreamTask]]], list[str], bool]]:
    """All tasks with up to two needs of one task each, and every end of those."""
    need_ends = list(itertools.product(KINDS, ENDS))
    for needs in itertools.chain([()], itertools.product(need_ends), itertools.product(need_ends, need_ends)):
        built = [
            (Dependency(f"n{number}", kind, "group" if kind == "choice" else None), [upstream(f"n{number}", end)])  # type: ignore[arg-type]
            for number, (kind, end) in enumerate(needs)
        ]
        for false_conditions, on_exit in itertools.product([[], ["x > 1"]], [False, True]):
            yield built, false_conditions, on_exit


def test_every_small_case_is_as_the_page_says() -> None:
    count = 0
    for needs, false_conditions, on_exit in small_cases():
        answer = readiness(needs, false_conditions, on_exit=on_exit)
        assert answer.verdict in rules(needs, false_conditions, on_exit=on_exit), (needs, false_conditions, on_exit)
        assert bool(answer.reason) == (not answer.runs)
        count += 1
    assert count == 4 * (1 + 32 + 32 * 32)


tasks = st.builds(
    upstream, st.sampled_from("abcdef"), st.sampled_from(ENDS), gathered=st.booleans(), veto=st.sampled_from(["", "no"])
)
dependencies = st.one_of(
    st.builds(Dependency, st.sampled_from("abcdef"), st.sampled_from(["need", "optional", "after"]), group=st.none()),
    st.builds(Dependency, st.sampled_from("abcdef"), st.just("choice"), group=st.sampled_from(["g", "h"])),
)
graphs = st.lists(st.tuples(dependencies, st.lists(tasks, max_size=3)), max_size=4)


@given(graphs, st.lists(st.just("x > 1"), max_size=2), st.booleans())
@settings(max_examples=500, deadline=None)
def test_every_graph_is_as_the_page_says(
    needs: list[tuple[Dependency, list[UpstreamTask]]], false_conditions: list[str], on_exit: bool
) -> None:
    answer = readiness(needs, false_conditions, on_exit=on_exit)
    assert answer.verdict in rules(needs, false_conditions, on_exit=on_exit)


@given(graphs, st.booleans(), st.data())
@settings(max_examples=300, deadline=None)
def test_what_was_said_before_all_had_ended_stays_so(
    needs: list[tuple[Dependency, list[UpstreamTask]]], on_exit: bool, data: st.DataObject
) -> None:
    before = readiness(needs, on_exit=on_exit)
    ends = st.sampled_from([*EndState, LOST])
    after = [
        (need, [task if task.end or task.lost else upstream(task.name, data.draw(ends)) for task in group])
        for need, group in needs
    ]
    # Whether it is skipped or blocked may still turn out either way; that it does not run may not change.
    if before.verdict is not Verdict.WAIT:
        assert readiness(after, on_exit=on_exit).runs == before.runs


@pytest.mark.parametrize(
    ("needs", "conditions", "answer"),
    [
        ([], [], Readiness(Verdict.RUN)),
        ([("need", "A", "FAILED")], [], Readiness(Verdict.BLOCK, "A failed")),
        ([("need", "A", "BLOCKED")], [], Readiness(Verdict.BLOCK, "A is blocked")),
        ([("need", "A", "CANCELED")], [], Readiness(Verdict.BLOCK, "A was stopped")),
        ([("need", "A", LOST)], [], Readiness(Verdict.BLOCK, "A did not run")),
        ([("need", "A", "SKIPPED")], ["x"], Readiness(Verdict.SKIP, "A was skipped")),
        ([("need", "A", "CACHED")], ["x > 1"], Readiness(Verdict.SKIP, "x > 1 is false")),
        ([("need", "A", PENDING)], ["x > 1"], Readiness(Verdict.WAIT, "A has not ended")),
        ([("need", "A", PENDING), ("need", "B", "FAILED")], [], Readiness(Verdict.BLOCK, "B failed")),
        ([("choice", "A", "SKIPPED"), ("choice", "B", "COMPLETE")], [], Readiness(Verdict.RUN)),
        ([("choice", "A", "SKIPPED"), ("choice", "B", "SKIPPED")], [], Readiness(Verdict.SKIP, "B was skipped")),
        ([("choice", "A", "SKIPPED"), ("choice", "B", "FAILED")], [], Readiness(Verdict.BLOCK, "B failed")),
    ],
)
def test_the_reason_names_what_decided(
    needs: list[tuple[str, str, str]], conditions: list[str], answer: Readiness
) -> None:
    built = [(Dependency(name, kind), [upstream(name, end)]) for kind, name, end in needs]  # type: ignore[arg-type]
    assert readiness(built, conditions) == answer


def test_a_condition_is_not_looked_at_before_all_has_succeeded() -> None:
    def evaluate() -> str:
        raise AssertionError("a condition over an output that is not there")

    for end in (EndState.FAILED, EndState.SKIPPED, PENDING):
        readiness([(Dependency("A"), [upstream("A", end)])], (evaluate() for _ in range(1)))


def test_nothing_is_asked_after_what_decided() -> None:
    def needs() -> Iterator[tuple[Dependency, list[UpstreamTask]]]:
        yield Dependency("A"), [upstream("A", EndState.FAILED)]
        raise AssertionError("the store was asked in vain")

    assert readiness(needs()).reason == "A failed"
