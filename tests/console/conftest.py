"""A small project with every kind of end: complete, cached, skipped, vetoed, wrong input, crash, slow."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from drivetrain.console.cli import cli
from drivetrain.tests.console.spans import SPANS

PIPELINE = '''
import time
import drivetrain as dt
from drivetrain.data import Anomalies as Found, Anomaly
from drivetrain.errors import InputError
from drivetrain.metadata import Anomalies, Evaluation, Examples, Model, PushedModel
from drivetrain.pipelines import Fn, component, current, load


@dt.component
def Make(rows: int) -> Examples:
    made = Examples.new(rows={"train": rows})
    (made.content / "rows").write_text(str(rows))
    return made


@component(gates="examples")
def Guard(examples: Examples, *, limit: int) -> Anomalies:
    rows = examples.rows["train"]
    quoted = ({"row": 17, "values": {"year": 2013, "carrier": "ZZ_NEW", "dest": None}},)
    found = Found({"train": rows}, [] if rows <= limit else [Anomaly(
        "UNEXPECTED_VALUE", "ERROR", "train", "carrier", "1 row holds [values] that are not in the domain",
        "AA", "ZZ_NEW", "mend the row or add ZZ_NEW to the domain", rows=quoted)])
    made = Anomalies.new(passed=found.passed, errors=found.errors, summary=found.summary)
    found.save(made.content / "anomalies.json")
    return made


@component
def Train(examples: Examples, *, fn: Fn, fail: str, seconds: float) -> Model:
    if fail == "user":
        raise InputError("the column 'x' is missing", fix="add it")
    if fail == "crash":
        raise ValueError("boom [in here]")
    made = Model.new()
    (made.content / "weights").write_text(str(load(fn)(examples.rows)))
    for step in range(int(seconds * 100)):
        time.sleep(0.01)
        current().progress(step, int(seconds * 100), "steps")
        if (current().base / "go").exists():
            break
    return made


@component
def Judge(model: Model) -> Evaluation:
    made = Evaluation.new(blessed=True, summary="AUC 0.9; blessed")
    (made.extra / "report.html").write_text("<p>judged</p>")
    return made


@component
def Push(model: Model, *, destination: str) -> PushedModel:
    made = PushedModel.new(destination=destination, version=2, digest="d")
    (made.content / "receipt.json").write_text("{}")
    return made


@dt.pipeline
def shop(rows: int = 3, limit: int = 10, fail: str = "", seconds: float = 0.0) -> None:
    """Sell."""
    examples = Make(rows)
    Guard(examples, limit=limit)
    model = Train(examples, fn="helper:total", fail=fail, seconds=seconds)
    evaluation = Judge(model)
    with dt.when(evaluation.blessed):
        Push(model, destination="serving/shop")
'''
HELPER = "def total(rows):\n    return sum(rows.values())\n"


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project's folder; the working directory is the one above it."""
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "pipeline.py").write_text(PIPELINE)
    (folder / "helper.py").write_text(HELPER)
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.fixture
def drivetrain() -> Callable[..., Result]:
    """The command line in this process; gives exit code, standard output and standard error."""

    def invoke(*args: str) -> Result:
        return CliRunner().invoke(cli, list(args), prog_name="drivetrain")

    return invoke


@pytest.fixture
def last_json() -> Callable[[Result], dict[str, Any]]:
    """The last line of standard output as JSON."""
    return lambda result: json.loads(result.stdout.splitlines()[-1])


@pytest.fixture
def spans(project: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = project("spans", pipeline=SPANS)
    monkeypatch.chdir(folder.parent)
    return folder


@pytest.fixture
def two_runs(
    shop: Path, drivetrain: Callable[..., Result], last_json: Callable[[Result], dict[str, Any]]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A first run, then one with another helper: (first, second)."""
    first = last_json(drivetrain("run", "shop", "--json"))
    (shop / "helper.py").write_text("def total(rows):\n    return 2 * sum(rows.values())\n")
    return first, last_json(drivetrain("run", "shop", "--json"))
