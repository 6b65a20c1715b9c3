"""`import-mlmd`: what TFX recorded, taken into the store; its runs get a compiled form, to be shown and traced."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..pipelines import Home, RunOptions
from ..pipelines.ir.ir import Edge, Node, Pipeline
from ..pipelines.launcher.states import RunState
from ..progress import Progress, no_progress
from .exit_codes import OK
from .options import ConsoleSettings, print_text, shared
from .terminal import terminal

if TYPE_CHECKING:
    from rich.console import Console

    from ..metadata.mlmd import ImportedExecution, MlmdImport


@click.command(
    epilog="\b\nExample:\n  drivetrain import-mlmd tfx_metadata/taxi/metadata.db\n  drivetrain runs\n"
    "  drivetrain lineage Pusher\n"
)
@click.argument("file", type=click.Path(path_type=Path))
@shared
def import_mlmd(settings: ConsoleSettings, file: Path) -> int:
    """Import runs, artifacts and lineage from FILE, an ML Metadata store (SQLite) as TFX writes it.

    Payloads stay where they are: `runs`, `show`, `lineage` and `diff` name them; nothing reads or deletes them.
    FILE is only read. The same command again takes in what was added since.
    """
    with settings.home(readonly=False, create=True) as home, terminal(stderr=True).status("reading") as status:
        imported = import_runs(home, file, lambda count, total, what: status.update(f"{count:,} {what}"))
        status.stop()
        settings.answer(
            {**asdict(imported), "runs": len(imported.runs)}, lambda console: _show(console, settings, file, imported)
        )
    return OK


def _show(console: Console, settings: ConsoleSettings, file: Path, imported: MlmdImport) -> None:
    new = [f"{imported.artifacts:,} artifacts", f"{imported.executions:,} executions", f"{imported.events:,} events"]
    if imported.runs or imported.executions or imported.artifacts:
        print_text(console, f"from {file}: {len(imported.runs):,} runs, {', '.join(new)}")
    else:
        print_text(console, f"nothing new in {file}")
    if imported.updated:
        console.print(f"  {imported.updated:,} had changed since the last time")
    if imported.passed_on:
        explanation = (
            "outputs had a producer already: only the first execution is recorded as such, later ones as consumers"
        )
        print_text(console, f"  {imported.passed_on:,} {explanation}")
    if imported.left_out:
        console.print(f"  {imported.left_out:,} rows were left out: they name what is not there", markup=False)
    console.print(f"  see: drivetrain runs{settings.as_options}", markup=False, style="dim", soft_wrap=True)


def import_runs(home: Home, path: Path, progress: Progress = no_progress) -> MlmdImport:
    """Take an MLMD file into a home. What it calls pipeline runs become runs of the home.

    Raises:
        InputError: See `metadata.import_mlmd`.
    """
    from ..metadata.mlmd import import_mlmd as import_file
    from ..metadata.mlmd import imported_executions

    imported = import_file(home.store, path, progress)
    known: dict[Pipeline, str] = {}
    for count, number in enumerate(imported.runs, 1):
        steps = imported_executions(home.store, number)
        if steps:
            _describe(home, number, steps, path, known)
        progress(count, len(imported.runs), "runs")
    return imported


def _describe(home: Home, number: int, steps: list[ImportedExecution], path: Path, known: dict[Pipeline, str]) -> None:
    """Record an imported run's compiled form and facts; `known` holds the digests of forms that are recorded."""
    from ..metadata.mlmd import adopt

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
    makers: dict[int, Edge] = {}  # by artifact: the last node that made it or passed it on
    for step in steps:
        if step.node in nodes:  # tried again, or once for each of several items
            flows = dict(nodes[step.node].outputs)
        else:
            flows = {}
            inputs = {
                key: tuple(dict.fromkeys(makers[artifact] for artifact in artifacts if artifact in makers))
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
        makers |= {
            artifact: Edge(step.node, key) for key, (_, artifacts) in step.outputs.items() for artifact in artifacts
        }
    return Pipeline(name, (), tuple(nodes.values()))


def _with_outputs(node: Node, outputs: dict[str, str]) -> Node:
    return replace(node, outputs=tuple(sorted(outputs.items())))


def _state(steps: Iterable[ImportedExecution]) -> RunState:
    """How the run ended, by the last execution of each node: as the worst of them."""
    last = {step.node: step.state for step in steps}.values()
    return next((run_state for state, run_state in _WORST_FIRST.items() if state in last), RunState.COMPLETE)


_WORST_FIRST = {"FAILED": RunState.FAILED, "ABANDONED": RunState.INTERRUPTED, "CANCELED": RunState.CANCELED}
