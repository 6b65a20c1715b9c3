"""A compiled pipeline that somebody changed: refused, or the same again."""

from __future__ import annotations

import json

import pytest
from drivetrain.errors import BuildError
from drivetrain.pipelines.ir.ir import FORMAT, Pipeline
from drivetrain.pipelines.triggers import Cron, Schedule
from drivetrain.pipelines.triggers.reading import read_schedule


@pytest.mark.parametrize("levels", [300, 900, 100_000])
def test_what_is_nested_deeply_is_refused(levels: int) -> None:
    deep = "[" * levels + "]" * levels
    body = {"format": FORMAT, "name": "a", "nodes": [], "parameters": [["x", "list", "DEEP"]]}
    with pytest.raises(BuildError, match="cannot be read"):
        Pipeline.from_json(json.dumps(body).replace('"DEEP"', deep))


def test_a_loop_that_is_within_itself_is_refused() -> None:
    loops = [{"id": name, "over": [1], "within": within, "conditions": []} for name, within in (("a", "b"), ("b", "a"))]
    node: dict[str, object] = {
        "id": "N", "component": "m:N", "code": None, "inputs": [], "parameters": [], "outputs": [], "conditions": [],
        "gates": None, "after": [], "cache": True, "loop": "a",
    }  # fmt: skip
    body = {"format": FORMAT, "name": "p", "parameters": [], "nodes": [node], "loops": loops}
    with pytest.raises(BuildError, match="loop 'a' is within itself"):
        Pipeline.from_json(json.dumps(body))


def test_a_schedule_is_in_the_ir_of_a_pipeline_that_has_one_and_of_no_other() -> None:
    plain = Pipeline("p", (), ())
    assert "schedule" not in plain.to_json()
    scheduled = Pipeline("p", (), (), (), Schedule(Cron("0 3 * * *", tz="Europe/Oslo"), max_active=2).to_json())
    again = Pipeline.from_json(scheduled.to_json())
    assert again.digest == scheduled.digest != plain.digest
    assert read_schedule(again.schedule) == Schedule(Cron("0 3 * * *", tz="Europe/Oslo"), max_active=2)
