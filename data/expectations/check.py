"""Checking data against a suite: by statistics what they decide, SQL by DuckDB, the rest by GX on the rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import InputError
from ...progress import Progress, no_progress
from ..schemas.checks import SQL_TYPE
from ..sources import Source
from ..stats.document import Statistics
from .from_statistics import decide
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
        InputError: An expectation needs rows and there are none, or GX has no such expectation or refuses its
            arguments.
        DrivetrainError: An expectation needs rows and GX is not installed, or one of SQL and DuckDB is not.
    """
    results: list[Mapping[str, Any]] = []
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
