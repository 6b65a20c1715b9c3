"""Payloads in the root itself: staged, made durable, moved into place whole by one rename."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Final

from ..digest import TreeDigest, digest_tree, sync_files, sync_folder
from ..errors import DrivetrainError, InputError
from ..progress import Progress, no_progress
from .errors import AlreadyExists
from .payload import (
    MANIFEST,
    PARTS,
    REMOVED,
    PayloadEntry,
    Payloads,
    digests_of,
    explain_full_disk,
    manifest_of,
)
from .payload_checks import PayloadChecks, compared
from .uri import BELOW, resolve

_REMOVALS: Final = 8
"""Payloads removed at once: to remove a folder is to wait, on some file systems for a millisecond and more."""


class LocalPayloads(Payloads):
    """The payloads below a root: `artifacts/…` published, `work/staging/…` being written."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.url = None
        self._durable: set[Path] = set()  # folders whose names this process has synced
        self._checks = PayloadChecks(root / "work" / "checked")

    def path(self, uri: str) -> Path:
        """Where a URI's payload lies.

        Raises:
            InputError: The URI is malformed or leads through a link.
        """
        return resolve(self.root, uri)

    def local(self, uri: str, fingerprint: str | None = None, progress: Progress = no_progress) -> Path:
        """The payload itself, compared with its fingerprint unless none of its files was written since."""
        path = self.path(uri)
        if fingerprint is not None and (problems := self._checks.problems(uri, path, fingerprint)):
            raise InputError(
                f"{uri} is not what was published: {'; '.join(problems[:3])}",
                fix="run `drivetrain fsck --repair`, then run again: it is made again, and what was made from it",
            )
        return path

    def changes(self, uri: str, fingerprint: str) -> list[str]:
        """What has changed in a payload since it was published; see `Payloads.changes`."""
        return self._checks.problems(uri, self.path(uri), fingerprint)

    def reading(self) -> AbstractContextManager[None]:
        """Nothing of it is ever removed to make room."""
        return nullcontext()

    def close(self) -> None:
        """Nothing to do: no connection is held."""

    def publish(self, staged: Path, uri: str, progress: Progress = no_progress) -> TreeDigest:
        """Move a staged folder to its URI; its files become read-only. See `Payloads.publish`."""
        target = self.path(uri)
        with explain_full_disk(f"publishing {uri}"):
            written = _written(staged)
            digests = digests_of(staged)
            if target.exists():
                self._same(target, uri, digests["content"])
                for folder in target.parents[:2]:  # it may be there because only this failed
                    sync_folder(folder)
                self.discard(staged)
                return digests["content"]
            # Manifest, rights, sync, rename: what carries the final name is whole, read-only and on the disk. A crash
            # in between leaves it in staging, where nobody takes it for a payload.
            (staged / MANIFEST).write_bytes(manifest_of(digests))
            names = [f"{part}/{file.path}" for part, tree in digests.items() for file in tree.files]
            names.append(MANIFEST)
            for name in names:
                _break_hard_link(f"{staged}/{name}")
                os.chmod(f"{staged}/{name}", 0o444)  # noqa: PTH101 - a path object each would cost more
            sync_files(staged, names)
            self._move(staged, target)
        # A file that was written to since its digest was taken is not known to be whole: its next use compares it.
        state = self._checks.state(target)
        if _written(target) == written:
            self._checks.keep(uri, state)
        return digests["content"]

    def present(self, uri: str) -> bool:
        """Whether a whole payload lies there: its manifest came with it."""
        return (self.path(uri) / MANIFEST).is_file()

    def remove(self, *uris: str) -> None:
        """Delete published payloads; first out of sight, so that a crash leaves none that looks whole."""
        from concurrent.futures import ThreadPoolExecutor  # late: most processes remove nothing

        self.staging.mkdir(parents=True, exist_ok=True)
        # A share of them for each thread, not a payload: to hand over takes as long as to remove a small one.
        with ThreadPoolExecutor(min(len(uris), _REMOVALS) or 1) as threads:
            shares = [uris[number::_REMOVALS] for number in range(min(len(uris), _REMOVALS))]
            hidden = list(threads.map(lambda share: [*filter(None, map(self._hide, share))], shares))
            for folder in {changed for share in hidden for _, changed in share}:
                with suppress(FileNotFoundError):  # it went with the last of another's outputs
                    sync_folder(folder)
            list(threads.map(_remove_folders, [[doomed for doomed, _ in share] for share in hidden]))

    def _hide(self, uri: str) -> tuple[Path, Path] | None:
        """Move a payload into staging; gives where it is then and the folder to sync, None where nothing was."""
        path, doomed = self.path(uri), self.staging / f"{REMOVED}{secrets.token_hex(8)}"
        try:
            path.rename(doomed)
        except FileNotFoundError:  # another process may have removed it
            return None
        self._checks.forget(uri)
        with suppress(OSError):  # not empty: another output of the same execution lies there
            path.parent.rmdir()
            return doomed, path.parent.parent
        return doomed, path.parent

    def sizes(self, uris: Iterable[str]) -> dict[str, int]:
        """Bytes of payloads, as their manifests say; see `Payloads.sizes`."""
        sizes = {}
        for uri in uris:
            with suppress(OSError, ValueError, KeyError, TypeError, InputError):
                with open(f"{self.path(uri)}/{MANIFEST}", "rb") as file:  # noqa: PTH123
                    manifest = json.loads(file.read())
                sizes[uri] = sum(int(manifest[part]["size"]) for part in PARTS)
        return sizes

    def problems(self, uri: str, fingerprint: str | None = None) -> list[str]:
        """What is wrong with a payload, see `Payloads.problems`; it must exist."""
        problems = compared(self.path(uri), fingerprint)
        if problems:  # whatever its dates say
            self._checks.forget(uri)
        return problems

    def published(self) -> list[PayloadEntry]:
        """The folders below `artifacts/` that look like a payload; a rename changes when."""
        entries: list[PayloadEntry] = []
        folders = [self.root / "artifacts"]
        for _ in range(BELOW):  # not by what they hold: a node or an output may itself be named content
            folders = [below for folder in folders for below in _folders(folder)]
        for folder in folders:
            whole = (folder / MANIFEST).is_file()
            if whole or (folder / "content").is_dir():
                with suppress(FileNotFoundError):  # it is being removed
                    changed = folder.stat().st_ctime
                    entries.append(PayloadEntry(folder.relative_to(self.root).as_posix(), whole, changed))
        return sorted(entries, key=lambda stored: stored.uri)

    def _move(self, staged: Path, target: Path) -> None:
        """Put what is durable where it belongs.

        The only output of an execution goes there with the execution's folder: to make and remove one takes longer
        than to write a small file.
        """
        folder, execution_folder = staged.parent, target.parent
        _make_folder(execution_folder.parent)
        self._sync_way(execution_folder.parent)
        if folder.parent == self.staging and os.listdir(folder) == [staged.name] and not execution_folder.exists():  # noqa: PTH208
            ready = staged.rename(folder / target.name)
            try:
                sync_folder(folder)
                folder.rename(execution_folder)
            except BaseException:
                with suppress(FileNotFoundError):  # Ctrl-C may come when the folder has moved already
                    ready.rename(staged)
                raise
            sync_folder(execution_folder.parent)
        else:
            _make_folder(execution_folder)
            sync_folder(execution_folder.parent)
            staged.rename(target)
            sync_folder(execution_folder)

    def _same(self, target: Path, uri: str, content: TreeDigest) -> None:
        there = digest_tree(target / "content") if (target / "content").is_dir() else None
        if there is None or there.fingerprint != content.fingerprint or not self.present(uri):
            raise AlreadyExists(f"another payload is at {uri}", fix="run `drivetrain fsck`")

    def _sync_way(self, folder: Path) -> None:
        """Make a folder and those above it below the root durable, each in its parent."""
        # One that was there already may be another process's, which has not synced it yet.
        each = folder
        while each != self.root:
            if each not in self._durable:
                sync_folder(each.parent)
                self._durable.add(each)
            each = each.parent


def _written(payload: Path) -> dict[str, tuple[int, int]]:
    """When each file of a payload was last written to, and its size."""
    files = {}
    for part in PARTS:
        for folder, _, names in os.walk(payload / part):
            for name in names:
                status = os.lstat(f"{folder}/{name}")
                files[f"{folder}/{name}"[len(str(payload)) :]] = (status.st_mtime_ns, status.st_size)
    return files


def _break_hard_link(path: str) -> None:
    """Make a file the payload's own where it is another name of one elsewhere, which a writer there would change."""
    if os.stat(path).st_nlink > 1:  # noqa: PTH116
        copy = f"{path}.{secrets.token_hex(4)}"
        shutil.copyfile(path, copy)
        os.replace(copy, path)  # noqa: PTH105


def _remove_folders(folders: Iterable[Path]) -> None:
    for folder in folders:
        with suppress(OSError):  # a sweep may be at it too; the next removes what is left
            _remove_tree(str(folder))


def _remove_tree(folder: str) -> None:
    """As `shutil.rmtree`, without the descriptors by which that is safe where others may put links: here nobody does.

    That takes a fifth less, and there are many.
    """
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                _remove_tree(entry.path)
            else:
                os.unlink(entry.path)  # noqa: PTH108
    os.rmdir(folder)  # noqa: PTH106


def _folders(folder: Path) -> list[Path]:
    """The folders right in one; none where it is gone."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return [path for path in folder.iterdir() if path.is_dir() and not path.is_symlink()]
    return []


def _make_folder(folder: Path) -> None:
    if folder.is_dir():
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)  # another thread or process may make it now
    except (FileExistsError, NotADirectoryError):
        raise DrivetrainError(f"{folder} is not a folder", fix="move it away") from None
