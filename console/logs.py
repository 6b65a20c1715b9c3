"""`logs`: what the nodes of a run printed, also while they do."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from ..errors import InputError
from ..pipelines import Home, Run, Secret, open_run
from ..pipelines.ir.tasks import parse_task
from ..pipelines.launcher.flow import Flow
from ..pipelines.launcher.logs import LogReader, Logs
from ..pipelines.launcher.retries import postponed
from ..pipelines.launcher.states import RunState, TaskState, UnfinishedState, task_state
from .exit_codes import OK
from .options import ConsoleSettings, print_text, shared
from .terminal import echo

if TYPE_CHECKING:
    from rich.console import Console

_POLL = 0.2
"""Seconds between two reads of a log that is followed."""
_LONGEST = 1 << 20
"""Characters of a line that is printed before it has an end."""


@click.command(
    epilog="\b\nExample:\n  drivetrain logs\n  drivetrain logs Trainer -f\n"
    "  drivetrain logs 20261121-093000-1a2b Trainer\n  drivetrain logs 20261121-093000-1a2b 'Trainer[3]' --json\n"
)
@click.argument("run_id", metavar="[RUN]", required=False)
@click.argument("task", metavar="[NODE]", required=False)
@click.option("--follow", "-f", is_flag=True, help="Go on until the node has ended.")
@shared
def logs(settings: ConsoleSettings, run_id: str | None, task: str | None, follow: bool) -> int:
    """Print what NODE printed in RUN; without NODE, list the logs of RUN (the newest unless given) and their sizes.

    A NODE alone is one of the newest run. Of a node in a loop, Trainer[3] is one item, Trainer is all. Runs on other
    runners than inline have everything; inline prints to the terminal, and its logs hold the beginning, the end, notes
    and tracebacks.
    """
    with settings.home() as home:
        run, task = _meant(home, run_id, task)
        run_logs = Logs(home.root, run.id)
        if task is None:
            if follow:
                raise click.UsageError("--follow needs a NODE")
            settings.answer(_listed(home, run, run_logs), lambda console: _list(console, home, run, run_logs))
            return OK
        names = _named(run, run_logs, task, follow=follow)
        _redact_secrets_of(run, task)
        text = (part for name in names for part in _parts(home, run, run_logs, name, follow=follow))
        if settings.json:
            settings.answer({"run": run.id, "node": task, "text": "".join(text)}, lambda console: None)
        else:
            for part in text:
                echo(part, end="")
                sys.stdout.flush()
    return OK


def _meant(home: Home, run_id: str | None, task: str | None) -> tuple[Run, str | None]:
    """The run and the node. A word alone that is no run may be a node of the newest run."""
    try:
        return open_run(home, run_id), task
    except InputError:
        if run_id is None or task is not None:
            raise
        newest = open_run(home, None)
        if parse_task(run_id)[0] not in newest.pipeline.ids:
            raise
        return newest, run_id


def _listed(home: Home, run: Run, run_logs: Logs) -> dict[str, object]:
    flow = Flow(home.store, run)
    entries = [
        {"node": name, "state": _state(home, flow, name), "bytes": path.stat().st_size, "path": str(path)}
        for name, path in run_logs.tasks().items()
    ]
    return {"run": run.id, "logs": entries}


def _list(console: Console, home: Home, run: Run, run_logs: Logs) -> None:
    flow = Flow(home.store, run)
    tasks = run_logs.tasks()
    if not tasks:
        console.print(f"run {run.id} has no logs", markup=False)
        return
    width = max(map(len, tasks))
    for name, path in tasks.items():
        line = f"{name:<{width}}  {_state(home, flow, name):<9}  {path.stat().st_size:>11,} bytes  {path}"
        print_text(console, line)


def _named(run: Run, run_logs: Logs, task: str, *, follow: bool) -> list[str]:
    """The tasks whose logs are meant.

    Raises:
        InputError: There is no such node, or it has no log.
    """
    node, index = parse_task(task)
    run.pipeline[node]  # raises where there is none
    existing = run_logs.tasks()
    names = [task] if index or task in existing else [name for name in existing if parse_task(name)[0] == node]
    if follow and not names and not run.pipeline.scope(node):
        names = [task]  # it has yet to begin
    if follow and len(names) > 1:
        raise InputError(f"{task} has {len(names)} logs", fix=f"follow one, e.g. {names[0]!r}")
    if not names or (not follow and names[0] not in existing):
        raise InputError(f"{task} has no log in run {run.id}", fix="see `drivetrain logs` for those there are")
    return names


def _parts(home: Home, run: Run, run_logs: Logs, name: str, *, follow: bool) -> Iterator[str]:
    """The text of a log with secrets redacted; with `follow` also what is added, until the task has ended."""
    reader, ended = LogReader(run_logs.path(name), longest=_LONGEST), False
    while not ended:
        # Asked before the read: what the task writes between the two is read as well.
        ended = not follow or _has_ended(home, run, name)
        yield from reader.read(last=ended)
        if not ended:
            time.sleep(_POLL)


def _has_ended(home: Home, run: Run, name: str) -> bool:
    """Whether a task will print no more: the run has ended, or the task has and will not be tried again."""
    if open_run(home, run.id).state is not RunState.RUNNING:
        return True
    state = _state(home, Flow(home.store, run), name)
    return state not in (UnfinishedState.WAITING, UnfinishedState.RUNNING)


def _state(home: Home, flow: Flow, name: str) -> TaskState:
    execution = flow.execution(*parse_task(name))
    if execution is not None and postponed(flow.run, execution) is not None:
        return UnfinishedState.WAITING
    return task_state(execution)


def _redact_secrets_of(run: Run, task: str) -> None:
    """Have the node's secrets redacted in what follows, as far as this process can know their values."""
    node = run.pipeline[parse_task(task)[0]]
    for _, value in (*node.parameters, *node.options.env):
        if isinstance(value, dict) and "$secret" in value:
            with suppress(InputError):
                Secret(value["$secret"]).reveal()
