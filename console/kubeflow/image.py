"""`kubeflow image`: the build context of a pipeline's image, the same to the byte each time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...pipelines import load_pipeline
from ..exit_codes import OK
from ..options import ConsoleSettings, pipeline_option, print_text, shared
from ..package import needed_files, verified_digest

if TYPE_CHECKING:
    from rich.console import Console


@click.command(
    epilog="\b\nExample:\n  drivetrain kubeflow image examples/flights -o image --wheel dist/drivetrain-….whl\n"
    "  drivetrain kubeflow image shop -o image --base python:3.11-slim@sha256:… --include words.txt\n"
)
@click.argument("project", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("image"),
    show_default=True,
    metavar="DIR",
    help="Where the context is put.",
)
@click.option(
    "--tar", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Also write it as one tar file."
)
@click.option(
    "--base", default="", metavar="IMAGE", help="Base image, by its digest; default: python:X.Y-slim for this Python."
)
@click.option(
    "--extra", "extras", multiple=True, metavar="NAME", help="Also install this extra of drivetrain; may be repeated."
)
@click.option(
    "--wheel", type=click.Path(path_type=Path, dir_okay=False), help="drivetrain itself, if it is in no index."
)
@click.option(
    "--include", multiple=True, metavar="PATTERN", help="More files than the pipeline and pyproject.toml name."
)
@pipeline_option
@shared
def image(
    settings: ConsoleSettings,
    project: Path,
    out: Path,
    tar: Path | None,
    base: str,
    extras: tuple[str, ...],
    wheel: Path | None,
    include: tuple[str, ...],
    which: str | None,
) -> int:
    """Write the build context of the image of the pipeline in PROJECT, and print the commands that build it.

    It pins the versions installed here. The pipeline is built once from the files of the image alone, and must be the
    same. A pod whose image holds another pipeline fails at once with that reason.
    """
    from ...digest import write_durably
    from ...pipelines.kubeflow.image import EXTRAS, commands, context
    from ...pipelines.kubeflow.settings import ClusterSettings
    from ...pipelines.project.wheel import build_wheel

    packed = build_wheel(project, include, files=needed_files(project, which))
    digest = verified_digest(project, packed, which)
    cluster = ClusterSettings.load(project) if (project / "kubeflow.yaml").exists() else None
    name = load_pipeline(project, which).build().name
    build_context = context(
        packed,
        digest,
        name=name,
        project=cluster.project if cluster else "",
        base=base,
        drivetrain=wheel,
        extras={*EXTRAS, *extras},
        artifacts=cluster.artifacts if cluster else "",
    )
    build_context.write(out)
    if tar is not None:
        write_durably(tar, build_context.tar())
    podman, docker = commands(build_context.tag, out)
    pinned = "@sha256:" in base

    def show(console: Console) -> None:
        print_text(console, f"{out}: {len(build_context.files)} files for {build_context.tag}")
        print_text(console, f"  {podman}\n  {docker}")
        if not pinned:
            note = "note: the base is named by a tag, which moves; give --base IMAGE@sha256:… for the same image twice"
            print_text(console, note)
        print_text(console, "Push it, and write its digest as image: in kubeflow.yaml.")

    answer = {
        "path": str(out),
        "tag": build_context.tag,
        "pipeline": digest,
        "files": sorted(build_context.files),
        "pinned": pinned,
        "commands": [podman, docker],
    }
    settings.answer(answer, show)
    return OK
