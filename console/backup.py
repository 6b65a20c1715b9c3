"""`backup`: a copy of the metadata, made while runs go on, and put back."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .exit_codes import OK
from .options import ConsoleSettings, print_text, shared

if TYPE_CHECKING:
    from rich.console import Console


@click.command(
    epilog="\b\nExample:\n  drivetrain backup /mnt/backups/\n  drivetrain backup --restore /mnt/backups/metadata.db\n"
)
@click.argument("file", required=False, type=click.Path())
@click.option("--restore", is_flag=True, help="Put FILE in the place of the database, which is kept beside it.")
@shared
def backup(settings: ConsoleSettings, file: str | None, restore: bool) -> int:
    """Copy the metadata to FILE while runs go on, and check the copy; or put a copy back.

    Into a folder FILE/, which is made if need be, or without FILE into the root's backups/, a file named by the time is
    written. Payloads are not copied: they are plain files. Of a PostgreSQL server, pg_dump makes copies.
    """
    from ..metadata.backup import back_up, database_file
    from ..metadata.backup import restore as put_back
    from ..metadata.errors import NoStore

    location = settings.location
    path = database_file(location.store or location.root / "metadata.db")
    if restore:
        if file is None:
            raise click.UsageError("--restore needs FILE, a copy that `drivetrain backup` made")
        kept = put_back(Path(file), path)
        answer = {"restored": str(path), "kept": str(kept) if kept else None}
        settings.answer(answer, lambda console: _show_restored(console, path, kept))
        return OK
    target = Path(file or location.root / "backups").absolute()
    if not file or file.endswith(("/", os.sep)) or target.is_dir():
        target /= f"metadata-{datetime.now(UTC):%Y%m%d-%H%M%S}.db"
    try:
        size = back_up(path, target)
    except NoStore:
        with settings.home():  # says how to get it back, if it was lost
            raise
    text = f"copied {path} to {target}: {size:,} bytes, checked"
    settings.answer({"file": str(target), "bytes": size}, lambda console: print_text(console, text))
    return OK


def _show_restored(console: Console, path: Path, kept: Path | None) -> None:
    print_text(console, f"restored {path}" + (f"; what was there is {kept} now" if kept else ""))
    print_text(console, "`drivetrain fsck` compares it with the payloads")
