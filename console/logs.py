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
from ..pipelines.ir.tasks import parse_task
from ..pipelines.launcher.flow import Flow
from ..pipelines.launcher.logs import Logs
from ..pipelines.launcher.retries import postponed
from ..pipelines.project.secret import marked_secrets, redact
from .options import OK, Settings, shared

if TYPE_CHECKING:
    from rich.console import Console

_LOOK = 0.2
"""Seconds between looks at a log that is followed."""
_RETRIED = 2.0
"""Seconds within which a task that failed, and may be tried again, says so."""
_MUCH = 1 << 20
"""Bytes of a log that are held at once."""


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
        {"node": name, "state": _state(home, flow, name), "bytes": path.stat().st_size, "path": str(path)}
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
        line = f"{name:<{width}}  {_state(home, flow, name):<9}  {path.stat().st_size:>11,} bytes  {path}"
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
    place, rest, over, path = 0, b"", False, found.path(name)
    while not over:
        over = not follow or _over(home, run, name)  # asked before the look: the last words must be seen
        while data := _read(path, place):
            place, rest = place + len(data), rest + data
            cut = _cut(rest)
            yield redact(rest[:cut].decode("utf-8", "replace"))
            rest = rest[cut:]
        if not over:
            time.sleep(_LOOK)
    yield redact(rest.decode("utf-8", "replace"))


def _read(path: Path, place: int) -> bytes:
    with suppress(FileNotFoundError), path.open("rb") as file:
        file.seek(place)
        return file.read(_MUCH)
    return b""


def _cut(text: bytes) -> int:
    """How much of a text that may go on can be shown: whole lines, and nothing that may be the begin of a secret."""
    secrets = [value.encode() for value in marked_secrets()]
    cut = len(text) - max((len(secret) for secret in secrets), default=1) + 1
    if (line := text.rfind(b"\n", 0, max(0, cut)) + 1) or len(text) < _MUCH:
        cut = line
    found = True
    while found:
        found = False
        for secret in secrets:
            start = text.find(secret, max(0, cut - len(secret) + 1))
            if 0 <= start < cut:
                cut, found = start, True
    while cut > 0 and cut < len(text) and text[cut] & 0xC0 == 0x80:  # amid a character
        cut -= 1
    return max(0, cut)


def _over(home: Home, run: Run, name: str) -> bool:
    """Whether a task prints no more: it ended and is not to be tried again, or the run did."""
    if open_run(home, run.id).state != "RUNNING":
        return True
    begin, patience = time.monotonic(), _RETRIED if run.pipeline[parse_task(name)[0]].options.retries else 0.0
    while (state := _state(home, Flow(home.store, run), name)) == "FAILED" and time.monotonic() - begin < patience:
        time.sleep(_LOOK)
    return state not in ("WAITING", "RUNNING")


def _state(home: Home, flow: Flow, name: str) -> str:
    execution = flow.execution(*parse_task(name))
    if execution is None or postponed(home.store, flow.run, execution) is not None:
        return "WAITING"
    return execution.state


def _conceal(run: Run, task: str) -> None:
    """Blot out the node's secrets, as far as this process can know them."""
    node = run.pipeline[parse_task(task)[0]]
    for _, value in (*node.parameters, *node.options.env):
        if isinstance(value, dict) and "$secret" in value:
            with suppress(InputError):
                Secret(value["$secret"]).reveal()
