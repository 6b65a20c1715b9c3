"""`rerun` and `spin` of a pipeline that changed since, and parameters that no JSON holds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

Json = dict[str, Any]
Command = Callable[..., Result]
Read = Callable[[Result], Json]

TWO = """
    import drivetrain as dt

    @dt.component
    def One(*, ratio: float) -> float:
        return 2 * ratio

    @dt.component
    def Two(*, value: float) -> float:
        return value + 1

    @dt.pipeline
    def two(ratio: float = 0.5, gone: list[str] = ["a"]) -> None:
        Two(value=One(ratio=ratio))
"""


@pytest.fixture
def two(project: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = project("two", pipeline=TWO)
    monkeypatch.chdir(folder.parent)
    return folder


def test_a_parameter_that_is_gone_is_left_out_and_told(two: Path, drivetrain: Command, last_json: Read) -> None:
    first = last_json(drivetrain("run", "two", "--param", "ratio=3", "--json"))["run"]
    pipeline = two / "pipeline.py"
    pipeline.write_text(pipeline.read_text().replace(', gone: list[str] = ["a"]', ""))
    spun = drivetrain("spin", "Two", "--run", first, "--json")
    again = drivetrain("rerun", first, "--json")
    for said in (spun, again):
        assert said.exit_code == 0, said.output
        notes = [line for line in said.stderr.splitlines() if not line.startswith("root ")]
        assert notes == ["note: the pipeline has no parameter 'gone' any more: ['a'] is left out"]
    assert last_json(spun)["outputs"]["value"]["properties"] == {"value": 7.0}
    runs = last_json(drivetrain("runs", "--json"))["runs"]
    assert runs[0]["parameters"] == {"ratio": 3}
    result = drivetrain("rerun", first, "--param", "gone=1")
    assert result.exit_code == 2
    assert "has no parameter 'gone'" in result.stderr


def test_a_pipeline_of_another_shape_since(two: Path, drivetrain: Command, last_json: Read) -> None:
    first = last_json(drivetrain("run", "two", "--json"))["run"]
    pipeline = two / "pipeline.py"
    text = pipeline.read_text().replace("Two(value=One(ratio=ratio))", "LOOP")
    loop = "dt.map_(lambda each: Two(value=One.options(id='Each')(ratio=each)), over=[1.0, 2.0])"
    pipeline.write_text(text.replace("LOOP", loop))
    assert "Two[0] has nothing to work on in run" in drivetrain("spin", "Two[0]").stderr
    assert "Each[0] did not run" in drivetrain("spin", "Two[0]").stderr
    second = last_json(drivetrain("rerun", first, "--json"))
    assert second["state"] == "COMPLETE"
    found = last_json(drivetrain("diff", first, second["run"], "--json"))["nodes"]
    only = {name: one["only_in"] for name, one in found.items()}
    assert only == dict.fromkeys(["Each[0]", "Each[1]", "Two[0]", "Two[1]"], "second") | {
        "One": "first",
        "Two": "first",
    }


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e400"])
def test_a_number_that_no_json_holds(two: Path, drivetrain: Command, text: str) -> None:
    result = drivetrain("run", "two", "--param", f"ratio={text}")
    assert result.exit_code == 2
    assert "the parameter 'ratio' is " in result.stderr
    Path("p.yaml").write_text("ratio: .nan\n")
    assert drivetrain("run", "two", "--params", "p.yaml").exit_code == 2
    assert not Path(".drivetrain", "logs").exists()
