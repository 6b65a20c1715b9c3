"""The container of a pod: our entrypoint as its command, what the node needs of the machine, what the node is."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

from ..ir.ir import Node
from . import about
from .settings import SCRATCH, Settings

Json: TypeAlias = dict[str, Any]  # a JSON object, as protobuf reads it

COMMAND = ("python", "-m", "drivetrain.pipelines.kubeflow.pod")


def container(
    settings: Settings, project: str, version: str, what: list[str], node: Node | None, described: str = ""
) -> Json:
    """A PipelineContainerSpec.

    Args:
        settings: Of the cluster.
        project: The project's folder in the image.
        version: Of the pipeline, which the image must hold.
        what: What the pod does, as arguments.
        node: Whose pod it is; None for one of the pipeline's own.
        described: What that node is, see `about`.
    """
    pod = settings.pod(node.id if node else "")
    env = {**dict(pod.env), "DRIVETRAIN_ARTIFACTS": settings.artifacts, "DRIVETRAIN_ROOT": f"{SCRATCH}/.drivetrain"}
    if node is not None:
        env[about.VARIABLE] = described
    specification: Json = {
        "image": settings.image,
        "command": list(COMMAND),
        "args": ["--project", project, "--ir", version, *what, "--executor-input", "{{$}}"],
        "env": [{"name": key, "value": text} for key, text in sorted(env.items())],
    }
    if node is not None and (resources := _resources(node, pod.gpu)):
        specification["resources"] = resources
    return specification


def _resources(node: Node, gpu: str) -> Json:
    options = node.options
    resources: Json = {}
    if options.cpus:
        cores = f"{math.ceil(options.cpus * 1000)}m"
        resources |= {"resourceCpuRequest": cores, "resourceCpuLimit": cores}
    if options.memory:
        resources |= {"resourceMemoryRequest": str(options.memory), "resourceMemoryLimit": str(options.memory)}
    if options.accelerators:
        resources |= {"accelerator": {"resourceType": gpu, "resourceCount": str(options.accelerators)}}
    return resources
