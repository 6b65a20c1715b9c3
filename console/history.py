"""`runs`, `show` and `why`: what was done, with what result, for what reason."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..metadata import ExecutionRecord, explain
from ..pipelines import Home, Run, list_runs, open_run
from . import tables
from .live import STYLES
from .session import RunView, origin, run_of, view
from .settings import OK, Settings, shared, write_page

if TYPE_CHECKING:
    from rich.console import Console


@click.command(epilog="\b\nExample:\n  drivetrain runs\n  drivetrain runs --limit 100 --json\n")
@click.option("--limit", "-n", default=20, show_default=True, help="At most so many, the newest first.")
@shared
def runs(settings: Settings, limit: int) -> int:
    """List past runs: id, pipeline, state, when, parameters."""
    with settings.home() as home:
        found = list_runs(home, limit)
        facts = [
            {
                "run": run.id,
                "pipeline": run.pipeline.name,
                "state": run.state,
                "started": run.context.properties["started"],
                "finished": run.context.properties.get("finished"),
                "parameters": dict(run.parameters),
            }
            for run in found
        ]
        settings.answer({"runs": facts}, lambda console: _show_runs(console, home, found))
    return OK


def _show_runs(console: Console, home: Home, found: list[Run]) -> None:
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    if not found:
        console.print(f"no runs in {home.root}; start one with `drivetrain run FOLDER`", markup=False)
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for title in ("run", "pipeline", "state", "started (UTC)"):
        table.add_column(title, no_wrap=True)
    table.add_column("parameters", overflow="fold")
    for run in found:
        given = ", ".join(f"{name}={value}" for name, value in run.parameters.items())
        started = str(run.context.properties["started"])[:16].replace("T", " ")
        table.add_row(run.id, run.pipeline.name, Text(run.state, STYLES[run.state]), started, escape(given))
    console.print(table)


@click.command(epilog="\b\nExample:\n  drivetrain show\n  drivetrain show 20261121-093000-1a2b --html run.html\n")
@click.argument("run_id", metavar="[RUN]", required=False)
@click.option("--html", "page", type=click.Path(path_type=Path, dir_okay=False), help="Also draw it, on a page.")
@shared
def show(settings: Settings, run_id: str | None, page: Path | None) -> int:
    """Show a run (the newest unless RUN is given): nodes, states, seconds, reasons, artifacts, tracebacks."""
    with settings.home() as home:
        found = view(home, open_run(home, run_id))
        if page is not None:
            write_page(page, found.to_html())
        settings.answer(found.to_json(), lambda console: _show_run(console, home, found))
    return OK


def _show_run(console: Console, home: Home, found: RunView) -> None:
    from rich.markup import escape

    table = tables.nodes_table(found.outline, found.nodes)
    # A clock that was set back meanwhile makes no run shorter than nothing.
    took = max(0.0, (found.finished - found.started).total_seconds()) if found.finished else None
    tables.show_nodes(console, f"{found.pipeline}, run {found.id}:", found.state, table, took)
    given = ", ".join(f"{name}={value}" for name, value in found.parameters.items())
    console.print(escape(f"started {found.started:%Y-%m-%d %H:%M} UTC" + (f", with {given}" if given else "")))
    made = [(f"{node.id}.{key}", record) for node in found for key, record in node.records.items()]
    if made:
        # Lines, not a table: a URI that is to be copied must not be folded.
        names, kinds = (max(map(len, column)) for column in zip(*((n, r.type) for n, r in made), strict=True))
        console.print()
        for name, record in made:
            line = f"{name:<{names}}  {record.type:<{kinds}}  {record.fingerprint[:12]:<12}"
            console.print(f"{line}  {record.external or record.uri}", markup=False, soft_wrap=True)
    for node in found:
        ours = [record for record in node.records.values() if record.external is None]
        tables.show_made(console, home, node.id, ours, by_slice=True)
        if node.error:
            console.print()
            console.print(f"[red]{escape(node.id)} failed[/]")
            console.print(node.error.rstrip(), markup=False, soft_wrap=True)


@click.command(epilog="\b\nExample:\n  drivetrain why Transform\n  drivetrain why Trainer --run 20261121-093000-1a2b\n")
@click.argument("node")
@click.option("--run", "run_id", metavar="RUN", help="In which run; the newest unless given.")
@shared
def why(settings: Settings, node: str, run_id: str | None) -> int:
    """Say why NODE ran, or why not: which part of its cache key changed since its last execution before that run."""
    with settings.home() as home:
        answer = _why(home, open_run(home, run_id), node)
        settings.answer(answer, lambda console: _show_why(console, answer))
    return OK


def _why(home: Home, run: Run, node: str) -> dict[str, object]:
    found = view(home, run)[node]
    answer: dict[str, object] = {"run": run.id, "node": node, "state": found.state, "reason": found.reason}
    if found.execution is None:
        return answer
    execution = home.store.execution(found.execution)
    answer["cache_key"] = execution.cache_key
    if execution.state == "CACHED":
        return answer | {"cached_from": origin(home, execution)}
    now = home.store.preimage(execution.cache_key) if execution.cache_key else None
    before = _before(home, run, node, execution)
    if now is None or before is None or before.cache_key is None:
        return answer | {"compared_with": None, "changes": []}
    old = home.store.preimage(before.cache_key) or {}
    return answer | {
        "compared_with": {"run": run_of(home, before), "state": before.state},
        "changes": explain(old, now),
    }


def _before(home: Home, run: Run, node: str, execution: ExecutionRecord) -> ExecutionRecord | None:
    """The last execution of a node, in an earlier run, that got as far as a cache key."""
    context = home.store.find_context("node", f"{run.pipeline.name}.{node.partition('[')[0]}")
    if context is None:
        return None
    for earlier in home.store.executions(contexts=[context]):
        same = earlier.properties.get("node", node) == node
        if same and earlier.id < execution.id and earlier.cache_key and run_of(home, earlier) != run.id:
            return earlier
    return None


def _show_why(console: Console, answer: Mapping[str, object]) -> None:
    from rich.text import Text

    state = str(answer["state"])
    console.print(Text.assemble(f"{answer['node']} in run {answer['run']}: ", (state, STYLES[state])))
    changes, compared = answer.get("changes"), answer.get("compared_with")
    if not isinstance(compared, dict):
        console.print(f"  {answer['reason']}", markup=False)
        return
    if not changes:
        console.print(f"  {answer['reason']}", markup=False)
        console.print(f"  its key is that of run {compared['run']} ({compared['state']})", markup=False)
        return
    assert isinstance(changes, list)
    console.print(f"  since run {compared['run']}:", markup=False)
    for line in changes:
        console.print(f"  - {line}", markup=False, soft_wrap=True)
