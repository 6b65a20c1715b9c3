"""What KFP's driver decides before a pod starts: a task's inputs, whether it starts, which items a loop has."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from ....errors import DrivetrainError, missing_extra
from .document import Document

Json: TypeAlias = Any  # a JSON value; Any because the type is recursive and read by key


class DriverError(DrivetrainError):
    """KFP's driver would fail here, and with it the task."""


@dataclass(frozen=True)
class TaskValues:
    """What flows along the edges of a DAG.

    Attributes:
        parameters: By name.
        artifacts: By name, each a list, as KFP has them.
    """

    parameters: Mapping[str, Json] = field(default_factory=dict)
    artifacts: Mapping[str, Sequence[Json]] = field(default_factory=dict)


@dataclass(frozen=True)
class TaskEnd:
    """How a task of a DAG ended, in Argo's words, with its outputs."""

    state: Literal["SUCCEEDED", "FAILED", "SKIPPED", "OMITTED"]
    values: TaskValues = field(default_factory=TaskValues)

    @property
    def succeeded(self) -> bool:
        """Whether it ended SUCCEEDED, so that KFP starts the tasks that depend on it."""
        return self.state == "SUCCEEDED"


def inputs(
    document: Document, name: str, task: Any, outer: TaskValues, ended: Mapping[str, TaskEnd], run: str
) -> TaskValues:
    """Resolve a task's inputs, defaults included.

    Args:
        document: The compiled pipeline.
        name: The task's name.
        task: The task's spec.
        outer: The inputs of the DAG that it is in.
        ended: The tasks of that DAG that have ended.
        run: KFP's id of the run.

    Raises:
        DriverError: One cannot be resolved.
    """
    component = document.component(task)
    declared = component.input_definitions
    parameters: dict[str, Json] = {}
    for key, source in task.inputs.parameters.items():
        is_set, value = _parameter(document, name, source, outer, ended, run)
        if is_set:
            selector = source.parameter_expression_selector
            parameters[key] = _selected(value, selector) if selector else value
    for key, definition in declared.parameters.items():
        if key not in parameters and definition.HasField("default_value"):
            parameters[key] = plain(definition.default_value)
        elif key not in parameters and not definition.is_optional and key != task.parameter_iterator.item_input:
            raise DriverError(f"{name} needs the parameter {key}, which nothing provides", fix="compile it again")
    artifacts: dict[str, Sequence[Json]] = {}
    for key, source in task.inputs.artifacts.items():
        artifacts[key] = _artifacts(name, key, source, outer, ended)
        wanted = declared.artifacts[key].artifact_type.schema_title
        for artifact in artifacts[key]:
            if wanted and artifact["type"].get("schemaTitle") != wanted:
                raise DriverError(
                    f"{name} takes a {wanted} as {key}, not a {artifact['type'].get('schemaTitle')}",
                    fix="compile it again",
                )
    return TaskValues(parameters, artifacts)


def _selected(value: Json, selector: str) -> Json:
    """The part of a value that a parameter's selector takes: CEL over the value's JSON text and the value as it is.

    Raises:
        DriverError: The selector has no value.
    """
    kinds = {bool: "bool_value", float: "number_value", list: "list_value", dict: "struct_value"}
    value = as_protobuf(value)
    text = value if isinstance(value, str) else json.dumps(whole(value), separators=(",", ":"))
    names = {"string_value": text, "parseJson": lambda each: as_protobuf(json.loads(each))}
    if type(value) in kinds:
        names[kinds[type(value)]] = value
    return whole(_evaluated(selector, names, "selector"))


def holds(condition: str, parameters: Mapping[str, Json]) -> bool:
    """Whether a CEL condition over a task's parameters holds.

    Raises:
        DriverError: It has no value, or one that is neither true nor false.
    """
    value = _evaluated(condition, {"inputs": {"parameter_values": as_protobuf(dict(parameters))}}, "condition")
    if not isinstance(value, bool):
        raise DriverError(f"the condition {condition} is {value!r:.60}", fix="compile it again")
    return value


def _evaluated(expression: str, names: Mapping[str, Json], what: str) -> Json:
    try:
        import cel
    except ImportError as error:
        raise missing_extra("common-expression-language", "kubeflow") from error
    context = cel.Context()
    context.update(dict(names))
    try:
        return cel.evaluate(expression, context)
    except Exception as error:  # whatever the library raises
        raise DriverError(f"the {what} {expression} has no value: {error}", fix="compile it again") from None


def items(task: Any, parameters: Mapping[str, Json]) -> list[Json]:
    """The items that a loop iterates over.

    Raises:
        DriverError: It is not a list.
    """
    source = task.parameter_iterator.items
    raw = source.WhichOneof("kind") == "raw"
    values = json.loads(source.raw) if raw else parameters.get(source.input_parameter)
    if not isinstance(values, list):
        raise DriverError(f"a loop goes over {values!r:.60}", fix="compile it again")
    return values


def as_protobuf(value: Json) -> Json:
    """A value as a `google.protobuf.Value` holds it: all numbers are doubles."""
    if isinstance(value, bool) or not isinstance(value, (int, list, dict)):
        return value
    if isinstance(value, int):
        return float(value)
    if isinstance(value, list):
        return [as_protobuf(each) for each in value]
    return {key: as_protobuf(each) for key, each in value.items()}


def plain(message: Any) -> Json:
    """A `google.protobuf.Value` as JSON; whole numbers as such, which is how KFP writes them."""
    from google.protobuf import json_format

    return whole(json_format.MessageToDict(message))


def whole(value: Json) -> Json:
    """JSON whose whole numbers are written without a fraction."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [whole(each) for each in value]
    return {key: whole(each) for key, each in value.items()} if isinstance(value, dict) else value


def _parameter(
    document: Document, name: str, source: Any, outer: TaskValues, ended: Mapping[str, TaskEnd], run: str
) -> tuple[bool, Json]:
    kind = source.WhichOneof("kind")
    if kind == "runtime_value":
        value = plain(source.runtime_value.constant)
        # KFP replaces these where they are the whole value, and nowhere else.
        placeholders = {"{{$.pipeline_job_uuid}}": run, "{{$.pipeline_job_name}}": document.name}
        return True, placeholders.get(value, value) if isinstance(value, str) else value
    if kind == "component_input_parameter":
        is_set = source.component_input_parameter in outer.parameters
        return is_set, outer.parameters.get(source.component_input_parameter)
    if kind == "task_final_status":
        producer = source.task_final_status.producer_task
        return True, {
            "state": ended[producer].state,
            "error": {},
            "pipelineJobResourceName": run,
            "pipelineTaskName": producer,
        }
    producer = source.task_output_parameter.producer_task
    output = source.task_output_parameter.output_parameter_key
    values = _of(name, producer, ended).parameters
    if output not in values:
        raise DriverError(f"{name} needs {output} of {producer}, which it did not give", fix="compile it again")
    return True, values[output]


def _artifacts(name: str, key: str, source: Any, outer: TaskValues, ended: Mapping[str, TaskEnd]) -> Sequence[Json]:
    if source.WhichOneof("kind") == "component_input_artifact":
        selected = outer.artifacts.get(source.component_input_artifact)
    else:
        producer = source.task_output_artifact.producer_task
        selected = _of(name, producer, ended).artifacts.get(source.task_output_artifact.output_artifact_key)
    if not selected:
        raise DriverError(f"{name} needs the artifact {key}, which nothing provides", fix="compile it again")
    return selected


def _of(name: str, producer: str, ended: Mapping[str, TaskEnd]) -> TaskValues:
    if producer not in ended or not ended[producer].succeeded:
        raise DriverError(f"{name} takes from {producer}, which did not run before it", fix="compile it again")
    return ended[producer].values
