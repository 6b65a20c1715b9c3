"""A run as a page: the pipeline drawn, a table of nodes, states, times and reasons; one node with what it made."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from .artifact import link
from .dag import Drawing, drawing
from .html import Html, TableColumn, Tone, badge, curves, html, join, page, section, table

Points = Sequence[tuple[int, float | None]]
"""Steps, and what a metric was at each; None where it was not finite."""

KINDS: Final[Mapping[str, Tone]] = {
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
_SPLIT: Final = re.compile(r"^(train|training|eval|val|validation|test)[_/]")
_CURVES: Final = 24
_WORST_FIRST: Final[tuple[Tone, ...]] = ("bad", "warn", "good", "info", "plain")


def render(
    run: Mapping[str, Any],
    outline: Iterable[tuple[str, str]],
    drawn: Drawing | None = None,
    headlines: Mapping[str, str] | None = None,
    *,
    steps: Mapping[str, Mapping[str, Mapping[str, Points]]] | None = None,
    pages: Mapping[tuple[str, str], str] | None = None,
) -> str:
    """One HTML document.

    Args:
        run: `run` (its id), `pipeline`, `state`, `started` (ISO 8601), `parameters`, and `nodes`: id → `state`,
            `seconds`, `reason`, `outputs`; `metrics`, if any: node id → name → value.
        outline: (guide, node id) in drawing order.
        drawn: The pipeline, see `draw`.
        headlines: Node id → what its outputs say of themselves, in one line.
        steps: Node id → metric → name of a curve → what it was at which step.
        pages: (node id, output) → the page of that artifact.
    """
    rows = []
    for guide, name in outline:
        node = run["nodes"][name]
        types = join(
            [
                link(item["type"], (pages or {}).get((name, key)))
                for key, items in node["outputs"].items()
                for item in items
            ],
            ", ",
        )
        if headline := (headlines or {}).get(name):
            types = join([types, ": ", headline])
        before = Html(f'<span class="mono soft" style="white-space:pre">{html(guide)}</span>')
        rows.append((join([before, name]), _state(node["state"]), f"{node['seconds']:.2f}", node["reason"], types))
    parameters = ", ".join(f"{name} = {value!r}" for name, value in run["parameters"].items())
    said = f"run {run['run']}, started {run['started'][:16].replace('T', ' ')} UTC" + (
        f"; {parameters}" if parameters else ""
    )
    heads: list[TableColumn | str] = ["Node", "State", TableColumn("Seconds", numeric=True), "Reason", "Made"]
    parts = [section("Drawing", drawn.markup)] if drawn else []
    parts.append(section("Nodes", table(heads, rows, stacked=True)))
    if metrics := run.get("metrics"):
        parts.append(section("Metrics", join([_metrics(metrics), _curves(steps or {})])))
    return page(run["pipeline"], join(parts), subtitle=said, badges=[_state(run["state"])])


def _metrics(metrics: Mapping[str, Mapping[str, float | None]]) -> Html:
    """Each metric as it was last."""
    rows = [
        (node, name, "undefined" if value is None else value)
        for node, values in metrics.items()
        for name, value in values.items()
    ]
    return table(["Node", "Metric", TableColumn("Value", numeric=True)], rows)


def _curves(steps: Mapping[str, Mapping[str, Mapping[str, Points]]]) -> Html:
    """Each metric that has steps as a curve; those of one node that differ in their split alone share a drawing."""
    drawn: dict[tuple[str, str], dict[str, list[tuple[float, float]]]] = {}
    for node, curves_of_node in steps.items():
        for name, lines in curves_of_node.items():
            for label, points in lines.items():
                numbers = [(float(step), float(value)) for step, value in points if value is not None]
                drawn.setdefault((node, _SPLIT.sub("", name)), {})[label] = numbers
    shown = list(drawn.items())[:_CURVES]
    figures = [
        join(
            [
                Html('<figure class="metric"><h3>'),
                node,
                Html("</h3>"),
                curves(lines, x="step", y=name),
                Html("</figure>"),
            ]
        )
        for (node, name), lines in shown
    ]
    more = len(drawn) - len(shown)
    note = join([Html('<p class="note">'), f"{more:,} more curves are not drawn.", Html("</p>")]) if more else ""
    return join([Html('<div class="metrics">'), *figures, Html("</div>"), note])


def draw(dag: Mapping[str, Any], tasks: Mapping[str, Mapping[str, Any]]) -> Drawing:
    """The pipeline of a run, its nodes coloured by their states.

    Args:
        dag: As of `dag.drawing`.
        tasks: Node, or an item of one ("Trainer[3]") → `state`, `seconds`.
    """
    items: dict[str, list[Mapping[str, Any]]] = {}
    for name, task in tasks.items():
        items.setdefault(name.partition("[")[0], []).append(task)
    none: tuple[Tone, str] = ("plain", "no items")
    return drawing(
        dag, {node["id"]: _said(items[node["id"]]) if node["id"] in items else none for node in dag["nodes"]}
    )


def _said(tasks: Sequence[Mapping[str, Any]]) -> tuple[Tone, str]:
    """The colour of the worst of a node's tasks, and how many there are of each state."""
    states = Counter(task["state"] for task in tasks)
    worst = min(states, key=lambda state: (_WORST_FIRST.index(KINDS.get(state, "plain")), -states[state]))
    text = ", ".join(state.lower() if len(tasks) == 1 else f"{n} {state.lower()}" for state, n in states.items())
    ran = sum(task["seconds"] for task in tasks if task["state"] not in ("CACHED", "SKIPPED"))
    return KINDS.get(worst, "plain"), text + (f", {ran:.2f} s" if ran else "")


def render_node(
    name: str, node: Mapping[str, Any], error: str | None = None, headlines: Mapping[str, str] | None = None
) -> str:
    """One node of a run: its state and reason, what it made, its traceback if it failed.

    `headlines` are what its outputs say of themselves, in one line each, by output.
    """
    rows = [
        (
            key,
            item["type"],
            (headlines or {}).get(key, ""),
            Html(f"<code>{html(item['uri'])}</code>"),
            Html(f"<code>{item['fingerprint'][:12]}</code>"),
        )
        for key, items in node["outputs"].items()
        for item in items
    ]
    parts: list[object] = [table(["Output", "Type", "Summary", "Where", "Fingerprint"], rows, empty="It made nothing.")]
    if error:
        parts.append(join([Html('<pre class="mono">'), error, Html("</pre>")]))
    said = f"{node['seconds']:.2f} s" + (f"; {node['reason']}" if node["reason"] else "")
    return page(name, join(parts), subtitle=said, badges=[_state(node["state"])])


def _state(state: str) -> Html:
    return badge(state.lower(), KINDS.get(state, "plain"))
