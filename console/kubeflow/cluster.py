"""Which cluster a verb of `kubeflow` means: its options, its settings, its clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...errors import InputError
from ...pipelines import Run

if TYPE_CHECKING:
    from ...pipelines.kubeflow.client import KfpClient
    from ...pipelines.kubeflow.settings import ClusterSettings


def cluster_options(verb: Callable[..., int | None]) -> Callable[..., int | None]:
    """Give a verb the options that say which cluster is meant."""
    verb = click.option(
        "--namespace", metavar="NAME", help="The user's namespace; else api.namespace of kubeflow.yaml."
    )(verb)
    return click.option("--host", metavar="URL", help="Where KFP's API answers; else api.host of kubeflow.yaml.")(verb)


def run_cluster_options(verb: Callable[..., int | None]) -> Callable[..., int | None]:
    """Give a verb for a run the options that say where its cluster is."""
    return click.option(
        "--project",
        type=click.Path(path_type=Path, exists=True, file_okay=False),
        help="The project whose kubeflow.yaml says where the cluster is; else the one that the run was submitted from.",
    )(cluster_options(verb))


def cluster_of(project: Path, host: str | None, namespace: str | None) -> ClusterSettings:
    """The settings of a project's cluster, with what the shell says over them."""
    from ...pipelines.kubeflow.settings import ClusterSettings

    cluster = ClusterSettings.load(project)
    api = replace(cluster.api, host=host or cluster.api.host, namespace=namespace or cluster.api.namespace)
    return replace(cluster, api=api)


def cluster_of_run(run: Run, project: Path | None, host: str | None, namespace: str | None) -> ClusterSettings:
    """The settings of a run's cluster."""
    from ...pipelines.kubeflow.settings import NAME

    if project is None and not (Path(run.project) / NAME).exists():
        raise InputError(
            f"the project of run {run.id} is {run.project}, which holds no {NAME} on this machine",
            fix="give --project DIR: the project whose kubeflow.yaml says where the cluster is",
        )
    return cluster_of(project or Path(run.project), host, namespace)


def client_of(cluster: ClusterSettings) -> KfpClient:
    """KFP's API where the settings say that it answers."""
    from ...pipelines.kubeflow.client import KfpClient

    return KfpClient(cluster.api)


def kubernetes_of(cluster: ClusterSettings) -> Callable[[], Any]:
    """What opens Kubernetes' API once it is needed: not everybody who follows a run can reach it."""
    from ...pipelines.kubeflow.kubernetes_api import KubernetesApi as Kubernetes

    return lambda: Kubernetes(cluster.api, cluster.api.namespace or cluster.namespace)
