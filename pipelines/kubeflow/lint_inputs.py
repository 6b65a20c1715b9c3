"""What is wrong with what flows into a task of a compiled pipeline: where it comes from, and its type."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from ...errors import suggest
from .findings import Finding
from .protobufs import EXIT

Message: TypeAlias = Any  # a protobuf message: they have no types

TEXT, LIST, _FINAL_STATUS = 3, 5, 7  # of ParameterType
_TYPES = {
    0: "of no type",
    1: "NUMBER_DOUBLE",
    2: "NUMBER_INTEGER",
    3: "STRING",
    4: "BOOLEAN",
    5: "LIST",
    6: "STRUCT",
    7: "a final status",
}
_CONSTANTS: Mapping[str | None, tuple[int, ...]] = {
    "number_value": (1, 2), "string_value": (3,), "bool_value": (4,), "list_value": (5,), "struct_value": (6,),
}  # fmt: skip
_REPLACED = re.compile(r"\{\{\$\.(pipeline_job_\w+|pipeline_task_\w+)\}\}")


@dataclass(frozen=True)
class InputRules:
    """The rules of a task's inputs: each comes from something that exists, has the right type, and is waited for.

    Attributes:
        around: The component of the DAG that the task is in.
        tasks: All tasks of that DAG.
        task: The task.
        component: The task's component.
        components: All components of the pipeline.
        location: Where findings say that the task is.
    """

    around: Message
    tasks: Mapping[str, Message]
    task: Message
    component: Message
    components: Mapping[str, Message]
    location: str

    def findings(self) -> Iterator[Finding]:
        """What is wrong with the inputs of the task."""
        wanted, inputs = self.component.input_definitions, self.task.inputs
        for key in sorted(inputs.parameters):
            yield from self._parameter(key, inputs.parameters[key])
        for key in sorted(inputs.artifacts):
            if key not in wanted.artifacts:
                yield self._wrong(f"its component has no artifact {key!r}", suggest(key, sorted(wanted.artifacts)))
            yield from self._artifact(key, inputs.artifacts[key])
        item = self.task.parameter_iterator.item_input
        for key, spec in sorted(wanted.parameters.items()):
            if not (spec.is_optional or spec.HasField("default_value") or key in inputs.parameters or key == item):
                yield self._wrong(f"the parameter {key!r} of its component has no value", "give it, or a default")
        for key, spec in sorted(wanted.artifacts.items()):
            if not spec.is_optional and key not in inputs.artifacts:
                yield self._wrong(f"the artifact {key!r} of its component has no value", "give it")

    def _wrong(self, message: str, fix: str) -> Finding:
        return Finding(self.location, message, fix)

    def _parameter(self, key: str, source: Message) -> Iterator[Finding]:
        wanted = self.component.input_definitions.parameters
        takes = wanted[key].parameter_type if key in wanted else None
        kind = source.WhichOneof("kind")
        have: int | None = None
        if kind == "task_output_parameter":
            name, output = source.task_output_parameter.producer_task, source.task_output_parameter.output_parameter_key
            yield from self._exists(name)
            declared = self._outputs(name, "parameters")
            if declared is not None and output not in declared:
                yield self._wrong(f"{name} has no output parameter {output!r}", suggest(output, sorted(declared)))
            elif declared is not None:
                have = LIST if self.tasks[name].WhichOneof("iterator") else declared[output].parameter_type
        elif kind == "component_input_parameter":
            name, declared = source.component_input_parameter, self.around.input_definitions.parameters
            if name not in declared:
                yield self._wrong(f"the DAG around it has no parameter {name!r}", suggest(name, sorted(declared)))
            else:
                have = declared[name].parameter_type
        elif kind == "task_final_status":
            have = _FINAL_STATUS
            yield from self._final_status(key, source.task_final_status.producer_task)
        elif kind == "runtime_value":
            yield from self._constant(key, source.runtime_value.constant, takes)
        else:
            yield self._wrong(f"the parameter {key!r} comes from nowhere", "compile it again")
        # A selector takes a part of the value before KFP looks at its type; which type that has shows when it runs.
        selected = bool(source.parameter_expression_selector)
        if have is not None and takes is not None and not selected and not _fits(have, takes):
            message = f"the parameter {key!r} is {_TYPES.get(takes, takes)}, and gets {_TYPES.get(have, have)}"
            yield self._wrong(message, "give one of that type")

    def _constant(self, key: str, value: Message, takes: int | None) -> Iterator[Finding]:
        if takes is not None and takes not in _CONSTANTS.get(value.WhichOneof("kind"), ()):
            yield self._wrong(
                f"the value of {key!r} does not fit, which is {_TYPES.get(takes, takes)}", "give one of that type"
            )
        hit = _REPLACED.search(value.string_value)
        if hit and hit[0] != value.string_value:
            yield self._wrong(
                f"the value of {key!r} holds {hit[0]}, which KFP replaces only where it is the whole value",
                "make it an input of its own",
            )

    def _final_status(self, key: str, name: str) -> Iterator[Finding]:
        if self.task.trigger_policy.strategy != EXIT:
            yield self._wrong(f"{key!r} asks how {name!r} ended, and the task does not run on exit", "compile it again")
        elif list(self.task.dependent_tasks)[:1] != [name]:
            yield self._wrong(
                f"{key!r} asks how {name!r} ended, which is not the first of its dependentTasks", "compile it again"
            )

    def _artifact(self, key: str, source: Message) -> Iterator[Finding]:
        wanted = self.component.input_definitions.artifacts
        have: Message = None
        many = False
        if source.WhichOneof("kind") == "task_output_artifact":
            name, output = source.task_output_artifact.producer_task, source.task_output_artifact.output_artifact_key
            yield from self._exists(name)
            declared = self._outputs(name, "artifacts")
            if declared is not None and output not in declared:
                yield self._wrong(f"{name} has no output artifact {output!r}", suggest(output, sorted(declared)))
            elif declared is not None:
                have, many = declared[output], bool(self.tasks[name].WhichOneof("iterator"))
        elif source.component_input_artifact:
            name, declared = source.component_input_artifact, self.around.input_definitions.artifacts
            if name not in declared:
                yield self._wrong(f"the DAG around it has no artifact {name!r}", suggest(name, sorted(declared)))
            else:
                have = declared[name]
        else:
            yield self._wrong(f"the artifact {key!r} comes from nowhere", "compile it again")
        if have is None or key not in wanted:
            return
        gets, takes = _title(have), _title(wanted[key])
        if gets != takes and "system.Artifact" not in (takes, gets):
            yield self._wrong(f"the artifact {key!r} is {takes}, and gets {gets}", "wire one of that type")
        if (have.is_artifact_list or many) != wanted[key].is_artifact_list:
            is_, gets = ("a list", "one") if wanted[key].is_artifact_list else ("one artifact", "a list")
            yield self._wrong(f"the artifact {key!r} is {is_}, and gets {gets}", "gather a loop's outputs as a list")

    def _exists(self, name: str) -> Iterator[Finding]:
        if name not in self.tasks:
            message = f"it takes an output of {name!r}, which is not a task of its DAG"
            yield self._wrong(message, suggest(name, sorted(self.tasks), "there are"))

    def _outputs(self, name: str, kind: str) -> Mapping[str, Message] | None:
        """The outputs of a task, where they are known."""
        component = self.components.get(self.tasks[name].component_ref.name) if name in self.tasks else None
        return None if component is None else getattr(component.output_definitions, kind)


def _fits(have: int, takes: int) -> bool:
    """Whether KFP's driver hands a type over as another: any as a text, a number as a number, a status as a struct."""
    return have == takes or takes == TEXT or {have, takes} in ({1, 2}, {6, _FINAL_STATUS})


def _title(spec: Message) -> str:
    return spec.artifact_type.schema_title or spec.artifact_type.instance_schema or "system.Artifact"
