"""Every runner makes the same of every pipeline: states, reasons and the bytes of `content/`, and the right ones."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from drivetrain.metadata.fsck import fsck
from drivetrain.pipelines import Home
from drivetrain.pipelines.run import RUNNERS
from drivetrain.tests.beam import servers
from drivetrain.tests.conformance import control_cases, table_cases
from drivetrain.tests.conformance.case import BEAM, Case, Seen, carry_out, recorded, refusal, seen, value

CASES = (*control_cases.CASES, *table_cases.CASES)
EVERY = (*RUNNERS, "prism", "kubeflow")
CHOSEN = {
    "orders": ("gate", "optional_inputs", "nested", "flagged", "failures_stay_apart", "linear3"),
    "branches": ("over_a_scalar", "joined", "skipped_travels", "a_gate_in_a_branch", "a_condition_that_fails"),
    "loops": (
        "over_a_literal",
        "over_a_returned_list",
        "in_each_other",
        "in_a_branch",
        "a_branch_in_a_loop",
        "few_at_once_in_each_other",
        "of_nothing",
        "an_item_that_fails",
        "over_no_list",
        "a_gate_in_a_loop",
        "held_back",
        "over_a_property2",
    ),
    "others": (
        "on_exit",
        "exit_over_failures",
        "exit_after_mending",
        "retried_in_vain",
        "secret",
        "newest",
        "mended_later",
        "by_priority",
        "environment",
        "asked",
        "timed",
    ),
    "penguins": ("refused",),
    "flights": ("windows",),
}
"""Of each construct the case that says most, none that trains: what of the suite runs on Prism and on the simulated
cluster, where pipelines cost seconds of processor time, and on child processes in the fast half.
`DRIVETRAIN_CONFORMANCE=all` runs every case on Prism and the cluster too."""
_EVERYTHING = os.environ.get("DRIVETRAIN_CONFORMANCE") == "all"
Homes = Callable[[str], Home]
_INLINE: dict[int, list[Seen]] = {}
"""What the inline runner made of a case, by its place among the cases: made once for all the others."""


def _marks(case: Case, name: str, runner: str) -> Iterator[pytest.MarkDecorator]:
    if runner in case.slow or runner == "kubeflow" or (runner == "process" and not _chosen(name)):
        yield pytest.mark.slow
    if runner == "kubeflow":
        yield pytest.mark.kubeflow
    if runner in ("beam", "prism"):
        yield pytest.mark.beam
    if runner == "prism":
        yield pytest.mark.slow
        yield pytest.mark.prism
    if case.engine:
        yield pytest.mark.engine


def _chosen(name: str) -> bool:
    module, _, pipeline = name.partition(":")
    return pipeline in CHOSEN[module]


def _parameters() -> list[object]:
    names = [case.pipeline.partition("/")[2] for case in CASES]
    uses = [names[: number + 1].count(name) for number, name in enumerate(names)]
    names = [f"{name}{use if use > 1 else ''}" for name, use in zip(names, uses, strict=True)]
    return [
        pytest.param(number, runner, id=f"{name}-{runner}", marks=list(_marks(case, name, runner)))
        for number, (case, name) in enumerate(zip(CASES, names, strict=True))
        for runner in EVERY
        if runner in RUNNERS or _EVERYTHING or _chosen(name)
    ]


@pytest.fixture(scope="module")
def prism() -> Iterator[None]:
    """One Prism for all the pipelines."""
    with servers.prism() as flags:
        BEAM["prism"] = flags
        yield
        del BEAM["prism"]


@pytest.fixture
def homes(tmp_path: Path) -> Iterator[Homes]:
    """A root of its own for each runner."""
    made: list[Home] = []

    def home(runner: str) -> Home:
        made.append(Home(tmp_path / runner / ".drivetrain"))
        return made[-1]

    yield home
    for each in made:
        each.close()


def _carry_out(case: Case, runner: str, home: Home, monkeypatch: pytest.MonkeyPatch) -> list[Seen]:
    """All runs of a case, each checked against what is written of it."""
    found = []
    for step in case.steps:
        step.before(home.base)
        with monkeypatch.context() as patch:
            for name, text in step.env.items():
                patch.setenv(name, text)
            result = carry_out(step, case, home, runner)
        reasons = {name: node.reason for name, node in result.nodes.items() if node.state == "FAILED"}
        assert {name: node.state for name, node in result.nodes.items()} == step.states, reasons
        assert result.state == step.state
        assert {name: value(result, name) for name in step.values} == step.values
        for name, says in step.reasons.items():
            assert says in result.nodes[name].reason
        assert recorded(result, home) == step.states
        step.after(result, home)
        found.append(seen(result, home))
    report = fsck(home.store, home.root)
    assert report.clean, report.to_dict()
    return found


@pytest.mark.parametrize(("number", "runner"), _parameters())
def test_conformance(
    number: int, runner: str, homes: Homes, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    case, home = CASES[number], homes(runner)
    if runner == "prism":
        request.getfixturevalue("prism")
    kind = "beam" if runner in BEAM else runner
    if kind in case.refused:
        assert case.refused[kind] in refusal(case, home, runner)
        assert not home.store.contexts("run")
        return
    found = _carry_out(case, runner, home, monkeypatch)
    if "inline" in case.refused:
        return
    if runner == "inline":
        _INLINE[number] = found
    elif number not in _INLINE:
        _INLINE[number] = _carry_out(case, "inline", homes("inline"), monkeypatch)
    assert found == _INLINE[number]
