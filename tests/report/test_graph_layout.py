"""Laws of the drawing of graphs: boxes apart, edges to the right, lines around boxes; long sequences told whole."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

import pytest
from drivetrain.report.graph import drawing, render, units
from drivetrain.report.layers import extent, layout
from drivetrain.report.segments import segments
from hypothesis import given, settings
from hypothesis import strategies as st

_SIZES = st.tuples(st.integers(10, 200), st.integers(10, 80)).map(lambda size: (float(size[0]), float(size[1])))


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[tuple[float, float]], list[tuple[int, int]]]:
    sizes = draw(st.lists(_SIZES, min_size=1, max_size=25))
    pairs = [(a, b) for b in range(len(sizes)) for a in range(b)]
    return sizes, draw(st.lists(st.sampled_from(pairs), max_size=60)) if pairs else []


@settings(deadline=None, max_examples=150)
@given(graphs())
def test_boxes_stand_apart_and_lines_lead_around_them(
    graph: tuple[list[tuple[float, float]], list[tuple[int, int]]],
) -> None:
    sizes, edges = graph
    drawn = layout(sizes, edges)
    boxes = [(x, y, x + w, y + h) for (x, y), (w, h) in zip(drawn.places, sizes, strict=True)]
    for left, top, right, bottom in boxes:
        assert left >= -1e-6
        assert top >= -1e-6
        assert right <= drawn.width + 1e-6
        assert bottom <= drawn.height + 1e-6
    for one, (left, top, right, bottom) in enumerate(boxes):
        for other in boxes[:one]:
            assert other[2] <= left or other[0] >= right or other[3] <= top + 1e-6 or other[1] >= bottom - 1e-6
    assert set(drawn.lines) == set(edges)
    for (source, target), points in drawn.lines.items():
        assert [x for x, _ in points] == sorted(x for x, _ in points)
        assert points[0][0] == pytest.approx(boxes[source][2])
        assert points[-1][0] == pytest.approx(boxes[target][0])
        assert boxes[target][1] <= points[-1][1] <= boxes[target][3]
        for (x0, y), (x1, _) in zip(points[::2], points[1::2], strict=True):  # straight pieces pass whole layers
            through = [
                at
                for at, (left, top, right, bottom) in enumerate(boxes)
                if at not in (source, target) and left < x1 and right > x0 and top + 1e-6 < y < bottom - 1e-6
            ]
            assert through == []


def test_a_chain_is_straight_and_a_tree_does_not_cross() -> None:
    chain = layout([(50.0, 20.0)] * 5, [(a, a + 1) for a in range(4)])
    assert len({y for _, y in chain.places}) == 1
    tree = layout([(50.0, 20.0)] * 7, [(0, 1), (0, 2), (1, 3), (1, 4), (2, 5), (2, 6)])
    heights = [y for _, y in tree.places]
    assert (heights[1] < heights[2]) == (max(heights[3:5]) < min(heights[5:7]))
    assert extent([(50.0, 20.0)] * 7, [(0, 1), (0, 2), (1, 3), (1, 4), (2, 5), (2, 6)]) == (150.0, 80.0)


def test_a_long_line_is_straight() -> None:
    """A skip connection over eight boxes bends at its two ends alone."""
    edges = [(a, a + 1) for a in range(9)] + [(0, 9)]
    points = layout([(50.0, 20.0)] * 10, edges).lines[0, 9]
    assert len({round(y, 3) for _, y in points[2:-2]}) == 1


@settings(deadline=None)
@given(st.lists(st.sampled_from("abcd"), max_size=120), st.integers(1, 40))
def test_segments_tell_a_sequence_whole(keys: list[str], limit: int) -> None:
    found = segments(keys, limit)
    assert [place for part in found for place in range(part.start, part.stop)] == list(range(len(keys)))
    assert all(part.start < part.stop for part in found)
    assert len(found) <= limit
    if len(keys) <= limit:
        assert len(found) == len(keys)


def test_a_pattern_that_repeats_is_one_segment() -> None:
    (layers, end) = segments([*("aab" * 50), "c"], 10)
    assert (layers.start, layers.stop, layers.times) == (0, 150, 50)
    assert (end.start, end.stop, end.times) == (150, 151, 1)


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
            "op": "sin", "called": None, "kind": "device", "inputs": [f"t{at}"], "weights": [], "settings": "",
            "ops": {}, "outputs": [{"id": f"t{at + 1}", "type": "float32[b]"}], "device": None,
            "where": f"/home/me/model.py:{at % 3 + 7}", "flops": 512, "bytes": 4096, "exact": True,
        }  # fmt: skip

    host = {**node(-1), "op": "values", "kind": "host", "inputs": ["column/a"], "flops": 0, "where": "features.py:3"}
    made = {
        "inputs": [{"id": "column/a", "name": "a", "type": "float64?[b]"}],
        "weights": [],
        "nodes": [host, *map(node, range(count))],
        "signatures": {"predict": {"outputs": {"y": f"t{count}"}, "updates": {}, "checks": []}},
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
    page = render(graph(0, nodes=[], signatures={"f": {"outputs": {"y": "column/a"}, "updates": {}, "checks": []}}))
    assert "nothing to show" in page
    assert texts(page[page.index('<div class="scroll" tabindex') :], "text")[:2] == ["a", "float64?[b]"]


def test_every_kind_has_a_shape_and_a_name_of_its_own() -> None:
    checks = [{"tensor": "t2", "message": "no negative delay", "where": "features.py:9"}]
    signature = {"outputs": {"y": "t1"}, "updates": {"mean": "t2"}, "checks": checks}
    nodes = graph(4)["nodes"]
    nodes[2] |= {"kind": "stage", "ops": {"dot_general": 4, "tanh": 1}, "weights": ["w", "v"]}
    nodes[3] |= {"kind": "analyzer", "op": "mean", "device": "gpu:1"}
    weights = [{"id": name, "type": "float32[8,8]", "bytes": 256} for name in ("w", "v")]
    shown = texts(drawing(graph(0, nodes=nodes, signatures={"f": signature}, weights=weights)), "text")
    legend = ["input", "host op", "analyzer", "device op", "device stage", "output", "next value of a weight"]
    assert [name for name in [*legend, "check of each row"] if name not in shown] == []
    assert {"4 dot_general, tanh", "▪ 2 weights, 512 B", "next mean", "no negative delay", "on gpu:1"} <= set(shown)
