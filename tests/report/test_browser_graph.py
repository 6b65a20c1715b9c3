"""Drawings of graphs in a real browser: text within its box, all in sight by scrolling, light, dark and on a phone."""

from __future__ import annotations

from pathlib import Path

import pytest
from drivetrain.report import page
from drivetrain.report.graph import render
from drivetrain.report.run import draw
from drivetrain.tests.report.browser import Browser
from drivetrain.tests.report.test_dag import node
from drivetrain.tests.report.test_graph import graph

pytestmark = [pytest.mark.slow, pytest.mark.browser]

# Boxes out of which a text of theirs reaches.
_OUTSIDE = """[...document.querySelectorAll('svg.graph > g[class]')].filter(box => {
    const frame = box.querySelector('.e').getBoundingClientRect();
    return [...box.querySelectorAll('text:not(.k)')].some(text => {
        const own = text.getBoundingClientRect();
        return own.left < frame.left || own.right > frame.right || own.bottom > frame.bottom + 1;
    });
}).length"""
_CONTRAST = """[...document.querySelectorAll('svg.graph > g[class]')].map(box => [
    getComputedStyle(box.querySelector('.e')).fill, getComputedStyle(box.querySelector('text')).fill])"""


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("count", [5, 999])
@pytest.mark.parametrize("width", [390, 1280])
def test_a_drawing(tab: Browser, tmp_path: Path, count: int, width: int, dark: bool) -> None:
    (tmp_path / "graph.html").write_text(render(graph(count)), "utf-8")
    tab.open(tmp_path / "graph.html", width=width, dark=dark)
    assert tab.complaints == []
    assert [url for url in tab.requests if not url.startswith(("file:", "about:"))] == []
    assert tab.ask("document.querySelectorAll('svg.graph > g[class]').length") == (8 if count == 5 else 4)
    assert tab.ask(_OUTSIDE) == 0
    assert tab.ask("document.documentElement.scrollWidth <= innerWidth")  # the drawing scrolls, the page does not
    drawing = "document.querySelector('svg.graph')"
    assert tab.ask(f"{drawing}.getBoundingClientRect().width <= {drawing}.parentElement.scrollWidth")
    assert all(_contrast(*pair) >= 7 for pair in tab.ask(_CONTRAST))


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1280])
def test_a_drawing_of_a_pipeline(tab: Browser, tmp_path: Path, width: int, dark: bool) -> None:
    names = ["ExampleGen", "Gate", "Train", "Evaluate", "Push", "AVeryLongNameOfANodeThatNoBoxHasRoomFor", "Last"]
    loops = {"Train": "tries", "Evaluate": "tries"}
    nodes = [node(name, loops.get(name, ""), gate=name == "Gate", exit=name == "Last") for name in names]
    nodes[4]["conditions"] = ["Evaluate.blessed and not (Evaluate.auc < the_least_that_we_take)"]
    title = {"id": "tries", "within": "", "title": "tries: for each of rates, 2 at once", "conditions": []}
    edges = [(names[0], names[1], True), (names[0], "loop:tries", True), ("Train", "Evaluate", True)]
    edges += [("Gate", "loop:tries", False), ("Evaluate", "Push", False), ("Push", names[5], True)]
    states = ["CACHED", "COMPLETE", "COMPLETE", "FAILED", "BLOCKED", "SKIPPED", "RUNNING"]
    tasks = {name: {"state": state, "seconds": 1.5} for name, state in zip(names, states, strict=True)}
    drawn = draw({"nodes": nodes, "loops": [title], "edges": edges}, tasks)
    (tmp_path / "run.html").write_text(page("run", drawn.markup), "utf-8")
    tab.open(tmp_path / "run.html", width=width, dark=dark)
    assert tab.complaints == []
    assert tab.ask("document.querySelectorAll('svg.dag g.node, svg.dag g.group').length") == len(names) + 2
    assert tab.ask(_OUTSIDE.replace("svg.graph > g[class]", "svg.dag g.node, svg.dag g.group")) == 0
    assert tab.ask("document.documentElement.scrollWidth <= innerWidth")  # the drawing scrolls, the page does not
    nodes_only = _CONTRAST.replace("svg.graph > g[class]", "svg.dag g.node")
    assert all(_contrast(*pair) >= 7 for pair in tab.ask(nodes_only))


def _contrast(one: str, other: str) -> float:
    """Of two colours as the browser writes them, by WCAG 2.1."""
    light, dark = sorted(map(_luminance, (one, other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
