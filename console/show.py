"""`show`, and everything that is printed of a run for people: its nodes, what they made, what went wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import click

from ..metadata import PushedModel
from ..pipelines import Home, open_run
from ..pipelines.ir.tasks import parse_task
from ..pipelines.launcher.states import EndState, RunState, TaskState
from .exit_codes import OK
from .live import STYLES, WORST_FIRST, counted, number, span
from .options import ConsoleSettings, print_text, shared, tags_text
from .outline import tasks_by_node
from .session import NodeView, RunView, view

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from ..metadata import ArtifactRecord, Summary
    from ..report.run import Points

_REASON: Final = 70
"""Characters of the reason why a node was held back."""
_FEW: Final = 6
"""Items of a node that are shown one by one; of more, together, those alone that went wrong."""

_BARS: Final = "▁▂▃▄▅▆▇█"
_CURVE: Final = 20
"""Bars of a curve."""


@click.command(epilog="\b\nExample:\n  drivetrain show\n  drivetrain show 20261121-093000-1a2b --html run.html\n")
@click.argument("run_id", metavar="[RUN]", required=False)
@click.option(
    "--html",
    "page",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write it as a page, and beside it one of each artifact.",
)
@click.option("--beside", multiple=True, metavar="RUN", help="With --html, draw the metrics of this run, too.")
@shared
def show(settings: ConsoleSettings, run_id: str | None, page: Path | None, beside: tuple[str, ...]) -> int:
    """Show a run (the newest unless RUN is given): nodes, states, seconds, reasons, artifacts, tracebacks."""
    if beside and page is None:
        raise click.UsageError("--beside is for --html")
    with settings.home() as home:
        run_view = view(home, open_run(home, run_id))
        if page is not None:
            from .artifact_pages import write_run_pages  # late: `run` uses this module too, and draws no page

            write_run_pages(home, run_view, page, [view(home, open_run(home, other)) for other in beside])
        settings.answer(run_view.to_json(), lambda console: _show_run(console, home, run_view))
    return OK


def _show_run(console: Console, home: Home, run_view: RunView) -> None:
    from rich.markup import escape

    table = nodes_table(run_view.outline, blamed(run_view.nodes))
    show_nodes(console, f"{run_view.pipeline}, run {run_view.id}:", run_view.state, table, run_view.seconds)
    parameters = ", ".join(f"{name}={value}" for name, value in run_view.parameters.items())
    console.print(
        escape(f"started {run_view.started:%Y-%m-%d %H:%M} UTC" + (f", with {parameters}" if parameters else ""))
    )
    if used := _used(run_view):
        print_text(console, used)
    if run_view.tags:
        print_text(console, f"tagged {tags_text(run_view.tags)}")
    if run_view.note:
        print_text(console, f"note: {run_view.note}")
    outputs = list(_outputs(run_view.nodes))
    if outputs:
        # Lines, not a table: a URI that is to be copied must not be folded.
        names, kinds = (max(map(len, column)) for column in zip(*((n, kind) for n, kind, _ in outputs), strict=True))
        console.print()
        for name, kind, lies in outputs:
            print_text(console, f"{name:<{names}}  {kind:<{kinds}}  {lies}")
    show_summaries(console, home, run_view.nodes)
    failed = [node for node in run_view if node.error]
    for node in failed[:_FEW]:
        console.print()
        who, reason = (node.refused_by, refusal_of(node)) if node.refused_by else (node.id, node.reason)
        console.print(f"[red]{escape(who)} failed[/]: {escape(reason)}", soft_wrap=True)
        print_text(console, str(node.error).rstrip())
    if len(failed) > _FEW:
        console.print(f"\n{len(failed) - _FEW:,} more failed: `drivetrain logs {run_view.id} NODE` of each")
    for line in run_view.outcome.lines():
        print_text(console, line)


def _used(run_view: RunView) -> str:
    """What a run used of the machine and what the cache saved it, as one line; "" where nothing was measured."""
    from ..pipelines.launcher.costs import amount_of  # late: `run` loads this module too

    worked = [node.resources for node in run_view if node.resources and node.state is not EndState.CACHED]
    reused = [node.resources for node in run_view if node.resources and node.state is EndState.CACHED]
    parts = []
    if worked:
        gigabytes = max(amount_of(each, "peak_memory") for each in worked) / 1e9
        parts.append(f"used {_processors(worked)}, {gigabytes:.2f} GB of memory at most")
    if reused:
        parts.append(f"the cache saved {_processors(reused)}")
    return "; ".join(parts)


def _processors(resources: Sequence[Mapping[str, Any]]) -> str:
    from ..pipelines.launcher.costs import amount_of

    gpu_seconds = sum(amount_of(each, "gpu_seconds") for each in resources)
    cpu = f"{span(sum(amount_of(each, 'cpu_seconds') for each in resources))} of CPU"
    return f"{cpu} and {span(gpu_seconds)} of accelerators" if gpu_seconds else cpu


def _outputs(nodes: Mapping[str, NodeView]) -> Iterator[tuple[str, str, str]]:
    """Name, type and place of each output; where a node has many items, how many there are of each."""
    for node, items in tasks_by_node(nodes).items():
        if len(items) <= _FEW:
            for name in items:
                for key, record in nodes[name].records.items():
                    lies = f"{record.fingerprint[:12]:<12}  {record.external or record.uri}"
                    yield f"{name}.{key}", record.type, lies
            continue
        kinds = Counter((key, record.type) for name in items for key, record in nodes[name].records.items())
        for (key, kind), count in kinds.items():
            yield f"{node}[{len(items):,}].{key}", kind, f"{count:,} of them, which --json lists"


class NodeOutcome(Protocol):
    """How a node ended, in the run at hand or in a past one."""

    @property
    def state(self) -> TaskState:
        """How it ended, or how far it is."""
        ...

    @property
    def seconds(self) -> float:
        """Wall time in seconds."""
        ...

    @property
    def reason(self) -> str:
        """Why it ended so, as one line; "" where there is nothing to say."""
        ...


class RefusedOutcome(NodeOutcome, Protocol):
    """The same, with the later node that refused what this one was about to make."""

    @property
    def refused_by(self) -> str:
        """Its id; "" where none did."""
        ...


@dataclass(frozen=True)
class _Line:
    """What a line says of a node: of its items in a loop together, or of what another node did to it."""

    state: TaskState
    seconds: float
    reason: str


def refusal_of(ended: RefusedOutcome) -> str:
    """What the later node said that refused at a task: "FILE:LINE: TEXT", of its reason "FILE:LINE: NODE: TEXT"."""
    where, _, text = ended.reason.partition(f"{ended.refused_by}: ")
    return f"{where}{text}"


def blamed(nodes: Mapping[str, RefusedOutcome]) -> dict[str, NodeOutcome]:
    """Nodes as a table has them: where a later node refused, before its time, that one is what failed."""
    lines: dict[str, NodeOutcome] = dict(nodes)
    for name, ended in nodes.items():
        if not (later := ended.refused_by):
            continue
        lines[name] = _Line(EndState.BLOCKED, ended.seconds, f"{later} refused what was to come of it")
        for other, blocked in nodes.items():
            if blocked.state is not EndState.BLOCKED:
                continue
            if parse_task(other)[0] == later:
                lines[other] = _Line(EndState.FAILED, blocked.seconds, refusal_of(ended))
            elif blocked.reason == f"{later} is blocked":
                lines[other] = _Line(EndState.BLOCKED, blocked.seconds, f"{later} failed")
    return lines


def nodes_table(outline: Iterable[tuple[str, str]], nodes: Mapping[str, NodeOutcome]) -> Table:
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
                escape(_short(ended)),
            )
    return table


def _short(ended: NodeOutcome) -> str:
    """The reason's first line; of a gate's veto, which is told in full below the table, as much as fits a line."""
    reason = ended.reason.partition("\n")[0].removeprefix(f"{Path.cwd()}/")  # a path from the working folder on
    return f"{reason[:_REASON]}…" if ended.state is EndState.BLOCKED and len(reason) > _REASON else reason


def _lines(node: str, items: Mapping[str, NodeOutcome]) -> Iterator[tuple[str, NodeOutcome]]:
    """A node's lines: one for each item where they are few, else one for all and one for each that went wrong."""
    if not items:
        yield node, _Line(EndState.SKIPPED, 0.0, "there are no items")
    elif len(items) <= _FEW:
        yield from items.items()
    else:
        states = Counter(ended.state for ended in items.values())
        worst = next(state for state in WORST_FIRST if states[state])
        yield (
            f"{node}[{len(items):,}]",
            _Line(worst, sum(ended.seconds for ended in items.values()), counted(states.elements())),
        )
        wrong = [(name, ended) for name, ended in items.items() if ended.state in WORST_FIRST[:3]]
        yield from ((f"  {name}", ended) for name, ended in wrong[:_FEW])
        if len(wrong) > _FEW:
            yield "  ...", _Line(worst, 0.0, f"and {len(wrong) - _FEW:,} more")


def show_nodes(console: Console, title: str, state: RunState, table: Table, seconds: float | None = None) -> None:
    """The table below its run's name and state."""
    from rich.text import Text

    took = f" in {span(seconds)}" if seconds is not None else ""
    console.print()
    console.print(table)
    console.print()
    console.print(Text.assemble(f"{title} ", (state, STYLES[state]), took))


def show_summaries(console: Console, home: Home, nodes: Mapping[str, NodeView]) -> None:
    """What the nodes' outputs say of themselves; of a node with many items, those that hold others up."""
    store = home.payloads.url or str(home.root)
    for items in tasks_by_node(nodes).values():
        shown = items if len(items) <= _FEW else [name for name in items if nodes[name].vetoes][:_FEW]
        for name in shown:
            for output in nodes[name].records:
                show_summary(console, nodes[name], output, store)
                _show_folder(console, home, nodes[name], nodes[name].records[output])
            _show_metrics(console, nodes[name])


def _show_metrics(console: Console, node: NodeView) -> None:
    """What was measured in the work, besides what the summaries of the outputs say."""
    from rich.markup import escape

    said = {name for summary in node.summaries.values() for name in summary.numbers}
    draws = console.encoding.startswith("utf")
    numbers = ", ".join(
        f"{name} {number(value)}{_curve(node.steps.get(name, ())) if draws else ''}"
        for name, value in node.metrics.items()
        if name not in said
    )
    if numbers:
        console.print(f"[bold]{escape(node.id)}[/]: {escape(numbers)}", soft_wrap=True)


def _curve(points: Points) -> str:
    """A metric over its steps as a row of bars behind a space; "" of fewer than three values."""
    values = [value for _, value in points if value is not None]
    if len(values) < 3:
        return ""
    width = min(_CURVE, len(values))
    chosen = [values[round(index * (len(values) - 1) / (width - 1))] for index in range(width)]
    low, high = min(chosen), max(chosen)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return " " + "".join(_BARS[round((value - low) * scale)] for value in chosen)


def show_summary(console: Console, node: NodeView, output: str, store: str) -> None:
    """What an output of a node says of itself, if anything. Its payload lies below `store`, a folder or a URL."""
    from rich.markup import escape

    summary, vetoed = node.summary(output), output in node.vetoes
    if (collected := node.records[output].collected) is not None:
        text = f"{node.id}.{output} was collected by gc, marked {collected}"
        console.print(text, markup=False, style="dim", soft_wrap=True)
    if not summary:
        return
    if summary.rows:
        console.print()
        console.print(_table(console.width, summary))
    if summary.rows or vetoed:
        console.print()
    console.print(f"[yellow]stopped by {escape(node.id)}[/]:" if vetoed else f"[bold]{escape(node.id)}[/]:", end=" ")
    print_text(console, summary.text)
    if node.undone:  # what was said is so no longer
        console.print(f"  since then {node.undone}", markup=False, style="yellow", soft_wrap=True)
    if summary.report and not collected:
        page = f"{store.rstrip('/')}/{node.records[output].uri}/extra/report.html"
        console.print(f"  report: {page}", markup=False, style="dim", soft_wrap=True)


def _show_folder(console: Console, home: Home, node: NodeView, record: ArtifactRecord) -> None:
    """Where a model was pushed to by a relative path, which means another folder once the root was moved."""
    facts = record.properties
    destination, folder = str(facts.get("destination")), facts.get("folder")
    if record.type != PushedModel.__name__ or not folder or folder == destination:
        return
    now = home.base / destination
    if home.base != Path.cwd():
        console.print(f"  folder: {now if now.is_dir() else folder}", markup=False, style="dim", soft_wrap=True)
    if node.state is EndState.COMPLETE:  # not of one that is reused
        pushes = home.store.artifacts(type=record.type, where={"destination": destination})
        before = next((each for each in pushes if each.id < record.id and each.properties.get("folder")), None)
        if before is not None and (earlier := before.properties["folder"]) != folder:
            said = f"note: {node.id} pushed to {folder}; the push before, to {earlier}: the root has moved"
            console.print(said, markup=False, style="yellow", soft_wrap=True)


def _table(width: int, summary: Summary) -> Table:
    """The summary's table, with as many of its columns as the terminal is wide: a folded number cannot be read."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    ends = accumulate(max(map(len, cells)) + 2 for cells in zip(summary.columns, *summary.rows, strict=True))
    count = sum(1 for _ in takewhile(lambda end: end - 2 <= width, ends))
    for at, title in enumerate(summary.columns[:count]):
        table.add_column(escape(title), justify="right" if at else "left", no_wrap=True)
    for row in summary.rows:
        table.add_row(*map(escape, row[:count]))
    return table
