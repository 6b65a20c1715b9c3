"""`schema`: see what the data should look like, have it proposed from statistics, accept it, move it from and to TFX.

The schema is a file of the user's project, under version control; validation is always against what was accepted.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import InputError
from ..pipelines import open_run
from .groups import Verbs
from .schema_files import inferred, proposed, write_text
from .schema_update import accept_patch, diff, update
from .session import RunView, view
from .settings import OK, Settings, shared

if TYPE_CHECKING:
    from rich.console import Console

_RUN = click.option("--run", "run_id", metavar="RUN", help="Of which run; the newest unless given.")


@click.group(
    cls=Verbs, epilog="\b\nExample:\n  drivetrain schema infer\n  drivetrain schema accept\n  drivetrain schema diff\n"
)
def schema() -> None:
    """See, propose and accept the schema: what the data should look like."""


@schema.command(epilog="\b\nExample:\n  drivetrain schema show\n  drivetrain schema show --run 20261121-093000-1a2b\n")
@_RUN
@shared
def show(settings: Settings, run_id: str | None) -> int:
    """Print the schema that a run validated against."""
    with settings.home() as home:
        found = view(home, open_run(home, run_id))
        node, path = _schema(found)
        text = path.read_text(encoding="utf-8")
        answer = {"run": found.id, "node": node, "schema": text}
        settings.answer(answer, lambda console: print_text(console, text))
    return OK


@schema.command(epilog="\b\nExample:\n  drivetrain schema infer\n  drivetrain schema infer --slack 0.1 > schema.yaml\n")
@_RUN
@click.option("--split", help="From which split; the first that has rows unless given.")
@click.option(
    "--slack",
    type=float,
    metavar="SHARE",
    help="Propose ranges of numbers, wider by this share of their span at both ends, and shares of missing rows.",
)
@shared
def infer(settings: Settings, run_id: str | None, split: str | None, slack: float | None) -> int:
    """Print the schema that a run's statistics propose: types, presence, small domains, each with its evidence."""
    with settings.home() as home:
        found = view(home, open_run(home, run_id))
        text = inferred(found, split, slack)
        settings.answer({"run": found.id, "schema": text}, lambda console: print_text(console, text))
    return OK


@schema.command(
    epilog="\b\nExample:\n  drivetrain schema accept\n  drivetrain schema accept --to data/schema.yaml --replace\n"
    "  drivetrain schema update && drivetrain schema accept schema.patch.yaml --only 1,3\n"
)
@click.argument("patch", type=click.Path(path_type=Path, dir_okay=False), required=False)
@click.option("--only", metavar="IDS", help="Which of the patch's changes, e.g. 1,3; all unless given.")
@_RUN
@click.option(
    "--to",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Which file to write; schema.yaml in the run's project, or beside the patch, unless given.",
)
@click.option("--replace", is_flag=True, help="Also where the file holds another schema.")
@shared
def accept(
    settings: Settings, patch: Path | None, only: str | None, run_id: str | None, to: Path | None, replace: bool
) -> int:
    """Write the proposed schema into the project, or make the changes of a PATCH in it.

    Without a PATCH it is what SchemaGen of that run proposed, else what the run's statistics propose.
    """
    if patch is not None:
        return accept_patch(settings, patch, only, to)
    if only is not None:
        raise InputError("--only is for a patch", fix="name the file that `drivetrain schema update` wrote")
    with settings.home() as home:
        run = open_run(home, run_id)
        text = proposed(home, run)
    target = to or run.project / "schema.yaml"
    before = target.read_text(encoding="utf-8") if target.is_file() else ""
    changes = list(difflib.unified_diff(before.splitlines(), text.splitlines(), "accepted", "proposed", lineterm=""))
    if before and changes and not replace:
        if not settings.json:
            click.echo("\n".join(changes))
        raise InputError(
            f"{target} holds another schema, maybe with edits made by hand",
            fix="take over by hand what is right, or give --replace",
        )
    if changes:
        write_text(target, text, "--to")
    said = f"{'wrote' if changes else 'already accepted:'} {target}"
    answer = {"run": run.id, "file": str(target), "changed": bool(changes)}
    settings.answer(answer, lambda console: console.print(said, markup=False, soft_wrap=True))
    return OK


_FILE = click.Path(path_type=Path, dir_okay=False)


@schema.command("import", epilog="\b\nExample:\n  drivetrain schema import tfx/schema.pbtxt > schema.yaml\n")
@click.argument("file", type=_FILE)
@shared
def import_(settings: Settings, file: Path) -> int:
    """Print the schema that a TFX schema.pbtxt says; what could not be taken over is told on standard error."""
    from .. import data

    read, notes = data.load_pbtxt(file)
    _answer_noted(settings, data.schema_to_yaml(read), notes)
    return OK


@schema.command(epilog="\b\nExample:\n  drivetrain schema export examples/flights/schema.yaml > schema.pbtxt\n")
@click.argument("file", type=_FILE, default="schema.yaml")
@shared
def export(settings: Settings, file: Path) -> int:
    """Print a schema.yaml as TFX's schema.pbtxt; what TFDV has no words for is told on standard error.

    FILE is schema.yaml in this folder unless given.
    """
    from .. import data

    text, notes = data.schema_to_pbtxt(data.load_schema(file))
    _answer_noted(settings, text, notes)
    return OK


def _answer_noted(settings: Settings, text: str, notes: tuple[str, ...]) -> None:
    if not settings.json:
        for note in notes:
            click.echo(f"note: {note}", err=True)
    settings.answer({"schema": text, "notes": notes}, lambda console: print_text(console, text))


def print_text(console: Console, text: str) -> None:
    """Print a text as it is."""
    console.print(text.rstrip("\n"), markup=False, soft_wrap=True)


def _schema(found: RunView) -> tuple[str, Path]:
    """The node that gave the run its schema, and the file."""
    for node in found:
        for artifact, record in zip(node.outputs.values(), node.records.values(), strict=True):
            path = artifact.content / "schema.yaml"
            if record.type == "Schema" and path.is_file():
                return node.id, path
    raise InputError(f"run {found.id} has no schema", fix="`drivetrain schema infer` proposes one from its statistics")


schema.add_command(diff)
schema.add_command(update)
