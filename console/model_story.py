"""What is known of a model: its run, code and data, how it was judged, who approved it, where it was pushed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ..digest import canonical_json
from ..metadata import ArtifactRecord, Decision, Evaluation, Examples, ExecutionRecord, LineageGraph, PushedModel
from ..pipelines import Home
from ..pipelines.launcher.files_read import files_read
from ..pipelines.launcher.verdicts import decisions
from .lineage import node_of, sealed_by
from .options import print_text
from .session import payload_file, run_of

if TYPE_CHECKING:
    from rich.console import Console

Json: TypeAlias = dict[str, Any]  # Any: JSON values

_FILES: Final = 3  # of each span that are shown; `--json` has all


def story_of(home: Home, model: ArtifactRecord) -> Json:
    """What led to a model and what came of it, as JSON values.

    Returns:
        `bundle`, the digest that it is sealed by; `model`, `pushed`, `evaluations`, `approvals`, `versions` of
        registered models, `code`, `data`.
    """
    graph = home.store.lineage(model, "downstream", max_hops=2)
    producer = None if model.producer is None else home.store.execution(model.producer)
    above = home.store.lineage(model, "upstream", of_data=True)
    return {
        "bundle": sealed_by(home, model),
        "model": artifact_facts(model)
        | {"run": producer and run_of(home, producer), "node": producer and node_of(producer)},
        "pushed": pushes_of(home, model, graph),
        "evaluations": [_evaluation(home, each) for each in made_of(model, graph, Evaluation)],
        "approvals": list(_approvals(home, model, graph)),
        "versions": list(_versions(home, model)),
        "code": [code for each in above.executions.values() if (code := _code(home, each)) is not None],
        "data": [span_facts(home, each) for each in _sources(above)],
    }


def made_of(model: ArtifactRecord, graph: LineageGraph, kind: type) -> list[ArtifactRecord]:
    """Artifacts of a type that were made of a model itself, the oldest first; not of it as a baseline."""
    executions = {
        edge.execution
        for edge in graph.edges
        if edge.direction == "INPUT" and edge.artifact == model.id and edge.key != "baseline"
    }
    numbers = {edge.artifact for edge in graph.edges if edge.direction == "OUTPUT" and edge.execution in executions}
    return [graph.artifacts[number] for number in sorted(numbers) if graph.artifacts[number].type == kind.__name__]


def pushes_of(home: Home, model: ArtifactRecord, graph: LineageGraph) -> list[Json]:
    """The versions that a model was pushed as, by the graph of what came of it."""
    pushed = []
    for each in made_of(model, graph, PushedModel):
        execution = None if each.producer is None else home.store.execution(each.producer)
        facts = each.properties
        pushed.append(
            {name: facts.get(name) for name in ("destination", "version", "digest", "server", "serving")}
            | artifact_facts(each)
            | {"run": execution and run_of(home, execution)}
        )
    return pushed


def _evaluation(home: Home, record: ArtifactRecord) -> Json:
    facts = record.properties
    execution = None if record.producer is None else home.store.execution(record.producer)
    return artifact_facts(record) | {
        "node": execution and node_of(execution),
        "blessed": facts.get("blessed"),
        "summary": facts.get("summary", ""),
        "metrics": facts.get("metrics") or {},
        "thresholds": list(_thresholds(home, record)),
        "decisions": [dict(each) for each in decisions(record)],
    }


def _thresholds(home: Home, evaluation: ArtifactRecord) -> Iterator[Json]:
    """What an evaluation asked for, and whether it got it: metric, slice, value, bounds, interval, passed, text."""
    with suppress(ValueError, AttributeError):
        verdict = json.loads(payload_file(home, evaluation, "content/validation.json") or b"{}")
        for check in verdict.get("thresholds") or ():
            yield {name: value for name, value in check.items() if name != "key"}


def _approvals(home: Home, model: ArtifactRecord, graph: LineageGraph) -> Iterator[Json]:
    """What people said in the runs that pushed a model, and of it or its evaluations elsewhere."""
    pushes = {each.producer for each in made_of(model, graph, PushedModel)}
    runs = {run_of(home, graph.executions[each]) for each in pushes if each is not None and each in graph.executions}
    judged = {model.id, *(each.id for each in made_of(model, graph, Evaluation))}
    for record in reversed(home.store.artifacts(type=Decision.__name__)):
        if record.producer is None:
            continue
        execution = home.store.execution(record.producer)
        asked_about = {each.id for records in home.store.inputs(execution).values() for each in records}
        run = run_of(home, execution)
        if run in runs or asked_about & judged:
            said = {name: record.properties.get(name) for name in ("approved", "by", "comment")}
            yield said | {"run": run, "node": node_of(execution)}


def _versions(home: Home, model: ArtifactRecord) -> Iterator[Json]:
    """The versions of registered models that a model is, and what stands for them now."""
    from ..metadata.registry import Registry

    registry = Registry(home.store)
    for version in registry.versions_of(model):
        aliases = registry.model(version.model).aliases_of(version)
        answers = [answer.to_json() for answer in version.answers]
        yield {"name": str(version), "aliases": aliases, "by": version.by, "answers": answers}


def _code(home: Home, execution: ExecutionRecord) -> Json | None:
    """The digest of the code that an execution ran: its component's and that of the functions it was given."""
    preimage = home.store.preimage(execution.cache_key) if execution.cache_key else None
    if preimage is None:
        return None
    functions = {
        name: value for name, value in preimage["parameters"].items() if isinstance(value, dict) and "$fn" in value
    }
    code = {"component": preimage["component"], "code": preimage["code"], "functions": functions}
    return {
        "node": node_of(execution),
        "run": run_of(home, execution),
        "component": preimage["component"],
        "functions": {name: value["$fn"] for name, value in functions.items()},
        "digest": hashlib.sha256(canonical_json(code)).hexdigest(),
    }


def _sources(graph: LineageGraph) -> list[ArtifactRecord]:
    """The examples of a graph that were made of no others, by span."""
    derived = {
        edge.execution
        for edge in graph.edges
        if edge.direction == "INPUT" and graph.artifacts[edge.artifact].type == Examples.__name__
    }
    sources = [
        each for each in graph.artifacts.values() if each.type == Examples.__name__ and each.producer not in derived
    ]
    return sorted(sources, key=lambda each: (int(str(each.properties.get("span") or 0)), each.id))


def span_facts(home: Home, examples: ArtifactRecord) -> Json:
    """What a span of the data is, and which files it was read from."""
    execution = None if examples.producer is None else home.store.execution(examples.producer)
    return artifact_facts(examples) | {
        "node": execution and node_of(execution),
        "run": execution and run_of(home, execution),
        "span": examples.properties.get("span"),
        "version": examples.properties.get("version"),
        "rows": examples.properties.get("rows") or {},
        "files": list(files_read(home, execution)) if execution is not None else [],
    }


def artifact_facts(record: ArtifactRecord) -> Json:
    """Where an artifact lies, what is in it, and since when."""
    return {
        "uri": record.external or record.uri,
        "fingerprint": record.fingerprint,
        "created": record.created_at.isoformat(),
    }


# --- for people ---


def print_line(console: Console, name: str, text: str) -> None:
    """Print a line: what it is about, in a word, and what is said."""
    print_text(console, f"  {name:<10} {text}")


def show_story(console: Console, story: Mapping[str, Any]) -> None:
    """Say what is known of a model, a line for each thing."""
    line, model = partial(print_line, console), story["model"]
    line("model", f"{model['uri']}, made by {model['node']} in run {model['run']}")
    for evaluation in story["evaluations"]:
        verdict = "blessed" if evaluation["blessed"] else "not blessed"
        line("judged", f"{verdict} by {evaluation['node']}: {evaluation['summary']}")
        for decision in evaluation["decisions"]:
            now = "blessed" if decision["blessed"] else "not blessed"
            line("", f"{now} by {decision['by']} at {decision['at']}: {decision['reason']}")
    for approval in story["approvals"]:
        comment = f": {approval['comment']}" if approval["comment"] else ""
        said_so = "approved" if approval["approved"] else "denied"
        line("approval", f"{said_so} by {approval['by']} at {approval['node']} in run {approval['run']}{comment}")
    for version in story["versions"]:
        aliases = "".join(f" [{alias}]" for alias in version["aliases"])
        line("registered", f"{version['name']}{aliases} by {version['by']}")
        for answer in version["answers"]:
            comment = f": {answer['comment']}" if answer["comment"] else ""
            said_so = "approved" if answer["approved"] else "rejected"
            line("", f"{said_so} by {answer['by']} at {answer['at'][:19]}{comment}")
    lines = (
        f"{code['digest'][:12]} {code['node']}"
        + (f" with {', '.join(code['functions'].values())}" if code["functions"] else "")
        for code in story["code"]
    )
    for text in dict.fromkeys(lines):  # of a node that ran for several spans once
        line("code", text)
    for span in story["data"]:
        show_span(console, span)


def push_line(push: Mapping[str, Any]) -> str:
    """A version that was pushed, in a line."""
    text = f"version {push['version']} at {push['destination']}, {push['created'][:19]} by run {push['run']}"
    serving = push.get("serving") or {}
    if push.get("server"):
        shares = ", ".join(f"{step['share']:g}" for step in serving.get("steps", ()))
        text += f"; at {push['server']} after version {serving.get('before')}" + (f" by {shares} %" if shares else "")
    return text


def show_span(console: Console, span: Mapping[str, Any]) -> None:
    """Say what a span of the data is, and which files it was read from."""
    rows = sum(span["rows"].values())
    files = [
        f"{file['name']} {file['sha256'][:12]}" if file["sha256"] else file["name"] for file in span["files"][:_FILES]
    ]
    more = f" and {len(span['files']) - _FILES:,} more" if len(span["files"]) > _FILES else ""
    text = f"span {span['span']} of {span['node']}: {rows:,} rows {span['fingerprint'][:12]}"
    print_line(console, "data", text + (f", of {', '.join(files)}{more}" if files else ""))
