"""Files behind a URI (`s3://`, `gs://`, `https://`, …): matched, copied to a folder once, and read from there.

`http` and `https` need nothing; every other scheme goes through fsspec (extra `cloud`) and the package that fsspec
names for it, e.g. s3fs. Credentials come from where that package looks for them, e.g. AWS_ACCESS_KEY_ID, and any other
storage option from fsspec's own environment variables, e.g. FSSPEC_S3_ENDPOINT_URL; a URI must hold no secret.

A copy is kept by what the store says of the file: its address, size and strong checksum (S3's ETag, Google's MD5).
While these stay, it is not fetched again; where a store lists no checksum, it is fetched each time.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ...digest import digest_file
from ...errors import InputError
from ...file_systems import CountBytes
from ...progress import Progress, no_progress
from ...stores import Match, Store


def fetch_files(pattern: str, folder: Path, progress: Progress = no_progress) -> list[tuple[str, Path]]:
    """Copies of the files behind a URI, sorted by name: (path below what the pattern's files share, local file).

    Args:
        pattern: A URI; with `*`, `?` or `[…]` as a glob, `**` for any depth, where the store can list.
        folder: Where the copies are kept; one that is there and whole is not fetched again.
        progress: Called with the bytes fetched so far; may raise to stop.

    Raises:
        InputError: Nothing matches, it may not be read, or the URI holds a secret.
        StorageUnavailable: The store did not answer, however often it was asked.
        DrivetrainError: The package for the scheme is not installed.
    """
    store = Store(pattern)
    matches = sorted(_matches(store, lambda done: progress(0, None, "bytes fetched")), key=lambda match: match.address)
    if not matches:
        raise InputError(f"nothing matches {pattern}", fix="check the address and the right to list it")
    folders = [match.address.split("/")[:-1] for match in matches]
    pairs = list(zip(min(folders), max(folders), strict=False))
    shared = next((depth for depth, (first, last) in enumerate(pairs) if first != last), len(pairs))
    total = None if any(match.size is None for match in matches) else sum(match.size or 0 for match in matches)
    copies, before = [], 0
    for match in matches:

        def count(done: int, before: int = before) -> None:
            progress(before + done, total, "bytes fetched")

        copy = _copied(store, match, folder, count)
        os.utime(copy.parent)  # when it was last used: what has not been for long is removed
        copies.append(("/".join(match.address.split("/")[shared:]), copy))
        before += copy.stat().st_size
    return copies


def list_files(pattern: str) -> list[str]:
    """The addresses of the files behind a URI with a glob, sorted; as the store spells them. None is an empty list.

    Raises:
        InputError: The store cannot list or may not be read, or the URI holds a secret.
        StorageUnavailable: The store did not answer, however often it was asked.
        DrivetrainError: The package for the scheme is not installed.
    """
    return sorted(match.address for match in _matches(Store(pattern), lambda done: None))


def _matches(store: Store, count: CountBytes) -> list[Match]:
    try:
        return store.matches(count)
    except FileNotFoundError as error:
        raise InputError(f"{store.address} does not exist", fix="check the address") from error


def _copied(store: Store, match: Match, folder: Path, count: CountBytes) -> Path:
    """The copy of a file in the folder, fetched unless it is there and the store says that it did not change."""
    name = unquote(urlsplit(match.address).path if "://" in match.address else match.address).rpartition("/")[2]
    if name in ("", ".", "..") or "\0" in name:
        raise InputError(f"{match.address} ends in no file's name", fix="check the address")
    name = name if len(name.encode()) <= 255 else name[-60:]
    copy = None
    if match.checksum is not None:
        copy = folder / _short_digest(f"{match.address}\0{match.size}\0{match.checksum}") / name
        if copy.is_file() and match.size in (None, copy.stat().st_size):
            return copy
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".{secrets.token_hex(8)}.tmp"
    try:
        try:
            store.fetch_match(match, temporary, count)
        except FileNotFoundError as error:  # a server that does not know HEAD says so only now
            raise InputError(f"{match.address} does not exist", fix="check the address") from error
        if copy is None:
            copy = folder / digest_file(temporary)[:32] / name
        copy.parent.mkdir(exist_ok=True)
        temporary.replace(copy)
    finally:
        temporary.unlink(missing_ok=True)
    return copy


def _short_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
