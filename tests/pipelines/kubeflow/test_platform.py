"""The platform document, field by field, and against KFP's own protobufs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from drivetrain.pipelines.ir.ir import Node
from drivetrain.pipelines.ir.options import NodeOptions
from drivetrain.pipelines.kubeflow.lint_platform import EXECUTOR, platform_findings
from drivetrain.pipelines.kubeflow.platform import executor_config, platform_document
from drivetrain.pipelines.kubeflow.protobufs import pipeline_spec
from drivetrain.pipelines.kubeflow.settings import (
    Affinity,
    ClusterSettings,
    EphemeralVolume,
    KeyReference,
    PodSettings,
    Toleration,
)

pytestmark = pytest.mark.kubeflow

NODE = Node("Trainer", "c:T", None, (), (), (), options=NodeOptions(timeout=90.5))
POD = PodSettings(
    secrets=(("TOKEN", KeyReference("shop", "token")),),
    secret_volumes=(("/run/secrets", "shop"),),
    configmaps=(("REGION", KeyReference("places", "region")),),
    configmap_volumes=(("/etc/shop", "places"),),
    pvcs=(("/data", "claim"),),
    volumes=(("/big", EphemeralVolume("100Gi")), ("/fast", EphemeralVolume("1Gi", "ssd"))),
    shm="8Gi",
    node_selector=(("pool", "gpu"),),
    tolerations=(Toleration("spot", "Exists", "", "NoExecute", 30),),
    affinity=(Affinity((("zone", "In", ("a",)),), 5), Affinity((("disk", "Exists", ()),))),
    labels=(("team", "shop"),),
    annotations=(("note", "x"),),
    image_pull_secrets=("registry",),
    image_pull_policy="Always",
    run_as_user=1000,
    run_as_non_root=True,
)
SETTINGS = ClusterSettings(
    "i:1", "s3://b/x", KeyReference("store", "url"), scratch="9Gi", ttl=600, deadline=60, nodes={"Trainer": POD}
)


def _named(field: str, name: str) -> dict[str, Any]:
    return {field: name, f"{field}Parameter": {"runtimeValue": {"constant": name}}}


def test_every_part_of_a_pod() -> None:
    assert executor_config(SETTINGS, NODE) == {
        "fieldPathAsEnv": [{"name": "DRIVETRAIN_KUBEFLOW_RUN", "fieldPath": "metadata.labels['pipeline/runid']"}],
        "secretAsEnv": [
            {**_named("secretName", "store"), "keyToEnv": [{"secretKey": "url", "envVar": "DRIVETRAIN_STORE"}]},
            {**_named("secretName", "shop"), "keyToEnv": [{"secretKey": "token", "envVar": "TOKEN"}]},
        ],
        "emptyDirMounts": [
            {"volumeName": "drivetrain-scratch", "mountPath": "/drivetrain", "sizeLimit": "9Gi"},
            {"volumeName": "shm", "mountPath": "/dev/shm", "medium": "Memory", "sizeLimit": "8Gi"},
        ],
        "configMapAsEnv": [
            {**_named("configMapName", "places"), "keyToEnv": [{"configMapKey": "region", "envVar": "REGION"}]}
        ],
        "secretAsVolume": [{**_named("secretName", "shop"), "mountPath": "/run/secrets"}],
        "configMapAsVolume": [{**_named("configMapName", "places"), "mountPath": "/etc/shop"}],
        "pvcMount": [
            {
                "constant": "claim",
                "pvcNameParameter": {"runtimeValue": {"constant": "claim"}},
                "mountPath": "/data",
            }
        ],
        "genericEphemeralVolume": [
            {
                "volumeName": "volume-0", "mountPath": "/big", "accessModes": ["ReadWriteOnce"], "size": "100Gi",
                "defaultStorageClass": True,
            },
            {
                "volumeName": "volume-1", "mountPath": "/fast", "accessModes": ["ReadWriteOnce"], "size": "1Gi",
                "storageClassName": "ssd",
            },
        ],
        "tolerations": [{"key": "spot", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": "30"}],
        "nodeAffinity": [
            {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}], "weight": 5},
            {"matchExpressions": [{"key": "disk", "operator": "Exists"}]},
        ],
        "imagePullSecret": [_named("secretName", "registry")],
        "imagePullPolicy": "Always",
        "nodeSelector": {"labels": {"pool": "gpu"}},
        "podMetadata": {"labels": {"team": "shop"}, "annotations": {"note": "x"}},
        "securityContext": {"runAsUser": 1000, "runAsNonRoot": True},
        "activeDeadlineSeconds": "691",
    }  # fmt: skip


def test_a_pod_of_the_pipeline_itself_has_what_every_pod_needs() -> None:
    assert sorted(executor_config(SETTINGS, None)) == ["emptyDirMounts", "fieldPathAsEnv", "secretAsEnv"]
    assert "activeDeadlineSeconds" not in executor_config(SETTINGS, replace(NODE, options=NodeOptions()))


def test_the_document_is_kfps() -> None:
    from google.protobuf import json_format

    document = platform_document(SETTINGS, {"exec-trainer": NODE, "exec-close": None})
    parsed = json_format.ParseDict(document, pipeline_spec().PlatformSpec())
    assert list(platform_findings(parsed, {"exec-trainer": None, "exec-close": None})) == []
    kubernetes = parsed.platforms["kubernetes"]
    assert kubernetes.pipelineConfig.resource_ttl_on_completion == 600
    assert kubernetes.pipelineConfig.active_deadline_seconds == 60


def test_every_field_is_one_of_kfps() -> None:
    message = pytest.importorskip("kfp.kubernetes.kubernetes_executor_config_pb2").KubernetesExecutorConfig
    from google.protobuf import json_format

    config = json_format.ParseDict(executor_config(SETTINGS, NODE), message())
    assert config.tolerations[0].toleration_seconds == 30

    kinds = {"TYPE_STRING": str, "TYPE_BOOL": bool, "TYPE_INT64": int, "TYPE_INT32": int}
    types = {
        number: name for name, number in type(message.DESCRIPTOR.fields[0]).__dict__.items() if name[:5] == "TYPE_"
    }

    def wanted(field: Any) -> Any:
        """What the linter should know of a field that this KFP has."""
        if field.message_type is None:
            kind: Any = kinds[types[field.type]]
        elif field.message_type.GetOptions().map_entry:
            return {str: wanted(field.message_type.fields_by_name["value"])}
        elif field.message_type.name == "InputParameterSpec":
            kind = "InputParameterSpec"
        else:
            kind = {each.json_name: wanted(each) for each in field.message_type.fields}
        return [kind] if field.is_repeated else kind

    assert {field.json_name: wanted(field) for field in message.DESCRIPTOR.fields} == EXECUTOR
