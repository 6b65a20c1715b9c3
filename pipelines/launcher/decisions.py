"""Decisions of people about a run's nodes, recorded in the store by any process before or while a node waits."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from itertools import count
from typing import TYPE_CHECKING

from ...errors import InputError
from ...metadata.rows import when
from ..ir.expressions import evaluate
from ..ir.tasks import parse_task
from .flow import Flow
from .home import Home
from .runs import Run

if TYPE_CHECKING:
    from ...metadata.approvals import ApprovalAnswer, ApprovalRule, Judgement


def decision(home: Home, run: Run, task: str) -> Mapping[str, object] | None:
    """The decision about a task: approved, by, comment; None until enough people agree, or one says no."""
    judgement = judge(home, run, task)
    if judgement.approved is None:
        return None
    answers = judgement.answers
    comments = [f"{each.by}: {each.comment}" if len(answers) > 1 else each.comment for each in answers if each.comment]
    names = ", ".join(each.by for each in answers)
    return {"approved": judgement.approved, "by": names, "comment": "; ".join(comments)}


def judge(home: Home, run: Run, task: str) -> Judgement:
    """What people have said about a task until now, by its rule."""
    return _rule(home, run, task).judge(_answers(home, run, task), {run.by}, when(home.store.now()))


def decide(home: Home, run: Run, task: str, *, approved: bool, by: str, comment: str = "") -> Judgement:
    """Record what a person says. What is decided stays so, and so does the answer of each.

    Returns:
        What the answers come to then.

    Raises:
        InputError: It was decided before, the person has answered before, or may not decide.
    """
    rule = _rule(home, run, task)
    if not rule.allow_own and not run.by:
        raise InputError(
            f"{task} is not for who started run {run.id}, and nothing says who did", fix="name those who decide"
        )
    if refusal := rule.refusal(by, {run.by}):
        raise InputError(f"{task} in run {run.id}: {refusal}", fix="let somebody else decide")
    mark = secrets.token_hex(8)
    while True:
        before = judge(home, run, task)
        earlier = [each for each in before.answers if before.approved is not None or each.by == by]
        if earlier:
            said = "approved" if earlier[0].approved else "denied"
            raise InputError(
                f"{task} in run {run.id} was {said} by {', '.join(each.by for each in earlier)} before",
                fix="the first decision counts; run the pipeline again to be asked again",
            )
        name = _name(run, task, 1 + len(_answers(home, run, task)))
        facts = {"approved": approved, "by": by, "comment": comment, "mark": mark}
        if home.store.context("decision", name, facts).properties.get("mark") == mark:
            return judge(home, run, task)


def _rule(home: Home, run: Run, task: str) -> ApprovalRule:
    """Who has to agree: what a node with a parameter `approvals` says, else anybody, alone."""
    from ...metadata.approvals import ApprovalRule  # late: few runs ask anybody

    node, index = parse_task(task)
    parameters = dict(run.pipeline[node].parameters)
    if "approvals" not in parameters:
        return ApprovalRule(allow_own=True)
    values = Flow(home.store, run).values(run.pipeline.scope(node), index)
    return ApprovalRule.from_json({name: evaluate(value, values) for name, value in parameters.items()})


def _answers(home: Home, run: Run, task: str) -> list[ApprovalAnswer]:
    """What people said about a task, the first one first."""
    from ...metadata.approvals import ApprovalAnswer

    answers: list[ApprovalAnswer] = []
    for number in count(1):
        record = home.store.find_context("decision", _name(run, task, number))
        if record is None:
            break
        facts = record.properties
        answers.append(ApprovalAnswer(facts["by"], facts["approved"], facts["comment"], record.created_at))
    return answers


def _name(run: Run, task: str, number: int) -> str:
    return f"{run.id}/{task}" if number == 1 else f"{run.id}/{task} {number}"


def asks(run: Run, task: str) -> bool:
    """Whether a task is one that waits for a decision."""
    return run.pipeline[parse_task(task)[0]].asks


def waiting_tasks(home: Home, run: Run) -> list[str]:
    """The tasks of a run that wait for a decision now."""
    running = home.store.executions(context=run.context, state="RUNNING")
    names = [str(execution.properties["node"]) for execution in running]
    return sorted(name for name in names if asks(run, name) and decision(home, run, name) is None)
