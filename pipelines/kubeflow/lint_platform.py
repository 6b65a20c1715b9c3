"""What is wrong with the platform document of a compiled pipeline: what KFP would not read, or Kubernetes not take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from ...errors import suggest
from .findings import Finding, first_line, is_scalar, misshapen, name_findings, shape_findings
from .protobufs import pipeline_spec

_PARAMETER = "InputParameterSpec"
"""A message of the PipelineSpec: where a task's value comes from."""
_TEXTS = {str: str}
_METADATA = {"labels": _TEXTS, "annotations": _TEXTS}
_SELECTOR = {"key": str, "operator": str, "values": [str]}
_SECRET = {"secretName": str, "secretNameParameter": _PARAMETER, "optional": bool}
_CONFIGMAP = {"configMapName": str, "configMapNameParameter": _PARAMETER, "optional": bool}
EXECUTOR: Mapping[str, Any] = {
    "secretAsVolume": [{**_SECRET, "mountPath": str}],
    "secretAsEnv": [{**_SECRET, "keyToEnv": [{"secretKey": str, "envVar": str}]}],
    "pvcMount": [{
        "taskOutputParameter": {"producerTask": str, "outputParameterKey": str}, "constant": str,
        "componentInputParameter": str, "mountPath": str, "pvcNameParameter": _PARAMETER, "subPath": str,
    }],
    "nodeSelector": {"labels": _TEXTS, "nodeSelectorJson": _PARAMETER},
    "podMetadata": _METADATA,
    "imagePullSecret": [{"secretName": str, "secretNameParameter": _PARAMETER}],
    "imagePullPolicy": str,
    "configMapAsVolume": [{**_CONFIGMAP, "mountPath": str}],
    "configMapAsEnv": [{**_CONFIGMAP, "keyToEnv": [{"configMapKey": str, "envVar": str}]}],
    "activeDeadlineSeconds": int,
    "fieldPathAsEnv": [{"name": str, "fieldPath": str}],
    "tolerations": [{
        "key": str, "operator": str, "value": str, "effect": str, "tolerationSeconds": int,
        "tolerationJson": _PARAMETER,
    }],
    "genericEphemeralVolume": [{
        "volumeName": str, "mountPath": str, "accessModes": [str], "size": str, "defaultStorageClass": bool,
        "storageClassName": str, "metadata": _METADATA,
    }],
    "nodeAffinity": [{
        "matchExpressions": [_SELECTOR], "matchFields": [_SELECTOR], "weight": int, "nodeAffinityJson": _PARAMETER,
    }],
    "podAffinity": [{
        "matchPodExpressions": [_SELECTOR], "matchPodLabels": _TEXTS, "topologyKey": str, "namespaces": [str],
        "matchNamespaceExpressions": [_SELECTOR], "matchNamespaceLabels": _TEXTS, "weight": int, "anti": bool,
    }],
    "enabledSharedMemory": {"volumeName": str, "size": str},
    "emptyDirMounts": [{"volumeName": str, "mountPath": str, "medium": str, "sizeLimit": str}],
    "securityContext": {"runAsUser": int, "runAsGroup": int, "runAsNonRoot": bool},
}  # fmt: skip
"""The fields of KFP's KubernetesExecutorConfig (kfp-kubernetes 2.17), each with the type of what it holds."""
_VOLUME_NAMES = {
    "secretAsVolume": "secretName", "configMapAsVolume": "configMapName", "pvcMount": "constant",
    "genericEphemeralVolume": "volumeName", "emptyDirMounts": "volumeName",
}  # fmt: skip
"""What KFP calls the volume of an entry by."""
_POLICIES = ("", "Always", "IfNotPresent", "Never")


def platform_findings(platform: Any, executors: Mapping[str, Any]) -> Iterator[Finding]:  # Any: protobuf messages
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
        misfits = list(_config_findings(config, EXECUTOR, location))
        yield from misfits
        if not misfits:
            yield from _platform_values(config, location)


def _config_findings(body: Any, wanted: Any, location: str) -> Iterator[Finding]:  # Any: JSON, an entry of EXECUTOR
    """Unknown fields of an executor's configuration, and values of another kind than KFP reads there."""
    if body is None:
        return
    if wanted == _PARAMETER:
        yield from _parameter_findings(body, location)
    elif isinstance(wanted, list):
        if not isinstance(body, list):
            yield misshapen(body, "a list", location)
            return
        for index, each in enumerate(body):
            if each is None:
                yield misshapen(each, "a value", f"{location}[{index}]")
            yield from _config_findings(each, wanted[0], f"{location}[{index}]")
    elif isinstance(wanted, Mapping):
        if not isinstance(body, Mapping):
            yield misshapen(body, "an object", location)
            return
        for key, value in body.items():
            if value is None and str in wanted:
                yield misshapen(value, "a text", f"{location}.{key}")
            elif str in wanted or key in wanted:
                yield from _config_findings(value, wanted[str if str in wanted else key], f"{location}.{key}")
            else:
                fix = suggest(key, list(wanted), "known here are")
                yield Finding(location, f"the field {key!r} is unknown to KFP", fix)
    elif not is_scalar(body, wanted):
        yield misshapen(body, {str: "a text", int: "a whole number", bool: "true or false"}[wanted], location)


def _parameter_findings(body: Any, location: str) -> Iterator[Finding]:  # Any: JSON
    from google.protobuf import json_format

    message = pipeline_spec().TaskInputsSpec.InputParameterSpec()
    shape = list(shape_findings(body, message.DESCRIPTOR, location))
    yield from shape
    try:
        if not shape:
            json_format.ParseDict(body, message)
    except json_format.ParseError as error:
        yield Finding(location, f"KFP cannot read it: {first_line(str(error))}", "compile it again")


def _platform_values(config: Mapping[str, Any], location: str) -> Iterator[Finding]:
    entries = [(key, each) for key, value in config.items() for each in (value if isinstance(value, list) else [value])]
    objects = [(key, each) for key, each in entries if isinstance(each, dict)]
    mounts = Counter(str(each["mountPath"]) for _, each in objects if "mountPath" in each)
    for key, each in objects:
        for field in ("secretName", "configMapName"):
            if field in each:
                # Kubernetes allows dots and 253 characters here.
                for part in str(each[field]).split("."):
                    yield from name_findings(part, f"{location}.{key}", f"the {field}", 253)
    volumes = Counter(str(each[_VOLUME_NAMES[key]]) for key, each in objects if _VOLUME_NAMES.get(key, "") in each)
    for name, count in sorted(volumes.items()):
        yield from name_findings(name, location, "the volume")
        if count > 1:
            yield Finding(location, f"{count} volumes are called {name}, as KFP names them", "mount it once")
    for path, count in sorted(mounts.items()):
        if count > 1:
            yield Finding(location, f"{count} volumes are mounted at {path}", "give each a folder of its own")
    if config.get("imagePullPolicy", "") not in _POLICIES:
        yield Finding(
            location,
            f"the image pull policy is {config['imagePullPolicy']!r}",
            f"write {', '.join(_POLICIES[1:])}",
        )
