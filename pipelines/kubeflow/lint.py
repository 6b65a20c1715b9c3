"""What is wrong with a compiled pipeline, found without a cluster: each finding says where, why, and what to do.

protobuf and KFP's own loader accept most mistakes: a reference to nothing, a cycle, a type that does not fit, a
dependency that is not there. On a cluster they show when the run stands still, or never. The rules for the spec and its
executors stand here; those for tasks, what flows into them, and the platform document in `lint_*`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ...errors import InputError
from ...yaml_lines import load_documents
from .findings import LONGEST_NAME, Finding, first_line, name_findings, shape_findings
from .lint_platform import platform_findings
from .lint_tasks import task_findings
from .protobufs import SCHEMA, add_implied_dependencies, pipeline_spec

_QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|k|Ki|[MGTPE]i?)?|\{\{.*\}\}")
_PLACEHOLDER = re.compile(r"\{\{\$\.(?!inputs\b|outputs\b|json_escape\[)[^}]*\}\}")


def lint(text: str) -> list[Finding]:
    """What is wrong with a compiled pipeline, in the order of its tasks; nothing where it holds.

    Args:
        text: YAML: the PipelineSpec, and a PlatformSpec after it or not.

    Raises:
        DrivetrainError: The extra kubeflow is not installed.
    """
    try:
        documents = load_documents(text, "file", name="the pipeline")
    except InputError as error:
        line = (error.where or "").partition(":")[2]
        return [Finding(f"line {line}" if line else "file", f"it is {error.message}", "compile it again")]
    if not 1 <= len(documents) <= 2 or not all(isinstance(each, dict) for each in documents):
        return [Finding("file", "it is not one or two YAML documents that are maps", "compile it again")]
    return lint_documents(documents[0], documents[1] if len(documents) > 1 else None)


def lint_documents(spec: Mapping[str, Any], platform: Mapping[str, Any] | None = None) -> list[Finding]:  # Any: JSON
    """What is wrong with a compiled pipeline whose documents have been read."""
    pb = pipeline_spec()
    from google.protobuf import json_format

    try:
        json.dumps([spec, platform], allow_nan=False)
    except (TypeError, ValueError) as error:
        return [Finding("file", f"it holds what is not JSON: {first_line(str(error))}", "compile it again")]
    findings: list[Finding] = []
    parsed: dict[str, Any] = {}  # Any: protobuf messages, which have no types
    deployment = spec.get("deploymentSpec", spec.get("deployment_spec")) or {}
    for name, body, message in (
        ("spec", spec, pb.PipelineSpec()),
        ("deploymentSpec", deployment, pb.PipelineDeploymentConfig()),
        ("platform", platform or {}, pb.PlatformSpec()),
    ):
        shape = list(shape_findings(body, message.DESCRIPTOR, name))
        findings += shape
        try:
            if not shape:
                parsed[name] = json_format.ParseDict(body, message, ignore_unknown_fields=True)  # `@type`
        except json_format.ParseError as error:
            where = re.search(r" at (?:\w+\.)?(\S+?)\.*$", str(error))
            location = f"{name}.{where[1]}" if where else name
            findings.append(Finding(location, f"KFP cannot read it: {first_line(str(error))}", "compile it again"))
    if len(parsed) < 3:
        return findings
    add_implied_dependencies(parsed["spec"])
    findings += _spec_findings(parsed["spec"])
    findings += _executor_findings(parsed["deploymentSpec"].executors)
    findings += task_findings(parsed["spec"], parsed["deploymentSpec"].executors)
    if platform is not None:
        findings += platform_findings(parsed["platform"], parsed["deploymentSpec"].executors)
    return list(dict.fromkeys(findings))


def _spec_findings(spec: Any) -> Iterator[Finding]:
    if spec.schema_version != SCHEMA:
        yield Finding(
            "spec", f"schemaVersion is {spec.schema_version!r}, and KFP takes {SCHEMA} only", "compile it again"
        )
    # Of `namespace/…/name` KFP calls the workflow by the last part.
    name = spec.pipeline_info.name.rpartition("/")[2]
    yield from name_findings(name, "spec.pipelineInfo", "the pipeline's name", LONGEST_NAME)
    if not spec.root.dag.tasks:
        yield Finding("root", "it has no tasks", "compile it again")
    if "root" in spec.components:
        yield Finding("components/root", "the name root is the pipeline's own", "call the component otherwise")


def _executor_findings(executors: Mapping[str, Any]) -> Iterator[Finding]:
    for name, executor in sorted(executors.items()):
        location, kind = f"executors/{name}", executor.WhichOneof("spec")
        if kind not in ("container", "importer"):
            yield Finding(
                location, f"a {kind or 'nameless'} executor runs on Vertex AI, not on Kubeflow", "make it a container"
            )
        if kind != "container":
            continue
        container = executor.container
        if not container.image:
            yield Finding(location, "it has no image", "set image: in kubeflow.yaml and compile again")
        for text in (*container.command, *container.args, *(each.value for each in container.env)):
            for hit in _PLACEHOLDER.findall(text):
                yield Finding(
                    location,
                    f"{hit} is in the container, where KFP replaces inputs and outputs only",
                    "make it the whole constant value of a task's input, and read that input",
                )
        needs = container.resources
        for field in ("cpu_limit", "memory_limit", "cpu_request", "memory_request"):
            text = getattr(needs, f"resource_{field}")
            if text and not _QUANTITY.fullmatch(text):
                yield Finding(location, f"{field} is {text!r}, which is not a quantity", "write e.g. 500m or 8Gi")
