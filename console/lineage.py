"""`lineage`: what led to an artifact or a node, or what was made from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..errors import InputError
from ..metadata import ArtifactRecord, ExecutionRecord, LineageGraph, NotFound
from ..pipelines import Home, open_run
from ..pipelines.ir.tasks import parse_task
from ..pipelines.launcher.flow import Flow
from .live import STYLES
from .options import OK, ConsoleSettings, shared
from .session import run_of

if TYPE_CHECKING:
    from rich.tree import Tree


@click.command(
    epilog="\b\nExample:\n  drivetrain lineage Pusher\n  drivetrain lineage ExampleGen --down\n"
    "  drivetrain lineage artifacts/Trainer/0f3c…/model\n"
)
@click.argument("start", metavar="ARTIFACT|NODE")
@click.option("--down", is_flag=True, help="What was made from it, instead of what it was made from.")
@click.option("--run", "run_id", metavar="RUN", help="The run that NODE is of; the newest unless given.")
@shared
def lineage(settings: ConsoleSettings, start: str, down: bool, run_id: str | None) -> int:
    """Trace what led to an artifact or a node, or with --down what was made from it, through all runs.

    ARTIFACT is a URI, a uid, or the beginning of a fingerprint, as `drivetrain show` prints them; NODE is a node of
    a run.
    """
    with settings.home() as home:
        record = _start(home, start, run_id)
        graph = home.store.lineage(record, "downstream" if down else "upstream")
        answer = {"start": start, "direction": "downstream" if down else "upstream", **_lineage_json(home, graph)}
        settings.answer(answer, lambda console: console.print(_tree(home, record, graph, down=down)))
    return OK


def find_artifact(home: Home, start: str) -> ArtifactRecord | None:
    """The artifact of a URI (or a path that ends in one), a uid, or the beginning of a fingerprint.

    An imported artifact is also found by the URI that it has where it comes from. Of several, the newest.
    """
    uri = start[start.index("artifacts/") :].rstrip("/") if "artifacts/" in start else start
    if (by_uri := home.store.artifact_by_uri(uri)) is not None:
        return by_uri
    try:
        return home.store.artifact(start)
    except NotFound:
        pass
    imported = home.store.artifacts(state="REFERENCE")
    if (by_origin := next((artifact for artifact in imported if artifact.external == start), None)) is not None:
        return by_origin
    if len(start) >= 8 and not start.strip("0123456789abcdef"):
        matching = [artifact for artifact in home.store.artifacts() if artifact.fingerprint.startswith(start)]
        return matching[0] if matching else None
    return None


def _start(home: Home, start: str, run_id: str | None) -> ArtifactRecord | ExecutionRecord:
    if (artifact := find_artifact(home, start)) is not None:
        return artifact
    run = open_run(home, run_id)
    node, index = parse_task(start)
    if node not in run.pipeline.ids:
        raise InputError(
            f"{start!r} is no artifact in {home.root} and no node of run {run.id}",
            fix=f"name a node ({', '.join(run.pipeline.ids)}), or a URI that `drivetrain show` prints",
        )
    execution = Flow(home.store, run).execution(node, index)
    if execution is None:
        raise InputError(f"{start} did not run in run {run.id}", fix="name another run with --run")
    return execution


def _lineage_json(home: Home, graph: LineageGraph) -> dict[str, object]:
    return {
        "artifacts": [
            {"id": a.id, "uid": a.uid, "type": a.type, "uri": a.external or a.uri, "fingerprint": a.fingerprint}
            | {"state": a.state}
            for a in graph.artifacts.values()
        ],
        "executions": [
            {"id": e.id, "node": _node(e), "component": e.component, "state": e.state, "run": run_of(home, e)}
            for e in graph.executions.values()
        ],
        "edges": [
            {"execution": e.execution, "direction": e.direction, "key": e.key, "artifact": e.artifact}
            for e in graph.edges
        ],
    }


def _tree(home: Home, start: ArtifactRecord | ExecutionRecord, graph: LineageGraph, *, down: bool) -> Tree:
    """The graph as a tree from its start; what was drawn before is named, not drawn again."""
    from rich.tree import Tree

    outward, inward = ("INPUT", "OUTPUT") if down else ("OUTPUT", "INPUT")
    drawn: set[tuple[str, int]] = set()

    def grow(tree: Tree, kind: str, number: int) -> None:
        drawn.add((kind, number))
        for edge in graph.edges:
            if kind == "artifact" and (edge.artifact, edge.direction) == (number, outward):
                draw(tree, "execution", edge.execution, "")
            elif kind == "execution" and (edge.execution, edge.direction) == (number, inward):
                draw(tree, "artifact", edge.artifact, edge.key)

    def draw(tree: Tree, kind: str, number: int, key: str) -> None:
        above = (kind, number) in drawn
        branch = tree.add(label(kind, number, key) + (" [dim](see above)[/]" if above else ""))
        if not above:
            grow(branch, kind, number)

    def label(kind: str, number: int, key: str = "") -> str:
        from rich.markup import escape

        if kind == "artifact":
            artifact = graph.artifacts[number]
            name = f"{key}: " if key else ""
            location = escape(artifact.external or artifact.uri)
            return f"{name}[bold]{escape(artifact.type)}[/] {artifact.fingerprint[:12]} [dim]{location}[/]".replace(
                "  ", " "
            )
        execution = graph.executions[number]
        state = f"[{STYLES.get(execution.state, 'dim')}]{execution.state}[/]"
        return f"{escape(_node(execution))} {state} [dim]run {run_of(home, execution)}[/]"

    kind = "artifact" if isinstance(start, ArtifactRecord) else "execution"
    tree = Tree(label(kind, start.id))
    grow(tree, kind, start.id)
    return tree


def _node(execution: ExecutionRecord) -> str:
    return str(execution.properties.get("node") or execution.component)
