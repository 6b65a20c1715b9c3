"""`fsck`: whether what is stored is whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .exit_codes import CRASH, OK
from .options import ConsoleSettings, shared

if TYPE_CHECKING:
    from rich.console import Console

    from ..metadata import FsckReport


@click.command(
    epilog="\b\nExit codes:\n  0  clean, or repaired\n  1  something was found\n"
    "\n\b\nExample:\n  drivetrain fsck\n  drivetrain fsck --repair\n"
)
@click.option("--repair", is_flag=True, help="Put in order what was found; the next run makes lost artifacts anew.")
@shared
def fsck(settings: ConsoleSettings, repair: bool) -> int:
    """Check every payload against its digest, and look for what crashes left behind.

    Safe while pipelines run.
    """
    from ..metadata import fsck as check
    from ..pipelines.kubeflow.records import sync_all

    with settings.home() as home:
        report = check(home.store, home.root, repair, take_in=lambda: sync_all(home))
        settings.answer(report.to_dict(), lambda console: _show_report(console, report))
    return OK if report.clean or (report.repaired and not report.database) else CRASH


def _show_report(console: Console, report: FsckReport) -> None:
    from rich.markup import escape

    problems: dict[str, list[str]] = {
        "the database is damaged": list(report.database),
        "payload missing": list(report.missing),
        "payload changed": [f"{uri}: {problem}" for uri, problem in report.corrupt],
        "payload that no artifact names": list(report.orphans),
        "left in staging": list(report.staging),
        "claim of a dead process": list(report.claims),
        "execution of a dead process": [str(number) for number in report.executions],
    }
    for what, items in problems.items():
        for item in items:
            console.print(f"[red]{what}[/]: {escape(item)}", soft_wrap=True)
    checked = f"{report.checked} payloads checked" + (f", {report.external} external" if report.external else "")
    if report.clean:
        console.print(f"[green]clean[/]: {checked}")
    elif report.repaired:
        console.print(f"{checked}; put in order" + (", but for the database" if report.database else ""))
    else:
        console.print(f"{checked}; `drivetrain fsck --repair` puts this in order", markup=False)
