"""A pipeline's DAG as indented lines: each node below the last of those it waits for, its items below it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..pipelines import Pipeline
from ..pipelines.ir.tasks import parse_task


def tasks_by_node(tasks: Iterable[str]) -> dict[str, list[str]]:
    """Node id → its tasks, in the given order: itself outside loops, its items in one."""
    tasks_of: dict[str, list[str]] = {}
    for name in tasks:
        tasks_of.setdefault(parse_task(name)[0], []).append(name)
    return tasks_of


def expanded(lines: Iterable[tuple[str, str]], tasks: Iterable[str]) -> Iterator[tuple[str, str]]:
    """(guide, task) for every task: an outline of nodes, each replaced by its tasks."""
    tasks_of = tasks_by_node(tasks)
    for guide, node in lines:
        yield from ((guide, name) for name in tasks_of.get(node, ()))


def outline(pipeline: Pipeline) -> Iterator[tuple[str, str]]:
    """(guide, node id) for every node, depth first; the guide is what is drawn before the name."""
    order = {name: index for index, name in enumerate(pipeline.ids)}
    below: dict[str | None, list[str]] = {}
    for name in pipeline.ids:
        upstream = pipeline.upstream(name)
        below.setdefault(max(upstream, key=order.__getitem__) if upstream else None, []).append(name)

    # No recursion: a chain may be deeper than Python's stack.
    todo = [("", "", name) for name in reversed(below.get(None, []))]
    while todo:
        guide, sign, name = todo.pop()
        yield guide + sign, name
        inner = guide + {"├ ": "│ ", "└ ": "  "}.get(sign, "")
        names = below.get(name, [])
        todo += [(inner, "└ " if each == names[-1] else "├ ", each) for each in reversed(names)]
