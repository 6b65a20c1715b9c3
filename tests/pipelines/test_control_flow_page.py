"""docs/control-flow.md: every pipeline on it builds and runs, and ends as the page says."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from drivetrain.pipelines import Home, load_pipeline, run_pipeline
from drivetrain.pipelines.dsl.component import Component
from drivetrain.pipelines.ir.options import NodeOptions

PAGE = (Path(__file__).parents[2] / "docs" / "control-flow.md").read_text("utf-8")
CODE = "".join(re.findall(r"```python\n(.*?)```", PAGE, flags=re.S))
SKIPPED = {"branches": {"Much", "None"}, "exits": {"Alarm"}}


@pytest.mark.parametrize("name", re.findall(r"@dt\.pipeline\ndef (\w+)", CODE))
def test_a_pipeline_of_the_page_runs(home: Home, project: Callable[..., Path], name: str) -> None:
    result = run_pipeline(home, load_pipeline(project(name, pipeline=CODE)))
    assert result.state == "COMPLETE", {node: found.reason for node, found in result.nodes.items()}
    skipped = {node for node, found in result.nodes.items() if found.state == "SKIPPED"}
    assert skipped == SKIPPED.get(name, set())


def test_every_option_is_named() -> None:
    names = set(inspect.signature(Component.options).parameters) - {"self", "unknown"}
    assert set(NodeOptions.__dataclass_fields__) <= names
    table = PAGE.partition("| option | meaning |")[2].partition("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", table.replace('`"module:predicate"`', ""))) >= names
