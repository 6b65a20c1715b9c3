"""`approve`: answer a node that waits for a person."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..errors import InputError, suggest
from ..pipelines import Home, Run, decide, judge, list_runs, open_run, waiting_tasks
from ..pipelines.ir.expressions import evaluate
from ..pipelines.ir.tasks import parse_task, task_name
from ..pipelines.launcher.flow import Flow
from ..pipelines.launcher.states import RunState
from .exit_codes import OK
from .options import ConsoleSettings, print_text, shared, who

if TYPE_CHECKING:
    from rich.console import Console


@click.command(
    epilog="\b\nExample:\n  drivetrain approve\n"
    "  drivetrain approve 20261121-093000-1a2b Approval --comment right\n"
    "  drivetrain approve --deny\n  drivetrain approve --list\n"
)
@click.argument("run_id", metavar="[RUN]", required=False)
@click.argument("node", required=False)
@click.option("--deny", is_flag=True, help="Say no.")
@click.option("--comment", default="", metavar="TEXT", help="Kept with the decision.")
@click.option("--by", default=None, metavar="NAME", help="Who decides; the user of this shell unless given.")
@click.option("--list", "listed", is_flag=True, help="Only say what waits.")
@shared
def approve(
    settings: ConsoleSettings,
    run_id: str | None,
    node: str | None,
    deny: bool,
    comment: str,
    by: str | None,
    listed: bool,
) -> int:
    """Approve the NODE of RUN that waits for it; where only one waits, it need not be named.

    A decision may be given before the node asks. The first one stands; where a node asks for several approvals, each
    person gives one, and one who denies it decides alone.
    """
    with settings.home(readonly=listed) as home:
        waiting = _waiting(home, run_id)
        if listed:
            questions = [_question(home, run, name) for run, name in waiting]
            settings.answer({"waiting": questions}, lambda console: _show(console, questions))
            return OK
        run, name = _chosen(home, waiting, run_id, node)
        judgement = decide(home, run, name, approved=not deny, by=who(by), comment=comment)
        said = ("denied" if deny else "approved") + f" {name} of run {run.id}"
        if judgement.approved is None:
            said += f"; it waits on: {judgement.missing}"
        settings.answer(
            {"run": run.id, "node": name, "approved": not deny, "decided": judgement.approved is not None},
            lambda console: print_text(console, said),
        )
    return OK


def _waiting(home: Home, run_id: str | None) -> list[tuple[Run, str]]:
    runs = (
        [open_run(home, run_id)] if run_id else [run for run in list_runs(home, 100) if run.state is RunState.RUNNING]
    )
    return [(run, name) for run in runs for name in waiting_tasks(home, run)]


def _chosen(home: Home, waiting: list[tuple[Run, str]], run_id: str | None, node: str | None) -> tuple[Run, str]:
    if node is not None:
        run = open_run(home, run_id)
        name, index = parse_task(node)
        if name not in run.pipeline.ids:
            raise InputError(f"run {run.id} has no node {node!r}", fix=suggest(name, run.pipeline.ids))
        asking = [each.id for each in run.pipeline.nodes if each.asks]
        if name not in asking:
            raise InputError(
                f"{node} asks nobody",
                fix=f"name one that does: {', '.join(asking)}" if asking else f"no node of {run.pipeline.name} does",
            )
        if len(index) != len(run.pipeline.scope(name)):
            raise InputError(
                f"{node} is not one of {name}'s items",
                fix=f"name e.g. {task_name(name, (0,) * len(run.pipeline.scope(name)))}",
            )
        return run, node
    if not waiting:
        raise InputError("nothing waits for a decision", fix="to decide beforehand: `drivetrain approve RUN NODE`")
    if len(waiting) > 1:
        names = ", ".join(f"{run.id} {name}" for run, name in waiting)
        raise InputError(f"{len(waiting)} nodes wait: {names}", fix="name one of them: `drivetrain approve RUN NODE`")
    return waiting[0]


def _question(home: Home, run: Run, name: str) -> dict[str, Any]:
    """A question as JSON: who asks, the message, what is missing, and where the artifacts lie that it is about."""
    node, index = parse_task(name)
    flow = Flow(home.store, run)
    execution = flow.execution(node, index)
    message = dict(run.pipeline[node].parameters).get("message", "")
    judgement = judge(home, run, name)
    inputs = home.store.inputs(execution) if execution else {}
    where = home.payloads.url or str(home.root)
    return {
        "run": run.id,
        "node": name,
        "message": evaluate(message, flow.values(run.pipeline.scope(node), index)),
        "answers": [each.to_json() for each in judgement.answers],
        "missing": judgement.missing,
        "artifacts": [
            {"input": key, "type": record.type, "place": f"{where.rstrip('/')}/{record.uri}"}
            for key, records in inputs.items()
            for record in records
        ],
    }


def _show(console: Console, questions: list[dict[str, Any]]) -> None:
    if not questions:
        console.print("nothing waits for a decision")
    for question in questions:
        line = f"drivetrain approve {question['run']} {question['node']}  {question['message'] or ''}".rstrip()
        print_text(console, line)
        if question["answers"]:
            print_text(console, f"  {question['missing']}")
        for artifact in question["artifacts"]:
            print_text(console, f"  {artifact['input']}: {artifact['type']} {artifact['place']}")
