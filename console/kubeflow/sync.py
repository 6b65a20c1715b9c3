"""`kubeflow sync`: what pods recorded beside the payloads, taken into the store."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...errors import DrivetrainError, InputError
from ...pipelines import open_run
from ...pipelines.launcher.states import RunState
from ..exit_codes import OK, USER_ERROR
from ..options import ConsoleSettings, print_text, shared
from .cluster import client_of, cluster_of_run, run_cluster_options

if TYPE_CHECKING:
    from rich.console import Console

    from ...pipelines.launcher.run_records import SyncReport


@click.command(
    epilog="\b\nExample:\n  drivetrain kubeflow sync kubeflow-068e50e0-6780-41dd-b5a1-2e041edba292 "
    "--store postgresql://store/drivetrain\n"
)
@click.argument("run", metavar="RUN")
@run_cluster_options
@shared
def sync(settings: ConsoleSettings, run: str, project: Path | None, host: str | None, namespace: str | None) -> int:
    """Take the records of RUN into the store: what its pods wrote beside the payloads while they could not reach it.

    A run that KFP has ended and no pod has closed is closed. A second sync changes nothing. A record that cannot be
    read is named, the others are taken in, and the exit code is 2.
    """
    from ...pipelines.kubeflow import following
    from ...pipelines.kubeflow.ownership import on_cluster
    from ...pipelines.launcher.run_records import sync as take_in

    notes: list[str] = []
    with settings.of(project).home(readonly=False, create=True) as home:
        with suppress(InputError):  # of one that the store does not know there may be records
            run = following.find(home, run).id
        synced = take_in(home, run)
        closed_run = open_run(home, synced.run)
        if closed_run.state is RunState.RUNNING and on_cluster(closed_run):
            try:
                closed_run = following.close(
                    home, closed_run, client_of(cluster_of_run(closed_run, project, host, namespace))
                )
            except DrivetrainError as error:
                notes.append(f"whether KFP has ended it is not known: {error.message}")
    answer = synced.to_json() | {"state": closed_run.state, "notes": notes}
    settings.answer(answer, lambda console: _show_synced(console, synced, closed_run.state, notes))
    return USER_ERROR if synced.ignored else OK


def _show_synced(console: Console, synced: SyncReport, state: RunState, notes: list[str]) -> None:
    new = f": {', '.join(synced.brought)}" if synced.brought else ""
    count = f"{len(synced.brought)} executions are" if len(synced.brought) != 1 else "1 execution is"
    lines = [f"run {synced.run}, {state}: {count} new to the store{new}; it knew {synced.known}"]
    lines += [f"ignored {name}: {why}" for name, why in synced.ignored]
    lines += [f"note: {note}" for note in notes]
    for line in lines:
        print_text(console, line)
