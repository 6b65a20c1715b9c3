"""`runs`: the newest first."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import drivetrain as dt
import pytest
from click.testing import Result
from drivetrain.errors import InputError
from drivetrain.pipelines import Home, list_runs

Json = dict[str, Any]
Command = Callable[..., Result]
Read = Callable[[Result], Json]
Runs = tuple[Json, Json]


def test_runs_lists_the_newest_first(two_runs: Runs, drivetrain: Command, last_json: Read) -> None:
    found = last_json(drivetrain("runs", "--json"))["runs"]
    assert [run["run"] for run in found] == [two_runs[1]["run"], two_runs[0]["run"]]
    assert found[0]["state"] == "COMPLETE"
    assert found[0]["parameters"] == {"rows": 3, "limit": 10, "fail": "", "seconds": 0.0}
    assert found[0]["started"] < found[0]["finished"]
    assert len(last_json(drivetrain("runs", "-n", "1", "--json"))["runs"]) == 1
    assert two_runs[0]["run"] in drivetrain("runs").stdout


def _add_node_option(ir: Json) -> None:
    ir["nodes"][0]["options"]["jitter_seed"] = 3


def _add_node_field(ir: Json) -> None:
    ir["nodes"][0]["weather"] = "rain"


def _add_loop_field(ir: Json) -> None:
    ir["loops"] = [{"id": "Loop", "over": [1], "conditions": [], "weather": "rain"}]


def _add_entry(ir: Json) -> None:
    ir["weather"] = "rain"


def _next_format(ir: Json) -> None:
    ir["format"] = "drivetrain-pipeline/3"


@pytest.mark.parametrize(
    ("add", "unknown"),
    [
        (_add_node_option, "the node option 'jitter_seed'"),
        (_add_node_field, "the field of a node 'weather'"),
        (_add_loop_field, "the field of a loop 'weather'"),
        (_add_entry, "the entry 'weather'"),
        (_next_format, "the format 'drivetrain-pipeline/3'"),
        (None, "the run option 'weather'"),
    ],
)
def test_a_run_of_a_newer_release_is_listed_as_unreadable(
    two_runs: Runs,
    add: Callable[[Json], None] | None,
    unknown: str,
    drivetrain: Command,
    last_json: Read,
    tmp_path: Path,
) -> None:
    older, newest = (run["run"] for run in two_runs)
    home = Home(tmp_path / ".drivetrain")
    context = home.store.find_context("run", older)
    assert context is not None
    options = json.loads(context.properties["options"])
    if add is None:
        options["weather"] = "rain"
    else:
        ir = home.store.find_context("ir", context.properties["ir"])
        assert ir is not None
        body = json.loads(ir.properties["ir"])
        add(body)
        home.store.context("ir", "of a newer release", {"ir": json.dumps(body)})
        home.store.update_context(context, {"ir": "of a newer release"})
        context = home.store.find_context("run", older)
        assert context is not None
    home.store.update_context(context, {"options": json.dumps(options)})
    assert [run.id for run in list_runs(home)] == [newest]
    home.close()

    readable, unreadable = last_json(drivetrain("runs", "--json"))["runs"]
    assert (readable["run"], readable["parameters"]["rows"]) == (newest, 3)
    assert "unreadable" not in readable
    assert (unreadable["run"], unreadable["pipeline"], unreadable["state"]) == (older, "shop", "COMPLETE")
    assert unreadable["started"] < unreadable["finished"]
    assert f"a newer drivetrain recorded it, with {unknown}" in unreadable["unreadable"]
    text = " ".join(drivetrain("runs").stdout.split())
    assert newest in text
    assert older in text
    assert "unreadable" in text

    assert drivetrain("show").exit_code == 0
    assert dt.open().id == newest
    refused = drivetrain("show", older)
    assert refused.exit_code == 2
    assert older in refused.stderr
    assert f"a newer drivetrain recorded it, with {unknown}" in refused.stderr
    assert "fix: upgrade drivetrain" in refused.stderr
    with pytest.raises(InputError, match="a newer drivetrain recorded it"):
        dt.open(older)
