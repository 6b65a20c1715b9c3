"""What is wrong with the tasks of a compiled pipeline: cycles, conditions, loops, exits, outputs."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping

from ...errors import suggest
from .findings import Finding, name_findings
from .lint_inputs import LIST, TEXT, InputRules, Message
from .protobufs import EXIT

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
        yield from InputRules(around, tasks, task, component, self.components, location).findings()
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
        elif name in parameters and parameters[name].parameter_type not in (LIST, TEXT):
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
