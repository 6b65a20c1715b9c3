"""`diff`: what two runs do not have in common: code, parameters, data, metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from ..metadata import ExecutionRecord, explain
from ..pipelines import Home, Run, open_run
from ..pipelines.ir.tasks import parse_task
from ..pipelines.launcher.flow import Flow
from .options import OK, Settings, shared

if TYPE_CHECKING:
    from rich.console import Console


@click.command(epilog="\b\nExample:\n  drivetrain diff 20261120 20261121\n  drivetrain diff 20261120 20261121 --json\n")
@click.argument("first")
@click.argument("second")
@shared
def diff(settings: Settings, first: str, second: str) -> int:
    """Say what changed from run FIRST to run SECOND: parameters, and of each node its state, code, data and metrics."""
    with settings.home() as home:
        answer = compare_runs(home, open_run(home, first), open_run(home, second))
        settings.answer(answer, lambda console: _show(console, answer))
    return OK


def compare_runs(home: Home, old: Run, new: Run) -> dict[str, Any]:
    """What differs, as JSON: `parameters`, and `nodes` with their `state`, `changes`, `properties` and `metrics`.

    A node that both have and in which nothing differs is not named.
    """
    before, after = _executions(home, old), _executions(home, new)
    nodes = {}
    for name in dict.fromkeys((*after, *before)):
        found = _node(home, before.get(name), after.get(name))
        if found:
            nodes[name] = found
    return {
        "runs": [old.id, new.id],
        "pipelines": [old.pipeline.name, new.pipeline.name],
        "states": [old.state, new.state],
        "parameters": _changed(old.parameters, new.parameters),
        "nodes": nodes,
    }


def _executions(home: Home, run: Run) -> dict[str, ExecutionRecord]:
    flow = Flow(home.store, run)
    names = [name for node in run.pipeline.ids for name in flow.task_names(node)]
    found = {name: flow.execution(*parse_task(name)) for name in names}
    return {name: execution for name, execution in found.items() if execution is not None}


def _node(home: Home, old: ExecutionRecord | None, new: ExecutionRecord | None) -> dict[str, Any]:
    if old is None or new is None:
        there = new or old
        return {"only_in": "second" if new else "first", "state": there.state if there else ""}
    found: dict[str, Any] = {}
    ended = ("COMPLETE", "CACHED")
    if old.state != new.state and not (old.state in ended and new.state in ended):
        found["state"] = [old.state, new.state]
    keys = (old.cache_key, new.cache_key)
    if all(keys) and keys[0] != keys[1]:
        found["changes"] = explain(home.store.preimage(str(keys[0])) or {}, home.store.preimage(str(keys[1])) or {})
    one, two = _properties(home, old), _properties(home, new)
    if one != two and one and two:
        found["properties"] = _changed(one, two)
    metrics = _changed(_metrics(home, old), _metrics(home, new))
    if metrics:
        found["metrics"] = metrics
    return found


def _properties(home: Home, execution: ExecutionRecord) -> dict[str, Any]:
    return {
        f"{key}.{name}": value
        for key, records in home.store.outputs(execution).items()
        for record in records
        for name, value in record.properties.items()
    }


def _metrics(home: Home, execution: ExecutionRecord) -> dict[str, float | None]:
    """The metrics over all rows of an evaluation; none of other nodes."""
    from ..components.evaluation.read import read_slices

    for records in home.store.outputs(execution).values():
        for record in records:
            if record.type != "Evaluation" or not home.payloads.present(record.uri):
                continue  # others would be fetched in vain, where artifacts lie elsewhere
            content = home.payloads.local(record.uri, record.fingerprint) / "content"
            if (content / "metrics.parquet").is_file():
                return next((one.values for one in read_slices(content) if not one.pairs), {})
    return {}


def _changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, list[Any]]:
    names = dict.fromkeys((*old, *new))
    return {name: [old.get(name), new.get(name)] for name in names if old.get(name) != new.get(name)}


def _show(console: Console, answer: Mapping[str, Any]) -> None:
    from rich.markup import escape

    (one, two), (old, new) = answer["runs"], answer["states"]
    console.print(f"{one} ({old}) -> {two} ({new})", markup=False)
    for name, (before, after) in answer["parameters"].items():
        console.print(f"  parameter {name}: {before} -> {after}", markup=False, soft_wrap=True)
    for name, found in answer["nodes"].items():
        console.print(f"[bold]{escape(name)}[/]")
        if "only_in" in found:
            console.print(f"  only in the {found['only_in']} run ({found['state']})", markup=False)
            continue
        if "state" in found:
            console.print(f"  state: {found['state'][0]} -> {found['state'][1]}", markup=False)
        for line in found.get("changes", ()):
            console.print(f"  {line}", markup=False, soft_wrap=True)
        for facts in (found.get("properties", {}), found.get("metrics", {})):
            for key, (before, after) in facts.items():
                console.print(f"  {key}: {_short(before)} -> {_short(after)}", markup=False, soft_wrap=True)
    if not answer["parameters"] and not answer["nodes"]:
        console.print("  nothing differs", style="dim")


def _short(value: object) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
