"""`kubeflow`: the same pipeline on a cluster: compiled, checked and compared before anything is sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import InputError
from .groups import Verbs
from .kubeflow_client import VERBS as RUNNING
from .kubeflow_image import VERBS as IMAGING
from .kubeflow_schedule import VERBS as SCHEDULING
from .kubeflow_simulate import VERBS as SIMULATING
from .settings import OK, USER_ERROR, Settings, shared

if TYPE_CHECKING:
    from rich.console import Console

    from ..pipelines.kubeflow.compiler import Compiled


@click.group(
    cls=Verbs,
    epilog="\b\nExample:\n  drivetrain kubeflow compile examples/flights -o flights.yaml\n"
    "  drivetrain kubeflow lint flights.yaml\n",
)
def kubeflow() -> None:
    """The same pipeline for Kubeflow: compile it, see that it holds, compare it with what is deployed."""


def compiled(folder: Path) -> Compiled:
    """A project's pipeline in KFP's form, with the settings beside it.

    Raises:
        DrivetrainError: It cannot be built, or not be kept by Kubeflow, or the settings are wrong.
    """
    from ..pipelines import load_pipeline
    from ..pipelines.kubeflow.compiler import compile_pipeline
    from ..pipelines.kubeflow.settings import Settings as Cluster

    function = load_pipeline(folder)
    pipeline = function.build()
    return compile_pipeline(pipeline, Cluster.load(folder), project=function.project, lines=function.lines)


def _text(source: Path) -> tuple[str, str]:
    """The YAML of a file, or of a project's folder; and what it is called in findings."""
    if source.is_dir():
        return compiled(source).yaml, f"{source} (compiled)"
    try:
        return source.read_text(encoding="utf-8"), str(source)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{source} cannot be read: {error}", fix="name a compiled file, or a project's folder"
        ) from None


@kubeflow.command(
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
    from ..digest import write_durably

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


for _verb in (*SIMULATING, *IMAGING, *RUNNING, *SCHEDULING):
    kubeflow.add_command(_verb)


@kubeflow.command(
    epilog="\b\nExit codes:\n  0    nothing is wrong\n  2    something is\n"
    "\b\nExample:\n  drivetrain kubeflow lint flights.yaml\n  drivetrain kubeflow lint examples/flights\n"
)
@click.argument("source", type=click.Path(path_type=Path))
@shared
def lint(settings: Settings, source: Path) -> int:
    """Look for what is wrong in SOURCE, a compiled file or a project's folder: each finding with its place and a fix.

    It finds what KFP's own loader takes and a cluster stumbles over: references to nothing, dependencies that are not
    there, types that do not fit, cycles, conditions that read nothing, unknown fields.
    """
    from ..pipelines.kubeflow.lint import lint as look

    text, name = _text(source)
    found = look(text)

    def tell(console: Console) -> None:
        for finding in found:
            console.print(str(finding), markup=False, soft_wrap=True)
        count = f"{len(found)} findings" if len(found) != 1 else "1 finding"
        console.print(f"{name}: {count if found else 'nothing is wrong'}", markup=False, soft_wrap=True)

    settings.answer({"source": name, "findings": [finding.to_json() for finding in found]}, tell)
    return USER_ERROR if found else OK


@kubeflow.command(
    epilog="\b\nExample:\n  drivetrain kubeflow diff deployed.yaml examples/flights\n"
    "  drivetrain kubeflow diff old.yaml new.yaml --json\n"
)
@click.argument("old", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path))
@shared
def diff(settings: Settings, old: Path, new: Path) -> int:
    """Say what changed from OLD to NEW, compiled files or projects: by node its code, parameters, wiring, resources."""
    from ..pipelines.kubeflow.diff import compare

    (one, name), (two, other) = _text(old), _text(new)
    answer = compare(one, two, (name, other))

    def tell(console: Console) -> None:
        parts = {"pipeline": answer["pipeline"], **answer["nodes"]}
        lines = [f"{node}: added" for node in answer["added"]] + [f"{node}: removed" for node in answer["removed"]]
        for part, changes in parts.items():
            lines += [
                f"{part}: {what}: {_shown(before)} → {_shown(after)}" for what, (before, after) in changes.items()
            ]
        for line in lines or ["nothing changed"]:
            console.print(line, markup=False, soft_wrap=True)

    settings.answer(answer, tell)
    return OK


def _shown(value: object) -> str:
    """A value as a person reads it in a line."""
    if value is None:
        return "–"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 120 else f"{text[:117]}..."
