"""What statistics cannot decide, run by Great Expectations on the rows; and Data Docs pages by its renderers.

Import it late: GX takes seconds. Its telemetry is switched off before that, for this process.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from ...errors import InputError, missing_extra
from ...progress import Progress, no_progress
from ..frames import beyond_pandas
from ..schemas.checks import Expectation
from ..sources import Source
from ..stats.accumulator import StatisticsAccumulator
from ..stats.column import ColumnState
from .data_docs import offline, without_markup
from .suite import SHOWN, ExpectationOutcome, ExpectationResults, plain

os.environ["GX_ANALYTICS_ENABLED"] = "false"
try:
    import great_expectations as gx
    import pandas as pd

    from . import gx_regex as gx_regex  # registers itself
except ImportError as _error:
    raise missing_extra(_error.name or "great_expectations", "gx") from _error

_EXACT_FLOAT: Final = 2**53
# Each row is judged by itself, so batches add up. All others see the whole of their columns at once.
_BY_ROW: Final = frozenset(
    "expect_" + name
    for name in (
        "column_values_to_not_be_null", "column_values_to_be_null", "column_values_to_be_in_set",
        "column_values_to_not_be_in_set", "column_values_to_be_between", "column_value_lengths_to_be_between",
        "column_value_lengths_to_equal", "column_values_to_match_regex", "column_values_to_not_match_regex",
        "column_values_to_match_regex_list", "column_values_to_not_match_regex_list",
        "column_values_to_match_strftime_format", "column_values_to_be_dateutil_parseable",
        "column_values_to_be_json_parseable", "column_values_to_match_json_schema",
        "column_pair_values_a_to_be_greater_than_b", "column_pair_values_to_be_equal",
        "column_pair_values_to_be_in_set", "multicolumn_sum_to_equal", "multicolumn_values_to_be_equal",
        "select_column_values_to_be_unique_within_record",
    )
)  # fmt: skip
_OF_ALL_ROWS: Final = ("expect_column_values_to_not_be_null", "expect_column_values_to_be_null")


def run_on_rows(
    source: Source,
    state: StatisticsAccumulator,
    expectations: Mapping[int, Expectation],
    *,
    progress: Progress = no_progress,
) -> dict[int, ExpectationOutcome]:
    """The outcomes of expectations on a data set's rows, by GX's pandas engine.

    Expectations that judge each row by itself read batch by batch; of the others, each keeps its own columns in memory.

    Args:
        source: The rows.
        state: Their statistics: they say which columns have missing values, and so what pandas makes of a batch.
        expectations: By any number; the outcomes have the same.
        progress: Called with the rows read.

    Raises:
        InputError: GX has no such expectation, or refuses its arguments.
    """
    loaded = {index: _loaded(index, expectation) for index, expectation in expectations.items()}
    engine = _PandasEngine()
    by_row = {index: loaded[index] for index, expectation in expectations.items() if expectation.type in _BY_ROW}
    outcomes: dict[int, ExpectationOutcome] = {}
    if by_row:
        wanted = _columns([expectations[index] for index in by_row], source.columns)
        parts: dict[int, list[dict[str, Any]]] = {index: [] for index in by_row}
        for start, frame in _frames(source.select(wanted), state, progress):
            for index, result in engine.run(frame, by_row).items():
                parts[index].append(_shifted(result, start))
        outcomes = {index: _merged(expectations[index], results) for index, results in parts.items()}
    groups: dict[tuple[str, ...], list[int]] = {}
    for index, expectation in expectations.items():
        if index not in by_row:
            groups.setdefault(_columns([expectation], source.columns), []).append(index)
    for columns, indices in groups.items():
        pieces = [frame for _, frame in _frames(source.select(columns), state, progress)]
        frame = pd.concat(pieces, ignore_index=True) if len(pieces) > 1 else pieces[0]
        results = engine.run(frame, {index: loaded[index] for index in indices})
        outcomes |= {index: _outcome(result) for index, result in results.items()}
    return outcomes


def data_docs(results: ExpectationResults, split: str) -> str:
    """The Data Docs page of one data set's results, as GX renders it, but for what it loads from elsewhere."""
    from great_expectations.core import ExpectationSuiteValidationResult, ExpectationValidationResult
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
    from great_expectations.render.renderer.page_renderer import ValidationResultsPageRenderer
    from great_expectations.render.view.view import DefaultJinjaPageView

    document = without_markup(results.split(split))
    validation_results = [
        ExpectationValidationResult(
            success=result["success"],
            expectation_config=ExpectationConfiguration(**result["expectation_config"]),
            result=_shown(result["result"]),
            meta=result["meta"],
            # The renderer looks for a name in the traceback's last line, which is the message.
            exception_info=result["exception_info"]
            | {"exception_traceback": result["exception_info"]["exception_message"] or ""},
        )
        for result in document["results"]
    ]
    run = {"run_name": without_markup(split), "run_time": "1970-01-01T00:00:00+00:00"}
    validation = ExpectationSuiteValidationResult(
        success=document["success"],
        results=validation_results,
        suite_name=document["suite_name"],
        statistics=document["statistics"],
        meta={**document["meta"], "run_id": run, "expectation_suite_name": document["suite_name"]},
    )
    view: Any = DefaultJinjaPageView()  # untyped
    page: str = view.render(ValidationResultsPageRenderer().render(validation))
    return offline(page)


def _shown(result: dict[str, Any]) -> dict[str, Any]:
    """A result as GX can render it: its renderer fails on unexpected values of a set, and omits missing ones."""
    if "unexpected_percent" in result or not ("unexpected_count" in result or "missing_count" in result):
        return result
    off, missing = result.get("partial_unexpected_list", []), result.get("partial_missing_list", [])
    lists = [
        f"{what}: {', '.join(map(str, values))}" for what, values in (("off", off), ("missing", missing)) if values
    ]
    return {"observed_value": "; ".join(lists) or None}


def _loaded(index: int, expectation: Expectation) -> Any:
    from great_expectations.exceptions.exceptions import GreatExpectationsError
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

    try:
        return ExpectationConfiguration(
            type=expectation.type, kwargs=dict(expectation.kwargs), meta={"index": index}
        ).to_domain_obj()
    except (GreatExpectationsError, ValueError, TypeError) as error:  # pydantic's errors are ValueErrors
        cause = " ".join(str(error).split())
        raise InputError(f"{expectation.type}: {cause}", fix="correct the suite") from error


class _PandasEngine:
    """GX's pandas engine, over one data frame at a time."""

    def __init__(self) -> None:
        context: Any = gx.get_context(mode="ephemeral")
        context.variables.progress_bars = {"globally": False}
        asset = context.data_sources.add_pandas("drivetrain").add_dataframe_asset("rows")
        self._batch = asset.add_batch_definition_whole_dataframe("rows")

    def run(self, frame: pd.DataFrame, expectations: Mapping[int, Any]) -> dict[int, dict[str, Any]]:
        """By expectation: `success`, GX's `result`, and `error` ("" for none)."""
        # GX 1.24 gives two quantile expectations of one column the same quantiles, so no two of a kind run together.
        rounds: list[dict[int, Any]] = []
        seen: Counter[tuple[str, Any]] = Counter()
        for index, expectation in expectations.items():
            kind = (type(expectation).__name__, getattr(expectation, "column", None))
            if seen[kind] == len(rounds):
                rounds.append({})
            rounds[seen[kind]][index] = expectation
            seen[kind] += 1
        results: dict[int, dict[str, Any]] = {}
        for some in rounds:
            results |= self._run(frame, list(some.values()))
        return results

    def _run(self, frame: pd.DataFrame, expectations: list[Any]) -> dict[int, dict[str, Any]]:
        suite = gx.ExpectationSuite(name="rows", expectations=expectations)
        batch: Any = self._batch.get_batch({"dataframe": frame})
        results = {}
        for validation in batch.validate(suite, result_format="SUMMARY").results:
            result = dict(plain(validation.result or {}))
            results[int(validation.expectation_config.meta["index"])] = {
                "success": bool(validation.success), "result": result, "error": _error_of(validation.exception_info),
            }  # fmt: skip
        return results


def _error_of(info: Any) -> str:
    """The message of an exception in GX's result, which has it at the top or nested by metric; "" for none."""
    if not isinstance(info, Mapping):
        return ""
    if info.get("raised_exception"):
        return str(info.get("exception_message") or "it could not be evaluated")
    return next(filter(None, map(_error_of, info.values())), "")


def _outcome(result: Mapping[str, Any]) -> ExpectationOutcome:
    return ExpectationOutcome(result["success"] and not result["error"], result["result"], result["error"])


def _shifted(result: dict[str, Any], start: int) -> dict[str, Any]:
    """A batch's result with row numbers that count from the first row of the data set."""
    indices = result["result"].get("partial_unexpected_index_list")
    if indices is not None:
        result["result"]["partial_unexpected_index_list"] = [
            start + index if isinstance(index, int) else index for index in indices
        ]
    return result


def _merged(expectation: Expectation, parts: Sequence[Mapping[str, Any]]) -> ExpectationOutcome:
    error = next((part["error"] for part in parts if part["error"]), "")
    if error or len(parts) == 1:
        chosen = next((part for part in parts if part["error"]), parts[0])
        return _outcome(chosen)
    results = [part["result"] for part in parts]

    def total(key: str) -> int:
        return sum(result.get(key) or 0 for result in results)

    def first(key: str) -> list[Any]:
        return [value for result in results for value in result.get(key) or []][:SHOWN]

    rows, odd, missing = total("element_count"), total("unexpected_count"), total("missing_count")
    whole = expectation.type in _OF_ALL_ROWS
    there = rows if whole else rows - missing
    share = odd / there * 100 if there else None
    merged: dict[str, Any] = {
        "element_count": rows, "unexpected_count": odd, "unexpected_percent": share,
        "partial_unexpected_list": first("partial_unexpected_list"),
    }  # fmt: skip
    if not whole:
        merged |= {
            "missing_count": missing,
            "missing_percent": missing / rows * 100 if rows else None,
            "unexpected_percent_total": odd / rows * 100 if rows else None,
            "unexpected_percent_nonmissing": share,
        }
    merged["partial_unexpected_index_list"] = first("partial_unexpected_index_list")
    # GX's own arithmetic, in its order: another would differ in the last bit, and that decides at `mostly`.
    success = not there or (float(there) - float(odd)) / float(there) >= expectation.kwargs.get("mostly", 1)
    return ExpectationOutcome(success, merged)


def _columns(expectations: Sequence[Expectation], columns: Sequence[str]) -> tuple[str, ...]:
    """The columns these expectations look at, in the data's order; all where that is not known."""
    wanted: set[Any] = set()
    for expectation in expectations:
        named = [expectation.kwargs[key] for key in ("column", "column_A", "column_B") if key in expectation.kwargs]
        named += expectation.kwargs.get("column_list", []) if not expectation.type.startswith("expect_table") else []
        if not named or {"row_condition", "column_index"} & set(expectation.kwargs):
            return tuple(columns)
        wanted.update(named)
    chosen = tuple(name for name in columns if name in wanted)
    return chosen or tuple(columns[:1])  # a column that does not exist is for GX to report


def _frames(source: Source, state: StatisticsAccumulator, progress: Progress) -> Iterator[tuple[int, pd.DataFrame]]:
    """The rows as data frames with the number of their first; a column has one dtype in all of them."""
    start = 0
    for shard in source.shards:
        for batch in source.read(shard):
            yield start, _frame(batch, state)
            start += batch.num_rows
            progress(start, source.rows, "rows")
    if not start:
        yield 0, source.schema.empty_table().to_pandas()


def _frame(batch: pa.RecordBatch, state: StatisticsAccumulator) -> pd.DataFrame:
    return pd.DataFrame(
        {
            name: _series_of(name, column, state.columns.get(name))
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        },
        copy=False,
    )


def _series_of(name: str, array: Any, column: ColumnState | None) -> Any:
    try:
        return _series(array, column)
    except (OverflowError, ValueError) as error:
        raise beyond_pandas(name, error) from error


def _series(array: Any, column: ColumnState | None) -> Any:
    """The column as pandas would read the whole of it: with a missing value anywhere, integers become floats."""
    if column is not None and column.missing and pa.types.is_integer(array.type):
        if _beyond_floats(column):  # floats would change the values
            return pd.Series(array.to_pylist(), dtype=_nullable(array.type))
        return array.cast(pa.float64()).to_pandas()
    if column is not None and column.missing and pa.types.is_boolean(array.type):
        return array.to_pandas().astype(object)
    return array.to_pandas()


def _beyond_floats(column: ColumnState) -> bool:
    if column.sketches is not None:
        ends = [column.sketches.low, column.sketches.high]
    else:
        table = column.table
        ends = [] if table is None else [int(table.values[0]), int(table.values[-1])]
    return any(abs(end or 0) > _EXACT_FLOAT for end in ends)


def _nullable(arrow: Any) -> str:
    return str(arrow).replace("uint", "UInt") if pa.types.is_unsigned_integer(arrow) else str(arrow).replace("i", "I")
