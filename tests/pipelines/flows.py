"""A project of branches and loops, with the components of the conformance suite."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

from drivetrain.pipelines import PipelineFunction, RunResult

Pipe = Callable[..., PipelineFunction[..., object]]
# The components of the conformance suite, and one more.
PARTS = (Path(__file__).parents[1] / "conformance" / "control" / "parts.py").read_text("utf-8")
START = """
@dt.component
def Start(*, count: int) -> Numbers:
    return made(count, list(range(count)))
"""


def states(result: RunResult) -> dict[str, str]:
    return {name: node.state for name, node in result.nodes.items()}


def value(result: RunResult, node: str) -> object:
    (records,) = result.nodes[node].outputs.values()
    properties = records[0].properties
    return properties["value"] if "value" in properties else properties["total"]


def flows(pipe: Pipe) -> Pipe:
    """`flows(pipe)(body, more)` is the pipeline with that body; `more` are components of its own."""
    return lambda body, more="", **modules: pipe(body, parts=PARTS + START + textwrap.dedent(more), **modules)
