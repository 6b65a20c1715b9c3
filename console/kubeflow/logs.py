"""`kubeflow logs`: what a node's pod printed."""

from __future__ import annotations

from pathlib import Path

import click

from ..exit_codes import OK
from ..options import ConsoleSettings, shared
from ..terminal import echo
from .cluster import cluster_of_run, kubernetes_of, run_cluster_options


@click.command(
    epilog="\b\nExample:\n  drivetrain kubeflow logs 20261121-093000-1a2b Trainer\n"
    "  drivetrain kubeflow logs 20261121-093000-1a2b 'Trainer[3]' --tail 50\n"
)
@click.argument("run_id", metavar="RUN")
@click.argument("task", metavar="NODE")
@click.option("--tail", type=click.IntRange(min=1), metavar="N", help="The last N lines only.")
@run_cluster_options
@shared
def logs(
    settings: ConsoleSettings,
    run_id: str,
    task: str,
    tail: int | None,
    project: Path | None,
    host: str | None,
    namespace: str | None,
) -> int:
    """Print what NODE's newest pod printed in RUN.

    Kubernetes keeps the log only as long as the pod: it is gone once the cluster has removed the pod, or KFP the run
    (ttl in kubeflow.yaml). Why a task failed stays in the store: `drivetrain show RUN`.
    """
    from ...pipelines.kubeflow import following

    with settings.of(project).home() as home:
        run = following.find(home, run_id)
        cluster = cluster_of_run(run, project, host, namespace)
        log = following.log(home, run, task, kubernetes_of(cluster), lines=tail)
        # Not on the console, whose `print` would lay the text out anew: it is shown as the pod printed it.
        settings.answer(
            {"run": run.id, "node": task, "pod": log.pod, "text": log.text}, lambda _: echo(log.text, end="")
        )
    return OK
