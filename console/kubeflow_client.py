"""`kubeflow submit`, `status`, `logs`, `terminate`, `sync`: runs on a cluster, started, followed, ended, taken in."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ..errors import DrivetrainError, InputError
from ..pipelines import Home, Run, load_pipeline, open_run
from . import tables
from .outline import outline
from .parameters import gathered
from .settings import CANCELED, CRASH, EXIT_CODES, OK, STOPPED, USER_ERROR, Settings, shared, terminal

if TYPE_CHECKING:
    from rich.console import Console

    from ..pipelines.kubeflow.client import Client, KfpRun
    from ..pipelines.kubeflow.following import RunStatus
    from ..pipelines.kubeflow.records import Synced
    from ..pipelines.kubeflow.settings import Settings as Cluster
    from ..pipelines.kubeflow.submit import Submitted

_CODES: Final = {"COMPLETE": OK, "STOPPED": STOPPED, "CANCELED": CANCELED, "FAILED": CRASH, "RUNNING": OK}


def reaching(verb: Callable[..., int | None]) -> Callable[..., int | None]:
    """Give a verb the options that say which cluster is meant."""
    verb = click.option(
        "--namespace", metavar="NAME", help="The user's namespace; else api.namespace of kubeflow.yaml."
    )(verb)
    return click.option("--host", metavar="URL", help="Where KFP's API answers; else api.host of kubeflow.yaml.")(verb)


def meaning(verb: Callable[..., int | None]) -> Callable[..., int | None]:
    """Give a verb for a run the options that say where its cluster is."""
    return click.option(
        "--project",
        type=click.Path(path_type=Path, exists=True, file_okay=False),
        help="The project whose kubeflow.yaml says where the cluster is; else the one that the run was submitted from.",
    )(reaching(verb))


def cluster_of(project: Path, host: str | None, namespace: str | None) -> Cluster:
    """The settings of a project's cluster, with what the shell says over them."""
    from ..pipelines.kubeflow.settings import Settings as Cluster

    found = Cluster.load(project)
    api = replace(found.api, host=host or found.api.host, namespace=namespace or found.api.namespace)
    return replace(found, api=api)


def _cluster_of_run(run: Run, project: Path | None, host: str | None, namespace: str | None) -> Cluster:
    """The settings of a run's cluster."""
    from ..pipelines.kubeflow.settings import NAME

    if project is None and not (Path(run.project) / NAME).exists():
        raise InputError(
            f"the project of run {run.id} is {run.project}, which holds no {NAME} on this machine",
            fix="give --project DIR: the project whose kubeflow.yaml says where the cluster is",
        )
    return cluster_of(project or Path(run.project), host, namespace)


@contextmanager
def home_for(settings: Settings, cluster: Cluster, *, readonly: bool) -> Iterator[Home]:
    """The home of a cluster's runs: its payloads are where pods keep them, unless it is said or known otherwise."""
    there = settings.artifacts
    if there is None and "://" in cluster.artifacts and not (settings.root / "metadata.db").exists():
        there = cluster.artifacts
    with replace(settings, artifacts=there).home(readonly=readonly) as home:
        yield home


@click.command(
    epilog=f"{EXIT_CODES}\n\b\nExample:\n"
    "  drivetrain kubeflow submit examples/flights --param epochs=5\n"
    "  drivetrain kubeflow submit examples/flights --wait --json\n"
)
@click.argument("project", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--param", "-p", "params", multiple=True, metavar="NAME=VALUE", help="Set a parameter of the pipeline.")
@click.option(
    "--params",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Set parameters by a file: JSON, YAML or TOML. A variable DRIVETRAIN_PARAM_NAME sets one too.",
)
@click.option("--name", default="", help="What KFP calls the run; else the pipeline's name and the run's id.")
@click.option("--experiment", default="", metavar="NAME", help="KFP's experiment; else the pipeline's name.")
@click.option("--no-cache", is_flag=True, help="Run every node, whatever ran before.")
@click.option("--wait", is_flag=True, help="Wait for the run's end, and leave with its exit code.")
@click.option("--timeout", type=float, metavar="SECONDS", help="Wait no longer than that.")
@reaching
@shared
def submit(
    settings: Settings,
    project: Path,
    params: tuple[str, ...],
    file: Path | None,
    name: str,
    experiment: str,
    no_cache: bool,
    wait: bool,
    timeout: float | None,
    host: str | None,
    namespace: str | None,
) -> int:
    """Run the pipeline in PROJECT on its cluster.

    What ran before with the same code, parameters and inputs gets no pod, where --store is the store of the pods and
    the artifacts lie where they keep them; otherwise the pods find out themselves.
    """
    from ..pipelines.kubeflow.submit import submit as hand_over

    if timeout is not None and not wait:
        raise click.UsageError("--timeout is for --wait")
    pipeline = load_pipeline(project)
    cluster = cluster_of(project, host, namespace)
    values = gathered(pipeline.parameters, params, file)
    with home_for(settings, cluster, readonly=False) as home:
        done = hand_over(home, pipeline, cluster, values, name=name, experiment=experiment, cache=not no_cache)
        return _followed(settings, home, cluster, done, timeout if wait else 0.0)


def resubmit(settings: Settings, home: Home, run: Run) -> int:
    """Go on with a run of a cluster: what did not end well is submitted again."""
    from ..pipelines.kubeflow.submit import resubmit as hand_over

    cluster = cluster_of(_here(run), None, None)
    return _followed(settings, home, cluster, hand_over(home, run, cluster), 0.0)


def _here(run: Run) -> Path:
    """The project of a run, to submit from."""
    project = Path(run.project)
    if not project.is_dir():
        raise InputError(
            f"the project of run {run.id} is {project}, which is not on this machine",
            fix="submit it anew from where it is: what ended well is cached",
        )
    return project


def _followed(settings: Settings, home: Home, cluster: Cluster, done: Submitted, timeout: float | None) -> int:
    """Say what was submitted, wait for its end where that is wanted; gives the exit code."""
    from ..pipelines.kubeflow import following
    from ..pipelines.kubeflow.client import Client
    from ..pipelines.kubeflow.ownership import within_reach

    unseen = "" if within_reach(home, cluster.artifacts) else cluster.artifacts
    if done.kfp is None or timeout == 0.0:
        settings.answer(done.to_json(), lambda console: _show_submitted(console, settings, done, unseen))
        return _CODES[done.state]
    if not settings.json:
        _show_submitted(terminal(), settings, done, unseen)
    client, run = Client(cluster.api), following.find(home, done.run)
    run = following.wait(home, run, client, seen=_Said(quiet=settings.json), timeout=timeout)
    return _told(settings, following.status(home, run, client, _asked(cluster)), run)


class _Said:
    """Says each state of a KFP run once."""

    def __init__(self, *, quiet: bool) -> None:
        self._last = "" if not quiet else None

    def __call__(self, run: KfpRun) -> None:
        if self._last is not None and run.state != self._last:
            self._last = run.state
            click.echo(f"KFP: {run.state}")


@click.command(
    epilog=f"{EXIT_CODES}\n\b\nExample:\n  drivetrain kubeflow status\n"
    "  drivetrain kubeflow status 20261121-093000-1a2b --json\n"
)
@click.argument("run_id", metavar="[RUN]", required=False)
@meaning
@shared
def status(
    settings: Settings, run_id: str | None, project: Path | None, host: str | None, namespace: str | None
) -> int:
    """Say how far a RUN on a cluster is, by its id or KFP's (the newest one unless given).

    Our store says how tasks ended, KFP what it started, and Kubernetes, where it can be asked, why a pod does not run.
    """
    from ..pipelines.kubeflow import following

    with settings.home() as home:
        run = following.find(home, run_id)
        cluster = _cluster_of_run(run, project, host, namespace)
        found = following.status(home, run, _client(cluster), _asked(cluster))
        return _told(settings, found, run)


@click.command(
    epilog="\b\nExample:\n  drivetrain kubeflow logs 20261121-093000-1a2b Trainer\n"
    "  drivetrain kubeflow logs 20261121-093000-1a2b 'Trainer[3]' --tail 50\n"
)
@click.argument("run_id", metavar="RUN")
@click.argument("task", metavar="NODE")
@click.option("--tail", type=click.IntRange(min=1), metavar="N", help="The last N lines only.")
@meaning
@shared
def logs(
    settings: Settings,
    run_id: str,
    task: str,
    tail: int | None,
    project: Path | None,
    host: str | None,
    namespace: str | None,
) -> int:
    """Print what NODE's newest pod printed in RUN.

    It is asked of Kubernetes, which has it for as long as the pod is there: once the cluster has removed the pod, or
    KFP the run (ttl in kubeflow.yaml), it is gone. Why a task failed stays in the store: `drivetrain show RUN`.
    """
    from ..pipelines.kubeflow import following

    with settings.home() as home:
        run = following.find(home, run_id)
        cluster = _cluster_of_run(run, project, host, namespace)
        found = following.log(home, run, task, _asked(cluster), lines=tail)
        if settings.json:
            settings.answer({"run": run.id, "node": task, "pod": found.pod, "text": found.text}, lambda console: None)
        else:
            sys.stdout.write(found.text)
    return OK


@click.command(epilog=f"{EXIT_CODES}\n\b\nExample:\n  drivetrain kubeflow terminate 20261121-093000-1a2b\n")
@click.argument("run_id", metavar="RUN")
@meaning
@shared
def terminate(settings: Settings, run_id: str, project: Path | None, host: str | None, namespace: str | None) -> int:
    """End a RUN on its cluster, by its id or KFP's, and record how its tasks ended."""
    from ..pipelines.kubeflow import following

    with settings.home() as home:
        run = following.find(home, run_id)
        cluster = _cluster_of_run(run, project, host, namespace)
        client = _client(cluster)
        run = following.terminate(home, run, client)
        _told(settings, following.status(home, run, client), run)
    return OK


@click.command(
    epilog="\b\nExample:\n  drivetrain kubeflow sync kubeflow-068e50e0-6780-41dd-b5a1-2e041edba292 "
    "--store postgresql://store/drivetrain\n"
)
@click.argument("run", metavar="RUN")
@meaning
@shared
def sync(settings: Settings, run: str, project: Path | None, host: str | None, namespace: str | None) -> int:
    """Take into the store what the pods of RUN recorded beside the payloads and could not tell it.

    A run that KFP has ended and no pod has closed is closed. Twice changes nothing. Exit code 2 where a record cannot
    be read: it is named, the others are taken in.
    """
    from ..pipelines.kubeflow import following
    from ..pipelines.kubeflow.ownership import on_cluster
    from ..pipelines.kubeflow.records import sync as take_in

    notes: list[str] = []
    with settings.home(readonly=False) as home:
        with suppress(InputError):  # of one that the store does not know there may be records
            run = following.find(home, run).id
        found = take_in(home, run)
        there = open_run(home, found.run)
        if there.state == "RUNNING" and on_cluster(there):
            try:
                there = following.close(home, there, _client(_cluster_of_run(there, project, host, namespace)))
            except DrivetrainError as error:
                notes.append(f"whether KFP has ended it is not known: {error.message}")
    answer = found.to_json() | {"state": there.state, "notes": notes}
    settings.answer(answer, lambda console: _show_synced(console, found, there.state, notes))
    return USER_ERROR if found.ignored else OK


def _show_synced(console: Console, found: Synced, state: str, notes: list[str]) -> None:
    new = f": {', '.join(found.brought)}" if found.brought else ""
    count = f"{len(found.brought)} executions are" if len(found.brought) != 1 else "1 execution is"
    lines = [f"run {found.run}, {state}: {count} new to the store{new}; it knew {found.known}"]
    lines += [f"ignored {name}: {why}" for name, why in found.ignored]
    lines += [f"note: {note}" for note in notes]
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


def _client(cluster: Cluster) -> Client:
    from ..pipelines.kubeflow.client import Client

    return Client(cluster.api)


def _asked(cluster: Cluster) -> Callable[[], Any]:
    from ..pipelines.kubeflow.cluster import Cluster as Kubernetes

    return lambda: Kubernetes(cluster.api, cluster.api.namespace or cluster.namespace)


def _show_submitted(console: Console, settings: Settings, done: Submitted, unseen: str) -> None:
    cached = sum(result.state == "CACHED" for result in done.ended.values())
    if done.kfp is None:
        console.print(f"run {done.run}: {done.state}, nothing was left for the cluster ({cached} cached)", markup=False)
        return
    reused = f", {cached} {'is' if cached == 1 else 'are'} cached" if cached else ""
    console.print(f"run {done.run}: {done.pods} nodes go to the cluster{reused}", markup=False)
    console.print(f"  KFP's run {done.kfp.id}  {done.kfp.link}", markup=False, soft_wrap=True)
    console.print(
        f"  to follow it: drivetrain kubeflow status {done.run}{settings.spelled}", markup=False, soft_wrap=True
    )
    if unseen:
        note = f"note: the pods' artifacts, at {unseen}, are not this root's: pods alone find what ran before"
        console.print(f"{note}; give --store to share theirs", markup=False, soft_wrap=True)


def _told(settings: Settings, found: RunStatus, run: Run) -> int:
    def show(console: Console) -> None:
        table = tables.nodes_table(outline(run.pipeline), {task.task: task for task in found.tasks})
        tables.show_nodes(console, f"{run.pipeline.name}, run {run.id}:", found.state, table)
        if found.kfp is not None:
            more = f": {found.kfp.error}" if found.kfp.error else ""
            console.print(f"KFP's run {found.kfp.id}: {found.kfp.state}{more}", markup=False, soft_wrap=True)
        for note in found.notes:
            console.print(f"note: {note}", markup=False, soft_wrap=True)

    settings.answer(found.to_json(), show)
    return _CODES.get(found.state, CRASH)


VERBS: Final = (submit, status, logs, terminate, sync)
