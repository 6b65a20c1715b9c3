"""`kubeflow submit`: a run on a cluster, started and waited for; what `resume` does with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...errors import InputError
from ...pipelines import Home, Run, load_pipeline
from ...pipelines.launcher.states import EndState
from ..exit_codes import EXIT_CODES
from ..options import (
    ConsoleSettings,
    Labels,
    gather_parameters,
    parameter_options,
    pipeline_option,
    print_text,
    shared,
    tag_options,
)
from ..run import root_line
from ..terminal import echo, terminal
from .cluster import cluster_of, cluster_options, kubernetes_of
from .status import answer_status

if TYPE_CHECKING:
    from rich.console import Console

    from ...pipelines.kubeflow.client import KfpRun
    from ...pipelines.kubeflow.settings import ClusterSettings
    from ...pipelines.kubeflow.submit import SubmitResult


@contextmanager
def home_for(settings: ConsoleSettings, cluster: ClusterSettings) -> Iterator[Home]:
    """Open the home of a cluster's runs. A new one keeps its payloads where the pods do, without --artifacts."""
    artifacts = settings.artifacts
    if artifacts is None and "://" in cluster.artifacts and not (settings.location.root / "metadata.db").exists():
        artifacts = cluster.artifacts
    with replace(settings, artifacts=artifacts).home(readonly=False, create=True) as home:
        yield home


@click.command(
    epilog=f"{EXIT_CODES}\n\b\nExample:\n"
    "  drivetrain kubeflow submit examples/flights --param epochs=5\n"
    "  drivetrain kubeflow submit examples/flights --wait --json\n"
)
@click.argument("project", type=click.Path(path_type=Path, exists=True, file_okay=False))
@pipeline_option
@parameter_options
@click.option("--name", default="", help="What KFP calls the run; else the pipeline's name and the run's id.")
@click.option("--experiment", default="", metavar="NAME", help="KFP's experiment; else the pipeline's name.")
@click.option("--no-cache", is_flag=True, help="Run every node, whatever ran before.")
@click.option("--wait", is_flag=True, help="Wait for the run's end, and leave with its exit code.")
@click.option("--timeout", type=float, metavar="SECONDS", help="Wait no longer than that.")
@tag_options
@cluster_options
@shared
def submit(
    settings: ConsoleSettings,
    project: Path,
    which: str | None,
    params: tuple[str, ...],
    file: Path | None,
    name: str,
    experiment: str,
    no_cache: bool,
    wait: bool,
    timeout: float | None,
    host: str | None,
    namespace: str | None,
    labels: Labels,
) -> int:
    """Run the pipeline in PROJECT on its cluster.

    Nodes that ran before with the same code, parameters and inputs get no pod, if --store is the pods' store and the
    artifacts are where the pods keep them. Otherwise each pod looks for itself.
    """
    from ...pipelines.kubeflow.submit import submit as submit_run

    if timeout is not None and not wait:
        raise click.UsageError("--timeout is for --wait")
    pipeline = load_pipeline(project, which)
    cluster = cluster_of(project, host, namespace)
    values = gather_parameters(pipeline.parameters, params, file)
    settings = settings.of(project)
    with home_for(settings, cluster) as home:
        line = root_line(settings, home)
        submitted = submit_run(
            home, pipeline, cluster, values, name=name, experiment=experiment, cache=not no_cache, **labels
        )
        echo(line, err=True)
        return _followed(settings, home, cluster, submitted, timeout if wait else 0.0)


def resubmit(settings: ConsoleSettings, home: Home, run: Run) -> int:
    """Resume a run of a cluster: submit what did not end well again. Returns the exit code."""
    from ...pipelines.kubeflow.submit import resubmit as resubmit_run

    cluster = cluster_of(_here(run), None, None)
    return _followed(settings, home, cluster, resubmit_run(home, run, cluster), 0.0)


def _here(run: Run) -> Path:
    """The project of a run, to submit from."""
    project = Path(run.project)
    if not project.is_dir():
        raise InputError(
            f"the project of run {run.id} is {project}, which is not on this machine",
            fix="submit it again from where it is: what ended well is cached",
        )
    return project


def _followed(
    settings: ConsoleSettings, home: Home, cluster: ClusterSettings, submitted: SubmitResult, timeout: float | None
) -> int:
    """Print what was submitted; wait for its end unless `timeout` (seconds) is 0. Gives the exit code."""
    from ...pipelines.kubeflow import following
    from ...pipelines.kubeflow.client import KfpClient
    from ...pipelines.kubeflow.ownership import within_reach

    unseen = "" if within_reach(home, cluster.artifacts) else cluster.artifacts
    if submitted.kfp is None or timeout == 0.0:
        settings.answer(submitted.to_json(), lambda console: _show_submitted(console, settings, submitted, unseen))
        return submitted.state.exit_code
    if not settings.json:
        _show_submitted(terminal(), settings, submitted, unseen)
    client, run = KfpClient(cluster.api), following.find(home, submitted.run)
    run = following.wait(home, run, client, seen=_StatePrinter(quiet=settings.json), timeout=timeout)
    return answer_status(settings, following.status(home, run, client, kubernetes_of(cluster)), run)


class _StatePrinter:
    """Prints each state of a KFP run once."""

    def __init__(self, *, quiet: bool) -> None:
        self._last = "" if not quiet else None

    def __call__(self, run: KfpRun) -> None:
        if self._last is not None and run.state != self._last:
            self._last = run.state
            echo(f"KFP: {run.state}")


def _show_submitted(console: Console, settings: ConsoleSettings, submitted: SubmitResult, unseen: str) -> None:
    cached = sum(result.state is EndState.CACHED for result in submitted.ended.values())
    if submitted.kfp is None:
        console.print(
            f"run {submitted.run}: {submitted.state}, nothing was left for the cluster ({cached} cached)", markup=False
        )
        return
    reused = f", {cached} {'is' if cached == 1 else 'are'} cached" if cached else ""
    console.print(f"run {submitted.run}: {submitted.pods} nodes go to the cluster{reused}", markup=False)
    print_text(console, f"  KFP's run {submitted.kfp.id}  {submitted.kfp.link}")
    print_text(console, f"  to follow it: drivetrain kubeflow status {submitted.run}{settings.as_options}")
    if unseen:
        note = f"note: the pods' artifacts, at {unseen}, are not this root's: pods alone find what ran before"
        print_text(console, f"{note}; give --store to share theirs")
