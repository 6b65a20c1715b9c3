"""`show`: one run: its nodes, what they made, and what went wrong."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..pipelines import Home, open_run
from . import tables
from .options import OK, Settings, shared, write_page
from .session import RunView, view

if TYPE_CHECKING:
    from rich.console import Console


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
