"""Files below one address: a folder, `http(s)://` (to read), or any URL that fsspec knows.

Callers name files relative to the address and get one policy for all stores: what may pass is tried again (`retry`),
what lasts is one error, and no error shows a secret. Behind each kind of address stands an object with fsspec's own
methods (`cat_file`, `put_file`, `find`, …): fsspec's file systems as they are, and two small ones of ours
(`file_systems`), so that folders and the web need no package. A new kind of store is another such object, or none
where fsspec has it.
"""

from __future__ import annotations

import base64
import binascii
import errno
import glob
import hashlib
import inspect
import logging
import os
import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from .addresses import is_url, local_path, refuse_secrets, relative_name, scheme_of
from .errors import Canceled, DrivetrainError, InputError, missing_extra
from .file_systems import CountBytes, LocalFiles, WebFiles, refuse_longer
from .progress import Progress
from .redaction import redact

T = TypeVar("T")

PAUSES: Final = [0.5, 1.0, 2.0, 4.0, 8.0, 16.0]
"""Seconds before the second try of what failed for a reason that may pass, before the third, …"""
AT_ONCE = 8
"""Files that are moved at the same time."""

_SECRET_VARIABLE: Final = re.compile(
    r"KEY|SECRET|TOKEN|PASSWORD|CREDENTIAL|CONNECTION_STRING|SIGNATURE|_SAS", re.IGNORECASE
)
_PERMANENT: Final = (
    FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, FileExistsError, NotImplementedError,
    ImportError, TypeError,
)  # fmt: skip
_DISK_FULL: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# By the ends of their names, since the stores' packages, whose errors these are, need not be installed.
_CREDENTIALS: Final = (
    "CredentialsError",
    "RefreshError",
    "AuthenticationError",
    "TokenError",
    "AuthenticationRequired",
)
_CHECKSUM_KEYS: Final = ("md5Hash", "ETag", "etag", "content_md5", "content_settings_md5")
_BLOCK: Final = 8 << 20
_PART: Final = 8 << 20  # bytes of a large file that are sent at once, and so held in memory
_PARTS: Final = 9000  # of which S3 takes 10,000 at most
_MOST_RECORD: Final = 256 << 20  # bytes of a file that is read whole: a claim, a manifest
_MOST_UNTOLD: Final = 256 << 30  # bytes of a file whose size its store does not say
_TICK: Final = 0.2  # seconds between two looks at how much was moved


class StorageUnavailable(DrivetrainError):  # noqa: N818 - named for what happened
    """A store did not answer as it should, however often it was asked; it may later."""


# --- the store ---


@dataclass(frozen=True)
class Entry:
    """What a store says of a file.

    Attributes:
        size: Bytes.
        md5: Of its bytes (hex), where the store says so. An ETag that is none, of a multipart upload, is not taken.
        changed: When it was written, in seconds since 1970 by the store's clock; None where it does not say.
        checksum: Whatever the store says that changes with the bytes, in its own spelling; None where it says nothing.
    """

    size: int
    md5: str | None
    changed: float | None
    checksum: str | None = None


@dataclass(frozen=True)
class Match:
    """A file that a pattern names: its address in the store's own spelling, bytes and checksum if they are known."""

    address: str
    size: int | None
    checksum: str | None


class Store:
    """The files below an address, by relative names with "/" between the parts.

    Each call is tried again where it fails for a reason that may pass. What lasts is one `InputError`, what did not
    pass a `StorageUnavailable`; a file that is not there is Python's `FileNotFoundError`, a full disk its `OSError`.
    All but `remove` may be called from several threads.

    Args:
        address: A folder or a URL; for `matches` alone it may be a pattern.
        check_name: Returns a name that may be used and raises `InputError` for any other; asked at every use.

    Raises:
        InputError: The URL holds a secret, or there is no such scheme.
        DrivetrainError: The package for its scheme is not installed.
    """

    def __init__(self, address: str | Path, check_name: Callable[[str], str] = relative_name) -> None:
        text = str(address)
        self.address = text.rstrip("/") if text.partition("://")[2].strip("/") else text
        self._check_name = check_name
        folder = local_path(self.address)
        self._files: Any  # fsspec ships no types
        if folder is not None:
            self._files, self._root = LocalFiles(folder), str(folder)
            return
        refuse_secrets(self.address)
        if self.address.lower().startswith(("http://", "https://")):
            self._files, self._root = WebFiles(_MOST_RECORD), self.address
        else:
            self._files, self._root = _file_system(self.address)

    # --- reading ---

    def read(self, name: str) -> bytes:
        """A small file's bytes.

        Raises:
            TooLong: It has more than 256 MiB.
        """

        def get() -> bytes:
            where = self._path(name)
            if not isinstance(self._files, WebFiles):  # which bounds what it reads
                refuse_longer(self._named(name), int(self._fresh().info(where).get("size") or 0), _MOST_RECORD)
            # In a piece: S3's package would ask for the size once more, to see whether it reads several at once.
            return bytes(self._files.cat_file(where, **self._part_options("_cat_file", 1, 0)))

        return self._retry(name, "read", get)

    def blocks(self, name: str, size: int) -> Iterator[bytes]:
        """The bytes of a file of `size` bytes, a block at a time."""
        for begin in range(0, size, _BLOCK):
            end = min(size, begin + _BLOCK)
            yield self._retry(name, "read", partial(self._files.cat_file, self._path(name), start=begin, end=end))

    def digest(self, name: str, size: int) -> str:
        """SHA-256 (hex) of a file of `size` bytes; a block is in memory at a time."""
        sha256 = hashlib.sha256()
        for block in self.blocks(name, size):
            sha256.update(block)
        return sha256.hexdigest()

    def fetch(
        self,
        name: str,
        path: Path,
        size: int,
        count: CountBytes = lambda done: None,
        wait: Callable[[float], object] = time.sleep,
        parts: int = 1,
    ) -> None:
        """Copy a file of at most `size` bytes to a local one, a large one in so many parts at once; counts its bytes.

        Raises:
            TooLong: More bytes come. What came lies in the local file, no more than a block of them beyond `size`.
        """
        where = self._path(name)
        self._retry(name, "read", lambda: self._get(where, path, size, count, parts), wait)

    def stat(self, name: str) -> Entry:
        """What the store says of a file."""
        return _entry(self._retry(name, "read", lambda: self._fresh().info(self._path(name))))

    def exists(self, name: str) -> bool:
        """Whether there is such a file."""
        try:
            self.stat(name)
        except FileNotFoundError:
            return False
        return True

    def entries(self, folder: str) -> dict[str, Entry]:
        """The files below a folder, at any depth, by their names relative to it; none where there is no such folder.

        In a local or mounted folder those whose names begin with a dot are left out: half-written ones, and what NFS
        makes of what was deleted.
        """
        base = self._path(folder)

        def find() -> dict[str, Any]:
            return dict(self._fresh().find(base, detail=True))

        entries: dict[str, Entry] = {}
        for name, info in self._listed(folder, find).items():
            below = str(name).lstrip("/").removeprefix(base.lstrip("/"))
            if below.startswith("/") and below != "/" and not below.endswith("/"):
                entries[below[1:]] = _entry(info)
        return entries

    def names(self, folder: str) -> list[str]:
        """The names of what lies right in a folder, sorted."""
        listed = self._listed(folder, lambda: self._fresh().ls(self._path(folder), detail=False))
        paths = {str(path).strip("/") for path in listed}
        paths -= {self._path(folder).strip("/")}  # S3 may list the folder itself, too
        return sorted({path.rpartition("/")[2] for path in paths})

    def matches(self, count: CountBytes = lambda done: None) -> list[Match]:
        """The files that the address itself names, where it may be a pattern with `*`, `?` and `[…]`, in any order.

        `count` is called with 0 now and then while it waits to ask again, and may raise to stop.

        Raises:
            FileNotFoundError: It has no such sign, and there is no such file.
            InputError: It names a folder.
        """
        return self._retry("", "read", self._matches, _counting_wait(count))

    def fetch_match(self, match: Match, path: Path, count: CountBytes) -> None:
        """Copy a file that `matches` gave to a local one, of the size that was listed.

        Raises:
            TooLong: More bytes come, or, where no size was listed, more than 256 GiB.
        """
        most = _MOST_UNTOLD if match.size is None else match.size

        def get() -> None:
            self._get(match.address, path, most, count, 1)
            if match.size not in (None, path.stat().st_size):
                raise OSError(f"{path.stat().st_size} of {match.size} bytes came")

        retry(match.address, "read", get, wait=_counting_wait(count))

    # --- writing ---

    def write(self, name: str, data: bytes) -> None:
        """Write a small file; also over one that is there."""

        def put() -> None:
            where = self._writable(name)
            self._files.pipe_file(where, data)

        self._written(name, put, time.sleep)

    def create(self, name: str, data: bytes) -> bool:
        """Write a small file unless there is one of that name; whether this call wrote it.

        Of several that do so at once one writes it. The bytes must be its own, e.g. hold a random token.

        Raises:
            InputError: This store cannot do that in one step.
        """
        self.require_exclusive_creation()
        created, tries = False, 0

        def put() -> None:
            nonlocal created, tries
            tries += 1
            where = self._writable(name)
            try:
                self._files.pipe_file(where, data, mode="create")
                created = True
            except FileExistsError:
                # Where the answer to an earlier try was lost, the file that is in the way is the one it wrote.
                created = tries > 1 and bytes(self._files.cat_file(where)) == data

        self._written(name, put, time.sleep)
        return created

    def require_exclusive_creation(self) -> None:
        """See that the store can create a file only where there is none, in one step, as `create` needs.

        fsspec itself looks whether the file is there and then writes it, in two steps, between which another may
        write: a store's package must have its own way.

        Raises:
            InputError: It cannot.
        """
        if isinstance(self._files, (LocalFiles, WebFiles)):
            return
        from fsspec.asyn import AsyncFileSystem  # type: ignore[import-untyped]
        from fsspec.spec import AbstractFileSystem  # type: ignore[import-untyped]

        method = getattr(type(self._files), "_pipe_file", None) or type(self._files).pipe_file
        in_two_steps = method in (AbstractFileSystem.pipe_file, AsyncFileSystem._pipe_file)
        if in_two_steps or "mode" not in inspect.signature(method).parameters:
            raise InputError(
                f"{self.address}: {type(self._files).__name__} cannot create a file only where there is none, "
                "so two publishers could take one version",
                fix="publish to a folder, s3:// (s3fs 2024.9 or later), gs://, abfs://, and copy it from there",
            )

    def send(
        self,
        path: Path,
        name: str,
        count: CountBytes = lambda done: None,
        wait: Callable[[float], object] = time.sleep,
        parts: int = 1,
    ) -> None:
        """Copy a local file there, a large one in so many parts at once; counts its bytes so far."""
        size = path.stat().st_size  # a FileNotFoundError from here on is the store's

        def put() -> None:
            count(0)
            options = self._part_options("_put_file", parts, size)
            self._files.put_file(str(path), self._writable(name), callback=self._callback(count), **options)
            count(size)

        self._written(name, put, wait)

    def delete(self, name: str) -> None:
        """Delete a file; one that is not there is no error."""
        with suppress(FileNotFoundError):
            self._retry(name, "deleted", lambda: self._files.rm_file(self._path(name)))

    def remove(self, folder: str) -> None:
        """Delete all that lies below a folder; nothing there is no error."""

        def delete() -> None:
            path = self._path(folder)
            if glob.has_magic(path) and not isinstance(self._files, LocalFiles):
                # fsspec's `rm` takes such a path for a pattern, and would remove what else it matches.
                for file in self._fresh().find(path):
                    with suppress(FileNotFoundError):
                        self._files.rm_file(file)
            else:
                with suppress(FileNotFoundError):
                    self._files.rm(path, recursive=True)
            if left := self._fresh().find(self._path(folder)):  # s3fs says nothing of a file that it could not delete
                raise OSError(f"{len(left)} files of it could not be deleted")

        if isinstance(self._files, LocalFiles) or self.entries(folder):
            self._retry(folder, "deleted", delete)

    # --- how ---

    def _path(self, name: str) -> str:
        """The one way from a name to what the file system is asked for."""
        self._check_name(name)
        if isinstance(self._files, LocalFiles):
            self._files.refuse_links(name)
        return f"{self._root}/{name}" if name else self._root

    def _named(self, name: str) -> str:
        return f"{self.address}/{name}" if name else self.address

    def _retry(self, name: str, verb: str, do: Callable[[], T], wait: Callable[[float], object] = time.sleep) -> T:
        self._path(name)  # a bad name is not an error of the store's
        return retry(self._named(name), verb, do, wait=wait)

    def _written(self, name: str, put: Callable[[], None], wait: Callable[[float], object]) -> None:
        try:
            self._retry(name, "written", put, wait)
        except FileNotFoundError as error:
            raise store_error(self._named(name), "written", error, 1) from redacted_cause(error)

    def _listed(self, folder: str, do: Callable[[], T]) -> Any:  # Any: what fsspec gives
        try:
            return self._retry(folder, "listed", do)
        except FileNotFoundError as error:
            if re.search(r"specified (bucket|container) does not exist", str(error)):
                raise store_error(self._named(folder), "listed", error, 1) from redacted_cause(error)
            return {}

    def _matches(self) -> list[Match]:
        files = self._fresh()
        web = isinstance(files, WebFiles)
        if re.search(r"[*\[]" if web else r"[*?\[]", urlsplit(self._root).path if web else self._root):
            infos = [info for info in files.glob(self._root, detail=True).values() if info["type"] == "file"]
        else:
            infos = [files.info(self._root)]
            if infos[0]["type"] != "file":
                raise IsADirectoryError(self.address)
        return [Match(str(info["name"]), info.get("size"), _checksum(info)) for info in infos]

    def _get(self, where: str, path: Path, most: int, count: CountBytes, parts: int) -> None:
        def bounded_count(done: int) -> None:
            # What was written, not what is counted: gcsfs counts again what it asks for again.
            if done:
                refuse_longer(where, path.stat().st_size, most)
            count(done)

        count(0)
        if self._in_memory:
            # fsspec's files in memory are one object for all who open them: threads would move each other's position.
            path.write_bytes(self._files.cat_file(where))
            bounded_count(path.stat().st_size)
            return
        options = self._part_options("_get_file", parts, 0)
        self._files.get_file(where, str(path), callback=self._callback(bounded_count), **options)

    @property
    def _in_memory(self) -> bool:
        return not scheme_of(self.address).shared

    def _fresh(self) -> Any:
        """The file system without what it remembers of earlier listings."""
        self._files.invalidate_cache()
        return self._files

    def _writable(self, name: str) -> str:
        """A file's path, with the folder it lies in where the store has folders."""
        where = self._path(name)
        if scheme_of(self.address).folders:  # elsewhere this may make a bucket that is not there
            self._files.makedirs(where.rpartition("/")[0], exist_ok=True)
        return where

    def _part_options(self, method: str, parts: int, size: int) -> dict[str, int]:
        """What bounds the memory that S3's package takes for a large file: its own choice is 500 MiB, or twice that."""
        if not scheme_of(self.address).part_options:
            return {}
        wanted = {"chunksize": max(_PART, -(-size // _PARTS)), "max_concurrency": parts}
        known = inspect.signature(getattr(self._files, method)).parameters  # older releases know neither
        return {name: value for name, value in wanted.items() if name in known}

    def _callback(self, count: CountBytes) -> Any:  # Any: a class of fsspec's, which ships no types
        if isinstance(self._files, (LocalFiles, WebFiles)):
            return count
        from fsspec.callbacks import Callback  # type: ignore[import-untyped]

        class ByteCallback(Callback):  # type: ignore[misc]  # untyped
            def call(self, *_: Any, **__: Any) -> None:
                count(self.value)

        return ByteCallback()


# --- many files at once ---


class Transfer:
    """Files that are moved together: a bounded number at once, counted for the caller, stopped as one.

    Args:
        total: Bytes in all.
        unit: What the bytes are, e.g. "bytes uploaded".
        progress: Called in the caller's thread with (bytes so far, total, unit); may raise to stop.

    Attributes:
        parts: How many parts of each file may be moved at once, so that a single large one is no slower than many.
    """

    parts = 1

    def __init__(self, total: int, unit: str, progress: Progress) -> None:
        self._total, self._unit, self._progress = total, unit, progress
        self._moved: dict[int, int] = {}
        self._stop = threading.Event()
        self._failure: BaseException | None = None

    def each(self, jobs: Sequence[T], move: Callable[[T, CountBytes], None]) -> None:
        """Move every job, some at a time; `move` counts its bytes so far by what it is called with.

        Raises:
            Canceled: Progress said so.
            Exception: The first of any job; those that had not begun are left out, the others end first.
        """
        if not jobs:
            return
        self.parts = max(1, AT_ONCE // len(jobs))

        def run(job: T, count: CountBytes) -> None:
            if self._stop.is_set():
                return
            try:
                move(job, count)
            except BaseException as error:
                self._failure = self._failure or error
                self._stop.set()

        with ThreadPoolExecutor(min(AT_ONCE, len(jobs)), "drivetrain-transfer") as pool:
            pending: set[Future[None]] = {
                pool.submit(run, job, self._counter(number)) for number, job in enumerate(jobs, len(self._moved))
            }
            try:
                while pending:
                    pending = wait_for(pending, _TICK).not_done
                    if not self._stop.is_set():
                        self._progress(sum(self._moved.values()), self._total, self._unit)
            except BaseException:
                self._stop.set()
                raise
        if self._failure is not None:
            raise self._failure

    def pause(self, seconds: float) -> None:
        """Wait, unless all is stopped.

        Raises:
            Canceled: It is.
        """
        if self._stop.wait(seconds):
            raise Canceled("the transfer was stopped")

    def _counter(self, number: int) -> CountBytes:
        self._moved[number] = 0

        def count(done: int) -> None:
            self._moved[number] = done
            if self._stop.is_set():
                raise Canceled("the transfer was stopped")

        return count


# --- what fails ---


def retry(
    what: str,
    verb: str,
    do: Callable[[], T],
    pauses: Sequence[float] | None = None,
    wait: Callable[[float], object] = time.sleep,
) -> T:
    """Return what `do` returns, tried again after each pause where it fails for a reason that may pass.

    Args:
        what: The address, for the error.
        verb: What is done to it: "read", "written".
        do: The work; what it began must not hinder it the second time.
        pauses: Seconds before the second try, the third, …, by default `PAUSES`; each is up to a quarter longer, so
            that many clients that failed together do not come back together.
        wait: Waits so many seconds; may raise to stop.

    Raises:
        FileNotFoundError, OSError: There is no such file; the local disk is full.
        InputError: It fails for a reason that lasts: no right, no credentials, no such bucket.
        StorageUnavailable: It failed each time.
    """
    for number, pause in enumerate((*(PAUSES if pauses is None else pauses), None), 1):
        try:
            return do()
        except DrivetrainError:
            raise
        except Exception as error:  # whatever the store's own package raises
            if isinstance(error, FileNotFoundError) or (isinstance(error, OSError) and error.errno in _DISK_FULL):
                raise
            if pause is None or is_permanent(error):
                raise store_error(what, verb, error, number) from redacted_cause(error)
            logging.getLogger(__name__).info("%s: %s; tried again in %g s", what, redacted(error), pause)
        wait(pause * random.uniform(1.0, 1.25))  # noqa: S311 - not a secret
    raise AssertionError("unreachable")


def _counting_wait(count: CountBytes) -> Callable[[float], None]:
    """A wait that asks now and then whether to stop: the pauses are longer than a person who cancels waits."""

    def wait(seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            count(0)
            time.sleep(min(left, _TICK))

    return wait


def is_permanent(error: Exception) -> bool:
    """Whether to try again would not help."""
    if isinstance(error, _PERMANENT) or _denied(error) or type(error).__name__ == "ParamValidationError":
        return True
    status = _status(error)
    return status is not None and 400 <= status < 500 and status not in (408, 409, 423, 425, 429)


def store_error(what: str, verb: str, error: Exception, tries: int) -> DrivetrainError:
    """The error that a person reads for what a store's package raised: what failed, why, and what to do."""
    local = not is_url(what) and not what.startswith("file://")
    if isinstance(error, FileNotFoundError):
        return InputError(
            f"{what} cannot be {verb}: there is no such bucket or folder ({redacted(error)})",
            fix="make it, or mend the address",
        )
    if isinstance(error, IsADirectoryError) and verb == "read":
        return InputError(f"{what} is a folder", fix=f"name its files, e.g. {what.rstrip('/')}/*.parquet")
    if _denied(error):
        return InputError(
            f"{what} may not be {verb} ({redacted(error)})",
            fix="see that this process may read and write it"
            if local
            else "give credentials by the environment (AWS_ACCESS_KEY_ID, …; FSSPEC_S3_…), or check their rights",
        )
    if is_permanent(error):
        return InputError(
            f"{what} cannot be {verb} ({redacted(error)})",
            fix="see what lies there" if local else "mend the address or the store's settings",
        )
    often = f" after {tries} tries" if tries > 1 else ""
    return StorageUnavailable(
        f"{what} cannot be {verb}{often} ({redacted(error)})", fix="check the network and the store, then try again"
    )


class RedactedCause(Exception):  # noqa: N818 - no error of its own
    """What a store's own package raised, as a traceback may show it: tracebacks are kept with the runs."""


def redacted_cause(error: BaseException) -> RedactedCause:
    """An error with its traceback, and without what is secret in its text or in those that led to it."""
    return RedactedCause(f"{type(error).__name__}: {redacted(error)}").with_traceback(error.__traceback__)


def redacted(error: BaseException) -> str:
    """The first line of an error's text, redacted, without what this process's environment keeps secret."""
    text = redact((str(error) or type(error).__name__).splitlines()[0])
    for name, value in os.environ.items():
        if len(value) >= 6 and _SECRET_VARIABLE.search(name):
            text = text.replace(value, "…")
    return text[:200]


def _denied(error: Exception) -> bool:
    of_credentials = type(error).__name__.endswith(_CREDENTIALS)
    refused = _status(error) in (401, 403) or "Forbidden" in str(error)
    return isinstance(error, PermissionError) or of_credentials or refused


def _status(error: Exception) -> int | None:
    """The HTTP status that an error carries, as the packages of S3, Google and Azure spell it."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    else:
        status = getattr(error, "status_code", None) or getattr(error, "code", None) or getattr(error, "status", None)
    return int(status) if isinstance(status, (int, str)) and str(status).isdigit() else None


# --- what stores say of files, each in its own words ---


def _entry(info: dict[str, Any]) -> Entry:
    return Entry(int(info.get("size") or 0), _md5(info), _changed(info), _checksum(info))


def _md5(info: dict[str, Any]) -> str | None:
    """The MD5 that a store lists: Google's, Azure's, an ETag of S3 that is one (that of a multipart upload is not)."""
    settings = info.get("content_settings")
    encoded = info.get("md5Hash") or (settings.get("content_md5") if settings is not None else None)
    if isinstance(encoded, (bytes, bytearray)):
        return bytes(encoded).hex()
    if isinstance(encoded, str):
        with suppress(binascii.Error):
            return base64.b64decode(encoded, validate=True).hex()
    tag = str(info.get("ETag") or "").strip('"')
    return tag if re.fullmatch(r"[0-9a-f]{32}", tag) else None


def _checksum(info: dict[str, Any]) -> str | None:
    checksum = next((str(info[key]) for key in _CHECKSUM_KEYS if info.get(key)), None)
    return None if checksum is None or checksum.startswith("W/") else checksum  # W/: weak, of the meaning alone


def _changed(info: dict[str, Any]) -> float | None:
    for key in ("LastModified", "last_modified", "mtime", "updated", "created"):
        moment = info.get(key)
        if isinstance(moment, datetime):
            return moment.timestamp()
        if isinstance(moment, (int, float)):
            return float(moment)
        if isinstance(moment, str):
            with suppress(ValueError):
                return datetime.fromisoformat(moment).timestamp()
    return None


def _file_system(url: str) -> tuple[Any, str]:
    """The fsspec file system of a URL, as its host and user say, and the URL's path in it."""
    scheme = url.partition("://")[0].lower()
    try:
        import fsspec  # type: ignore[import-untyped]
    except ImportError as error:
        raise missing_extra("fsspec", "cloud") from error
    try:
        files, path = fsspec.core.url_to_fs(url)
        return files, str(path).rstrip("/")
    except ImportError as error:
        known = re.search(r"[Ii]nstall (?:the )?[\"'`]?([A-Za-z0-9_-]+)", str(error))
        package = known.group(1) if known else scheme
        raise DrivetrainError(
            f"{url}: {scheme}:// needs a package that is not installed ({redacted(error)})",
            fix=f"pip install {package}",
        ) from error
    except ValueError as error:
        raise InputError(
            f"{url}: there is no scheme {scheme}:// ({redacted(error)})", fix="give s3://, gs://, …"
        ) from error
    except Exception as error:  # of the store's own package
        raise store_error(url, "opened", error, 1) from redacted_cause(error)
