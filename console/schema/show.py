"""`schema show`: the schema that a run validated against."""

from __future__ import annotations

from pathlib import Path

import click

from ...errors import InputError
from ...pipelines import open_run
from ..exit_codes import OK
from ..options import RUN, ConsoleSettings, print_text, shared
from ..session import RunView, view


@click.command(epilog="\b\nExample:\n  drivetrain schema show\n  drivetrain schema show --run 20261121-093000-1a2b\n")
@RUN
@shared
def show(settings: ConsoleSettings, run_id: str | None) -> int:
    """Print the schema that a run validated against."""
    with settings.home() as home:
        run_view = view(home, open_run(home, run_id))
        node, path = _schema(run_view)
        text = path.read_text(encoding="utf-8")
        answer = {"run": run_view.id, "node": node, "schema": text}
        settings.answer(answer, lambda console: print_text(console, text))
    return OK


def _schema(run_view: RunView) -> tuple[str, Path]:
    """The node that gave the run its schema, and the file."""
    for node in run_view:
        for artifact, record in zip(node.outputs.values(), node.records.values(), strict=True):
            path = artifact.content / "schema.yaml"
            if record.type == "Schema" and path.is_file():
                return node.id, path
    raise InputError(
        f"run {run_view.id} has no schema", fix="`drivetrain schema infer` proposes one from its statistics"
    )
