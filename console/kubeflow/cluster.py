"""The cluster of a `kubeflow` verb: its options, its settings, its clients."""

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
    """Add the options that choose the cluster to a verb."""
    verb = click.option(
        "--namespace", metavar="NAME", help="The user's namespace; else api.namespace of kubeflow.yaml."
    )(verb)
    return click.option("--host", metavar="URL", help="Where KFP's API answers; else api.host of kubeflow.yaml.")(verb)


def run_cluster_options(verb: Callable[..., int | None]) -> Callable[..., int | None]:
    """Add the options that choose the cluster of an existing run to a verb."""
    return click.option(
        "--project",
        type=click.Path(path_type=Path, exists=True, file_okay=False),
        help="The project whose kubeflow.yaml says where the cluster is; else the one that the run was submitted from.",
    )(cluster_options(verb))


def cluster_of(project: Path, host: str | None, namespace: str | None) -> ClusterSettings:
    """The settings of a project's cluster; the options of the command line override them.

    Raises:
        InputError: The project has no kubeflow.yaml, or it is wrong.
    """
    from ...pipelines.kubeflow.settings import ClusterSettings

    cluster = ClusterSettings.load(project)
    api = replace(cluster.api, host=host or cluster.api.host, namespace=namespace or cluster.api.namespace)
    return replace(cluster, api=api)


def cluster_of_run(run: Run, project: Path | None, host: str | None, namespace: str | None) -> ClusterSettings:
    """The settings of a run's cluster: of the given project, else of the one that it was submitted from.

    Raises:
        InputError: That project is not on this machine, and none is given.
    """
    from ...pipelines.kubeflow.settings import NAME

    if project is None and not (Path(run.project) / NAME).exists():
        raise InputError(
            f"the project of run {run.id} is {run.project}, which holds no {NAME} on this machine",
            fix="give --project DIR: the project whose kubeflow.yaml says where the cluster is",
        )
    return cluster_of(project or Path(run.project), host, namespace)


def client_of(cluster: ClusterSettings) -> KfpClient:
    """A client for the KFP API of a cluster."""
    from ...pipelines.kubeflow.client import KfpClient

    return KfpClient(cluster.api)


def kubernetes_of(cluster: ClusterSettings) -> Callable[[], Any]:
    """A function that connects to the Kubernetes API. It is called only when needed: not every user can reach it."""
    from ...pipelines.kubeflow.kubernetes_api import KubernetesApi

    return lambda: KubernetesApi(cluster.api, cluster.api.namespace or cluster.namespace)
