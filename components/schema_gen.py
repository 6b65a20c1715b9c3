"""SchemaGen: a schema proposed from statistics, for a person to read, edit and accept."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..metadata import Schema, Statistics
from ..pipelines import component

if TYPE_CHECKING:
    from ..data import Schema as SchemaValue


@component
def SchemaGen(
    statistics: Statistics, *, split: str | None = None, max_values: int = 100, slack: float | None = None
) -> Schema:
    """The schema that the data satisfies now.

    Args:
        statistics: From StatisticsGen.
        split: Which split it is taken from; the first that has rows where None.
        max_values: Text with more distinct values gets no list of values.
        slack: Propose ranges of numbers too, wider than seen by this share of their span at both ends, and smallest
            shares of rows that have a value; none where None.

    Returns:
        Schema: `content/schema.yaml`, each line with its evidence, and `content/expectations.json`.

    Raises:
        InputError: There is no such split, no split has rows, or the slack is negative.
    """
    from ..data import Statistics as StatisticsValue
    from ..data import infer_schema

    inferred = infer_schema(StatisticsValue.load(statistics.content), split=split, max_values=max_values, slack=slack)
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
