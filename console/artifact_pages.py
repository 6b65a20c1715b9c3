"""The pages of a run: its own, and beside it one of each artifact, which lead to one another."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ..report import join
from ..report.artifact import Link, render
from ..report.over_runs import Measured
from .options import write_page, writing_page
from .session import payload_file

if TYPE_CHECKING:
    from ..metadata import ArtifactRecord
    from ..pipelines import Home
    from .session import NodeView, RunView


def write_run_pages(home: Home, run_view: RunView, page: Path, beside: Sequence[RunView] = ()) -> None:
    """Write a run's page, and those of its artifacts into a folder beside it: `run.html`, `run-artifacts/`.

    Where the path is not a file (/dev/stdout), there is no folder, and the page leads nowhere.

    Raises:
        InputError: Something cannot be written.
    """
    if page.exists() and not page.is_file():
        write_page(page, run_view.to_html(beside=beside))
        return
    folder = page.with_name(f"{page.stem}-artifacts")
    outputs = [(node, key) for node in run_view for key in node.records]
    names = {(node.id, key): f"{node.id}.{key}.html" for node, key in outputs}
    pages = {output: quote(f"{folder.name}/{name}") for output, name in names.items()}
    write_page(page, run_view.to_html(pages, beside))
    if not outputs:
        return
    with writing_page(folder):
        folder.mkdir(exist_ok=True)
    links = {node.records[key].uid: (f"{node.id}.{key}", quote(names[node.id, key])) for node, key in outputs}
    read = {node.id: _inputs(home, node) for node in run_view}
    back = (f"run {run_view.id} of {run_view.pipeline}", quote(f"../{page.name}"))
    for node, key in outputs:
        record = node.records[key]
        made_into = [
            links[other.records[output].uid]
            for other in run_view
            for output in other.records
            if any(artifact.uid == record.uid for artifact in read[other.id])
        ]
        made_from = [_link(artifact, links) for artifact in read[node.id]]
        document = _page(home, node, key, back, made_from, made_into)
        artifact_page = folder / names[node.id, key]
        with writing_page(artifact_page):
            artifact_page.write_text(document, encoding="utf-8")


def _inputs(home: Home, node: NodeView) -> list[ArtifactRecord]:
    if node.execution is None:
        return []
    inputs = home.store.inputs(home.store.execution(node.execution))
    return list({artifact.uid: artifact for artifacts in inputs.values() for artifact in artifacts}.values())


def _link(artifact: ArtifactRecord, links: Mapping[str, Link]) -> Link:
    return links.get(artifact.uid, (f"{artifact.type} {artifact.external or artifact.uri}", None))


def _page(
    home: Home, node: NodeView, key: str, back: Link, made_from: Sequence[Link], made_into: Sequence[Link]
) -> str:
    record = node.records[key]
    facts: dict[str, object] = {"from": f"{node.id}, {node.state.lower()}: {node.reason}".rstrip(": ")}
    facts |= {"fingerprint": record.fingerprint, "stored at": record.external or record.uri}
    facts |= {name: _text(value) for name, value in record.properties.items() if value not in (None, "", {}, [])}
    report = payload_file(home, record, "extra/report.html")
    signatures = signatures_in(payload_file(home, record, "content/manifest.json") or b"{}")
    return render(
        f"{node.id}.{key}",
        record.type,
        back,
        facts,
        made_from=made_from,
        made_into=made_into,
        summary=node.summary(key).text,
        signatures=signatures,
        report=None if report is None else report.decode("utf-8", "replace"),
        history=_history(home, record),
    )


def _history(home: Home, record: ArtifactRecord) -> list[Measured]:
    """What was measured of the artifacts of this type that the node made up to this one, the oldest first."""
    if not isinstance(record.properties.get("metrics"), dict):
        return []
    makers = [context for context in home.store.contexts_of(record) if context.type == "node"]
    if not makers:
        return []
    records = home.store.artifacts(type=record.type, context=makers[0])
    return [_measured(each) for each in reversed(records) if each.id <= record.id]


def _measured(record: ArtifactRecord) -> Measured:
    blessed, metrics = record.properties.get("blessed"), record.properties.get("metrics")
    numbers = metrics.items() if isinstance(metrics, dict) else ()
    return Measured(
        f"{record.created_at:%Y-%m-%d %H:%M} UTC",
        blessed if isinstance(blessed, bool) else None,
        {name: float(value) for name, value in numbers if isinstance(value, (int, float))},
    )


def signatures_in(manifest: bytes) -> list[Any]:  # Any: JSON
    """Those that a bundle's manifest describes; none where the file is a component's own, or was damaged."""

    def fields(described: Any) -> list[Any]:
        return [(field, {"dtype": spec["dtype"], "shape": list(spec["shape"])}) for field, spec in described]

    with suppress(ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return [
            (name, {role: fields(described[role]) for role in ("inputs", "outputs")})
            for name, described in json.loads(manifest)["signatures"]
        ]
    return []


def _text(value: object) -> object:
    if isinstance(value, dict):
        return join([join([name, " ", _text(each)]) for name, each in value.items()], ", ")
    return value if isinstance(value, (str, int, float)) else json.dumps(value, ensure_ascii=False)
