"""A run's home: the root folder with its store, its payloads and its working folders."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from ...digest import sync_folder
from ...errors import InputError
from ...metadata import (
    Artifact,
    ArtifactRecord,
    ExecutionRecord,
    MetadataStore,
    NoStore,
    NotFound,
    open_payloads,
)
from ...metadata.errors import RESTORE
from ...metadata.records import ExecutionState
from ..ir.tasks import parse_task
from ..project.files import remove_fetched
from .pending_uploads import clear
from .root import NAME as ROOT_NAME
from .root import holds_runs, refuse_url

ALONE = "work/alone"
"""Below a root: folders with the stores of pods that could not reach this one, for as long as they work."""
STORE = "DRIVETRAIN_NODE_STORE"
"""The variable that tells the process of a node where the metadata lies, if not in the root."""
_ENTRIES: Final = (
    *("artifacts", "work", "logs", "records", "backups"),
    *("metadata.db", "metadata.db-wal", "metadata.db-shm"),
)
_DAY = 86400.0
_UNSUCCESSFUL: Final[tuple[ExecutionState, ...]] = ("ABANDONED", "FAILED", "CANCELED")
_LATELY: Final = 100
"""Executions of each of these states whose payloads a sweep looks for; fsck finds those of any."""


def _runs_near(root: Path) -> str:
    """The fix for a root without runs: the one right below, as in the only project of a folder, where there is one."""
    below = [root / ROOT_NAME] if root.name != ROOT_NAME else []
    projects = root.parent.glob(f"*/{ROOT_NAME}") if root.name == ROOT_NAME else []
    holding = [folder for folder in (*below, *projects) if holds_runs(folder)]
    if len(holding) == 1:
        return f"name {holding[0]}, which holds runs: --root, in Python root="
    return "go to the project's folder, or name the root of earlier runs: --root, in Python root="


def _refuse_collected(record: ArtifactRecord) -> Path:
    raise InputError(
        f"{record.uri} was collected by `drivetrain gc`, marked {record.collected}",
        fix="`drivetrain rerun RUN` makes it again; `drivetrain pin` keeps the next one",
    )


class Home:
    """The root folder, `.drivetrain/` by default: `metadata.db`, `artifacts/`, `work/`.

    Args:
        root: The folder; made if it does not exist.
        store: Where the metadata lies, if not in the root's `metadata.db`.
        artifacts: The URL that the payloads lie behind (`s3://bucket/prefix`), if not in the root. It is said when
            the store is new, which remembers it.
        readonly: Open for looking only: nothing is written, and the root may be another user's or its disk full.
        create: Make the store and the root where there are none, unless it is `readonly`.
        is_rebuilt: Whether the store is made anew for payloads that are there.

    Raises:
        NoStore: There is no store, and none is to be made, or artifacts are there that it would know nothing of.
        InputError: The root cannot be made or used, or the artifacts lie elsewhere than is said.
        DrivetrainError: A package for the URL is not installed.
        StorageUnavailable: Nothing answers behind the URL.
    """

    def __init__(
        self,
        root: Path,
        *,
        store: str | None = None,
        artifacts: str | None = None,
        readonly: bool = False,
        create: bool = True,
        is_rebuilt: bool = False,
    ) -> None:
        refuse_url(str(root), "--root")
        self.root = root.absolute()
        create = create and not readonly
        if not create and store is None and not holds_runs(self.root):
            raise InputError(f"there are no runs in {self.root}", fix=_runs_near(self.root))
        is_folder = os.path.isdir(self.root)  # noqa: PTH112 - raises nothing
        if not is_folder and os.path.exists(self.root):  # noqa: PTH110
            raise InputError(f"{self.root} cannot be made: a file has this name", fix="give another --root")
        if not readonly and is_folder and not os.access(self.root, os.W_OK):
            raise InputError(
                f"{self.root} may not be written", fix="do this as a user who may write there, or give another --root"
            )
        self.url = store
        location = store or self.root / "metadata.db"
        try:
            self.store = MetadataStore.open(location, readonly=readonly, create=False)
        except NoStore as error:
            if artifacts is None and not is_rebuilt and self._holds_payloads:
                raise self._lost(error.message) from None
            if not create:
                raise
            self._make_root()
            self.store = MetadataStore.open(location)
        try:
            if not readonly:
                self._make_root()  # the store may lie elsewhere
            self.payloads = open_payloads(self.store, self.root, artifacts)
        except BaseException:
            self.store.close()
            raise
        if self.payloads.url is not None or is_rebuilt:
            return
        begun = self.store.contexts("run", limit=1) or self.store.executions(limit=1)
        if not begun and self._holds_payloads:
            self.store.close()
            raise self._lost(f"{self.store.location} is empty")

    def work_folder(self, cache_key: str) -> Path:
        """Where attempts at the same work leave what the next one goes on from; gone once it is published."""
        return self.root / "work" / "nodes" / cache_key

    def metrics_file(self, cache_key: str) -> Path:
        """Where an attempt that is under way writes the metrics that it records; there as long as it lasts."""
        return self.work_folder(cache_key) / "metrics.jsonl"

    def is_usable(self, record: ArtifactRecord) -> bool:
        """Whether a task may take an artifact: it is LIVE, so that no collection removes it, and its payload there."""
        return record.state == "LIVE" and self.payloads.present(record.uri)

    def _make_root(self) -> None:
        try:
            missing = [folder for folder in (self.root, *self.root.parents) if not folder.exists()]
            self.root.mkdir(parents=True, exist_ok=True)
            for folder in missing:
                sync_folder(folder.parent)
        except OSError as error:
            raise InputError(f"{self.root} cannot be made: {error.strerror}", fix="give another --root") from None

    @property
    def _holds_payloads(self) -> bool:
        with suppress(OSError):  # a name that is too long, say
            return any(self.root.glob("artifacts/*/*/*/manifest.json"))
        return False

    def _lost(self, how: str) -> NoStore:
        present = self.root / "metadata.db"
        if self.url is not None and present.is_file():
            return NoStore(
                f"{how}; that of the artifacts in {self.root} may be {present}",
                fix="leave --store (or DRIVETRAIN_STORE) away, or name another --root",
            )
        return NoStore(
            f"{how}, though {self.root} holds artifacts: it was lost or damaged, or lies elsewhere",
            fix=f"{RESTORE}; name it with --store; or move the root away to start afresh",
        )

    @property
    def base(self) -> Path:
        """The folder that relative paths mean: the root's parent."""
        return self.root.parent

    @property
    def entries(self) -> tuple[Path, ...]:
        """What drivetrain keeps in the root, in which a project may lie too."""
        return tuple(self.root / name for name in _ENTRIES)

    def sweep(self) -> None:
        """End what dead processes were running; remove old copies, and what they staged or published in vain."""
        self.store.abandon()
        # The folders first: an execution is recorded before it stages anything.
        staged = list(self.payloads.staging.glob("*"))
        if staged:
            running = {execution.uid for execution in self.store.executions(state="RUNNING")}
            others = self._others()
            for path in staged:
                if path.name not in running:
                    try:
                        self.store.execution(path.name)
                    except NotFound:  # what is being removed has a name of its own
                        if others and not path.name.startswith("removed-"):
                            continue
                    shutil.rmtree(path, ignore_errors=True)
        if self.payloads.url is not None:
            clear(self.payloads, self.store.artifact_by_uri)
        else:
            for state in _UNSUCCESSFUL:
                for execution in self.store.executions(state=state, trials=False, limit=_LATELY):
                    self.remove_unpublished(execution)
        if (fetched := self.root / "work" / "fetched").is_dir() and not self.store.executions(state="RUNNING", limit=1):
            remove_fetched(fetched)

    @property
    def is_alone(self) -> bool:
        """Whether the store is one of a pod that could not reach the run's (`ALONE`)."""
        return Path(self.store.location).absolute().parents[1] == self.root / ALONE

    def _others(self) -> bool:
        """Whether a process works in this root with a store of its own (`ALONE`), as it did within a day."""
        for path in self.root.glob(f"{ALONE}/*/metadata.db"):
            with suppress(OSError):  # it is just being removed
                if time.time() - path.stat().st_mtime < _DAY:
                    return True
        return False

    def remove_unpublished(self, execution: ExecutionRecord) -> None:
        """Remove the payloads that an execution moved into place, where it is over and did not become COMPLETE.

        Those behind a URL stay: the next to do this work sends them (see `pending_uploads`), or fsck finds them.
        """
        if self.payloads.url is not None or "node" not in execution.properties:
            return
        node, _ = parse_task(execution.properties["node"])
        folder = self.root / "artifacts" / node / execution.uid
        if not folder.is_dir() or self.store.execution(execution.uid).state == "COMPLETE":
            return
        for path in folder.glob("*"):
            self.payloads.remove(f"artifacts/{node}/{execution.uid}/{path.name}")

    def artifact(self, kind: type[Artifact], record: ArtifactRecord) -> Artifact:
        """A published artifact, as a component takes it; one from elsewhere is fetched when its path is asked for."""
        if record.external is not None:
            return kind.from_record(record, self.root / record.uri)
        if record.collected is not None:
            return kind.from_record(record, partial(_refuse_collected, record))
        return kind.from_record(record, partial(self.payloads.local, record.uri, record.fingerprint))

    def close(self) -> None:
        """Close the store, and let copies of artifacts from elsewhere go."""
        self.payloads.close()
        self.store.close()
