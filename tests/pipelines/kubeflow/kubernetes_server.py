"""A Kubernetes API server small enough to be in a test: what our code asks of pods, Jobs and Services."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

_PATH = re.compile(r"/(api/v1|apis/[\w.]+/\w+)/namespaces/([\w-]+)/(\w+)(?:/([\w.-]+))?(?:/(log|status))?")


@dataclass
class KubernetesServer:
    """The state: objects by (kind, name) of one namespace, logs by pod.

    Attributes:
        denied: Verbs ("POST services") that the role does not have.
        asked: What was asked, as such verbs.
    """

    namespace: str = "team"
    url: str = ""
    objects: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    logs: dict[str, str] = field(default_factory=dict)
    denied: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)

    def pod(self, name: str, run: str, words: list[str], **status: Any) -> None:
        """Add a pod of a KFP run: our arguments stand behind those of KFP's launcher."""
        always = {"image": "x", "imageID": "", "ready": False, "restartCount": 0}
        if "containerStatuses" in status:
            status["containerStatuses"] = [always | each for each in status["containerStatuses"]]
        self.objects["pods", name] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": self.namespace,
                "labels": {"pipeline/runid": run},
                "creationTimestamp": f"2026-11-21T00:00:{len(self.objects):02}Z",
            },
            "spec": {"containers": [{"name": "wait"}, {"name": "main", "image": "x", "args": words}]},
            "status": status,
        }

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
        """Carry a request out: its status and its body, text for a log."""
        found = _PATH.fullmatch(path)
        if found is None or found[2] != self.namespace:
            return 404, _status(404, "NotFound", f"{path} not found")
        _, _, kind, name, part = found.groups()
        self.asked.append(f"{method} {kind}")
        if f"{method} {kind}" in self.denied:
            return 403, _status(403, "Forbidden", f'User "runner" cannot {method} resource "{kind}"')
        if part == "log":
            return (200, self.logs[name]) if name in self.logs else (404, _status(404, "NotFound", f"pod {name}"))
        if method == "POST":
            name = body["metadata"]["name"]
            if (kind, name) in self.objects:
                return 409, _status(409, "AlreadyExists", f'{kind} "{name}" already exists')
            body["metadata"].setdefault("uid", f"uid-{name}")
            self.objects[kind, name] = body
            return 201, body
        if name:
            if (kind, name) not in self.objects:
                return 404, _status(404, "NotFound", f'{kind} "{name}" not found')
            one = self.objects[kind, name]
            if method == "DELETE":
                del self.objects[kind, name]
            return 200, one
        items = [one for (of, _), one in self.objects.items() if of == kind]
        for part in filter(None, query.get("labelSelector", "").split(",")):
            key, _, value = part.partition("=")
            items = [one for one in items if (one["metadata"].get("labels") or {}).get(key) == value]
        return 200, {"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items}


def _status(code: int, reason: str, message: str) -> dict[str, Any]:
    return {"kind": "Status", "status": "Failure", "message": message, "reason": reason, "code": code}


@contextmanager
def serving(folder: Path, **state: Any) -> Iterator[KubernetesServer]:
    """A server on a free port, and a kube config in `folder/kubeconfig` that leads to it."""
    server = KubernetesServer(**state)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # headers and body are sent one after the other

        def _do(self) -> None:
            parsed = urlparse(self.path)
            text = self.rfile.read(int(self.headers.get("content-length") or 0)).decode()
            query = {key: values[0] for key, values in parse_qs(parsed.query).items()}
            status, body = server.answer(self.command, parsed.path, query, json.loads(text) if text else None)
            data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "text/plain" if isinstance(body, str) else "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_DELETE = _do

        def log_message(self, *args: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        server.url = f"http://127.0.0.1:{http.server_address[1]}"
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": server.url}}],
            "users": [{"name": "test", "user": {}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }  # fmt: skip
        (folder / "kubeconfig").write_text(json.dumps(config))
        try:
            yield server
        finally:
            http.shutdown()
            thread.join()
