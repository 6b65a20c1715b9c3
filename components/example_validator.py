"""ExampleValidator: a gate; nothing reads examples that are not as the schema says."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import islice, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..errors import InputError
from ..metadata import Anomalies, Examples, Schema, Statistics, summarize
from ..pipelines import Files, Fn, component, current, resolve_files
from .derived_columns import with_derived

if TYPE_CHECKING:
    from ..data import Schema as SchemaValue
    from ..data import Suite

_ROWS: Final = 3
"""Rows that a summary quotes of each problem."""
_PROBLEMS: Final = 10
"""Problems in a summary; the report has all."""
_WIDTH: Final = 160
"""Characters of a quoted row; the report has it whole."""


@component(gates="examples")
def ExampleValidator(
    examples: Examples,
    statistics: Statistics,
    schema: Schema,
    *,
    previous: Statistics | None = None,
    serving: Statistics | None = None,
    previous_version: Statistics | None = None,
    environment: str | None = None,
    expectations: Files | None = None,
    data_docs: bool = False,
    derive: Fn | None = None,
) -> Anomalies:
    """Compare the statistics with the schema; quote the rows that are wrong.

    Args:
        examples: What the statistics are of; read again only if there are anomalies with rows to quote.
        statistics: From StatisticsGen on these examples.
        schema: From ImportSchema (or SchemaGen).
        previous: Of an earlier span, e.g. `dt.latest(Statistics)`, which features with `drift` bounds and the schema's
            `rows` are compared with; without it, as on the first run, they are not, and the run says so.
        serving: Of what was served; features with `skew` bounds are compared with it.
        previous_version: Of an earlier version of the same span, for the schema's `rows`.
        environment: Which of the schema's environments the examples are of, e.g. SERVING, where labels are missing; by
            default all of its features are wanted.
        expectations: A Great Expectations suite (its JSON file) to check beside the schema's own `expectations`: from
            the statistics where they decide it, SQL by DuckDB (extra `sql`), and else on the rows (extra `gx`).
        data_docs: Write GX's own pages even if GX was not needed to decide; importing it takes seconds.
        derive: What the statistics' StatisticsGen got, so that rows can be quoted for computed columns.

    Returns:
        Anomalies: `content/anomalies.json` and a report. `passed` is False if any anomaly is an ERROR; then no other
        consumer of the examples starts. With expectations also `content/expectations_result.json` (GX's validation
        result), a page of them, and where GX decided some, or with `data_docs`, its Data Docs in `extra/data_docs/`,
        one page per split; a failed critical expectation counts as an error.

    Raises:
        InputError: The statistics are of other examples; an input is damaged, or of a format this release does not
            read; the schema knows no such environment, or the expectations are not one suite.
    """
    from ..data import Statistics as StatisticsValue
    from ..data import anomalous_rows, load_schema, open_examples, splits, validate
    from ..data.examples import examples_digest

    context = current()
    schema_value = load_schema(schema.content / "schema.yaml")
    statistics_value = StatisticsValue.load(statistics.content)
    described = statistics_value.document.get("examples")  # not there where another component made the statistics
    if described not in (None, examples_digest(examples.content)):
        raise InputError(
            "ExampleValidator: the statistics are of other examples than those given",
            fix="write ExampleValidator(examples, StatisticsGen(examples), schema), with the same examples in both",
        )
    optional_controls = {"previous": previous, "serving": serving, "previous_version": previous_version}
    controls = {
        name: StatisticsValue.load(control.content)
        for name, control in optional_controls.items()
        if control is not None
    }
    anomalies = validate(statistics_value, schema_value, environment=environment, **controls)
    for name, change in (("previous", "drift"), ("serving", "skew")):
        bounded = [spec.name for spec in schema_value.features if getattr(spec, change)]
        if bounded and name not in controls:
            context.note(f"no {name} statistics: the {change} of {', '.join(bounded)} is not checked")
    for note in anomalies.notes:
        context.note(note)
    sources = {}
    suite = _suite(schema_value, expectations)
    if anomalies.anomalies or suite is not None:
        sources = {name: open_examples(examples.content, name) for name in splits(examples.content)}
        sources = with_derived(sources, derive)
    if anomalies.anomalies:
        anomalies = anomalous_rows(sources, anomalies, schema_value, progress=context.progress)
    summary = anomalies.summary
    if suite is None:
        artifact = Anomalies.new(
            passed=anomalies.passed, errors=anomalies.errors, summary=summary, drifted=anomalies.drifted
        )
    else:
        from ..data import check_expectations

        results = check_expectations(statistics_value, suite, sources, progress=context.progress)
        errors = anomalies.errors + results.errors
        summary += f"; {results.summary}"
        artifact = Anomalies.new(passed=not errors, errors=errors, summary=summary, drifted=anomalies.drifted)
        results.save(artifact.content / "expectations_result.json")
        (artifact.extra / "expectations.html").write_text(results.to_html(), "utf-8")
        if data_docs or results.ways["rows"]:
            from ..data.expectations.gx import data_docs as page  # GX takes seconds to import: not if not asked

            (artifact.extra / "data_docs").mkdir()
            for name in statistics_value.splits:
                (artifact.extra / "data_docs" / f"{name}.html").write_text(page(results, name), "utf-8")
    anomalies.save(artifact.content / "anomalies.json")
    (artifact.extra / "report.html").write_text(anomalies.to_html(), "utf-8")
    return artifact


def _suite(schema: SchemaValue, expectations: Files | None) -> Suite | None:
    """The schema's own expectations, then the given suite's that are not among them."""
    from ..data import Suite, read_suite

    if expectations is None:
        return Suite("schema", schema.expectations) if schema.expectations else None
    suite = read_suite(_one_file(expectations))
    more = tuple(expectation for expectation in suite.expectations if expectation not in schema.expectations)
    return Suite(suite.name, (*schema.expectations, *more))


def _one_file(expectations: Files) -> Path:
    files = resolve_files(expectations).files
    if len(files) != 1:
        raise InputError(f"the expectations are {len(files)} files, not one suite", fix="name one suite's JSON file")
    return files[0].path


@summarize.register
def _veto(anomalies: Anomalies) -> str:
    """Of a veto each problem once, its splits, rows that show it and the fix; nothing where the data may be used."""
    if anomalies.properties.get("passed") is not False:
        return ""
    lines = [str(anomalies.properties.get("summary", ""))]
    file = anomalies.content / "anomalies.json"
    # Plain JSON, though `data.Anomalies` reads it too: a command that shows a run must not wait for Arrow's import.
    # A user's own gate may write no such file.
    problems = _problems(json.loads(file.read_text("utf-8"))["anomalies"]) if file.is_file() else []
    shown = [(problem, _by_message(problem)) for problem in problems[:_PROBLEMS]]
    severity = max((len(problem[0]["severity"]) for problem, _ in shown), default=0)
    column = max((len(problem[0]["feature"] or "") for problem, _ in shown), default=0)
    split = max((len(splits) for _, messages in shown for splits in messages.values()), default=0)
    for problem, messages in shown:
        head = f"{problem[0]['severity'].lower():<{severity}}  {problem[0]['feature'] or '':<{column}}"
        for message, splits in messages.items():
            lines.append(f"  {head}  {splits:<{split}}  {message}")
            head = " " * len(head)
        # In turn of each split, since the first of them may have enough for all.
        rows = (row for turn in zip_longest(*(_rows(anomaly) for anomaly in problem)) for row in turn if row)
        lines += [f"    {row}" for row in islice(rows, _ROWS)]
        # Of an anomaly that has rows, where there is one: a split may have it only because of the others' values.
        lines.append(f"    fix: {max(problem, key=lambda anomaly: bool(anomaly['rows']))['fix']}")
    if len(problems) > len(shown):
        lines.append(f"  and {len(problems) - len(shown)} more, in the report")
    return "\n".join(lines)


def _problems(anomalies: Iterable[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:  # Any: JSON
    """Anomalies that differ by their split alone, together."""
    problems: dict[tuple[str, str, str | None], list[Mapping[str, Any]]] = {}
    for anomaly in anomalies:
        problems.setdefault((anomaly["severity"], anomaly["type"], anomaly["feature"]), []).append(anomaly)
    return list(problems.values())


def _by_message(problem: Iterable[Mapping[str, Any]]) -> dict[str, str]:  # Any: JSON
    """The splits of each message, since numbers in it may differ between them."""
    splits: dict[str, str] = {}
    for anomaly in problem:
        before = splits.get(anomaly["message"])
        splits[anomaly["message"]] = f"{before}, {anomaly['split']}" if before else anomaly["split"]
    return splits


def _rows(anomaly: Mapping[str, Any]) -> list[str]:  # Any: JSON
    return [
        f"row {row['row']:,} of {anomaly['split']}: {_row(row['values'], anomaly['feature'])}"
        for row in anomaly["rows"][:_ROWS]
    ]


def _row(values: Mapping[str, object], feature: str | None) -> str:
    """A row as name=value, the column in question first, cut to a line."""
    names = sorted(values, key=lambda name: name != feature)
    text = ", ".join(f"{name}={'–' if values[name] is None else values[name]}" for name in names)
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"
