"""Every runner makes the same of every pipeline: states, reasons and the bytes of `content/`, and the right ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from drivetrain.metadata import fsck
from drivetrain.pipelines import Home
from drivetrain.pipelines.run import RUNNERS
from drivetrain.tests.conformance.case import Case, Seen, carry_out, recorded, refusal, seen, value
from drivetrain.tests.conformance.control_cases import CASES

NAMES = ("inline", "process", "beam")
Homes = Callable[[str], Home]


def _parameters() -> Iterator[object]:
    uses: dict[str, int] = {}
    for case in CASES:
        uses[case.pipeline] = uses.get(case.pipeline, 0) + 1
        name = case.pipeline.partition("/")[2] + ("" if uses[case.pipeline] == 1 else str(uses[case.pipeline]))
        for runner in NAMES:
            marks = [pytest.mark.slow] if case.slow or runner == "beam" else []
            marks += [pytest.mark.beam] if runner == "beam" else []
            marks += [pytest.mark.engine] if case.engine else []
            if runner not in RUNNERS:
                marks.append(pytest.mark.skip(reason=f"there is no {runner} runner yet"))
            yield pytest.param(case, runner, id=f"{name}-{runner}", marks=marks)


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
        assert {name: node.state for name, node in result.nodes.items()} == step.states
        assert result.state == step.state
        assert {name: value(result, name) for name in step.values} == step.values
        for name, says in step.reasons.items():
            assert says in result.nodes[name].reason
        assert recorded(result, home) == step.states
        found.append(seen(result, home))
    report = fsck(home.store, home.root)
    assert report.clean, report.to_dict()
    return found


@pytest.mark.parametrize(("case", "runner"), list(_parameters()))
def test_conformance(case: Case, runner: str, homes: Homes, monkeypatch: pytest.MonkeyPatch) -> None:
    home = homes(runner)
    if runner in case.refused:
        assert case.refused[runner] in refusal(case, home, runner)
        assert not home.store.contexts("run")
        return
    found = _carry_out(case, runner, home, monkeypatch)
    if runner != "inline" and "inline" not in case.refused:
        assert found == _carry_out(case, "inline", homes("inline"), monkeypatch)
