"""What is wrong with a compiled pipeline, found without a cluster: each finding says where, why, and what to do.

protobuf and KFP's own loader take most of it: a reference to nothing, a cycle, a type that does not fit, a dependency
that is not there. KFP finds them when the run stands still, or never.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ...errors import InputError, suggest
from .findings import LONGEST_NAME, Finding, of_name
from .lint_platform import of_platform
from .lint_tasks import of_tasks
from .protobufs import SCHEMA, pipeline_spec

_QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|k|Ki|[MGTPE]i?)?|\{\{.*\}\}")
_PLACEHOLDER = re.compile(r"\{\{\$\.(?!inputs\b|outputs\b|json_escape\[)[^}]*\}\}")


def lint(text: str) -> list[Finding]:
    """What is wrong with a compiled pipeline, in the order of its tasks; nothing where it holds.

    Args:
        text: YAML: the PipelineSpec, and a PlatformSpec after it or not.

    Raises:
        DrivetrainError: The extra kubeflow is not installed.
    """
    import yaml

    try:
        documents = [each for each in yaml.load_all(text, Loader=_loader()) if each is not None]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        location = f"line {mark.line + 1}" if mark is not None else "file"
        return [Finding(location, f"it is no YAML: {getattr(error, 'problem', None) or error}", "compile it again")]
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
        return [Finding("file", f"it holds what is no JSON: {_first(str(error))}", "compile it again")]
    findings: list[Finding] = []
    parsed: dict[str, Any] = {}  # Any: protobuf messages, which have no types
    deployment = spec.get("deploymentSpec", spec.get("deployment_spec")) or {}
    for name, body, message in (
        ("spec", spec, pb.PipelineSpec()),
        ("deploymentSpec", deployment, pb.PipelineDeploymentConfig()),
        ("platform", platform or {}, pb.PlatformSpec()),
    ):
        findings += _unknown(body, message.DESCRIPTOR, name)
        try:
            parsed[name] = json_format.ParseDict(body, message, ignore_unknown_fields=True)
        except json_format.ParseError as error:
            where = re.search(r" at (?:\w+\.)?(\S+?)\.*$", str(error))
            location = f"{name}.{where[1]}" if where else name
            findings.append(Finding(location, f"KFP cannot read it: {_first(str(error))}", "compile it again"))
    if len(parsed) < 3:
        return findings
    findings += _of_spec(parsed["spec"])
    findings += _of_executors(parsed["deploymentSpec"].executors)
    findings += of_tasks(parsed["spec"], parsed["deploymentSpec"].executors)
    if platform is not None:
        findings += of_platform(parsed["platform"], parsed["deploymentSpec"].executors)
    return list(dict.fromkeys(findings))


def refuse(findings: list[Finding]) -> None:
    """See that nothing was found.

    Raises:
        InputError: Something was; names the first thing.
    """
    if findings:
        more = f" (and {len(findings) - 1} more)" if findings[1:] else ""
        raise InputError(
            f"a cluster would stumble over {findings[0].location}: {findings[0].message}{more}", fix=findings[0].fix
        )


def _of_spec(spec: Any) -> Iterator[Finding]:
    if spec.schema_version != SCHEMA:
        yield Finding(
            "spec", f"schemaVersion is {spec.schema_version!r}, and KFP takes {SCHEMA} only", "compile it again"
        )
    yield from of_name(spec.pipeline_info.name, "spec.pipelineInfo", "the pipeline's name", LONGEST_NAME)
    if not spec.root.dag.tasks:
        yield Finding("root", "it has no tasks", "compile it again")
    if "root" in spec.components:
        yield Finding("components/root", "the name root is the pipeline's own", "call the component otherwise")


def _of_executors(executors: Mapping[str, Any]) -> Iterator[Finding]:
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
                    f"{hit} stands in the container, where KFP replaces inputs and outputs only",
                    "make it the whole constant value of a task's input, and read that input",
                )
        needs = container.resources
        for field in ("cpu_limit", "memory_limit", "cpu_request", "memory_request"):
            text = getattr(needs, f"resource_{field}")
            if text and not _QUANTITY.fullmatch(text):
                yield Finding(location, f"{field} is {text!r}, which is no quantity", "write e.g. 500m or 8Gi")


def _unknown(body: Any, descriptor: Any, location: str) -> Iterator[Finding]:  # Any: JSON and protobuf
    """Fields that a message does not have, all of them."""
    if not isinstance(body, Mapping) or descriptor.full_name.startswith("google.protobuf."):
        return
    fields = {field.json_name: field for field in descriptor.fields} | {
        field.name: field for field in descriptor.fields
    }
    for key, value in body.items():
        field = fields.get(key)
        if field is None:
            names = [each.json_name for each in descriptor.fields]
            yield Finding(location, f"the field {key!r} is unknown to KFP", suggest(str(key), names, "known here are"))
        elif field.message_type is not None:
            entry = field.message_type.GetOptions().map_entry
            inner = field.message_type.fields_by_name["value"].message_type if entry else field.message_type
            if inner is None or not isinstance(value, (Mapping, list)):
                continue
            several = value.items() if entry and isinstance(value, Mapping) else enumerate(value)
            if entry or field.is_repeated:
                for name, each in several:
                    yield from _unknown(each, inner, f"{location}.{key}[{name}]")
            else:
                yield from _unknown(value, inner, f"{location}.{key}")


def _first(text: str) -> str:
    return text.splitlines()[0].rstrip(".")


def _loader() -> Any:  # Any: the class that is installed
    import yaml

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)
