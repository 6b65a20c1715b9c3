"""Every attack with a fixed seed: nothing crashes, hangs, is silently wrong, or comes out that must not."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from drivetrain.tests.attack import campaign
from drivetrain.tests.attack.attack import ATTACKS, Attack, Case, Finding, attack
from drivetrain.tests.attack.campaign import Report, Worker, drawn, smaller
from drivetrain.tests.attack.interruptions import can_mount

SEED = "drivetrain"
FAST = [name for name in ATTACKS if attack(name).fast]
SLOW = [name for name in ATTACKS if attack(name).slow]


def check(name: str, first: int, count: int) -> None:
    """Carry cases out, of which some must be refused, some must work, and none may be a finding."""
    outcomes: Counter[str] = Counter()
    reports = []
    for result in campaign.campaign(name, SEED, iter(range(first, first + count))):
        if isinstance(result, Report):
            reports.append(f"{result.kind}\n{json.dumps(result.case)}\n{result.details}")
        else:
            outcomes[result[0]] += 1
    assert not reports, "\n\n".join(reports)
    assert outcomes.total() == count


@pytest.mark.parametrize("name", FAST)
def test_an_attack_finds_nothing(name: str) -> None:
    check(name, 0, attack(name).fast)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", SLOW)
def test_a_longer_attack_finds_nothing(name: str) -> None:
    if name == "disk" and not can_mount():
        pytest.skip("cannot mount a tmpfs here (needs root)")
    check(name, attack(name).fast, attack(name).slow)


@pytest.mark.parametrize("name", ATTACKS)
def test_equal_seeds_draw_equal_cases(name: str) -> None:
    cases = [drawn(name, SEED, number) for number in range(8)]
    assert cases == [drawn(name, SEED, number) for number in range(8)]
    assert len({json.dumps(case) for case in cases}) > 1


@pytest.mark.slow
def test_a_component_that_closes_all_files_does_not_hold_up_an_inline_run() -> None:
    with Worker("hostile") as worker:
        assert worker.carry_out([["runner", "inline"], ["act", "close everything"]])[0] != "finding"


# --- what looks for faults finds those that are there


def _planted(target: Path, case: Case) -> None:
    """A product with a fault of each kind, by the words of a case."""
    words = {step[0] for step in case}
    if {"cut", "paste"} <= words:
        raise ValueError("cut and paste")
    if "lie" in words:
        raise Finding("a lie")


def _draw(dice: Random) -> Case:
    return [[dice.choice("abc")] for _ in range(3)]


PLANTED = Attack(lambda folder: folder, _draw, _planted)


class _InThisProcess(Worker):
    def carry_out(self, case: Case) -> tuple[str, str, str]:
        from drivetrain.tests.attack.attack import outcome

        return outcome(PLANTED, Path(), case)


def test_a_case_is_made_as_small_as_it_may_be() -> None:
    case = [[word] for word in ["a", "b", "cut", "c", "d", "e", "paste", "f", "g"]]
    with _InThisProcess("schema") as worker:
        outcome, kind, details = worker.carry_out(case)
        assert (outcome, kind) == ("finding", "ValueError at the attack itself")
        assert "cut and paste" in details
        assert smaller(worker, case, kind) == [["cut"], ["paste"]]
        assert worker.carry_out([["lie"]])[:2] == ("finding", "a lie")
        assert worker.carry_out([["a"]]) == ("works", "", "")


@pytest.mark.slow
@pytest.mark.parametrize(("harm", "kind"), [("die", "ends the process (SIGSEGV)"), ("hang", "hangs: no answer in 3 s")])
def test_a_worker_that_dies_or_hangs_is_a_finding(harm: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Worker("planted") as worker:
        assert worker.carry_out([])[0] == "works"
        assert worker.carry_out([[harm]])[:2] == ("finding", kind)
        assert worker.carry_out([])[0] == "works"  # by a new worker
