"""The runs of another system as runs of ours: a compiled form of what was recorded of them, to show and to trace."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from ..metadata.mlmd import ImportedExecution, MlmdImport, adopt, import_mlmd, imported_executions
from ..pipelines import Home, RunOptions
from ..pipelines.ir.ir import Edge, Node, Pipeline
from ..progress import Progress, no_progress


def import_runs(home: Home, path: Path, progress: Progress = no_progress) -> MlmdImport:
    """Take an MLMD file into a home, and make what it calls pipeline runs runs here.

    Raises:
        InputError: See `metadata.import_mlmd`.
    """
    found = import_mlmd(home.store, path, progress)
    known: dict[Pipeline, str] = {}
    for count, number in enumerate(found.runs, 1):
        steps = imported_executions(home.store, number)
        if steps:
            _describe(home, number, steps, path, known)
        progress(count, len(found.runs), "runs")
    return found


def _describe(home: Home, number: int, steps: list[ImportedExecution], path: Path, known: dict[Pipeline, str]) -> None:
    name = next((step.pipeline for step in reversed(steps) if step.pipeline), "imported")
    pipeline = compiled(name, steps)
    if pipeline not in known:
        known[pipeline] = pipeline.digest
        home.store.context("ir", pipeline.digest, {"ir": pipeline.to_json()}, durable=False)
    facts = {
        "pipeline": name,
        "ir": known[pipeline],
        "project": str(path.absolute()),
        "imported": str(path.absolute()),
        "parameters": json.dumps({}),
        "options": json.dumps(vars(RunOptions())),
        "state": _state(steps),
        "started": min(step.started for step in steps).isoformat(),
        "finished": max(step.ended for step in steps).isoformat(),
    }
    adopt(home.store, number, name, facts, {step.id: step.node for step in steps if not step.placed})


def compiled(name: str, steps: Iterable[ImportedExecution]) -> Pipeline:
    """The pipeline as far as a run shows it: its nodes, and what flowed between them within the run."""
    nodes: dict[str, Node] = {}
    given: dict[int, Edge] = {}  # by artifact: the last node that made it or passed it on
    for step in steps:
        if step.node in nodes:  # tried again, or once for each of several items
            flows = dict(nodes[step.node].outputs)
        else:
            flows = {}
            inputs = {
                key: tuple(dict.fromkeys(given[one] for one in artifacts if one in given))
                for key, artifacts in step.inputs.items()
            }
            nodes[step.node] = Node(
                id=step.node,
                component=":".join(step.component.rsplit(".", 1)),
                code=None,
                inputs=tuple((key, edges) for key, edges in sorted(inputs.items()) if edges),
                parameters=(),
                outputs=(),
            )
        flows |= {key: kind for key, (kind, _) in step.outputs.items()}
        nodes[step.node] = _with_outputs(nodes[step.node], flows)
        given |= {one: Edge(step.node, key) for key, (_, artifacts) in step.outputs.items() for one in artifacts}
    return Pipeline(name, (), tuple(nodes.values()))


def _with_outputs(node: Node, outputs: dict[str, str]) -> Node:
    return replace(node, outputs=tuple(sorted(outputs.items())))


def _state(steps: Iterable[ImportedExecution]) -> str:
    """How the run ended, by the last execution of each node."""
    last = {step.node: step.state for step in steps}.values()
    return next((end for of, end in _ENDS.items() if of in last), "COMPLETE")


_ENDS = {"FAILED": "FAILED", "ABANDONED": "INTERRUPTED", "CANCELED": "CANCELED"}
