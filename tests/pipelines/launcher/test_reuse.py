"""What an earlier execution read and its key does not hold: where that changed, it cannot stand in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from drivetrain.pipelines import Home, PipelineFunction, resume, run_pipeline
from drivetrain.tests.pipelines.flows import states, value

BODY = """
    numbers = Make(count=3, label=LABEL)
    Use(numbers)
    Misbehave(numbers, code=CODE)
"""


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("numbers.label", 'input numbers.label: "a" -> "b"'),
        ("numbers.properties", 'input numbers.label: "a" -> "b"'),
        ("dt.Artifact.declared()", None),
        ("import pickle; pickle.dumps(numbers)", 'input numbers.label: "a" -> "b"'),
    ],
    ids=["attribute", "all", "none", "pickled"],
)
def test_a_property_that_a_component_reads_counts(
    home: Home, pipe: Callable[..., PipelineFunction[..., object]], code: str, reason: str | None
) -> None:
    """Equal content, another label: those that read the label run again, and no others."""
    bodies = {label: BODY.replace("LABEL", repr(label)).replace("CODE", repr(code)) for label in "ab"}
    result = run_pipeline(home, pipe(bodies["a"]))
    assert set(states(result).values()) == {"COMPLETE"}
    first, second = run_pipeline(home, pipe(bodies["b"])), run_pipeline(home, pipe(bodies["b"]))
    expected = {"Make": "COMPLETE", "Use": "CACHED", "Misbehave": "COMPLETE" if reason else "CACHED"}
    assert states(first) == expected
    assert reason is None or first.nodes["Misbehave"].reason == reason
    assert set(states(second).values()) == {"CACHED"}
    assert value(second, "Use") == 4
    assert set(states(run_pipeline(home, pipe(bodies["a"]))).values()) == {"CACHED"}  # that work is done


def test_resume_refuses_files_that_were_edited(
    home: Home, pipe: Callable[..., PipelineFunction[..., object]], tmp_path: Path
) -> None:
    """What one node took before the stop, and another would take now, is not mixed."""
    body = """
        first = Use(Make(), data=dt.files("n.txt"))
        failing = Misbehave(first, code="import pathlib; (pathlib.Path(GO)).read_text()")
        Use.options(id="Again")(failing, data=dt.files("n.txt"))
        Use.options(id="Alone")(failing, data=dt.files("m.txt"))
    """.replace("GO", repr(str(tmp_path / "go")))
    function = pipe(body)
    (function.project / "n.txt").write_text("1")
    (function.project / "m.txt").write_text("1")
    assert states(run_pipeline(home, function))["Misbehave"] == "FAILED"
    (function.project / "n.txt").write_text("20")
    (function.project / "m.txt").write_text("20")
    (tmp_path / "go").write_text("")
    resumed = resume(home)
    assert states(resumed) == {
        "Make": "COMPLETE", "Use": "COMPLETE", "Misbehave": "COMPLETE", "Again": "FAILED", "Alone": "COMPLETE"
    }  # fmt: skip
    assert resumed.nodes["Again"].user_error
    assert resumed.nodes["Again"].reason.startswith(
        "what Use read in this run was edited since: parameter data: file n.txt changed (1 -> 2 bytes)"
    )
    (function.project / "n.txt").write_text("1")
    assert set(states(resume(home)).values()) == {"COMPLETE"}
