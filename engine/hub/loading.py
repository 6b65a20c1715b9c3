"""Load a published version: fetched once into the user's cache, every file against its digest."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from ...errors import InputError
from ..bundles.bundle import Bundle
from ..bundles.verifying import BundleCheck, verify_bundle
from .modules import CALL, HubModule
from .publishing import BUNDLE, Version, chosen
from .stores import Store, store_of

_PREFERRED = (CALL, "predict", "transform")


def load(
    address: str | Path,
    *,
    version: int | None = None,
    digest: str | None = None,
    trainable: bool = False,
    signature: str | None = None,
) -> HubModule:
    """Load what `save` published. Nothing of it is executed: programs are checked, then computed by XLA.

    What lies behind a URL is kept in `$XDG_CACHE_HOME/drivetrain/hub/DIGEST` (`~/.cache/…`), which may be deleted at
    any time, and checked again at each load.

    Args:
        address: The folder or URL prefix that it was published to.
        version: Its number; by default the newest.
        digest: What `save` gave as `Version.digest`: anything else is refused. Pin it where the address is not yours.
        trainable: Whether gradients are to reach its params.
        signature: Of its bundle, where it has several; by default "call", "predict", "transform", or the only one.

    Raises:
        InputError: No such version or signature; another digest than pinned; a file is missing or damaged; it is of a
            newer format, or requires an extension that is not installed; it cannot be trained.
    """
    store = store_of(address)
    found = chosen(store, version)
    if digest is not None and found.digest != digest.strip().lower():
        raise InputError(
            f"{found.address} version {found.number} has digest {found.digest}, not the pinned {digest:.80}",
            fix="see what changed, then pin its digest; or name the version that you pinned",
        )
    bundle = Bundle.load(_folder(store, found))
    names = list(bundle.signatures)
    chosen_name = signature or next((name for name in _PREFERRED if name in names), names[0])
    return HubModule(bundle, chosen_name, trainable, f"{found.card.name or found.address}@{found.number}")


def verify(address: str | Path, *, version: int | None = None) -> tuple[BundleCheck, ...]:
    """Check a published version: every file's digest, every program, each signature once; raises as `load`."""
    store = store_of(address)
    found = chosen(store, version)
    try:
        folder = _folder(store, found)
    except InputError as error:
        return (BundleCheck("files", False, error.message),)
    return verify_bundle(folder)


def _folder(store: Store, version: Version) -> Path:
    """A folder of this machine with the version's bundle, whole when it was looked at."""
    inner = Path(store.address) / version.folder
    if inner.is_dir() and "://" not in store.address:
        _fetch(store, version, None)
        return inner / BUNDLE
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "drivetrain" / "hub"
    kept = home / version.digest
    if not _is_whole(kept, version):
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _beside(kept) as fresh:
            _fetch(store, version, fresh)
            _put(fresh, kept, version)
    return kept / BUNDLE


def _fetch(store: Store, version: Version, to: Path | None) -> None:
    """Read every file, check it, and keep it in a folder, if one is given."""
    where = f"{version.address} version {version.number}"
    for name, size, checksum in version.files:
        try:
            data = store.read(f"{version.folder}/{name}")
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
            raise InputError(f"{where} is not whole: {name} is missing", fix="publish it again") from error
        if len(data) != size or sha256(data).hexdigest() != checksum:
            raise InputError(f"{where} is damaged: {name} does not match its digest", fix="publish it again")
        if to is not None:
            target = to / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)


def _is_whole(folder: Path, version: Version) -> bool:
    for name, size, checksum in version.files:
        path = folder / name
        if not path.is_file() or path.stat().st_size != size:
            return False
        with path.open("rb") as file:
            if sha256(file.read()).hexdigest() != checksum:
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
