"""Checking data against a suite: by statistics what they decide, SQL by DuckDB, the rest by GX on the rows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ...errors import InputError
from ...progress import Progress, no_progress
from ..schemas.checks import SQL_TYPE, Expectation
from ..sources import Source
from ..stats.document import Statistics
from .from_statistics import decide
from .regex import automaton_of
from .suite import ExpectationOutcome, ExpectationResults, Suite, Way, result_of, subject


def check_expectations(
    statistics: Statistics,
    suite: Suite,
    sources: Mapping[str, Source] | None = None,
    *,
    progress: Progress = no_progress,
) -> ExpectationResults:
    """Check every data set against a suite: from its statistics where they suffice, else on its rows.

    An `unexpected_rows_expectation` is SQL, which DuckDB runs; what else needs rows GX's pandas engine does.

    Args:
        statistics: From `statistics` (or loaded).
        suite: From `read_suite`.
        sources: The rows by data set; None: there are none, so every expectation must be one that statistics decide.
        progress: Called with the rows read.

    Raises:
        InputError: An expectation needs rows and there are none, GX has no such expectation or refuses its
            arguments, or a regular expression could take forever.
        DrivetrainError: An expectation needs rows and GX is not installed, or one of SQL and DuckDB is not.
    """
    for expectation in suite.expectations:
        _require_linear(expectation)
    results: list[Mapping[str, Any]] = []
    if not isinstance(statistics, Statistics):
        raise InputError(
            f"check_expectations got {type(statistics).__name__} as statistics",
            fix='give data.statistics(rows), and rows that expectations need as sources={"data": data.source_of(rows)}',
        )
    for split in statistics.splits:
        state = statistics.state(split)
        outcomes: dict[int, ExpectationOutcome] = {}
        for index, expectation in enumerate(suite.expectations):
            outcome = decide(state, expectation)
            if outcome is not None:
                outcomes[index] = outcome
        ways: dict[int, Way] = dict.fromkeys(outcomes, "statistics")
        rest = {index: expectation for index, expectation in enumerate(suite.expectations) if index not in outcomes}
        queries = {index: expectation for index, expectation in rest.items() if expectation.type == SQL_TYPE}
        if queries and sources is not None and split in sources:
            from .unexpected_rows import run_sql

            outcomes |= run_sql(sources[split], queries, progress=progress)
            ways |= dict.fromkeys(queries, "sql")
            rest = {index: expectation for index, expectation in rest.items() if index not in queries}
        if rest:
            if sources is None or split not in sources:
                first = next(iter(rest.values()))
                raise InputError(
                    f"statistics of {split} do not decide {first.type} {subject(first.kwargs)}".rstrip(),
                    fix="give the rows (sources), or leave the expectation out",
                )
            from .gx import run_on_rows

            outcomes |= run_on_rows(sources[split], state, rest, progress=progress)
            ways |= dict.fromkeys(rest, "rows")
        results += [
            result_of(expectation, outcomes[index], split, ways[index])
            for index, expectation in enumerate(suite.expectations)
        ]
    return ExpectationResults.of(suite.name, statistics.splits, results)


def _require_linear(expectation: Expectation) -> None:
    """Refuse regular expressions that could take forever, before any row is read."""
    kwargs = expectation.kwargs
    patterns = [kwargs.get("regex"), *(kwargs["regex_list"] if isinstance(kwargs.get("regex_list"), list) else [])]
    if "json_schema" in kwargs:
        patterns += _patterns_within(kwargs["json_schema"], f"{expectation.type} {subject(kwargs)}")
    for pattern in patterns:
        try:
            with suppress(re.error):  # that it is not one is a result
                automaton_of(str(pattern))
        except InputError as error:
            raise InputError(f"{expectation.type} {subject(kwargs)}: {error.message}", fix=error.fix) from None


def _patterns_within(schema: Any, where: str) -> list[str]:  # Any: JSON
    """The regular expressions of a JSON Schema.

    Raises:
        InputError: It has what would be searched by `re`, as jsonschema does where it is not told another way.
    """
    keywords: set[str] = set()
    patterns: list[str] = []
    todo = [schema]
    while todo:
        each = todo.pop()
        if isinstance(each, list):
            todo += each
        if not isinstance(each, dict):
            continue
        todo += each.values()
        keywords |= each.keys()
        if each is not schema and isinstance(each.get("$schema"), str):
            raise InputError(f"{where}: a part of its json_schema has a $schema of its own", fix="leave that out")
        if isinstance(each.get("pattern"), str):
            patterns.append(each["pattern"])
        if isinstance(each.get("patternProperties"), dict):
            patterns += each["patternProperties"]
    if {"unevaluatedProperties", "patternProperties"} <= keywords:
        raise InputError(
            f"{where}: its json_schema has both unevaluatedProperties and patternProperties, by which a search could "
            "take forever",
            fix="write additionalProperties",
        )
    return patterns
