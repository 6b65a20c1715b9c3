"""Drawings of graphs in a real browser: text within its box, all in sight by scrolling, light, dark and on a phone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from drivetrain.report.graph import render
from drivetrain.tests.report.browser import Browser, browser, chromium
from drivetrain.tests.report.test_graph_layout import graph

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


@pytest.fixture(scope="module")
def tab() -> Iterator[Browser]:
    if chromium() is None:
        pytest.skip("there is no Chromium")
    with browser() as opened:
        yield opened


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


def _contrast(one: str, other: str) -> float:
    """Of two colours as the browser writes them, by WCAG 2.1."""
    light, dark = sorted(map(_luminance, (one, other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
