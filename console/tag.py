"""`tag`: tags and the note of a run, at any time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..pipelines import Run, open_run, tag_run
from .exit_codes import OK
from .options import RUN, ConsoleSettings, parse_tag, print_text, shared, tags_text

if TYPE_CHECKING:
    from rich.console import Console


@click.command(
    epilog="\b\nExample:\n  drivetrain tag baseline team=risk\n"
    "  drivetrain tag --run 20261121-093000-1a2b --remove baseline --note 'too few epochs'\n"
)
@click.argument("tags", nargs=-1, metavar="[NAME[=VALUE]]...")
@RUN
@click.option("--remove", multiple=True, metavar="NAME", help="Take this tag away.")
@click.option("--note", metavar="TEXT", help="Note this of the run, in place of an earlier note.")
@shared
def tag(
    settings: ConsoleSettings, tags: tuple[str, ...], run_id: str | None, remove: tuple[str, ...], note: str | None
) -> int:
    """Tag a run (the newest unless --run names one), or add a note to it; without either, show both.

    `drivetrain runs --tag NAME` lists the runs with a tag. A new value of a tag replaces the one before.
    """
    changes = {name: value or "" for name, value in map(parse_tag, tags)} | dict.fromkeys(remove)
    with settings.home(readonly=not changes and note is None) as home:
        run = open_run(home, run_id)
        if changes or note is not None:
            run = tag_run(home, run, changes, note)
        answer = {"run": run.id, "tags": dict(run.tags), "note": run.note}
        settings.answer(answer, lambda console: _show(console, run))
    return OK


def _show(console: Console, run: Run) -> None:
    print_text(console, f"run {run.id}: {tags_text(run.tags) or 'no tags'}")
    if run.note:
        print_text(console, run.note)
