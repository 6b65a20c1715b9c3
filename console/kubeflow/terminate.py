"""`kubeflow terminate`: end a run on its cluster."""

from __future__ import annotations

from pathlib import Path

import click

from ..exit_codes import EXIT_CODES, OK
from ..options import ConsoleSettings, shared
from .cluster import client_of, cluster_of_run, run_cluster_options
from .status import answer_status


@click.command(epilog=f"{EXIT_CODES}\n\b\nExample:\n  drivetrain kubeflow terminate 20261121-093000-1a2b\n")
@click.argument("run_id", metavar="RUN")
@run_cluster_options
@shared
def terminate(
    settings: ConsoleSettings, run_id: str, project: Path | None, host: str | None, namespace: str | None
) -> int:
    """End a RUN on its cluster, by its id or KFP's, and record how its tasks ended."""
    from ...pipelines.kubeflow import following

    with settings.of(project).home(readonly=False) as home:
        run = following.find(home, run_id)
        cluster = cluster_of_run(run, project, host, namespace)
        client = client_of(cluster)
        run = following.terminate(home, run, client)
        answer_status(settings, following.status(home, run, client), run)
    return OK
