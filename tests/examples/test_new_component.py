"""The component that docs/new-component.md shows, taken from the page, joins the flights pipeline on both runners."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from drivetrain.tests.examples import flights_job as job

pytestmark = [pytest.mark.slow, pytest.mark.engine, pytest.mark.beam, pytest.mark.timeout(600)]


def test_the_documented_component_runs_on_both_runners(tmp_path: Path) -> None:
    page = (job.REPOSITORY / "docs" / "new-component.md").read_text()
    code = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    assert len(code.strip().splitlines()) <= 30
    project = job.copy_project(tmp_path)
    (project / "delays.py").write_text(code)
    pipeline = project / "pipeline.py"
    text = pipeline.read_text()
    line = '    examples = ExampleGen(data, splits={"train": 2, "eval": 1})\n'
    assert line in text
    text = text.replace(line, line + "    WorstRoutes(examples, top=5)\n")
    pipeline.write_text(
        text.replace("import drivetrain as dt\n", "import drivetrain as dt\nfrom .delays import WorstRoutes\n")
    )
    data = job.sample(tmp_path / "flights.csv", 0.05)
    found = []
    for runner in ("inline", "beam"):
        root = tmp_path / runner / ".drivetrain"
        done = job.run(root, "--param", f"data={data}", "--runner", runner, project=project)
        assert done.states["WorstRoutes"] == "COMPLETE", done.result["nodes"]["WorstRoutes"]
        content = done.path(root, "WorstRoutes", "routes") / "content" / "routes.json"
        found.append(json.loads(content.read_text()))
    assert found[0] == found[1]
    assert len(found[0]) == 5
