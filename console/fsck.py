"""`fsck`: whether what is stored is whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..metadata.errors import RESTORE
from .exit_codes import CRASH, OK
from .options import ConsoleSettings, print_text, shared

if TYPE_CHECKING:
    from rich.console import Console

    from ..metadata.fsck import FsckReport
    from ..pipelines import Home


@click.command(
    epilog="\b\nExit codes:\n  0  clean, or repaired\n  1  something was found\n"
    "\n\b\nExample:\n  drivetrain fsck\n  drivetrain fsck --repair --dry-run\n  drivetrain fsck --repair\n"
    "  drivetrain fsck --undo\n  drivetrain fsck --rebuild\n"
)
@click.option("--repair", is_flag=True, help="Put in order what was found; the next run makes lost artifacts again.")
@click.option("--dry-run", is_flag=True, help="With --repair, say what it would do and do nothing.")
@click.option("--undo", is_flag=True, help="Take back what the last repair did to artifacts that are whole (again).")
@click.option("--rebuild", is_flag=True, help="Rebuild a lost or damaged database from the records of the payloads.")
@shared
def fsck(settings: ConsoleSettings, repair: bool, dry_run: bool, undo: bool, rebuild: bool) -> int:
    """Check every payload against its digest, and look for what crashes left behind.

    Safe while pipelines run.
    """
    from ..metadata.fsck import fsck as check
    from ..pipelines.launcher.run_records import sync_all

    if sum((undo, rebuild, repair)) > 1 or (dry_run and not repair):
        raise click.UsageError("give one of --repair, --undo and --rebuild; --dry-run only with --repair")
    if rebuild:
        return _rebuild(settings)
    with settings.home(readonly=not undo and (dry_run or not repair)) as home:
        if undo:
            return _undo(settings, home)
        report = check(
            home.store,
            home.root,
            repair and not dry_run,
            take_in=lambda: sum(len(synced.brought) for synced in sync_all(home)),
        )
        settings.answer(report.to_dict(), lambda console: _show_report(console, report, dry_run=dry_run))
    return OK if report.clean or report.repaired else CRASH


def _rebuild(settings: ConsoleSettings) -> int:
    from ..pipelines.launcher.rebuild import UNRECORDED, rebuild

    report = rebuild(settings.location)

    def show(console: Console) -> None:
        if report.replaced:
            print_text(console, f"the database that was here is {report.replaced} now")
        for name, why in report.ignored:
            print_text(console, f"left out records/{name}: {why}")
        for run in report.lost:
            print_text(
                console, f"lost: run {run}, of which there are only logs; it executed nothing, or its records are gone"
            )
        for uri in report.unnamed:
            print_text(console, f"no record names the payload {uri}")
        known = f"{report.runs} runs and {report.executions} executions are known again, with parameters and metrics"
        print_text(console, f"{known}; `drivetrain fsck` compares them with the payloads")
        print_text(console, f"not in any record, and lost: {UNRECORDED}")

    settings.answer(report.to_dict(), show)
    return CRASH if report.ignored else OK


def _undo(settings: ConsoleSettings, home: Home) -> int:
    from ..metadata.fsck import undo

    revived, retired = undo(home.store, home.root)

    def show(console: Console) -> None:
        for what, uris in (
            ("in use again", revived),
            ("stays retired, as its bytes, or those it was made from, are not whole", retired),
        ):
            for uri in uris:
                print_text(console, f"{what}: {uri}")

    settings.answer({"revived": revived, "retired": retired}, show)
    return CRASH if retired else OK


def _show_report(console: Console, report: FsckReport, *, dry_run: bool) -> None:
    from rich.markup import escape

    retired = len(report.missing) + len(report.corrupt) + len(report.derived)
    deleted = len(report.orphans) + len(report.staging)
    # What is wrong, what a repair would do, what it did.
    problems: dict[tuple[str, str, str], list[str]] = {
        ("the database is damaged", "refuse", ""): list(report.database),
        ("the marker is not as it should be", "refuse", "not touched"): list(report.marker),
        ("payload missing", "retire the artifact", "artifact retired"): list(report.missing),
        ("payload changed", "retire the artifact, leave the payload", "artifact retired, payload left"): [
            f"{uri}: {problem}" for uri, problem in report.corrupt
        ],
        ("made from a changed payload", "retire the artifact, leave the payload", "artifact retired, payload left"): (
            list(report.derived)
        ),
        ("payload that no artifact names", "delete it", "deleted"): list(report.orphans),
        ("left in staging", "delete it", "deleted"): list(report.staging),
        ("claim of a dead process", "release it", "released"): list(report.claims),
        ("execution of a dead process", "record that it was abandoned", "recorded as abandoned"): [
            str(number) for number in report.executions
        ],
    }
    for (what, would, did), items in problems.items():
        for item in items:
            repair = f" [dim](--repair would: {would})[/]" if dry_run else f" → {did}" if report.repaired else ""
            console.print(f"[red]{what}[/]: {escape(item)}{repair}", soft_wrap=True)
    if report.brought:
        brought = f"{report.brought} executions that the store did not know were taken in from their records"
        console.print(brought, soft_wrap=True)
    if report.elsewhere:
        console.print(f"{len(report.elsewhere)} payloads are in the roots of other hosts, and were not looked at")
    checked = f"{report.checked} payloads checked" + (f", {report.external} external" if report.external else "")
    if report.clean:
        console.print(f"[green]clean[/]: {checked}")
    elif report.database:
        print_text(console, f"{checked}; {RESTORE}")
    elif report.marker:
        console.print(f"{checked}; nothing can be repaired until the marker is in order")
    elif report.repaired:
        counts = {
            "artifacts retired": retired,
            "folders deleted": deleted,
            "claims released": len(report.claims),
            "executions recorded as abandoned": len(report.executions),
        }
        done = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        print_text(console, f"{checked}; put in order: {done}")
        if retired:
            undo = (
                "the next run makes again what it needs; `drivetrain fsck --undo` takes the retiring back, of what is"
            )
            print_text(console, f"{undo} whole (again)")
        if deleted:
            console.print("what was deleted had no use, and stays deleted", markup=False)
    else:
        console.print(f"{checked}; `drivetrain fsck --repair` puts this in order", markup=False)
