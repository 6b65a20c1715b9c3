"""`kubeflow compile`: a project's pipeline as one YAML file for Kubeflow Pipelines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...errors import InputError
from ..exit_codes import OK
from ..options import ConsoleSettings, pipeline_option, shared
from ..terminal import echo

if TYPE_CHECKING:
    from ...pipelines.kubeflow.compiler import CompiledPipeline


def compiled(folder: Path, which: str | None = None) -> CompiledPipeline:
    """A project's pipeline compiled for KFP with the project's kubeflow.yaml.

    Raises:
        DrivetrainError: It cannot be built, Kubeflow cannot run it, or the settings are wrong.
    """
    from ...pipelines import load_pipeline
    from ...pipelines.kubeflow.compiler import compile_pipeline
    from ...pipelines.kubeflow.settings import ClusterSettings
    from ...pipelines.launcher.preflight import preflight_pipeline

    function = load_pipeline(folder, which)
    pipeline = function.build()
    for note in preflight_pipeline(pipeline, function.project, function.lines):
        echo(f"note: {note}", err=True)
    return compile_pipeline(pipeline, ClusterSettings.load(folder), project=function.project, lines=function.lines)


def source_text(source: Path, which: str | None = None) -> tuple[str, str]:
    """The YAML of a compiled file, or of a project that is compiled now; and its name for messages."""
    if source.is_dir():
        return compiled(source, which).yaml, f"{source} (compiled)"
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
@pipeline_option
@shared
def compile_(settings: ConsoleSettings, folder: Path, output: Path | None, which: str | None) -> int:
    """Compile the pipeline in FOLDER for Kubeflow Pipelines: one YAML file of two documents.

    The same project gives the same bytes. What Kubeflow cannot do is refused at your own line.
    """
    from ...digest import write_durably

    compiled_pipeline = compiled(folder, which)
    if output is not None:
        try:
            write_durably(output, compiled_pipeline.yaml.encode())
        except OSError as error:
            raise InputError(f"{output} cannot be written: {error.strerror}", fix="name a file elsewhere") from None
    if settings.json:
        answer = {
            "name": compiled_pipeline.name,
            "pipeline": compiled_pipeline.digest,
            "nodes": dict(compiled_pipeline.nodes),
        }
        where = (
            {"path": str(output)}
            if output is not None
            else {"spec": compiled_pipeline.spec, "platform": compiled_pipeline.platform}
        )
        settings.answer(answer | where, lambda console: None)
    elif output is None:
        echo(compiled_pipeline.yaml, end="")
    else:
        echo(
            f"{output}: {compiled_pipeline.name}, {len(compiled_pipeline.nodes)} nodes, "
            f"version {compiled_pipeline.digest[:12]}"
        )
    return OK
