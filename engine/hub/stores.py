"""Where versions lie: a folder of this machine, or a prefix of a store behind a URL. One resolver guards every name."""

from __future__ import annotations

import inspect
import os
import re
import secrets
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.error import HTTPError, URLError
from urllib.parse import quote, unquote, urlsplit
from urllib.request import urlopen

from ...data.reading.remote import is_uri, refuse_secrets
from ...digest import sync_folder, sync_tree
from ...errors import InputError
from ...urls import open_url

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._ +=@-]{0,199}")
_UNFINISHED: Final = re.compile(r"\.[0-9]{1,9}\.json\.[0-9a-f]{16}")  # what `_Folder.create` writes to first
_TIMEOUT: Final = 60  # seconds without a byte


class Store(Protocol):
    """The files below one address, by relative names with "/" between parts."""

    address: str

    def read(self, name: str) -> bytes:
        """A file's bytes. Raises FileNotFoundError where there is none, InputError where it cannot be read."""

    def names(self, folder: str) -> list[str]:
        """What lies in a folder: names without it. Nothing where there is no such folder."""

    def write(self, folder: str, files: Mapping[str, bytes]) -> None:
        """Write files durably, below a folder that nobody else uses."""

    def create(self, name: str, data: bytes) -> bool:
        """Write a file whole, durably, unless there is one of that name; whether it was written."""

    def remove(self, folder: str) -> None:
        """Remove a folder with all that is below."""

    def unfinished(self, folder: str, before: datetime, *, remove: bool) -> list[str]:
        """The files in a folder that `create` began before a time and never gave their names; removed, if asked to."""


def inside(name: object) -> str:
    """A relative name that leads nowhere else.

    Raises:
        InputError: It is absolute, has `..`, or holds what no name of ours holds.
    """
    parts = name.split("/") if isinstance(name, str) else [""]
    if not isinstance(name, str) or len(parts) > 8 or not all(_NAME.fullmatch(part) for part in parts):
        raise InputError(f"the name {name!r:.80} leads elsewhere, or is none", fix="fetch it from who published it")
    return name


def store_of(address: str | Path) -> Store:
    """The store of an address: a path, `file://`, `http(s)://` (to read), or what fsspec knows.

    Raises:
        InputError: There is no such scheme, or the address holds a secret.
        DrivetrainError: A package for it is not installed.
    """
    text = str(address)
    if not is_uri(text):
        if text.startswith("file://"):
            parts = urlsplit(text)
            if parts.netloc not in ("", "localhost"):
                raise InputError(f"{text} names another machine", fix="write file:///path")
            text = unquote(parts.path)
        return _Folder(Path(text))
    refuse_secrets(text)
    if text.lower().startswith(("http://", "https://")):
        return _Web(text)
    return _Fsspec(text)


class _Folder:
    def __init__(self, root: Path) -> None:
        self.address, self._root = str(root), root

    def read(self, name: str) -> bytes:
        path = self._root / inside(name)
        if path.resolve() != self._root.resolve() / name:
            raise InputError(f"{path} is a link that leads elsewhere", fix="fetch it from who published it")
        try:
            return path.read_bytes()
        except PermissionError as error:
            raise _refused(path, error) from error

    def names(self, folder: str) -> list[str]:
        found = self._root / inside(folder)
        return sorted(path.name for path in found.iterdir()) if found.is_dir() else []

    def write(self, folder: str, files: Mapping[str, bytes]) -> None:
        target = self._root / inside(folder)
        try:
            for name, data in files.items():
                path = target / inside(name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            sync_tree(target)
            sync_folder(target.parent)
        except OSError as error:  # no right, no room, a file where a folder should be
            raise _refused(target, error) from error

    def create(self, name: str, data: bytes) -> bool:
        target = self._root / inside(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
        try:
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.link(temporary, target)  # fails where there is one: of two, one claims the name
        except FileExistsError:
            return False
        finally:
            temporary.unlink(missing_ok=True)
        sync_folder(target.parent)
        return True

    def remove(self, folder: str) -> None:
        shutil.rmtree(self._root / inside(folder))

    def unfinished(self, folder: str, before: datetime, *, remove: bool) -> list[str]:
        target = self._root / inside(folder)
        found = []
        for path in sorted(target.iterdir()) if target.is_dir() else ():
            ours = _UNFINISHED.fullmatch(path.name) and path.is_file() and not path.is_symlink()
            if ours and datetime.fromtimestamp(path.stat().st_mtime, UTC) < before:
                if remove:
                    path.unlink()
                found.append(path.name)
        return found


class _Web:
    """Files by HTTP, to read: it can neither list nor write."""

    def __init__(self, address: str) -> None:
        self.address = address.rstrip("/")

    def read(self, name: str) -> bytes:
        url = f"{self.address}/{quote(inside(name))}"
        try:
            with urlopen(url, timeout=_TIMEOUT) as answer:  # noqa: S310 - http or https
                return bytes(answer.read())
        except HTTPError as error:
            if error.code in (404, 410):
                raise FileNotFoundError(url) from error
            raise InputError(f"{url} cannot be read (HTTP {error.code})", fix="check the address and rights") from error
        except (URLError, OSError) as error:
            raise InputError(f"{url} cannot be read ({error!s:.160})", fix="check address and network") from error

    def names(self, folder: str) -> list[str]:
        raise InputError(f"{self.address}: nothing can be listed by HTTP", fix="name a version: version=1")

    def write(self, folder: str, files: Mapping[str, bytes]) -> None:
        raise InputError(f"{self.address}: nothing can be published by HTTP", fix="publish to a folder or a store")

    def create(self, name: str, data: bytes) -> bool:
        raise InputError(f"{self.address}: nothing can be published by HTTP", fix="publish to a folder or a store")

    def remove(self, folder: str) -> None:
        raise InputError(f"{self.address}: nothing can be removed by HTTP", fix="clean the store it is served from")

    def unfinished(self, folder: str, before: datetime, *, remove: bool) -> list[str]:
        return self.names(folder)  # which it cannot say


class _Fsspec:
    """A prefix of a store that fsspec knows."""

    def __init__(self, address: str) -> None:
        self.address = address.rstrip("/")
        self._files, self._root = open_url(self.address)

    def _path(self, name: str) -> str:
        return f"{self._root}/{inside(name)}"

    def read(self, name: str) -> bytes:
        self._files.invalidate_cache()
        try:
            return bytes(self._files.cat_file(self._path(name)))
        except FileNotFoundError:
            raise
        except Exception as error:  # whatever the store's own package raises
            raise self._failed(name, error) from error

    def names(self, folder: str) -> list[str]:
        self._files.invalidate_cache()
        try:
            found = self._files.ls(self._path(folder), detail=False)
        except FileNotFoundError:
            return []
        except Exception as error:  # as above
            raise self._failed(folder, error) from error
        return sorted(str(path).rstrip("/").rpartition("/")[2] for path in found)

    def write(self, folder: str, files: Mapping[str, bytes]) -> None:
        self._check_claims()
        for name, data in files.items():
            path = self._path(f"{inside(folder)}/{name}")
            try:
                self._files.makedirs(path.rpartition("/")[0], exist_ok=True)  # nothing, where there are no folders
                self._files.pipe_file(path, data)
            except Exception as error:  # as above
                raise self._failed(name, error) from error

    def create(self, name: str, data: bytes) -> bool:
        self._check_claims()
        path = self._path(name)
        try:
            self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
            self._files.pipe_file(path, data, mode="create")
        except FileExistsError:
            return False
        except Exception as error:  # as above
            raise self._failed(name, error) from error
        return True

    def remove(self, folder: str) -> None:
        try:
            self._files.rm(self._path(folder), recursive=True)
        except Exception as error:  # as above
            raise self._failed(folder, error) from error

    def unfinished(self, folder: str, before: datetime, *, remove: bool) -> list[str]:
        return []  # a file is created in one step

    def _check_claims(self) -> None:
        """Raise InputError unless the store creates a file only where there is none, in one step."""
        own = getattr(type(self._files), "_pipe_file", None) or type(self._files).pipe_file
        base = _base_pipe_file()
        if own in base or "mode" not in inspect.signature(own).parameters:
            raise InputError(
                f"{self.address}: {type(self._files).__name__} cannot create a file only where there is none, "
                "so two publishers could take one version",
                fix="publish to a folder, s3:// (s3fs 2024.9 or later), gs://, abfs://, and copy it from there",
            )

    def _failed(self, name: str, error: Exception) -> InputError:
        said = (str(error) or type(error).__name__).splitlines()[0]
        return InputError(f"{self.address}/{name}: {said:.160}", fix="check the address, the network and your rights")


def _refused(path: Path, error: OSError) -> InputError:
    return InputError(f"{path}: {error.strerror or error}", fix="see that this process may read and write it")


def _base_pipe_file() -> tuple[Any, ...]:  # Any: functions of fsspec, which ships no types
    """How fsspec itself writes a file: they look whether it is there, then write, in two steps."""
    from fsspec.asyn import AsyncFileSystem  # type: ignore[import-untyped]
    from fsspec.spec import AbstractFileSystem  # type: ignore[import-untyped]

    return AbstractFileSystem.pipe_file, AsyncFileSystem._pipe_file
