"""The drawing of graphs: every node in a box, large graphs by lines of code, text as text."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

import pytest
from drivetrain.report.graph import _span, drawing, render, units


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (12, "12 B"), (999, "999 B"), (1000, "1 kB"), (1234, "1.2 kB"), (45678, "45.7 kB"), (999_700, "1 MB"),
     (3.2e9, "3.2 GB"), (0.25, "0.25 B")],
)  # fmt: skip
def test_units(value: float, text: str) -> None:
    assert units(value, "B") == text
    assert units(value, "B", exact=False) == f"≥ {text}"


def graph(count: int, **changes: Any) -> dict[str, Any]:
    """A chain of device ops between a host op and an output."""

    def node(at: int) -> dict[str, Any]:
        return {
            "op": "sin", "called": None, "kind": "device", "inputs": [f"t{at}"], "weights": [], "assets": [],
            "settings": "", "ops": {}, "outputs": [{"id": f"t{at + 1}", "type": "float32[b]"}], "device": None,
            "where": f"/home/me/model.py:{at % 3 + 7}", "flops": 512, "bytes": 4096, "exact": True,
        }  # fmt: skip

    host = {**node(-1), "op": "values", "kind": "host", "inputs": ["column/a"], "flops": 0, "where": "features.py:3"}
    made = {
        "inputs": [{"id": "column/a", "name": "a", "type": "float64?[b]"}],
        "weights": [],
        "nodes": [host, *map(node, range(count))],
        "signatures": {"predict": {"inputs": {}, "outputs": {"y": f"t{count}"}, "updates": {}, "checks": []}},
        "rows": 512,
        "total": {"flops": 512 * count, "bytes": 4096 * (count + 1), "exact": True},
    }
    return {**made, **changes}


def texts(svg: str, tag: str) -> list[str]:
    found = ET.fromstring(svg[svg.index("<svg") : svg.index("</div>")])
    return [element.text or "" for element in found.iter(f"{{http://www.w3.org/2000/svg}}{tag}")]


def test_a_small_graph_is_drawn_node_by_node() -> None:
    svg = drawing(graph(3))
    shown = texts(svg, "text")
    assert shown.count("sin") == 3
    assert [name for name in ("a", "values", "y", "input", "host op", "device op", "output") if name not in shown] == []
    told = texts(svg, "title")
    assert any("/home/me/model.py:8" in text and "512 FLOP, 4.1 kB read and written" in text for text in told)
    assert sum("33% of all operations" in text for text in told) == 3


def test_a_large_graph_is_drawn_by_lines_of_code() -> None:
    svg = drawing(graph(999))
    shown = texts(svg, "text")
    assert "model.py:7–9 × 333" in shown
    assert "999 nodes" in shown
    assert "several nodes" in shown
    assert len(texts(svg, "title")) == 4  # the input, the host op, the stack, the output


def test_a_notebooks_cell_is_called_so() -> None:
    nodes = [{**node, "where": f"/tmp/ipykernel_42/{at % 2}71.py:3"} for at, node in enumerate(graph(99)["nodes"])]
    assert "cell:3 × 49" in texts(drawing(graph(99, nodes=nodes)), "text")


def test_text_of_strangers_stays_text() -> None:
    nasty = "</text></svg><script>alert(1)</script>&\"'"
    page = render(graph(2, inputs=[{"id": "column/a", "name": nasty, "type": nasty}]), nasty)
    assert "<script" not in page
    assert texts(page[page.index('<div class="scroll" tabindex') :], "title")[0] == f"input {nasty}: {nasty}"


def test_no_node_at_all() -> None:
    page = render(
        graph(0, nodes=[], signatures={"f": {"inputs": {}, "outputs": {"y": "column/a"}, "updates": {}, "checks": []}})
    )
    assert "nothing to show" in page
    assert texts(page[page.index('<div class="scroll" tabindex') :], "text")[:2] == ["a", "float64?[b]"]


def test_every_kind_has_a_shape_and_a_name_of_its_own() -> None:
    checks = [{"tensor": "t2", "message": "no negative delay", "where": "features.py:9"}]
    signature = {"inputs": {}, "outputs": {"y": "t1"}, "updates": {"mean": "t2"}, "checks": checks}
    nodes = graph(4)["nodes"]
    nodes[2] |= {"kind": "stage", "ops": {"dot_general": 4, "tanh": 1}, "weights": ["w", "v"]}
    nodes[3] |= {"kind": "analyzer", "op": "mean", "device": "gpu:1"}
    weights = [{"id": name, "type": "float32[8,8]", "bytes": 256} for name in ("w", "v")]
    shown = texts(drawing(graph(0, nodes=nodes, signatures={"f": signature}, weights=weights)), "text")
    legend = ["input", "host op", "analyzer", "device op", "device stage", "output", "next value of a weight"]
    assert [name for name in [*legend, "check of each row"] if name not in shown] == []
    assert {"4 dot_general, tanh", "▪ 2 weights, 512 B", "next mean", "no negative delay", "on gpu:1"} <= set(shown)


@pytest.mark.parametrize(
    ("places", "title"),
    [
        (["model.py:31"], "model.py:31"),
        (["model.py:33", "model.py:31"], "model.py:31–33"),
        (["model.py:train"], "model.py:train"),
        (["model.py:train+2", "model.py:train+12", "model.py:train+5"], "model.py:train+2–12"),
        (["model.py:train+2", "model.py:loss+5"], "model.py"),
        (["model.py:train", "model.py:31"], "model.py"),
        (["model.py:31", "loss.py:2"], "model.py, loss.py"),
    ],
)
def test_a_stack_is_titled_by_where_its_code_lies(places: list[str], title: str) -> None:
    assert _span(places) == title
