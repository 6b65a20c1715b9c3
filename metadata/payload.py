"""Payloads on a local root: written in staging, made durable, moved into place whole, checked by digest."""

from __future__ import annotations

import errno
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ..digest import TreeDigest, canonical_json, digest_tree, sync_folder, sync_tree
from ..errors import DrivetrainError, InputError
from .errors import AlreadyExists, DiskFull
from .uri import resolve

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_PARTS = ("content", "extra")


class Payloads:
    """The payloads below a root: `artifacts/…` published, `work/staging/…` being written."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._durable: set[Path] = set()  # folders whose names this process has synced

    def path(self, uri: str) -> Path:
        """Where a URI's payload lies.

        Raises:
            InputError: The URI is malformed or leads through a link.
        """
        return resolve(self.root, uri)

    def stage(self, node: str, execution_uid: str, key: str) -> Path:
        """A fresh folder for one output of an execution, with empty `content/` and `extra/`."""
        path = self.staging_folder(execution_uid) / resolve(Path(), f"{node}/{key}")
        with explain_full_disk(f"staging {key} of {node}"):
            if path.exists():
                shutil.rmtree(path)
            for part in _PARTS:
                (path / part).mkdir(parents=True)
        return path

    @property
    def staging(self) -> Path:
        """Where what is being written lies, a folder per execution, named by its uid."""
        return self.root / "work" / "staging"

    def staging_folder(self, execution_uid: str) -> Path:
        """Where everything that an execution stages lies."""
        return resolve(self.root, f"work/staging/{execution_uid}")

    def publish(self, staged: Path, uri: str) -> TreeDigest:
        """Move a staged folder to its URI, whole or not at all, durable on return; its files become read-only.

        To publish the same content there again is no error: what was staged is discarded.

        Returns:
            The digest of `content/`.

        Raises:
            InputError: `content/` is missing; there is something beside it and `extra/`; a file is a link.
            AlreadyExists: Another payload lies there.
            DiskFull: No space is left.
        """
        target = self.path(uri)
        with explain_full_disk(f"publishing {uri}"):
            digests = _digests(staged)
            if target.exists():
                self._same(target, uri, digests["content"])
                sync_folder(target.parent)  # it may be there because only this failed
                self.discard(staged)
                return digests["content"]
            manifest = {"version": 1, **{part: _entry(tree) for part, tree in digests.items()}}
            (staged / "manifest.json").write_bytes(canonical_json(manifest) + b"\n")
            names = [f"{part}/{file.path}" for part, tree in digests.items() for file in tree.files]
            for name in (*names, "manifest.json"):
                os.chmod(f"{staged}/{name}", 0o444)  # noqa: PTH101 - a path object each would cost more
            _make_folder(target.parent)
            sync_tree(staged)  # with it goes what was made on the way, so that syncing that costs next to nothing
            self._sync_way(target.parent)
            staged.rename(target)
            sync_folder(target.parent)
        self._tidy(staged.parent)
        return digests["content"]

    def discard(self, staged: Path) -> None:
        """Remove a staged folder and the empty ones above it; one that is gone is no error."""
        if staged.is_dir():
            shutil.rmtree(staged)
        self._tidy(staged.parent)

    def present(self, uri: str) -> bool:
        """Whether a whole payload lies there, without reading it: its manifest came with it."""
        return (self.path(uri) / "manifest.json").is_file()

    def remove(self, uri: str) -> None:
        """Delete a published payload; first out of sight, so that a crash leaves none that looks whole."""
        path = self.path(uri)
        if not path.exists():
            return
        doomed = self.staging / f"removed-{secrets.token_hex(8)}"
        doomed.parent.mkdir(parents=True, exist_ok=True)
        try:
            path.rename(doomed)
        except FileNotFoundError:  # another process removes it too
            return
        sync_folder(path.parent)
        shutil.rmtree(doomed, ignore_errors=True)  # a sweep may be at it too
        with suppress(OSError):  # not empty: another output of the same execution lies there
            path.parent.rmdir()

    def problems(self, uri: str, fingerprint: str | None = None) -> list[str]:
        """What is wrong with a payload, by digests of all its bytes; empty when it is whole.

        Args:
            uri: Which one; it must exist.
            fingerprint: What its content must have (the store's word), beside the manifest's.
        """
        path = self.path(uri)
        try:
            manifest: dict[str, Any] = json.loads((path / "manifest.json").read_bytes())
            digests = _digests(path, published=True)
            found = []
            for part, tree in digests.items():
                before = {file["path"]: file["sha256"] for file in manifest[part]["files"]}
                after = {file.path: file.sha256 for file in tree.files}
                changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
                found += [f"{part}/{name} {_what(name, before, after)}" for name in changed]
            if fingerprint is not None and digests["content"].fingerprint != fingerprint and not found:
                found.append("content is not what the store says")
        except (OSError, ValueError, KeyError, TypeError, InputError) as error:
            return [f"cannot be read: {error}"]
        return found

    def _same(self, target: Path, uri: str, content: TreeDigest) -> None:
        there = digest_tree(target / "content") if (target / "content").is_dir() else None
        if there is None or there.fingerprint != content.fingerprint or not self.present(uri):
            raise AlreadyExists(f"another payload lies at {uri}", fix="run `drivetrain fsck`")

    def _sync_way(self, folder: Path) -> None:
        """Make a folder and those above it below the root durable, each in its parent."""
        # One that was there already may be another process's, which has not synced it yet.
        for each in (folder, *folder.parents):
            if each == self.root:
                break
            if each not in self._durable:
                sync_folder(each.parent)
                if each != folder:  # an execution's own is asked for no more
                    self._durable.add(each)

    def _tidy(self, folder: Path) -> None:
        """Remove a folder of staging and those above it while they are empty."""
        while self.staging in folder.parents:
            try:
                folder.rmdir()
            except OSError:  # not empty, or gone: somebody else's is in it
                return
            folder = folder.parent


@contextmanager
def explain_full_disk(doing: str) -> Iterator[None]:
    """Turn a full disk, quota or file size limit within the block into one clear error.

    Raises:
        DiskFull: Naming what was being done.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise DiskFull(
            f"disk full while {doing} ({error.strerror})", fix="free space and run `drivetrain resume`"
        ) from error


def _digests(path: Path, *, published: bool = False) -> dict[str, TreeDigest]:
    if not (path / "content").is_dir():
        raise InputError(f"{path} has no content folder", fix="write below the artifact's .content")
    allowed = {*_PARTS, "manifest.json"} if published else set(_PARTS)
    # A manifest in staging is what a crash left between writing it and the rename.
    strange = sorted(entry.name for entry in path.iterdir() if entry.name not in allowed | {"manifest.json"})
    if strange:
        raise InputError(f"{path} holds {strange[0]!r} beside content and extra", fix="write below .content or .extra")
    return {part: digest_tree(path / part) for part in _PARTS}


def _entry(tree: TreeDigest) -> dict[str, Any]:
    files = [{"path": file.path, "size": file.size, "sha256": file.sha256} for file in tree.files]
    return {"fingerprint": tree.fingerprint, "size": tree.size, "files": files}


def _what(name: str, before: dict[str, str], after: dict[str, str]) -> str:
    return "is new" if name not in before else "is missing" if name not in after else "changed"


def _make_folder(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise DrivetrainError(f"{folder} is no folder", fix="move it away")
    folder.mkdir(parents=True, exist_ok=True)
