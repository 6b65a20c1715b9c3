"""Approval: a person looks, and says whether the run goes on."""

from __future__ import annotations

import time
from collections.abc import Mapping

from ..errors import InputError
from ..metadata import Artifact, Decision
from ..metadata.approvals import ApprovalRule
from ..pipelines import component, current

_POLL = 0.5


def _refuse(known: Mapping[str, object], coming: Mapping[str, Mapping[str, object]]) -> None:
    """Refuse a rule that nobody could meet."""
    ApprovalRule.from_json(known)


@component(deterministic=False, asks=True, preflight=_refuse)
def Approval(
    artifact: Artifact | None = None,
    *,
    message: str = "",
    wait: float | None = None,
    approvals: int = 1,
    approvers: list[str] | None = None,
    allow_own: bool = True,
    days: float | None = None,
) -> Decision:
    """Wait until somebody says `drivetrain approve`, or `drivetrain approve --deny`; the decision may come before.

    `with dt.when(Approval(evaluation, message="Push it?").approved): Pusher(model, ...)`. The process that runs the
    node waits; ended meanwhile, `drivetrain resume` waits on.

    Args:
        artifact: What is to be looked at; `drivetrain approve --list` shows where it lies.
        message: What is asked.
        wait: Seconds until the node fails for want of an answer; None waits for ever.
        approvals: How many people have to approve it. One who denies it decides alone.
        approvers: Who may decide, by name; None: anybody.
        allow_own: Whether who started the run may decide, too.
        days: For how many days an answer counts that came before the node asked; None: for ever.

    Returns:
        Decision: `approved`, `by` whom, and their `comment`.

    Raises:
        InputError: Nobody answered in time, or it is called outside a run.
    """
    launch = current()
    if not launch.run:
        raise InputError("Approval is called outside a run, where nobody can answer", fix="call it in a pipeline")
    launch.note(f"waits for `drivetrain approve {launch.run} {launch.node}`" + (f": {message}" if message else ""))
    begin = time.monotonic()
    while (decision := launch.decision()) is None:
        waited = time.monotonic() - begin
        if wait is not None and waited >= wait:
            raise InputError(
                f"nobody answered {message or launch.node!r} within {wait:g} s",
                fix=f"`drivetrain approve {launch.run} {launch.node}`, then `drivetrain resume {launch.run}`",
            )
        launch.progress(int(waited), None if wait is None else int(wait), "s waited")
        time.sleep(_POLL if wait is None else min(_POLL, wait - waited))
    answer = Decision.new(**decision)
    (answer.content / "decision.json").write_text(answer.as_json())
    return answer
