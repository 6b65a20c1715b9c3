"""`logs`: what the nodes of a run printed, also while they do."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import InputError
from ..pipelines import Home, Run, Secret, open_run
from ..pipelines.form.tasks import parse_task
from ..pipelines.launching.flow import Flow
from ..pipelines.launching.logs import Logs
from ..pipelines.sources.secret import blotted
from .settings import OK, Settings, shared

if TYPE_CHECKING:
    from rich.console import Console

_LOOK = 0.2
"""Seconds between looks at a log that is followed."""


@click.command(
    epilog="\b\nExample:\n  drivetrain logs\n  drivetrain logs 20261121-093000-1a2b Trainer -f\n"
    "  drivetrain logs 20261121-093000-1a2b 'Trainer[3]' --json\n"
)
@click.argument("run_id", metavar="[RUN]", required=False)
@click.argument("task", metavar="[NODE]", required=False)
@click.option("--follow", "-f", is_flag=True, help="Go on until the node has ended.")
@shared
def logs(settings: Settings, run_id: str | None, task: str | None, follow: bool) -> int:
    """Print what NODE printed in RUN; without NODE, list the logs of RUN (the newest unless given) and their sizes.

    Of a node in a loop, Trainer[3] is one item, Trainer is all. Runs on other runners than inline have everything;
    inline prints to the terminal, and its logs hold the beginning, the end, notes and tracebacks.
    """
    with settings.home() as home:
        run = open_run(home, run_id)
        found = Logs(home.root, run.id)
        if task is None:
            if follow:
                raise click.UsageError("--follow needs a RUN and a NODE")
            settings.answer(_listed(home, run, found), lambda console: _list(console, home, run, found))
            return OK
        names = _named(run, found, task, follow=follow)
        _conceal(run, task)
        text = (part for name in names for part in _parts(home, run, found, name, follow=follow))
        if settings.json:
            settings.answer({"run": run.id, "node": task, "text": "".join(text)}, lambda console: None)
        else:
            for part in text:
                sys.stdout.write(part)
                sys.stdout.flush()
    return OK


def _listed(home: Home, run: Run, found: Logs) -> dict[str, object]:
    flow = Flow(home.store, run)
    each = [
        {"node": name, "state": _state(flow, name), "bytes": path.stat().st_size, "path": str(path)}
        for name, path in found.tasks().items()
    ]
    return {"run": run.id, "logs": each}


def _list(console: Console, home: Home, run: Run, found: Logs) -> None:
    flow = Flow(home.store, run)
    tasks = found.tasks()
    if not tasks:
        console.print(f"run {run.id} has no logs", markup=False)
        return
    width = max(map(len, tasks))
    for name, path in tasks.items():
        line = f"{name:<{width}}  {_state(flow, name):<9}  {path.stat().st_size:>11,} bytes  {path}"
        console.print(line, markup=False, soft_wrap=True)


def _named(run: Run, found: Logs, task: str, *, follow: bool) -> list[str]:
    """The tasks whose logs are meant.

    Raises:
        InputError: There is no such node, or it has no log.
    """
    node, index = parse_task(task)
    run.pipeline[node]  # raises where there is none
    there = found.tasks()
    names = [task] if index or task in there else [name for name in there if parse_task(name)[0] == node]
    if follow and not names and not run.pipeline.scope(node):
        names = [task]  # it is still to begin
    if follow and len(names) > 1:
        raise InputError(f"{task} has {len(names)} logs", fix=f"follow one, e.g. {names[0]!r}")
    if not names or (not follow and names[0] not in there):
        raise InputError(f"{task} has no log in run {run.id}", fix="see `drivetrain logs` for those there are")
    return names


def _parts(home: Home, run: Run, found: Logs, name: str, *, follow: bool) -> Iterator[str]:
    """What is there, without secrets; and what comes, until the task has ended."""
    place, over, path = 0, False, found.path(name)
    while not over:
        over = not follow or _over(home, run, name, path)  # asked before the look: the last words must be seen
        data = b""
        with suppress(FileNotFoundError), path.open("rb") as file:
            file.seek(place)
            data = file.read()
        if not over:
            data = data[: data.rfind(b"\n") + 1]  # whole lines: a secret in a half one could not be seen
        place += len(data)
        yield blotted(data.decode("utf-8", "replace"))
        if not over:
            time.sleep(_LOOK)


def _over(home: Home, run: Run, name: str, path: Path) -> bool:
    """Whether a task prints no more: it ended and is not to be tried again, or the run did."""
    if open_run(home, run.id).state != "RUNNING":
        return True
    if _state(Flow(home.store, run), name) in ("WAITING", "RUNNING"):
        return False
    with suppress(FileNotFoundError), path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 4096))
        last = file.read().decode("utf-8", "replace").splitlines()[-2:]
        return not any("; retry " in line and line.endswith(" s") for line in last)
    return True


def _state(flow: Flow, name: str) -> str:
    execution = flow.execution(*parse_task(name))
    return execution.state if execution else "WAITING"


def _conceal(run: Run, task: str) -> None:
    """Blot out the node's secrets, as far as this process can know them."""
    node = run.pipeline[parse_task(task)[0]]
    for _, value in (*node.parameters, *node.options.env):
        if isinstance(value, dict) and "$secret" in value:
            with suppress(InputError):
                Secret(value["$secret"]).reveal()
