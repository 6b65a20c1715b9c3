"""The files below one URL (`s3://…`, by fsspec), by relative names; neither rename nor folders are needed."""

from __future__ import annotations

import base64
import binascii
import inspect
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from ..digest import sync_folder
from ..urls import cause, failed, open_url, tried
from .transfer import Tell
from .uri import check, check_root, resolve

PAUSES: Final = [0.5, 1.0, 2.0, 4.0, 8.0, 16.0]
"""Seconds before the second try of what failed for a reason that may pass, before the third, …"""
_BLOCK: Final = 8 << 20
_PART: Final = 8 << 20  # bytes of a large file that are sent at once, and so held in memory
_PARTS: Final = 9000  # of which S3 takes 10,000 at most
_FOLDERS: Final = ("file", "hdfs", "webhdfs", "sftp", "smb", "ssh")  # where a file's folder must be made first

T = TypeVar("T")


@dataclass(frozen=True)
class Entry:
    """What a store says of a file.

    Attributes:
        size: Bytes.
        md5: Of its bytes (hex), where the store says so. An ETag that is none, of a multipart upload, is not taken.
        changed: When it was written, in seconds since 1970 by the store's clock; None where it does not say.
    """

    size: int
    md5: str | None
    changed: float | None


class Objects:
    """The files below a URL.

    Each call is tried again where it fails for a reason that may pass. What lasts is one `InputError`, what did not
    pass a `StorageUnavailable`; a file that is not there is Python's `FileNotFoundError`. All but `remove` may be
    called from several threads.

    Args:
        url: E.g. `s3://bucket/prefix`, see `uri.check_root`.

    Raises:
        InputError: It is none that can be used.
        DrivetrainError: The package for its scheme is not installed.
    """

    def __init__(self, url: str) -> None:
        self.url = check_root(url)
        self._scheme = self.url.partition("://")[0]
        self._files, self._root = open_url(self.url)

    def read(self, name: str) -> bytes:
        """A file's bytes."""
        return bytes(self._tried(name, "read", lambda: self._files.cat_file(self._at(name))))

    def blocks(self, name: str, size: int) -> Iterator[bytes]:
        """A file's bytes, a block at a time, of which there are so many."""
        for begin in range(0, size, _BLOCK):
            end = min(size, begin + _BLOCK)
            yield self._tried(name, "read", partial(self._files.cat_file, self._at(name), start=begin, end=end))

    def write(self, name: str, data: bytes) -> None:
        """Write a small file."""

        def put() -> None:
            self._put(name, lambda at: self._files.pipe_file(at, data))

        self._sent(name, put, time.sleep)

    def send(self, path: Path, name: str, tell: Tell, wait: Callable[[float], None], parts: int = 1) -> None:
        """Copy a local file there, a large one in so many parts at once; tells its bytes so far."""
        size = path.stat().st_size  # a FileNotFoundError from here on is the store's

        def put() -> None:
            tell(0)
            how = self._in_parts("_put_file", parts, size)
            self._put(name, lambda at: self._files.put_file(str(path), at, callback=_told(tell), **how))
            tell(size)

        self._sent(name, put, wait)

    def fetch(self, name: str, path: Path, tell: Tell, wait: Callable[[float], None], parts: int = 1) -> None:
        """Copy a file to a local one, a large one in so many parts at once; tells its bytes so far."""

        def get() -> None:
            tell(0)
            how = self._in_parts("_get_file", parts, 0)
            self._files.get_file(self._at(name), str(path), callback=_told(tell), **how)

        self._tried(name, "read", get, wait)

    def exists(self, name: str) -> bool:
        """Whether there is such a file."""
        try:
            self._tried(name, "read", lambda: self._fresh().info(self._at(name)))
        except FileNotFoundError:
            return False
        return True

    def entries(self, folder: str) -> dict[str, Entry]:
        """The files below a folder, at any depth, by their names relative to it; none where there is no such folder.

        Those whose names begin with a dot are left out: half-written ones, and what NFS makes of what was deleted.
        """
        base = self._at(folder)

        def find() -> dict[str, Any]:
            return dict(self._fresh().find(base, detail=True))

        found: dict[str, Entry] = {}
        for name, info in self._listed(folder, find).items():
            below = str(name).lstrip("/").removeprefix(base.lstrip("/"))
            if below.startswith("/") and below.rpartition("/")[2][:1] not in ("", "."):
                found[below[1:]] = Entry(int(info.get("size") or 0), _md5(info), _changed(info))
        return found

    def names(self, folder: str) -> list[str]:
        """The names of what lies right in a folder, sorted."""
        found = self._listed(folder, lambda: self._fresh().ls(self._at(folder), detail=False))
        return sorted({str(path).rstrip("/").rpartition("/")[2] for path in found} - {folder.rpartition("/")[2]})

    def delete(self, name: str) -> None:
        """Delete a file; one that is not there is no error."""
        with suppress(FileNotFoundError):
            self._tried(name, "deleted", lambda: self._files.rm_file(self._at(name)))

    def remove(self, folder: str) -> None:
        """Delete all that lies below a folder; nothing there is no error."""

        def delete() -> None:
            with suppress(FileNotFoundError):
                self._files.rm(self._at(folder), recursive=True)
            if left := self._fresh().find(self._at(folder)):  # s3fs tells of no file that it could not delete
                raise OSError(f"{len(left)} files of it could not be deleted")

        if self.entries(folder):
            self._tried(folder, "deleted", delete)

    def _at(self, name: str) -> str:
        """The one way from a name to what the file system is given."""
        if self._scheme == "file":
            return str(resolve(Path(self._root or "/"), name))
        return f"{self._root}/{check(name)}"

    def _tried(self, name: str, verb: str, do: Callable[[], T], wait: Callable[[float], object] = time.sleep) -> T:
        self._at(name)  # a bad name is no error of the store's
        return tried(f"{self.url}/{name}", verb, do, PAUSES, wait)

    def _sent(self, name: str, put: Callable[[], None], wait: Callable[[float], object]) -> None:
        try:
            self._tried(name, "written", put, wait)
        except FileNotFoundError as error:
            raise failed(f"{self.url}/{name}", "written", error, 1) from cause(error)

    def _listed(self, folder: str, do: Callable[[], T]) -> Any:  # Any: what fsspec gives
        try:
            return self._tried(folder, "listed", do)
        except FileNotFoundError as error:
            if re.search(r"specified (bucket|container) does not exist", str(error)):
                raise failed(f"{self.url}/{folder}", "listed", error, 1) from cause(error)
            return {}

    def _in_parts(self, method: str, parts: int, size: int) -> dict[str, int]:
        """What bounds the memory that S3's package takes for a large file: its own choice is 500 MiB, or twice that."""
        if self._scheme not in ("s3", "s3a"):
            return {}
        wanted = {"chunksize": max(_PART, -(-size // _PARTS)), "max_concurrency": parts}
        taken = inspect.signature(getattr(self._files, method)).parameters  # older releases take neither
        return {name: value for name, value in wanted.items() if name in taken}

    def _fresh(self) -> Any:
        """The file system without what it remembers of earlier listings."""
        self._files.invalidate_cache()
        return self._files

    def _put(self, name: str, put: Callable[[str], object]) -> None:
        """Put a file there; in a local or mounted folder as stores of objects do: whole or not at all, and durable."""
        at = self._at(name)
        if self._scheme in _FOLDERS:  # elsewhere this may make a bucket that is not there
            self._files.makedirs(at.rpartition("/")[0], exist_ok=True)
        if self._scheme != "file":
            put(at)
            return
        path = Path(at)
        unfinished = path.with_name(f".{secrets.token_hex(8)}")  # no name of ours: see `entries`
        try:
            put(str(unfinished))
            handle = os.open(unfinished, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
        root = Path(self._root or "/")
        for folder in path.parents:
            sync_folder(folder)
            if folder in (root, *root.parents):
                break


def _told(tell: Tell) -> Any:  # Any: a class of fsspec's, which ships no types
    from fsspec.callbacks import Callback  # type: ignore[import-untyped]

    class Told(Callback):  # type: ignore[misc]  # untyped
        def call(self, *_: Any, **__: Any) -> None:
            tell(self.value)

    return Told()


def _md5(info: dict[str, Any]) -> str | None:
    """The MD5 that a store tells: Google's, Azure's, an ETag of S3 that is one (that of a multipart upload is not)."""
    settings = info.get("content_settings")
    told = info.get("md5Hash") or (settings.get("content_md5") if settings is not None else None)
    if isinstance(told, (bytes, bytearray)):
        return bytes(told).hex()
    if isinstance(told, str):
        with suppress(binascii.Error):
            return base64.b64decode(told, validate=True).hex()
    tag = str(info.get("ETag") or "").strip('"')
    return tag if re.fullmatch(r"[0-9a-f]{32}", tag) else None


def _changed(info: dict[str, Any]) -> float | None:
    for key in ("LastModified", "last_modified", "mtime", "updated", "created"):
        told = info.get(key)
        if isinstance(told, datetime):
            return told.timestamp()
        if isinstance(told, (int, float)):
            return float(told)
        if isinstance(told, str):
            with suppress(ValueError):
                return datetime.fromisoformat(told).timestamp()
    return None
