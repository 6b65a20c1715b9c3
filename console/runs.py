"""`runs`: the runs of a root, the newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..pipelines import Home, Run, UnreadableRun, recorded_runs
from .exit_codes import OK
from .live import STYLES
from .options import ConsoleSettings, shared

if TYPE_CHECKING:
    from rich.console import Console


@click.command(epilog="\b\nExample:\n  drivetrain runs\n  drivetrain runs --limit 100 --json\n")
@click.option("--limit", "-n", default=20, show_default=True, help="At most so many, the newest first.")
@shared
def runs(settings: ConsoleSettings, limit: int) -> int:
    """List past runs: id, pipeline, state, when, parameters."""
    with settings.home() as home:
        listed = recorded_runs(home, limit)
        settings.answer({"runs": [_facts(run) for run in listed]}, lambda console: _show_runs(console, home, listed))
    return OK


def _facts(run: Run | UnreadableRun) -> dict[str, Any]:
    """What `--json` prints of a run; of one that cannot be read, what its record says, and why, as `unreadable`."""
    recorded = run.context.properties
    return {
        "run": run.id,
        "pipeline": recorded.get("pipeline"),
        "state": run.state,
        "started": recorded.get("started"),
        "finished": recorded.get("finished"),
        "parameters": dict(run.parameters) if isinstance(run, Run) else None,
        **({} if isinstance(run, Run) else {"unreadable": run.error.message}),
    }


def _show_runs(console: Console, home: Home, listed: list[Run | UnreadableRun]) -> None:
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
        recorded = run.context.properties
        if isinstance(run, Run):
            note = escape(", ".join(f"{name}={value}" for name, value in run.parameters.items()))
        else:
            note = f"[dim]unreadable: {escape(run.error.message)}; {escape(run.error.fix or '')}[/]"
        started = str(recorded.get("started", ""))[:16].replace("T", " ")
        state = Text(run.state, STYLES.get(run.state, "dim"))  # a newer release may have states of its own
        table.add_row(run.id, str(recorded.get("pipeline", "")), state, started, note)
    console.print(table)
