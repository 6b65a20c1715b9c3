"""Laws of a layered drawing: boxes apart, edges to the right, lines around boxes."""

from __future__ import annotations

import pytest
from drivetrain.report.layers import extent, layout
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
