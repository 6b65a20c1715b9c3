"""SchemaGen: a schema proposed from statistics, for a person to read, edit and accept."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError
from ..metadata import Schema, Statistics
from ..pipelines import component

if TYPE_CHECKING:
    from ..data import Schema as SchemaValue


def _refuse(known: Mapping[str, object], _: object) -> None:
    """Refuse numbers that no schema can be inferred with."""
    for name in ("max_values", "slack"):
        number = known.get(name)
        if isinstance(number, int | float) and not 0 <= number < float("inf"):
            raise InputError(f"{name} is {number}", fix="use 0 or more")


@component(preflight=_refuse)
def SchemaGen(
    statistics: Statistics,
    *,
    split: str | None = None,
    max_values: int | None = None,
    shapes: bool = True,
    slack: float | None = None,
    semantics: bool | None = None,
) -> Schema:
    """The schema that the data satisfies now; the options are those of `infer_schema`.

    Args:
        statistics: From StatisticsGen.
        split: Which split it is taken from; the first that has rows where None.
        max_values: Text with more distinct values gets no list of values. None: 100, and up to 400 that come again get
            a list that most rows must satisfy.
        shapes: Whether lists of one length, never missing, get a shape; else every column gets value counts.
        slack: Propose ranges of numbers too, wider than seen by this share of their span at both ends, and smallest
            shares of rows that have a value; none where None.
        semantics: Whether times in text and in integers, natural language and images are recognised; all but days
            since 1970 where None.

    Returns:
        Schema: `content/schema.yaml`, each line with its evidence, and `content/expectations.json`.

    Raises:
        InputError: There is no such split, no split has rows, or a number is negative.
    """
    from ..data import Statistics as StatisticsValue
    from ..data import infer_schema

    inferred = infer_schema(
        StatisticsValue.load(statistics.content),
        split=split,
        max_values=max_values,
        shapes=shapes,
        slack=slack,
        semantics=semantics,
    )
    artifact = Schema.new()
    write_schema(inferred, artifact.content, artifact.extra)
    return artifact


def write_schema(schema: SchemaValue, content: Path, extra: Path) -> None:
    """The files of a Schema artifact: canonical YAML, the same as a Great Expectations suite, a report."""
    import json

    from ..data import schema_to_expectations, schema_to_yaml
    from ..digest import write_durably

    write_durably(content / "schema.yaml", schema_to_yaml(schema).encode())
    suite = json.dumps(schema_to_expectations(schema), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    write_durably(content / "expectations.json", suite.encode())
    (extra / "report.html").write_text(schema.to_html(), "utf-8")
