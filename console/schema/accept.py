"""`schema accept`: a proposed schema, or changes of a patch, written into the project."""

from __future__ import annotations

import difflib
from pathlib import Path

import click

from ...digest import write_durably
from ...errors import InputError
from ...pipelines import open_run
from ..exit_codes import OK
from ..options import RUN, ConsoleSettings, print_text, shared
from ..terminal import echo
from .infer import proposed_schema


@click.command(
    epilog="\b\nExample:\n  drivetrain schema accept\n  drivetrain schema accept --to data/schema.yaml --replace\n"
    "  drivetrain schema update && drivetrain schema accept schema.patch.yaml --only 1,3\n"
)
@click.argument("patch", type=click.Path(path_type=Path, dir_okay=False), required=False)
@click.option("--only", metavar="IDS", help="Which of the patch's changes, e.g. 1,3; all unless given.")
@RUN
@click.option(
    "--to",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Which file to write; schema.yaml in the run's project, or beside the patch, unless given.",
)
@click.option("--replace", is_flag=True, help="Also where the file holds another schema.")
@shared
def accept(
    settings: ConsoleSettings, patch: Path | None, only: str | None, run_id: str | None, to: Path | None, replace: bool
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
        text = proposed_schema(home, run)
    target = to or run.project / "schema.yaml"
    before = target.read_text(encoding="utf-8") if target.is_file() else ""
    changes = list(difflib.unified_diff(before.splitlines(), text.splitlines(), "accepted", "proposed", lineterm=""))
    if before and changes and not replace:
        if not settings.json:
            echo("\n".join(changes))
        raise InputError(
            f"{target} holds another schema, maybe with edits made by hand",
            fix="take over by hand what is right, or give --replace",
        )
    if changes:
        write_text(target, text, "--to")
    said = f"{'wrote' if changes else 'already accepted:'} {target}"
    answer = {"run": run.id, "file": str(target), "changed": bool(changes)}
    settings.answer(answer, lambda console: print_text(console, said))
    return OK


def write_text(target: Path, text: str, option: str) -> None:
    """Write a file of the user's; `option` names it on the command line.

    Raises:
        InputError: It cannot be written.
    """
    try:
        write_durably(target, text.encode())
    except OSError as error:
        raise InputError(
            f"{target} cannot be written: {error.strerror}", fix=f"name another file with {option}"
        ) from None


def accept_patch(settings: ConsoleSettings, path: Path, only: str | None, to: Path | None) -> int:
    """Make a patch's changes in the project's schema.yaml; its comments stay."""
    from ... import data

    patch = data.SchemaPatch.load(path)
    target = to or path.parent / "schema.yaml"
    ids = None if only is None else _ids(only)
    schema = patch.apply(data.load_schema(target), ids)
    before = target.read_text("utf-8")
    text, kept = data.edit_yaml(before, schema, str(target))
    if text != before:
        write_text(target, text, "--to")
    accepted = [change.id for change in patch.changes if ids is None or change.id in ids]
    message = (
        f"{'wrote' if text != before else 'already so:'} {target} ({len(accepted)} of {len(patch.changes)} changes)"
    )
    message += "" if kept else "; written again, without its comments"
    answer = {"file": str(target), "changed": text != before, "accepted": accepted, "comments_kept": kept}
    settings.answer(answer, lambda console: print_text(console, message))
    return OK


def _ids(only: str) -> set[int]:
    parts = [part.strip() for part in only.split(",") if part.strip()]
    if not parts or not all(part.isdecimal() for part in parts):
        raise InputError(f"--only {only!r} is not a list of changes", fix="give their numbers, e.g. --only 1,3")
    return {int(part) for part in parts}
