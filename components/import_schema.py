"""ImportSchema: the schema that a person accepted, kept in the project, as an artifact."""

from __future__ import annotations

from pathlib import Path

from ..errors import InputError
from ..metadata import Schema, compare
from ..pipelines import Files, component, current, resolve_files
from .schema_gen import write_schema


@component(
    absent="propose one from a run's data by `drivetrain schema infer`; `drivetrain schema accept` writes it here"
)
def ImportSchema(path: Files, *, expectations: Files | None = None) -> Schema:
    """Read a `schema.yaml`, or TFX's `schema.pbtxt`; what of that cannot be taken over is noted on the run.

    Args:
        path: The file.
        expectations: A Great Expectations suite (its JSON file) to add to the schema: the data must meet both.

    Returns:
        Schema: `content/schema.yaml` in canonical form, and `content/expectations.json`.

    Raises:
        InputError: Not one file, no schema (names the line), or no suite.
    """
    from ..data import load_pbtxt, load_schema, schema_from_suite

    file = _one_file(path, "a schema")
    schema, notes = load_pbtxt(file) if file.suffix == ".pbtxt" else (load_schema(file), ())
    for note in notes:
        current().note(note)
    if expectations is not None:
        schema, left = schema_from_suite(_one_file(expectations, "a suite"), schema)
        if left:
            count, them = ("1 expectation", "it") if len(left) == 1 else (f"{len(left)} expectations", "them")
            current().note(f"{count} cannot be expressed in the schema; ExampleValidator checks {them} beside it")
    artifact = Schema.new()
    write_schema(schema, artifact.content, artifact.extra)
    return artifact


def _one_file(files: Files, what: str) -> Path:
    matching = resolve_files(files).files
    if len(matching) != 1:
        raise InputError(f"{what} is one file, {files} means {len(matching)}", fix="name one file")
    return matching[0].path


@compare.register
def schema_texts(old: Schema, new: Schema) -> dict[str, object]:
    """The two schemas, to be compared line by line."""
    return {"texts": [(schema.content / "schema.yaml").read_text(encoding="utf-8") for schema in (old, new)]}
