"""Fetch a published version, once, into the user's cache; without JAX, which who only starts servers does not need."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...digest import digest_file
from ...errors import InputError
from ...versions import FolderVersions, Versions
from .._user_cache import cache_home, make_folder
from .publishing import Version


def local_bundle(there: Versions, version: Version) -> Path:
    """A folder of this machine with the version's bundle, whole when it was looked at; fetched if need be.

    A block of a file is in memory at a time, so that weights may be larger than memory.

    Raises:
        InputError: A file is missing or damaged, or there is no folder to keep a copy in.
        StorageUnavailable: The store does not answer.
    """
    if isinstance(there, FolderVersions):
        for path, size, checksum in version.files:
            name = f"{version.number}/{path}"
            with _whole(version, path):
                if there.store.stat(name).size != size or there.store.digest(name, size) != checksum:
                    raise _damaged(version, path)
        return there.folder / str(version.number)
    kept = cache_home() / "hub" / version.digest
    if not _is_whole(kept, version):
        make_folder(kept.parent)
        with _beside(kept) as fresh:
            _fetch(there, version, fresh)
            _put(fresh, kept, version)
    return kept


def _fetch(there: Versions, version: Version, folder: Path) -> None:
    """Copy every file to a folder, compared with its digest."""
    for name, size, checksum in version.files:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with _whole(version, name):
            there.store.fetch(f"{version.number}/{name}", target, size)
        if target.stat().st_size != size or digest_file(target) != checksum:
            raise _damaged(version, name)


@contextmanager
def _whole(version: Version, name: str) -> Iterator[None]:
    """Explain a file of the version that is not there."""
    try:
        yield
    except FileNotFoundError as error:
        raise InputError(
            f"{version.address} version {version.number} is not whole: {name} is missing", fix="publish it again"
        ) from error


def _damaged(version: Version, name: str) -> InputError:
    return InputError(
        f"{version.address} version {version.number} is damaged: {name} does not match its digest",
        fix="publish it again",
    )


def _is_whole(folder: Path, version: Version) -> bool:
    """Whether a copy holds every file of the version, each as its digest says."""
    for name, size, checksum in version.files:
        path = folder / name
        if not path.is_file() or path.stat().st_size != size or digest_file(path) != checksum:
            return False
    return True


@contextmanager
def _beside(path: Path) -> Iterator[Path]:
    """A new folder next to a path, gone afterwards unless it was renamed."""
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    fresh.mkdir()
    try:
        yield fresh
    finally:
        shutil.rmtree(fresh, ignore_errors=True)  # gone already if it was renamed


def _put(fresh: Path, kept: Path, version: Version) -> None:
    """Rename a whole copy to its place; another process may be doing the same, or a damaged one may be there."""
    for _ in range(8):
        try:
            fresh.rename(kept)
            return
        except OSError:
            if _is_whole(kept, version):
                return
        with _beside(kept) as doomed:
            try:
                kept.rename(doomed)
            except OSError:
                continue  # another process took it away
    raise InputError(f"{kept} cannot be replaced", fix="remove that folder")
