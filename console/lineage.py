"""`lineage`: what led to an artifact or a node, or what was made from it."""

from __future__ import annotations

import json
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ..errors import InputError
from ..metadata import ArtifactRecord, ExecutionRecord, LineageGraph, Model, NotFound, PushedModel, TransformGraph
from ..pipelines import Home, open_run
from ..pipelines.ir.tasks import parse_task
from ..pipelines.launcher.files_read import files_read
from ..pipelines.launcher.flow import Flow
from .exit_codes import OK
from .live import STYLES
from .options import ConsoleSettings, shared
from .session import payload_file, run_of

if TYPE_CHECKING:
    from rich.tree import Tree


_BUNDLES: Final = (Model.__name__, TransformGraph.__name__)
"""The types whose content is a bundle."""

_FILES: Final = 5
"""Files of one execution that are drawn; `--json` has all."""
_VERDICTS: Final = ("passed", "blessed")
"""The properties by which an artifact judges another."""


@click.command(
    epilog="\b\nExample:\n  drivetrain lineage Pusher\n  drivetrain lineage ExampleGen --down\n"
    "  drivetrain lineage artifacts/Trainer/0f3c…/model\n  drivetrain lineage served/flights/3\n"
)
@click.argument("start", metavar="ARTIFACT|NODE")
@click.option("--down", is_flag=True, help="What was made from it, instead of what it was made from.")
@click.option("--all", "unfolded", is_flag=True, help="With --down, draw each of several branches that are alike.")
@click.option("--run", "run_id", metavar="RUN", help="The run that NODE is of; the newest unless given.")
@shared
def lineage(settings: ConsoleSettings, start: str, down: bool, unfolded: bool, run_id: str | None) -> int:
    """Trace what led to an artifact or a node, or with --down what was made from it, through all runs.

    ARTIFACT is a URI, a uid, or the beginning of a fingerprint, as `drivetrain show` prints them; a version that was
    pushed, by its folder or URL; or the beginning of a bundle's digest, which `drivetrain bundle show` prints. NODE is
    a node of a run.
    """
    # A pushed folder lies beside the root that it was pushed from, or below.
    with settings.of(Path(start) if Path(start).exists() else None).home() as home:
        record = _start(home, start, run_id)
        graph = home.store.lineage(record, "downstream" if down else "upstream", of_data=True)
        answer = {"start": start, "direction": "downstream" if down else "upstream", **_lineage_json(home, graph)}
        settings.answer(
            answer, lambda console: console.print(_tree(home, record, graph, down=down, fold=down and not unfolded))
        )
    return OK


def find_artifact(home: Home, start: str) -> ArtifactRecord | None:
    """The artifact of a URI (or a path that ends in one), a uid, the beginning of a fingerprint; of a pushed version.

    An imported artifact is also found by the URI that it has where it comes from, a bundle by the digest in its
    manifest. Of several, the newest.
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
        return matching[0] if matching else _bundle(home, start)
    return _pushed(home, start)


def _bundle(home: Home, digest: str) -> ArtifactRecord | None:
    """The newest artifact whose bundle's manifest is sealed by a digest that begins so."""
    for artifact in home.store.artifacts():
        if artifact.type in _BUNDLES and sealed_by(home, artifact).startswith(digest):
            return artifact
    return None


def sealed_by(home: Home, artifact: ArtifactRecord) -> str:
    """The digest in the manifest of an artifact's bundle; "" where that cannot be read."""
    with suppress(ValueError):
        manifest = json.loads(payload_file(home, artifact, "content/manifest.json") or b"null")
        return str(manifest.get("digest", "")) if isinstance(manifest, dict) else ""
    return ""


def _pushed(home: Home, version: str) -> ArtifactRecord | None:
    """The receipt of a pushed version, by its folder or URL; of a copy of such a folder, the bundle that it is.

    Raises:
        InputError: Its record names an execution of another root.
    """
    wanted = _pushed_address(Path.cwd(), version)
    digest = None
    with suppress(OSError, ValueError, KeyError, TypeError):
        digest = json.loads(Path(f"{Path(version).absolute()}.json").read_bytes())["digest"]
    for artifact in home.store.artifacts(type=PushedModel.__name__):
        facts = artifact.properties
        if digest is not None and facts.get("digest") not in (None, "", digest):
            continue  # of a simulated cluster, which pushed elsewhere
        if _pushed_address(home.base, f"{facts.get('destination')}/{facts.get('version')}") == wanted:
            return artifact
    folder = Path(version).absolute()
    with suppress(OSError, ValueError, KeyError, TypeError):
        if (bundle := _bundle(home, json.loads((folder / "manifest.json").read_bytes())["digest"])) is not None:
            return bundle
    run = None
    with suppress(OSError, ValueError, KeyError, TypeError):
        run = json.loads(folder.with_name(f"{folder.name}.json").read_bytes())["run"]
    if run is not None:
        raise InputError(
            f"{version} was pushed by run {run}, which is not in {home.root}",
            fix="name the root of that run with --root",
        )
    return None


def _versions(home: Home, start: str) -> list[str]:
    """The versions, the newest first, that were pushed to a folder or URL; or beside a version that was not."""
    wanted, written = _pushed_address(Path.cwd(), start), start.rstrip("/")
    folders = {wanted: written, wanted.rpartition("/")[0]: written.rpartition("/")[0] or "."}
    versions: dict[str, None] = {}
    for artifact in home.store.artifacts(type=PushedModel.__name__):
        facts = artifact.properties
        folder = folders.get(_pushed_address(home.base, str(facts.get("destination"))))
        if folder is not None:
            versions[f"{folder}/{facts.get('version')}"] = None
    return list(versions)


def _pushed_address(base: Path, version: str) -> str:
    """One spelling for a pushed version, relative to a folder where it is not a URL."""
    from ..addresses import local_path

    folder = local_path(version)
    return version.rstrip("/") if folder is None else str((base / folder).resolve())


def _start(home: Home, start: str, run_id: str | None) -> ArtifactRecord | ExecutionRecord:
    if (artifact := find_artifact(home, start)) is not None:
        return artifact
    run = open_run(home, run_id)
    node, index = parse_task(start)
    if node not in run.pipeline.ids:
        if versions := _versions(home, start):
            raise InputError(
                f"{start} is not a version that was pushed from {home.root}",
                fix=f"name a version: {', '.join(versions[:3])}" + (", or an older one" if len(versions) > 3 else ""),
            )
        raise InputError(
            f"{start!r} is neither an artifact in {home.root} nor a node of run {run.id}",
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
            | {"state": a.state, "collected": a.collected}
            for a in graph.artifacts.values()
        ],
        "executions": [
            {"id": e.id, "node": node_of(e), "component": e.component, "state": e.state, "run": run_of(home, e)}
            | {"files": list(files_read(home, e))}
            for e in graph.executions.values()
        ],
        "edges": [
            {"execution": e.execution, "direction": e.direction, "key": e.key, "artifact": e.artifact}
            for e in graph.edges
        ],
    }


def _tree(home: Home, start: ArtifactRecord | ExecutionRecord, graph: LineageGraph, *, down: bool, fold: bool) -> Tree:
    """The graph as a tree from its start; what was drawn before is named, not drawn again.

    With `fold`, of branches that differ in nothing but their runs and contents the newest is drawn and the others are
    counted: a node that has run every night would otherwise be drawn with all that followed, for each night.
    """
    from rich.markup import escape
    from rich.tree import Tree

    outward, inward = ("INPUT", "OUTPUT") if down else ("OUTPUT", "INPUT")
    below: dict[tuple[str, int], list[tuple[str, int, str]]] = defaultdict(list)
    for edge in graph.edges:
        if edge.direction == outward:
            below["artifact", edge.artifact].append(("execution", edge.execution, ""))
        if edge.direction == inward:
            below["execution", edge.execution].append(("artifact", edge.artifact, edge.key))
    drawn: set[tuple[str, int]] = set()
    shapes: dict[tuple[str, int], int] = {}
    numbers: dict[tuple[object, ...], int] = {}  # of each shape

    def shape(kind: str, number: int) -> int:
        if (kind, number) not in shapes:
            under = sorted((key, shape(below_kind, each)) for below_kind, each, key in below[kind, number])
            if kind == "execution":
                facts = node_of(graph.executions[number]), str(graph.executions[number].state)
            else:
                facts = graph.artifacts[number].type, _refusal(graph.artifacts[number])
            shapes[kind, number] = numbers.setdefault((*facts, *dict.fromkeys(under)), len(numbers))
        return shapes[kind, number]

    def grow(tree: Tree, kind: str, number: int) -> None:
        drawn.add((kind, number))
        if kind == "execution" and not down:
            files = list(files_read(home, graph.executions[number]))
            for file in files[:_FILES]:
                digest = f" {file['sha256'][:12]}" if file["sha256"] else ""
                tree.add(f"{escape(file['parameter'] or 'read by its code')}: file {escape(file['name'])}{digest}")
            if len(files) > _FILES:
                tree.add(f"[dim]and {len(files) - _FILES:,} more files: --json has all[/]")
        alike: dict[object, list[tuple[str, int, str]]] = defaultdict(list)
        for branch in below[kind, number]:
            alike[(branch[2], shape(*branch[:2])) if fold else branch].append(branch)
        for branches in alike.values():
            draw(tree, *max(branches, key=lambda branch: branch[1]), len(branches) - 1)

    def draw(tree: Tree, kind: str, number: int, key: str, others: int) -> None:
        above = (kind, number) in drawn
        more = f" [dim]and {others} more like it[/]" if others else ""
        branch = tree.add(label(kind, number, key) + more + (" [dim](see above)[/]" if above else ""))
        if not above:
            grow(branch, kind, number)

    def label(kind: str, number: int, key: str = "") -> str:
        if kind == "artifact":
            artifact = graph.artifacts[number]
            name = f"{key}: " if key else ""
            verdict = f"[red]{refusal}[/] " if (refusal := _refusal(artifact)) else ""
            location = escape(artifact.external or artifact.uri)
            text = f"{name}[bold]{escape(artifact.type)}[/] {artifact.fingerprint[:12]} {verdict}[dim]{location}[/]"
            collected = f" [dim]collected by gc, marked {escape(artifact.collected)}[/]" if artifact.collected else ""
            return text.replace("  ", " ") + collected
        execution = graph.executions[number]
        state = f"[{STYLES.get(execution.state, 'dim')}]{execution.state}[/]"
        return f"{escape(node_of(execution))} {state} [dim]run {run_of(home, execution)}[/]"

    kind = "artifact" if isinstance(start, ArtifactRecord) else "execution"
    tree = Tree(label(kind, start.id))
    grow(tree, kind, start.id)
    return tree


def _refusal(artifact: ArtifactRecord) -> str:
    """What an artifact that refuses data or a model says; "" of one that passes them, or judges nothing."""
    return next((f"not {verdict}" for verdict in _VERDICTS if artifact.properties.get(verdict) is False), "")


def node_of(execution: ExecutionRecord) -> str:
    """The task that an execution was of."""
    return str(execution.properties.get("node") or execution.component)
