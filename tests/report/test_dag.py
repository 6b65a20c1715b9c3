"""Laws of the drawing of pipelines: every node once, loops around theirs and nothing else, states as they were."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

from drivetrain.report.dag import drawing
from drivetrain.report.run import draw
from hypothesis import given, settings
from hypothesis import strategies as st

SVG = "{http://www.w3.org/2000/svg}"
Box = tuple[float, float, float, float]


def node(name: str, loop: str = "", **more: Any) -> dict[str, Any]:
    rest = {"exit": False, "gate": False, "conditions": [], "history": [], "details": []}
    return {"id": name, "component": name, "loop": loop} | rest | more


@st.composite
def dags(draw: st.DrawFn) -> dict[str, Any]:
    """Nodes in nested loops, what runs on exit; edges forward, within a loop or into one."""
    count = draw(st.integers(0, 4))
    within = [""] + [draw(st.sampled_from(["", *(f"l{outer}" for outer in range(at))])) for at in range(1, count)]
    loops = [
        {"id": f"l{at}", "within": within[at], "title": f"l{at}: for each of x", "conditions": []}
        for at in range(count)
    ]
    nodes = []
    for place in range(draw(st.integers(1, 14))):
        exits = draw(st.integers(0, 5)) == 0
        loop = "" if exits else draw(st.sampled_from(["", *(f"l{at}" for at in range(count))]))
        more = {"gate": draw(st.booleans()), "conditions": draw(st.sampled_from([[], ["a > 1 & <b>"]]))}
        nodes.append(node(f"n{place}", loop, exit=exits, **more))
    pairs = [
        (a, b)
        for b in range(len(nodes))
        for a in range(b)
        if nodes[a]["loop"] == nodes[b]["loop"] and nodes[a]["exit"] <= nodes[b]["exit"]
    ]
    chosen = draw(st.lists(st.sampled_from(pairs), max_size=20, unique=True)) if pairs else []
    edges = [(f"n{a}", f"n{b}", draw(st.booleans())) for a, b in chosen]
    sources = [item["id"] for item in nodes if not item["loop"] and not item["exit"]]
    edges += [(draw(st.sampled_from(sources)), f"loop:{loop['id']}", True) for loop in loops if sources]
    return {"nodes": nodes, "loops": loops, "edges": edges}


def boxes(markup: str) -> dict[str, Box]:
    """Where each node and each titled group lies, by the first line of its text."""
    root = ET.fromstring(markup)
    found: dict[str, Box] = {}

    def walk(element: ET.Element, x: float, y: float) -> None:
        moved = element.get("transform")
        if moved:
            dx, dy = map(float, moved.removeprefix("translate(").removesuffix(")").split())
            x, y = x + dx, y + dy
        shape = next((child for child in element if child.get("class") == "e"), None)
        if shape is not None:
            if shape.tag == f"{SVG}rect":
                width, height = float(shape.get("width", "")), float(shape.get("height", ""))
            else:
                corners = [tuple(map(float, point.split(","))) for point in shape.get("points", "").split()]
                width, height = max(a for a, _ in corners), max(b for _, b in corners)
            title = element.find(f"{SVG}text")
            assert title is not None
            assert title.text is not None
            assert title.text not in found
            found[title.text] = (x, y, x + width, y + height)
        for child in element:
            walk(child, x, y)

    walk(root, 0.0, 0.0)
    return found


def inside(one: Box, other: Box) -> bool:
    return one[0] >= other[0] and one[1] >= other[1] and one[2] <= other[2] and one[3] <= other[3]


def apart(one: Box, other: Box) -> bool:
    slack = 0.11  # places are written to a tenth of a pixel
    return (
        one[2] <= other[0] + slack
        or other[2] <= one[0] + slack
        or one[3] <= other[1] + slack
        or other[3] <= one[1] + slack
    )


@settings(deadline=None, max_examples=150)
@given(dags())
def test_nodes_lie_in_their_loops_and_apart_from_all_else(dag: dict[str, Any]) -> None:
    drawn = drawing(dag)
    found = boxes(drawn.markup)
    titles = {loop["id"]: loop["title"] for loop in dag["loops"]}
    outer = {loop["title"]: titles.get(loop["within"], "") for loop in dag["loops"]}
    outer |= {item["id"]: "on exit" if item["exit"] else titles.get(item["loop"], "") for item in dag["nodes"]}
    outer |= {"on exit": ""} if any(item["exit"] for item in dag["nodes"]) else {}
    assert set(found) == set(outer)
    for name, box in found.items():
        assert box[0] >= 0
        assert box[1] >= 0
        assert box[2] <= drawn.width
        assert box[3] <= drawn.height
        around = []
        at = outer[name]
        while at:
            around.append(at)
            assert inside(box, found[at])
            at = outer[at]
        for other in found:
            if other != name and other not in around and not _holds(outer, name, other):
                assert apart(box, found[other]), (name, other)


def _holds(outer: dict[str, str], group: str, name: str) -> bool:
    while name:
        name = outer[name]
        if name == group:
            return True
    return False


def test_branches_gates_and_waiting_look_different() -> None:
    dag = {
        "nodes": [node("A"), node("Gate", gate=True), node("B", conditions=["A.rows > 3"]), node("C", component="B")],
        "loops": [],
        "edges": [("A", "Gate", True), ("A", "B", False), ("Gate", "C", False), ("A", "C", True)],
    }
    root = ET.fromstring(drawing(dag).markup)
    looks = {
        text.text: group.get("class", "").split()
        for group in root.iter(f"{SVG}g")
        if (text := group.find(f"{SVG}text")) is not None
    }
    assert ("if" in looks["B"], "if" in looks["A"]) == (True, False)
    assert len(list(root.iter(f"{SVG}polygon"))) == 1
    waiting, flowing = (
        sum((path.get("d") or "").count("M") for path in root.iter(f"{SVG}path") if path.get("class") == looked)
        for looked in ("line wait", "line")
    )
    assert (waiting, flowing) == (2, 2)
    words = [text.text for text in root.iter(f"{SVG}text")]
    assert "if A.rows > 3" in words
    assert words[words.index("C") + 1] == "B"
    assert sum("dashed border" in (word or "") for word in words) == 1


def test_a_run_is_coloured_by_the_worst_of_each_nodes_items() -> None:
    loop = {"id": "map", "within": "", "title": "map: for each of x", "conditions": []}
    dag = {"nodes": [node("A"), node("B", "map"), node("C")], "loops": [loop], "edges": [("A", "loop:map", True)]}
    tasks = {"A": ("CACHED", 0.1), "B[0]": ("COMPLETE", 1.0), "B[1]": ("FAILED", 0.5), "B[2]": ("COMPLETE", 1.5)}
    drawn = draw(dag, {name: {"state": state, "seconds": seconds} for name, (state, seconds) in tasks.items()})
    found = {
        text.text: (group.get("class"), [each.text for each in group.iter(f"{SVG}text")][-1])
        for group in ET.fromstring(drawn.markup).iter(f"{SVG}g")
        if (text := group.find(f"{SVG}text")) is not None and "node" in (group.get("class") or "").split()
    }
    assert found == {
        "A": ("node info", "cached"),
        "B": ("node bad", "2 complete, 1 failed, 3.00 s"),
        "C": ("node plain", "no items"),
    }
