"""A pipeline as KFP's own form: a PipelineSpec, schema 2.1.0, and a platform document; byte-stable.

The spec holds the order of the tasks and the pod of each. What a task does, and where its data lies, only our launcher
and our store know; KFP's artifacts are the small manifests that pods write for its pages and its lineage.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from ...digest import canonical_json, digest
from ..ir.expressions import spelled
from ..ir.ir import Edge, Node, Pipeline, Source, UidSource
from . import cel
from .findings import LONGEST_NAME
from .manifests import ITEMS, PASSED, RUN, STATUS
from .plan import Plan, PlannedTask, kubernetes_name, plan
from .platform import platform_document
from .protobufs import SCHEMA
from .refusals import parameter_type, plain, refuse
from .settings import SCRATCH, ClusterSettings

Json: TypeAlias = dict[str, Any]  # a JSON object, as protobuf reads it

WORK, LEAVE, EXITS, CLOSE = "work", "leave", "exits", "drivetrain-close"
_COMPLETED = "ALL_UPSTREAM_TASKS_COMPLETED"
COMMAND = ("python", "-m", "drivetrain.pipelines.kubeflow.pod")
VARIABLE = "DRIVETRAIN_NODE"
"""Of a node's container: what the node is beyond KFP's spec, as JSON. `kubeflow diff` reads it; pods do not."""
_SAID_ELSEWHERE = ("retries", "backoff", "backoff_factor", "timeout", "cpus", "memory", "accelerators", "env")
"""Options that the spec and the platform document hold, and `env`, which has a fact of its own."""
_LONG = 2000
"""Characters of JSON up to which a value is written out in that variable; a longer one is its digest."""


@dataclass(frozen=True)
class CompiledPipeline:
    """A pipeline for KFP.

    Attributes:
        name: The pipeline's name there.
        digest: Our version of the pipeline, which the image must hold.
        spec: The PipelineSpec, as protobuf's JSON.
        platform: The PlatformSpec.
        nodes: KFP's task -> our node.
    """

    name: str
    digest: str
    spec: Json
    platform: Json
    nodes: Mapping[str, str]

    @cached_property
    def yaml(self) -> str:
        """Both documents as the YAML file that KFP takes; the same bytes for the same pipeline and settings."""
        import yaml

        class Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]  # by what is installed
            """Without anchors, which KFP's other readers do not all know."""

            def ignore_aliases(self, data: object) -> bool:
                return True

        documents = [self.spec, self.platform]
        return str(yaml.dump_all(documents, Dumper=Dumper, sort_keys=True, allow_unicode=True, width=120))


def compile_pipeline(
    pipeline: Pipeline,
    settings: ClusterSettings,
    *,
    project: Path | None = None,
    digest: str | None = None,
    lines: Mapping[str, str] | None = None,
) -> CompiledPipeline:
    """A pipeline in KFP's form.

    Args:
        pipeline: Compiled by us.
        settings: Of its cluster.
        project: Its folder, after which the one in the image is called where the settings do not say it.
        digest: The version that pods see to; that of `pipeline` where it is not said.
        lines: Node -> the user's line, for errors.

    Raises:
        InputError: Kubeflow cannot keep something of it.
        DrivetrainError: The extra kubeflow is not installed.
    """
    refuse(pipeline, settings, lines or {})
    folder = settings.project or f"/app/{project.resolve().name if project else pipeline.name}"
    compiler = _Compiler(pipeline, settings, folder, digest or pipeline.digest)
    spec = compiler.spec()
    platform = platform_document(settings, compiler.executors)
    return CompiledPipeline(spec["pipelineInfo"]["name"], digest or pipeline.digest, spec, platform, compiler.nodes)


class _Compiler:
    def __init__(self, pipeline: Pipeline, settings: ClusterSettings, project: str, digest: str) -> None:
        self.pipeline = pipeline
        self.settings = settings
        self.project = project
        self.digest = digest
        self.parameters = {name: _parameter(hint, default) for name, hint, default in pipeline.parameters}
        self.kinds = {
            name: cel.KINDS[self.parameters[name]["parameterType"]]
            for name, hint, _ in pipeline.parameters
            if not parameter_type(hint)[1]
        }
        self.parameters[RUN] = {"parameterType": "STRING", "defaultValue": "", "isOptional": True}
        self.plan: Plan = plan(pipeline, self.kinds)
        self.nodes = {task: node for node, task in self.plan.names.items()}
        self.executors: dict[str, Node | None] = {}
        self.components: dict[str, Json] = {}
        self.containers: dict[str, Json] = {}
        self.read: dict[str, set[str]] = {}  # task -> its output parameters that conditions read
        self.gates = {gate for task in self.plan.walk() for gate in task.gates}
        for task in self.plan.walk():
            for node, output, name in _reads(task.conditions):
                self.read.setdefault(self.plan.names[node], set()).add(_key(output, name))

    def spec(self) -> Json:
        root = DagLevel(None)
        root.here = {WORK, CLOSE, LEAVE}
        work = DagLevel(root)
        tasks = {WORK: self.dag(WORK, self.plan.work, work)}
        if self.plan.exits:
            tasks[LEAVE] = self.leave(root)
        else:
            tasks[CLOSE] = self.close([WORK])
        exit_task = tasks.get(LEAVE) or tasks[CLOSE]
        exit_task["inputs"]["parameters"][STATUS] = {"taskFinalStatus": {"producerTask": WORK}}
        name = kubernetes_name(self.pipeline.name, LONGEST_NAME)
        return {
            "schemaVersion": SCHEMA,
            "sdkVersion": f"drivetrain-{_version()}",
            "pipelineInfo": {"name": name, "displayName": self.pipeline.name},
            "root": {"dag": {"tasks": tasks}, "inputDefinitions": {"parameters": dict(self.parameters)}},
            "components": self.components,
            "deploymentSpec": {"executors": self.containers},
        }

    def dag(self, name: str, tasks: tuple[PlannedTask, ...], level: DagLevel) -> Json:
        """A task that is a sub-DAG; adds its component."""
        level.here = {task.name for task in tasks}
        for parameter in self.parameters:
            level.pass_on(parameter, self.parameters[parameter])
        body = {task.name: self.task(task, level) for task in tasks}
        self.components[f"comp-{name}"] = {
            "dag": {"tasks": body},
            "inputDefinitions": _definitions(level.parameters, level.artifacts),
        }
        return self._task(name, name, level.inputs, [])

    def task(self, task: PlannedTask, level: DagLevel) -> Json:
        if task.kind == "loop":
            return self.loop(task, level)
        scope = _scope(self.pipeline, task)
        inputs: Json = {"parameters": {}, "artifacts": {}}
        defined = dict(self.parameters)
        defined |= {f"loop--{loop}": {"parameterType": "NUMBER_INTEGER"} for loop in scope}
        inputs["parameters"] = {name: {"componentInputParameter": name} for name in defined}
        outputs: Json = {"parameters": {}, "artifacts": {}}
        artifacts: dict[str, Json] = {}
        node: Node | None = None
        if task.kind == "node":
            node = self.pipeline[task.id]
            for name, producer, key, kind in self._edges(node):
                source = level.artifact(self.plan.names[producer], key, kind)
                if source is not None:
                    inputs["artifacts"][name] = source
                    artifacts[name] = artifact_type(kind)
            outputs["artifacts"] = {key: artifact_type(kind) for key, kind in node.outputs}
            outputs["parameters"] = {key: {"parameterType": "LIST"} for key in self.read.get(task.name, ())}
            if task.id in self.gates:
                outputs["parameters"][PASSED] = {"parameterType": "BOOLEAN"}
        else:
            outputs["parameters"] = {ITEMS: {"parameterType": "LIST"}}
        condition = self.condition(task, level, inputs, defined)
        what = ["--node", task.id] if node is not None else ["--open", task.id]
        self.component(task.name, what, defined, artifacts, outputs, node)
        compiled = self._task(task.name, task.id if node is not None else f"open {task.id}", inputs, list(task.after))
        return self._with(compiled, condition, node)

    def loop(self, task: PlannedTask, level: DagLevel) -> Json:
        inside = DagLevel(level)
        item = f"loop--{task.id}"
        inside.parameters[item] = {"parameterType": "NUMBER_INTEGER"}
        for loop in _scope(self.pipeline, task):
            inside.pass_on(f"loop--{loop}", {"parameterType": "NUMBER_INTEGER"})
        compiled = self.dag(task.name, task.inside, inside)
        compiled["taskInfo"]["name"] = f"for {task.id}"
        compiled["dependentTasks"] = list(task.after)
        if not task.after:
            del compiled["dependentTasks"]
        items: Json = {"raw": json.dumps(list(range(task.count)))}
        if task.opened:
            name = f"pipelinechannel--{task.opened}--{ITEMS}"
            source = {"producerTask": task.opened, "outputParameterKey": ITEMS}
            compiled["inputs"]["parameters"][name] = {"taskOutputParameter": source}
            inside.parameters[name] = {"parameterType": "LIST"}
            items = {"inputParameter": name}
        compiled["parameterIterator"] = {"itemInput": item, "items": items}
        bound = self.pipeline.loop(task.id).parallel
        if bound is not None:
            compiled["iteratorPolicy"] = {"parallelismLimit": bound}
        condition = self.condition(task, level, compiled["inputs"], inside.parameters)
        self.components[f"comp-{task.name}"]["inputDefinitions"] = _definitions(inside.parameters, inside.artifacts)
        return self._with(compiled, condition, None)

    def condition(self, task: PlannedTask, level: DagLevel, inputs: Json, defined: dict[str, Json]) -> str:
        """The CEL of a task's trigger policy, "" for none; each output that it reads becomes an input of the task."""

        def take(node: str, key: str, kind: str) -> str:
            producer = self.plan.names[node]
            name = f"pipelinechannel--{producer}--{key}"
            inputs["parameters"][name] = level.parameter(producer, key, kind)
            defined[name] = {"parameterType": kind}
            return name

        def read(node: str, output: str, name: str) -> str:
            return take(node, _key(output, name), "LIST")

        passed = [cel.value(take(gate, PASSED, "BOOLEAN")) for gate in task.gates]
        expressions = [cel.condition(task.conditions, read, self.kinds)] if task.conditions else []
        return " && ".join([*passed, *expressions])

    def leave(self, root: DagLevel) -> Json:
        """The exit task: a DAG of the exit nodes, then the pod that closes the run.

        KFP starts a single exit hook per task, so both are in one DAG, with the closing pod as the hook of the exits:
        it runs even where an exit node fails.
        """
        level = DagLevel(root)
        exits = self.dag(EXITS, self.plan.exits, DagLevel(level))
        level.here = {EXITS, CLOSE}
        for name, body in self.parameters.items():
            level.pass_on(name, body)
        close = self.close([EXITS])
        close["inputs"]["parameters"][STATUS] = {"componentInputParameter": STATUS}
        definitions = _definitions(level.parameters | {STATUS: {"parameterType": "TASK_FINAL_STATUS"}}, {})
        self.components[f"comp-{LEAVE}"] = {
            "dag": {"tasks": {EXITS: exits, CLOSE: close}},
            "inputDefinitions": definitions,
        }
        compiled = self._task(LEAVE, LEAVE, level.inputs, [WORK])
        compiled["triggerPolicy"] = {"strategy": _COMPLETED}
        return compiled

    def close(self, after: list[str]) -> Json:
        defined = dict(self.parameters) | {STATUS: {"parameterType": "TASK_FINAL_STATUS"}}
        inputs: Json = {"parameters": {name: {"componentInputParameter": name} for name in self.parameters}}
        self.component(CLOSE, ["--leave"], defined, {}, {}, None)
        compiled = self._task(CLOSE, CLOSE, inputs, after)
        compiled["triggerPolicy"] = {"strategy": _COMPLETED}
        return compiled

    def component(
        self,
        name: str,
        what: list[str],
        parameters: Mapping[str, Json],
        artifacts: Mapping[str, Json],
        outputs: Mapping[str, Json],
        node: Node | None,
    ) -> None:
        """Add the component and the container of a pod."""
        body: Json = {"executorLabel": f"exec-{name}", "inputDefinitions": _definitions(parameters, artifacts)}
        if definitions := _definitions(outputs.get("parameters", {}), outputs.get("artifacts", {})):
            body["outputDefinitions"] = definitions
        self.components[f"comp-{name}"] = body
        self.executors[f"exec-{name}"] = node
        described = node_facts(self.pipeline, node) if node is not None else ""
        specification = container(self.settings, self.project, self.digest, what, node, described)
        self.containers[f"exec-{name}"] = {"container": specification}

    def _task(self, name: str, shown: str, inputs: Json, after: list[str]) -> Json:
        compiled: Json = {
            "taskInfo": {"name": shown},
            "componentRef": {"name": f"comp-{name}"},
            "cachingOptions": {},
            "inputs": {kind: body for kind, body in inputs.items() if body or kind == "parameters"},
        }
        if after:
            compiled["dependentTasks"] = sorted(after)
        return compiled

    def _with(self, compiled: Json, condition: str, node: Node | None) -> Json:
        """A task with its condition and its retries."""
        if condition:
            compiled["triggerPolicy"] = {"condition": condition}
        if node is not None and node.options.retries:
            options = node.options
            compiled["retryPolicy"] = {
                "maxRetryCount": options.retries,
                "backoffDuration": f"{math.ceil(options.backoff)}s",
                "backoffFactor": options.backoff_factor,
            }
        return compiled

    def _edges(self, node: Node) -> Iterator[tuple[str, str, str, str]]:
        """(input of the component, producer, output, type) for each edge whose artifact KFP shows."""
        for name, sources in node.inputs:
            number = 0
            for source in sources:
                if not isinstance(source, Edge):
                    continue
                number += 1
                kinds = dict(self.pipeline[source.node].outputs)
                yield name if number == 1 else f"{name}--{number}", source.node, source.output, kinds[source.output]


def _reads(conditions: tuple[Any, ...]) -> Iterator[tuple[str, str, str]]:
    """(node, output, property) for each output that expressions read."""

    def walk(value: Any) -> Iterator[tuple[str, str, str]]:  # Any: JSON
        if isinstance(value, dict):
            for key, body in value.items():
                if key == "$property":
                    yield body[0], body[1], body[2]
                else:
                    yield from walk(body)
        elif isinstance(value, (list, tuple)):
            for each in value:
                yield from walk(each)

    for need in conditions:
        yield from walk(need)


def _key(output: str, name: str) -> str:
    """The name of the output parameter that holds a property of an output; as `manifests` splits it again."""
    return output if name == "value" else f"{output}--{name}"


def _scope(pipeline: Pipeline, task: PlannedTask) -> tuple[str, ...]:
    """The loops around a task, the outermost first."""
    if task.kind == "node":
        return pipeline.scope(task.id)
    loops: list[str] = []
    name = pipeline.loop(task.id).within
    while name:
        loops.append(name)
        name = pipeline.loop(name).within
    return tuple(reversed(loops))


def _parameter(hint: str, default: Any) -> Json:  # Any: JSON
    kind, nullable = parameter_type(hint)
    default = plain(default)
    if default == {"$required": True}:
        return {"parameterType": "STRING" if nullable else kind}
    if nullable:
        # KFP loses a null on its way into a DAG within; as a text it arrives.
        kind, default = "STRING", default if isinstance(default, str) else json.dumps(default)
    return {"parameterType": kind, "defaultValue": default, "isOptional": True}


def _definitions(parameters: Mapping[str, Json], artifacts: Mapping[str, Json]) -> Json:
    definitions = {"parameters": dict(parameters), "artifacts": dict(artifacts)}
    return {kind: body for kind, body in definitions.items() if body}


def _version() -> str:
    from importlib.metadata import version

    return version("drivetrain")


# -- how values come into a DAG


class DagLevel:
    """One DAG while it is compiled: its tasks, and what it gets from the DAG around it.

    A task of KFP sees only the tasks beside it and the inputs of its own DAG. What comes from further out must be an
    input of every DAG in between; `parameter` and `artifact` add those inputs.

    Args:
        above: The DAG around it; None for the root.

    Attributes:
        here: The names of its tasks.
        parameters: The parameters of its component: name -> definition.
        artifacts: The artifacts of its component.
        inputs: The inputs of the task by which the DAG around calls it.
    """

    def __init__(self, above: DagLevel | None) -> None:
        self.above = above
        self.here: set[str] = set()
        self.parameters: dict[str, Json] = {}
        self.artifacts: dict[str, Json] = {}
        self.inputs: Json = {"parameters": {}, "artifacts": {}}

    def pass_on(self, name: str, body: Json) -> None:
        """Make a parameter of the DAG around a parameter of this one."""
        self.parameters[name] = body
        self.inputs["parameters"][name] = {"componentInputParameter": name}

    def parameter(self, task: str, key: str, kind: str) -> Json:
        """The source of another task's output parameter, for a task of this DAG."""
        if task in self.here:
            return {"taskOutputParameter": {"producerTask": task, "outputParameterKey": key}}
        assert self.above is not None
        name = f"pipelinechannel--{task}--{key}"
        if name not in self.parameters:
            self.inputs["parameters"][name] = self.above.parameter(task, key, kind)
            self.parameters[name] = {"parameterType": kind}
        return {"componentInputParameter": name}

    def artifact(self, task: str, key: str, kind: str) -> Json | None:
        """The source of another task's artifact, for a task of this DAG.

        None where KFP has none to give: what a loop collects, and outputs of the work for exit nodes.
        """
        if task in self.here:
            return {"taskOutputArtifact": {"producerTask": task, "outputArtifactKey": key}}
        if self.above is None:
            return None
        name = f"{task}--{key}"
        if name not in self.artifacts:
            source = self.above.artifact(task, key, kind)
            if source is None:
                return None
            self.artifacts[name] = artifact_type(kind)
            self.inputs["artifacts"][name] = source
        return {"componentInputArtifact": name}


def artifact_type(kind: str) -> Json:
    """An artifact's definition in KFP, from our name of its type."""
    return {"artifactType": {"schemaTitle": f"drivetrain.{kind}", "schemaVersion": "0.0.1"}}


# -- the container of a pod


def container(
    settings: ClusterSettings, project: str, version: str, what: list[str], node: Node | None, described: str = ""
) -> Json:
    """A PipelineContainerSpec.

    Args:
        settings: Of the cluster.
        project: The project's folder in the image.
        version: The digest of the pipeline, which the image must hold.
        what: The arguments that say what the pod does.
        node: The pod's node; None for the pod that closes the run or opens a loop.
        described: The node's facts, see `node_facts`.
    """
    pod = settings.pod(node.id if node else "")
    env = {**dict(pod.env), "DRIVETRAIN_ARTIFACTS": settings.artifacts, "DRIVETRAIN_ROOT": f"{SCRATCH}/.drivetrain"}
    if node is not None:
        env[VARIABLE] = described
    specification: Json = {
        "image": settings.image,
        "command": list(COMMAND),
        "args": ["--project", project, "--ir", version, *what, "--executor-input", "{{$}}"],
        "env": [{"name": key, "value": text} for key, text in sorted(env.items())],
    }
    if node is not None and (resources := _resources(node, pod.gpu)):
        specification["resources"] = resources
    return specification


def _resources(node: Node, gpu: str) -> Json:
    options = node.options
    resources: Json = {}
    if options.cpus:
        cores = f"{math.ceil(options.cpus * 1000)}m"
        resources |= {"resourceCpuRequest": cores, "resourceCpuLimit": cores}
    if options.memory:
        resources |= {"resourceMemoryRequest": str(options.memory), "resourceMemoryLimit": str(options.memory)}
    if options.accelerators:
        resources |= {"accelerator": {"resourceType": gpu, "resourceCount": str(options.accelerators)}}
    return resources


def node_facts(pipeline: Pipeline, node: Node) -> str:
    """What a node is beyond KFP's spec, as JSON for `VARIABLE`: facts, and maps of facts by name.

    The spec lacks which output of a loop is collected, what a query asks, conditions that the pod decides, and the
    values of lists; without them `kubeflow diff` could not show that they changed.
    """
    loops = [pipeline.loop(name) for name in pipeline.scope(node.id)]
    facts = {
        "component": node.component,
        "code": node.code,
        "cache": node.cache,
        "gates": node.gates,
        "asks": node.asks or None,
        "when": _all(node.conditions),
        "input": {name: [_source(each) for each in sources] for name, sources in node.inputs},
        "parameter": {name: _short(value) for name, value in node.parameters},
        "output": dict(node.outputs),
        "node's env": dict(node.options.env),
        "option": {name: value for name, value in node.options.to_json().items() if name not in _SAID_ELSEWHERE},
        "over": {loop.id: _short(loop.over) for loop in loops},
        "loop when": {loop.id: _all(loop.conditions) for loop in loops if loop.conditions},
    }
    return canonical_json({name: fact for name, fact in facts.items() if fact not in ({}, "", None)}).decode()


def _all(conditions: Iterable[Any]) -> str:
    return " and ".join(map(spelled, conditions))


def _source(source: Source) -> Any:  # Any: JSON
    """The source of an input: `node.output` with its kind for an edge, JSON for any other."""
    if not isinstance(source, Edge):
        return {"uids": _short(source.uids)} if isinstance(source, UidSource) else source.to_json()
    kind = f" (choice {source.choice})" if source.choice else " (optional)" if source.optional else ""
    return f"{source.node}.{source.output}{kind}"


def _short(value: Any) -> Any:  # Any: JSON
    return value if len(json.dumps(value)) <= _LONG else f"sha256:{digest('drivetrain-parameter', value)}"
