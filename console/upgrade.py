"""`upgrade`: the metadata of an earlier release, brought to this one's schema."""

from __future__ import annotations

import click

from .exit_codes import OK
from .options import ConsoleSettings, print_text, shared


@click.command(epilog="\b\nExample:\n  drivetrain upgrade\n  drivetrain upgrade --root /srv/flights/.drivetrain\n")
@shared
def upgrade(settings: ConsoleSettings) -> int:
    """Migrate the metadata of an earlier release to this one's schema; a copy is kept beside it.

    It is done whole or not at all. Earlier releases cannot open it afterwards. End all runs before. Of a PostgreSQL
    store, pg_dump makes the copy: do that first.
    """
    from ..metadata.backup import upgrade as bring_up_to_date

    location = settings.location
    done = bring_up_to_date(location.store or location.root / "metadata.db")
    kept = f"; as it was it is {done.kept} now" if done.kept else ""
    said = "is up to date" if done.before == done.now else f"had schema version {done.before} and has {done.now}{kept}"
    answer = {"before": done.before, "now": done.now, "kept": str(done.kept) if done.kept else None}
    settings.answer(answer, lambda console: print_text(console, f"{done.location} {said}"))
    return OK
