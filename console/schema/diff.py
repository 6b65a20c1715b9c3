"""`schema diff`: how two schemas differ in meaning."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...errors import InputError
from ...pipelines import open_run
from ..exit_codes import OK
from ..lineage import find_artifact
from ..options import RUN, ConsoleSettings, print_text, shared
from .infer import proposed_schema

if TYPE_CHECKING:
    from ...data import Schema


@click.command(
    epilog="\b\nExample:\n  drivetrain schema diff\n  drivetrain schema diff old.yaml schema.yaml\n"
    "  drivetrain schema diff schema.yaml artifacts/SchemaGen/0f3c…/schema\n"
)
@click.argument("old", required=False)
@click.argument("new", required=False)
@RUN
@shared
def diff(settings: ConsoleSettings, old: str | None, new: str | None, run_id: str | None) -> int:
    """Print how schema NEW differs from OLD, in meaning: comments and order of keys do not count.

    Each is a schema.yaml, a schema.pbtxt, or an artifact (a URI, a uid, the beginning of a fingerprint). OLD is the
    project's accepted schema.yaml unless given, NEW what the run proposes.
    """
    from ... import data

    before, after = _named(settings, old, run_id, proposal=False), _named(settings, new, run_id, proposal=True)
    was, now = (data.schema_to_yaml(schema).splitlines()[1:] for _, schema in (before, after))
    lines = list(difflib.unified_diff(was, now, before[0], after[0], lineterm=""))
    names = [{feature.name: feature for feature in schema.features} for _, schema in (before, after)]
    answer = {
        "old": before[0],
        "new": after[0],
        "changed": before[1] != after[1],
        "added": [name for name in names[1] if name not in names[0]],
        "removed": [name for name in names[0] if name not in names[1]],
        "differ": [name for name in names[0] if name in names[1] and names[0][name] != names[1][name]],
        "diff": "\n".join(lines),
    }
    said = "\n".join(lines) or "no difference"
    settings.answer(answer, lambda console: print_text(console, said))
    return OK


def _named(settings: ConsoleSettings, name: str | None, run_id: str | None, *, proposal: bool) -> tuple[str, Schema]:
    """A schema and what to call it."""
    from ... import data

    if name is not None and Path(name).is_file():
        file = Path(name)
        return name, data.load_pbtxt(file).schema if file.suffix == ".pbtxt" else data.load_schema(file)
    with settings.home() as home:
        if name is None:
            run = open_run(home, run_id)
            if proposal:
                title = f"proposed by run {run.id}"
                return title, data.schema_from_yaml(proposed_schema(home, run), title)
            return str(run.project / "schema.yaml"), data.load_schema(run.project / "schema.yaml")
        record = find_artifact(home, name)
        if record is None or record.type != "Schema":
            what = "no file and no artifact" if record is None else f"an artifact of type {record.type}"
            raise InputError(f"{name} is {what}", fix="name a schema.yaml, a schema.pbtxt or a Schema artifact")
        return name, data.load_schema(home.payloads.local(record.uri) / "content" / "schema.yaml")
