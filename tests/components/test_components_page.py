"""docs/components.md against the code: every component, input, parameter, default and output; and its lines build."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from textwrap import indent

import pytest
from drivetrain import components
from drivetrain.pipelines import load_pipeline

PAGE = (Path(__file__).parents[2] / "docs" / "components.md").read_text("utf-8")
SECTIONS = {section.partition("\n")[0]: section for section in re.split(r"^## ", PAGE, flags=re.M)[1:]}
ROW = re.compile(r"^\| `(\w+)` \| (.+?) \| .+ \|$", re.M)


def test_every_component_has_its_section() -> None:
    assert sorted(SECTIONS) == sorted(components.__all__)


@pytest.mark.parametrize("name", components.__all__)
def test_a_section_says_what_the_code_says(name: str) -> None:
    component = getattr(components, name)
    inputs = {
        spec.name: f"`{spec.type.__name__}`" + " or None" * spec.optional + ", gated" * (spec.name == component.gates)
        for spec in component.inputs.values()
    }
    parameters = {
        spec.name: "required" if spec.required else f"`{_plain(spec.default)!r}`"
        for spec in component.parameters.values()
    }
    rows = ROW.findall(SECTIONS[name])
    assert dict(rows) == inputs | parameters
    assert len(rows) == len(inputs) + len(parameters)
    gives = SECTIONS[name].partition("\nGives ")[2]
    for key, kind in component.outputs.items():
        assert f"`{kind.__name__}`" in gives
        assert len(component.outputs) == 1 or f".{key}`" in gives


def test_the_lines_are_one_pipeline(project: Callable[..., Path]) -> None:
    lines = "".join(re.findall(r"```python\n(.*?)```", PAGE, flags=re.S))
    imports = "import drivetrain as dt\nfrom drivetrain.components import *\n"
    types = "from drivetrain.metadata import AnalyzerCache, Examples, Statistics\n"
    head = "@dt.pipeline\ndef flights() -> None:\n"
    functions = {"features": "def preprocess(columns): ...", "model": "def train(run): ..."}
    functions["evaluation"] = "config = None"
    folder = project("flights", pipeline=imports + types + head + indent(lines, "    "), **functions)
    built = load_pipeline(folder).build()
    assert {node.component.rpartition(":")[2] for node in built.nodes} == set(components.__all__)


def _plain(value: object) -> object:
    """A default as a reader would write it: a mapping that cannot be changed is shown as a dict."""
    return dict(value) if hasattr(value, "keys") and hasattr(value, "__getitem__") else value
