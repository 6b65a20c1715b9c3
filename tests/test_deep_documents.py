"""JSON that nests without end is one error wherever a file from outside is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import drivetrain.data as data
import pytest
from drivetrain.data.example_diff.diff import FILE, ExamplesDiff
from drivetrain.data.expectations.suite import ExpectationResults
from drivetrain.data.stats.document import Statistics
from drivetrain.data.validation.anomalies import Anomalies
from drivetrain.errors import BuildError, InputError
from drivetrain.pipelines.external.notebook import _read as read_notebook
from drivetrain.pipelines.ir.ir import Pipeline

TEXTS = [
    opening * levels + "1" + closing * levels
    for opening, closing in (("[", "]"), ('{"a":', "}"))
    for levels in (500, 100_000)
]


def statistics_of_lines(path: Path) -> object:
    lines = path.with_suffix(".jsonl")
    lines.write_text(f'{{"a": 1}}\n{{"a": {path.read_text()}}}\n')
    return data.statistics(data.source_of(lines))


@pytest.mark.parametrize("text", TEXTS, ids=["list 500", "list 100,000", "map 500", "map 100,000"])
@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("statistics.json", lambda path: Statistics.load(path.parent)),
        (FILE, lambda path: ExamplesDiff.load(path.parent)),
        ("anomalies.json", Anomalies.load),
        ("results.json", ExpectationResults.load),
        ("suite.json", data.read_suite),
        ("rows.json", statistics_of_lines),
        ("book.ipynb", lambda path: read_notebook(path, "pipeline.py:1")),
        ("ir.json", lambda path: Pipeline.from_json(path.read_text())),
    ],
)
def test_deep_json_is_one_error(tmp_path: Path, name: str, read: Callable[[Path], object], text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises((InputError, BuildError)):
        read(tmp_path / name)
