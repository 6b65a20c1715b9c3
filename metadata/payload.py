"""Payloads: written in staging on this machine, published whole or not at all, checked by digest wherever they lie."""

from __future__ import annotations

import errno
import json
import os
import shutil
from abc import abstractmethod
from collections.abc import Container, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from ..digest import FileEntry, TreeDigest, digest, digest_tree
from ..errors import InputError
from ..progress import Progress, no_progress
from .errors import DiskFull
from .uri import check, resolve

DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
PARTS = ("content", "extra")
MANIFEST = "manifest.json"
REMOVED = "removed-"
"""How the name of a folder in staging begins that is a payload being removed."""
SIGNATURE = "content.sig"
"""Of a bundle that was signed where it was published: `drivetrain bundle sign` writes it beside the folder."""


class PayloadEntry(NamedTuple):
    """A payload, or a part of one, that is stored where payloads lie, whether or not an artifact names it.

    Attributes:
        uri: Of the payload.
        whole: Whether its manifest is there, which comes last.
        changed: When the last of it was written, in seconds since 1970; None where the store does not say.
    """

    uri: str
    whole: bool
    changed: float | None


class Payloads(Protocol):
    """The payloads of a root: staged in its `work/staging/…`, published under `artifacts/…` there or behind a URL.

    Attributes:
        root: The root folder.
        url: Where what is published lies, None for in the root.
    """

    root: Path
    url: str | None

    def stage(self, node: str, execution_uid: str, key: str) -> Path:
        """A fresh folder for one output of an execution, with an empty `content/`; who uses `extra/` makes it."""
        path = self.staging_folder(execution_uid) / check(f"{node}.{key}")
        with explain_full_disk(f"staging {key} of {node}"):
            if path.exists():
                shutil.rmtree(path)
            path.mkdir(parents=True)
            (path / "content").mkdir()
        return path

    @property
    def staging(self) -> Path:
        """Where what is being written lies, a folder per execution, named by its uid."""
        return self.root / "work" / "staging"

    def staging_folder(self, execution_uid: str) -> Path:
        """Where everything that an execution stages lies, until its only output takes it along or it is over."""
        return resolve(self.root, f"work/staging/{execution_uid}")

    def discard(self, staged: Path) -> None:
        """Remove a staged folder; one that is gone is not an error."""
        if staged.is_dir():
            shutil.rmtree(staged)

    @abstractmethod
    def publish(self, staged: Path, uri: str, progress: Progress = no_progress) -> TreeDigest:
        """Put a staged folder at its URI, whole or not at all, durable on return.

        To publish the same content there again is not an error. What was staged is gone afterwards.

        Returns:
            The digest of `content/`.

        Raises:
            InputError: `content/` is missing; there is something beside it and `extra/`; a file is a link; the store
                does not take it.
            AlreadyExists: Another payload lies there.
            DiskFull: No space is left.
            StorageUnavailable: The store does not answer; publishing again continues from there.
        """

    @abstractmethod
    def local(self, uri: str, fingerprint: str | None = None, progress: Progress = no_progress) -> Path:
        """A folder of this machine with a payload's `content/`, `extra/` and manifest, to read.

        Args:
            uri: Which payload.
            fingerprint: What its content must have (the store's word); where None, nothing in the root is compared.
            progress: Called with the bytes fetched so far; may raise to stop.

        Raises:
            InputError: The URI is malformed or leads through a link; the payload is not there, or changed.
            DiskFull: No space is left for it.
            StorageUnavailable: The store does not answer.
        """

    def changes(self, uri: str, fingerprint: str) -> list[str]:
        """What has changed in a payload that `local` gave, since then; empty where it is a copy."""
        return []

    @abstractmethod
    def reading(self) -> AbstractContextManager[None]:
        """Keeps the folders that `local` gives in this thread while the block runs; else until `close`."""

    @abstractmethod
    def close(self) -> None:
        """Keep nothing any more that `local` gave."""

    @abstractmethod
    def present(self, uri: str) -> bool:
        """Whether a whole payload lies there, without reading it: its manifest came last."""

    @abstractmethod
    def remove(self, *uris: str) -> None:
        """Delete published payloads, or what there is of them; first so that a crash leaves none that looks whole."""

    def sweep(self) -> None:
        """Remove what an interrupted `remove` has left in staging."""
        for folder in self.staging.glob(f"{REMOVED}*"):
            shutil.rmtree(folder, ignore_errors=True)  # another may sweep too

    @abstractmethod
    def sizes(self, uris: Iterable[str]) -> dict[str, int]:
        """Bytes of payloads by URI, `extra/` and all; without those that are not there, or not whole."""

    @abstractmethod
    def problems(self, uri: str, fingerprint: str | None = None) -> list[str]:
        """What is wrong with a payload, by digests of all its bytes; empty when it is whole.

        Args:
            uri: Which one.
            fingerprint: What its content must have (the store's word), beside the manifest's.
        """

    @abstractmethod
    def published(self) -> list[PayloadEntry]:
        """Whatever lies below `artifacts/` that looks like a payload, sorted by URI."""


@contextmanager
def explain_full_disk(doing: str) -> Iterator[None]:
    """Turn a full disk, quota or file size limit within the block into one clear error.

    Raises:
        DiskFull: Naming what was being done.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        raise DiskFull(
            f"disk full while {doing} ({error.strerror})", fix="free space and try again; a run by `drivetrain resume`"
        ) from error


def digests_of(path: Path, *, published: bool = False) -> dict[str, TreeDigest]:
    """The digests of `content/` and `extra/` of a payload's folder; a published one may have been signed since.

    Raises:
        InputError: It is not such a folder.
    """
    if not (path / "content").is_dir():
        raise InputError(f"{path} has no content folder", fix="write below the artifact's .content")
    for part in PARTS:
        if (path / part).is_symlink():
            raise InputError(f"{path / part} is a link", fix="write the files below it: a payload holds no links")
    # A manifest in staging is what a crash left between writing it and the rename.
    known = {*PARTS, MANIFEST, SIGNATURE} if published else {*PARTS, MANIFEST}
    strange = sorted(set(os.listdir(path)) - known)  # noqa: PTH208 - a path object each would cost more
    if strange:
        raise InputError(f"{path} holds {strange[0]!r} beside content and extra", fix="write below .content or .extra")
    return {part: digest_tree(path / part) for part in PARTS}


def manifest_of(digests: dict[str, TreeDigest]) -> bytes:
    """What a payload's manifest says of its files."""
    body = {"version": 1, **{part: _entry(tree) for part, tree in digests.items()}}
    # Canonical but for names, which stay as they are spelled: they are to be found again.
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def read_manifest(data: bytes) -> dict[str, TreeDigest]:
    """What a manifest says of the files of a payload.

    Raises:
        ValueError, KeyError, TypeError: It is not a manifest.
    """
    body: dict[str, Any] = json.loads(data)
    digests = {}
    for part in PARTS:
        files = tuple(FileEntry(str(f["path"]), int(f["size"]), str(f["sha256"])) for f in body[part]["files"])
        if len({file.path for file in files}) < len(files):
            raise ValueError(f"a file of {part} is listed twice")
        digests[part] = TreeDigest(str(body[part]["fingerprint"]), files)
    return digests


def tree_of(files: tuple[FileEntry, ...]) -> TreeDigest:
    """The digest of a tree of files that were digested elsewhere."""
    files = tuple(sorted(files, key=lambda file: file.path))
    return TreeDigest(digest("drivetrain-tree-v1", [[file.path, file.size, file.sha256] for file in files]), files)


def differences(before: dict[str, TreeDigest], after: dict[str, TreeDigest], fingerprint: str | None) -> list[str]:
    """How the files of a payload differ from what its manifest says, and its content from what the store says."""
    problems = []
    for part in PARTS:
        was, now = ({file.path: (file.size, file.sha256) for file in tree[part].files} for tree in (before, after))
        changed = sorted(name for name in was.keys() | now.keys() if was.get(name) != now.get(name))
        problems += [f"{part}/{name} {_what(name, was, now)}" for name in changed]
    if fingerprint is not None and after["content"].fingerprint != fingerprint and not problems:
        problems.append("content is not what the store says")
    return problems


def _entry(tree: TreeDigest) -> dict[str, Any]:
    files = [{"path": file.path, "size": file.size, "sha256": file.sha256} for file in tree.files]
    return {"fingerprint": tree.fingerprint, "size": tree.size, "files": files}


def _what(name: str, before: Container[str], after: Container[str]) -> str:
    return "is new" if name not in before else "is missing" if name not in after else "changed"
