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
        output: The output that it is of; empty where a single one is judged.
        title: "overall", or "carrier=AA".
        pairs: The slice as (column, value) pairs; None where the value is missing.
        n: Examples.
        values: Metric → value, None where undefined.
        baseline: Metric → the baseline's value; None where undefined or where there was no baseline.
        undefined: Metric → why it has no value.
        intervals: Metric → the two ends of its interval, where there is one.
        change_intervals: Likewise of the change from the baseline.
    """

    output: str
    title: str
    pairs: tuple[tuple[str, SliceValue], ...]
    n: int
    values: dict[str, float | None]
    baseline: dict[str, float | None]
    undefined: dict[str, str]
    intervals: dict[str, tuple[float, float]]
    change_intervals: dict[str, tuple[float, float]]


def read_slices(content: Path) -> list[SliceMetrics]:
    """Every slice of an Evaluation's content folder, of each output the overall one first.

    Raises:
        InputError: The folder holds no evaluation.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return _slices(pq.read_table(content / "metrics.parquet").to_pylist())
    except (OSError, ValueError, LookupError, TypeError, RecursionError, pa.ArrowException) as error:
        raise _none(content, error) from error


def _slices(rows: list[dict[str, Any]]) -> list[SliceMetrics]:
    slices: dict[tuple[str, str], SliceMetrics] = {}
    for row in rows:
        key = row.get("output", ""), row["slice_key"]  # evaluations of 0.1 had none
        if key not in slices:
            pairs = tuple((name, value) for name, value in json.loads(key[1]))
            slices[key] = SliceMetrics(key[0], row["slice"], pairs, row["n"], {}, {}, {}, {}, {})
        measured, metric = slices[key], row["metric"]
        measured.values[metric] = row["value"]
        measured.baseline[metric] = row["baseline"]
        if row["undefined"] is not None:
            measured.undefined[metric] = row["undefined"]
        for into, lower, upper in (
            (measured.intervals, "lower", "upper"),
            (measured.change_intervals, "change_lower", "change_upper"),
        ):
            if row.get(lower) is not None:
                into[metric] = row[lower], row[upper]
    return list(slices.values())


def read_validation(content: Path) -> dict[str, Any]:
    """The verdict of an Evaluation's content folder; see `validation.validate`.

    Raises:
        InputError: The folder holds no evaluation.
    """
    try:
        verdict = json.loads((content / "validation.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _none(content, error) from error
    if not isinstance(verdict, dict) or not isinstance(verdict.get("blessed"), bool):
        raise _none(content, "validation.json has no verdict")
    return verdict


def _none(content: Path, cause: object) -> InputError:
    said = str(cause) if not isinstance(cause, LookupError) else f"{cause} is missing"
    return InputError(f"{content} holds no evaluation: {said:.200}", fix="run Evaluator again")
