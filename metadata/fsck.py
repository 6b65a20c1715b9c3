"""fsck: whether the store and the payloads agree, and what a crash left behind; with repair."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from ..errors import InputError
from .payload import Payloads
from .records import ArtifactRecord, Claim, ExecutionRecord
from .rows import when
from .store import MetadataStore

_SLACK = 1.0  # seconds: the filesystem's clock ticks coarser than ours, and what lives must never look dead
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class FsckReport:
    """What was found.

    Attributes:
        checked: Payloads whose every byte was read.
        database: What SQLite finds wrong with its file.
        missing: URIs of LIVE artifacts without a payload.
        corrupt: URIs of LIVE artifacts whose bytes changed, each with what changed.
        orphans: Payloads that no artifact names: published, but the process died before its commit.
        staging: Folders of executions that are over.
        claims: Cache keys held by dead or silent processes.
        executions: Ids of RUNNING executions whose process is dead.
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
    """Check every payload by digest, and look for what crashes left; safe while pipelines run.

    Repair removes orphans and stale staging, makes the executions of dead processes ABANDONED, releases dead claims,
    and marks artifacts without a payload DELETED and those with a changed one ABANDONED, so that the next run makes
    them anew. A changed payload stays where it is, to be looked at.

    Args:
        store: The store.
        root: What its URIs are relative to.
        repair: Put in order what was found.
        progress: Called with payloads checked and in all.
    """
    payloads = Payloads(root)
    # The disk first, then the store: what is published in between is known to the store by then.
    on_disk, staged = list(_published(root)), list(_staged(root))
    running = [execution for execution in store.executions(state="RUNNING") if not store.is_dead(execution)]
    artifacts = [*store.artifacts(), *store.artifacts(state="MARKED_FOR_DELETION")]
    known = {artifact.uri for artifact in store.artifacts(state=None)}
    orphans = [uri for uri in on_disk if uri not in known and not _in_flight(root, uri, running)]
    stale = [path for path in staged if path.name not in {execution.uid for execution in running}]
    dead = [execution.id for execution in store.executions(state="RUNNING") if store.is_dead(execution)]
    claims = [claim.cache_key for claim in store.claims() if _is_dead(claim, when(store.now()))]
    missing, corrupt = [], []
    for index, artifact in enumerate(artifacts):
        if progress is not None:
            progress(index, len(artifacts))
        if not (root / artifact.uri).is_dir():
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
        repaired=repair,
    )


def _problems(payloads: Payloads, artifact: ArtifactRecord) -> list[str]:
    try:
        return payloads.problems(artifact.uri, artifact.fingerprint)
    except InputError as error:  # a link on the way to it
        return [error.message]


def _published(root: Path) -> list[str]:
    """The URIs of the folders below artifacts/ that look like a payload."""
    found: list[str] = []
    folders = [root / "artifacts"]
    while folders:
        folder = folders.pop()
        if (folder / "content").is_dir() or (folder / "manifest.json").is_file():
            found.append(folder.relative_to(root).as_posix())
        elif folder.is_dir():
            folders += [path for path in folder.iterdir() if path.is_dir() and not path.is_symlink()]
    return sorted(found)


def _staged(root: Path) -> list[Path]:
    """The folders work/staging/<execution uid>."""
    return sorted(path for path in Payloads(root).staging.glob("*") if path.is_dir())


def _in_flight(root: Path, uri: str, running: list[ExecutionRecord]) -> bool:
    """Whether a living execution may be between the rename and the commit of this payload."""
    if any(execution.uid in uri.split("/") for execution in running):  # no clock can mislead about that
        return True
    try:
        moved = (root / uri).stat().st_ctime + _SLACK  # a rename changes it
    except FileNotFoundError:
        return True
    return any(execution.started_at is not None and execution.started_at.timestamp() <= moved for execution in running)


def _is_dead(claim: Claim, now: datetime) -> bool:
    living = claim.owner.liveness()
    return living == "dead" or (living == "unknown" and claim.expires_at <= now)
