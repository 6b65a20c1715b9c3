"""ExampleValidator: a gate; nothing reads examples that are not as the schema says."""

from __future__ import annotations

from ..metadata import Anomalies, Examples, Schema, Statistics
from ..pipelines import component, current


@component(gates="examples")
def ExampleValidator(
    examples: Examples, statistics: Statistics, schema: Schema, *, environment: str | None = None
) -> Anomalies:
    """Compare the statistics with the schema; quote the rows that are wrong.

    Args:
        examples: What the statistics are of; read again only if there are anomalies with rows to quote.
        statistics: From StatisticsGen on these examples.
        schema: From ImportSchema (or SchemaGen).
        environment: Which of the schema's environments the examples are of, e.g. SERVING, where labels are missing; by
            default all of its features are wanted.

    Returns:
        Anomalies: `content/anomalies.json` and a report. `passed` is False if any anomaly is an ERROR; then no other
        consumer of the examples starts.

    Raises:
        InputError: An input is damaged, or of a format this release does not read, or the schema knows no such
            environment.
    """
    from ..data import Statistics as StatisticsValue
    from ..data import anomalous_rows, load_schema, open_examples, splits, validate

    context = current()
    wanted = load_schema(schema.content / "schema.yaml")
    found = validate(StatisticsValue.load(statistics.content), wanted, environment=environment)
    if found.anomalies:
        sources = {name: open_examples(examples.content, name) for name in splits(examples.content)}
        found = anomalous_rows(sources, found, wanted, progress=context.progress)
    made = Anomalies.new(passed=found.passed, errors=found.errors, summary=found.summary)
    found.save(made.content / "anomalies.json")
    (made.extra / "report.html").write_text(found.to_html(), "utf-8")
    return made
