"""A KFP API server small enough to be in a test: the v2beta1 paths that kfp's client calls, and faults on demand."""

from __future__ import annotations

import json
import re
import ssl
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlparse

_ROOT = "/apis/v2beta1"
_FIELDS = ((0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
_NAMES: tuple[dict[str, int], ...] = (
    {}, {}, {}, {},
    {name: n + 1 for n, name in enumerate("jan feb mar apr may jun jul aug sep oct nov dec".split())},  # noqa: SIM905
    {name: n for n, name in enumerate("sun mon tue wed thu fri sat".split())},  # noqa: SIM905
)  # fmt: skip


class Refused(Exception):
    """An answer with a gRPC gateway's body."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def check_cron(text: str) -> None:
    """What robfig/cron v1's Parse says of six fields (five it takes too, for seconds first: that is the trap)."""
    fields = text.split()
    if text.startswith("@"):
        return
    if not 5 <= len(fields) <= 6:
        raise Refused(400, f"Expected 5 to 6 fields, found {len(fields)}: {text}")
    for spelled, (low, high), names in zip(fields, _FIELDS, _NAMES, strict=False):
        for part in spelled.split(","):
            whole, _, step = part.partition("/")
            if step and not step.isdigit():
                raise Refused(400, f"Failed to parse int from {step}")
            if whole in ("*", "?"):
                continue
            ends = [names.get(end.lower(), end) for end in whole.split("-")]
            if len(ends) > 2 or not all(str(end).isdigit() for end in ends):
                raise Refused(400, f"Failed to parse int from {part}")
            first, last = int(ends[0]), int(ends[-1])
            if first < low or last > high or first > last:
                raise Refused(400, f"End of range ({last}) above maximum ({high}): {part}")


@dataclass
class Request:
    """What was asked."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass
class KfpServer:
    """The state of the server.

    Attributes:
        faults: Taken one by one by the next requests: a status, "silence", "drop" or "page".
        closing: Set when the server ends, and with it all silence.
        advance: Called with a run's record each time it is looked at.
    """

    url: str = ""
    experiments: dict[str, dict[str, Any]] = field(default_factory=dict)
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    recurring: dict[str, dict[str, Any]] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    faults: list[object] = field(default_factory=list)
    token: str = ""
    multi_user: bool = False
    advance: Callable[[dict[str, Any]], None] = lambda run: None
    closing: threading.Event = field(default_factory=threading.Event)
    _clock: int = 0

    def asked(self, method: str, path: str = "") -> list[Request]:
        """The requests of a method whose path has this in it."""
        return [request for request in self.requests if request.method == method and path in request.path]

    def answer(self, request: Request) -> dict[str, Any]:
        """Carry a request out."""
        if self.token and request.headers.get("authorization") != f"Bearer {self.token}":
            raise Refused(401, "Request header error: there is no user identity header.")
        path, _, verb = request.path.removeprefix(_ROOT).partition(":")
        parts = path.strip("/").split("/")
        kind, name = parts[0], parts[1] if len(parts) > 1 else ""
        if not request.path.startswith(_ROOT) or kind not in ("healthz", "experiments", "runs", "recurringruns"):
            raise Refused(404, "Not Found")
        if kind == "healthz":
            return {"multi_user": self.multi_user}
        if request.method == "GET" and not name and self.multi_user != bool(request.query.get("namespace")):
            mode = (
                "a namespace is required in multi-user" if self.multi_user else "no namespace is taken in single-user"
            )
            raise Refused(400, f"Invalid input error: {mode} mode")
        there = {"experiments": self.experiments, "runs": self.runs, "recurringruns": self.recurring}[kind]
        if name and name not in there:
            raise Refused(404, f"ResourceNotFoundError: {kind.removesuffix('s')} {name} not found.")
        if request.method == "POST" and not name:
            return self._create(kind, request.body)
        if request.method == "GET" and not name:
            return self._list(kind, there, request.query)
        return self._one(there[name], verb or request.method, there, name)

    def add_run(self, **parameters: object) -> str:
        """A run that somebody else started, in the newest experiment."""
        body = {"display_name": "x", "runtime_config": {"parameters": parameters}}
        made: str = self._create("runs", body | {"experiment_id": list(self.experiments)[-1]})["run_id"]
        return made

    def _create(self, kind: str, body: dict[str, Any]) -> dict[str, Any]:
        self._clock += 1
        at = datetime.fromtimestamp(1_800_000_000 + self._clock, UTC).isoformat().replace("+00:00", "Z")
        made = dict(body) | {"created_at": at}
        name = str(uuid.uuid4())
        if kind == "experiments":
            if any(one["display_name"] == body["display_name"] for one in self.experiments.values()):
                raise Refused(409, f"Already exist error: {body['display_name']}")
            self.experiments[name] = made | {"experiment_id": name}
            return self.experiments[name]
        if made.get("experiment_id") not in self.experiments:
            raise Refused(404, f"ResourceNotFoundError: experiment {made.get('experiment_id')} not found.")
        if kind == "runs":
            self.runs[name] = made | {"run_id": name, "state": "PENDING", "run_details": {"task_details": []}}
            return self.runs[name]
        cron = made["trigger"].get("cron_schedule")
        if cron:
            check_cron(cron["cron"])
        if not 1 <= int(made.get("max_concurrency", 0)) <= 10:
            raise Refused(400, "The max concurrency of the recurring run is out of range. Support 1-10.")
        status = "ENABLED" if made["mode"] == "ENABLE" else "DISABLED"
        made["max_concurrency"] = str(made["max_concurrency"])  # an int64 in JSON
        if "periodic_schedule" in made["trigger"]:
            periodic = made["trigger"]["periodic_schedule"]
            periodic["interval_second"] = str(periodic["interval_second"])
        self.recurring[name] = made | {"recurring_run_id": name, "status": status}
        return self.recurring[name]

    def _list(self, kind: str, there: dict[str, dict[str, Any]], query: dict[str, str]) -> dict[str, Any]:
        found = list(there.values())
        for predicate in json.loads(query.get("filter", "{}")).get("predicates", []):
            found = [one for one in found if one.get(predicate["key"]) == predicate["stringValue"]]
        if "desc" in query.get("sort_by", ""):
            found = sorted(found, key=lambda one: str(one["created_at"]), reverse=True)
        size, start = int(query.get("page_size") or 10), int(query.get("page_token") or 0)
        more = {"next_page_token": str(start + size)} if len(found) > start + size else {}
        key = {"recurringruns": "recurringRuns"}.get(kind, kind)
        return {key: found[start : start + size], "total_size": len(found), **more}

    def _one(self, record: dict[str, Any], verb: str, there: dict[str, dict[str, Any]], name: str) -> dict[str, Any]:
        if verb == "DELETE":
            del there[name]
            return {}
        if verb == "terminate":
            if record["state"] in ("SUCCEEDED", "FAILED", "CANCELED"):
                raise Refused(400, f"Failed to terminate run {name}: it has ended")
            record["state"] = "CANCELED"
            return {}
        if verb in ("enable", "disable"):
            record["status"] = f"{verb.upper()}D"
            return {}
        if "run_id" in record:
            self.advance(record)
        return record


@contextmanager
def serving(tls: ssl.SSLContext | None = None, **state: Any) -> Iterator[KfpServer]:
    """A server on a free port of this machine, for as long as the block runs."""
    server = KfpServer(**state)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # headers and body are sent one after the other

        def _do(self) -> None:
            parsed = urlparse(self.path)
            length = int(self.headers.get("content-length") or 0)
            text = self.rfile.read(length).decode()
            query = {key: values[0] for key, values in parse_qs(parsed.query).items()}
            headers = {key.lower(): value for key, value in self.headers.items()}
            request = Request(self.command, unquote(parsed.path), query, headers, json.loads(text) if text else None)
            server.requests.append(request)
            fault = server.faults.pop(0) if server.faults else None
            if fault == "drop":
                self.close_connection = True
                self.connection.close()
                return
            if fault == "page":
                self._send(200, b"<html>Log in to Your Account</html>", "text/html")
                return
            if fault == "silence":
                server.closing.wait()
            try:
                if isinstance(fault, int):
                    raise Refused(fault, "the database is down" if fault >= 500 else "it is not so")
                self._send(200, json.dumps(server.answer(request)).encode())
            except Refused as refused:
                body = {"error": str(refused), "code": 5, "message": str(refused), "details": []}
                self._send(refused.status, json.dumps(body).encode())

        def _send(self, status: int, body: bytes, kind: str = "application/json") -> None:
            try:
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            except (BrokenPipeError, ConnectionResetError):  # who asked has gone
                self.close_connection = True

        do_GET = do_POST = do_DELETE = _do

        def log_message(self, *args: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        http.daemon_threads = True
        if tls is not None:
            http.socket = tls.wrap_socket(http.socket, server_side=True)
        thread = threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        server.url = f"{'https' if tls else 'http'}://127.0.0.1:{http.server_address[1]}"
        try:
            yield server
        finally:
            server.closing.set()
            http.shutdown()
            thread.join()


def pod_name(text: str) -> str:
    """A name as Kubernetes takes it."""
    return re.sub(r"[^a-z0-9-]+", "-", text.lower()).strip("-")
