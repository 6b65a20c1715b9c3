"""n of m approvals: who counts, for how long, and what is still missing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from drivetrain.errors import InputError
from drivetrain.metadata.approvals import ApprovalAnswer, ApprovalRule
from hypothesis import given
from hypothesis import strategies as st

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
PEOPLE = ("ada", "bob", "eve", "kim")


def said(by: str, approved: bool = True, days: float = 0, comment: str = "") -> ApprovalAnswer:
    return ApprovalAnswer(by, approved, comment, NOW - timedelta(days=days))


answers = st.lists(st.builds(said, st.sampled_from(PEOPLE), st.booleans(), st.integers(0, 20)), max_size=8)
rules = st.builds(
    ApprovalRule,
    st.integers(1, 3),
    st.sampled_from([(), PEOPLE[:3], PEOPLE]),
    st.booleans(),
    st.sampled_from([None, 5.0, 10.5]),
)


@given(rules, answers, st.sets(st.sampled_from(PEOPLE), max_size=2))
def test_it_is_what_counting_by_hand_gives(rule: ApprovalRule, each: list[ApprovalAnswer], makers: set[str]) -> None:
    yes: set[str] = set()
    no: set[str] = set()
    for person in PEOPLE:
        words = [answer for answer in each if answer.by == person]
        barred = (person in makers and not rule.allow_own) or (rule.approvers and person not in rule.approvers)
        if not words or barred:
            continue
        if rule.days is None or NOW - words[-1].at <= timedelta(days=rule.days):
            (yes if words[-1].approved else no).add(person)
    judgement = rule.judge(each, makers, NOW)
    assert judgement.approved is (False if no else True if len(yes) >= rule.approvals else None)
    assert {answer.by for answer in judgement.answers} == (no or yes)
    assert bool(judgement.missing) is (judgement.approved is not True)


@given(rules)
def test_a_rule_comes_back_from_json(rule: ApprovalRule) -> None:
    assert ApprovalRule.from_json(rule.to_json()) == rule


def test_what_is_missing_is_named() -> None:
    rule = ApprovalRule(3, PEOPLE, days=10)
    missing = rule.judge([said("bob"), said("eve", days=11)], {"ada"}, NOW).missing
    assert missing == (
        "2 approvals of 3 missing; approved by bob; eve's of 2026-11-17 expired; may still approve: eve, kim; "
        "not ada, who made it"
    )
    assert rule.judge([said("bob", False, comment="no")], (), NOW).missing == "rejected by bob: no"
    assert rule.refusal("zoe", ()) == "zoe is not one of those who decide: ada, bob, eve, kim"


@pytest.mark.parametrize(
    "facts",
    [
        {"approvals": 0},
        {"approvals": True},
        {"approvals": 3, "approvers": ["ada", "bob", "bob"]},
        {"approvers": ["ada", ""]},
        {"approvers": "ada", "allow_own": True},
        {"days": 0},
        {"days": float("nan")},
    ],
)
def test_a_rule_that_nobody_meets_is_refused(facts: dict[str, object]) -> None:
    with pytest.raises(InputError):
        ApprovalRule(**facts)  # type: ignore[arg-type]
