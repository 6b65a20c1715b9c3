"""Runs mirrored into an MLflow tracking server: parameters, metrics with their steps, tags and how they ended.

By MLflow's REST API, of which five calls suffice: its own client brings a hundred packages and usage statistics. A run
there is found again by its tag, and what is logged twice is the same there, so a mirror that was killed is repeated.
"""

from __future__ import annotations

import base64
import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from http.client import HTTPException
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit, urlunsplit
from urllib.request import Request

from ..errors import InputError
from ..metadata import ContextRecord, ExecutionRecord
from ..paced_http import opener
from .launcher.following import follow_runs
from .launcher.home import Home
from .launcher.runs import Run, UnreadableRun

Json = dict[str, Any]  # Any: JSON values

MIRRORED: Final = "mlflow_mirror"
"""The type of the contexts that remember, by server, up to when runs were mirrored."""
_TAG: Final = "drivetrain.run"
_TIMEOUT: Final = 30.0  # seconds
_LONGEST: Final = 6000  # characters of a parameter, 8000 of a tag: what servers of the last releases take
_BATCH: Final = 100  # parameters, or tags, of one call; ten times as many metrics
_STATUS: Final = {"RUNNING": "RUNNING", "COMPLETE": "FINISHED", "FAILED": "FAILED"}
_KEY_SIGNS: Final = frozenset("_-. :/")


class MlflowServer:
    """A tracking server.

    Args:
        address: Its URL; who it is may stand in MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and _PASSWORD.

    Raises:
        InputError: It is no http address.
    """

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(
                f"{self._without_secrets(address)} is not a tracking server", fix="give its URL: http://localhost:5000"
            )
        self.address = self._without_secrets(address).rstrip("/")
        self._opener = opener()
        user = (parts.username, parts.password) if parts.username else _user()
        token = os.environ.get("MLFLOW_TRACKING_TOKEN")
        self._headers = {"Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        elif user is not None:
            self._headers["Authorization"] = "Basic " + base64.b64encode(":".join(map(str, user)).encode()).decode()

    @staticmethod
    def _without_secrets(address: str) -> str:
        parts = urlsplit(address)
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))

    def call(self, path: str, body: Json | None = None) -> Json:
        """What it answers; a POST where there is a body.

        Raises:
            InputError: It does not answer, or refuses.
        """
        url = f"{self.address}/api/2.0/mlflow/{path}"
        request = Request(url, None if body is None else json.dumps(body).encode(), self._headers)  # noqa: S310 - its scheme was checked
        try:
            with self._opener.open(request, timeout=_TIMEOUT) as response:
                return dict(json.loads(response.read() or b"{}"))
        except HTTPError as error:
            raise InputError(
                f"{url.partition('?')[0]} answers {error.code}: {error.read(300).decode('utf-8', 'replace')}",
                fix="see its log; who you are stands in MLFLOW_TRACKING_TOKEN",
            ) from None
        except (OSError, HTTPException, ValueError) as error:
            raise InputError(
                f"{self.address} does not answer as MLflow does: {error!s:.200}", fix="see that the server runs"
            ) from None

    def experiment(self, name: str) -> str:
        """The id of an experiment, made where there is none."""
        try:
            return str(
                self.call(f"experiments/get-by-name?experiment_name={quote(name)}")["experiment"]["experiment_id"]
            )
        except InputError as error:
            if "RESOURCE_DOES_NOT_EXIST" not in error.message:
                raise
        return str(self.call("experiments/create", {"name": name})["experiment_id"])

    def run(self, experiment: str, name: str, started: datetime) -> str:
        """The id of the run that mirrors one of ours, made where there is none."""
        query = {"experiment_ids": [experiment], "filter": f"tags.`{_TAG}` = '{name}'", "max_results": 1}
        runs = self.call("runs/search", query).get("runs", [])
        if runs:
            return str(runs[0]["info"]["run_id"])
        body = {"experiment_id": experiment, "start_time": _milliseconds(started), "run_name": name}
        created = self.call("runs/create", {**body, "tags": [{"key": _TAG, "value": name}]})
        return str(created["run"]["info"]["run_id"])


class MlflowMirror:
    """Mirrors a root's runs into a server.

    Args:
        home: The root, open to write.
        server: The server.
        prefix: What stands before a pipeline's name to name its experiment.
    """

    def __init__(self, home: Home, server: MlflowServer, prefix: str = "") -> None:
        self._home = home
        self._server = server
        self._prefix = prefix
        self._experiments: dict[str, str] = {}

    def mirror(self) -> int:
        """Mirror all runs that have changed since the last time, or are at work; gives how many."""
        return follow_runs(self._home, MIRRORED, self._server.address, lambda run, _: self.put(run))

    def put(self, run: Run | UnreadableRun) -> None:
        """Mirror a run as it is now."""
        context = run.context
        pipeline = f"{self._prefix}{context.properties.get('pipeline') or 'unknown'}"
        if pipeline not in self._experiments:
            self._experiments[pipeline] = self._server.experiment(pipeline)
        number = self._server.run(self._experiments[pipeline], run.id, context.created_at)
        executions = self._home.store.executions(context=context)[::-1]
        parameters = dict(run.parameters) if isinstance(run, Run) else {}
        entries: dict[str, Iterable[Json]] = {
            "params": ({"key": _key(name), "value": _text(value)[:_LONGEST]} for name, value in parameters.items()),
            "tags": self._tags(context, executions),
            "metrics": self._metrics(executions),
        }
        for kind, several in entries.items():
            for batch in _batches(list(several), 10 * _BATCH if kind == "metrics" else _BATCH):
                self._server.call("runs/log-batch", {"run_id": number, kind: batch})
        status = _STATUS.get(str(run.state), "KILLED")
        body: Json = {"run_id": number, "status": status, "run_name": run.id}
        if status != "RUNNING":
            ended = context.properties.get("finished")
            body["end_time"] = _milliseconds(datetime.fromisoformat(ended) if ended else context.updated_at)
        self._server.call("runs/update", body)

    def _tags(self, context: ContextRecord, executions: list[ExecutionRecord]) -> Iterator[Json]:
        ours = {_TAG: context.name, "drivetrain.state": str(context.properties.get("state"))}
        if note := context.properties.get("note"):
            ours["mlflow.note.content"] = str(note)
        for name, value in {**context.properties.get("tags", {}), **ours}.items():
            yield {"key": _key(name), "value": value or "true"}
        for execution in executions:
            for key, several in self._home.store.outputs(execution).items():
                node = execution.properties.get("node")
                for artifact in several[:1]:
                    yield {"key": _key(f"artifact.{node}.{key}"), "value": f"{artifact.uri} {artifact.fingerprint}"}

    def _metrics(self, executions: list[ExecutionRecord]) -> Iterator[Json]:
        """Each metric by its steps, or at 0; by its node too where two have one of that name."""
        of_nodes: dict[str, dict[str, list[tuple[int, Any, datetime]]]] = {}
        for execution in executions:  # of a task that ran twice the last counts
            at = execution.finished_at or execution.updated_at
            metrics: dict[str, Any] = dict(execution.metrics)
            for several in self._home.store.outputs(execution).values():
                for artifact in several:
                    metrics |= artifact.metrics
            steps: Mapping[str, Any] = execution.properties.get("metric_steps") or {}
            points = {name: [(int(step), value, at) for step, value in steps[name]] for name in steps}
            points |= {name: [(0, value, at)] for name, value in metrics.items() if name not in points}
            if points:
                of_nodes[str(execution.properties.get("node") or execution.component)] = points
        counts = Counter(name for points in of_nodes.values() for name in points)
        for node, points in of_nodes.items():
            for name, series in points.items():
                key = _key(name if counts[name] == 1 else f"{node}/{name}")
                for step, value, at in series:
                    if isinstance(value, int | float) and math.isfinite(value):
                        yield {"key": key, "value": value, "timestamp": _milliseconds(at), "step": step}


def _user() -> tuple[str, str] | None:
    name = os.environ.get("MLFLOW_TRACKING_USERNAME")
    return None if not name else (name, os.environ.get("MLFLOW_TRACKING_PASSWORD", ""))


def _key(name: str) -> str:
    """A name as MLflow takes it: letters, digits and some signs."""
    return "".join(sign if sign.isalnum() or sign in _KEY_SIGNS else "_" for sign in name)[:250]


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _batches(entries: list[Json], size: int) -> Iterator[list[Json]]:
    return (entries[start : start + size] for start in range(0, len(entries), size))


def _milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
