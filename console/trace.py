"""`trace`: from predictions, served or in bulk, up to model, evaluation, code and data; from a span of data down."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ..errors import InputError
from ..metadata import ArtifactRecord, Evaluation, Examples, Model, Predictions, PushedModel
from ..pipelines import Home
from .exit_codes import OK
from .lineage import find_artifact, node_of, sealed_by
from .model_story import (
    artifact_facts,
    made_of,
    print_line,
    push_line,
    pushes_of,
    show_span,
    show_story,
    span_facts,
    story_of,
)
from .options import ConsoleSettings, print_text, shared
from .session import run_of

if TYPE_CHECKING:
    from rich.console import Console

_HEADERS: Final = {"x-drivetrain-digest": "digest", "x-drivetrain-version": "version", "x-request-id": "request_id"}
_HEADER: Final = re.compile(rf"^[<\s]*({'|'.join(_HEADERS)})\s*:[ \t]*(\S.*?)\s*$", re.IGNORECASE | re.MULTILINE)
_DIGEST: Final = re.compile(r"[0-9a-f]{8,64}")
_MOST_BYTES: Final = 64 << 20  # of an answer that was kept


@click.command(
    epilog="\b\nExample:\n  curl -i http://127.0.0.1:8501/v1/models/flights:predict -d @row.json > answer.txt\n"
    "  drivetrain trace answer.txt\n  drivetrain trace 9c01ab27\n  drivetrain trace served/flights/3\n"
    "  drivetrain trace 7f3a0c52 --log request-log\n"
    "  drivetrain trace .drivetrain/artifacts/BulkInferrer/0f3c…/predictions/content/eval/part-00000.parquet\n"
    "  drivetrain trace --span 7 --log request-log\n"
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
    beginning, as answers have it in x-drivetrain-digest; a version that was pushed, by its folder or URL; with --log,
    the id of a request; or a file of a BulkInferrer's predictions, or their URI. With --span it is the other way: the
    models that learned from a span of the data, the versions that were pushed of them, all predictions in bulk of the
    span's rows or by these models, and with --log the files of what the models served.
    """
    if (answer is None) == (span is None):
        raise InputError("trace needs an ANSWER, or --span", fix="drivetrain trace answer.txt")
    with settings.of(Path(answer) if answer and Path(answer).is_dir() else None).home() as home:
        if answer is None:
            assert span is not None
            down = _from_span(home, span, log)
            settings.answer(down, lambda console: _show_down(console, down))
            return OK
        if (predictions := _predictions(home, answer)) is not None:
            bulk = _from_predictions(home, predictions)
            settings.answer(bulk, lambda console: _show_bulk(console, bulk))
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
    if _DIGEST.fullmatch(answer.lower()) and (log is None or _models(home, answer.lower())):
        return AnswerFacts(answer.lower())
    record = find_artifact(home, answer)
    if record is not None and record.type == PushedModel.__name__:
        version = record.properties.get("version")
        return AnswerFacts(_bundle_of(home, record), version if isinstance(version, int) else None)
    if record is not None and (digest := sealed_by(home, record)):
        return AnswerFacts(digest)
    where = f", and no request of that id is in {log}" if log is not None else ""
    raise InputError(
        f"{answer!r:.100} is not a file, a digest, or a version that was pushed from {home.root}{where}",
        fix="name a file with the answer's headers (`curl -i`), or the x-drivetrain-digest of an answer"
        + ("; a server may keep a request for a minute before it is in the log" if log is not None else ""),
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
    pushes = {model.id: pushes_of(home, model, home.store.lineage(model, "downstream", max_hops=2)) for model in models}
    # Equal bundles may have been trained twice, and imported: the one that was pushed as this version, or at all.
    model = max(
        models,
        key=lambda each: (
            any(push["version"] == asked.version for push in pushes[each.id]),
            bool(pushes[each.id]),
            each.id,
        ),
    )
    return {
        "answer": {"version": asked.version, "request_id": asked.request_id, "model": asked.model},
        "equal_models": [each.uri for each in models if each.id != model.id],
        **story_of(home, model),
    }


def _models(home: Home, digest: str) -> list[ArtifactRecord]:
    """The models whose bundle has a digest that begins so, or that were pushed with it."""
    models = [each for each in home.store.artifacts(type=Model.__name__) if sealed_by(home, each).startswith(digest)]
    return models or [each for each in home.store.artifacts(type=Model.__name__) if each.fingerprint.startswith(digest)]


def _bundle_of(home: Home, pushed: ArtifactRecord) -> str:
    """The digest of the bundle that was pushed."""
    if bundle := pushed.properties.get("bundle"):
        return str(bundle)
    if pushed.producer is not None:  # of an earlier release
        for record in home.store.inputs(home.store.execution(pushed.producer)).get("model", []):
            return sealed_by(home, record)
    return str(pushed.properties.get("digest"))


def _predictions(home: Home, answer: str) -> ArtifactRecord | None:
    """The predictions in bulk that lie at a URI or a path, or in which a file lies; None where ANSWER is no such."""
    uri = answer[answer.rindex("artifacts/") :].rstrip("/") if "artifacts/" in answer else ""
    while "/" in uri:
        record = home.store.artifact_by_uri(uri)
        if record is not None:
            return record if record.type == Predictions.__name__ else None
        uri = uri.rpartition("/")[0]
    return None


def _from_predictions(home: Home, predictions: ArtifactRecord) -> dict[str, Any]:
    """What predictions in bulk are of, and the story of each model that made them."""
    graph = home.store.lineage(predictions, "upstream", max_hops=2)
    models = [each for each in graph.artifacts.values() if each.type == Model.__name__]
    predicted = {edge.artifact for edge in graph.edges if edge.direction == "INPUT"}
    examples = [graph.artifacts[number] for number in sorted(predicted) if number not in {each.id for each in models}]
    above = [each for record in examples for each in _upstream(home, record)]
    spans = {each.id: each for each in above if each.type == Examples.__name__ and _is_source(home, each)}
    return {
        "predictions": _predictions_facts(home, predictions),
        "predicted": [span_facts(home, each) for each in spans.values()],
        "models": [story_of(home, each) for each in models],
    }


def _upstream(home: Home, record: ArtifactRecord) -> list[ArtifactRecord]:
    return list(home.store.lineage(record, "upstream", of_data=True).artifacts.values())


def _predictions_facts(home: Home, predictions: ArtifactRecord) -> dict[str, Any]:
    """Which predictions in bulk they are, who made them, and how many there are of each split."""
    execution = None if predictions.producer is None else home.store.execution(predictions.producer)
    models = (
        [] if execution is None else [each for several in home.store.inputs(execution).values() for each in several]
    )
    return artifact_facts(predictions) | {
        "run": execution and run_of(home, execution),
        "node": execution and node_of(execution),
        "rows": predictions.properties.get("rows") or {},
        "state": predictions.state,
        "models": [each.uri for each in models if each.type == Model.__name__],
    }


# --- down ---


def _from_span(home: Home, span: int, log: Path | None) -> dict[str, Any]:
    every = home.store.artifacts(type=Examples.__name__)
    examples = [each for each in every if each.properties.get("span") == span and _is_source(home, each)]
    if not examples:
        spans = sorted({int(str(each.properties.get("span") or 0)) for each in every if _is_source(home, each)})
        known = f"{spans[0]} to {spans[-1]}" if spans else "none"
        raise InputError(f"no data of span {span} is in {home.root}", fix=f"the spans that are there: {known}")
    below: dict[int, ArtifactRecord] = {}
    for each in examples:
        below |= home.store.lineage(each, "downstream", of_data=True).artifacts
    models = {number: record for number, record in below.items() if record.type == Model.__name__}
    bulk = [below[number] for number in sorted(below) if below[number].type == Predictions.__name__]
    files = _log_files(log)
    described = []
    for number in sorted(models):
        model = models[number]
        graph = home.store.lineage(model, "downstream", max_hops=2)
        execution = None if model.producer is None else home.store.execution(model.producer)
        bundle = sealed_by(home, model)
        described.append(
            artifact_facts(model)
            | {
                "bundle": bundle,
                "run": execution and run_of(home, execution),
                "blessed": [each.properties.get("blessed") for each in made_of(model, graph, Evaluation)],
                "pushed": pushes_of(home, model, graph),
                "log": files.get(bundle, []),
            }
        )
    return {
        "span": span,
        "data": [span_facts(home, each) for each in examples],
        "models": described,
        "predictions": [_predictions_facts(home, each) for each in bulk],
    }


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
    asked = answer["answer"]
    said = [f"version {asked['version']}"] if asked["version"] is not None else []
    said += [f"request {asked['request_id']}"] if asked["request_id"] else []
    console.print(f"bundle {answer['bundle']}" + (f" ({', '.join(said)})" if said else ""), markup=False)
    for push in answer["pushed"]:
        print_line(console, "pushed", push_line(push))
    if asked["version"] is not None and asked["version"] not in [push["version"] for push in answer["pushed"]]:
        print_line(console, "pushed", f"version {asked['version']} was not pushed from this root")
    show_story(console, answer)


def _show_bulk(console: Console, answer: Mapping[str, Any]) -> None:
    print_text(console, _predictions_line(answer["predictions"]))
    for span in answer["predicted"]:
        print_line(console, "of", f"span {span['span']}, {span['uri']}")
    for model in answer["models"]:
        console.print(f"bundle {model['bundle']}", markup=False)
        for push in model["pushed"]:
            print_line(console, "pushed", push_line(push))
        show_story(console, model)


def _predictions_line(facts: Mapping[str, Any]) -> str:
    rows = ", ".join(f"{count:,} of {split}" for split, count in facts["rows"].items())
    return f"predictions {facts['uri']}, made by {facts['node']} in run {facts['run']}" + (f": {rows}" if rows else "")


def _show_down(console: Console, answer: Mapping[str, Any]) -> None:
    console.print(f"span {answer['span']}", markup=False)
    for span in answer["data"]:
        show_span(console, span)
    models: Sequence[Mapping[str, Any]] = answer["models"]
    if not models:
        print_line(console, "model", "none has learned from it")
    for model in models:
        verdict = "" if not model["blessed"] else ", blessed" if any(model["blessed"]) else ", not blessed"
        print_line(console, "model", f"{model['bundle'][:12]} {model['uri']} of run {model['run']}{verdict}")
        for push in model["pushed"]:
            print_line(console, "pushed", push_line(push))
        if model["log"]:
            print_line(console, "log", f"{len(model['log']):,} files of predictions, the first {model['log'][0]}")
    for predictions in answer["predictions"]:
        print_line(console, "bulk", _predictions_line(predictions))
