"""Results as pandas DataFrames."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..errors import InputError, missing_extra


def dataframe(rows: Any) -> Any:  # a pandas.DataFrame: pandas ships no types
    """An Arrow table or record batch as a DataFrame.

    Raises:
        InputError: A column has times of which Python has none: after the year 9999, say.
        DrivetrainError: pandas is not installed.
    """
    try:
        return rows.to_pandas()
    except ModuleNotFoundError as error:
        raise missing_extra("pandas", "pandas") from error
    except (OverflowError, ValueError) as error:
        raise beyond_pandas(_not_of_python(rows), error) from error


def beyond_pandas(name: str, error: Exception) -> InputError:
    """The error of a column that pandas has no values for."""
    return InputError(
        f"column {name!r:.80} cannot be pandas': {error}",
        fix="leave it out, or make times before the year 1 or after 9999 missing",
    )


def _not_of_python(rows: Any) -> str:
    """The first column that Python has no values for."""
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        try:
            column.to_pandas()
        except (OverflowError, ValueError):
            return str(name)
    return ""


def frame(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Any:  # a pandas.DataFrame: pandas ships no types
    """A DataFrame of rows.

    Raises:
        DrivetrainError: pandas is not installed; names the extra.
    """
    try:
        import pandas as pd
    except ModuleNotFoundError as error:
        raise missing_extra("pandas", "pandas") from error
    return pd.DataFrame(list(rows), columns=list(columns))


def statistics_frame(document: Mapping[str, Any]) -> Any:  # a pandas.DataFrame
    """A statistics document as one row per data set and feature.

    Columns: dataset, rows, feature, type, count, missing, then the features' other numbers by name (`mean`, `unique`,
    `lengths.min`, …; tables such as quantiles and top values are left to the document), and `exact`: whether all of
    the row's numbers are.

    Raises:
        DrivetrainError: pandas is not installed.
    """
    rows = []
    for dataset in document["datasets"]:
        for feature in dataset["features"]:
            numbers = dict(_numbers(feature))
            exact = all(item["exact"] for item in _measured(feature))
            rows.append({"dataset": dataset["name"], "rows": dataset["rows"], "feature": feature["name"], **numbers,
                         "exact": exact})  # fmt: skip
    names = dict.fromkeys(("dataset", "rows", "feature", "type", "count", "missing"))
    names |= dict.fromkeys(name for row in rows for name in row if name not in ("name", "exact"))
    columns = [*names, "exact"]
    return frame(columns, ([row.get(name) for name in columns] for row in rows))


def _numbers(part: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in part.items():
        inner = value["value"] if isinstance(value, Mapping) and "exact" in value else value
        if isinstance(inner, Mapping):
            yield from _numbers(inner, f"{before}{name}.")
        elif not isinstance(inner, list) and name != "name":
            yield before + name, inner


def _measured(part: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for value in part.values():
        if isinstance(value, Mapping) and "exact" in value:
            yield value
        elif isinstance(value, Mapping):
            yield from _measured(value)
