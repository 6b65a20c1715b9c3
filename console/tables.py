"""What is printed of a run for people: its nodes, the evaluation by slice, a veto with its rows, where a model went."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from ..metadata import ArtifactRecord
from ..pipelines import Home
from .live import STYLES, WORST_FIRST, span
from .outline import tasks_by_node

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_COUNTS: Final = ("example_count", "weighted_example_count")
_SLICES: Final = 40
_ROWS: Final = 5
_FEW: Final = 6
_ONE_LINE: Final[Mapping[str, Any]] = {"markup": False, "no_wrap": True, "overflow": "ellipsis"}


class Ended(Protocol):
    """How a node ended, in the run at hand or in a past one."""

    @property
    def state(self) -> str:
        """COMPLETE, CACHED, …."""
        ...

    @property
    def seconds(self) -> float:
        """Wall time."""
        ...

    @property
    def reason(self) -> str:
        """One line."""
        ...


@dataclass(frozen=True)
class _Items:
    """The items of a node, told together."""

    state: str
    seconds: float
    reason: str


def nodes_table(outline: Iterable[tuple[str, str]], nodes: Mapping[str, Ended]) -> Table:
    """Nodes, states, seconds and reasons; the DAG as indentation. Many items of one node share a line."""
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("node", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("seconds", justify="right", no_wrap=True)
    table.add_column("reason", overflow="fold")
    tasks = tasks_by_node(nodes)
    for guide, node in outline:
        for name, ended in _lines(node, {name: nodes[name] for name in tasks.get(node, ())}):
            table.add_row(
                Text.assemble((guide, "dim"), name),
                Text(ended.state, STYLES[ended.state]),
                f"{ended.seconds:.2f}",
                escape(ended.reason),
            )
    return table


def _lines(node: str, items: Mapping[str, Ended]) -> Iterator[tuple[str, Ended]]:
    """A node's lines: one for each item where they are few, else one for all and one for each that went wrong."""
    if not items:
        yield node, _Items("SKIPPED", 0.0, "there are no items")
    elif len(items) <= _FEW:
        yield from items.items()
    else:
        states = Counter(ended.state for ended in items.values())
        told = ", ".join(f"{states[state]:,} {state.lower()}" for state in STYLES if states[state])
        worst = next(state for state in WORST_FIRST if states[state])
        yield f"{node}[{len(items):,}]", _Items(worst, sum(ended.seconds for ended in items.values()), told)
        wrong = [(name, ended) for name, ended in items.items() if ended.state in WORST_FIRST[:3]]
        yield from ((f"  {name}", ended) for name, ended in wrong[:_FEW])
        if len(wrong) > _FEW:
            yield "  ...", _Items(worst, 0.0, f"and {len(wrong) - _FEW:,} more")


def show_nodes(console: Console, title: str, state: str, table: Table, seconds: float | None = None) -> None:
    """The table below its run's name and state."""
    from rich.text import Text

    took = f" in {span(seconds)}" if seconds is not None else ""
    console.print()
    console.print(table)
    console.print()
    console.print(Text.assemble(f"{title} ", (state, STYLES[state]), took))


def show_made(console: Console, home: Home, node: str, records: Iterable[ArtifactRecord], *, by_slice: bool) -> None:
    """What matters most of what a node made: an evaluation, a veto, a push; nothing for the rest."""
    for record in records:
        if record.type == "Evaluation":
            path = home.payloads.local(record.uri, record.fingerprint)
            _show_evaluation(console, record, path, by_slice=by_slice)
        elif record.type == "PushedModel":
            _show_pushed(console, record, home.base)
        elif record.type == "Anomalies" and record.properties.get("passed") is False:
            _show_veto(console, node, record, home.payloads.local(record.uri, record.fingerprint))


def _show_evaluation(console: Console, record: ArtifactRecord, path: Path, *, by_slice: bool) -> None:
    """The verdict of an evaluation and, where wanted, its metrics by slice.

    Args:
        console: Where to print.
        record: The artifact; its `summary` stands for an evaluation that is not of drivetrain's own making.
        path: Its payload.
        by_slice: Read and print metrics.parquet, which costs the import of pyarrow (0.2 s).
    """
    from rich.markup import escape
    from rich.table import Table

    metrics, verdict = path / "content" / "metrics.parquet", path / "content" / "validation.json"
    if by_slice and metrics.is_file():
        names, rows = _by_slice(metrics)
        # As many metrics as the terminal is wide; the report has them all.
        room = console.width - 12 - max(len(title) for title, *_ in rows)
        ends = accumulate(max(6, len(name)) + 2 for name in names)
        names = [name for name, end in zip(names, ends, strict=True) if end <= room]
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        table.add_column("slice", no_wrap=True)
        for name in ("examples", *names):
            table.add_column(name.replace("_", " "), justify="right", no_wrap=True)
        for title, count, values in rows[:_SLICES]:
            table.add_row(escape(title), f"{count:,}", *values[: len(names)])
        console.print()
        console.print(table)
        if len(rows) > _SLICES:
            console.print(f"and {len(rows) - _SLICES} more slices in {path / 'extra' / 'report.html'}", style="dim")
    console.print()
    if not verdict.is_file():
        console.print(escape(str(record.properties.get("summary", ""))))
        return
    judged = json.loads(verdict.read_text(encoding="utf-8"))
    blessed, failures = judged["blessed"], judged["failures"]
    passed = sum(check["passed"] is True for check in judged["thresholds"])
    said = f"[green]blessed[/]: {passed} of {len(judged['thresholds'])} thresholds judged and met"
    console.print("model " + (said if blessed else "[red]not blessed[/]:"))
    for line in failures if not blessed else [check["text"] for check in judged["thresholds"]]:
        console.print(f"  {escape(line)}")
    if metrics.is_file() and not by_slice:
        console.print("  by slice: drivetrain show", style="dim")
    console.print(f"  report: {path / 'extra' / 'report.html'}", style="dim", soft_wrap=True)


def _show_pushed(console: Console, record: ArtifactRecord, base: Path) -> None:
    """Where a model was pushed to."""
    from rich.markup import escape

    facts = record.properties
    where = base / str(facts.get("destination")) / str(facts.get("version"))
    console.print(f"model pushed: version {facts.get('version')} at {escape(str(where))}", soft_wrap=True)


def _show_veto(console: Console, gate: str, record: ArtifactRecord, path: Path) -> None:
    """What a gate objects to, with the rows it quotes."""
    from rich.markup import escape

    console.print()
    console.print(f"[yellow]stopped by {escape(gate)}[/]: {escape(str(record.properties.get('summary', '')))}")
    for anomaly in _anomalies(path / "content" / "anomalies.json"):
        style = {"ERROR": "red", "WARNING": "yellow"}.get(anomaly["severity"], "dim")
        where = f"{anomaly['split']} / {anomaly['feature']}" if anomaly["feature"] else anomaly["split"]
        console.print(f"  [{style}]{anomaly['severity'].lower()}[/] {escape(where)}: {escape(anomaly['message'])}")
        for item in anomaly["rows"][:_ROWS]:
            console.print(f"    row {item['row']:,}: {_row(item['values'], anomaly['feature'])}", **_ONE_LINE)
        console.print(f"    fix: {anomaly['fix']}", markup=False, soft_wrap=True)
    console.print(f"  report: {path / 'extra' / 'report.html'}", style="dim", soft_wrap=True)


def _by_slice(path: Path) -> tuple[list[str], list[tuple[str, int, list[str]]]]:
    """Metric names, and (slice, examples, formatted values) for every slice in the file's order."""
    import pyarrow.parquet as pq

    rows: dict[str, tuple[int, dict[str, str]]] = {}
    names: dict[str, None] = {}
    for row in pq.read_table(path, columns=["slice", "metric", "n", "value"]).to_pylist():
        _, values = rows.setdefault(row["slice"], (row["n"], {}))
        if row["metric"] not in _COUNTS:
            names[row["metric"]] = None
            values[row["metric"]] = "–" if row["value"] is None else f"{row['value']:.4f}"
    return list(names), [
        (title, count, [values.get(name, "–") for name in names]) for title, (count, values) in rows.items()
    ]


def _anomalies(path: Path) -> list[Mapping[str, Any]]:
    """The anomalies in a file, errors first; none where a gate of the user's own writes no such file."""
    if not path.is_file():
        return []
    found: list[Mapping[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["anomalies"]
    return found


def _row(values: Mapping[str, object], feature: str | None) -> str:
    """A row as name=value, the column in question first."""
    names = sorted(values, key=lambda name: name != feature)
    return ", ".join(f"{name}={'–' if values[name] is None else values[name]}" for name in names)
