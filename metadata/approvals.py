"""Who has to agree, and whether they have: n of m people, not whoever made it, for so many days."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ..errors import InputError


@dataclass(frozen=True)
class ApprovalAnswer:
    """What a person said.

    Attributes:
        by: Who; as they are called, which nothing proves.
        approved: Whether they said yes.
        comment: What else they said.
        at: When (UTC).
    """

    by: str
    approved: bool
    comment: str
    at: datetime

    def to_json(self) -> dict[str, object]:
        """The four, with the time in ISO 8601."""
        return {"by": self.by, "approved": self.approved, "comment": self.comment, "at": self.at.isoformat()}


@dataclass(frozen=True)
class Judgement:
    """What answers come to.

    Attributes:
        approved: Whether enough people said yes; None while that is open.
        answers: Those that decided it, or that count so far: the last word of each who may answer, unless it expired.
        missing: What is missing, in words; "" where it is approved.
    """

    approved: bool | None
    answers: tuple[ApprovalAnswer, ...]
    missing: str


@dataclass(frozen=True)
class ApprovalRule:
    """How many people have to agree, and which.

    Attributes:
        approvals: How many.
        approvers: Who may answer, by name; anybody where it is empty.
        allow_own: Whether those who made what is approved may answer, too.
        days: For how many days an answer counts; None: for ever.

    Raises:
        InputError: Nobody could ever meet it.
    """

    approvals: int = 1
    approvers: tuple[str, ...] = ()
    allow_own: bool = False
    days: float | None = None

    def __post_init__(self) -> None:
        number: object = self.approvals  # what was given, as of `approvers`: it may come from JSON or a pipeline
        names: object = self.approvers
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise InputError(f"{number!r:.40} approvals cannot be needed", fix="ask for 1 or more")
        if not isinstance(names, list | tuple) or not all(isinstance(name, str) and name for name in names):
            raise InputError(f"approvers are {names!r:.80}", fix='give their names: ["ada", "grace"]')
        object.__setattr__(self, "approvers", tuple(dict.fromkeys(names)))
        if self.approvers and len(self.approvers) < self.approvals:
            raise InputError(
                f"{self.approvals} approvals are needed, of {len(self.approvers)} people", fix="name more approvers"
            )
        if self.days is not None and not self.days > 0:
            raise InputError(f"answers count for {self.days!r} days", fix="give more than 0, or None for ever")

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> ApprovalRule:  # Any: JSON, checked above
        """The rule that `to_json` gave, or a mapping of some of its fields."""
        return cls(facts.get("approvals", 1), facts.get("approvers") or (), facts.get("allow_own", False),
                   facts.get("days"))  # fmt: skip

    def to_json(self) -> dict[str, object]:
        """The four, by name."""
        return {
            "approvals": self.approvals,
            "approvers": list(self.approvers),
            "allow_own": self.allow_own,
            "days": self.days,
        }

    def __str__(self) -> str:
        whose = f" of {', '.join(self.approvers)}" if self.approvers else ""
        exclusion = "" if self.allow_own else ", not one's own"
        until = "" if self.days is None else f", each for {self.days:g} days"
        return f"{_counted(self.approvals, 'approval')}{whose}{exclusion}{until}"

    def refusal(self, by: str, makers: Collection[str]) -> str:
        """Why a person may not answer; "" where they may."""
        if not self.allow_own and by in makers:
            return f"{by} made it, and somebody else has to decide"
        if self.approvers and by not in self.approvers:
            return f"{by} is not one of those who decide: {', '.join(self.approvers)}"
        return ""

    def judge(self, answers: Iterable[ApprovalAnswer], makers: Collection[str], now: datetime) -> Judgement:
        """What answers, the first one first, come to at a moment.

        The last word of each counts. One no among those that count stands against any number of yes, until who said it
        says yes, or it expires.

        Args:
            answers: What people said.
            makers: Who made what is approved.
            now: The moment (UTC).
        """
        last = {each.by: each for each in answers}
        may = [each for each in last.values() if not self.refusal(each.by, makers)]
        valid = [each for each in may if not self._is_over(each, now)]
        against = tuple(each for each in valid if not each.approved)
        if against:
            said = ", ".join(f"{each.by}{f': {each.comment}' if each.comment else ''}" for each in against)
            return Judgement(False, against, f"rejected by {said}")
        votes = tuple(valid)
        if len(votes) >= self.approvals:
            return Judgement(True, votes, "")
        return Judgement(None, votes, self._missing(votes, [each for each in may if each not in valid], makers))

    def _is_over(self, answer: ApprovalAnswer, now: datetime) -> bool:
        return self.days is not None and now - answer.at > timedelta(days=self.days)

    def _missing(
        self, votes: Sequence[ApprovalAnswer], expired: Sequence[ApprovalAnswer], makers: Collection[str]
    ) -> str:
        voters = [each.by for each in votes]
        parts = [f"{_counted(self.approvals - len(votes), 'approval')} of {self.approvals} missing"]
        parts += [f"approved by {', '.join(voters)}"] if voters else []
        parts += [f"{each.by}'s of {each.at:%Y-%m-%d} expired" for each in expired]
        left = [each for each in self.approvers if not self.refusal(each, makers) and each not in voters]
        parts += [f"may still approve: {', '.join(left) or 'nobody'}"] if self.approvers else []
        if not self.allow_own and makers:
            parts.append(f"not {' or '.join(sorted(makers))}, who made it")
        return "; ".join(parts)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
