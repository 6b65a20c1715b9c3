"""How an artifact came to be, as a statement of its provenance says it: code, parameters, data, run."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from ...metadata import AnalyzerCache, ArtifactRecord, ExecutionRecord, Model
from .home import Home

_MOST = 10_000  # artifacts, and files
_ENDS = (AnalyzerCache.__name__, Model.__name__)  # types of artifacts that are named, and not what they were made from


def provenance(home: Home, run: str, pipeline: str, node: str, uri: str) -> dict[str, Any]:  # Any: JSON
    """What is known of an artifact's making, as `LaunchContext.provenance` describes it.

    Artifacts are those that its producer took, those that these were made from, and so on up to the data; a model that
    it began from is one of them, and what that one was made from is not. The same holds for an analyzer cache, which
    has what was learnt of other data.

    Args:
        home: Where it lies.
        run: The run that asks.
        pipeline: Its pipeline.
        node: The node that asks.
        uri: The artifact's.
    """
    facts: dict[str, Any] = {"run": run, "pipeline": pipeline, "node": node}
    artifact = home.store.artifact_by_uri(uri)
    if artifact is None or artifact.producer is None:
        return facts
    producer = home.store.execution(artifact.producer)
    preimage = (home.store.preimage(producer.cache_key) if producer.cache_key else None) or {}
    facts |= {name: preimage[name] for name in ("parameters", "code", "environment") if name in preimage}
    facts |= {"execution": producer.uid, "component": producer.component}
    facts |= {"started": _time(producer.started_at), "finished": _time(producer.finished_at)}
    artifacts, executions = _upstream(home, producer)
    facts["artifacts"] = [
        {"uri": each.uri, "type": each.type, "fingerprint": each.fingerprint}
        | {name: each.properties[name] for name in ("span", "version") if each.properties.get(name) is not None}
        for each in artifacts
    ]
    files = {(file["name"], file["sha256"]): file for each in executions for file in _files(home, each)}
    facts["files"] = list(files.values())[:_MOST]
    return facts


def _upstream(home: Home, producer: ExecutionRecord) -> tuple[list[ArtifactRecord], list[ExecutionRecord]]:
    artifacts, executions, waiting = dict[int, ArtifactRecord](), {producer.id: producer}, [producer]
    while waiting and len(artifacts) < _MOST:
        for several in home.store.inputs(waiting.pop()).values():
            for each in several:
                artifacts[each.id] = each
                if each.type in _ENDS or each.producer is None or each.producer in executions:
                    continue
                executions[each.producer] = home.store.execution(each.producer)
                waiting.append(executions[each.producer])
    return list(artifacts.values()), list(executions.values())


def _files(home: Home, execution: ExecutionRecord) -> Iterator[dict[str, Any]]:
    """The files that the parameters of an execution name."""
    preimage = home.store.preimage(execution.cache_key) if execution.cache_key else None
    waiting: list[Any] = [(preimage or {}).get("parameters", {})]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict) and "$files" in value:
            yield from ({"name": name, "size": size, "sha256": sha256} for name, size, sha256 in value["$files"])
        elif isinstance(value, dict | list):
            waiting.extend(value.values() if isinstance(value, dict) else value)


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
