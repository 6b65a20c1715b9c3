"""The container of a pod: our entrypoint as its command, what the node needs of the machine, what the node is."""

from __future__ import annotations

import json
import math
from typing import Any, TypeAlias

from ...digest import canonical_json, digest
from ..form.ir import Node
from .platform import SCRATCH
from .settings import Settings

Json: TypeAlias = dict[str, Any]  # a JSON object, as protobuf reads it

COMMAND = ("python", "-m", "drivetrain.pipelines.kubeflow.pod")
ABOUT = "DRIVETRAIN_NODE"
"""Of a node's container: what the node is, so that `diff` can tell what changed of it. Pods do not read it."""
_LONG = 2000
"""Characters of a parameter that is written out there."""


def container(settings: Settings, project: str, version: str, what: list[str], node: Node | None) -> Json:
    """A PipelineContainerSpec.

    Args:
        settings: Of the cluster.
        project: The project's folder in the image.
        version: Of the pipeline, which the image must hold.
        what: What the pod does, as arguments.
        node: Whose pod it is; None for one of the pipeline's own.
    """
    pod = settings.pod(node.id if node else "")
    env = {**dict(pod.env), "DRIVETRAIN_ARTIFACTS": settings.artifacts, "DRIVETRAIN_ROOT": f"{SCRATCH}/.drivetrain"}
    if node is not None:
        env[ABOUT] = _about(node)
    made: Json = {
        "image": settings.image,
        "command": list(COMMAND),
        "args": ["--project", project, "--ir", version, *what, "--executor-input", "{{$}}"],
        "env": [{"name": key, "value": text} for key, text in sorted(env.items())],
    }
    if node is not None and (resources := _resources(node, pod.gpu)):
        made["resources"] = resources
    return made


def _resources(node: Node, gpu: str) -> Json:
    options = node.options
    found: Json = {}
    if options.cpus:
        cores = f"{math.ceil(options.cpus * 1000)}m"
        found |= {"resourceCpuRequest": cores, "resourceCpuLimit": cores}
    if options.memory:
        found |= {"resourceMemoryRequest": str(options.memory), "resourceMemoryLimit": str(options.memory)}
    if options.accelerators:
        found |= {"accelerator": {"resourceType": gpu, "resourceCount": str(options.accelerators)}}
    return found


def _about(node: Node) -> str:
    """What a node is that the spec does not say: its code and its parameters."""
    parameters = {
        name: value if len(json.dumps(value)) <= _LONG else f"sha256:{digest('drivetrain-parameter', value)}"
        for name, value in node.parameters
    }
    about = {"component": node.component, "code": node.code, "cache": node.cache, "parameters": parameters}
    return canonical_json(about).decode()
