"""The rules of the platform document, whose executors protobuf sees as free-form JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from ...errors import suggest
from .findings import Finding, of_name

_PARAMETER: Mapping[str, Any] = {"runtimeValue": None, "componentInputParameter": None, "taskOutputParameter": None}
_METADATA: Mapping[str, Any] = {"labels": None, "annotations": None}
_SELECTOR: Mapping[str, Any] = {"key": None, "operator": None, "values": None}
_SECRET: Mapping[str, Any] = {"secretName": None, "secretNameParameter": _PARAMETER, "optional": None}
_CONFIGMAP: Mapping[str, Any] = {"configMapName": None, "configMapNameParameter": _PARAMETER, "optional": None}
EXECUTOR: Mapping[str, Any] = {
    "secretAsVolume": {**_SECRET, "mountPath": None},
    "secretAsEnv": {**_SECRET, "keyToEnv": {"secretKey": None, "envVar": None}},
    "pvcMount": {
        "taskOutputParameter": None, "constant": None, "componentInputParameter": None, "mountPath": None,
        "pvcNameParameter": _PARAMETER, "subPath": None,
    },
    "nodeSelector": {"labels": None, "nodeSelectorJson": _PARAMETER},
    "podMetadata": _METADATA,
    "imagePullSecret": {"secretName": None, "secretNameParameter": _PARAMETER},
    "imagePullPolicy": None,
    "configMapAsVolume": {**_CONFIGMAP, "mountPath": None},
    "configMapAsEnv": {**_CONFIGMAP, "keyToEnv": {"configMapKey": None, "envVar": None}},
    "activeDeadlineSeconds": None,
    "fieldPathAsEnv": {"name": None, "fieldPath": None},
    "tolerations": {
        "key": None, "operator": None, "value": None, "effect": None, "tolerationSeconds": None,
        "tolerationJson": _PARAMETER,
    },
    "genericEphemeralVolume": {
        "volumeName": None, "mountPath": None, "accessModes": None, "size": None, "defaultStorageClass": None,
        "storageClassName": None, "metadata": _METADATA,
    },
    "nodeAffinity": {
        "matchExpressions": _SELECTOR, "matchFields": _SELECTOR, "weight": None, "nodeAffinityJson": _PARAMETER,
    },
    "podAffinity": {
        "matchPodExpressions": _SELECTOR, "matchPodLabels": None, "topologyKey": None, "namespaces": None,
        "matchNamespaceExpressions": _SELECTOR, "matchNamespaceLabels": None, "weight": None, "anti": None,
    },
    "enabledSharedMemory": {"volumeName": None, "size": None},
    "emptyDirMounts": {"volumeName": None, "mountPath": None, "medium": None, "sizeLimit": None},
    "securityContext": {"runAsUser": None, "runAsGroup": None, "runAsNonRoot": None},
}  # fmt: skip
"""The fields of KFP's KubernetesExecutorConfig (kfp-kubernetes 2.17); None: a value, or a map of texts."""
_VOLUMES = {
    "secretAsVolume": "secretName", "configMapAsVolume": "configMapName", "pvcMount": "constant",
    "genericEphemeralVolume": "volumeName", "emptyDirMounts": "volumeName",
}  # fmt: skip
"""What KFP calls the volume of an entry by."""
_POLICIES = ("", "Always", "IfNotPresent", "Never")


def of_platform(platform: Any, executors: Mapping[str, Any]) -> Iterator[Finding]:  # Any: protobuf messages
    """What is wrong with a platform document."""
    from google.protobuf import json_format

    for name in sorted(platform.platforms):
        if name != "kubernetes":
            yield Finding("platform", f"the platform {name!r} is unknown to KFP", "call it kubernetes")
    for label, body in sorted(platform.platforms["kubernetes"].deployment_spec.executors.items()):
        location = f"platform/{label}"
        if label not in executors:
            yield Finding(
                location,
                f"the platform document speaks of the executor {label!r}, which the pipeline has not",
                suggest(label, sorted(executors), "it has"),
            )
        config = json_format.MessageToDict(body)
        yield from _unknown(config, EXECUTOR, location)
        yield from _values(config, location)


def _unknown(body: Any, known: Mapping[str, Any], location: str) -> Iterator[Finding]:
    for key, value in body.items():
        if key not in known:
            yield Finding(location, f"the field {key!r} is unknown to KFP", suggest(key, list(known), "known here are"))
        elif known[key] is not None:
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, dict):
                    yield from _unknown(each, known[key], f"{location}.{key}")
                else:
                    yield Finding(f"{location}.{key}", f"{each!r:.40} is no object", "compile it again")


def _values(config: Mapping[str, Any], location: str) -> Iterator[Finding]:
    entries = [(key, each) for key, value in config.items() for each in (value if isinstance(value, list) else [value])]
    objects = [(key, each) for key, each in entries if isinstance(each, dict)]
    mounts = Counter(str(each["mountPath"]) for _, each in objects if "mountPath" in each)
    for key, each in objects:
        for field in ("secretName", "configMapName"):
            if field in each:
                # Kubernetes allows dots and 253 characters here.
                for part in str(each[field]).split("."):
                    yield from of_name(part, f"{location}.{key}", f"the {field}", 253)
        if "mountPath" in each and not str(each["mountPath"]).startswith("/"):
            yield Finding(
                f"{location}.{key}", f"it is mounted at {each['mountPath']!r}, which is no absolute path", "mend it"
            )
    volumes = Counter(str(each[_VOLUMES[key]]) for key, each in objects if _VOLUMES.get(key, "") in each)
    for name, count in sorted(volumes.items()):
        yield from of_name(name, location, "the volume")
        if count > 1:
            yield Finding(location, f"{count} volumes are called {name}, as KFP names them", "mount it once")
    for path, count in sorted(mounts.items()):
        if count > 1:
            yield Finding(location, f"{count} volumes are mounted at {path}", "give each a folder of its own")
    if config.get("imagePullPolicy", "") not in _POLICIES:
        yield Finding(
            location, f"the image pull policy is {config['imagePullPolicy']!r}", f"write {', '.join(_POLICIES[1:])}"
        )
