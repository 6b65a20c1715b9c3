"""`kubeflow lint`: what is wrong in a compiled file, before anything is sent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..exit_codes import OK, USER_ERROR
from ..options import ConsoleSettings, pipeline_option, print_text, shared
from .compile import source_text

if TYPE_CHECKING:
    from rich.console import Console


@click.command(
    epilog="\b\nExit codes:\n  0    nothing is wrong\n  2    something is\n"
    "\b\nExample:\n  drivetrain kubeflow lint flights.yaml\n  drivetrain kubeflow lint examples/flights\n"
)
@click.argument("source", type=click.Path(path_type=Path))
@pipeline_option
@shared
def lint(settings: ConsoleSettings, source: Path, which: str | None) -> int:
    """Report mistakes in SOURCE, a compiled file or a project's folder, each with its place and a fix.

    It finds what KFP's own loader accepts and a cluster fails at: references to nothing, missing dependencies, types
    that do not fit, cycles, conditions that read nothing, unknown fields. Of a file without those it also finds
    placeholders such as REGISTRY, and pushes to folders that are lost with their pod.
    """
    from ...pipelines.kubeflow.lint import lint as look
    from ...pipelines.kubeflow.unfinished import unfinished
    from ...yaml_lines import load_documents

    text, name = source_text(source, which)
    # What is wrong in its form comes first: the rest is read out of a file that has it right.
    findings = look(text)
    if not findings:
        spec, *platform = load_documents(text, name, name="the pipeline")
        findings = unfinished(spec, platform[0] if platform else {})

    def show(console: Console) -> None:
        for finding in findings:
            print_text(console, str(finding))
        count = f"{len(findings)} findings" if len(findings) != 1 else "1 finding"
        print_text(console, f"{name}: {count if findings else 'nothing is wrong'}")

    settings.answer({"source": name, "findings": [finding.to_json() for finding in findings]}, show)
    return USER_ERROR if findings else OK
