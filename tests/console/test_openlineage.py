"""`openlineage`: a receiver checks what the real client sends against the published schemas."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import Result
from drivetrain.pipelines import Home
from drivetrain.pipelines.openlineage import LineageSender
from referencing import Registry, Resource

pytest.importorskip("openlineage.client")

Json = dict[str, Any]
Command = Callable[..., Result]
SCHEMAS = Path(__file__).parents[1] / "pipelines" / "data" / "openlineage"
FACETS = {path.stem: json.loads(path.read_text()) for path in SCHEMAS.glob("*.json")}


def check(event: Json) -> None:
    """That an event and each of its facets are as the schemas say."""
    resources = [(schema["$id"], Resource.from_contents(schema)) for schema in FACETS.values()]
    registry = Registry().with_resources(resources)

    def validate(value: object, schema: str, name: str) -> None:
        reference = {"$ref": f"{FACETS[schema]['$id']}#/$defs/{name}"}
        jsonschema.Draft202012Validator(
            reference, registry=registry, format_checker=jsonschema.FormatChecker()
        ).validate(value)

    validate(event, "OpenLineage", "RunEvent")
    holders = [event["run"], event["job"], *event["inputs"], *event["outputs"]]
    facets = [facet for each in holders for facet in each.get("facets", {}).values()]
    facets += [facet for each in event["outputs"] for facet in each.get("outputFacets", {}).values()]
    for facet in facets:
        name = facet["_schemaURL"].rpartition("/")[2]
        validate(facet, name, name)


class Receiver(ThreadingHTTPServer):
    """Takes events, and refuses those that are not as the schemas say; or all, while `status` is not 200."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.events: list[Json] = []
        self.problems: list[str] = []
        self.keys: list[str | None] = []
        self.status = 200


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
        self.server.keys.append(self.headers.get("Authorization"))
        status = self.server.status
        if status == 200:
            event = json.loads(body)
            try:
                check(event)
                self.server.events.append(event)
            except jsonschema.ValidationError as error:
                self.server.problems.append(str(error))
                status = 400
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as it is there
        """Say nothing."""


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    server = Receiver()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    monkeypatch.setenv("OPENLINEAGE_URL", f"http://127.0.0.1:{server.server_address[1]}")
    monkeypatch.setenv("OPENLINEAGE_API_KEY", "a-secret-key")
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_receiver_takes_every_event_of_every_kind_of_end(
    shop: Path, receiver: Receiver, drivetrain: Command, last_json: Callable[[Result], Json]
) -> None:
    for words in (("-p", "rows=3", "--tag", "best=1"), ("-p", "rows=3"), ("-p", "rows=99"), ("-p", "fail=crash")):
        drivetrain("run", "shop", *words)
    sent = last_json(drivetrain("openlineage", "--namespace", "risk", "--json"))["sent"]
    assert receiver.problems == []
    assert len(receiver.events) == sent
    assert set(receiver.keys) == {"Bearer a-secret-key"}

    by_job: dict[str, list[Json]] = {}
    for event in receiver.events:
        assert event["job"]["namespace"] == "risk"
        by_job.setdefault(event["job"]["name"], []).append(event)
    assert [event["eventType"] for event in by_job["shop"]] == [
        "START", "COMPLETE", "START", "COMPLETE", "START", "ABORT", "START", "FAIL",
    ]  # fmt: skip
    train = [event["eventType"] for event in by_job["shop.Train"]]
    assert train == ["START", "COMPLETE", "START", "COMPLETE", "START", "ABORT", "START", "FAIL"]
    failed = by_job["shop.Train"][-1]["run"]["facets"]["errorMessage"]
    assert "boom [in here]" in failed["message"]
    assert "Traceback" in failed["stackTrace"]

    first = by_job["shop.Train"][1]
    assert [each["name"] for each in first["inputs"]] == ["shop.Make.examples"]
    assert [each["name"] for each in first["outputs"]] == ["shop.Train.model"]
    examples = by_job["shop.Make"][1]["outputs"][0]
    assert examples["outputFacets"]["outputStatistics"]["rowCount"] == 3
    assert examples["facets"]["version"] == first["inputs"][0]["facets"]["version"]
    run = by_job["shop"][0]["run"]
    assert first["run"]["facets"]["parent"]["run"]["runId"] == run["runId"]
    assert {"best", "run"} <= {tag["key"] for tag in run["facets"]["tags"]["tags"]}
    again = by_job["shop.Train"][3]  # from the cache
    assert again["outputs"][0]["facets"]["version"] == first["outputs"][0]["facets"]["version"]
    assert again["run"]["facets"]["tags"]["tags"][0]["value"] == first["run"]["runId"]
    assert "a-secret-key" not in json.dumps(receiver.events)


def test_only_what_is_new_is_sent_and_nothing_is_lost_while_the_receiver_is_away(
    shop: Path, receiver: Receiver, drivetrain: Command, last_json: Callable[[Result], Json]
) -> None:
    drivetrain("run", "shop")
    first = last_json(drivetrain("openlineage", "--json"))["sent"]
    assert first == len(receiver.events) > 8
    assert last_json(drivetrain("openlineage", "--json"))["sent"] == 0
    drivetrain("run", "shop", "-p", "rows=4")
    receiver.status = 400
    result = drivetrain("openlineage")
    assert result.exit_code == 2
    assert "was not taken" in result.stderr
    assert "a-secret-key" not in result.stderr
    receiver.status = 200
    assert last_json(drivetrain("openlineage", "--json"))["sent"] == first
    assert len(receiver.events) == 2 * first
    assert last_json(drivetrain("openlineage", "--namespace", "other", "--json"))["sent"] == 2 * first


def test_a_run_at_work_is_sent_as_it_goes_on(
    shop: Path, drivetrain: Command, last_json: Callable[[Result], Json]
) -> None:
    run = last_json(drivetrain("run", "shop", "--json"))["run"]
    home = Home(Path(".drivetrain"))
    context = home.store.find_context("run", run)
    assert context is not None
    events: list[Any] = []
    sender = LineageSender(home, "n", events.append)
    home.store.update_context(context, {"state": "RUNNING"})
    count = sender.send()
    assert not any(event.job.name == "shop" and event.eventType.value == "COMPLETE" for event in events)
    assert sender.send() == 0
    home.store.update_context(context, {"state": "COMPLETE"})
    assert sender.send() == 1
    assert (events[-1].job.name, events[-1].eventType.value) == ("shop", "COMPLETE")
    assert sender.send() == 0
    assert len(events) == count + 1
    home.close()


def test_a_dry_run_prints_and_sends_nothing(shop: Path, receiver: Receiver, drivetrain: Command) -> None:
    drivetrain("run", "shop")
    lines = drivetrain("openlineage", "--dry-run").stdout.splitlines()
    for line in lines:
        check(json.loads(line))
    assert len(lines) > 8
    assert receiver.events == []


def test_without_an_address_it_says_what_to_set(
    shop: Path, drivetrain: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENLINEAGE_URL", raising=False)
    drivetrain("run", "shop")
    result = drivetrain("openlineage")
    assert result.exit_code == 2
    assert "set OPENLINEAGE_URL" in result.stderr
