"""What is said of a model: a line for each thing, and no line twice."""

import io
from typing import Any

from drivetrain.console.model_story import show_story
from rich.console import Console


def test_code_that_ran_for_several_spans_is_one_line() -> None:
    def code(node: str, run: str, digest: str, **functions: str) -> dict[str, Any]:
        return {"node": node, "run": run, "component": node, "functions": functions, "digest": digest * 64}

    ran = [code("ExampleGen", "first", "a"), code("ExampleGen", "second", "a"), code("ExampleGen", "third", "b")]
    fit = code("Trainer", "third", "c", fn="model:train")
    story = {
        "model": {"uri": "artifacts/Trainer/1/model", "node": "Trainer", "run": "third"},
        **{name: [] for name in ("evaluations", "approvals", "versions", "data")},
        "code": [*ran, fit],
    }
    show_story(Console(file=(text := io.StringIO()), width=200), story)
    assert [line.split() for line in text.getvalue().splitlines()[1:]] == [
        ["code", "a" * 12, "ExampleGen"],
        ["code", "b" * 12, "ExampleGen"],
        ["code", "c" * 12, "Trainer", "with", "model:train"],
    ]
