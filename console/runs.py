"""`runs`: the runs of a root, beside each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..pipelines import Home
from .exit_codes import OK
from .options import ConsoleSettings, print_text, shared
from .run_table import RunTable, run_table

if TYPE_CHECKING:
    from rich.console import Console


@click.command(
    epilog="\b\nExample:\n  drivetrain runs\n  drivetrain runs --sort -auc --metric log_loss\n"
    "  drivetrain runs --tag baseline --limit 100 --json\n"
)
@click.option("--limit", "-n", type=click.IntRange(min=0), default=20, show_default=True, help="At most so many.")
@click.option("--tag", "tags", multiple=True, metavar="NAME[=VALUE]", help="Only runs with this tag.")
@click.option(
    "--sort", metavar="NAME", help="By a metric or a parameter, the smallest first; -NAME: the largest first."
)
@click.option("--metric", "metrics", multiple=True, metavar="NAME", help="Show this metric before the others.")
@shared
def runs(
    settings: ConsoleSettings, limit: int, tags: tuple[str, ...], sort: str | None, metrics: tuple[str, ...]
) -> int:
    """List past runs, the newest first: state, when, blessing, metrics, parameters that differ, tags.

    Metrics are those of the Evaluator, those of `current().metric` in a component, and of a reused node what it
    reuses. As a DataFrame: `dt.runs()`.
    """
    with settings.home() as home:
        table = run_table(home, limit=limit, tags=tags, sort=sort)
        first = (*([sort.removeprefix("-")] if sort else []), *metrics)
        settings.answer(
            {"runs": [row.to_json() for row in table.rows]}, lambda console: _show(console, home, table, first, tags)
        )
    return OK


def _show(console: Console, home: Home, table: RunTable, first: tuple[str, ...], tags: tuple[str, ...]) -> None:
    if table.rows:
        table.show(console, first)
    else:
        which = f" with {', '.join(tags)}" if tags else "; start one with `drivetrain run FOLDER`"
        print_text(console, f"no runs in {home.root}{which}")
