"""`kubeflow compile`: a project's pipeline as one YAML file for Kubeflow Pipelines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...errors import InputError
from ..options import OK, Settings, shared

if TYPE_CHECKING:
    from ...pipelines.kubeflow.compiler import Compiled


def compiled(folder: Path) -> Compiled:
    """A project's pipeline in KFP's form, with the settings beside it.

    Raises:
        DrivetrainError: It cannot be built, or not be kept by Kubeflow, or the settings are wrong.
    """
    from ...pipelines import load_pipeline
    from ...pipelines.kubeflow.compiler import compile_pipeline
    from ...pipelines.kubeflow.settings import Settings as Cluster

    function = load_pipeline(folder)
    pipeline = function.build()
    return compile_pipeline(pipeline, Cluster.load(folder), project=function.project, lines=function.lines)


def source_text(source: Path) -> tuple[str, str]:
    """The YAML of a file, or of a project's folder; and what it is called in findings."""
    if source.is_dir():
        return compiled(source).yaml, f"{source} (compiled)"
    try:
        return source.read_text(encoding="utf-8"), str(source)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{source} cannot be read: {error}", fix="name a compiled file, or a project's folder"
        ) from None


@click.command(
    "compile",
    epilog="\b\nExample:\n  drivetrain kubeflow compile examples/flights -o flights.yaml\n"
    "  drivetrain kubeflow compile examples/flights --json\n",
)
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="The file; else it is printed.")
@shared
def compile_(settings: Settings, folder: Path, output: Path | None) -> int:
    """Compile the pipeline in FOLDER for Kubeflow Pipelines: one YAML file of two documents.

    The same project gives the same bytes. What Kubeflow cannot keep is refused at your own line.
    """
    from ...digest import write_durably

    made = compiled(folder)
    if output is not None:
        try:
            write_durably(output, made.yaml.encode())
        except OSError as error:
            raise InputError(f"{output} cannot be written: {error.strerror}", fix="name a file elsewhere") from None
    if settings.json:
        answer = {"name": made.name, "pipeline": made.digest, "nodes": dict(made.nodes)}
        where = {"path": str(output)} if output is not None else {"spec": made.spec, "platform": made.platform}
        settings.answer(answer | where, lambda console: None)
    elif output is None:
        click.echo(made.yaml, nl=False)
    else:
        click.echo(f"{output}: {made.name}, {len(made.nodes)} nodes, version {made.digest[:12]}")
    return OK
