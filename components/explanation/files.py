"""An explanation as files: importances.parquet, dependence.parquet, attributions.parquet, explanation.json, a page."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from ...report.explanation import explanation_page
from .explain import ModelExplanation

IMPORTANCES: Final = pa.schema(
    [
        pa.field("slice", pa.string(), nullable=False),
        pa.field("n", pa.int64(), nullable=False),
        pa.field("column", pa.string(), nullable=False),
        pa.field("importance", pa.float64(), nullable=False),
        pa.field("lower", pa.float64()),
        pa.field("upper", pa.float64()),
        pa.field("value", pa.float64(), nullable=False),
    ]
)
"""One row for each slice and column, see `ColumnImportance`."""
DEPENDENCE: Final = pa.schema(
    [
        pa.field("slice", pa.string(), nullable=False),
        pa.field("column", pa.string(), nullable=False),
        pa.field("value", pa.string(), nullable=False),
        pa.field("number", pa.float64()),
        pa.field("output", pa.int64()),
        pa.field("mean", pa.float64(), nullable=False),
        pa.field("low", pa.float64(), nullable=False),
        pa.field("high", pa.float64(), nullable=False),
        pa.field("share", pa.float64(), nullable=False),
    ]
)
"""One row for each slice, column, value and class, see `DependencePoint`; `value` as text, `number` where it is one."""


def write(explanation: ModelExplanation, content: Path, extra: Path, *, title: str) -> None:
    """Write four files into `content`, and the page into `extra`."""
    importances = [asdict(each) for each in explanation.importances]
    pq.write_table(pa.Table.from_pylist(importances, IMPORTANCES), content / "importances.parquet")
    points = [
        asdict(each) | {"value": str(each.value), "number": _number(each.value)} for each in explanation.dependence
    ]
    pq.write_table(pa.Table.from_pylist(points, DEPENDENCE), content / "dependence.parquet")
    pq.write_table(explanation.attributions, content / "attributions.parquet")
    facts = {
        "metric": explanation.metric,
        "rows": explanation.rows,
        "gap": explanation.gap,
        "left_out": dict(explanation.left_out),
    }
    (content / "explanation.json").write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (extra / "report.html").write_text(explanation_page(explanation.document(), title=title), encoding="utf-8")


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
