"""A pipeline's DAG as indented lines: each node below the last of those it waits for, its items below it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ..pipelines import Pipeline


def tasks_by_node(tasks: Iterable[str]) -> dict[str, list[str]]:
    """The tasks of each node, in order."""
    found: dict[str, list[str]] = {}
    for name in tasks:
        found.setdefault(name.partition("[")[0], []).append(name)
    return found


def expanded(lines: Iterable[tuple[str, str]], nodes: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """(guide, task) for every task: an outline with each node's items in its place."""
    tasks = tasks_by_node(nodes)
    for guide, node in lines:
        yield from ((guide, name) for name in tasks.get(node, ()))


def outline(pipeline: Pipeline) -> Iterator[tuple[str, str]]:
    """(guide, node id) for every node, depth first; the guide is what is drawn before the name."""
    order = {name: index for index, name in enumerate(pipeline.ids)}
    below: dict[str | None, list[str]] = {}
    for name in pipeline.ids:
        upstream = pipeline.upstream(name)
        below.setdefault(max(upstream, key=order.__getitem__) if upstream else None, []).append(name)

    def walk(parent: str | None, guide: str) -> Iterator[tuple[str, str]]:
        names = below.get(parent, [])
        for name in names:
            if parent is None:
                yield "", name
                yield from walk(name, "")
            else:
                last = name == names[-1]
                yield f"{guide}{'└ ' if last else '├ '}", name
                yield from walk(name, f"{guide}{'  ' if last else '│ '}")

    yield from walk(None, "")
