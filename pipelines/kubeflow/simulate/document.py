"""The two documents of a compiled pipeline, read as KFP reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ....errors import InputError
from ....yaml_lines import load_documents
from ..protobufs import EXIT, SCHEMA, add_implied_dependencies, pipeline_spec


@dataclass(frozen=True)
class Document:
    """A compiled pipeline.

    Attributes:
        spec: The PipelineSpec, as its protobuf (untyped: the package ships no types).
        executors: By label, as protobufs.
        kubernetes: By label, what the platform document says of an executor.
    """

    spec: Any
    executors: Mapping[str, Any]
    kubernetes: Mapping[str, Mapping[str, Any]]

    @cached_property
    def name(self) -> str:
        """The pipeline's name in KFP."""
        return str(self.spec.pipeline_info.name)

    def component(self, task: Any) -> Any:
        """The component of a task.

        Raises:
            InputError: There is no such component.
        """
        name = task.component_ref.name
        if name not in self.spec.components:
            raise InputError(f"there is no component {name!r}", fix="compile the pipeline again")
        return self.spec.components[name]


def read(documents: Path | tuple[Mapping[str, Any], Mapping[str, Any]]) -> Document:
    """Parse a file of two YAML documents, or both documents as dictionaries.

    Raises:
        InputError: They are not what KFP accepts; it names the field.
    """
    pb = pipeline_spec()
    from google.protobuf import json_format

    spec, platform = _documents(documents) if isinstance(documents, Path) else documents
    try:
        parsed = json_format.ParseDict(dict(spec), pb.PipelineSpec())
        deployment = pb.PipelineDeploymentConfig()
        json_format.ParseDict(json_format.MessageToDict(parsed.deployment_spec), deployment)
        json_format.ParseDict(dict(platform), pb.PlatformSpec())
    except (json_format.ParseError, TypeError, ValueError) as error:
        raise InputError(f"KFP does not accept the document: {error}", fix="see `drivetrain kubeflow lint`") from None
    if parsed.schema_version != SCHEMA:
        raise InputError(f"the schema version is {parsed.schema_version!r}, not {SCHEMA!r}", fix="compile it again")
    add_implied_dependencies(parsed)
    kubernetes = platform.get("platforms", {}).get("kubernetes", {}).get("deploymentSpec", {}).get("executors", {})
    document = Document(parsed, deployment.executors, kubernetes)
    for dag in (parsed.root.dag, *(each.dag for each in parsed.components.values() if each.HasField("dag"))):
        _check_hooks(dag)
    return document


def _check_hooks(dag: Any) -> None:
    """Check that every exit task can run: KFP makes it the exit hook of the one task that it depends on."""
    taken: dict[str, str] = {}
    for name, task in sorted(dag.tasks.items()):
        if task.trigger_policy.strategy != EXIT:
            continue
        depends = list(task.dependent_tasks)
        if len(depends) != 1 or dag.tasks[depends[0]].trigger_policy.strategy == EXIT:
            raise InputError(
                f"the exit task {name} depends on {', '.join(depends) or 'nothing'}",
                fix="let it depend on one task that is none itself: KFP makes it that one's exit hook",
            )
        if depends[0] in taken:
            raise InputError(
                f"{taken[depends[0]]} and {name} are exit tasks of {depends[0]}",
                fix="KFP runs one: put them into a DAG",
            )
        taken[depends[0]] = name


def _documents(path: Path) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path} cannot be read: {error}", fix="name what `drivetrain kubeflow compile` wrote"
        ) from None
    documents = load_documents(text, str(path), name="the pipeline")
    if not 1 <= len(documents) <= 2 or not all(isinstance(document, dict) for document in documents):
        raise InputError(f"{path} does not hold the documents of a pipeline", fix="compile it again")
    return documents[0], documents[1] if len(documents) == 2 else {}
