"""`schema import` and `schema export`: from and to TFX's schema.pbtxt."""

from __future__ import annotations

from pathlib import Path

import click

from ..exit_codes import OK
from ..options import ConsoleSettings, print_text, shared
from ..terminal import echo

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command("import", epilog="\b\nExample:\n  drivetrain schema import tfx/schema.pbtxt > schema.yaml\n")
@click.argument("file", type=_FILE)
@shared
def import_(settings: ConsoleSettings, file: Path) -> int:
    """Print the schema that a TFX schema.pbtxt says; what cannot be taken over is named on standard error."""
    from ... import data

    read, notes = data.load_pbtxt(file)
    _answer_noted(settings, data.schema_to_yaml(read), notes)
    return OK


@click.command(epilog="\b\nExample:\n  drivetrain schema export examples/flights/schema.yaml > schema.pbtxt\n")
@click.argument("file", type=_FILE, default="schema.yaml")
@shared
def export(settings: ConsoleSettings, file: Path) -> int:
    """Print a schema.yaml as TFX's schema.pbtxt; what TFDV cannot say is named on standard error.

    FILE is schema.yaml in this folder unless given.
    """
    from ... import data

    text, notes = data.schema_to_pbtxt(data.load_schema(file))
    _answer_noted(settings, text, notes)
    return OK


def _answer_noted(settings: ConsoleSettings, text: str, notes: tuple[str, ...]) -> None:
    if not settings.json:
        for note in notes:
            echo(f"note: {note}", err=True)
    settings.answer({"schema": text, "notes": notes}, lambda console: print_text(console, text))
