"""A run as a page: the DAG as an indented table of nodes, states, times and reasons; one node with what it made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from .html import Column, Html, Kind, badge, html, join, page, table

KINDS: Final[Mapping[str, Kind]] = {
    "COMPLETE": "good",
    "CACHED": "info",
    "SKIPPED": "plain",
    "WAITING": "plain",
    "BLOCKED": "warn",
    "STOPPED": "warn",
    "RUNNING": "info",
    "FAILED": "bad",
    "INTERRUPTED": "bad",
    "CANCELED": "warn",
}


def render(run: Mapping[str, Any], outline: Iterable[tuple[str, str]]) -> str:
    """One HTML document.

    Args:
        run: `run` (its id), `pipeline`, `state`, `started` (ISO 8601), `parameters`, and `nodes`: id → `state`,
            `seconds`, `reason`, `outputs`.
        outline: (guide, node id) in drawing order.
    """
    rows = []
    for guide, name in outline:
        node = run["nodes"][name]
        made = ", ".join(item["type"] for items in node["outputs"].values() for item in items)
        drawn = Html(f'<span class="mono soft" style="white-space:pre">{html(guide)}</span>')
        rows.append((join([drawn, name]), _state(node["state"]), f"{node['seconds']:.2f}", node["reason"], made))
    given = ", ".join(f"{name} = {value!r}" for name, value in run["parameters"].items())
    said = f"run {run['run']}, started {run['started'][:16].replace('T', ' ')} UTC" + (f"; {given}" if given else "")
    heads: list[Column | str] = ["Node", "State", Column("Seconds", numeric=True), "Reason", "Made"]
    return page(run["pipeline"], table(heads, rows), subtitle=said, badges=[_state(run["state"])])


def render_node(name: str, node: Mapping[str, Any], error: str | None = None) -> str:
    """One node of a run: its state and reason, what it made, its traceback if it failed."""
    rows = [
        (key, item["type"], Html(f"<code>{html(item['uri'])}</code>"), Html(f"<code>{item['fingerprint'][:12]}</code>"))
        for key, items in node["outputs"].items()
        for item in items
    ]
    parts: list[object] = [table(["Output", "Type", "Where", "Fingerprint"], rows, empty="It made nothing.")]
    if error:
        parts.append(join([Html('<pre class="mono">'), error, Html("</pre>")]))
    said = f"{node['seconds']:.2f} s" + (f"; {node['reason']}" if node["reason"] else "")
    return page(name, join(parts), subtitle=said, badges=[_state(node["state"])])


def _state(state: str) -> Html:
    return badge(state.lower(), KINDS.get(state, "plain"))
