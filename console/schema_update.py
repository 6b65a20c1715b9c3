"""`schema diff|update` and accepting a patch: how a schema follows the data, change by change, seen by a person."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import InputError
from ..pipelines import open_run
from .lineage import find_artifact
from .schema_files import compared, proposed, write_text
from .settings import OK, Settings, shared

if TYPE_CHECKING:
    from ..data import Schema

_RUN = click.option("--run", "run_id", metavar="RUN", help="Of which run; the newest unless given.")
_FILE = click.Path(path_type=Path, dir_okay=False)
PATCH = "schema.patch.yaml"


@click.command(
    epilog="\b\nExample:\n  drivetrain schema diff\n  drivetrain schema diff old.yaml schema.yaml\n"
    "  drivetrain schema diff schema.yaml artifacts/SchemaGen/0f3c…/schema\n"
)
@click.argument("old", required=False)
@click.argument("new", required=False)
@_RUN
@shared
def diff(settings: Settings, old: str | None, new: str | None, run_id: str | None) -> int:
    """Print how schema NEW differs from OLD, in meaning: comments and order of keys do not count.

    Each is a schema.yaml, a schema.pbtxt, or an artifact (a URI, a uid, the beginning of a fingerprint). OLD is the
    project's accepted schema.yaml unless given, NEW what the run proposes.
    """
    from .. import data

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
    settings.answer(answer, lambda console: console.print(said, markup=False, soft_wrap=True))
    return OK


@click.command(
    epilog="\b\nExample:\n  drivetrain schema update\n  drivetrain schema accept schema.patch.yaml --only 1,3\n"
    "  drivetrain schema update --data data/2013-06.parquet --previous data/2013-01.parquet\n"
)
@_RUN
@click.option("--data", "path", metavar="PATH", help="Data that does not pass, in place of a run's statistics.")
@click.option("--schema", "file", type=_FILE, help="Which schema; the project's schema.yaml unless given.")
@click.option(
    "--previous",
    metavar="PATH",
    help="Data of an earlier span, for bounds on drift; that of the run's ExampleValidator unless given.",
)
@click.option("--environment", metavar="NAME", help="Which of the schema's environments the data is of; likewise.")
@click.option("--to", type=_FILE, metavar="FILE", help=f"The patch to write; {PATCH} beside the schema unless given.")
@click.option("--replace", is_flag=True, help="Also where there is a patch already.")
@shared
def update(
    settings: Settings,
    run_id: str | None,
    path: str | None,
    file: Path | None,
    previous: str | None,
    environment: str | None,
    to: Path | None,
    replace: bool,
) -> int:
    """Write a patch of the schema: each anomaly of the data, relaxed to what was observed.

    Read it, cut it down, and `drivetrain schema accept` it. The schema itself is not touched.
    """
    from .. import data

    if path is not None:
        file = file or Path("schema.yaml")
        found: object = path
        controls: Mapping[str, object] = {}
    else:
        with settings.home() as home:
            run = open_run(home, run_id)
            found, controls, told = compared(home, run)
        environment = environment or told
        file = file or run.project / "schema.yaml"
    patch = data.update_schema(
        data.load_schema(file),
        found,
        environment=environment,
        previous=previous or controls.get("previous"),
        serving=controls.get("serving"),
        previous_version=controls.get("previous_version"),
    )
    target = to or file.parent / PATCH
    if patch.changes:
        if target.exists() and not replace:
            raise InputError(f"there is a patch at {target}", fix="accept or delete it, or give --replace")
        patch.save(target)
    for anomaly in patch.unresolved:
        click.echo(f"note: no change of the schema does away with {anomaly.type}: {anomaly.message}", err=True)
    said = "nothing to change in the schema" if patch.unresolved else "the data passes: nothing to change"
    if patch.changes:
        number = f"{len(patch.changes)} change{'s' * (len(patch.changes) > 1)}"
        said = f"{patch.diff}\nwrote {target}: {number}; `drivetrain schema accept {target}` makes them"
    answer = {"file": str(target) if patch.changes else None, **patch.to_dict()}
    settings.answer(answer, lambda console: console.print(said, markup=False, soft_wrap=True))
    return OK


def accept_patch(settings: Settings, path: Path, only: str | None, to: Path | None) -> int:
    """Make a patch's changes in the project's schema.yaml; its comments stay."""
    from .. import data

    patch = data.SchemaPatch.load(path)
    target = to or path.parent / "schema.yaml"
    ids = None if only is None else _ids(only)
    schema = patch.apply(data.load_schema(target), ids)
    before = target.read_text("utf-8")
    text, kept = data.edit_yaml(before, schema, str(target))
    if text != before:
        write_text(target, text, "--to")
    made = [change.id for change in patch.changes if ids is None or change.id in ids]
    said = f"{'wrote' if text != before else 'already so:'} {target} ({len(made)} of {len(patch.changes)} changes)"
    said += "" if kept else "; written anew, without its comments"
    answer = {"file": str(target), "changed": text != before, "accepted": made, "comments_kept": kept}
    settings.answer(answer, lambda console: console.print(said, markup=False, soft_wrap=True))
    return OK


def _ids(only: str) -> set[int]:
    parts = [part.strip() for part in only.split(",") if part.strip()]
    if not parts or not all(part.isdecimal() for part in parts):
        raise InputError(f"--only {only!r} is no list of changes", fix="give their numbers, e.g. --only 1,3")
    return {int(part) for part in parts}


def _named(settings: Settings, name: str | None, run_id: str | None, *, proposal: bool) -> tuple[str, Schema]:
    """A schema and what to call it."""
    from .. import data

    if name is not None and Path(name).is_file():
        file = Path(name)
        return name, data.load_pbtxt(file).schema if file.suffix == ".pbtxt" else data.load_schema(file)
    with settings.home() as home:
        if name is None:
            run = open_run(home, run_id)
            if proposal:
                title = f"proposed by run {run.id}"
                return title, data.schema_from_yaml(proposed(home, run), title)
            return str(run.project / "schema.yaml"), data.load_schema(run.project / "schema.yaml")
        record = find_artifact(home, name)
        if record is None or record.type != "Schema":
            what = "no file and no artifact" if record is None else f"an artifact of type {record.type}"
            raise InputError(f"{name} is {what}", fix="name a schema.yaml, a schema.pbtxt or a Schema artifact")
        return name, data.load_schema(home.payloads.local(record.uri) / "content" / "schema.yaml")
