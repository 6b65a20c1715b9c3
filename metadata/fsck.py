"""fsck: whether the store and the payloads agree, and what a crash left behind; with repair."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from ..errors import InputError
from .errors import NotFound
from .payload import Lying, Payloads
from .places import open_payloads
from .records import ArtifactRecord, Claim, ExecutionRecord
from .rows import when
from .store import MetadataStore

_SLACK = 1.0  # seconds: the filesystem's clock ticks coarser than ours, and what lives must never look dead
_UNKNOWN = 7 * 86400.0
"""Seconds that what lies behind a URL under the name of no execution is left: another store may bring its record in."""
Progress = Callable[[int, int], None]


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
        claims: Cache keys held by dead or silent processes.
        executions: Ids of RUNNING executions whose process is dead.
        external: How many artifacts were imported: their payloads lie elsewhere and are not looked at.
        repaired: Whether all but `database` was put in order.
    """

    checked: int
    database: tuple[str, ...]
    missing: tuple[str, ...]
    corrupt: tuple[tuple[str, str], ...]
    orphans: tuple[str, ...]
    staging: tuple[str, ...]
    claims: tuple[str, ...]
    executions: tuple[int, ...]
    external: int
    repaired: bool

    @property
    def clean(self) -> bool:
        """Whether nothing was found."""
        found = (self.database, self.missing, self.corrupt, self.orphans, self.staging, self.claims, self.executions)
        return not any(found)

    def to_dict(self) -> dict[str, Any]:
        """For JSON; `clean` included."""
        return {"clean": self.clean, **asdict(self)}


def fsck(store: MetadataStore, root: Path, repair: bool = False, progress: Progress | None = None) -> FsckReport:
    """Check every payload by digest, wherever it lies, and look for what crashes left; safe while pipelines run.

    Repair removes orphans and stale staging, makes the executions of dead processes ABANDONED, releases dead claims,
    and marks artifacts without a payload DELETED and those with a changed one ABANDONED, so that the next run makes
    them anew. A changed payload stays where it is, to be looked at.

    Args:
        store: The store.
        root: What its URIs are relative to.
        repair: Put in order what was found.
        progress: Called with payloads checked and in all.
    """
    payloads = open_payloads(store, root)
    # The payloads first, then the store: what is published in between is known to the store by then.
    lying, staged = payloads.published(), sorted(path for path in payloads.staging.glob("*") if path.is_dir())
    running = [execution for execution in store.executions(state="RUNNING") if not store.is_dead(execution)]
    artifacts = [*store.artifacts(), *store.artifacts(state="MARKED_FOR_DELETION")]
    every = store.artifacts(state=None)
    known = {artifact.uri for artifact in every}
    strays = [each for each in lying if each.uri not in known]
    orphans = [each.uri for each in strays if not _in_flight(store, payloads, each, running)]
    stale = [path for path in staged if path.name not in {execution.uid for execution in running}]
    dead = [execution.id for execution in store.executions(state="RUNNING") if store.is_dead(execution)]
    claims = [claim.cache_key for claim in store.claims() if _is_dead(claim, when(store.now()))]
    there = {each.uri for each in lying}
    missing, corrupt = [], []
    for index, artifact in enumerate(artifacts):
        if progress is not None:
            progress(index, len(artifacts))
        if _gone(payloads, artifact.uri, there):
            missing.append(artifact)
        elif problems := _problems(payloads, artifact):
            corrupt.append((artifact, "; ".join(problems)))
    if progress is not None:
        progress(len(artifacts), len(artifacts))
    if repair:
        store.abandon()
        for uri in orphans:
            payloads.remove(uri)
        for path in stale:
            shutil.rmtree(path)
        for artifact in missing:
            store.update_artifact(artifact, state="DELETED", expected_version=artifact.version)
        for artifact, _ in corrupt:
            store.update_artifact(artifact, state="ABANDONED", expected_version=artifact.version)
    return FsckReport(
        checked=len(artifacts) - len(missing),
        database=tuple(store.integrity()),
        missing=tuple(artifact.uri for artifact in missing),
        corrupt=tuple((artifact.uri, problem) for artifact, problem in corrupt),
        orphans=tuple(orphans),
        staging=tuple(path.relative_to(root).as_posix() for path in stale),
        claims=tuple(claims),
        executions=tuple(dead),
        external=sum(artifact.external is not None for artifact in every),
        repaired=repair,
    )


def _problems(payloads: Payloads, artifact: ArtifactRecord) -> list[str]:
    try:
        return payloads.problems(artifact.uri, artifact.fingerprint)
    except InputError as error:  # a link on the way to it
        return [error.message]


def _gone(payloads: Payloads, uri: str, there: set[str]) -> bool:
    """Whether nothing at all lies at a URI."""
    if payloads.url is None:
        return not (payloads.root / uri).is_dir()
    return uri not in there and not payloads.present(uri)  # it may have come after the listing


def _in_flight(store: MetadataStore, payloads: Payloads, stray: Lying, running: list[ExecutionRecord]) -> bool:
    """Whether a living execution may be between putting this payload there and its commit."""
    segments = set(stray.uri.split("/"))
    if any(execution.uid in segments for execution in running):  # no clock can mislead about that
        return True
    if payloads.url is not None:
        return _awaited(store, stray, running, segments)
    moved = (stray.changed or 0.0) + _SLACK
    return any(execution.started_at is not None and execution.started_at.timestamp() <= moved for execution in running)


def _awaited(store: MetadataStore, stray: Lying, running: list[ExecutionRecord], segments: set[str]) -> bool:
    """Whether somebody goes on with an upload that another execution began, or it may be of another store."""
    for segment in segments:
        with suppress(NotFound):
            begun = store.execution(segment)
            return begun.cache_key is not None and begun.cache_key in {execution.cache_key for execution in running}
    return stray.changed is None or stray.changed > store.now() / 1e6 - _UNKNOWN


def _is_dead(claim: Claim, now: datetime) -> bool:
    living = claim.owner.liveness()
    return living == "dead" or (living == "unknown" and claim.expires_at <= now)
