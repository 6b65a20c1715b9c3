"""A parameter's value as the compiled form has it."""

from __future__ import annotations

from collections.abc import Mapping

from ...errors import BuildError
from ..ir.expressions import Json
from ..project.files import FileSet, SqlQuery
from ..project.secret import Secret
from .handles import Scalar, Selected

_NAMED = {"$secret": "secrets", "$files": "files", "$query": "rows of a query"}


def encode(value: object, where: str) -> Json:
    """A value, or what stands for one to come, as IR; where is the user's line.

    Raises:
        BuildError: It is neither JSON nor anything that a pipeline knows by name.
    """
    if isinstance(value, Scalar):
        return value.expression
    if isinstance(value, Selected):
        return _selected(value, where)
    if isinstance(value, Secret):
        return {"$secret": value.name}
    if isinstance(value, FileSet):
        named = [value.pattern, *([] if value.span is value.version is None else [value.span, value.version])]
        encoded = [encode(item, where) for item in named]
        return {"$files": encoded if len(encoded) > 1 else encoded[0]}
    if isinstance(value, SqlQuery):
        asked = [value.sql, value.connection, value.parameters, value.watermark]
        dated = [] if value.span is None else [value.span]
        return {"$query": [encode(item, where) for item in (*asked, *dated)]}
    if hasattr(value, "__arrow_c_stream__"):
        raise BuildError(
            f"a {type(value).__name__} in memory cannot be part of a pipeline, which other processes run later",
            where=where,
            fix="write it to a Parquet file and name that; or call the component outside a pipeline",
        )
    if isinstance(value, Mapping):
        return {"$map": [[encode(k, where), encode(v, where)] for k, v in value.items()]}
    if isinstance(value, (list, tuple)):
        return [encode(item, where) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise BuildError(
        f"{value!r:.60} is no JSON value", where=where, fix="pass numbers, text, lists and dicts; name a function"
    )


def named(encoded: Json) -> str | None:
    """What an encoded value holds that is only resolved where a parameter of its own names it; None where nothing."""
    if isinstance(encoded, Mapping):
        ((kind, body),) = encoded.items()
        return _NAMED.get(kind) or named(body)
    found = (named(item) for item in encoded) if isinstance(encoded, list) else ()
    return next((kind for kind in found if kind), None)


def _selected(value: Selected, where: str) -> Json:
    choices = [each for each in value.choices if isinstance(each, Scalar)]
    if len(choices) < len(value.choices):
        raise BuildError(f"{value!r} is an artifact, not a value", where=where, fix="pass a property of it")
    if value.optional:
        return {"$optional": choices[0].expression}
    return {"$one_of": [choice.expression for choice in choices]}
