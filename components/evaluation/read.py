"""An evaluation read back from its files: what the command line, notebooks and triggers show."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import InputError
from .config import SliceValue


@dataclass(frozen=True)
class SliceMetrics:
    """One slice of an evaluation.

    Attributes:
        title: "overall", or "carrier=AA".
        pairs: The slice as (column, value) pairs; None where the value is missing.
        n: Examples.
        values: Metric → value, None where undefined.
        baseline: Metric → the baseline's value; None where undefined or where there was no baseline.
        undefined: Metric → why it has no value.
        intervals: Metric → the two ends of its interval, where there is one.
        change_intervals: Likewise of the change from the baseline.
    """

    title: str
    pairs: tuple[tuple[str, SliceValue], ...]
    n: int
    values: dict[str, float | None]
    baseline: dict[str, float | None]
    undefined: dict[str, str]
    intervals: dict[str, tuple[float, float]]
    change_intervals: dict[str, tuple[float, float]]


def read_slices(content: Path) -> list[SliceMetrics]:
    """Every slice of an Evaluation's content folder, the overall one first.

    Raises:
        InputError: The folder holds no evaluation.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows = pq.read_table(content / "metrics.parquet").to_pylist()
    except (OSError, pa.ArrowInvalid) as error:
        raise InputError(f"{content} holds no evaluation: {error}", fix="run Evaluator again") from error
    slices: dict[str, SliceMetrics] = {}
    for row in rows:
        key = row["slice_key"]
        if key not in slices:
            pairs = tuple((name, value) for name, value in json.loads(key))
            slices[key] = SliceMetrics(row["slice"], pairs, row["n"], {}, {}, {}, {}, {})
        slices[key].values[row["metric"]] = row["value"]
        slices[key].baseline[row["metric"]] = row["baseline"]
        if row["undefined"] is not None:
            slices[key].undefined[row["metric"]] = row["undefined"]
        for into, lower, upper in (
            (slices[key].intervals, "lower", "upper"),
            (slices[key].change_intervals, "change_lower", "change_upper"),
        ):
            if row.get(lower) is not None:
                into[row["metric"]] = row[lower], row[upper]
    return list(slices.values())


def read_validation(content: Path) -> dict[str, Any]:
    """The verdict of an Evaluation's content folder; see `validation.validate`.

    Raises:
        InputError: The folder holds no evaluation.
    """
    try:
        verdict: dict[str, Any] = json.loads((content / "validation.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{content} holds no evaluation: {error}", fix="run Evaluator again") from error
    return verdict
