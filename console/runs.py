"""`runs`: the runs of a root, the newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..pipelines import Home, Run, list_runs
from .live import STYLES
from .options import OK, ConsoleSettings, shared

if TYPE_CHECKING:
    from rich.console import Console


@click.command(epilog="\b\nExample:\n  drivetrain runs\n  drivetrain runs --limit 100 --json\n")
@click.option("--limit", "-n", default=20, show_default=True, help="At most so many, the newest first.")
@shared
def runs(settings: ConsoleSettings, limit: int) -> int:
    """List past runs: id, pipeline, state, when, parameters."""
    with settings.home() as home:
        listed = list_runs(home, limit)
        facts = [
            {
                "run": run.id,
                "pipeline": run.pipeline.name,
                "state": run.state,
                "started": run.context.properties["started"],
                "finished": run.context.properties.get("finished"),
                "parameters": dict(run.parameters),
            }
            for run in listed
        ]
        settings.answer({"runs": facts}, lambda console: _show_runs(console, home, listed))
    return OK


def _show_runs(console: Console, home: Home, listed: list[Run]) -> None:
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    if not listed:
        console.print(f"no runs in {home.root}; start one with `drivetrain run FOLDER`", markup=False)
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for title in ("run", "pipeline", "state", "started (UTC)"):
        table.add_column(title, no_wrap=True)
    table.add_column("parameters", overflow="fold")
    for run in listed:
        parameters = ", ".join(f"{name}={value}" for name, value in run.parameters.items())
        started = str(run.context.properties["started"])[:16].replace("T", " ")
        table.add_row(run.id, run.pipeline.name, Text(run.state, STYLES[run.state]), started, escape(parameters))
    console.print(table)
