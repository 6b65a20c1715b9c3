"""docs/evaluation.md says what the code does: every metric with its formula, and examples that run."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from drivetrain.components.evaluation import EvaluationConfig, Threshold
from drivetrain.components.evaluation.binary import _OF_CONFUSION, of_confusion
from drivetrain.components.evaluation.definitions import Definition
from drivetrain.components.evaluation.metrics import METRICS
from drivetrain.tests.components.evaluation.test_ab_test import write
from evaluating import measured  # type: ignore[import-not-found]  # conftest puts this folder on the path
from sklearn.ensemble import RandomForestClassifier

PAGE = (Path(__file__).parents[3] / "docs" / "evaluation.md").read_text("utf-8")
LINES = {line for line in PAGE.splitlines() if line.startswith("|")}


def formula(name: str, definition: Definition) -> str:
    """The first line of the docstring."""
    function = getattr(definition.build, "func", definition.build)
    text = (_OF_CONFUSION[name][3] if function is of_confusion else function).__doc__ or ""
    return text.partition("\n")[0].rstrip(".").replace("|", "\\|")


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_has_its_row(name: str) -> None:
    for definition in METRICS[name]:
        options = [option for option in inspect.signature(definition.build).parameters if option != "threshold"]
        row = [line for line in LINES if f"`{name}`" in line.split(" | ")[0] and formula(name, definition) in line]
        assert row, formula(name, definition)
        assert any(("**" in line) is definition.default and all(f"`{option}=`" in line for option in options)
                   for line in row)  # fmt: skip


def test_the_fields_of_both_classes_are_there() -> None:
    for kind in (EvaluationConfig, Threshold):
        section = PAGE.partition(f"## {kind.__name__}\n")[2].partition("\n## ")[0]
        assert [name for name in inspect.signature(kind).parameters if f"`{name}`" not in section] == []


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    space: dict[str, Any] = {"np": np}
    exec("from drivetrain.components.evaluation import EvaluationConfig, Threshold, Metric, metric", space)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"late": rng.integers(0, 2, 400), "a": rng.normal(size=400), "carrier": ["AA", "UA"] * 200})
    space |= {"frame": frame.assign(old_probability=0.5, probability=rng.random(400)), "FEATURES": ["a"]}
    scored = pd.date_range("2026-01-05", periods=400, freq="10min", tz="UTC")
    space["predictions"] = space["frame"].drop(columns="late").assign(flight_id=range(400), scored_at=scored)
    space |= {"served_today": space["frame"].drop(columns="late"), "last_month": space["frame"]}
    ids = [str(number) for number in range(400)]
    space["labels"] = frame[["late"]].assign(flight_id=range(400), request_id=ids)
    for version in (3, 4):
        write(tmp_path / "request-log", version, ids[version - 3 :: 2], rng.random(200), rng.integers(0, 9, 200))
    space["forest"] = RandomForestClassifier(5).fit(frame[["a"]], frame["late"])
    for block in blocks:
        exec(block.replace("from .metrics import profit", ""), space | {"__name__": __name__}, space)
    assert space["served"].windows()["judged"].sum() == 400
    globals().update(profit=space["profit"], longest=space["longest"])  # where their names are looked for
    for function in (space["profit"], space["longest"]):
        function.__module__ = __name__
    for exact_rows in (0, 10):
        ours = measured([space["profit"], "auc"], [0, 1, 1], [0.6, 0.9, 0.1], exact_rows=exact_rows)
        assert ours["profit"] == 60.0
        assert measured([space["longest"], "auc"], [0, 1], [0.6, 0.9], exact_rows=exact_rows)["longest"] == 0.6
