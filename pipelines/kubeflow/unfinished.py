"""What a compiled pipeline still lacks though KFP would run it: names to fill in, places that outlive a pod."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from .compiler import VARIABLE
from .findings import Finding

# A host of an image, or a bucket, of capitals alone: neither registries nor stores are called so.
_PLACEHOLDER: Final = re.compile(r"(?:^|://)([A-Z][A-Z0-9_]{2,})(?=/|$)")


def unfinished(spec: Mapping[str, Any], platform: Mapping[str, Any]) -> list[Finding]:  # Any: JSON
    """The findings, in the order of the executors; each placeholder once.

    Args:
        spec: The PipelineSpec, without mistakes of its form.
        platform: The PlatformSpec; {} where there is none.
    """
    executors = spec.get("deploymentSpec", {}).get("executors", {})
    configs = platform.get("platforms", {}).get("kubernetes", {}).get("deploymentSpec", {}).get("executors", {})
    parameters = spec.get("root", {}).get("inputDefinitions", {}).get("parameters", {})
    findings: dict[str, Finding] = {}
    for label, body in executors.items():
        container = body.get("container", {})
        for text in (container.get("image", ""), *(each.get("value", "") for each in container.get("env", []))):
            if named := _PLACEHOLDER.search(text):
                fix = f"write in kubeflow.yaml what {named[1]} stands for"
                finding = Finding(f"executors/{label}", f"{text} still has the placeholder {named[1]}", fix)
                findings.setdefault(named[1], finding)
        for destination in _destinations(container, parameters):
            if not _lasts(destination, configs.get(label, {})):
                findings[label] = Finding(
                    f"executors/{label}",
                    f"what it pushes to {destination!r} is in the pod, and is lost with it",
                    "push to a URL, e.g. s3://…, or to a folder below one of the node's pvcs in kubeflow.yaml",
                )
    return list(findings.values())


def _destinations(container: Mapping[str, Any], parameters: Mapping[str, Any]) -> Iterator[str]:  # Any: JSON
    """Where a node's component writes to, as far as it is known before a run: a pipeline's parameter by its default."""
    for variable in container.get("env", []):
        if variable.get("name") == VARIABLE:
            destination = json.loads(variable["value"]).get("parameter", {}).get("destination")
            if isinstance(destination, dict):
                destination = parameters.get(destination.get("$param", ""), {}).get("defaultValue")
            if isinstance(destination, str):
                yield destination


def _lasts(destination: str, config: Mapping[str, Any]) -> bool:  # Any: JSON
    """Whether what is written there outlives the pod."""
    if "://" in destination:
        return not destination.startswith("file://")
    folder = PurePosixPath(destination)
    return any(folder.is_relative_to(mount["mountPath"]) for mount in config.get("pvcMount", []))
