"""`kubeflow diff`: what changed from one compiled file to another."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..exit_codes import OK
from ..options import ConsoleSettings, pipeline_option, print_text, shared
from .compile import source_text

if TYPE_CHECKING:
    from rich.console import Console


@click.command(
    epilog="\b\nExample:\n  drivetrain kubeflow diff deployed.yaml examples/flights\n"
    "  drivetrain kubeflow diff old.yaml new.yaml --json\n"
)
@click.argument("old", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path))
@pipeline_option
@shared
def diff(settings: ConsoleSettings, old: Path, new: Path, which: str | None) -> int:
    """Say what changed from OLD to NEW, compiled files or projects: by node its code, parameters, wiring, resources."""
    from ...pipelines.kubeflow.diff import compare

    (old_text, old_name), (new_text, new_name) = source_text(old, which), source_text(new, which)
    answer = compare(old_text, new_text, (old_name, new_name))

    def show(console: Console) -> None:
        parts = {"pipeline": answer["pipeline"], **answer["nodes"]}
        lines = [f"{node}: added" for node in answer["added"]] + [f"{node}: removed" for node in answer["removed"]]
        for part, changes in parts.items():
            lines += [f"{part}: {what}: {_change(before, after)}" for what, (before, after) in changes.items()]
        for line in lines or ["nothing changed"]:
            print_text(console, line)

    settings.answer(answer, show)
    return OK


def _change(before: object, after: object) -> str:
    """From what to what; of two objects with one entry that differs, that entry alone."""
    if isinstance(before, dict) and isinstance(after, dict):
        differing = [key for key in before | after if before.get(key) != after.get(key)]
        if differing == ["code"]:
            return f"{before.get('$fn', 'it')} has other code"
        if len(differing) == 1:
            key = differing[0]
            name = "" if key == "defaultValue" else f"{key} "
            return f"{name}{_shown(before.get(key))} → {_shown(after.get(key))}"
    return f"{_shown(before)} → {_shown(after)}"


def _shown(value: object) -> str:
    """A value in at most 120 characters, of a digest the first 12; a dash where there is none."""
    if value is None:
        return "–"
    if isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value):
        return value[:12]
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 120 else f"{text[:117]}..."
