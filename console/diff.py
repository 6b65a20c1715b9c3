"""`diff`: what two runs do not have in common: code, parameters, data, metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from ..metadata import explain
from ..pipelines import Home, Run, open_run
from ..pipelines.launcher.states import EndState
from .exit_codes import OK
from .options import ConsoleSettings, print_text, shared
from .session import NodeView, view

if TYPE_CHECKING:
    from rich.console import Console


@click.command(epilog="\b\nExample:\n  drivetrain diff 20261120 20261121\n  drivetrain diff 20261120 20261121 --json\n")
@click.argument("first")
@click.argument("second")
@shared
def diff(settings: ConsoleSettings, first: str, second: str) -> int:
    """Say what changed from run FIRST to run SECOND: parameters, and of each node its state, code, data and metrics."""
    with settings.home() as home:
        answer = compare_runs(home, open_run(home, first), open_run(home, second))
        settings.answer(answer, lambda console: _show(console, answer))
    return OK


def compare_runs(home: Home, old: Run, new: Run) -> dict[str, Any]:
    """What differs, as JSON: `parameters`, and `nodes` with their `state`, `changes`, `properties` and `metrics`.

    A node that both have and in which nothing differs is not named.
    """
    before, after = _begun(home, old), _begun(home, new)
    nodes = {}
    for name in dict.fromkeys((*after, *before)):
        if differences := _node(home, before.get(name), after.get(name)):
            nodes[name] = differences
    return {
        "runs": [old.id, new.id],
        "pipelines": [old.pipeline.name, new.pipeline.name],
        "states": [old.state, new.state],
        "parameters": _changed(old.parameters, new.parameters),
        "nodes": nodes,
    }


def _begun(home: Home, run: Run) -> dict[str, NodeView]:
    return {name: node for name, node in view(home, run).nodes.items() if node.execution is not None}


def _node(home: Home, old: NodeView | None, new: NodeView | None) -> dict[str, Any]:
    if old is None or new is None:
        there = new or old
        return {"only_in": "second" if new else "first", "state": there.state if there else ""}
    differences: dict[str, Any] = {}
    ended = (EndState.COMPLETE, EndState.CACHED)
    if old.state != new.state and not (old.state in ended and new.state in ended):
        differences["state"] = [old.state, new.state]
    keys = [home.store.execution(node.execution).cache_key for node in (old, new) if node.execution is not None]
    if all(keys) and keys[0] != keys[1]:
        preimages = [home.store.preimage(str(key)) or {} for key in keys]
        differences["changes"] = explain(*preimages)
    properties = (_properties(old), _properties(new))
    if all(properties) and properties[0] != properties[1]:
        differences["properties"] = _changed(*properties)
    if metrics := _changed(_numbers(old), _numbers(new)):
        differences["metrics"] = metrics
    return differences


def _properties(node: NodeView) -> dict[str, Any]:
    return {
        f"{output}.{name}": value
        for output, record in node.records.items()
        for name, value in record.properties.items()
        if name != "metrics"  # compared one by one
    }


def _numbers(node: NodeView) -> dict[str, float | None]:
    """What was measured, and what else the outputs are compared by, as they say themselves."""
    return dict(node.metrics) | {
        name: number for output in node.records for name, number in node.summary(output).numbers.items()
    }


def _changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, list[Any]]:
    names = dict.fromkeys((*old, *new))
    return {name: [old.get(name), new.get(name)] for name in names if old.get(name) != new.get(name)}


def _show(console: Console, answer: Mapping[str, Any]) -> None:
    from rich.markup import escape

    (first_run, second_run), (old, new) = answer["runs"], answer["states"]
    console.print(f"{first_run} ({old}) -> {second_run} ({new})", markup=False)
    for name, (before, after) in answer["parameters"].items():
        print_text(console, f"  parameter {name}: {before} -> {after}")
    for name, differences in answer["nodes"].items():
        console.print(f"[bold]{escape(name)}[/]")
        if "only_in" in differences:
            console.print(f"  only in the {differences['only_in']} run ({differences['state']})", markup=False)
            continue
        if "state" in differences:
            console.print(f"  state: {differences['state'][0]} -> {differences['state'][1]}", markup=False)
        for line in differences.get("changes", ()):
            print_text(console, f"  {line}")
        for facts in (differences.get("properties", {}), differences.get("metrics", {})):
            for key, (before, after) in facts.items():
                print_text(console, f"  {key}: {_short(before)} -> {_short(after)}")
    if not answer["parameters"] and not answer["nodes"]:
        console.print("  nothing differs", style="dim")


def _short(value: object) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
