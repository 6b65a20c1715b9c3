"""Pusher: copies a model's bundle to where a server looks for it, as the next numbered version."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from ..digest import digest_tree, sync_folder, sync_tree, write_durably
from ..errors import InputError
from ..metadata import Artifact, Model, PushedModel
from ..pipelines import component, current

_INCOMING = ".incoming-"
_OUTGOING = ".outgoing-"
_VERSION = re.compile(r"[1-9][0-9]{0,17}")


def push(bundle: Path, destination: Path, *, keep: int | None = None) -> tuple[int, str]:
    """Copy a bundle to `destination/<version>/`, whole or not at all.

    The version is the newest one plus one; if the newest version already is this bundle, it is adopted and nothing is
    copied. (An older equal version is not: a server serves the newest, and the push would change nothing.) Several
    pushers at once get different versions, and what a killed one left behind is removed.

    Args:
        bundle: The folder to copy.
        destination: Folder of versions, made if it does not exist.
        keep: How many of the newest versions stay; None keeps all.

    Returns:
        The version, and the bundle's digest.

    Raises:
        InputError: The destination cannot be used, or the bundle changed while it was copied.
    """
    try:
        destination.mkdir(parents=True, exist_ok=True)
        return _push(bundle, destination, keep)
    except OSError as error:
        raise InputError(
            f"cannot push to {destination}: {_reason(error, destination)}",
            fix="choose a folder that can be written to, with room for the bundle",
        ) from error


def _push(bundle: Path, destination: Path, keep: int | None) -> tuple[int, str]:
    tree = digest_tree(bundle)
    if not tree.files:
        raise InputError(f"there is no bundle in {bundle}", fix="push a trained model")
    with _locked(destination):
        _sweep(destination)
        newest = _newest(destination)
        if newest and _digest(destination / str(newest)) == tree.fingerprint:
            _prune(destination, keep)
            return newest, tree.fingerprint
        incoming = destination / f"{_INCOMING}{secrets.token_hex(8)}"
        incoming.mkdir()
        mine = contextlib.ExitStack()
        mine.enter_context(_locked(incoming))
    with mine:
        try:
            for file in tree.files:
                target = incoming / file.path
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(bundle / file.path, target)
            if digest_tree(incoming).fingerprint != tree.fingerprint:
                raise InputError(f"{bundle} changed while it was pushed", fix="push it again")
            sync_tree(incoming)
            with _locked(destination):
                version = _newest(destination)
                if not version or _digest(destination / str(version)) != tree.fingerprint:
                    version += 1
                    incoming.rename(destination / str(version))
                    sync_folder(destination)
                _prune(destination, keep)
        finally:
            shutil.rmtree(incoming, ignore_errors=True)  # gone already if it was renamed
    return version, tree.fingerprint


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; the system frees it when the process dies."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _sweep(destination: Path) -> None:
    """Remove what dead pushers left: folders whose lock nobody holds."""
    for entry in destination.iterdir():
        if entry.name.startswith(_OUTGOING):
            shutil.rmtree(entry)
        elif entry.name.startswith(_INCOMING):
            handle = os.open(entry, os.O_RDONLY)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(entry)
            except BlockingIOError:
                continue
            finally:
                os.close(handle)


def _versions(destination: Path) -> list[int]:
    return sorted(int(entry.name) for entry in destination.iterdir() if _VERSION.fullmatch(entry.name))


def _newest(destination: Path) -> int:
    return max(_versions(destination), default=0)


def _digest(version: Path) -> str | None:
    """The digest of a version's files; None for what no push can have made (a file, a link, a folder with links)."""
    if version.is_symlink() or not version.is_dir():
        return None
    try:
        return digest_tree(version).fingerprint
    except InputError:
        return None


def _prune(destination: Path, keep: int | None) -> None:
    if keep is None:
        return
    for version in _versions(destination)[:-keep]:
        outgoing = destination / f"{_OUTGOING}{secrets.token_hex(8)}"
        (destination / str(version)).rename(outgoing)  # it vanishes at once, not file by file
        if outgoing.is_dir():
            shutil.rmtree(outgoing)
        else:
            outgoing.unlink()


def _reason(error: OSError, destination: Path) -> str:
    if isinstance(error, (FileExistsError, NotADirectoryError)):
        return "there is a file in its place"
    if error.errno == errno.EROFS:
        return "the file system is read-only"
    where = f" ({error.filename})" if error.filename and str(error.filename) != str(destination) else ""
    return f"{error.strerror or error}{where}"


def still_pushed(outputs: Mapping[str, Artifact], parameters: Mapping[str, object], base: Path) -> str | None:
    """Why an earlier push no longer stands; None if the destination still holds it, unchanged, as its newest."""
    for pushed in outputs.values():
        if not isinstance(pushed, PushedModel):
            continue
        version = base / pushed.destination / str(pushed.version)
        if not version.is_dir():
            return f"version {pushed.version} is no longer at {pushed.destination}"
        if _digest(version) != pushed.digest:
            return f"version {pushed.version} at {pushed.destination} is no longer what was pushed"
        newest = _newest(version.parent)
        if newest != pushed.version and _digest(version.parent / str(newest)) != pushed.digest:
            return f"version {newest} was pushed to {pushed.destination} since"
    return None


@component(verify=still_pushed)
def Pusher(model: Model, *, destination: str, keep: int | None = None) -> PushedModel:
    """Push a model's bundle to a folder that a server watches: `destination/<version>/`, versions 1, 2, 3 and so on.

    A new version appears whole, by one rename. Pushing what is already the newest version adopts it. A cached push
    is believed only while the destination holds that version unchanged as its newest: what is pushed is what is served.

    Args:
        model: What to push.
        destination: A folder; a relative one means the folder that the root lies in.
        keep: How many of the newest versions stay; None keeps all.

    Returns:
        The receipt: destination as given, version, digest of the bundle.

    Raises:
        InputError: The destination cannot be used.
    """
    if "://" in destination:
        raise InputError(f"cannot push to {destination}", fix="give a folder of this machine or of a mounted disk")
    if not destination or "\0" in destination:
        raise InputError(f"Pusher: {destination!r} is no destination", fix='destination="serving/model"')
    if keep is not None and keep < 1:
        raise InputError(f"Pusher: keep must be at least 1, not {keep}", fix="leave it out to keep every version")
    version, digest = push(model.content, current().base / destination, keep=keep)
    pushed = PushedModel.new(destination=destination, version=version, digest=digest)
    receipt = {"destination": destination, "digest": digest, "version": version}
    write_durably(pushed.content / "receipt.json", (json.dumps(receipt, indent=1) + "\n").encode())
    current().note(f"version {version} at {destination}")
    return pushed
