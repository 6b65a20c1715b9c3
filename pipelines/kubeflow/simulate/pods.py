"""Containers as processes: their inputs and outputs as KFP's launcher handles them, retries, eviction."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ....errors import InputError
from ...launcher import processes
from ...project.secret import Secret
from .document import Document
from .driver import TaskEnd, TaskValues

_OURS = "drivetrain.pipelines.kubeflow.pod"


@dataclass(frozen=True)
class Eviction:
    """A pod that gets SIGTERM while it works, and SIGKILL after the cluster's grace period.

    Attributes:
        task: Our task, such as `Trainer` or `Trainer[3]`; only its first pod is evicted.
        when: Polled until it returns True; None for one second after the start.
        kill: Whether it gets SIGKILL at once, as where its machine dies.
    """

    task: str
    when: Callable[[], bool] | None = None
    kill: bool = False


@dataclass(frozen=True)
class PodRun:
    """One attempt of a task in a pod.

    Attributes:
        where: The path of its task in the compiled pipeline.
        task: Ours; "" for one that opens a loop or closes the run.
        attempt: 0 for the first.
        status: How its process ended: an exit status, minus a signal's number.
        reason: What KFP says of it where it failed.
        log: What it printed.
        seconds: How long it ran.
    """

    where: str
    task: str
    attempt: int
    status: int
    reason: str
    log: Path
    seconds: float


@dataclass
class Kubelet:
    """Runs the containers of one run.

    Attributes:
        document: The compiled pipeline.
        project: The folder that stands for the project in the image.
        run: KFP's id of the run.
        folder: Where logs go, and what stands for KFP's own object store.
        environment: By our task, or "*" for every pod: variables that stand for the cluster's, such as the store.
        limit: Bounds how many pods run at once.
        grace: Seconds between SIGTERM and SIGKILL.
        evictions: The pods to evict.
        started: Called as a pod starts, with its task's path and our task.
        ended: Called with a pod that ended.
        pods: The pods that ended, in that order.
        stopping: Set when the run is terminated.
        killing: Set when the rest of the grace period is skipped.
    """

    document: Document
    project: Path
    run_id: str
    folder: Path
    environment: Mapping[str, Mapping[str, str]]
    limit: asyncio.Semaphore
    grace: float
    evictions: list[Eviction]
    started: Callable[[str, str], None]
    ended: Callable[[PodRun], None]
    pods: list[PodRun] = field(default_factory=list)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    killing: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, where: str, task: Any, component: Any, values: TaskValues) -> TaskEnd:
        """Run a container until it succeeded, or failed as often as it may."""
        policy = task.retry_policy
        most = policy.max_retry_count if task.HasField("retry_policy") else 0
        pause = float(policy.backoff_duration.seconds) if most else 0.0
        for attempt in range(most + 1):
            async with self.limit:
                if self.stopping.is_set():
                    return TaskEnd("FAILED")
                ended = await self._attempt(where, component, values, attempt, retries=most > 0)
            if ended.succeeded or attempt == most or self.stopping.is_set():
                return ended
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.stopping.wait(), pause)
            pause *= policy.backoff_factor or 1.0
            if longest := policy.backoff_max_duration.seconds:
                pause = min(pause, float(longest))
        raise AssertionError("unreachable")

    async def _attempt(self, where: str, component: Any, values: TaskValues, attempt: int, *, retries: bool) -> TaskEnd:
        label = component.executor_label
        container = self.document.executors[label].container
        name = f"{where.replace('/', '-')}-{attempt}"
        folder = self.folder / "pods" / name
        folder.mkdir(parents=True, exist_ok=True)
        executor_input = _executor_input(component, values, folder / "out")
        ours = _task(list(container.args), where)
        log, begin = folder / "log.txt", time.monotonic()
        self.started(where, ours)
        try:
            _fetch(values)
            command = self._command(container, json.dumps(executor_input))
            environment = self._environment(label, container, name, attempt, retries=retries)
            environment |= {**self.environment["*"], **self.environment.get(ours, {})}
            status = await self._process(command, environment, log, ours, attempt)
            reason = "" if status == 0 else _died(status)
            values = _collected(component, executor_input) if status == 0 else TaskValues()
        except InputError as error:  # what Kubernetes or KFP's launcher would not do
            log.write_text(f"{error}\n", encoding="utf-8")
            status, reason, values = 1, error.message, TaskValues()
        ran = PodRun(where, ours, attempt, status, reason, log, time.monotonic() - begin)
        self.pods.append(ran)
        self.ended(ran)
        return TaskEnd("SUCCEEDED" if not reason else "FAILED", values)

    async def _process(
        self, command: Sequence[str], environment: Mapping[str, str], log: Path, task: str, attempt: int
    ) -> int:
        mark, marks = processes.new_mark()
        with log.open("wb") as out:
            process = await asyncio.create_subprocess_exec(
                *command, env={**environment, **marks}, stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=out,
                start_new_session=True,
            )  # fmt: skip
        ending = asyncio.create_task(self._ending(process, mark, task, attempt))
        try:
            status = await process.wait()
        finally:
            ending.cancel()
            with suppress(asyncio.CancelledError):
                await ending
        if status != 0:  # a container ends with all that it started
            await asyncio.to_thread(processes.end_descendants, process.pid, mark, 0.0)
        return status

    async def _ending(self, process: asyncio.subprocess.Process, mark: str, task: str, attempt: int) -> None:
        """End a pod: where it is to be evicted, or the run is terminated."""
        eviction = next((each for each in self.evictions if each.task == task), None) if attempt == 0 else None
        waits: list[asyncio.Task[Any]] = [asyncio.create_task(self.stopping.wait())]
        if eviction is not None:
            waits.append(asyncio.create_task(_due(eviction)))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if eviction is None or not eviction.kill:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.killing.wait(), self.grace)
        import psutil

        with suppress(ProcessLookupError):  # stop all before killing any: a survivor would record another's death
            process.send_signal(signal.SIGSTOP)
        everyone = processes.descendants(process.pid, mark)
        for each in everyone:
            with suppress(psutil.Error):  # it is gone
                each.suspend()
        with suppress(ProcessLookupError):
            process.kill()
        for each in everyone:
            with suppress(psutil.Error):
                each.kill()

    def _command(self, container: Any, executor_input: str) -> list[str]:
        words = [word.replace("{{$}}", executor_input) for word in (*container.command, *container.args)]
        if words[:3] != ["python", "-m", _OURS]:
            raise InputError(
                f"the container runs {' '.join(words[:3])}", fix="simulate what `drivetrain kubeflow compile` wrote"
            )
        words[words.index("--project") + 1] = str(self.project)
        return [sys.executable, "-P", *words[1:]]

    def _environment(self, label: str, container: Any, name: str, attempt: int, *, retries: bool) -> dict[str, str]:
        """The environment variables that Kubernetes would set.

        Raises:
            InputError: A secret that the platform document names is not there.
        """
        variables = {key: value for key, value in os.environ.items() if key not in self._named}
        variables["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        variables |= {each.name: each.value for each in container.env}
        config = self.document.kubernetes.get(label, {})
        for each in config.get("fieldPathAsEnv", ()):
            field_path = each["fieldPath"]
            variables[each["name"]] = self.run_id if "pipeline/runid" in field_path else name
        for variable, optional in _from_secrets(config):
            if variable in self.environment["*"]:
                continue
            try:
                variables[variable] = Secret(variable).reveal()
            except InputError as error:
                if not optional:
                    raise InputError(f"Kubernetes cannot start the container: {error.message}", fix=error.fix) from None
        variables |= {"KFP_POD_NAME": name, "KFP_POD_UID": str(uuid.uuid4())}
        if retries:
            variables["KFP_RETRY_INDEX"] = str(attempt)
        return variables

    @property
    def _named(self) -> set[str]:
        """The variables that any container gets from a secret: the other containers must not see them."""
        return {variable for config in self.document.kubernetes.values() for variable, _ in _from_secrets(config)}


def _from_secrets(config: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    for key in ("secretAsEnv", "configMapAsEnv"):
        for each in config.get(key, ()):
            for pair in each.get("keyToEnv", ()):
                yield pair["envVar"], bool(each.get("optional"))


def _executor_input(component: Any, values: TaskValues, folder: Path) -> dict[str, Any]:
    from google.protobuf import json_format

    outputs = component.output_definitions
    artifacts = {
        key: {
            "name": key,
            "uri": str(folder / key),
            "type": json_format.MessageToDict(definition.artifact_type),
            "metadata": {},
        }
        for key, definition in outputs.artifacts.items()
    }
    declared = component.input_definitions.parameters
    parameters = {key: value for key, value in values.parameters.items() if key in declared}
    return {
        "inputs": {
            "parameterValues": parameters,
            "artifacts": {key: {"artifacts": list(several)} for key, several in values.artifacts.items()},
        },
        "outputs": {
            "outputFile": str(folder / "executor_output.json"),
            "parameters": {key: {"outputFile": str(folder / "parameters" / key)} for key in outputs.parameters},
            "artifacts": {key: {"artifacts": [artifact]} for key, artifact in artifacts.items()},
        },
    }


def _fetch(values: TaskValues) -> None:
    """KFP's launcher copies every input artifact into the pod before the container starts."""
    for key, several in values.artifacts.items():
        for artifact in several:
            if not Path(artifact["uri"]).is_file():
                raise InputError(
                    f"KFP's launcher finds nothing at {artifact['uri']}, the input {key}", fix="see its pod"
                )


def _collected(component: Any, executor_input: Mapping[str, Any]) -> TaskValues:
    """The outputs of a container, checked as KFP's launcher checks them.

    Raises:
        InputError: One is missing.
    """
    file = Path(executor_input["outputs"]["outputFile"])
    body: Mapping[str, Any] = json.loads(file.read_bytes()) if file.is_file() else {}
    parameters = dict(body.get("parameterValues", {}))
    for key, definition in component.output_definitions.parameters.items():
        if key not in parameters:
            raise InputError(f"KFP's launcher finds no output parameter {key}", fix="see the pod's log")
        _check_type(key, definition.parameter_type, parameters[key])
    artifacts: dict[str, list[Any]] = {}
    for key, several in executor_input["outputs"]["artifacts"].items():
        reported = body.get("artifacts", {}).get(key, {}).get("artifacts", [{}])
        # A missing file is not an error for the launcher here, only later for the task that reads it.
        artifacts[key] = [several["artifacts"][0] | reported[0]]
    return TaskValues(parameters, artifacts)


_TYPES: Mapping[int, tuple[type, ...]] = {
    1: (int, float), 2: (int,), 3: (str,), 4: (bool,), 5: (list,), 6: (dict,),
}  # fmt: skip
"""By KFP's number of a parameter's type: NUMBER_DOUBLE, NUMBER_INTEGER, STRING, BOOLEAN, LIST, STRUCT."""


def _check_type(key: str, kind: int, value: object) -> None:
    wanted = _TYPES.get(kind)
    if wanted is not None and (not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted)):
        raise InputError(
            f"the output parameter {key} is {value!r:.60}, of another type than declared", fix="see its pod"
        )


def _task(arguments: Sequence[str], where: str) -> str:
    """Our name of a pod's task; the indices of its loops' items come from its path."""
    if "--node" not in arguments:
        return ""
    node = arguments[arguments.index("--node") + 1]
    index = re.findall(r"\[(\d+)\]", where)
    return f"{node}[{','.join(index)}]" if index else node


def _died(status: int) -> str:
    if status < 0:
        return f"its pod was ended by {signal.Signals(-status).name}"
    return f"its pod ended with status {status}"


async def _due(eviction: Eviction) -> None:
    if eviction.when is None:
        await asyncio.sleep(1.0)
        return
    while not eviction.when():
        await asyncio.sleep(0.05)
