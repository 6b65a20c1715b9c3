"""`trace`: from an answer of a server up to model, evaluation, code and data; from a span of data down to models."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ..digest import canonical_json
from ..errors import InputError
from ..metadata import ArtifactRecord, Decision, Evaluation, Examples, ExecutionRecord, LineageGraph, Model, PushedModel
from ..pipelines import Home
from ..pipelines.launcher.files_read import files_read
from ..pipelines.launcher.verdicts import decisions
from .exit_codes import OK
from .lineage import find_artifact, node_of, sealed_by
from .options import ConsoleSettings, shared
from .session import run_of

if TYPE_CHECKING:
    from rich.console import Console

_HEADERS: Final = {"x-drivetrain-digest": "digest", "x-drivetrain-version": "version", "x-request-id": "request_id"}
_HEADER: Final = re.compile(rf"^[<\s]*({'|'.join(_HEADERS)})\s*:[ \t]*(\S.*?)\s*$", re.IGNORECASE | re.MULTILINE)
_DIGEST: Final = re.compile(r"[0-9a-f]{8,64}")
_MOST_BYTES: Final = 64 << 20  # of an answer that was kept
_FILES: Final = 3  # of each span that are shown; `--json` has all


@click.command(
    epilog="\b\nExample:\n  curl -i http://127.0.0.1:8501/v1/models/flights:predict -d @row.json > answer.txt\n"
    "  drivetrain trace answer.txt\n  drivetrain trace 9c01ab27\n  drivetrain trace served/flights/3\n"
    "  drivetrain trace 7f3a0c52 --log request-log\n  drivetrain trace --span 7 --log request-log\n"
)
@click.argument("answer", required=False)
@click.option(
    "--log", type=click.Path(exists=True, file_okay=False, path_type=Path), default=None, metavar="FOLDER",
    help="A request log: ANSWER may be the id of a request in it; with --span, its files of the models are named.",
)  # fmt: skip
@click.option("--span", type=int, default=None, help="Not from an answer up, but from this span of the data down.")
@shared
def trace(settings: ConsoleSettings, answer: str | None, log: Path | None, span: int | None) -> int:
    """Trace an ANSWER of the model server to the model, its evaluation, code and data, and who approved it.

    ANSWER is a file with what `curl -i` or `drivetrain predict --json` printed; the digest of a bundle, or its
    beginning, as answers have it in x-drivetrain-digest; a version that was pushed, by its folder or URL; or, with
    --log, the id of a request. With --span it is the other way: the models that learned from a span of the data, the
    versions that were pushed of them, and with --log the files of their predictions.
    """
    if (answer is None) == (span is None):
        raise InputError("trace needs an ANSWER, or --span", fix="drivetrain trace answer.txt")
    with settings.of(Path(answer) if answer and Path(answer).is_dir() else None).home() as home:
        if answer is None:
            assert span is not None
            down = _from_span(home, span, log)
            settings.answer(down, lambda console: _show_down(console, down))
            return OK
        up = _from_answer(home, _asked(home, answer, log))
        settings.answer(up, lambda console: _show_up(console, up))
    return OK


# --- what an answer says of itself ---


@dataclass(frozen=True)
class AnswerFacts:
    """What is known of an answer before the store is asked.

    Attributes:
        digest: Of the bundle that answered, or its beginning.
        version: Which version it was; None where that is not said.
        request_id: The request's; "" where that is not said.
        model: What the server calls the model; "" where that is not said.
    """

    digest: str
    version: int | None = None
    request_id: str = ""
    model: str = ""


def _asked(home: Home, answer: str, log: Path | None) -> AnswerFacts:
    path = Path(answer)
    if path.is_file():
        with path.open("rb") as file:
            return _in_text(file.read(_MOST_BYTES).decode("utf-8", "replace"), answer)
    if log is not None and (logged := _in_log(log, answer)) is not None:
        return logged
    if _DIGEST.fullmatch(answer.lower()):
        return AnswerFacts(answer.lower())
    record = find_artifact(home, answer)
    if record is not None and record.type == PushedModel.__name__:
        version = record.properties.get("version")
        return AnswerFacts(_bundle_of(home, record), version if isinstance(version, int) else None)
    if record is not None and (digest := sealed_by(home, record)):
        return AnswerFacts(digest)
    where = f", and no request of that id is in {log}" if log is not None else ""
    raise InputError(
        f"{answer!r:.100} is no file, no digest, and no version that was pushed from {home.root}{where}",
        fix="name a file with the answer's headers (`curl -i`), or the x-drivetrain-digest of an answer",
    )


def _in_text(text: str, name: str) -> AnswerFacts:
    """What the headers or the JSON in a file say."""
    facts: dict[str, Any] = {_HEADERS[header.lower()]: value for header, value in _HEADER.findall(text)}
    if "digest" not in facts:
        for line in [text, *text.splitlines()]:
            try:
                body = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(body, dict):
                lowered = {_HEADERS.get(str(key).lower(), str(key)): value for key, value in body.items()}
                facts |= {key: lowered[key] for key in _HEADERS.values() if key in lowered}
                break
    digest, version = str(facts.get("digest", "")).lower(), str(facts.get("version", ""))
    if not _DIGEST.fullmatch(digest):
        raise InputError(
            f"{name} does not say which bundle answered: it has no x-drivetrain-digest",
            fix="keep the headers of an answer: curl -i; or `drivetrain predict --json`",
        )
    number = int(version) if version.isdecimal() and len(version) < 19 else None
    return AnswerFacts(digest, number, str(facts.get("request_id", "")))


def _in_log(log: Path, request_id: str) -> AnswerFacts | None:
    """The request of that id in a log."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    from ..components.served_examples import footer_of

    for path in sorted(log.rglob("*.parquet"), reverse=True):
        footer = footer_of(str(path))
        column = footer.facts["request_id"]
        if pc.any(pc.equal(pq.read_table(path, columns=[column])[column], request_id)).as_py():
            return AnswerFacts(footer.bundle, footer.version, request_id, footer.model)
    return None


# --- up ---


def _from_answer(home: Home, asked: AnswerFacts) -> dict[str, Any]:
    models = _models(home, asked.digest)
    if not models:
        raise InputError(
            f"no bundle in {home.root} has the digest {asked.digest}",
            fix="name the root that it was trained in with --root: the record of a pushed version names its run",
        )
    graphs = {model.id: home.store.lineage(model, "downstream", max_hops=2) for model in models}
    pushes = {model.id: _pushes(home, model, graphs[model.id]) for model in models}
    # Equal bundles may have been trained twice, and imported: the one that was pushed as this version, or at all.
    model = max(
        models,
        key=lambda each: (
            any(push["version"] == asked.version for push in pushes[each.id]),
            bool(pushes[each.id]),
            each.id,
        ),
    )
    graph = graphs[model.id]
    producer = None if model.producer is None else home.store.execution(model.producer)
    above = home.store.lineage(model, "upstream")
    return {
        "answer": {"version": asked.version, "request_id": asked.request_id, "model": asked.model},
        "bundle": sealed_by(home, model),
        "model": _artifact(model)
        | {"run": producer and run_of(home, producer), "node": producer and node_of(producer)},
        "equal_models": [each.uri for each in models if each.id != model.id],
        "pushed": pushes[model.id],
        "evaluations": [_evaluation(home, each) for each in _made_of(model, graph, Evaluation)],
        "approvals": list(_approvals(home, model, graph)),
        "code": [code for each in above.executions.values() if (code := _code(home, each)) is not None],
        "data": [_span(home, each) for each in _sources(above)],
    }


def _models(home: Home, digest: str) -> list[ArtifactRecord]:
    """The models whose bundle has a digest that begins so, or that were pushed with it."""
    models = [each for each in home.store.artifacts(type=Model.__name__) if sealed_by(home, each).startswith(digest)]
    return models or [each for each in home.store.artifacts(type=Model.__name__) if each.fingerprint.startswith(digest)]


def _made_of(model: ArtifactRecord, graph: LineageGraph, kind: type) -> list[ArtifactRecord]:
    """Artifacts of a type that were made of a model itself, the oldest first; not of it as a baseline."""
    executions = {
        edge.execution
        for edge in graph.edges
        if edge.direction == "INPUT" and edge.artifact == model.id and edge.key != "baseline"
    }
    numbers = {edge.artifact for edge in graph.edges if edge.direction == "OUTPUT" and edge.execution in executions}
    return [graph.artifacts[number] for number in sorted(numbers) if graph.artifacts[number].type == kind.__name__]


def _pushes(home: Home, model: ArtifactRecord, graph: LineageGraph) -> list[dict[str, Any]]:
    pushed = []
    for each in _made_of(model, graph, PushedModel):
        execution = None if each.producer is None else home.store.execution(each.producer)
        facts = each.properties
        pushed.append(
            {name: facts.get(name) for name in ("destination", "version", "digest", "server", "serving")}
            | _artifact(each)
            | {"run": execution and run_of(home, execution)}
        )
    return pushed


def _bundle_of(home: Home, pushed: ArtifactRecord) -> str:
    """The digest of the bundle that was pushed."""
    if bundle := pushed.properties.get("bundle"):
        return str(bundle)
    if pushed.producer is not None:  # of an earlier release
        for record in home.store.inputs(home.store.execution(pushed.producer)).get("model", []):
            return sealed_by(home, record)
    return str(pushed.properties.get("digest"))


def _evaluation(home: Home, record: ArtifactRecord) -> dict[str, Any]:
    facts = record.properties
    execution = None if record.producer is None else home.store.execution(record.producer)
    return _artifact(record) | {
        "node": execution and node_of(execution),
        "blessed": facts.get("blessed"),
        "summary": facts.get("summary", ""),
        "metrics": facts.get("metrics") or {},
        "decisions": [dict(each) for each in decisions(record)],
    }


def _approvals(home: Home, model: ArtifactRecord, graph: LineageGraph) -> Iterator[dict[str, Any]]:
    """What people said in the runs that pushed a model, and of it or its evaluations elsewhere."""
    pushes = {each.producer for each in _made_of(model, graph, PushedModel)}
    runs = {run_of(home, graph.executions[each]) for each in pushes if each in graph.executions}
    judged = {model.id, *(each.id for each in _made_of(model, graph, Evaluation))}
    for record in reversed(home.store.artifacts(type=Decision.__name__)):
        if record.producer is None:
            continue
        execution = home.store.execution(record.producer)
        asked_about = {each.id for records in home.store.inputs(execution).values() for each in records}
        run = run_of(home, execution)
        if run in runs or asked_about & judged:
            said = {name: record.properties.get(name) for name in ("approved", "by", "comment")}
            yield said | {"run": run, "node": node_of(execution)}


def _code(home: Home, execution: ExecutionRecord) -> dict[str, Any] | None:
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


def _span(home: Home, examples: ArtifactRecord) -> dict[str, Any]:
    execution = None if examples.producer is None else home.store.execution(examples.producer)
    return _artifact(examples) | {
        "node": execution and node_of(execution),
        "run": execution and run_of(home, execution),
        "span": examples.properties.get("span"),
        "version": examples.properties.get("version"),
        "rows": examples.properties.get("rows") or {},
        "files": list(files_read(home, execution)) if execution is not None else [],
    }


def _artifact(record: ArtifactRecord) -> dict[str, Any]:
    return {
        "uri": record.external or record.uri,
        "fingerprint": record.fingerprint,
        "created": record.created_at.isoformat(),
    }


# --- down ---


def _from_span(home: Home, span: int, log: Path | None) -> dict[str, Any]:
    every = home.store.artifacts(type=Examples.__name__)
    examples = [each for each in every if each.properties.get("span") == span and _is_source(home, each)]
    if not examples:
        spans = sorted({int(str(each.properties.get("span") or 0)) for each in every if _is_source(home, each)})
        known = f"{spans[0]} to {spans[-1]}" if spans else "none"
        raise InputError(f"no data of span {span} is in {home.root}", fix=f"the spans that are there: {known}")
    models: dict[int, ArtifactRecord] = {}
    for each in examples:
        graph = home.store.lineage(each, "downstream")
        models |= {number: record for number, record in graph.artifacts.items() if record.type == Model.__name__}
    files = _log_files(log)
    described = []
    for number in sorted(models):
        model = models[number]
        graph = home.store.lineage(model, "downstream", max_hops=2)
        execution = None if model.producer is None else home.store.execution(model.producer)
        bundle = sealed_by(home, model)
        described.append(
            _artifact(model)
            | {
                "bundle": bundle,
                "run": execution and run_of(home, execution),
                "blessed": [each.properties.get("blessed") for each in _made_of(model, graph, Evaluation)],
                "pushed": _pushes(home, model, graph),
                "log": files.get(bundle, []),
            }
        )
    return {"span": span, "data": [_span(home, each) for each in examples], "models": described}


def _is_source(home: Home, examples: ArtifactRecord) -> bool:
    if examples.producer is None:
        return True
    inputs = home.store.inputs(home.store.execution(examples.producer))
    return not any(each.type == Examples.__name__ for records in inputs.values() for each in records)


def _log_files(log: Path | None) -> dict[str, list[str]]:
    """The files of a request log, by the digest of the bundle that answered."""
    if log is None:
        return {}
    from ..components.served_examples import footer_of

    files: dict[str, list[str]] = {}
    for path in sorted(log.rglob("*.parquet")):
        files.setdefault(footer_of(str(path)).bundle, []).append(str(path))
    return files


# --- for people ---


def _show_up(console: Console, answer: Mapping[str, Any]) -> None:
    def line(name: str, text: str) -> None:
        console.print(f"  {name:<9} {text}", markup=False, soft_wrap=True)

    asked = answer["answer"]
    said = [f"version {asked['version']}"] if asked["version"] is not None else []
    said += [f"request {asked['request_id']}"] if asked["request_id"] else []
    console.print(f"bundle {answer['bundle']}" + (f" ({', '.join(said)})" if said else ""), markup=False)
    for push in answer["pushed"]:
        line("pushed", _push_line(push))
    if asked["version"] is not None and asked["version"] not in [push["version"] for push in answer["pushed"]]:
        line("pushed", f"version {asked['version']} was not pushed from this root")
    model = answer["model"]
    line("model", f"{model['uri']}, made by {model['node']} in run {model['run']}")
    for evaluation in answer["evaluations"]:
        verdict = "blessed" if evaluation["blessed"] else "not blessed"
        line("judged", f"{verdict} by {evaluation['node']}: {evaluation['summary']}")
        for decision in evaluation["decisions"]:
            now = "blessed" if decision["blessed"] else "not blessed"
            line("", f"{now} by {decision['by']} at {decision['at']}: {decision['reason']}")
    for approval in answer["approvals"]:
        comment = f": {approval['comment']}" if approval["comment"] else ""
        said_so = "approved" if approval["approved"] else "denied"
        line("approval", f"{said_so} by {approval['by']} at {approval['node']} in run {approval['run']}{comment}")
    for code in answer["code"]:
        functions = ", ".join(code["functions"].values())
        line("code", f"{code['digest'][:12]} {code['node']}" + (f" with {functions}" if functions else ""))
    for span in answer["data"]:
        _show_span(line, span)


def _push_line(push: Mapping[str, Any]) -> str:
    text = f"version {push['version']} at {push['destination']}, {push['created'][:19]} by run {push['run']}"
    serving = push.get("serving") or {}
    if push.get("server"):
        shares = ", ".join(f"{step['share']:g}" for step in serving.get("steps", ()))
        text += f"; at {push['server']} after version {serving.get('before')}" + (f" by {shares} %" if shares else "")
    return text


def _show_span(line: Any, span: Mapping[str, Any]) -> None:  # Any: prints a line
    rows = sum(span["rows"].values())
    files = [
        f"{file['name']} {file['sha256'][:12]}" if file["sha256"] else file["name"] for file in span["files"][:_FILES]
    ]
    more = f" and {len(span['files']) - _FILES:,} more" if len(span["files"]) > _FILES else ""
    text = f"span {span['span']} of {span['node']}: {rows:,} rows {span['fingerprint'][:12]}"
    line("data", text + (f", of {', '.join(files)}{more}" if files else ""))


def _show_down(console: Console, answer: Mapping[str, Any]) -> None:
    def line(name: str, text: str) -> None:
        console.print(f"  {name:<9} {text}", markup=False, soft_wrap=True)

    console.print(f"span {answer['span']}", markup=False)
    for span in answer["data"]:
        _show_span(line, span)
    models: Sequence[Mapping[str, Any]] = answer["models"]
    if not models:
        line("model", "none has learned from it")
    for model in models:
        verdict = "" if not model["blessed"] else ", blessed" if any(model["blessed"]) else ", not blessed"
        line("model", f"{model['bundle'][:12]} {model['uri']} of run {model['run']}{verdict}")
        for push in model["pushed"]:
            line("pushed", _push_line(push))
        if model["log"]:
            line("log", f"{len(model['log']):,} files of predictions, the first {model['log'][0]}")
