"""The platform document: the parts of a pod that KFP leaves to Kubernetes, such as secrets, volumes and labels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..ir.ir import Node
from .settings import SCRATCH, SHM, ClusterSettings, KeyReference, PodSettings

RUN_LABEL = "metadata.labels['pipeline/runid']"
_STARTING = 600
"""Seconds that a pod may take to get its image and start, beside a node's own timeout."""


def platform_document(settings: ClusterSettings, executors: Mapping[str, Node | None]) -> dict[str, Any]:  # Any: JSON
    """The second document of the compiled file: a PlatformSpec.

    Args:
        settings: What the project says of its cluster.
        executors: Executor -> the node that its pod is of; None for the pipeline's own pods.
    """
    configs = {label: executor_config(settings, node) for label, node in executors.items()}
    kubernetes: dict[str, Any] = {"deploymentSpec": {"executors": configs}}
    lives = {"resourceTtlOnCompletion": settings.ttl, "activeDeadlineSeconds": settings.deadline}
    if said := {name: seconds for name, seconds in lives.items() if seconds is not None}:
        kubernetes["pipelineConfig"] = said
    return {"platforms": {"kubernetes": kubernetes}}


def executor_config(settings: ClusterSettings, node: Node | None) -> dict[str, Any]:  # Any: JSON
    """A KubernetesExecutorConfig: what the pods of a node need of the cluster."""
    pod = settings.pod(node.id if node else "")
    variables: list[tuple[str, KeyReference]] = [("DRIVETRAIN_STORE", settings.store), *pod.secrets]
    scratch = {"volumeName": "drivetrain-scratch", "mountPath": SCRATCH}
    config: dict[str, Any] = {
        "fieldPathAsEnv": [{"name": "DRIVETRAIN_KUBEFLOW_RUN", "fieldPath": RUN_LABEL}],
        "secretAsEnv": [
            _reference("secretName", key.name) | {"keyToEnv": [{"secretKey": key.key, "envVar": variable}]}
            for variable, key in variables
        ],
        "emptyDirMounts": [scratch | ({"sizeLimit": settings.scratch} if settings.scratch else {}), *_memory(pod)],
        "configMapAsEnv": [
            _reference("configMapName", key.name) | {"keyToEnv": [{"configMapKey": key.key, "envVar": variable}]}
            for variable, key in pod.configmaps
        ],
        "secretAsVolume": [_reference("secretName", name) | {"mountPath": at} for at, name in pod.secret_volumes],
        "configMapAsVolume": [
            _reference("configMapName", name) | {"mountPath": at} for at, name in pod.configmap_volumes
        ],
        "pvcMount": [{"constant": claim} | _parameter("pvcName", claim) | {"mountPath": at} for at, claim in pod.pvcs],
        "genericEphemeralVolume": [
            {
                "volumeName": f"volume-{number}",
                "mountPath": at,
                "accessModes": [volume.access_mode],
                "size": volume.size,
            }
            | ({"storageClassName": volume.storage_class} if volume.storage_class else {"defaultStorageClass": True})
            for number, (at, volume) in enumerate(pod.volumes)
        ],
        "tolerations": [_toleration(pod, number) for number in range(len(pod.tolerations))],
        "nodeAffinity": [
            {"matchExpressions": [_expression(*label) for label in term.labels]}
            | ({"weight": term.weight} if term.weight else {})
            for term in pod.affinity
        ],
        "imagePullSecret": [_reference("secretName", name) for name in pod.image_pull_secrets],
        "imagePullPolicy": pod.image_pull_policy,
        "nodeSelector": {"labels": dict(pod.node_selector)} if pod.node_selector else {},
        "podMetadata": {
            name: dict(texts) for name, texts in (("labels", pod.labels), ("annotations", pod.annotations)) if texts
        },
        "securityContext": {
            name: said
            for name, said in (
                ("runAsUser", pod.run_as_user),
                ("runAsGroup", pod.run_as_group),
                ("runAsNonRoot", pod.run_as_non_root),
            )
            if said is not None
        },
    }
    if node is not None and node.options.timeout is not None:
        # The pod keeps the timeout itself; this one ends a pod that hangs.
        config["activeDeadlineSeconds"] = str(math.ceil(node.options.timeout) + _STARTING)
    return {name: value for name, value in config.items() if value}


def _memory(pod: PodSettings) -> list[dict[str, Any]]:
    """Shared memory: KFP's own field for it is not read by its backend 2.17; a volume in memory is the same."""
    return [{"volumeName": "shm", "mountPath": SHM, "medium": "Memory", "sizeLimit": pod.shm}] if pod.shm else []


def _reference(field: str, name: str) -> dict[str, Any]:
    """A name as older backends read it, and as newer ones do."""
    return {field: name} | _parameter(field, name)


def _parameter(field: str, name: str) -> dict[str, Any]:
    return {f"{field}Parameter": {"runtimeValue": {"constant": name}}}


def _toleration(pod: PodSettings, number: int) -> dict[str, Any]:
    toleration = pod.tolerations[number]
    texts = {name: str(getattr(toleration, name)) for name in ("key", "operator", "value", "effect")}
    # A 64-bit number is a text in protobuf's JSON.
    seconds = {} if toleration.seconds is None else {"tolerationSeconds": str(toleration.seconds)}
    return {name: text for name, text in texts.items() if text} | seconds


def _expression(key: str, operator: str, values: tuple[str, ...]) -> dict[str, Any]:
    return {"key": key, "operator": operator} | ({"values": list(values)} if values else {})
