"""Runs that an earlier release recorded: resumed, and read, by this one.

`tests/fixtures/runs/VERSION` holds a project and the root of one failed run of it, as that release left them.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from drivetrain.metadata.backup import upgrade
from drivetrain.pipelines import Home, Selection, load_pipeline, open_run, resume, run_pipeline, spin

RUNS = Path(__file__).parents[1] / "fixtures" / "runs"


@pytest.fixture(params=sorted(path.name for path in RUNS.iterdir()))
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    """The root of that release, its project moved to where this test runs."""
    shutil.copytree(RUNS / request.param, tmp_path, dirs_exist_ok=True)
    shutil.move(tmp_path / "root", tmp_path / ".drivetrain")
    with closing(sqlite3.connect(tmp_path / ".drivetrain" / "metadata.db")) as database, database:
        for number, text in database.execute("SELECT id, properties FROM context").fetchall():
            properties = json.loads(text)
            if "project" in properties:
                properties["project"] = str(tmp_path / "shop")
                database.execute("UPDATE context SET properties = ? WHERE id = ?", (json.dumps(properties), number))
    upgrade(tmp_path / ".drivetrain" / "metadata.db")
    return Home(tmp_path / ".drivetrain")


def test_a_run_of_an_earlier_release_is_resumed(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_run(home, None).state == "FAILED"
    done = [e.id for e in home.store.executions() if e.state == "COMPLETE"]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "needed.txt").touch()
    result = resume(home)
    assert {name: node.state for name, node in result.nodes.items()} == dict.fromkeys(
        ["Make", "Second", "Add", "Need", "Last"], "COMPLETE"
    )
    assert result.nodes["Last"].outputs["numbers"][0].properties["total"] == 73
    new = [e for e in home.store.executions() if e.state == "COMPLETE" and e.id not in done]
    assert sorted(str(e.properties["node"]) for e in new) == ["Last", "Need"]
    home.close()


def test_a_node_of_it_is_spun_and_stands_in(home: Home, tmp_path: Path) -> None:
    pipeline = load_pipeline(tmp_path / "shop")
    spun = spin(home, open_run(home, None), pipeline, "Add")
    assert spun.outputs["numbers"].properties["total"] == 7
    assert spun.fingerprints == spun.before
    file = tmp_path / "needed.txt"
    file.touch()
    part = run_pipeline(home, pipeline, {"file": str(file)}, selection=Selection(first=("Need",)))
    assert {name: node.state for name, node in part.nodes.items()} == {
        "Make": "CACHED", "Second": "CACHED", "Add": "CACHED", "Need": "COMPLETE", "Last": "COMPLETE"
    }  # fmt: skip
    home.close()
