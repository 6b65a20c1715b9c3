"""Files behind a URI (`s3://`, `gs://`, `https://`, …): found, copied to a folder once, and read from there.

`http` and `https` need nothing; every other scheme goes through fsspec (extra `cloud`) and the package that fsspec
names for it, e.g. s3fs. Credentials come from where that package looks for them, e.g. AWS_ACCESS_KEY_ID, and any other
storage option from fsspec's own environment variables, e.g. FSSPEC_S3_ENDPOINT_URL; a URI must hold no secret.

A copy is kept by what the store says of the file: its address, size and strong checksum (S3's ETag, Google's MD5).
While these stay, it is not fetched again; where a store tells no checksum, it is fetched each time.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar
from urllib.error import HTTPError
from urllib.parse import parse_qs, quote, unquote, urlsplit
from urllib.request import Request, urlopen

from ...errors import DrivetrainError, InputError
from ...progress import Progress, no_progress
from ...urls import file_system, line

_URI: Final = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_CHECKSUMS: Final = ("md5Hash", "ETag", "etag", "content_md5", "content_settings_md5")
_SECRETS: Final = ("x-amz-signature", "x-goog-signature", "signature", "sig", "token", "password", "access_token")
_PAUSES: Final = [0.5, 2.0]
"""Seconds before the second and the third try of what failed for a reason that may pass."""
_LASTING: Final = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, NotImplementedError)
_TIMEOUT: Final = 60  # seconds without a byte

T = TypeVar("T")


def is_uri(path: str) -> bool:
    """Whether a path names something behind a scheme, other than this machine's files."""
    return _URI.match(path) is not None and not path.startswith("file://")


def fetch_files(pattern: str, folder: Path, progress: Progress = no_progress) -> list[tuple[str, Path]]:
    """Copies of the files behind a URI, sorted by name: (path below what the pattern's files share, local file).

    Args:
        pattern: A URI; with `*`, `?` or `[…]` as a glob, `**` for any depth, where the store can list.
        folder: Where the copies are kept; one that is there and whole is not fetched again.
        progress: Told of bytes fetched; may raise to stop.

    Raises:
        InputError: Nothing matches, it cannot be read (after three tries), or the URI holds a secret.
        DrivetrainError: The package for the scheme is not installed.
    """
    refuse_secrets(pattern)
    store = _store(pattern)
    found = _tried(pattern, lambda: store.find(pattern))
    if not found:
        raise InputError(f"nothing matches {pattern}", fix="check the address and the right to list it")
    folders = [file.address.split("/")[:-1] for file in found]
    pairs = list(zip(min(folders), max(folders), strict=False))
    shared = next((place for place, (first, last) in enumerate(pairs) if first != last), len(pairs))
    total = None if any(file.size is None for file in found) else sum(file.size or 0 for file in found)
    copies, before = [], 0
    for file in sorted(found, key=lambda file: file.address):

        def tell(done: int, before: int = before) -> None:
            progress(before + done, total, "bytes fetched")

        copy = _copied(store, file, folder, tell)
        os.utime(copy.parent)  # when it was last used: what has not been for long is removed
        copies.append(("/".join(file.address.split("/")[shared:]), copy))
        before += copy.stat().st_size
    return copies


def list_files(pattern: str) -> list[str]:
    """The addresses of the files behind a URI with a glob, sorted; as the store spells them. None is an empty list.

    Raises:
        InputError: The store cannot list, cannot be read (after three tries), or the URI holds a secret.
        DrivetrainError: The package for the scheme is not installed.
    """
    refuse_secrets(pattern)
    store = _store(pattern)
    return sorted(file.address for file in _tried(pattern, lambda: store.find(pattern)))


def refuse_secrets(uri: str) -> None:
    """See that a URI can be shown and stored.

    Raises:
        InputError: It holds a password or a signature; does not show it.
    """
    try:
        parts = urlsplit(uri)
    except ValueError as error:
        raise InputError(f"a URI of {uri.partition(':')[0]}:// is none ({error})", fix="check the address") from None
    held = {key.lower() for key in parse_qs(parts.query)}
    if ":" in parts.netloc.rpartition("@")[0] or held & set(_SECRETS):
        raise InputError(
            f"a URI of {parts.scheme}:// holds a password or a signature, which would be stored with the run",
            fix="take it out, and give the credentials by the environment",
        )


@dataclass(frozen=True)
class _Remote:
    """One file of a store: its address, size in bytes or None, and checksum if it has a strong one."""

    address: str
    size: int | None
    checksum: str | None


class _Store(Protocol):
    def find(self, pattern: str) -> list[_Remote]: ...

    def copy(self, file: _Remote, to: Path, tell: Callable[[int], None]) -> None: ...


class _Web:
    """One file by HTTP."""

    def find(self, pattern: str) -> list[_Remote]:
        try:
            with urlopen(Request(_quoted(pattern), method="HEAD"), timeout=_TIMEOUT) as answer:  # noqa: S310 - http or https
                size, tag = answer.headers.get("Content-Length"), answer.headers.get("ETag")
        except HTTPError as error:
            if error.code in (405, 501):  # a server that does not know HEAD
                return [_Remote(pattern, None, None)]
            raise
        strong = tag if tag and not tag.startswith("W/") else None
        return [_Remote(pattern, int(size) if size else None, strong)]

    def copy(self, file: _Remote, to: Path, tell: Callable[[int], None]) -> None:
        done = 0
        with urlopen(_quoted(file.address), timeout=_TIMEOUT) as answer, to.open("wb") as copy:  # noqa: S310
            size = answer.length  # None where the body comes in chunks, which tell their end
            while data := answer.read1(1 << 20):
                copy.write(data)
                done += len(data)
                tell(done)
        if size not in (None, done):
            raise OSError(f"{done} of {size} bytes came")


def _quoted(address: str) -> str:
    """An address as the web takes it: blanks and letters beyond ASCII as %XX, what is so written already as it is."""
    return quote(address, safe="%/:?#[]@!$&'()*+,;=~")


class _Fsspec:
    """Files of any store that fsspec knows."""

    def __init__(self, files: Any) -> None:  # Any: fsspec ships no types
        self._files = files

    def find(self, pattern: str) -> list[_Remote]:
        path = self._files._strip_protocol(pattern)
        self._files.invalidate_cache()  # a listing of an earlier run in this process
        if any(sign in path for sign in "*?["):
            infos = [info for info in self._files.glob(path, detail=True).values() if info["type"] == "file"]
        else:
            infos = [self._files.info(path)]
            if infos[0]["type"] != "file":
                raise IsADirectoryError(pattern)
        return [_Remote(str(info["name"]), info.get("size"), _checksum(info)) for info in infos]

    def copy(self, file: _Remote, to: Path, tell: Callable[[int], None]) -> None:
        from fsspec.callbacks import Callback  # type: ignore[import-untyped]

        class Told(Callback):  # type: ignore[misc]  # untyped
            def call(self, *_: Any, **__: Any) -> None:
                tell(self.value)

        self._files.get_file(file.address, str(to), callback=Told())


def _checksum(info: dict[str, Any]) -> str | None:
    found = next((str(info[key]) for key in _CHECKSUMS if info.get(key)), None)
    return None if found is None or found.startswith("W/") else found


def _store(pattern: str) -> _Store:
    scheme = pattern.partition("://")[0].lower()
    if scheme in ("http", "https"):
        if any(sign in urlsplit(pattern).path for sign in "*["):
            raise InputError(f"{pattern}: nothing can be listed by {scheme}", fix="name each file")
        return _Web()
    return _Fsspec(file_system(pattern))


def _copied(store: _Store, file: _Remote, folder: Path, tell: Callable[[int], None]) -> Path:
    name = unquote(urlsplit(file.address).path if "://" in file.address else file.address).rpartition("/")[2]
    if name in ("", ".", "..") or "\0" in name:
        raise InputError(f"{file.address} ends in no file's name", fix="check the address")
    name = name if len(name.encode()) <= 255 else name[-60:]
    known = None
    if file.checksum is not None:
        known = folder / _short(f"{file.address}\0{file.size}\0{file.checksum}".encode()) / name
        if known.is_file() and file.size in (None, known.stat().st_size):
            return known
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".{secrets.token_hex(8)}.tmp"
    try:
        _tried(file.address, lambda: _whole(store, file, temporary, tell))
        if known is None:
            with temporary.open("rb") as copy:
                known = folder / hashlib.file_digest(copy, "sha256").hexdigest()[:32] / name
        known.parent.mkdir(exist_ok=True)
        temporary.replace(known)
    finally:
        temporary.unlink(missing_ok=True)
    return known


def _whole(store: _Store, file: _Remote, to: Path, tell: Callable[[int], None]) -> None:
    tell(0)  # a run that is to stop does not try again
    store.copy(file, to, tell)
    if file.size not in (None, to.stat().st_size):
        raise OSError(f"{to.stat().st_size} of {file.size} bytes came")


def _short(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


def _tried(what: str, do: Callable[[], T]) -> T:
    """What `do` gives, tried again where it fails for a reason that may pass."""
    for pause in (*_PAUSES, None):
        try:
            return do()
        except DrivetrainError:
            raise
        except Exception as error:  # whatever the store's own package raises
            lasting = error.code < 500 and error.code not in (408, 429) if isinstance(error, HTTPError) else None
            if lasting is None:
                lasting = isinstance(error, _LASTING) or type(error).__name__.endswith("CredentialsError")
            if pause is None or lasting:
                raise _failed(what, error) from error
        time.sleep(pause)
    raise AssertionError("unreachable")


def _failed(what: str, error: Exception) -> InputError:
    if isinstance(error, FileNotFoundError) or (isinstance(error, HTTPError) and error.code in (404, 410)):
        return InputError(f"{what} does not exist", fix="check the address")
    if isinstance(error, IsADirectoryError):
        return InputError(f"{what} is a folder", fix=f"name its files, e.g. {what.rstrip('/')}/*.parquet")
    denied = isinstance(error, HTTPError) and error.code in (401, 403)
    if denied or isinstance(error, PermissionError) or type(error).__name__.endswith("CredentialsError"):
        return InputError(
            f"{what} may not be read ({line(error)})",
            fix="give the credentials by the environment, or check the rights",
        )
    return InputError(f"{what} cannot be read ({line(error)})", fix="check the address and the network")
