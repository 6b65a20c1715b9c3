"""The order of KFP's tasks as Argo runs them: dependencies that must succeed, loops, exit hooks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ..protobufs import EXIT
from . import driver
from .document import Document
from .driver import DriverError, TaskEnd, TaskValues


class ContainerRunner(Protocol):
    """Runs the container of a task."""

    async def run(self, where: str, task: Any, component: Any, values: TaskValues) -> TaskEnd:
        """Run it until it has ended, with its retries; returns its last end and its outputs."""
        ...


@dataclass(frozen=True)
class DagWalk:
    """A run of a compiled pipeline.

    Attributes:
        document: The compiled pipeline.
        pods: Runs the containers.
        run: KFP's id of the run.
        fail_fast: Whether no further task of a DAG starts once one of its tasks failed, as Argo does by default.
        tell: Called for each task that got no pod: its path, its state, why.
        stopped: Returns whether the run was terminated, after which nothing starts.
    """

    document: Document
    pods: ContainerRunner
    run: str
    fail_fast: bool
    tell: Callable[[str, str, str], None]
    stopped: Callable[[], bool]

    async def root(self, parameters: Mapping[str, Any]) -> str:
        """Execute the pipeline; returns its final state in KFP's words.

        Raises:
            DriverError: A parameter is unknown, or has no value.
        """
        declared = self.document.spec.root.input_definitions.parameters
        inputs = {
            key: driver.plain(each.default_value) for key, each in declared.items() if each.HasField("default_value")
        }
        if unknown := parameters.keys() - declared.keys():
            raise DriverError(
                f"the pipeline has no parameter {sorted(unknown)[0]}", fix="see the pipeline's parameters"
            )
        inputs |= parameters
        for key, each in declared.items():
            if key not in inputs and not each.is_optional:
                raise DriverError(f"the parameter {key} has no value", fix=f"give --param {key}=…")
        return (await self._dag(self.document.spec.root.dag, TaskValues(inputs), "")).state

    async def _dag(self, dag: Any, inputs: TaskValues, where: str) -> TaskEnd:
        ended: dict[str, TaskEnd] = {}
        over = {name: asyncio.Event() for name in dag.tasks}
        hooks = {
            task.dependent_tasks[0]: name for name, task in dag.tasks.items() if task.trigger_policy.strategy == EXIT
        }

        async def go(name: str) -> None:
            task = dag.tasks[name]
            for up in task.dependent_tasks:
                await over[up].wait()
            ended[name] = await self._started(name, task, inputs, ended, where)
            # Argo runs the exit hook before the task itself counts as ended, and not for a task it left out.
            if name in hooks and ended[name].state != "OMITTED":
                hook = hooks[name]
                ended[hook] = await self._task(hook, dag.tasks[hook], inputs, ended, where)
                over[hook].set()
            over[name].set()

        async with asyncio.TaskGroup() as group:
            for name, task in sorted(dag.tasks.items()):
                if task.trigger_policy.strategy != EXIT:
                    group.create_task(go(name), name=f"{where}{name}")
        failed = any(each.state == "FAILED" for each in ended.values())
        return TaskEnd("FAILED" if failed else "SUCCEEDED", _outputs(dag, ended))

    async def _started(
        self, name: str, task: Any, inputs: TaskValues, ended: Mapping[str, TaskEnd], where: str
    ) -> TaskEnd:
        """A task whose dependencies have ended: KFP has Argo ask for `X.Succeeded && Y.Succeeded`."""
        missing = [up for up in task.dependent_tasks if not ended[up].succeeded]
        if missing:
            self.tell(f"{where}{name}", "OMITTED", f"{missing[0]} did not succeed")
            return TaskEnd("OMITTED")
        if self.fail_fast and any(each.state == "FAILED" for each in ended.values()):
            self.tell(f"{where}{name}", "OMITTED", "another task failed, and Argo fails fast")
            return TaskEnd("OMITTED")
        return await self._task(name, task, inputs, ended, where)

    async def _task(
        self, name: str, task: Any, inputs: TaskValues, ended: Mapping[str, TaskEnd], where: str
    ) -> TaskEnd:
        if self.stopped():
            return TaskEnd("OMITTED")
        path = f"{where}{name}"
        try:
            values = driver.inputs(self.document, name, task, inputs, ended, self.run)
            condition = task.trigger_policy.condition
            starts = not condition or driver.holds(condition, values.parameters)
            if task.WhichOneof("iterator"):
                # The loop's own task succeeds, however many iterations there are.
                over = driver.items(task, values.parameters) if starts else []
                return await self._loop(task, over, values, path)
            if not starts:
                self.tell(path, "SKIPPED", f"{condition} is false")
                return TaskEnd("SKIPPED")
        except DriverError as error:
            self.tell(path, "FAILED", error.message)
            return TaskEnd("FAILED")
        return await self._body(task, values, path)

    async def _body(self, task: Any, values: TaskValues, path: str) -> TaskEnd:
        component = self.document.component(task)
        if component.WhichOneof("implementation") == "dag":
            return await self._dag(component.dag, values, f"{path}/")
        return await self.pods.run(path, task, component, values)

    async def _loop(self, task: Any, over: list[Any], values: TaskValues, path: str) -> TaskEnd:
        most = asyncio.Semaphore(task.iterator_policy.parallelism_limit or len(over) or 1)
        item = task.parameter_iterator.item_input

        async def run_item(number: int, value: Any) -> TaskEnd:
            async with most:
                if self.stopped():
                    return TaskEnd("OMITTED")
                inside = TaskValues({**values.parameters, item: value}, values.artifacts)
                return await self._body(task, inside, f"{path}[{number}]")

        ended = await asyncio.gather(*(run_item(number, value) for number, value in enumerate(over)))
        if any(each.state == "FAILED" for each in ended):
            return TaskEnd("FAILED")
        parameters: dict[str, list[Any]] = {}
        artifacts: dict[str, list[Any]] = {}
        for each in ended:
            for key, value in each.values.parameters.items():
                parameters.setdefault(key, []).append(value)
            for key, several in each.values.artifacts.items():
                artifacts.setdefault(key, []).extend(several)
        return TaskEnd("SUCCEEDED", TaskValues(parameters, artifacts))


def _outputs(dag: Any, ended: Mapping[str, TaskEnd]) -> TaskValues:
    """The outputs of a DAG: those of its tasks that ran."""
    parameters: dict[str, Any] = {}
    artifacts: dict[str, list[Any]] = {}
    for key, output in dag.outputs.parameters.items():
        single = output.value_from_parameter
        selectors = list(output.value_from_oneof.parameter_selectors) if not single.producer_subtask else [single]
        for each in selectors:
            task_outputs = ended[each.producer_subtask].values.parameters
            if each.output_parameter_key in task_outputs:
                parameters[key] = task_outputs[each.output_parameter_key]
                break
    for key, output in dag.outputs.artifacts.items():
        artifacts_of = [ended[each.producer_subtask].values.artifacts for each in output.artifact_selectors]
        keys = [each.output_artifact_key for each in output.artifact_selectors]
        artifacts[key] = [
            artifact for outputs, name in zip(artifacts_of, keys, strict=True) for artifact in outputs.get(name, ())
        ]
    return TaskValues(parameters, artifacts)
