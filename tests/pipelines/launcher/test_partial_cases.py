"""Partial runs: TFX's cases 16 and 17, number by number."""

from __future__ import annotations

import json

import pytest
from drivetrain.errors import BuildError, InputError
from drivetrain.pipelines import (
    Home,
    Pipeline,
    RunOptions,
    RunResult,
    Selection,
    list_runs,
    resume,
    run_pipeline,
)
from drivetrain.tests.pipelines.flows import Pipe, states

ABC = "a = Make.options(id='a')(count=count)\nb = Use.options(id='b')(a)\nc = Use.options(id='c')(b)"
ABCD = f"{ABC}\nd = Use.options(id='d')(c)"
ANEW = RunOptions(cache=False)


def total(result: RunResult, node: str) -> int:
    return int(result.nodes[node].outputs["numbers"][0].properties["total"])


def test_case_16_to_b_from_a_takes_nothing_from_an_earlier_run(home: Home, pipe: Pipe) -> None:
    result = run_pipeline(home, pipe(ABC), selection=Selection(first=("a",), last=("b",)))  # there is none
    assert states(result) == {"a": "COMPLETE", "b": "COMPLETE", "c": "SKIPPED"}
    assert result.nodes["c"].reason == "left out of this partial run"
    assert result.state == "COMPLETE"
    assert list_runs(home)[0].options.base == ""


def test_case_16_from_c_what_comes_before_is_taken_from_an_earlier_run(home: Home, pipe: Pipe) -> None:
    first = run_pipeline(home, pipe(ABC), {"count": 5})
    result = run_pipeline(home, pipe(ABC), {"count": 99}, ANEW, selection=Selection(first=("c",)))
    assert states(result) == {"a": "CACHED", "b": "CACHED", "c": "COMPLETE"}
    assert {result.nodes[name].reason for name in "ab"} == {f"taken from run {first.run}"}
    assert total(result, "c") == 7
    (made,) = result.nodes["b"].outputs["numbers"]
    assert made == first.nodes["b"].outputs["numbers"][0]  # the very artifact, not a copy


def test_case_16_what_is_skipped_runs_where_it_waits_for_what_runs(home: Home, pipe: Pipe) -> None:
    run_pipeline(home, pipe(ABCD))
    part = Selection(first=("b",), last=("d",), skip=("c",))
    assert states(run_pipeline(home, pipe(ABCD), None, ANEW, selection=part)) == {
        "a": "CACHED", "b": "COMPLETE", "c": "COMPLETE", "d": "COMPLETE"
    }  # fmt: skip
    part = Selection(skip=("a", "b"))
    assert states(run_pipeline(home, pipe(ABCD), None, ANEW, selection=part)) == {
        "a": "CACHED", "b": "CACHED", "c": "COMPLETE", "d": "COMPLETE"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("selection", "says"),
    [
        (Selection(first=("x",)), "has no node 'x'"),
        (Selection(last=("x",)), "has no node 'x'"),
        (Selection(skip=("x",)), "has no node 'x'"),
        (Selection(first=("c",), last=("a",)), "nothing is left to run"),
        (Selection(first=("c",), base="nowhere"), "there is no run 'nowhere'"),
        (Selection(base="nowhere"), "all of shop is to run, which takes nothing from run nowhere"),
        (Selection(first=("c",)), "no earlier run of shop has the outputs of a, b"),
    ],
)
def test_case_17_what_makes_no_sense_is_refused_and_not_recorded(
    home: Home, pipe: Pipe, selection: Selection, says: str
) -> None:
    with pytest.raises(InputError, match=says):
        run_pipeline(home, pipe(ABC), selection=selection)
    assert not list_runs(home)


def test_case_17_nodes_out_of_order_are_no_pipeline(pipe: Pipe) -> None:
    body = json.loads(pipe(ABC).build().to_json())
    body["nodes"].reverse()
    with pytest.raises(BuildError, match="c comes before b, which it needs"):
        Pipeline.from_json(json.dumps(body))


def test_case_17_what_did_not_end_well_does_not_stand_in(home: Home, pipe: Pipe) -> None:
    body = ABC.replace("Use.options(id='b')(a)", "Misbehave.options(id='b')(a, code='1 / 0')")
    failed = run_pipeline(home, pipe(body))
    assert states(failed) == {"a": "COMPLETE", "b": "FAILED", "c": "BLOCKED"}
    with pytest.raises(InputError, match="has the outputs of a, b"):
        run_pipeline(home, pipe(body), selection=Selection(only=("c",)))
    with pytest.raises(InputError, match=f"run {failed.run} has no outputs of b"):
        run_pipeline(home, pipe(body), selection=Selection(only=("c",), base=failed.run))


def test_case_17_outputs_of_different_runs_are_not_mixed(home: Home, pipe: Pipe) -> None:
    """A run that made `a` anew and nothing after it cannot lend its `a` beside an older run's `b`."""
    whole = run_pipeline(home, pipe(ABC), {"count": 1})
    newer = run_pipeline(home, pipe(ABC), {"count": 2}, selection=Selection(last=("a",)))
    assert total(newer, "a") == 2
    with pytest.raises(InputError, match=f"run {newer.run} has no outputs of b"):
        run_pipeline(home, pipe(ABC), selection=Selection(first=("c",), base=newer.run))
    found = run_pipeline(home, pipe(ABC), None, ANEW, selection=Selection(first=("c",)))
    assert {found.nodes[name].reason for name in "ab"} == {f"taken from run {whole.run}"}
    assert [total(found, name) for name in "abc"] == [1, 2, 3]
    again = run_pipeline(home, pipe(ABC), None, ANEW, selection=Selection(first=("c",)))  # of which the newest has all
    assert {again.nodes[name].reason for name in "ab"} == {f"taken from run {found.run}"}
    assert again.nodes["a"].outputs == whole.nodes["a"].outputs


def test_case_17_once_more_is_the_same(home: Home, pipe: Pipe) -> None:
    body = (
        f"{ABC}\nMisbehave.options(id='d')(c, code='import pathlib; assert pathlib.Path(r\"{home.base}/go\").exists()')"
    )
    run_pipeline(home, pipe(body), selection=Selection(last=("c",)))
    part = run_pipeline(home, pipe(body), selection=Selection(first=("d",)))
    assert states(part)["d"] == "FAILED"
    taken = {name: part.nodes[name].outputs for name in "abc"}
    before = len(home.store.executions())
    (home.base / "go").touch()
    once = resume(home)
    assert states(once) == {"a": "CACHED", "b": "CACHED", "c": "CACHED", "d": "COMPLETE"}
    assert {name: once.nodes[name].outputs for name in "abc"} == taken
    assert len(home.store.executions()) == before + 1
    assert states(resume(home, once.run)) == states(once)
    assert len(home.store.executions()) == before + 1
