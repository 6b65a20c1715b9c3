"""fsck: whether the store and the payloads agree, and what a crash left behind; with repair."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..owner import Owner
from ..progress import Progress, no_progress
from .errors import ConflictError, NotFound, StoreDamaged
from .payload import PayloadEntry, Payloads
from .payload_marker import has_several, marker_problems, require_marker
from .payload_root import open_payloads
from .records import INPUTS_COMPARED, ArtifactRecord, ArtifactState, Claim, ContextRecord, ExecutionRecord
from .rows import when
from .store import MetadataStore
from .uri import is_plain

_SLACK = 1.0  # seconds: the filesystem's clock ticks coarser than ours, and what lives must never look dead
_UNKNOWN = 7 * 86400.0
"""Seconds that what lies there under the name of no execution is left: another store may bring its record in."""
_REPAIR = "repair"
_LEASE = 300.0  # seconds in which one orphan is removed


@dataclass(frozen=True)
class FsckReport:
    """What was found.

    Attributes:
        checked: Payloads whose every byte was read.
        database: What the database finds wrong with itself.
        missing: URIs of LIVE artifacts without a payload.
        corrupt: URIs of LIVE artifacts whose bytes changed, each with what changed.
        orphans: Payloads that no artifact names: published, but the process died before its commit.
        staging: Folders of executions that are over.
        derived: URIs of LIVE artifacts that were made, directly or not, from those whose bytes changed, by an execution
            that may have read what was wrong.
        claims: Cache keys held by dead or silent processes.
        executions: Ids of RUNNING executions whose process is dead.
        external: How many artifacts were imported: their payloads lie elsewhere and are not looked at.
        elsewhere: URIs of LIVE artifacts of other hosts, which have roots of their own with this store.
        marker: Why nothing can be repaired: the marker that says whose payloads these are cannot be read, or is another
            store's.
        repaired: Whether it was put in order.
        brought: Executions that a repair took in, which the store did not know: those after a backup, say.
    """

    checked: int
    database: tuple[str, ...]
    missing: tuple[str, ...]
    corrupt: tuple[tuple[str, str], ...]
    orphans: tuple[str, ...]
    staging: tuple[str, ...]
    derived: tuple[str, ...]
    claims: tuple[str, ...]
    executions: tuple[int, ...]
    external: int
    elsewhere: tuple[str, ...]
    marker: tuple[str, ...]
    repaired: bool
    brought: int = 0

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong, in the database or among the payloads."""
        lost = (self.database, self.missing, self.corrupt, self.derived)
        return not any((*lost, self.orphans, self.staging, self.claims, self.executions, self.marker))

    def to_dict(self) -> dict[str, Any]:
        """The report as a JSON object, with `clean` in it."""
        return {"clean": self.clean, **asdict(self)}


def fsck(
    store: MetadataStore,
    root: Path,
    repair: bool = False,
    progress: Progress = no_progress,
    take_in: Callable[[], int] | None = None,
) -> FsckReport:
    """Check every payload by digest, wherever it lies, and look for what crashes left; safe while pipelines run.

    Repair removes orphans and stale staging, makes the executions of dead processes ABANDONED, releases dead claims,
    and marks artifacts without a payload DELETED, those with a changed one ABANDONED, and so what was made from these
    where a node may have read what was wrong. The next run makes them anew. A changed payload stays where it is, to be
    looked at. What changed since it was found, which may be hours ago, is left to the next time. `undo` takes back what
    became of artifacts.

    Args:
        store: The store.
        root: What its URIs are relative to.
        repair: Put in order what was found.
        progress: Called with the payloads checked so far.
        take_in: Called before a repair where payloads lie that no execution of this store has put there: brings in
            what other stores have recorded of them; gives how many executions.

    Raises:
        InputError: It is to be repaired, and the payloads may merely not be mounted, or be another store's.
        StoreDamaged: It is to be repaired, and the database is damaged: a payload whose row is lost is no orphan.
    """
    damage = store.integrity()
    if repair and damage:
        raise StoreDamaged(store.location, damage[0])
    payloads = open_payloads(store, root)
    # The payloads first, then the store: what is published in between is known to the store by then.
    stored, staged = payloads.published(), sorted(path for path in payloads.staging.glob("*") if path.is_dir())
    brought = take_in() if repair and take_in is not None and _strange(store, stored) else 0
    running = [execution for execution in store.executions(state="RUNNING") if not store.is_dead(execution)]
    artifacts = [*store.artifacts(), *store.artifacts(state="MARKED_FOR_DELETION")]
    every = store.artifacts(state=None)
    known = {artifact.uri for artifact in every}
    if repair and artifacts:
        _require_payloads(store, payloads, stored, len(artifacts))
    strays = [each for each in stored if each.uri not in known]
    orphans = [each.uri for each in strays if not _in_flight(store, payloads, each, running)]
    stale = [path for path in staged if path.name not in {execution.uid for execution in running}]
    dead = [execution.id for execution in store.executions(state="RUNNING") if store.is_dead(execution)]
    claims = [claim.cache_key for claim in store.claims() if _is_dead(claim, when(store.now()))]
    there = {each.uri for each in stored}
    missing: list[ArtifactRecord] = []
    elsewhere: list[ArtifactRecord] = []
    corrupt: list[tuple[ArtifactRecord, str]] = []
    several = payloads.url is None and has_several(store)
    for index, artifact in enumerate(artifacts):
        progress(index, len(artifacts), "payloads")
        if _gone(payloads, artifact.uri, there):
            (elsewhere if several and _is_foreign(store, artifact) else missing).append(artifact)
        elif problems := _problems(payloads, artifact):
            corrupt.append((artifact, "; ".join(problems)))
    progress(len(artifacts), len(artifacts), "payloads")
    gone = {artifact.id for artifact in missing}
    derived = [each for each in _made_from(store, [artifact for artifact, _ in corrupt]) if each.id not in gone]
    if repair:
        store.abandon()
        orphans = [uri for uri in orphans if remove_unless_used(store, payloads, uri)]
        for path in stale:
            shutil.rmtree(path, ignore_errors=True)  # a sweep may be at it too
        _remember(store, [*missing, *(each for each, _ in corrupt), *derived])
        missing = [each for each in missing if _gone(payloads, each.uri, set()) and _moved(store, each, "DELETED")]
        corrupt = [(each, problem) for each, problem in corrupt if _moved(store, each, "ABANDONED")]
        derived = [each for each in derived if _moved(store, each, "ABANDONED")]
    return FsckReport(
        checked=len(artifacts) - len(missing) - len(elsewhere),
        database=tuple(damage),
        missing=tuple(artifact.uri for artifact in missing),
        corrupt=tuple((artifact.uri, problem) for artifact, problem in corrupt),
        orphans=tuple(orphans),
        staging=tuple(path.relative_to(root).as_posix() for path in stale),
        derived=tuple(artifact.uri for artifact in derived),
        claims=tuple(claims),
        executions=tuple(dead),
        external=sum(artifact.external is not None for artifact in every),
        elsewhere=tuple(artifact.uri for artifact in elsewhere),
        marker=() if payloads.url is not None else marker_problems(store, root),
        repaired=repair,
        brought=brought,
    )


def undo(store: MetadataStore, root: Path) -> tuple[list[str], list[str]]:
    """Make LIVE again what the last repair that was not undone had retired.

    Returns:
        The URIs of those that are LIVE again; and of those that stay retired, because their payload is not whole or
        they were made from such a one.

    Raises:
        InputError: There is no such repair.
    """
    payloads = open_payloads(store, root)
    repairs = _repairs(store)
    if not repairs:
        raise InputError("no repair has retired an artifact", fix="see `drivetrain fsck` for the present state")
    artifacts = map(store.artifact, repairs[0].properties["artifacts"])
    retired = [artifact for artifact in artifacts if artifact.state in ("ABANDONED", "DELETED")]
    broken = [each for each in retired if _gone(payloads, each.uri, set()) or _problems(payloads, each)]
    tainted = {each.id for each in (*broken, *_made_from(store, broken, state=None))}
    revived = [each for each in retired if each.id not in tainted and _moved(store, each, "LIVE")]
    if len(revived) == len(retired):
        store.update_context(repairs[0], {"undone": True})
    live = {each.id for each in revived}
    return [each.uri for each in revived], [each.uri for each in retired if each.id not in live]


def retired_by_repair(store: MetadataStore, execution: ExecutionRecord) -> bool:
    """Whether a repair that was not undone retired something that an execution made."""
    outputs = {artifact.id for artifacts in store.outputs(execution).values() for artifact in artifacts}
    return any(not outputs.isdisjoint(repair.properties["artifacts"]) for repair in _repairs(store))


def _repairs(store: MetadataStore) -> list[ContextRecord]:
    """The repairs that were not undone, the newest first."""
    return [each for each in store.contexts(_REPAIR, limit=None) if not each.properties.get("undone")]


def _remember(store: MetadataStore, retired: list[ArtifactRecord]) -> None:
    """Record what a repair is about to retire, so that it can be undone."""
    if retired:
        store.context(_REPAIR, f"{when(store.now()):%Y%m%d-%H%M%S-%f}", {"artifacts": [each.id for each in retired]})


def _made_from(
    store: MetadataStore, changed: list[ArtifactRecord], state: ArtifactState | None = "LIVE"
) -> list[ArtifactRecord]:
    """What was made from artifacts, directly or not, by executions that may have read bytes that were wrong."""
    below: dict[int, ArtifactRecord] = {}
    for artifact in changed:
        graph = store.lineage(artifact, "downstream")
        readers, outputs_of = defaultdict[int, list[int]](list), defaultdict[int, list[int]](list)
        for edge in graph.edges:
            if edge.direction == "INPUT":
                readers[edge.artifact].append(edge.execution)
            else:
                outputs_of[edge.execution].append(edge.artifact)
        tainted, todo = {artifact.id}, [artifact.id]
        while todo:
            # A cached execution has outputs that another one made.
            outputs = {
                output
                for reader in readers[todo.pop()]
                if not graph.executions[reader].properties.get(INPUTS_COMPARED)
                for output in outputs_of[reader]
                if graph.artifacts[output].producer in (None, reader)
            }
            todo += outputs - tainted
            tainted |= outputs
        below |= {number: graph.artifacts[number] for number in tainted}
    known = {artifact.id for artifact in changed}
    return [each for each in below.values() if each.id not in known and state in (None, each.state)]


def _is_foreign(store: MetadataStore, artifact: ArtifactRecord) -> bool:
    """Whether the process that made an artifact ran on another host."""
    owner = store.execution(artifact.producer).owner if artifact.producer is not None else None
    return owner is not None and owner.host != Owner.current().host


def _require_payloads(store: MetadataStore, payloads: Payloads, stored: list[PayloadEntry], count: int) -> None:
    """A share that is not mounted looks like one from which all was deleted: nothing in it is taken for lost."""
    if payloads.url is None:
        require_marker(store, payloads.root)
    elif not stored:
        raise InputError(
            f"nothing is in {payloads.url}, where {count} artifacts should",
            fix="see that it is mounted and the right one; if all was deleted, run a pipeline first, then repair",
        )


def remove_unless_used(store: MetadataStore, payloads: Payloads, uri: str) -> bool:
    """Remove a payload that no artifact in use names, unless somebody publishes there; whether it was removed."""
    claim = None
    if payloads.url is not None and (begun := _begun(store, uri)) is not None and begun.cache_key is not None:
        claim = store.claim(begun.properties.get("claim", begun.cache_key), lease=_LEASE)
        if claim is None:
            return False
    try:
        artifact = store.artifact_by_uri(uri)
        if artifact is not None and artifact.state not in ("DELETED", "ABANDONED"):
            return False
        payloads.remove(uri)
        return True
    finally:
        if claim is not None:
            store.release(claim)


def _moved(store: MetadataStore, artifact: ArtifactRecord, state: ArtifactState) -> bool:
    """Move an artifact to a state, unless somebody has changed it since it was read; whether it was moved."""
    try:
        store.update_artifact(artifact, state=state, expected_version=artifact.version)
    except ConflictError:
        return False
    return True


def _problems(payloads: Payloads, artifact: ArtifactRecord) -> list[str]:
    try:
        return payloads.problems(artifact.uri, artifact.fingerprint)
    except InputError as error:  # a link on the way to it
        return [error.message]


def _gone(payloads: Payloads, uri: str, there: set[str]) -> bool:
    """Whether nothing at all lies at a URI."""
    if payloads.url is None:
        # A URI that is none is not looked for: what is wrong with it says so.
        return is_plain(uri) and not (payloads.root / uri).is_dir()
    return uri not in there and not payloads.present(uri)  # it may have come after the listing


def _in_flight(store: MetadataStore, payloads: Payloads, stray: PayloadEntry, running: list[ExecutionRecord]) -> bool:
    """Whether a living execution may be between putting this payload there and its commit."""
    segments = set(stray.uri.split("/"))
    if any(execution.uid in segments for execution in running):  # no clock can mislead about that
        return True
    begun = _begun(store, stray.uri)
    if begun is None:  # another store's record may still be brought in
        return stray.changed is None or stray.changed > store.now() / 1e6 - _UNKNOWN
    if payloads.url is not None:  # somebody may go on with an upload that another execution began
        return begun.cache_key is not None and begun.cache_key in {execution.cache_key for execution in running}
    moved = (stray.changed or 0.0) + _SLACK
    return any(execution.started_at is not None and execution.started_at.timestamp() <= moved for execution in running)


def _strange(store: MetadataStore, stored: list[PayloadEntry]) -> bool:
    """Whether some payload was put there by no execution of this store."""
    known = {artifact.uri for artifact in store.artifacts(state=None)}
    return any(each.uri not in known and _begun(store, each.uri) is None for each in stored)


def _begun(store: MetadataStore, uri: str) -> ExecutionRecord | None:
    """The execution of this store that began to publish there; None where it is another store's, or nobody's."""
    with suppress(NotFound):
        return store.execution(uri.split("/")[2])  # artifacts/NODE/UID/KEY
    return None


def _is_dead(claim: Claim, now: datetime) -> bool:
    living = claim.owner.liveness()
    return living == "dead" or (living == "unknown" and claim.expires_at <= now)
