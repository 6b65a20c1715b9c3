"""ImportSchema: the schema that a person accepted, kept in the project, as an artifact."""

from __future__ import annotations

from ..errors import InputError
from ..metadata import Schema
from ..pipelines import Files, component, current, resolve_files
from .schema_gen import write_schema


@component
def ImportSchema(path: Files) -> Schema:
    """Read a `schema.yaml`, or TFX's `schema.pbtxt`; what of that cannot be taken over is noted on the run.

    Args:
        path: The file.

    Returns:
        Schema: `content/schema.yaml` in canonical form, and `content/expectations.json`.

    Raises:
        InputError: Not one file, or no schema; names the line.
    """
    from ..data import load_pbtxt, load_schema

    files = resolve_files(path).files
    if len(files) != 1:
        raise InputError(f"a schema is one file, {path} means {len(files)}", fix="name one schema.yaml")
    file = files[0].path
    schema, notes = load_pbtxt(file) if file.suffix == ".pbtxt" else (load_schema(file), ())
    for note in notes:
        current().note(note)
    made = Schema.new()
    write_schema(schema, made.content, made.extra)
    return made
