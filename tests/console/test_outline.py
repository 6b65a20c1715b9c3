"""A pipeline as indented lines, however deep it is."""

from __future__ import annotations

from drivetrain.console.outline import outline
from drivetrain.pipelines import Pipeline
from drivetrain.pipelines.ir.ir import Edge, Node


def node(name: str, *before: str) -> Node:
    inputs = (("x", tuple(Edge(each, "o") for each in before)),) if before else ()
    return Node(name, "m:N", None, inputs, (), (("o", "O"),))


def test_a_chain_deeper_than_the_stack() -> None:
    names = [f"N{number}" for number in range(3000)]
    chain = Pipeline("deep", (), tuple(node(name, *names[max(0, n - 1) : n]) for n, name in enumerate(names)))
    lines = list(outline(chain))
    assert [name for _, name in lines] == names
    assert [len(guide) for guide, _ in lines[:4]] == [0, 2, 4, 6]


def test_siblings_and_what_is_below_them() -> None:
    nodes = (node("A"), node("B", "A"), node("C", "B"), node("D", "B"), node("E", "A"), node("F", "D", "E"))
    assert [guide + name for guide, name in outline(Pipeline("p", (), nodes))] == [
        "A", "├ B", "│ ├ C", "│ └ D", "└ E", "  └ F"
    ]  # fmt: skip
