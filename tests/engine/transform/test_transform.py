"""What a transform's analysis and its application tell of their progress."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("jax")

from drivetrain.data import source_of
from drivetrain.data.local import LocalExecutor
from drivetrain.engine import ops
from drivetrain.engine.analyzers.spans import Span
from drivetrain.engine.transform.transform import analyze, apply

pytestmark = pytest.mark.engine


def twice_scaled(columns: Mapping[str, Any]) -> dict[str, Any]:
    return {"fare": ops.z_score(ops.z_score(columns["fare"]))}


def test_phases_spans_and_splits_are_parts_of_one_progress(tmp_path: Path) -> None:
    reports: list[tuple[int, int | None, str]] = []

    def progress(done: int, total: int | None, unit: str) -> None:
        reports.append((done, total, unit))

    splits = {"train": pa.table({"fare": np.arange(700.0)}), "eval": pa.table({"fare": np.arange(300.0)})}
    bundle = analyze(twice_scaled, [Span(source_of(table)) for table in splits.values()], progress=progress)
    assert {(total, unit) for _, total, unit in reports} == {(2000, "rows")}  # two phases over a thousand rows
    assert [done for done, _, _ in reports] == sorted(done for done, _, _ in reports)
    assert {700, 1000, 1700, 2000} <= {done for done, _, _ in reports}
    reports.clear()
    bundle.save(tmp_path / "graph")
    sources = {name: source_of(table) for name, table in splits.items()}
    apply(tmp_path / "graph", sources, tmp_path, LocalExecutor(), progress)
    assert reports[-1] == (1000, 1000, "rows")
    assert [done for done, _, _ in reports] == sorted(done for done, _, _ in reports)
