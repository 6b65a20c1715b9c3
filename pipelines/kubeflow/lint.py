"""What is wrong with a compiled pipeline, found without a cluster: each finding says where, why, and what to do.

protobuf and KFP's own loader accept most mistakes: a reference to nothing, a cycle, a type that does not fit, a
dependency that is not there. On a cluster they show when the run stands still, or never. The rules stand here in the
order of the document: the spec and its executors, tasks, what flows into a task, the platform document.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from ...errors import InputError, suggest
from ...yaml_lines import load_documents
from .protobufs import EXIT, SCHEMA, add_implied_dependencies, pipeline_spec

Message: TypeAlias = Any  # a protobuf message: they have no types

_QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|k|Ki|[MGTPE]i?)?|\{\{.*\}\}")
_PLACEHOLDER = re.compile(r"\{\{\$\.(?!inputs\b|outputs\b|json_escape\[)[^}]*\}\}")
LONGEST_NAME = 57
"""Characters of a pipeline's name: its workflow adds a hyphen and five letters, and is a label of pods, 63 at most."""
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


@dataclass(frozen=True)
class Finding:
    """One mistake in a compiled pipeline.

    Attributes:
        location: e.g. "work/trainer": the names of the tasks down to it; or "platform", "executors/exec-x".
        message: What and why.
        fix: What to do.
    """

    location: str
    message: str
    fix: str

    def __str__(self) -> str:
        return f"{self.location}: {self.message}\n  fix: {self.fix}"

    def to_json(self) -> dict[str, str]:
        """The finding as `lint --json` prints it."""
        return {"location": self.location, "message": self.message, "fix": self.fix}


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
        return [Finding("file", f"it holds what is not JSON: {_first(str(error))}", "compile it again")]
    findings: list[Finding] = []
    parsed: dict[str, Any] = {}  # Any: protobuf messages, which have no types
    deployment = spec.get("deploymentSpec", spec.get("deployment_spec")) or {}
    for name, body, message in (
        ("spec", spec, pb.PipelineSpec()),
        ("deploymentSpec", deployment, pb.PipelineDeploymentConfig()),
        ("platform", platform or {}, pb.PlatformSpec()),
    ):
        shape = list(_shape_findings(body, message.DESCRIPTOR, name))
        findings += shape
        try:
            if not shape:
                parsed[name] = json_format.ParseDict(body, message, ignore_unknown_fields=True)  # `@type`
        except json_format.ParseError as error:
            where = re.search(r" at (?:\w+\.)?(\S+?)\.*$", str(error))
            location = f"{name}.{where[1]}" if where else name
            findings.append(Finding(location, f"KFP cannot read it: {_first(str(error))}", "compile it again"))
    if len(parsed) < 3:
        return findings
    add_implied_dependencies(parsed["spec"])
    findings += _spec_findings(parsed["spec"])
    findings += _executor_findings(parsed["deploymentSpec"].executors)
    findings += task_findings(parsed["spec"], parsed["deploymentSpec"].executors)
    if platform is not None:
        findings += platform_findings(parsed["platform"], parsed["deploymentSpec"].executors)
    return list(dict.fromkeys(findings))


def refuse(findings: list[Finding]) -> None:
    """Raise on the first finding.

    Raises:
        InputError: There is one; the message says how many more there are.
    """
    if findings:
        more = f" (and {len(findings) - 1} more)" if findings[1:] else ""
        raise InputError(
            f"a cluster would fail at {findings[0].location}: {findings[0].message}{more}", fix=findings[0].fix
        )


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


def _shape_findings(body: Any, descriptor: Any, location: str) -> Iterator[Finding]:  # Any: JSON and protobuf
    """Fields that a message does not have, and values that are not an object, list or name where it wants one."""
    if body is None or descriptor.full_name.startswith("google.protobuf."):
        if descriptor.name == "Struct" and not isinstance(body, Mapping | None):
            yield _misshapen(body, "an object", location)
        return
    if not isinstance(body, Mapping):
        yield _misshapen(body, "an object", location)
        return
    fields = {field.json_name: field for field in descriptor.fields} | {
        field.name: field for field in descriptor.fields
    }
    for key, value in body.items():
        field = fields.get(key)
        if key == "@type":  # which KFP passes over
            continue
        if field is None:
            names = [each.json_name for each in descriptor.fields]
            yield Finding(location, f"the field {key!r} is unknown to KFP", suggest(str(key), names, "known here are"))
        elif value is not None:
            yield from _field_findings(value, field, f"{location}.{key}")


def _field_findings(value: Any, field: Any, location: str) -> Iterator[Finding]:  # Any: JSON and protobuf
    entry = field.message_type is not None and field.message_type.GetOptions().map_entry
    several: Iterable[tuple[object, Any]] = [(None, value)]  # Any: JSON
    if entry:
        field = field.message_type.fields_by_name["value"]
        if not isinstance(value, Mapping):
            yield _misshapen(value, "an object", location)
            return
        several = value.items()
    elif field.is_repeated:
        if not isinstance(value, list):
            yield _misshapen(value, "a list", location)
            return
        several = enumerate(value)
    for name, each in several:
        at = location if name is None else f"{location}[{name}]"
        names = field.enum_type.values_by_name if field.enum_type is not None else {}
        if each is None and getattr(field.message_type, "full_name", "") != "google.protobuf.Value":
            yield _misshapen(each, "a value", at)
        elif field.message_type is not None:
            yield from _shape_findings(each, field.message_type, at)
        elif names and isinstance(each, str) and each not in names:
            yield Finding(at, f"{each!r} is unknown to KFP", suggest(each, list(names), "known here are"))
        elif names and not isinstance(each, str) and not _is_scalar(each, int):
            yield _misshapen(each, "a name", at)


def _misshapen(value: object, wanted: str, location: str) -> Finding:
    return Finding(location, f"{json.dumps(value):.40} is where KFP wants {wanted}", "compile it again")


def _first(text: str) -> str:
    return text.splitlines()[0].rstrip(".")


def name_findings(name: str, location: str, what: str, longest: int = 63) -> Iterator[Finding]:
    """A finding where Kubernetes does not accept a name."""
    if not _NAME.fullmatch(name):
        yield Finding(
            location,
            f"{what} {name!r} is not a name for Kubernetes",
            "use small letters, digits and hyphens, a letter or digit at both ends",
        )
    elif len(name) > longest:
        yield Finding(
            location, f"{what} {name!r} has {len(name)} characters, and Kubernetes takes {longest}", "shorten it"
        )


# -- tasks

_READS = re.compile(r"parameter_values\[\s*(?:'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\")\s*\]")


def task_findings(spec: Message, executors: Mapping[str, Message]) -> list[Finding]:
    """What is wrong with the tasks of a pipeline's DAGs."""
    rules = _TaskRules(dict(spec.components), dict(executors))
    findings = list(rules.component_cycles())
    findings += rules.conflicts()
    findings += rules.dag(spec.root, "", "root", ())
    return findings


class _TaskRules:
    def __init__(self, components: dict[str, Message], executors: dict[str, Message]) -> None:
        self.components = components
        self.executors = executors

    def component_cycles(self) -> Iterator[Finding]:
        """A finding for each DAG that contains itself."""
        state: dict[str, bool] = {}  # True while its tasks are looked at
        findings: list[Finding] = []

        def visit(name: str) -> None:
            if state.get(name):
                findings.append(Finding(f"components/{name}", "the component is within itself", "compile it again"))
            if name in state or name not in self.components:
                return
            state[name] = True
            for task in self.components[name].dag.tasks.values():
                visit(task.component_ref.name)
            state[name] = False

        for each in sorted(self.components):
            visit(each)
        yield from findings

    def conflicts(self) -> Iterator[Finding]:
        """Components that KFP would take for the same one: it identifies components by their containers alone."""
        seen: dict[bytes, tuple[str, bytes]] = {}
        for name in sorted(self.components):
            label = self.components[name].executor_label
            executor = self.executors.get(label)
            if executor is None or executor.WhichOneof("spec") != "container":
                continue
            other = type(self.components[name])()
            other.CopyFrom(self.components[name])
            other.executor_label = ""
            body = other.SerializeToString(deterministic=True)
            first, same = seen.setdefault(executor.container.SerializeToString(deterministic=True), (name, body))
            if same != body:
                yield Finding(
                    f"components/{name}",
                    f"it has the same container as {first} and other inputs or outputs: KFP keeps one of both",
                    "give the containers different arguments",
                )

    def dag(self, component: Message, path: str, name: str, above: tuple[str, ...]) -> Iterator[Finding]:
        tasks = component.dag.tasks
        for task_name in sorted(tasks):
            location = f"{path}/{task_name}" if path else task_name
            yield from self.task(component, tasks, task_name, location)
        yield from _cycle(tasks, path or name)
        yield from _exits(tasks, path)
        yield from self.outputs(component, path or name)
        for task_name in sorted(tasks):
            ref = tasks[task_name].component_ref.name
            inner = self.components.get(ref)
            if inner is not None and inner.WhichOneof("implementation") == "dag" and ref not in above:
                yield from self.dag(inner, f"{path}/{task_name}" if path else task_name, ref, (*above, ref))

    def task(self, around: Message, tasks: Mapping[str, Message], name: str, location: str) -> Iterator[Finding]:
        task = tasks[name]
        yield from name_findings(name, location, "the task's name")
        if name.removesuffix("-driver") != name and name.removesuffix("-driver") in tasks:
            yield Finding(location, "KFP gives this name to the driver of another task", "call the node otherwise")
        for dependency, count in sorted(Counter(task.dependent_tasks).items()):
            if dependency == name:
                yield Finding(location, "it waits for itself", "take it out of dependentTasks")
            elif dependency not in tasks:
                yield Finding(
                    location,
                    f"dependentTasks names {dependency!r}, which is not a task of its DAG",
                    suggest(dependency, sorted(tasks), "there are"),
                )
            elif count > 1:
                yield Finding(location, f"dependentTasks names {dependency!r} twice", "name it once")
        if task.WhichOneof("iterator") == "artifact_iterator":
            yield Finding(
                location, "it iterates over artifacts, which KFP does not do", "iterate over a list of values"
            )
        component = self.components.get(task.component_ref.name)
        if component is None:
            yield Finding(
                location,
                f"there is no component {task.component_ref.name!r}",
                suggest(task.component_ref.name, sorted(self.components), "there are"),
            )
            return
        yield from self.implementation(task, component, location)
        yield from _InputRules(around, tasks, task, component, self.components, location).findings()
        yield from _iterator(task, component, location)
        yield from _policies(task, location)

    def implementation(self, task: Message, component: Message, location: str) -> Iterator[Finding]:
        kind = component.WhichOneof("implementation")
        ref = task.component_ref.name
        if kind is None:
            yield Finding(location, f"its component {ref} has neither a container nor a DAG", "compile it again")
        elif kind == "dag" and not component.dag.tasks:
            yield Finding(location, f"its component {ref} is a DAG without tasks", "compile it again")
        if kind != "executor_label":
            return
        label = component.executor_label
        if label not in self.executors:
            yield Finding(
                location, f"there is no executor {label!r}", suggest(label, sorted(self.executors), "there are")
            )
            return
        executor = self.executors[label]
        if executor.WhichOneof("spec") == "importer" and task.trigger_policy.condition:
            yield Finding(
                location,
                "an importer has a condition, which KFP does not take",
                "put it into a DAG that has the condition",
            )
        ours = "drivetrain.pipelines.kubeflow.pod" in list(executor.container.command)
        if ours and task.caching_options.enable_cache:
            yield Finding(
                location,
                "KFP's cache is on: on a hit no pod starts, and the store does not learn of it",
                "compile it again: what is cached is decided by drivetrain",
            )

    def outputs(self, component: Message, location: str) -> Iterator[Finding]:
        """Findings on the outputs that a DAG takes from its tasks."""
        tasks = component.dag.tasks
        selected: list[tuple[str, str, str]] = []
        for output in component.dag.outputs.artifacts.values():
            selected += [
                (each.producer_subtask, each.output_artifact_key, "artifacts") for each in output.artifact_selectors
            ]
        for output in component.dag.outputs.parameters.values():
            several = [output.value_from_parameter] if output.WhichOneof("kind") == "value_from_parameter" else []
            several += list(output.value_from_oneof.parameter_selectors)
            selected += [(each.producer_subtask, each.output_parameter_key, "parameters") for each in several]
        for task, key, kind in selected:
            inner = self.components.get(tasks[task].component_ref.name) if task in tasks else None
            if task not in tasks:
                yield Finding(
                    location, f"the DAG gives an output of {task!r}, which is not a task of it", "compile it again"
                )
            elif inner is not None and key not in getattr(inner.output_definitions, kind):
                yield Finding(location, f"the DAG gives {task}'s {key!r}, which it has not", "compile it again")


def _iterator(task: Message, component: Message, location: str) -> Iterator[Finding]:
    if task.WhichOneof("iterator") != "parameter_iterator":
        return
    iterator, parameters = task.parameter_iterator, component.input_definitions.parameters
    if iterator.item_input not in parameters:
        yield Finding(
            location, f"its items come in as {iterator.item_input!r}, which is not a parameter", "compile it again"
        )
    kind = iterator.items.WhichOneof("kind")
    if kind == "input_parameter":
        name = iterator.items.input_parameter
        if name not in task.inputs.parameters:
            yield Finding(location, f"it iterates over {name!r}, which is not an input of it", "compile it again")
        elif name in parameters and parameters[name].parameter_type not in (_LIST, _TEXT):
            yield Finding(location, f"it iterates over {name!r}, which is not a list", "make it a LIST")
    elif kind == "raw":
        try:
            items = json.loads(iterator.items.raw)
        except ValueError:
            items = None
        if not isinstance(items, list):
            yield Finding(
                location, f"it iterates over {iterator.items.raw:.40}, which is not a list", "write a JSON list"
            )
    else:
        yield Finding(location, "it iterates over nothing", "compile it again")


def _policies(task: Message, location: str) -> Iterator[Finding]:
    """Findings on a task's condition and retries."""
    condition = task.trigger_policy.condition
    if condition:
        for single, double in _READS.findall(condition):
            name = re.sub(r"\\(.)", r"\1", single or double)
            if name not in task.inputs.parameters:
                yield Finding(
                    location,
                    f"its condition reads {name!r}, which is not an input of it",
                    suggest(name, sorted(task.inputs.parameters), "it has"),
                )
        yield from _parsed(condition, location)
        if task.trigger_policy.strategy == EXIT:
            yield Finding(location, "it has a condition, and runs on exit whatever it says", "look at it in the task")
    retry = task.retry_policy
    if retry.max_retry_count < 0:
        yield Finding(location, "it is tried again a negative number of times", "write 0 or more")
    if retry.max_retry_count and retry.backoff_factor != int(retry.backoff_factor):
        yield Finding(
            location, f"its back-off factor is {retry.backoff_factor:g}, and Argo takes whole ones", "write 2, say"
        )


def _parsed(condition: str, location: str) -> Iterator[Finding]:
    try:
        import cel
    except ImportError:
        return
    try:
        cel.compile(condition)
    except ValueError as error:
        syntax_error = re.search(r"(Syntax error: .*?)(?: expecting|$)", str(error).splitlines()[0])
        yield Finding(
            location, f"its condition is not CEL: {syntax_error[1] if syntax_error else error}", "compile it again"
        )


def _exits(tasks: Mapping[str, Message], path: str) -> Iterator[Finding]:
    """Findings on exit tasks, which KFP makes hooks: each hooks one task, and a task has one hook at most."""
    exits = {name for name in tasks if tasks[name].trigger_policy.strategy == EXIT}
    hooked: dict[str, str] = {}
    if exits and len(exits) == len(tasks):
        yield Finding(
            path or "root", "every task of it runs on exit, and nothing is left to exit from", "compile it again"
        )
    for name in sorted(tasks):
        location = f"{path}/{name}" if path else name
        needs = list(tasks[name].dependent_tasks)
        for other in sorted(set(needs) & exits):
            yield Finding(
                location, f"it waits for {other}, which runs on exit: KFP never starts it", "put both into one DAG"
            )
        if name not in exits:
            continue
        if len(needs) != 1:
            yield Finding(
                location, f"it runs on exit of {len(needs)} tasks, and KFP runs it for each", "put them into one DAG"
            )
        for need in needs:
            if hooked.setdefault(need, name) != name:
                yield Finding(
                    location,
                    f"{hooked[need]} runs on exit of {need} as well, and KFP starts only one of them",
                    "put what runs on exit into one DAG",
                )


def _cycle(tasks: Mapping[str, Message], location: str) -> Iterator[Finding]:
    state: dict[str, int] = {}
    for start in sorted(tasks):
        stack: list[tuple[str, Iterator[str]]] = []
        if start not in state:
            state[start] = 1
            stack.append((start, iter(sorted(tasks[start].dependent_tasks))))
        while stack:
            name, rest = stack[-1]
            following = next(rest, None)
            if following is None:
                state[name] = 2
                stack.pop()
            elif following in tasks and state.get(following) == 1 and following != name:
                names = [each for each, _ in stack]
                names = [*names[names.index(following) :], following]
                yield Finding(location, f"tasks wait for each other: {' → '.join(reversed(names))}", "break the cycle")
            elif following in tasks and following not in state:
                state[following] = 1
                stack.append((following, iter(sorted(tasks[following].dependent_tasks))))


# -- what flows into a task

_TEXT, _LIST, _FINAL_STATUS = 3, 5, 7  # of ParameterType
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
class _InputRules:
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
                have = _LIST if self.tasks[name].WhichOneof("iterator") else declared[output].parameter_type
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
    return have == takes or takes == _TEXT or {have, takes} in ({1, 2}, {6, _FINAL_STATUS})


def _title(spec: Message) -> str:
    return spec.artifact_type.schema_title or spec.artifact_type.instance_schema or "system.Artifact"


# -- the platform document

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
            yield _misshapen(body, "a list", location)
            return
        for index, each in enumerate(body):
            if each is None:
                yield _misshapen(each, "a value", f"{location}[{index}]")
            yield from _config_findings(each, wanted[0], f"{location}[{index}]")
    elif isinstance(wanted, Mapping):
        if not isinstance(body, Mapping):
            yield _misshapen(body, "an object", location)
            return
        for key, value in body.items():
            if value is None and str in wanted:
                yield _misshapen(value, "a text", f"{location}.{key}")
            elif str in wanted or key in wanted:
                yield from _config_findings(value, wanted[str if str in wanted else key], f"{location}.{key}")
            else:
                fix = suggest(key, list(wanted), "known here are")
                yield Finding(location, f"the field {key!r} is unknown to KFP", fix)
    elif not _is_scalar(body, wanted):
        yield _misshapen(body, {str: "a text", int: "a whole number", bool: "true or false"}[wanted], location)


def _parameter_findings(body: Any, location: str) -> Iterator[Finding]:  # Any: JSON
    from google.protobuf import json_format

    message = pipeline_spec().TaskInputsSpec.InputParameterSpec()
    shape = list(_shape_findings(body, message.DESCRIPTOR, location))
    yield from shape
    try:
        if not shape:
            json_format.ParseDict(body, message)
    except json_format.ParseError as error:
        yield Finding(location, f"KFP cannot read it: {_first(str(error))}", "compile it again")


def _is_scalar(value: object, wanted: type) -> bool:
    """Whether protobuf's JSON reads a value as one of this type: whole numbers may stand as texts, or as 3.0."""
    if wanted is not int:
        return type(value) is wanted
    if isinstance(value, str):
        return re.fullmatch(r"-?[0-9]+", value) is not None
    return type(value) in (int, float) and float(str(value)).is_integer()


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
