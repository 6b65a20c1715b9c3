"""`kubeflow status`: how far a run on a cluster is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...pipelines import Run
from ..exit_codes import EXIT_CODES
from ..options import ConsoleSettings, print_text, shared
from ..outline import outline
from ..show import nodes_table, show_nodes
from .cluster import client_of, cluster_of_run, kubernetes_of, run_cluster_options

if TYPE_CHECKING:
    from rich.console import Console

    from ...pipelines.kubeflow.following import RunStatus


@click.command(
    epilog=f"{EXIT_CODES}\n\b\nExample:\n  drivetrain kubeflow status\n"
    "  drivetrain kubeflow status 20261121-093000-1a2b --json\n"
)
@click.argument("run_id", metavar="[RUN]", required=False)
@run_cluster_options
@shared
def status(
    settings: ConsoleSettings, run_id: str | None, project: Path | None, host: str | None, namespace: str | None
) -> int:
    """Show how far a RUN on a cluster is, by its id or KFP's; the newest one by default.

    It combines three sources: our store (how tasks ended), KFP (what it started), and Kubernetes, where it can be
    reached (why a pod does not run).
    """
    from ...pipelines.kubeflow import following

    with settings.of(project).home(readonly=False) as home:
        run = following.find(home, run_id)
        cluster = cluster_of_run(run, project, host, namespace)
        run_status = following.status(home, run, client_of(cluster), kubernetes_of(cluster))
        return answer_status(settings, run_status, run)


def answer_status(settings: ConsoleSettings, run_status: RunStatus, run: Run) -> int:
    """Print a run's tasks and what KFP says of it, or answer with JSON; gives the exit code."""

    def show(console: Console) -> None:
        table = nodes_table(outline(run.pipeline), {task.task: task for task in run_status.tasks})
        show_nodes(console, f"{run.pipeline.name}, run {run.id}:", run_status.state, table)
        if run_status.kfp is not None:
            more = f": {run_status.kfp.error}" if run_status.kfp.error else ""
            print_text(console, f"KFP's run {run_status.kfp.id}: {run_status.kfp.state}{more}")
        for note in run_status.notes:
            print_text(console, f"note: {note}")

    settings.answer(run_status.to_json(), show)
    return run_status.state.exit_code
