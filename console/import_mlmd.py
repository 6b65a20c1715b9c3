"""`import-mlmd`: what TFX recorded, taken into the store."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .options import OK, Settings, shared, terminal

if TYPE_CHECKING:
    from rich.console import Console

    from ..metadata.mlmd import MlmdImport


@click.command(
    epilog="\b\nExample:\n  drivetrain import-mlmd tfx_metadata/taxi/metadata.db\n  drivetrain runs\n"
    "  drivetrain lineage Pusher\n"
)
@click.argument("file", type=click.Path(path_type=Path))
@shared
def import_mlmd(settings: Settings, file: Path) -> int:
    """Take runs, artifacts and lineage out of FILE, an ML Metadata store (SQLite) as TFX writes it.

    Payloads stay where they are: `runs`, `show`, `lineage` and `diff` tell of them, nothing here reads or deletes them.
    FILE is only read. To do it again takes in what was added since.
    """
    from .imported import import_runs

    with settings.home(readonly=False) as home, terminal(stderr=True).status("reading") as status:
        found = import_runs(home, file, lambda count, total, what: status.update(f"{count:,} {what}"))
        status.stop()
        settings.answer(
            {**asdict(found), "runs": len(found.runs)}, lambda console: _show(console, settings, file, found)
        )
    return OK


def _show(console: Console, settings: Settings, file: Path, found: MlmdImport) -> None:
    new = [f"{found.artifacts:,} artifacts", f"{found.executions:,} executions", f"{found.events:,} events"]
    if found.runs or found.executions or found.artifacts:
        console.print(f"from {file}: {len(found.runs):,} runs, {', '.join(new)}", markup=False, soft_wrap=True)
    else:
        console.print(f"nothing new in {file}", markup=False, soft_wrap=True)
    if found.updated:
        console.print(f"  {found.updated:,} had changed since the last time")
    if found.passed_on:
        told = "outputs had been made before: here what passes an artifact on takes it, and one execution made it"
        console.print(f"  {found.passed_on:,} {told}", markup=False, soft_wrap=True)
    if found.left_out:
        console.print(f"  {found.left_out:,} rows were left out: they name what is not there", markup=False)
    console.print(f"  see: drivetrain runs{settings.spelled}", markup=False, style="dim", soft_wrap=True)
