"""What changed from one compiled pipeline to another, node by node: code, parameters, wiring, resources, platform."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from ...errors import InputError
from ...yaml_lines import load_documents
from .compiler import VARIABLE

Json: TypeAlias = Any  # a JSON value; Any because the type is recursive and read by key
Facts: TypeAlias = dict[str, Json]
"""The facts of a task by name, e.g. "parameter epochs", "waits for", "platform tolerations"."""


def compare(old: str, new: str, names: tuple[str, str] = ("old", "new")) -> dict[str, Json]:
    """What differs between two compiled pipelines, as JSON.

    `pipeline`: [old, new] by what of the whole, e.g. "parameter epochs"; `nodes`: the same for each node in which
    something differs; `added`, `removed`: nodes. A pod of the pipeline's own counts as a node by its task's name.

    Args:
        old: YAML.
        new: YAML.
        names: What they are called in errors.

    Raises:
        InputError: One of them is not a compiled pipeline.
    """
    (before, old_nodes), (after, new_nodes) = (_read(text, name) for text, name in zip((old, new), names, strict=True))
    both = [name for name in new_nodes if name in old_nodes]
    changed = {name: facts for name in both if (facts := _changed(old_nodes[name], new_nodes[name]))}
    return {
        "pipeline": _changed(before, after),
        "nodes": changed,
        "added": [name for name in new_nodes if name not in old_nodes],
        "removed": [name for name in old_nodes if name not in new_nodes],
    }


def _read(text: str, name: str) -> tuple[Facts, dict[str, Facts]]:
    """The facts of a compiled pipeline as a whole, and those of each node."""
    try:
        documents = load_documents(text, name, name=name)
        both = documents[0], documents[1] if len(documents) > 1 else {}
        return _whole(*both), _nodes(*both)
    except (InputError, AttributeError, LookupError, TypeError, ValueError):  # of another shape than is read here
        raise InputError(
            f"{name} is not a compiled pipeline",
            fix="see what `drivetrain kubeflow lint` says of it, or compile it again",
        ) from None


def _whole(spec: Json, platform: Json) -> Facts:
    facts: Facts = {"name": spec.get("pipelineInfo", {}).get("name"), "made by": spec.get("sdkVersion")}
    for name, body in spec["root"].get("inputDefinitions", {}).get("parameters", {}).items():
        facts[f"parameter {name}"] = body
    kubernetes = platform.get("platforms", {}).get("kubernetes", {})
    facts |= {f"platform {name}": value for name, value in kubernetes.get("pipelineConfig", {}).items()}
    versions = {_argument(body.get("container", {}), "--ir") for body in spec["deploymentSpec"]["executors"].values()}
    facts["version"] = " ".join(sorted(filter(None, versions)))
    return facts


def _nodes(spec: Json, platform: Json) -> dict[str, Facts]:
    kubernetes = platform.get("platforms", {}).get("kubernetes", {})
    configs = kubernetes.get("deploymentSpec", {}).get("executors", {})
    facts_of: dict[str, Facts] = {}
    ours: dict[tuple[str, str], str] = {}  # (path of the DAG, task) -> node

    def name_of(path: str, task: str, body: Json) -> str:
        label = _component(spec, body).get("executorLabel", "")
        executor = spec["deploymentSpec"]["executors"].get(label, {})
        return _argument(executor.get("container", {}), "--node") or f"{path}{task}"

    for path, tasks in _dags(spec, spec["root"]["dag"], "", frozenset()):
        for task, body in tasks.items():
            ours[path, task] = name_of(path, task, body)
    for path, tasks in _dags(spec, spec["root"]["dag"], "", frozenset()):
        for task, body in tasks.items():
            label = _component(spec, body).get("executorLabel", "")
            container = spec["deploymentSpec"]["executors"].get(label, {}).get("container", {})
            described = _pod(container)
            facts = _facts(body, lambda other, path=path: ours.get((path, other), other))
            if "component" in described:  # it names its inputs itself, and KFP's manifests say no more
                facts = {name: fact for name, fact in facts.items() if not name.startswith("artifact ")}
            facts["in"] = path.rstrip("/")
            facts |= described | {f"platform {key}": value for key, value in configs.get(label, {}).items()}
            facts_of[ours[path, task]] = facts
    return facts_of


def _dags(spec: Json, dag: Json, path: str, above: frozenset[str]) -> Iterator[tuple[str, Json]]:
    yield path, dag.get("tasks", {})
    for task, body in dag.get("tasks", {}).items():
        ref = body.get("componentRef", {}).get("name", "")
        inner = _component(spec, body).get("dag")
        if inner and ref not in above:
            yield from _dags(spec, inner, f"{path}{task}/", above | {ref})


def _component(spec: Json, task: Json) -> Json:
    return spec["components"].get(task.get("componentRef", {}).get("name", ""), {})


def _facts(task: Json, name: Any) -> Facts:  # Any: a task's name -> its node
    facts: Facts = {"waits for": sorted(map(name, task.get("dependentTasks", [])))}
    for kind in ("parameter", "artifact"):
        for key, source in task.get("inputs", {}).get(f"{kind}s", {}).items():
            if source != {"componentInputParameter": key}:
                facts[f"{'input' if kind == 'parameter' else kind} {key}"] = source
    policy = task.get("triggerPolicy", {})
    facts |= {"condition": policy.get("condition"), "strategy": policy.get("strategy")}
    facts |= {"retries": task.get("retryPolicy"), "at once": task.get("iteratorPolicy")}
    facts["items"] = task.get("parameterIterator")
    return facts


def _pod(container: Json) -> Facts:
    facts: Facts = {"image": container.get("image"), "resources": container.get("resources")}
    facts["command"] = container.get("command")
    args = list(container.get("args", []))
    if "--ir" in args:
        del args[args.index("--ir") : args.index("--ir") + 2]  # of the whole pipeline
    facts["arguments"] = args
    for variable in container.get("env", []):
        if variable["name"] != VARIABLE:
            facts[f"env {variable['name']}"] = variable.get("value")
            continue
        for kind, fact in json.loads(variable["value"]).items():
            named = fact.items() if isinstance(fact, dict) else ()
            facts |= {f"{kind} {name}": value for name, value in named} or {kind: fact}
    return facts


def _argument(container: Json, name: str) -> str:
    args = list(container.get("args", []))
    return str(args[args.index(name) + 1]) if name in args[:-1] else ""


def _changed(old: Mapping[str, Json], new: Mapping[str, Json]) -> dict[str, list[Json]]:
    names = dict.fromkeys((*new, *old))
    return {name: [old.get(name), new.get(name)] for name in names if old.get(name) != new.get(name)}
